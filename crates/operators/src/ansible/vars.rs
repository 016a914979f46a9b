//! The variables that a run gets from its object: its spec, name and namespace, and all of it.

use kubewright::kube::core::{DynamicObject, GroupVersionKind};
use serde_json::{Map, Value, json};

use super::snake;
use super::watch::Watch;

/// The extra vars of a run. Later ones take the place of earlier ones: the spec, `ansible_operator_meta`,
/// `_group_kind` and `_group_kind_spec`, the vars of the watch, those of its finalizer when it is `finalizing`.
#[must_use]
pub fn extra_vars(watch: &Watch, object: &DynamicObject, finalizing: bool) -> Map<String, Value> {
    let whole = serde_json::to_value(object).unwrap_or_default();
    let spec = match &object.data["spec"] {
        Value::Object(spec) => spec.clone(),
        _ => Map::new(),
    };
    let marked = |value: Value| match watch.mark_unsafe {
        true => unsafe_texts(value),
        false => value,
    };
    let named = match watch.snake_case_parameters {
        true => snake::names(&spec),
        false => spec.clone(),
    };
    let mut vars: Map<String, Value> = named.into_iter().map(|(name, value)| (name, marked(value))).collect();
    let meta = &object.metadata;
    vars.insert(
        "ansible_operator_meta".to_owned(),
        json!({
            "namespace": meta.namespace.as_deref().unwrap_or_default(),
            "name": meta.name.as_deref().unwrap_or_default(),
        }),
    );
    let key = key(&watch.kind);
    vars.insert(format!("{key}_spec"), marked(Value::Object(spec)));
    vars.insert(key, marked(whole));
    vars.extend(watch.vars.clone());
    if let Some(finalizer) = watch.finalizer.as_ref().filter(|_| finalizing) {
        vars.extend(finalizer.vars.clone());
    }
    vars
}

/// The variable with the whole object: `_cache_example_com_memcached`.
fn key(kind: &GroupVersionKind) -> String {
    format!("_{}_{}", kind.group, kind.kind.to_lowercase()).replace(['.', '-'], "_")
}

/// Every text as one that Ansible does not take for a template.
fn unsafe_texts(value: Value) -> Value {
    match value {
        Value::String(text) => json!({ "__ansible_unsafe": text }),
        Value::Array(list) => list.into_iter().map(unsafe_texts).collect(),
        Value::Object(map) => {
            let fields = map.into_iter().map(|(name, value)| (name, unsafe_texts(value)));
            Value::Object(fields.collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ansible::watch::{Finalizer, Target};

    fn watch() -> Watch {
        Watch {
            kind: GroupVersionKind::gvk("cache.my-org.io", "v1", "MemCached"),
            target: Target::Role("/roles/a".into()),
            vars: Map::new(),
            max_runner_artifacts: 20,
            reconcile_period: Duration::ZERO,
            manage_status: true,
            watch_dependent_resources: true,
            watch_cluster_scoped_resources: false,
            watch_annotations_changes: false,
            snake_case_parameters: true,
            mark_unsafe: false,
            blacklist: Vec::new(),
            selector: None,
            finalizer: None,
            max_concurrent_reconciles: 1,
            verbosity: 2,
        }
    }

    fn object() -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "cache.my-org.io/v1", "kind": "MemCached",
            "metadata": {"name": "m", "namespace": "ns"},
            "spec": {"nodeCount": 3, "state": "{{ x }}", "nested": [{"aName": "t"}]},
        }))
        .expect("an object")
    }

    fn check(watch: &Watch, finalizing: bool, expected: &Value) {
        let mut vars = Value::Object(extra_vars(watch, &object(), finalizing));
        let whole = vars
            .as_object_mut()
            .and_then(|vars| vars.remove("_cache_my_org_io_memcached"));
        assert_eq!(
            whole.map(|whole| whole["metadata"].clone()),
            Some(match watch.mark_unsafe {
                false => json!({"name": "m", "namespace": "ns"}),
                true => json!({"name": {"__ansible_unsafe": "m"}, "namespace": {"__ansible_unsafe": "ns"}}),
            })
        );
        assert_eq!(&vars, expected);
    }

    #[test]
    fn a_run_gets_its_object() {
        let spec = object().data["spec"].clone();
        let meta = json!({"name": "m", "namespace": "ns"});
        let snake = json!({"node_count": 3, "state": "{{ x }}", "nested": [{"a_name": "t"}], "ansible_operator_meta": meta, "_cache_my_org_io_memcached_spec": spec});
        check(&watch(), false, &snake);
        let as_it_is = json!({"nodeCount": 3, "state": "{{ x }}", "nested": [{"aName": "t"}], "ansible_operator_meta": meta, "_cache_my_org_io_memcached_spec": spec});
        let plain = Watch {
            snake_case_parameters: false,
            ..watch()
        };
        check(&plain, false, &as_it_is);
        let marked = json!({
            "node_count": 3, "state": {"__ansible_unsafe": "{{ x }}"}, "nested": [{"a_name": {"__ansible_unsafe": "t"}}], "ansible_operator_meta": meta,
            "_cache_my_org_io_memcached_spec": {"nodeCount": 3, "state": {"__ansible_unsafe": "{{ x }}"}, "nested": [{"aName": {"__ansible_unsafe": "t"}}]},
        });
        check(
            &Watch {
                mark_unsafe: true,
                ..watch()
            },
            false,
            &marked,
        );
    }

    #[test]
    fn vars_of_the_watch_and_then_of_its_finalizer_count() {
        let map = |value: Value| value.as_object().cloned().unwrap_or_default();
        let watch = Watch {
            vars: map(json!({"state": "present", "size": 1})),
            finalizer: Some(Finalizer {
                name: "a/b".to_owned(),
                target: None,
                vars: map(json!({"state": "absent"})),
            }),
            ..watch()
        };
        let state = |finalizing| extra_vars(&watch, &object(), finalizing)["state"].clone();
        assert_eq!((state(false), state(true)), (json!("present"), json!("absent")));
    }
}
