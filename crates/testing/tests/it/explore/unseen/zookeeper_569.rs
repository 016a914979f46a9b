//! pravega/zookeeper-operator#569: the operator keeps the size of an ensemble in a node of ZooKeeper itself. It makes
//! that node when the ensemble is complete, and asks for it before it resizes the StatefulSet. It died before it had
//! made the node, and meanwhile the user changed the size: now each reconcile ended with an error because there was no
//! such node, and never came to the place where the node is made.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::corpus::kit::{self, SOON, Volumes, key};
use super::{Pair, Workload, elsewhere, newest, of_elsewhere};

pub(super) const PAIR: Pair = Pair {
    name: "zookeeper-569",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Ensemble
metadata: {name: zk}
spec: {replicas: 2}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Ensemble",
    namespaced,
    status = "EnsembleStatus"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct EnsembleSpec {
    #[schemars(range(min = 1, max = 3))]
    replicas: i32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct EnsembleStatus {
    /// How many members are ready.
    ready: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Ensembles { fixed })
        .owns::<StatefulSet>()
        .watches(kit::of_app::<PersistentVolumeClaim>)
        .watches(of_elsewhere);
    Operator::new("zookeeper").crd::<Ensemble>().controller(controller)
}

struct Ensembles {
    fixed: bool,
}

impl Reconciler for Ensembles {
    type Object = Ensemble;

    async fn reconcile(&self, ensemble: Arc<Ensemble>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*ensemble));
        let wanted = ensemble.spec.replicas;
        let node = elsewhere(&*ensemble, "node", &json!({ "size": wanted.to_string() }));
        let (place, path) = key(&node);
        if kit::is_going(&*ensemble) {
            if kit::is_held(&*ensemble) {
                newest(client, &*ensemble).await?;
                if let Some(node) = client.live::<ConfigMap>(place, path).await? {
                    client.delete(&node).await?;
                }
                kit::release(client, &*ensemble).await?;
            }
            return Ok(Action::await_change());
        }
        if !kit::is_held(&*ensemble) {
            kit::hold(client, &*ensemble).await?;
            return Ok(Action::await_change());
        }
        let known = client.get::<StatefulSet>(namespace, name).await?;
        if known.is_some_and(|set| kit::replicas(&set) != wanted) {
            // The mend: the node is made wherever it is needed.
            if !self.fixed && client.live::<ConfigMap>(place, path).await?.is_none() {
                return Err(Error::retry(format!("there is no node {path}")));
            }
            newest(client, &*ensemble).await?;
            register(client, &ensemble, &node).await?;
        }
        let members = kit::set(&*ensemble, "", wanted, "zookeeper:3.7", Volumes::Owned);
        let set = kit::ensure(client, members).await?;
        let ready = kit::ready(&set);
        let mut left = false;
        if ready == wanted {
            register(client, &ensemble, &node).await?;
            left = kit::prune(client, &*ensemble, wanted).await?;
        }
        if ensemble.status.as_ref().map(|status| status.ready) != Some(ready) {
            let mut ensemble = (*ensemble).clone();
            ensemble.status = Some(EnsembleStatus { ready });
            client.update_status(&ensemble).await?;
        }
        Ok(match left {
            true => Action::requeue_after(SOON),
            false => Action::await_change(),
        })
    }
}

/// Nobody makes the node of an ensemble that is gone: it would stay for ever.
async fn register(client: &Client, ensemble: &Ensemble, node: &ConfigMap) -> Result<()> {
    let (place, path) = key(node);
    if client.get::<ConfigMap>(place, path).await?.is_none() {
        newest(client, ensemble).await?;
    }
    kit::ensure(client, node.clone()).await?;
    Ok(())
}
