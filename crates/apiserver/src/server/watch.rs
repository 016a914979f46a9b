//! Watches: which objects one sees, in which form, and the stream of lines.
//!
//! A line is `{"type":…,"object":…}`, with the type first: clients that look at it before they read the object need one pass.
//!
//! Invariants (names of [`crate::storage`]): an object that begins to match is ADDED, one that stops matching is DELETED with its former
//! content and the new version (store-W7); a bookmark is never ahead of what was delivered (store-W6); a reader that was cut off hears it
//! as an in-stream 410 (store-W11).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use kubewright_schema::fields::{FieldSelector, Operator};
use kubewright_schema::labels::Selector;
use kubewright_schema::protobuf::{self, order::Ordered};
use kubewright_schema::structural;
use serde_json::{Value, json};

use crate::body::Lines;
use crate::env::{BoxFuture, Env};
use crate::json;
use crate::model::Resource;
use crate::model::form::full;
use crate::model::object;
use crate::model::status::Status;
use crate::server::convert::{Converter, defaulted, is_converted, predates};
use crate::server::respond::{is_shown_as_stored, prefix, table_of, write_object};
use crate::server::weight::LIGHT_TEXT;
use crate::storage::{Change, ChangeStream, Delivery, StoredObject};
use crate::table::{self, IncludeObject, Shown};

/// The longest selector that is read, in bytes.
const MAX_SELECTOR: usize = 32 * 1024;

/// A watch holds events against more requirements, or sends more objects in the beginning that it must make first, where nobody waits.
const LIGHT_SELECTOR: usize = 100;
const LIGHT_BEGINNING: usize = 16;

/// The fields that every kind can be selected by.
const METADATA_FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// Which objects a list or watch shows.
pub(crate) struct Selection {
    labels: Option<Selector>,
    fields: Option<FieldSelector>,
    resource: Arc<Resource>,
    /// The only name, when the selector asks for one.
    name: Option<String>,
}

impl Selection {
    /// Reads both selectors; `name` comes from the path of an old-style watch of one object.
    pub(crate) fn parse(
        resource: &Arc<Resource>,
        labels: &str,
        fields: &str,
        name: Option<&str>,
    ) -> Result<Selection, Status> {
        for text in [labels, fields] {
            if text.len() > MAX_SELECTOR {
                return Err(Status::bad_request(format!(
                    "the selector is {} bytes long, the limit is {MAX_SELECTOR}",
                    text.len()
                )));
            }
        }
        let labels = match labels {
            "" => None,
            text => Some(Selector::parse(text).map_err(|error| Status::bad_request(error.to_string()))?),
        };
        let fields = match fields {
            "" => None,
            text => Some(FieldSelector::parse(text).map_err(|error| Status::bad_request(error.to_string()))?),
        };
        let mut selection = Selection {
            labels: labels.filter(|selector| !selector.is_empty()),
            fields: fields.filter(|selector| !selector.is_empty()),
            resource: resource.clone(),
            name: name.map(str::to_owned),
        };
        selection.check_fields()?;
        let asked = selection.fields.as_ref().map(|fields| fields.exact("metadata.name"));
        if asked.is_some_and(|asked| name.is_some() && asked != name) {
            return Err(Status::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            ));
        }
        Ok(selection)
    }

    /// Unknown fields are refused; a required name is remembered.
    fn check_fields(&mut self) -> Result<(), Status> {
        let Some(fields) = &self.fields else { return Ok(()) };
        for requirement in fields.requirements() {
            let field = requirement.field.as_str();
            // Only namespaced kinds and those without labels of their own know a namespace.
            let resource = &self.resource;
            let has_namespace =
                resource.namespaced || (resource.selectable_fields.is_empty() && resource.custom.is_none());
            let known = (METADATA_FIELDS.contains(&field) && (has_namespace || field != "metadata.namespace"))
                || self
                    .resource
                    .selectable_fields
                    .iter()
                    .any(|selectable| selectable.label == field);
            if !known {
                return Err(Status::bad_request(unknown_field(&self.resource, field)));
            }
            if field == "metadata.name" && requirement.operator == Operator::Equals && self.name.is_none() {
                self.name = Some(requirement.value.clone());
            }
        }
        Ok(())
    }

    /// Whether nothing is left out.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_none() && self.name.is_none()
    }

    /// Whether an object of so many bytes may take long to hold against the selectors.
    fn is_heavy(&self, bytes: usize) -> bool {
        if self.is_everything() {
            return false;
        }
        let labels = self.labels.as_ref().map_or(0, Selector::len);
        let fields = self.fields.as_ref().map_or(0, |fields| fields.requirements().len());
        bytes > LIGHT_TEXT || labels.saturating_add(fields) > LIGHT_SELECTOR
    }

    /// Whether a stored object is shown. Reads no more of it than the selectors ask for.
    pub(crate) fn shows(&self, object: &StoredObject) -> bool {
        if self.is_everything() {
            return true;
        }
        let metadata_only = self.fields.as_ref().is_none_or(|fields| {
            let requirements = fields.requirements();
            self.resource.conversion.is_none()
                && requirements
                    .iter()
                    .all(|asked| METADATA_FIELDS.contains(&&*asked.field))
        });
        self.matches(if metadata_only { object.head() } else { object.value() })
    }

    /// Whether an object (in its stored form) is shown.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        if self.name.as_deref().is_some_and(|name| name != object::name(object)) {
            return false;
        }
        if self
            .labels
            .as_ref()
            .is_some_and(|selector| !selector.matches(object::labels(object)))
        {
            return false;
        }
        let Some(fields) = &self.fields else { return true };
        if self.resource.conversion.is_some() {
            let shown = full(&self.resource, object);
            return fields.matches(|field| self.field(&shown, field));
        }
        fields.matches(|field| self.field(object, field))
    }

    fn field(&self, object: &Value, field: &str) -> Option<String> {
        match field {
            "metadata.name" => return Some(object::name(object).to_owned()),
            "metadata.namespace" => return Some(object::namespace(object).to_owned()),
            _ => {}
        }
        let selectable = self
            .resource
            .selectable_fields
            .iter()
            .find(|selectable| selectable.label == field)?;
        let value = selectable.pointers.iter().find_map(|pointer| object.pointer(pointer));
        Some(match value {
            None | Some(Value::Null) => selectable.absent.to_string(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        })
    }

    /// The keys that can match: narrower than the path's when only one object is wanted.
    pub(crate) fn key_prefix(&self, path: &str, namespaced: bool) -> String {
        match &self.name {
            Some(name) if !namespaced || !path.is_empty() => format!("{path}{name}"),
            _ => path.to_owned(),
        }
    }
}

/// Kinds without fields of their own name those that every kind has; others only say that they do not know.
fn unknown_field(resource: &Resource, field: &str) -> String {
    if resource.selectable_fields.is_empty() && resource.custom.is_none() {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        match (resource.group.as_ref(), resource.kind.as_ref()) {
            ("batch", kind @ "Job") => format!("field label {field:?} not supported for {kind}"),
            ("resource.k8s.io", kind @ "ResourceSlice") => {
                format!(
                    "field label not supported for {}, Kind={kind}: {field}",
                    resource.api_version()
                )
            }
            _ => format!("field label not supported: {field}"),
        }
    }
}

/// In which form a watch shows objects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// As they are.
    Plain,
    /// Metadata only, of this version of `meta.k8s.io`.
    Partial(&'static str),
    /// A form that single objects do not have: the stream ends where the first would be written.
    Lists,
    /// A Table for each event; the columns are described in the first.
    Table {
        /// Version of `meta.k8s.io`.
        version: &'static str,
        /// What stands beside the cells.
        include: IncludeObject,
        /// Whether the columns are still to be described.
        headers: bool,
    },
}

/// Makes lines of objects.
pub(crate) struct Encoder {
    pub(crate) resource: Arc<Resource>,
    pub(crate) form: Form,
    /// Whether events are protobuf, each behind its length, instead of lines of JSON.
    pub(crate) protobuf: bool,
    pub(crate) env: Arc<dyn Env>,
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut out = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
    json::write(&mut out, &Ordered::by_kind(object));
    out.extend_from_slice(b"}\n");
    Bytes::from(out)
}

impl Encoder {
    fn plain(&self, kind: &str, stored: &StoredObject) -> Bytes {
        let mut out = Vec::with_capacity(stored.encoded().len() + 128);
        out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        write_object(&mut out, &self.resource, stored, &prefix(&self.resource));
        out.extend_from_slice(b"}\n");
        Bytes::from(out)
    }

    /// An event of an object with `apiVersion` and `kind`, in the form of this watch.
    fn frame(&self, kind: &str, object: &Value) -> Bytes {
        if !self.protobuf {
            return line(kind, object);
        }
        match protobuf::encode(object) {
            Ok(written) => protobuf::encode_event(kind, &written).into(),
            Err(error) => self.broken(error),
        }
    }

    /// What a watch says of an object that cannot be written.
    fn broken(&self, error: protobuf::EncodeError) -> Bytes {
        let status = Status::failure(500, "InternalError", format!("Internal error occurred: {error}"));
        let written = protobuf::encode(&status.to_value()).unwrap_or_default();
        protobuf::encode_event("ERROR", &written).into()
    }

    /// Whether the line of an object is a copy of its text.
    fn copies(&self, stored: &StoredObject) -> bool {
        let resource = &self.resource;
        matches!(self.form, Form::Plain)
            && !self.protobuf
            && is_shown_as_stored(resource, stored.encoded())
            && (is_converted(resource) || !predates(resource, stored.revision()))
    }

    fn event(&mut self, kind: &str, stored: &StoredObject) -> Bytes {
        match &mut self.form {
            Form::Plain if self.protobuf => {
                let object = full(&self.resource, stored.value());
                self.frame(kind, &object)
            }
            Form::Plain => self.plain(kind, stored),
            Form::Partial(version) => {
                let mut partial = table::partial(&full(&self.resource, stored.value()));
                partial["apiVersion"] = json!(version);
                self.frame(kind, &partial)
            }
            Form::Lists => Bytes::new(),
            Form::Table {
                version,
                include,
                headers,
            } => {
                let options = table::Options {
                    include: *include,
                    now: self.env.now(),
                    headers: std::mem::take(headers),
                };
                let object = full(&self.resource, stored.value());
                let metadata = json!({ "resourceVersion": stored.revision().to_string() });
                let shown = Shown {
                    object: &object,
                    stored: Some(stored.value()),
                };
                line(kind, &table_of(&self.resource, [shown], metadata, options, version))
            }
        }
    }

    /// The line of a change as this watch's reader sees it; plain lines of the stored version are shared by all watches.
    fn change(&mut self, kind: &str, change: &Change) -> Bytes {
        let shared = matches!(self.form, Form::Plain)
            && !self.protobuf
            && kind == change.kind()
            && self.resource.version == self.resource.storage_version
            && self.resource.conversion.is_none();
        // What is converted has its defaults by now.
        if !is_converted(&self.resource) && predates(&self.resource, change.after.revision()) {
            return self.event(kind, &defaulted(&self.resource, change.after.clone()));
        }
        if shared {
            change.line(|| self.plain(kind, &change.after))
        } else {
            self.event(kind, &change.after)
        }
    }

    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let (api_version, kind) = match self.form {
            Form::Plain | Form::Table { .. } => (self.resource.api_version(), self.resource.kind.to_string()),
            Form::Partial(version) => (version.to_owned(), "PartialObjectMetadata".to_owned()),
            Form::Lists => return Bytes::new(),
        };
        let mut object =
            json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": revision.to_string()}});
        if initial_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        // A Table has a row for it, as for any object.
        if let Form::Table {
            version,
            include,
            headers,
        } = &mut self.form
        {
            let options = table::Options {
                include: *include,
                now: self.env.now(),
                headers: std::mem::take(headers),
            };
            let metadata = json!({ "resourceVersion": revision.to_string() });
            let version = *version;
            let table = table_of(&self.resource, [&object], metadata, options, version);
            return self.frame("BOOKMARK", &table);
        }
        if matches!(self.form, Form::Plain) && self.resource.custom.is_none() {
            // A bookmark is an empty object of the kind, with what Go writes of one.
            structural::go_normalize(&mut object, &self.resource.schema);
        }
        self.frame("BOOKMARK", &object)
    }
}

/// A place among the watches that may be open at the same time; free again when it is dropped.
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// Takes one, if there is one.
    pub(crate) fn take(open: &Arc<AtomicUsize>, max: usize) -> Option<Slot> {
        let taken = open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < max).then_some(count + 1)
        });
        taken.is_ok().then(|| Slot(open.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The lines of one watch.
pub(crate) struct WatchStream {
    encoder: Encoder,
    selection: Option<Selection>,
    changes: Option<Box<dyn ChangeStream>>,
    /// What came of them that was looked at and not told.
    delivered: Option<Delivery>,
    initial: VecDeque<Arc<StoredObject>>,
    /// The revision of the bookmark that ends the initial events.
    initial_end: Option<u64>,
    /// The last line, when nothing follows.
    last: Option<Bytes>,
    bookmarks: Option<(Duration, BoxFuture<'static, ()>)>,
    /// Revision of the latest bookmark or event that was sent.
    marked: u64,
    end: Option<BoxFuture<'static, ()>>,
    slot: Option<Slot>,
    /// For kinds whose changes must be converted.
    converter: Option<Converter>,
    /// The change that is being converted.
    converting: Option<BoxFuture<'static, Result<Arc<Change>, Status>>>,
}

impl WatchStream {
    pub(crate) fn new(encoder: Encoder, selection: Selection, changes: Box<dyn ChangeStream>) -> WatchStream {
        WatchStream {
            encoder,
            selection: Some(selection),
            changes: Some(changes),
            delivered: None,
            initial: VecDeque::new(),
            initial_end: None,
            last: None,
            bookmarks: None,
            marked: 0,
            end: None,
            slot: None,
            converter: None,
            converting: None,
        }
    }

    /// A watch that only says that it cannot begin; one that is over before it could say so says nothing.
    pub(crate) fn refused(encoder: Encoder, status: Option<&Status>) -> WatchStream {
        let last = status.map(|status| encoder.frame("ERROR", &status.to_value()));
        WatchStream {
            encoder,
            selection: None,
            changes: None,
            delivered: None,
            initial: VecDeque::new(),
            initial_end: None,
            last,
            bookmarks: None,
            marked: 0,
            end: None,
            slot: None,
            converter: None,
            converting: None,
        }
    }

    /// Objects that are shown as ADDED first, and the revision of the bookmark after them.
    pub(crate) fn with_initial(mut self, initial: VecDeque<Arc<StoredObject>>, end: Option<u64>) -> WatchStream {
        self.initial = initial;
        self.initial_end = end;
        self
    }

    /// Sends a bookmark every `interval`.
    pub(crate) fn with_bookmarks(mut self, interval: Duration) -> WatchStream {
        self.bookmarks = Some((interval, self.encoder.env.sleep(interval)));
        self
    }

    /// Shows changes in the version of the watch, one after the other.
    pub(crate) fn with_conversion(mut self, converter: Converter) -> WatchStream {
        self.converter = Some(converter);
        self
    }

    /// Ends after `timeout`, and gives its place back.
    pub(crate) fn with_end(mut self, timeout: Duration, slot: Slot) -> WatchStream {
        self.end = Some(self.encoder.env.sleep(timeout));
        self.slot = Some(slot);
        self
    }

    /// The line for a change, if this watch sees it.
    fn seen(&mut self, change: &Change) -> Option<Bytes> {
        let selection = self.selection.as_ref()?;
        let matched =
            |object: &Option<Arc<StoredObject>>| object.as_ref().is_some_and(|object| selection.shows(object));
        let was = matched(&change.before);
        let is = !change.deleted && selection.shows(&change.after);
        if was || is {
            self.marked = change.revision;
        }
        match (was, is) {
            // The next bookmark tells its revision.
            (false, false) => None,
            (false, true) => Some(self.encoder.change("ADDED", change)),
            (true, true) => Some(self.encoder.change("MODIFIED", change)),
            (true, false) if change.deleted => Some(self.encoder.change("DELETED", change)),
            (true, false) => {
                let before = change
                    .before
                    .as_ref()
                    .map_or(Value::Null, |before| before.value().clone());
                Some(
                    self.encoder
                        .event("DELETED", &StoredObject::new(change.revision, before)),
                )
            }
        }
    }

    /// A bookmark, when it is time and there is something new to say.
    fn poll_bookmark(&mut self, cx: &mut Context<'_>) -> Option<Bytes> {
        let (interval, timer) = self.bookmarks.as_mut()?;
        while timer.as_mut().poll(cx).is_ready() {
            *timer = self.encoder.env.sleep(*interval);
            if let Some(revision) = self
                .changes
                .as_ref()
                .and_then(|changes| changes.progress())
                .filter(|at| *at > self.marked && self.delivered.is_none())
            {
                self.marked = revision;
                return Some(self.encoder.bookmark(revision, false));
            }
        }
        None
    }

    fn finish(&mut self) {
        self.initial.clear();
        self.delivered = None;
        self.initial_end = None;
        self.last = None;
        self.changes = None;
        self.bookmarks = None;
        self.slot = None;
    }
}

impl Stream for WatchStream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let line = std::task::ready!(self.poll_line(cx));
        // What cannot be written ends the stream without a word.
        let line = line.filter(|line| !line.is_empty());
        if line.is_none() {
            self.finish();
        }
        Poll::Ready(line)
    }
}

impl Lines for WatchStream {
    fn company(&self) -> usize {
        self.changes.as_ref().map_or(1, |changes| changes.company())
    }

    fn is_next_heavy(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(object) = self.initial.front() {
            let many = self.initial.len() > LIGHT_BEGINNING || object.encoded().len() > LIGHT_TEXT;
            return many && !self.encoder.copies(object);
        }
        let told = self.initial_end.is_none() && self.last.is_none();
        let Some(changes) = self.changes.as_mut().filter(|_| told) else {
            return false;
        };
        if self.delivered.is_none()
            && self.converting.is_none()
            && let Poll::Ready(delivered) = changes.poll_next(cx)
        {
            self.delivered = Some(delivered);
        }
        let Some(Delivery::Change(change)) = &self.delivered else {
            // A webhook's answer is what it is.
            return self.converting.is_some();
        };
        let bytes = change.size();
        let selects = self
            .selection
            .as_ref()
            .is_some_and(|selection| selection.is_heavy(bytes));
        selects || self.converter.is_some() || bytes > LIGHT_TEXT && !self.encoder.copies(&change.after)
    }
}

impl WatchStream {
    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self;
        if let Some(object) = this.initial.pop_front() {
            return Poll::Ready(Some(this.encoder.event("ADDED", &object)));
        }
        if let Some(revision) = this.initial_end.take() {
            this.marked = revision;
            return Poll::Ready(Some(this.encoder.bookmark(revision, true)));
        }
        if let Some(line) = this.last.take() {
            return Poll::Ready(Some(line));
        }
        loop {
            let Some(changes) = this.changes.as_mut() else {
                return Poll::Ready(None);
            };
            if this.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) {
                this.finish();
                return Poll::Ready(None);
            }
            if let Some(converting) = this.converting.as_mut() {
                let converted = std::task::ready!(converting.as_mut().poll(cx));
                this.converting = None;
                match converted {
                    Ok(change) => {
                        if let Some(line) = this.seen(&change) {
                            return Poll::Ready(Some(line));
                        }
                    }
                    Err(status) => {
                        this.finish();
                        return Poll::Ready(Some(line("ERROR", &status.to_value())));
                    }
                }
                continue;
            }
            let delivered = this.delivered.take().map_or_else(|| changes.poll_next(cx), Poll::Ready);
            match delivered {
                Poll::Ready(Delivery::Change(change)) => {
                    if let Some(converter) = this.converter.clone() {
                        let resource = this.encoder.resource.clone();
                        this.converting = Some(Box::pin(async move { converter.show_change(&resource, change).await }));
                        continue;
                    }
                    if let Some(line) = this.seen(&change) {
                        return Poll::Ready(Some(line));
                    }
                }
                Poll::Ready(Delivery::Overrun) => {
                    let status = Status::expired(
                        "too old resource version: this watch was read too slowly and lost events; list again",
                    );
                    this.finish();
                    return Poll::Ready(Some(this.encoder.frame("ERROR", &status.to_value())));
                }
                Poll::Ready(Delivery::Closed) => {
                    this.finish();
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    return this
                        .poll_bookmark(cx)
                        .map_or(Poll::Pending, |line| Poll::Ready(Some(line)));
                }
            }
        }
    }
}
