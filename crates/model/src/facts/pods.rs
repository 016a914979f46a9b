//! Facts about pods that other code than their own rules asks for: their quality of service, and their tolerations.

use std::collections::BTreeMap;
use std::str::FromStr;

use kubewright_schema::quantity::Quantity;
use serde_json::{Value, json};

use crate::values::{At, Object};

/// Keys of the lists of containers in a pod's spec.
pub const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Adds the tolerations of the admission plugin DefaultTolerationSeconds, as to every pod that is created or changed.
pub fn tolerate(spec: &mut Object) {
    for (condition, key) in [
        ("not-ready", "node.kubernetes.io/not-ready"),
        ("unreachable", "node.kubernetes.io/unreachable"),
    ] {
        let tolerated = spec.get("tolerations").and_then(Value::as_array).is_some_and(|list| {
            list.iter().any(|toleration| {
                let of = |field: &str| toleration.get(field).and_then(Value::as_str).unwrap_or("");
                (of("key") == key || of("key").is_empty()) && matches!(of("effect"), "NoExecute" | "")
            })
        });
        if !tolerated {
            tracing::trace!(condition, "a toleration of 300 seconds is added");
            let list = spec.entry("tolerations").or_insert(Value::Null);
            if list.is_null() {
                *list = json!([]);
            }
            if let Some(list) = list.as_array_mut() {
                list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
            }
        }
    }
}

/// `Guaranteed` when every container limits cpu and memory and requests just that, `BestEffort` when none asks for
/// anything, else `Burstable`.
pub fn qos_class(pod: &Value) -> &'static str {
    let spec = At::root(pod).key("spec");
    let mut requests: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut limits: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut guaranteed = true;
    // Pod-level resources count instead of those of the containers.
    let whole = ["requests", "limits"]
        .iter()
        .any(|list| !spec.keys(&["resources", list]).is_empty());
    let containers = spec.key("containers").items().chain(spec.key("initContainers").items());
    let asking: Vec<At<'_>> = if whole {
        vec![spec.clone()]
    } else {
        containers.collect()
    };
    for container in asking {
        if !container.has_some("resources") {
            guaranteed = false;
            continue;
        }
        let mut limited = 0;
        for (list, sums) in [("requests", &mut requests), ("limits", &mut limits)] {
            let of = container.keys(&["resources", list]);
            for name in ["cpu", "memory"] {
                let Some(amount) = Quantity::from_str(of.key(name).text())
                    .ok()
                    .filter(|amount| amount.sign() > 0)
                else {
                    continue;
                };
                limited += usize::from(list == "limits");
                let sum = match sums.remove(name) {
                    Some(sum) => sum + amount,
                    None => amount,
                };
                sums.insert(name, sum);
            }
        }
        guaranteed &= limited == 2;
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if guaranteed
        && requests.iter().all(|(name, amount)| limits.get(name) == Some(amount))
        && requests.len() == limits.len()
    {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
