//! What is new in Kubernetes 1.37, as kube-controller-manager 1.37.2 treats it.

use kubewright_cluster::{Cluster, Minor};
use serde_json::{Value, json};

use super::{CLAIM, Create, Delete, Is, Merge, Step, VOLUMES, check_with, claim};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.mig.io";
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
pub(super) const BUNDLES: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles";

async fn check(name: &str, steps: Vec<Step>) {
    let builder = Cluster::builder().nodes(1).kubernetes_version(Minor::V37);
    check_with(builder, name, steps).await;
}

fn migration(name: &str, group: &str, resource: &str) -> Step {
    let spec = json!({ "resource": { "group": group, "resource": resource } });
    Create(
        MIGRATIONS,
        json!({ "apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
            "metadata": { "name": name }, "spec": spec }),
    )
}

/// The status of a migration that is over.
fn over(kind: &str, reason: &str, message: &str) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "*" });
    let running = condition("Running", "False", "MigrationCompleted", "Migration completed");
    json!({ "status": { "conditions": [running, condition(kind, "True", reason, message)] } })
}

#[tokio::test]
async fn migrations_of_storage() {
    let versions = |stored: &str| {
        let schema = json!({ "openAPIV3Schema": { "type": "object" } });
        let version = |name: &str| json!({ "name": name, "served": true, "storage": name == stored, "schema": schema });
        json!([version("v1"), version("v2")])
    };
    let definition = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "foos.mig.io" }, "spec": { "group": "mig.io", "scope": "Namespaced",
            "names": { "plural": "foos", "kind": "Foo" }, "versions": versions("v1") } });
    let foo = json!({ "apiVersion": "mig.io/v1", "kind": "Foo", "metadata": { "name": "f" } });
    let succeeded = || over("Succeeded", "StorageVersionMigrationSucceeded", "Migration completed");
    let cannot = "resource \"/v1, Resource=bindings\" does not support discovery operations: [update patch list]";
    let migrated = json!({ "type": "StorageMigrating", "status": "False", "reason": "MigrationSucceeded",
        "message": "The migration has succeeded and the stored versions have been updated",
        "lastTransitionTime": "*", "observedGeneration": 2 });
    let conditions = json!(["*", "*", migrated]);
    let steps = vec![
        Create(DEFINITIONS, definition),
        Is(
            DEFINITION,
            json!({ "status": { "conditions": ["*", { "type": "Established", "status": "True" }] } }),
        ),
        Create("/apis/mig.io/v1/namespaces/default/foos", foo),
        Merge(DEFINITION, json!({ "spec": { "versions": versions("v2") } })),
        Is(DEFINITION, json!({ "status": { "storedVersions": ["v1", "v2"] } })),
        migration("first", "mig.io", "foos"),
        migration("second", "mig.io", "foos"),
        migration("cannot", "", "bindings"),
        Is(
            "/apis/storagemigration.k8s.io/v1/storageversionmigrations/first",
            succeeded(),
        ),
        Is(
            "/apis/storagemigration.k8s.io/v1/storageversionmigrations/second",
            succeeded(),
        ),
        Is(
            "/apis/storagemigration.k8s.io/v1/storageversionmigrations/cannot",
            over("Failed", "StorageVersionMigrationFailed", cannot),
        ),
        Is(
            DEFINITION,
            json!({ "status": { "storedVersions": ["v2"], "conditions": conditions } }),
        ),
    ];
    check("objects are stored in the new version", steps).await;
}

#[tokio::test]
async fn the_authority_is_published() {
    let spec = json!({ "signerName": "kubernetes.io/kube-apiserver-serving", "trustBundle": "*" });
    let published = json!({ "items": [{ "metadata": { "name": "*" }, "spec": spec }] });
    check("the bundle is there", vec![Is(BUNDLES, published)]).await;
}

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const SET: &str = "/apis/apps/v1/namespaces/default/statefulsets/db";

fn set(replicas: u32, strategy: &Value) -> Step {
    let template = json!({ "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": "app:1" }] } });
    let spec = json!({ "serviceName": "db", "replicas": replicas, "selector": { "matchLabels": { "app": "db" } },
        "template": template, "updateStrategy": strategy });
    Create(
        SETS,
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" }, "spec": spec }),
    )
}

#[tokio::test]
async fn updates_of_stateful_sets() {
    // New pods fit no node: two of the old ones have gone, and the lower of these must be ready first.
    let nowhere = json!({ "spec": { "template": { "spec": { "nodeSelector": { "no": "where" } } } } });
    let status = json!({ "replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "currentReplicas": 2, "updatedReplicas": 1 });
    let steps = vec![
        set(
            4,
            &json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } }),
        ),
        Is(SET, json!({ "status": { "readyReplicas": 4, "currentReplicas": 4 } })),
        Merge(SET, nowhere),
        Is(SET, json!({ "status": status })),
    ];
    check("two pods may be unavailable", steps).await;

    let labels = json!({ "spec": { "template": { "metadata": { "labels": { "v": "2" } } } } });
    let status = |current: Option<u32>, updated: Option<u32>| json!({ "status": { "readyReplicas": 2, "currentReplicas": current, "updatedReplicas": updated } });
    let steps = vec![
        set(2, &json!({ "type": "OnDelete" })),
        Is(SET, status(Some(2), Some(2))),
        Merge(SET, labels),
        Is(SET, status(Some(2), None)),
        Delete("/api/v1/namespaces/default/pods/db-0"),
        Is(SET, status(Some(1), Some(1))),
        Delete("/api/v1/namespaces/default/pods/db-1"),
        Is(SET, status(Some(2), Some(2))),
    ];
    check("an update by deletes comes to its end", steps).await;
}

#[tokio::test]
async fn claims_that_no_pod_uses() {
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" }, "spec": {
        "capacity": { "storage": "2Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
        "hostPath": { "path": "/x" } } });
    let unused = json!({ "type": "Unused", "status": "True", "reason": "NoPodsUsingPVC",
        "message": "No pods are currently referencing this PVC", "lastTransitionTime": "*" });
    let steps = vec![
        Create(VOLUMES, volume),
        claim("c", "slow"),
        Is(CLAIM, json!({ "status": { "phase": "Bound", "conditions": [unused] } })),
    ];
    check("a bound claim", steps).await;
}
