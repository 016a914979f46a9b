//! Workloads as a user meets them: new objects come to life, change, and go. The controllers' own decisions are tested
//! beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use crate::common::scenes::{check, create, until};
use crate::common::soon;
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Event, Namespace, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, Service,
    ServiceAccount,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use kubewright_cluster::controllers::ROLE;
use kubewright_cluster::{AuditFormat, AuditLog, AuditPolicy, AuditSink, Cluster, ControllerManager, Controllers};
use kubewright_objects::api::apps::v1::Deployment;
use kubewright_objects::api::core::v1 as own;
use kubewright_objects::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

async fn merge<K: Clone + Debug + DeserializeOwned>(api: &Api<K>, name: &str, patch: Value) {
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.expect("it is patched");
}

fn deployment(name: &str, replicas: i32, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": image }] },
            },
        },
    })
}

fn complete(deployment: Option<&Deployment>) -> bool {
    deployment.is_some_and(|deployment| {
        let status = deployment.status.clone().unwrap_or_default();
        let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        status.observed_generation == deployment.metadata.generation
            && status.available_replicas == wanted
            && status.updated_replicas == wanted
            && status.replicas == wanted
            && status.unavailable_replicas.is_none()
    })
}

/// A client that reads `generation` to learn whether the spec changed sees only changes by users: the revision is
/// no part of the wish.
#[tokio::test]
async fn a_new_deployment_stays_at_its_first_generation() {
    check(async |client| {
        let deployments: Api<Deployment> = Api::default_namespaced(client);
        create(&deployments, deployment("web", 1, "app:1")).await;
        let web = until(&deployments, "web", complete).await.expect("it is there");
        assert_eq!(web.annotations()["deployment.kubernetes.io/revision"], "1");
        assert_eq!(web.metadata.generation, Some(1));
    })
    .await;
}

/// The types of the user's program may be of a version that does not know a field; the cluster's controllers know it. A
/// pod without it would start where it is not to, or run again when it has ended.
#[tokio::test]
async fn pods_have_all_fields_of_their_template() {
    const KINDS: [(&str, &str); 6] = [
        ("apps/v1", "Deployment"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "Job"),
        ("v1", "ReplicationController"),
    ];
    check(async |client| {
        for (api_version, kind) in KINDS {
            let name = kind.to_lowercase();
            let rules = json!([{ "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } }]);
            let spec = json!({ "hostnameOverride": "other", "restartPolicy": if kind == "Job" { "Never" } else { "Always" },
                "containers": [{ "name": "c", "image": "app:1", "restartPolicy": "Never", "restartPolicyRules": rules }] });
            let mut spec = json!({ "template": { "metadata": { "labels": { "app": name } }, "spec": spec } });
            match kind {
                "Job" => {}
                "ReplicationController" => spec["selector"] = json!({ "app": name }),
                _ => spec["selector"] = json!({ "matchLabels": { "app": name } }),
            }
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let owners: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
            let owner = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name }, "spec": spec });
            create(&owners, owner).await;
            let pods: Api<own::Pod> = Api::default_namespaced(client.clone());
            let selected = ListParams::default().labels(&format!("app={name}"));
            let pod = loop {
                let found = pods.list(&selected).await.expect("pods are listed").items.pop();
                match found.and_then(|pod| pod.spec) {
                    Some(spec) => break spec,
                    None => tokio::task::yield_now().await,
                }
            };
            assert_eq!(pod.hostname_override.as_deref(), Some("other"), "{kind}");
            assert_eq!(json!(pod.containers[0].restart_policy_rules), rules, "{kind}");
        }
    })
    .await;
}

/// Dependents that do not block go before the owner loses `foregroundDeletion`: held by a finalizer of its own it would
/// look like an owner that keeps them.
#[tokio::test]
async fn foreground_deletion_takes_dependents_of_an_owner_that_stays() {
    check(async |client| {
        let configs: Api<ConfigMap> = Api::default_namespaced(client);
        let config = |name: &str, more: Value| {
            let mut config = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": more });
            config["metadata"]["name"] = json!(name);
            config
        };
        let owner = create(&configs, config("owner", json!({ "finalizers": ["example.com/hold"] }))).await;
        // Several, because whether one is looked at before its owner was a matter of uids.
        let names: Vec<String> = (0..8).map(|at| format!("dependent-{at}")).collect();
        let references = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid() }]);
        for name in &names {
            create(&configs, config(name, json!({ "ownerReferences": references }))).await;
        }
        configs
            .delete("owner", &DeleteParams::foreground())
            .await
            .expect("it is deleted");
        for name in &names {
            until(&configs, name, |config| config.is_none()).await;
        }
        let held = |owner: Option<&ConfigMap>| owner.is_some_and(|owner| owner.finalizers() == ["example.com/hold"]);
        until(&configs, "owner", held).await;
        merge(&configs, "owner", json!({ "metadata": { "finalizers": null } })).await;
        until(&configs, "owner", |owner| owner.is_none()).await;
    })
    .await;
}

/// A namespace that another finalizer holds says that it is empty.
#[tokio::test]
async fn an_empty_namespace_says_so_before_it_is_finalized() {
    check(async |client| {
        let namespaces: Api<Namespace> = Api::all(client);
        let held = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "held" },
            "spec": { "finalizers": ["example.com/hold"] },
        });
        create(&namespaces, held).await;
        namespaces
            .delete("held", &DeleteParams::default())
            .await
            .expect("it is deleted");
        let finalizers = |namespace: &Namespace| {
            namespace
                .spec
                .clone()
                .and_then(|spec| spec.finalizers)
                .unwrap_or_default()
        };
        let ours_is_gone = |namespace: Option<&Namespace>| {
            namespace.is_some_and(|namespace| finalizers(namespace) == ["example.com/hold"])
        };
        let held = until(&namespaces, "held", ours_is_gone).await.expect("it is there");
        let conditions = held.status.and_then(|status| status.conditions).unwrap_or_default();
        let said: Vec<(&str, &str)> = conditions
            .iter()
            .map(|of| (of.type_.as_str(), of.status.as_str()))
            .collect();
        assert_eq!(said.len(), 5, "{said:?}");
        assert!(said.iter().all(|(_, status)| *status == "False"), "{said:?}");
    })
    .await;
}

/// Pods come, are ready, and go with their owner.
#[tokio::test]
async fn workloads_come_and_go() {
    async fn lives<K>(client: Client, object: Value, ready: impl Fn(&Value) -> bool)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
    {
        let api: Api<K> = Api::default_namespaced(client.clone());
        create(&api, object).await;
        let status = |object: &K| serde_json::to_value(object).expect("JSON")["status"].clone();
        until(&api, "web", |object| {
            object.is_some_and(|object| ready(&status(object)))
        })
        .await;
        api.delete("web", &DeleteParams::foreground())
            .await
            .expect("it is deleted");
        until(&api, "web", |object| object.is_none()).await;
        let pods: Api<Pod> = Api::default_namespaced(client);
        let left = pods.list(&ListParams::default()).await.expect("pods").items;
        assert!(left.is_empty(), "{} left pods", K::kind(&()));
    }
    check(async |client| {
        let of = |version: &str, kind: &str, more: Value| {
            let mut object = deployment("web", 2, "app:1");
            (object["apiVersion"], object["kind"]) = (json!(version), json!(kind));
            for (key, value) in more.as_object().expect("fields of a spec") {
                object["spec"][key] = value.clone();
            }
            object
        };
        let set = of("apps/v1", "StatefulSet", json!({ "serviceName": "web" }));
        lives::<StatefulSet>(client.clone(), set, |status| status["availableReplicas"] == 2).await;
        let mut everywhere = of("apps/v1", "DaemonSet", json!({}));
        everywhere["spec"].as_object_mut().expect("a spec").remove("replicas");
        lives::<DaemonSet>(client.clone(), everywhere, |status| status["numberAvailable"] == 1).await;
        let elder = of("v1", "ReplicationController", json!({ "selector": { "app": "web" } }));
        lives::<ReplicationController>(client, elder, |status| status["availableReplicas"] == 2).await;
    })
    .await;
}

/// At every event of a rolling update as many pods are ready as maxUnavailable promises, and no more exist than
/// maxSurge allows.
#[tokio::test]
async fn a_rolling_update_keeps_its_promises() {
    check(async |client| {
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        create(&deployments, deployment("web", 20, "app:1")).await;
        until(&deployments, "web", complete).await;
        let pods: Api<Pod> = Api::default_namespaced(client);
        let listed = pods.list(&ListParams::default()).await.expect("pods");
        let version = listed.metadata.resource_version.expect("a version");
        let mut events = std::pin::pin!(pods.watch(&WatchParams::default(), &version).await.expect("a watch"));
        let mut there: BTreeMap<String, bool> = listed.items.iter().map(|pod| (pod.name_any(), true)).collect();
        let image =
            json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "app:2" }] } } } });
        merge(&deployments, "web", image).await;
        let mut updated = BTreeSet::new();
        while updated.len() < 20 || there.len() > 20 {
            match events.next().await.expect("the watch goes on").expect("an event") {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) if pod.metadata.deletion_timestamp.is_none() => {
                    let ready = is_ready(&pod);
                    there.insert(pod.name_any(), ready);
                    if ready
                        && pod
                            .spec
                            .as_ref()
                            .is_some_and(|spec| spec.containers[0].image.as_deref() == Some("app:2"))
                    {
                        updated.insert(pod.name_any());
                    }
                }
                WatchEvent::Modified(pod) | WatchEvent::Deleted(pod) => drop(there.remove(&pod.name_any())),
                _ => {}
            }
            let ready = there.values().filter(|ready| **ready).count();
            assert!(ready >= 15 && there.len() <= 25, "{ready} of {} are ready", there.len());
        }
    })
    .await;
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Remembers the requests of controllers that the API server refused, and their deletes of an object that has the name,
/// whichever it is.
#[derive(Default)]
struct Wrong(Mutex<Vec<String>>);

impl AuditSink for Wrong {
    fn write(&self, line: &str) -> Result<(), String> {
        let event: Value = serde_json::from_str(line).map_err(|why| why.to_string())?;
        let message = event["responseStatus"]["message"].as_str().unwrap_or_default();
        // Every client is told so, whatever its rights.
        let is_ending = message.ends_with("because it is being terminated");
        if event["responseStatus"]["code"] == 403 && !is_ending {
            let said = format!(
                "{} {}: {}",
                event["verb"], event["requestURI"], event["responseStatus"]["message"]
            );
            self.0.lock().expect("no test panics here").push(said);
        }
        let is_delete = event["verb"] == "delete" && event["stage"] == "ResponseComplete";
        if is_delete
            && event["user"]["username"] == CONTROLLERS
            && event["requestObject"]["preconditions"]["uid"].is_null()
        {
            let said = format!("{} without a uid", event["requestURI"]);
            self.0.lock().expect("no test panics here").push(said);
        }
        Ok(())
    }
}

/// Who the controllers are.
const CONTROLLERS: &str = "system:serviceaccount:kube-system:kubewright";

/// The controllers against an API server that has none, as a service account with the role that they ask for. What they
/// delete is the object that they have seen, and no other that has its name by now.
#[tokio::test]
async fn controllers_of_another_api_server_under_their_own_role() {
    let wrong = Arc::new(Wrong::default());
    let policy = br#"{"apiVersion":"audit.k8s.io/v1","kind":"Policy",
        "rules":[{"level":"Request","verbs":["delete"]},{"level":"Metadata"}]}"#;
    let log = AuditLog {
        policy: Arc::new(AuditPolicy::parse(policy).expect("a policy")),
        sink: wrong.clone(),
        strict: false,
        format: AuditFormat::default(),
        max_event_size: None,
    };
    let bare = Cluster::builder().controllers(Controllers::None).audit(log);
    let cluster = bare.start().await.expect("a cluster starts");
    let client = cluster.client();
    let roles: Api<ClusterRole> = Api::all(client.clone());
    create(&roles, serde_saphyr::from_str(ROLE).expect("YAML")).await;
    let binding = json!({ "metadata": { "name": "controllers" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubewright-controllers" },
        "subjects": [{ "kind": "ServiceAccount", "namespace": "kube-system", "name": "kubewright" }] });
    create(&Api::<ClusterRoleBinding>::all(client.clone()), binding).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let manager = ControllerManager::new(cluster.client_of_service_account("kube-system", "kubewright"));
    let manager = tokio::spawn(manager.leader_election().run(async { drop(stopped.await) }));
    soon("workloads of every kind", live_and_go(client)).await;
    stop.send(()).expect("they run until then");
    let ended = soon("the controllers end", manager).await;
    ended.expect("no panic").expect("they ran");
    cluster.stop().await;
    let wrong = wrong.0.lock().expect("no test panics here");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Changes that make every controller write.
async fn live_and_go(client: Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({ "metadata": { "name": "shop" } })).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "shop");
    until(&accounts, "default", |account| account.is_some()).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "shop");
    let spec = json!({ "containers": [{ "name": "c", "image": "app:1" }] });
    let of = |app: &str| {
        (
            json!({ "matchLabels": { "app": app } }),
            json!({ "metadata": { "labels": { "app": app } }, "spec": spec }),
        )
    };
    let (selector, template) = of("web");
    let set =
        json!({ "metadata": { "name": "web" }, "spec": { "replicas": 2, "selector": selector, "template": template } });
    create(&Api::<Deployment>::namespaced(client.clone(), "shop"), set).await;
    let (selector, template) = of("db");
    let claims = json!([{ "metadata": { "name": "data" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }]);
    let set = json!({ "metadata": { "name": "db" }, "spec": {
        "serviceName": "db", "selector": selector, "template": template, "volumeClaimTemplates": claims } });
    create(&Api::<StatefulSet>::namespaced(client.clone(), "shop"), set).await;
    let (selector, template) = of("agent");
    let set = json!({ "metadata": { "name": "agent" }, "spec": { "selector": selector, "template": template } });
    create(&Api::<DaemonSet>::namespaced(client.clone(), "shop"), set).await;
    let service =
        json!({ "metadata": { "name": "web" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } });
    create(&Api::<Service>::namespaced(client.clone(), "shop"), service).await;
    let once = json!({ "containers": spec["containers"], "restartPolicy": "Never" });
    let job = json!({ "metadata": { "name": "once" }, "spec": { "ttlSecondsAfterFinished": 0, "template": { "spec": once } } });
    let jobs: Api<Job> = Api::namespaced(client.clone(), "shop");
    create(&jobs, job).await;
    // A run of the first of January was missed; of what it was, nothing is kept.
    let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), "shop");
    let cron = json!({ "metadata": { "name": "cron" }, "spec": { "schedule": "0 0 1 1 *", "suspend": true,
        "successfulJobsHistoryLimit": 0, "jobTemplate": { "spec": { "template": { "spec": once } } } } });
    create(&cron_jobs, cron).await;
    let missed = Patch::Merge(json!({ "status": { "lastScheduleTime": "2020-06-01T00:00:00Z" } }));
    let missed = cron_jobs.patch_status("cron", &PatchParams::default(), &missed).await;
    missed.expect("it is written");
    merge(&cron_jobs, "cron", json!({ "spec": { "suspend": false } })).await;
    let has_run = |found: Option<&CronJob>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| status.last_successful_time.is_some() && status.active.is_none())
    };
    until(&cron_jobs, "cron", has_run).await;
    let budget = json!({ "metadata": { "name": "web" }, "spec": { "minAvailable": "50%", "selector": { "matchLabels": { "app": "web" } } } });
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), "shop");
    create(&budgets, budget).await;
    let quota = json!({ "metadata": { "name": "all" }, "spec": { "hard": { "pods": "20" } } });
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), "shop");
    create(&quotas, quota).await;
    let sums = json!({ "metadata": { "name": "sums" }, "rules": [],
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "kubernetes.io/bootstrapping": "rbac-defaults" } }] } });
    let roles: Api<ClusterRole> = Api::all(client.clone());
    create(&roles, sums).await;
    let runs = |pod: &Pod| {
        pod.status
            .as_ref()
            .is_some_and(|status| status.phase.as_deref() == Some("Running"))
    };
    until(&pods, "db-0", |pod| pod.is_some_and(runs)).await;
    let endpoints: Api<Endpoints> = Api::namespaced(client.clone(), "shop");
    let both = |found: Option<&Endpoints>| {
        let subset = found.and_then(|found| found.subsets.as_ref()?.first()?.addresses.as_ref());
        subset.is_some_and(|addresses| addresses.len() == 2)
    };
    until(&endpoints, "web", both).await;
    until(&budgets, "web", |found| {
        found.is_some_and(|found| {
            found
                .status
                .as_ref()
                .is_some_and(|status| status.disruptions_allowed == Some(1))
        })
    })
    .await;
    let used = |found: Option<&ResourceQuota>| {
        found.and_then(|found| found.status.as_ref()?.used.as_ref()?.get("pods").cloned())
    };
    until(&quotas, "all", |found| used(found).is_some_and(|used| used.0 == "4")).await;
    until(&roles, "sums", |found| {
        found.is_some_and(|role| role.rules.as_ref().is_some_and(|rules| !rules.is_empty()))
    })
    .await;
    until(&jobs, "once", |job| job.is_none()).await;
    let services: Api<Service> = Api::namespaced(client.clone(), "shop");
    let deleted = services.delete("web", &DeleteParams::default()).await;
    deleted.expect("it is deleted");
    until(&endpoints, "web", |found| found.is_none()).await;
    namespaces
        .delete("shop", &DeleteParams::default())
        .await
        .expect("it is deleted");
    until(&namespaces, "shop", |namespace| namespace.is_none()).await;
}

/// The claim of a generic ephemeral volume is made for the pod, is made again when it is deleted, and goes with the pod.
#[tokio::test]
async fn an_ephemeral_volume_has_a_claim() {
    check(async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
        let template =
            json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
        let scratch = json!({ "name": "scratch", "ephemeral": { "volumeClaimTemplate": template } });
        let mounts = json!([{ "name": "scratch", "mountPath": "/s" }]);
        let spec =
            json!({ "containers": [{ "name": "c", "image": "i", "volumeMounts": mounts }], "volumes": [scratch] });
        create(&pods, json!({ "metadata": { "name": "p" }, "spec": spec })).await;
        let is_running = |pod: Option<&Pod>| {
            let status = pod.and_then(|pod| pod.status.as_ref());
            status.and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        let pod = until(&pods, "p", is_running).await.expect("it is there");
        let claim = claims.get("p-scratch").await.expect("a claim");
        assert_eq!(claim.owner_references()[0].uid, pod.uid().expect("a uid"));
        // A claim of that name that belongs to nobody is not used.
        let foreign = json!({ "metadata": { "name": "q-scratch" }, "spec": template["spec"] });
        create(&claims, foreign).await;
        create(&pods, json!({ "metadata": { "name": "q" }, "spec": spec })).await;
        let waits = |pod: Option<&Pod>| {
            let status = pod.and_then(|pod| pod.status.as_ref());
            let mut conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.any(|condition| {
                condition
                    .message
                    .as_deref()
                    .is_some_and(|why| why.contains("was not created for pod default/q"))
            })
        };
        until(&pods, "q", waits).await;
        pods.delete("p", &DeleteParams::default().grace_period(0))
            .await
            .expect("it is deleted");
        until(&claims, "p-scratch", |claim| claim.is_none()).await;
    })
    .await;
}

/// Makes a kind whose objects cannot be listed: they are to be converted, and nobody does.
async fn cannot_be_listed(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let version = |name: &str, storage: bool| {
        let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        json!({ "name": name, "served": true, "storage": storage, "schema": schema })
    };
    // Nobody listens there: the operator has not been started.
    let webhook =
        json!({ "clientConfig": { "url": "https://127.0.0.1:1/convert" }, "conversionReviewVersions": ["v1"] });
    create(
        &definitions,
        json!({
            "metadata": { "name": "widgets.example.com" },
            "spec": { "group": "example.com", "scope": "Namespaced", "names": { "plural": "widgets", "kind": "Widget" },
                "versions": [version("v1", true), version("v2", false)],
                "conversion": { "strategy": "Webhook", "webhook": webhook } },
        }),
    )
    .await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let widget = DynamicObject::new("w", &resource).data(json!({}));
    let made = async {
        while widgets.create(&PostParams::default(), &widget).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon("the kind is served", made).await;
}

/// A kind that cannot be listed does not keep a quota from counting others.
#[tokio::test]
async fn a_quota_counts_beside_a_kind_that_cannot_be_listed() {
    check(async |client| {
        cannot_be_listed(&client).await;
        let hard = json!({ "count/widgets.example.com": "5", "pods": "10" });
        let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
        create(
            &quotas,
            json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } }),
        )
        .await;
        let counts = |expected: &'static str| {
            move |found: Option<&ResourceQuota>| {
                let used = found.and_then(|found| found.status.as_ref()?.used.as_ref());
                used.and_then(|used| used.get("pods"))
                    .is_some_and(|pods| pods.0 == expected)
            }
        };
        until(&quotas, "q", counts("0")).await;
        let pods: Api<Pod> = Api::default_namespaced(client);
        let spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
        create(&pods, json!({ "metadata": { "name": "p" }, "spec": spec })).await;
        until(&quotas, "q", counts("1")).await;
    })
    .await;
}

/// A kind whose objects cannot be listed does not keep others from being deleted in the foreground: it is told on the
/// object, and given up after a time.
#[tokio::test]
async fn a_kind_that_cannot_be_listed_holds_up_no_other() {
    let names = Controllers::All.names().expect("names");
    let others = names
        .into_iter()
        .filter(|name| *name != "garbage-collector")
        .map(str::to_owned);
    let cluster = Cluster::builder()
        .controllers(Controllers::Only(others.collect()))
        .start()
        .await;
    let cluster = cluster.expect("a cluster starts");
    let client = cluster.client();
    cannot_be_listed(&client).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    create(&deployments, deployment("web", 1, "app:1")).await;
    until(&deployments, "web", complete).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let collector =
        ControllerManager::new(client.clone()).controllers(Controllers::Only(vec!["garbage-collector".to_owned()]));
    let collector = tokio::spawn(collector.run(async { drop(stopped.await) }));
    deployments
        .delete("web", &DeleteParams::foreground())
        .await
        .expect("it is deleted");
    until(&deployments, "web", |web| web.is_none()).await;
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let said = events
        .list(&ListParams::default().fields("reason=DependentsUnknown"))
        .await
        .expect("events");
    let said = said
        .items
        .iter()
        .filter_map(|event| event.message.as_deref())
        .next()
        .unwrap_or_default();
    assert!(said.starts_with("widgets.example.com cannot be listed"), "{said:?}");
    stop.send(()).expect("it runs until then");
    soon("the collector ends", collector)
        .await
        .expect("no panic")
        .expect("it ran");
    cluster.stop().await;
}
