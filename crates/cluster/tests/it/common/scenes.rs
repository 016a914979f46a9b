//! A scenario on a cluster of its own, and waiting for objects as a user waits for them.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Event;
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use kubewright_cluster::{Cluster, ClusterBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::soon;

/// Runs a scenario on a cluster of its own.
pub(crate) async fn check(scenario: impl AsyncFn(Client)) {
    check_on(Cluster::builder(), scenario).await;
}

/// Runs a scenario on a cluster that is made so.
pub(crate) async fn check_on(builder: ClusterBuilder, scenario: impl AsyncFn(Client)) {
    let cluster = builder.start().await.expect("a cluster starts");
    soon("the scenario", scenario(cluster.client())).await;
    cluster.stop().await;
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).expect("a well-formed object");
    api.create(&PostParams::default(), &object)
        .await
        .expect("it is created")
}

/// Waits until an object is as it should be; `None` is an object that does not exist.
pub(crate) async fn until<K>(api: &Api<K>, name: &str, is: impl Fn(Option<&K>) -> bool) -> Option<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let waiting = await_condition(api.clone(), name, |object: Option<&K>| is(object));
    soon(&format!("{} {name}", K::kind(&())), waiting)
        .await
        .expect("it can be watched")
}

/// Waits for an event with this reason about an object of this name, and returns its message.
pub(crate) async fn said(client: &Client, name: &str, reason: &str) -> String {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let looking = async {
        loop {
            let all = events.list(&Default::default()).await.expect("events are listed");
            let said = all.items.into_iter().find(|event| {
                event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
            });
            match said {
                Some(event) => return event.message.unwrap_or_default(),
                None => tokio::task::yield_now().await,
            }
        }
    };
    soon(&format!("the event {reason} of {name}"), looking).await
}
