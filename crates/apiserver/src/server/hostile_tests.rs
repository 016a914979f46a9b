//! Requests that are made to cost more than they look: each must be answered, and cheaply.
//!
//! A row is one request with its budget: one that costs more is answered with 413. Costs are counted in steps of
//! [`kubewright_schema::budget`], so that they are the same everywhere. Requests that are refused as too costly stand
//! here too, with the limits of every request.

use kubewright_schema::budget::Limits;
use serde_json::{Value, json};

use super::tests::World;
use crate::UserInfo;

/// The budget of a request that should cost about as much as reading it.
const CHEAP: u64 = 1_000_000;
/// The budget of any request.
const ANY: u64 = Limits::REQUEST.steps;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Hostile {
    world: World,
}

impl Hostile {
    fn new() -> Hostile {
        Hostile { world: World::new() }
    }

    /// A request with a body, its code, and at most how many steps it costs; the answer's body.
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

/// Lists that kube-apiserver does not bound.
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

/// Every amount stands in three lists: those of containers without a default are the maximum.
#[test]
fn amounts_of_a_limit_are_compared_without_their_paths() {
    let hostile = Hostile::new();
    let amounts = |count: usize| -> Value {
        let amounts = (0..count).map(|index| (format!("example.org/r{index}"), json!("1")));
        amounts.collect::<serde_json::Map<_, _>>().into()
    };
    let line = "POST /api/v1/namespaces/default/limitranges";
    let range =
        json!({"metadata": {"name": "many"}, "spec": {"limits": [{"type": "Container", "max": amounts(12_000)}]}});
    let made = hostile.check("many amounts", line, &range, 201, CHEAP);
    let limit = &made["spec"]["limits"][0];
    assert_eq!(
        (&limit["default"], &limit["defaultRequest"]),
        (&limit["max"], &limit["max"])
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

/// A user who may write roles, and has one rule himself.
fn mallory(hostile: &Hostile) -> UserInfo {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": "writer"}, "rules": [
        {"verbs": ["create"], "apiGroups": [RBAC], "resources": ["roles"]},
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users", "groups"]},
        {"verbs": many(90, |index| format!("v{index}")), "apiGroups": ["*"], "resources": ["*"]},
    ]});
    let path = format!("POST /apis/{RBAC}/v1");
    hostile.check("role", &format!("{path}/clusterroles"), &role, 201, CHEAP);
    let binding = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "writer"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "writer"},
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "mallory"}]});
    hostile.check("binding", &format!("{path}/clusterrolebindings"), &binding, 201, CHEAP);
    UserInfo::authenticated("mallory", [])
}

/// A rule stands for each verb on each resource of each group by each name.
#[test]
fn rules_are_not_multiplied_out() {
    let hostile = Hostile::new();
    let mallory = mallory(&hostile);
    let texts = |prefix: &str, count: usize| many(count, |index| format!("{prefix}{index}"));
    let role = |verbs: Value, count: usize| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"generateName": "a"}, "rules": [
            {"verbs": verbs, "apiGroups": texts("g", count), "resources": texts("r", count), "resourceNames": texts("n", count)}
        ]})
    };
    let post = "POST /apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let check = |what: &str, role: &Value, code: u16| hostile.check_as(&mallory, what, post, role, code, CHEAP);
    check("held", &role(texts("v", 90), 90), 201);
    let refused = check("not held", &role(texts("w", 90), 90), 403);
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with("\nand more") && message.len() < 200_000,
        "{}",
        message.len()
    );
    check("many", &role(texts("v", 10_000), 10_000), 403);
    let held_in_part = texts("v", 91);
    check("one verb not held", &role(held_in_part, 40), 403);
    let rules = many(
        20_000,
        |_| json!({"verbs": ["w"], "apiGroups": ["g"], "resources": ["r"]}),
    );
    let mut rules_of_one = role(json!([]), 1);
    rules_of_one["rules"] = rules;
    check("many rules", &rules_of_one, 403);
}

#[test]
fn a_hundred_unknown_fields_are_told() {
    let hostile = Hostile::new();
    let mut map = config_map("unknown", &json!({}));
    for index in 0..20_000 {
        map[format!("u{index}")] = json!(1);
    }
    let post = format!("POST {MAPS}");
    hostile.check("dropped", &post, &map, 201, CHEAP);
    let status = hostile.check("strict", &format!("{post}?fieldValidation=Strict"), &map, 400, CHEAP);
    let message = status["message"].as_str().unwrap_or_default();
    assert_eq!(message.matches("unknown field").count(), 100);
    let patch = format!("PATCH {MAPS}/unknown?fieldValidation=Strict");
    hostile.check("strict patch", &patch, &map, 422, CHEAP);
}

/// A pod with a container `a` and additions to its spec.
fn pod(spec: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p"},
        "spec": {"containers": [{"name": "a", "image": "a"}]}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// Lists whose items are compared with each other.
#[test]
fn items_of_pods_are_not_compared_in_pairs() {
    const COUNT: usize = 3_000;
    let hostile = Hostile::new();
    let containers = |of_first: Value| {
        let mut first = json!({"name": "a", "image": "a"});
        for (key, value) in of_first.as_object().into_iter().flatten() {
            first[key] = value.clone();
        }
        json!([first])
    };
    let check = |what: &str, spec: &Value, code: u16| {
        hostile.check(
            what,
            "POST /api/v1/namespaces/default/pods",
            &pod(spec),
            code,
            2 * CHEAP,
        );
    };
    let named = |count: usize| many(count, |index| json!({"name": format!("n{index}"), "image": "a"}));
    let toleration = |index: usize| json!({"key": format!("k{index}"), "operator": "Exists", "effect": "NoExecute"});
    check("tolerations", &json!({"tolerations": many(COUNT, toleration)}), 201);
    check("containers", &json!({"containers": named(COUNT)}), 201);
    check("initContainers", &json!({"initContainers": named(COUNT)}), 201);
    let env = |index: usize| json!({"name": format!("N{index}"), "value": "$(N1)"});
    check(
        "env",
        &json!({"containers": containers(json!({"env": many(COUNT, env)}))}),
        201,
    );
    let same = |_: usize| json!({"name": "N", "value": "x"});
    check(
        "env twice",
        &json!({"containers": containers(json!({"env": many(COUNT, same)}))}),
        201,
    );
    let port = |index: usize| json!({"name": format!("p{index}"), "containerPort": 1 + index, "hostPort": 1 + index});
    check(
        "ports",
        &json!({"containers": containers(json!({"ports": many(COUNT, port)}))}),
        201,
    );
    let volume = |index: usize| json!({"name": format!("v{index}"), "emptyDir": {}});
    let mount = |index: usize| json!({"name": format!("v{index}"), "mountPath": format!("/v{index}")});
    let mounts = containers(json!({"volumeMounts": many(COUNT, mount)}));
    check(
        "volumes",
        &json!({"volumes": many(COUNT, volume), "containers": mounts}),
        201,
    );
    let gate = |index: usize| json!({"name": format!("g{index}")});
    check("schedulingGates", &json!({"schedulingGates": many(COUNT, gate)}), 201);
    let spread = |index: usize| {
        json!({"maxSkew": 1, "topologyKey": format!("k{index}"), "whenUnsatisfiable": "DoNotSchedule",
               "labelSelector": {"matchLabels": {"a": "b"}}})
    };
    check(
        "topologySpreadConstraints",
        &json!({"topologySpreadConstraints": many(COUNT, spread)}),
        201,
    );
    let alias = |index: usize| json!({"ip": "10.0.0.1", "hostnames": [format!("h{index}")]});
    check("hostAliases", &json!({"hostAliases": many(COUNT, alias)}), 201);
    let item = |index: usize| json!({"key": format!("k{index}"), "path": format!("p{index}")});
    let source = json!({"name": "v", "configMap": {"name": "m", "items": many(COUNT, item)}});
    check("items", &json!({"volumes": [source]}), 201);
    let claim = |index: usize| json!({"name": format!("c{index}"), "resourceClaimName": "r"});
    check("resourceClaims", &json!({"resourceClaims": many(COUNT, claim)}), 201);
}

/// As kube-apiserver 1.36 with etcd's limit of 1.5 MiB answers.
#[test]
fn what_is_stored_is_not_too_large() {
    let hostile = Hostile::new();
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "ws.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "ws", "kind": "W"}, "versions": [
            {"name": "v1", "served": true, "storage": true,
             "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let definitions = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    hostile.check("definition", definitions, &crd, 201, ANY);
    let path = "/apis/x.io/v1/namespaces/default/ws";
    let check = |name: &str, size: usize, code: u16, message: &str| {
        let object = json!({"apiVersion": "x.io/v1", "kind": "W", "metadata": {"name": name, "finalizers": ["x.io/a", "x.io/b"]},
            "spec": {"a": "x".repeat(size)}});
        let answer = hostile.check(name, &format!("POST {path}"), &object, code, ANY);
        let said = answer["message"].as_str().unwrap_or_default();
        assert!(said.starts_with(message), "{name}: {said}");
        answer
    };
    check("fits", 1_500_000, 201, "");
    let full = check("unmanaged", 3 * 512 * 1024 - 400, 201, "");
    assert_eq!(
        full["metadata"]["managedFields"],
        Value::Null,
        "they are given up first"
    );
    check("large", 1_600_000, 500, "etcdserver: request is too large");
    let larger = "rpc error: code = ResourceExhausted desc = trying to send message larger than max (";
    check("larger", 2_500_000, 500, larger);
    let patch = |what: &str, patch: Value, code: u16| {
        hostile.check(what, &format!("PATCH {path}/unmanaged"), &patch, code, ANY);
    };
    patch("grow", json!({"spec": {"b": "y".repeat(100_000)}}), 500);
    hostile.check("delete", &format!("DELETE {path}/unmanaged"), &Value::Null, 200, ANY);
    patch("one less", json!({"metadata": {"finalizers": ["x.io/a"]}}), 200);
    patch("none", json!({"metadata": {"finalizers": null}}), 200);
    hostile.check("gone", &format!("GET {path}/unmanaged"), &Value::Null, 404, ANY);
}

/// As kube-apiserver 1.36.3 with etcd's own limit answers. Without their entries, the fields of all managers would
/// belong to the last one.
#[test]
fn an_apply_that_is_too_large_takes_no_fields_from_others() {
    let hostile = Hostile::new();
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/shared";
    let apply = |manager: &str, labels: Value, code: u16| {
        let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "shared", "labels": labels}});
        let line = format!("PATCH {path}?force=true&fieldManager={manager}");
        let headers = [("content-type", "application/apply-patch+yaml")];
        let world = &hostile.world;
        let answer = world.send_within(Limits::REQUEST, &line, &headers, object.to_string(), UserInfo::admin());
        assert_eq!(answer.code, code, "{manager}: {}", answer.body["message"]);
        answer.body
    };
    let fill = |what: &str, size: usize| {
        let rule =
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["y".repeat(size)]});
        hostile.check(what, &format!("PATCH {path}"), &json!({"rules": [rule]}), 200, ANY)
    };
    let managers = |object: &Value| object["metadata"]["managedFields"].as_array().map(Vec::len);
    let wide: Value = (0..5)
        .map(|index| (format!("{}{index}", "c".repeat(60)), json!("v".repeat(60))))
        .collect::<serde_json::Map<_, _>>()
        .into();
    apply("first", json!({"a": "v"}), 201);
    fill("nearly full", 3 * 512 * 1024 - 700);
    let full = apply("second", json!({"b": "v"}), 200);
    assert_eq!(managers(&full), Some(3));
    let refused = apply("third", wide.clone(), 500);
    assert_eq!(refused["message"], "etcdserver: request is too large");
    let read = hostile.check("read", &format!("GET {path}"), &Value::Null, 200, ANY);
    assert_eq!(read, full);
    // It may still be written, and applied where it fits.
    apply("first", json!({"d": "v"}), 200);
    assert_eq!(managers(&fill("little", 1)), Some(3));
    assert_eq!(managers(&apply("third", wide, 200)), Some(4));
    hostile.check("delete", &format!("DELETE {path}"), &Value::Null, 200, ANY);
}

/// One column that explodes does not take the list away from its readers, nor the other cells.
#[test]
fn a_column_that_explodes_is_cut() {
    let hostile = Hostile::new();
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    // Each of the unions finds the same value ten times.
    let much = format!(".spec.deep{}", "['k','k','k','k','k','k','k','k','k','k']".repeat(8));
    let crd = json!({"metadata": {"name": "ws.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
        "names": {"plural": "ws", "kind": "W"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "additionalPrinterColumns": [column("Much", &much), column("Little", ".spec.n")],
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let definitions = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    hostile.check("definition", definitions, &crd, 201, ANY);
    let path = "/apis/x.io/v1/namespaces/default/ws";
    let deep = (0..8).fold(json!("x"), |below, _| json!({"k": below}));
    const OBJECTS: usize = 60;
    for at in 0..OBJECTS {
        let object = json!({"apiVersion": "x.io/v1", "kind": "W", "metadata": {"name": format!("w{at}")},
            "spec": {"n": "seen", "deep": deep}});
        hostile.check("create", &format!("POST {path}"), &object, 201, ANY);
    }
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let line = format!("GET {path}");
    let answer = hostile
        .world
        .send_within(Limits::REQUEST, &line, &accept, String::new(), UserInfo::admin());
    assert_eq!(answer.code, 200, "{}", answer.body["message"]);
    let rows = answer.body["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), OBJECTS);
    for row in rows {
        assert_eq!(row["cells"][1], "<too large>");
        assert_eq!(row["cells"][2], "seen");
    }
}

/// Upstream's word for a slice that is too long comes before ours for a request that costs too much.
#[test]
fn a_slice_of_endpoints_is_told_that_it_is_too_long() {
    let hostile = Hostile::new();
    let check = |count: usize, code: u16| {
        let endpoints = many(count, |_| json!({"addresses": ["10.0.0.1"]}));
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("s{count}")}, "addressType": "IPv4", "endpoints": endpoints});
        let path = "POST /apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        hostile.check("slice", path, &slice, code, ANY)
    };
    check(1_000, 201);
    for count in [1_001, 20_000] {
        let cause = check(count, 422)["details"]["causes"][0].clone();
        let why = format!("Too many: {count}: must have at most 1000 items");
        assert_eq!(
            cause,
            json!({"reason": "FieldValueTooMany", "message": why, "field": "endpoints"})
        );
    }
}

/// Its size is not charged to the client that reads it.
#[test]
fn the_document_of_all_kinds_is_answered_to_everybody() {
    let hostile = Hostile::new();
    let little = Limits {
        steps: 20_000,
        bytes: 1_000,
    };
    for form in [
        "application/json",
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    ] {
        let headers = [("accept", form)];
        let world = &hostile.world;
        let answer = world.send_within(little, "GET /openapi/v2", &headers, "", UserInfo::admin());
        assert_eq!(answer.code, 200, "{form}: {}", answer.body);
    }
}

/// The largest that kube-apiserver 1.36.3 kept with etcd's own limit, and one byte more.
#[test]
fn built_in_objects_are_as_large_as_in_etcd() {
    let hostile = Hostile::new();
    let too_large = "etcdserver: request is too large";
    let check = |path: &str, object: Value, code: u16, message: &str| {
        let answer = hostile.check(path, &format!("POST {path}"), &object, code, ANY);
        let said = answer["message"].as_str().unwrap_or_default();
        assert!(said.starts_with(message), "{path}: {said}");
    };
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = |size: usize| {
        let rule =
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["y".repeat(size)]});
        json!({"metadata": {"name": format!("longer-name-r{size}")}, "rules": [rule]})
    };
    check(roles, role(1_572_577), 201, "");
    check(roles, role(1_572_578), 500, too_large);
    let sent = "rpc error: code = ResourceExhausted desc = trying to send message larger than max (";
    check(roles, role(2_200_000), 500, sent);
    // Short names are shorter in protobuf than in JSON, whose limit does not count.
    let names: Vec<String> = (0..15_417).map(|_| "y".repeat(100)).chain(["z".repeat(81)]).collect();
    let many = json!({"metadata": {"name": "r1541781"}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": names}]});
    check(roles, many, 201, "");
}

/// A finalizer that one endpoint accepts and another refuses would leave an object that cannot be changed or deleted.
#[test]
fn finalizers_of_a_namespace_have_names_on_every_way() {
    let hostile = Hostile::new();
    let namespace = |finalizer: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spec": {"finalizers": [finalizer]}});
    let check = |line: &str, finalizer: &str, code, field: &str| {
        let answer = hostile.check(line, line, &namespace(finalizer), code, CHEAP);
        assert_eq!(
            answer["details"]["causes"][0]["field"].as_str().unwrap_or(""),
            field,
            "{answer}"
        );
    };
    check("POST /api/v1/namespaces", "1Gi", 422, "spec.finalizers");
    check("POST /api/v1/namespaces", "kubernetes", 201, "");
    check("PUT /api/v1/namespaces/a/finalize", "1Gi", 422, "spec.finalizers[0]");
    check("PUT /api/v1/namespaces/a/finalize", "a b", 422, "spec.finalizers[0]");
    check("PUT /api/v1/namespaces/a/finalize", "example.com/a", 200, "");
}
