//! Which policies are in force now, compiled.
//!
//! Invariants: a policy is compiled once for each version that is stored; what a request sees is never older than the request. Anything
//! here may be thrown away: it is made from storage.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::compiled::Binding;
use crate::model::object;
use crate::storage::{ListRequest, Storage, StoredObject};

/// A policy with the bindings that put it into force, by name.
pub(super) struct Hook<P> {
    pub(super) policy: Arc<P>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

/// The policies of one kind.
pub(super) struct Source<P> {
    policies: &'static str,
    bindings: &'static str,
    read: fn(&Value) -> P,
    known: Mutex<Known<P>>,
}

/// Something read from a stored object, with the version that it was read from.
type Read<T> = BTreeMap<String, (u64, Arc<T>)>;

struct Known<P> {
    /// The state of both stores that it is about.
    at: Option<[u64; 2]>,
    policies: Read<P>,
    bindings: Read<Binding>,
    hooks: Arc<Vec<Hook<P>>>,
}

/// Everything in a store, with what was known of it before.
fn refresh<T>(storage: &dyn Storage, store: &str, known: &Read<T>, read: impl Fn(&Value) -> T) -> Read<T> {
    let Ok(listed) = storage.list(store, &ListRequest::default()) else {
        // Only lists of the past can fail.
        return Read::new();
    };
    let fresh = |stored: &StoredObject| match known.get(object::name(stored.value())) {
        Some((revision, same)) if *revision == stored.revision() => same.clone(),
        _ => Arc::new(read(stored.value())),
    };
    let items = listed.items.iter();
    items
        .map(|(_, stored)| {
            let name = object::name(stored.value()).to_owned();
            (name, (stored.revision(), fresh(stored)))
        })
        .collect()
}

impl<P> Source<P> {
    /// Policies in the store `policies`, bindings in the store `bindings`.
    pub(super) fn new(policies: &'static str, bindings: &'static str, read: fn(&Value) -> P) -> Source<P> {
        Source {
            policies,
            bindings,
            read,
            known: Mutex::new(Known {
                at: None,
                policies: Read::new(),
                bindings: Read::new(),
                hooks: Arc::default(),
            }),
        }
    }

    /// The policies that have a binding.
    pub(super) fn hooks(&self, storage: &dyn Storage) -> Arc<Vec<Hook<P>>> {
        // Asked before anything is listed: what is written in between makes it look old, not new.
        let at = [self.policies, self.bindings].map(|store| storage.changes(store));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.at == Some(at) {
            return known.hooks.clone();
        }
        let bindings = refresh(storage, self.bindings, &known.bindings, Binding::new);
        let policies = if bindings.is_empty() {
            Read::new()
        } else {
            refresh(storage, self.policies, &known.policies, self.read)
        };
        let same = |new: &Read<P>| {
            new.len() == known.policies.len()
                && new
                    .iter()
                    .all(|(name, (version, _))| known.policies.get(name).is_some_and(|(before, _)| before == version))
        };
        let unchanged = same(&policies)
            && bindings.len() == known.bindings.len()
            && bindings
                .iter()
                .all(|(name, (version, _))| known.bindings.get(name).is_some_and(|(before, _)| before == version));
        if !unchanged {
            known.hooks = Arc::new(join(&policies, &bindings));
            known.policies = policies;
            known.bindings = bindings;
        }
        known.at = Some(at);
        known.hooks.clone()
    }
}

/// A binding to a policy that is not there waits for it.
fn join<P>(policies: &Read<P>, bindings: &Read<Binding>) -> Vec<Hook<P>> {
    let mut bound: BTreeMap<&str, Vec<Arc<Binding>>> = BTreeMap::new();
    for (_, binding) in bindings.values() {
        bound.entry(&binding.policy).or_default().push(binding.clone());
    }
    let hooks = bound.into_iter().filter_map(|(name, bindings)| {
        let (_, policy) = policies.get(name)?;
        Some(Hook {
            policy: policy.clone(),
            bindings,
        })
    });
    hooks.collect()
}
