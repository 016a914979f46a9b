//! StatefulSets and their claims.

use serde_json::json;

use super::{Create, Is, Merge, Says, Silent, check};

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const SET: &str = "/apis/apps/v1/namespaces/default/statefulsets/db";

#[tokio::test]
async fn the_owner_of_claims_changes() {
    let policy = |scaled: &str, deleted: &str| json!({ "whenScaled": scaled, "whenDeleted": deleted });
    let labels = json!({ "app": "db" });
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } });
    let template =
        json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "app:1" }] } });
    let set = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" }, "spec": {
        "serviceName": "db", "replicas": 1, "selector": { "matchLabels": labels }, "template": template,
        "volumeClaimTemplates": [claim], "persistentVolumeClaimRetentionPolicy": policy("Delete", "Retain") } });
    let owner = json!({ "kind": "StatefulSet", "name": "db", "controller": true });
    let steps = vec![
        Create(SETS, set),
        Is(SET, json!({ "status": { "readyReplicas": 1 } })),
        Silent("SuccessfulUpdate"),
        Merge(
            SET,
            json!({ "spec": { "persistentVolumeClaimRetentionPolicy": policy("Retain", "Delete") } }),
        ),
        Is(
            "/api/v1/namespaces/default/persistentvolumeclaims/data-db-0",
            json!({ "metadata": { "ownerReferences": [owner] } }),
        ),
        Says("SuccessfulUpdate", "Update Pod db-0 in StatefulSet db successful"),
    ];
    check("a policy for claims that changes", 1, steps).await;
}
