//! Writes recorded events in the background, as Events of `events.k8s.io/v1` with series (client-go's event broadcaster in
//! `tools/events`, and the `EventCorrelator` of `tools/record`).
//!
//! Invariants: E2 memory is bounded, and one object cannot flood the API (25 writes, then one in five minutes); E3 events
//! on cluster-scoped objects go to `default`; E4 a name that is taken is replaced by another, unless an attempt whose
//! answer was lost took it: no event is written twice; E5 a namespace that is being deleted takes no events, which is no
//! error; E6 queued events are written before the process stops. Equal events (object, type, reason, action, message,
//! related object, component) are one Event with a series, whose count grows; E7 events that differ only in their message
//! are one as well from the tenth message on, which says that it combines several; E8 what an Event may not hold is made to
//! fit: the API server refuses none for its form; E9 occurrences that are too many to be written one by one are in the
//! count of the next write, or of one some minutes later; E10 an operator whose role says nothing of `events.k8s.io` writes
//! the same Events through the API of the core group, as roles for client-go's older recorder allow it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request as Requests;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::{BuiltRequest, Client};
use crate::clock::Clock;
use crate::election::host_name;
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
/// How long until occurrences that were too many are written (`finishTime`).
const FINISHED: Duration = Duration::from_secs(360);
/// How long texts of an Event may be.
const LONGEST_NOTE: usize = 1024;
const LONGEST_WORD: usize = 128;
const LONGEST_NAME: usize = 63;
/// Fields that have other names in the core group.
const CORE: [(&str, &str); 3] = [
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
];
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
            is_core: false,
            known: BTreeMap::new(),
            messages: BTreeMap::new(),
            buckets: BTreeMap::new(),
            serial: 0,
            host: host_name(),
            finish: None,
        };
        let task = tokio::spawn(writer.run(woken, stop));
        (recorder, task)
    }
}

struct Known {
    namespace: String,
    name: String,
    count: i32,
    /// The last occurrence.
    at: Timestamp,
    /// The Event does not show it yet.
    is_behind: bool,
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
    /// Events are those of the core group (E10).
    is_core: bool,
    known: BTreeMap<Key, Known>,
    messages: BTreeMap<Key, Messages>,
    buckets: BTreeMap<Subject, Bucket>,
    serial: u64,
    host: String,
    /// When occurrences are written that were too many.
    finish: Option<Instant>,
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
                () = due(self.finish) => {
                    self.finish().await;
                    continue;
                }
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
        self.finish().await;
    }

    /// Writes the occurrences that were too many (E9).
    async fn finish(&mut self) {
        self.finish = None;
        let behind = self.known.iter().filter(|(_, known)| known.is_behind);
        let behind: Vec<Key> = behind.map(|(key, _)| key.clone()).collect();
        for key in behind {
            if let Err(error) = self.write_series(&key).await {
                tracing::debug!(object = key.subject.name, reason = key.reason, error = %Chain(&error), "the count of an event could not be written");
            }
            if let Some(known) = self.known.get_mut(&key) {
                known.is_behind = false;
            }
        }
    }

    async fn write(&mut self, mut record: Record, stop: &Stop) {
        let mut key = Key {
            message: None,
            ..record.key()
        };
        match self.is_similar(&key, &record) {
            true => record.note.message.insert_str(0, COMBINED),
            false => key.message = Some(record.note.message.clone()),
        }
        if let Some(known) = self.known.get_mut(&key) {
            known.count = known.count.saturating_add(record.times);
            (known.at, known.is_behind) = (record.at, true);
        }
        if !self.allowed(&key.subject) {
            self.finish.get_or_insert_with(|| Instant::now() + FINISHED);
            tracing::debug!(
                object = key.subject.name,
                reason = key.reason,
                "an event is not written now: the object has too many"
            );
            return;
        }
        let mut event = self.event(&key, &record);
        // An attempt before this one may have been carried out.
        let mut ambiguous = false;
        for attempt in 1..=TRIES {
            match self.try_write(&key, &event).await {
                Ok(()) => return self.failing = false,
                Err(error) if error.is_already_exists() && ambiguous => {
                    return self.remember(key, &event, record.at);
                }
                Err(error) if refused_for_good(&error) && !lacks_right(&error) => {
                    tracing::debug!(reason = key.reason, error = %Chain(&error), "the API server takes no such event");
                    return;
                }
                Err(error) if attempt == TRIES || stop.is_requested() || lacks_right(&error) => {
                    // Once for all that fail in a row.
                    match std::mem::replace(&mut self.failing, true) {
                        false => {
                            tracing::warn!(reason = key.reason, error = %Chain(&error), "an event could not be written");
                        }
                        true => {
                            tracing::debug!(reason = key.reason, error = %Chain(&error), "an event could not be written");
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

    /// Writes an event, or the occurrence of one that is there already.
    async fn try_write(&mut self, key: &Key, event: &Event) -> Result<()> {
        if self.known.contains_key(key) {
            match self.write_series(key).await {
                // It has expired on the server: the next one starts a new count.
                Err(error) if error.is_not_found() => drop(self.known.remove(key)),
                written => return written,
            }
        }
        let mut written = self.create(event, self.is_core).await;
        if !self.is_core && written.as_ref().is_err_and(lacks_right) {
            match self.create(event, true).await {
                Err(error) if lacks_right(&error) => {} // the first error names the better right
                in_core => (self.is_core, written) = (true, in_core),
            }
        }
        written?;
        let at = event.series.as_ref().map(|series| &series.last_observed_time);
        let at = at
            .or(event.event_time.as_ref())
            .map_or(Timestamp::UNIX_EPOCH, |at| at.0);
        self.remember(key.clone(), event, at);
        Ok(())
    }

    async fn create(&self, event: &Event, is_core: bool) -> Result<()> {
        let body = match is_core {
            true => serde_json::to_vec(&in_core(event)?)?,
            false => serde_json::to_vec(event)?,
        };
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let request = requests_in(namespace, is_core).create(&PostParams::default(), body);
        send(&self.client, request).await
    }

    /// Writes how often an event has occurred, and when last: nothing else of an Event may change.
    async fn write_series(&mut self, key: &Key) -> Result<()> {
        let Some(known) = self.known.get_mut(key) else {
            return Ok(());
        };
        let series = EventSeries {
            count: known.count,
            last_observed_time: MicroTime(known.at),
        };
        let patch = Patch::Merge(json!({ "series": series }));
        let request = requests_in(&known.namespace, self.is_core).patch(&known.name, &PatchParams::default(), &patch);
        send(&self.client, request).await?;
        known.is_behind = false;
        Ok(())
    }

    /// The next equal event counts this one up.
    fn remember(&mut self, key: Key, event: &Event, at: Timestamp) {
        let known = Known {
            namespace: event.metadata.namespace.clone().unwrap_or_default(),
            name: event.metadata.name.clone().unwrap_or_default(),
            count: event.series.as_ref().map_or(1, |series| series.count),
            at,
            is_behind: false,
        };
        if self.known.len() >= MEMORY {
            self.known.clear();
        }
        self.known.insert(key, known);
    }

    /// The event as it is created (`makeEvent`).
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
        let note = &record.note;
        let controller = qualified(&record.component);
        let instance = format!("{controller}-{}", self.host);
        let kind_of = note.event_type.as_str();
        let reason = if note.reason.is_empty() { kind_of } else { &note.reason };
        let action = note.action.as_deref().filter(|action| !action.is_empty());
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(&key.subject.name, stamp)),
                namespace: Some(namespace.to_owned()),
                ..Default::default()
            },
            regarding: Some(record.regarding.clone()),
            related: note.related.clone(),
            type_: Some(kind_of.to_owned()),
            reason: Some(cut(reason, LONGEST_WORD)),
            action: Some(cut(action.unwrap_or(reason), LONGEST_WORD)),
            note: Some(cut(&note.message, LONGEST_NOTE)),
            reporting_instance: Some(cut(&instance, LONGEST_WORD)),
            reporting_controller: Some(controller),
            event_time: Some(MicroTime(record.first)),
            series: (record.times > 1).then_some(EventSeries {
                count: record.times,
                last_observed_time: MicroTime(record.at),
            }),
            ..Default::default()
        }
    }

    /// Whether there were so many messages of this kind of event lately that they become one (client-go's
    /// `EventAggregate`).
    fn is_similar(&mut self, kind: &Key, record: &Record) -> bool {
        if let Some(messages) = self.messages.get_mut(kind) {
            return messages.are_similar(&record.note.message, record.at);
        }
        if self.messages.len() >= MEMORY {
            self.messages.clear();
        }
        let messages = self.messages.entry(kind.clone()).or_default();
        messages.are_similar(&record.note.message, record.at)
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

/// Resolves at this moment, if there is one.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The beginning of a text, so many bytes at most.
fn cut(text: &str, longest: usize) -> String {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| *end <= longest).last();
    text[..end.unwrap_or(0)].to_owned()
}

/// Lower case letters, digits, and in between dashes and dots: a DNS subdomain.
fn is_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let is_inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        is_end(label.chars().next()) && is_end(label.chars().last()) && label.chars().all(is_inside)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// The name of an event about an object of this name (`GenerateEventName`): the names of some kinds are none for Events.
fn event_name(about: &str, stamp: i64) -> String {
    let name = format!("{about}.{stamp:x}");
    match is_subdomain(&name) {
        true => name,
        false => format!("event.{stamp:x}"),
    }
}

/// A component as the name of a controller: a qualified name (`IsQualifiedName`), such as `example.com/ingress`.
fn qualified(component: &str) -> String {
    let (domain, name) = match component.split_once('/') {
        Some((domain, name)) if is_subdomain(domain) => (Some(domain), name),
        _ => (None, component),
    };
    let is_inside = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = name.chars().map(|c| if is_inside(c) { c } else { '-' }).collect();
    let is_edge = |c: char| !c.is_ascii_alphanumeric();
    let name = name.trim_start_matches(is_edge);
    let name = name[..name.len().min(LONGEST_NAME)].trim_end_matches(is_edge);
    match (domain, name) {
        (_, "") => "kubewright".to_owned(),
        (Some(domain), name) => format!("{domain}/{name}"),
        (None, name) => name.to_owned(),
    }
}

/// An Event as the core group has it.
fn in_core(event: &Event) -> Result<Value> {
    let mut body = serde_json::to_value(event)?;
    if let Some(fields) = body.as_object_mut() {
        for (name, older) in CORE {
            if let Some(value) = fields.remove(name) {
                fields.insert(older.to_owned(), value);
            }
        }
        fields.insert("apiVersion".to_owned(), "v1".into());
    }
    Ok(body)
}

fn requests_in(namespace: &str, is_core: bool) -> Requests {
    let resource = match is_core {
        true => api_resource::<k8s_openapi::api::core::v1::Event>(),
        false => api_resource::<Event>(),
    };
    Requests::new(collection_path(&resource, Some(namespace)))
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

/// The role of the operator says nothing of events, as one from before a newer version of this library. A namespace that
/// ends forbids them as well (E5).
fn lacks_right(error: &Error) -> bool {
    let Some(status) = error.status().filter(|status| status.code == 403) else {
        return false;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    !causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
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

    /// E8: what Kubernetes' validation of Events demands of names.
    #[test]
    fn e8_names_fit() {
        let check = |component: &str, controller: &str| assert_eq!(qualified(component), controller);
        check("guestbook", "guestbook");
        check("example.com/ingress", "example.com/ingress");
        check("Example/ingress", "Example-ingress");
        check("clusters of a", "clusters-of-a");
        check("/", "kubewright");
        check(&format!("{}_0", "h".repeat(63)), &"h".repeat(63));
        assert_eq!(event_name("hello", 255), "hello.ff");
        assert_eq!(event_name("system:node", 255), "event.ff");
        assert_eq!(event_name(&"a".repeat(252), 255), "event.ff");
        assert_eq!((cut("aé", 2), cut("aé", 3)), ("a".to_owned(), "aé".to_owned()));
    }
}
