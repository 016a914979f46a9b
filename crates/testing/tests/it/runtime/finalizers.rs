//! Finalizers that the runtime holds, with a real API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::Api;
use kubewright::kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kubewright::{Action, Cleanup, Context, Controller, Error, Operator, Reconciler};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::json;
use tokio::sync::watch;

const FINALIZER: &str = "shop.example.com/account";

/// Accounts outside of the cluster, by name; the number says how many steps are left of closing one.
#[derive(Clone, Default)]
struct Bank(Arc<watch::Sender<BTreeMap<String, u32>>>);

impl Bank {
    async fn until(&self, what: &str, seen: impl Fn(&BTreeMap<String, u32>) -> bool) {
        let mut accounts = self.0.subscribe();
        let waited = tokio::time::timeout(Duration::from_secs(30), accounts.wait_for(|accounts| seen(accounts))).await;
        assert!(waited.is_ok(), "{what}: {:?}", self.0.borrow());
    }
}

struct Payments(Bank);

impl Reconciler for Payments {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, _: Context) -> kubewright::Result<Action> {
        let meta = &object.metadata;
        assert!(meta.deletion_timestamp.is_none(), "what is deleted is not reconciled");
        assert!(
            meta.finalizers.iter().flatten().any(|name| name == FINALIZER),
            "the finalizer comes first"
        );
        let name = meta.name.clone().unwrap_or_default();
        self.0.0.send_modify(|accounts| {
            accounts.insert(name, 3);
        });
        Ok(Action::await_change())
    }

    async fn cleanup(&self, object: Arc<ConfigMap>, _: Context) -> kubewright::Result<Cleanup> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let mut left = 0;
        self.0.0.send_modify(|accounts| {
            let Some(steps) = accounts.get_mut(&name) else { return };
            *steps -= 1;
            left = *steps;
            if left == 0 {
                accounts.remove(&name);
            }
        });
        match left {
            2 => Err(Error::retry("the bank is closed".to_owned())),
            1 => Ok(Cleanup::RequeueAfter(Duration::from_millis(1))),
            _ => Ok(Cleanup::Done),
        }
    }
}

async fn started(bank: &Bank) -> Result<(TestCluster, Api<ConfigMap>)> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let controller = Controller::of(Payments(bank.clone())).finalizer(FINALIZER);
    cluster.run(Operator::new("teller").controller(controller)).await?;
    let api = Api::namespaced(cluster.kube(), "default");
    Ok((cluster, api))
}

fn account(name: &str, finalizers: &[&str]) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    let finalizers: Vec<String> = finalizers.iter().map(|&name| name.to_owned()).collect();
    object.metadata.finalizers = Some(finalizers).filter(|finalizers| !finalizers.is_empty());
    object
}

#[tokio::test]
async fn what_was_made_elsewhere_is_taken_away_before_the_object_goes() -> Result<()> {
    let bank = Bank::default();
    let (cluster, api) = started(&bank).await?;
    api.create(&PostParams::default(), &account("a", &[])).await?;
    bank.until("it is opened", |accounts| accounts.contains_key("a")).await;
    api.delete("a", &DeleteParams::default()).await?;
    cluster.wait_gone::<ConfigMap>(Some("default"), "a").await?;
    assert!(!bank.0.borrow().contains_key("a"));
    Ok(())
}

#[tokio::test]
async fn finalizers_of_others_stay() -> Result<()> {
    let bank = Bank::default();
    let (cluster, api) = started(&bank).await?;
    api.create(&PostParams::default(), &account("a", &["other.example.com/lock"]))
        .await?;
    bank.until("it is opened", |accounts| accounts.contains_key("a")).await;
    api.delete("a", &DeleteParams::default()).await?;
    let ours_is_gone =
        |object: &ConfigMap| object.metadata.finalizers.as_deref() == Some(&["other.example.com/lock".to_owned()]);
    cluster
        .wait_for(Some("default"), "a", "only the other finalizer is left", ours_is_gone)
        .await?;
    // Its further changes do not concern this controller: a reconcile would panic.
    let patch = Patch::Merge(json!({"data": {"a": "b"}}));
    api.patch("a", &PatchParams::default(), &patch).await?;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    api.patch("a", &PatchParams::default(), &patch).await?;
    cluster.wait_gone::<ConfigMap>(Some("default"), "a").await?;
    assert!(!bank.0.borrow().contains_key("a"));
    Ok(())
}

#[tokio::test]
async fn an_object_that_was_deleted_before_it_was_seen_is_left_alone() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let api: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    api.create(&PostParams::default(), &account("early", &["other.example.com/lock"]))
        .await?;
    api.delete("early", &DeleteParams::default()).await?;
    let bank = Bank::default();
    let controller = Controller::of(Payments(bank.clone())).finalizer(FINALIZER);
    cluster.run(Operator::new("teller").controller(controller)).await?;
    api.create(&PostParams::default(), &account("late", &[])).await?;
    bank.until("the controller works", |accounts| accounts.contains_key("late"))
        .await;
    let early = api.get("early").await?;
    assert_eq!(
        early.metadata.finalizers,
        Some(vec!["other.example.com/lock".to_owned()])
    );
    assert!(!bank.0.borrow().contains_key("early"));
    Ok(())
}

/// Writes the object that it cleans up, as one that reports its progress does, and lets somebody else write it, too.
struct Talkative(watch::Sender<u32>);

impl Reconciler for Talkative {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> kubewright::Result<Action> {
        Ok(Action::await_change())
    }

    async fn cleanup(&self, object: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Cleanup> {
        self.0.send_modify(|cleanups| *cleanups += 1);
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let progress = Patch::Merge(json!({"data": {"cleanups": self.0.borrow().to_string()}}));
        ctx.client()
            .patch::<ConfigMap, _>(Some("default"), name, &progress)
            .await?;
        if name == "contended" {
            // Of somebody who has held one all along, and whose write the cache has not seen yet.
            let theirs: Api<ConfigMap> = Api::namespaced(ctx.client().kube().clone(), "default");
            let note = Patch::Merge(json!({"data": {"theirs": "noted"}}));
            theirs
                .patch(name, &PatchParams::default(), &note)
                .await
                .map_err(Error::retry)?;
        }
        Ok(Cleanup::Done)
    }
}

/// Each object is cleaned up once: what is written meanwhile, by the cleanup or by others, does not undo it.
#[tokio::test]
async fn a_cleanup_that_writes_its_own_object_runs_once() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let cleanups = watch::Sender::new(0);
    let controller = Controller::of(Talkative(cleanups.clone())).finalizer(FINALIZER);
    cluster.run(Operator::new("teller").controller(controller)).await?;
    let api: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    let carries = |object: &ConfigMap| {
        object
            .metadata
            .finalizers
            .iter()
            .flatten()
            .any(|name| name == FINALIZER)
    };
    for (name, others, count) in [("alone", &[][..], 1), ("contended", &["other.example.com/lock"][..], 2)] {
        api.create(&PostParams::default(), &account(name, others)).await?;
        cluster
            .wait_for(Some("default"), name, "it carries the finalizer", carries)
            .await?;
        api.delete(name, &DeleteParams::default()).await?;
        match others {
            [] => cluster.wait_gone::<ConfigMap>(Some("default"), name).await?,
            others => {
                let released =
                    |object: &ConfigMap| object.metadata.finalizers.as_deref().is_some_and(|left| left == others);
                cluster
                    .wait_for(Some("default"), name, "only the other finalizer is left", released)
                    .await?;
            }
        }
        assert_eq!(*cleanups.borrow(), count, "{name}");
    }
    Ok(())
}
