//! The answers of kube-apiserver about policies, and under them (`testdata/policies.json`): codes, messages, causes,
//! warnings, values.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use serde_json::{Value, json};

use crate::UserInfo;
use crate::model::testing::{FakeEnv, Shared};
use crate::model::user::SYSTEM_MASTERS;
use crate::server::{ApiServer, Config};

struct Answer {
    code: u16,
    warnings: Value,
    body: Value,
}

fn send(api: &ApiServer, step: &Value) -> Answer {
    let (method, uri) = step["request"]
        .as_str()
        .and_then(|line| line.split_once(' '))
        .expect("a request");
    let kind = step["type"].as_str().unwrap_or("application/json");
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("user-agent", "replay/1.0")
        .header("content-type", kind);
    let body = match &step["body"] {
        Value::Null => Bytes::new(),
        body => Bytes::from(body.to_string()),
    };
    let request = request.body(body).expect("a request");
    let user = match step["as"].as_str() {
        Some(name) => UserInfo::authenticated(name, []),
        None => UserInfo {
            uid: "admin-uid".to_owned(),
            ..UserInfo::authenticated("admin", [SYSTEM_MASTERS])
        },
    };
    let response = api.handle(request, user).now_or_never().expect("nothing waits here");
    let (parts, body) = response.into_parts();
    let warnings = parts.headers.get_all("warning").iter();
    let Ok(bytes) = body.whole() else {
        panic!("no watch was asked for")
    };
    Answer {
        code: parts.status.as_u16(),
        warnings: warnings
            .map(|warning| Value::from(warning.to_str().expect("a text")))
            .collect(),
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
    }
}

fn check(api: &ApiServer, step: &Value) -> Result<(), String> {
    let answer = send(api, step);
    let body = &answer.body;
    let differ = |what: &str, ours: &Value, recorded: &Value| {
        if ours == recorded {
            Ok(())
        } else {
            Err(format!("{what}\n   ours: {ours}\n   recorded: {recorded}"))
        }
    };
    if step["code"] != answer.code {
        return Err(format!("code {}: {body}", answer.code));
    }
    for field in ["message", "reason"] {
        if step.get(field).is_some() {
            differ(field, &body[field], &step[field])?;
        }
    }
    if let Some(causes) = step.get("causes") {
        differ("causes", &body["details"]["causes"], causes)?;
    }
    let none = json!([]);
    differ("warnings", &answer.warnings, step.get("warnings").unwrap_or(&none))?;
    for (pointer, value) in step["see"].as_object().into_iter().flatten() {
        let ours = body.pointer(pointer).unwrap_or(&Value::Null);
        differ(pointer, ours, value)?;
    }
    Ok(())
}

/// Deletes the policies of a scenario, so that they do not affect the next one.
fn clean(api: &ApiServer, step: &Value) {
    let line = step["request"].as_str().unwrap_or("");
    let name = step["body"]["metadata"]["name"].as_str().unwrap_or("");
    let path = line
        .strip_prefix("POST ")
        .filter(|path| path.contains("admissionregistration"));
    if let Some(path) = path.filter(|path| !path.contains('?') && !name.is_empty()) {
        send(api, &json!({"request": format!("DELETE {path}/{name}")}));
    }
}

#[test]
fn policies_act_as_they_did_in_kube_apiserver() {
    let scenarios: Vec<Value> =
        serde_json::from_str(include_str!("../../../testdata/policies.json")).expect("the committed extract");
    let api = ApiServer::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default());
    let mut failed = Vec::new();
    let mut steps = 0;
    for scenario in &scenarios {
        let name = scenario["scenario"].as_str().expect("a name");
        let list = scenario["steps"].as_array().expect("steps");
        for step in list {
            steps += 1;
            if let Err(why) = check(&api, step) {
                let body: String = step["body"]["spec"].to_string().chars().take(600).collect();
                failed.push(format!("{name} {}: {why}\n   {body}", step["request"]));
            }
        }
        for step in list.iter().rev() {
            clean(&api, step);
        }
    }
    assert!(failed.is_empty(), "{} of {steps}\n{}", failed.len(), failed.join("\n"));
}
