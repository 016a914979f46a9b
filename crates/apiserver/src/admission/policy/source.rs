//! Which policies are in force now, compiled.
//!
//! Invariants: a policy is compiled once for each version that is stored, when a request may concern it and a binding
//! puts it into force, without a lock: others wait for it only if they need the same policy; a request never sees a
//! policy older than itself; neither a write nor a change of a policy looks at policies whose rules name another
//! resource. Anything here may be thrown away: it is made from storage.

use std::sync::{Arc, OnceLock};

use kubewright_schema::budget;
use serde_json::Value;

use super::super::matching::{ByResource, Criteria};
use super::super::{Attributes, Session};
use super::compiled::Binding;
use crate::storage::{Derived, Followed, SharedMap, Storage, StoredObject};
use crate::values::get;

/// About how many steps it takes to compile a byte of a policy.
const COMPILED: usize = 4;

/// A policy with the bindings that put it into force, by name.
pub(super) struct Hook<P> {
    pub(super) policy: Arc<P>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

/// A kind of policies.
pub(super) trait Kind: Sized {
    /// The store of the policies, and that of their bindings.
    const STORES: [&'static str; 2];

    /// Compiles a stored policy.
    fn read(stored: &Value) -> Self;
}

/// The policies of one kind.
pub(super) struct Source<P> {
    known: Followed<PolicyIndex<P>>,
}

struct PolicyIndex<P> {
    policies: SharedMap<Arc<str>, Arc<Entry<P>>>,
    /// Names of policies.
    by_resource: ByResource,
    /// By the name of the policy, then by their own.
    bindings: SharedMap<Arc<str>, SharedMap<Arc<str>, Arc<Binding>>>,
    /// The policy of a binding.
    bound: SharedMap<Arc<str>, Arc<str>>,
}

/// A policy that may have to be compiled.
struct Entry<P> {
    criteria: Criteria,
    compiled: OnceLock<Arc<P>>,
}

impl<P> Default for PolicyIndex<P> {
    fn default() -> PolicyIndex<P> {
        PolicyIndex {
            policies: SharedMap::default(),
            by_resource: ByResource::default(),
            bindings: SharedMap::default(),
            bound: SharedMap::default(),
        }
    }
}

impl<P> Clone for PolicyIndex<P> {
    fn clone(&self) -> PolicyIndex<P> {
        PolicyIndex {
            policies: self.policies.clone(),
            by_resource: self.by_resource.clone(),
            bindings: self.bindings.clone(),
            bound: self.bound.clone(),
        }
    }
}

impl<P: Kind> Derived for PolicyIndex<P> {
    fn apply(&mut self, store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        let [policies, _] = P::STORES;
        if store == policies {
            self.take_policy(key, object.map(|object| object.value()));
        } else {
            self.take_binding(key, object.map(|object| object.value()));
        }
    }
}

impl<P: Kind> PolicyIndex<P> {
    fn take_policy(&mut self, name: &str, policy: Option<&Value>) {
        if let Some(before) = self.policies.remove(name) {
            self.by_resource.remove(name, std::iter::once(&before.criteria));
        }
        let Some(policy) = policy else { return };
        let entry = Entry {
            criteria: Criteria::of_match_resources(get(policy, &["spec", "matchConstraints"])),
            compiled: OnceLock::new(),
        };
        self.by_resource.insert(name, std::iter::once(&entry.criteria));
        self.policies.insert(name.into(), Arc::new(entry));
    }

    fn take_binding(&mut self, name: &str, binding: Option<&Value>) {
        if let Some(policy) = self.bound.remove(name) {
            self.bindings.remove_within(&policy, name);
        }
        let Some(binding) = binding else { return };
        let binding = Arc::new(Binding::new(binding));
        let policy: Arc<str> = binding.policy.as_str().into();
        self.bound.insert(name.into(), policy.clone());
        self.bindings.or_default(policy).insert(name.into(), binding);
    }

    /// A policy with its bindings; none while it has none. A binding to a policy that is not there waits for it.
    fn hook(&self, storage: &dyn Storage, name: &str) -> Option<Hook<P>> {
        let bindings = self.bindings.get(name)?;
        let entry = self.policies.get(name)?;
        let policy = match entry.compiled.get() {
            Some(policy) => policy.clone(),
            None => {
                let [policies, _] = P::STORES;
                // A policy that was written since then is compiled as well: the request ends later still.
                let stored = storage.get(policies, name)?;
                // The policy is the cluster's, so it is not the request's work. But where requests are only tried,
                // a long one does not begin.
                budget::announce(COMPILED * stored.encoded().len());
                let compiled = || budget::unlimited(|| Arc::new(P::read(stored.value())));
                entry.compiled.get_or_init(compiled).clone()
            }
        };
        Some(Hook {
            policy,
            bindings: bindings.values().cloned().collect(),
        })
    }
}

impl<P: Kind> Source<P> {
    pub(super) const fn new() -> Source<P> {
        Source {
            known: Followed::new(&P::STORES),
        }
    }

    /// The policies in force that a request may concern, by name.
    pub(super) fn hooks(&self, session: &Session<'_>, attributes: &Attributes) -> Vec<Hook<P>> {
        let storage = session.storage().as_ref();
        self.known.look(storage, |known| {
            let names = known.by_resource.of(&attributes.resource.plural).into_iter();
            names.filter_map(|name| known.hook(storage, name)).collect()
        })
    }
}
