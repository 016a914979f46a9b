//! Each case is played once without any fault, with the bug and without it. With `KUBEWRIGHT_EVERY_CRASH=1` the fixed
//! operator is also disturbed: at each of its writes, by a second replica, and by a user in a hurry.
//!
//! That is no search for faults, only what keeps a fixed operator from being taken for one with a bug.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_testing::{Answer, Cluster, Interceptor, Result, TestCluster, refusal};
use serde_json::Value;
use tokio::time::Instant;

use super::{CASES, Case, Ends};

/// The namespaced objects in the end, by kind and name.
type World = BTreeMap<String, Value>;

/// What happens to the operator. Writes are counted from one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// It is killed after this write, and started anew at once.
    Killed(usize),
    /// This write is carried out, and its answer is lost.
    Lost(usize),
    /// From this write on none is answered in time, for a minute.
    Outage(usize),
    /// There are two of them, and neither leads.
    Twice,
    /// The user takes each step so soon after the one before.
    Hurry(Duration),
}

/// Each run has a runtime of its own, because its time is its own. The end, and the number of the operator's writes.
fn play(case: &Case, fixed: bool, fault: Fault) -> Result<(World, usize)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(played(case, fixed, fault))
}

/// Does to the requests of the operator what the fault says.
fn disturb(cluster: &TestCluster, fault: Fault) -> Interceptor {
    let (writes, begin) = (AtomicUsize::new(0), OnceLock::new());
    cluster.intercept(move |call| {
        let reads = ["get", "list", "watch"].contains(&call.verb.as_str());
        if reads || ["events", "leases"].contains(&call.resource.as_str()) {
            return Answer::Pass;
        }
        let write = writes.fetch_add(1, Ordering::Relaxed) + 1;
        match fault {
            Fault::Lost(lost) if write == lost => Answer::Lost,
            Fault::Outage(first) if write >= first => {
                let begin: &Instant = begin.get_or_init(Instant::now);
                match begin.elapsed() < Duration::from_secs(60) {
                    true => refusal(504, "Timeout", "the request took too long"),
                    false => Answer::Pass,
                }
            }
            _ => Answer::Pass,
        }
    })
}

async fn played(case: &Case, fixed: bool, fault: Fault) -> Result<(World, usize)> {
    let start: Timestamp = "2026-01-01T00:00:10Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().nodes(1)).await?;
    let _interceptor = disturb(&cluster, fault);
    let operator = case.operator;
    if fault == Fault::Twice {
        cluster.run(operator(fixed)).await?;
    }
    let dies_after = match fault {
        Fault::Killed(write) => write,
        _ => usize::MAX,
    };
    let operator = cluster.run_dying(move || operator(fixed), dies_after).await?;
    cluster.settle().await?;
    for step in (case.steps)() {
        step.make(&cluster).await?;
        match fault {
            Fault::Hurry(time) => cluster.advance(time).await?,
            _ => rest(&cluster).await?,
        }
    }
    rest(&cluster).await?;
    let world = world(&cluster);
    let writes = operator.writes();
    operator.stop().await;
    cluster.stop().await;
    Ok((world, writes))
}

async fn rest(cluster: &TestCluster) -> Result<()> {
    cluster.advance(Duration::from_secs(600)).await?;
    cluster.settle().await
}

fn world(cluster: &TestCluster) -> World {
    let mut world = World::new();
    for text in cluster.snapshot().objects() {
        let mut object: Value = serde_json::from_str(text).expect("an object");
        forget(&mut object);
        let (kind, meta) = (&object["kind"], &object["metadata"]);
        if meta["namespace"] != "default" {
            continue;
        }
        // Objects whose end is generated have one name and count up.
        let name = format!(
            "{}/{}",
            kind.as_str().unwrap_or_default(),
            meta["name"].as_str().unwrap_or_default()
        );
        let names = std::iter::once(name.clone()).chain((2..).map(|number| format!("{name} ({number})")));
        let free = names
            .into_iter()
            .find(|name| !world.contains_key(name))
            .expect("there are enough");
        world.insert(free, object);
    }
    world
}

/// How often something was changed on the way is no part of the end, and neither is who made up a name.
fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for counter in ["generation", "observedGeneration", "generateName", "restartCount"] {
                fields.remove(counter);
            }
            fields.values_mut().for_each(forget);
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        Value::String(text) => {
            if let Some(stem) = text.strip_suffix("-*") {
                *text = stem.to_owned();
            }
        }
        _ => {}
    }
}

/// What the user misses.
fn missing(case: &Case, world: &World) -> Vec<String> {
    let wrong = case.expected.iter().filter_map(|(object, field, value)| {
        let found = world.get(*object).and_then(|object| object.pointer(field));
        let is_right = match *value {
            "gone" => found.is_none(),
            "" => found.is_some(),
            value => found == serde_json::from_str(value).ok().as_ref(),
        };
        (!is_right).then(|| format!("{object} {field} is {found:?}, not {value}"))
    });
    wrong.collect()
}

fn differences(one: &World, other: &World) -> Vec<String> {
    let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
    let different = names.filter(|name| one.get(*name) != other.get(*name));
    different
        .map(|name| format!("{name}:\n  {:?}\n  {:?}", one.get(name), other.get(name)))
        .collect()
}

fn check(name: &str) -> Result<()> {
    let case = CASES
        .iter()
        .find(|case| case.name == name)
        .expect("a case of this name");
    let (buggy, _) = play(case, false, Fault::Nothing)?;
    let (fixed, writes) = play(case, true, Fault::Nothing)?;
    let wrong = missing(case, &fixed);
    assert!(wrong.is_empty(), "{name}, fixed: {}\n{fixed:#?}", wrong.join("\n"));
    let invariants = case.always.iter().filter(|invariant| {
        let all: Vec<Value> = fixed.values().cloned().collect();
        !(invariant.holds)(&all)
    });
    let broken: Vec<&str> = invariants.map(|invariant| invariant.what).collect();
    assert!(broken.is_empty(), "{name}, fixed: {broken:?}");
    match case.undisturbed {
        Ends::Same => {
            let different = differences(&buggy, &fixed);
            assert!(
                different.is_empty(),
                "{name} (with the bug, without):\n{}",
                different.join("\n")
            );
        }
        Ends::Differ => assert!(!missing(case, &buggy).is_empty(), "{name} does not show: {}", case.bug),
    }
    if std::env::var_os("KUBEWRIGHT_EVERY_CRASH").is_some() {
        let mut wrong = Vec::new();
        for fault in faults(writes) {
            let end = play(case, true, fault)?.0;
            let different = match fault {
                // Fewer steps may have been seen: other things may have happened on the way.
                Fault::Hurry(_) => missing(case, &end),
                _ => differences(&end, &fixed),
            };
            if !different.is_empty() {
                wrong.push(format!("{fault:?}:\n{}", different.join("\n")));
            }
        }
        assert!(wrong.is_empty(), "{name}, fixed: {}", wrong.join("\n"));
    }
    Ok(())
}

fn faults(writes: usize) -> Vec<Fault> {
    let of_writes = (1..=writes).flat_map(|write| [Fault::Killed(write), Fault::Lost(write), Fault::Outage(write)]);
    let hurries = [0, 300, 3_000].map(|time| Fault::Hurry(Duration::from_millis(time)));
    of_writes.chain([Fault::Twice]).chain(hurries).collect()
}

macro_rules! cases {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() -> Result<()> {
            check($name)
        })*

        #[test]
        fn every_case_is_played() {
            let played = [$($name),*];
            let all: Vec<&str> = CASES.iter().map(|case| case.name).collect();
            assert_eq!(played.as_slice(), all);
        }
    };
}

cases! {
    rabbitmq_782: "rabbitmq-782",
    nifikop_49: "nifikop-49",
    casskop_370: "casskop-370",
    cass_operator_1023: "cass-operator-1023",
    zookeeper_314: "zookeeper-314",
    zookeeper_312: "zookeeper-312",
    eck_5249: "eck-5249",
    psmdb_430: "psmdb-430",
    psmdb_433: "psmdb-433",
    casskop_321: "casskop-321",
    cassandra_operator_398: "cassandra-operator-398",
    pxc_918: "pxc-918",
    zookeeper_453: "zookeeper-453",
    zookeeper_410: "zookeeper-410",
    pxc_979: "pxc-979",
    kubernetes_67662: "kubernetes-67662",
    opensearch_1471: "opensearch-1471",
    generate_name: "generate-name",
    status_swallowed: "status-swallowed",
    mongodb_community_1074: "mongodb-community-1074",
    cockroach_918: "cockroach-918",
    psmdb_897: "psmdb-897",
    scale_to_zero: "scale-to-zero",
}
