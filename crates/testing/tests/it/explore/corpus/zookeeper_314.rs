//! Members that have left leave their volumes behind, which the operator deletes once the rest is ready, as far as it
//! knows.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kubewright::kube::api::DeleteParams;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, SOON, VERSION, Volumes, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "zookeeper-314",
    bug: "The volume of a member in use is deleted if the operator restarts and sees the cluster as it was when it was smaller.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        ("StatefulSet/zk", "/status/readyReplicas", "2"),
        ("PersistentVolumeClaim/data-zk-0", "/status/phase", "\"Bound\""),
        ("PersistentVolumeClaim/data-zk-1", "/status/phase", "\"Bound\""),
        ("PersistentVolumeClaim/data-zk-1", "/metadata/deletionTimestamp", "gone"),
        ("Ensemble/zk", "/status/ready", "2"),
    ],
};

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
        .watches(kit::of_app::<PersistentVolumeClaim>);
    Operator::new("zookeeper").crd::<Ensemble>().controller(controller)
}

fn steps() -> Vec<Step> {
    let ensemble = json!({ "apiVersion": VERSION, "kind": "Ensemble",
        "metadata": { "name": "zk", "namespace": "default" }, "spec": { "replicas": 2 } });
    let size = |replicas: i32| json!({ "spec": { "replicas": replicas } });
    vec![
        Step::apply("create the ensemble", ensemble),
        Step::merge("take a member away", VERSION, "Ensemble", "default", "zk", size(1)),
        Step::merge("add one again", VERSION, "Ensemble", "default", "zk", size(2)),
    ]
}

struct Ensembles {
    fixed: bool,
}

impl Reconciler for Ensembles {
    type Object = Ensemble;

    async fn reconcile(&self, ensemble: Arc<Ensemble>, ctx: Context) -> Result<Action> {
        let (client, (namespace, _)) = (ctx.client(), key(&*ensemble));
        if kit::is_going(&*ensemble) {
            return Ok(Action::await_change());
        }
        let wanted = ensemble.spec.replicas;
        let mut left = false;
        if ensemble.status.as_ref().is_some_and(|status| status.ready == wanted) {
            if self.fixed {
                // The mend: the API server says which members are gone, and which claim has the name now.
                left = kit::prune(client, &*ensemble, wanted).await?;
            } else {
                let claims = kit::cached::<PersistentVolumeClaim>(client, &*ensemble).await?;
                let surplus = claims.iter().filter(|claim| kit::ordinal(&***claim) >= wanted);
                for claim in surplus.filter(|claim| !kit::is_going(&***claim)) {
                    let (_, name) = key(&**claim);
                    let by_name = DeleteParams::default();
                    client
                        .delete_named::<PersistentVolumeClaim>(namespace, name, by_name)
                        .await?;
                }
            }
        }
        let set = kit::ensure(
            client,
            kit::set(&*ensemble, "", wanted, "zookeeper:3.6", Volumes::Owned),
        )
        .await?;
        let ready = kit::ready(&set);
        if ensemble.status.as_ref().map(|status| status.ready) != Some(ready) {
            let mut ensemble = (*ensemble).clone();
            ensemble.status = Some(EnsembleStatus { ready });
            client.update_status(&ensemble).await?;
        }
        Ok(if left {
            Action::requeue_after(SOON)
        } else {
            Action::await_change()
        })
    }
}
