//! The metrics API as its clients see it, of a cluster with a scripted meter.

use std::time::Duration;

use futures::FutureExt as _;
use kubewright_schema::protobuf;
use serde_json::{Value, json};

use crate::UserInfo;
use crate::meter::{Measured, Meter, Used};
use crate::server::tests::World;
use crate::server::{Config, Weight};

const BASE: &str = "/apis/metrics.k8s.io/v1beta1";

/// Each container uses the amount that its pod states; pods that state none have no figures.
struct Said;

impl Meter for Said {
    fn pod(&self, pod: &Value) -> Option<Measured> {
        let used = pod.pointer("/metadata/annotations/used")?.as_str()?;
        let containers = used.split(' ').map(|one| {
            let mut words = one.split(':');
            let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            let (cpu, memory) = (number(), number());
            Used {
                container: format!("c{cpu}"),
                cpu,
                memory,
            }
        });
        Some(Measured {
            window: Duration::from_millis(12_500),
            ago: Duration::from_secs(3),
            containers: containers.collect(),
        })
    }
}

fn world() -> World {
    let world = World::of(Config::default(), |parts| parts.meter = Some(std::sync::Arc::new(Said)));
    let must = |line: &str, body: &Value| {
        let answer = world.call(line, body);
        assert!(answer.code < 300, "{line}: {}", answer.body);
    };
    for (name, ready) in [("n1", "True"), ("n2", "False"), ("silent", "Unknown")] {
        let labels = json!({"kubernetes.io/hostname": name});
        let node = json!({"metadata": {"name": name, "labels": labels}});
        must("POST /api/v1/nodes", &node);
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        must(&format!("PATCH /api/v1/nodes/{name}/status"), &status);
    }
    must("POST /api/v1/namespaces", &json!({"metadata": {"name": "a-b"}}));
    must("POST /api/v1/namespaces", &json!({"metadata": {"name": "a"}}));
    for (namespace, name, node, phase, used) in [
        ("a-b", "x", "n1", "Running", "2000000:1048576"),
        ("a", "web", "n1", "Running", "250000000:2097152 1234567:100"),
        ("a", "db", "n2", "Running", "1000000000:1073741824"),
        ("a", "new", "n1", "Pending", "1:1"),
        ("a", "unknown", "n1", "Running", ""),
        ("a", "lost", "silent", "Running", "5:5"),
    ] {
        let annotations = match used {
            "" => json!({}),
            used => json!({"used": used}),
        };
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let metadata = json!({"name": name, "labels": {"app": name}, "annotations": annotations});
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
        must(&format!("POST {pods}"), &json!({"metadata": metadata, "spec": spec}));
        must(
            &format!("PATCH {pods}/{name}/status"),
            &json!({"status": {"phase": phase}}),
        );
    }
    world
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    items
        .map(|item| {
            format!(
                "{}/{}",
                text(&item["metadata"]["namespace"]),
                text(&item["metadata"]["name"])
            )
        })
        .collect()
}

#[test]
fn what_discovery_says() {
    let world = world();
    let get = |path: &str| world.call(&format!("GET {path}"), &Value::Null);
    let of = |name: &str, namespaced: bool, kind: &str| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]});
    let resources = json!([of("nodes", false, "NodeMetrics"), of("pods", true, "PodMetrics")]);
    let expected = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": resources});
    assert_eq!(get(BASE).body, expected);
    let groups = get("/apis").body;
    let last = groups["groups"]
        .as_array()
        .and_then(|groups| groups.last())
        .expect("there are groups");
    assert_eq!(last["name"], "metrics.k8s.io");
    let aggregated = [(
        "accept",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    )];
    let found = world.send("GET /apis", &aggregated, "", UserInfo::admin()).body;
    let last = found["items"]
        .as_array()
        .and_then(|items| items.last())
        .expect("there are groups");
    let pods = &last["versions"][0]["resources"][1];
    assert_eq!(
        (&pods["resource"], &pods["responseKind"]["kind"], &pods["scope"]),
        (&json!("pods"), &json!("PodMetrics"), &json!("Namespaced"))
    );
    // A definition changes nothing about it.
    let definition = json!({"metadata": {"name": "as.ex.io"}, "spec": {"group": "ex.io", "scope": "Cluster",
        "names": {"plural": "as", "kind": "A"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    world.call(
        "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &definition,
    );
    assert_eq!(get(BASE).body, expected);
    let groups = get("/apis").body;
    let groups: Vec<&Value> = groups["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .rev()
        .take(2)
        .collect();
    assert_eq!(
        (&groups[0]["name"], &groups[1]["name"]),
        (&json!("metrics.k8s.io"), &json!("ex.io"))
    );
}

#[test]
fn a_server_that_measures_nothing_does_not_serve_it() {
    let with = world();
    let path = format!("/openapi/v3{BASE}");
    let v2 = |world: &World| world.send("GET /openapi/v2", &[], "", UserInfo::admin()).body;
    assert_eq!(with.call(&format!("GET {path}"), &Value::Null).code, 200);
    assert!(v2(&with)["definitions"]["io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"].is_object());
    let world = World::new();
    for path in [BASE, "/apis/metrics.k8s.io", &path, &format!("{BASE}/pods")] {
        assert_eq!(world.call(&format!("GET {path}"), &Value::Null).code, 404, "{path}");
    }
    assert!(v2(&world)["definitions"]["io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"].is_null());
}

#[test]
fn what_documents_say() {
    let world = world();
    let document = world.call(&format!("GET /openapi/v3{BASE}"), &Value::Null).body;
    let paths: Vec<&String> = document["paths"].as_object().expect("paths").keys().collect();
    let expected = [
        "/",
        "/namespaces/{namespace}/pods",
        "/namespaces/{namespace}/pods/{name}",
        "/nodes",
        "/nodes/{name}",
        "/pods",
    ];
    assert_eq!(
        paths,
        expected.map(|path| format!("{BASE}{path}")).iter().collect::<Vec<_>>()
    );
    let list = &document["paths"][format!("{BASE}/nodes")]["get"];
    assert_eq!(list["operationId"], "listMetricsV1beta1NodeMetrics");
    let schemas = &document["components"]["schemas"];
    let metrics = "io.k8s.metrics.pkg.apis.metrics.v1beta1";
    assert_eq!(
        schemas[format!("{metrics}.PodMetrics")]["required"],
        json!(["timestamp", "window", "containers"])
    );
    assert!(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Duration"].is_object());
}

#[test]
fn pods() {
    let world = world();
    let get = |path: &str| world.call(&format!("GET {BASE}{path}"), &Value::Null);
    let lists = |path: &str, expected: &[&str]| assert_eq!(names(&get(path).body), expected, "{path}");
    lists("/pods", &["a/db", "a/web", "a-b/x"]);
    lists("/namespaces/a/pods", &["a/db", "a/web"]);
    lists("/namespaces/a/pods?labelSelector=app%3Ddb", &["a/db"]);
    lists("/pods?labelSelector=app%20notin%20(db)", &["a/web", "a-b/x"]);
    lists("/pods?fieldSelector=metadata.name%3Dx", &["a-b/x"]);
    lists("/namespaces/none/pods", &[]);
    let web = get("/namespaces/a/pods/web").body;
    let used = |name: &str, cpu: &str, memory: &str| json!({"name": name, "usage": {"cpu": cpu, "memory": memory}});
    let containers = [used("c250000000", "250m", "2Mi"), used("c1234567", "1234567n", "100")];
    assert_eq!(web["containers"], json!(containers));
    assert_eq!(
        (&web["kind"], &web["apiVersion"]),
        (&json!("PodMetrics"), &json!("metrics.k8s.io/v1beta1"))
    );
    assert_eq!(
        (&web["window"], &web["metadata"]["labels"]),
        (&json!("12.5s"), &json!({"app": "web"}))
    );
    let seconds = |time: &Value| {
        time.as_str()
            .and_then(|time| time.parse::<jiff::Timestamp>().ok())
            .map(jiff::Timestamp::as_second)
    };
    let (now, then) = (
        seconds(&web["metadata"]["creationTimestamp"]),
        seconds(&web["timestamp"]),
    );
    assert_eq!(now.zip(then).map(|(now, then)| now - then), Some(3));
    let missing = |name: &str, expected: &str| {
        let answer = get(&format!("/namespaces/a/pods/{name}"));
        assert_eq!((answer.code, &answer.body["message"]), (404, &json!(expected)));
    };
    missing("nobody", "pods \"nobody\" not found");
    missing("new", "pods \"new\" not found");
    missing("unknown", "podmetrics.metrics.k8s.io \"a/unknown\" not found");
    missing("lost", "podmetrics.metrics.k8s.io \"a/lost\" not found");
}

#[test]
fn nodes() {
    let world = world();
    let get = |path: &str| world.call(&format!("GET {BASE}{path}"), &Value::Null);
    let list = get("/nodes").body;
    assert_eq!(names(&list), ["/n1", "/n2"]);
    assert_eq!(
        (&list["kind"], &list["metadata"]),
        (&json!("NodeMetricsList"), &json!({}))
    );
    assert_eq!(
        names(&get("/nodes?labelSelector=kubernetes.io/hostname%3Dn2").body),
        ["/n2"]
    );
    let sum = json!({"cpu": "253234567n", "memory": "3145828"});
    assert_eq!(get("/nodes/n1").body["usage"], sum);
    assert_eq!(list["items"][0]["usage"], sum);
    let missing = |name: &str, expected: &str| {
        let answer = get(&format!("/nodes/{name}"));
        assert_eq!((answer.code, &answer.body["message"]), (404, &json!(expected)));
    };
    missing("nobody", "node \"nobody\" not found");
    missing("silent", "nodemetrics.metrics.k8s.io \"silent\" not found");
    world.call(
        "DELETE /api/v1/namespaces/a/pods/web?gracePeriodSeconds=0",
        &Value::Null,
    );
    world.call(
        "DELETE /api/v1/namespaces/a-b/pods/x?gracePeriodSeconds=0",
        &Value::Null,
    );
    let idle = get("/nodes/n1").body;
    assert_eq!(
        (&idle["usage"], &idle["window"]),
        (&json!({"cpu": "0", "memory": "0"}), &json!("15s"))
    );
}

#[test]
fn other_forms() {
    let world = world();
    let with = |path: &str, accept: &str| {
        world.send(
            &format!("GET {BASE}{path}"),
            &[("accept", accept)],
            "",
            UserInfo::admin(),
        )
    };
    let table = with("/namespaces/a/pods", "application/json;as=Table;g=meta.k8s.io;v=v1").body;
    let headers: Vec<&Value> = table["columnDefinitions"]
        .as_array()
        .expect("columns")
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(headers, ["Name", "cpu", "memory", "Window"]);
    assert_eq!(
        table["rows"][1]["cells"],
        json!(["web", "251234567n", "2097252", "12.5s"])
    );
    let nodes = with("/nodes", "application/json;as=Table;g=meta.k8s.io;v=v1").body;
    assert_eq!(nodes["rows"][1]["cells"], json!(["n2", "1", "1Gi", "12.5s"]));
}

#[test]
fn what_is_not_there() {
    let world = world();
    let check = |line: &str, code: u16, message: &str| {
        let answer = world.call(line, &json!({}));
        assert_eq!(
            (answer.code, answer.body["message"].as_str()),
            (code, Some(message)),
            "{line}"
        );
    };
    let not_allowed = "the server does not allow this method on the requested resource";
    check(&format!("POST {BASE}/namespaces/a/pods"), 405, not_allowed);
    check(&format!("DELETE {BASE}/nodes/n1"), 405, not_allowed);
    check(
        &format!("GET {BASE}/pods?watch=true"),
        405,
        "watch is not supported on resources of kind \"pods.metrics.k8s.io\"",
    );
    check(
        &format!("GET {BASE}/pods?fieldSelector=spec.nodeName%3Dn1"),
        400,
        "\"spec.nodeName\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
    );
}

#[test]
fn users_that_may_read() {
    let world = world();
    let anna = || UserInfo {
        name: "anna".to_owned(),
        ..UserInfo::default()
    };
    let line = format!("GET {BASE}/namespaces/a/pods");
    let refused = world.send(&line, &[], "", anna());
    let expected = "pods.metrics.k8s.io is forbidden: User \"anna\" cannot list resource \"pods\" in API group \"metrics.k8s.io\" in the namespace \"a\"";
    assert_eq!((refused.code, &refused.body["message"]), (403, &json!(expected)));
    let rules = json!([{"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "reader"}, "rules": rules});
    world.call("POST /apis/rbac.authorization.k8s.io/v1/namespaces/a/roles", &role);
    let to = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"});
    let whom = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "anna"}]);
    let binding = json!({"metadata": {"name": "anna"}, "roleRef": to, "subjects": whom});
    world.call(
        "POST /apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings",
        &binding,
    );
    assert_eq!(world.send(&line, &[], "", anna()).code, 200);
}

/// The APIService of the group is available, so that an installation of metrics-server sees the group as served.
#[test]
fn the_api_service_is_available() {
    let world = world();
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let mut spec =
        json!({"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100});
    let metadata = json!({"name": "v1beta1.metrics.k8s.io"});
    let reason = |spec: &Value| {
        let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec});
        let made = world.call(&format!("POST {services}"), &service);
        assert_eq!(made.code, 201, "{}", made.body);
        let found = world
            .call(&format!("GET {services}/v1beta1.metrics.k8s.io"), &Value::Null)
            .body;
        world.call(&format!("DELETE {services}/v1beta1.metrics.k8s.io"), &Value::Null);
        let condition = &found["status"]["conditions"][0];
        (condition["status"].clone(), condition["reason"].clone())
    };
    assert_eq!(reason(&spec), (json!("True"), json!("Local")));
    spec["service"] = json!({"namespace": "kube-system", "name": "metrics-server"});
    spec["insecureSkipTLSVerify"] = json!(true);
    assert_eq!(reason(&spec), (json!("True"), json!("Passed")));
    assert_eq!(
        names(&world.call(&format!("GET {BASE}/nodes"), &Value::Null).body),
        ["/n1", "/n2"]
    );
}

/// The figures of many pods are read on a thread where no other request waits.
#[test]
fn many_pods_are_heavy() {
    let world = world();
    let check = |path: &str, expected: Weight| {
        let request = http::Request::get(format!("{BASE}{path}")).body(()).expect("a request");
        let (head, ()) = request.into_parts();
        let admitted = world
            .api
            .admit(&head, UserInfo::admin())
            .now_or_never()
            .expect("no waiting");
        let admitted = admitted.unwrap_or_else(|_| panic!("{path} is refused"));
        assert_eq!(world.api.weight(&admitted, 0), expected, "{path}");
    };
    check("/pods", Weight::Light);
    for number in 0..500 {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"metadata": {"name": format!("p{number}")}, "spec": spec});
        assert_eq!(world.call("POST /api/v1/namespaces/a/pods", &pod).code, 201);
    }
    check("/pods", Weight::Heavy);
    check("/nodes", Weight::Heavy);
    check("/nodes/n1", Weight::Heavy);
}

#[test]
fn protobuf_says_the_same() {
    let pods = json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": {"name": "p", "namespace": "d"},
        "timestamp": "2026-01-01T00:00:00Z", "window": "15s",
        "containers": [{"name": "c", "usage": {"cpu": "250m", "memory": "1Mi"}}]});
    let bytes = protobuf::encode(&pods).expect("it is known");
    let decoded = protobuf::decode(&bytes).expect("its own words");
    assert_eq!(decoded.value, pods);
}
