//! Which objects a quota is about: `scopes` and `scopeSelector`.
//!
//! Only pods and claims have scopes. A quota with scopes therefore counts nothing else.

use serde_json::Value;

use crate::facts::pods::qos_class;
use crate::values::{get, items};

/// One condition of a quota on the objects that it counts.
pub(super) struct Requirement<'a> {
    scope: &'a str,
    operator: &'a str,
    values: Vec<&'a str>,
}

fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    get(value, path).as_str().unwrap_or("")
}

/// All conditions of a quota. A scope without an operator asks whether there is such a thing.
pub(super) fn requirements(quota: &Value) -> Vec<Requirement<'_>> {
    let scopes = items(quota, &["spec", "scopes"]).iter().map(|scope| Requirement {
        scope: scope.as_str().unwrap_or(""),
        operator: "Exists",
        values: Vec::new(),
    });
    let selectors = items(quota, &["spec", "scopeSelector", "matchExpressions"]).iter();
    let selectors = selectors.map(|selector| Requirement {
        scope: text(selector, &["scopeName"]),
        operator: text(selector, &["operator"]),
        values: items(selector, &["values"]).iter().filter_map(Value::as_str).collect(),
    });
    scopes.chain(selectors).collect()
}

impl Requirement<'_> {
    fn selects(&self, name: Option<&str>) -> bool {
        let listed = name.is_some_and(|name| self.values.contains(&name));
        match self.operator {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => name.is_some(),
            "DoesNotExist" => name.is_none(),
            _ => false,
        }
    }

    /// Whether a pod fulfils it.
    pub(super) fn fits_pod(&self, pod: &Value) -> bool {
        match self.scope {
            "Terminating" => is_bounded(pod),
            "NotTerminating" => !is_bounded(pod),
            "BestEffort" => is_best_effort(pod),
            "NotBestEffort" => !is_best_effort(pod),
            "PriorityClass" => {
                let class = text(pod, &["spec", "priorityClassName"]);
                self.selects(Some(class).filter(|class| !class.is_empty()))
            }
            "CrossNamespacePodAffinity" => has_cross_namespace_affinity(pod),
            _ => false,
        }
    }

    /// Whether a claim fulfils it: by any of the classes of volume attributes that it has, had or is to have.
    pub(super) fn fits_claim(&self, claim: &Value) -> bool {
        if self.scope != "VolumeAttributesClass" {
            return false;
        }
        let places: [&[&str]; 3] = [
            &["spec", "volumeAttributesClassName"],
            &["status", "currentVolumeAttributesClassName"],
            &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
        ];
        let names = places.map(|place| text(claim, place));
        let mut names = names.iter().filter(|name| !name.is_empty()).peekable();
        if names.peek().is_none() {
            return self.selects(None);
        }
        names.any(|name| self.selects(Some(name)))
    }
}

/// Whether the pod may run for a limited time only.
fn is_bounded(pod: &Value) -> bool {
    get(pod, &["spec", "activeDeadlineSeconds"])
        .as_i64()
        .is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Value) -> bool {
    let known = text(pod, &["status", "qosClass"]);
    let class = if known.is_empty() { qos_class(pod) } else { known };
    class == "BestEffort"
}

/// Whether the pod wants to be near, or far from, pods of other namespaces.
fn has_cross_namespace_affinity(pod: &Value) -> bool {
    let is_cross_namespace =
        |term: &Value| !items(term, &["namespaces"]).is_empty() || get(term, &["namespaceSelector"]).is_object();
    ["podAffinity", "podAntiAffinity"].iter().any(|affinity| {
        let terms = |list: &str| items(pod, &["spec", "affinity", affinity, list]);
        terms("requiredDuringSchedulingIgnoredDuringExecution")
            .iter()
            .any(is_cross_namespace)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|term| is_cross_namespace(get(term, &["podAffinityTerm"])))
    })
}
