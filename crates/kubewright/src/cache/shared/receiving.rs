//! A store as the client sees it when it leaves receipts: which writes it has to show.
//!
//! Invariant: receipts are left for what the store is to cover, also before it does: when it does, it is not older than
//! before, so that what was reached stays reached.

use kube::core::ObjectMeta;
use kubewright_engine::receipts::Place;
use kubewright_engine::{ObjectKey, ResourceVersion};

use super::SharedStore;
use crate::cache::scope::Membership;

/// An object as the API server answered a write with it.
pub(crate) struct Written<'a> {
    pub(crate) key: ObjectKey,
    pub(crate) meta: &'a ObjectMeta,
    /// All of it, for field selectors.
    pub(crate) json: &'a dyn Fn() -> serde_json::Value,
}

/// A delete that the API server acknowledged, of an object that is gone now.
pub(crate) struct Gone<'a> {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Option<&'a str>,
    /// A version at which it existed.
    pub(crate) seen: Option<&'a str>,
}

impl SharedStore {
    pub(crate) fn wrote(&self, written: &Written<'_>) {
        let Written { key, meta, json } = written;
        let Some(version) = meta.resource_version.as_deref().map(ResourceVersion::new) else {
            return self.unknown(key);
        };
        let place = match self.wanted().scope.membership(meta, json) {
            // Another namespace's objects are never in this store.
            Membership::Elsewhere => return,
            Membership::Inside => Place::Inside,
            Membership::Outside => Place::Outside,
            Membership::Unknown => return self.unknown(key),
        };
        self.with_view(key, |receipts, view| receipts.wrote(key.clone(), version, place, view));
    }

    pub(crate) fn deleted(&self, gone: &Gone<'_>) {
        if !self.wanted().scope.may_hold(&gone.key) {
            return;
        }
        let selective = self.wanted().scope.is_selective();
        self.with_view(&gone.key, |receipts, view| {
            let seen = gone.seen.map(ResourceVersion::new);
            receipts.deleted(gone.key.clone(), gone.uid, seen, selective, view);
        });
    }

    pub(crate) fn unknown(&self, key: &ObjectKey) {
        if self.wanted().scope.may_hold(key) {
            self.receipts().unknown(key.clone());
        }
    }
}
