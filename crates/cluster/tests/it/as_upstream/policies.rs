//! The check of types of ValidatingAdmissionPolicies.

use serde_json::{Value, json};

use super::{Create, Is, Merge, Step, check};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const POLICY: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p";

fn policy(groups: &[&str], resources: &[&str], validations: &Value) -> Step {
    let rule = json!({ "apiGroups": groups, "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources });
    let object = json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "p" },
        "spec": { "matchConstraints": { "resourceRules": [rule] }, "validations": validations } });
    Create(POLICIES, object)
}

/// The status of this generation, with these warnings of the first validation.
fn checked(generation: u64, warnings: &[(&str, &str)]) -> Step {
    let warnings: Vec<Value> = warnings
        .iter()
        .map(|(field, warning)| json!({ "fieldRef": format!("spec.validations[0].{field}"), "warning": warning }))
        .collect();
    let warnings = if warnings.is_empty() {
        Value::Null
    } else {
        json!(warnings)
    };
    let status = json!({ "observedGeneration": generation, "typeChecking": { "expressionWarnings": warnings } });
    Is(POLICY, json!({ "status": status }))
}

#[tokio::test]
async fn types_of_policies() {
    let rule = |expression: &str| json!([{ "expression": expression }]);
    let steps = vec![
        policy(
            &["apps", ""],
            &["deployments", "pods", "pods/status"],
            &rule("object.spec.replicas > 1"),
        ),
        checked(
            1,
            &[(
                "expression",
                "/v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas > 1\n | ...........^\n",
            )],
        ),
        Merge(
            POLICY,
            json!({ "spec": { "validations": rule("object.metadata.name != ''") } }),
        ),
        checked(2, &[]),
        Merge(
            POLICY,
            json!({ "spec": { "validations": [{ "expression": "true", "messageExpression": "string(object.metadata.nme)" }] } }),
        ),
        checked(
            3,
            &[(
                "messageExpression",
                "/v1, Kind=Pod: ERROR: <input>:1:23: undefined field 'nme'\n | string(object.metadata.nme)\n | ......................^\n\napps/v1, Kind=Deployment: ERROR: <input>:1:23: undefined field 'nme'\n | string(object.metadata.nme)\n | ......................^\n",
            )],
        ),
    ];
    check("expressions are checked against the kinds of a policy", 0, steps).await;

    let definition = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "shops.ex.io" },
        "spec": { "group": "ex.io", "scope": "Namespaced", "names": { "plural": "shops", "kind": "Shop" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "properties": { "spec": { "type": "object", "properties": { "size": { "type": "integer" } } } } } } }] } });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let validations = json!([{ "expression": "object.spec.sise > 1 && object.metadata.labels['a'] == 'b'" }]);
    let steps = vec![
        Create(definitions, definition),
        Is(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/shops.ex.io",
            json!({ "status": { "conditions": [{ "type": "NamesAccepted" }, { "type": "Established", "status": "True" }] } }),
        ),
        policy(&["ex.io"], &["shops"], &validations),
        checked(
            1,
            &[(
                "expression",
                "ex.io/v1, Kind=Shop: ERROR: <input>:1:12: undefined field 'sise'\n | object.spec.sise > 1 && object.metadata.labels['a'] == 'b'\n | ...........^\n",
            )],
        ),
        Merge(
            POLICY,
            json!({ "spec": { "matchConstraints": { "resourceRules": [
                { "apiGroups": ["*"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["shops"] }] } } }),
        ),
        checked(2, &[]),
    ];
    check("expressions are checked against custom resources", 0, steps).await;
}
