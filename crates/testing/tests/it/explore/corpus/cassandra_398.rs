//! The volume of a member that leaves is deleted while the operator sees its pod being deleted.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, SOON, VERSION, Volumes, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "cassandra-operator-398",
    bug: "The volume of a member that has left stays for ever if the operator does not look while its pod is being deleted.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        ("StatefulSet/ring", "/status/readyReplicas", "1"),
        ("PersistentVolumeClaim/data-ring-0", "", ""),
        ("PersistentVolumeClaim/data-ring-1", "", "gone"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Ring", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct RingSpec {
    #[schemars(range(min = 1, max = 3))]
    nodes: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Rings { fixed })
        .owns::<StatefulSet>()
        .watches(kit::of_app::<Pod>)
        .watches(kit::of_app::<PersistentVolumeClaim>);
    Operator::new("cassandra").crd::<Ring>().controller(controller)
}

fn steps() -> Vec<Step> {
    let ring = json!({ "apiVersion": VERSION, "kind": "Ring", "metadata": { "name": "ring", "namespace": "default" },
        "spec": { "nodes": 2 } });
    vec![
        Step::apply("create the cluster", ring),
        Step::merge(
            "take a member away",
            VERSION,
            "Ring",
            "default",
            "ring",
            json!({ "spec": { "nodes": 1 } }),
        ),
    ]
}

struct Rings {
    fixed: bool,
}

impl Reconciler for Rings {
    type Object = Ring;

    async fn reconcile(&self, ring: Arc<Ring>, ctx: Context) -> Result<Action> {
        let (client, (namespace, _)) = (ctx.client(), key(&*ring));
        if kit::is_going(&*ring) {
            return Ok(Action::await_change());
        }
        let nodes = ring.spec.nodes;
        kit::ensure(client, kit::set(&*ring, "", nodes, "cassandra:3.11", Volumes::Owned)).await?;
        if self.fixed {
            // The mend: not what happens to a pod, but that it is gone, tells that its claim is not used any more.
            let left = kit::prune(client, &*ring, nodes).await?;
            return Ok(if left {
                Action::requeue_after(SOON)
            } else {
                Action::await_change()
            });
        }
        let pods = kit::cached::<Pod>(client, &*ring).await?;
        for pod in pods
            .iter()
            .filter(|pod| kit::is_going(&***pod) && kit::ordinal(&***pod) >= nodes)
        {
            let (_, name) = key(&**pod);
            let claim = client
                .get::<PersistentVolumeClaim>(namespace, &format!("data-{name}"))
                .await?;
            if let Some(claim) = claim.filter(|claim| !kit::is_going(&**claim)) {
                client.delete(&*claim).await?;
            }
        }
        Ok(Action::await_change())
    }
}
