//! The scenarios of deaths and of rest, in a time of the test's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt as _;
use kubewright::k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kubewright::kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kubewright::kube::{self, ResourceExt as _};
use kubewright_testing::{Cluster, DyingOperator, TestCluster};
use serde_json::{Value, json};
use sidecarset::controller::upgrade::UPGRADABLE;
use sidecarset::sidecar::hash::HASH;
use sidecarset::sidecar::record::{self, Record};

use super::*;

/// Longer than the backoffs that a scenario leads to; the whole of one is shorter than the API server lets a watch be.
const LONG: Duration = Duration::from_secs(200);

// ANCHOR: dying
/// A cluster in virtual time with an operator that is killed after so many writes.
async fn world(dies_after: usize) -> Outcome<(Scene, DyingOperator)> {
    let start = "2026-01-01T00:00:10Z".parse()?;
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder()).await?;
    let own = json!({"metadata": {"name": sidecarset::controller::revisions::namespace()}});
    let own: Namespace = serde_json::from_value(own)?;
    Api::all(cluster.kube()).create(&PostParams::default(), &own).await?;
    let operator = cluster.run_dying(sidecarset::operator, dies_after).await?;
    let scene = Scene(cluster);
    scene.rest().await?;
    Ok((scene, operator))
}
// ANCHOR_END: dying

/// A cluster with a busy user, whose operator may be dead just now.
struct Scene(TestCluster);

impl Scene {
    /// Lets everything happen that is going to.
    async fn rest(&self) -> Outcome {
        self.0.advance(LONG).await?;
        self.0.settle().await?;
        Ok(())
    }

    async fn set(&self, spec: Value) -> Outcome {
        let set = SidecarSet::new("agents", serde_json::from_value(spec)?);
        Api::all(self.0.kube()).create(&PostParams::default(), &set).await?;
        self.rest().await
    }

    async fn change(&self, image: &str) -> Outcome {
        let patch = Patch::Merge(json!({"spec": containers(image)}));
        let sets: Api<SidecarSet> = Api::all(self.0.kube());
        sets.patch("agents", &PatchParams::default(), &patch).await?;
        self.rest().await
    }

    async fn web(&self, replicas: i32) -> Outcome {
        deployment(&self.0, "web", replicas).await?;
        self.rest().await
    }

    async fn counts(&self) -> Outcome<Option<[i32; 4]>> {
        let sets: Api<SidecarSet> = Api::all(self.0.kube());
        Ok(counts(&sets.get("agents").await?))
    }

    /// The contents of the cluster, without values that differ between any two runs.
    async fn state(&self) -> Outcome<Value> {
        let pods: Api<Pod> = Api::namespaced(self.0.kube(), DEFAULT);
        let mut pods: Vec<String> = pods
            .list(&ListParams::default())
            .await?
            .iter()
            .map(|pod| described(pod).to_string())
            .collect();
        pods.sort();
        let namespace = sidecarset::controller::revisions::namespace();
        let revisions: Api<ControllerRevision> = Api::namespaced(self.0.kube(), &namespace);
        let revisions = revisions.list(&ListParams::default()).await?;
        let revisions: BTreeSet<(String, i64)> = revisions.iter().map(|it| (it.name_any(), it.revision)).collect();
        let sets: Api<SidecarSet> = Api::all(self.0.kube());
        let status = sets.get("agents").await?.status;
        Ok(json!({"pods": pods, "revisions": revisions, "status": status}))
    }
}

/// A pod without its name, its addresses and its times.
fn described(pod: &Pod) -> Value {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let restarts: BTreeMap<String, (i32, bool)> = containers
        .into_iter()
        .map(|status| (status.name, (status.restart_count, status.ready)))
        .collect();
    let conditions = status.conditions.unwrap_or_default();
    let upgradable = conditions.into_iter().find(|condition| condition.type_ == UPGRADABLE);
    let record = record::map_of::<Record>(pod, HASH).remove("agents");
    json!({
        "image": image(pod), "restarts": restarts,
        "upgradable": upgradable.map(|condition| (condition.status, condition.message)),
        "record": record.map(|record| (record.hash, record.sidecar_list, record.controller_revision)),
    })
}

/// The most pods that were not ready at one time after all had been.
#[derive(Clone, Default)]
struct Watched(Arc<Mutex<usize>>);

impl Watched {
    async fn start(cluster: &TestCluster, pods: usize) -> Outcome<Watched> {
        let api: Api<Pod> = Api::namespaced(cluster.kube(), DEFAULT);
        let mut events = Box::pin(api.watch(&WatchParams::default().timeout(0), "0").await?);
        let watched = Watched::default();
        let most = watched.0.clone();
        tokio::spawn(async move {
            let (mut ready, mut were_all) = (BTreeMap::new(), false);
            while let Ok(Some(event)) = events.try_next().await {
                match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                        let (name, is_ready) = (pod.name_any(), is_ready(&pod));
                        ready.insert(name, is_ready);
                    }
                    WatchEvent::Deleted(pod) => {
                        ready.remove(&pod.name_any());
                    }
                    _ => {}
                }
                let unready = ready.values().filter(|ready| !**ready).count();
                were_all |= ready.len() == pods && unready == 0;
                if were_all {
                    let mut most = most.lock().expect("no panic while it was held");
                    *most = (*most).max(unready);
                }
            }
        });
        Ok(watched)
    }

    fn most(&self) -> usize {
        *self.0.lock().expect("no panic while it was held")
    }
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Scenario 9 and then 10: what the cluster holds after each step, how many writes it took, and how many pods were
/// unready at most.
async fn upgrades(dies_after: usize) -> Outcome<(Vec<Value>, usize, usize)> {
    let (scene, operator) = world(dies_after).await?;
    let mut states = Vec::new();
    let mut spec = agent("agent:1");
    spec["updateStrategy"] = json!({"maxUnavailable": "50%"});
    let watched = Watched::start(&scene.0, 4).await?;
    scene.set(spec).await?;
    scene.web(4).await?;
    states.push(scene.state().await?);
    for image in ["agent:2", BAD, "agent:3"] {
        scene.change(image).await?;
        states.push(scene.state().await?);
    }
    assert_eq!(scene.counts().await?, Some([4, 4, 4, 4]), "killed after {dies_after}");
    assert_eq!(operator.has_died(), dies_after != usize::MAX);
    Ok((states, operator.writes(), watched.most()))
}

/// Each run has a runtime of its own, because its time is its own.
fn played(dies_after: usize) -> Outcome<(Vec<Value>, usize, usize)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(upgrades(dies_after))
}

// ANCHOR: deaths
#[test]
fn s19_a_death_after_any_write_changes_nothing() -> Outcome {
    let (expected, writes, unready) = played(usize::MAX)?;
    assert!(writes > 10 && unready == 2, "{writes} writes, {unready} unready");
    for dies_after in 1..=writes {
        let (found, _, unready) = played(dies_after)?;
        assert!(
            unready <= 2,
            "killed after write {dies_after}: {unready} pods were not ready"
        );
        for (step, (expected, found)) in expected.iter().zip(&found).enumerate() {
            assert_eq!(expected, found, "killed after write {dies_after}, step {step}");
        }
    }
    Ok(())
}
// ANCHOR_END: deaths

#[tokio::test]
async fn s20_at_rest_nothing_is_written() -> Outcome {
    let (scene, operator) = world(usize::MAX).await?;
    scene.set(agent("agent:1")).await?;
    scene.web(2).await?;
    scene.change("agent:2").await?;
    assert_eq!(scene.counts().await?, Some([2, 2, 2, 2]));
    let events = async || -> kube::Result<Vec<String>> {
        let events: Api<Event> = Api::all(scene.0.kube());
        let events = events.list(&ListParams::default()).await?;
        let counted = |event: &Event| format!("{} {:?} {:?}", event.name_any(), event.count, event.series);
        Ok(events.iter().map(counted).collect())
    };
    let (writes, told) = (operator.writes(), events().await?);
    assert!(writes > 0);
    scene.0.advance(Duration::from_secs(600)).await?;
    assert_eq!((operator.writes(), events().await?), (writes, told.clone()));
    drop(operator);
    let again = scene.0.run_dying(sidecarset::operator, usize::MAX).await?;
    scene.0.advance(Duration::from_secs(600)).await?;
    assert_eq!((again.writes(), events().await?), (0, told));
    // It is awake all the same.
    scene.change("agent:3").await?;
    assert_eq!(scene.counts().await?, Some([2, 2, 2, 2]));
    assert!(again.writes() > 0);
    Ok(())
}
