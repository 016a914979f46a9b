//! A watch as a process of the operator hears it: event by event, with the faults of watches.
//!
//! Invariant: events arrive in their order, whole, and none twice; what is missed is followed by the error 410, after
//! which a client lists anew.

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use kubewright::kube::{self, client::Body};
use serde::Deserialize;
use tokio::time::Instant;

use std::sync::Arc;

use super::fault::Fault;
use super::log::What;
use super::seam::Seam;
use crate::intercept::Call;

/// One watch on its way to a process.
pub(super) struct Delivery {
    pub(super) seam: Arc<Seam>,
    pub(super) process: usize,
    pub(super) call: Call,
    /// The watch begins with the objects that are there.
    pub(super) is_initial: bool,
    /// Nothing is delivered before.
    pub(super) opens: Option<Instant>,
}

#[derive(Deserialize)]
struct Line {
    r#type: String,
    #[serde(default)]
    object: Object,
}

#[derive(Deserialize, Default)]
struct Object {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    namespace: String,
    name: String,
    #[serde(rename = "resourceVersion")]
    revision: String,
    annotations: std::collections::BTreeMap<String, String>,
}

/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}
"#;

struct Reading {
    body: Body,
    buffer: Vec<u8>,
    delivery: Delivery,
    /// The object whose next event ends the watch, and when it ends without one.
    missed: Option<((String, String), Instant)>,
    is_over: bool,
}

impl Delivery {
    /// The same watch, as the process hears it.
    pub(super) fn of(self, body: Body) -> UnsyncBoxBody<Bytes, kube::Error> {
        let reading = Reading {
            body,
            buffer: Vec::new(),
            delivery: self,
            missed: None,
            is_over: false,
        };
        let frames = stream::unfold(reading, |mut reading| async move {
            let piece = reading.piece().await?;
            Some((Ok(Frame::data(piece)), reading))
        });
        StreamBody::new(frames).boxed_unsync()
    }
}

impl Reading {
    /// The next piece that the process gets; `None` at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        loop {
            if self.is_over {
                return None;
            }
            let Some(line) = self.line().await else {
                self.is_over = true;
                return None;
            };
            let Ok(line) = line else {
                self.is_over = true;
                return Some(Bytes::from_static(EXPIRED));
            };
            if let Some(opens) = self.delivery.opens.take() {
                tokio::time::sleep_until(opens).await;
            }
            self.delivery.seam.stands_still(self.delivery.process).await;
            match self.heard(&line).await {
                Delivered::Whole => return Some(Bytes::from(line)),
                Delivered::Half => {
                    self.is_over = true;
                    let half = line.len() / 2;
                    return Some(Bytes::from(line[..half].to_vec()));
                }
                Delivered::Not => {}
                Delivered::Expired => {
                    self.is_over = true;
                    return Some(Bytes::from_static(EXPIRED));
                }
            }
        }
    }

    /// The next line; an error when what was missed is to be listed now.
    async fn line(&mut self) -> Option<Result<Vec<u8>, ()>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Some(Ok(self.buffer.drain(..=end).collect()));
            }
            let until = self.missed.as_ref().map(|(_, until)| *until);
            let expires = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = expires => return Some(Err(())),
                frame = self.body.frame() => match frame {
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            self.buffer.extend_from_slice(&data);
                        }
                    }
                    Some(Err(_)) | None => return None,
                },
            }
        }
    }

    async fn heard(&mut self, line: &[u8]) -> Delivered {
        let Ok(Line { r#type: kind, object }) = serde_json::from_slice::<Line>(line) else {
            return Delivered::Whole;
        };
        let Metadata {
            namespace,
            name,
            revision,
            annotations,
        } = object.metadata;
        if kind == "BOOKMARK" {
            if annotations.contains_key(INITIAL_EVENTS_END) {
                self.delivery.is_initial = false;
            }
            return Delivered::Whole;
        }
        if kind == "ERROR" || self.delivery.is_initial {
            return Delivered::Whole;
        }
        let name = (namespace, name);
        if let Some((missed, _)) = &self.missed {
            // Everything behind it comes with the list.
            return if *missed == name {
                Delivered::Expired
            } else {
                Delivered::Not
            };
        }
        let delivery = &self.delivery;
        let event = What::Event {
            kind,
            revision: revision.parse().unwrap_or_default(),
        };
        match delivery
            .seam
            .deliver(delivery.process, &delivery.call, event, name.clone())
        {
            None => Delivered::Whole,
            Some(Fault::Held { .. }) => {
                let _held = delivery.seam.under_way();
                tokio::time::sleep(delivery.seam.pace.long).await;
                Delivered::Whole
            }
            Some(Fault::Late { .. }) => {
                let _held = delivery.seam.under_way();
                tokio::time::sleep(delivery.seam.pace.late).await;
                Delivered::Whole
            }
            Some(Fault::Missed { .. }) => {
                let until = Instant::now() + delivery.seam.pace.long;
                delivery.seam.due(until);
                self.missed = Some((name, until));
                Delivered::Not
            }
            Some(_) => Delivered::Half,
        }
    }
}

/// What becomes of a line.
enum Delivered {
    Whole,
    Half,
    Not,
    /// The watch ends with 410.
    Expired,
}
