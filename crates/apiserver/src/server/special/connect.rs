//! The subresources of running pods: `exec`, `attach`, `portforward`, `proxy` and `log`.
//!
//! Nothing runs here, so in the end they are refused with words, or handed to the shell (`streams`). The steps before
//! that are the API server's own: the options in the query, admission of the connection, and whether there is a pod, a
//! container and a node to connect to.

use std::sync::Arc;

use bytes::Bytes;
use kubewright_schema::error::FieldError;
use kubewright_schema::structural;
use serde_json::{Map, Value, json};

use crate::model::status::Status;
use crate::model::{Connection, Operation, Way};
use crate::server::Call;
use crate::server::admit;
use crate::server::authorize::resource_attributes;
use crate::server::respond::{Content, Reply};
use crate::server::route::Verb;
use crate::server::special::proxy::preferred_address;
use crate::storage::StoredObject;

impl Call<'_> {
    /// Answers a request to a running pod.
    pub(crate) async fn connect(&mut self, connection: Connection) -> Result<Reply, Status> {
        let Connection { to, instead, .. } = connection;
        if to == Way::Log {
            self.check_log_options()?;
        } else {
            if self.query.has("dryRun") {
                return Err(Status::bad_request("dryRun is not supported"));
            }
            self.admit_connection(connection).await?;
            self.check_may_stream(to).await?;
        }
        let mut connect = None;
        if to == Way::Proxy {
            self.check_proxied()?;
        } else {
            match self.check_connected(to).await? {
                Connected::Answered(reply) => return Ok(reply),
                Connected::To(pod) => connect = self.connection(to, pod)?,
                Connected::Nowhere => {}
            }
        }
        let message = format!("{}/{} is not served: {instead}", self.resource.plural, to.name());
        let refusal = Status::not_implemented(message);
        let Some(connect) = connect else { return Err(refusal) };
        let mut reply = Reply::status(&refusal);
        reply.connect = Some(Box::new(connect));
        Ok(reply)
    }

    /// A user who runs a command needs the verb `create` with any method: a WebSocket begins with a GET
    /// (`ensureAuthorizedForVerb` in pkg/registry/core/pod/rest, the gate
    /// AuthorizePodWebsocketUpgradeCreatePermission).
    async fn check_may_stream(&self, to: Way) -> Result<(), Status> {
        if !matches!(to, Way::Exec | Way::Attach | Way::PortForward) {
            return Ok(());
        }
        let attributes = resource_attributes(self.path, Some(Verb::Create), self.query);
        self.server.authorize(self.user, &attributes).await
    }

    /// Makes sure that the other end of the connection exists.
    async fn check_connected(&self, to: Way) -> Result<Connected, Status> {
        let stored = self.get_stored().await?;
        if !self.resource.group.is_empty() || self.resource.plural != "pods" {
            return Ok(Connected::Nowhere);
        }
        let pod = stored.value();
        if matches!(to, Way::Exec | Way::Attach | Way::Log) {
            check_container(pod, self.name(), self.query.get("container"))?;
        }
        let node = pod.pointer("/spec/nodeName").and_then(Value::as_str);
        let has_node = node.is_some_and(|node| !node.is_empty());
        match to {
            Way::Log if !has_node => {
                let nothing = Reply::new(204, Content::Text("", Bytes::new()));
                Ok(Connected::Answered(nothing))
            }
            Way::Exec | Way::Attach | Way::PortForward if !has_node => {
                let why = format!("pod {} does not have a host assigned", self.name());
                Err(Status::bad_request(why))
            }
            _ => {
                self.check_node(node.unwrap_or(""))?;
                Ok(Connected::To(stored))
            }
        }
    }

    /// Makes sure that there is a node of this name, and an address to reach it at.
    fn check_node(&self, name: &str) -> Result<(), Status> {
        let row = self.kinds.lookup("", "v1", "nodes");
        let row = row.ok_or_else(|| Status::untyped("nodes are not served"))?;
        let Some(node) = self.server.storage.get(&row.store, name) else {
            // Upstream says it of the kind that was asked for.
            return Err(Status::not_found(&self.resource, name));
        };
        preferred_address(node.value()).map(drop)
    }

    /// Lets the plugins look at the options of a connection.
    async fn admit_connection(&mut self, connection: Connection) -> Result<(), Status> {
        let mut options = self.connection_options(connection)?;
        let writer = self.writer(false);
        let mut attributes = writer.attributes(Operation::Connect, connection.to.name(), self.namespace(), self.name());
        attributes.kind = admit::kind("", "v1", connection.kind);
        attributes.options = Value::Null;
        let session = writer.session();
        let mut admitted = writer.mutate(&session, &attributes, &mut options, None).await;
        if admitted.is_ok() {
            admitted = writer.validate(&session, &attributes, &options, None).await;
        }
        self.warnings.extend(session.take_warnings());
        admitted
    }

    /// The options in the query as the object that they stand for.
    fn connection_options(&self, connection: Connection) -> Result<Value, Status> {
        let Connection { to, kind, .. } = connection;
        let mut options = Map::new();
        options.insert("kind".to_owned(), json!(kind));
        options.insert("apiVersion".to_owned(), json!("v1"));
        if to == Way::Proxy && !self.path.below.is_empty() {
            options.insert("path".to_owned(), json!(self.path.below));
        }
        let has_streams = matches!(to, Way::Exec | Way::Attach);
        for flag in ["stdin", "stdout", "stderr", "tty"] {
            if has_streams && self.query.flag(flag) {
                options.insert(flag.to_owned(), json!(true));
            }
        }
        let container = self.query.get("container");
        if has_streams && !container.is_empty() {
            options.insert("container".to_owned(), json!(container));
        }
        if to == Way::Exec {
            let command = self.query.all("command");
            let command = if command.is_empty() {
                Value::Null
            } else {
                json!(command)
            };
            options.insert("command".to_owned(), command);
        }
        let ports = self.query.all("ports");
        if to == Way::PortForward && !ports.is_empty() {
            options.insert("ports".to_owned(), json!(port_numbers(ports)?));
        }
        Ok(Value::Object(options))
    }

    fn check_log_options(&self) -> Result<(), Status> {
        // Read in the order of Go's struct, each before anything is looked at.
        let seconds = self.query.number("sinceSeconds")?;
        let time = self.query.get("sinceTime");
        if !time.is_empty() {
            structural::time_check(time).map_err(Status::bad_request)?;
        }
        let (lines, bytes) = (self.query.number("tailLines")?, self.query.number("limitBytes")?);
        let mut errors = Vec::new();
        let mut at_least = |field: &str, number: Option<i64>, least: i64, why: &str| {
            if let Some(number) = number.filter(|number| *number < least) {
                errors.push(FieldError::invalid(field, json!(number), why));
            }
        };
        at_least("tailLines", lines, 0, "must be greater than or equal to 0");
        at_least("limitBytes", bytes, 1, "must be greater than 0");
        if seconds.is_some() && self.query.has("sinceTime") {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(FieldError::forbidden("[]", why));
        } else {
            at_least("sinceSeconds", seconds, 1, "must be greater than 0");
        }
        // A feature that is off.
        if self.query.has("stream") {
            errors.push(FieldError::forbidden("stream", "may not be specified"));
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Status::invalid("", "PodLogOptions", self.name(), &errors))
        }
    }
}

/// The other end of a connection.
enum Connected {
    /// A pod on a node.
    To(Arc<StoredObject>),
    /// An object that could never run.
    Nowhere,
    /// Nothing, and that is no error.
    Answered(Reply),
}

/// The ports that a request names, several in one text or each in its own.
pub(super) fn port_numbers(texts: &[String]) -> Result<Vec<u16>, Status> {
    let number = |text: &str| {
        text.parse::<u16>().map_err(|error| {
            let why = match error.kind() {
                std::num::IntErrorKind::PosOverflow => "value out of range",
                _ => "invalid syntax",
            };
            Status::bad_request(format!(
                "cannot convert to []int32: strconv.ParseUint: parsing {text:?}: {why}"
            ))
        })
    };
    let parts = texts.iter().flat_map(|text| text.split(','));
    parts.map(number).collect()
}

/// The container that is meant is one of the pod's; one that is the only one need not be named.
fn check_container(pod: &Value, name: &str, wanted: &str) -> Result<(), Status> {
    let names = |field: &str| -> Vec<&str> {
        let list = pod.pointer(&format!("/spec/{field}")).and_then(Value::as_array);
        let names = list.into_iter().flatten().filter_map(|container| container.get("name"));
        names.filter_map(Value::as_str).collect()
    };
    let containers = names("containers");
    let is_only_one = containers.len() == 1;
    let all = [names("initContainers"), containers, names("ephemeralContainers")].concat();
    if wanted.is_empty() {
        if is_only_one {
            return Ok(());
        }
        return Err(Status::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        )));
    }
    if all.contains(&wanted) {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "container {wanted} is not valid for pod {name}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_named_unless_there_is_one() {
        let check = |pod: &Value, wanted: &str, expected: &str| {
            let said = check_container(pod, "p", wanted);
            assert_eq!(said.map_or_else(|status| status.message, |()| String::new()), expected);
        };
        let one = json!({"spec": {"containers": [{"name": "a"}]}});
        check(&one, "", "");
        check(&one, "a", "");
        check(&one, "b", "container b is not valid for pod p");
        let two = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
        check(
            &two,
            "",
            "a container name must be specified for pod p, choose one of: [i a b]",
        );
        check(&two, "i", "");
    }

    #[test]
    fn ports_are_numbers() {
        assert_eq!(port_numbers(&["80".to_owned(), "81".to_owned()]), Ok(vec![80, 81]));
        assert_eq!(port_numbers(&["80,81".to_owned()]), Ok(vec![80, 81]));
        let several = ["80,443".to_owned(), "1".to_owned()];
        assert_eq!(port_numbers(&several), Ok(vec![80, 443, 1]));
        assert_eq!(port_numbers(&[]), Ok(vec![]));
        assert!(port_numbers(&["".to_owned()]).is_err());
        assert!(port_numbers(&["65536".to_owned()]).is_err());
        let wrong = port_numbers(&["x".to_owned()]).map_err(|status| status.message);
        let expected = "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax";
        assert_eq!(wrong, Err(expected.to_owned()));
    }
}
