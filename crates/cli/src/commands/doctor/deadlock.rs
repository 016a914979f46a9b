//! Webhooks that keep their own operator from starting. Pure: the declaration is data.
//!
//! A webhook with the failure policy `Fail` for the objects of an operator (pods and their workloads, its lease, its
//! accounts and Secrets), called about its own namespace too, must answer before its server can run.

use kubewright_codegen::codes;
use kubewright_codegen::manifests::Declaration;
use serde_json::Value;

use super::Check;

/// The kinds that must be written before an operator runs, by group.
const NEEDED: [(&str, &[&str]); 4] = [
    (
        "",
        &[
            "pods",
            "services",
            "endpoints",
            "secrets",
            "configmaps",
            "serviceaccounts",
            "events",
            "*",
        ],
    ),
    ("apps", &["deployments", "replicasets", "*"]),
    ("coordination.k8s.io", &["leases", "*"]),
    ("discovery.k8s.io", &["endpointslices", "*"]),
];

/// One bad check for each webhook of which the operator cannot start; nothing when there is none.
pub(super) fn deadlocks(declaration: &Declaration) -> Vec<Check> {
    let mut checks = Vec::new();
    for webhook in &declaration.webhooks {
        let fails = webhook
            .failure_policy
            .as_deref()
            .is_some_and(|policy| policy.eq_ignore_ascii_case("Fail"));
        let creates = webhook
            .verbs
            .iter()
            .any(|verb| ["create", "update", "*"].contains(&verb.to_lowercase().as_str()));
        let resources = webhook
            .resources
            .clone()
            .unwrap_or_else(|| vec![webhook.kind.plural.clone()]);
        let groups = webhook
            .groups
            .clone()
            .unwrap_or_else(|| vec![webhook.kind.group.clone()]);
        let needed = NEEDED.iter().any(|(group, needed)| {
            let of_group = groups
                .iter()
                .any(|given| given == group || given == "*" || (given == "core" && group.is_empty()));
            of_group && resources.iter().any(|resource| needed.contains(&resource.as_str()))
        });
        let leaves_out = |field: &str| webhook.patch.as_ref().is_some_and(|patch| !is_empty(&patch[field]));
        let narrowed = ["namespaceSelector", "objectSelector", "matchConditions"]
            .into_iter()
            .any(leaves_out);
        if fails && creates && needed && !narrowed {
            let found = format!(
                "{} must answer before {} may be written in the operator's own namespace: while no pod of it runs, none can start",
                webhook.name,
                resources.join(", ")
            );
            checks.push(
                Check::bad("webhook", found).code(codes::webhooks::DEADLOCK).fix(
                    "remove .everywhere(), or select namespaces: .mutating(|webhook| webhook.namespace_selector(…))",
                ),
            );
        }
    }
    checks
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_keeps_an_operator_from_starting_is_found() {
        let check = |changes: Value, expected: usize| {
            let mut webhook = json!({
                "for": {"group": "", "version": "v1", "kind": "Pod", "plural": "pods", "namespaced": true},
                "name": "mpod-v1.kb.io", "verbs": ["create"], "failurePolicy": "Fail",
            });
            for (key, value) in changes.as_object().into_iter().flatten() {
                webhook[key] = value.clone();
            }
            let declaration: Declaration =
                serde_json::from_value(json!({"webhooks": [webhook]})).expect("a declaration");
            assert_eq!(deadlocks(&declaration).len(), expected, "{changes}");
        };
        check(json!({}), 1);
        check(json!({"failurePolicy": "Ignore"}), 0);
        check(json!({"verbs": ["delete"]}), 0);
        check(json!({"patch": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}), 0);
        check(json!({"patch": {"namespaceSelector": {}}}), 1);
        check(
            json!({"patch": {"matchConditions": [{"name": "a", "expression": "true"}]}}),
            0,
        );
        let own = json!({"group": "my.domain", "version": "v1", "kind": "Pod", "plural": "pods", "namespaced": true});
        check(json!({"for": own}), 0);
        check(json!({"resources": ["*"]}), 1);
        check(json!({"resources": ["pods/eviction"]}), 0);
    }
}
