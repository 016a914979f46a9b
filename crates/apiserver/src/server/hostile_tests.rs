//! Requests that are made to cost more than they look: each must be answered, and cheaply.
//!
//! A row is one request with what it may cost: one that costs more is answered with 413. Costs are counted in steps of
//! [`kubewright_schema::budget`], so that they are the same everywhere. What is refused as too costly stands here too, with the limits
//! of every request.

use kubewright_schema::budget::Limits;
use serde_json::{Value, json};

use super::tests::World;
use crate::UserInfo;

/// What may be spent on what should cost about as much as reading it.
const CHEAP: u64 = 1_000_000;
/// What any request may cost.
const ANY: u64 = Limits::REQUEST.steps;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Hostile {
    world: World,
}

impl Hostile {
    fn new() -> Hostile {
        Hostile { world: World::new() }
    }

    /// A request with a body, what is answered, and at most how many steps it costs; the answer's body.
    #[track_caller]
    fn check(&self, what: &str, line: &str, body: &Value, code: u16, steps: u64) -> Value {
        self.check_as(&UserInfo::admin(), what, line, body, code, steps)
    }

    #[track_caller]
    fn check_as(&self, user: &UserInfo, what: &str, line: &str, body: &Value, code: u16, steps: u64) -> Value {
        let kind = match line.split_once(' ') {
            Some(("PATCH", _)) => "application/merge-patch+json",
            _ => "application/json",
        };
        let limits = Limits {
            steps,
            ..Limits::REQUEST
        };
        let headers = [("content-type", kind)];
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = self.world.send_within(limits, line, &headers, body, user.clone());
        let message = answer.body["message"].as_str().unwrap_or("");
        assert_eq!(
            answer.code,
            code,
            "{what}: {}",
            message.chars().take(300).collect::<String>()
        );
        answer.body
    }
}

fn many<T: Into<Value>>(count: usize, item: impl FnMut(usize) -> T) -> Value {
    (0..count).map(item).map(Into::into).collect()
}

fn config_map(name: &str, metadata: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    object["metadata"]["name"] = name.into();
    object
}

/// What kube-apiserver allows any number of.
#[test]
fn many_owners_and_finalizers_are_looked_at_once() {
    let hostile = Hostile::new();
    let owner = |index: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{index}"), "uid": "u"});
    let owners = json!({"ownerReferences": many(5_000, owner)});
    let post = format!("POST {MAPS}");
    hostile.check("owners", &post, &config_map("owners", &owners), 201, CHEAP);
    let put = format!("PUT {MAPS}/owners");
    hostile.check("the same again", &put, &config_map("owners", &owners), 200, CHEAP);
    let same = json!({"ownerReferences": many(5_000, |_| owner(0))});
    let object = hostile.check("one owner, often", &post, &config_map("one", &same), 201, CHEAP);
    assert_eq!(object["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1));

    let finalizers = |word: &str| json!({"finalizers": many(10_000, |index| format!("example.org/{word}{index}"))});
    hostile.check("finalizers", &post, &config_map("kept", &finalizers("a")), 201, CHEAP);
    hostile.check("deleted", &format!("DELETE {MAPS}/kept"), &Value::Null, 200, CHEAP);
    hostile.check(
        "others",
        &format!("PUT {MAPS}/kept"),
        &config_map("kept", &finalizers("b")),
        422,
        ANY,
    );
    hostile.check(
        "none",
        &format!("PUT {MAPS}/kept"),
        &config_map("kept", &json!({})),
        200,
        CHEAP,
    );
}

#[test]
fn many_mistakes_are_told_in_part() {
    let hostile = Hostile::new();
    let post = format!("POST {MAPS}");
    let labels: Value = (0..3_000).map(|index| (format!("-{index}"), json!("x"))).collect();
    let status = hostile.check(
        "labels",
        &post,
        &config_map("labels", &json!({"labels": labels})),
        422,
        ANY,
    );
    assert_eq!(status["details"]["causes"].as_array().map(Vec::len), Some(1000));
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.ends_with(", and 2000 more errors]"), "{message}");
    // Each mistake shows all owners.
    let owner = |index: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{index}"), "uid": "u", "controller": true});
    let owners = json!({"ownerReferences": many(2_000, owner)});
    hostile.check("controllers", &post, &config_map("controllers", &owners), 413, ANY);
    // Each tells a long text.
    let finalizers = json!({"finalizers": many(60_000, |index| format!("-{index}"))});
    hostile.check("finalizers", &post, &config_map("finalizers", &finalizers), 413, ANY);
    let long = json!({"generateName": "!".repeat(500_000)});
    let mut named = config_map("", &long);
    named["metadata"]["name"] = Value::Null;
    hostile.check("a long name", &post, &named, 422, ANY);
}
