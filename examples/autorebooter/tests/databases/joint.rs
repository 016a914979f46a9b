//! The joint scenario: the operator of `../database` runs a PostgreSQL, this one follows a value in it, and the shop is
//! rolled when the value changes. Both run as their service accounts; the cluster runs the server as a process of this
//! machine.

use std::time::{Duration, Instant};

use autorebooter_api::v1alpha1::RebootPolicy;
use kubewright::conditions;
use kubewright::k8s_openapi::api::apps::v1::Deployment;
use kubewright::k8s_openapi::api::core::v1::{Pod, Secret};
use kubewright::k8s_openapi::api::node::v1::RuntimeClass;
use kubewright::kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kubewright::kube::core::GroupVersionKind;
use kubewright_testing::processes::postgres_is_there;
use kubewright_testing::{Cluster, Images, ProcessRuntime, TestCluster};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const DEFAULT: &str = "default";

async fn create(cluster: &TestCluster, object: Value) -> Outcome {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().ok_or("it has a kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.kube(), DEFAULT, &resource);
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// A connection as an application makes it: with the Secret of the Database.
async fn connect(cluster: &TestCluster) -> Outcome<tokio_postgres::Client> {
    let pod = Api::<Pod>::namespaced(cluster.kube(), DEFAULT).get("mydb-0").await?;
    let host = pod.status.and_then(|status| status.pod_ip).ok_or("it has an address")?;
    let secrets: Api<Secret> = Api::namespaced(cluster.kube(), DEFAULT);
    let mut data = secrets.get("mydb-credentials").await?.data.unwrap_or_default();
    let mut part = |key: &str| String::from_utf8(data.remove(key).unwrap_or_default().0);
    let mut config = tokio_postgres::Config::new();
    config
        .host(host)
        .user(part("username")?)
        .password(part("password")?)
        .dbname(part("database")?);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The Deployment `shop`, of two pods, which are simulated: no program of this machine is a shop.
async fn shop(cluster: &TestCluster) -> Outcome {
    let labels = json!({"app": "shop"});
    let pod = json!({"runtimeClassName": "simulated", "containers": [{"name": "main", "image": "shop:1"}]});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    });
    create(cluster, deployment).await?;
    rolled(cluster, 1).await
}

/// Waits until the pods of this generation of the shop are there, and no others.
async fn rolled(cluster: &TestCluster, generation: i64) -> Outcome {
    let is_rolled = |shop: &Deployment| {
        let status = shop.status.clone().unwrap_or_default();
        let counts = [status.replicas, status.updated_replicas, status.available_replicas];
        shop.metadata.generation == Some(generation)
            && status.observed_generation == Some(generation)
            && counts == [Some(2); 3]
    };
    let expected = format!("is rolled out in generation {generation}");
    cluster.wait_for(DEFAULT, "shop", &expected, is_rolled).await?;
    Ok(())
}

pub(crate) async fn s11_an_update_in_the_database_rolls_the_shop() -> Outcome {
    if !postgres_is_there() {
        return Ok(());
    }
    let processes = ProcessRuntime::new(Images::default()).every_pod();
    let cluster = TestCluster::start_with(Cluster::builder().processes(processes)).await?;
    let cluster = cluster.with_deadline(Duration::from_secs(90));
    let is_there = |_: &RuntimeClass| true;
    cluster.wait_for(None, "process", "is there", is_there).await?;
    // Its role lies in its own package; what is tested here is the other operator.
    let _database = cluster.run_as_admin(database::operator()).await?;
    let _autorebooter = cluster.run(autorebooter::operator()).await?;
    shop(&cluster).await?;
    let mydb = json!({
        "apiVersion": "db.example.com/v1alpha1", "kind": "Database", "metadata": {"name": "mydb"},
        "spec": {"type": "postgres", "version": "15"},
    });
    create(&cluster, mydb).await?;
    let table = json!({"schema": "public", "name": "settings", "column": "version", "where": "key = 'price-list'"});
    let policy = json!({
        "apiVersion": "autoreboot.my.domain/v1alpha1", "kind": "RebootPolicy", "metadata": {"name": "prices"},
        "spec": {
            "targets": [{"kind": "Deployment", "name": "shop"}],
            "source": {
                "type": "postgres", "databaseRef": {"name": "mydb"}, "pollInterval": "10m",
                "watch": {"table": table},
            },
            "debounce": "100ms", "minRestartInterval": "0s",
        },
    });
    create(&cluster, policy).await?;
    // The policy is older than the database, and than its table: it waits for both by itself.
    let runs = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    cluster.wait_for(DEFAULT, "mydb-0", "runs", runs).await?;
    let begin = Instant::now();
    let client = loop {
        match connect(&cluster).await {
            Ok(client) => break client,
            Err(error) if begin.elapsed() > Duration::from_secs(60) => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    client.batch_execute(include_str!("../settings.sql")).await?;
    let watches = |policy: &RebootPolicy| {
        let status = policy.status.clone().unwrap_or_default();
        conditions::find(&status.conditions, "Ready").is_some_and(|ready| ready.reason == "Watching")
    };
    cluster.wait_for(DEFAULT, "prices", "watches", watches).await?;
    rolled(&cluster, 1).await?;
    let update = "UPDATE settings SET version = '42' WHERE key = 'price-list'";
    client.batch_execute(update).await?;
    rolled(&cluster, 2).await
}
