//! Which pods a SidecarSet is for, and whether two selectors can mean the same object.

use std::collections::{BTreeMap, BTreeSet};

use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubewright::kube::core::{Expression, Selector, SelectorExt};
use sidecarset_api::v1alpha1::SidecarSet;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// The label of every namespace that says its name.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Whether the selector selects these labels. A selector that cannot be read selects nothing: the validating webhook
/// refuses it.
pub fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

/// Whether the selector selects everything.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether the SidecarSet is for pods of a namespace, with the labels that the namespace has. `spec.namespace` wins
/// over `spec.namespaceSelector`.
pub fn covers(set: &SidecarSet, namespace: &str, labels: &Labels) -> bool {
    match (&set.spec.namespace, &set.spec.namespace_selector) {
        (Some(only), _) if !only.is_empty() => only == namespace,
        (_, Some(selector)) => selects(selector, labels),
        _ => true,
    }
}

/// Whether the SidecarSet selects the pod, wherever it is.
pub fn selects_pod(set: &SidecarSet, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    set.spec
        .selector
        .as_ref()
        .is_some_and(|selector| selects(selector, &labels))
}

/// Whether some pod could be meant by both sets: unless their selectors, or those of their namespaces, exclude each
/// other.
pub fn may_meet(one: &SidecarSet, other: &SidecarSet) -> bool {
    let pods = |set: &SidecarSet| set.spec.selector.clone().unwrap_or_default();
    !exclude_each_other(&pods(one), &pods(other)) && !exclude_each_other(&namespaces(one), &namespaces(other))
}

/// The namespaces of a set as a selector.
fn namespaces(set: &SidecarSet) -> LabelSelector {
    match &set.spec.namespace {
        Some(only) if !only.is_empty() => LabelSelector {
            match_labels: Some([(NAMESPACE_NAME.to_owned(), only.clone())].into()),
            match_expressions: None,
        },
        _ => set.spec.namespace_selector.clone().unwrap_or_default(),
    }
}

/// Whether no labels can satisfy both selectors, as far as single keys tell.
fn exclude_each_other(one: &LabelSelector, other: &LabelSelector) -> bool {
    let (Ok(one), Ok(other)) = (Selector::try_from(one.clone()), Selector::try_from(other.clone())) else {
        return false;
    };
    let others: Vec<Expression> = other.into_iter().collect();
    one.into_iter().any(|one| {
        let (key, wanted) = requirement(&one);
        others.iter().any(|other| {
            let (other_key, other_wanted) = requirement(other);
            key == other_key && wanted.excludes(&other_wanted)
        })
    })
}

/// The values that one expression allows for its key.
enum Wanted {
    OneOf(BTreeSet<String>),
    NoneOf(BTreeSet<String>),
    Present,
    Absent,
}

fn requirement(expression: &Expression) -> (String, Wanted) {
    let one = |value: &String| BTreeSet::from([value.clone()]);
    match expression {
        Expression::In(key, values) => (key.clone(), Wanted::OneOf(values.clone())),
        Expression::Equal(key, value) => (key.clone(), Wanted::OneOf(one(value))),
        Expression::NotIn(key, values) => (key.clone(), Wanted::NoneOf(values.clone())),
        Expression::NotEqual(key, value) => (key.clone(), Wanted::NoneOf(one(value))),
        Expression::Exists(key) => (key.clone(), Wanted::Present),
        Expression::DoesNotExist(key) => (key.clone(), Wanted::Absent),
    }
}

impl Wanted {
    fn excludes(&self, other: &Wanted) -> bool {
        match (self, other) {
            (Wanted::OneOf(these), Wanted::OneOf(those)) => these.is_disjoint(those),
            (Wanted::OneOf(these), Wanted::NoneOf(those)) | (Wanted::NoneOf(those), Wanted::OneOf(these)) => {
                these.is_subset(those)
            }
            (Wanted::Absent, Wanted::OneOf(_) | Wanted::Present) => true,
            (Wanted::OneOf(_) | Wanted::Present, Wanted::Absent) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selector(value: Value) -> LabelSelector {
        serde_json::from_value(value).expect("a selector")
    }

    #[test]
    fn selectors_exclude_each_other_by_one_key() {
        let check = |one: Value, other: Value, expected: bool| {
            let (one, other) = (selector(one), selector(other));
            assert_eq!(exclude_each_other(&one, &other), expected, "{one:?} {other:?}");
            assert_eq!(exclude_each_other(&other, &one), expected, "{other:?} {one:?}");
        };
        let app = |value: &str| json!({"matchLabels": {"app": value}});
        let expression = |operator: &str, values: Value| {
            let mut one = json!({"key": "app", "operator": operator});
            if !values.is_null() {
                one["values"] = values;
            }
            json!({"matchExpressions": [one]})
        };
        check(app("a"), app("a"), false);
        check(app("a"), app("b"), true);
        check(app("a"), json!({"matchLabels": {"tier": "b"}}), false);
        check(app("a"), json!({}), false);
        check(app("a"), expression("In", json!(["a", "b"])), false);
        check(app("a"), expression("In", json!(["b", "c"])), true);
        check(app("a"), expression("NotIn", json!(["a", "b"])), true);
        check(
            expression("In", json!(["a", "c"])),
            expression("NotIn", json!(["a"])),
            false,
        );
        check(app("a"), expression("Exists", Value::Null), false);
        check(app("a"), expression("DoesNotExist", Value::Null), true);
        check(
            expression("Exists", Value::Null),
            expression("DoesNotExist", Value::Null),
            true,
        );
    }

    #[test]
    fn a_set_covers_namespaces_by_name_or_by_label() {
        let labels = |env: &str| Labels::from([("env".to_owned(), env.to_owned())]);
        let check = |spec: Value, namespace: &str, env: &str, expected: bool| {
            let set = SidecarSet::new("set", serde_json::from_value(spec.clone()).expect("a spec"));
            assert_eq!(
                covers(&set, namespace, &labels(env)),
                expected,
                "{spec} {namespace} {env}"
            );
        };
        check(json!({}), "any", "any", true);
        check(json!({"namespace": "ns-1"}), "ns-1", "any", true);
        check(json!({"namespace": "ns-1"}), "ns-2", "any", false);
        check(
            json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}}),
            "ns-1",
            "prod",
            true,
        );
        check(
            json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}}),
            "ns-1",
            "test",
            false,
        );
        let both = json!({"namespace": "ns-1", "namespaceSelector": {"matchLabels": {"env": "prod"}}});
        check(both, "ns-1", "test", true);
    }
}
