//! The budget of a request decides whether the request is answered, and nothing else.
//!
//! How it can fail: a budget that ends in the middle of admission becomes an error of a rule, and a rule whose failures
//! are ignored lets the write through; the objects of a collection pay for each other, and some of them are deleted
//! under an answer that says that nothing was done. So each write here is sent with every budget that could end in the
//! middle of it.

use std::sync::Arc;

use futures::FutureExt as _;
use http::Request;
use kubewright_schema::budget::Limits;
use serde_json::{Value, json};

use super::webhook_tests::{World, map};
use crate::model::testing::{FakeEnv, Shared};
use crate::{ApiServer, Arrival, Config, UserInfo};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// Budgets from one that is spent at once to one that is never.
fn budgets() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(16_u64), |steps| Some(steps + steps / 16 + 1)).take_while(|steps| *steps < 20_000_000)
}

/// Whatever the budget, a write that `rules` forbid is answered with their refusal or as too costly, and is not stored.
#[track_caller]
fn check_forbidden(world: &World, rules: &str, refusal: u16) {
    let before = world.must(200, &format!("GET {MAPS}/a"), &Value::Null);
    let body = json!({"metadata": {"labels": {"forbidden": "x"}}});
    let (mut refused, mut costly) = (0, 0);
    for steps in budgets() {
        let limits = Limits {
            steps,
            ..Limits::REQUEST
        };
        let (code, answer, ..) = world.send_within(limits, &format!("PATCH {MAPS}/a"), &body);
        match code {
            413 => costly += 1,
            code => {
                assert_eq!(code, refusal, "{rules} with {steps} steps: {}", answer["message"]);
                refused += 1;
            }
        }
        let message = answer["message"].as_str().unwrap_or("");
        assert!(!message.contains("cost limit"), "{rules} with {steps} steps: {message}");
    }
    assert!(refused > 0, "{rules} never had enough");
    assert!(costly > 0, "{rules} always had enough");
    let after = world.must(200, &format!("GET {MAPS}/a"), &Value::Null);
    assert_eq!(after, before, "{rules}");
}

fn with_a_map() -> World {
    let world = World::new();
    let mut object = map("a");
    object["data"] = (0..300).map(|index| (format!("key-{index}"), json!("value"))).collect();
    world.must(201, &format!("POST {MAPS}"), &object);
    world
}

/// A policy about ConfigMaps whose failures are ignored, and its binding.
fn policy(world: &World, kind: &str, spec: &Value, binding: &Value) {
    let plural = format!("{}admissionpolicies", kind.to_lowercase());
    let mut full = json!({"failurePolicy": "Ignore", "matchConstraints": {"resourceRules":
        [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}]}});
    full.as_object_mut()
        .expect("an object")
        .append(&mut spec.as_object().cloned().expect("an object"));
    let object = |kind: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "p"}, "spec": spec});
    let policy = object(&format!("{kind}AdmissionPolicy"), full);
    world.must(201, &format!("POST {REGISTRATION}/{plural}"), &policy);
    let mut bound = json!({"policyName": "p"});
    bound
        .as_object_mut()
        .expect("an object")
        .append(&mut binding.as_object().cloned().expect("an object"));
    let binding = object(&format!("{kind}AdmissionPolicyBinding"), bound);
    let bindings = format!("{}admissionpolicybindings", kind.to_lowercase());
    world.must(201, &format!("POST {REGISTRATION}/{bindings}"), &binding);
}

const FREE: &str = "!has(object.metadata.labels) || !('forbidden' in object.metadata.labels)";

#[test]
fn a_spent_budget_skips_no_validating_policy() {
    let world = with_a_map();
    let spec = json!({"validations": [{"expression": FREE}]});
    policy(&world, "Validating", &spec, &json!({"validationActions": ["Deny"]}));
    check_forbidden(&world, "a validation", 422);
}

#[test]
fn a_spent_budget_skips_no_match_condition_and_no_variable() {
    let world = with_a_map();
    let spec = json!({
        "matchConditions": [{"name": "all", "expression": "object.data.all(key, object.data[key] == 'value')"}],
        "variables": [{"name": "free", "expression": FREE}],
        "validations": [{"expression": "variables.free", "messageExpression": "object.data.map(key, key).join(' ').substring(0, 20)"}],
    });
    policy(&world, "Validating", &spec, &json!({"validationActions": ["Deny"]}));
    check_forbidden(&world, "a condition and a variable", 422);
}

#[test]
fn a_spent_budget_skips_no_mutating_policy() {
    let world = with_a_map();
    // What the first changes, the second one refuses: without the change the write would be stored.
    let marked = "Object{metadata: Object.metadata{annotations: {'seen': string(size(object.data))}}}";
    let spec = json!({"reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": marked}}]});
    policy(&world, "Mutating", &spec, &json!({}));
    let unmarked = "!has(object.metadata.annotations) || !('seen' in object.metadata.annotations)";
    policy(
        &world,
        "Validating",
        &json!({"failurePolicy": "Fail", "validations": [{"expression": unmarked}]}),
        &json!({"validationActions": ["Deny"]}),
    );
    check_forbidden(&world, "a mutation", 422);
}

#[test]
fn a_spent_budget_skips_no_webhook() {
    for mutating in [false, true] {
        let world = with_a_map();
        let condition = json!([{"name": "all", "expression": "object.data.all(key, object.data[key] == 'value')"}]);
        world.configure(
            mutating,
            json!([{"at": "deny", "failurePolicy": "Ignore", "matchConditions": condition}]),
        );
        check_forbidden(&world, "a webhook", 400);
    }
}

/// Each object of a collection has a budget of its own.
#[test]
fn objects_of_a_collection_do_not_pay_for_each_other() {
    const COUNT: usize = 3_000;
    let world = World::new();
    for index in 0..COUNT {
        world.must(201, &format!("POST {MAPS}"), &map(&format!("m{index}")));
    }
    world.configure(false, json!([{"at": "ok"}]));
    let (code, answer, ..) = world.send(&format!("DELETE {MAPS}"), &Value::Null);
    assert_eq!(code, 200, "{}", answer["message"]);
    assert_eq!(world.asked().len(), COUNT);
    let left = world.must(200, &format!("GET {MAPS}"), &Value::Null);
    assert_eq!(left["items"].as_array().map(Vec::len), Some(0));
}

/// What is read of a selector before its user is known to be allowed anything costs steps: a long one is read where users
/// have turns, and there only.
#[test]
fn long_selectors_are_read_where_users_have_turns() {
    let api = ApiServer::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default());
    let check = |selector: &str, bytes: usize, is_short: bool| {
        let uri = format!("{MAPS}?{selector}={}", "a=,".repeat(bytes / 3));
        let (head, ()) = Request::get(uri).body(()).expect("a request").into_parts();
        let (trial, arrival) = (ApiServer::trial(), Arrival::default());
        let user = UserInfo::authenticated("jane", []);
        let tried = api.try_admit(&trial, &arrival, &head, user.clone()).now_or_never();
        assert_eq!(tried.expect("no waiting").is_ok(), is_short, "{bytes} of {selector}");
        let admitted = api.admit_arrived(&arrival, &head, user).now_or_never();
        let refusal = admitted.expect("no waiting").err().expect("she may not");
        assert_eq!(refusal.status(), 403, "{bytes} of {selector}");
    };
    for selector in ["labelSelector", "fieldSelector"] {
        check(selector, 3_000, true);
        check(selector, 32_000, false);
        // Too long to be read at all.
        check(selector, 40_000, true);
    }
}
