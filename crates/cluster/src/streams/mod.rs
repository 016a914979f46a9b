//! Connects clients with running containers: logs that go on, and connections in both directions.
//!
//! The API server has decided which client may be connected to which stream ([`Connect`]); this connects them, over the
//! protocols of `kubewright_server::streams`, with the programs of `kubewright_nodes`. Invariants:
//! - a stream ends when its client goes, when its other end does, and when the cluster stops;
//! - bytes that a client does not take are not read: nothing is gathered for a slow client.
//!
//! `exec` has commands, `filter` the lines of logs; `simulated` is the log of a pod without processes.

mod exec;
mod filter;
mod simulated;

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderValue, Response, Version, header};
use kubewright::kube::api::WatchParams;
use kubewright::kube::core::WatchEvent;
use kubewright::kube::{self, Api};
use kubewright_apiserver::{Body, Connect, LogOptions, Wants};
use kubewright_nodes::{Behaviours, Line, LogReader, Processes};
use kubewright_objects::api::core::v1::Pod;
use kubewright_server::streams::{self, PIECES, Pod as Forwarded};
use kubewright_server::{Connector, ResponseBody};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::filter::{Filter, tail};

/// The streams to which clients may be connected. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Streams {
    /// The pods that run as processes.
    pub(crate) processes: Option<Processes>,
    /// How simulated pods behave.
    pub(crate) behaviours: Behaviours,
    /// Makes a client of the API server, which watches pods and reads what is around them.
    pub(crate) client: Arc<dyn Fn() -> kube::Client + Send + Sync>,
    /// Ends all streams.
    pub(crate) stop: CancellationToken,
}

impl Connector for Streams {
    fn connect<'a>(
        &'a self,
        connect: Connect,
        head: &'a Parts,
        refusal: Response<Body>,
    ) -> BoxFuture<'a, Result<Response<ResponseBody>, Box<Response<Body>>>> {
        Box::pin(async move {
            let answer = match connect.wants {
                Wants::Log(ref options) => {
                    let options = options.clone();
                    Some(self.log(connect, options))
                }
                // Nothing else has connections that become others.
                _ if head.version != Version::HTTP_11 => None,
                Wants::Exec { ref command, streams } => self.exec(&connect, head, command.clone(), streams).await,
                Wants::Attach(streams) => self.attach(&connect, head, streams),
                Wants::PortForward { ref ports } => self.forward(&connect, head, ports),
            };
            answer.ok_or_else(|| Box::new(refusal))
        })
    }
}

impl Streams {
    async fn exec(
        &self,
        connect: &Connect,
        head: &Parts,
        command: Vec<String>,
        wanted: kubewright_apiserver::Streams,
    ) -> Option<Response<ResponseBody>> {
        let target = exec::Target {
            uid: uid(connect),
            container: connect.container.clone(),
            streams: wanted,
        };
        let processes = self.processes.clone();
        let Some(processes) = processes.filter(|processes| processes.is_running(&target.uid, &target.container)) else {
            let (output, code) = self.simulated_command(connect).await?;
            let say = move |remote| exec::say(output, code, wanted, remote);
            return streams::remote(head, wanted, &self.stop, say);
        };
        let run = move |remote| exec::run(processes, target, command, remote);
        streams::remote(head, wanted, &self.stop, run)
    }

    /// What a command says in a container in which nothing runs, and its exit code, if annotations tell.
    async fn simulated_command(&self, connect: &Connect) -> Option<(String, i32)> {
        let (pod, container) = (connect.pod.value(), connect.container.as_str());
        if !simulated::is_running(pod, container) {
            return None;
        }
        let pod: Pod = serde_json::from_value(pod.clone()).ok()?;
        let said = kubewright_nodes::command_result(&pod, container, &self.behaviours, &(self.client)()).await;
        // The client is told that commands are not served.
        said.unwrap_or_else(|why| {
            tracing::warn!(%why, "cannot read the annotations around a pod in which a client wants to run a command");
            None
        })
    }

    fn attach(
        &self,
        connect: &Connect,
        head: &Parts,
        wanted: kubewright_apiserver::Streams,
    ) -> Option<Response<ResponseBody>> {
        let attached = self
            .processes
            .as_ref()?
            .attach(&uid(connect), &connect.container, wanted.stdin)?;
        let join = move |remote| exec::attach(attached, wanted, remote);
        streams::remote(head, wanted, &self.stop, join)
    }

    fn forward(&self, connect: &Connect, head: &Parts, ports: &[u16]) -> Option<Response<ResponseBody>> {
        let pod = connect.pod.value();
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let uid = uid(connect);
        if !self.processes.as_ref()?.runs_any_of(&uid) {
            return None;
        }
        let ip = text("/status/podIP").parse().ok()?;
        let name = format!("{}_{}", text("/metadata/name"), text("/metadata/namespace"));
        streams::port_forward(head, Forwarded { name, uid, ip }, ports, &self.stop)
    }

    fn log(&self, connect: Connect, options: LogOptions) -> Response<ResponseBody> {
        let (sender, receiver) = mpsc::channel(PIECES);
        let own = self.clone();
        tokio::spawn(async move {
            let sending = async {
                let log = own.processes.as_ref();
                // A client that goes ends the stream; no error needs to be sent.
                let _ = match log.and_then(|processes| real_log(processes, &connect, &options)) {
                    Some(log) => send_real(log, &options, &sender).await,
                    None => own.send_simulated(&connect, &options, &sender).await,
                };
            };
            tokio::select! {
                () = sending => {}
                () = sender.closed() => {}
                () = own.stop.cancelled() => {}
            }
        });
        let mut response = Response::new(ResponseBody::Flow(receiver));
        let text = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
        response
    }

    /// The log of a container in which nothing runs.
    async fn send_simulated(
        &self,
        connect: &Connect,
        options: &LogOptions,
        to: &mpsc::Sender<Bytes>,
    ) -> Result<(), Gone> {
        let (pod, container) = (connect.pod.value(), connect.container.as_str());
        let mut filter = Filter::new(options);
        let first = simulated::log(pod, container, options.previous);
        send(tail(&first, options.tail_lines), &mut filter, to).await?;
        if !options.follow || options.previous || !simulated::is_running(pod, container) {
            return Ok(());
        }
        let mut told = first.len();
        let Ok(mut changes) = changes((self.client)(), connect).await else {
            return Ok(());
        };
        while let Some(Some(pod)) = changes.next().await {
            let all = simulated::log(&pod, container, false);
            send(all.get(told..).unwrap_or_default(), &mut filter, to).await?;
            told = told.max(all.len());
            if filter.is_spent() || !simulated::is_running(&pod, container) {
                break;
            }
        }
        Ok(())
    }
}

fn uid(connect: &Connect) -> String {
    let uid = connect.pod.value().pointer("/metadata/uid").and_then(Value::as_str);
    uid.unwrap_or_default().to_owned()
}

/// The client went.
struct Gone;

async fn send(lines: &[Line], filter: &mut Filter, to: &mpsc::Sender<Bytes>) -> Result<(), Gone> {
    let mut out = Vec::new();
    lines.iter().for_each(|line| filter.write(line, &mut out));
    if out.is_empty() {
        return Ok(());
    }
    to.send(out.into()).await.map_err(|_| Gone)
}

/// The log of a container that runs, or has run.
fn real_log(processes: &Processes, connect: &Connect, options: &LogOptions) -> Option<LogReader> {
    processes.log(&uid(connect), &connect.container, options.previous)
}

async fn send_real(mut log: LogReader, options: &LogOptions, to: &mpsc::Sender<Bytes>) -> Result<(), Gone> {
    let mut filter = Filter::new(options);
    if let Some(lines) = options.tail_lines
        && log.skip_to_the_last(lines).is_err()
    {
        return Ok(());
    }
    // A program may write faster than a client reads, and a client without `follow` gets the present lines only.
    let Ok(all) = log.ahead() else { return Ok(()) };
    loop {
        let Ok(lines) = log.read() else { return Ok(()) };
        send(&lines, &mut filter, to).await?;
        let has_all = lines.is_empty() || (!options.follow && log.taken() >= all);
        if filter.is_spent() || has_all && !(options.follow && log.more().await) {
            return Ok(());
        }
        // A long log is read in pieces, and others have their turn between them.
        tokio::task::yield_now().await;
    }
}

/// The pod after each of its changes; none when it is gone.
async fn changes(
    client: kube::Client,
    connect: &Connect,
) -> kube::Result<impl futures::Stream<Item = Option<Value>> + Unpin + use<>> {
    let metadata = &connect.pod.value()["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let pods: Api<Pod> = Api::namespaced(client, &text("namespace"));
    let wanted = WatchParams::default().fields(&format!("metadata.name={}", text("name")));
    let (uid, version) = (text("uid"), connect.pod.revision().to_string());
    let events = pods.watch(&wanted, &version).await?;
    Ok(Box::pin(events.filter_map(move |event| {
        let changed = match event {
            Ok(WatchEvent::Modified(pod)) if pod.metadata.uid.as_deref() == Some(&uid) => {
                Some(serde_json::to_value(&pod).ok())
            }
            Ok(WatchEvent::Bookmark(_)) => None,
            _ => Some(None),
        };
        std::future::ready(changed)
    })))
}
