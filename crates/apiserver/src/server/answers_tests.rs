//! Answers that random requests found to differ from those of kube-apiserver 1.37.2, whose texts these are.

use std::sync::Arc;

use futures::FutureExt as _;
use http::Request;
use serde_json::{Value, json};

use super::testing::text;
use super::{ApiServer, Config};
use crate::UserInfo;
use crate::model::Minor;
use crate::model::testing::{FakeEnv, Shared};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";

fn server(minor: Minor) -> ApiServer {
    let config = Config {
        minor,
        ..Config::default()
    };
    ApiServer::of_tests(Arc::new(Shared(FakeEnv::new())), config)
}

/// Sends a request: `merge`, `json`, `strategic-merge` and `apply` are patches of these types.
fn send(api: &ApiServer, line: &str, body: &Value) -> (u16, Value) {
    let (method, uri) = line.split_once(' ').expect("method and path");
    let (method, media) = match method {
        "merge" | "json" | "strategic-merge" => ("PATCH", format!("application/{method}-patch+json")),
        "apply" => ("PATCH", "application/apply-patch+yaml".to_owned()),
        method => (method, "application/json".to_owned()),
    };
    let request = Request::builder().method(method).uri(uri).header("content-type", media);
    let request = request.body(text(body)).expect("a request");
    let response = api.handle(request, UserInfo::admin()).now_or_never();
    let (parts, body) = response.expect("nothing waits here").into_parts();
    let Ok(bytes) = body.whole() else {
        panic!("no watch was asked for")
    };
    (parts.status.as_u16(), serde_json::from_slice(&bytes).expect("JSON"))
}

#[track_caller]
fn check(api: &ApiServer, line: &str, body: &Value, code: u16, said: &str) {
    let (got, answer) = send(api, line, body);
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(
        got == code && message.contains(said),
        "{line} {body}\n got {got} {message}\nwant {code} {said}"
    );
}

fn map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}})
}

fn deployment() -> Value {
    let labels = json!({"a": "b"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": labels}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[test]
fn lists_judge_their_options_in_upstreams_order() {
    let api = server(Minor::V37);
    let bad_token = "invalid continue token: continue key is not valid: illegal base64 data at input byte 0";
    let bad_fields = "invalid selector: 'bad'; can't understand 'bad'";
    let forbidden = "resourceVersionMatch is forbidden unless resourceVersion is provided";
    for method in ["GET", "DELETE"] {
        let check = |query: &str, code: u16, said: &str| {
            check(&api, &format!("{method} {MAPS}?{query}"), &Value::Null, code, said);
        };
        check("continue=x&resourceVersion=5", 400, bad_token);
        check("fieldSelector=bad&resourceVersionMatch=Exact", 400, bad_fields);
        check("fieldSelector=a%3db&resourceVersionMatch=Exact", 422, forbidden);
        check(
            "fieldSelector=bad&limit=x",
            400,
            "strconv.ParseInt: parsing \"x\": invalid syntax",
        );
    }
    // Those of the delete come last, and its kind is looked for in the group of all options.
    let options = json!({"gracePeriodSeconds": "x"});
    check(
        &api,
        &format!("DELETE {MAPS}?fieldSelector=bad"),
        &options,
        400,
        bad_fields,
    );
    let other = "no kind \"Pod\" is registered for version \"meta.k8s.io/v1\"";
    check(&api, &format!("DELETE {MAPS}"), &json!({"kind": "Pod"}), 400, other);
}

#[test]
fn only_what_cannot_be_read_is_deleted_as_such() {
    const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let api = server(Minor::V37);
    check(&api, &format!("POST {MAPS}"), &map(), 201, "");
    let unsafe_one = "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, Key: \
                      /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not allowed \
                      because the object is decodable from storage";
    let missing = "configmaps \"b\" not found";
    let many = "is not allowed with DELETECOLLECTION, try again after removing the option";
    let check = |place: &str, body: Value, code: u16, said: &str| {
        check(&api, &format!("DELETE {MAPS}{place}"), &body, code, said);
    };
    check("/a", json!({ OPTION: true }), 409, unsafe_one);
    check(&format!("/a?dryRun=All&{OPTION}=x"), Value::Null, 409, unsafe_one);
    check(&format!("/b?{OPTION}=true"), Value::Null, 404, missing);
    check("", json!({ OPTION: true }), 422, many);
    for (field, value) in [
        ("propagationPolicy", json!("Orphan")),
        ("orphanDependents", json!(false)),
        ("gracePeriodSeconds", json!(0)),
        ("preconditions", json!({})),
    ] {
        let why = format!("{OPTION}: Invalid value: true: cannot be set together with .{field}");
        check("/a", json!({ OPTION: true, field: value }), 422, &why);
    }
    check("/a", json!({ OPTION: false, "gracePeriodSeconds": 0 }), 200, "");
}

#[test]
fn a_patched_document_is_shown_in_the_order_of_its_structs() {
    let api = server(Minor::V37);
    check(&api, &format!("POST {DEPLOYMENTS}"), &deployment(), 201, "");
    let check = |how: &str, patch: Value, said: &str| {
        check(&api, &format!("{how} {DEPLOYMENTS}/d"), &patch, 422, said);
    };
    let labels = r#"\"labels\":{\"a\":\"b\"}"#;
    let replicas = r#"\"template\":{\"metadata\":{\"labels\":{\"a\":\"b\"}},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\""#;
    for (how, patch) in [
        ("merge", json!({"spec": {"replicas": "x"}})),
        (
            "json",
            json!([{"op": "replace", "path": "/spec/replicas", "value": "x"}]),
        ),
    ] {
        check(
            how,
            patch.clone(),
            r#"patch: Invalid value: "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"d\",\"namespace\":\"default\",\"uid\":"#,
        );
        check(how, patch.clone(), labels);
        check(how, patch, replicas);
    }
    let kind = "cannot convert int64 to v1.DeploymentStrategyType";
    check("strategic-merge", json!({"spec": {"strategy": {"type": 1}}}), kind);
}

#[test]
fn an_apply_of_what_is_not_written_has_a_time() {
    let api = server(Minor::V37);
    check(
        &api,
        &format!("POST {DEPLOYMENTS}?fieldManager=first"),
        &deployment(),
        201,
        "",
    );
    for (status, is_timed) in [
        (None, false),
        (Some(json!({})), false),
        (Some(json!({"replicas": 9})), true),
    ] {
        let mut applied = deployment();
        if let Some(status) = &status {
            applied["status"] = status.clone();
        }
        let (_, answer) = send(
            &api,
            &format!("apply {DEPLOYMENTS}/d?fieldManager=m&dryRun=All"),
            &applied,
        );
        let entries = answer["metadata"]["managedFields"].as_array().expect("entries");
        let entry = entries
            .iter()
            .find(|entry| entry["manager"] == "m")
            .expect("it applied");
        assert_eq!(entry["time"].is_string(), is_timed, "{status:?}");
    }
}

#[test]
fn what_is_applied_to_a_time_is_any_scalar() {
    let api = server(Minor::V37);
    let applied = |value: Value| {
        let mut object = map();
        object["metadata"]["creationTimestamp"] = value;
        object
    };
    let check = |value: Value, said: &str| {
        let line = format!("apply {MAPS}/a?fieldManager=m&force=true");
        check(&api, &line, &applied(value), 500, said);
    };
    check(json!(7), "failed to convert new object");
    check(
        json!({"a": 1}),
        ".metadata.creationTimestamp: expected any scalar, got &{map[a:1]}",
    );
}

#[test]
fn rules_see_an_empty_list() {
    let api = server(Minor::V37);
    let cidr = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "c"},
        "spec": {"cidrs": ["10.77.0.0/24"]}});
    check(&api, &format!("POST {CIDRS}"), &cidr, 201, "");
    let why = "spec.cidrs: Invalid value: []: field is immutable";
    check(
        &api,
        &format!("merge {CIDRS}/c"),
        &json!({"spec": {"cidrs": []}}),
        422,
        why,
    );
}

#[test]
fn the_type_of_a_body_comes_before_the_options_of_a_create_and_of_a_patch() {
    let api = server(Minor::V37);
    let of_type = |method: &str, uri: &str, media: &str| {
        let request = Request::builder().method(method).uri(uri).header("content-type", media);
        let request = request.body(text(&map())).expect("a request");
        let response = api.handle(request, UserInfo::admin()).now_or_never();
        response.expect("nothing waits here").status().as_u16()
    };
    let maps = format!("{MAPS}?fieldValidation=x");
    let one = format!("{MAPS}/a?fieldValidation=x");
    assert_eq!(of_type("POST", &maps, "text/plain"), 415);
    assert_eq!(of_type("PATCH", &one, "text/plain"), 415);
    assert_eq!(of_type("PUT", &one, "text/plain"), 422);
    // A kind that is left out is that of the path.
    check(&api, &format!("POST {DEPLOYMENTS}"), &deployment(), 201, "");
    let other =
        "Scale in version \"v1\" cannot be handled as a Scale: no kind \"Scale\" is registered for version \"v1\"";
    let scale = json!({"apiVersion": "v1", "spec": {"replicas": 1}});
    check(&api, &format!("PUT {DEPLOYMENTS}/d/scale"), &scale, 400, other);
}

#[test]
fn no_connection_is_a_dry_run() {
    let api = server(Minor::V37);
    for line in [
        "DELETE /api/v1/namespaces/default/services/a/proxy?dryRun=All",
        "POST /api/v1/namespaces/default/pods/a/exec?dryRun=",
    ] {
        check(&api, line, &Value::Null, 400, "dryRun is not supported");
    }
}
