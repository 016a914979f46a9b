//! ResourceQuota: the usage of objects, which objects a quota counts, and whether one more fits.
//!
//! Pure functions of objects. The admission plugin charges a quota with them at each write ([`Write`]), the controller
//! computes with them the usage of a whole namespace ([`Evaluator::total`]); so both always come to the same numbers.
//!
//! Invariants: a usage never depends on the quota; `status.used` has only names that `status.hard` has; a resource that
//! is not in `status.hard` is not limited, so that a quota limits nothing before the controller has looked at it.
//!
//! Not here: resources that are limited although no quota names them (`limitedResources` of the plugin's configuration
//! file), and the devices of resource claims.

mod objects;
mod pods;
mod scopes;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::facts::amounts;
pub use crate::facts::amounts::{ResourceList, add, parse, to_value};
pub use pods::wanted;
pub use write::Write;

use crate::Operation;
use crate::values::get;

/// How the objects of one kind are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluator {
    /// Pods: their number and their requests.
    Pods,
    /// Services: their number, node ports and load balancers.
    Services,
    /// PersistentVolumeClaims: their number and storage, also by storage class.
    Claims,
    /// Any other kind: the number of its objects.
    Objects {
        /// The group of the kind.
        group: String,
        /// Its plural name.
        plural: String,
    },
}

/// Kinds of the core group that had a name of their own before `count/` came.
const PLAIN_NAMES: [&str; 4] = ["configmaps", "secrets", "resourcequotas", "replicationcontrollers"];

/// The resource names by which quotas count the objects of a kind.
fn names(group: &str, plural: &str) -> BTreeSet<String> {
    if group.is_empty() {
        let old = PLAIN_NAMES.contains(&plural).then(|| plural.to_owned());
        return old.into_iter().chain([format!("count/{plural}")]).collect();
    }
    BTreeSet::from([format!("count/{plural}.{group}")])
}

impl Evaluator {
    /// How a kind is counted; `None` for events, which never are.
    ///
    /// ```
    /// use kubewright_model::quota::Evaluator;
    /// assert!(Evaluator::of("apps", "deployments").expect("they are counted").counts("count/deployments.apps"));
    /// assert!(Evaluator::of("", "secrets").expect("they are counted").counts("secrets"));
    /// assert!(Evaluator::of("", "events").is_none());
    /// ```
    pub fn of(group: &str, plural: &str) -> Option<Evaluator> {
        Some(match (group, plural) {
            ("" | "events.k8s.io", "events") => return None,
            ("", "pods") => Evaluator::Pods,
            ("", "services") => Evaluator::Services,
            ("", "persistentvolumeclaims") => Evaluator::Claims,
            _ => Evaluator::Objects {
                group: group.to_owned(),
                plural: plural.to_owned(),
            },
        })
    }

    /// Whether an operation may change the usage.
    pub fn handles(&self, operation: Operation, subresource: &str) -> bool {
        matches!(
            (self, operation, subresource),
            (_, Operation::Create, "")
                | (Evaluator::Pods, Operation::Update, "resize")
                | (Evaluator::Services, Operation::Update, "")
                | (Evaluator::Claims, Operation::Update, "" | "status")
        )
    }

    /// Whether the objects use the resource of this name.
    pub fn counts(&self, name: &str) -> bool {
        match self {
            Evaluator::Pods => pods::counts(name),
            Evaluator::Services => objects::service_counts(name),
            Evaluator::Claims => objects::claim_counts(name),
            Evaluator::Objects { group, plural } => names(group, plural).contains(name),
        }
    }

    /// The usage of one object at a moment.
    pub fn usage(&self, object: &Value, now: Timestamp) -> ResourceList {
        match self {
            Evaluator::Pods => pods::usage(object, now),
            Evaluator::Services => objects::service(object),
            Evaluator::Claims => objects::claim(object),
            Evaluator::Objects { group, plural } => {
                let one = |name: String| (name, amounts::number(1));
                names(group, plural).into_iter().map(one).collect()
            }
        }
    }

    /// Whether an object is within all scopes of a quota.
    pub fn is_in_scope(&self, quota: &Value, object: &Value) -> bool {
        scopes::requirements(quota).iter().all(|requirement| match self {
            Evaluator::Pods => requirement.fits_pod(object),
            Evaluator::Claims => requirement.fits_claim(object),
            Evaluator::Services | Evaluator::Objects { .. } => false,
        })
    }

    /// The usage of all these objects, for the resources that the `spec.hard` of a quota names; zero is an amount, too.
    pub fn total<'a>(
        &self,
        quota: &Value,
        objects: impl IntoIterator<Item = &'a Value>,
        now: Timestamp,
    ) -> ResourceList {
        let hard = get(quota, &["spec", "hard"]).as_object();
        let names = hard.into_iter().flatten().map(|(name, _)| name);
        let mut total: ResourceList = names
            .filter(|name| self.counts(name))
            .map(|name| (name.clone(), amounts::number(0)))
            .collect();
        for object in objects {
            if self.is_in_scope(quota, object) {
                let used = self.usage(object, now);
                let used = amounts::only(&used, |name| total.contains_key(name));
                amounts::add(&mut total, &used);
            }
        }
        total
    }

    /// The requests or limits that the object lacks although a quota that counts these resources wants them.
    fn missing(&self, names: &[&str], object: &Value) -> Option<String> {
        match self {
            Evaluator::Pods => pods::missing(names, object),
            _ => None,
        }
    }
}
