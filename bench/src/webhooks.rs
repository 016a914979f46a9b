//! The time that a webhook adds to a write, and how many admissions a second are borne: ours beside
//! controller-runtime's.
//!
//! * A create of a ConfigMap, with and without the webhook: its label says which server is asked. The creates follow
//!   one another on one connection, in turns (no webhook, ours, theirs), so that a machine that slows down slows all of
//!   them down.
//! * *added*: the median of the creates with the webhook less the median of those without.
//! * *in process*: the same through a client without a socket, the webhook called without one, as by tests and `dev`.
//! * *admissions a second*: creates that keep to a clock, on several connections. Their time runs from the moment in
//!   which each was due, so that one that is late makes those behind it late as well.
//! * *CPU*: of the webhook's process, over the admissions of that load.
//!
//! Both webhook servers do the same (a label where there is none), each in a process of its own, and are called by the
//! same API server: ours first, then the peer where it is given. Our webhook server has the profile `operator`.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::api::{Api, PostParams};
use kubewright::{AdmissionRequest, Defaulter, Denied, Operator, Webhook};
use kubewright_cluster::WebhookCertificates;
use kubewright_testing::{Cluster, Controllers, TestCluster};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::Spread;
use crate::client::{Call, Connection};
use crate::load::CONFIG_MAPS;
use crate::machine::{cpu_milliseconds, free_address};
use crate::paced;
use crate::peer::{Fsync, Peer};
use crate::servers::Server;

/// Creates of each sort, one at a time.
const CREATES: usize = 2000;
/// They are not counted: connections are opened, programs come into the caches.
const WARM: usize = 200;
const RATE: usize = 1000;
const SECONDS: usize = 10;

/// The goals, in microseconds and milliseconds.
const IN_PROCESS: f64 = 50.0;
const HTTPS: f64 = 500.0;
const SLOWEST: f64 = 5.0;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
/// The caller to which the goals apply.
const OURS: &str = "kubewright";
/// The label by which a ConfigMap chooses its webhook.
const ASKS: &str = "asks";

/// Measures and prints.
pub(crate) async fn measure(kubewright: &Path, peer: Option<&Peer>) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    println!(
        "\nwebhooks: a create of a ConfigMap, {CREATES} of each sort in turns, p50; then {RATE} a second for {SECONDS} s\n"
    );
    in_process().await?;
    let subjects = Subjects::start(folder.path()).await?;
    let server = Server::ours(kubewright, folder.path(), None).await?;
    let measured = called_by(OURS, &server, &subjects).await;
    server.stop().await;
    measured?;
    if let Some(peer) = peer {
        let server = Server::theirs(peer, folder.path(), Fsync::Off).await?;
        let measured = called_by("kube-apiserver", &server, &subjects).await;
        server.stop().await;
        measured?;
    }
    Ok(())
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

fn config_map(name: &str, asks: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {ASKS: asks}}, "data": {"key": "v".repeat(200)}})
}

/// Whether the webhook wrote its label.
fn labelled(body: &[u8]) -> bool {
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    object["metadata"]["labels"]["team"] == "nobody"
}

/// Writes a label where there is none, as both subjects do.
struct Team;

impl Defaulter for Team {
    type Object = ConfigMap;

    async fn default(&self, object: &mut ConfigMap, _: &AdmissionRequest) -> Result<(), Denied> {
        let labels = object.metadata.labels.get_or_insert_default();
        labels.entry("team".to_owned()).or_insert_with(|| "nobody".to_owned());
        Ok(())
    }
}

async fn in_process() -> Result<(), String> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None))
        .await
        .map_err(|why| format!("the cluster did not start: {why}"))?;
    let selector = serde_json::from_value(json!({"matchLabels": {ASKS: "ours"}})).map_err(|why| why.to_string())?;
    let webhook = Webhook::of::<ConfigMap>()
        .defaulter(Team)
        .mutating(|webhook| webhook.object_selector(selector));
    cluster
        .run_as_admin(Operator::new("bench").webhook(webhook))
        .await
        .map_err(|why| format!("the webhook did not start: {why}"))?;
    let api: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    let mut times = [Vec::new(), Vec::new()];
    for index in 0..WARM + CREATES {
        for (asks, times) in ["nobody", "ours"].into_iter().zip(&mut times) {
            let object = serde_json::from_value(config_map(&format!("{asks}-{index}"), asks));
            let object: ConfigMap = object.map_err(|why| why.to_string())?;
            let started = Instant::now();
            let created = api.create(&PostParams::default(), &object).await;
            let took = started.elapsed().as_secs_f64() * 1e6;
            let labels = created
                .map_err(|why| format!("a create in process: {why}"))?
                .metadata
                .labels;
            if labels.is_some_and(|labels| labels.contains_key("team")) != (asks == "ours") {
                return Err(format!("in process the webhook was not asked as {asks:?} says"));
            }
            if index >= WARM {
                times.push(took);
            }
        }
    }
    let [without, with] = times.map(Spread::of);
    row("in process, without a webhook", without.median(), "µs", None);
    row(
        "in process, added by a webhook",
        with.median() - without.median(),
        "µs",
        Some(IN_PROCESS),
    );
    cluster.stop().await;
    Ok(())
}

fn row(what: &str, figure: f64, unit: &str, most: Option<f64>) {
    let goal = most.map_or_else(String::new, |most| {
        format!("   (≤ {most} {unit}) {}", verdict(figure <= most))
    });
    println!("{what:<64} {figure:>8.2} {unit}{goal}");
}

/// A webhook server.
struct Subject {
    /// As labels say it.
    name: &'static str,
    /// Only ours has goals.
    ours: bool,
    process: Child,
    address: SocketAddr,
}

/// The webhook servers, and the certificate that their callers must trust.
struct Subjects {
    servers: Vec<Subject>,
    authority: String,
}

impl Subjects {
    async fn start(folder: &Path) -> Result<Subjects, String> {
        let certificates = WebhookCertificates::new().map_err(|why| why.to_string())?;
        let keys = folder.join("webhook");
        certificates
            .write(&keys, &["127.0.0.1"])
            .map_err(|why| why.to_string())?;
        let mut servers =
            vec![Subject::start("ours", true, &crate::subject("kubewright-bench-webhook")?, &keys).await?];
        if let Some(program) = controller_runtime().await? {
            servers.push(Subject::start("controller-runtime", false, &program, &keys).await?);
        }
        let authority = certificates.ca();
        Ok(Subjects { servers, authority })
    }
}

impl Subject {
    async fn start(name: &'static str, ours: bool, program: &Path, keys: &Path) -> Result<Subject, String> {
        let address = free_address()?;
        let process = Command::new(program)
            .arg(keys)
            .arg(address.port().to_string())
            .kill_on_drop(true)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|why| format!("cannot start {}: {why}", program.display()))?;
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            if Instant::now() > end {
                return Err(format!("{} does not listen on {address}", program.display()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Subject {
            name,
            ours,
            process,
            address,
        })
    }

    /// The configuration that leads the API server to it.
    fn configuration(&self, authority: &str) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": self.name},
            "webhooks": [{
                "name": format!("{}.bench.example.com", self.name),
                "clientConfig": {
                    "url": format!("https://{}/mutate--v1-configmap", self.address),
                    "caBundle": k8s_openapi::ByteString(authority.as_bytes().to_vec()),
                },
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
                "objectSelector": {"matchLabels": {ASKS: self.name}},
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            }],
        })
    }
}

/// Builds the peer's subject. `None`, and a line that says so, when there is no Go.
async fn controller_runtime() -> Result<Option<PathBuf>, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/controller-runtime");
    let here = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let program = here.with_file_name("controller-runtime-bench-webhook");
    let built = Command::new("go")
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg("./webhooks")
        .current_dir(&source)
        .status()
        .await;
    match built {
        Ok(status) if status.success() => Ok(Some(program)),
        Ok(status) => Err(format!("go could not build {}/webhooks: {status}", source.display())),
        Err(why) => {
            println!("(no controller-runtime: go cannot be run: {why})");
            Ok(None)
        }
    }
}

async fn called_by(caller: &str, server: &Server, subjects: &Subjects) -> Result<(), String> {
    let mut connection = Connection::open(server.address).await?;
    for subject in &subjects.servers {
        let body = subject.configuration(&subjects.authority).to_string();
        connection.call(&Call::post(CONFIGURATIONS, body.as_bytes())).await?;
        until_asked(&mut connection, subject.name).await?;
    }
    one_at_a_time(caller, &mut connection, subjects).await?;
    for subject in &subjects.servers {
        // Goals are for our webhook under our server.
        let goal = (subject.ours && caller == OURS).then_some(SLOWEST);
        let before = cpu_milliseconds(subject.process.id())?;
        let (rate, times) = paced(server, subject.name).await?;
        let cpu = (cpu_milliseconds(subject.process.id())? - before) * 1000.0 / (RATE * SECONDS) as f64;
        let what = |figure: &str| format!("{caller} calls {}, {rate:.0} a second, {figure}", subject.name);
        row(&what("p50"), times.quantile(0.5), "ms", None);
        row(&what("p99"), times.quantile(0.99), "ms", goal);
        row(&what("CPU of the webhook"), cpu, "µs", None);
    }
    Ok(())
}

/// A configuration may take a moment to be known.
async fn until_asked(connection: &mut Connection, asks: &str) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(20);
    for index in 0.. {
        let body = config_map(&format!("first-{asks}-{index}"), asks).to_string();
        let (code, body) = connection.answer(&Call::post(CONFIG_MAPS, body.as_bytes())).await?;
        if code == 201 && labelled(&body) {
            return Ok(());
        }
        if Instant::now() > end {
            let said = String::from_utf8_lossy(&body);
            return Err(format!(
                "the webhook {asks} is not asked; the last answer was {code}: {said}"
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The time that each webhook adds to a create.
async fn one_at_a_time(caller: &str, connection: &mut Connection, subjects: &Subjects) -> Result<(), String> {
    let asked: Vec<&str> = subjects.servers.iter().map(|subject| subject.name).collect();
    let sorts = [["nobody"].as_slice(), &asked].concat();
    let mut times = vec![Vec::new(); sorts.len()];
    for index in 0..WARM + CREATES {
        for (asks, times) in sorts.iter().zip(&mut times) {
            let body = config_map(&format!("one-{asks}-{index}"), asks).to_string();
            let started = Instant::now();
            connection.call(&Call::post(CONFIG_MAPS, body.as_bytes())).await?;
            if index >= WARM {
                times.push(started.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    let mut medians = times.into_iter().map(|times| Spread::of(times).median());
    let without = medians.next().unwrap_or(f64::NAN);
    row(&format!("{caller}, without a webhook"), without, "µs", None);
    for (subject, with) in subjects.servers.iter().zip(medians) {
        let goal = (subject.ours && caller == OURS).then_some(HTTPS);
        row(
            &format!("{caller}, added by {}", subject.name),
            with - without,
            "µs",
            goal,
        );
    }
    Ok(())
}

/// The load: how many a second were answered, and how long they took from the moment in which they were due, in
/// milliseconds.
async fn paced(server: &Server, asks: &'static str) -> Result<(f64, Spread), String> {
    let times = Arc::new(Mutex::new(Vec::new()));
    let taken = times.clone();
    let started = Instant::now();
    paced::keep(server, RATE, RATE * SECONDS, move |mut connection, due| {
        let taken = taken.clone();
        async move {
            let body = config_map(&format!("paced-{asks}-{}", due.index), asks).to_string();
            connection.call(&Call::post(CONFIG_MAPS, body.as_bytes())).await?;
            let took = due.at.elapsed().as_secs_f64() * 1e3;
            taken.lock().unwrap_or_else(PoisonError::into_inner).push(took);
            Ok(connection)
        }
    })
    .await?;
    let rate = (RATE * SECONDS) as f64 / started.elapsed().as_secs_f64();
    let times = std::mem::take(&mut *times.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((rate, Spread::of(times)))
}
