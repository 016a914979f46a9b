//! The annotation with the configuration that `kubectl apply` last applied, when kubectl goes over to server-side
//! apply.
//!
//! The fields in it belong to kubectl's client-side manager. A server-side apply by the manager `kubectl` may
//! take them over without a conflict, and the annotation is kept up to date, so that going back is possible. Any other
//! manager is left alone.
//!
//! Not here: the apply itself (see `apply`).

use std::collections::BTreeSet;

use kubewright_schema::apply::{Manager, ObjectType, unchanged};
use kubewright_schema::{decode, go};
use serde_json::Value;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const KUBECTL: &str = "kubectl";
/// All annotations of an object together, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    let annotations = object.get("metadata")?.get("annotations")?;
    annotations.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The fields that the annotation of the live object, which is without its `managedFields`, may speak for; none when
/// this is not kubectl, or there is no such annotation.
pub(super) fn fields(manager: &Manager, kind: &ObjectType, live: &Value) -> Option<BTreeSet<String>> {
    if !is_kept_by(&manager.name) {
        return None;
    }
    let config = decode::json(annotation(live)?.as_bytes()).ok()?.value;
    Some(unchanged(kind, &config, live))
}

/// Whether this manager keeps the annotation.
pub(super) fn is_kept_by(manager: &str) -> bool {
    manager == KUBECTL
}

/// Writes the configuration that kubectl has applied into an annotation that is there.
pub(super) fn renew(manager: &Manager, config: &Value, new: &mut Value) {
    if !is_kept_by(&manager.name) || annotation(new).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = new.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    annotations.insert(
        ANNOTATION.to_owned(),
        Value::String(format!("{}\n", go::html_safe(&config.to_string()))),
    );
    let size: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}

#[cfg(test)]
mod tests {
    use kubewright_schema::apply::Operation;
    use kubewright_schema::catalog;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_still_as_it_was_applied_may_be_taken_over() {
        let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"same": "1", "changed": "1", "gone": "1"}});
        let live = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"same": "1", "changed": "2", "other": "1"},
            "metadata": {"name": "a", "annotations": {ANNOTATION: last.to_string()}}});
        let kind = ObjectType::built_in(catalog::for_kind("", "v1", "ConfigMap").expect("a built-in kind"));
        let manager = |name: &str| Manager::new(name, Operation::Apply, "v1", "");
        let own = fields(&manager("kubectl"), &kind, &live).expect("kubectl has applied it");
        assert!(own.contains(".data.same"), "{own:?}");
        assert!(
            !own.contains(".data.changed") && !own.contains(".data.gone") && !own.contains(".data.other"),
            "{own:?}"
        );
        assert_eq!(fields(&manager("flux"), &kind, &live), None);
    }

    #[test]
    fn the_annotation_holds_what_was_applied() {
        let config = json!({"metadata": {"annotations": {}, "name": "a"}, "data": {"x": "<&>"}});
        let mut new = json!({"metadata": {"annotations": {ANNOTATION: "{}"}}});
        renew(&Manager::new("kubectl", Operation::Apply, "v1", ""), &config, &mut new);
        assert_eq!(
            new["metadata"]["annotations"][ANNOTATION],
            "{\"data\":{\"x\":\"\\u003c\\u0026\\u003e\"},\"metadata\":{\"annotations\":{},\"name\":\"a\"}}\n"
        );
        let mut without = json!({"metadata": {}});
        renew(
            &Manager::new("kubectl", Operation::Apply, "v1", ""),
            &config,
            &mut without,
        );
        assert_eq!(without, json!({"metadata": {}}));
    }
}
