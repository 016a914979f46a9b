//! Growth: what one more pod, node, claim or rule costs when there are many. Ours alone; each row says beside what it is
//! held. The goals are those of a cluster that is used with a thousand nodes.
//!
//! `KUBEWRIGHT_BENCH_SCALE` names the groups to measure, with commas: `nodes`, `large`, `rules`, `claims`, `daemons`.

use std::path::Path;

use super::works::{self, Shape};
use super::{Cost, row};
use crate::cluster::sides::Side;

/// The groups of measurements.
const GROUPS: [&str; 5] = ["nodes", "large", "rules", "claims", "daemons"];

/// Measures and prints.
pub(super) async fn measure(kubewright: &Path) -> Result<(), String> {
    let wanted = std::env::var("KUBEWRIGHT_BENCH_SCALE").unwrap_or_else(|_| GROUPS.join(","));
    println!();
    for group in wanted.split(',') {
        match group {
            "nodes" => nodes(kubewright).await?,
            "large" => large(kubewright).await?,
            "rules" => rules(kubewright).await?,
            "claims" => claims(kubewright).await?,
            "daemons" => daemons(kubewright).await?,
            unknown => {
                return Err(format!(
                    "KUBEWRIGHT_BENCH_SCALE: there is no group {unknown:?}: {}",
                    GROUPS.join(", ")
                ));
            }
        }
    }
    Ok(())
}

/// A figure and its goal, which it must not exceed.
fn verdict(what: &str, figure: f64, most: f64) {
    let verdict = if figure <= most { "met" } else { "MISSED" };
    println!("{what:<52}{figure:>8.2}   (≤ {most}) {verdict}");
}

/// 1,000 pods on ever more nodes, and 1,000 nodes on which nothing happens.
async fn nodes(kubewright: &Path) -> Result<(), String> {
    let mut few: Option<Cost> = None;
    for nodes in [10, 100, 1_000] {
        let side = Side::ours(kubewright, nodes).await?;
        let crowd = works::crowd(&side, 1_000, Shape::Plain).await?;
        row(&format!("1,000 pods on {nodes} nodes to Ready"), crowd.up, None);
        row("all deleted", crowd.down, None);
        match few {
            None => few = Some(crowd.up),
            Some(few) => verdict("CPU beside that with 10 nodes, ×", crowd.up.cpu / few.cpu, 1.2),
        }
        if nodes == 1_000 {
            verdict(
                "idle with 1,000 nodes, % of a processor",
                works::idle(&side).await?,
                1.0,
            );
        }
    }
    Ok(())
}

/// 10,000 pods on 1,000 nodes.
async fn large(kubewright: &Path) -> Result<(), String> {
    let crowd = works::crowd(&Side::ours(kubewright, 1_000).await?, 10_000, Shape::Plain).await?;
    row("10,000 pods on 1,000 nodes to Ready", crowd.up, None);
    row("all deleted", crowd.down, None);
    verdict("both, s", crowd.up.seconds + crowd.down.seconds, 40.0);
    verdict("memory with 10,000 pods, MB", crowd.up.memory, 300.0);
    verdict("idle with both, % of a processor", crowd.idle, 1.0);
    Ok(())
}

/// 4,000 pods that nothing is said about, that repel others, and that a Service and a disruption budget select.
async fn rules(kubewright: &Path) -> Result<(), String> {
    let mut plain: Option<Cost> = None;
    for (what, shape) in [
        ("4,000 pods", Shape::Plain),
        ("the same, each with a required anti-affinity", Shape::Repelling),
        ("the same behind a Service and a budget", Shape::Selected),
    ] {
        let up = works::crowd(&Side::ours(kubewright, 100).await?, 4_000, shape)
            .await?
            .up;
        row(what, up, None);
        match plain {
            None => plain = Some(up),
            Some(plain) => {
                verdict("CPU beside the plain ones, ×", up.cpu / plain.cpu, 1.15);
                verdict("memory beside the plain ones, ×", up.memory / plain.memory, 1.1);
            }
        }
    }
    Ok(())
}

/// Claims that are bound as soon as they are there.
async fn claims(kubewright: &Path) -> Result<(), String> {
    let few = one_claim_of(kubewright, 500).await?;
    let many = one_claim_of(kubewright, 2_000).await?;
    verdict("CPU of a claim beside that of 500, ×", many / few, 1.2);
    Ok(())
}

/// What one of so many claims costs.
async fn one_claim_of(kubewright: &Path, claims: usize) -> Result<f64, String> {
    let bound = works::claims(&Side::ours(kubewright, 10).await?, claims).await?;
    row(&format!("{claims} claims to Bound"), bound, None);
    Ok(bound.cpu / claims as f64)
}

/// A DaemonSet with a pod on every node.
async fn daemons(kubewright: &Path) -> Result<(), String> {
    let few = one_node_of(kubewright, 250).await?;
    let many = one_node_of(kubewright, 1_000).await?;
    verdict("CPU of a node beside that of 250, ×", many / few, 1.2);
    Ok(())
}

/// What a DaemonSet costs on one of so many nodes.
async fn one_node_of(kubewright: &Path, nodes: usize) -> Result<f64, String> {
    let up = works::daemons(&Side::ours(kubewright, nodes).await?, nodes).await?;
    row(&format!("DaemonSet on {nodes} nodes to Ready"), up, None);
    Ok(up.cpu / nodes as f64)
}
