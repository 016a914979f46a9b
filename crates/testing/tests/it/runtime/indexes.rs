//! Objects that are found by a value of theirs, with a real API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kubewright::kube::api::DeleteParams;
use kubewright::{Action, Client, Context, Controller, Manager, Reconciler, Stop};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::json;
use tokio::sync::watch;

use super::server::{Server, config, pod, raw, started, with_manager};

/// Counts the pods of each node.
struct Counter(watch::Sender<BTreeMap<String, usize>>);

// ANCHOR: read
impl Reconciler for Counter {
    type Object = Node;

    async fn reconcile(&self, _: Arc<Node>, ctx: Context) -> kubewright::Result<Action> {
        let node = ctx.request().name();
        let pods = ctx.client().list_by_index::<Pod>(None, "spec.nodeName", node).await?;
        self.0.send_modify(|counts| {
            counts.insert(node.to_owned(), pods.len());
        });
        Ok(Action::await_change())
    }
}
// ANCHOR_END: read

fn counting(counter: Counter) -> Controller {
    // ANCHOR: declare
    let node_of = |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect();
    Controller::of(counter)
        .indexes::<Pod>("spec.nodeName", node_of)
        .watches_all_of::<Pod>()
    // ANCHOR_END: declare
}

#[tokio::test]
async fn the_pods_of_a_node_are_found() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let client = cluster.client();
    let pod = async |name: &str, node: Option<&str>| -> Result<()> {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "app:1"}]});
        let pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        client
            .create::<Pod>(&serde_json::from_value(pod).expect("it is a Pod"))
            .await?;
        Ok(())
    };
    for name in ["a", "b"] {
        let node = json!({"metadata": {"name": name}});
        client
            .create::<Node>(&serde_json::from_value(node).expect("it is a Node"))
            .await?;
    }
    pod("one", Some("a")).await?;
    let (counts, mut counted) = watch::channel(BTreeMap::new());
    let manager = Manager::builder(cluster.kube())
        .add(counting(Counter(counts)))
        .build()
        .expect("it fits together");
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(manager.run(async move { token.requested().await }));
    let mut until = async |expected: [(&str, usize); 2]| {
        let expected = BTreeMap::from(expected.map(|(node, count)| (node.to_owned(), count)));
        counted
            .wait_for(|counts| *counts == expected)
            .await
            .expect("the manager runs");
    };
    until([("a", 1), ("b", 0)]).await;
    pod("two", Some("a")).await?;
    pod("three", Some("b")).await?;
    pod("four", None).await?;
    until([("a", 2), ("b", 1)]).await;
    let one = client.get::<Pod>("default", "one").await?.expect("it is there");
    client
        .delete_with(&*one, DeleteParams::default().grace_period(0))
        .await?;
    until([("a", 1), ("b", 1)]).await;
    stop.stop();
    running.await.expect("no panic")?;
    Ok(())
}

/// Lends the client of its context.
struct Lends(watch::Sender<Option<Client>>);

impl Reconciler for Lends {
    type Object = Pod;

    async fn reconcile(&self, _: Arc<Pod>, ctx: Context) -> kubewright::Result<Action> {
        self.0.send_replace(Some(ctx.client().clone()));
        Ok(Action::await_change())
    }
}

/// An index is read as every list is: with the writes of our own; and it goes with its controller.
#[tokio::test]
async fn k1_an_index_shows_own_writes() -> Result<()> {
    let server = Server::new().await;
    server.put::<Pod>(pod("p")).await;
    server.put::<ConfigMap>(raw("old", "red")).await;
    let (lent, mut client) = watch::channel(None);
    let by_value = |config: &ConfigMap| config.data.iter().flatten().map(|(_, value)| value.clone()).collect();
    let indexing = Controller::of(Lends(lent)).indexes::<ConfigMap>("data", by_value);
    let client = with_manager(server.manager().add(indexing), async {
        let client = client
            .wait_for(Option::is_some)
            .await
            .expect("it runs")
            .clone()
            .expect("it is lent");
        let of = async |client: Client, value: &str| -> Vec<String> {
            let found = client.list_by_index::<ConfigMap>("a", "data", value).await;
            found
                .expect("a list")
                .iter()
                .filter_map(|config| config.metadata.name.clone())
                .collect()
        };
        assert_eq!(of(client.clone(), "red").await, ["old"]);
        server.hold_watches(true);
        client.create(&config("new", "red")).await.expect("created");
        client.delete(&config("old", "")).await.expect("deleted");
        let reading = started({
            let client = client.clone();
            async move { of(client, "red").await }
        })
        .await;
        assert!(!reading.is_finished(), "its cache has not seen the writes");
        server.hold_watches(false);
        assert_eq!(reading.await.expect("no panic"), ["new"]);
        client
    })
    .await;
    let gone = client.list_by_index::<ConfigMap>(None, "data", "red").await;
    let gone = gone.expect_err("the controller has ended").to_string();
    assert!(
        gone.contains("no such index") && gone.contains("Controller::indexes"),
        "{gone}"
    );
    Ok(())
}
