//! Watches: which objects one sees, in which form, and the stream of lines.
//!
//! A line is `{"type":…,"object":…}`, with the type first: clients that look at it before they read the object need one
//! pass.
//!
//! Invariants (names of [`crate::storage`]): an object that begins to match is ADDED, one that stops matching is
//! DELETED with its former content and the new version (store-W7); a bookmark is never ahead of the delivered events
//! (store-W6); a reader that was cut off gets an in-stream 410 (store-W11).

mod encoder;
mod selection;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::Value;

use crate::body::Lines;
use crate::env::BoxFuture;
use crate::model::status::Status;
use crate::recording::Recording;
use crate::server::convert::{Converter, is_current};
use crate::server::weight::LIGHT_TEXT;
use crate::shares::Share;
use crate::storage::{Change, ChangeStream, Delivery, StoredObject};
use encoder::line;
pub(crate) use encoder::{Encoder, Form};
pub(crate) use selection::{MAX_SELECTOR, Selection};

const LIGHT_BEGINNING: usize = 16;

/// How many objects all watches together may be about to begin with: each is a reference, of 256 MiB in all.
pub(super) const BEGINNINGS: usize = 32 * 1024 * 1024;

/// The lines of one watch.
pub(crate) struct WatchStream {
    encoder: Encoder,
    selection: Option<Selection>,
    changes: Option<Box<dyn ChangeStream>>,
    /// A delivery that was taken from them and not sent yet.
    delivered: Option<Delivery>,
    initial: VecDeque<Arc<StoredObject>>,
    /// For these, until they are sent.
    held: Option<Share>,
    /// The revision of the bookmark that ends the initial events.
    initial_end: Option<u64>,
    /// The last line, when nothing follows.
    last: Option<Bytes>,
    bookmarks: Option<(Duration, BoxFuture<'static, ()>)>,
    /// Revision of the latest bookmark or event that was sent.
    marked: u64,
    end: Option<BoxFuture<'static, ()>>,
    share: Option<Share>,
    /// For kinds of which changes may have to be converted.
    converter: Option<Converter>,
    /// The change that is being converted.
    converting: Option<BoxFuture<'static, Result<Arc<Change>, Status>>>,
    /// Its part in the run log, if there is one.
    recording: Option<Arc<Recording>>,
}

impl WatchStream {
    pub(crate) fn new(encoder: Encoder, selection: Selection, changes: Box<dyn ChangeStream>) -> WatchStream {
        WatchStream {
            encoder,
            selection: Some(selection),
            changes: Some(changes),
            delivered: None,
            initial: VecDeque::new(),
            held: None,
            initial_end: None,
            last: None,
            bookmarks: None,
            marked: 0,
            end: None,
            share: None,
            converter: None,
            converting: None,
            recording: None,
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
            held: None,
            initial_end: None,
            last,
            bookmarks: None,
            marked: 0,
            end: None,
            share: None,
            converter: None,
            converting: None,
            recording: None,
        }
    }

    /// Objects that are shown as ADDED first, and the revision of the bookmark after them.
    pub(crate) fn with_initial(
        mut self,
        initial: VecDeque<Arc<StoredObject>>,
        held: Share,
        end: Option<u64>,
    ) -> WatchStream {
        self.initial = initial;
        self.held = Some(held);
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

    /// Ends after `timeout`, and gives its share of all watches back.
    pub(crate) fn with_end(mut self, timeout: Duration, share: Share) -> WatchStream {
        self.end = Some(self.encoder.env.sleep(timeout));
        self.share = Some(share);
        self
    }

    /// Whether the version of this watch does not show the objects of a change as they are stored.
    fn must_convert(&self, change: &Change) -> bool {
        let is_current =
            |object: &StoredObject| is_current(&self.encoder.resource, object.revision(), object.encoded());
        let objects = [Some(&change.after), change.before.as_ref()];
        self.converter.is_some() && !objects.into_iter().flatten().all(|object| is_current(object))
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
        let kind = match (was, is) {
            // The next bookmark tells its revision.
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        if let Some(recording) = &self.recording {
            recording.delivers(kind, &change.key, change.revision);
        }
        if is || change.deleted {
            return Some(self.encoder.change(kind, change));
        }
        // It stops matching: its former content, at the new version.
        let before = change
            .before
            .as_ref()
            .map_or(Value::Null, |before| before.value().clone());
        let before = StoredObject::new(change.revision, before);
        Some(self.encoder.event(kind, &before))
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
        self.held = None;
        self.delivered = None;
        self.initial_end = None;
        self.last = None;
        self.changes = None;
        self.bookmarks = None;
        self.share = None;
    }
}

impl Stream for WatchStream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let line = std::task::ready!(self.poll_line(cx));
        // An event that cannot be written ends the stream silently.
        let line = line.filter(|line| !line.is_empty());
        if line.is_none() {
            self.finish();
        }
        Poll::Ready(line)
    }
}

impl Lines for WatchStream {
    fn record(&mut self, recording: Arc<Recording>) {
        self.recording = Some(recording);
    }

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
            // A webhook's answer may be of any size.
            return self.converting.is_some();
        };
        let bytes = change.size();
        let selects = self
            .selection
            .as_ref()
            .is_some_and(|selection| selection.is_heavy(bytes));
        selects || self.must_convert(change) || bytes > LIGHT_TEXT && !self.encoder.copies(&change.after)
    }
}

impl WatchStream {
    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self;
        if let Some(object) = this.initial.pop_front() {
            return Poll::Ready(Some(this.encoder.event("ADDED", &object)));
        }
        if this.held.is_some() {
            (this.initial, this.held) = (VecDeque::new(), None);
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
                    if let Some(converter) = this.converter.clone().filter(|_| this.must_convert(&change)) {
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
