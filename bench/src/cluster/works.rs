//! The works: their requests, and when they are over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Cost;
use super::events::{self, Events};
use super::objects;
use super::sides::Side;
use crate::client::Connection;

/// A work that both sides do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// A Deployment comes up and is then rolled over.
    Deployment(usize),
    /// So many Jobs run to their end.
    Jobs(usize),
    /// A StatefulSet comes up, one pod after the other.
    StatefulSet(usize),
    /// A namespace with so many objects is deleted.
    Namespace(usize),
}

pub(super) const BOTH: [Work; 4] = [
    Work::Deployment(500),
    Work::Jobs(1_000),
    Work::StatefulSet(200),
    Work::Namespace(5_000),
];

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const STATEFULSETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Does a work; its parts with their costs.
pub(super) async fn run(side: &Side, work: Work) -> Result<Vec<(String, Cost)>, String> {
    match work {
        Work::Deployment(pods) => {
            let up = deployment(side, pods).await?;
            let rolled = rolling_update(side, pods).await?;
            Ok(vec![
                (format!("Deployment of {pods} pods to Ready"), up),
                ("its rolling update".to_owned(), rolled),
            ])
        }
        Work::Jobs(jobs) => Ok(vec![(
            format!("{jobs} Jobs to Complete"),
            self::jobs(side, jobs).await?,
        )]),
        Work::StatefulSet(pods) => Ok(vec![(
            format!("StatefulSet of {pods}, ordered"),
            statefulset(side, pods).await?,
        )]),
        Work::Namespace(objects) => Ok(vec![(
            format!("namespace with {objects} objects gone"),
            namespace(side, objects).await?,
        )]),
    }
}

/// The cost until `work` is over.
async fn cost(side: &Side, work: impl Future<Output = Result<(), String>>) -> Result<Cost, String> {
    let (before, begin) = (side.server.cpu_milliseconds()?, Instant::now());
    work.await?;
    Ok(Cost {
        seconds: begin.elapsed().as_secs_f64(),
        cpu: (side.server.cpu_milliseconds()? - before) / 1000.0,
        memory: side.server.private_megabytes()?,
    })
}

fn counted(object: &Value, field: &str) -> usize {
    let number = object["status"][field].as_u64().unwrap_or(0);
    usize::try_from(number).unwrap_or(usize::MAX)
}

async fn deployment(side: &Side, pods: usize) -> Result<Cost, String> {
    let mut connection = Connection::open(side.server.address).await?;
    let mut watch = Events::of(&side.server, DEPLOYMENTS).await?;
    cost(side, async {
        events::create(&mut connection, DEPLOYMENTS, &objects::deployment("web", pods)).await?;
        watch.until(|_, seen| Ok(counted(seen, "readyReplicas") == pods)).await
    })
    .await
}

/// Pods that are there and not being deleted, with whether they are ready.
#[derive(Default)]
struct Counted(BTreeMap<String, OfPod>);

/// The counted state of a pod.
struct OfPod {
    is_ready: bool,
    /// It is of the template from before the update.
    is_old: bool,
}

impl Counted {
    fn see(&mut self, kind: &str, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if kind == "DELETED" || !pod["metadata"]["deletionTimestamp"].is_null() {
            self.0.remove(&name);
            return;
        }
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions
            .into_iter()
            .any(|one| one["type"] == "Ready" && one["status"] == "True");
        let is_old = pod["spec"]["containers"][0]["image"] != objects::LATER;
        self.0.insert(name, OfPod { is_ready, is_old });
    }

    fn ready(&self) -> usize {
        self.0.values().filter(|pod| pod.is_ready).count()
    }

    fn is_rolled(&self, pods: usize) -> bool {
        self.0.len() == pods && self.0.values().all(|pod| pod.is_ready && !pod.is_old)
    }
}

/// Each pod is replaced; at no event are fewer ready than three quarters or more there than five quarters.
async fn rolling_update(side: &Side, pods: usize) -> Result<Cost, String> {
    let (least, most) = (pods - pods / 4, pods + pods.div_ceil(4));
    let mut connection = Connection::open(side.server.address).await?;
    let mut watch = Events::of(&side.server, DEPLOYMENTS).await?;
    let mut of_pods = Events::of(&side.server, PODS).await?;
    let mut counted_pods = Counted::default();
    of_pods
        .until(|kind, pod| {
            counted_pods.see(kind, pod);
            Ok(counted_pods.ready() == pods)
        })
        .await?;
    let change = json!({ "spec": { "template": { "spec": { "containers": [{
        "name": "main", "image": objects::LATER, "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
    }] } } } });
    // Until the last event of the update, which may come after the Deployment's own.
    let guarding = of_pods.until(|kind, pod| {
        counted_pods.see(kind, pod);
        let (ready, there) = (counted_pods.ready(), counted_pods.0.len());
        match ready < least || there > most {
            true => Err(format!(
                "a rolling update of {pods} had {ready} ready pods of {there}: at least {least} and at most {most} are allowed"
            )),
            false => Ok(counted_pods.is_rolled(pods)),
        }
    });
    let rolling = cost(side, async {
        events::patch(&mut connection, &format!("{DEPLOYMENTS}/web"), &change).await?;
        let is_over = |seen: &Value| {
            seen["metadata"]["generation"].as_u64() >= Some(2)
                && seen["status"]["observedGeneration"] == seen["metadata"]["generation"]
                && ["replicas", "updatedReplicas", "availableReplicas"]
                    .iter()
                    .all(|field| counted(seen, field) == pods)
        };
        watch.until(|_, seen| Ok(is_over(seen))).await
    });
    tokio::try_join!(guarding, rolling).map(|((), cost)| cost)
}

/// Creates so many objects of a kind, until all are as they are to be.
async fn each(
    side: &Side,
    path: &str,
    count: usize,
    object: impl Fn(usize) -> Value,
    is_done: impl Fn(&Value) -> bool,
) -> Result<Cost, String> {
    let mut connection = Connection::open(side.server.address).await?;
    let mut watch = Events::of(&side.server, path).await?;
    cost(side, async {
        let creating = async {
            for number in 0..count {
                events::create(&mut connection, path, &object(number)).await?;
            }
            Ok::<_, String>(())
        };
        let mut done = BTreeSet::new();
        let watching = watch.until(|_, seen| {
            if is_done(seen) {
                done.insert(seen["metadata"]["name"].to_string());
            }
            Ok(done.len() == count)
        });
        tokio::try_join!(creating, watching).map(drop)
    })
    .await
}

async fn jobs(side: &Side, jobs: usize) -> Result<Cost, String> {
    let is_complete = |job: &Value| {
        let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Complete" && one["status"] == "True")
    };
    each(side, JOBS, jobs, objects::job, is_complete).await
}

async fn statefulset(side: &Side, pods: usize) -> Result<Cost, String> {
    let mut connection = Connection::open(side.server.address).await?;
    let mut watch = Events::of(&side.server, STATEFULSETS).await?;
    cost(side, async {
        events::create(&mut connection, STATEFULSETS, &objects::statefulset(pods)).await?;
        watch.until(|_, seen| Ok(counted(seen, "readyReplicas") == pods)).await
    })
    .await
}

async fn namespace(side: &Side, objects: usize) -> Result<Cost, String> {
    let mut connection = Connection::open(side.server.address).await?;
    events::create(&mut connection, "/api/v1/namespaces", &objects::namespace("full")).await?;
    for number in 0..objects {
        events::create(
            &mut connection,
            "/api/v1/namespaces/full/configmaps",
            &objects::config_map(number),
        )
        .await?;
    }
    let mut watch = Events::of(&side.server, "/api/v1/namespaces?fieldSelector=metadata.name%3Dfull").await?;
    cost(side, async {
        events::delete(&mut connection, "/api/v1/namespaces/full").await?;
        watch.until(|kind, _| Ok(kind == "DELETED")).await
    })
    .await
}

/// The cost of a crowd of pods.
pub(super) struct Crowd {
    pub(super) up: Cost,
    pub(super) down: Cost,
    /// While nothing happens, in percent of a processor.
    pub(super) idle: f64,
}

/// How many pods each Deployment of a crowd has.
const OF_ONE: usize = 500;
/// How long idleness is looked at, after as long a time for remaining work: each node renews its Lease meanwhile.
const IDLE: Duration = Duration::from_secs(30);

/// What there is to say about the pods of a crowd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Nothing.
    Plain,
    /// Each requires not to be near pods that do not exist.
    Repelling,
    /// A Service and a PodDisruptionBudget select all of them.
    Selected,
}

/// What the system needs while nothing happens, in percent of a processor.
pub(super) async fn idle(side: &Side) -> Result<f64, String> {
    tokio::time::sleep(IDLE).await;
    let before = side.server.cpu_milliseconds()?;
    tokio::time::sleep(IDLE).await;
    Ok((side.server.cpu_milliseconds()? - before) / (IDLE.as_secs_f64() * 1000.0) * 100.0)
}

/// Deployments of 500 pods until there are so many; then nothing; then all of them deleted.
pub(super) async fn crowd(side: &Side, pods: usize, shape: Shape) -> Result<Crowd, String> {
    let mut connection = Connection::open(side.server.address).await?;
    let mut watch = Events::of(&side.server, DEPLOYMENTS).await?;
    let names: Vec<String> = (0..pods / OF_ONE).map(|number| format!("crowd-{number}")).collect();
    if shape == Shape::Selected {
        for (path, object) in objects::selecting() {
            events::create(&mut connection, path, &object).await?;
        }
    }
    let up = cost(side, async {
        for name in &names {
            let mut one = objects::deployment(name, OF_ONE);
            for at in ["/spec/selector/matchLabels/app", "/spec/template/metadata/labels/app"] {
                if let Some(label) = one.pointer_mut(at) {
                    *label = name.clone().into();
                }
            }
            let template = &mut one["spec"]["template"];
            match shape {
                Shape::Plain => {}
                Shape::Repelling => template["spec"]["affinity"] = objects::repelling(),
                Shape::Selected => template["metadata"]["labels"][objects::CROWD] = "true".into(),
            }
            events::create(&mut connection, DEPLOYMENTS, &one).await?;
        }
        let mut ready = BTreeMap::new();
        watch
            .until(|_, seen| {
                ready.insert(seen["metadata"]["name"].to_string(), counted(seen, "readyReplicas"));
                Ok(ready.values().sum::<usize>() == pods)
            })
            .await
    })
    .await?;
    let idle = idle(side).await?;
    let down = cost(side, async {
        for name in &names {
            events::delete(&mut connection, &format!("{DEPLOYMENTS}/{name}")).await?;
        }
        // No event says that nothing is left; a page of one pod does.
        loop {
            let list = connection
                .answer(&crate::client::Call::get(&format!("{PODS}?limit=1")))
                .await?;
            let list: Value = serde_json::from_slice(&list.1).map_err(|why| format!("a list is no JSON: {why}"))?;
            if list["items"].as_array().is_some_and(Vec::is_empty) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await?;
    Ok(Crowd { up, down, idle })
}

/// So many claims of the default class, until all are bound.
pub(super) async fn claims(side: &Side, claims: usize) -> Result<Cost, String> {
    const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
    each(side, CLAIMS, claims, objects::claim, |claim| {
        claim["status"]["phase"] == "Bound"
    })
    .await
}

/// A DaemonSet, until its pods on so many nodes are ready.
pub(super) async fn daemons(side: &Side, nodes: usize) -> Result<Cost, String> {
    const DAEMONSETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
    let mut connection = Connection::open(side.server.address).await?;
    let mut watch = Events::of(&side.server, DAEMONSETS).await?;
    cost(side, async {
        events::create(&mut connection, DAEMONSETS, &objects::daemonset()).await?;
        watch.until(|_, seen| Ok(counted(seen, "numberReady") == nodes)).await
    })
    .await
}
