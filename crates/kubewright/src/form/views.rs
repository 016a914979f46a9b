//! What readers keep of an object at rest: a few facts, so that counting many objects does not decode them.
//!
//! Invariant: a view belongs to one version of an object, and to the type that it was read from, and goes with it; it
//! is made once, from the decoded object.

use std::any::{Any, TypeId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type AnyView = Arc<dyn Any + Send + Sync>;

/// The views of one object, by their types and those that they were read from; most objects have none or one.
#[derive(Default)]
pub(super) struct Views(Mutex<Vec<(TypeId, TypeId, AnyView)>>);

impl Views {
    /// The view of this type, made now if there is none yet. Of two readers that make it at the same time, both get the
    /// one that was first.
    ///
    /// # Errors
    /// As `make`.
    pub(super) fn of<V: Send + Sync + 'static, E>(
        &self,
        kind: TypeId,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        if let Some(view) = self.find(kind) {
            return Ok(view);
        }
        // Without the lock: it decodes, and it is a user's code.
        let view = Arc::new(make()?);
        let mut views = self.all();
        if let Some(first) = found(&views, kind) {
            return Ok(first);
        }
        views.push((TypeId::of::<V>(), kind, view.clone()));
        Ok(view)
    }

    fn find<V: Send + Sync + 'static>(&self, kind: TypeId) -> Option<Arc<V>> {
        found(&self.all(), kind)
    }

    fn all(&self) -> MutexGuard<'_, Vec<(TypeId, TypeId, AnyView)>> {
        // No code of a user runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn found<V: Send + Sync + 'static>(views: &[(TypeId, TypeId, AnyView)], kind: TypeId) -> Option<Arc<V>> {
    let (_, _, view) = views
        .iter()
        .find(|(of, from, _)| (*of, *from) == (TypeId::of::<V>(), kind))?;
    view.clone().downcast().ok()
}
