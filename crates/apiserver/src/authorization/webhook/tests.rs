//! An API server whose authorizer is a webhook: the reviews that it sends, and the effect of the answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use serde_json::{Value, json};

use super::super::Mode;
use super::*;
use crate::model::testing::{FakeEnv, Shared};
use crate::{ApiServer, Body, Config};

/// Answers every review with the status that stands for its user, and keeps the reviews.
#[derive(Default)]
struct Script {
    asked: Mutex<Vec<Value>>,
}

impl Reviewer for Script {
    fn review(&self, review: Value, _timeout: Duration) -> BoxFuture<'static, Result<Value, ReviewError>> {
        let tries = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(review.clone());
            asked.len()
        };
        let failed = |message: &str, retry| {
            Err(ReviewError {
                message: message.to_owned(),
                retry,
            })
        };
        let user = review.pointer("/spec/user").and_then(Value::as_str).unwrap_or("");
        let verb = review.pointer("/spec/resourceAttributes/verb");
        let answered = match user {
            "yes" => Ok(json!({"allowed": true, "reason": "known"})),
            "no" => Ok(json!({"allowed": false, "reason": "<unknown>"})),
            "denied" => Ok(json!({"allowed": false, "denied": true, "reason": "banned"})),
            "both" => Ok(json!({"allowed": true, "denied": true})),
            "lister" => Ok(json!({"allowed": verb == Some(&json!("list"))})),
            "impersonator" => Ok(json!({"allowed": verb == Some(&json!("impersonate"))})),
            "later" if tries < 3 => failed("too many requests", true),
            "later" => Ok(json!({"allowed": true})),
            "down" => failed("dial tcp 127.0.0.1:1: connect: connection refused", false),
            "strange" => return Box::pin(std::future::ready(Ok(json!({"kind": "Pod", "apiVersion": "v1"})))),
            _ => Ok(json!({"allowed": false})),
        };
        let answer = answered.map(|status| {
            let mut answer = review;
            answer["status"] = status;
            answer
        });
        Box::pin(std::future::ready(answer))
    }
}

struct World {
    env: Arc<FakeEnv>,
    script: Arc<Script>,
    api: ApiServer,
}

fn settings() -> Settings {
    Settings {
        name: "test".to_owned(),
        version: Version::V1,
        authorized_ttl: Duration::from_secs(300),
        unauthorized_ttl: Duration::from_secs(30),
        timeout: Duration::from_secs(3),
        on_error: Verdict::NoOpinion,
        conditions: Conditions::default(),
    }
}

impl World {
    fn new(settings: Settings, after: &[Mode]) -> World {
        let (env, script) = (FakeEnv::new(), Arc::new(Script::default()));
        let webhook = Mode::Webhook(Webhook {
            settings,
            reviewer: script.clone(),
        });
        let config = Config {
            authorization: std::iter::once(webhook).chain(after.iter().cloned()).collect(),
            ..Config::default()
        };
        let api = ApiServer::of_tests(Arc::new(Shared(env.clone())), config);
        World { env, script, api }
    }

    fn user(name: &str) -> UserInfo {
        UserInfo::authenticated(name, ["team"])
    }

    /// The code and the text of the answer.
    fn ask(&self, user: &str, request: http::request::Builder, body: &Value) -> (u16, String) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = request.header("Content-Type", "application/json");
        let request = request.body(Bytes::from(body)).unwrap();
        let mut answering = Box::pin(self.api.handle(request, World::user(user)));
        let response = (0..20).find_map(|_| {
            let answered = (&mut answering).now_or_never();
            self.env.advance(Duration::from_millis(500));
            answered
        });
        let response = response.expect("it is answered within ten seconds");
        let code = response.status().as_u16();
        match response.into_body() {
            Body::Full(bytes) => (code, String::from_utf8(bytes.to_vec()).unwrap()),
            _ => panic!("a watch"),
        }
    }

    fn list(&self, user: &str) -> (u16, String) {
        self.ask(user, Request::get("/api/v1/namespaces/default/pods"), &Value::Null)
    }

    /// How many reviews were sent since this was asked last.
    fn sent(&self) -> Vec<Value> {
        std::mem::take(&mut *self.script.asked.lock().unwrap())
    }
}

/// A user of the script, the answer to a list, a part of the text, and how many reviews it took.
#[test]
fn answers_decide() {
    let world = World::new(settings(), &[]);
    let check = |user: &str, code: u16, text: &str, reviews: usize| {
        let (answered, said) = world.list(user);
        assert_eq!(answered, code, "{user}: {said}");
        assert!(said.contains(text), "{user}: {said}");
        assert_eq!(world.sent().len(), reviews, "{user}");
    };
    check("yes", 200, "PodList", 1);
    check("yes", 200, "PodList", 0);
    let denied = r#"in the namespace \"default\": \u003cunknown\u003e"#;
    check("no", 403, denied, 1);
    check("no", 403, denied, 0);
    check("denied", 403, "banned", 1);
    let why = "webhook subject access review returned both allow and deny response";
    check("both", 500, why, 1);
    check("later", 200, "PodList", 3);
    let refused = r#"Internal Server Error: "/api/v1/namespaces/default/pods": dial tcp 127.0.0.1:1: connect: connection refused"#;
    check("down", 500, refused, 1);
    check("down", 500, refused, 1);
    check("strange", 500, "not \"SubjectAccessReview\"", 1);
}

/// A yes lasts five minutes here, a no half a minute.
#[test]
fn answers_are_remembered_for_their_time() {
    let world = World::new(settings(), &[]);
    for (user, lasts) in [("yes", 300), ("no", 30)] {
        for (pause, reviews) in [(0, 1), (lasts - 2, 0), (3, 1)] {
            world.env.advance(Duration::from_secs(pause));
            world.list(user);
            assert_eq!(world.sent().len(), reviews, "{user} after {pause} s");
        }
    }
}

#[test]
fn others_are_asked_after_it() {
    let world = World::new(settings(), &[Mode::AlwaysAllow]);
    for (user, code) in [("yes", 200), ("no", 200), ("down", 200), ("denied", 403), ("both", 500)] {
        assert_eq!(world.list(user).0, code, "{user}");
    }
    let world = World::new(
        Settings {
            on_error: Verdict::Deny,
            ..settings()
        },
        &[Mode::AlwaysAllow],
    );
    assert_eq!(world.list("down").0, 500, "its failures refuse");
}

#[test]
fn what_is_sent() {
    let check = |version: Version, request: http::request::Builder, expected: Value| {
        let world = World::new(Settings { version, ..settings() }, &[]);
        world.ask("yes", request, &Value::Null);
        let sent = world.sent();
        let expected = json!({
            "kind": "SubjectAccessReview",
            "apiVersion": version.api_version(),
            "metadata": {"creationTimestamp": null},
            "spec": expected,
            "status": {"allowed": false},
        });
        assert_eq!(sent, [expected]);
    };
    let groups = json!(["team", "system:authenticated"]);
    check(
        Version::V1,
        Request::get(
            "/apis/apps/v1/namespaces/n/deployments?fieldSelector=metadata.name%3Da&labelSelector=x+in+(1,2),!y",
        ),
        json!({
            "resourceAttributes": {
                "namespace": "n", "verb": "list", "group": "apps", "version": "v1", "resource": "deployments", "name": "a",
                "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
                "labelSelector": {"requirements": [
                    {"key": "x", "operator": "In", "values": ["1", "2"]}, {"key": "y", "operator": "DoesNotExist"},
                ]},
            },
            "user": "yes", "groups": groups,
        }),
    );
    check(
        Version::V1beta1,
        Request::get("/version"),
        json!({"nonResourceAttributes": {"path": "/version", "verb": "get"}, "user": "yes", "group": groups}),
    );
}

#[test]
fn conditions_choose() {
    let conditions = |sources: &[&str]| Settings {
        conditions: Conditions::compile(sources.iter().copied()).unwrap(),
        ..settings()
    };
    let check = |sources: &[&str], code: u16, reviews: usize| {
        let world = World::new(conditions(sources), &[]);
        assert_eq!(world.list("yes").0, code, "{sources:?}");
        assert_eq!(world.sent().len(), reviews, "{sources:?}");
    };
    check(&["has(request.resourceAttributes)"], 200, 1);
    check(&["!('team' in request.groups)"], 403, 0);
    check(
        &[
            "request.resourceAttributes.namespace == 'default'",
            "request.user == 'yes'",
        ],
        200,
        1,
    );
    // A single false condition decides, regardless of the others.
    check(
        &["request.nonResourceAttributes.path == ''", "request.user == 'no'"],
        403,
        0,
    );
    check(&["request.nonResourceAttributes.path == ''"], 500, 0);
    let wrong = |source: &str, why: &str| {
        let (at, said) = Conditions::compile(["true", source]).unwrap_err();
        assert_eq!(at, 1);
        assert!(said.contains(why), "{said}");
    };
    wrong("request.nothing", "undefined field 'nothing'");
    wrong("request.user", "must evaluate to bool");
    wrong("object.a", "undeclared reference to 'object'");
}

/// Plain functions that ask get the webhook's answer as well: reviews, impersonation, the rules that a role grants,
/// expressions of policies.
#[test]
fn a_request_waits_for_the_answer() {
    let world = World::new(settings(), &[]);
    let review = |verb: &str| {
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": "lister", "resourceAttributes": {"verb": verb, "resource": "pods"}},
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let (code, said) = world.ask("yes", Request::post(path), &body);
        assert_eq!(code, 201, "{said}");
        serde_json::from_str::<Value>(&said).unwrap()["status"]["allowed"].clone()
    };
    assert_eq!(review("list"), json!(true));
    assert_eq!(review("get"), json!(false));

    let pods = || Request::get("/api/v1/namespaces/default/pods").header("Impersonate-User", "yes");
    assert_eq!(world.ask("impersonator", pods(), &Value::Null).0, 200);
    assert_eq!(world.ask("no", pods(), &Value::Null).0, 403);

    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "wide"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let (code, said) = world.ask("yes", Request::post(path), &role);
    assert_eq!(code, 201, "who may escalate may write any role: {said}");

    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
            ]},
            "validations": [{
                "expression": "authorizer.serviceAccount('default', object.metadata.name).group('').resource('pods').check('get').allowed() \
                               == authorizer.group('').resource('secrets').check('get').allowed()",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "p"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]},
    });
    for (plural, body) in [("policies", policy), ("policybindings", binding)] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/validatingadmission{plural}");
        let (code, said) = world.ask("yes", Request::post(path), &body);
        assert_eq!(code, 201, "{said}");
    }
    world.sent();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let (code, said) = world.ask("yes", Request::post("/api/v1/namespaces/default/configmaps"), &map);
    assert_eq!(code, 422, "the account may not, the user may: {said}");
    let asked: Vec<Value> = world.sent().iter().map(|sent| sent["spec"]["user"].clone()).collect();
    assert_eq!(
        asked,
        ["yes", "system:serviceaccount:default:a", "yes"],
        "the request, and what its expression asks"
    );
}
