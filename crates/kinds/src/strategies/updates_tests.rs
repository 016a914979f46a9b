//! Changes of stored objects: a merge patch on the result of a create, and the strategies' answer to it.

use kubewright_schema::patch::merge;
use kubewright_schema::structural::go_normalize;
use serde_json::{Value, json};

use crate::rows::{lookup, rows};
use kubewright_model::facts::additions;
use kubewright_model::testing::Scene;
use kubewright_model::{AllocatedValues, Allocation, Resource, Unallocated};

fn row(path: &str) -> std::sync::Arc<Resource> {
    let (group_version, plural) = path.rsplit_once('/').expect("a path");
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    lookup(group, version, plural).expect("a served kind")
}

fn texts(errors: Vec<kubewright_schema::error::FieldError>) -> Vec<String> {
    // The further lines of an error are a diff, which has tests of its own.
    let first_line = |text: String| text.lines().next().unwrap_or("").to_owned();
    errors.iter().map(ToString::to_string).map(first_line).collect()
}

fn why_not(result: Result<(), Unallocated>) -> Vec<String> {
    match result {
        Ok(()) => Vec::new(),
        Err(Unallocated::Invalid(errors)) => texts(errors),
        Err(Unallocated::Failed(why) | Unallocated::Untyped(why)) => vec![why],
    }
}

/// Creates the object, patches it, and compares the errors; gives the object that would be stored.
fn check(path: &str, body: Value, patch: Value, wanted: &[&str]) -> (Value, Value) {
    let row = row(path);
    let scene = Scene::default();
    let context = scene.context();
    let strategy = &row.strategy;
    let mut old = body;
    old["metadata"] = json!({"name": old["metadata"]["name"].as_str().unwrap_or("x"), "namespace": "ns", "uid": "u"});
    old["kind"] = row.kind.to_string().into();
    go_normalize(&mut old, &row.schema);
    (strategy.default)(&mut old);
    additions::tolerate(&row, &mut old, None);
    (strategy.prepare_create)(&mut old, &context);
    if let Some(allocation) = strategy.allocate {
        let given = (allocation.give)(&mut old, None, &AllocatedValues::default(), &context);
        assert_eq!(given, Ok(()), "{path}");
    }
    assert_eq!(
        texts(strategy.errors_of_new(&old)),
        [""; 0],
        "{path}: the object is valid before the change"
    );
    (strategy.default)(&mut old);
    let mut new = merge::apply(&old, &patch);
    go_normalize(&mut new, &row.schema);
    (strategy.default)(&mut new);
    additions::tolerate(&row, &mut new, Some(&old));
    (strategy.prepare_update)(&mut new, &old, &context);
    let mut errors = Vec::new();
    if let Some(allocation) = strategy.allocate {
        let mut taken = AllocatedValues::default();
        taken.add(&(allocation.values)(&old));
        errors.extend(why_not((allocation.give)(&mut new, Some(&old), &taken, &context)));
    }
    errors.extend(texts(strategy.errors_of_change(&new, &old)));
    assert_eq!(errors, wanted, "{path}: {patch}");
    (old, new)
}

fn pod() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn workload() -> Value {
    json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "serviceName": "s",
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

fn job() -> Value {
    json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
}

#[test]
fn pods_keep_their_spec() {
    let forbidden = "spec: Forbidden: pod updates may not change fields other than \
        `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
        existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    let (_, new) = check(
        "v1/pods",
        pod(),
        json!({"spec": {"containers": [{"name": "c", "image": "j"}]}, "status": {"phase": "Failed"}}),
        &[],
    );
    assert_eq!(new["spec"]["containers"][0]["image"], "j");
    assert_eq!(new["status"]["phase"], "Pending", "status has its own subresource");
    check(
        "v1/pods",
        pod(),
        json!({"spec": {"containers": [{"name": "c", "image": "i", "command": ["x"]}], "nodeName": "n"}}),
        &[forbidden],
    );
    check("v1/pods", pod(), json!({"spec": {"activeDeadlineSeconds": 5}}), &[]);
    // The two tolerations that every pod gets come back.
    let (_, new) = check("v1/pods", pod(), json!({"spec": {"tolerations": null}}), &[]);
    assert_eq!(new["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
    let mut tolerant = pod();
    tolerant["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    check(
        "v1/pods",
        tolerant,
        json!({"spec": {"tolerations": []}}),
        &["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
    );
    check(
        "v1/pods",
        pod(),
        json!({"spec": {"containers": []}}),
        &[
            "spec.containers: Required value",
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ],
    );
}

#[test]
fn workloads_keep_their_selector() {
    let mismatch =
        "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`";
    let immutable = "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable";
    let patch = json!({"spec": {"selector": {"matchLabels": {"a": "c"}}}});
    for path in ["apps/v1/deployments", "apps/v1/replicasets", "apps/v1/daemonsets"] {
        let mut body = workload();
        body["spec"].as_object_mut().expect("an object").remove("serviceName");
        let mut errors = [mismatch, immutable];
        if path.ends_with("daemonsets") {
            errors.reverse();
        }
        check(path, body.clone(), patch.clone(), &errors);
        check(path, body, json!({"spec": {"minReadySeconds": 3}}), &[]);
    }
    check(
        "apps/v1/deployments",
        workload(),
        json!({"spec": {"replicas": -1}}),
        &["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
    );
    check(
        "apps/v1/deployments",
        workload(),
        json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}),
        &[],
    );
    let (_, new) = check(
        "apps/v1/deployments",
        workload(),
        json!({"status": {"replicas": 7}}),
        &[],
    );
    assert_eq!(new["status"], json!({}));
}

#[test]
fn stateful_sets_and_jobs_keep_nearly_everything() {
    check(
        "apps/v1/statefulsets",
        workload(),
        json!({"spec": {"serviceName": "t"}}),
        &[
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
           'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ],
    );
    check(
        "apps/v1/statefulsets",
        workload(),
        json!({"spec": {"replicas": 3}}),
        &[],
    );
    let (old, _) = check(
        "batch/v1/jobs",
        job(),
        json!({"spec": {"parallelism": 2, "suspend": true}}),
        &[],
    );
    assert_eq!(old["metadata"]["labels"]["batch.kubernetes.io/job-name"], "x");
    check(
        "batch/v1/jobs",
        job(),
        json!({"spec": {"completions": 2}}),
        &["spec.completions: Invalid value: 2: field is immutable"],
    );
}

#[test]
fn accounts_name_their_secrets_and_say_no_more() {
    let (old, new) = check(
        "v1/serviceaccounts",
        json!({"secrets": [{"name": "a", "namespace": "other"}]}),
        json!({"secrets": [{"name": "b", "kind": "Secret"}]}),
        &[],
    );
    assert_eq!(old["secrets"], json!([{"name": "a"}]));
    assert_eq!(new["secrets"], json!([{"name": "b"}]));
}

#[test]
fn tolerations_that_are_added_are_looked_at_twice() {
    let wrong = "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
    let tolerating = json!({"spec": {"tolerations": [{"operator": "Equal", "effect": "NoSchedule"}]}});
    check("v1/pods", pod(), tolerating, &[wrong, wrong]);
}

#[test]
fn who_names_a_strategy_says_how() {
    let (old, new) = check(
        "apps/v1/statefulsets",
        workload(),
        json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": null}}}),
        &[],
    );
    assert_eq!(
        old["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    );
    assert_eq!(new["spec"]["updateStrategy"], json!({"type": "RollingUpdate"}));
}

#[test]
fn services_keep_what_was_allocated() {
    let body = || json!({"spec": {"ports": [{"port": 80}], "type": "NodePort"}});
    let (old, new) = check(
        "v1/services",
        body(),
        json!({"spec": {"clusterIP": null, "ports": [{"name": "z", "port": 80}, {"name": "y", "port": 81}]}}),
        &[],
    );
    assert_eq!(new["spec"]["clusterIPs"], old["spec"]["clusterIPs"]);
    // A port is known by its name: two new names are two new ports.
    assert_ne!(new["spec"]["ports"][0]["nodePort"], old["spec"]["ports"][0]["nodePort"]);
    let second = new["spec"]["ports"][1]["nodePort"].as_i64().expect("allocated");
    assert!((30_000..=32_767).contains(&second) && new["spec"]["ports"][0]["nodePort"] != second);
    let (old, new) = check("v1/services", body(), json!({"spec": {"ports": [{"port": 81}]}}), &[]);
    assert_eq!(new["spec"]["ports"][0]["nodePort"], old["spec"]["ports"][0]["nodePort"]);
    // A balancer that gives no ports any more keeps those that it has.
    let balancer = json!({"spec": {"ports": [{"port": 80}], "type": "LoadBalancer"}});
    let none = json!({"spec": {"allocateLoadBalancerNodePorts": false}});
    let (old, new) = check("v1/services", balancer.clone(), none, &[]);
    assert_eq!(new["spec"]["ports"], old["spec"]["ports"]);
    // One whose ports are written without their numbers gives them up.
    let none = json!({"spec": {"allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]}});
    let (_, new) = check("v1/services", balancer, none, &[]);
    assert_eq!(new["spec"]["ports"][0].get("nodePort"), None);
    let (old, new) = check("v1/services", body(), json!({"spec": {"type": "ClusterIP"}}), &[]);
    assert_eq!(new["spec"]["clusterIP"], old["spec"]["clusterIP"]);
    assert!(new["spec"]["ports"][0].get("nodePort").is_none() && new["spec"].get("externalTrafficPolicy").is_none());
    let (_, new) = check(
        "v1/services",
        body(),
        json!({"spec": {"type": "ExternalName", "externalName": "y.example.org"}}),
        &[],
    );
    assert_eq!(
        new["spec"],
        json!({"type": "ExternalName", "externalName": "y.example.org", "sessionAffinity": "None",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
    );
    check(
        "v1/services",
        body(),
        json!({"spec": {"clusterIP": "10.0.0.250", "clusterIPs": ["10.0.0.250"]}}),
        &["spec.clusterIPs[0]: Invalid value: [\"10.0.0.250\"]: may not change once set"],
    );
    let (_, new) = check(
        "v1/services",
        json!({"spec": {"type": "ExternalName", "externalName": "x.example.org"}}),
        json!({"spec": {"type": "ClusterIP", "externalName": null, "ports": [{"port": 80}]}}),
        &[],
    );
    assert!(
        new["spec"]["clusterIP"]
            .as_str()
            .is_some_and(|ip| ip.starts_with("10.0."))
    );
}

#[test]
fn what_is_taken_is_refused() {
    let row = row("v1/services");
    let scene = Scene::default();
    let context = scene.context();
    let Allocation { values, give } = row.strategy.allocate.expect("services allocate");
    let make = |spec: Value| {
        let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
        (row.strategy.default)(&mut service);
        (row.strategy.prepare_create)(&mut service, &context);
        service
    };
    let mut stored =
        make(json!({"type": "NodePort", "clusterIP": "10.0.0.9", "ports": [{"port": 80, "nodePort": 31234}]}));
    assert_eq!(give(&mut stored, None, &AllocatedValues::default(), &context), Ok(()));
    let mut taken = AllocatedValues::default();
    taken.add(&values(&stored));
    let refused = |spec: Value, texts: &[&str]| {
        let mut service = make(spec.clone());
        let result = give(&mut service, None, &taken, &context);
        assert_eq!(why_not(result), texts, "{spec}");
    };
    let allocated = "provided port is already allocated";
    let wrong_port = format!("spec.ports[0].nodePort: Invalid value: 31234: {allocated}");
    refused(
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 31234}]}),
        &[&wrong_port],
    );
    // The number belongs to the node, whatever the protocol.
    refused(
        json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "UDP", "nodePort": 31234}]}),
        &[&wrong_port],
    );
    refused(
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31234, "ports": [{"port": 80}]}),
        &[&format!(
            "failed to allocate requested HealthCheck NodePort 31234: {allocated}"
        )],
    );
    refused(
        json!({"clusterIP": "10.0.0.9", "ports": [{"port": 80}]}),
        &[
            "spec.clusterIPs: Invalid value: [\"10.0.0.9\"]: failed to allocate IP 10.0.0.9: provided IP is already allocated",
        ],
    );
    refused(
        json!({"clusterIP": "10.0.0.8", "clusterIPs": ["10.0.0.8", "fd00::1"], "ports": [{"port": 80}]}),
        &[
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified",
            "spec.clusterIPs[1]: Invalid value: [\"10.0.0.8\",\"fd00::1\"]: IPv6 is not configured on this cluster",
        ],
    );
    // A port that was just given back is not given out next.
    let mut given = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let mut service = make(json!({"type": "NodePort", "ports": [{"port": 80}]}));
        let result = give(&mut service, None, &taken, &context);
        assert_eq!(result, Ok(()));
        let (ip, port) = (&service["spec"]["clusterIP"], &service["spec"]["ports"][0]["nodePort"]);
        assert!(
            given.insert(ip.to_string()) && given.insert(port.to_string()),
            "{service} again"
        );
    }
}

#[test]
fn claims_and_volumes_stay_what_they_are() {
    let claim = || json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let forbidden = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    check(
        "v1/persistentvolumeclaims",
        claim(),
        json!({"spec": {"volumeName": "v", "storageClassName": "c"}}),
        &[],
    );
    check(
        "v1/persistentvolumeclaims",
        claim(),
        json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
        &[forbidden],
    );
    check(
        "v1/persistentvolumes",
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}}),
        json!({"spec": {"hostPath": {"path": "/y"}}}),
        &["spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"],
    );
    check(
        "storage.k8s.io/v1/storageclasses",
        json!({"provisioner": "p.example.org"}),
        json!({"parameters": {"a": "b"}, "reclaimPolicy": "Retain"}),
        &[
            r#"parameters: Invalid value: {"a":"b"}: field is immutable"#,
            "reclaimPolicy: Invalid value: \"Retain\": field is immutable",
        ],
    );
    check(
        "storage.k8s.io/v1/csidrivers",
        json!({"spec": {}}),
        json!({"spec": {"attachRequired": false}}),
        &["spec.attachedRequired: Invalid value: false: field is immutable"],
    );
    check(
        "scheduling.k8s.io/v1/priorityclasses",
        json!({"value": 1}),
        json!({"value": 2, "preemptionPolicy": "Never"}),
        &[
            "value: Forbidden: may not be changed in an update.",
            "preemptionPolicy: Invalid value: \"Never\": field is immutable",
        ],
    );
}

#[test]
fn what_is_immutable_stays() {
    let secret = || json!({"immutable": true, "data": {"a": "MQ=="}});
    check("v1/secrets", secret(), json!({"data": {"a": "MQ=="}}), &[]);
    check(
        "v1/secrets",
        secret(),
        json!({"data": {"b": "MQ=="}}),
        &["data: Forbidden: field is immutable when `immutable` is set"],
    );
    check(
        "v1/secrets",
        secret(),
        json!({"immutable": null}),
        &["immutable: Forbidden: field is immutable when `immutable` is set"],
    );
    check(
        "v1/secrets",
        json!({}),
        json!({"type": "x/y"}),
        &["type: Invalid value: \"x/y\": field is immutable"],
    );
    let (_, new) = check("v1/secrets", json!({}), json!({"stringData": {"a": "b"}}), &[]);
    assert_eq!(new["data"], json!({"a": "Yg=="}));
    check(
        "v1/configmaps",
        json!({"immutable": true}),
        json!({"data": {"a": ""}}),
        &["data: Forbidden: field is immutable when `immutable` is set"],
    );
    check(
        "rbac.authorization.k8s.io/v1/rolebindings",
        json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}),
        json!({"roleRef": {"name": "other"}}),
        &[
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"other\"}: cannot change roleRef",
        ],
    );
    check(
        "apps/v1/controllerrevisions",
        json!({"data": {"a": 1}, "revision": 1}),
        json!({"data": {"a": 2}}),
        &["data: Invalid value: {\"a\":2}: field is immutable"],
    );
    let (old, new) = check(
        "v1/namespaces",
        json!({"metadata": {"name": "n"}}),
        json!({"spec": null, "status": null, "metadata": {"labels": null}}),
        &[],
    );
    assert_eq!((&new["spec"], &new["status"]), (&old["spec"], &old["status"]));
    assert_eq!(new["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");
}

/// How often kube-apiserver 1.36 reports an error of the metadata, kind by kind.
#[test]
fn every_metadata_check_reports_its_errors() {
    let check = |group: &str, kind: &str, of_status: bool, expected: [usize; 4]| {
        let resource = rows(Default::default())
            .into_iter()
            .find(|row| row.group == group && row.version == "v1" && row.kind == kind)
            .expect("a built-in kind");
        let mut old = json!({"metadata": {"name": "a", "uid": "u"}});
        if resource.namespaced {
            old["metadata"]["namespace"] = json!("n");
        }
        let count = |field: &str, value: Value| {
            let mut new = old.clone();
            new["metadata"][field] = value;
            kubewright_model::object::validate_update(&new, &old, &resource, of_status, Default::default()).len()
        };
        let found = [
            count("finalizers", json!(["bad"])),
            count("labels", json!({"a b": "c"})),
            count("generateName", json!("A_")),
            count("uid", json!("v")),
        ];
        assert_eq!(
            found, expected,
            "{kind} {of_status}: finalizers, labels, generateName, uid"
        );
    };
    check("", "ConfigMap", false, [2, 4, 1, 2]);
    check("", "PersistentVolume", false, [2, 4, 2, 1]);
    check("", "PersistentVolume", true, [1, 3, 0, 2]);
    check("", "LimitRange", false, [1, 3, 1, 1]);
    check("", "Event", false, [0, 2, 0, 1]);
    check("apps", "Deployment", false, [1, 3, 0, 2]);
    check("batch", "CronJob", false, [1, 3, 0, 2]);
    check("batch", "CronJob", true, [0, 2, 0, 1]);
    check("policy", "PodDisruptionBudget", false, [0, 2, 0, 1]);
    check("coordination.k8s.io", "Lease", false, [0, 3, 0, 2]);
    check("node.k8s.io", "RuntimeClass", false, [0, 4, 1, 2]);
    check("rbac.authorization.k8s.io", "Role", false, [2, 4, 0, 2]);
    check("events.k8s.io", "Event", false, [1, 3, 0, 2]);
    check(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        false,
        [0, 3, 1, 1],
    );
}
