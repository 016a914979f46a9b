//! Whether a live object still has what the chart says, and the patch that brings it back.
//!
//! Fields that the chart does not speak of belong to others, and stay. The patch is what the chart says, whole: a
//! strategic merge patch for the kinds of Kubernetes (lists merged by their keys), a merge patch for all others. So it
//! does what a three-way merge does whose first two states are the same (`strategicpatch.CreateThreeWayMergePatch`).
//!
//! [`holds`] says whether a patch is needed; it does not know that `1000m` is `1`. A patch that changed nothing is
//! therefore remembered by its caller, and not sent again.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

use super::manifest::{Part, object};

/// How the lists of an object are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merging {
    /// By the keys of Kubernetes' types.
    Strategic,
    /// A list is replaced.
    Plain,
}

/// The patch for an object: without its status, and without fields that say nothing.
pub(super) fn patch(part: &Part) -> Value {
    let mut fields = part.0.clone();
    fields.remove("status");
    if fields.get("kind").is_some_and(|kind| kind == "Secret") {
        in_base64(&mut fields);
    }
    let mut patch = Value::Object(fields);
    without_nulls(&mut patch);
    patch
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Whether the live object has everything that the patch says.
pub(super) fn holds(live: &Value, patch: &Value, merging: Merging) -> bool {
    match (live, patch) {
        (Value::Object(live), Value::Object(patch)) => patch.iter().all(|(name, wanted)| {
            live.get(name)
                .is_some_and(|live| field_holds(name, live, wanted, merging))
        }),
        (Value::Number(live), Value::Number(wanted)) => live == wanted || live.as_f64() == wanted.as_f64(),
        _ => live == patch,
    }
}

/// A Secret takes texts, and gives them back in base64.
fn in_base64(secret: &mut Map<String, Value>) {
    let Some(Value::Object(texts)) = secret.remove("stringData") else {
        return;
    };
    let data = object(secret, "data");
    for (name, text) in texts {
        let encoded = BASE64_STANDARD.encode(text.as_str().unwrap_or_default());
        data.insert(name, Value::String(encoded));
    }
}

fn field_holds(name: &str, live: &Value, wanted: &Value, merging: Merging) -> bool {
    let (Value::Array(live), Value::Array(wanted)) = (live, wanted) else {
        return holds(live, wanted, merging);
    };
    // Owners are merged in every kind: the patch is made that way.
    let key = match (name, merging) {
        ("ownerReferences", _) => Some("uid"),
        (_, Merging::Strategic) => key_of(name, wanted),
        (_, Merging::Plain) => None,
    };
    match key {
        Some("") => wanted.iter().all(|item| live.contains(item)),
        Some(key) => wanted.iter().all(|item| {
            let mut same = live.iter().filter(|live| live[key] == item[key]);
            // Ports of a name may differ in their protocol.
            same.any(|live| holds(live, item, merging))
        }),
        None => live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, item)| holds(live, item, merging)),
    }
}

/// The key by which items of a list are the same one (`patchMergeKey` of the field in Kubernetes' types); empty for a
/// list that is a set. Lists that are not here are replaced as a whole.
fn key_of(field: &str, items: &[Value]) -> Option<&'static str> {
    let has = |key: &str| items.iter().all(|item| item.get(key).is_some());
    let key = match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "secrets"
        | "webhooks"
        | "resourceClaims"
        | "schedulingGates" => "name",
        "ports" if has("containerPort") => "containerPort",
        "ports" if has("port") => "port",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "hostAliases" => "ip",
        "topologySpreadConstraints" => "topologyKey",
        "conditions" => "type",
        "finalizers" => "",
        _ => return None,
    };
    (key.is_empty() || has(key)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_object_holds() {
        let check = |live: Value, said: Value, strategic: bool, plain: bool| {
            assert_eq!(
                holds(&live, &said, Merging::Strategic),
                strategic,
                "{live} {said}, strategic"
            );
            assert_eq!(holds(&live, &said, Merging::Plain), plain, "{live} {said}, plain");
        };
        check(json!({"a": 1, "b": 2}), json!({"a": 1}), true, true);
        check(json!({"a": 1}), json!({"a": 2}), false, false);
        check(json!({"a": 1}), json!({"b": 1}), false, false);
        check(json!({"a": 1}), json!({"a": 1.0}), true, true);
        check(json!({"a": {"x": 1, "y": 1}}), json!({"a": {"x": 1}}), true, true);
        check(json!({"l": [1, 2]}), json!({"l": [1, 2]}), true, true);
        check(json!({"l": [1, 2]}), json!({"l": [1]}), false, false);
        let live = json!({"containers": [{"name": "a", "image": "x", "more": 1}, {"name": "b"}]});
        check(
            live.clone(),
            json!({"containers": [{"name": "a", "image": "x"}]}),
            true,
            false,
        );
        check(
            live.clone(),
            json!({"containers": [{"name": "a", "image": "y"}]}),
            false,
            false,
        );
        check(live, json!({"containers": [{"name": "c"}]}), false, false);
        let live = json!({"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]});
        check(live, json!({"ports": [{"port": 53, "protocol": "TCP"}]}), true, false);
        check(
            json!({"finalizers": ["a", "b"]}),
            json!({"finalizers": ["b"]}),
            true,
            false,
        );
        check(
            json!({"subjects": [{"name": "a"}, {"name": "b"}]}),
            json!({"subjects": [{"name": "a"}]}),
            false,
            false,
        );
        let owners = json!({"ownerReferences": [{"uid": "1"}, {"uid": "2"}]});
        check(owners, json!({"ownerReferences": [{"uid": "2"}]}), true, true);
    }

    #[test]
    fn a_patch_says_nothing_of_the_status() {
        let part = Part(
            json!({"kind": "A", "spec": {"a": null, "b": [{"c": null}]}, "status": {}})
                .as_object()
                .cloned()
                .unwrap_or_default(),
        );
        assert_eq!(patch(&part), json!({"kind": "A", "spec": {"b": [{}]}}));
        let secret = json!({"kind": "Secret", "data": {"b": "eQ=="}, "stringData": {"a": "x"}});
        let secret = Part(secret.as_object().cloned().unwrap_or_default());
        assert_eq!(
            patch(&secret),
            json!({"kind": "Secret", "data": {"a": "eA==", "b": "eQ=="}})
        );
    }
}
