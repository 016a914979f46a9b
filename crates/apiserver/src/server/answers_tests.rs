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
    send_as(api, UserInfo::admin(), line, body)
}

fn send_as(api: &ApiServer, user: UserInfo, line: &str, body: &Value) -> (u16, Value) {
    let (method, uri) = line.split_once(' ').expect("method and path");
    let (method, media) = match method {
        "merge" | "json" | "strategic-merge" => ("PATCH", format!("application/{method}-patch+json")),
        "apply" => ("PATCH", "application/apply-patch+yaml".to_owned()),
        method => (method, "application/json".to_owned()),
    };
    let request = Request::builder().method(method).uri(uri).header("content-type", media);
    let request = request.body(text(body)).expect("a request");
    let response = api.handle(request, user).now_or_never();
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
fn deleting_what_cannot_be_read_is_a_permission_of_its_own() {
    const VERB: &str = "unsafe-delete-ignore-read-errors";
    let api = server(Minor::V37);
    let role = |verbs: &[&str]| {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
        json!({"metadata": {"name": "r"}, "rules": rules})
    };
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/role";
    let subjects = json!([{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}]);
    let of = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let bound = json!({"metadata": {"name": "r"}, "roleRef": of, "subjects": subjects});
    check(&api, &format!("POST {roles}s"), &role(&["delete"]), 201, "");
    check(&api, &format!("POST {roles}bindings"), &bound, 201, "");
    let line = format!("DELETE {MAPS}/b?ignoreStoreReadErrorWithClusterBreakingPotential=true");
    let ask = || {
        let (code, answer) = send_as(&api, UserInfo::authenticated("bob", ["devs"]), &line, &Value::Null);
        (code, answer["message"].clone())
    };
    let why = format!("configmaps \"b\" is forbidden: not permitted to do {VERB:?}, reason: ");
    assert_eq!(ask(), (403, json!(why)));
    check(&api, &format!("PUT {roles}s/r"), &role(&["delete", VERB]), 200, "");
    assert_eq!(ask(), (404, json!("configmaps \"b\" not found")));
}

/// Sends a request with these headers: the code and the text of the answer.
fn ask(api: &ApiServer, line: &str, accept: &str, media: &str, body: &'static str) -> (u16, String) {
    let (method, uri) = line.split_once(' ').expect("method and path");
    let request = Request::builder().method(method).uri(uri).header("accept", accept);
    let request = request
        .header("content-type", media)
        .body(body.into())
        .expect("a request");
    let response = api.handle(request, UserInfo::admin()).now_or_never();
    let (parts, body) = response.expect("nothing waits here").into_parts();
    let Ok(bytes) = body.whole() else {
        panic!("no watch was asked for")
    };
    (parts.status.as_u16(), String::from_utf8_lossy(&bytes).into_owned())
}

#[test]
fn what_a_path_takes_comes_before_what_it_gives() {
    const MERGE: &str = "application/merge-patch+json";
    const NO_FORM: &str = "the body of the request was in an unknown format";
    let api = server(Minor::V37);
    check(&api, &format!("POST {MAPS}"), &map(), 201, "");
    let pods = "/api/v1/namespaces/default/pods";
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    check(&api, &format!("POST {pods}"), &pod, 201, "");
    let (one, none) = (format!("{MAPS}/a"), format!("{MAPS}/none"));
    for (line, accept, media, body, code, said) in [
        (
            format!("PATCH {one}"),
            "bad",
            "application/json",
            "{}",
            415,
            "415: Unsupported",
        ),
        (format!("PATCH {one}"), "bad", MERGE, "{}", 406, "406: Not Acceptable"),
        (format!("PATCH {none}"), "", MERGE, "- a", 400, "invalid JSON patch"),
        (format!("PATCH {none}"), "", MERGE, "[]", 404, "not found"),
        // A connection is no document.
        (
            format!("GET {pods}/p/attach"),
            "text/html",
            "",
            "",
            400,
            "pod p does not have a host",
        ),
        (format!("PUT {one}"), "", "application/json;foo", "{}", 415, NO_FORM),
        (format!("DELETE {none}"), "", "application/json;foo", "{}", 415, NO_FORM),
        (
            format!("PUT {one}"),
            "",
            "application/json; charset=utf-8",
            "{}",
            400,
            "undeterminable",
        ),
    ] {
        let (got, answer) = ask(&api, &line, accept, media, body);
        assert!(
            got == code && answer.contains(said),
            "{line} {accept} {media}: {got} {answer}"
        );
    }
}

#[test]
fn a_quantity_is_any_scalar_to_an_apply() {
    let api = server(Minor::V37);
    let quota = |value: Value| {
        let hard = json!({"pods": 1, "x": value});
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}})
    };
    let line = "apply /api/v1/namespaces/default/resourcequotas/q?fieldManager=m";
    for (value, shown) in [(json!({}), "map[]"), (json!([1]), "[1]")] {
        let said = format!(".spec.hard.x: expected any scalar, got &{{{shown}}}");
        check(&api, line, &quota(value), 500, &said);
    }
}

#[test]
fn a_namespace_is_compared_before_a_name() {
    let api = server(Minor::V37);
    check(&api, &format!("POST {MAPS}"), &map(), 201, "");
    check(&api, &format!("POST {DEPLOYMENTS}"), &deployment(), 201, "");
    let other = json!({"metadata": {"name": "other", "namespace": "other"}});
    let said = "the namespace of the provided object does not match the namespace sent on the request";
    check(&api, &format!("merge {MAPS}/a"), &other, 400, said);
    check(&api, &format!("merge {DEPLOYMENTS}/d/scale"), &other, 400, said);
    let whole = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": other["metadata"]});
    check(&api, &format!("PUT {DEPLOYMENTS}/d/scale"), &whole, 400, said);
}

#[test]
fn a_name_that_is_missing_is_no_wrong_one() {
    let api = server(Minor::V37);
    let bundles = "POST /apis/certificates.k8s.io/v1/clustertrustbundles";
    let bundle = json!({"metadata": {}, "spec": {"signerName": "x.io/s", "trustBundle": "x"}});
    let required = "metadata.name: Required value: name or generateName is required";
    let said = format!("is invalid: [{required}, spec.trustBundle: Invalid value");
    check(&api, bundles, &bundle, 422, &said);
}

#[test]
fn numbers_of_a_definition_are_settled() {
    let api = server(Minor::V37);
    let number = json!({"type": "number", "default": 1.0, "enum": [1.0, 2.5]});
    let schema = json!({"type": "object", "properties": {"a": number}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "gears", "kind": "Gear"});
    let spec = json!({"group": "example.com", "names": names, "scope": "Cluster", "versions": [version]});
    let definition = json!({"metadata": {"name": "gears.example.com"}, "spec": spec});
    let line = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, answer) = send(&api, line, &definition);
    let a = &answer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"];
    assert_eq!(
        (code, a["default"].to_string(), a["enum"].to_string()),
        (201, "1".into(), "[1,2.5]".into())
    );
}

#[test]
fn names_in_backticks_came_with_a_version() {
    const EXPRESSION: &str = "object.metadata.labels.`a.b/c-d` == 'x'";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let policy = json!({
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": EXPRESSION}]},
    });
    let rule = json!({"rule": "!has(self.`a.b/c-d`) || self.`a.b/c-d` == 'x'"});
    let values = json!({"type": "string"});
    let spec = json!({"type": "object", "additionalProperties": values, "x-kubernetes-validations": [rule], "maxProperties": 9});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let definition = json!({
        "metadata": {"name": "gears.example.com"},
        "spec": {
            "group": "example.com", "names": {"plural": "gears", "kind": "Gear"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let policies = "POST /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let definitions = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (minor, code, said) in [(Minor::V36, 422, "unsupported syntax: '`'"), (Minor::V37, 201, "")] {
        let api = server(minor);
        check(&api, policies, &policy, code, said);
        check(&api, definitions, &definition, code, said);
    }
    let api = server(Minor::V37);
    check(&api, definitions, &definition, 201, "");
    let gear = |value: &str| {
        let spec = json!({"a.b/c-d": value});
        json!({"apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": value}, "spec": spec})
    };
    let gears = "POST /apis/example.com/v1/namespaces/default/gears";
    check(&api, gears, &gear("x"), 201, "");
    check(&api, gears, &gear("y"), 422, "failed rule: !has(self.`a.b/c-d`)");
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
