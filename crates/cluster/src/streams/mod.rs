//! Connects clients with what runs: logs that go on, and later what speaks both ways.
//!
//! The API server has decided who may be connected with what ([`Connect`]); this does it. Invariants:
//! - a stream ends when its client goes, when what it is connected with ends, and when the cluster stops;
//! - what a client does not take is not read: nothing is gathered for a client that is slow.
//!
//! `simulated` is what a pod says in which nothing runs.

mod simulated;

use bytes::Bytes;
use futures::StreamExt as _;
use http::request::Parts;
use http::{HeaderValue, Response, header};
use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::kube::api::WatchParams;
use kubewright::kube::core::WatchEvent;
use kubewright::kube::{self, Api};
use kubewright_apiserver::{Body, Connect, LogOptions, UserInfo, Wants};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::front::Front;
use crate::inprocess;
use crate::processes::lines::{Filter, Line, tail};
use crate::processes::{Processes, Reader};
use crate::response::ResponseBody;

/// How many pieces may wait for a client.
const PIECES: usize = 8;

/// Connects a client with what it wants; `refusal` says that this is not served.
pub(crate) fn connect(
    front: &Front,
    connect: Connect,
    _head: &Parts,
    refusal: Response<Body>,
) -> Response<ResponseBody> {
    match connect.wants {
        Wants::Log(ref options) => {
            let options = options.clone();
            log(front, connect, options)
        }
        _ => front.respond(refusal),
    }
}

fn log(front: &Front, connect: Connect, options: LogOptions) -> Response<ResponseBody> {
    let (sender, receiver) = mpsc::channel(PIECES);
    let (front, stop) = (front.clone(), front.stop.clone());
    tokio::spawn(async move {
        let sending = async {
            // Who goes ends the stream; there is nobody to tell.
            let _ = match front
                .processes
                .as_ref()
                .and_then(|processes| real_log(processes, &connect, &options))
            {
                Some(log) => send_real(log, &options, &sender).await,
                None => send_simulated(&front, &connect, &options, &sender).await,
            };
        };
        tokio::select! {
            () = sending => {}
            () = sender.closed() => {}
            () = stop.requested() => {}
        }
    });
    let mut response = Response::new(ResponseBody::Flow(receiver));
    let text = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
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
fn real_log(processes: &Processes, connect: &Connect, options: &LogOptions) -> Option<Reader> {
    let uid = connect.pod.value().pointer("/metadata/uid")?.as_str()?;
    processes.log(uid, &connect.container, options.previous)
}

async fn send_real(mut log: Reader, options: &LogOptions, to: &mpsc::Sender<Bytes>) -> Result<(), Gone> {
    let mut filter = Filter::new(options);
    let Ok(first) = log.read() else { return Ok(()) };
    send(tail(&first, options.tail_lines), &mut filter, to).await?;
    while options.follow && !filter.is_spent() && log.more().await {
        let Ok(lines) = log.read() else { return Ok(()) };
        send(&lines, &mut filter, to).await?;
    }
    Ok(())
}

/// The log of a container in which nothing runs.
async fn send_simulated(
    front: &Front,
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
    let client = inprocess::client(front.clone(), UserInfo::admin());
    let Ok(mut changes) = changes(client, connect).await else {
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
