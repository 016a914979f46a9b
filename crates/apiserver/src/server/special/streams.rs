//! The stream to which a client is connected: the log of a container, a program that is run in it, its ports.
//!
//! The server decides whether there is something to connect to and which stream of it; the shell, which has the sockets
//! and the processes, finds the decision in the extensions of the answer and connects. The answer itself says in words
//! that nothing runs, for a shell that does not know how.
//!
//! The texts are the kubelet's (`validateContainerLogStatus` in pkg/kubelet/kubelet_pods.go;
//! `remotecommand.NewOptions`). Not here: whether the request may come this far (`authorize`), the options of the log
//! that are wrong (`connect`).

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::connect::port_numbers;
use crate::model::Way;
use crate::model::status::Status;
use crate::server::Call;
use crate::storage::StoredObject;

/// The stream to which a client is to be connected.
#[derive(Clone, Debug)]
pub struct Connect {
    /// The pod as it is.
    pub pod: Arc<StoredObject>,
    /// The container that is meant; empty for ports, which belong to all.
    pub container: String,
    /// The requested stream.
    pub wants: Wants,
}

/// The stream of a pod that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wants {
    /// The log of the container.
    Log(LogOptions),
    /// To run a command beside the container's program.
    Exec {
        /// The program and its arguments.
        command: Vec<String>,
        /// The connected streams.
        streams: Streams,
    },
    /// The streams of the container's program itself.
    Attach(Streams),
    /// Connections to its ports.
    PortForward {
        /// The ports that the request names; many clients name them later.
        ports: Vec<u16>,
    },
}

/// Which streams of a program are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error; never with a terminal, where both are one.
    pub stderr: bool,
    /// Whether it gets a terminal.
    pub tty: bool,
}

/// Which lines of a log are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Also those that are still to come.
    pub follow: bool,
    /// Those of the container's previous life.
    pub previous: bool,
    /// Not those before this time.
    pub since: Option<Timestamp>,
    /// With the time of each.
    pub timestamps: bool,
    /// Only so many at the end.
    pub tail_lines: Option<u64>,
    /// Only so many bytes.
    pub limit_bytes: Option<u64>,
}

impl Call<'_> {
    /// The connection to this pod; none where it leads nowhere.
    pub(crate) fn connection(&self, to: Way, pod: Arc<StoredObject>) -> Result<Option<Connect>, Status> {
        let container = container_of(pod.value(), self.query.get("container"));
        let wants = match to {
            Way::Log => Wants::Log(self.log_options(pod.value(), &container)?),
            Way::Exec => Wants::Exec {
                command: self.query.all("command").to_vec(),
                streams: self.streams(pod.value(), &container)?,
            },
            Way::Attach => Wants::Attach(self.streams(pod.value(), &container)?),
            Way::PortForward => Wants::PortForward {
                ports: port_numbers(self.query.all("ports"))?,
            },
            Way::Proxy => return Ok(None),
        };
        Ok(Some(Connect { pod, container, wants }))
    }

    fn log_options(&self, pod: &Value, container: &str) -> Result<LogOptions, Status> {
        let options = LogOptions {
            follow: self.query.flag("follow"),
            previous: self.query.flag("previous"),
            since: self.since()?,
            timestamps: self.query.flag("timestamps"),
            tail_lines: self.count("tailLines")?,
            limit_bytes: self.count("limitBytes")?,
        };
        let name = crate::object::name(pod);
        check_log(status_of(pod, container), container, name, options.previous).map_err(Status::bad_request)?;
        Ok(options)
    }

    fn count(&self, field: &str) -> Result<Option<u64>, Status> {
        let number = self.query.number(field)?;
        Ok(number.and_then(|number| u64::try_from(number).ok()))
    }

    fn since(&self) -> Result<Option<Timestamp>, Status> {
        if let Some(seconds) = self.query.number("sinceSeconds")? {
            let ago = self.server.env.now().as_second().saturating_sub(seconds);
            return Ok(Some(Timestamp::from_second(ago).unwrap_or(Timestamp::MIN)));
        }
        // It has been checked.
        Ok(self.query.get("sinceTime").parse().ok())
    }

    fn streams(&self, pod: &Value, container: &str) -> Result<Streams, Status> {
        let flag = |name| self.query.flag(name);
        let tty = flag("tty");
        let streams = Streams {
            stdin: flag("stdin"),
            stdout: flag("stdout"),
            stderr: flag("stderr") && !tty,
            tty,
        };
        let running = status_of(pod, container).and_then(|status| status.pointer("/state/running"));
        if running.is_none_or(Value::is_null) {
            let why = format!("unable to upgrade connection: container not found (\"{container}\")");
            return Err(Status::failure(500, "InternalError", why));
        }
        if !(streams.stdin || streams.stdout || streams.stderr) {
            let why = "you must specify at least 1 of stdin, stdout, stderr";
            return Err(Status::bad_request(why));
        }
        Ok(streams)
    }
}

/// The container that is meant: the one that is named, or the only one.
fn container_of(pod: &Value, wanted: &str) -> String {
    if !wanted.is_empty() {
        return wanted.to_owned();
    }
    let only = pod.pointer("/spec/containers/0/name").and_then(Value::as_str);
    only.unwrap_or_default().to_owned()
}

fn status_of<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let fields = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ];
    fields.iter().find_map(|field| {
        let list = pod.pointer(&format!("/status/{field}"))?.as_array()?;
        list.iter()
            .find(|status| status.get("name").and_then(Value::as_str) == Some(container))
    })
}

/// Whether a container has a log.
fn check_log(status: Option<&Value>, container: &str, pod: &str, previous: bool) -> Result<(), String> {
    let named = format!("container {container:?} in pod {pod:?}");
    let Some(status) = status else {
        return Err(format!("{named} is not available"));
    };
    let part = |path: &str| status.pointer(path).filter(|part| !part.is_null());
    let ran = |path: &str| {
        let id = part(path)
            .and_then(|end| end.get("containerID"))
            .and_then(Value::as_str);
        id.is_some_and(|id| !id.is_empty())
    };
    let before = ran("/lastState/terminated");
    if previous {
        return if before {
            Ok(())
        } else {
            Err(format!("previous terminated {named} not found"))
        };
    }
    if part("/state/running").is_some() {
        return Ok(());
    }
    if part("/state/terminated").is_some() {
        let has_log = ran("/state/terminated") || before;
        return if has_log {
            Ok(())
        } else {
            Err(format!("{named} is terminated"))
        };
    }
    if part("/lastState/terminated").is_some() {
        return if before {
            Ok(())
        } else {
            Err(format!("{named} is terminated"))
        };
    }
    let Some(waiting) = part("/state/waiting") else {
        return Err(format!("{named} is waiting to start - no logs yet"));
    };
    let why = match waiting.get("reason").and_then(Value::as_str).unwrap_or_default() {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        reason => reason,
    };
    Err(format!("{named} is waiting to start: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn which_containers_have_a_log() {
        let check = |status: Value, previous: bool, expected: &str| {
            let found = check_log(Some(&status), "c", "p", previous);
            assert_eq!(found.err().unwrap_or_default(), expected, "{status}");
        };
        let ended = json!({ "terminated": { "containerID": "x://1" } });
        let never = json!({ "terminated": { "exitCode": 1 } });
        check(json!({ "state": { "running": {} } }), false, "");
        check(json!({ "state": { "running": {} }, "lastState": ended }), true, "");
        let none = "previous terminated container \"c\" in pod \"p\" not found";
        check(json!({ "state": { "running": {} } }), true, none);
        check(json!({ "state": { "running": {} }, "lastState": never }), true, none);
        check(json!({ "state": ended }), false, "");
        check(
            json!({ "state": never }),
            false,
            "container \"c\" in pod \"p\" is terminated",
        );
        check(json!({ "state": { "waiting": {} }, "lastState": ended }), false, "");
        let waits = |reason: &str, expected: &str| {
            let text = format!("container \"c\" in pod \"p\" is waiting to start: {expected}");
            check(json!({ "state": { "waiting": { "reason": reason } } }), false, &text);
        };
        waits("ContainerCreating", "ContainerCreating");
        waits("ErrImagePull", "image can't be pulled");
        waits("ImagePullBackOff", "trying and failing to pull image");
        check(
            json!({ "state": {} }),
            false,
            "container \"c\" in pod \"p\" is waiting to start - no logs yet",
        );
        assert_eq!(
            check_log(None, "c", "p", false).err().as_deref(),
            Some("container \"c\" in pod \"p\" is not available")
        );
    }
}
