//! Writes recorded events in the background (client-go's event broadcaster and its `EventCorrelator`).
//!
//! Invariants: E2 memory is bounded, and one object cannot flood the API (25 events, then one in five minutes); E3 events
//! on cluster-scoped objects go to `default`; E4 a name that is taken is replaced by another, unless an attempt whose
//! answer was lost took it: no event is written twice; E5 a namespace that is being deleted takes no events, which is no
//! error; E6 queued events are written before the process stops. Equal events (object, type, reason, message, component)
//! are one Event whose count grows; E7 events that differ only in their message are one as well from the tenth message
//! on, which has the latest message and says that it combines several.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request as Requests;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::{BuiltRequest, Client};
use crate::clock::Clock;
use crate::error::{Chain, Error, Result};
use crate::events::{EventRecorder, Key, Record, Subject, Waiting};
use crate::object::{api_resource, collection_path};
use crate::stop::Stop;

/// How many different events are remembered for counting.
const MEMORY: usize = 4096;
/// How many events one object may have at once, and how long it takes until it may have one more.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);
/// So many different messages make the same kind of event similar, unless it was quiet for so long.
const SIMILAR: usize = 10;
const QUIET: SignedDuration = SignedDuration::from_mins(10);
/// The prefix of the message of an event that stands for similar ones.
const COMBINED: &str = "(combined from similar events): ";
/// How long one write may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// How often a write that fails is tried.
const TRIES: u32 = 3;

impl EventRecorder {
    /// Starts the writer; it ends, after writing the queued events, when `stop` is requested.
    pub fn start(client: &Client, clock: Arc<dyn Clock>, stop: Stop) -> (EventRecorder, JoinHandle<()>) {
        let (recorder, waiting, woken) = EventRecorder::unwritten(clock);
        let writer = Writer {
            client: client.without_receipts().with_request_deadline(DEADLINE),
            waiting,
            failing: false,
            known: BTreeMap::new(),
            messages: BTreeMap::new(),
            buckets: BTreeMap::new(),
            serial: 0,
        };
        let task = tokio::spawn(writer.run(woken, stop));
        (recorder, task)
    }
}

struct Known {
    namespace: String,
    name: String,
    count: i32,
}

/// The messages of one kind of event, up to the number that makes them similar.
#[derive(Default)]
struct Messages {
    different: BTreeSet<String>,
    last: Timestamp,
}

impl Messages {
    /// Takes one more, and says whether there were so many lately that they are one.
    fn are_similar(&mut self, message: &str, at: Timestamp) -> bool {
        if at.duration_since(self.last) > QUIET {
            self.different.clear();
        }
        self.last = at;
        self.different.insert(message.to_owned());
        if self.different.len() < SIMILAR {
            return false;
        }
        // There is room for the next message, which makes them as many again.
        self.different.pop_last();
        true
    }
}

struct Bucket {
    tokens: f64,
    filled: Instant,
}

struct Writer {
    client: Client,
    waiting: Waiting,
    /// The last event could not be written, and somebody was told.
    failing: bool,
    known: BTreeMap<Key, Known>,
    messages: BTreeMap<Key, Messages>,
    buckets: BTreeMap<Subject, Bucket>,
    serial: u64,
}

impl Writer {
    async fn run(mut self, mut woken: mpsc::Receiver<()>, stop: Stop) {
        loop {
            while let Some(record) = self.waiting.take() {
                self.write(record, &stop).await;
            }
            let more = tokio::select! {
                biased;
                more = woken.recv() => more,
                () = stop.requested() => {
                    woken.close();
                    woken.recv().await
                }
            };
            if more.is_none() {
                break;
            }
        }
        // What was put between the last look and the end (E6).
        while let Some(record) = self.waiting.take() {
            self.write(record, &stop).await;
        }
    }

    async fn write(&mut self, mut record: Record, stop: &Stop) {
        let mut key = Key {
            message: None,
            ..record.key()
        };
        match self.is_similar(&key, &record) {
            true => record.message.insert_str(0, COMBINED),
            false => key.message = Some(record.message.clone()),
        }
        if !self.allowed(&key.subject) {
            tracing::debug!(
                object = key.subject.name,
                reason = record.reason,
                "an event is not written: the object has too many"
            );
            return;
        }
        let mut event = self.event(&key, &record);
        // An attempt before this one may have been carried out.
        let mut ambiguous = false;
        for attempt in 1..=TRIES {
            match self.try_write(&key, &record, &event).await {
                Ok(()) => return self.failing = false,
                Err(error) if error.is_already_exists() && ambiguous => {
                    return self.remember(key, &event);
                }
                Err(error) if refused_for_good(&error) => {
                    tracing::debug!(reason = record.reason, error = %Chain(&error), "the API server takes no such event");
                    return;
                }
                Err(error) if attempt == TRIES || stop.is_requested() => {
                    // Once for all that fail in a row.
                    match std::mem::replace(&mut self.failing, true) {
                        false => {
                            tracing::warn!(reason = record.reason, error = %Chain(&error), "an event could not be written");
                        }
                        true => {
                            tracing::debug!(reason = record.reason, error = %Chain(&error), "an event could not be written");
                        }
                    }
                    return;
                }
                Err(error) => {
                    ambiguous |= error.outcome_unknown();
                    if !ambiguous {
                        event = self.event(&key, &record); // the name may be taken (E4)
                    }
                    tokio::time::sleep(Duration::from_millis(200 << attempt)).await;
                }
            }
        }
    }

    async fn try_write(&mut self, key: &Key, record: &Record, event: &Event) -> Result<()> {
        if let Some(known) = self.known.get_mut(key) {
            let count = known.count.saturating_add(record.times);
            let mut patch = json!({ "count": count, "lastTimestamp": Time(record.at) });
            if key.message.is_none() {
                patch["message"] = json!(record.message);
            }
            let requests = requests_in(&known.namespace);
            let request = requests.patch(&known.name, &PatchParams::default(), &Patch::Merge(patch));
            match send(&self.client, request).await {
                Ok(()) => {
                    known.count = count;
                    return Ok(());
                }
                // It has expired on the server: the next one starts a new count.
                Err(error) if error.is_not_found() => drop(self.known.remove(key)),
                Err(error) => return Err(error),
            }
        }
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let body = serde_json::to_vec(event)?;
        let request = requests_in(&namespace).create(&PostParams::default(), body);
        send(&self.client, request).await?;
        self.remember(key.clone(), event);
        Ok(())
    }

    /// The next equal event counts this one up.
    fn remember(&mut self, key: Key, event: &Event) {
        let known = Known {
            namespace: event.metadata.namespace.clone().unwrap_or_default(),
            name: event.metadata.name.clone().unwrap_or_default(),
            count: event.count.unwrap_or(1),
        };
        if self.known.len() >= MEMORY {
            self.known.clear();
        }
        self.known.insert(key, known);
    }

    fn event(&mut self, key: &Key, record: &Record) -> Event {
        // The serial makes the name unique among those of this process, the time among processes; a retry gets another
        // one (E4).
        self.serial += 1;
        let stamp = i64::try_from(record.at.as_nanosecond())
            .unwrap_or_default()
            .wrapping_add_unsigned(self.serial);
        let namespace = if key.subject.namespace.is_empty() {
            "default"
        } else {
            &key.subject.namespace
        };
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{stamp:x}", key.subject.name)),
                namespace: Some(namespace.to_owned()),
                ..Default::default()
            },
            involved_object: record.involved.clone(),
            type_: Some(record.event_type.as_str().to_owned()),
            reason: Some(record.reason.clone()),
            message: Some(record.message.clone()),
            source: Some(EventSource {
                component: Some(record.component.clone()),
                ..Default::default()
            }),
            reporting_component: Some(record.component.clone()),
            first_timestamp: Some(Time(record.first)),
            last_timestamp: Some(Time(record.at)),
            count: Some(record.times),
            ..Default::default()
        }
    }

    /// Whether there were so many messages of this kind of event lately that they become one (client-go's
    /// `EventAggregate`).
    fn is_similar(&mut self, kind: &Key, record: &Record) -> bool {
        if let Some(messages) = self.messages.get_mut(kind) {
            return messages.are_similar(&record.message, record.at);
        }
        if self.messages.len() >= MEMORY {
            self.messages.clear();
        }
        let messages = self.messages.entry(kind.clone()).or_default();
        messages.are_similar(&record.message, record.at)
    }

    fn allowed(&mut self, subject: &Subject) -> bool {
        let now = Instant::now();
        if self.buckets.len() >= MEMORY {
            // Full buckets say nothing; should all be in use, starting over lets a few events too many through.
            self.buckets
                .retain(|_, bucket| now.duration_since(bucket.filled) < REFILL * 25);
            if self.buckets.len() >= MEMORY {
                self.buckets.clear();
            }
        }
        let bucket = self.buckets.entry(subject.clone()).or_insert(Bucket {
            tokens: BURST,
            filled: now,
        });
        let earned = now.duration_since(bucket.filled).as_secs_f64() / REFILL.as_secs_f64();
        bucket.tokens = (bucket.tokens + earned).min(BURST);
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

fn requests_in(namespace: &str) -> Requests {
    Requests::new(collection_path(&api_resource::<Event>(), Some(namespace)))
}

/// Sends a write. Nothing of its answer is wanted, so that it is not decoded.
async fn send(client: &Client, request: BuiltRequest) -> Result<()> {
    client.send_text("write an event", request).await.map(drop)
}

/// E5, and everything else that no second try can cure.
fn refused_for_good(error: &Error) -> bool {
    let code = error.status().map(|status| status.code);
    code.is_some_and(|code| matches!(code, 400..=499) && code != 409 && code != 429)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e7_many_messages_become_one() {
        let mut messages = Messages::default();
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).expect("a time");
        for number in 0..9_i64 {
            assert!(!messages.are_similar(&number.to_string(), at(number)), "{number}");
            assert!(!messages.are_similar(&number.to_string(), at(number)), "{number} again");
        }
        for number in 9..12_i64 {
            assert!(messages.are_similar(&number.to_string(), at(number)), "{number}");
        }
        assert!(!messages.are_similar("12", at(612)), "after a pause");
    }
}
