//! A long life: the leader goes every minute, watches are cut every ten seconds, and a kind cannot be listed.

use std::time::Duration;

use autorebooter::operator_in;
use autorebooter_api::v1alpha1::{Phase, RebootPolicy};
use kubewright::k8s_openapi::api::apps::v1::Deployment;
use kubewright::prelude::*;
use serde_json::json;

use crate::scenarios::{DEFAULT, Outcome, Scene};

/// Each value restarts the Deployment once.
async fn soak(time: Duration) -> Outcome {
    let scene = Scene::without_operator().await?;
    let world = scene.world.clone();
    let soak = scene.cluster.soak(|| operator_in(world.clone(), &Waker::new())).await?;
    scene.policy(json!({})).await?;
    scene.pass(20).await?;
    soak.live(time, async |round| {
        scene.value(["42", "41"][round % 2]);
        let restarts = round as i64 + 1;
        let restarted = |policy: &RebootPolicy| {
            let status = policy.status.clone().unwrap_or_default();
            (status.restarts, status.phase) == (restarts, Some(Phase::Watching))
        };
        let patient = scene.cluster.with_deadline(Duration::from_secs(50));
        patient
            .wait_for(DEFAULT, "prices", "has restarted once more", restarted)
            .await?;
        assert_eq!(scene.rollouts("shop").await?, restarts, "once for each value");
        let rolled = |shop: &Deployment| {
            let status = shop.status.clone().unwrap_or_default();
            status.updated_replicas == Some(1) && status.replicas == Some(1)
        };
        patient.wait_for(DEFAULT, "shop", "is rolled out", rolled).await?;
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
