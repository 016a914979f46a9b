//! Workloads: the work of a cluster with its controllers, scheduler and nodes, ours beside kube-apiserver with etcd,
//! kube-controller-manager, kube-scheduler and kwok.
//!
//! Time runs from the request that creates (or changes, or deletes) to the event in which a watch sees the end; CPU is
//! that of all programs of a side over the same time. Both sides have the same nodes and the same pods, which no
//! kubelet runs; they become ready as soon as kwok, or our kubelet, sees them. The peer's programs have their defaults,
//! but for the limits of requests per second (20 for a controller, 50 for the scheduler), which are lifted: it does not
//! wait for itself.
//!
//! Invariant: during a rolling update the pods themselves are counted at each event, not the numbers of a status. A
//! number below maxUnavailable or above maxSurge fails the run.
//!
//! Only ours is measured at 10,000 pods, where the peer takes its minutes; and with time that is a test's, which the
//! peer does not have.
//!
//! For a look at a part: with `KUBEWRIGHT_BENCH_PODS` only a crowd of so many pods is measured, a multiple of 500; with
//! `KUBEWRIGHT_BENCH_HOURS` only a CronJob for so many hours.

mod events;
mod objects;
mod scale;
pub(crate) mod sides;
mod time;
mod works;

use std::path::Path;

use crate::cluster::sides::{Side, Whole};
use crate::cluster::works::{Shape, Work};
use crate::peer::Peer;

/// The figures of a work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// From the request to the last event, in seconds.
    seconds: f64,
    /// On processors, in seconds.
    cpu: f64,
    /// Private to all programs of the side when it was done, in megabytes.
    memory: f64,
}

/// The part of the peer's time and CPU that is the goal.
const PART: f64 = 10.0;

/// Measures and prints.
pub(crate) async fn measure(kubewright: &Path, peer: Option<&Peer>) -> Result<(), String> {
    if let Some(pods) = given("KUBEWRIGHT_BENCH_PODS")? {
        let crowd = works::crowd(&Side::ours(kubewright, 100).await?, pods, Shape::Plain).await?;
        row(&format!("{pods} pods on 100 nodes to Ready"), crowd.up, None);
        row("all deleted", crowd.down, None);
        return Ok(());
    }
    let whole = peer.map(Whole::of).transpose()?;
    println!(
        "\nworkloads: seconds, CPU seconds, MB; ours beside the whole control plane (goal: 1/{PART} of its time and of its CPU)\n"
    );
    let mut failed = 0;
    let mut tell = |done: Result<(), String>| {
        if let Err(why) = done {
            println!("FAILED: {why}");
            failed += 1;
        }
    };
    for work in works::BOTH {
        tell(side_by_side(kubewright, whole.as_ref(), work).await);
    }
    println!();
    tell(large(kubewright).await);
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} measurements failed, as said above")),
    }
}

/// Measures and prints how cost grows on our side.
pub(crate) async fn scale(kubewright: &Path) -> Result<(), String> {
    scale::measure(kubewright).await
}

/// Measures and prints the features of our side alone: time that is a test's, and pods that are processes.
pub(crate) async fn time_and_processes(kubewright: &Path) -> Result<(), String> {
    println!();
    if let Some(hours) = given("KUBEWRIGHT_BENCH_HOURS")? {
        return time::hourly(hours).await;
    }
    let (year, postgres) = (time::hourly(time::YEAR).await, time::postgres(kubewright).await);
    year.and(postgres)
}

/// The size of a work that the environment names.
fn given(variable: &str) -> Result<Option<usize>, String> {
    match std::env::var(variable) {
        Ok(text) => text.parse().map(Some).map_err(|why| format!("{variable}: {why}")),
        Err(_) => Ok(None),
    }
}

/// The cost of one work for us and for the peer. A failure is reported, and does not keep the other works from being
/// measured.
async fn side_by_side(kubewright: &Path, whole: Option<&Whole<'_>>, work: Work) -> Result<(), String> {
    let on = |side: &str, why: String| format!("{work:?} failed on {side} side: {why}");
    let ours = async { works::run(&Side::ours(kubewright, 10).await?, work).await };
    let ours = ours.await.map_err(|why| on("our", why))?;
    let theirs = match whole {
        Some(whole) => async { works::run(&Side::theirs(whole, 10).await?, work).await }
            .await
            .map_err(|why| on("the peer's", why)),
        None => Ok(vec![]),
    };
    for (at, (what, cost)) in ours.iter().enumerate() {
        let theirs = theirs.as_ref().ok().and_then(|all| all.get(at));
        row(what, *cost, theirs.map(|(_, cost)| *cost));
    }
    theirs.map(drop)
}

fn row(what: &str, ours: Cost, theirs: Option<Cost>) {
    let show = |cost: Cost| format!("{:>7.2} {:>7.2} {:>6.0}", cost.seconds, cost.cpu, cost.memory);
    let beside = theirs.map_or_else(String::new, |theirs| {
        let (time, cpu) = (theirs.seconds / ours.seconds, theirs.cpu / ours.cpu);
        let verdict = if time >= PART && cpu >= PART { "met" } else { "MISSED" };
        format!("   {}   1/{time:.1} 1/{cpu:.1} {verdict}", show(theirs))
    });
    println!("{what:<44} {}{beside}", show(ours));
}

/// 10,000 pods on 100 nodes, and their cost beside 1,000.
async fn large(kubewright: &Path) -> Result<(), String> {
    let few = works::crowd(&Side::ours(kubewright, 100).await?, 1_000, Shape::Plain).await?;
    let many = works::crowd(&Side::ours(kubewright, 100).await?, 10_000, Shape::Plain).await?;
    let verdict = |met: bool| if met { "met" } else { "MISSED" };
    let both = many.up.seconds + many.down.seconds;
    row("10,000 pods on 100 nodes to Ready", many.up, None);
    row("all deleted", many.down, None);
    println!("both, s{both:>45.1}   (≤ 30) {}", verdict(both <= 30.0));
    println!(
        "memory with 10,000 pods, MB{:>25.0}   (≤ 250) {}",
        many.up.memory,
        verdict(many.up.memory <= 250.0)
    );
    let of_one = |cost: Cost, pods: f64| cost.cpu / pods;
    let ratio = of_one(many.up, 10_000.0) / of_one(few.up, 1_000.0);
    println!(
        "CPU of a pod at 10,000 beside 1,000{ratio:>17.2}   (0.8–1.2) {}",
        verdict(ratio <= 1.2)
    );
    println!(
        "idle with 10,000 pods, % of a core{:>18.2}   (≤ 1) {}",
        many.idle,
        verdict(many.idle <= 1.0)
    );
    Ok(())
}
