//! The metrics endpoint, with a real API server that decides about its readers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kubewright::kube::Api;
use kubewright::kube::api::PostParams;
use kubewright::prometheus_client::metrics::counter::Counter;
use kubewright::{
    Action, Context, Controller, Error, LeaderElection, Manager, ManagerBuilder, MetricsServer, Reconciler, Sharding,
    Stop,
};
use kubewright_cluster::WebhookCertificates;
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Fails for good on `bad`, panics on `broken`, is content with the rest.
struct Judge;

impl Reconciler for Judge {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, _: Context) -> kubewright::Result<Action> {
        match object.metadata.name.as_deref() {
            Some("bad") => Err(Error::terminal("it is bad".to_owned())),
            Some("broken") => panic!("it is broken"),
            _ => Ok(Action::await_change()),
        }
    }
}

fn judge(cluster: &TestCluster) -> ManagerBuilder {
    let judge = Controller::of(Judge).named("judge").concurrency(3);
    Manager::builder(cluster.kube()).name("judge").add(judge)
}

async fn create(cluster: &TestCluster, name: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// Status and body of a GET.
async fn get(stream: impl AsyncRead + AsyncWrite + Unpin, path: &str, token: Option<&str>) -> (u16, String) {
    let mut stream = stream;
    let authorization = token
        .map(|token| format!("authorization: Bearer {token}\r\n"))
        .unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let status = answer.get(9..12).and_then(|code| code.parse().ok()).expect("a status");
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status, body.unwrap_or_default())
}

pub(super) async fn plain(address: SocketAddr, path: &str) -> (u16, String) {
    get(TcpStream::connect(address).await.expect("it listens"), path, None).await
}

#[tokio::test]
async fn what_happens_is_counted_under_controller_runtimes_names() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let orders = Counter::<u64>::default();
    orders.inc_by(7);
    let manager = judge(&cluster)
        .leader_election(LeaderElection::new("judge"))
        .sharding(Sharding::new("judge", 2))
        .metrics(|registry| registry.register("shop_orders", "Orders that were placed", orders))
        .metrics_server(MetricsServer::new("127.0.0.1:0").insecure())
        .build()
        .expect("it fits together");
    let (address, ready, metrics) = (manager.metrics_address(), manager.ready(), manager.metrics());
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    let address = address.await;
    ready.await;
    for name in ["good", "bad", "broken"] {
        create(&cluster, name).await?;
    }
    let counted = |name: &str| {
        let text = metrics.encode();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}{{controller=\"judge\"}} ")));
        value.is_some_and(|value| value != "0")
    };
    let settled = async {
        while !(counted("controller_runtime_reconcile_panics_total")
            && counted("controller_runtime_terminal_reconcile_errors_total"))
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), settled)
        .await
        .expect("it is counted");
    let (status, text) = plain(address, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "controller_runtime_reconcile_total{controller=\"judge\",result=\"requeue_after\"} 0",
        "controller_runtime_max_concurrent_reconciles{controller=\"judge\"} 3",
        "workqueue_depth{controller=\"judge\",name=\"judge\",priority=\"0\"} 0.0",
        "leader_election_master_status{name=\"judge\"} 1",
        "kubewright_shards_held{name=\"judge\"} 2",
        "kubewright_shards_taken_total{name=\"judge\"} 2",
        "kubewright_shard_members{name=\"judge\"} 1",
        "rest_client_requests_total{code=\"200\",host=\"\",method=\"GET\"} ",
        "kubewright_cache_healthy{cache=\"ConfigMap in all namespaces\"} 1.0",
        "shop_orders_total 7",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line}:\n{text}");
    }
    // Every name of the table in the documentation of controller-runtime that has a meaning here.
    for name in [
        "controller_runtime_reconcile_errors_total",
        "controller_runtime_reconcile_timeouts_total",
        "controller_runtime_reconcile_time_seconds_bucket",
        "controller_runtime_active_workers",
        "workqueue_adds_total",
        "workqueue_retries_total",
        "workqueue_queue_duration_seconds_bucket",
        "workqueue_work_duration_seconds_bucket",
        "workqueue_unfinished_work_seconds",
        "workqueue_longest_running_processor_seconds",
        "process_open_fds",
        "process_start_time_seconds",
    ] {
        assert!(text.lines().any(|found| found.starts_with(name)), "{name}:\n{text}");
    }
    check_page(&text);
    assert_eq!(plain(address, "/").await.0, 404);
    stop.stop();
    running.await.expect("no panic").expect("it stops in order");
    Ok(())
}

/// The book lists every metric with its type, as the endpoint describes it. `KUBEWRIGHT_UPDATE_BOOK=1` renews the page.
fn check_page(text: &str) {
    let described = |prefix: &str| {
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix(prefix)?.split_once(' '));
        lines.collect::<BTreeMap<_, _>>()
    };
    let (helps, types) = (described("# HELP "), described("# TYPE "));
    let mut page =
        "# Metrics\n\nAll metrics that an operator serves at `/metrics`, with their help texts. How to scrape them: \
                    [the operator's program](operator.md#metrics).\n\n| metric | type | help |\n|---|---|---|\n"
            .to_owned();
    for (name, help) in helps.iter().filter(|(name, _)| **name != "shop_orders") {
        let kind = types[name];
        let suffix = if kind == "counter" { "_total" } else { "" };
        page.push_str(&format!(
            "| `{name}{suffix}` | {kind} | {} |\n",
            help.trim_end_matches('.')
        ));
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/metrics.md");
    if std::env::var_os("KUBEWRIGHT_UPDATE_BOOK").is_some() {
        std::fs::write(file, &page).expect("it can be written");
    }
    let present = std::fs::read_to_string(file).expect("it can be read");
    assert_eq!(present, page, "KUBEWRIGHT_UPDATE_BOOK=1 renews docs/src/metrics.md");
}

/// A token for a service account, which may read the metrics or not.
async fn reader(cluster: &TestCluster, name: &str, may: bool) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.kube(), "default");
    let mut account = ServiceAccount::default();
    account.metadata.name = Some(name.to_owned());
    accounts.create(&PostParams::default(), &account).await?;
    if may {
        let role = json!({"metadata": {"name": name}, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]});
        let role: ClusterRole = serde_json::from_value(role).expect("a ClusterRole");
        Api::all(cluster.kube()).create(&PostParams::default(), &role).await?;
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        });
        let binding: ClusterRoleBinding = serde_json::from_value(binding).expect("a ClusterRoleBinding");
        Api::all(cluster.kube())
            .create(&PostParams::default(), &binding)
            .await?;
    }
    let request = json!({"spec": {"audiences": []}});
    let answer: serde_json::Value = accounts
        .create_subresource("token", name, &PostParams::default(), &request)
        .await?;
    Ok(answer["status"]["token"].as_str().expect("it has one").to_owned())
}

#[tokio::test]
async fn who_may_not_get_them_is_told_so() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let certificates = WebhookCertificates::new()?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    certificates.write(directory.path(), &["localhost"])?;
    let server = MetricsServer::new("127.0.0.1:0").certificate_dir(directory.path());
    let manager = judge(&cluster)
        .metrics_server(server)
        .build()
        .expect("it fits together");
    let address = manager.metrics_address();
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    let address = address.await;
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(certificates.ca().as_ref()).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let secure = |token: Option<String>| {
        let connector = connector.clone();
        async move {
            let stream = TcpStream::connect(address).await.expect("it listens");
            let name = ServerName::try_from("localhost").expect("a name");
            let stream = connector
                .connect(name, stream)
                .await
                .expect("the certificate is trusted");
            get(stream, "/metrics", token.as_deref()).await
        }
    };
    let (may, may_not) = (
        reader(&cluster, "may", true).await?,
        reader(&cluster, "may-not", false).await?,
    );
    assert_eq!(secure(None).await, (401, "Unauthorized\n".to_owned()));
    assert_eq!(
        secure(Some("made-up".to_owned())).await,
        (401, "Unauthorized\n".to_owned())
    );
    let (status, text) = secure(Some(may_not)).await;
    assert_eq!(status, 403);
    insta::assert_snapshot!(text, @"Authorization denied for user system:serviceaccount:default:may-not: it may not get /metrics; bind it to the ClusterRole metrics-reader");
    for _ in 0..2 {
        let (status, text) = secure(Some(may.clone())).await;
        assert_eq!(status, 200);
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
    stop.stop();
    running.await.expect("no panic").expect("it stops in order");
    Ok(())
}

/// The certificate that is made when none is given serves TLS.
#[tokio::test]
async fn without_a_certificate_one_is_made() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let manager = judge(&cluster)
        .metrics_server(MetricsServer::new("127.0.0.1:0"))
        .build();
    let manager = manager.expect("it fits together");
    let address = manager.metrics_address();
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    let address = address.await;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.expect("it listens");
    let name = ServerName::try_from("localhost").expect("a name");
    let refused = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await;
    let why = refused.expect_err("nothing vouches for it").to_string();
    assert!(why.contains("UnknownIssuer"), "{why}");
    stop.stop();
    running.await.expect("no panic").expect("it stops in order");
    Ok(())
}

/// A controller that was taken away leaves no queue behind, and one that comes back has each series once.
#[tokio::test]
async fn a_queue_is_counted_as_long_as_its_controller_lives() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let manager = judge(&cluster).build().expect("it fits together");
    let (ready, metrics, controllers) = (manager.ready(), manager.metrics(), manager.controllers());
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    ready.await;
    let series = || {
        let text = metrics.encode();
        let depths = text
            .lines()
            .filter(|line| line.starts_with("workqueue_depth{"))
            .map(str::to_owned);
        depths.collect::<Vec<_>>()
    };
    assert_eq!(series().len(), 2, "one for each priority: {:?}", series());
    assert!(controllers.remove("judge").await.expect("the manager runs"));
    assert_eq!(series(), Vec::<String>::new());
    for _ in 0..2 {
        controllers
            .add(Controller::of(Judge).named("judge"))
            .await
            .expect("the name is free");
        let again = async {
            while series().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), again)
            .await
            .expect("it begins");
        assert_eq!(series().len(), 2, "{:?}", series());
        assert!(controllers.remove("judge").await.expect("the manager runs"));
    }
    assert_eq!(series(), Vec::<String>::new());
    stop.stop();
    running.await.expect("no panic").expect("it stops in order");
    Ok(())
}
