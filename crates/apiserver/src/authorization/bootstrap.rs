//! The roles and bindings that every cluster has (`data/rbac.json`), and how those that are stored are brought up to
//! date.
//!
//! A start creates missing objects. It adds missing rules, subjects, labels and annotations to existing objects, unless
//! the annotation `rbac.authorization.kubernetes.io/autoupdate` says `false`; it removes nothing.

use serde_json::{Map, Value, json};

use super::{GROUP, Rule, covers};
use crate::model::{Minor, object};

const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The plural name of a kind of RBAC.
pub(crate) fn plural(kind: &str) -> String {
    format!("{}s", kind.to_lowercase())
}

/// All of them, with `apiVersion` and `kind`; roles before the bindings that refer to them. An object with `since` is
/// there from that version on, in the place of the one of the same name.
pub fn objects(minor: Minor) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for (since, object) in committed() {
        match since {
            Some(since) if since > minor => continue,
            Some(_) => all.retain(|one| place(one) != place(&object)),
            None => {}
        }
        all.push(object);
    }
    let order = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    all.sort_by_key(|object| order.iter().position(|kind| object["kind"] == *kind));
    all.into_iter().map(complete).collect()
}

/// What is one object, whatever it says.
fn place(object: &Value) -> (&Value, &str, &str) {
    (&object["kind"], object::namespace(object), object::name(object))
}

/// The kinds and names of those that a version has otherwise than the oldest one.
pub(crate) fn changed(minor: Minor) -> Vec<(String, String)> {
    let changed = committed().filter(|(since, _)| since.is_some_and(|since| since <= minor));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    changed
        .map(|(_, object)| (text(&object["kind"]), object::name(&object).to_owned()))
        .collect()
}

/// The committed objects, each with the version that it begins with.
fn committed() -> impl Iterator<Item = (Option<Minor>, Value)> {
    let objects: Vec<Value> = serde_json::from_str(include_str!("../../data/rbac.json"))
        .expect("the committed policy is well formed: a test reads it");
    objects.into_iter().map(|mut object| {
        let since = object.as_object_mut().and_then(|object| object.remove("since"));
        (since.and_then(|since| since.as_str()?.parse().ok()), object)
    })
}

/// The rules of one of the ClusterRoles; none when there is no such role.
pub(crate) fn cluster_role_rules(minor: Minor, name: &str) -> Vec<Rule> {
    let mut objects = objects(minor).into_iter();
    let role = objects.find(|object| object["kind"] == "ClusterRole" && object::name(object) == name);
    role.map(|role| Rule::all_of(&role)).unwrap_or_default()
}

/// Puts in the fields that all of them have.
fn complete(mut object: Value) -> Value {
    object["apiVersion"] = json!(format!("{GROUP}/v1"));
    let metadata = object::metadata_mut(&mut object);
    metadata.insert("annotations".to_owned(), json!({ AUTOUPDATE: "true" }));
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    labels["kubernetes.io/bootstrapping"] = json!("rbac-defaults");
    object
}

/// The step for a stored object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Nothing.
    Keep,
    /// To be replaced by this.
    Update(Value),
    /// To be deleted and created anew: the role of a binding cannot be changed.
    Recreate,
}

/// Compares a stored object with the one that every cluster has.
pub(crate) fn reconcile(expected: &Value, present: &Value) -> Step {
    let annotation = present
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(AUTOUPDATE));
    if annotation.and_then(Value::as_str) == Some("false") {
        return Step::Keep;
    }
    if expected.get("roleRef") != present.get("roleRef") {
        return Step::Recreate;
    }
    let mut next = present.clone();
    for field in ["labels", "annotations"] {
        add_entries(&mut next, expected, field);
    }
    let missing = covers(&Rule::all_of(present), &Rule::all_of(expected));
    append(&mut next, "rules", missing.into_iter().map(Rule::into_value).collect());
    let absent = absent_from(present.get("subjects"), expected.get("subjects"));
    append(&mut next, "subjects", absent);
    if let Some(wanted) = expected.get("aggregationRule") {
        let pointer = "/aggregationRule/clusterRoleSelectors";
        let absent = absent_from(present.pointer(pointer), wanted.get("clusterRoleSelectors"));
        if !absent.is_empty() {
            if !next["aggregationRule"].is_object() {
                next["aggregationRule"] = json!({});
            }
            append(&mut next["aggregationRule"], "clusterRoleSelectors", absent);
        }
    }
    if next == *present {
        Step::Keep
    } else {
        Step::Update(next)
    }
}

/// Adds the labels or annotations that are missing or differ.
fn add_entries(next: &mut Value, expected: &Value, field: &str) {
    let empty = Map::new();
    let wanted = expected.get("metadata").and_then(|metadata| metadata.get(field));
    let wanted = wanted.and_then(Value::as_object).unwrap_or(&empty);
    let entries = object::metadata_mut(next).entry(field).or_insert_with(|| json!({}));
    if let Some(entries) = entries.as_object_mut() {
        for (key, value) in wanted {
            // A value that a user set stays, the annotation that controls the update included.
            entries.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

fn absent_from(present: Option<&Value>, wanted: Option<&Value>) -> Vec<Value> {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let present = list(present);
    list(wanted)
        .into_iter()
        .filter(|entry| !present.contains(entry))
        .collect()
}

fn append(object: &mut Value, field: &str, entries: Vec<Value>) {
    if entries.is_empty() {
        return;
    }
    match object.get_mut(field).and_then(Value::as_array_mut) {
        Some(list) => list.extend(entries),
        None => object[field] = Value::Array(entries),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_brought_up_to_date() {
        #[track_caller]
        fn check(expected: &Value, present: &Value, want: &Step) {
            assert_eq!(reconcile(expected, present), *want);
        }
        let rule = |verbs: &[&str]| json!({"apiGroups": [""], "resources": ["pods"], "verbs": verbs});
        let role = |rules: Value| complete(json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": rules}));
        let full = role(json!([rule(&["get", "list"])]));
        check(&full, &full, &Step::Keep);
        check(
            &full,
            &role(json!([rule(&["get"]), rule(&["delete"])])),
            &Step::Update(role(json!([
                rule(&["get"]),
                rule(&["delete"]),
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
            ]))),
        );
        let mut frozen = role(json!([]));
        frozen["metadata"]["annotations"][AUTOUPDATE] = json!("false");
        check(&full, &frozen, &Step::Keep);
        let binding = |role: &str, subjects: Value| {
            complete(
                json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "roleRef": {"name": role}, "subjects": subjects}),
            )
        };
        let both = binding(
            "r",
            json!([{"kind": "Group", "name": "g"}, {"kind": "User", "name": "u"}]),
        );
        check(
            &both,
            &binding("r", json!([{"kind": "User", "name": "u"}])),
            &Step::Update(binding(
                "r",
                json!([{"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}]),
            )),
        );
        check(&both, &binding("s", json!([])), &Step::Recreate);
    }

    #[test]
    fn the_policy_is_whole() {
        for (minor, count) in [(Minor::V36, 133), (Minor::V37, 141)] {
            let objects = objects(minor);
            assert_eq!(objects.len(), count);
            let role = |binding: &Value| {
                let (kind, name) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
                objects
                    .iter()
                    .any(|role| role["kind"] == *kind && role["metadata"]["name"] == *name)
            };
            for object in &objects {
                assert!(object["roleRef"].is_null() || role(object), "{object}");
                assert!(object["since"].is_null(), "{object}");
            }
        }
    }
}
