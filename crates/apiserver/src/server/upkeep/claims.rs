//! Values that must be unique in a store (a Service's cluster IP and node ports) while they are handed out.
//!
//! The values that stored objects hold are kept beside storage, object by object with its revision, so that a write
//! reads no other object. The values of writes that have allocated and not stored yet are added to them: their claims.
//! The holder of a cluster IP stands in an IPAddress as well, as upstream (`addresses`).
//!
//! Invariants: a write holds its allocated values until its object is stored, or is not; the record of an object is
//! brought up to date from storage, under one lock, after each write of it, so that it never goes back in time.
//! Everything here may be made anew from storage.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::addresses::{Reservation, SERVICES};
use crate::model::form::key;
use crate::model::object;
use crate::model::{AllocatedValue, AllocatedValues, Resource, StrategyContext, Unallocated};
use crate::server::Inner;
use crate::storage::{ListRequest, StoredObject};

/// The allocated values in each store whose objects hold some.
pub(crate) type Claims = Arc<Mutex<BTreeMap<String, Allocated>>>;

/// The allocated values of one store.
#[derive(Default)]
pub(crate) struct Allocated {
    /// By stored objects and by claims.
    taken: AllocatedValues,
    /// By stored objects: key, revision, and its values then.
    stored: BTreeMap<String, (u64, Vec<AllocatedValue>)>,
}

impl Allocated {
    /// Takes note of the object stored under a key now.
    fn put(&mut self, key: &str, stored: Option<&StoredObject>, values_of: fn(&Value) -> Vec<AllocatedValue>) {
        let known = self.stored.get(key).map(|(revision, _)| *revision);
        if known == stored.map(StoredObject::revision) {
            return;
        }
        if let Some((_, before)) = self.stored.remove(key) {
            self.taken.remove(&before);
        }
        if let Some(stored) = stored {
            let values = values_of(stored.value());
            self.taken.add(&values);
            self.stored.insert(key.to_owned(), (stored.revision(), values));
        }
    }
}

/// The claim of one write: ends when it is dropped, which is after its object was stored or refused.
#[derive(Default)]
pub(crate) struct Claim {
    allocated: Option<(Claims, String, Vec<AllocatedValue>)>,
    addresses: Option<Reservation>,
}

impl Claim {
    /// The object is stored: its IPAddresses stay.
    pub(crate) fn keep(mut self) {
        if let Some(addresses) = self.addresses.take() {
            addresses.keep();
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((claims, store, values)) = &self.allocated {
            let mut claims = claims.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(allocated) = claims.get_mut(store) {
                allocated.taken.remove(values);
            }
        }
    }
}

impl Inner {
    /// Lets the kind's strategy allocate the values that the object needs.
    pub(crate) fn allocate(
        &self,
        resource: &Resource,
        object: &mut Value,
        old: Option<&Value>,
        context: &StrategyContext<'_>,
    ) -> Result<Claim, Unallocated> {
        let Some(allocation) = resource.strategy.allocate else {
            return Ok(Claim::default());
        };
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let allocated = claims.entry(resource.store.to_string()).or_default();
        (allocation.give)(object, old, &allocated.taken, context)?;
        if context.dry_run {
            return Ok(Claim::default());
        }
        let addresses = self.reserve_addresses(object, old)?;
        let values = (allocation.values)(object);
        allocated.taken.add(&values);
        Ok(Claim {
            allocated: Some((self.claims.clone(), resource.store.to_string(), values)),
            addresses: Some(addresses),
        })
    }

    /// Runs after every write and removal: the values of the object are known from then on.
    pub(crate) fn record_allocations(&self, resource: &Resource, changed: &StoredObject) {
        let Some(allocation) = resource.strategy.allocate else {
            return;
        };
        let metadata = changed.head();
        let key = key(object::namespace(metadata), object::name(metadata));
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let allocated = claims.entry(resource.store.to_string()).or_default();
        let present = self.storage.get(&resource.store, &key);
        allocated.put(&key, present.as_deref(), allocation.values);
    }

    /// The same for all objects, replacing all records: at the start, and when writes were taken back.
    pub(crate) fn record_all_allocations(&self) {
        let Some(resource) = self.registry.lookup("", "v1", SERVICES) else {
            return;
        };
        let Some(allocation) = resource.strategy.allocate else {
            return;
        };
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let allocated = claims.entry(resource.store.to_string()).or_default();
        let Ok(listed) = self.storage.entries(&resource.store, &ListRequest::default()) else {
            return;
        };
        let stored: BTreeMap<_, _> = listed.items.into_iter().collect();
        let known: Vec<String> = allocated.stored.keys().cloned().collect();
        for key in known.iter().filter(|key| !stored.contains_key(key.as_str())) {
            allocated.put(key, None, allocation.values);
        }
        for (key, entry) in &stored {
            let known = allocated.stored.get(&**key).map(|(revision, _)| *revision);
            if known != Some(entry.revision()) {
                allocated.put(key, Some(&entry.object()), allocation.values);
            }
        }
    }
}
