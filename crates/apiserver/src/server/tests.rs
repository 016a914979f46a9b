//! Requests and answers, as data.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{FutureExt as _, Stream as _};
use http::Request;
use kubewright_schema::budget::Limits;
use kubewright_schema::decode;
use serde_json::{Value, json};

use super::{ApiServer, Config, MAX_BODY, Parts};
use crate::model::testing::{FakeEnv, Shared};
use crate::{Body, UserInfo, WatchBody};

/// A server with a clock that stands still and counted entropy.
pub(super) struct World {
    env: Arc<FakeEnv>,
    pub(super) api: ApiServer,
}

pub(super) struct Answer {
    pub(super) code: u16,
    headers: http::HeaderMap,
    pub(super) body: Value,
    watch: Option<WatchBody>,
}

impl World {
    pub(super) fn new() -> World {
        World::with(Config::default())
    }

    fn with(config: Config) -> World {
        World::of(config, |_| {})
    }

    /// A server of which something else is different.
    pub(super) fn of(config: Config, change: impl FnOnce(&mut Parts)) -> World {
        let env = FakeEnv::new();
        let mut parts = Parts::of_tests(Arc::new(Shared(env.clone())), config);
        change(&mut parts);
        World {
            api: ApiServer::with(parts),
            env,
        }
    }

    pub(super) fn advance(&self, by: Duration) {
        self.env.advance(by);
    }

    pub(super) fn send(&self, line: &str, headers: &[(&str, &str)], body: impl Into<Bytes>, user: UserInfo) -> Answer {
        self.send_within(Limits::REQUEST, line, headers, body, user)
    }

    pub(super) fn send_within(
        &self,
        limits: Limits,
        line: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
        user: UserInfo,
    ) -> Answer {
        let (method, uri) = line.split_once(' ').expect("method and path");
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.into()).expect("a request");
        let response = self
            .api
            .handle_within(limits, request, user)
            .now_or_never()
            .expect("nothing waits in these tests");
        let (parts, body) = response.into_parts();
        let (body, watch) = match body.whole() {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                (decode::stored(&bytes).unwrap_or(Value::String(text)), None)
            }
            Err(Body::Watch(watch)) => (Value::Null, Some(watch)),
            Err(body) => panic!("nothing else is still to come: {body:?}"),
        };
        Answer {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body,
            watch,
        }
    }

    pub(super) fn call(&self, line: &str, body: &Value) -> Answer {
        let kind = if line.starts_with("PATCH") {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.send(line, &[("content-type", kind)], body, UserInfo::admin())
    }

    fn get(&self, path: &str) -> Answer {
        self.call(&format!("GET {path}"), &Value::Null)
    }

    /// The request must be answered with this code.
    #[track_caller]
    pub(super) fn must(&self, code: u16, line: &str, body: &Value) -> Value {
        let answer = self.call(line, body);
        assert_eq!(answer.code, code, "{line}: {}", answer.body);
        answer.body
    }

    /// The events of a watch that are there by now.
    pub(super) fn watched(&self, path: &str) -> Vec<Value> {
        let answer = self.get(path);
        assert_eq!(answer.code, 200, "{}", answer.body);
        let mut watch = answer.watch.expect("a watch");
        let mut seen = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(line)) = std::pin::Pin::new(&mut watch).poll_next(&mut context) {
            seen.push(serde_json::from_slice(&line).expect("a line of JSON"));
        }
        seen
    }

    #[track_caller]
    fn watch(&self, query: &str) -> Watch {
        let answer = self.get(&format!("{MAPS}?watch=true&{query}"));
        assert_eq!(answer.code, 200, "{}", answer.body);
        Watch(answer.watch.expect("a watch"))
    }
}

struct Watch(WatchBody);

impl Watch {
    /// The lines that are ready now: `TYPE name resourceVersion` each, and `end` when the stream is over.
    fn lines(&mut self) -> Vec<String> {
        let mut seen = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match std::pin::Pin::new(&mut self.0).poll_next(&mut context) {
                Poll::Pending => return seen,
                Poll::Ready(None) => {
                    seen.push("end".to_owned());
                    return seen;
                }
                Poll::Ready(Some(line)) => {
                    assert!(line.starts_with(b"{\"type\":\"") && line.ends_with(b"}\n"), "{line:?}");
                    let event: Value = serde_json::from_slice(&line).expect("a line of JSON");
                    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
                    let what = if event["type"] == "ERROR" {
                        event["object"]["code"].to_string()
                    } else {
                        text("/object/metadata/name")
                    };
                    seen.push(format!(
                        "{} {what} {}",
                        text("/type"),
                        text("/object/metadata/resourceVersion")
                    ));
                }
            }
        }
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn post_maps() -> String {
    format!("POST {MAPS}")
}

#[test]
fn a_new_cluster_has_its_namespaces_and_its_service() {
    let world = World::new();
    let names: Vec<Value> = world.get("/api/v1/namespaces").body["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| item["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let service = world.get("/api/v1/namespaces/default/services/kubernetes");
    assert_eq!(
        (service.code, &service.body["spec"]["clusterIP"]),
        (200, &json!("10.0.0.1"))
    );
}

#[test]
fn a_life() {
    let world = World::new();
    let created = world.must(201, &post_maps(), &map("a"));
    assert_eq!(created["metadata"]["creationTimestamp"], "2026-09-21T14:13:20Z");
    assert_eq!(
        created["metadata"]["resourceVersion"],
        world.api.resource_version().to_string()
    );
    let shown = world.get(&format!("{MAPS}/a"));
    assert_eq!(shown.body, created);
    assert_eq!(shown.headers["content-type"], "application/json");
    assert_eq!(shown.headers["cache-control"], "no-cache, private");
    let mut next = created.clone();
    next["data"]["a"] = json!("2");
    let updated = world.must(200, &format!("PUT {MAPS}/a"), &next);
    assert_ne!(
        updated["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    world.must(409, &format!("PUT {MAPS}/a"), &next);
    let same = world.must(200, &format!("PUT {MAPS}/a"), &updated);
    assert_eq!(same, updated, "a write of the same is no write");
    let patched = world.must(200, &format!("PATCH {MAPS}/a"), &json!({"data": {"a": null, "b": "3"}}));
    assert_eq!(patched["data"], json!({"b": "3"}));
    let status = world.must(200, &format!("DELETE {MAPS}/a"), &Value::Null);
    assert_eq!(
        status["details"],
        json!({"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]})
    );
    assert_eq!(world.get(&format!("{MAPS}/a")).code, 404);
}

/// Requests that are refused, and how: code, reason, message.
#[test]
fn a_version_that_is_no_number_does_not_keep_an_object_from_being_created() {
    let world = World::new();
    let texts = [
        "",
        "0",
        "00",
        "v1",
        "-1",
        "1x",
        "+0",
        "+1",
        " 5",
        "0x1",
        "1.0",
        "18446744073709551616",
    ];
    for (index, version) in texts.into_iter().enumerate() {
        let mut versioned = map(&format!("m{index}"));
        versioned["metadata"]["resourceVersion"] = json!(version);
        let created = world.must(201, &post_maps(), &versioned);
        let stored = &created["metadata"]["resourceVersion"];
        let own = stored.as_str().and_then(|version| version.parse::<u64>().ok());
        assert!(own.is_some_and(|own| own > 0), "{version:?}: {created}");
    }
}

#[test]
fn refusals() {
    let world = World::new();
    world.must(201, &post_maps(), &map("a"));
    #[track_caller]
    fn check(world: &World, line: &str, body: &Value, code: u16, reason: &str, message: &str) {
        let answer = world.call(line, body);
        let got = (
            answer.code,
            answer.body["reason"].as_str().unwrap_or(""),
            answer.body["message"].as_str().unwrap_or(""),
        );
        assert_eq!(got, (code, reason, message), "{line}");
        assert_eq!(answer.body["kind"], "Status");
    }
    let post = &post_maps();
    let none = &Value::Null;
    check(
        &world,
        post,
        &map("a"),
        409,
        "AlreadyExists",
        "configmaps \"a\" already exists",
    );
    check(
        &world,
        "POST /api/v1/namespaces/none/configmaps",
        &map("b"),
        404,
        "NotFound",
        "namespaces \"none\" not found",
    );
    check(
        &world,
        "GET /api/v1/namespaces/default/configmaps/b",
        none,
        404,
        "NotFound",
        "configmaps \"b\" not found",
    );
    check(
        &world,
        "GET /api/v1/frobs",
        none,
        404,
        "NotFound",
        "the server could not find the requested resource",
    );
    check(
        &world,
        "GET /api/v1/namespaces/default/configmaps/a/status",
        none,
        404,
        "NotFound",
        "the server could not find the requested resource",
    );
    check(
        &world,
        "POST /api/v1/configmaps",
        &map("b"),
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    check(
        &world,
        "DELETE /api/v1/namespaces",
        none,
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    check(
        &world,
        "DELETE /api/v1/namespaces/default",
        none,
        403,
        "Forbidden",
        "namespaces \"default\" is forbidden: this namespace may not be deleted",
    );
    let mut versioned = map("b");
    for version in ["5", "05", "18446744073709551615"] {
        versioned["metadata"]["resourceVersion"] = json!(version);
        check(
            &world,
            post,
            &versioned,
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        );
    }
    let mut elsewhere = map("b");
    elsewhere["metadata"]["namespace"] = json!("other");
    check(
        &world,
        post,
        &elsewhere,
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    );
    check(
        &world,
        &format!("PUT {MAPS}/a"),
        &map("b"),
        400,
        "BadRequest",
        "the name of the object (b) does not match the name on the URL (a)",
    );
    check(
        &world,
        post,
        &json!({"metadata": {}}),
        422,
        "Invalid",
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
    );
    check(
        &world,
        &format!("GET {MAPS}?limit=many"),
        none,
        400,
        "BadRequest",
        "strconv.ParseInt: parsing \"many\": invalid syntax",
    );
    check(
        &world,
        &format!("GET {MAPS}?watch=1&resourceVersion=abc"),
        none,
        500,
        "",
        "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
    );
    check(
        &world,
        &format!("GET {MAPS}?fieldSelector=spec.foo%3Dx"),
        none,
        400,
        "BadRequest",
        "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
    );
    check(
        &world,
        &format!("FROB {MAPS}"),
        none,
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
}

/// Paths of groups that another server would serve, were anything proxied to it.
#[test]
fn other_servers_are_unavailable() {
    let world = World::new();
    let service = json!({"metadata": {"name": "v1.other.test"}, "spec": {"group": "other.test", "version": "v1", "groupPriorityMinimum": 10,
        "versionPriority": 5, "insecureSkipTLSVerify": true, "service": {"namespace": "n", "name": "s"}}});
    world.must(201, "POST /apis/apiregistration.k8s.io/v1/apiservices", &service);
    let check = |path: &str, code: u16, said: &str| {
        let answer = world.get(path);
        assert_eq!((answer.code, answer.body), (code, json!(said)), "{path}");
    };
    check("/apis/other.test/v1", 503, "service unavailable\n");
    check("/apis/other.test/v1/foos", 503, "service unavailable\n");
    check(
        "/apis/other.test/v1/namespaces/n/foos/a?watch=1",
        503,
        "service unavailable\n",
    );
    check("/apis/other.test/v2/foos", 404, "404 page not found\n");
}

/// The errors in a request for a log, before the shell is asked for one.
#[test]
fn logs_before_they_are_read() {
    let world = World::new();
    let pod = |name: &str, node: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    world.must(201, "POST /api/v1/nodes", &json!({"metadata": {"name": "bare"}}));
    let status = json!({"status": {"addresses": [{"type": "Hostname", "address": "known"}]}});
    world.must(201, "POST /api/v1/nodes", &json!({"metadata": {"name": "known"}}));
    world.must(200, "PATCH /api/v1/nodes/known/status", &status);
    for (name, node) in [("p", ""), ("there", "known"), ("far", "bare"), ("lost", "gone")] {
        world.must(201, &format!("POST {pods}"), &pod(name, node));
    }
    let check = |name: &str, query: &str, code: u16, message: &str| {
        let answer = world.get(&format!("{pods}/{name}/log?{query}"));
        let said = answer.body["message"].as_str().unwrap_or("").to_owned();
        assert_eq!((answer.code, said.as_str()), (code, message), "{name} {query}");
    };
    check("p", "tailLines=0&limitBytes=1&sinceSeconds=1", 204, "");
    check("p", "sinceTime=&follow=x", 204, "");
    check(
        "p",
        "tailLines=-1",
        422,
        "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
    );
    check(
        "p",
        "stream=",
        422,
        "PodLogOptions \"p\" is invalid: stream: Forbidden: may not be specified",
    );
    check(
        "p",
        "stream=Stdout&limitBytes=0&sinceSeconds=0",
        422,
        "PodLogOptions \"p\" is invalid: [limitBytes: Invalid value: 0: must be greater than 0, sinceSeconds: Invalid value: 0: must be greater \
         than 0, stream: Forbidden: may not be specified]",
    );
    let time = "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"";
    check("p", "sinceTime=x&sinceSeconds=0", 400, time);
    check("far", "", 500, "no preferred addresses found; known addresses: []");
    check("lost", "", 404, "pods \"gone\" not found");
    // As a kubelet that has not reported of the container (`validateContainerLogStatus`).
    check("there", "", 400, "container \"c\" in pod \"there\" is not available");
}

/// Bodies of Go clients, and the expected answer: a message, or the value at a pointer.
#[test]
fn protobuf_bodies() {
    let world = World::new();
    #[track_caller]
    fn check(world: &World, line: &str, base64: &str, code: u16, pointer: &str, want: Value) {
        let body = STANDARD.decode(base64).expect("base64");
        let answer = world.send(
            line,
            &[("content-type", "application/vnd.kubernetes.protobuf")],
            body,
            UserInfo::admin(),
        );
        assert_eq!(
            (answer.code, answer.body.pointer(pointer)),
            (code, Some(&want)),
            "{line}: {}",
            answer.body
        );
        assert_eq!(answer.headers["content-type"], "application/json");
    }
    let config_map = "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEkQKMAoBYRIAGgAiACoAMgA4AEIAWgYKAWwSATFiBgoBbhIBeHINZXhhbXBsZS5vcmcvZhIGCgFrEgF2GggKAWISAwABAhoAIgA=";
    let post = &post_maps();
    check(&world, post, config_map, 201, "/binaryData", json!({"b": "AAEC"}));
    check(
        &world,
        post,
        config_map,
        409,
        "/message",
        json!("configmaps \"a\" already exists"),
    );
    let without_finalizer = "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEhsKEQoBYRIAGgAiACoAMgA4AEIAEgYKAWsSAXcaACIA";
    check(
        &world,
        &format!("PUT {MAPS}/a"),
        without_finalizer,
        200,
        "/data",
        json!({"k": "w"}),
    );
    let message = "ConfigMap in version \"v1\" cannot be handled as a Secret: converting (v1.ConfigMap) to (core.Secret): unknown conversion";
    check(
        &world,
        "POST /api/v1/namespaces/default/secrets",
        config_map,
        400,
        "/message",
        json!(message),
    );

    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50EpQBChEKAWQSABoAIgAqADIAOABCABJxCAMSCgoICgNhcHASAWEaWQoaCgASABoAIgAqADIAOABCAFoICgNhcHASAWESOxIdCgFjEgRpbWcyKgBCAGoAcgCAAQCIAQCQAQCiAQAaADIAQgBKAFIAWABgAGgAggEAigEAmgEAwgEAIgIKACgAOAAaDAgAEAAYACAAKAA4ABoAIgA=";
    let line = &format!("POST {deployments}?fieldManager=kubectl-create&fieldValidation=Strict");
    check(
        &world,
        line,
        deployment,
        201,
        "/spec/template/spec/containers/0/image",
        json!("img2"),
    );
    let scale = "azhzAAoXCg5hdXRvc2NhbGluZy92MRIFU2NhbGUSHQoRCgFkEgAaACIAKgAyADgAQgASAggFGgQIABIAGgAiAA==";
    check(
        &world,
        &format!("PUT {deployments}/d/scale"),
        scale,
        200,
        "/spec/replicas",
        json!(5),
    );
    let orphan = "azhzAAoTCgJ2MRINRGVsZXRlT3B0aW9ucxIIIgZPcnBoYW4aACIA";
    check(
        &world,
        &format!("DELETE {deployments}/d"),
        orphan,
        200,
        "/metadata/finalizers",
        json!(["orphan"]),
    );

    let lease =
        "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRImChEKAWwSABoAIgAqADIAOABCABIRCgJtZRAPIgkIpevcygYQ8C4aACIA";
    let want = json!({"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000006Z"});
    check(
        &world,
        "POST /apis/coordination.k8s.io/v1/namespaces/default/leases",
        lease,
        201,
        "/spec",
        want,
    );

    let why = "the object provided is unrecognized (must be of type ConfigMap):";
    let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    check(
        &world,
        post,
        "",
        400,
        "/message",
        json!(format!("{why} empty data (<empty>)")),
    );
    check(
        &world,
        post,
        "CgJ2MQ==",
        400,
        "/message",
        json!(format!("{why} {prefix} (0a027631)")),
    );
    let json_text = STANDARD.encode(r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "j"}}"#);
    let summary = r#"({"apiVersion": "v1", "kind": " ...)"#;
    check(
        &world,
        post,
        &json_text,
        400,
        "/message",
        json!(format!("{why} {prefix} {summary}")),
    );
    let widget = STANDARD.encode(b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Widget");
    let message = "Widget in version \"v1\" cannot be handled as a ConfigMap: no kind \"Widget\" is registered for version \"v1\" in scheme \"kubewright\"";
    check(&world, post, &widget, 400, "/message", json!(message));
    let broken = STANDARD.encode(b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x02\x0a\x7f");
    let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: unexpected EOF";
    check(&world, post, &broken, 400, "/message", json!(message));
    check(
        &world,
        &format!("PATCH {MAPS}/a"),
        config_map,
        415,
        "/message",
        json!("415: Unsupported Media Type"),
    );

    world.must(
        201,
        "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &definition("foos"),
    );
    let message = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";
    check(
        &world,
        "POST /apis/example.org/v1/namespaces/default/foos",
        config_map,
        415,
        "/message",
        json!(message),
    );
}

#[test]
fn bodies_and_media_types() {
    let world = World::new();
    world.must(201, &post_maps(), &json!({"metadata": {"name": "a"}}));
    let check = |content_type: &str, line: &str, body: Bytes, code: u16, part: &str| {
        let answer = world.send(line, &[("content-type", content_type)], body, UserInfo::admin());
        let message = answer.body["message"].as_str().unwrap_or("");
        assert!(
            answer.code == code && message.contains(part),
            "{content_type}: {} {}",
            answer.code,
            answer.body
        );
    };
    let post = &post_maps();
    check(
        "application/json",
        post,
        "{bad".into(),
        400,
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: ",
    );
    check("application/json", post, "".into(), 400, "(<empty>)");
    check(
        "text/plain",
        post,
        "{}".into(),
        415,
        "application/vnd.kubernetes.protobuf",
    );
    check(
        "application/vnd.kubernetes.protobuf",
        post,
        "k8s".into(),
        400,
        "expected prefix [107 56 115 0] (6b3873)",
    );
    check(
        "application/json",
        post,
        vec![b' '; MAX_BODY + 1].into(),
        413,
        "limit is 3145728",
    );
    check(
        "application/apply-patch+yaml",
        &format!("PATCH {MAPS}/a?fieldManager=x"),
        "{}".into(),
        400,
        "invalid object type: /, Kind=",
    );
    check(
        "application/json",
        &format!("PATCH {MAPS}/a"),
        "{}".into(),
        415,
        "415: Unsupported Media Type",
    );
    check(
        "application/json-patch+json",
        &format!("PATCH {MAPS}/a"),
        "{}".into(),
        400,
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
    );
    check("application/json", post, "[".repeat(100_000).into(), 400, "");
}

#[test]
fn unknown_fields() {
    let world = World::new();
    let mut body = map("a");
    body["foo"] = json!(1);
    let answer = world.call(&format!("{}?fieldValidation=Warn", post_maps()), &body);
    assert_eq!(answer.headers["warning"], "299 - \"unknown field \\\"foo\\\"\"");
    body["metadata"]["name"] = json!("b");
    let strict = world.must(400, &format!("{}?fieldValidation=Strict", post_maps()), &body);
    assert_eq!(
        strict["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"foo\""
    );
    let silent = world.call(&format!("{}?fieldValidation=Ignore", post_maps()), &body);
    assert!(silent.code == 201 && silent.headers.get("warning").is_none());
}

#[test]
fn a_dry_run_stores_nothing() {
    let world = World::new();
    let before = world.api.resource_version();
    let shown = world.must(201, &format!("{}?dryRun=All", post_maps()), &map("a"));
    assert!(shown["metadata"]["uid"].is_string() && shown["metadata"].get("resourceVersion").is_none());
    assert_eq!(world.get(&format!("{MAPS}/a")).code, 404);
    assert_eq!(world.api.resource_version(), before);
    world.must(201, &post_maps(), &map("a"));
    let before = world.api.resource_version();
    let patched = world.must(200, &format!("PATCH {MAPS}/a?dryRun=All"), &json!({"data": {"a": "9"}}));
    assert_eq!(
        (&patched["data"]["a"], &patched["metadata"]["resourceVersion"]),
        (&json!("9"), &json!(before.to_string()))
    );
    world.must(200, &format!("DELETE {MAPS}/a?dryRun=All"), &Value::Null);
    assert_eq!(world.get(&format!("{MAPS}/a")).body["data"]["a"], "1");
    assert_eq!(world.api.resource_version(), before);
}

/// store-S4: finalizers hold an object; the update that removes the last one removes the object.
#[test]
fn finalizers_hold() {
    let world = World::new();
    let mut held = map("a");
    held["metadata"]["finalizers"] = json!(["example.org/x"]);
    world.must(201, &post_maps(), &held);
    let marked = world.must(200, &format!("DELETE {MAPS}/a"), &Value::Null);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-09-21T14:13:20Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(
        world.must(200, &format!("DELETE {MAPS}/a"), &Value::Null),
        marked,
        "a second delete changes nothing"
    );
    let refused = world.must(
        422,
        &format!("PATCH {MAPS}/a"),
        &json!({"metadata": {"finalizers": ["example.org/x", "example.org/y"]}}),
    );
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|text| text.contains("found new finalizers []string{\"example.org/y\"}")),
        "{refused}"
    );
    let again = world.must(409, &post_maps(), &map("a"));
    assert_eq!(
        again["message"],
        "object is being deleted: configmaps \"a\" already exists"
    );
    let mut watch = world.watch("resourceVersion=1");
    watch.lines();
    let gone = world.must(
        200,
        &format!("PATCH {MAPS}/a"),
        &json!({"metadata": {"finalizers": null}}),
    );
    assert_eq!(
        gone["metadata"]["resourceVersion"],
        marked["metadata"]["resourceVersion"]
    );
    assert_eq!(world.get(&format!("{MAPS}/a")).code, 404);
    assert_eq!(watch.lines(), [format!("DELETED a {}", world.api.resource_version())]);
}

#[test]
fn propagation_becomes_finalizers() {
    let world = World::new();
    for (name, body, want) in [
        (
            "f",
            json!({"propagationPolicy": "Foreground"}),
            json!(["foregroundDeletion"]),
        ),
        ("o", json!({"propagationPolicy": "Orphan"}), json!(["orphan"])),
        ("d", json!({"orphanDependents": true}), json!(["orphan"])),
    ] {
        world.must(201, &post_maps(), &map(name));
        let marked = world.must(200, &format!("DELETE {MAPS}/{name}"), &body);
        assert_eq!(marked["metadata"]["finalizers"], want, "{body}");
    }
    let released = world.must(
        200,
        &format!("DELETE {MAPS}/f"),
        &json!({"propagationPolicy": "Background"}),
    );
    assert_eq!(
        released["kind"], "Status",
        "background deletion takes the foreground finalizer back"
    );
}

#[test]
fn preconditions() {
    let world = World::new();
    let created = world.must(201, &post_maps(), &map("a"));
    let refused = world.must(
        409,
        &format!("DELETE {MAPS}/a"),
        &json!({"preconditions": {"uid": "x"}}),
    );
    let text = refused["message"].as_str().expect("a message");
    assert!(
        text.starts_with(
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (x) does not match"
        ),
        "{text}"
    );
    world.must(
        409,
        &format!("DELETE {MAPS}/a"),
        &json!({"preconditions": {"resourceVersion": "1"}}),
    );
    world.must(
        200,
        &format!("DELETE {MAPS}/a"),
        &json!({"preconditions": {"uid": created["metadata"]["uid"]}}),
    );
}

#[test]
fn pods_get_time_to_stop() {
    let world = World::new();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for name in ["free", "bound"] {
        world.must(201, &format!("POST {pods}"), &pod(name));
    }
    let gone = world.must(200, &format!("DELETE {pods}/free"), &Value::Null);
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(world.get(&format!("{pods}/free")).code, 404);
    let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(
        world.must(201, &format!("POST {pods}/bound/binding"), &binding)["status"],
        "Success"
    );
    let twice = world.must(409, &format!("POST {pods}/bound/binding"), &binding);
    assert_eq!(
        twice["message"],
        "Operation cannot be fulfilled on pods/binding \"bound\": pod bound is already assigned to node \"n1\""
    );
    let marked = world.must(200, &format!("DELETE {pods}/bound"), &Value::Null);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-09-21T14:13:50Z");
    let longer = world.must(200, &format!("DELETE {pods}/bound?gracePeriodSeconds=60"), &Value::Null);
    assert_eq!(longer, marked);
    let shorter = world.must(200, &format!("DELETE {pods}/bound?gracePeriodSeconds=5"), &Value::Null);
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2026-09-21T14:13:25Z");
    world.must(200, &format!("DELETE {pods}/bound?gracePeriodSeconds=0"), &Value::Null);
    assert_eq!(world.get(&format!("{pods}/bound")).code, 404);
}

#[test]
fn any_grace_period_can_be_shortened() {
    let pods = "/api/v1/namespaces/default/pods";
    // A century from the fake clock's time.
    const LATEST: &str = "2126-08-28T14:13:20Z";
    let check = |first: i64, second: i64, ends: [&str; 2]| {
        let world = World::new();
        let pod =
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        world.must(201, &format!("POST {pods}"), &pod);
        for (grace, end) in [(first, ends[0]), (second, ends[1])] {
            let marked = world.must(200, &format!("DELETE {pods}/p"), &json!({"gracePeriodSeconds": grace}));
            assert_eq!(
                marked["metadata"]["deletionTimestamp"], end,
                "after {grace} of {first}, {second}"
            );
        }
        world.must(200, &format!("DELETE {pods}/p"), &json!({"gracePeriodSeconds": 0}));
        assert_eq!(world.get(&format!("{pods}/p")).code, 404);
    };
    check(60, 5, ["2026-09-21T14:14:20Z", "2026-09-21T14:13:25Z"]);
    check(1_000_000_000_000, 5, [LATEST, "2026-09-21T14:13:25Z"]);
    check(1_000_000_000_000, 999_999_999_999, [LATEST, LATEST]);
    check(i64::MAX, 1, [LATEST, "2026-09-21T14:13:21Z"]);
    check(i64::MAX, i64::MIN, [LATEST, "2026-09-21T14:13:21Z"]);
}

#[test]
fn what_is_deep_can_be_stored_read_and_deleted_or_is_refused() {
    // As texts: code that makes trees of values would be the first to recurse.
    let nest = |levels: usize, open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
    };
    let managed = |depth: usize| {
        let fields = nest(depth - 5, r#"{"f:a":"#, "{}", "}");
        format!(
            r#"{{"metadata": {{"name": "deep", "managedFields": [{{"manager": "m", "operation": "Update",
            "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {fields}}}]}}, "rules": null}}"#
        )
    };
    // A level of a schema is two of its document.
    let definition = |depth: usize| {
        let schema = nest(
            (depth - 6) / 2,
            r#"{"type":"object","properties":{"a":"#,
            r#"{"type":"object"}"#,
            "}}",
        );
        format!(
            r#"{{"metadata": {{"name": "deep.ex.io"}}, "spec": {{
            "group": "ex.io", "scope": "Namespaced", "names": {{"plural": "deep", "kind": "Deep"}},
            "versions": [{{"name": "v1", "served": true, "storage": true, "schema": {{"openAPIV3Schema": {schema}}}}}]}}}}"#
        )
    };
    let check = |collection: &str, name: &str, object: String, code: u16| {
        let world = World::new();
        let depth = decode::nesting(object.as_bytes());
        let json = [("content-type", "application/json")];
        let answer = world.send(&format!("POST {collection}"), &json, object, UserInfo::admin());
        assert_eq!(answer.code, code, "{depth} deep: {}", answer.body["message"]);
        let stored = code == 201;
        let path = format!("{collection}/{name}");
        assert_eq!(world.get(collection).code, 200, "{depth} deep");
        assert_eq!(world.get(&path).code, if stored { 200 } else { 404 }, "{depth} deep");
        let patched = world.call(&format!("PATCH {path}"), &json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(
            patched.code,
            if stored { 200 } else { 404 },
            "{depth} deep: {}",
            patched.body["message"]
        );
        if stored {
            world.must(200, &format!("DELETE {path}"), &Value::Null);
            assert_eq!(world.get(&path).code, 404);
        }
    };
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for (depth, code) in [
        (127, 201),
        (129, 201),
        (200, 201),
        (499, 201),
        (500, 201),
        (501, 400),
        (5000, 400),
    ] {
        check(roles, "deep", managed(depth), code);
    }
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (depth, code) in [(100, 201), (130, 201), (300, 201), (600, 400)] {
        check(definitions, "deep.ex.io", definition(depth), code);
    }
}

#[test]
fn a_namespace_ends_when_it_is_finalized() {
    let world = World::new();
    world.must(201, "POST /api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    let marked = world.must(200, "DELETE /api/v1/namespaces/n", &Value::Null);
    assert_eq!(marked["status"]["phase"], "Terminating");
    assert!(marked["metadata"].get("deletionGracePeriodSeconds").is_none());
    let refused = world.must(403, "POST /api/v1/namespaces/n/configmaps", &map("late"));
    assert_eq!(refused["details"]["causes"][0]["reason"], "NamespaceTerminating");
    world.must(
        200,
        "PUT /api/v1/namespaces/n/finalize",
        &json!({"metadata": {"name": "n"}, "spec": {}}),
    );
    assert_eq!(world.get("/api/v1/namespaces/n").code, 404);
}

/// store-R5: pages are parts of one list.
#[test]
fn pages() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.must(201, &post_maps(), &map(name));
    }
    let first = world.get(&format!("{MAPS}?limit=2")).body;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    assert!(
        first["items"][0].get("kind").is_none(),
        "items of a built-in list have no kind"
    );
    world.must(201, &post_maps(), &map("bb"));
    let token = first["metadata"]["continue"].as_str().expect("a token");
    let second = world.get(&format!("{MAPS}?limit=2&continue={token}")).body;
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    assert_eq!(second["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(second["items"][0]["metadata"]["name"], "c");
    assert_eq!(world.get(&format!("{MAPS}?continue=zzz")).code, 400);
}

/// A token of any list goes with any selector: what is chosen behind it is shown. The rest of a list is never one
/// object (`SelectionPredicate.MatchesSingle` of apiserver).
#[test]
fn the_rest_of_a_list_with_a_selector() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.must(201, &post_maps(), &map(name));
    }
    let all = MAPS.replace("/namespaces/default", "");
    let check = |path: &str, of: &str, limit: usize, selector: &str, shown: &[&str]| {
        let first = world.get(&format!("{of}?limit={limit}")).body;
        let token = first["metadata"]["continue"].as_str().expect("a token");
        let answer = world.get(&format!("{path}?limit=2&continue={token}&fieldSelector={selector}"));
        assert_eq!(answer.code, 200, "{selector} after {limit}: {}", answer.body);
        let items = answer.body["items"].as_array().expect("items");
        let names: Vec<&str> = items
            .iter()
            .filter_map(|item| item["metadata"]["name"].as_str())
            .collect();
        assert_eq!(names, shown, "{selector} after {limit}");
    };
    check(MAPS, MAPS, 2, "metadata.name%3Da", &[]);
    check(MAPS, MAPS, 2, "metadata.name%3Db", &[]);
    check(MAPS, MAPS, 2, "metadata.name%3Dc", &["c"]);
    check(MAPS, MAPS, 1, "metadata.name%3Dc", &["c"]);
    check(MAPS, MAPS, 1, "metadata.name!%3Dc", &["b"]);
    check(&all, &all, 2, "metadata.name%3Da", &[]);
    check(MAPS, &all, 2, "metadata.name%3Da", &[]);
    let spaces = "/api/v1/namespaces";
    check(spaces, spaces, 2, "metadata.name%3Ddefault", &[]);
    check(spaces, spaces, 1, "metadata.name%3Dkube-system", &["kube-system"]);
}

#[test]
fn an_expired_page_says_how_to_go_on() {
    let world = World::with(Config {
        history: 2,
        ..Config::default()
    });
    for name in ["a", "b", "c", "d"] {
        world.must(201, &post_maps(), &map(name));
    }
    let first = world.get(&format!("{MAPS}?limit=1")).body;
    for value in 0..4 {
        world.must(
            200,
            &format!("PATCH {MAPS}/d"),
            &json!({"data": {"n": value.to_string()}}),
        );
    }
    let token = first["metadata"]["continue"].as_str().expect("a token");
    let expired = world.must(410, &format!("GET {MAPS}?limit=1&continue={token}"), &Value::Null);
    let token = expired["metadata"]["continue"].as_str().expect("a token to go on with");
    let next = world.must(200, &format!("GET {MAPS}?limit=1&continue={token}"), &Value::Null);
    assert_eq!(next["items"][0]["metadata"]["name"], "b");
    let mut watch = world.watch("resourceVersion=2");
    assert_eq!(watch.lines(), ["ERROR 410 -", "end"]);
}

/// store-W7 and store-W8: the first events of a watch, and how a selector changes the type of events.
#[test]
fn watches() {
    let world = World::new();
    let mut a = map("a");
    a["metadata"]["labels"] = json!({"app": "x"});
    let version = |value: &Value| {
        value["metadata"]["resourceVersion"]
            .as_str()
            .expect("a version")
            .to_owned()
    };
    let first = version(&world.must(201, &post_maps(), &a));
    let second = version(&world.must(201, &post_maps(), &map("b")));
    let mut all = world.watch("");
    let mut from = world.watch(&format!("resourceVersion={first}"));
    let mut x = world.watch("labelSelector=app%3Dx");
    let mut one = world.watch("fieldSelector=metadata.name%3Db");
    assert_eq!(all.lines(), [format!("ADDED a {first}"), format!("ADDED b {second}")]);
    assert_eq!(from.lines(), [format!("ADDED b {second}")]);
    assert_eq!(x.lines(), [format!("ADDED a {first}")]);
    assert_eq!(one.lines(), [format!("ADDED b {second}")]);
    let left = version(&world.must(
        200,
        &format!("PATCH {MAPS}/a"),
        &json!({"metadata": {"labels": {"app": "y"}}}),
    ));
    let entered = version(&world.must(
        200,
        &format!("PATCH {MAPS}/b"),
        &json!({"metadata": {"labels": {"app": "x"}}}),
    ));
    assert_eq!(x.lines(), [format!("DELETED a {left}"), format!("ADDED b {entered}")]);
    assert_eq!(
        all.lines(),
        [format!("MODIFIED a {left}"), format!("MODIFIED b {entered}")]
    );
    assert_eq!(one.lines(), [format!("MODIFIED b {entered}")]);
    world.api.shutdown();
    assert_eq!(all.lines(), ["end"]);
}

/// store-W9: the state, and a bookmark that says that it is complete.
#[test]
fn initial_events_and_bookmarks() {
    let world = World::new();
    let created = world.must(201, &post_maps(), &map("a"));
    let version = created["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut watch = world
        .watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=120");
    assert_eq!(
        watch.lines(),
        [format!("ADDED a {version}"), format!("BOOKMARK - {version}")]
    );
    world.env.advance(Duration::from_secs(61));
    assert_eq!(watch.lines(), Vec::<String>::new(), "there is nothing new to mark");
    world.must(201, "POST /api/v1/namespaces/kube-system/configmaps", &map("elsewhere"));
    world.env.advance(Duration::from_secs(58));
    assert_eq!(watch.lines(), Vec::<String>::new());
    world.env.advance(Duration::from_secs(2));
    assert_eq!(watch.lines(), ["end"], "the watch ends at its time");
    let mut silent = world.watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    assert_eq!(silent.lines(), [format!("ADDED a {version}")]);
    let mut marked = world.watch(&format!("resourceVersion={version}&allowWatchBookmarks=true"));
    assert_eq!(marked.lines(), Vec::<String>::new());
    world.env.advance(Duration::from_secs(60));
    assert_eq!(marked.lines(), [format!("BOOKMARK - {}", world.api.resource_version())]);
    // An event that a selector hides is not sent, but the bookmark moves past it.
    let mut choosy = world.watch("resourceVersion=0&allowWatchBookmarks=true&labelSelector=no%3Dbody");
    // It began with the present objects, so a bookmark marks their end.
    assert_eq!(choosy.lines(), [format!("BOOKMARK - {}", world.api.resource_version())]);
    for name in ["b", "c"] {
        world.must(201, &post_maps(), &map(name));
        assert_eq!(choosy.lines(), Vec::<String>::new());
        world.env.advance(Duration::from_secs(60));
        assert_eq!(choosy.lines(), [format!("BOOKMARK - {}", world.api.resource_version())]);
    }
}

/// store-W11: a watch that is not read is cut off, the others go on.
#[test]
fn a_slow_watcher_is_cut_off() {
    let world = World::with(Config {
        watch_buffer: 3,
        ..Config::default()
    });
    let (mut slow, mut quick) = (world.watch("resourceVersion=0"), world.watch("resourceVersion=0"));
    for number in 0..5 {
        world.must(201, &post_maps(), &map(&format!("m{number}")));
        assert_eq!(quick.lines().len(), 1);
    }
    let lines = slow.lines();
    assert_eq!(lines.last().map(String::as_str), Some("end"));
    assert!(lines.iter().any(|line| line.starts_with("ERROR 410")), "{lines:?}");
}

#[test]
fn watches_are_counted() {
    let world = World::with(Config {
        max_watches: 1,
        ..Config::default()
    });
    let watch = world.watch("");
    let refused = world.get(&format!("{MAPS}?watch=true"));
    assert_eq!(
        (refused.code, &refused.body["reason"]),
        (429, &json!("TooManyRequests"))
    );
    assert_eq!(refused.headers["retry-after"], "1");
    drop(watch);
    drop(world.watch(""));
}

/// Where pods are processes they have loopback addresses.
#[test]
fn endpoints_may_be_loopback_addresses() {
    for (loopback_endpoints, code) in [(false, 422), (true, 201)] {
        let world = World::with(Config {
            loopback_endpoints,
            ..Config::default()
        });
        let endpoints = json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "127.1.0.1"}]}]});
        let post = "POST /api/v1/namespaces/default/endpoints";
        world.must(code, post, &endpoints);
        let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": ["127.1.0.1"]}], "ports": []});
        let post = "POST /apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        world.must(code, post, &slice);
    }
}

#[test]
fn scale() {
    let world = World::new();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}, "replicas": 1
        }
    });
    world.must(201, &format!("POST {deployments}"), &deployment);
    let shown = world.must(200, &format!("GET {deployments}/d/scale"), &Value::Null);
    assert_eq!(
        (&shown["kind"], &shown["spec"], &shown["status"]),
        (
            &json!("Scale"),
            &json!({"replicas": 1}),
            &json!({"replicas": 0, "selector": "a=b"})
        )
    );
    world.must(
        200,
        &format!("PATCH {deployments}/d/scale"),
        &json!({"spec": {"replicas": 3}}),
    );
    let after = world.get(&format!("{deployments}/d")).body;
    assert_eq!(
        (&after["spec"]["replicas"], &after["metadata"]["generation"]),
        (&json!(3), &json!(2))
    );
    let status = world.must(
        200,
        &format!("PATCH {deployments}/d/status"),
        &json!({"spec": {"replicas": 9}, "status": {"replicas": 3}}),
    );
    assert_eq!(
        (
            &status["spec"]["replicas"],
            &status["status"]["replicas"],
            &status["metadata"]["generation"]
        ),
        (&json!(3), &json!(3), &json!(2))
    );
    let label = world.must(
        200,
        &format!("PATCH {deployments}/d"),
        &json!({"status": {"replicas": 7}, "metadata": {"labels": {"l": "1"}}}),
    );
    assert_eq!(
        (&label["status"]["replicas"], &label["metadata"]["generation"]),
        (&json!(3), &json!(2))
    );
}

fn definition(name: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{name}.example.org")},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"plural": name, "kind": "Foo"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
                }}}
            }]
        }
    })
}

/// Nothing but the object says how a custom object is to be read; a built-in kind is known from the path.
#[test]
fn a_custom_object_says_what_it_is() {
    let world = World::new();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let foos = "/apis/example.org/v1/namespaces/default/foos";
    world.must(201, &format!("POST {definitions}"), &definition("foos"));
    let foo = |more: Value| {
        let mut foo = json!({"apiVersion": "example.org/v1", "kind": "Foo", "metadata": {"name": "a"}});
        for (field, value) in more.as_object().expect("fields") {
            foo[field] = value.clone();
        }
        foo
    };
    world.must(201, &format!("POST {foos}"), &foo(json!({})));
    let check = |line: &str, body: Value, code: u16, says: &str| {
        let answer = world.call(line, &body);
        let message = answer.body["message"].as_str().unwrap_or("").to_owned();
        assert_eq!(
            (answer.code, message.contains(says)),
            (code, true),
            "{line} {body}: {message}"
        );
    };
    let (post, patch) = (format!("POST {foos}"), format!("PATCH {foos}/a"));
    let unrecognized = "the object provided is unrecognized (must be of type Foo): ";
    let missing = |body: &str| format!("{unrecognized}Object 'Kind' is missing in '{body}' (");
    check(&post, json!({}), 400, &missing("{}"));
    check(&post, json!({"kind": null}), 400, &missing(r#"{"kind":null}"#));
    check(&post, json!({"kind": ""}), 400, &missing(r#"{"kind":""}"#));
    check(&format!("PUT {foos}/a"), json!({}), 400, &missing("{}"));
    check(&format!("PUT {foos}/a/status"), json!({}), 400, &missing("{}"));
    let number = "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string";
    check(&post, foo(json!({"kind": 3})), 400, number);
    check(
        "POST /api/v1/namespaces/default/configmaps",
        json!({"kind": 3}),
        400,
        number,
    );
    let version = "the API version in the data () does not match the expected API version (example.org/v1)";
    check(&post, json!({"kind": "Foo"}), 400, version);
    check(
        &post,
        foo(json!({"kind": "Bar"})),
        422,
        "kind: Invalid value: \"Bar\": must be Foo",
    );
    check(
        &patch,
        json!({"kind": null}),
        422,
        "}\": Object 'Kind' is missing in '{\"apiVersion\":",
    );
    check(&patch, json!({"kind": 3}), 422, number);
    let version = "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'";
    check(&patch, json!({"apiVersion": null}), 500, version);
    let kind = "Bar.example.org \"a\" is invalid: kind: Invalid value: \"Bar\": must be Foo";
    check(&patch, json!({"kind": "Bar"}), 422, kind);
    let both = "Bar.x.io \"a\" is invalid: [kind: Invalid value: \"Bar\": must be Foo, apiVersion: Invalid value: \"x.io/v9\": must be example.org/v1]";
    check(&patch, json!({"kind": "Bar", "apiVersion": "x.io/v9"}), 422, both);
    check(&format!("{patch}/status"), json!({"kind": "Bar"}), 200, "");
    check(&patch, json!({"metadata": {"labels": {"a": "b"}}}), 200, "");
}

#[test]
fn a_definition_serves_its_kind_and_takes_it_away() {
    let world = World::new();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let foos = "/apis/example.org/v1/namespaces/default/foos";
    assert_eq!(world.get(foos).body, "404 page not found\n");
    world.must(201, &format!("POST {definitions}"), &definition("foos"));
    let list = world.must(200, &format!("GET {foos}"), &Value::Null);
    assert_eq!(
        (&list["kind"], &list["metadata"]["continue"]),
        (&json!("FooList"), &json!(""))
    );
    let foo = json!({"apiVersion": "example.org/v1", "kind": "Foo", "metadata": {"name": "a", "finalizers": ["example.org/x"]}, "spec": {"odd": 1}, "status": {"x": 1}});
    let created = world.call(&format!("POST {foos}"), &foo);
    assert_eq!(
        (created.code, &created.body["spec"], created.body.get("status")),
        (201, &json!({"size": 3}), None)
    );
    assert_eq!(created.headers["warning"], "299 - \"unknown field \\\"spec.odd\\\"\"");
    assert_eq!(created.body["metadata"]["generation"], 1);
    let mut next = created.body.clone();
    next["spec"]["size"] = json!(4);
    next["metadata"]["resourceVersion"] = json!("");
    let refused = world.must(422, &format!("PUT {foos}/a"), &next);
    assert_eq!(
        refused["message"],
        "foos.example.org \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
    let status = world.must(
        200,
        &format!("PATCH {foos}/a/status"),
        &json!({"status": {"x": 2}, "spec": {"size": 9}}),
    );
    assert_eq!(
        (
            &status["spec"]["size"],
            &status["status"]["x"],
            &status["metadata"]["generation"]
        ),
        (&json!(3), &json!(2), &json!(1))
    );
    let wrong = world.must(422, &format!("PATCH {foos}/a"), &json!({"spec": {"size": "two"}}));
    assert!(
        wrong["message"]
            .as_str()
            .is_some_and(|text| text.contains("spec.size in body must be of type integer: \"string\"")),
        "{wrong}"
    );
    let ending = world.must(200, &format!("DELETE {definitions}/foos.example.org"), &Value::Null);
    assert_eq!(
        ending["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    let held = world.get(&format!("{foos}/a")).body;
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
    world.must(
        403,
        &format!("POST {foos}"),
        &json!({"apiVersion": "example.org/v1", "kind": "Foo", "metadata": {"name": "late"}}),
    );
    world.must(
        200,
        &format!("PATCH {foos}/a"),
        &json!({"metadata": {"finalizers": null}}),
    );
    assert_eq!(world.get(&format!("{definitions}/foos.example.org")).code, 404);
    assert_eq!(world.get(foos).body, "404 page not found\n");
}

#[test]
fn versions_of_definitions_have_api_services() {
    let world = World::new();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let kept = || {
        let listed = world.get(&format!(
            "{services}?labelSelector=kube-aggregator.kubernetes.io/automanaged%3Dtrue"
        ));
        let items = listed.body["items"].as_array().cloned().unwrap_or_default();
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or("").to_owned();
        items.iter().map(name).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(kept(), none);
    let mut foos = definition("foos");
    let mut second = foos["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    foos["spec"]["versions"].as_array_mut().expect("a list").push(second);
    world.must(201, &format!("POST {definitions}"), &foos);
    assert_eq!(kept(), ["v1.example.org", "v2.example.org"]);
    let made = world.get(&format!("{services}/v1.example.org")).body;
    assert_eq!(
        (
            &made["spec"]["versionPriority"],
            &made["status"]["conditions"][0]["reason"]
        ),
        (&json!(100), &json!("Local"))
    );
    // The server undoes changes that clients make to them.
    let spec = json!({"spec": {"versionPriority": 7}});
    world.must(200, &format!("PATCH {services}/v1.example.org"), &spec);
    assert_eq!(
        world.get(&format!("{services}/v1.example.org")).body["spec"]["versionPriority"],
        100
    );
    world.must(200, &format!("DELETE {services}/v2.example.org"), &Value::Null);
    assert_eq!(kept(), ["v1.example.org", "v2.example.org"]);
    // They go with the last definition that serves the version; a second one of the group keeps its own.
    let mut second = definition("bars");
    second["spec"]["names"]["kind"] = json!("Bar");
    world.must(201, &format!("POST {definitions}"), &second);
    world.must(200, &format!("DELETE {definitions}/foos.example.org"), &Value::Null);
    assert_eq!(kept(), ["v1.example.org"]);
    world.must(200, &format!("DELETE {definitions}/bars.example.org"), &Value::Null);
    assert_eq!(kept(), none);
}

#[test]
fn events_are_one_store_in_two_groups() {
    let world = World::new();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "R", "message": "m", "type": "Normal"
    });
    let created = world.must(201, "POST /api/v1/namespaces/default/events", &event);
    let seen = world.must(
        200,
        "GET /apis/events.k8s.io/v1/namespaces/default/events/e",
        &Value::Null,
    );
    assert_eq!(
        (&seen["apiVersion"], &seen["note"], &seen["regarding"]["name"]),
        (&json!("events.k8s.io/v1"), &json!("m"), &json!("p"))
    );
    for field in ["uid", "resourceVersion"] {
        assert_eq!(seen["metadata"][field], created["metadata"][field]);
    }
}

#[test]
fn anonymous_users_read_only_public_paths() {
    let world = World::new();
    let send = |path: &str| world.send(&format!("GET {path}"), &[], "", UserInfo::anonymous());
    let refused = send("/api/v1/namespaces/default/pods");
    assert_eq!(
        refused.body["message"],
        "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!(refused.body["details"], json!({"kind": "pods"}));
    let path = send("/metrics");
    assert_eq!(
        (path.code, &path.body["message"]),
        (
            403,
            &json!("forbidden: User \"system:anonymous\" cannot get path \"/metrics\"")
        )
    );
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = send(path);
        assert_eq!((answer.code, &answer.body), (200, &json!("ok")), "{path}");
    }
    assert_eq!(send("/version").body["gitVersion"], "v1.36.3");
    let verbose = send("/readyz?verbose").body;
    assert!(
        verbose
            .as_str()
            .is_some_and(|text| text.starts_with("[+]ping ok\n") && text.ends_with("readyz check passed\n")),
        "{verbose}"
    );
}

#[test]
fn other_forms() {
    let world = World::new();
    world.must(201, &post_maps(), &map("a"));
    let send = |accept: &str| world.send(&format!("GET {MAPS}/a"), &[("accept", accept)], "", UserInfo::admin());
    let yaml = send("application/yaml");
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    assert!(
        yaml.body
            .as_str()
            .is_some_and(|text| text.starts_with("apiVersion: v1\ndata:\n  a: \"1\"\nkind: ConfigMap\n")),
        "{}",
        yaml.body
    );
    let partial = send("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").body;
    assert_eq!(
        (&partial["kind"], &partial["apiVersion"], partial.get("data")),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"), None)
    );
    let table = send("application/json;as=Table;g=meta.k8s.io;v=v1").body;
    assert_eq!(
        (&table["kind"], &table["rows"][0]["cells"][0]),
        (&json!("Table"), &json!("a"))
    );
    assert_eq!(
        send("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").code,
        406
    );
    assert_eq!(send("text/html").code, 406);
}

/// No request makes the server panic or answer without words.
#[test]
fn the_document_of_openapi_v2_by_header() {
    const DOCUMENT: &str = "GET /openapi/v2";
    const JSON: &str = "application/json";
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    const WANTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let world = World::new();
    let check = |line: &str, headers: &[(&str, &str)], code: u16, type_: &str| {
        let answer = world.send(line, headers, "", UserInfo::admin());
        let got = answer.headers.get("content-type");
        let got = got.map_or("", |value| value.to_str().expect("ASCII"));
        assert_eq!((answer.code, got), (code, type_), "{line} {headers:?}");
        answer
    };
    let answer = check(DOCUMENT, &[], 200, JSON);
    assert_eq!(answer.body["swagger"], "2.0");
    let varies: Vec<_> = answer.headers.get_all("vary").iter().collect();
    assert_eq!(varies, ["Accept", "Accept-Encoding"]);
    let etag = answer.headers["etag"].to_str().expect("ASCII");
    let accept = format!("{JSON};q=0.5,{WANTED}");
    let message = check(DOCUMENT, &[("accept", &accept)], 200, PROTOBUF);
    assert_eq!(message.headers["etag"], etag);
    check(DOCUMENT, &[("accept", PROTOBUF), ("if-none-match", etag)], 304, "");
    check("POST /openapi/v2", &[("if-none-match", etag)], 304, "");
    let packed = check(
        DOCUMENT,
        &[("accept-encoding", "gzip;q=0.5"), ("if-none-match", "\"another\"")],
        200,
        JSON,
    );
    assert_eq!(packed.headers["content-encoding"], "gzip");
    for accept in ["application/yaml", "application/vnd.kubernetes.protobuf", "text/*"] {
        assert_eq!(check(DOCUMENT, &[("accept", accept)], 406, "").body, "");
    }
    for path in ["/", "/x"] {
        check(&format!("{DOCUMENT}{path}"), &[], 404, "text/plain; charset=utf-8");
    }
}

#[test]
fn documents_of_openapi_v3_by_header() {
    const DOCUMENT: &str = "GET /openapi/v3/apis/apps/v1";
    const JSON: &str = "application/json";
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
    const WANTED: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
    let world = World::new();
    let check = |line: &str, accept: &str, code: u16, type_: &str| {
        let answer = world.send(line, &[("accept", accept)], "", UserInfo::admin());
        let got = answer.headers.get("content-type");
        let got = got.map_or("", |value| value.to_str().expect("ASCII"));
        assert_eq!((answer.code, got), (code, type_), "{line} {accept}");
        answer
    };
    let etag = check(DOCUMENT, "", 200, JSON).headers["etag"].clone();
    for (accept, type_) in [
        ("*/*", JSON),
        ("application/*", JSON),
        (PROTOBUF, PROTOBUF),
        (WANTED, PROTOBUF),
        (
            "application/json;q=0.5,application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
            PROTOBUF,
        ),
        (
            "application/com.github.proto-openapi.spec.v3.v1.0+protobuf;q=0.5,application/json",
            JSON,
        ),
    ] {
        let answer = check(DOCUMENT, accept, 200, type_);
        assert_eq!(
            (&answer.headers["etag"], &answer.headers["vary"]),
            (&etag, &"Accept".parse().expect("ASCII"))
        );
        assert_eq!(answer.body.is_object(), type_ == JSON, "{accept}");
    }
    for accept in ["application/yaml", "application/vnd.kubernetes.protobuf", "text/*"] {
        check(DOCUMENT, accept, 406, "");
    }
    // The index has one form, and is not asked for another.
    check("GET /openapi/v3", PROTOBUF, 200, "text/plain; charset=utf-8");
}

/// Definitions as older generators write them.
#[test]
fn definitions_of_older_generators_are_accepted() {
    let world = World::new();
    let pair = json!([{"type": "integer"}, {"type": "string"}]);
    let spec = json!({"type": "object", "properties": {
        "number": {"x-kubernetes-preserve-unknown-fields": true, "anyOf": pair},
        "name": {"type": "string", "anyOf": pair},
        "dns": {"type": "object", "x-kubernetes-embedded-resource": true, "required": ["spec"], "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "description": "Labels and annotations."},
            "spec": {"type": "object", "properties": {"zone": {"type": "string"}}},
        }},
    }});
    let mut foos = definition("foos");
    foos["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec;
    world.must(
        201,
        "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &foos,
    );
    let dns = json!({"apiVersion": "v1", "kind": "Dns", "metadata": {"labels": {"a": "b"}}, "spec": {"zone": "z"}});
    let spec = json!({"number": 5, "name": "n", "dns": dns});
    let foo = json!({"apiVersion": "example.org/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": spec});
    let created = world.must(201, "POST /apis/example.org/v1/namespaces/default/foos", &foo);
    assert_eq!(created["spec"], spec);
}

#[test]
fn an_applied_item_replaces_two_that_have_its_key() {
    let world = World::new();
    let deployment = |ports: Value| {
        let container = json!({"name": "c", "image": "i", "ports": ports});
        let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "twice"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template}})
    };
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let dns = json!({"containerPort": 53, "protocol": "UDP"});
    let mut two = json!([dns, dns]);
    two[0]["name"] = json!("dns");
    two[1]["hostPort"] = json!(5353);
    world.must(201, &format!("POST {path}"), &deployment(two));
    let line = format!("PATCH {path}/twice?fieldManager=fixer&force=true");
    let body = deployment(json!([dns])).to_string();
    let applied = world.send(
        &line,
        &[("content-type", "application/apply-patch+yaml")],
        body,
        UserInfo::admin(),
    );
    let ports = applied.body.pointer("/spec/template/spec/containers/0/ports");
    assert_eq!((applied.code, ports), (200, Some(&json!([dns]))), "{}", applied.body);
}

#[test]
fn metrics_are_counted() {
    let world = World::new();
    world.must(201, &post_maps(), &map("a"));
    world.must(409, &post_maps(), &map("a"));
    world.must(201, &format!("{}?dryRun=All", post_maps()), &map("b"));
    for _ in 0..3 {
        world.must(200, &format!("GET {MAPS}/a"), &Value::Null);
    }
    world.must(404, &format!("GET {MAPS}/b"), &Value::Null);
    world.must(200, &format!("GET {MAPS}"), &Value::Null);
    world.must(200, "GET /api/v1/configmaps", &Value::Null);
    let apply = [("content-type", "application/apply-patch+yaml")];
    let line = format!("PATCH {MAPS}/c?fieldManager=m");
    assert_eq!(
        world.send(&line, &apply, map("c").to_string(), UserInfo::admin()).code,
        201
    );
    world.must(200, &format!("PATCH {MAPS}/c"), &json!({"data": {"b": "2"}}));
    let watch = world.watch("");
    // These are no resources, and no client makes numbers of names of its own.
    world.must(404, &format!("GET {MAPS}/a/mine"), &Value::Null);
    world.must(404, "GET /api/v1/namespaces/default/mine", &Value::Null);
    world.must(404, "GET /apis/mine.io/v1/things", &Value::Null);
    let refused = world.send(&format!("GET {MAPS}/a"), &[], "", UserInfo::anonymous());
    assert_eq!(refused.code, 403);
    let answer = world.get("/metrics");
    assert_eq!(
        answer.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let text = answer.body.as_str().expect("a text").to_owned();
    let lines: Vec<&str> = text.lines().collect();
    let of = |code: u16, dry_run: &str, scope: &str, verb: &str, count: u32| {
        format!(
            "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"{dry_run}\",group=\"\",\
             resource=\"configmaps\",scope=\"{scope}\",subresource=\"\",verb=\"{verb}\",version=\"v1\"}} {count}"
        )
    };
    let totals: Vec<&str> = lines
        .iter()
        .filter(|line| line.starts_with("apiserver_request_total{"))
        .copied()
        .collect();
    assert_eq!(
        totals,
        [
            of(200, "", "cluster", "LIST", 1),
            of(200, "", "namespace", "LIST", 1),
            of(200, "", "namespace", "WATCH", 1),
            of(201, "", "resource", "APPLY", 1),
            of(200, "", "resource", "GET", 3),
            of(404, "", "resource", "GET", 1),
            of(200, "", "resource", "PATCH", 1),
            of(201, "", "resource", "POST", 1),
            of(409, "", "resource", "POST", 1),
            of(201, "All", "resource", "POST", 1),
        ]
    );
    let has = |line: &str| assert!(lines.contains(&line), "{line}\n{text}");
    let get = "component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"";
    for bound in ["0.005", "60", "+Inf"] {
        has(&format!(
            "apiserver_request_duration_seconds_bucket{{{get},le=\"{bound}\"}} 4"
        ));
    }
    has(&format!("apiserver_request_duration_seconds_count{{{get}}} 4"));
    has(&format!("apiserver_request_duration_seconds_sum{{{get}}} 0"));
    assert!(!text.contains("seconds_count{component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",scope=\"namespace\",subresource=\"\",verb=\"WATCH\""));
    has("apiserver_current_inflight_requests{request_kind=\"mutating\"} 0");
    has("apiserver_current_inflight_requests{request_kind=\"readOnly\"} 0");
    has("apiserver_longrunning_requests{component=\"apiserver\",verb=\"WATCH\"} 1");
    has("apiserver_storage_objects{resource=\"configmaps\"} 3");
    has("apiserver_storage_objects{resource=\"deployments.apps\"} 0");
    has("apiserver_resource_objects{group=\"\",resource=\"namespaces\"} 4");
    // Every line is a comment, or a number behind a name.
    for line in lines {
        let number = line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
        assert!(line.starts_with("# ") || number.is_some(), "{line}");
    }
    drop(watch);
}

/// The gate AllowUnsafeMalformedObjectDeletion is off: the option is not looked at, wherever it stands.
#[test]
fn an_option_behind_a_gate_is_not_looked_at() {
    const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let world = World::new();
    world.must(201, &post_maps(), &map("a"));
    for (query, mut body) in [
        ("dryRun=All".to_owned(), Value::Null),
        (format!("{OPTION}=true&dryRun=All"), Value::Null),
        (
            format!("{OPTION}=true&dryRun=All&gracePeriodSeconds=0&propagationPolicy=Background"),
            Value::Null,
        ),
        (String::new(), json!({"dryRun": ["All"], "gracePeriodSeconds": 0})),
    ] {
        if body.is_object() {
            body[OPTION] = json!(true);
        }
        world.must(200, &format!("DELETE {MAPS}/a?{query}"), &body);
        world.must(200, &format!("DELETE {MAPS}?{query}"), &body);
    }
    let wrong = world.must(400, &format!("DELETE {MAPS}/a"), &json!({ OPTION: "true" }));
    let why = "json: cannot unmarshal string into Go struct field DeleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential of type bool";
    assert_eq!(wrong["message"], why);
    world.must(200, &format!("GET {MAPS}/a"), &Value::Null);
}

#[test]
fn nothing_panics() {
    use proptest::prelude::*;
    let world = World::new();
    let methods = proptest::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]);
    let paths = proptest::sample::select(vec![
        "/",
        "/api",
        "/api/v1/",
        "/apis/apps/v1/deployments",
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/pods/p",
        "/api/v1/namespaces/default/pods/p/binding",
        "/api/v1/namespaces/default/pods/p/eviction",
        "/api/v1/namespaces/x/finalize",
        "/apis/apps/v1/namespaces/default/deployments/d/scale",
        "/api/v1/watch/namespaces/default/pods/p",
        "/openapi/v3/x",
        "/api/v1/namespaces//x",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/a.b",
        "/%ff/%",
    ]);
    let queries = proptest::string::string_regex("(limit=-?[0-9]{1,3}&)?(watch=1&)?(continue=[a-zA-Z0-9]{0,9}&)?(resourceVersion=[0-9a]{0,3}&)?(labelSelector=[ -~]{0,9}&)?(fieldSelector=[ -~]{0,9})?").expect("a pattern");
    let bodies = prop_oneof![
        Just(String::new()),
        "[ -~]{0,20}",
        proptest::sample::select(vec![
            r#"{"metadata":null}"#,
            r#"{"metadata":{"name":"a","labels":3}}"#,
            r#"{"spec":{"versions":7,"names":[]},"metadata":{"name":"a.b"}}"#,
            r#"[{"op":"add","path":"/metadata","value":5}]"#,
            r#"{"metadata":{"finalizers":{"a":1},"ownerReferences":[3]}}"#,
            r#"{"spec":null,"status":[]}"#,
            r#"{"metadata":{"name":"d","annotations":[1]},"spec":{"replicas":"x","template":5}}"#,
        ])
        .prop_map(str::to_owned),
    ];
    let types = proptest::sample::select(vec![
        "application/json",
        "application/yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/vnd.kubernetes.protobuf",
    ]);
    proptest!(|(method in methods, path in paths, query in queries, body in bodies, kind in types)| {
        let query: String = query.chars().map(|c| if c.is_ascii_alphanumeric() || "=&-".contains(c) { c.to_string() } else { format!("%{:02x}", u32::from(c)) }).collect();
        let request = Request::builder().method(method).uri(format!("{path}?{query}")).header("content-type", kind).body(Bytes::from(body));
        if let Ok(request) = request {
            // A version in the future is waited for; the clock stands still, so that such a request does not end here.
            if let Some(response) = world.api.handle(request, UserInfo::admin()).now_or_never() {
                prop_assert!((200..600).contains(&response.status().as_u16()));
            }
        }
    });
}

/// An object without a name yet is shown by its `generateName`; a taken name is shown itself.
#[test]
fn names_that_are_to_be_generated_in_messages() {
    let world = World::new();
    world.must(201, "POST /api/v1/namespaces", &json!({"metadata": {"name": "t"}}));
    assert_eq!(world.call("DELETE /api/v1/namespaces/t", &Value::Null).code, 200);
    let check = |line: &str, metadata: Value, code: u16, message: &str, name: &str, retry: Value| {
        let answer = world.call(line, &json!({"metadata": metadata}));
        assert_eq!((answer.code, &answer.body["message"]), (code, &json!(message)));
        assert_eq!(answer.body["details"]["name"], name);
        assert_eq!(answer.body["details"]["retryAfterSeconds"], retry);
    };
    let ends = "is forbidden: unable to create new content in namespace t because it is being terminated";
    let maps = "POST /api/v1/namespaces/t/configmaps";
    let message = format!("configmaps \"c-\" {ends}");
    check(maps, json!({"generateName": "c-"}), 403, &message, "c-", Value::Null);
    let message = format!("configmaps \"a\" {ends}");
    check(
        maps,
        json!({"name": "a", "generateName": "c-"}),
        403,
        &message,
        "a",
        Value::Null,
    );
    let message = format!("configmaps \"Unknown\" {ends}");
    check(maps, json!({}), 403, &message, "Unknown", Value::Null);
    world.must(201, &post_maps(), &map("a"));
    let message = "configmaps \"a\" already exists";
    check(&post_maps(), json!({"name": "a"}), 409, message, "a", Value::Null);
    let message = "configmaps \"a\" already exists, the server was not able to generate a unique name for the object";
    check(
        &post_maps(),
        json!({"name": "a", "generateName": "x-"}),
        409,
        message,
        "a",
        json!(1),
    );
}
