//! Rules about where a pod may run: tolerations, affinity, topology spread.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_schema::labels::Selector;
use kubewright_schema::{budget, names};
use serde_json::{Value, json};

use crate::strategies::check::{At, Errors, Object, child, each, get};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// `spec.tolerations` (`ValidateTolerations`).
pub(crate) fn tolerations(errors: &mut Errors, at: &At<'_>) {
    for toleration in at.items() {
        let key = toleration.key("key");
        let operator = toleration.key("operator");
        let value = toleration.key("value");
        if !key.text().is_empty() {
            errors.messages(&key, names::qualified_name(key.text()));
        } else if operator.text() != "Exists" {
            errors.invalid(
                &operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        let effect = toleration.key("effect");
        if toleration.has("tolerationSeconds") && effect.text() != "NoExecute" {
            errors.invalid(&effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator.text() {
            "" | "Equal" => {
                for message in names::label_value(value.text()) {
                    errors.invalid_value(&operator, value.text(), message);
                }
            }
            "Exists" => {
                if !value.text().is_empty() {
                    errors.invalid_value(
                        &operator,
                        value.text(),
                        "value must be empty when `operator` is 'Exists'",
                    );
                }
            }
            // Known, but not yet to be used.
            "Lt" | "Gt" => errors.unsupported(&operator, &["Equal", "Exists", "Lt", "Gt"]),
            _ => errors.unsupported(&operator, &["Equal", "Exists"]),
        }
        errors.one_of(&effect, &EFFECTS, false);
    }
}

/// `spec.affinity` (`validateAffinity`).
pub(crate) fn affinity(errors: &mut Errors, at: &At<'_>) {
    let node = at.key("nodeAffinity");
    if node.has(REQUIRED) {
        node_selector(errors, &node.key(REQUIRED));
    }
    for preferred in node.key(PREFERRED).items() {
        weight(errors, &preferred.key("weight"));
        node_selector_term(errors, &preferred.key("preference"), false);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for term in at.key(kind).key(REQUIRED).items() {
            pod_affinity_term(errors, &term);
        }
        for preferred in at.key(kind).key(PREFERRED).items() {
            weight(errors, &preferred.key("weight"));
            pod_affinity_term(errors, &preferred.key("podAffinityTerm"));
        }
    }
}

/// A `NodeSelector`, of a pod's affinity and of a volume.
pub(crate) fn node_selector(errors: &mut Errors, at: &At<'_>) {
    let terms = at.key("nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&terms, "must have at least one node selector term");
    }
    for term in terms.items() {
        node_selector_term(errors, &term, true);
    }
}

/// `ValidatePreferredSchedulingTerms`.
fn weight(errors: &mut Errors, at: &At<'_>) {
    let weight = at.int().unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid_value(at, weight, "must be in the range 1-100");
    }
}

/// `ValidateNodeSelectorTerm`; values that are no labels are wrong where a node must fit, elsewhere they are warned of.
fn node_selector_term(errors: &mut Errors, at: &At<'_>, required: bool) {
    for requirement in at.key("matchExpressions").items() {
        let values = requirement.key("values");
        let operator = requirement.key("operator");
        match operator.text() {
            "In" | "NotIn" => {
                if values.is_empty() {
                    errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    errors.forbidden(
                        &values,
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    );
                }
            }
            "Gt" | "Lt" => {
                if values.len() != 1 {
                    errors.required(
                        &values,
                        "must be specified single value when `operator` is 'Lt' or 'Gt'",
                    );
                }
            }
            _ => errors.invalid_value(&operator, operator.text(), "not a valid selector operator"),
        }
        let key = requirement.key("key");
        for message in names::qualified_name(key.text()) {
            errors.invalid_value(&key, key.text(), message);
        }
        for value in values.items().filter(|_| required) {
            for message in names::label_value(value.text()) {
                errors.invalid_value(&value, value.text(), message);
            }
        }
    }
    at.key("matchFields")
        .items()
        .for_each(|requirement| node_field(errors, &requirement));
}

/// `ValidateNodeFieldSelectorRequirement`: a node has one field to be chosen by.
fn node_field(errors: &mut Errors, at: &At<'_>) {
    let (key, operator, values) = (at.key("key"), at.key("operator"), at.key("values"));
    if !["In", "NotIn"].contains(&operator.text()) {
        errors.invalid_value(&operator, operator.text(), "not a valid selector operator");
    } else if values.len() != 1 {
        errors.required(
            &values,
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        );
    }
    if key.text() != "metadata.name" {
        errors.invalid_value(&key, key.text(), "not a valid field selector key");
        return;
    }
    for value in values.items() {
        for message in names::dns1123_subdomain(value.text()) {
            errors.invalid_value(&value, value.text(), message);
        }
    }
}

/// `validatePodAffinityTerm`.
fn pod_affinity_term(errors: &mut Errors, at: &At<'_>) {
    for selector in ["labelSelector", "namespaceSelector"] {
        label_selector(errors, &at.key(selector));
    }
    for namespace in at.key("namespaces").items() {
        // Upstream says it of one namespace.
        let shown = namespace.moved(at.path.key("namespace"));
        errors.messages(&shown, names::dns1123_label(namespace.text()));
    }
    label_keys(errors, at, "matchLabelKeys");
    label_keys(errors, at, "mismatchLabelKeys");
    selected_twice(errors, at);
    let mismatched: BTreeSet<&str> = at.key("mismatchLabelKeys").items().map(|other| other.text()).collect();
    for both in at.key("matchLabelKeys").items() {
        if mismatched.contains(both.text()) {
            errors.invalid(&both, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
    let key = at.key("topologyKey");
    if key.text().is_empty() {
        errors.required(&key, "can not be empty");
    }
    for message in names::qualified_name(key.text()) {
        errors.invalid_value(&key, key.text(), message);
    }
}

/// Keys of labels whose values the pod's own labels give: they narrow a selector, so there must be one.
/// `ValidateMatchLabelKeysInTopologySpread` and `validateLabelKeys`.
fn label_keys(errors: &mut Errors, at: &At<'_>, field: &str) {
    let keys = at.key(field);
    if keys.is_empty() {
        return;
    }
    if !at.has("labelSelector") {
        errors.forbidden(&keys, "must not be specified when labelSelector is not set");
        return;
    }
    for key in keys.items() {
        errors.messages(&key, names::qualified_name(key.text()));
    }
}

/// A key of `matchLabelKeys` stands in the selector once, where [`narrow_selectors`] put it
/// (`validateLabelKeysWithSelector`). Upstream counts the keys behind the path of the term.
fn selected_twice(errors: &mut Errors, at: &At<'_>) {
    let keys = at.key("matchLabelKeys");
    let places: BTreeMap<&str, usize> = keys.items().map(|key| key.text()).zip(0..).collect();
    let selector = at.key("labelSelector");
    let mut seen: BTreeSet<&str> = selector.key("matchLabels").entries().map(|(key, _)| key).collect();
    for expression in selector.key("matchExpressions").items() {
        let key = expression.text_of("key");
        if !seen.insert(key)
            && let Some(place) = places.get(key)
        {
            let at = at.moved(at.path.index(*place));
            errors.invalid_value(&at, key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}

/// Puts the meaning of `matchLabelKeys` and `mismatchLabelKeys` into the selectors beside them: the values of the pod's
/// own labels.
pub(super) fn narrow_selectors(pod: &mut Object) {
    let labels = pod
        .get("metadata")
        .map_or(Value::Null, |metadata| get(metadata, &["labels"]).clone());
    let Some(spec) = child(pod, "spec") else { return };
    for constraint in each(spec, "topologySpreadConstraints") {
        narrow(constraint, &labels);
    }
    let Some(affinity) = child(spec, "affinity") else {
        return;
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(terms) = child(affinity, kind) else { continue };
        for term in each(terms, REQUIRED) {
            narrow(term, &labels);
        }
        for preferred in each(terms, PREFERRED) {
            if let Some(term) = child(preferred, "podAffinityTerm") {
                narrow(term, &labels);
            }
        }
    }
}

fn narrow(term: &mut Object, labels: &Value) {
    /// About the size of a requirement without its texts.
    const ADDED: usize = 1000;
    let mut added = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = term.get(field).and_then(Value::as_array).into_iter().flatten();
        for key in keys.filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                // A label is looked at later, and may be long.
                budget::produce(ADDED + key.len() + value.as_str().map_or(0, str::len));
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    let Some(selector) = child(term, "labelSelector").filter(|_| !added.is_empty()) else {
        return;
    };
    let expressions = selector.entry("matchExpressions").or_insert(Value::Null);
    match expressions.as_array_mut() {
        Some(list) => list.append(&mut added),
        None => *expressions = Value::Array(added),
    }
}

/// A `LabelSelector`, absent or well formed.
pub(crate) fn label_selector(errors: &mut Errors, at: &At<'_>) {
    if at.present()
        && let Err(found) = Selector::from_label_selector(at.value, &at.path)
    {
        errors.extend(found);
    }
}

/// `spec.topologySpreadConstraints` (`validateTopologySpreadConstraints`).
pub(crate) fn spread(errors: &mut Errors, at: &At<'_>) {
    fn same<'a>(at: &At<'a>) -> (&'a str, &'a str) {
        (at.text_of("topologyKey"), at.text_of("whenUnsatisfiable"))
    }
    let mut left: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for constraint in at.items() {
        *left.entry(same(&constraint)).or_default() += 1;
    }
    for constraint in at.items() {
        let skew = constraint.key("maxSkew");
        if skew.int().unwrap_or(0) <= 0 {
            errors.invalid_value(&skew, skew.int().unwrap_or(0), "must be greater than zero");
        }
        let key = constraint.key("topologyKey");
        if key.text().is_empty() {
            errors.required(&key, "can not be empty");
        }
        let when = constraint.key("whenUnsatisfiable");
        errors.one_of_all(&when, &["DoNotSchedule", "ScheduleAnyway"]);
        // The earlier of two is reported.
        let left = left.entry(same(&constraint)).or_default();
        *left = left.saturating_sub(1);
        if *left > 0 {
            errors.push(kubewright_schema::error::FieldError::duplicate(
                constraint.path.key("{topologyKey, whenUnsatisfiable}").to_string(),
                format!("{{{}, {}}}", key.text(), when.text()),
            ));
        }
        let domains = constraint.key("minDomains");
        if domains.int().is_some_and(|domains| domains <= 0) {
            errors.invalid(&domains, "must be greater than zero");
        }
        if domains.present() && when.text() != "DoNotSchedule" {
            errors.invalid(
                &domains,
                format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    when.text()
                ),
            );
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.one_of_all(&constraint.key(policy), &["Honor", "Ignore"]);
        }
        label_keys(errors, &constraint, "matchLabelKeys");
        selected_twice(errors, &constraint);
        label_selector(errors, &constraint.key("labelSelector"));
    }
}
