//! The audit log of kube-apiserver 1.36.3, request by request (`testdata/audit.json`, under `audit-policy.yaml`).
//!
//! Left out of the comparison are values that differ from run to run (uids, versions, times, generated names), and the
//! apply of YAML: upstream fails to write its event, because the body is no JSON; ours holds it as JSON.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use serde_json::{Value, json};

use super::{AuditLog, AuditSink, Format, PeerAddress, Policy};
use crate::authentication::tests::TestSigner;
use crate::authentication::{Identity, StaticTokens};
use crate::model::testing::{FakeEnv, Shared};
use crate::server::Parts;
use crate::{ApiServer, Config};

const POLICY: &[u8] = include_bytes!("../../testdata/audit-policy.yaml");
const RECORDED: &str = include_str!("../../testdata/audit.json");
/// The apply of YAML.
const UNWRITTEN: &str = "step-07";

/// Keeps the events; fails while it is told to.
#[derive(Default)]
pub(crate) struct MemorySink {
    lines: Mutex<Vec<String>>,
    fails: std::sync::atomic::AtomicBool,
}

impl AuditSink for MemorySink {
    fn write(&self, line: &str) -> Result<(), String> {
        if self.fails.load(std::sync::atomic::Ordering::Relaxed) {
            return Err("the disk is full".to_owned());
        }
        self.lines.lock().unwrap().push(line.to_owned());
        Ok(())
    }
}

impl MemorySink {
    fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    /// The events since the last call.
    pub(crate) fn take(&self) -> Vec<Value> {
        let lines = self.take_lines();
        let read = |line: &String| {
            assert_eq!(line.matches('\n').count(), 1, "one line for each event");
            serde_json::from_str(line).unwrap()
        };
        lines.iter().map(read).collect()
    }
}

fn server(policy: &[u8], strict: bool) -> (ApiServer, Arc<MemorySink>) {
    server_with(policy, strict, Format::Json, None)
}

fn server_with(
    policy: &[u8],
    strict: bool,
    format: Format,
    max_event_size: Option<usize>,
) -> (ApiServer, Arc<MemorySink>) {
    let config = Config {
        static_tokens: StaticTokens::parse("admin,admin,admin-uid,\"system:masters\"").unwrap(),
        service_account_admission: true,
        ..Config::default()
    };
    let kept = Arc::new(MemorySink::default());
    let mut parts = Parts::of_tests(Arc::new(Shared(FakeEnv::new())), config);
    parts.signer = Arc::new(TestSigner("key"));
    parts.audit = Some(AuditLog {
        policy: Arc::new(Policy::parse(policy).unwrap()),
        sink: kept.clone(),
        strict,
        format,
        max_event_size,
    });
    let api = ApiServer::with(parts);
    kept.take();
    (api, kept)
}

/// Sends a request as the shell does; watches are dropped at once.
fn send(api: &ApiServer, step: &Value) -> u16 {
    let text = |field: &str| step[field].as_str().unwrap_or("");
    let mut request = Request::builder().method(text("method")).uri(text("path"));
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        request = request.header(name, value.as_str().unwrap());
    }
    if step["headers"].get("User-Agent").is_none() {
        request = request.header("user-agent", "player");
    }
    request = request.header("audit-id", text("id"));
    if !text("token").is_empty() {
        request = request.header("authorization", format!("Bearer {}", text("token")));
    }
    if !text("type").is_empty() {
        request = request.header("content-type", text("type"));
    }
    let request = request.extension(PeerAddress([127, 0, 0, 1].into()));
    let request = request.body(Bytes::from(text("body").to_owned())).unwrap();
    let (head, body) = request.into_parts();
    let user = match api.authenticate(&Identity::Anonymous, &head) {
        Ok(found) => found.user,
        Err(refusal) => return refusal.status().as_u16(),
    };
    let response = api.handle(Request::from_parts(head, body), user).now_or_never();
    response.expect("nothing waits here").status().as_u16()
}

/// Without values that differ from run to run.
fn settled(value: &Value) -> Value {
    const VARIES: [&str; 9] = [
        "kind",
        "apiVersion",
        "requestReceivedTimestamp",
        "stageTimestamp",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "time",
    ];
    match value {
        Value::Object(map) => {
            // Of an event, kind and version are always the same, and so are left out of the recording.
            let is_event = map.contains_key("auditID");
            let kept = map.iter().filter(|(key, _)| {
                let at = VARIES.iter().position(|varies| varies == key);
                at.is_none_or(|at| at < 2 && !is_event)
            });
            let settle = |(key, value): (&String, &Value)| {
                let value = match (key.as_str(), value.as_str()) {
                    ("authentication.kubernetes.io/issued-credential-id", Some(text)) => json!(text.split('=').next()),
                    ("name", Some(text)) if text.starts_with("gen-") => json!("gen-"),
                    // A Table says when, and a user who is named again has his uid.
                    _ => settled(value),
                };
                (key.clone(), value)
            };
            Value::Object(kept.map(settle).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(settled).collect()),
        other => other.clone(),
    }
}

#[test]
fn events_are_those_of_kube_apiserver() {
    let steps: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    let (api, kept) = server(POLICY, false);
    let mut differences = Vec::new();
    for step in &steps {
        send(&api, step);
        let ours: Vec<Value> = kept.take().iter().map(settled).collect();
        let id = step["id"].as_str().unwrap();
        if id == UNWRITTEN {
            assert_eq!(ours.len(), 2);
            assert_eq!(ours[1]["requestObject"]["data"]["c"], "d");
            continue;
        }
        let recorded: Vec<Value> = step["events"].as_array().unwrap().iter().map(settled).collect();
        let stages = |events: &[Value]| -> Vec<Value> { events.iter().map(|event| event["stage"].clone()).collect() };
        if stages(&ours) != stages(&recorded) {
            differences.push(format!(
                "{id}: ours {:?}, recorded {:?}",
                stages(&ours),
                stages(&recorded)
            ));
            continue;
        }
        for (ours, recorded) in ours.iter().zip(&recorded) {
            let keys = ours
                .as_object()
                .into_iter()
                .chain(recorded.as_object())
                .flat_map(|map| map.keys());
            for key in keys.collect::<std::collections::BTreeSet<_>>() {
                if ours.get(key) != recorded.get(key) {
                    let (ours, recorded) = (&ours[key], &recorded[key]);
                    differences.push(format!("{id} {key}\n     ours: {ours}\n recorded: {recorded}"));
                }
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences\n{}",
        differences.len(),
        differences.join("\n")
    );
}

const EVERYTHING: &[u8] = b"{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: RequestResponse}]}";

fn get(path: &str) -> Value {
    json!({"id": "x", "method": "GET", "path": path, "token": "admin", "headers": {}})
}

#[test]
fn a_strict_log_that_cannot_be_written_refuses_requests() {
    for (strict, code) in [(true, 500), (false, 200)] {
        let (api, kept) = server(EVERYTHING, strict);
        kept.fails.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(send(&api, &get("/api/v1/namespaces")), code, "strict: {strict}");
        kept.fails.store(false, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(send(&api, &get("/api/v1/namespaces")), 200);
        assert_eq!(kept.take().len(), 2, "what comes later is entered again");
    }
}

fn post(size: usize) -> Value {
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "x".repeat(size)}});
    json!({"id": "x", "method": "POST", "path": "/api/v1/namespaces/default/configmaps?dryRun=All", "token": "admin",
        "headers": {"Content-Type": "application/json", "User-Agent": "a \"client\""}, "body": body.to_string()})
}

/// The event of an answer to a request of this size.
fn completed(policy: &[u8], max: usize, size: usize) -> Option<Value> {
    let (api, kept) = server_with(policy, true, Format::Json, Some(max));
    assert_eq!(send(&api, &post(size)), 201, "no event is missed by those who ask");
    kept.take()
        .into_iter()
        .find(|event| event["stage"] == "ResponseComplete")
}

/// As the backend `truncate` of apiserver does it.
#[test]
fn events_that_are_too_large_lose_their_objects() {
    let small = completed(EVERYTHING, 10_000, 100).unwrap();
    assert!(small["requestObject"].is_object() && small["responseObject"].is_object());
    assert!(small["annotations"].get("audit.k8s.io/truncated").is_none());
    let large = completed(EVERYTHING, 10_000, 20_000).unwrap();
    assert!(large.get("requestObject").is_none() && large.get("responseObject").is_none());
    assert_eq!(large["annotations"]["audit.k8s.io/truncated"], "true");
    assert_eq!(large["objectRef"]["name"], "a");
    assert_eq!(
        completed(EVERYTHING, 100, 20_000),
        None,
        "what is too large without them is left out"
    );
    let metadata = b"{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
    assert_eq!(
        completed(metadata, 100, 1),
        None,
        "nothing can be taken away at this level"
    );
}

/// As `EventString` has it.
#[test]
fn the_form_legacy_is_a_line_of_text() {
    let (api, kept) = server_with(EVERYTHING, false, Format::Legacy, None);
    send(&api, &post(10));
    let mut impersonating = post(10);
    impersonating["headers"]["Impersonate-User"] = json!("jane");
    send(&api, &impersonating);
    let lines = kept.take_lines();
    let settled = lines.iter().map(|line| {
        let (time, rest) = line.split_once(" AUDIT: id=\"").unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok() && !time.contains('.'), "{time}");
        rest.split_once("\" ").unwrap().1.trim_end().to_owned()
    });
    let settled: Vec<String> = settled.collect();
    let whole = |stage: &str, acting: &str, response: &str| {
        format!(
            r#"stage="{stage}" ip="127.0.0.1" method="create" user="admin" groups="\"system:masters\",\"system:authenticated\"" {acting} user-agent="a \"client\"" namespace="default" uri="/api/v1/namespaces/default/configmaps?dryRun=All" response="{response}""#
        )
    };
    let own = r#"as="<self>" asgroups="<lookup>""#;
    let jane = r#"as="jane" asgroups="\"system:authenticated\"""#;
    assert_eq!(
        settled[..2],
        [
            whole("RequestReceived", own, "<deferred>"),
            whole("ResponseComplete", own, "201")
        ]
    );
    assert_eq!(
        settled[2..],
        [
            whole("RequestReceived", own, "<deferred>"),
            whole("ResponseComplete", jane, "403")
        ]
    );
}

#[test]
fn a_request_that_its_client_gives_up_is_complete_all_the_same() {
    let (api, kept) = server(EVERYTHING, false);
    let (head, ()) = Request::get("/api/v1/namespaces").body(()).unwrap().into_parts();
    drop(
        api.admit(&head, crate::UserInfo::admin())
            .now_or_never()
            .unwrap()
            .ok()
            .unwrap(),
    );
    let stages: Vec<Value> = kept.take().iter().map(|event| event["stage"].clone()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseComplete"]);
}

/// A user's rules decide how long it takes to hold a request against them. Where that is long it begins again elsewhere,
/// and is entered once.
#[test]
fn a_request_whose_admission_begins_again_is_entered_once() {
    let (api, kept) = server(EVERYTHING, false);
    let create = |path: &str, object: Value| {
        let request = Request::post(format!("/apis/rbac.authorization.k8s.io/v1/namespaces/default/{path}"));
        let request = request.header("content-type", "application/json");
        let request = request.body(Bytes::from(object.to_string())).unwrap();
        let answer = api.handle(request, crate::UserInfo::admin()).now_or_never().unwrap();
        assert_eq!(answer.status(), 201);
    };
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]});
    create("roles", json!({"metadata": {"name": "r"}, "rules": vec![rule; 20_000]}));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let subjects = json!([{"kind": "User", "name": "jane"}]);
    create(
        "rolebindings",
        json!({"metadata": {"name": "r"}, "roleRef": role, "subjects": subjects}),
    );
    kept.take();
    let check = |user: &str, begins_again: bool| {
        let user = crate::UserInfo::authenticated(user, []);
        let head = Request::get("/api/v1/namespaces/default/pods/b")
            .body(())
            .unwrap()
            .into_parts()
            .0;
        let (trial, arrival) = (ApiServer::trial(), crate::Arrival::default());
        let tried = api
            .try_admit(&trial, &arrival, &head, user.clone())
            .now_or_never()
            .unwrap();
        assert_eq!(tried.is_err(), begins_again, "{}", user.name);
        let admitted = tried.unwrap_or_else(|_| api.admit_arrived(&arrival, &head, user).now_or_never().unwrap());
        assert_eq!(admitted.err().unwrap().status(), 403);
        let stages: Vec<Value> = kept.take().iter().map(|event| event["stage"].clone()).collect();
        assert_eq!(stages, ["RequestReceived", "ResponseComplete"]);
    };
    check("joe", false);
    check("jane", true);
    check("joe", false);
}

#[test]
fn clients_learn_by_what_name_they_are_entered() {
    let (api, kept) = server(EVERYTHING, false);
    let request = Request::get("/version").body(Bytes::new()).unwrap();
    let answer = api.handle(request, crate::UserInfo::admin()).now_or_never().unwrap();
    assert_eq!(
        kept.take()[1]["auditID"],
        answer.headers()["audit-id"].to_str().unwrap()
    );
}
