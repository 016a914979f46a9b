//! A controller that dies after any of its writes, and starts again, leaves the cluster as one that was never
//! disturbed.
//!
//! Each scenario is played once undisturbed, which counts the writes of the controller in question, and then once for
//! some of them, or for each with `KUBEWRIGHT_EVERY_CRASH=1`: after the n-th write its answer is lost, and with it the
//! controller and all that it knew. A new one begins with the cluster as it finds it. The API server's objects after
//! every step are compared, except for values that differ between any two runs ([`TestCluster::snapshot`]).
//!
//! How many writes there are is not always the same: two things that happen at once may take one or two. The final
//! state counts; a controller that needs fewer than n writes this time is not killed.
//!
//! Events are neither counted nor compared: a controller that dies may say something twice or not at all, in Kubernetes
//! too.

#[path = "../../../src/connection.rs"]
mod connection;
mod process;
mod scenarios;

use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_cluster::Nodes;
use kubewright_cluster::controllers::NAMES;
use kubewright_testing::explore::Snapshot;
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};

use process::Process;
use scenarios::{SCENARIOS, Scenario};

/// The cluster's objects after each step, and how many writes the controller sent.
struct Run {
    steps: Vec<(&'static str, Snapshot)>,
    writes: usize,
}

/// Each run has a runtime of its own, because its time is its own.
fn play(scenario: &Scenario, controller: &'static str, dies_after: Option<usize>) -> Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .expect("a runtime")
        .block_on(played(scenario, controller, dies_after))
}

async fn played(scenario: &Scenario, controller: &'static str, dies_after: Option<usize>) -> Result<Run> {
    let others = NAMES.iter().filter(|name| **name != controller);
    let others = Controllers::Only(others.map(|name| (*name).to_owned()).collect());
    let nodes = Nodes::from(scenario.nodes);
    let start: Timestamp = "2026-01-01T00:00:10Z".parse().expect("a time");
    let builder = Cluster::builder().controllers(others).nodes(nodes.clone());
    let cluster = TestCluster::in_virtual_time(start, builder).await?;
    let process = Process::start(&cluster, controller, nodes, dies_after);
    cluster.settle().await?;
    let mut steps = Vec::new();
    for step in scenario.steps {
        for change in (step.changes)() {
            change.make(&cluster).await?;
        }
        cluster.advance(Duration::from_secs(scenario.patience)).await?;
        cluster.settle().await?;
        steps.push((step.what, cluster.snapshot()));
    }
    let writes = process.stop().await;
    cluster.stop().await;
    Ok(Run { steps, writes })
}

/// After which of so many writes a controller dies: after each where the environment wants it so, and else after a few.
fn cuts(writes: usize) -> Vec<usize> {
    if std::env::var_os("KUBEWRIGHT_EVERY_CRASH").is_some() {
        return (1..=writes).collect();
    }
    let mut few = vec![1, writes / 2 + 1, writes];
    few.retain(|cut| (1..=writes).contains(cut));
    few.dedup();
    few
}

/// The points at which `controller` can die in `scenario`.
fn check(scenario: &Scenario, controller: &'static str) -> Result<()> {
    let undisturbed = play(scenario, controller, None)?;
    assert!(
        undisturbed.writes > 0,
        "{controller} writes nothing in {}",
        scenario.name
    );
    let mut wrong = Vec::new();
    let mut died = 0;
    for dies_after in cuts(undisturbed.writes) {
        let disturbed = play(scenario, controller, Some(dies_after))?;
        died += usize::from(disturbed.writes >= dies_after);
        for ((what, expected), (_, found)) in undisturbed.steps.iter().zip(&disturbed.steps) {
            let differences = expected.differences(found);
            if !differences.is_empty() {
                wrong.push(format!(
                    "it died after write {dies_after}; afterwards ({what}):\n{differences}"
                ));
                break;
            }
        }
    }
    let (name, writes) = (scenario.name, undisturbed.writes);
    assert!(
        died > 0,
        "{controller} never died in {name}, in which it once wrote {writes} times"
    );
    assert!(
        wrong.is_empty(),
        "{controller}, {name}, {writes} writes:\n{}",
        wrong.join("\n")
    );
    Ok(())
}

/// Plays all scenarios in which `controller` has something to do.
fn survives(controller: &'static str) -> Result<()> {
    let of_it = SCENARIOS
        .iter()
        .filter(|scenario| scenario.controllers.contains(&controller));
    for scenario in of_it {
        check(scenario, controller)?;
    }
    Ok(())
}

macro_rules! controllers {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() -> Result<()> {
            survives($name)
        })*

        #[test]
        fn every_controller_is_killed() {
            let mut killed = [$($name),*];
            // One writes nothing: it passes connections on.
            let mut all: Vec<_> = NAMES.iter().copied().filter(|name| *name != "service-proxy").collect();
            (killed.sort_unstable(), all.sort_unstable());
            assert_eq!(killed.as_slice(), all);
            for name in all {
                let count = SCENARIOS.iter().filter(|scenario| scenario.controllers.contains(&name)).count();
                assert!(count > 0, "no scenario kills {name}");
            }
        }
    };
}

controllers! {
    namespace: "namespace",
    garbage_collector: "garbage-collector",
    serviceaccount: "serviceaccount",
    replicaset: "replicaset",
    replicationcontroller: "replicationcontroller",
    deployment: "deployment",
    job: "job",
    cronjob: "cronjob",
    statefulset: "statefulset",
    daemonset: "daemonset",
    scheduler: "scheduler",
    node: "node",
    node_lifecycle: "node-lifecycle",
    volume_protection: "volume-protection",
    resourcequota: "resourcequota",
    clusterrole_aggregation: "clusterrole-aggregation",
    endpoints: "endpoints",
    disruption: "disruption",
    taint_eviction: "taint-eviction",
    pod_garbage_collector: "pod-garbage-collector",
    persistentvolume_binder: "persistentvolume-binder",
    certificatesigningrequest: "certificatesigningrequest",
    horizontalpodautoscaler: "horizontalpodautoscaler",
    resourceclaim: "resourceclaim",
    ephemeral_volume: "ephemeral-volume",
}
