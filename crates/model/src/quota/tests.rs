//! Usages and refusals, as data.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Evaluator, Write, to_value};
use crate::Operation;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn container(name: &str, requests: Value, limits: Value) -> Value {
    json!({"name": name, "resources": {"requests": requests, "limits": limits}})
}

#[test]
fn usages() {
    let check = |plural: &str, object: Value, want: Value| {
        let evaluator = Evaluator::of("", plural).expect("it is counted");
        assert_eq!(to_value(&evaluator.usage(&object, now())), want, "{object}");
    };
    let empty = || json!({});
    check(
        "pods",
        pod(json!({"containers": [{"name": "c"}]})),
        json!({"count/pods": "1", "pods": "1"}),
    );
    // Containers that run together are added up, those that run before are not.
    check(
        "pods",
        pod(json!({
            "initContainers": [
                container("first", json!({"cpu": "3", "memory": "1Mi"}), empty()),
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
                container("second", json!({"cpu": "1"}), empty()),
            ],
            "containers": [
                container("a", json!({"cpu": "1"}), json!({"cpu": "2", "memory": "1Gi"})),
                container("b", json!({"cpu": "500m", "ephemeral-storage": "1Gi"}), empty()),
            ],
            "overhead": {"cpu": "100m", "memory": "1Mi"},
        })),
        json!({"count/pods": "1", "pods": "1", "cpu": "3100m", "requests.cpu": "3100m", "limits.cpu": "2100m",
            "memory": "2Mi", "requests.memory": "2Mi", "limits.memory": "1025Mi",
            "ephemeral-storage": "1Gi", "requests.ephemeral-storage": "1Gi"}),
    );
    check(
        "pods",
        pod(
            json!({"containers": [container("c", json!({"ex.com/g": "2", "hugepages-2Mi": "4Mi", "kubernetes.io/x": "1"}), json!({"ex.com/g": "2"}))]}),
        ),
        json!({"count/pods": "1", "pods": "1", "requests.ex.com/g": "2", "hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi"}),
    );
    check(
        "pods",
        pod(
            json!({"containers": [container("c", json!({"cpu": "1"}), empty())], "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}}),
        ),
        json!({"count/pods": "1", "pods": "1", "cpu": "3", "requests.cpu": "3", "limits.cpu": "4"}),
    );
    // A resize downwards counts once it is done.
    let mut resized = pod(json!({"containers": [container("c", json!({"cpu": "1"}), empty())]}));
    resized["status"] = json!({"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "3"}}}]});
    check(
        "pods",
        resized,
        json!({"count/pods": "1", "pods": "1", "cpu": "3", "requests.cpu": "3"}),
    );
    let over =
        |status: Value, metadata: Value| json!({"metadata": metadata, "spec": {"containers": []}, "status": status});
    check(
        "pods",
        over(json!({"phase": "Failed"}), empty()),
        json!({"count/pods": "1"}),
    );
    let late = json!({"deletionTimestamp": "2025-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30});
    check("pods", over(empty(), late), json!({"count/pods": "1"}));
    let going = json!({"deletionTimestamp": "2025-12-31T23:59:45Z", "deletionGracePeriodSeconds": 30});
    check("pods", over(empty(), going), json!({"count/pods": "1", "pods": "1"}));

    let service = |spec: Value, ports: &str, balancers: &str| {
        let want = json!({"services": "1", "count/services": "1", "services.nodeports": ports, "services.loadbalancers": balancers});
        check("services", json!({ "spec": spec }), want);
    };
    let ports = || json!([{"port": 1, "nodePort": 30001}, {"port": 2}]);
    service(json!({"type": "ClusterIP", "ports": ports()}), "0", "0");
    service(json!({"type": "NodePort", "ports": ports()}), "2", "0");
    service(json!({"type": "LoadBalancer", "ports": ports()}), "2", "1");
    service(
        json!({"type": "LoadBalancer", "ports": ports(), "allocateLoadBalancerNodePorts": false}),
        "1",
        "1",
    );

    let claim = |size: &str, given: Value| {
        json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": size}}},
            "status": {"allocatedResources": given}})
    };
    let claimed = |size: &str| {
        json!({"persistentvolumeclaims": "1", "count/persistentvolumeclaims": "1", "requests.storage": size,
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
            "gold.storageclass.storage.k8s.io/requests.storage": size})
    };
    check("persistentvolumeclaims", claim("1500m", empty()), claimed("2"));
    check(
        "persistentvolumeclaims",
        claim("1Gi", json!({"storage": "5Gi"})),
        claimed("5Gi"),
    );
    check(
        "persistentvolumeclaims",
        claim("6Gi", json!({"storage": "5Gi"})),
        claimed("6Gi"),
    );
    check("secrets", empty(), json!({"secrets": "1", "count/secrets": "1"}));
    let boats = Evaluator::of("ex.io", "boats").expect("it is counted");
    assert_eq!(
        to_value(&boats.usage(&empty(), now())),
        json!({"count/boats.ex.io": "1"})
    );
    assert_eq!(Evaluator::of("events.k8s.io", "events"), None);
}

#[test]
fn names_that_are_counted() {
    let check = |plural: &str, name: &str, want: bool| {
        let evaluator = Evaluator::of("", plural).expect("it is counted");
        assert_eq!(evaluator.counts(name), want, "{plural} {name}");
    };
    for (name, want) in [
        ("pods", true),
        ("count/pods", true),
        ("limits.memory", true),
        ("requests.ephemeral-storage", true),
        ("hugepages-1Gi", true),
        ("requests.hugepages-1Gi", true),
        ("requests.ex.com/g", true),
        ("ex.com/g", false),
        ("requests.storage", false),
        ("services", false),
    ] {
        check("pods", name, want);
    }
    check("persistentvolumeclaims", "requests.storage", true);
    check(
        "persistentvolumeclaims",
        "a.b.storageclass.storage.k8s.io/requests.storage",
        true,
    );
    check("persistentvolumeclaims", "a.storageclass.storage.k8s.io/x", false);
    check("persistentvolumeclaims", "storage", false);
    check("configmaps", "count/secrets", false);
}

#[test]
fn scopes() {
    let check = |plural: &str, spec: Value, object: &Value, want: bool| {
        let evaluator = Evaluator::of("", plural).expect("it is counted");
        let quota = json!({ "spec": spec });
        assert_eq!(evaluator.is_in_scope(&quota, object), want, "{spec} {object}");
    };
    let asks = || json!([container("c", json!({"cpu": "1"}), json!({}))]);
    let bounded = pod(json!({"activeDeadlineSeconds": 5, "containers": asks()}));
    let plain = pod(json!({"containers": [{"name": "c"}], "priorityClassName": "hi"}));
    let near = pod(
        json!({"containers": asks(), "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "k", "namespaceSelector": {}}}]}}}),
    );
    let scoped = |scope: &str| json!({"scopes": [scope]});
    for (scope, of_bounded, of_plain, of_near) in [
        ("Terminating", true, false, false),
        ("NotTerminating", false, true, true),
        ("BestEffort", false, true, false),
        ("NotBestEffort", true, false, true),
        ("CrossNamespacePodAffinity", false, false, true),
        ("PriorityClass", false, true, false),
    ] {
        check("pods", scoped(scope), &bounded, of_bounded);
        check("pods", scoped(scope), &plain, of_plain);
        check("pods", scoped(scope), &near, of_near);
    }
    let class = |operator: &str, values: Value| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}});
    check("pods", class("In", json!(["hi"])), &plain, true);
    check("pods", class("In", json!(["lo"])), &plain, false);
    check("pods", class("NotIn", json!(["lo"])), &plain, true);
    check("pods", class("NotIn", json!(["hi"])), &bounded, true);
    check("pods", class("DoesNotExist", json!([])), &bounded, true);
    check(
        "pods",
        json!({"scopes": ["Terminating", "BestEffort"]}),
        &bounded,
        false,
    );
    let attributes = json!({"scopeSelector": {"matchExpressions": [{"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["fast"]}]}});
    let claim =
        json!({"spec": {"volumeAttributesClassName": "slow"}, "status": {"currentVolumeAttributesClassName": "fast"}});
    check("persistentvolumeclaims", attributes.clone(), &claim, true);
    check("persistentvolumeclaims", attributes, &json!({"spec": {}}), false);
    check("services", scoped("BestEffort"), &json!({}), false);
    check("services", json!({}), &json!({}), true);
}

/// The answer to a write under a quota `q` with these amounts.
fn told(hard: &Value, used: &Value, plural: &str, subresource: &str, object: &Value, old: Option<&Value>) -> String {
    let evaluator = Evaluator::of("", plural).expect("it is counted");
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}});
    let operation = if old.is_some() {
        Operation::Update
    } else {
        Operation::Create
    };
    let write = Write {
        evaluator: &evaluator,
        operation,
        subresource,
        object,
        old,
        now: now(),
    };
    let concerned = match write.concerns(&quota) {
        Err(why) => return why,
        Ok(concerned) => concerned,
    };
    match concerned.then(|| write.charge(&quota)).transpose() {
        Err(why) => why,
        Ok(used) => used
            .flatten()
            .map_or_else(String::new, |used| to_value(&used).to_string()),
    }
}

#[test]
fn refusals() {
    let check = |hard: Value, used: Value, object: &Value, want: &str| {
        assert_eq!(told(&hard, &used, "pods", "", object, None), want, "{hard} {used}");
    };
    let small = pod(json!({"containers": [container("c", json!({"cpu": "300m"}), json!({}))]}));
    let silent = pod(json!({"initContainers": [{"name": "i2"}, {"name": "i1"}], "containers": [{"name": "c"}]}));
    let cpu = || json!({"requests.cpu": "1"});
    check(json!({"pods": "2"}), json!({"pods": "1"}), &small, r#"{"pods":"2"}"#);
    check(json!({}), json!({}), &small, "");
    check(json!({"services": "0"}), json!({}), &small, "");
    check(
        json!({"pods": "1"}),
        json!({"pods": "1"}),
        &small,
        "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1",
    );
    check(
        json!({"pods": "1", "requests.cpu": "1", "count/pods": "5"}),
        json!({"pods": "1", "requests.cpu": "800m", "count/pods": "1"}),
        &small,
        "exceeded quota: q, requested: pods=1,requests.cpu=300m, used: pods=1,requests.cpu=800m, limited: pods=1,requests.cpu=1",
    );
    check(
        cpu(),
        json!({"requests.cpu": "0"}),
        &silent,
        "failed quota: q: must specify requests.cpu for: c,i1,i2",
    );
    check(
        json!({"limits.memory": "1Gi", "cpu": "1", "ephemeral-storage": "1"}),
        json!({}),
        &small,
        "failed quota: q: must specify limits.memory for: c",
    );
    check(
        json!({"requests.cpu": "1", "pods": "1", "services": "1"}),
        json!({"pods": "0"}),
        &small,
        "status unknown for quota: q, resources: pods,requests.cpu",
    );
    let whole = pod(json!({"containers": [{"name": "c"}], "resources": {"requests": {"cpu": "100m"}}}));
    check(
        cpu(),
        json!({"requests.cpu": "0"}),
        &whole,
        r#"{"requests.cpu":"100m"}"#,
    );
}

#[test]
fn an_update_is_charged_what_it_adds() {
    let check = |plural: &str, subresource: &str, new: Value, old: Value, hard: Value, used: Value, want: &str| {
        assert_eq!(
            told(&hard, &used, plural, subresource, &new, Some(&old)),
            want,
            "{new} {hard}"
        );
    };
    let asks = |cpu: &str| pod(json!({"containers": [container("c", json!({ "cpu": cpu }), json!({}))]}));
    let cpu = |cpu: &str| json!({ "requests.cpu": cpu });
    check(
        "pods",
        "resize",
        asks("1900m"),
        asks("300m"),
        cpu("1"),
        cpu("400m"),
        "exceeded quota: q, requested: requests.cpu=1600m, used: requests.cpu=400m, limited: requests.cpu=1",
    );
    check(
        "pods",
        "resize",
        asks("500m"),
        asks("300m"),
        cpu("1"),
        cpu("400m"),
        r#"{"requests.cpu":"600m"}"#,
    );
    // The controller alone gives usage back, and a quota that was lowered does not stop a write that adds nothing.
    check("pods", "resize", asks("100m"), asks("300m"), cpu("1"), cpu("5"), "");
    let service = |of_type: &str| json!({"spec": {"type": of_type, "ports": [{"port": 1}]}});
    let ports = |ports: &str| json!({ "services.nodeports": ports });
    check(
        "services",
        "",
        service("NodePort"),
        service("ClusterIP"),
        ports("1"),
        ports("0"),
        r#"{"services.nodeports":"1"}"#,
    );
    check(
        "services",
        "",
        service("NodePort"),
        service("NodePort"),
        ports("0"),
        ports("1"),
        "",
    );
    let claim = |given: &str| json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"allocatedResources": {"storage": given}}});
    let storage = |size: &str| json!({ "requests.storage": size });
    check(
        "persistentvolumeclaims",
        "status",
        claim("5Gi"),
        claim("1Gi"),
        storage("2Gi"),
        storage("1Gi"),
        r#"{"requests.storage":"5Gi"}"#,
    );
}

#[test]
fn totals() {
    let check = |plural: &str, spec: Value, objects: &[Value], want: Value| {
        let evaluator = Evaluator::of("", plural).expect("it is counted");
        let quota = json!({ "spec": spec });
        assert_eq!(to_value(&evaluator.total(&quota, objects, now())), want, "{quota}");
    };
    let asks = |cpu: &str| pod(json!({"containers": [container("c", json!({ "cpu": cpu }), json!({}))]}));
    let pods = [asks("1"), asks("250m"), pod(json!({"containers": [{"name": "c"}]}))];
    let hard = || json!({"pods": "1", "requests.cpu": "1", "limits.cpu": "1", "services": "1"});
    check(
        "pods",
        json!({"hard": hard()}),
        &pods,
        json!({"pods": "3", "requests.cpu": "1250m", "limits.cpu": "0"}),
    );
    check(
        "pods",
        json!({"hard": {"pods": "9"}, "scopes": ["BestEffort"]}),
        &pods,
        json!({"pods": "1"}),
    );
    check("services", json!({"hard": hard()}), &[], json!({"services": "0"}));
}
