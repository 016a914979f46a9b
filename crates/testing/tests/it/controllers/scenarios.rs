//! The scenarios in which controllers are disturbed, as data: each with the controllers that it is about.

use kubewright_testing::explore::Step;
use serde_json::{Value, json};

/// Steps of a user, each of which leads to a state that lasts.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Who is disturbed.
    pub(crate) controllers: &'static [&'static str],
    /// What is found in it and is as Kubernetes' own controllers have it, as the report says it.
    pub(crate) as_upstream: &'static [&'static str],
    /// Simulated nodes. One, where the scheduler would choose among equal ones by chance.
    pub(crate) nodes: usize,
    pub(crate) steps: fn() -> Vec<Step>,
}

/// A kind: its version and its name.
type Kind = (&'static str, &'static str);

const ADDRESS: Kind = ("networking.k8s.io/v1", "IPAddress");
const BUDGET: Kind = ("policy/v1", "PodDisruptionBudget");
const CLAIM: Kind = ("v1", "PersistentVolumeClaim");
const CLAIM_TEMPLATE: Kind = ("resource.k8s.io/v1", "ResourceClaimTemplate");
const CLASS: Kind = ("storage.k8s.io/v1", "StorageClass");
const CONTROLLER: Kind = ("v1", "ReplicationController");
const CRONJOB: Kind = ("batch/v1", "CronJob");
const DAEMONSET: Kind = ("apps/v1", "DaemonSet");
const DEPLOYMENT: Kind = ("apps/v1", "Deployment");
const JOB: Kind = ("batch/v1", "Job");
const MIGRATION: Kind = ("storagemigration.k8s.io/v1", "StorageVersionMigration");
const NODE: Kind = ("v1", "Node");
const POD: Kind = ("v1", "Pod");
const POLICY: Kind = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy");
const QUOTA: Kind = ("v1", "ResourceQuota");
const RANGE: Kind = ("networking.k8s.io/v1", "ServiceCIDR");
const REQUEST: Kind = ("certificates.k8s.io/v1", "CertificateSigningRequest");
const ROLE: Kind = ("rbac.authorization.k8s.io/v1", "ClusterRole");
const SCALER: Kind = ("autoscaling/v2", "HorizontalPodAutoscaler");
const SERVICE: Kind = ("v1", "Service");
const STATEFULSET: Kind = ("apps/v1", "StatefulSet");

fn apply_in(namespace: &str, (version, kind): Kind, name: &str, mut object: Value) -> Step {
    (object["apiVersion"], object["kind"]) = (version.into(), kind.into());
    object["metadata"]["name"] = name.into();
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    Step::apply(format!("create {kind} {name}"), object)
}

fn apply(kind: Kind, name: &str, object: Value) -> Step {
    apply_in("default", kind, name, object)
}

fn patch(what: &str, (version, kind): Kind, name: &str, patch: Value) -> Step {
    Step::merge(what, version, kind, "default", name, patch)
}

fn delete((version, kind): Kind, name: &str) -> Step {
    Step::delete(format!("delete {kind} {name}"), version, kind, "default", name)
}

/// A pod template with the label `app: web`.
fn template(image: &str, more: Value) -> Value {
    let mut spec =
        json!({ "containers": [{ "name": "c", "image": image, "resources": { "requests": { "cpu": "100m" } } }] });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": spec })
}

fn image(image: &str) -> Value {
    json!({ "spec": { "template": template(image, json!({})) } })
}

fn replicas(replicas: u32) -> Value {
    json!({ "spec": { "replicas": replicas } })
}

/// A workload of the label `app: web`.
fn workload(replicas: u32) -> Value {
    json!({ "spec": {
        "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template("app:1", json!({})),
    } })
}

/// A request for the user `jane`, as `openssl req` makes it, in base64 as the API takes it.
const CSR: &str = "\
    LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISE1IRUNBUUF3RHpFTk1Bc0dBMVVFQXd3RWFtRnVaVEJaTUJN\
    R0J5cUdTTTQ5QWdFR0NDcUdTTTQ5QXdFSApBMElBQkdGdUQ0VnBIbjNXdW5mSkJuL1cxV0NqNjFsQWd3c3BWQlhST1pENW9QWUhp\
    bVB0K2dxM0I3SkxSbVUyCm0xSWR5N0lraHo1R2kzVmU2NHVNNnFCRjlPS2dBREFLQmdncWhrak9QUVFEQWdOR0FEQkRBaDhHL0Ji\
    M2pwcVIKQzVjSXdtNWVPakY2dmk2NGNjb0Eza2s5MVJvNWQxWDlBaUFEK3hhVTFOME9IaXFtRjFsRDdKeFBXV081MFBZNwppUExZ\
    YVF6VzdmV2h6UT09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

fn pod(node: &str, more: Value) -> Value {
    let mut pod = template("app:1", more);
    pod["spec"]["nodeName"] = node.into();
    pod
}

/// A pod that leaves a node that is silent after some seconds.
fn impatient() -> Value {
    let leaves =
        |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10 });
    let tolerations = [
        leaves("node.kubernetes.io/not-ready"),
        leaves("node.kubernetes.io/unreachable"),
    ];
    pod("node-0", json!({ "tolerations": tolerations }))
}

fn job(name: &str, code: &str, spec: Value) -> Step {
    let mut template = template("app:1", json!({ "restartPolicy": "Never" }));
    template["metadata"]["annotations"] = json!({ "kubewright.dev/exit-code": code });
    let mut job = json!({ "spec": spec });
    job["spec"]["template"] = template;
    apply(JOB, name, job)
}

fn service() -> Step {
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] });
    apply(SERVICE, "web", json!({ "spec": spec }))
}

fn balanced(name: &str) -> Step {
    let spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    apply(SERVICE, name, json!({ "spec": spec }))
}

fn policy(expression: &str) -> Value {
    let rule =
        json!({ "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"] });
    json!({ "spec": { "matchConstraints": { "resourceRules": [rule] }, "validations": [{ "expression": expression }] } })
}

fn role(name: &str, verb: &str) -> Step {
    let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": [verb] }]);
    let labels = json!({ "to": "all" });
    apply_in(
        "",
        ROLE,
        name,
        json!({ "metadata": { "labels": labels }, "rules": rules }),
    )
}

/// A pod with a claim to a device, from a template.
fn with_device() -> Value {
    let claims = json!([{ "name": "g", "resourceClaimTemplateName": "gpu" }]);
    pod("node-0", json!({ "resourceClaims": claims }))
}

fn with_scratch() -> Value {
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    let volumes = json!([{ "name": "s", "ephemeral": { "volumeClaimTemplate": { "spec": spec } } }]);
    pod("node-0", json!({ "volumes": volumes }))
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a Deployment rolls out, shrinks and goes",
        controllers: &[
            "deployment",
            "replicaset",
            "scheduler",
            "node",
            "endpoints",
            "garbage-collector",
        ],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            vec![
                service(),
                apply(DEPLOYMENT, "web", workload(3)),
                patch("a new image", DEPLOYMENT, "web", image("app:2")),
                patch("the first image again", DEPLOYMENT, "web", image("app:1")),
                patch("one replica", DEPLOYMENT, "web", replicas(1)),
                delete(DEPLOYMENT, "web").in_foreground(),
            ]
        },
    },
    Scenario {
        name: "a budget for a Deployment",
        controllers: &["disruption"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } });
            vec![
                apply(BUDGET, "web", json!({ "spec": spec })),
                apply(DEPLOYMENT, "web", workload(2)),
                patch("three replicas", DEPLOYMENT, "web", replicas(3)),
                delete(DEPLOYMENT, "web"),
            ]
        },
    },
    Scenario {
        name: "a StatefulSet with claims",
        controllers: &["statefulset", "persistentvolume-binder", "volume-protection"],
        // A claim learns of its owner after it was made (UpdatePodClaimForRetentionPolicy).
        as_upstream: &[
            "persistentvolumeclaims default/data-web-0 is left after step 4: the user deleted its owner at once",
        ],
        nodes: 1,
        steps: || {
            let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
            let mut set = workload(3);
            set["spec"]["serviceName"] = "web".into();
            set["spec"]["volumeClaimTemplates"] = json!([{ "metadata": { "name": "data" }, "spec": spec }]);
            set["spec"]["persistentVolumeClaimRetentionPolicy"] =
                json!({ "whenDeleted": "Delete", "whenScaled": "Delete" });
            vec![
                apply(STATEFULSET, "web", set),
                patch("a new image", STATEFULSET, "web", image("app:2")),
                patch("two replicas", STATEFULSET, "web", replicas(2)),
                delete(STATEFULSET, "web"),
            ]
        },
    },
    Scenario {
        name: "a DaemonSet",
        controllers: &["daemonset"],
        // The label pod-template-generation counts templates.
        as_upstream: &[
            "pods default/web-* differs after step 2: a new cluster in which the user wants the same ends otherwise",
        ],
        nodes: 2,
        steps: || {
            let mut set = workload(0);
            set["spec"].as_object_mut().expect("a spec").remove("replicas");
            vec![
                apply(DAEMONSET, "web", set),
                patch("a new image", DAEMONSET, "web", image("app:2")),
                delete(DAEMONSET, "web"),
            ]
        },
    },
    Scenario {
        name: "a ReplicationController",
        controllers: &["replicationcontroller"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let mut elder = workload(3);
            elder["spec"]["selector"] = json!({ "app": "web" });
            vec![
                apply(CONTROLLER, "web", elder),
                patch("one replica", CONTROLLER, "web", replicas(1)),
                delete(CONTROLLER, "web"),
            ]
        },
    },
    Scenario {
        name: "Jobs that complete, fail and are forgotten",
        controllers: &["job"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let indexed = json!({ "completions": 2, "parallelism": 2, "completionMode": "Indexed" });
            vec![
                job("plain", "0", json!({ "completions": 3, "parallelism": 2 })),
                job("indexed", "0", indexed),
                job("failing", "1", json!({ "backoffLimit": 1 })),
                job("brief", "0", json!({ "ttlSecondsAfterFinished": 5 })),
                delete(JOB, "plain"),
            ]
        },
    },
    Scenario {
        name: "a Job counts by its indexes",
        controllers: &["job"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            vec![job(
                "indexed",
                "0",
                json!({ "completions": 3, "completionMode": "Indexed" }),
            )]
        },
    },
    Scenario {
        name: "a CronJob that runs once a year",
        controllers: &["cronjob"],
        // A time that had its Job gets no other one.
        as_upstream: &["jobs.batch default/yearly-29453765 is missing after step 1"],
        nodes: 1,
        steps: || {
            let template = template("app:1", json!({ "restartPolicy": "Never" }));
            let jobs = json!({ "spec": { "template": template } });
            let spec = json!({ "schedule": "5 0 1 1 *", "successfulJobsHistoryLimit": 1, "jobTemplate": jobs });
            vec![
                apply(CRONJOB, "yearly", json!({ "spec": spec })),
                patch("suspend it", CRONJOB, "yearly", json!({ "spec": { "suspend": true } })),
                delete(CRONJOB, "yearly"),
            ]
        },
    },
    Scenario {
        name: "a namespace comes and goes with its content",
        controllers: &["namespace", "serviceaccount"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let annotations = json!({ "kubernetes.io/service-account.name": "robot" });
            let secret =
                json!({ "metadata": { "annotations": annotations }, "type": "kubernetes.io/service-account-token" });
            vec![
                apply_in("", ("v1", "Namespace"), "shop", json!({})),
                apply_in("shop", ("v1", "ServiceAccount"), "robot", json!({})),
                apply_in("shop", ("v1", "Secret"), "token", secret),
                apply_in("shop", DEPLOYMENT, "web", workload(2)),
                Step::delete("delete the account", "v1", "ServiceAccount", "shop", "robot"),
                Step::delete("delete the namespace", "v1", "Namespace", "", "shop"),
            ]
        },
    },
    Scenario {
        name: "a node falls silent and goes",
        controllers: &["node", "node-lifecycle", "taint-eviction"],
        // A kubelet registers its node when it starts.
        as_upstream: &[
            "a restart when all is done writes: create nodes /node-0",
            "nodes node-0 is left after step 4",
        ],
        nodes: 2,
        steps: || {
            let silent = json!({ "metadata": { "annotations": { "kubewright.dev/node": "silent" } } });
            vec![
                apply(POD, "a", impatient()),
                apply(POD, "b", impatient()),
                patch("it falls silent", NODE, "node-0", silent),
                delete(NODE, "node-0"),
            ]
        },
    },
    Scenario {
        name: "pods of a node that is not there",
        controllers: &["pod-garbage-collector"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            vec![
                apply(POD, "a", pod("gone", json!({}))),
                apply(POD, "b", pod("gone", json!({}))),
            ]
        },
    },
    Scenario {
        name: "a quota counts",
        controllers: &["resourcequota"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let hard = json!({ "pods": "10", "requests.cpu": "2" });
            vec![
                apply(DEPLOYMENT, "web", workload(3)),
                apply(QUOTA, "q", json!({ "spec": { "hard": hard } })),
                patch("one replica", DEPLOYMENT, "web", replicas(1)),
            ]
        },
    },
    Scenario {
        name: "a load grows",
        controllers: &["horizontalpodautoscaler"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let target = json!({ "type": "Utilization", "averageUtilization": 50 });
            let load = json!({ "kubewright.dev/load-cpu": "400m" });
            let scaler = json!({ "metadata": { "annotations": load }, "spec": {
                "minReplicas": 1, "maxReplicas": 20,
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": target } }],
            } });
            vec![apply(DEPLOYMENT, "web", workload(3)), apply(SCALER, "web", scaler)]
        },
    },
    Scenario {
        name: "a ClusterRole gathers others",
        controllers: &["clusterrole-aggregation"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let selectors = json!({ "clusterRoleSelectors": [{ "matchLabels": { "to": "all" } }] });
            vec![
                role("one", "get"),
                apply_in("", ROLE, "all", json!({ "aggregationRule": selectors })),
                role("two", "list"),
                delete(ROLE, "one"),
            ]
        },
    },
    Scenario {
        name: "a pod has a claim to a device",
        controllers: &["resourceclaim"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let request = json!({ "name": "r", "exactly": { "deviceClassName": "gpu" } });
            let template = json!({ "spec": { "spec": { "devices": { "requests": [request] } } } });
            vec![
                apply(CLAIM_TEMPLATE, "gpu", template),
                apply(POD, "a", with_device()),
                delete(POD, "a"),
                apply(POD, "b", with_device()),
            ]
        },
    },
    Scenario {
        name: "a pod has an ephemeral volume",
        controllers: &["ephemeral-volume"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            vec![
                apply(POD, "a", with_scratch()),
                delete(POD, "a"),
                apply(POD, "b", with_scratch()),
            ]
        },
    },
    Scenario {
        name: "a claim waits for its first pod",
        controllers: &["persistentvolume-binder"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let class =
                json!({ "provisioner": "kubewright.dev/simulated", "volumeBindingMode": "WaitForFirstConsumer" });
            let spec = json!({
                "accessModes": ["ReadWriteOnce"], "storageClassName": "later",
                "resources": { "requests": { "storage": "1Gi" } },
            });
            let mut pod = template("app:1", json!({}));
            pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
            vec![
                apply_in("", CLASS, "later", class),
                apply(CLAIM, "data", json!({ "spec": spec })),
                apply(POD, "a", pod),
                delete(POD, "a"),
                // No pod comes for this one.
                apply(CLAIM, "other", json!({ "spec": spec })),
            ]
        },
    },
    Scenario {
        name: "a range of Services goes after its address",
        controllers: &["service-cidr"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let labels = json!({ "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                "ipaddress.kubernetes.io/ip-family": "IPv4" });
            let parent = json!({ "resource": "services", "namespace": "default", "name": "web" });
            let address = json!({ "metadata": { "labels": labels }, "spec": { "parentRef": parent } });
            vec![
                apply_in("", RANGE, "extra", json!({ "spec": { "cidrs": ["10.1.0.0/24"] } })),
                apply_in("", ADDRESS, "10.1.0.7", address),
                delete(RANGE, "extra"),
                delete(ADDRESS, "10.1.0.7"),
            ]
        },
    },
    Scenario {
        name: "migrations of one resource run one after the other",
        controllers: &["storage-version-migrator"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let migration = |name: &str, group: &str, resource: &str| {
                let spec = json!({ "resource": { "group": group, "resource": resource } });
                apply_in("", MIGRATION, name, json!({ "spec": spec }))
            };
            vec![
                migration("a", "authorization.k8s.io", "subjectaccessreviews"),
                migration("b", "authorization.k8s.io", "subjectaccessreviews"),
                migration("c", "", "bindings"),
                delete(MIGRATION, "a"),
            ]
        },
    },
    Scenario {
        name: "Services get addresses and give them back",
        controllers: &["service-lb"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            vec![
                balanced("a"),
                balanced("b"),
                patch(
                    "a has no load balancer",
                    SERVICE,
                    "a",
                    json!({ "spec": { "type": "ClusterIP" } }),
                ),
                delete(SERVICE, "b"),
                balanced("c"),
            ]
        },
    },
    Scenario {
        name: "a policy is checked",
        controllers: &["validatingadmissionpolicy-status"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            vec![
                apply_in("", POLICY, "p", policy("object.spec.replicaz > 1")),
                patch("it is mended", POLICY, "p", policy("object.spec.replicas > 1")),
            ]
        },
    },
    Scenario {
        name: "a certificate is asked for",
        controllers: &["certificatesigningrequest"],
        as_upstream: &[],
        nodes: 1,
        steps: || {
            let spec = json!({ "request": CSR, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"] });
            let approved = json!({ "status": { "conditions": [
                { "type": "Approved", "status": "True", "reason": "Test", "message": "for a test" }] } });
            vec![
                apply_in("", REQUEST, "jane", json!({ "spec": spec })),
                patch("approve it", REQUEST, "jane", approved).of_subresource("approval"),
            ]
        },
    },
];
