//! Tokens and forms of answers, through the whole pipeline.

use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use http::{HeaderMap, Request};
use kubewright_schema::protobuf;
use serde_json::{Value, json};

use super::testing;
use super::{ApiServer, Config, Parts};
use crate::authentication::tests::TestSigner;
use crate::authentication::{Identity, StaticTokens};
use crate::model::testing::{FakeEnv, Shared};
use crate::{Body, UserInfo};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const PODS: &str = "/api/v1/namespaces/default/pods";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn server(service_account_admission: bool) -> ApiServer {
    let config = Config {
        static_tokens: StaticTokens::parse("secret,jane,7,system:masters").expect("a token file"),
        service_account_admission,
        ..Config::default()
    };
    let mut parts = Parts::of_tests(Arc::new(Shared(FakeEnv::new())), config);
    parts.signer = Arc::new(TestSigner("key"));
    ApiServer::with(parts)
}

fn send(api: &ApiServer, line: &str, body: &Value, accept: &str) -> (u16, HeaderMap, Body) {
    let (method, uri) = line.split_once(' ').expect("method and path");
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("accept", accept)
        .header("accept-encoding", "gzip")
        .body(testing::text(body))
        .expect("a request");
    let answer = api.handle(request, UserInfo::admin()).now_or_never();
    let (parts, body) = answer.expect("nothing waits in these tests").into_parts();
    (parts.status.as_u16(), parts.headers, body)
}

fn full(body: Body) -> Bytes {
    body.whole().unwrap_or_else(|_| panic!("a watch"))
}

fn call(api: &ApiServer, line: &str, body: &Value) -> (u16, Value) {
    let (code, _, body) = send(api, line, body, "application/json");
    (code, serde_json::from_slice(&full(body)).expect("JSON"))
}

fn must(api: &ApiServer, code: u16, line: &str, body: &Value) -> Value {
    let (got, value) = call(api, line, body);
    assert_eq!(got, code, "{line}: {value}");
    value
}

/// The user of this token, or the code of the refusal.
fn user_of(api: &ApiServer, token: &str) -> Result<String, u16> {
    let request = Request::builder().header("authorization", format!("Bearer {token}"));
    let (head, ()) = request.body(()).expect("a request").into_parts();
    match api.authenticate(&Identity::Anonymous, &head) {
        Ok(found) => Ok(found.user.name),
        Err(response) => Err(response.status().as_u16()),
    }
}

fn pod(name: &str, account: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn a_token_is_the_account_that_it_was_asked_for() {
    let api = server(false);
    must(
        &api,
        201,
        &format!("POST {ACCOUNTS}"),
        &json!({"metadata": {"name": "robot"}}),
    );
    let answer = must(&api, 201, &format!("POST {ACCOUNTS}/robot/token"), &json!({}));
    assert_eq!(
        answer["spec"],
        json!({
            "audiences": ["https://kubernetes.default.svc.cluster.local"], "expirationSeconds": 3600, "boundObjectRef": null
        })
    );
    let owned = |audiences: Value| {
        let line = format!("POST {ACCOUNTS}/robot/token");
        let answer = must(&api, 201, &line, &json!({"spec": {"audiences": audiences}}));
        answer["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:audiences"].clone()
    };
    // Null has no owner, but an empty list has one.
    assert_eq!(owned(Value::Null), Value::Null);
    assert_eq!(owned(json!([])), json!({}));
    assert_eq!(owned(json!(["a"])), json!({}));
    let token = answer["status"]["token"].as_str().expect("a token").to_owned();
    let name = "system:serviceaccount:default:robot".to_owned();
    assert_eq!(user_of(&api, &token), Ok(name.clone()));
    assert_eq!(user_of(&api, "secret"), Ok("jane".to_owned()));
    assert_eq!(user_of(&api, "wrong"), Err(401));
    let review = |token: &str, audiences: Value| {
        let question = json!({"spec": {"token": token, "audiences": audiences}});
        must(&api, 201, "POST /apis/authentication.k8s.io/v1/tokenreviews", &question)["status"].clone()
    };
    let known = review(&token, json!([]));
    assert_eq!(
        (&known["authenticated"], &known["user"]["username"]),
        (&json!(true), &json!(name))
    );
    assert_eq!(
        review("wrong", json!([])),
        json!({"user": {}, "error": "invalid bearer token"})
    );
    assert_eq!(
        review("secret", json!(["x"])),
        json!({"user": {}, "error": "invalid bearer token"})
    );
    must(&api, 200, &format!("DELETE {ACCOUNTS}/robot"), &Value::Null);
    assert_eq!(user_of(&api, &token), Err(401));
}

#[test]
fn token_requests_are_checked() {
    let api = server(false);
    must(
        &api,
        201,
        &format!("POST {ACCOUNTS}"),
        &json!({"metadata": {"name": "robot"}}),
    );
    must(&api, 201, &format!("POST {PODS}"), &pod("own", "robot"));
    must(&api, 201, &format!("POST {PODS}"), &pod("other", "somebody"));
    let check = |request: Value, code: u16, message: &str| {
        let (got, answer) = call(&api, &format!("POST {ACCOUNTS}/robot/token"), &request);
        assert_eq!(
            (got, answer["message"].as_str().unwrap_or("")),
            (code, message),
            "{request}"
        );
    };
    let seconds = |seconds: i64| json!({"spec": {"expirationSeconds": seconds}});
    check(seconds(600), 201, "");
    check(
        seconds(599),
        422,
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than \
         10 minutes",
    );
    check(
        seconds((1 << 32) + 1),
        422,
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration \
         larger than 2^32 seconds",
    );
    check(
        json!({"metadata": {"name": "z"}}),
        422,
        "TokenRequest.authentication.k8s.io \"robot\" is invalid: metadata.name: Invalid value: \"z\": must match the service account name if \
         specified",
    );
    let bound =
        |kind: &str, name: &str| json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}}});
    check(bound("Pod", "own"), 201, "");
    check(bound("Pod", "missing"), 404, "pods \"missing\" not found");
    check(
        bound("Pod", "other"),
        400,
        "cannot bind token for serviceaccount \"robot\" to pod running with different serviceaccount name.",
    );
    check(
        bound("ConfigMap", "x"),
        400,
        "cannot bind token to object of type /v1, Kind=ConfigMap",
    );
    check(bound("Secret", ""), 400, "Name parameter required.");
    let mut wrong = bound("Pod", "own");
    wrong["spec"]["boundObjectRef"]["uid"] = json!("u");
    check(
        wrong,
        409,
        "Operation cannot be fulfilled on Pod \"own\": the UID in the bound object reference (u) does not match the UID in record. The object \
         might have been deleted and then recreated",
    );
}

#[test]
fn pods_get_their_account_and_its_token() {
    let api = server(true);
    let (code, refused) = call(&api, &format!("POST {PODS}"), &pod("p", "robot"));
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "pods \"p\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found"
    );
    must(
        &api,
        201,
        &format!("POST {ACCOUNTS}"),
        &json!({"metadata": {"name": "default"}}),
    );
    let created = must(&api, 201, &format!("POST {PODS}"), &pod("p", ""));
    let spec = &created["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!(
        spec["volumes"][0]["name"],
        spec["containers"][0]["volumeMounts"][0]["name"]
    );
    let fields = &created["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert!(
        fields.get("f:volumes").is_none(),
        "what admission adds belongs to nobody: {fields}"
    );
}

#[test]
fn answers_in_protobuf_say_the_same() {
    let api = server(false);
    must(&api, 201, &format!("POST {PODS}"), &pod("p", "robot"));
    let check = |path: &str, kind: &str| {
        let (code, headers, body) = send(&api, &format!("GET {path}"), &Value::Null, PROTOBUF);
        assert_eq!(headers["content-type"], PROTOBUF, "{path}");
        let decoded = protobuf::decode(&full(body)).expect("well-formed");
        assert_eq!(decoded.kind, kind, "{path}");
        let (json_code, json) = call(&api, &format!("GET {path}"), &Value::Null);
        assert_eq!(code, json_code);
        let name = |value: &Value| value["metadata"]["name"].clone();
        assert_eq!(name(&decoded.value), name(&json), "{path}");
        assert_eq!(decoded.value["spec"], json["spec"], "{path}");
    };
    check(&format!("{PODS}/p"), "Pod");
    check(PODS, "PodList");
    check(&format!("{PODS}/missing"), "Status");
    check("/apis", "APIGroupList");
    check(
        "/apis/autoscaling/v1/horizontalpodautoscalers",
        "HorizontalPodAutoscalerList",
    );
    let (_, headers, _) = send(&api, "GET /version", &Value::Null, "application/json");
    assert_eq!(headers["content-type"], "application/json");
}

#[test]
fn documents_that_are_made_begin_as_gos_structs_do() {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let api = server(false);
    let check = |path: &str, accept: &str, begin: &str| {
        let (_, _, body) = send(&api, &format!("GET {path}"), &Value::Null, accept);
        let text = String::from_utf8(full(body).to_vec()).expect("text");
        assert!(text.starts_with(begin) && text.ends_with("}\n"), "{path}: {text:.300}");
    };
    let json = "application/json";
    check("/api", json, r#"{"kind":"APIVersions","versions":["v1"],"server"#);
    let binding = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","#;
    check("/api/v1", json, binding);
    let list = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"#;
    check("/apis", AGGREGATED, list);
    let first = r#"{"kind":"ComponentStatusList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"controller-manager"},"conditions":[{"type":"Healthy","status":"Unknown","#;
    check("/api/v1/componentstatuses", json, first);
    for (name, status) in [
        ("scheduler", "Unknown"),
        ("controller-manager", "Unknown"),
        ("storage", "True"),
    ] {
        let one = format!(
            r#"{{"kind":"ComponentStatus","apiVersion":"v1","metadata":{{"name":"{name}"}},"conditions":[{{"type":"Healthy","status":"{status}","#
        );
        check(&format!("/api/v1/componentstatuses/{name}"), json, &one);
    }
}

#[test]
fn a_watch_in_protobuf_has_a_length_before_each_event() {
    let api = server(false);
    must(&api, 201, &format!("POST {PODS}"), &pod("p", "robot"));
    let (_, headers, body) = send(&api, &format!("GET {PODS}?watch=1"), &Value::Null, PROTOBUF);
    assert_eq!(
        headers["content-type"],
        "application/vnd.kubernetes.protobuf;stream=watch"
    );
    let Body::Watch(mut watch) = body else {
        panic!("a watch")
    };
    let frame = watch.next().now_or_never().flatten().expect("the pod is there");
    let (length, event) = frame.split_first_chunk().expect("a length");
    assert_eq!(usize::try_from(u32::from_be_bytes(*length)), Ok(event.len()));
    assert!(event.starts_with(b"\x0a\x05ADDED"));
    let at = event
        .windows(4)
        .position(|window| window == protobuf::PREFIX)
        .expect("an object");
    assert_eq!(protobuf::decode(&event[at..]).expect("well-formed").kind, "Pod");
}

#[test]
fn only_large_answers_are_compressed() {
    let api = server(false);
    let maps = "/api/v1/namespaces/default/configmaps";
    let check = |name: &str, size: usize, compressed: bool| {
        let map = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(size)}});
        let (code, headers, _) = send(&api, &format!("POST {maps}"), &map, "application/json");
        assert_eq!(code, 201);
        assert_eq!(headers.contains_key("content-encoding"), compressed, "{size}");
    };
    check("small", 1000, false);
    check("large", 200_000, true);
}
