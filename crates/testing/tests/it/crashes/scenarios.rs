//! The scenarios in which controllers die, as data: each with the controllers that it is about.

use kubewright::kube;
use kubewright_testing::{Error, Result, TestCluster};
use serde_json::{Value, json};

/// Steps, each of which leads to a state that lasts.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Who is killed at each of its writes.
    pub(crate) controllers: &'static [&'static str],
    /// Simulated nodes. One, where the scheduler would choose among equal ones by chance.
    pub(crate) nodes: usize,
    /// How many seconds pass after each step: more than anything in the scenario waits for.
    pub(crate) patience: u64,
    pub(crate) steps: &'static [Step],
}

/// The changes of a user, and the state to wait for.
pub(crate) struct Step {
    pub(crate) what: &'static str,
    pub(crate) changes: fn() -> Vec<Change>,
}

/// A request of a user.
pub(crate) struct Change {
    method: &'static str,
    path: &'static str,
    body: Value,
}

impl Change {
    pub(crate) async fn make(&self, cluster: &TestCluster) -> Result<()> {
        let kind = match self.method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = http::Request::builder()
            .method(self.method)
            .uri(self.path)
            .header("content-type", kind)
            .body(self.body.to_string().into_bytes());
        let answer: std::result::Result<Value, kube::Error> = cluster.kube().request(request.expect("a request")).await;
        answer.map(drop).map_err(|source| Error::Api {
            attempted: format!("{} {}", self.method, self.path),
            source,
        })
    }
}

fn create(path: &'static str, body: Value) -> Change {
    Change {
        method: "POST",
        path,
        body,
    }
}

fn patch(path: &'static str, body: Value) -> Change {
    Change {
        method: "PATCH",
        path,
        body,
    }
}

fn delete(path: &'static str, policy: &str) -> Change {
    let body = json!({ "apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "propagationPolicy": policy });
    Change {
        method: "DELETE",
        path,
        body,
    }
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

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const SET: &str = "/apis/apps/v1/namespaces/default/statefulsets/web";
const DAEMONS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const DAEMON: &str = "/apis/apps/v1/namespaces/default/daemonsets/web";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CRONJOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const CRONJOB: &str = "/apis/batch/v1/namespaces/default/cronjobs/minutely";
const SCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const CLUSTERROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";
const CONTROLLER: &str = "/api/v1/namespaces/default/replicationcontrollers/web";
const DEVICE_TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

/// A request for the user `jane`, as `openssl req` makes it, in base64 as the API takes it.
const REQUEST: &str = "\
    LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISE1IRUNBUUF3RHpFTk1Bc0dBMVVFQXd3RWFtRnVaVEJaTUJN\
    R0J5cUdTTTQ5QWdFR0NDcUdTTTQ5QXdFSApBMElBQkdGdUQ0VnBIbjNXdW5mSkJuL1cxV0NqNjFsQWd3c3BWQlhST1pENW9QWUhp\
    bVB0K2dxM0I3SkxSbVUyCm0xSWR5N0lraHo1R2kzVmU2NHVNNnFCRjlPS2dBREFLQmdncWhrak9QUVFEQWdOR0FEQkRBaDhHL0Ji\
    M2pwcVIKQzVjSXdtNWVPakY2dmk2NGNjb0Eza2s5MVJvNWQxWDlBaUFEK3hhVTFOME9IaXFtRjFsRDdKeFBXV081MFBZNwpaUExZ\
    YVF6VzdmV2h6UT09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

fn deployment(replicas: u32) -> Value {
    json!({ "metadata": { "name": "web" }, "spec": {
        "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template("app:1", json!({})),
    } })
}

fn pod(name: &str, node: Option<&str>) -> Value {
    let mut pod = template("app:1", json!({}));
    pod["metadata"]["name"] = json!(name);
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

/// A template of claims to devices.
fn device_template() -> Value {
    let request = json!({ "name": "r", "exactly": { "deviceClassName": "gpu" } });
    json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": { "name": "gpu" },
        "spec": { "spec": { "devices": { "requests": [request] } } } })
}

/// A pod with a claim from it.
fn with_device(name: &str) -> Value {
    let mut pod = pod(name, Some("node-0"));
    pod["spec"]["resourceClaims"] = json!([{ "name": "g", "resourceClaimTemplateName": "gpu" }]);
    pod
}

fn with_scratch(name: &str) -> Value {
    let mut pod = pod(name, Some("node-0"));
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    pod["spec"]["volumes"] = json!([{ "name": "s", "ephemeral": { "volumeClaimTemplate": { "spec": spec } } }]);
    pod
}

fn bare_deployment() -> Vec<Change> {
    vec![create(DEPLOYMENTS, deployment(3))]
}

fn service() -> Value {
    json!({ "metadata": { "name": "web" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } })
}

fn role(name: &str, verb: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "to": "all" } },
        "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": [verb] }] })
}

/// Begins the annotation by which a simulated node falls silent.
fn silent() -> Value {
    json!({ "metadata": { "annotations": { "kubewright.dev/node": "silent" } } })
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
        nodes: 1,
        patience: 5,
        steps: &[
            Step {
                what: "it is created",
                changes: || vec![create(SERVICES, service()), create(DEPLOYMENTS, deployment(3))],
            },
            Step {
                what: "a new image",
                changes: || vec![patch(DEPLOYMENT, image("app:2"))],
            },
            Step {
                what: "the first image again",
                changes: || vec![patch(DEPLOYMENT, image("app:1"))],
            },
            Step {
                what: "one replica",
                changes: || vec![patch(DEPLOYMENT, json!({ "spec": { "replicas": 1 } }))],
            },
            Step {
                what: "deleted in the foreground",
                changes: || vec![delete(DEPLOYMENT, "Foreground")],
            },
        ],
    },
    Scenario {
        name: "a Deployment is orphaned and its pods are adopted",
        controllers: &["deployment", "replicaset", "garbage-collector", "disruption"],
        nodes: 1,
        patience: 5,
        steps: &[
            Step {
                what: "it is created with a budget",
                changes: || {
                    let budget = json!({ "metadata": { "name": "web" },
                        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } } });
                    vec![create(BUDGETS, budget), create(DEPLOYMENTS, deployment(2))]
                },
            },
            Step {
                what: "its dependents stay",
                changes: || vec![delete(DEPLOYMENT, "Orphan")],
            },
            Step {
                what: "another adopts them",
                changes: || vec![create(DEPLOYMENTS, deployment(3))],
            },
        ],
    },
    Scenario {
        name: "a StatefulSet with claims",
        controllers: &["statefulset", "persistentvolume-binder", "volume-protection"],
        nodes: 1,
        patience: 5,
        steps: &[
            Step {
                what: "it is created",
                changes: || {
                    let claim = json!({ "metadata": { "name": "data" }, "spec": {
                        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
                    let mut set = deployment(3);
                    set["spec"]["serviceName"] = json!("web");
                    set["spec"]["volumeClaimTemplates"] = json!([claim]);
                    set["spec"]["persistentVolumeClaimRetentionPolicy"] =
                        json!({ "whenDeleted": "Delete", "whenScaled": "Delete" });
                    vec![create(SETS, set)]
                },
            },
            Step {
                what: "a new image",
                changes: || vec![patch(SET, image("app:2"))],
            },
            Step {
                what: "two replicas",
                changes: || vec![patch(SET, json!({ "spec": { "replicas": 2 } }))],
            },
            Step {
                what: "deleted",
                changes: || vec![delete(SET, "Background")],
            },
        ],
    },
    Scenario {
        name: "a DaemonSet",
        controllers: &["daemonset"],
        nodes: 2,
        patience: 5,
        steps: &[
            Step {
                what: "it is created",
                changes: || {
                    let mut set = deployment(0);
                    set["spec"].as_object_mut().expect("a spec").remove("replicas");
                    vec![create(DAEMONS, set)]
                },
            },
            Step {
                what: "a new image",
                changes: || vec![patch(DAEMON, image("app:2"))],
            },
        ],
    },
    Scenario {
        name: "a ReplicationController",
        controllers: &["replicationcontroller"],
        nodes: 1,
        patience: 5,
        steps: &[
            Step {
                what: "it is created",
                changes: || {
                    let mut elder = deployment(3);
                    elder["spec"]["selector"] = json!({ "app": "web" });
                    vec![create(CONTROLLERS, elder)]
                },
            },
            Step {
                what: "one replica",
                changes: || vec![patch(CONTROLLER, json!({ "spec": { "replicas": 1 } }))],
            },
        ],
    },
    Scenario {
        name: "Jobs that complete, fail and are forgotten",
        controllers: &["job"],
        nodes: 1,
        patience: 30,
        steps: &[
            Step {
                what: "they are created",
                changes: || {
                    let job = |name: &str, code: &str, spec: Value| {
                        let mut template = template("app:1", json!({ "restartPolicy": "Never" }));
                        template["metadata"]["annotations"] = json!({ "kubewright.dev/exit-code": code });
                        let mut job = json!({ "metadata": { "name": name }, "spec": spec });
                        job["spec"]["template"] = template;
                        create(JOBS, job)
                    };
                    vec![
                        job("plain", "0", json!({ "completions": 3, "parallelism": 2 })),
                        job(
                            "indexed",
                            "0",
                            json!({ "completions": 2, "parallelism": 2, "completionMode": "Indexed" }),
                        ),
                        job("failing", "1", json!({ "backoffLimit": 1 })),
                        job("brief", "0", json!({ "ttlSecondsAfterFinished": 5 })),
                    ]
                },
            },
            Step {
                what: "one is deleted",
                changes: || vec![delete("/apis/batch/v1/namespaces/default/jobs/plain", "Background")],
            },
        ],
    },
    Scenario {
        name: "a CronJob of every minute",
        controllers: &["cronjob"],
        nodes: 1,
        patience: 90,
        steps: &[
            Step {
                what: "it runs",
                changes: || {
                    let template = template("app:1", json!({ "restartPolicy": "Never" }));
                    vec![create(
                        CRONJOBS,
                        json!({ "metadata": { "name": "minutely" }, "spec": {
                        "schedule": "* * * * *", "successfulJobsHistoryLimit": 1,
                        "jobTemplate": { "spec": { "template": template } } } }),
                    )]
                },
            },
            Step {
                what: "it runs on",
                changes: Vec::new,
            },
            Step {
                what: "it is suspended",
                changes: || vec![patch(CRONJOB, json!({ "spec": { "suspend": true } }))],
            },
        ],
    },
    Scenario {
        name: "a namespace comes and goes with its content",
        controllers: &["namespace", "serviceaccount"],
        nodes: 1,
        patience: 5,
        steps: &[
            Step {
                what: "it has content",
                changes: || {
                    let shop = |path, body| create(path, body);
                    let secret = json!({ "metadata": { "name": "token", "annotations": { "kubernetes.io/service-account.name": "robot" } },
                        "type": "kubernetes.io/service-account-token" });
                    vec![
                        shop("/api/v1/namespaces", json!({ "metadata": { "name": "shop" } })),
                        shop(
                            "/api/v1/namespaces/shop/serviceaccounts",
                            json!({ "metadata": { "name": "robot" } }),
                        ),
                        shop("/api/v1/namespaces/shop/secrets", secret),
                        shop("/apis/apps/v1/namespaces/shop/deployments", deployment(2)),
                    ]
                },
            },
            Step {
                what: "its account is deleted",
                changes: || vec![delete("/api/v1/namespaces/shop/serviceaccounts/robot", "Background")],
            },
            Step {
                what: "it is deleted",
                changes: || vec![delete("/api/v1/namespaces/shop", "Background")],
            },
        ],
    },
    Scenario {
        name: "a node falls silent and goes",
        controllers: &["node", "node-lifecycle", "taint-eviction"],
        nodes: 2,
        patience: 800,
        steps: &[
            Step {
                what: "pods run",
                changes: || {
                    vec![
                        create(PODS, pod("a", Some("node-0"))),
                        create(PODS, pod("b", Some("node-0"))),
                    ]
                },
            },
            Step {
                what: "it is silent, and pods are evicted",
                changes: || vec![patch("/api/v1/nodes/node-0", silent())],
            },
            Step {
                what: "it is deleted",
                changes: || vec![delete("/api/v1/nodes/node-0", "Background")],
            },
        ],
    },
    Scenario {
        name: "pods of a node that is not there",
        controllers: &["pod-garbage-collector"],
        nodes: 1,
        patience: 90,
        steps: &[Step {
            what: "they are collected",
            changes: || {
                vec![
                    create(PODS, pod("a", Some("gone"))),
                    create(PODS, pod("b", Some("gone"))),
                ]
            },
        }],
    },
    Scenario {
        name: "a quota counts",
        controllers: &["resourcequota"],
        nodes: 1,
        patience: 5,
        steps: &[
            Step {
                what: "it is created",
                changes: || {
                    let mut all = bare_deployment();
                    all.push(create(QUOTAS, json!({ "metadata": { "name": "q" }, "spec": { "hard": { "pods": "10", "requests.cpu": "2" } } })));
                    all
                },
            },
            Step {
                what: "less is used",
                changes: || vec![patch(DEPLOYMENT, json!({ "spec": { "replicas": 1 } }))],
            },
        ],
    },
    Scenario {
        name: "a load grows",
        controllers: &["horizontalpodautoscaler"],
        nodes: 1,
        patience: 30,
        steps: &[
            Step {
                what: "pods run",
                changes: bare_deployment,
            },
            Step {
                what: "there is an autoscaler",
                changes: || {
                    let target = json!({ "type": "Utilization", "averageUtilization": 50 });
                    vec![create(
                        SCALERS,
                        json!({
                        "metadata": { "name": "web", "annotations": { "kubewright.dev/load-cpu": "400m" } },
                        "spec": {
                            "minReplicas": 1, "maxReplicas": 20,
                            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                            "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": target } }],
                        } }),
                    )]
                },
            },
        ],
    },
    Scenario {
        name: "a ClusterRole gathers others",
        controllers: &["clusterrole-aggregation"],
        nodes: 1,
        patience: 5,
        steps: &[
            Step {
                what: "it gathers",
                changes: || {
                    let selectors = json!({ "clusterRoleSelectors": [{ "matchLabels": { "to": "all" } }] });
                    vec![
                        create(CLUSTERROLES, role("one", "get")),
                        create(
                            CLUSTERROLES,
                            json!({ "metadata": { "name": "all" }, "aggregationRule": selectors }),
                        ),
                        create(CLUSTERROLES, role("two", "list")),
                    ]
                },
            },
            Step {
                what: "one goes",
                changes: || {
                    vec![delete(
                        "/apis/rbac.authorization.k8s.io/v1/clusterroles/one",
                        "Background",
                    )]
                },
            },
        ],
    },
    Scenario {
        name: "a pod has a claim to a device",
        controllers: &["resourceclaim"],
        nodes: 1,
        patience: 60,
        steps: &[
            Step {
                what: "its claim is made",
                changes: || {
                    vec![
                        create(DEVICE_TEMPLATES, device_template()),
                        create(PODS, with_device("a")),
                    ]
                },
            },
            Step {
                what: "it is deleted, and another comes",
                changes: || {
                    vec![
                        delete("/api/v1/namespaces/default/pods/a", "Background"),
                        create(PODS, with_device("b")),
                    ]
                },
            },
        ],
    },
    Scenario {
        name: "a pod has an ephemeral volume",
        controllers: &["ephemeral-volume"],
        nodes: 1,
        patience: 60,
        steps: &[
            Step {
                what: "its claim is made",
                changes: || vec![create(PODS, with_scratch("a"))],
            },
            Step {
                what: "it is deleted, and another comes",
                changes: || {
                    vec![
                        delete("/api/v1/namespaces/default/pods/a", "Background"),
                        create(PODS, with_scratch("b")),
                    ]
                },
            },
        ],
    },
    Scenario {
        name: "a certificate is asked for",
        controllers: &["certificatesigningrequest"],
        nodes: 1,
        patience: 5,
        steps: &[Step {
            what: "it is approved",
            changes: || {
                let request = |signer: &str| {
                    json!({ "metadata": { "name": "jane" }, "spec": {
                    "request": REQUEST, "signerName": signer, "usages": ["client auth"] } })
                };
                let approved = json!({ "status": { "conditions": [
                    { "type": "Approved", "status": "True", "reason": "Test", "message": "for a test" }] } });
                vec![
                    create(REQUESTS, request("kubernetes.io/kube-apiserver-client")),
                    patch(
                        "/apis/certificates.k8s.io/v1/certificatesigningrequests/jane/approval",
                        approved,
                    ),
                ]
            },
        }],
    },
];
