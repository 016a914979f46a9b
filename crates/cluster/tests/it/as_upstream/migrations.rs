//! Kinds that are new in Kubernetes 1.37: as kube-controller-manager 1.37.2 treats them.

use std::sync::{Mutex, PoisonError};

use kubewright_cluster::{Cluster, Minor};
use serde_json::{Value, json};

use super::{Create, Is, Merge, Step, check_on, play};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.mig.io";
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
pub(super) const BUNDLES: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles";

async fn check(name: &str, steps: Vec<Step>) {
    let builder = Cluster::builder().kubernetes_version(Minor::V37);
    let steps = Mutex::new(Some(steps));
    check_on(builder, async |client| {
        let steps = steps.lock().unwrap_or_else(PoisonError::into_inner).take();
        play(&client, name, steps.unwrap_or_default()).await;
    })
    .await;
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
