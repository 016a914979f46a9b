//! The scenarios that a real PostgreSQL and a real MariaDB decide. A cluster runs them as processes of this machine.

mod joint;

use std::sync::Arc;
use std::time::{Duration, Instant};

use autorebooter::operator_in;
use autorebooter::world::databases::Databases;
use autorebooter_api::v1alpha1::RebootPolicy;
use joint::s11_an_update_in_the_database_rolls_the_shop;
use kubewright::conditions;
use kubewright::k8s_openapi::api::apps::v1::Deployment;
use kubewright::k8s_openapi::api::core::v1::{Pod, Secret};
use kubewright::k8s_openapi::api::node::v1::RuntimeClass;
use kubewright::kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubewright::kube::{Resource, core::NamespaceResourceScope};
use kubewright::prelude::*;
use kubewright_testing::processes::{mariadb_is_there, postgres_is_there};
use kubewright_testing::{Cluster, Images, ProcessRuntime, RunningOperator, TestCluster};
use mysql_async::prelude::Queryable as _;
use serde_json::{Value, json};
use tokio_postgres::NoTls;

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const DEFAULT: &str = "default";
const PASSWORD: &str = "p@ss word's";

/// A cluster with a real database, the operator and a Deployment `shop`.
struct Scene {
    cluster: TestCluster,
    databases: Arc<Databases>,
    host: String,
    _operator: RunningOperator,
}

impl Scene {
    async fn start(image: &str, env: Value) -> Outcome<Scene> {
        let processes = ProcessRuntime::new(Images::default());
        let cluster = TestCluster::start_with(Cluster::builder().processes(processes)).await?;
        let cluster = cluster.with_deadline(Duration::from_secs(90));
        cluster
            .wait_for::<RuntimeClass>(None, "process", "is there", |_| true)
            .await?;
        let pod = json!({
            "metadata": {"name": "db"},
            "spec": {
                "runtimeClassName": "process",
                "containers": [{"name": "db", "image": image, "env": env}],
            },
        });
        create::<Pod>(&cluster, pod).await?;
        let is_running =
            |pod: &Pod| conditions_of(pod) && pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
        let pod = cluster.wait_for(DEFAULT, "db", "runs", is_running).await?;
        let host = pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.clone())
            .ok_or("it has an address")?;
        let labels = json!({"app": "shop"});
        let template =
            json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "shop:1"}]}});
        let shop =
            json!({"metadata": {"name": "shop"}, "spec": {"selector": {"matchLabels": labels}, "template": template}});
        create::<Deployment>(&cluster, shop).await?;
        let waker = Waker::new();
        let databases = Arc::new(Databases::new(waker.clone()));
        let operator = cluster.run(operator_in(databases.clone(), &waker)).await?;
        Ok(Scene {
            cluster,
            databases,
            host,
            _operator: operator,
        })
    }

    /// The Secret with the address of the database.
    async fn secret(&self, address: &str) -> Outcome {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shop-db"}, "stringData": {"uri": address}});
        let api: Api<Secret> = Api::namespaced(self.cluster.kube(), DEFAULT);
        api.patch("shop-db", &PatchParams::apply("test").force(), &Patch::Apply(secret))
            .await?;
        Ok(())
    }

    async fn policy(&self, source: Value) -> Outcome {
        let mut whole = json!({"connectionSecretRef": {"name": "shop-db", "key": "uri"}});
        for (key, value) in source.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        let spec = json!({
            "targets": [{"kind": "Deployment", "name": "shop"}], "source": whole, "debounce": "100ms", "minRestartInterval": "0s",
        });
        create::<RebootPolicy>(&self.cluster, json!({"metadata": {"name": "prices"}, "spec": spec})).await
    }

    async fn wait(&self, expected: &str, is: impl Fn(&RebootPolicy) -> bool) -> Outcome<RebootPolicy> {
        Ok((*self.cluster.wait_for(DEFAULT, "prices", expected, is).await?).clone())
    }

    /// Waits until the policy has restarted so often, and looks that the Deployment says the same.
    async fn restarted(&self, times: i64) -> Outcome {
        let restarts = |policy: &RebootPolicy| policy.status.as_ref().map(|status| status.restarts);
        self.wait("has restarted", |policy| restarts(policy) >= Some(times))
            .await?;
        let api: Api<Deployment> = Api::namespaced(self.cluster.kube(), DEFAULT);
        assert_eq!(api.get("shop").await?.metadata.generation, Some(1 + times));
        Ok(())
    }

    async fn is(&self, type_: &'static str, reason: &'static str) -> Outcome<String> {
        let found = move |policy: &RebootPolicy| {
            let status = policy.status.clone().unwrap_or_default();
            conditions::find(&status.conditions, type_)
                .filter(|found| found.reason == reason)
                .map(|found| found.message.clone())
        };
        let policy = self
            .wait(&format!("is {type_} {reason}"), move |policy| found(policy).is_some())
            .await?;
        Ok(found(&policy).unwrap_or_default())
    }
}

/// Whether a pod runs.
fn conditions_of(pod: &Pod) -> bool {
    let mut all = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    all.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn create<K>(cluster: &TestCluster, object: Value) -> Outcome
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    let object: K = serde_json::from_value(object)?;
    Api::<K>::namespaced(cluster.kube(), DEFAULT)
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

/// Tries until a database answers.
async fn patiently<T, E: std::fmt::Display, F: Future<Output = std::result::Result<T, E>>>(
    attempt: impl Fn() -> F,
) -> Outcome<T> {
    let begin = Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) if begin.elapsed() > Duration::from_secs(60) => return Err(error.to_string().into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

async fn postgres(
    host: &str,
    user: &str,
    password: &str,
) -> std::result::Result<tokio_postgres::Client, tokio_postgres::Error> {
    let mut config = tokio_postgres::Config::new();
    config.host(host).user(user).password(password).dbname("shop");
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A PostgreSQL with a table `settings`, whose changes are told.
async fn with_postgres() -> Outcome<(Scene, tokio_postgres::Client)> {
    let env = json!([
        {"name": "POSTGRES_USER", "value": "app"}, {"name": "POSTGRES_PASSWORD", "value": PASSWORD}, {"name": "POSTGRES_DB", "value": "shop"},
    ]);
    let scene = Scene::start("postgres:15", env).await?;
    let client = patiently(|| postgres(&scene.host, "app", PASSWORD)).await?;
    client.batch_execute(include_str!("../settings.sql")).await?;
    scene
        .secret(&format!("postgres://app:{}@{}/shop", encoded(PASSWORD), scene.host))
        .await?;
    Ok((scene, client))
}

fn settings() -> Value {
    json!({"table": {"schema": "public", "name": "settings", "column": "version", "where": "key = 'price-list'"}})
}

async fn set(client: &tokio_postgres::Client, version: &str) -> Outcome {
    client
        .execute("UPDATE settings SET version = $1 WHERE key = 'price-list'", &[&version])
        .await?;
    Ok(())
}

async fn s02_s09_postgres_is_polled() -> Outcome {
    if !postgres_is_there() {
        return Ok(());
    }
    let (scene, client) = with_postgres().await?;
    scene
        .policy(json!({"type": "postgres", "mode": "Poll", "pollInterval": "1s", "watch": settings()}))
        .await?;
    scene.is("Ready", "Watching").await?;
    set(&client, "42").await?;
    scene.restarted(1).await?;
    let change = async |watch: Value| -> Outcome {
        let api: Api<RebootPolicy> = Api::namespaced(scene.cluster.kube(), DEFAULT);
        let patch = Patch::Merge(json!({"spec": {"source": {"watch": watch}}}));
        api.patch("prices", &PatchParams::default(), &patch).await?;
        Ok(())
    };
    change(json!({"table": null, "query": "SELECT 1, 2"})).await?;
    assert_eq!(
        scene.is("Ready", "BadQuery").await?,
        "the query returns 2 columns instead of one"
    );
    // The database refuses a query that writes.
    change(json!({"query": "WITH gone AS (DELETE FROM settings RETURNING 1) SELECT count(*) FROM gone"})).await?;
    scene
        .wait("is refused to write", |policy| {
            let status = policy.status.clone().unwrap_or_default();
            conditions::find(&status.conditions, "Ready")
                .is_some_and(|ready| ready.message.contains("data-modifying") || ready.message.contains("read-only"))
        })
        .await?;
    change(json!({"query": "SELECT 1; DELETE FROM settings"})).await?;
    scene
        .wait("is one statement", |policy| {
            let status = policy.status.clone().unwrap_or_default();
            conditions::find(&status.conditions, "Ready")
                .is_some_and(|ready| ready.message.contains("multiple commands"))
        })
        .await?;
    let rows: i64 = client.query_one("SELECT count(*) FROM settings", &[]).await?.get(0);
    assert_eq!(rows, 1);
    // A column of any type is a value.
    change(json!({"query": "SELECT max(changed) FROM settings;"})).await?;
    scene.is("Ready", "Watching").await?;
    Ok(())
}

async fn s03_postgres_tells_of_changes() -> Outcome {
    if !postgres_is_there() {
        return Ok(());
    }
    let (scene, client) = with_postgres().await?;
    scene
        .policy(json!({"type": "postgres", "pollInterval": "10m", "watch": settings()}))
        .await?;
    scene.is("Ready", "Watching").await?;
    let begin = Instant::now();
    set(&client, "42").await?;
    scene.restarted(1).await?;
    // Less than a second and the debounce; a machine that is busy gets more.
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    // The connection is cut, and no client listens while the value changes.
    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'autorebooter'";
    client
        .batch_execute(&format!("BEGIN; UPDATE settings SET version = '43'; {others}; COMMIT"))
        .await?;
    scene.restarted(2).await?;
    set(&client, "44").await?;
    scene.restarted(3).await
}

async fn s06_s10_postgres_goes_and_comes_back() -> Outcome {
    if !postgres_is_there() {
        return Ok(());
    }
    let (scene, client) = with_postgres().await?;
    scene
        .policy(json!({"type": "postgres", "pollInterval": "1s", "watch": settings()}))
        .await?;
    scene.is("Ready", "Watching").await?;
    assert_eq!(scene.databases.sources(), 1);
    // Another user, whose rights are enough.
    client
        .batch_execute("CREATE USER reader PASSWORD 'secret'; GRANT SELECT ON settings TO reader")
        .await?;
    scene
        .secret(&format!("postgres://reader:wrong-password@{}/shop", scene.host))
        .await?;
    let why = scene.is("DatabaseReachable", "ConnectionFailed").await?;
    assert!(
        why.contains("password authentication failed") && !why.contains("wrong-password"),
        "{why}"
    );
    scene
        .secret(&format!("postgres://reader:secret@{}/shop", scene.host))
        .await?;
    scene.is("Ready", "Watching").await?;
    let whose = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'autorebooter' AND usename = $1";
    let count = async |user: &str| -> Outcome<i64> { Ok(client.query_one(whose, &[&user]).await?.get(0)) };
    patiently(|| async {
        match (count("app").await.unwrap_or(-1), count("reader").await.unwrap_or(-1)) {
            (0, 1) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    // The database goes, and does not come back: nothing is restarted.
    let pods: Api<Pod> = Api::namespaced(scene.cluster.kube(), DEFAULT);
    pods.delete("db", &DeleteParams::default()).await?;
    scene.is("DatabaseReachable", "ConnectionFailed").await?;
    scene.restarted(0).await?;
    let policies: Api<RebootPolicy> = Api::namespaced(scene.cluster.kube(), DEFAULT);
    policies.delete("prices", &DeleteParams::default()).await?;
    patiently(|| async {
        match scene.databases.sources() {
            0 => Ok(()),
            some => Err(format!("{some} connections")),
        }
    })
    .await?;
    Ok(())
}

async fn s02_mariadb_is_polled() -> Outcome {
    if !mariadb_is_there() {
        return Ok(());
    }
    let env = json!([
        {"name": "MARIADB_ROOT_PASSWORD", "value": "root"}, {"name": "MARIADB_USER", "value": "app"},
        {"name": "MARIADB_PASSWORD", "value": PASSWORD}, {"name": "MARIADB_DATABASE", "value": "shop"},
    ]);
    let scene = Scene::start("mariadb:10.11", env).await?;
    let options = mysql_async::OptsBuilder::default()
        .ip_or_hostname(&scene.host)
        .user(Some("app"))
        .pass(Some(PASSWORD))
        .db_name(Some("shop"))
        .prefer_socket(false);
    let mut client = patiently(|| mysql_async::Conn::new(options.clone())).await?;
    client
        .query_drop("CREATE TABLE settings (name VARCHAR(64) PRIMARY KEY, version INT)")
        .await?;
    client
        .query_drop("INSERT INTO settings VALUES ('price-list', 41)")
        .await?;
    scene
        .secret(&format!("mysql://app:{}@{}/shop", encoded(PASSWORD), scene.host))
        .await?;
    let watch = json!({"table": {"name": "settings", "column": "version"}});
    scene
        .policy(json!({"type": "mysql", "pollInterval": "1s", "watch": watch}))
        .await?;
    scene.is("Ready", "Watching").await?;
    client.query_drop("UPDATE settings SET version = 42").await?;
    scene.restarted(1).await?;
    let api: Api<RebootPolicy> = Api::namespaced(scene.cluster.kube(), DEFAULT);
    for (query, expected) in [("SELECT 1, 2", "2 columns"), ("SELECT 1; SELECT 2", "syntax")] {
        let patch = json!({"spec": {"source": {"watch": {"table": null, "query": query}}}});
        api.patch("prices", &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        scene
            .wait(expected, |policy| {
                let status = policy.status.clone().unwrap_or_default();
                conditions::find(&status.conditions, "Ready").is_some_and(|ready| ready.message.contains(expected))
            })
            .await?;
    }
    scene.restarted(1).await
}

#[allow(dead_code, unreachable_pub, reason = "it is a program")]
#[path = "../../examples/autorebooter-demo.rs"]
mod example;

async fn the_demo_comes_to_its_end() -> Outcome {
    if !postgres_is_there() {
        let refused = example::demo()
            .err()
            .and_then(kubewright_demo::Error::into_source)
            .map(|why| why.to_string());
        assert!(refused.is_some_and(|why| why.contains("apt-get install postgresql")));
        return Ok(());
    }
    let printed = kubewright_demo::play(example::demo()?).await?;
    let text = "RebootPolicy default/price-list is watching the comment of the database mydb after";
    assert!(
        printed.contains(text),
        "the demo should print {text:?}; it printed:\n{printed}"
    );
    Ok(())
}

kubewright_testing::process_tests!(
    the_demo_comes_to_its_end,
    s02_s09_postgres_is_polled,
    s03_postgres_tells_of_changes,
    s06_s10_postgres_goes_and_comes_back,
    s02_mariadb_is_polled,
    s11_an_update_in_the_database_rolls_the_shop,
);
