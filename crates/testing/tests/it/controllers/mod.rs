//! The built-in controllers under the fault explorer: none of its faults leaves a cluster other than an undisturbed one.
//!
//! In each scenario the controller in question is the operator that is explored, and all others run undisturbed beside
//! it. A few faults are played in every run of the tests, and with `KUBEWRIGHT_EXPLORE` as many as it says: `all` is for
//! the night.
//!
//! The report says at which of its writes a controller was disturbed; a controller that writes nothing fails its test.

mod recorded;
mod scenarios;

use std::sync::Arc;

use kubewright::k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubewright::{Clock, Operator};
use kubewright_cluster::controllers::{self, NAMES, Settings};
use kubewright_cluster::{Minor, Nodes};
use kubewright_testing::explore::{Explore, Report, Step};
use kubewright_testing::{Cluster, Controllers, Result};

use scenarios::{SCENARIOS, Scenario};

/// How many faults are played of each controller in each scenario.
const FEW: usize = 8;

/// A certificate of nobody.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBNDCB56ADAgECAhQsrPXuf37MNZmTwhu3OdrMm0rOpjAFBgMrZXAwDzENMAsG
A1UEAwwEamFuZTAgFw0yNjExMjkyMzQzMzNaGA8yMTI2MTEwNTIzNDMzM1owDzEN
MAsGA1UEAwwEamFuZTAqMAUGAytlcAMhAE1AtkhVFF+KOcrJ7ybJbl48NiocW72W
ZymdyyNnSRX5o1MwUTAdBgNVHQ4EFgQUSNYD5X6klIiusAb8W0Oru7pHY14wHwYD
VR0jBBgwFoAUSNYD5X6klIiusAb8W0Oru7pHY14wDwYDVR0TAQH/BAUwAwEB/zAF
BgMrZXADQQCfzfaQyObk0TJQtrf90m3pDOEM+wCH5aky7w7YhOt3A3Kv3W4InGb/
DJHHbIRNFjz+CNzbz9VUMv+c+A66+XIB
-----END CERTIFICATE-----
";

/// The time of the run that is played on this thread: it tells the time of events, which are not compared.
#[derive(Debug)]
struct Time(tokio::time::Instant);

impl Clock for Time {
    fn now(&self) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:10Z".parse().expect("a time");
        start + SignedDuration::try_from(self.0.elapsed()).expect("no run takes that long")
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

/// The version of Kubernetes that a controller is played in: some work only in newer ones.
fn minor_of(controller: &str) -> Minor {
    match controller {
        "storage-version-migrator" => Minor::NEWEST,
        _ => Minor::default(),
    }
}

/// A controller as an operator of its own.
fn operator(controller: &str, nodes: &Nodes) -> Operator {
    let settings = Settings {
        minor: minor_of(controller),
        root_ca: Arc::new(|| Some("authority".to_owned())),
        service_account_token: Arc::new(|wanted| Some(format!("token of {}", wanted.account))),
        certificates: Some(Arc::new(|_, _, _| Ok(CERTIFICATE.to_owned()))),
        clock: Arc::new(Time(tokio::time::Instant::now())),
        heartbeats: false,
        nodes: nodes.clone(),
        load_balancer_range: Some("10.9.0.0/29".parse().expect("a range")),
        ..Settings::default()
    };
    controllers::add(Operator::new("kube-controller-manager"), controller, &settings)
}

/// Explores a controller in a cluster with so many nodes, beside all others.
fn explored(controller: &'static str, nodes: usize, steps: Vec<Step>, shrinks: bool) -> Result<Report> {
    let nodes = Nodes::from(nodes);
    let of_cluster = nodes.clone();
    let minor = minor_of(controller);
    // In newer versions the bundle of the authority has another name in each run.
    let is_same = |name: &&&str| minor == Minor::default() || **name != "serviceaccount";
    let others = NAMES.iter().filter(|name| **name != controller).filter(is_same);
    let others: Vec<String> = others.map(|name| (*name).to_owned()).collect();
    Explore::of(move || operator(controller, &nodes))
        .cluster(move || {
            let others = Controllers::Only(others.clone());
            let builder = Cluster::builder().kubernetes_version(minor);
            builder.controllers(others).nodes(of_cluster.clone())
        })
        .steps(steps)
        .faults(FEW)
        .shrink(shrinks)
        .run()
}

/// Plays a scenario, and says what is wrong with the controller.
fn check(scenario: &Scenario, controller: &'static str) -> Result<Vec<String>> {
    let is_sound = scenario.as_upstream.is_empty();
    let report = explored(controller, scenario.nodes, (scenario.steps)(), is_sound)?;
    let name = scenario.name;
    assert!(
        report.played > 0,
        "nothing was played of {controller} in {name}:\n{report}"
    );
    assert!(
        !report.sites().is_empty() && report.missed < report.played,
        "{controller} was never disturbed in {name}:\n{report}"
    );
    let mut findings = report.findings.iter();
    Ok(
        match findings.all(|finding| scenario.as_upstream.contains(&finding.what.as_str())) {
            true => Vec::new(),
            false => vec![format!("{controller}, {name}:\n{report}")],
        },
    )
}

/// Plays all scenarios in which `controller` has something to do.
fn survives(controller: &'static str) -> Result<()> {
    let of_it = SCENARIOS
        .iter()
        .filter(|scenario| scenario.controllers.contains(&controller));
    let mut wrong = Vec::new();
    for scenario in of_it {
        wrong.extend(check(scenario, controller)?);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

macro_rules! controllers {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() -> Result<()> {
            survives($name)
        })*

        #[test]
        fn every_controller_is_explored() {
            let mut explored = [$($name),*];
            // One writes nothing: it passes connections on.
            let mut all: Vec<_> = NAMES.iter().copied().filter(|name| *name != "service-proxy").collect();
            (explored.sort_unstable(), all.sort_unstable());
            assert_eq!(explored.as_slice(), all);
            for name in all {
                let count = SCENARIOS.iter().filter(|scenario| scenario.controllers.contains(&name)).count();
                assert!(count > 0, "no scenario is about {name}");
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
    service_cidr: "service-cidr",
    service_lb: "service-lb",
    validatingadmissionpolicy_status: "validatingadmissionpolicy-status",
    storage_version_migrator: "storage-version-migrator",
}
