//! The built-in controllers as a user meets them: a cluster in this process, objects that are made, and states that
//! come.
//!
//! The whole behaviour is compared with recordings of the real controllers elsewhere; here are the promises that must
//! never break.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use crate::common::scenes::{check, create, until};
use crate::common::soon;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota, Secret,
    ServiceAccount,
};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};
use kubewright::{Observation, Outcome};
use kubewright_cluster::{Cluster, Controllers};
use kubewright_objects::api::apps::v1::Deployment;
use kubewright_objects::api::storage::v1::VolumeAttributesClass;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A client that writes what nothing acts on gets a warning, once; an API server alone gives none.
#[tokio::test]
async fn what_has_no_effect_is_told() {
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "a" },
        "spec": { "attacher": "ex.io", "nodeName": "n", "source": { "persistentVolumeName": "v" } },
    });
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    let (attachments, services) = (
        "/apis/storage.k8s.io/v1/volumeattachments",
        "/api/v1/namespaces/default/services",
    );
    let (labels, affinity) = (
        json!({ "metadata": { "labels": { "a": "b" } } }),
        json!({ "spec": { "sessionAffinity": "ClientIP" } }),
    );
    let no_addresses = "spec.type: this cluster gives Services of type LoadBalancer no addresses; start it with --load-balancer-range, or run a controller that does";
    let no_affinity = "spec.sessionAffinity: this cluster does not send a client to the same pod again";
    let nothing_attached = "this cluster has no controller attachdetach yet: nothing is attached";
    let requests: [(&str, String, &Value, Option<&str>); 4] = [
        ("POST", attachments.to_owned(), &attachment, Some(nothing_attached)),
        ("POST", services.to_owned(), &service, Some(no_addresses)),
        ("PATCH", format!("{services}/s"), &labels, None),
        ("PATCH", format!("{services}/s"), &affinity, Some(no_affinity)),
    ];
    let range = "10.9.0.0/29".parse().expect("a range");
    for (controllers, range) in [
        (Controllers::All, None),
        (Controllers::All, Some(range)),
        (Controllers::None, None),
    ] {
        let builder = Cluster::builder().controllers(controllers.clone());
        let builder = match range {
            Some(range) => builder.load_balancer_range(range),
            None => builder,
        };
        let cluster = builder.start().await.expect("a cluster starts");
        for (method, path, body, expected) in &requests {
            let kind = if *method == "POST" { "json" } else { "merge-patch+json" };
            let request = http::Request::builder().method(*method).uri(path);
            let request = request.header("content-type", format!("application/{kind}"));
            let request = request.body(body.to_string().into_bytes().into()).expect("a request");
            let answer = soon("the answer", cluster.client().send(request))
                .await
                .expect("an answer");
            let warnings = answer.headers().get_all("warning").iter();
            let found: Vec<&str> = warnings.map(|value| value.to_str().expect("a text")).collect();
            let is_told = controllers == Controllers::All && !(range.is_some() && *expected == Some(no_addresses));
            let expected = expected.filter(|_| is_told).map(|text| format!("299 - \"{text}\""));
            assert!(answer.status().is_success(), "{method} {path}: {}", answer.status());
            assert_eq!(found, Vec::from_iter(expected), "{method} {path} {body}");
        }
        cluster.stop().await;
    }
}

/// A claim of the default class is bound at once; one that waits for its first pod is bound when that is placed. A
/// volume that was made for a claim goes with it.
#[tokio::test]
async fn claims_get_volumes() {
    check(async |client| {
        let classes: Api<StorageClass> = Api::all(client.clone());
        let late = json!({
            "metadata": { "name": "late" }, "provisioner": "kubewright.dev/simulated", "volumeBindingMode": "WaitForFirstConsumer",
        });
        create(&classes, late).await;
        until(&classes, "standard", |class| class.is_some()).await;
        let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        for (name, class) in [("now", None), ("later", Some("late"))] {
            let claim = json!({
                "metadata": { "name": name },
                "spec": { "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
            });
            create(&claims, claim).await;
        }
        let bound = |claim: Option<&PersistentVolumeClaim>| {
            claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound")
        };
        until(&claims, "now", bound).await;
        let pod = json!({
            "metadata": { "name": "p" },
            "spec": {
                "containers": [{ "name": "c", "image": "app:1" }],
                "volumes": [
                    { "name": "a", "persistentVolumeClaim": { "claimName": "now" } },
                    { "name": "b", "persistentVolumeClaim": { "claimName": "later" } },
                ],
            },
        });
        create(&pods, pod).await;
        until(&pods, "p", |pod| pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some("Running")).await;
        let later = until(&claims, "later", bound).await.expect("a claim");
        let volume = later.spec.and_then(|spec| spec.volume_name).expect("a volume");
        for result in [pods.delete("p", &DeleteParams::default()).await.map(drop), claims.delete("later", &DeleteParams::default()).await.map(drop)] {
            result.expect("it is deleted");
        }
        until(&volumes, &volume, |volume| volume.is_none()).await;
    })
    .await;
}

/// An approved request is signed by the cluster's authority.
#[tokio::test]
async fn approved_requests_are_signed() {
    check(async |client| {
        let key = rcgen::KeyPair::generate().expect("entropy");
        let request = rcgen::CertificateParams::default().serialize_request(&key);
        let pem = request.expect("a request").pem().expect("PEM");
        let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
        let request = json!({
            "metadata": { "name": "jane" },
            "spec": {
                "request": base64::Engine::encode(&base64::prelude::BASE64_STANDARD, pem), "usages": ["client auth"],
                "signerName": "kubernetes.io/kube-apiserver-client", "expirationSeconds": 3600,
            },
        });
        create(&requests, request).await;
        let approval =
            json!({ "status": { "conditions": [{ "type": "Approved", "status": "True", "reason": "Test" }] } });
        let approved = requests
            .patch_approval("jane", &PatchParams::default(), &Patch::Merge(approval))
            .await;
        approved.expect("it is approved");
        let signed = |request: Option<&CertificateSigningRequest>| {
            let certificate = request.and_then(|request| request.status.as_ref()?.certificate.as_ref());
            certificate.is_some_and(|certificate| certificate.0.starts_with(b"-----BEGIN CERTIFICATE-----"))
        };
        until(&requests, "jane", signed).await;
    })
    .await;
}

/// A missing object keeps a simulated pod from starting, in the words of a kubelet; it starts once the object is there.
#[tokio::test]
async fn pods_behave_as_they_say() {
    check(async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let pod = |name: &str, annotations: Value, policy: &str, container: Value| {
            json!({ "metadata": { "name": name, "annotations": annotations }, "spec": { "restartPolicy": policy, "containers": [container] } })
        };
        let plain = || json!({ "name": "c", "image": "app:1" });
        let lacking = json!({ "name": "c", "image": "app:1", "envFrom": [{ "secretRef": { "name": "s" } }] });
        create(&pods, pod("lacks", json!({}), "Always", lacking)).await;
        create(&pods, pod("pulls", json!({}), "Always", json!({ "name": "c", "image": "registry.invalid/app:1" }))).await;
        create(&pods, pod("ends", json!({ "kubewright.dev/exit-code": "0" }), "Never", plain())).await;
        create(&pods, pod("fails", json!({ "kubewright.dev/exit-code": "3" }), "Never", plain())).await;
        create(&pods, pod("crashes", json!({ "kubewright.dev/exit-code": "1" }), "Always", plain())).await;
        create(&pods, pod("unready", json!({ "kubewright.dev/never-ready": "true" }), "Always", plain())).await;
        let waiting = |reason: &'static str| {
            move |pod: Option<&Pod>| {
                let status = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref()?.first());
                status.and_then(|status| status.state.as_ref()?.waiting.as_ref()?.reason.as_deref()) == Some(reason)
            }
        };
        let phase = |phase: &'static str| {
            move |pod: Option<&Pod>| pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some(phase)
        };
        until(&pods, "lacks", waiting("CreateContainerConfigError")).await;
        until(&pods, "pulls", waiting("ImagePullBackOff")).await;
        until(&pods, "crashes", waiting("CrashLoopBackOff")).await;
        until(&pods, "ends", phase("Succeeded")).await;
        until(&pods, "fails", phase("Failed")).await;
        let unready = until(&pods, "unready", phase("Running")).await.expect("a pod");
        let conditions = unready.status.and_then(|status| status.conditions).unwrap_or_default();
        assert!(conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "False"));
        let secrets: Api<Secret> = Api::default_namespaced(client.clone());
        create(&secrets, json!({ "metadata": { "name": "s" } })).await;
        until(&pods, "lacks", phase("Running")).await;
        let image = Patch::Strategic(json!({ "spec": { "containers": [{ "name": "c", "image": "app:2" }] } }));
        pods.patch("pulls", &PatchParams::default(), &image).await.expect("the image is changed");
        until(&pods, "pulls", phase("Running")).await;
    })
    .await;
}

/// A simulated node that is deleted is gone, until it is created again.
#[tokio::test]
async fn a_deleted_node_is_gone() {
    check(async |client| {
        let nodes: Api<Node> = Api::all(client.clone());
        let ready = |node: &Node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
        };
        until(&nodes, "node-0", |node| node.is_some_and(ready)).await;
        nodes
            .delete("node-0", &DeleteParams::default())
            .await
            .expect("it is deleted");
        // A simulated node that is made after it is ready, and it has not come back.
        let labels = json!({ "kubewright.dev/simulated": "true" });
        create(&nodes, json!({ "metadata": { "name": "other", "labels": labels } })).await;
        until(&nodes, "other", |node| node.is_some_and(ready)).await;
        assert!(nodes.get_opt("node-0").await.expect("an answer").is_none());
        create(&nodes, json!({ "metadata": { "name": "node-0", "labels": labels } })).await;
        until(&nodes, "node-0", |node| node.is_some_and(ready)).await;
    })
    .await;
}

/// Without metrics, an autoscaler keeps its target within its bounds, and says that it knows no more.
#[tokio::test]
async fn autoscalers_keep_bounds() {
    check(async |client| {
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        let scalers: Api<HorizontalPodAutoscaler> = Api::default_namespaced(client.clone());
        for (name, replicas) in [("small", 1), ("fits", 2)] {
            let deployment = json!({ "metadata": { "name": name }, "spec": {
                "replicas": replicas, "selector": { "matchLabels": { "app": name } },
                "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": [{ "name": "c", "image": "app:1" }] } },
            } });
            create(&deployments, deployment).await;
            let scaler = json!({ "metadata": { "name": name }, "spec": {
                "minReplicas": 2, "maxReplicas": 4, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
            } });
            create(&scalers, scaler).await;
        }
        let of = |deployment: &Deployment| deployment.spec.as_ref().and_then(|spec| spec.replicas);
        until(&deployments, "small", |deployment| deployment.and_then(of) == Some(2)).await;
        let said = |scaler: &HorizontalPodAutoscaler| {
            let conditions = scaler.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.is_some_and(|all| all.iter().any(|one| one.reason.as_deref() == Some("FailedGetResourceMetric")))
        };
        until(&scalers, "fits", |scaler| scaler.is_some_and(said)).await;
    })
    .await;
}

/// `view` gathers the rules of the roles that say so, also of one that comes later, and loses them again.
#[tokio::test]
async fn cluster_roles_gather_rules() {
    check(async |client| {
        let roles: Api<ClusterRole> = Api::all(client.clone());
        let has = |role: Option<&ClusterRole>, group: &str| {
            let rules = role.into_iter().flat_map(|role| role.rules.iter().flatten());
            rules
                .into_iter()
                .any(|rule| rule.api_groups.iter().flatten().any(|of| of == group))
        };
        until(&roles, "view", |view| has(view, "apps")).await;
        let more = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "more", "labels": { "rbac.authorization.k8s.io/aggregate-to-view": "true" } },
            "rules": [{ "apiGroups": ["ex.io"], "resources": ["foos"], "verbs": ["get"] }],
        });
        create(&roles, more).await;
        until(&roles, "admin", |admin| has(admin, "ex.io")).await;
        roles
            .delete("more", &DeleteParams::default())
            .await
            .expect("it is deleted");
        until(&roles, "admin", |admin| !has(admin, "ex.io") && has(admin, "apps")).await;
    })
    .await;
}

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

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
                          "spec": { "containers": [{ "name": "c", "image": "app:1" }] } });
    for (key, value) in spec.as_object().expect("fields of a spec") {
        pod["spec"][key] = value.clone();
    }
    pod
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

fn is_running(pod: Option<&Pod>) -> bool {
    let phase = pod
        .and_then(|pod| pod.status.as_ref())
        .and_then(|status| status.phase.as_deref());
    phase == Some("Running")
}

#[tokio::test]
async fn a_deployment_comes_rolls_scales_and_goes() {
    check(async |client| {
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client);
        create(&deployments, deployment("web", 2, "app:1")).await;
        until(&deployments, "web", complete).await;
        let image = json!({ "spec": { "replicas": 3, "template": { "spec": { "containers": [{ "name": "c", "image": "app:2" }] } } } });
        merge(&deployments, "web", image).await;
        until(&deployments, "web", complete).await;
        let images = |pods: Vec<Pod>| -> Vec<Option<String>> {
            let alive = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
            alive.map(|pod| pod.spec.and_then(|spec| spec.containers[0].image.clone())).collect()
        };
        let listed = pods.list(&ListParams::default()).await.expect("pods");
        assert_eq!(images(listed.items), vec![Some("app:2".to_owned()); 3]);
        let revisions: Vec<String> = sets.list(&ListParams::default()).await.expect("sets").iter().map(|set| set.annotations()["deployment.kubernetes.io/revision"].clone()).collect();
        assert_eq!(revisions.len(), 2, "{revisions:?}");
        deployments.delete("web", &DeleteParams::foreground()).await.expect("it is deleted");
        until(&deployments, "web", |deployment| deployment.is_none()).await;
        assert!(pods.list(&ListParams::default()).await.expect("pods").items.is_empty());
        assert!(sets.list(&ListParams::default()).await.expect("sets").items.is_empty());
    })
    .await;
}

#[tokio::test]
async fn children_of_a_custom_resource_go_with_it() {
    check(async |client| {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let configs: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "boats.example.com" },
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": { "plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList" },
                "versions": [{ "name": "v1", "served": true, "storage": true,
                               "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
            },
        });
        create(&definitions, definition).await;
        until(&definitions, "boats.example.com", |definition| {
            let status = definition.and_then(|definition| definition.status.as_ref());
            let conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
        })
        .await;
        let boat = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Boat"));
        let boats: Api<DynamicObject> = Api::default_namespaced_with(client, &boat);
        let made = create(&boats, json!({ "apiVersion": "example.com/v1", "kind": "Boat", "metadata": { "name": "b" } })).await;
        let owned = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "cargo", "ownerReferences": [{ "apiVersion": "example.com/v1", "kind": "Boat", "name": "b", "uid": made.uid() }] },
        });
        create(&configs, owned).await;
        boats.delete("b", &DeleteParams::background()).await.expect("it is deleted");
        until(&configs, "cargo", |config| config.is_none()).await;
    })
    .await;
}

#[tokio::test]
async fn a_namespace_is_furnished_and_emptied() {
    check(async |client| {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "house");
        let configs: Api<ConfigMap> = Api::namespaced(client, "house");
        create(&namespaces, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "house" } })).await;
        let first = until(&accounts, "default", |account| account.is_some()).await;
        accounts.delete("default", &DeleteParams::default()).await.expect("it is deleted");
        let uid = first.and_then(|account| account.metadata.uid);
        until(&accounts, "default", |account| account.is_some_and(|account| account.metadata.uid != uid)).await;

        let held = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c", "finalizers": ["example.com/hold"] } });
        create(&configs, held).await;
        namespaces.delete("house", &DeleteParams::default()).await.expect("it is deleted");
        until(&namespaces, "house", |namespace| {
            let status = namespace.and_then(|namespace| namespace.status.as_ref());
            let conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| {
                condition.type_ == "NamespaceFinalizersRemaining"
                    && condition.message.as_deref()
                        == Some("Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances")
            })
        })
        .await;
        merge(&configs, "c", json!({ "metadata": { "finalizers": null } })).await;
        until(&namespaces, "house", |namespace| namespace.is_none()).await;
    })
    .await;
}

#[tokio::test]
async fn a_class_of_volume_attributes_goes_when_no_claim_names_it() {
    check(async |client| {
        let classes: Api<VolumeAttributesClass> = Api::all(client.clone());
        let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client);
        for name in ["free", "used", "last"] {
            let class = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": { "name": name },
                "driverName": "example.com", "parameters": { "iops": "5" },
            });
            create(&classes, class).await;
        }
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c" },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "volumeAttributesClassName": "used",
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        create(&claims, claim).await;
        let delete = async |name: &str| {
            let _ = classes
                .delete(name, &DeleteParams::default())
                .await
                .expect("it is deleted");
        };
        delete("free").await;
        until(&classes, "free", |class| class.is_none()).await;
        delete("used").await;
        delete("last").await;
        until(&classes, "last", |class| class.is_none()).await;
        assert!(
            classes.get_opt("used").await.expect("an answer").is_some(),
            "the claim names it"
        );
        let _ = claims
            .delete("c", &DeleteParams::default())
            .await
            .expect("it is deleted");
        until(&classes, "used", |class| class.is_none()).await;
    })
    .await;
}

/// Go's years end 26 hours later than a `Timestamp` does, and its fractions of a second may have any length.
#[tokio::test]
async fn a_namespace_of_far_times_is_removed() {
    check(async |client| {
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
        let whole: Api<Namespace> = Api::all(client.clone());
        for (name, time) in [
            ("late", "9999-12-31T23:59:59Z"),
            ("fine", "2026-01-01T00:00:00.1234567891Z"),
        ] {
            create(
                &whole,
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
            )
            .await;
            let condition = json!({ "type": "Far", "status": "True", "lastTransitionTime": time });
            let status = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
            let patched = namespaces.patch_status(name, &PatchParams::default(), &status).await;
            patched.expect("it is patched");
            let written = json!([{
                "manager": "far", "operation": "Update", "apiVersion": "v1", "time": time,
                "fieldsType": "FieldsV1", "fieldsV1": { "f:data": { "f:a": {} } },
            }]);
            for (method, path) in [("POST", "configmaps"), ("PUT", "configmaps/c")] {
                let map = json!({ "metadata": { "name": "c", "managedFields": written }, "data": { "a": "b" } });
                let request = http::Request::builder()
                    .method(method)
                    .uri(format!("/api/v1/namespaces/{name}/{path}"))
                    .header("content-type", "application/json")
                    .body(map.to_string().into_bytes());
                let answer = client
                    .request_text(request.expect("a request"))
                    .await
                    .expect("it is written");
                assert_eq!(
                    answer.contains("9999-12-31T23:59:59Z"),
                    (name, method) == ("late", "PUT"),
                    "{answer}"
                );
            }
            let _ = namespaces
                .delete(name, &DeleteParams::default())
                .await
                .expect("it is deleted");
            until(&namespaces, name, |namespace| namespace.is_none()).await;
        }
    })
    .await;
}

/// An autoscaler lists the pods of its target without a cache.
#[tokio::test]
async fn a_target_with_a_pod_of_a_far_time_is_scaled() {
    check(async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
        let scalers: Api<HorizontalPodAutoscaler> = Api::default_namespaced(client.clone());
        let mut far = pod("far", json!({}));
        far["metadata"]["labels"] = json!({ "app": "far" });
        create(&pods, far).await;
        let condition = json!({ "type": "Far", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z" });
        let status = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
        let untyped: Api<PartialObjectMeta<Pod>> = Api::default_namespaced(client);
        let patched = untyped.patch_status("far", &PatchParams::default(), &status).await;
        patched.expect("it is patched");
        let set = json!({ "metadata": { "name": "far" }, "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": "far" } },
            "template": { "metadata": { "labels": { "app": "far" } },
                "spec": { "containers": [{ "name": "c", "image": "app:1" }] } },
        } });
        create(&sets, set).await;
        let scaler = json!({ "metadata": { "name": "far" }, "spec": {
            "maxReplicas": 2, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "far" },
        } });
        create(&scalers, scaler).await;
        until(&scalers, "far", |scaler| {
            let status = scaler.and_then(|scaler| scaler.status.as_ref());
            let conditions = status
                .and_then(|status| status.conditions.as_deref())
                .unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "ScalingActive")
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_pod_waits_for_a_node_that_fits() {
    check(async |client| {
        let nodes: Api<Node> = Api::all(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let events: Api<Event> = Api::default_namespaced(client);
        create(&pods, pod("picky", json!({ "nodeSelector": { "disk": "ssd" } }))).await;
        let told = until(&pods, "picky", |pod| {
            let conditions = pod
                .and_then(|pod| pod.status.as_ref())
                .into_iter()
                .flat_map(|status| status.conditions.iter().flatten());
            let mut scheduled = conditions.filter(|condition| condition.type_ == "PodScheduled");
            // Before the node is there the reason is another one.
            scheduled.any(|condition| {
                condition
                    .message
                    .as_ref()
                    .is_some_and(|message| message.contains("affinity/selector"))
            })
        })
        .await;
        assert_eq!(told.and_then(|pod| pod.spec).and_then(|spec| spec.node_name), None);
        merge(&nodes, "node-0", json!({ "metadata": { "labels": { "disk": "ssd" } } })).await;
        until(&pods, "picky", is_running).await;
        let reasons = async || {
            let listed = events.list(&ListParams::default()).await.expect("events");
            listed.into_iter().filter_map(|event| event.reason).collect::<Vec<_>>()
        };
        // Events are written behind the back of the controllers.
        while !reasons().await.iter().any(|reason| reason == "Scheduled") {
            tokio::task::yield_now().await;
        }
        assert!(reasons().await.iter().any(|reason| reason == "FailedScheduling"));
    })
    .await;
}

#[tokio::test]
async fn nodes_of_other_programs_are_not_simulated() {
    check(async |client| {
        let nodes: Api<Node> = Api::all(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client);
        create(
            &nodes,
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "theirs" } }),
        )
        .await;
        create(&pods, pod("on-theirs", json!({ "nodeName": "theirs" }))).await;
        create(&pods, pod("on-ours", json!({ "nodeName": "node-0" }))).await;
        until(&pods, "on-ours", is_running).await;
        let other = pods.get("on-theirs").await.expect("it is there");
        assert!(!is_running(Some(&other)), "{other:?}");
    })
    .await;
}

#[tokio::test]
async fn a_claim_goes_when_no_pod_uses_it() {
    check(async |client| {
        let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        create(&claims, claim).await;
        let volumes = json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] });
        create(&pods, pod("user", volumes)).await;
        until(&pods, "user", is_running).await;
        claims
            .delete("data", &DeleteParams::default())
            .await
            .expect("it is deleted");
        let held = claims.get("data").await.expect("the running pod holds it");
        assert!(held.metadata.deletion_timestamp.is_some());
        pods.delete("user", &DeleteParams::default())
            .await
            .expect("it is deleted");
        until(&claims, "data", |claim| claim.is_none()).await;
    })
    .await;
}

/// A quota is counted, charged, refuses, and gets the usage of deleted objects back; custom resources count as well.
#[tokio::test]
async fn a_quota_is_charged_and_gets_back() {
    check(async |client| {
        let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let configs: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let used = |quota: Option<&ResourceQuota>, name: &str| -> Option<String> {
            let used = quota?.status.as_ref()?.used.as_ref()?;
            used.get(name).map(|amount| amount.0.clone())
        };
        create(
            &configs,
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "there" } }),
        )
        .await;
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "q" },
            "spec": { "hard": { "pods": "1", "count/configmaps": "9", "count/deployments.apps": "0" } },
        });
        create(&quotas, quota).await;
        let counted = until(&quotas, "q", |quota| used(quota, "count/deployments.apps").is_some()).await;
        let maps = used(counted.as_ref(), "count/configmaps").expect("they are counted");
        assert!(maps != "0", "{maps}");
        create(&pods, pod("one", json!({}))).await;
        let charged = quotas.get("q").await.expect("it is there");
        assert_eq!(used(Some(&charged), "pods").as_deref(), Some("1"));
        let second = serde_json::from_value(pod("two", json!({}))).expect("a pod");
        let refused = pods
            .create(&PostParams::default(), &second)
            .await
            .expect_err("it is refused");
        let text = "pods \"two\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
        assert!(refused.to_string().contains(text), "{refused}");
        let third: Deployment = serde_json::from_value(deployment("web", 1, "app:1")).expect("a deployment");
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        assert!(deployments.create(&PostParams::default(), &third).await.is_err());
        pods.delete("one", &DeleteParams::default())
            .await
            .expect("it is deleted");
        until(&quotas, "q", |quota| used(quota, "pods").as_deref() == Some("0")).await;
        create(&pods, pod("two", json!({}))).await;
        merge(&quotas, "q", json!({ "spec": { "hard": { "pods": null } } })).await;
        until(&quotas, "q", |quota| quota.is_some() && used(quota, "pods").is_none()).await;
        create(&pods, pod("three", json!({}))).await;
    })
    .await;
}

/// A cluster that stops in the middle of a rollout lets its controllers finish their work: none sees that its server is
/// gone.
#[tokio::test]
async fn controllers_stop_before_the_server() {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let seen = failures.clone();
    let observer = move |what: &Observation| {
        if let Observation::ReconcileFinished {
            controller,
            outcome: outcome @ (Outcome::Retry { .. } | Outcome::Terminal { .. }),
            ..
        } = what
        {
            seen.lock().unwrap().push(format!("{controller}: {outcome:?}"));
        }
    };
    let cluster = Cluster::builder().observe(Arc::new(observer)).start().await.unwrap();
    let client = cluster.client();
    let spec = json!({"containers": [{"name": "one", "image": "example.com/one"}]});
    let deployment = json!({"metadata": {"name": "many"}, "spec": {
        "replicas": 40,
        "selector": {"matchLabels": {"app": "many"}},
        "template": {"metadata": {"labels": {"app": "many"}}, "spec": spec},
    }});
    create(&Api::<Deployment>::default_namespaced(client.clone()), deployment).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let some = async {
        while pods.list(&ListParams::default()).await.unwrap().items.len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    soon("three pods", some).await;
    cluster.stop().await;
    assert_eq!(failures.lock().unwrap().as_slice(), <[String; 0]>::default());
}

/// Pods that finish make room for others, but not for pods that have their node already: none is bound twice.
#[tokio::test]
async fn a_pod_is_bound_once() {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let seen = failures.clone();
    let observer = move |what: &Observation| {
        if let Observation::ReconcileFinished {
            controller,
            outcome: outcome @ (Outcome::Conflict { .. } | Outcome::Retry { .. } | Outcome::Terminal { .. }),
            ..
        } = what
            && controller.as_ref() == "default-scheduler"
        {
            seen.lock().unwrap().push(format!("{outcome:?}"));
        }
    };
    let cluster = Cluster::builder().observe(Arc::new(observer)).start().await.unwrap();
    let jobs: Api<Job> = Api::default_namespaced(cluster.client());
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "one", "image": "example.com/one"}]});
    for number in 0..40 {
        let job = json!({"metadata": {"name": format!("job-{number}")}, "spec": {"template": {"spec": spec}}});
        create(&jobs, job).await;
    }
    let succeeded = |job: Option<&Job>| job.and_then(|job| job.status.as_ref()?.succeeded) == Some(1);
    for number in 0..40 {
        until(&jobs, &format!("job-{number}"), succeeded).await;
    }
    cluster.stop().await;
    assert_eq!(failures.lock().unwrap().as_slice(), <[String; 0]>::default());
}
