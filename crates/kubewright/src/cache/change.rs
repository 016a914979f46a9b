//! The notice of a change for handlers that do not need the object.

use kubewright_engine::Event;

use crate::form::Cached;
use crate::request::Request;

/// Which object changed, and how; for [`Informer::add_key_handler`](super::Informer::add_key_handler). The object
/// itself is read from the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Its namespace and name.
    pub request: Request,
    /// The kind of change.
    pub kind: ChangeKind,
    /// Its `metadata.uid`.
    pub uid: Option<String>,
    /// Its newest known `metadata.resourceVersion`.
    pub resource_version: Option<String>,
}

/// How an object changed; see [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new to the store.
    Added {
        /// It came with the first list, or with the snapshot that a late handler is given.
        initial: bool,
    },
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

impl Change {
    pub(super) fn of(event: &Event<dyn Cached>) -> Change {
        let id = event.object().object_id();
        Change {
            request: Request::new(id.namespace, id.name.unwrap_or_default()),
            kind: match event {
                Event::Added { initial, .. } => ChangeKind::Added { initial: *initial },
                Event::Modified { .. } => ChangeKind::Modified,
                Event::Deleted { .. } => ChangeKind::Deleted,
            },
            uid: id.uid.map(str::to_owned),
            resource_version: id.version.map(str::to_owned),
        }
    }
}
