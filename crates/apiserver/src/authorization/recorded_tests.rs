//! The authorization answers of kube-apiserver, step by step: refusals of all kinds of requests, escalation,
//! impersonation, reviews (`testdata/authorization.json`); the reads and writes of nodes (`testdata/node.json`, and
//! `node-1.37.json` of what is newer).

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use serde_json::{Value, json};

use crate::authentication::tests::TestSigner;
use crate::authorization::Mode;
use crate::model::testing::{FakeEnv, Shared};
use crate::model::user::{NODE_PREFIX, SYSTEM_NODES, service_account_groups};
use crate::server::Parts;
use crate::{ApiServer, Config, Minor, UserInfo};

/// The user of a step.
fn user(name: &str) -> UserInfo {
    match name {
        "anonymous" => UserInfo::anonymous(),
        "admin" => UserInfo::authenticated("admin", ["system:masters"]),
        "na" | "nb" => UserInfo::authenticated(&format!("{NODE_PREFIX}{name}"), [SYSTEM_NODES]),
        "nameless" => UserInfo::authenticated(NODE_PREFIX, [SYSTEM_NODES]),
        "lonely" => UserInfo::authenticated("system:node:lonely", []),
        account => {
            let groups = service_account_groups("default");
            let name = format!("system:serviceaccount:default:{account}");
            UserInfo::authenticated(&name, groups.iter().map(String::as_str))
        }
    }
}

fn send(api: &ApiServer, step: &Value) -> (u16, Value) {
    let text = |field: &str| step[field].as_str().unwrap_or("");
    let (method, uri) = text("request").split_once(' ').expect("a method and a path");
    let kind = step["type"].as_str().unwrap_or("application/json");
    let mut request = Request::builder().method(method).uri(uri).header("content-type", kind);
    for header in step["headers"].as_array().into_iter().flatten() {
        let part = |at: usize| header[at].as_str().expect("a text");
        request = request.header(part(0), part(1));
    }
    let body = match &step["body"] {
        Value::Null => Bytes::new(),
        body => Bytes::from(body.to_string()),
    };
    let response = api
        .handle(request.body(body).expect("a request"), user(text("as")))
        .now_or_never()
        .expect("nothing waits here");
    let (parts, body) = response.into_parts();
    let body = match body.whole() {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
        Err(_) => Value::Null,
    };
    (parts.status.as_u16(), body)
}

/// The rules of a review come in the order of a hash table.
fn sorted(mut status: Value) -> Value {
    for field in ["resourceRules", "nonResourceRules"] {
        if let Some(rules) = status.get_mut(field).and_then(Value::as_array_mut) {
            rules.sort_by_key(Value::to_string);
        }
    }
    status
}

fn check(api: &ApiServer, step: &Value) -> Result<(), String> {
    let (code, body) = send(api, step);
    if step["code"] != json!(code) {
        return Err(format!("code {code}, recorded {}: {body}", step["code"]));
    }
    for field in ["message", "reason", "details", "status"] {
        let Some(recorded) = step.get(field) else { continue };
        let (ours, recorded) = (sorted(body[field].clone()), sorted(recorded.clone()));
        // Of a claim's fields that differ upstream shows Go's structs.
        let cut = "status.quantity and status.conditions: ";
        let head = |value: &Value| {
            value
                .as_str()
                .and_then(|text| text.split_once(cut))
                .map(|(head, _)| head.to_owned())
        };
        if ours != recorded && (head(&ours).is_none() || head(&ours) != head(&recorded)) {
            return Err(format!("{field}\n     ours: {ours}\n recorded: {recorded}"));
        }
    }
    Ok(())
}

/// Puts the uids of objects in for `$uid(PATH)`.
fn resolve(api: &ApiServer, step: &Value) -> Value {
    let mut text = step.to_string();
    while let Some((_, rest)) = text.split_once("$uid(") {
        let path = rest.split(')').next().expect("a path").to_owned();
        let (_, object) = send(api, &json!({"as": "admin", "request": format!("GET {path}")}));
        let uid = object["metadata"]["uid"].as_str().expect("an object").to_owned();
        text = text.replace(&format!("$uid({path})"), &uid);
    }
    serde_json::from_str(&text).expect("the step")
}

fn replay(api: &ApiServer, recording: &str) {
    let steps: Vec<Value> = serde_json::from_str(recording).expect("the recording");
    let wrong: Vec<String> = steps
        .iter()
        .filter_map(|step| {
            let outcome = check(api, &resolve(api, step));
            outcome
                .err()
                .map(|why| format!("{} {} as {}: {why}", step["name"], step["request"], step["as"]))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        steps.len(),
        wrong.join("\n")
    );
}

#[test]
fn answers_are_those_of_kube_apiserver() {
    let api = ApiServer::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default());
    replay(&api, include_str!("../../testdata/authorization.json"));
}

#[test]
fn nodes_may_what_kube_apiserver_lets_them() {
    for (minor, recording) in [
        (Minor::V36, include_str!("../../testdata/node.json")),
        (Minor::V37, include_str!("../../testdata/node-1.37.json")),
    ] {
        let config = Config {
            authorization: vec![Mode::Rbac, Mode::Node],
            enabled_plugins: ["NodeRestriction".to_owned()].into(),
            minor,
            ..Config::default()
        };
        let mut parts = Parts::of_tests(Arc::new(Shared(FakeEnv::new())), config);
        parts.signer = Arc::new(TestSigner("key"));
        replay(&ApiServer::with(parts), recording);
    }
}

/// The bootstrap policy is stored as if a client had created it: valid, and with the same field managers.
#[test]
fn the_policy_is_what_a_create_makes_of_it() {
    let api = ApiServer::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default());
    for object in super::bootstrap::objects(Default::default()) {
        let plural = super::bootstrap::plural(object["kind"].as_str().expect("a kind"));
        let collection = match object["metadata"]["namespace"].as_str() {
            None => format!("/apis/rbac.authorization.k8s.io/v1/{plural}"),
            Some(namespace) => format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{plural}"),
        };
        let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
        let mut copy = object;
        copy["metadata"]["name"] = json!("copy");
        let created = json!({"as": "admin", "request": format!("POST {collection}?dryRun=All&fieldManager=kube-apiserver"), "body": copy});
        let stored = json!({"as": "admin", "request": format!("GET {collection}/{name}")});
        let bare = |step: &Value, want: u16| {
            let (code, mut body) = send(&api, step);
            assert_eq!(code, want, "{name}: {body}");
            let metadata = body["metadata"].as_object_mut().expect("metadata");
            for field in ["name", "uid", "resourceVersion"] {
                metadata.remove(field);
            }
            body
        };
        assert_eq!(bare(&stored, 200), bare(&created, 201), "{name}");
    }
}
