//! Values that must be unique in a store (a Service's cluster IP and node ports) while they are handed out.
//!
//! What is taken is read off the stored objects each time, together with the objects of writes that have allocated and not stored yet:
//! their claims. Who holds which cluster IP stands in IPAddresses as well, as upstream (`addresses`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::Inner;
use super::addresses::Held;
use crate::registry::{Resource, StrategyContext, Unallocated};
use crate::storage::ListRequest;

/// The claims of all writes in flight, by store and number.
pub(crate) type Claims = Arc<Mutex<BTreeMap<(String, u64), Value>>>;

/// The claim of one write: ends when it is dropped, which is after its object was stored or refused.
#[derive(Default)]
pub(crate) struct Claim {
    held: Option<(Claims, (String, u64))>,
    addresses: Option<Held>,
}

impl Claim {
    /// The object is stored: what was written down for it stays.
    pub(crate) fn keep(mut self) {
        if let Some(addresses) = self.addresses.take() {
            addresses.keep();
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((claims, key)) = &self.held {
            claims.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        }
    }
}

impl Inner {
    /// Lets the kind's strategy allocate what the object needs.
    pub(crate) fn allocate(
        &self,
        resource: &Resource,
        object: &mut Value,
        old: Option<&Value>,
        context: &StrategyContext<'_>,
    ) -> Result<Claim, Unallocated> {
        let Some(allocate) = resource.strategy.allocate else {
            return Ok(Claim::default());
        };
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = self.storage.list(&resource.store, &ListRequest::default());
        let items = listed.map(|listed| listed.items).unwrap_or_default();
        let claimed = claims
            .iter()
            .filter(|((store, _), _)| *store == *resource.store)
            .map(|(_, object)| object);
        let mut taken = items.iter().map(|(_, item)| item.value()).chain(claimed);
        allocate(object, old, &mut taken, context)?;
        if context.dry_run {
            return Ok(Claim::default());
        }
        let addresses = self.hold_addresses(object, old)?;
        let number = claims.keys().map(|(_, number)| number + 1).max().unwrap_or(0);
        let key = (resource.store.to_string(), number);
        claims.insert(key.clone(), object.clone());
        Ok(Claim {
            held: Some((self.claims.clone(), key)),
            addresses: Some(addresses),
        })
    }
}
