//! Amounts by the name of their resource (`ResourceList`), and how quotas reckon with them.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use kubewright_schema::names;
use kubewright_schema::quantity::{Format, Quantity};
use serde_json::Value;

/// Amounts by the name of their resource, such as `requests.cpu` or `count/deployments.apps`.
pub type ResourceList = BTreeMap<String, Quantity>;

/// The amounts in a JSON object; a value that is not a quantity is left out.
pub fn parse(list: &Value) -> ResourceList {
    let entries = list.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, amount)| Some((name.clone(), quantity(amount)?)))
        .collect()
}

/// A quantity, which JSON may also hold as a number.
pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::from_str(text).ok(),
        Value::Number(number) => Quantity::from_str(&number.to_string()).ok(),
        _ => None,
    }
}

/// The amounts as a JSON object.
pub fn to_value(list: &ResourceList) -> Value {
    let entries = list
        .iter()
        .map(|(name, amount)| (name.clone(), Value::from(amount.to_string())));
    Value::Object(entries.collect())
}

/// Whether the name of a resource belongs to Kubernetes (`IsNativeResource`).
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a resource has a domain of its own; the form of its name is not checked (`IsExtendedResourceName`, which also
/// checks that).
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.")
}

/// Whether a quota counts objects by this name, without `count/` (the object counts in `standardQuotaResources`).
pub fn is_object_count(name: &str) -> bool {
    const COUNTED: [&str; 9] = [
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    COUNTED.contains(&name)
}

/// Whether there are only whole ones of a resource (`IsIntegerResourceName`).
pub fn is_counted_in_wholes(name: &str) -> bool {
    is_object_count(name) || (is_extended(name) && names::qualified_name(name).is_empty())
}

/// A number of objects.
pub fn number(count: usize) -> Quantity {
    Quantity::new(i128::try_from(count).unwrap_or(i128::MAX), 0, Format::DecimalSi)
}

/// Adds amounts to a sum.
pub fn add(sum: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        let total = match sum.remove(name) {
            Some(known) => known + amount.clone(),
            None => amount.clone(),
        };
        sum.insert(name.clone(), total);
    }
}

/// Raises each amount to that of the other list.
pub fn at_least(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        if list.get(name).is_none_or(|known| known < amount) {
            list.insert(name.clone(), amount.clone());
        }
    }
}

/// The rest of `list` without `other`, never less than nothing.
pub fn without(list: &ResourceList, other: &ResourceList) -> ResourceList {
    let left = list.iter().map(|(name, amount)| {
        let left = match other.get(name) {
            Some(less) if less >= amount => Quantity::new(0, 0, amount.format()),
            Some(less) => amount.clone() - less.clone(),
            None => amount.clone(),
        };
        (name.clone(), left)
    });
    left.collect()
}

/// The amounts of the names that `keep` says.
pub fn only(list: &ResourceList, keep: impl Fn(&str) -> bool) -> ResourceList {
    let kept = list.iter().filter(|(name, _)| keep(name));
    kept.map(|(name, amount)| (name.clone(), amount.clone())).collect()
}

/// `name=amount`, separated by commas, as refusals show amounts.
pub fn text(list: &ResourceList) -> String {
    let parts: Vec<String> = list.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    parts.join(",")
}
