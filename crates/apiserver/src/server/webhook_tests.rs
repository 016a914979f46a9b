//! Requests that concern webhooks: which webhooks are called, with which review, and the effect of their answers.

use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{FutureExt as _, Stream as _};
use http::Request;
use kubewright_schema::budget::Limits;
use serde_json::{Value, json};

use super::{ApiServer, Config, Parts};
use crate::audit::recorded_tests::MemorySink;
use crate::audit::{AuditLog, Policy};
use crate::env::BoxFuture;
use crate::model::testing::{FakeEnv, Shared};
use crate::outbound::{Outbound, OutboundAnswer, OutboundCall, OutboundError};
use crate::{Body, UserInfo, WatchBody};

/// Webhooks that answer by the path of their URL, and remember the requests.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<Vec<(String, Value)>>>);

impl Outbound for Script {
    fn call(&self, call: OutboundCall) -> BoxFuture<'static, Result<OutboundAnswer, OutboundError>> {
        let review: Value = serde_json::from_slice(&call.body).expect("a review");
        let url = call.to.url();
        let path = url.rsplit('/').next().unwrap_or("").to_owned();
        let answer = answer(&path, &review);
        self.0.lock().expect("no test panics here").push((path, review));
        let answer = answer.map(|body| OutboundAnswer {
            code: 200,
            content_type: "application/json".to_owned(),
            body: Bytes::from(body.to_string()),
        });
        Box::pin(std::future::ready(answer))
    }
}

/// The answer of the webhook at a path.
fn answer(path: &str, review: &Value) -> Result<Value, OutboundError> {
    let uid = review["request"]["uid"].clone();
    let patch = |operations: Value| {
        let patch = STANDARD.encode(operations.to_string());
        json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch})
    };
    let response = match path {
        "down" => {
            return Err(OutboundError::Failed(
                "dial tcp 127.0.0.1:1: connect: connection refused".to_owned(),
            ));
        }
        "late" => return Err(OutboundError::Timeout),
        "deny" => json!({"uid": uid, "allowed": false, "status": {"message": "no"}}),
        "teapot" => json!({"uid": uid, "allowed": false, "status": {"code": 418, "reason": "Because"}}),
        "warn" => json!({"uid": uid, "allowed": true, "warnings": ["careful"]}),
        "note" => json!({"uid": uid, "allowed": true, "auditAnnotations": {"seen": "yes", "a/b": "no key"}}),
        "stranger" => json!({"uid": "other", "allowed": true}),
        "label" => patch(json!([{"op": "add", "path": "/metadata/labels/added", "value": "1"}])),
        "data" => patch(json!([{"op": "add", "path": "/data/x", "value": "1"}])),
        "untyped" => patch(json!([{"op": "add", "path": "/data", "value": 5}])),
        "replicas" => patch(json!([{"op": "replace", "path": "/spec/replicas", "value": "many"}])),
        "taint" => patch(
            json!([{"op": "add", "path": "/spec/devices/0/taints", "value": [{"key": "k.io/a", "effect": "NoSchedule"}]}]),
        ),
        "missing" => patch(json!([{"op": "remove", "path": "/data/a/b"}])),
        "convert" => {
            let wanted = review["request"]["desiredAPIVersion"].clone();
            let mut objects = review["request"]["objects"].clone();
            for object in objects.as_array_mut().into_iter().flatten() {
                let (old, new) = if wanted == "ex.io/v2" {
                    ("host", "name")
                } else {
                    ("name", "host")
                };
                let spec = object["spec"].as_object_mut().expect("a spec");
                if let Some(value) = spec.remove(old) {
                    spec.insert(new.to_owned(), value);
                }
                object["apiVersion"] = wanted.clone();
            }
            json!({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}})
        }
        _ => json!({"uid": uid, "allowed": true}),
    };
    Ok(json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}))
}

pub(super) struct World {
    api: ApiServer,
    script: Script,
    /// Of the audit log, if there is one.
    events: Arc<MemorySink>,
}

impl World {
    pub(super) fn new() -> World {
        World::with(None)
    }

    /// With an audit log of everything.
    fn entered() -> World {
        let policy = Policy::parse(b"{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Request}]}");
        World::with(Some(policy.expect("a policy")))
    }

    fn with(policy: Option<Policy>) -> World {
        let (script, events) = (Script::default(), Arc::new(MemorySink::default()));
        let mut parts = Parts::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default());
        parts.outbound = Arc::new(script.clone());
        parts.audit = policy.map(|policy| AuditLog {
            policy: Arc::new(policy),
            sink: events.clone(),
            strict: false,
            format: crate::audit::Format::Json,
            max_event_size: None,
        });
        World {
            api: ApiServer::with(parts),
            script,
            events,
        }
    }

    pub(super) fn send(&self, line: &str, body: &Value) -> (u16, Value, Vec<String>, Option<WatchBody>) {
        self.send_within(Limits::REQUEST, line, body)
    }

    /// The same of a request that may cost so much.
    pub(super) fn send_within(
        &self,
        limits: Limits,
        line: &str,
        body: &Value,
    ) -> (u16, Value, Vec<String>, Option<WatchBody>) {
        let (method, uri) = line.split_once(' ').expect("method and path");
        let kind = match method {
            "APPLY" => "application/apply-patch+yaml",
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let method = if method == "APPLY" { "PATCH" } else { method };
        let bytes = if body.is_null() {
            Bytes::new()
        } else {
            Bytes::from(body.to_string())
        };
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", kind)
            .body(bytes)
            .expect("a request");
        let answering = self.api.handle_within(limits, request, UserInfo::admin());
        let (parts, body) = finished(answering).into_parts();
        let warnings = parts.headers.get_all("warning").iter();
        let warnings = warnings.map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned());
        let warnings = warnings.collect();
        match body.whole() {
            Ok(bytes) => {
                let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                (parts.status.as_u16(), body, warnings, None)
            }
            Err(Body::Watch(watch)) => (parts.status.as_u16(), Value::Null, warnings, Some(watch)),
            Err(body) => panic!("nothing else is still to come: {body:?}"),
        }
    }

    #[track_caller]
    pub(super) fn must(&self, code: u16, line: &str, body: &Value) -> Value {
        let answer = self.send(line, body);
        assert_eq!(answer.0, code, "{line}: {}", answer.1);
        answer.1
    }

    /// Paths of the webhooks that were asked since the last time.
    pub(super) fn asked(&self) -> Vec<String> {
        self.reviews().into_iter().map(|(path, _)| path).collect()
    }

    fn reviews(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.script.0.lock().expect("no test panics here"))
    }

    /// Configures webhooks, in this order.
    pub(super) fn configure(&self, mutating: bool, webhooks: Value) {
        let kind = if mutating { "Mutating" } else { "Validating" };
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations",
            kind.to_lowercase()
        );
        self.send(&format!("DELETE {path}/w"), &Value::Null);
        let mut webhooks = webhooks;
        for webhook in webhooks.as_array_mut().into_iter().flatten() {
            let at = webhook["at"].as_str().unwrap_or("ok").to_owned();
            let map = webhook.as_object_mut().expect("an object");
            map.remove("at");
            let mut full = json!({"name": format!("{at}.ex.io"), "clientConfig": {"url": format!("https://hooks/{at}")},
                "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}]});
            full.as_object_mut().expect("an object").append(map);
            *webhook = full;
        }
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}WebhookConfiguration"), "metadata": {"name": "w"}, "webhooks": webhooks});
        self.must(201, &format!("POST {path}"), &configuration);
        self.reviews();
    }
}

/// The result of a request that waits for nothing, but gives way to others.
fn finished<F: Future>(request: F) -> F::Output {
    let mut request = std::pin::pin!(request);
    let mut polls = (0..10_000).map(|_| request.as_mut().now_or_never());
    polls.find_map(|polled| polled).expect("nothing waits in these tests")
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(super) fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"l": "1"}}, "data": {"a": "1"}})
}

#[test]
fn answers_of_webhooks() {
    let check = |mutating: bool, webhook: Value, code: u16, said: &str| {
        let world = World::new();
        world.configure(mutating, json!([webhook]));
        let (found, body, warnings, _) = world.send(&format!("POST {MAPS}"), &map("a"));
        let text = match body["message"].as_str() {
            Some(message) => message.to_owned(),
            None => format!("{} {} {warnings:?}", body["metadata"]["labels"], body["data"]),
        };
        assert_eq!((found, text.as_str()), (code, said), "{webhook}");
    };
    let plain = r#"{"l":"1"} {"a":"1"} []"#;
    let calling = "Internal error occurred: failed calling webhook";
    check(false, json!({"at": "ok"}), 201, plain);
    check(
        false,
        json!({"at": "deny"}),
        400,
        "admission webhook \"deny.ex.io\" denied the request: no",
    );
    check(
        false,
        json!({"at": "teapot"}),
        418,
        "admission webhook \"teapot.ex.io\" denied the request: Because",
    );
    check(
        false,
        json!({"at": "warn"}),
        201,
        r#"{"l":"1"} {"a":"1"} ["299 - \"careful\""]"#,
    );
    let down = "failed to call webhook: Post \"https://hooks/down?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused";
    check(
        false,
        json!({"at": "down"}),
        500,
        &format!("{calling} \"down.ex.io\": {down}"),
    );
    check(false, json!({"at": "down", "failurePolicy": "Ignore"}), 201, plain);
    check(true, json!({"at": "down", "failurePolicy": "Ignore"}), 201, plain);
    let late = "failed to call webhook: Post \"https://hooks/late?timeout=3s\": context deadline exceeded";
    check(
        true,
        json!({"at": "late", "timeoutSeconds": 3}),
        500,
        &format!("{calling} \"late.ex.io\": {late}"),
    );
    check(
        true,
        json!({"at": "label"}),
        201,
        r#"{"added":"1","l":"1"} {"a":"1"} []"#,
    );
    let patch = "received invalid webhook response: validating webhook may not return response.patch";
    check(
        false,
        json!({"at": "label"}),
        500,
        &format!("{calling} \"label.ex.io\": {patch}"),
    );
    check(
        true,
        json!({"at": "untyped"}),
        500,
        "Internal error occurred: json: cannot unmarshal number into Go struct field ConfigMap.data of type map[string]string",
    );
    check(
        true,
        json!({"at": "missing"}),
        500,
        "Internal error occurred: remove operation does not apply: doc is missing path: \"/data/a/b\": missing value",
    );
}

#[test]
fn what_webhooks_do_is_said_in_the_audit_log() {
    let world = World::entered();
    let (noting, labelling) = (
        json!({"at": "note"}),
        json!({"at": "label", "reinvocationPolicy": "IfNeeded"}),
    );
    world.configure(true, json!([noting, labelling, {"at": "data"}]));
    world.configure(
        false,
        json!([{"at": "ok"}, {"at": "down", "failurePolicy": "Ignore"}, {"at": "note"}]),
    );
    world.must(201, &format!("POST {MAPS}"), &map("a"));
    let events = world.events.take();
    let mut annotations = events.last().expect("an event")["annotations"].clone();
    let own = annotations.as_object_mut().expect("annotations");
    own.retain(|key, _| !key.starts_with("authorization"));
    let mutation = |webhook: &str, mutated: bool| {
        json!(format!(
            "{{\"configuration\":\"w\",\"webhook\":\"{webhook}.ex.io\",\"mutated\":{mutated}}}"
        ))
    };
    let patch = |webhook: &str, path: &str| {
        json!(format!(
            "{{\"configuration\":\"w\",\"webhook\":\"{webhook}.ex.io\",\"patch\":[{{\"op\":\"add\",\"path\":\"{path}\",\"value\":\"1\"}}],\
             \"patchType\":\"JSONPatch\"}}"
        ))
    };
    assert_eq!(
        annotations,
        json!({
            "note.ex.io/seen": "yes",
            "mutation.webhook.admission.k8s.io/round_0_index_0": mutation("note", false),
            "mutation.webhook.admission.k8s.io/round_0_index_1": mutation("label", true),
            "mutation.webhook.admission.k8s.io/round_0_index_2": mutation("data", true),
            "mutation.webhook.admission.k8s.io/round_1_index_1": mutation("label", false),
            "patch.webhook.admission.k8s.io/round_0_index_1": patch("label", "/metadata/labels/added"),
            "patch.webhook.admission.k8s.io/round_0_index_2": patch("data", "/data/x"),
            "patch.webhook.admission.k8s.io/round_1_index_1": patch("label", "/metadata/labels/added"),
            "failed-open.validating.webhook.admission.k8s.io/round_0_index_1": "down.ex.io",
        })
    );
}

#[test]
fn an_answer_must_be_to_the_review() {
    let world = World::new();
    world.configure(false, json!([{"at": "stranger"}]));
    let body = world.must(500, &format!("POST {MAPS}"), &map("a"));
    let uid = world.reviews()[0].1["request"]["uid"].clone();
    let why = format!(
        "failed calling webhook \"stranger.ex.io\": received invalid webhook response: expected response.uid={uid}, got \"other\""
    );
    assert_eq!(body["details"]["causes"][0]["message"], json!(why));
}

#[test]
fn webhooks_that_are_called() {
    let world = World::new();
    world.must(201, &format!("POST {MAPS}"), &map("there"));
    let rule = |resources: Value, operations: Value, scope: &str| json!([{"apiGroups": ["*"], "apiVersions": ["v1"], "resources": resources, "operations": operations, "scope": scope}]);
    let (all, star) = (json!(["*/*"]), json!(["*"]));
    let check = |webhook: Value, line: &str, body: &Value, asked: bool| {
        world.configure(false, json!([webhook]));
        world.send(line, body);
        assert_eq!(!world.asked().is_empty(), asked, "{webhook} {line}");
    };
    let create = &format!("POST {MAPS}?dryRun=All");
    let update = &format!("PATCH {MAPS}/there?dryRun=All");
    let (new, unlabelled) = (&map("new"), &json!({"metadata": {"labels": null}}));
    check(
        json!({"rules": rule(all.clone(), star.clone(), "*")}),
        create,
        new,
        true,
    );
    check(
        json!({"rules": rule(json!(["*"]), star.clone(), "Namespaced")}),
        create,
        new,
        true,
    );
    check(
        json!({"rules": rule(all.clone(), star.clone(), "Cluster")}),
        create,
        new,
        false,
    );
    check(
        json!({"rules": rule(json!(["pods"]), star.clone(), "*")}),
        create,
        new,
        false,
    );
    check(
        json!({"rules": rule(all.clone(), json!(["UPDATE", "DELETE"]), "*")}),
        create,
        new,
        false,
    );
    check(
        json!({"rules": rule(all.clone(), json!(["UPDATE"]), "*")}),
        update,
        unlabelled,
        true,
    );
    check(
        json!({"objectSelector": {"matchLabels": {"l": "1"}}}),
        create,
        new,
        true,
    );
    check(
        json!({"objectSelector": {"matchLabels": {"l": "2"}}}),
        create,
        new,
        false,
    );
    check(
        json!({"objectSelector": {"matchLabels": {"l": "1"}}}),
        update,
        unlabelled,
        true,
    );
    check(
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}),
        create,
        new,
        true,
    );
    check(
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}),
        create,
        new,
        false,
    );
    let condition = |expression: &str| json!({"matchConditions": [{"name": "c", "expression": expression}]});
    check(condition("object.metadata.name == 'new'"), create, new, true);
    check(condition("object.metadata.name == 'old'"), create, new, false);
    check(
        condition("request.operation == 'UPDATE' && oldObject.metadata.labels.l == '1'"),
        update,
        unlabelled,
        true,
    );
    // No webhook can block the repair of its own configuration, and a namespace belongs to itself.
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/w";
    check(
        json!({"rules": rule(all.clone(), star.clone(), "*")}),
        &format!("PATCH {path}"),
        &json!({}),
        false,
    );
    let namespaces = json!({"rules": rule(json!(["namespaces"]), star.clone(), "Cluster"), "namespaceSelector": {"matchLabels": {"a": "b"}}});
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    check(
        namespaces.clone(),
        "PATCH /api/v1/namespaces/default?dryRun=All",
        &labels,
        true,
    );
    check(
        namespaces,
        "PATCH /api/v1/namespaces/default?dryRun=All",
        &json!({}),
        false,
    );
    let equivalent = |policy: &str| json!({"matchPolicy": policy, "rules": [{"apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["horizontalpodautoscalers"], "operations": ["*"]}]});
    let autoscaler = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "D", "name": "d"}}});
    let line = "POST /apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers?dryRun=All";
    check(equivalent("Equivalent"), line, &autoscaler, true);
    check(equivalent("Exact"), line, &autoscaler, false);
}

#[test]
fn what_a_review_holds() {
    let world = World::new();
    world.configure(false, json!([{"at": "ok", "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]}]));
    let check = |line: &str, body: &Value, expected: Value| {
        world.send(line, body);
        let (_, review) = world.reviews().pop().expect("somebody was asked");
        let of = &review["request"];
        let mut found = json!({"name": of["name"], "operation": of["operation"], "kind": of["kind"]["kind"],
            "sub": of["subResource"], "object": of["object"]["kind"], "old": of["oldObject"]["kind"], "dry": of["dryRun"]});
        found["options"] = of["options"].clone();
        let map = found["options"].as_object_mut().expect("options");
        assert_eq!(map.remove("apiVersion"), Some(json!("meta.k8s.io/v1")));
        assert_eq!(found, expected, "{line}");
    };
    check(
        &format!("POST {MAPS}?fieldManager=m&fieldValidation=Strict"),
        &map("a"),
        json!({"name": "a", "operation": "CREATE", "kind": "ConfigMap", "sub": null, "object": "ConfigMap", "old": null, "dry": false,
            "options": {"kind": "CreateOptions", "fieldManager": "m", "fieldValidation": "Strict"}}),
    );
    check(
        &format!("APPLY {MAPS}/a?fieldManager=m&force=true&dryRun=All"),
        &map("a"),
        json!({"name": "a", "operation": "UPDATE", "kind": "ConfigMap", "sub": null, "object": "ConfigMap", "old": "ConfigMap", "dry": true,
            "options": {"kind": "UpdateOptions", "fieldManager": "m", "dryRun": ["All"]}}),
    );
    check(
        &format!("DELETE {MAPS}?labelSelector=l%3D1"),
        &json!({"propagationPolicy": "Background"}),
        json!({"name": null, "operation": "DELETE", "kind": "ConfigMap", "sub": null, "object": null, "old": "ConfigMap", "dry": false,
            "options": {"kind": "DeleteOptions", "propagationPolicy": "Background"}}),
    );
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.must(201, "POST /api/v1/namespaces/default/pods", &pod);
    check(
        "POST /api/v1/namespaces/default/pods/p/binding",
        &json!({"metadata": {"name": "p"}, "target": {"name": "n"}}),
        json!({"name": "p", "operation": "CREATE", "kind": "Binding", "sub": "binding", "object": "Binding", "old": null, "dry": false,
            "options": {"kind": "CreateOptions"}}),
    );
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    world.must(201, "POST /apis/apps/v1/namespaces/default/deployments", &deployment);
    check(
        "PATCH /apis/apps/v1/namespaces/default/deployments/d/scale",
        &json!({"spec": {"replicas": 2}}),
        json!({"name": "d", "operation": "UPDATE", "kind": "Scale", "sub": "scale", "object": "Scale", "old": "Scale", "dry": false,
            "options": {"kind": "UpdateOptions"}}),
    );
}

#[test]
fn a_change_asks_earlier_webhooks_again() {
    let check = |webhooks: Value, asked: &[&str]| {
        let world = World::new();
        world.configure(true, webhooks.clone());
        world.must(201, &format!("POST {MAPS}"), &map("a"));
        assert_eq!(world.asked(), asked, "{webhooks}");
    };
    check(
        json!([{"at": "label", "reinvocationPolicy": "IfNeeded"}, {"at": "data"}]),
        &["label", "data", "label"],
    );
    check(json!([{"at": "label"}, {"at": "data"}]), &["label", "data"]);
    check(
        json!([{"at": "label", "reinvocationPolicy": "IfNeeded"}, {"at": "ok"}]),
        &["label", "ok"],
    );
    check(
        json!([{"at": "label", "reinvocationPolicy": "IfNeeded"}, {"at": "data", "reinvocationPolicy": "IfNeeded"}]),
        &["label", "data", "label"],
    );
}

#[test]
fn what_a_webhook_adds_has_the_defaults_of_now() {
    let world = World::new();
    let rules = json!([{"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "resources": ["resourceslices"], "operations": ["CREATE"]}]);
    world.configure(true, json!([{"at": "taint", "rules": rules}]));
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {
        "driver": "d.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu"}]}});
    let created = world.must(201, "POST /apis/resource.k8s.io/v1/resourceslices", &slice);
    let added = &created["spec"]["devices"][0]["taints"][0]["timeAdded"];
    assert!(added.is_string(), "{created}");
}

#[test]
fn a_patched_scale_is_still_one() {
    let world = World::new();
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    world.must(201, "POST /apis/apps/v1/namespaces/default/deployments", &deployment);
    let rules = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"], "operations": ["UPDATE"]}]);
    world.configure(true, json!([{"at": "replicas", "rules": rules}]));
    let line = "PATCH /apis/apps/v1/namespaces/default/deployments/d/scale";
    let body = world.must(500, line, &json!({"spec": {"replicas": 2}}));
    let why = "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32";
    assert_eq!(body["message"], json!(format!("Internal error occurred: {why}")));
}

fn host(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("ex.io/{version}"), "kind": "Host", "metadata": {"name": name}, "spec": spec})
}

/// A kind whose versions name a field differently.
fn hosts(strategy: Value, storage: &str) -> Value {
    let version = |name: &str, field: &str| {
        let spec = json!({"type": "object", "properties": {field: {"type": "string"}, "same": {"type": "string"}}});
        json!({"name": name, "served": true, "storage": name == storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object", "properties": {"s": {"type": "string"}}}}}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "hosts.ex.io"},
        "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"plural": "hosts", "kind": "Host"}, "conversion": strategy,
            "versions": [version("v1", "host"), version("v2", "name")]}})
}

fn path(version: &str, name: &str) -> String {
    format!("/apis/ex.io/{version}/namespaces/default/hosts{name}")
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn webhook(at: &str) -> Value {
    json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": format!("https://hooks/{at}")}}})
}

/// A write in another version does not fill in the defaults of the stored one; a read in that does.
#[test]
fn a_version_has_its_defaults_whichever_was_written() {
    let world = World::new();
    let mut definition = hosts(json!({"strategy": "None"}), "v1");
    let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["tint"] = json!({"type": "string", "default": "warm"});
    world.must(201, &format!("POST {DEFINITIONS}"), &definition);
    let line = format!("POST {}", path("v2", ""));
    world.must(201, &line, &host("v2", "a", json!({"same": "x"})));
    let patch = json!({"spec": {"same": "y"}});
    world.must(200, &format!("PATCH {}", path("v2", "/a")), &patch);
    let (of_v1, of_v2) = (json!({"same": "y", "tint": "warm"}), json!({"same": "y"}));
    for (version, expected) in [("v1", &of_v1), ("v2", &of_v2)] {
        let got = world.must(200, &format!("GET {}", path(version, "/a")), &Value::Null);
        assert_eq!(&got["spec"], expected, "{version}");
        let listed = world.must(200, &format!("GET {}", path(version, "")), &Value::Null);
        assert_eq!(&listed["items"][0]["spec"], expected, "{version}");
    }
    // A default that changes is seen, too: it was never stored.
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["tint"]["default"] =
        json!("cold");
    let changed = json!({"spec": definition["spec"]});
    world.must(200, &format!("PATCH {DEFINITIONS}/hosts.ex.io"), &changed);
    let got = world.must(200, &format!("GET {}", path("v1", "/a")), &Value::Null);
    assert_eq!(got["spec"]["tint"], "cold");
}

/// A policy sees its parameters as a client of that version does: with defaults that came later, and converted.
#[test]
fn parameters_are_read_as_clients_see_them() {
    let world = World::new();
    let mut definition = hosts(webhook("convert"), "v1");
    world.must(201, &format!("POST {DEFINITIONS}"), &definition);
    world.must(
        201,
        &format!("POST {}", path("v1", "")),
        &host("v1", "a", json!({"host": "x"})),
    );
    // The default is younger than the object.
    for version in definition["spec"]["versions"].as_array_mut().expect("versions") {
        let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec["properties"]["min"] = json!({"type": "integer", "default": 7});
    }
    let name = definition["metadata"]["name"].as_str().expect("a name").to_owned();
    let changed = json!({"spec": definition["spec"]});
    world.must(200, &format!("PATCH {DEFINITIONS}/{name}"), &changed);

    let registration = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    let object = |kind: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "p"}, "spec": spec});
    for (version, field) in [("v1", "host"), ("v2", "name")] {
        for reference in [json!({"name": "a"}), json!({"selector": {}})] {
            let seen = format!("has(params.spec.min) && params.spec.min == 7 && params.spec.{field} == 'x'");
            let policy = object(
                "ValidatingAdmissionPolicy",
                json!({"failurePolicy": "Fail", "paramKind": {"apiVersion": format!("ex.io/{version}"), "kind": "Host"},
                    "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                        "resources": ["configmaps"], "operations": ["CREATE"]}]},
                    "validations": [{"expression": seen}]}),
            );
            world.must(201, &format!("POST {registration}ies"), &policy);
            let mut bound = json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": reference});
            bound["paramRef"]["parameterNotFoundAction"] = "Deny".into();
            let binding = object("ValidatingAdmissionPolicyBinding", bound);
            world.must(201, &format!("POST {registration}ybindings"), &binding);
            world.must(201, &format!("POST {MAPS}?dryRun=All"), &map("seen"));
            world.must(200, &format!("DELETE {registration}ybindings/p"), &Value::Null);
            world.must(200, &format!("DELETE {registration}ies/p"), &Value::Null);
        }
    }
}

#[test]
fn versions_are_converted() {
    let world = World::new();
    world.must(201, &format!("POST {DEFINITIONS}"), &hosts(webhook("convert"), "v1"));
    world.must(
        201,
        &format!("POST {}", path("v1", "")),
        &host("v1", "a", json!({"host": "x"})),
    );
    assert_eq!(world.asked().len(), 0, "the storage version needs no conversion");
    let shown = |answer: &Value| {
        format!(
            "{} {} {}",
            answer["apiVersion"], answer["spec"], answer["metadata"]["generation"]
        )
    };
    let check = |code: u16, line: String, body: Value, expected: &str| {
        assert_eq!(shown(&world.must(code, &line, &body)), expected, "{line}");
    };
    check(
        200,
        format!("GET {}", path("v2", "/a")),
        Value::Null,
        r#""ex.io/v2" {"name":"x"} 1"#,
    );
    let patch = json!({"spec": {"name": "y"}});
    check(
        200,
        format!("PATCH {}", path("v2", "/a")),
        patch.clone(),
        r#""ex.io/v2" {"name":"y"} 2"#,
    );
    check(
        200,
        format!("PATCH {}?dryRun=All", path("v2", "/a")),
        json!({"spec": {"name": "z"}}),
        r#""ex.io/v2" {"name":"z"} 3"#,
    );
    check(
        200,
        format!("GET {}", path("v1", "/a")),
        Value::Null,
        r#""ex.io/v1" {"host":"y"} 2"#,
    );
    check(
        200,
        format!("PATCH {}", path("v2", "/a/status")),
        json!({"status": {"s": "1"}}),
        r#""ex.io/v2" {"name":"y"} 2"#,
    );
    check(
        201,
        format!("POST {}", path("v2", "")),
        host("v2", "b", json!({"name": "z"})),
        r#""ex.io/v2" {"name":"z"} 1"#,
    );
    let apply = format!("APPLY {}?fieldManager=m&force=true", path("v2", "/b"));
    check(
        200,
        apply,
        host("v2", "b", json!({"name": "q"})),
        r#""ex.io/v2" {"name":"q"} 2"#,
    );
    // The storage version changes: old objects stay as they are, new ones are of the new version.
    let names = |version: &str| {
        let list = world.must(200, &format!("GET {}", path(version, "")), &Value::Null);
        let items = list["items"].as_array().expect("items").iter().map(shown);
        items.collect::<Vec<_>>()
    };
    let definition = world.must(200, &format!("GET {DEFINITIONS}/hosts.ex.io"), &Value::Null);
    let versions = hosts(webhook("convert"), "v2")["spec"]["versions"].clone();
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    world.must(
        200,
        &format!("PATCH {DEFINITIONS}/hosts.ex.io"),
        &json!({"spec": {"versions": versions}}),
    );
    check(
        201,
        format!("POST {}", path("v2", "")),
        host("v2", "c", json!({"name": "n"})),
        r#""ex.io/v2" {"name":"n"} 1"#,
    );
    world.reviews();
    assert_eq!(
        names("v1"),
        [
            r#""ex.io/v1" {"host":"y"} 2"#,
            r#""ex.io/v1" {"host":"q"} 2"#,
            r#""ex.io/v1" {"host":"n"} 1"#
        ]
    );
    let reviews = world.reviews();
    assert_eq!(reviews.len(), 1, "one review for what must be converted");
    assert_eq!(reviews[0].1["request"]["objects"].as_array().map(Vec::len), Some(1));
    let deleted = world.must(200, &format!("DELETE {}", path("v2", "/a")), &Value::Null);
    assert_eq!(deleted["status"], "Success");
}

/// An object says of which version it is from the beginning, while its kind has one: who removes a version from
/// `storedVersions` too early does not make it one of another version.
#[test]
fn an_object_stays_of_the_version_that_it_was_stored_in() {
    let world = World::new();
    let both = hosts(webhook("convert"), "v2");
    let mut first = hosts(json!({"strategy": "None"}), "v1");
    first["spec"]["versions"].as_array_mut().expect("a list").truncate(1);
    world.must(201, &format!("POST {DEFINITIONS}"), &first);
    let create = host("v1", "a", json!({"host": "x"}));
    world.must(201, &format!("POST {}", path("v1", "")), &create);
    let definition = format!("PATCH {DEFINITIONS}/hosts.ex.io");
    world.must(200, &definition, &json!({"spec": both["spec"]}));
    let stored = json!({"status": {"storedVersions": ["v2"]}});
    world.must(200, &format!("{definition}/status"), &stored);
    for (version, spec) in [("v2", json!({"name": "x"})), ("v1", json!({"host": "x"}))] {
        let got = world.must(200, &format!("GET {}", path(version, "/a")), &Value::Null);
        assert_eq!(got["spec"], spec, "{version}");
    }
    // What the schema of its version has lost is not converted.
    let mut without = both["spec"]["versions"].clone();
    without[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = json!({"same": {"type": "string"}});
    world.must(200, &definition, &json!({"spec": {"versions": without}}));
    world.reviews();
    let got = world.must(200, &format!("GET {}", path("v2", "/a")), &Value::Null);
    assert_eq!(got["spec"], json!({}));
    assert_eq!(world.reviews()[0].1["request"]["objects"][0]["spec"], json!({}));
}

#[test]
fn watches_convert() {
    let world = World::new();
    world.must(201, &format!("POST {DEFINITIONS}"), &hosts(webhook("convert"), "v1"));
    let (code, _, _, watch) = world.send(&format!("GET {}?watch=1", path("v2", "")), &Value::Null);
    assert_eq!(code, 200);
    let mut watch = watch.expect("a watch");
    let create = host("v1", "a", json!({"host": "x"}));
    world.must(201, &format!("POST {}", path("v1", "")), &create);
    world.must(
        200,
        &format!("PATCH {}", path("v1", "/a")),
        &json!({"spec": {"host": "y"}}),
    );
    world.must(200, &format!("DELETE {}", path("v1", "/a")), &Value::Null);
    let mut seen = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let std::task::Poll::Ready(Some(line)) = std::pin::Pin::new(&mut watch).poll_next(&mut context) {
        let event: Value = serde_json::from_slice(&line).expect("a line of JSON");
        seen.push(format!(
            "{} {} {}",
            event["type"], event["object"]["apiVersion"], event["object"]["spec"]["name"]
        ));
    }
    assert_eq!(
        seen,
        [
            r#""ADDED" "ex.io/v2" "x""#,
            r#""MODIFIED" "ex.io/v2" "y""#,
            r#""DELETED" "ex.io/v2" "y""#
        ]
    );
}

#[test]
fn conversions_that_fail() {
    let world = World::new();
    world.must(201, &format!("POST {DEFINITIONS}"), &hosts(webhook("down"), "v1"));
    let check = |line: String, body: Value, from: &str| {
        let answer = world.must(500, &line, &body);
        let why = "Post \"https://hooks/down?timeout=30s\": dial tcp 127.0.0.1:1: connect: connection refused";
        let expected = format!("conversion webhook for ex.io/{from}, Kind=Host failed: {why}");
        assert_eq!(answer["message"], json!(expected), "{line}");
    };
    check(
        format!("POST {}", path("v2", "")),
        host("v2", "a", json!({"name": "x"})),
        "v2",
    );
    world.must(
        201,
        &format!("POST {}", path("v1", "")),
        &host("v1", "a", json!({"host": "x"})),
    );
    check(format!("GET {}", path("v2", "/a")), Value::Null, "v1");
    check(format!("GET {}", path("v2", "")), Value::Null, "v1");
    check(format!("PATCH {}", path("v2", "/a")), json!({}), "v1");
    check(format!("DELETE {}", path("v2", "/a")), Value::Null, "v1");
    world.must(200, &format!("DELETE {}", path("v1", "/a")), &Value::Null);
}

#[test]
fn without_a_strategy_only_the_version_changes() {
    let world = World::new();
    world.must(
        201,
        &format!("POST {DEFINITIONS}"),
        &hosts(json!({"strategy": "None"}), "v1"),
    );
    let create = host("v1", "a", json!({"host": "x", "same": "s"}));
    world.must(201, &format!("POST {}", path("v1", "")), &create);
    let shown = world.must(200, &format!("GET {}", path("v2", "/a")), &Value::Null);
    assert_eq!(
        (shown["apiVersion"].as_str(), shown["spec"].to_string().as_str()),
        (Some("ex.io/v2"), r#"{"same":"s"}"#)
    );
    assert_eq!(world.asked(), [] as [&str; 0]);
}
