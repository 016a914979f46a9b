//! instaclustr/cassandra-operator#410: a node that is to go is decommissioned first, and its pod is deleted when the
//! operator comes by the next time. In between, the user took the change back. Now there was nothing to shrink, and
//! the operator did not look at the node again: it stayed in the cluster, decommissioned, for ever.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::corpus::kit::{self, SOON, Volumes, key};
use super::{Pair, Workload, newest};

pub(super) const PAIR: Pair = Pair {
    name: "cassandra-operator-410",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Ring
metadata: {name: ring}
spec: {nodes: 2}
";

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
        .watches(kit::of_app::<Pod>);
    Operator::new("cassandra").crd::<Ring>().controller(controller)
}

struct Rings {
    fixed: bool,
}

impl Reconciler for Rings {
    type Object = Ring;

    async fn reconcile(&self, ring: Arc<Ring>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*ring));
        if kit::is_going(&*ring) {
            return Ok(Action::await_change());
        }
        let wanted = ring.spec.nodes;
        let resized = |size: i32| kit::set(&*ring, "", size, "cassandra:3.11", Volumes::None);
        let known = client.get::<StatefulSet>(namespace, name).await?;
        let size = known.as_deref().map_or(wanted, kit::replicas);
        if size != wanted {
            newest(client, &*ring).await?;
        }
        if size > wanted {
            let last = client.live::<Pod>(namespace, &format!("{name}-{}", size - 1)).await?;
            match last {
                Some(pod) if kit::is_going(&pod) => {}
                Some(pod) if !has_left(&pod) => decommission(client, pod).await?,
                _ => drop(kit::ensure(client, resized(size - 1)).await?),
            }
            return Ok(Action::requeue_after(SOON));
        }
        // The mend: a node that has left and is to stay starts again, and joins.
        if self.fixed {
            for pod in kit::cached::<Pod>(client, &*ring).await? {
                if has_left(&pod) && kit::ordinal(&*pod) < wanted && !kit::is_going(&*pod) {
                    newest(client, &*ring).await?;
                    client.delete(&pod).await?;
                }
            }
        }
        kit::ensure(client, resized(wanted)).await?;
        Ok(Action::await_change())
    }
}

/// What the node says of itself.
const MODE: &str = "example.com/mode";
const DECOMMISSIONED: &str = "decommissioned";

fn has_left(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.get(MODE).is_some_and(|mode| mode == DECOMMISSIONED))
}

/// The node gives its data away.
async fn decommission(client: &Client, mut pod: Pod) -> Result<()> {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(MODE.to_owned(), DECOMMISSIONED.to_owned());
    client.update(&pod).await?;
    Ok(())
}
