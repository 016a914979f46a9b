//! Quotas through the whole pipeline: which writes are charged, to which quota, and which objects are not quotas.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use serde_json::{Value, json};

use super::{ApiServer, Config};
use crate::UserInfo;
use crate::model::testing::{FakeEnv, Shared};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn server() -> ApiServer {
    ApiServer::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default())
}

fn call(api: &ApiServer, line: &str, body: &Value) -> (u16, Value) {
    let (method, uri) = line.split_once(' ').expect("method and path");
    let kind = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = Request::builder().method(method).uri(uri).header("content-type", kind);
    let request = request.body(Bytes::from(body.to_string())).expect("a request");
    let answer = api.handle(request, UserInfo::admin()).now_or_never();
    let answer = answer.expect("nothing waits in these tests");
    let code = answer.status().as_u16();
    match answer.into_body().whole() {
        Ok(bytes) => (code, serde_json::from_slice(&bytes).expect("JSON")),
        Err(_) => panic!("a watch"),
    }
}

/// A quota that the controller has looked at.
fn quota(api: &ApiServer, name: &str, hard: &Value, used: &Value) {
    let new = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
    assert_eq!(call(api, &format!("POST {QUOTAS}"), &new).0, 201);
    let counted = json!({"status": {"hard": hard, "used": used}});
    assert_eq!(call(api, &format!("PATCH {QUOTAS}/{name}/status"), &counted).0, 200);
}

/// A write that is charged to many quotas lets others run between them, and is charged to all.
#[test]
fn charges_to_many_quotas_are_no_single_turn() {
    let api = server();
    let names: Vec<String> = (0..60).map(|index| format!("q{index}")).collect();
    for name in &names {
        quota(&api, name, &json!({"configmaps": "2"}), &json!({"configmaps": "0"}));
    }
    let used = || {
        let one = |name: &String| call(&api, &format!("GET {QUOTAS}/{name}"), &json!({})).1;
        let charged = names
            .iter()
            .filter(|name| one(name)["status"]["used"]["configmaps"] == "1");
        charged.count()
    };
    let request = Request::post(MAPS).header("content-type", "application/json");
    let request = request
        .body(Bytes::from(r#"{"metadata":{"name":"m"}}"#))
        .expect("a request");
    let mut creating = Box::pin(api.handle(request, UserInfo::admin()));
    let mut seen = Vec::new();
    let created = loop {
        match (&mut creating).now_or_never() {
            Some(answer) => break answer,
            None => seen.push(used()),
        }
    };
    assert_eq!((created.status().as_u16(), used()), (201, 60));
    assert!(
        seen.is_sorted() && seen.windows(2).all(|pair| pair[1] - pair[0] <= 10),
        "{seen:?}"
    );
    assert!(seen.len() >= 5, "{seen:?}");
}

#[test]
fn what_is_created_is_charged_to_every_quota() {
    let api = server();
    let used = |name: &str| {
        let quota = call(&api, &format!("GET {QUOTAS}/{name}"), &json!({})).1;
        quota["status"]["used"].clone()
    };
    quota(&api, "a", &json!({"configmaps": "2"}), &json!({"configmaps": "0"}));
    quota(
        &api,
        "b",
        &json!({"count/configmaps": "1", "pods": "1"}),
        &json!({"count/configmaps": "0", "pods": "0"}),
    );
    let map = |name: &str| json!({"metadata": {"name": name}});
    assert_eq!(call(&api, &format!("POST {MAPS}?dryRun=All"), &map("m")).0, 201);
    assert_eq!(used("a"), json!({"configmaps": "0"}));
    assert_eq!(call(&api, &format!("POST {MAPS}"), &map("m")).0, 201);
    assert_eq!(used("a"), json!({"configmaps": "1"}));
    assert_eq!(used("b"), json!({"count/configmaps": "1", "pods": "0"}));
    // Neither is charged for an object that one of them refuses.
    let (code, status) = call(&api, &format!("POST {MAPS}"), &map("n"));
    let why = "exceeded quota: b, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1";
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    assert_eq!(status["message"], format!("configmaps \"n\" is forbidden: {why}"));
    assert_eq!(status["details"], json!({"name": "n", "kind": "configmaps"}));
    assert_eq!(used("a"), json!({"configmaps": "1"}));
    let owners = call(&api, &format!("GET {QUOTAS}/a"), &json!({})).1["metadata"]["managedFields"].clone();
    let owners = owners.as_array().expect("owners");
    let ours = owners
        .iter()
        .find(|owner| owner["manager"] == "kube-apiserver")
        .expect("the server is one");
    assert_eq!(
        (&ours["subresource"], &ours["fieldsV1"]),
        (&json!("status"), &json!({"f:status": {"f:used": {"f:configmaps": {}}}}))
    );
    // A quota that the controller has not counted yet limits nothing.
    let fresh = json!({"metadata": {"name": "c"}, "spec": {"hard": {"secrets": "0"}}});
    assert_eq!(call(&api, &format!("POST {QUOTAS}"), &fresh).0, 201);
    assert_eq!(call(&api, "POST /api/v1/namespaces/default/secrets", &map("s")).0, 201);
}

#[test]
fn scopes_that_no_quota_can_have() {
    let api = server();
    let check = |spec: Value, field: &str, messages: &[&str]| {
        let quota = json!({"metadata": {"name": "q"}, "spec": spec});
        let (code, status) = call(&api, &format!("POST {QUOTAS}?dryRun=All"), &quota);
        let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
        let want: Vec<Value> = messages.iter().map(|message| json!([field, message])).collect();
        let got: Vec<Value> = causes
            .iter()
            .map(|cause| json!([cause["field"], cause["message"]]))
            .collect();
        assert_eq!((code, got), (if want.is_empty() { 201 } else { 422 }, want), "{quota}");
    };
    let selector = |hard: &str, scope: &str, operator: &str, values: Value| {
        let list = json!([{"scopeName": scope, "operator": operator, "values": values}]);
        json!({"hard": {hard: "1"}, "scopeSelector": {"matchExpressions": list}})
    };
    let scopes = |hard: &str, scopes: Value| json!({"hard": {hard: "1"}, "scopes": scopes});
    let at = "spec.scopeSelector.matchExpressions";
    let only = "Invalid value: \"In\": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
    check(
        selector("pods", "BestEffort", "In", json!(["a"])),
        &format!("{at}.operator"),
        &[only],
    );
    let unknown = "Invalid value: \"Bogus\": unsupported scope";
    check(
        selector("pods", "Bogus", "Exists", json!([])),
        &format!("{at}.scopeName"),
        &[unknown],
    );
    let none = "Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
    check(
        selector("pods", "PriorityClass", "In", json!([])),
        &format!("{at}.values"),
        &[none],
    );
    let some =
        "Invalid value: [\"x\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
    check(
        selector("pods", "PriorityClass", "Exists", json!(["x"])),
        &format!("{at}.values"),
        &[some],
    );
    let operator = "Invalid value: \"Foo\": not a valid selector operator";
    check(
        selector("pods", "PriorityClass", "Foo", json!(["x"])),
        &format!("{at}.operator"),
        &[operator],
    );
    let shown = "Invalid value: {\"MatchExpressions\":[{\"ScopeName\":\"PriorityClass\",\"Operator\":\"Exists\",\"Values\":null}]}: unsupported scope applied to resource";
    check(
        selector("services", "PriorityClass", "Exists", Value::Null),
        at,
        &[shown],
    );
    let both = json!([{"scopeName": "BestEffort", "operator": "Exists"}, {"scopeName": "NotBestEffort", "operator": "Exists"}]);
    let both = json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": both}});
    check(both, at, &["Invalid value: null: conflicting scopes"]);
    let terminating = "Invalid value: [\"Terminating\"]: unsupported scope applied to resource";
    check(
        scopes("services", json!(["Terminating"])),
        "spec.scopes",
        &[terminating],
    );
    let best = "Invalid value: [\"BestEffort\"]: unsupported scope applied to resource";
    check(scopes("requests.cpu", json!(["BestEffort"])), "spec.scopes", &[best]);
    check(scopes("count/pods", json!(["BestEffort"])), "", &[]);
    check(scopes("count/deployments.apps", json!(["Terminating"])), "", &[]);
    check(scopes("requests.storage", json!(["VolumeAttributesClass"])), "", &[]);
}
