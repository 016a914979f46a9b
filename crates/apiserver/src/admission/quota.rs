//! The plugin ResourceQuota: a write that would exceed a quota of its namespace is refused, and one that does not is
//! charged in the quota's status.
//!
//! It is the last plugin, so that no object is charged that another plugin refuses. Every write is first checked
//! against all quotas and then charged to each of them by compare-and-swap: the second of two racing writes is checked
//! against the remainder that the first has left.
//!
//! An object that is charged and then not stored after all (its name is taken) stays charged until the controller
//! counts again, as upstream. Quotas that count nothing of the kind are not looked at, however many there are. Not
//! here: the counting itself (see [`crate::quota`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use kubewright_schema::budget;
use serde_json::Value;

use super::{Admission, Admitted, Attributes, Session};
use crate::model::form;
use crate::model::object;
use crate::model::status::Status;
use crate::quota::{self, Evaluator, Write};
use crate::storage::{Derived, Followed, SharedMap, StoredObject};
use crate::values::get;

const STORE: &str = "resourcequotas";

/// Holds writes against the ResourceQuotas of their namespace.
pub struct ResourceQuotas {
    counting: Followed<Counting>,
}

impl Default for ResourceQuotas {
    fn default() -> ResourceQuotas {
        ResourceQuotas {
            counting: Followed::new(&[STORE]),
        }
    }
}

/// The quotas of each namespace by the resources that they limit.
#[derive(Clone, Default)]
struct Counting {
    namespaces: SharedMap<Arc<str>, SharedMap<Arc<str>, SharedMap<Arc<str>, ()>>>,
    /// The resources that each quota limits, by its key.
    limited: SharedMap<Arc<str>, Arc<[String]>>,
}

impl Counting {
    /// The keys of the quotas of a namespace that count an evaluator's resources, in their order.
    fn of(&self, namespace: &str, evaluator: &Evaluator) -> BTreeSet<String> {
        let resources = self.namespaces.get(namespace).into_iter().flat_map(SharedMap::iter);
        let counted = resources.filter(|(name, _)| {
            budget::spend(1);
            evaluator.counts(name)
        });
        let keys = counted.flat_map(|(_, keys)| keys.keys());
        keys.map(|key| key.to_string()).collect()
    }
}

impl Derived for Counting {
    fn apply(&mut self, _store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        let hard = object.map(|quota| get(quota.value(), &["status", "hard"]).as_object());
        let hard = hard.flatten().into_iter().flatten();
        let limits: Arc<[String]> = hard.map(|(name, _)| name.clone()).collect();
        let before = self.limited.remove(key).unwrap_or_default();
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        // Nearly all changes are of the usage.
        if before != limits {
            let resources = self.namespaces.or_default(namespace.into());
            for name in before.iter() {
                resources.remove_within(name.as_str(), key);
            }
            for name in limits.iter() {
                resources.or_default(name.as_str().into()).insert(key.into(), ());
            }
            if resources.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
        if !limits.is_empty() {
            self.limited.insert(key.into(), limits);
        }
    }
}

impl ResourceQuotas {
    async fn check(
        &self,
        evaluator: Evaluator,
        session: &Session<'_>,
        attributes: &Attributes,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (resource, namespace) = (&attributes.resource, &attributes.namespace);
        let write = Write {
            evaluator: &evaluator,
            operation: attributes.operation,
            subresource: &attributes.subresource,
            object,
            old,
            now: session.env().now(),
        };
        let refused = |why: String| Status::forbidden(resource, &attributes.name, &why);
        let charged = self.fits(session, namespace, &write).map_err(&refused)?;
        if attributes.dry_run {
            return Ok(());
        }
        announce(session, namespace, &charged);
        for name in charged {
            let charge = |present: &Value| {
                if !write.concerns(present).map_err(&refused)? {
                    return Ok(present.clone());
                }
                let used = write.charge(present).map_err(&refused)?;
                let mut next = present.clone();
                if let (Some(used), Some(status)) = (used, next.get_mut("status").and_then(Value::as_object_mut)) {
                    status.insert("used".to_owned(), quota::to_value(&used));
                }
                Ok(next)
            };
            session.update_quota(namespace, &name, charge).await?;
        }
        Ok(())
    }

    /// The names of the quotas that a write is to be charged to, or why it does not fit.
    fn fits(&self, session: &Session<'_>, namespace: &str, write: &Write<'_>) -> Result<Vec<String>, String> {
        let storage = session.storage().as_ref();
        let keys = self
            .counting
            .look(storage, |counting| counting.of(namespace, write.evaluator));
        let quotas: Vec<_> = keys.iter().filter_map(|key| storage.get(STORE, key)).collect();
        // Missing requests are reported before exceeded limits, whichever quota comes first.
        let mut concerned = Vec::new();
        for quota in &quotas {
            if write.concerns(quota.value())? {
                concerned.push(quota.value());
            }
        }
        let mut charged = Vec::new();
        for quota in concerned {
            if write.charge(quota)?.is_some() {
                charged.push(object::name(quota).to_owned());
            }
        }
        Ok(charged)
    }
}

/// Says what it costs to charge these quotas: each is read, written, and told to its watchers, and after the first of
/// them the request cannot begin again elsewhere.
fn announce(session: &Session<'_>, namespace: &str, charged: &[String]) {
    /// Of a quota, and for each byte of it.
    const EACH: usize = 20_000;
    const BYTE: usize = 10;
    let length = |name: &String| session.storage().text_length(STORE, &form::key(namespace, name));
    let steps = charged.iter().map(|name| EACH + BYTE * length(name)).sum();
    budget::announce(steps);
}

impl Admission for ResourceQuotas {
    fn validate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let resource = &attributes.resource;
        if !resource.namespaced || attributes.namespace.is_empty() {
            return Admitted::YES;
        }
        match Evaluator::of(&resource.group, &resource.plural) {
            Some(evaluator) if evaluator.handles(attributes.operation, &attributes.subresource) => {
                Admitted::later(self.check(evaluator, session, attributes, object, old))
            }
            _ => Admitted::YES,
        }
    }
}
