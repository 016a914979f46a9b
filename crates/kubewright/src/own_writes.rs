//! The writes of a controller, and which of its reconciles they woke; the engine's `loops` decides which of them are a
//! loop.
//!
//! Invariants: one line of the log for each loop, with the fields that change; its cost does not grow with the objects.
//! Fields are compared only when there is a loop to report.

use std::sync::{Arc, Mutex, PoisonError};

use kubewright_engine::Instant;
use kubewright_engine::loop_detector::{LENGTH, LoopDetector, WakeUp};

use crate::cause::{Cause, CauseKind};
use crate::object::ObjectRef;
use crate::request::Request;

/// The writes of one controller. Cheap to clone.
#[derive(Clone)]
pub(crate) struct OwnWrites(Arc<Inner>);

struct Inner {
    loops: Mutex<LoopDetector<Request, ObjectRef>>,
    origin: tokio::time::Instant,
}

impl OwnWrites {
    pub(crate) fn new() -> OwnWrites {
        OwnWrites(Arc::new(Inner {
            loops: Mutex::default(),
            origin: tokio::time::Instant::now(),
        }))
    }

    /// The controller's client has written an object, which has this resourceVersion since.
    pub(crate) fn wrote(&self, object: ObjectRef, version: &str) {
        self.loops(|loops| loops.wrote(object, version));
    }

    /// A reconcile of a key begins. Whether it was woken by nothing but the controller's own writes; a loop is logged,
    /// once.
    pub(crate) fn woke(&self, request: &Request, causes: &[Cause]) -> bool {
        let now = Instant::from_origin(self.0.origin.elapsed());
        let others = causes.iter().any(|cause| *cause.kind() != CauseKind::Changed);
        let changes = causes
            .iter()
            .filter_map(|cause| Some((cause.object()?, cause.version()?)));
        // A change without a version counts as one of another client.
        let others = others || causes.iter().any(|cause| cause.version().is_none());
        let WakeUp { by_itself, is_loop } = self.loops(|loops| loops.woken(request, changes, others, now));
        if is_loop {
            let changed: Vec<String> = causes.iter().map(ToString::to_string).collect();
            tracing::warn!(
                woken_by = changed.join("; "),
                "this controller wakes itself: each of the last {LENGTH} reconciles of the object was caused by what the one before \
                 had written; write only what differs, and return Action::requeue_after to look again later"
            );
        }
        by_itself
    }

    fn loops<T>(&self, with: impl FnOnce(&mut LoopDetector<Request, ObjectRef>) -> T) -> T {
        with(&mut self.0.loops.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
