//! Small operators after public reports, written from the reports alone and without a look at the explorer: what it
//! finds of them was not known when it was made. The head of each file names the report and what went wrong.
//!
//! Invariants: a pair differs in one place, which a comment names (*The mend*); the mended operator keeps its promise
//! under every fault, and after every change that its schema allows. What takes something away asks the API server
//! first ([`newest`]), with the bug as well as without it, unless that is the bug.

mod cassandra_operator_410;
mod cert_manager_9097;
mod cloudnative_pg_10562;
mod cloudnative_pg_3541;
mod external_secrets_3609;
mod external_secrets_6677;
mod nifikop_79;
mod prometheus_operator_2950;
mod prometheus_operator_4392;
mod rabbitmq_653;
mod redis_operator_921;
mod tidb_4942;
mod yugabyte_35;
mod zookeeper_569;

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::prelude::*;
use kubewright_testing::explore::{Explore, Step};
use serde_json::{Value, json};

use super::corpus::kit::{self, key};

/// An operator with a bug, and the same without it.
pub(super) struct Pair {
    /// Project and number of the public report: `yugabyte-35`.
    pub(super) name: &'static str,
    /// The operator with its CRDs: with the bug, or without it.
    operator: fn(fixed: bool) -> Operator,
    workload: Workload,
}

/// What its user does.
enum Workload {
    /// Whatever these samples and the schemas of their kinds allow.
    Samples(&'static [&'static str]),
    /// These steps, where a cluster needs more than a sample.
    Steps(fn() -> Vec<Step>),
}

/// All of them: first those that need a fault, then those of inputs.
pub(super) const PAIRS: &[Pair] = &[
    yugabyte_35::PAIR,
    rabbitmq_653::PAIR,
    nifikop_79::PAIR,
    cassandra_operator_410::PAIR,
    zookeeper_569::PAIR,
    cloudnative_pg_10562::PAIR,
    cert_manager_9097::PAIR,
    tidb_4942::PAIR,
    redis_operator_921::PAIR,
    cloudnative_pg_3541::PAIR,
    prometheus_operator_4392::PAIR,
    prometheus_operator_2950::PAIR,
    external_secrets_3609::PAIR,
    external_secrets_6677::PAIR,
];

fn steps(pair: &Pair) -> kubewright_testing::Result<Vec<Step>> {
    let samples = match pair.workload {
        Workload::Samples(samples) => samples,
        Workload::Steps(steps) => return Ok(steps()),
    };
    let folder = tempfile::tempdir().expect("a folder for the samples");
    for (number, sample) in samples.iter().enumerate() {
        let file = folder.path().join(format!("{number}.yaml"));
        std::fs::write(file, sample).expect("a sample can be written");
    }
    let crds = (pair.operator)(true).crds().expect("the CRDs can be made");
    Step::of_samples(folder.path(), &crds)
}

/// The exploration of one of them; `None` if none has this name.
pub(super) fn explore(name: &str, fixed: bool) -> Option<kubewright_testing::Result<Explore>> {
    let pair = PAIRS.iter().find(|pair| pair.name == name)?;
    let operator = pair.operator;
    Some(steps(pair).map(|steps| Explore::of(move || operator(fixed)).steps(steps)))
}

/// Fails unless the API server has the object as the cache shows it: what is wanted now, and not what was wanted once.
async fn newest<K: Object>(client: &Client, object: &K) -> Result<()> {
    let (namespace, name) = key(object);
    let live = client.live::<K>(namespace, name).await?;
    let is_newest = live.is_some_and(|live| {
        live.meta().uid == object.meta().uid
            && live.meta().generation == object.meta().generation
            && kit::is_going(&live) == kit::is_going(object)
    });
    match is_newest {
        true => Ok(()),
        false => Err(Error::retry("what the cache shows is past")),
    }
}

/// Where another system keeps what belongs to the objects of all namespaces; no owner takes it along.
const ELSEWHERE: &str = "kube-public";

/// What another system keeps for an object, whose namespace and name it carries.
fn elsewhere(parent: &impl Object, role: &str, data: &Value) -> ConfigMap {
    let (namespace, name) = key(parent);
    let home = namespace.unwrap_or_default();
    let body = json!({ "metadata": { "labels": { "home": home } }, "data": data });
    let mut kept: ConfigMap = kit::left_behind(parent, &format!("{home}-{name}-{role}"), body);
    kept.metadata.namespace = Some(ELSEWHERE.to_owned());
    kept
}

/// Wakes the object that something elsewhere is kept for.
fn of_elsewhere(kept: &ConfigMap) -> Vec<Request> {
    let label = |key: &str| kept.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    match (label("home"), label("app")) {
        (Some(home), Some(name)) => vec![Request::new(home, name)],
        _ => Vec::new(),
    }
}
