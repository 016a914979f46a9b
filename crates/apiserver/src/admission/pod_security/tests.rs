//! Pods and kube-apiserver's answers about them, by level and version.

use serde_json::Value;

use super::checks::evaluate;
use super::levels::policy;
use crate::values::get;

fn check(case: &Value) {
    let labels = &case["labels"];
    let (policy, _) = policy(&serde_json::json!({"metadata": {"labels": labels}}));
    let pod = &case["pod"];
    let said = evaluate(policy.enforce, get(pod, &["metadata"]), get(pod, &["spec"])).details();
    assert_eq!(said, case["says"], "{labels} {pod}");
}

#[test]
fn pods_are_judged_as_upstream() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../../testdata/pod-security.json")).expect("JSON");
    assert!(cases.len() > 100);
    cases.iter().for_each(check);
}
