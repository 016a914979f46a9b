//! Changes of objects before the cache keeps them (client-go's `TransformFunc`).
//!
//! Invariant: what is changed is the object as its type reads it, and it stays the same object: one whose name,
//! namespace, uid or version a transform changes is unreadable.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::form::packed::Transform;
use crate::form::{guarded, times};
use crate::object::AnyObject;

/// The transforms of a manager, by type.
#[derive(Clone, Default)]
pub(crate) struct Transforms(BTreeMap<TypeId, Transform>);

impl Transforms {
    /// Adds one for a type; after those that are there.
    pub(crate) fn add<K: AnyObject>(&mut self, change: impl Fn(&mut K) + Send + Sync + 'static) {
        let before = self.0.remove(&TypeId::of::<K>());
        let transform: Transform = Arc::new(move |text| {
            let earlier = before.as_ref().map(|before| before(text)).transpose()?;
            guarded(|| {
                let mut object: K = times::read(earlier.as_deref().unwrap_or(text))?;
                change(&mut object);
                serde_json::to_string(&object)
            })
        });
        self.0.insert(TypeId::of::<K>(), transform);
    }

    pub(crate) fn of(&self, kind: TypeId) -> Option<Transform> {
        self.0.get(&kind).cloned()
    }
}
