//! A manager of several namespaces, with a real API server.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kubewright::kube::api::PostParams;
use kubewright::kube::{self, Api};
use kubewright::{Action, Context, Controller, Event, Manager, Reconciler, Request, Stop};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use tokio::sync::watch;

use super::server::{FORBIDDEN, Server, with_built};

/// Copies each ConfigMap into a Secret.
struct Copier;

impl Reconciler for Copier {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        let mut copy = Secret::default();
        copy.metadata.name = object.metadata.name.clone();
        ctx.apply(copy).await?;
        Ok(Action::await_change())
    }
}

fn named(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object
}

fn names<K: kube::Resource>(objects: &[Arc<K>]) -> Vec<String> {
    let keys = objects.iter().map(|object| Request::of(&**object));
    let ours = keys.filter(|key| key.name() != "kube-root-ca.crt");
    ours.map(|key| key.to_string()).collect()
}

#[tokio::test]
async fn several_namespaces_are_one_view() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    for name in ["a", "b", "c"] {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        Api::all(cluster.kube())
            .create(&PostParams::default(), &namespace)
            .await?;
        let api: Api<ConfigMap> = Api::namespaced(cluster.kube(), name);
        api.create(&PostParams::default(), &named(&format!("in-{name}")))
            .await?;
    }
    let manager = Manager::builder(cluster.kube())
        .name("copier")
        .namespaces(["c", "a"])
        .add(Controller::of(Copier).owns::<Secret>())
        .build()
        .expect("it fits together");
    let client = manager.client();
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(manager.run(async move { token.requested().await }));

    let until =
        async |namespace: &str, name: &str| cluster.wait_for::<Secret>(namespace, name, "is copied", |_| true).await;
    until("a", "in-a").await?;
    until("c", "in-c").await?;
    // Later objects, and removed ones, are seen in each.
    let api: Api<ConfigMap> = Api::namespaced(cluster.kube(), "c");
    api.create(&PostParams::default(), &named("late")).await?;
    until("c", "late").await?;
    let copies: Api<Secret> = Api::namespaced(cluster.kube(), "a");
    let uid = copies.get("in-a").await?.metadata.uid;
    copies.delete("in-a", &Default::default()).await?;
    let again = |copy: &Secret| copy.metadata.uid != uid;
    cluster
        .wait_for::<Secret>("a", "in-a", "is copied again", again)
        .await?;

    assert_eq!(
        names(&client.list::<ConfigMap>(None).await?),
        ["a/in-a", "c/in-c", "c/late"]
    );
    assert_eq!(names(&client.list::<ConfigMap>("c").await?), ["c/in-c", "c/late"]);
    // K1 in each: a version of one namespace says nothing of the other.
    for round in 0..50 {
        let mut object = named(&format!("own-{round}"));
        object.metadata.namespace = Some(if round % 2 == 0 { "a" } else { "c" }.to_owned());
        client.create(&object).await?;
        let seen = client.list::<ConfigMap>(None).await?;
        assert!(
            seen.iter().any(|seen| seen.metadata.name == object.metadata.name),
            "round {round}"
        );
    }
    let elsewhere: Api<Secret> = Api::namespaced(cluster.kube(), "b");
    assert!(elsewhere.get_opt("in-b").await?.is_none(), "b is not this manager's");

    let informer = client.cache().informer::<ConfigMap>();
    informer.synced().await?;
    let told = Arc::new((Mutex::new(BTreeSet::new()), watch::Sender::new(0)));
    let sink = told.clone();
    let handler = informer.add_handler(move |event: &Event<ConfigMap>| {
        let key = Request::of(event.object()).to_string();
        let known = &mut *sink.0.lock().expect("no panic while held");
        known.insert(key);
        sink.1.send_replace(known.len());
    });
    let count = informer.store().len();
    let mut counted = told.1.subscribe();
    let all = counted.wait_for(|told| *told == count);
    let waited = tokio::time::timeout(Duration::from_secs(30), all).await;
    assert!(waited.is_ok(), "{count}: {:?}", told.0.lock());
    assert!(informer.remove_handler(handler) && !informer.remove_handler(handler));
    assert_eq!(informer.store().get("c", "late").map(|_| ()), Some(()));

    stop.stop();
    running.await.expect("no panic").expect("it stops in order");
    Ok(())
}

/// A manager of some namespaces lists no other, so a Role in each is enough for it.
#[tokio::test]
async fn a_manager_of_some_namespaces_asks_for_no_other() -> Result<()> {
    for (namespaces, restricted) in [(&["a"][..], "namespace a"), (&["b", "a", "b"], "namespaces a, b")] {
        let server = Server::in_real_time().await;
        let allowed: Vec<String> = namespaces.iter().map(|name| format!("/namespaces/{name}/")).collect();
        server.fault(move |seen| {
            let inside = allowed.iter().any(|path| seen.path.contains(path));
            (["LIST", "WATCH"].contains(&seen.verb) && !inside).then_some(FORBIDDEN)
        });
        let manager = server.manager().namespaces(namespaces.iter().copied());
        let manager = manager.add(Controller::of(Copier).owns::<Secret>()).build()?;
        let (client, ready) = (manager.client(), manager.ready());
        with_built(manager, async {
            ready.await;
            client.list::<ConfigMap>(None).await.expect("those inside");
            let elsewhere = client.get::<ConfigMap>("x", "x").await.expect_err("it is not cached");
            let told = format!("cannot read configmaps in namespace x: this manager is restricted to {restricted}");
            assert_eq!(elsewhere.to_string(), told);
        })
        .await;
    }
    Ok(())
}
