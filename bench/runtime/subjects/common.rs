//! The shared parts of both Rust subjects: their arguments, their messages to and from the bench, their notes of
//! reconciles.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

/// The annotation with the moment at which the server sent the object, in nanoseconds since 1970.
const SENT: &str = "bench/sent";
/// The pod whose change ends a measurement.
pub(crate) const MARKER: &str = "marker";
/// The keys of the measurement of the queue.
pub(crate) const KEYS: usize = 500_000;
/// How many items go through a queue one at a time.
pub(crate) const ALONE: usize = 1_000_000;

/// The task of a subject: the address of the server, the task, the part of objects that is kept.
pub(crate) struct Arguments {
    pub(crate) url: String,
    pub(crate) task: String,
    pub(crate) keep: String,
}

/// The arguments, in their order.
pub(crate) fn arguments() -> Result<Arguments, String> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    match <[String; 3]>::try_from(given) {
        Ok([url, task, keep]) => Ok(Arguments { url, task, keep }),
        Err(given) => Err(format!("three arguments are wanted (url, task, keep), not {given:?}")),
    }
}

/// The words of the bench.
pub(crate) struct Words(Lines<BufReader<Stdin>>);

impl Words {
    /// Says that the process stands, and waits until it may begin.
    pub(crate) async fn begin() -> Result<Words, String> {
        println!("ready");
        let mut words = Words(BufReader::new(tokio::io::stdin()).lines());
        match words.next().await?.as_deref() {
            Some("go") => Ok(words),
            other => Err(format!("the first word is {other:?}")),
        }
    }

    /// The next word; `None` when the bench is done.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, String> {
        self.0.next_line().await.map_err(|why| why.to_string())
    }
}

/// Answers the bench until it is done. `read` lists every object and answers how many containers they have.
pub(crate) async fn answer(mut words: Words, read: impl Fn() -> (usize, usize)) -> Result<(), String> {
    while let Some(word) = words.next().await? {
        match word.as_str() {
            // Rust frees when something is dropped.
            "collect" => println!("collected"),
            "read" => {
                let started = Instant::now();
                let (objects, containers) = read();
                let each = started.elapsed().as_secs_f64() * 1e6 / objects.max(1) as f64;
                println!("read {objects} {containers} {each:.3}");
            }
            other => return Err(format!("there is no word {other:?}")),
        }
    }
    Ok(())
}

/// A projection of a Pod: what a handler or a reconciler reads of it. The rest of the text is passed over.
#[derive(Clone, Debug, Deserialize, Resource, Serialize)]
#[resource(inherit = "Pod")]
pub(crate) struct PodBrief {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: BriefSpec,
    status: BriefStatus,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BriefSpec {
    node_name: Option<String>,
    pub(crate) containers: Vec<BriefContainer>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct BriefContainer {
    name: String,
    image: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct BriefStatus {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
}

/// How many containers there are, in how many objects.
pub(crate) fn containers<'a>(pods: impl Iterator<Item = &'a Pod>) -> (usize, usize) {
    pods.fold((0, 0), |(objects, containers), pod| {
        let here = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        (objects + 1, containers + here)
    })
}

/// The notes of reconciles.
pub(crate) struct Meter {
    count: AtomicUsize,
    delays: Mutex<Vec<Duration>>,
}

impl Meter {
    pub(crate) fn new() -> Meter {
        Meter {
            count: AtomicUsize::new(0),
            delays: Mutex::default(),
        }
    }

    /// A reconcile began. Every thousandth and those of the marker are told to the bench.
    pub(crate) fn reconciled(&self, name: Option<&str>, annotations: Option<&BTreeMap<String, String>>) {
        let sent = annotations
            .and_then(|annotations| annotations.get(SENT))
            .and_then(|sent| sent.parse().ok())
            .filter(|sent| *sent > 0) // the list says 0
            .map(Duration::from_nanos);
        if let (Some(sent), Ok(now)) = (sent, SystemTime::now().duration_since(UNIX_EPOCH)) {
            let mut delays = self.delays.lock().expect("nothing panics under this lock");
            delays.push(now.saturating_sub(sent));
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(1000) {
            println!("reconciled {count}");
        }
        if name == Some(MARKER) {
            println!("marked {count} {}", self.quantiles());
        }
    }

    /// The median and the 99th percentile of the delays, in milliseconds, and how many there are.
    fn quantiles(&self) -> String {
        let mut delays = self.delays.lock().expect("nothing panics under this lock").clone();
        delays.sort();
        let at = |part: f64| {
            let at = (delays.len().saturating_sub(1) as f64 * part).round() as usize;
            delays.get(at).copied().unwrap_or_default().as_secs_f64() * 1e3
        };
        format!("{:.4} {:.4} {}", at(0.5), at(0.99), delays.len())
    }
}

/// Prints why a subject ends.
pub(crate) async fn run(what: impl Future<Output = Result<(), String>>) -> std::process::ExitCode {
    match what.await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(why) => {
            println!("failed {why}");
            std::process::ExitCode::FAILURE
        }
    }
}
