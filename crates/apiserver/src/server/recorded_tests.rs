//! The answers of kube-apiserver to server-side apply, step by step (`testdata/apply.json`): codes, messages, field
//! managers, whether the resourceVersion moved, and the values.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use serde_json::{Value, json};

use super::{ApiServer, Config};
use crate::UserInfo;
use crate::model::testing::{FakeEnv, Shared, fits};

fn send(api: &ApiServer, step: &Value) -> (u16, Value) {
    let (method, uri) = step["request"]
        .as_str()
        .and_then(|line| line.split_once(' '))
        .expect("a request");
    let mut request = Request::builder()
        .method(method)
        .uri(uri)
        .header("user-agent", "replay/1.0");
    if let Some(kind) = step["type"].as_str() {
        request = request.header("content-type", kind);
    }
    let body = match &step["body"] {
        Value::Null => Bytes::new(),
        Value::String(text) => Bytes::from(text.clone()),
        body => Bytes::from(body.to_string()),
    };
    let request = request.body(body).expect("a request");
    let response = api
        .handle(request, UserInfo::admin())
        .now_or_never()
        .expect("nothing waits here");
    let (parts, body) = response.into_parts();
    let Ok(bytes) = body.whole() else {
        panic!("no watch was asked for")
    };
    let body = serde_json::from_slice(&bytes).expect("the answers are JSON");
    (parts.status.as_u16(), body)
}

/// The entries without their times, in an order that does not depend on them.
fn entries(body: &Value) -> BTreeMap<String, Value> {
    let list = body.as_array().cloned().unwrap_or_default();
    let keyed = list.into_iter().map(|mut entry| {
        entry.as_object_mut().expect("an entry").remove("time");
        let key = format!(
            "{} {} {} {}",
            entry["operation"], entry["manager"], entry["apiVersion"], entry["subresource"]
        );
        (key, entry)
    });
    keyed.collect()
}

/// Recorded name of a version, and the version that it was here.
type Versions = BTreeMap<String, String>;

fn check(api: &ApiServer, step: &Value, versions: &mut Versions) -> Result<(), String> {
    let (code, body) = send(api, step);
    if step["code"] != code {
        return Err(format!("code {code}: {body}"));
    }
    if let Some(message) = step["message"].as_str()
        && body["message"] != message
    {
        return Err(format!(
            "message\n   ours: {}\n   recorded: {message:?}",
            body["message"]
        ));
    }
    if step.get("managedFields").is_some() {
        let (ours, recorded) = (
            entries(&body["metadata"]["managedFields"]),
            entries(&step["managedFields"]),
        );
        if ours != recorded {
            return Err(format!(
                "managedFields\n   ours: {}\n   recorded: {}",
                json!(ours),
                json!(recorded)
            ));
        }
    }
    for part in ["spec", "data"] {
        if step.get(part).is_some() && !fits(&body[part], &step[part]) {
            return Err(format!("{part}\n   ours: {}\n   recorded: {}", body[part], step[part]));
        }
    }
    if let (Some(recorded), Some(ours)) = (
        step["resourceVersion"].as_str(),
        body["metadata"]["resourceVersion"].as_str(),
    ) {
        let known = versions.get(recorded).is_none_or(|version| version == ours);
        let moved = versions
            .iter()
            .all(|(name, version)| name == recorded || version != ours);
        if !known || !moved {
            return Err(format!(
                "resourceVersion {ours}, recorded {recorded}, before {versions:?}"
            ));
        }
        versions.insert(recorded.to_owned(), ours.to_owned());
    }
    Ok(())
}

fn check_sequences(recorded: &str) {
    let sequences: Vec<Value> = serde_json::from_str(recorded).expect("the committed extract");
    let mut failed = Vec::new();
    for sequence in &sequences {
        let api = ApiServer::of_tests(std::sync::Arc::new(Shared(FakeEnv::new())), Config::default());
        let mut versions = Versions::new();
        for step in sequence["steps"].as_array().expect("steps") {
            if let Err(why) = check(&api, step, &mut versions) {
                failed.push(format!("{} {}: {why}", sequence["sequence"], step["name"]));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn applies_are_answered_as_kube_apiserver_answered_them() {
    check_sequences(include_str!("../../testdata/apply.json"));
}

#[test]
fn objects_that_do_not_fit_their_type_are_answered_as_kube_apiserver_answered_them() {
    check_sequences(include_str!("../../testdata/untyped.json"));
}

/// The type of a patch of a custom resource is checked before the resource's name, and with an error of its own
/// (`PatchResource`).
#[test]
fn patches_of_custom_resources_have_types() {
    let api = ApiServer::of_tests(std::sync::Arc::new(Shared(FakeEnv::new())), Config::default());
    let definition = json!({"request": "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions", "body": {
        "metadata": {"name": "ws.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "ws", "kind": "W"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}});
    assert_eq!(send(&api, &definition).0, 201);
    let unknown = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
                   application/merge-patch+json, application/apply-patch+yaml";
    let path = "/apis/x.io/v1/namespaces/default/ws";
    for (request, kind, code, message) in [
        (format!("PATCH {path}"), "application/json", 415, unknown),
        (format!("PATCH {path}/a"), "application/json", 415, unknown),
        (
            format!("PATCH {path}"),
            "application/merge-patch+json",
            400,
            "name must be provided",
        ),
        (
            format!("PATCH {path}"),
            "application/apply-patch+yaml",
            400,
            "name must be provided",
        ),
        (format!("PUT {path}"), "application/json", 400, "name must be provided"),
    ] {
        let (answered, body) = send(&api, &json!({"request": request, "type": kind, "body": {}}));
        assert_eq!(
            (answered, body["message"].as_str()),
            (code, Some(message)),
            "{request} {kind}"
        );
    }
}

/// `storedVersions` are filled in before the changes of a write are determined.
#[test]
fn a_client_that_empties_stored_versions_owns_nothing() {
    let api = ApiServer::of_tests(std::sync::Arc::new(Shared(FakeEnv::new())), Config::default());
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({"request": format!("POST {definitions}"), "body": {
        "metadata": {"name": "ws.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "ws", "kind": "W"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}});
    assert_eq!(send(&api, &definition).0, 201);
    let (_, before) = send(&api, &json!({"request": format!("GET {definitions}/ws.x.io")}));
    for empty in [json!([]), json!(null)] {
        let (code, after) = send(
            &api,
            &json!({
                "request": format!("PATCH {definitions}/ws.x.io/status?fieldManager=s1"),
                "type": "application/merge-patch+json",
                "body": {"status": {"storedVersions": empty}},
            }),
        );
        assert_eq!((code, &after), (200, &before), "{empty}");
    }
}

/// Each port is checked first, then values that ports may not share.
#[test]
fn ports_that_are_there_twice_are_told_after_their_names() {
    let api = ApiServer::of_tests(std::sync::Arc::new(Shared(FakeEnv::new())), Config::default());
    let port = |name: &str, port: u16| json!({"name": name, "port": port});
    let ports = json!([port("a", 80), port("a", 80), port("b", 80), port("b", 81)]);
    let step = json!({"request": "POST /api/v1/namespaces/default/services",
        "body": {"metadata": {"name": "dup"}, "spec": {"ports": ports}}});
    let (_, body) = send(&api, &step);
    let shown = r#"{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#;
    let message = format!(
        "Service \"dup\" is invalid: [spec.ports[1].name: Duplicate value: \"a\", spec.ports[3].name: Duplicate value: \"b\", \
         spec.ports[1]: Duplicate value: {shown}, spec.ports[2]: Duplicate value: {shown}]"
    );
    assert_eq!(body["message"], message);
}

/// The bytes that kube-apiserver 1.36.3 wrote: Go escapes characters that may not stand in HTML.
#[test]
fn texts_are_escaped_as_go_does() {
    let api = ApiServer::of_tests(std::sync::Arc::new(Shared(FakeEnv::new())), Config::default());
    let check = |method: &str, path: &str, body: &str, wanted: &str| {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Bytes::from(body.to_owned())).expect("a request");
        let answer = api.handle(request, UserInfo::admin()).now_or_never();
        let Ok(text) = answer.expect("nothing waits here").into_body().whole() else {
            panic!("no watch was asked for")
        };
        let text = String::from_utf8(text.to_vec()).expect("JSON is UTF-8");
        assert!(text.contains(wanted), "{method} {path}: {text}");
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    let body = r#"{"metadata":{"name":"a"},"data":{"x":"<b>&\u2028\u2029"}}"#;
    let wanted = r#""data":{"x":"\u003cb\u003e\u0026\u2028\u2029"}"#;
    check("POST", maps, body, wanted);
    check("GET", maps, "", wanted);
    check("GET", &format!("{maps}/a"), "", wanted);
    check(
        "GET",
        &format!("{maps}/a?pretty=true"),
        "",
        r#""x": "\u003cb\u003e\u0026\u2028\u2029""#,
    );
    check(
        "GET",
        &format!("{maps}/a%3C%3E%26"),
        "",
        r#""message":"configmaps \"a\u003c\u003e\u0026\" not found""#,
    );
    // Pages are indented, and fields of structs have their order.
    let version = "{\n  \"major\": \"1\",\n  \"minor\": \"36\",\n  \"emulationMajor\": \"1\",\n";
    check("GET", "/version", "", version);
    check("GET", "/version", "", "\",\n  \"platform\": \"kubewright\"\n}");
    let index = "{\n  \"paths\": [\n    \"/.well-known/openid-configuration\",\n    \"/api\",\n";
    check("GET", "/", "", index);
    check("GET", "/", "", "    \"/version\"\n  ]\n}");
}

/// A config map with these entries for its managers: how many, and their names, after another manager wrote.
#[test]
fn the_oldest_updates_are_joined() {
    let env = FakeEnv::new();
    let api = ApiServer::of_tests(std::sync::Arc::new(Shared(env.clone())), Config::default());
    let maps = "/api/v1/namespaces/default/configmaps";
    let create = json!({"request": format!("POST {maps}?fieldManager=m00"), "body": {"metadata": {"name": "a"}, "data": {"m00": ""}}});
    assert_eq!(send(&api, &create).0, 201);
    for at in 1..=10 {
        env.advance(std::time::Duration::from_secs(1));
        let patch = json!({
            "request": format!("PATCH {maps}/a?fieldManager=m{at:02}"),
            "type": "application/merge-patch+json",
            "body": {"data": {format!("m{at:02}"): ""}},
        });
        assert_eq!(send(&api, &patch).0, 200);
    }
    let (_, map) = send(&api, &json!({"request": format!("GET {maps}/a")}));
    let list = map["metadata"]["managedFields"].as_array().expect("entries");
    let names: Vec<&str> = list.iter().filter_map(|entry| entry["manager"].as_str()).collect();
    assert_eq!(names.len(), 10, "{names:?}");
    assert_eq!(names[0], "ancient-changes");
    assert_eq!(
        list[0]["fieldsV1"],
        json!({"f:data": {".": {}, "f:m00": {}, "f:m01": {}}})
    );
}
