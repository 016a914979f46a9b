//! A certificate that the operator makes itself: nothing is installed, and the API server calls it through its Service.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kubewright::jiff::{SignedDuration, Timestamp};
use kubewright::kube;
use kubewright::kube::api::{Api, DynamicObject, PostParams};
use kubewright::kube::client::Body;
use kubewright::kube::core::{ApiResource, GroupVersionKind};
use kubewright::webhook::{WebhookServer, configurations};
use kubewright::{Clock, Stop, StopSource};
use kubewright_testing::{Cluster, Controllers, Images, ProcessRuntime, Result, TestCluster};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::kinds::v1;
use super::{guestbook, operator};

const SECRET: &str = "webhook-server-cert";
const PATIENCE: Duration = Duration::from_secs(40);

struct Replica {
    address: SocketAddr,
    stop: StopSource,
    running: JoinHandle<Result<(), kubewright::Error>>,
}

/// Starts the operator as a replica of its own.
async fn replica(cluster: &TestCluster) -> Result<Replica, kubewright::Error> {
    let server = WebhookServer::new().address("127.0.0.1:0").own_certificate(SECRET);
    let manager = operator().webhook_server(server).manager(cluster.kube()).build()?;
    let address = manager.webhook_address();
    let (stop, stopped) = Stop::pair();
    let mut running = tokio::spawn(async move { manager.run(async move { stopped.requested().await }).await });
    tokio::select! {
        address = address => Ok(Replica { address, stop, running }),
        ended = &mut running => Err(ended.expect("it does not panic").expect_err("it runs until it is stopped")),
    }
}

/// A cluster with the operator's definitions, configurations and Service, none of which has a caBundle.
async fn cluster() -> Result<TestCluster> {
    // With processes there may be endpoints on loopback.
    let processes = ProcessRuntime::new(Images::default());
    let builder = Cluster::builder().controllers(Controllers::None).processes(processes);
    let cluster = TestCluster::start_with(builder).await?;
    let service = |path: &str| json!({"service": {"namespace": "default", "name": "hooks", "path": path}});
    for crd in operator().crds()? {
        let mut crd = json!(crd);
        let client = service("/convert");
        crd["spec"]["conversion"] =
            json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}});
        cluster
            .install_crds([serde_json::from_value(crd).expect("a CRD")])
            .await?;
    }
    for configuration in configurations("", &operator().webhooks(), |webhook| service(&webhook.path)) {
        let configuration: DynamicObject = serde_json::from_value(configuration).expect("an object");
        let kind = configuration.types.clone().unwrap_or_default().kind;
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", &kind);
        let api: Api<DynamicObject> = Api::all_with(cluster.kube(), &ApiResource::from_gvk(&kind));
        create(&api, &configuration).await;
    }
    let hooks = json!({"metadata": {"name": "hooks"}, "spec": {"ports": [{"port": 443, "targetPort": 9443}]}});
    let hooks: Service = serde_json::from_value(hooks).expect("a Service");
    create(&Api::namespaced(cluster.kube(), "default"), &hooks).await;
    Ok(cluster)
}

async fn create<K>(api: &Api<K>, object: &K)
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    api.create(&PostParams::default(), object).await.expect("it is new");
}

/// The Service leads to this replica, and to no other.
async fn lead_to(cluster: &TestCluster, replica: &Replica) {
    let slice: Value = json!({
        "metadata": {"name": "hooks-1", "labels": {"kubernetes.io/service-name": "hooks"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": replica.address.port()}],
    });
    let slice: EndpointSlice = serde_json::from_value(slice).expect("a slice");
    let api: Api<EndpointSlice> = Api::namespaced(cluster.kube(), "default");
    if api.get_opt("hooks-1").await.expect("it answers").is_some() {
        api.delete("hooks-1", &Default::default()).await.expect("it is there");
    }
    create(&api, &slice).await;
}

/// Creates guestbooks until one is defaulted, which says that the webhook was called; the last answer when that takes
/// too long.
async fn is_called(cluster: &TestCluster, name: &str) {
    let api: Api<v1::Guestbook> = Api::namespaced(cluster.kube(), "default");
    let begin = Instant::now();
    loop {
        let mut wanted = guestbook(json!({"size": 3}));
        wanted.metadata.name = Some(name.to_owned());
        match api.create(&PostParams::default(), &wanted).await {
            Ok(created) => return assert_eq!(created.spec.title.as_deref(), Some("Welcome")),
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn secrets(cluster: &TestCluster) -> Api<Secret> {
    Api::namespaced(cluster.kube(), "default")
}

async fn served(cluster: &TestCluster) -> Vec<u8> {
    let secret = secrets(cluster).get(SECRET).await.expect("the operator made it");
    secret
        .data
        .and_then(|mut data| data.remove("tls.crt"))
        .expect("it has a certificate")
        .0
}

#[tokio::test]
async fn nothing_is_installed_and_a_wrong_certificate_is_replaced() -> Result<()> {
    let cluster = cluster().await?;
    let first = replica(&cluster).await?;
    lead_to(&cluster, &first).await;
    is_called(&cluster, "first").await;
    let made = served(&cluster).await;
    // Another replica reads the certificate of the first.
    let second = replica(&cluster).await?;
    lead_to(&cluster, &second).await;
    is_called(&cluster, "second").await;
    assert_eq!(served(&cluster).await, made);
    // Swapped by hand, so that its authority is in no bundle.
    let mut secret = secrets(&cluster).get(SECRET).await.expect("it is there");
    if let Some(data) = &mut secret.data {
        data.insert("ca.crt".to_owned(), ByteString(b"rubbish".to_vec()));
    }
    secrets(&cluster)
        .replace(SECRET, &PostParams::default(), &secret)
        .await
        .expect("anybody may");
    let begin = Instant::now();
    while served(&cluster).await == made {
        assert!(begin.elapsed() < PATIENCE, "it stays as it is");
        // No call fails meanwhile: the served certificate and the trusted ones still fit.
        is_called(&cluster, &format!("at-{}", begin.elapsed().as_millis())).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    is_called(&cluster, "third").await;
    for replica in [first, second] {
        replica.stop.stop();
        replica.running.await.expect("it does not panic")?;
    }
    Ok(())
}

#[tokio::test]
async fn the_secret_of_another_is_not_touched() -> Result<()> {
    let cluster = cluster().await?;
    let theirs: Secret = serde_json::from_value(json!({
        "metadata": {"name": SECRET}, "type": "kubernetes.io/tls",
        "data": {"tls.crt": ByteString(b"theirs".to_vec()), "tls.key": ByteString(b"theirs".to_vec())},
    }))
    .expect("a Secret");
    create(&secrets(&cluster), &theirs).await;
    let Err(error) = replica(&cluster).await else {
        panic!("it may not start")
    };
    let error = error.to_string();
    assert!(
        error.contains("the Secret default/webhook-server-cert is not ours"),
        "{error}"
    );
    assert_eq!(served(&cluster).await, b"theirs");
    Ok(())
}

/// A request as it went out.
type Sent = (String, String, Vec<u8>);

/// A client that notes its requests.
fn noted(client: kube::Client, sent: &Arc<Mutex<Vec<Sent>>>) -> kube::Client {
    let (sent, namespace) = (sent.clone(), client.default_namespace().to_owned());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, sent) = (client.clone(), sent.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await?.to_vec();
            let verb = match head.uri.query().unwrap_or_default().contains("watch=") {
                true => "WATCH".to_owned(),
                false => head.method.to_string(),
            };
            let line = (verb, head.uri.path().to_owned(), body.clone());
            sent.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            client.send(http::Request::from_parts(head, Body::from(body))).await
        }
    });
    kube::Client::new(service, namespace)
}

/// The time of day, which the test moves.
struct Moved(Mutex<SignedDuration>);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        let ahead = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        start + ahead
    }
}

/// What is written is the bundle of the operator's own entries, by a patch; nothing is listed again and again; and the
/// time of day, by which the certificate is replaced, is the manager's.
#[tokio::test]
async fn only_the_bundle_is_written_and_the_clock_is_the_managers() -> Result<()> {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().controllers(Controllers::None)).await?;
    let ours = &operator().webhooks()[0];
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration");
    let api: Api<DynamicObject> = Api::all_with(cluster.kube(), &ApiResource::from_gvk(&kind));
    let entry = |name: &str, namespace: &str| {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": {"namespace": namespace, "name": "hooks", "path": ours.path}},
        })
    };
    let shared = json!({"metadata": {"name": "shared"}, "webhooks": [entry("theirs.example.com", "other"), entry("ours.example.com", "default")]});
    create(&api, &serde_json::from_value(shared).expect("an object")).await;
    let (sent, clock) = (Arc::default(), Arc::new(Moved(Mutex::default())));
    let server = WebhookServer::new().address("127.0.0.1:0").own_certificate(SECRET);
    let manager = operator().webhook_server(server).manager(noted(cluster.kube(), &sent));
    let manager = manager.clock(clock.clone()).build()?;
    let (stop, stopped) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { stopped.requested().await }).await });
    let bundle = async || {
        let configuration = api.get("shared").await?;
        let bundles = [0, 1].map(|entry| configuration.data["webhooks"][entry]["clientConfig"]["caBundle"].clone());
        Ok::<_, kube::Error>(bundles)
    };
    let patience = Duration::from_secs(600);
    let until = async |what: &str, seen: &dyn Fn(&[Value; 2]) -> bool| {
        let begin = tokio::time::Instant::now();
        loop {
            let bundles = bundle().await.expect("it answers");
            if seen(&bundles) {
                return bundles;
            }
            assert!(begin.elapsed() < patience, "{what}: {bundles:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let [theirs, first] = until("it has a bundle", &|bundles| bundles[1].is_string()).await;
    assert_eq!(theirs, Value::Null);
    tokio::time::sleep(Duration::from_secs(60)).await;
    // A month before its end it is replaced, in steps.
    let made = served(&cluster).await;
    *clock.0.lock().unwrap_or_else(PoisonError::into_inner) = SignedDuration::from_hours(24 * 61);
    until("the next authority is told", &|bundles| bundles[1] != first).await;
    let begin = tokio::time::Instant::now();
    while served(&cluster).await == made {
        assert!(begin.elapsed() < patience, "the next certificate is served");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let sent = std::mem::take(&mut *sent.lock().unwrap_or_else(PoisonError::into_inner));
    let configurations: Vec<&Sent> = sent
        .iter()
        .filter(|(_, path, _)| path.contains("webhookconfigurations"))
        .collect();
    let count = |verb: &str| configurations.iter().filter(|(sent, _, _)| sent == verb).count();
    assert_eq!((count("PUT"), count("POST")), (0, 0));
    assert!(count("GET") <= 2, "one list of each kind at most: {}", count("GET"));
    let patches: Vec<&Sent> = configurations
        .iter()
        .filter(|(verb, _, _)| verb == "PATCH")
        .copied()
        .collect();
    assert!(!patches.is_empty());
    for (_, path, body) in patches {
        assert!(path.ends_with("/shared"), "{path}");
        let body: Vec<Value> = serde_json::from_slice(body).expect("a JSON patch");
        let all: Vec<(&str, &str)> = body
            .iter()
            .map(|change| {
                (
                    change["op"].as_str().unwrap_or_default(),
                    change["path"].as_str().unwrap_or_default(),
                )
            })
            .collect();
        assert_eq!(
            all,
            [
                ("test", "/webhooks/1/name"),
                ("test", "/webhooks/1/clientConfig/service"),
                ("add", "/webhooks/1/clientConfig/caBundle")
            ]
        );
        assert_eq!(body[0]["value"], "ours.example.com");
    }
    stop.stop();
    running.await.expect("it does not panic")?;
    Ok(())
}

/// An API server that takes requests and answers none does not hold the start up in silence.
#[tokio::test]
async fn a_server_that_does_not_answer_ends_the_start_with_a_reason() -> Result<()> {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().controllers(Controllers::None)).await?;
    let silent =
        tower::service_fn(|_: http::Request<Body>| std::future::pending::<Result<http::Response<Body>, kube::Error>>());
    let server = WebhookServer::new().address("127.0.0.1:0").own_certificate(SECRET);
    let manager = operator()
        .webhook_server(server)
        .manager(kube::Client::new(silent, "default"))
        .build()?;
    let ended = tokio::time::timeout(Duration::from_secs(120), manager.run(std::future::pending())).await;
    let error = ended
        .expect("it has a deadline")
        .expect_err("there is no certificate")
        .to_string();
    assert!(
        error.contains("cannot read the Secret default/webhook-server-cert") && error.contains("did not answer"),
        "{error}"
    );
    drop(cluster);
    Ok(())
}
