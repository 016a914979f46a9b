//! The tables of the load: ours, the peer's, the ratio, the goal, whether it is met.

use std::path::Path;

use crate::load::{self, Figures, Scale};
use crate::peer::{Fsync, Peer};
use crate::servers::Server;

/// The goal of a figure, beside the peer's.
enum Goal {
    /// At most this part of the peer's.
    Part(f64),
    /// At least so many times the peer's.
    Times(f64),
    /// At most so much, regardless of the peer.
    Most(f64),
}

/// The rows of the table: the name of a figure, its goal.
const ROWS: [(&str, Goal); 21] = [
    ("CPU of a create of a ConfigMap, ms", Goal::Part(20.0)),
    ("CPU of a create of a custom resource, ms", Goal::Part(20.0)),
    ("CPU of a get, ms", Goal::Part(15.0)),
    ("CPU of a merge patch of a status, ms", Goal::Part(20.0)),
    ("CPU of an apply that creates, ms", Goal::Part(20.0)),
    ("CPU of an apply that changes, ms", Goal::Part(20.0)),
    ("CPU of an apply that changes nothing, ms", Goal::Part(20.0)),
    ("creates a second, one at a time", Goal::Times(5.0)),
    ("creates a second, 16 at a time", Goal::Times(8.0)),
    ("durable creates a second, one at a time", Goal::Times(2.0)),
    ("durable creates a second, 16 at a time", Goal::Times(5.0)),
    ("gets a second, one at a time", Goal::Times(5.0)),
    ("gets a second, 16 at a time", Goal::Times(5.0)),
    ("create to event p50, ms", Goal::Part(8.0)),
    ("create to event p99, ms", Goal::Part(8.0)),
    ("list of 10,000, ms", Goal::Part(5.0)),
    ("CPU of a list of 10,000, ms", Goal::Part(6.0)),
    ("CPU of an event to one of 500 watchers, µs", Goal::Part(4.0)),
    ("definition to first object, ms", Goal::Most(5.0)),
    ("idle memory, MB", Goal::Most(4.0)),
    ("memory after all that, MB", Goal::Part(5.0)),
];

const OURS: Scale = Scale {
    requests: 2000,
    events: 1000,
};
/// The peer needs fewer for the same time.
const THEIRS: Scale = Scale {
    requests: 500,
    events: 400,
};

/// Runs the load on ours and on the peer, and prints the table.
pub(crate) async fn load(kubewright: &Path, peer: Option<&Peer>) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let ours = ours(kubewright, folder.path()).await?;
    let theirs = match peer {
        Some(peer) => Some(theirs(peer, folder.path()).await?),
        None => None,
    };
    println!("\nunder load; ours, kube-apiserver + etcd, ratio (goal)\n");
    for (name, goal) in &ROWS {
        let Some(our) = ours.get(name) else { continue };
        let their = theirs.as_ref().and_then(|figures| figures.get(name));
        println!(
            "{name:<44} {:>10}   {}",
            short(*our),
            beside(*our, their.copied(), goal)
        );
    }
    Ok(())
}

fn beside(our: f64, their: Option<f64>, goal: &Goal) -> String {
    let verdict = |met: bool| if met { "met" } else { "MISSED" };
    let shown = their.map_or_else(String::new, |their| format!("{:>10}   ", short(their)));
    match (goal, their) {
        (Goal::Most(most), _) => format!("{shown}(≤ {most}) {}", verdict(our <= *most)),
        (Goal::Part(part), Some(their)) => {
            format!(
                "{shown}1/{:.1} (≤ 1/{part}) {}",
                their / our,
                verdict(their / our >= *part)
            )
        }
        (Goal::Times(times), Some(their)) => {
            format!(
                "{shown}{:.1} × (≥ {times} ×) {}",
                our / their,
                verdict(our / their >= *times)
            )
        }
        (_, None) => String::new(),
    }
}

fn short(figure: f64) -> String {
    match figure {
        figure if figure >= 100.0 => format!("{figure:.0}"),
        figure if figure >= 1.0 => format!("{figure:.1}"),
        figure => format!("{figure:.3}"),
    }
}

async fn ours(program: &Path, folder: &Path) -> Result<Figures, String> {
    let server = Server::ours(program, folder, None).await?;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let idle = server.private_megabytes()?;
    let mut figures = load::measure(&server, OURS).await?;
    figures.insert("idle memory, MB", idle);
    server.stop().await;
    let server = Server::ours(program, folder, Some(&folder.join("data"))).await?;
    figures.extend(load::durable(&server, OURS).await?);
    server.stop().await;
    Ok(figures)
}

async fn theirs(peer: &Peer, folder: &Path) -> Result<Figures, String> {
    let server = Server::theirs(peer, folder, Fsync::Off).await?;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let idle = server.private_megabytes()?;
    let mut figures = load::measure(&server, THEIRS).await?;
    figures.insert("idle memory, MB", idle);
    server.stop().await;
    let server = Server::theirs(peer, folder, Fsync::On).await?;
    figures.extend(load::durable(&server, THEIRS).await?);
    server.stop().await;
    Ok(figures)
}

/// Prints the memory for 100,000 objects of 2 KB.
pub(crate) async fn memory(kubewright: &Path) -> Result<(), String> {
    const OBJECTS: usize = 100_000;
    const MOST: f64 = 1.3;
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let server = Server::ours(kubewright, folder.path(), None).await?;
    let (private, json) = load::memory(&server, OBJECTS).await?;
    server.stop().await;
    let ratio = private / json;
    let verdict = if ratio <= MOST { "met" } else { "MISSED" };
    println!("\n{OBJECTS} objects: {private:.0} MB private, {json:.0} MB of JSON: {ratio:.2} × (≤ {MOST} ×) {verdict}");
    Ok(())
}
