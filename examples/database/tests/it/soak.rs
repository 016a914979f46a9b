//! A long life: the leader goes every minute, watches are cut every ten seconds, and a kind cannot be listed.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use database::operator_in;
use database_api::v1alpha1::Database;
use kubewright::conditions;
use kubewright::k8s_openapi::api::core::v1::{Secret, Service};
use kubewright::kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubewright_testing::{Cluster, TestCluster};
use serde_json::json;

use crate::scenarios::{DEFAULT, OneServer, Outcome};

/// A new password reaches the server once, and a Service that was deleted is made anew.
async fn soak(time: Duration) -> Outcome {
    let cluster = TestCluster::in_virtual_time("2026-01-01T00:00:00Z".parse()?, Cluster::builder()).await?;
    let server = Arc::new(OneServer::default());
    let soak = cluster.soak(|| operator_in(server.clone())).await?;
    let database = serde_json::from_value(json!({"metadata": {"name": "mydb"}, "spec": {"type": "postgres"}}))?;
    let databases: Api<Database> = Api::namespaced(cluster.kube(), DEFAULT);
    databases.create(&PostParams::default(), &database).await?;
    let patient = cluster.with_deadline(Duration::from_secs(60));
    let is_ready = |database: &Database| {
        let all = database.status.as_ref().map(|status| status.conditions.as_slice());
        let ready = all.and_then(|all| conditions::find(all, "Ready"));
        ready.is_some_and(|ready| ready.status == "True")
    };
    patient.wait_for(DEFAULT, "mydb", "is ready", is_ready).await?;
    let secrets: Api<Secret> = Api::namespaced(cluster.kube(), DEFAULT);
    let services: Api<Service> = Api::namespaced(cluster.kube(), DEFAULT);
    let known = || {
        let server = server.0.lock().unwrap_or_else(PoisonError::into_inner);
        (server.password.clone(), server.rotations)
    };
    soak.live(time, async |round| {
        let (before, password) = (known().1, format!("password-{}", round % 2));
        let patch = Patch::Merge(json!({"stringData": {"password": password}}));
        secrets
            .patch("mydb-credentials", &PatchParams::default(), &patch)
            .await?;
        let uid = services.get("mydb").await?.metadata.uid;
        services.delete("mydb", &DeleteParams::default()).await?;
        let is_new = |service: &Service| service.metadata.uid != uid;
        cluster.wait_for(DEFAULT, "mydb", "is made anew", is_new).await?;
        cluster.advance(Duration::from_secs(20)).await?;
        assert_eq!(known(), (Some(password), before + 1), "it is changed once");
        cluster.wait_for(DEFAULT, "mydb", "is ready", is_ready).await?;
        Outcome::Ok(())
    })
    .await
}

#[tokio::test]
async fn a_life_of_leaders_that_go_leaves_nothing_behind() -> Outcome {
    soak(Duration::from_secs(10 * 60)).await
}

#[tokio::test]
#[ignore = "takes minutes: .ci/night soaks"]
async fn a_day_of_leaders_that_go_leaves_nothing_behind() -> Outcome {
    soak(Duration::from_secs(24 * 60 * 60)).await
}
