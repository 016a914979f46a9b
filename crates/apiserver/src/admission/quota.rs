//! The plugin ResourceQuota: a write that would exceed a quota of its namespace is refused, and one that does not is
//! charged in the quota's status.
//!
//! It is the last plugin, so that no object is charged that another plugin refuses. Every write is first checked
//! against all quotas and then charged to each of them by compare-and-swap: the second of two racing writes is checked
//! against the remainder that the first has left.
//!
//! An object that is charged and then not stored after all (its name is taken) stays charged until the controller
//! counts again, as upstream. Of quotas that count nothing of the kind only the names of their limits are looked at. Not
//! here: the counting itself (see [`crate::quota`]).

use std::sync::Arc;

use kubewright_schema::budget;
use serde_json::Value;

use super::{Admission, Admitted, Attributes, Session};
use crate::model::form;
use crate::model::object;
use crate::model::status::Status;
use crate::quota::{self, Evaluator, Write};
use crate::storage::{Derived, Followed, ReadLater, SharedMap, StoredObject};
use crate::values::get;

const STORE: &str = "resourcequotas";

/// After so many steps a write that is charged to many quotas lets others run.
const TURN: usize = 200_000;

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

/// The quotas of each namespace, by key.
#[derive(Clone, Default)]
struct Counting(SharedMap<Arc<str>, SharedMap<Arc<str>, Arc<Limited>>>);

/// The resources that a quota limits, which are read when a write in its namespace asks: each charge makes another
/// version of the quota, and it may be large.
struct Limited(ReadLater<Box<[String]>>);

impl Limited {
    fn resources(&self) -> &[String] {
        self.0.get(|quota| {
            let hard = get(quota, &["status", "hard"]).as_object();
            hard.into_iter().flatten().map(|(name, _)| name.clone()).collect()
        })
    }
}

impl Counting {
    /// The keys of the quotas of a namespace that count an evaluator's resources, in their order.
    fn of(&self, namespace: &str, evaluator: &Evaluator) -> Vec<String> {
        let quotas = self.0.get(namespace).into_iter().flat_map(SharedMap::iter);
        let counting = quotas.filter(|(_, quota)| {
            let resources = quota.resources();
            budget::spend(1 + resources.len());
            resources.iter().any(|name| evaluator.counts(name))
        });
        counting.map(|(key, _)| key.to_string()).collect()
    }
}

impl Derived for Counting {
    fn apply(&mut self, _store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        let Some(quota) = object else {
            return self.0.remove_within(namespace, key);
        };
        let limited = Limited(ReadLater::new(quota));
        self.0
            .or_default(namespace.into())
            .insert(key.into(), Arc::new(limited));
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
        let costs: Vec<usize> = charged.iter().map(|name| cost(session, namespace, name)).collect();
        budget::announce(costs.iter().sum());
        let mut turn = 0;
        for (name, cost) in charged.into_iter().zip(costs) {
            // There may be hundreds.
            turn += cost;
            if turn > TURN {
                turn = 0;
                budget::give_way().await;
            }
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

/// The steps that it costs to charge a quota: it is read, written, and told to its watchers. After the first of them a
/// request cannot begin again elsewhere.
fn cost(session: &Session<'_>, namespace: &str, name: &str) -> usize {
    /// Of a quota, and for each byte of it.
    const EACH: usize = 20_000;
    const BYTE: usize = 10;
    EACH + BYTE * session.storage().text_length(STORE, &form::key(namespace, name))
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
