//! The injection into pods, case by case.

use kubewright::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

fn set(name: &str, spec: Value) -> SidecarSet {
    SidecarSet::new(name, serde_json::from_value(spec).expect("a spec"))
}

fn pod(spec: Value) -> Pod {
    let metadata = json!({"name": "p", "labels": {"cName": "main"}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
}

fn now() -> Time {
    Time(Timestamp::UNIX_EPOCH)
}

/// Injects into a pod of this spec, twice, and compares its spec.
fn check(what: &str, spec: Value, sets: &[SidecarSet], expected: Value) {
    let mut pod = pod(spec);
    let sets: Vec<&SidecarSet> = sets.iter().collect();
    inject(&mut pod, &sets, &now()).expect(what);
    assert_eq!(serde_json::to_value(pod.spec.clone()).expect(what), expected, "{what}");
    let once = pod.clone();
    let later = Time(Timestamp::from_second(60).expect("a time"));
    inject(&mut pod, &sets, &later).expect(what);
    assert_eq!(pod, once, "{what}: a second injection changes nothing");
}

fn marked(mut container: Value) -> Value {
    let env = container["env"].as_array().cloned().unwrap_or_default();
    let own = env.into_iter().chain([json!({"name": "IS_INJECTED", "value": "true"})]);
    container["env"] = own.collect();
    container
}

#[test]
fn containers_stand_before_and_after_the_pods_own() {
    let main = json!({"name": "main", "image": "main:1"});
    let first = json!({"name": "first", "image": "a:1"});
    let last = json!({"name": "last", "image": "b:1"});
    let with = |container: &Value, policy: &str| {
        let mut container = container.clone();
        container["podInjectPolicy"] = json!(policy);
        container
    };
    let both = set(
        "both",
        json!({"containers": [with(&last, "AfterAppContainer"), with(&first, "BeforeAppContainer")]}),
    );
    check(
        "one set",
        json!({"containers": [main]}),
        &[both],
        json!({"containers": [marked(first.clone()), main, marked(last.clone())]}),
    );
    check(
        "two sets, in their order",
        json!({"containers": [main]}),
        &[
            set("a", json!({"containers": [first]})),
            set("b", json!({"containers": [last]})),
        ],
        json!({"containers": [marked(first.clone()), marked(last.clone()), main]}),
    );
    check(
        "a container of the same name is replaced where it stands",
        json!({"containers": [main, {"name": "first", "image": "own:1"}]}),
        &[set("a", json!({"containers": [first]}))],
        json!({"containers": [main, marked(first.clone())]}),
    );
    check(
        "no set",
        json!({"containers": [main]}),
        &[],
        json!({"containers": [main]}),
    );
}

#[test]
fn init_containers_are_appended_by_name() {
    let sets = [set(
        "s",
        json!({"initContainers": [{"name": "z", "image": "z"}, {"name": "a", "image": "a"}]}),
    )];
    let (a, z) = (
        marked(json!({"name": "a", "image": "a"})),
        marked(json!({"name": "z", "image": "z"})),
    );
    let own = json!({"name": "m", "image": "m"});
    check(
        "appended",
        json!({"containers": [own], "initContainers": [own]}),
        &sets,
        json!({"containers": [own], "initContainers": [own, a, z]}),
    );
}

#[test]
fn volumes_come_when_they_are_mounted_and_paths_are_shared() {
    let mounts = json!([{"name": "log", "mountPath": "/log"}]);
    let volumes = json!([{"name": "log", "emptyDir": {}}, {"name": "unused", "emptyDir": {}}]);
    let shared = json!({"type": "enabled"});
    let sidecar = json!({"name": "s", "image": "s", "volumeMounts": mounts, "shareVolumePolicy": shared});
    let sets = [set("s", json!({"containers": [sidecar], "volumes": volumes}))];
    let data = json!({"name": "data", "mountPath": "/data", "subPathExpr": "$(POD)"});
    let own_log = json!({"name": "own", "mountPath": "/log"});
    let env = json!([{"name": "POD", "value": "p"}, {"name": "OTHER", "value": "o"}]);
    let main = json!({"name": "main", "image": "m", "env": env, "volumeMounts": [data, own_log]});
    let injected = json!({
        "name": "s", "image": "s", "volumeMounts": [mounts[0], data],
        "env": [{"name": "IS_INJECTED", "value": "true"}, {"name": "POD", "value": "p"}],
    });
    check(
        "only what is mounted is added, only free paths are shared",
        json!({"containers": [main], "volumes": [{"name": "data", "emptyDir": {}}]}),
        &sets,
        json!({"containers": [injected, main], "volumes": [{"name": "data", "emptyDir": {}}, volumes[0]]}),
    );
    let own = json!({"name": "log", "hostPath": {"path": "/var/log"}});
    check(
        "the pod's own volume wins",
        json!({"containers": [], "volumes": [own]}),
        &sets,
        json!({
            "containers": [marked(json!({"name": "s", "image": "s", "volumeMounts": mounts}))],
            "volumes": [own],
        }),
    );
}

#[test]
fn variables_are_taken_over_as_they_are() {
    let from = |path: &str| json!({"sourceContainerNameFrom": {"fieldRef": {"fieldPath": path}}, "envNames": ["NODE", "NONE"]});
    let transfer = json!([
        {"sourceContainerName": "main", "envName": "PROXY_IP"},
        from("metadata.labels['cName']"),
        from("metadata.annotations['absent']"),
        {"sourceContainerName": "absent", "envName": "X"},
        {"sourceContainerName": "main", "envName": "MINE"},
    ]);
    let sidecar = json!({
        "name": "s", "image": "s", "transferEnv": transfer, "env": [{"name": "MINE", "value": "mine"}],
    });
    let node = json!({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
    let proxy = json!({"name": "PROXY_IP", "value": "10.0.0.1"});
    let main = json!({"name": "main", "image": "m", "env": [proxy, node, {"name": "MINE", "value": "theirs"}]});
    let env = json!([{"name": "MINE", "value": "mine"}, {"name": "IS_INJECTED", "value": "true"}, proxy, node]);
    check(
        "by name and by label; what is not there is left out",
        json!({"containers": [main]}),
        &[set("s", json!({"containers": [sidecar]}))],
        json!({"containers": [{"name": "s", "image": "s", "env": env}, main]}),
    );
}

#[test]
fn secrets_are_appended_once() {
    check(
        "by name",
        json!({"containers": [], "imagePullSecrets": [{"name": "own"}]}),
        &[set(
            "s",
            json!({"imagePullSecrets": [{"name": "own"}, {"name": "more"}]}),
        )],
        json!({"containers": [], "imagePullSecrets": [{"name": "own"}, {"name": "more"}]}),
    );
}

#[test]
fn the_pod_says_what_it_was_given() {
    let sets = [
        set("b", json!({"containers": [{"name": "s"}]})),
        set("a", json!({"containers": [{"name": "t"}]})),
    ];
    let mut pod = pod(json!({"containers": []}));
    inject(&mut pod, &sets.iter().collect::<Vec<_>>(), &now()).expect("records");
    assert_eq!(record::injected(&pod), ["a", "b"]);
    assert_eq!(record::hashes(&pod, "b"), Some(hash::of(&sets[0].spec)));
    let records = record::map_of::<Value>(&pod, hash::HASH);
    assert_eq!(records["b"]["sidecarList"], json!(["s"]));
    assert_eq!(records["b"]["updateTimestamp"], "1970-01-01T00:00:00Z");
    assert_eq!(records["b"]["controllerRevision"], json!(hash::revision(&sets[0])));
    let without = record::map_of::<Value>(&pod, hash::HASH_WITHOUT_IMAGE);
    assert_eq!(without["b"]["controllerRevision"], Value::Null);
}
