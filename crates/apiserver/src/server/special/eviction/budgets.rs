//! Which disruption budgets cover a pod, found by the labels of the pod.
//!
//! A selector that wants a label to have one of some values can only choose pods with one of them, so a budget is
//! looked up by the first such requirement. Those without one are looked at for every pod of their namespace.
//!
//! Invariant: the state here follows from the stored budgets, and may be thrown away.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubewright_schema::budget;
use kubewright_schema::labels::{Operator, Selector};
use kubewright_schema::path::FieldPath;
use serde_json::Value;

use crate::storage::{Derived, Followed, SharedMap, StoredObject};
use crate::values::get;

/// Where disruption budgets are stored.
pub(super) const STORE: &str = "poddisruptionbudgets.policy";

/// [`Budgets`], brought up to date at each look.
pub(crate) const fn budgets() -> Followed<Budgets> {
    Followed::new(&[STORE])
}

/// The budgets by namespace.
#[derive(Clone, Default)]
pub(crate) struct Budgets(SharedMap<Arc<str>, InNamespace>);

#[derive(Clone, Default)]
struct InNamespace {
    selectors: SharedMap<Arc<str>, Arc<Selector>>,
    /// Names by a label that a pod must have: its key, then its value.
    labelled: SharedMap<Arc<str>, SharedMap<Arc<str>, Names>>,
    /// The names of the others.
    others: Names,
}

type Names = SharedMap<Arc<str>, ()>;

/// The key and the values of a label that everything has that the selector chooses; none when there is no such label.
fn required(selector: &Selector) -> Option<(&str, impl Iterator<Item = &str>)> {
    let mut requirements = selector.requirements().iter();
    let found = requirements.find(|requirement| {
        matches!(
            requirement.operator(),
            Operator::Equals | Operator::DoubleEquals | Operator::In
        )
    })?;
    Some((found.key(), found.values()))
}

impl InNamespace {
    fn remove(&mut self, name: &str) {
        let Some(selector) = self.selectors.remove(name) else {
            return;
        };
        self.others.remove(name);
        let Some((key, values)) = required(&selector) else {
            return;
        };
        let Some(by_value) = self.labelled.get_mut(key) else {
            return;
        };
        for value in values {
            by_value.remove_within(value, name);
        }
        if by_value.is_empty() {
            self.labelled.remove(key);
        }
    }

    fn insert(&mut self, name: &str, selector: Selector) {
        match required(&selector) {
            Some((key, values)) => {
                let by_value = self.labelled.or_default(key.into());
                for value in values {
                    by_value.or_default(value.into()).insert(name.into(), ());
                }
            }
            None => {
                self.others.insert(name.into(), ());
            }
        }
        self.selectors.insert(name.into(), Arc::new(selector));
    }

    /// The names of those that cover an object with these labels.
    fn covering(&self, labels: &Value) -> BTreeSet<&str> {
        let labelled = labels.as_object().into_iter().flatten().filter_map(|(key, value)| {
            budget::spend(1);
            self.labelled.get(key.as_str())?.get(value.as_str()?)
        });
        let candidates = labelled.chain([&self.others]).flat_map(SharedMap::keys);
        candidates
            .filter(|name| {
                let selector = self.selectors.get(&***name);
                selector.is_some_and(|selector| {
                    budget::spend(1 + selector.len());
                    selector.matches(labels)
                })
            })
            .map(|name| &**name)
            .collect()
    }
}

impl Budgets {
    /// The names of those in the namespace that cover an object with these labels.
    pub(super) fn covering(&self, namespace: &str, labels: &Value) -> Vec<String> {
        let found = self.0.get(namespace).map(|budgets| budgets.covering(labels));
        found.into_iter().flatten().map(str::to_owned).collect()
    }
}

impl Derived for Budgets {
    fn apply(&mut self, _store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let budgets = self.0.or_default(namespace.into());
        budgets.remove(name);
        // A selector that cannot be read covers nothing, as one that is not there.
        let selector = object.and_then(|object| {
            let selector = get(object.value(), &["spec", "selector"]);
            Selector::from_label_selector(selector, &FieldPath::root()).ok()
        });
        if let Some(selector) = selector.filter(|selector| *selector != Selector::nothing()) {
            budgets.insert(name, selector);
        }
        if budgets.selectors.is_empty() {
            self.0.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn budgets_are_found_by_labels() {
        let mut budgets = Budgets::default();
        let mut put = |name: &str, selector: Option<Value>| {
            let object = selector.map(|selector| {
                let value = json!({"metadata": {"name": name}, "spec": {"selector": selector}});
                Arc::new(StoredObject::unversioned(value))
            });
            budgets.apply(STORE, &format!("ns/{name}"), object.as_ref());
        };
        let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        put("all", Some(json!({})));
        put("app", Some(json!({"matchLabels": {"app": "a", "tier": "x"}})));
        put("either", Some(expression("app", "In", json!(["a", "b"]))));
        put("not", Some(expression("app", "NotIn", json!(["a"]))));
        put("none", Some(Value::Null));
        put("gone", Some(json!({"matchLabels": {"app": "a"}})));
        put("gone", None);
        put("moved", Some(json!({"matchLabels": {"app": "a"}})));
        put("moved", Some(json!({"matchLabels": {"app": "c"}})));
        let check = |namespace: &str, labels: Value, expected: &[&str]| {
            assert_eq!(budgets.covering(namespace, &labels), expected, "{labels}");
        };
        check("ns", json!({"app": "a", "tier": "x"}), &["all", "app", "either"]);
        check("ns", json!({"app": "a"}), &["all", "either"]);
        check("ns", json!({"app": "b"}), &["all", "either", "not"]);
        check("ns", json!({"app": "c"}), &["all", "moved", "not"]);
        check("ns", Value::Null, &["all", "not"]);
        check("other", json!({"app": "a"}), &[]);
    }

    #[test]
    fn what_is_gone_leaves_nothing() {
        let mut budgets = Budgets::default();
        let value = json!({"spec": {"selector": {"matchLabels": {"app": "a"}}}});
        budgets.apply(STORE, "ns/a", Some(&Arc::new(StoredObject::unversioned(value))));
        budgets.apply(STORE, "ns/a", None);
        assert!(budgets.0.is_empty());
    }
}
