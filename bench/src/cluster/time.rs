//! Time that is a test's, and pods that are processes: only our side has them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kubewright::kube::Api;
use kubewright::kube::api::{PostParams, WatchEvent};
use kubewright_cluster::Cluster;
use kubewright_testing::TestCluster;
use serde_json::{Value, json};

use super::events::{self, Events};
use super::objects;
use crate::client::Connection;
use crate::machine::cpu_milliseconds;
use crate::servers::Server;

/// How many hours a year has.
pub(super) const YEAR: usize = 365 * 24;

/// A CronJob that runs every hour, for so many hours, on one thread.
pub(super) async fn hourly(hours: usize) -> Result<(), String> {
    let on_its_thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|why| format!("no runtime: {why}"))?;
        runtime.block_on(pass(hours))
    });
    let (seconds, cpu) = tokio::task::spawn_blocking(|| on_its_thread.join())
        .await
        .map_err(|why| why.to_string())?
        .map_err(|_| "the year panicked".to_owned())??;
    if hours == YEAR {
        let verdict = if seconds <= 3.0 { "met" } else { "MISSED" };
        println!("a year of a CronJob every hour, virtual time, s{seconds:>6.1}   (≤ 3) {verdict}");
    } else {
        println!("{hours} hours of a CronJob every hour, virtual time, s{seconds:>6.1}");
    }
    println!("CPU of a run, ms{:>38.2}", cpu / hours as f64);
    Ok(())
}

/// The seconds that it takes, and the milliseconds of CPU of this process meanwhile.
async fn pass(hours: usize) -> Result<(f64, f64), String> {
    let failed = |why: kubewright_testing::Error| why.to_string();
    let start = "2026-01-01T00:00:00Z".parse().map_err(|_| "no time".to_owned())?;
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder())
        .await
        .map_err(failed)?;
    let cronjob = json!({ "metadata": { "name": "hourly" }, "spec": { "schedule": "0 * * * *", "jobTemplate": { "spec": { "template": objects::job(0)["spec"]["template"] } } } });
    let cronjob = serde_json::from_value(cronjob).map_err(|why| why.to_string())?;
    let cronjobs: Api<CronJob> = Api::default_namespaced(cluster.kube());
    let runs = tokio::spawn(runs(cluster.kube()));
    cronjobs
        .create(&PostParams::default(), &cronjob)
        .await
        .map_err(|why| why.to_string())?;
    let cpu = || cpu_milliseconds(Some(std::process::id()));
    let (begin, before) = (Instant::now(), cpu()?);
    cluster
        .advance(Duration::from_secs(hours as u64 * 3600))
        .await
        .map_err(failed)?;
    cluster.settle().await.map_err(failed)?;
    let took = (begin.elapsed().as_secs_f64(), cpu()? - before);
    let end = cluster.now().map_err(failed)?.to_string();
    let seen = cronjobs.get("hourly").await.map_err(|why| why.to_string())?;
    let last = seen.status.and_then(|status| status.last_successful_time);
    let last = last.map(|time| time.0.to_string()).unwrap_or_default();
    // To the hour.
    if !end.starts_with(last.get(..14).unwrap_or("?")) {
        return Err(format!("it is {end}, and the CronJob's last run was at {last:?}"));
    }
    cluster.stop().await;
    // The watch ends with the cluster.
    let runs = runs.await.map_err(|why| why.to_string())??;
    match runs == hours {
        true => Ok(took),
        false => Err(format!("{runs} Jobs were made in {hours} hours")),
    }
}

/// How many Jobs are made until the cluster stops, each counted once.
async fn runs(client: kubewright::kube::Client) -> Result<usize, String> {
    let path = "/apis/batch/v1/namespaces/default/jobs?watch=true&resourceVersion=0&timeoutSeconds=100000000";
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|why| why.to_string())?;
    let events = client
        .request_events::<Job>(request)
        .await
        .map_err(|why| format!("no watch of Jobs: {why}"))?;
    let mut events = std::pin::pin!(events);
    let mut made = BTreeSet::new();
    while let Some(Ok(event)) = events.next().await {
        if let WatchEvent::Added(job) = event {
            made.insert(job.metadata.name);
        }
    }
    Ok(made.len())
}

/// PostgreSQL in a StatefulSet, from the request to Ready, when a database was made from the template before.
pub(super) async fn postgres(program: &Path) -> Result<(), String> {
    if !Path::new("/usr/lib/postgresql").exists() {
        println!("(no PostgreSQL on this machine: the StatefulSet of a process is left out)");
        return Ok(());
    }
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let server = Server::whole(program, folder.path(), &["--runtime", "process"]).await?;
    let mut connection = Connection::open(server.address).await?;
    let path = "/apis/apps/v1/namespaces/default/statefulsets";
    let mut accounts = Events::of(&server, "/api/v1/namespaces/default/serviceaccounts").await?;
    accounts
        .until(|_, account| Ok(account["metadata"]["name"] == "default"))
        .await?;
    let mut watch = Events::of(&server, path).await?;
    let mut last = 0.0;
    for name in ["cold", "warm"] {
        let begin = Instant::now();
        events::create(&mut connection, path, &database(name)).await?;
        watch
            .until(|_, seen| Ok(seen["metadata"]["name"] == name && seen["status"]["readyReplicas"] == 1))
            .await?;
        last = begin.elapsed().as_secs_f64();
    }
    server.stop().await;
    let verdict = if last <= 1.5 { "met" } else { "MISSED" };
    println!("PostgreSQL of a StatefulSet, apply to Ready, s{last:>7.2}   (≤ 1.5) {verdict}");
    Ok(())
}

fn database(name: &str) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name },
        "spec": {
            "replicas": 1, "serviceName": name, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [{
                "name": "db", "image": "postgres", "env": [{ "name": "POSTGRES_PASSWORD", "value": "bench" }],
                "readinessProbe": { "exec": { "command": ["pg_isready", "-U", "postgres"] }, "periodSeconds": 1 },
                "volumeMounts": [{ "name": "data", "mountPath": "/var/lib/postgresql/data" }],
            }] } },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }],
        },
    })
}
