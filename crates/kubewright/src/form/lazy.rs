//! The states of objects in events, with their type: decoded when somebody looks at them.
//!
//! Of a modification, most handlers look at the new state alone, and some at neither: they ask which object it is.
//! Invariants: a state that cannot be decoded is in no event; a state that was looked at keeps no more memory than
//! before, once the event is dropped.

use std::any::TypeId;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use kubewright_engine::Event as Generic;

use super::{Cached, check, looked, packed, typed};
use crate::object::{AnyObject, Given};

/// A change of an object, as handlers and predicates see it: `Added`, `Modified` or `Deleted`. Its objects are decoded
/// when they are looked at.
pub type Event<K> = Generic<LazyObject<K>>;

/// An object in an [`Event`]: a `K` that is decoded when something looks at it for the first time.
///
/// ```
/// use kubewright::Event;
/// use kubewright::k8s_openapi::api::core::v1::Pod;
///
/// /// The old state is decoded only for this comparison.
/// fn moved(event: &Event<Pod>) -> bool {
///     match event {
///         Event::Modified { old, new } => node(old) != node(new),
///         Event::Added { .. } | Event::Deleted { .. } => true,
///     }
/// }
///
/// fn node(pod: &Pod) -> Option<&str> {
///     pod.spec.as_ref()?.node_name.as_deref()
/// }
/// ```
pub struct LazyObject<K> {
    cached: Arc<dyn Cached>,
    kind: TypeId,
    decode: fn(&Arc<dyn Cached>) -> Arc<K>,
    decoded: OnceLock<Arc<K>>,
}

impl<K> LazyObject<K> {
    /// The object itself, to keep.
    pub fn object(&self) -> Arc<K> {
        self.decoded().clone()
    }

    fn decoded(&self) -> &Arc<K> {
        self.decoded.get_or_init(|| (self.decode)(&self.cached))
    }
}

impl<K: AnyObject> LazyObject<K> {
    fn new(cached: Arc<dyn Cached>, decoded: OnceLock<Arc<K>>) -> LazyObject<K> {
        LazyObject {
            cached,
            kind: TypeId::of::<K>(),
            // A type that reads one text in two ways breaks the handler that looks, which is told of such a panic.
            decode: |cached| typed(looked(cached, TypeId::of::<K>()).expect("it could be decoded before")),
            decoded,
        }
    }

    /// A state in a cache; `None` when it cannot be decoded.
    fn of(cached: &Arc<dyn Cached>) -> Option<Arc<LazyObject<K>>> {
        check(&**cached, TypeId::of::<K>()).ok()?;
        Some(Arc::new(LazyObject::new(cached.clone(), OnceLock::new())))
    }
}

impl<'a, K: AnyObject> Given<'a, K> for &'a LazyObject<K> {
    fn given(self) -> &'a K {
        self
    }
}

impl<'a, K: AnyObject> Given<'a, K> for &'a Arc<LazyObject<K>> {
    fn given(self) -> &'a K {
        self
    }
}

impl<K: AnyObject> From<Arc<K>> for LazyObject<K> {
    fn from(object: Arc<K>) -> LazyObject<K> {
        LazyObject::new(object.clone(), OnceLock::from(object))
    }
}

impl<K: AnyObject> From<K> for LazyObject<K> {
    fn from(object: K) -> LazyObject<K> {
        LazyObject::from(Arc::new(object))
    }
}

impl<K> Deref for LazyObject<K> {
    type Target = K;

    fn deref(&self) -> &K {
        self.decoded()
    }
}

impl<K: fmt::Debug> fmt::Debug for LazyObject<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.decoded().fmt(f)
    }
}

impl<K> Drop for LazyObject<K> {
    fn drop(&mut self) {
        drop(self.decoded.take());
        if let Some(packed) = packed(&*self.cached) {
            packed.settle(self.kind);
        }
    }
}

/// An event with its type. A state that cannot be decoded counts as none: handlers with a type have objects checked when
/// they arrive, so that this happens only to older ones.
pub(crate) fn typed_event<K: AnyObject>(event: &Generic<dyn Cached>) -> Option<Event<K>> {
    let read = LazyObject::of;
    Some(match event {
        Generic::Added { object, initial } => Generic::Added {
            object: read(object)?,
            initial: *initial,
        },
        Generic::Modified { old, new } => match (read(old), read(new)?) {
            (Some(old), new) => Generic::Modified { old, new },
            (None, object) => Generic::Added { object, initial: false },
        },
        Generic::Deleted {
            key,
            object,
            final_state_unknown,
        } => Generic::Deleted {
            key: key.clone(),
            object: read(object)?,
            final_state_unknown: *final_state_unknown,
        },
    })
}
