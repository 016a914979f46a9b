//! The built-in controllers under faults in scenarios that were recorded from Kubernetes' own.
//!
//! A recording is a list of requests with what came of them (`scenarios/*.json`, one file each). Its writes become the
//! steps of a user; its pods, which the recorder changed by hand, run on a simulated node. What a real node is needed for
//! is left out. Not here: whether the undisturbed end is that of the recording, which the recordings' own player says.

use std::path::Path;

use kubewright_testing::Result;
use kubewright_testing::explore::Step;
use serde_json::Value;

use super::explored;

/// Who does the work in the scenarios whose names begin so.
const CONTROLLERS: &[(&str, &[&str])] = &[
    ("clusterrole", &["clusterrole-aggregation"]),
    ("cronjob", &["cronjob", "job"]),
    ("deployment", &["deployment", "replicaset"]),
    ("endpoints", &["endpoints"]),
    ("gc", &["garbage-collector"]),
    ("job", &["job"]),
    ("namespace", &["namespace"]),
    ("pdb", &["disruption"]),
    ("quota", &["resourcequota"]),
    ("replicaset", &["replicaset"]),
    ("serviceaccount", &["serviceaccount"]),
    (
        "simulated",
        &["deployment", "replicaset", "statefulset", "scheduler", "node"],
    ),
    ("statefulset", &["statefulset"]),
    ("volume", &["persistentvolume-binder", "volume-protection"]),
];

/// The writes of a recording.
fn steps(recording: &Value) -> Vec<Step> {
    let all = recording["steps"].as_array().into_iter().flatten();
    let taken = all.filter(|step| step["answer"]["code"].as_u64().is_some_and(|code| code < 300));
    taken.filter_map(step).collect()
}

/// A request as a step; `None` for a read, and for what names something that the recorder learned on the way.
fn step(recorded: &Value) -> Option<Step> {
    let text = recorded.to_string();
    let text = text
        .replace("${ns}", "default")
        .replace("${id}", "recorded")
        .replace("${now}", "2026-01-01T00:00:10Z")
        // The simulated node runs its pods.
        .replace(r#""schedulerName":"nobody""#, r#""schedulerName":"default-scheduler""#);
    let recorded: Value = serde_json::from_str(&text).ok().filter(|_| !text.contains("${"))?;
    let (request, what) = (&recorded["request"], recorded["name"].as_str()?);
    let place = Place::of(request["path"].as_str()?);
    let mut body = request["body"].clone();
    match request["method"].as_str()? {
        "POST" | "PUT" if place.subresource.is_none() && body["metadata"]["name"].is_string() => {
            body["metadata"]["namespace"] = place.namespace.into();
            Some(Step::apply(what, body))
        }
        "PATCH" if !request["headers"]["content-type"].to_string().contains("json-patch") => {
            let (version, kind) = place.kind()?;
            let step = Step::merge(what, &version, kind, &place.namespace, &place.name, body);
            Some(match place.subresource {
                Some(subresource) => step.of_subresource(subresource),
                None => step,
            })
        }
        "DELETE" if !place.name.is_empty() => {
            let (version, kind) = place.kind()?;
            let step = Step::delete(what, &version, kind, &place.namespace, &place.name);
            Some(match body["propagationPolicy"] == "Foreground" {
                true => step.in_foreground(),
                false => step,
            })
        }
        _ => None,
    }
}

/// What a path names.
struct Place {
    version: String,
    namespace: String,
    plural: String,
    name: String,
    subresource: Option<String>,
}

impl Place {
    fn of(path: &str) -> Place {
        let mut parts = path.trim_start_matches('/').split('/').map(str::to_owned);
        let version = match parts.next().as_deref() {
            Some("api") => parts.next().unwrap_or_default(),
            _ => [parts.next(), parts.next()].map(Option::unwrap_or_default).join("/"),
        };
        let mut rest: Vec<String> = parts.collect();
        let namespace = match rest.first().map(String::as_str) {
            Some("namespaces") if rest.len() > 2 => rest.drain(..2).next_back().unwrap_or_default(),
            _ => String::new(),
        };
        let mut rest = rest.into_iter();
        Place {
            version,
            namespace,
            plural: rest.next().unwrap_or_default(),
            name: rest.next().unwrap_or_default(),
            subresource: rest.next(),
        }
    }

    /// The version and the kind; `None` for a kind that is not built in.
    fn kind(&self) -> Option<(String, &'static str)> {
        let kind = match self.plural.as_str() {
            "clusterroles" => "ClusterRole",
            "configmaps" => "ConfigMap",
            "cronjobs" => "CronJob",
            "daemonsets" => "DaemonSet",
            "deployments" => "Deployment",
            "jobs" => "Job",
            "namespaces" => "Namespace",
            "persistentvolumeclaims" => "PersistentVolumeClaim",
            "persistentvolumes" => "PersistentVolume",
            "poddisruptionbudgets" => "PodDisruptionBudget",
            "pods" => "Pod",
            "replicasets" => "ReplicaSet",
            "resourcequotas" => "ResourceQuota",
            "secrets" => "Secret",
            "serviceaccounts" => "ServiceAccount",
            "services" => "Service",
            "statefulsets" => "StatefulSet",
            _ => return None,
        };
        Some((self.version.clone(), kind))
    }
}

#[test]
#[ignore = "measures: KUBEWRIGHT_SCENARIOS names a folder of recordings; with --ignored --nocapture"]
#[allow(clippy::print_stdout, reason = "the lines are what it is for")]
fn recorded() -> Result<()> {
    let folder = std::env::var("KUBEWRIGHT_SCENARIOS").expect("KUBEWRIGHT_SCENARIOS names a folder of recordings");
    let mut files: Vec<_> = std::fs::read_dir(Path::new(&folder))
        .expect("the folder can be read")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    files.sort();
    let (mut explored_pairs, mut findings) = (0, 0);
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("a recording can be read");
        let recording: Value = serde_json::from_str(&text).expect("a recording is JSON");
        let steps = steps(&recording);
        let of_name = |(start, _): &&(&str, &[&str])| name.starts_with(*start);
        let Some((_, controllers)) = CONTROLLERS.iter().find(of_name).filter(|_| !steps.is_empty()) else {
            println!("{name}: left out");
            continue;
        };
        for controller in *controllers {
            match explored(controller, 1, steps.clone(), true) {
                Ok(report) if report.sites().is_empty() => println!("{name}, {controller}: it writes nothing"),
                Ok(report) => {
                    (explored_pairs, findings) = (explored_pairs + 1, findings + report.findings.len());
                    println!("{name}, {controller}: {report}");
                }
                Err(error) => println!("{name}, {controller}: cannot be played: {error}"),
            }
        }
    }
    println!("{explored_pairs} pairs of a scenario and a controller, {findings} findings");
    Ok(())
}
