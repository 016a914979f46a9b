//! The words between a reflector and its shell.

use crate::delta::Delta;
use crate::meta::ResourceVersion;
use crate::unreadable::Unreadable;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How a reflector goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Try to get the state by a watch with `sendInitialEvents=true` before LIST.
    pub watch_list: bool,
    /// How many objects a page of a LIST has; `None` for all in one.
    pub page_size: Option<u32>,
    /// The shortest `timeoutSeconds` of a watch; each takes between this and twice of it.
    pub watch_timeout: Duration,
    /// How much longer than its timeout a watch may stay silent before it is taken for dead.
    pub watch_grace: Duration,
    /// How long a watch may be silent when its server sends bookmarks, before the events are asked for on another
    /// connection.
    pub watch_silence: Duration,
    /// The objects change all the time, so that a watch may not be silent though no bookmark was seen.
    pub always_alive: bool,
    /// A watch that ends sooner than this, without an event, is a failure.
    pub short_watch: Duration,
    /// How long an initial stream may be silent before LIST is used instead.
    pub initial_events_idle: Duration,
    /// How long an initial stream may take in all before LIST is used instead.
    pub initial_events_total: Duration,
}

impl Default for Config {
    /// Watch-list, pages of 500, watches of 5 to 10 minutes, 30 s of grace; 75 s of silence, because kube-apiserver
    /// sends a bookmark each minute (`defaultBookmarkFrequency`); 1 s is a short watch; 10 s of silence or 5 minutes in
    /// all without the end of the initial events are too long.
    fn default() -> Config {
        Config {
            watch_list: true,
            page_size: Some(500),
            watch_timeout: Duration::from_secs(300),
            watch_grace: Duration::from_secs(30),
            watch_silence: Duration::from_secs(75),
            always_alive: false,
            short_watch: Duration::from_secs(1),
            initial_events_idle: Duration::from_secs(10),
            initial_events_total: Duration::from_secs(300),
        }
    }
}

/// An event for the reflector.
#[derive(Clone, Debug)]
pub enum Input<V: ?Sized> {
    /// Begin.
    Start,
    /// A page of the list that was asked for.
    Page(ListPage<V>),
    /// The request that is open failed: the LIST, or the watch, before or after it began (an HTTP status, a refused
    /// connection, a frame that cannot be decoded). The shell drops the request.
    Failed(Failure),
    /// The server accepted the watch.
    Started,
    /// The watch delivered this.
    Event(WatchEvent<V>),
    /// The watch is over, without an error of the server. `clean`: with a proper end of the body, between two frames.
    Ended {
        /// Whether it ended as HTTP bodies should.
        clean: bool,
    },
    /// [`super::Reflector::deadline`] has come.
    Timer,
    /// End.
    Stop,
}

/// One page of a LIST.
#[derive(Clone, Debug)]
pub struct ListPage<V: ?Sized> {
    /// The objects.
    pub items: Vec<Arc<V>>,
    /// The objects of the page that could not be decoded.
    pub unreadable: Vec<Unreadable>,
    /// `metadata.resourceVersion` of the list.
    pub resource_version: Option<ResourceVersion>,
    /// `metadata.continue`; `None` or empty on the last page.
    pub continue_token: Option<String>,
}

/// One frame of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent<V: ?Sized> {
    /// ADDED.
    Added(Arc<V>),
    /// MODIFIED.
    Modified(Arc<V>),
    /// DELETED.
    Deleted(Arc<V>),
    /// ADDED or MODIFIED, with an object that could not be decoded.
    Unreadable(Unreadable),
    /// DELETED, with an object that could not be decoded.
    UnreadableDeleted(Unreadable),
    /// BOOKMARK.
    Bookmark {
        /// Its `metadata.resourceVersion`.
        version: ResourceVersion,
        /// It has the annotation `k8s.io/initial-events-end: "true"`.
        initial_events_end: bool,
    },
    /// ERROR with a Status.
    Error(Failure),
}

impl<V: ?Sized> WatchEvent<V> {
    /// The object, unless it is a bookmark, an error or unreadable.
    pub fn object(&self) -> Option<&Arc<V>> {
        match self {
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => Some(object),
            WatchEvent::Unreadable(_)
            | WatchEvent::UnreadableDeleted(_)
            | WatchEvent::Bookmark { .. }
            | WatchEvent::Error(_) => None,
        }
    }
}

/// A failure, as far as it matters for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// 410 Gone, reason `Expired` or `Gone`: the version or the continue token is too old.
    Expired,
    /// 504 Timeout with the cause `ResourceVersionTooLarge`: the server is behind the version.
    TooLargeResourceVersion,
    /// 429.
    TooManyRequests,
    /// 401, 403.
    Forbidden,
    /// 404: the kind is not there (now).
    NotFound,
    /// 400, 405, 406, 415, 422: the server does not take such a request. To a watch with `sendInitialEvents`: not
    /// supported.
    Invalid,
    /// Other 5xx.
    Server,
    /// No connection, or it broke.
    Connection,
    /// The answer could not be understood, or not be stored.
    Decode,
}

impl FailureKind {
    /// The kind of a Status: its HTTP code, its `reason`, and whether its causes name `ResourceVersionTooLarge`.
    pub fn of_status(code: u16, reason: &str, too_large_resource_version: bool) -> FailureKind {
        match (code, reason) {
            _ if too_large_resource_version => FailureKind::TooLargeResourceVersion,
            (410, _) | (_, "Expired" | "Gone") => FailureKind::Expired,
            (429, _) => FailureKind::TooManyRequests,
            (401 | 403, _) => FailureKind::Forbidden,
            (404, _) => FailureKind::NotFound,
            (400..=499, _) => FailureKind::Invalid,
            _ => FailureKind::Server,
        }
    }
}

/// A failed request or stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// In words, for people.
    pub message: String,
    /// The server's `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure without `Retry-After`.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Which state a LIST asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListVersion {
    /// The newest there is: `resourceVersion` unset.
    Newest,
    /// This one or a later one: `resourceVersion=…` with `resourceVersionMatch=NotOlderThan`. With a continue token
    /// neither is sent, the token holds the version.
    NotOlderThan(ResourceVersion),
}

/// How a reflector fares; for readiness and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not started.
    Pending,
    /// The first list is under way.
    Syncing,
    /// The store follows the server.
    Synced,
    /// It does not, for this reason; tries go on.
    Degraded(String),
}

/// A step for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<V: ?Sized> {
    /// Send a LIST; answer with [`Input::Page`] or [`Input::Failed`]. Gives up any request or stream that is open.
    List {
        /// Which state.
        version: ListVersion,
        /// `limit`.
        limit: Option<u32>,
        /// `continue`.
        continue_token: Option<String>,
    },
    /// Send a watch with `allowWatchBookmarks=true`; answer with [`Input::Started`], [`Input::Event`]s and
    /// [`Input::Ended`], or [`Input::Failed`]. Gives up any request or stream that is open.
    Watch {
        /// `resourceVersion`; unset when `None`.
        version: Option<ResourceVersion>,
        /// `sendInitialEvents=true` with `resourceVersionMatch=NotOlderThan`.
        send_initial_events: bool,
        /// `timeoutSeconds`.
        timeout: Duration,
    },
    /// Pass this on to the delta queue.
    Apply(Delta<V>),
    /// Give up any request or stream that is open; [`super::Reflector::deadline`] is this far away.
    Wait(Duration),
    /// The health changed.
    Health(Health),
    /// It is over; answered to [`Input::Stop`] only.
    Stopped,
}
