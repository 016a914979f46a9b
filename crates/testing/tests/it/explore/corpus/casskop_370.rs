//! A member leaves in steps that are noted in the status. One step asks the member itself, which the step before may
//! have taken away already.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kubewright::prelude::*;
use kubewright::workloads::is_pod_ready;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, SOON, VERSION, Volumes, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "casskop-370",
    bug: "A member that has left keeps its volume, and the cluster obeys no more, if the operator dies after it shrank the StatefulSet.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        ("StatefulSet/ring", "/spec/replicas", "1"),
        ("PersistentVolumeClaim/data-ring-0", "", ""),
        ("PersistentVolumeClaim/data-ring-1", "", "gone"),
        ("Ring/ring", "/status/operation", "\"Done\""),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Ring",
    namespaced,
    status = "RingStatus"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct RingSpec {
    #[schemars(range(min = 1, max = 3))]
    nodes: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
struct RingStatus {
    /// The step of the last operation.
    #[serde(default)]
    operation: Operation,
    /// The member that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    member: Option<i32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
enum Operation {
    #[default]
    Done,
    Ongoing,
    Finalizing,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Rings { fixed })
        .owns::<StatefulSet>()
        .reads::<Pod>(kubewright::Scope::all());
    Operator::new("casskop").crd::<Ring>().controller(controller)
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
        let (client, (namespace, name)) = (ctx.client(), key(&*ring));
        if kit::is_going(&*ring) {
            return Ok(Action::await_change());
        }
        let known = client.get::<StatefulSet>(namespace, name).await?;
        let size = known.as_deref().map_or(ring.spec.nodes, kit::replicas);
        let resized = |size| kit::set(&*ring, "", size, "cassandra:3.11", Volumes::Owned);
        let status = ring.status.clone().unwrap_or_default();
        let member = status.member.unwrap_or_default();
        let pod = format!("{name}-{member}");
        match status.operation {
            Operation::Done => {
                kit::ensure(client, resized(size.max(ring.spec.nodes))).await?;
                match size > ring.spec.nodes {
                    true => say(client, &ring, Operation::Ongoing, Some(size - 1)).await?,
                    false => say(client, &ring, Operation::Done, None).await?,
                }
            }
            Operation::Ongoing => {
                // The mend: a member that the set does not want any more has said yes before.
                let has_left = self.fixed && size <= member;
                let answers = client.get::<Pod>(namespace, &pod).await?;
                if !has_left && !answers.is_some_and(|pod| is_pod_ready(&pod) && !kit::is_going(&*pod)) {
                    return Err(Error::retry(format!(
                        "{pod} does not say whether it has given its data away"
                    )));
                }
                kit::ensure(client, resized(size.min(member))).await?;
                say(client, &ring, Operation::Finalizing, Some(member)).await?;
            }
            Operation::Finalizing => {
                kit::ensure(client, resized(size.min(member))).await?;
                let set = client.live::<StatefulSet>(namespace, name).await?;
                let is_shrunk = set.is_some_and(|set| kit::replicas(&set) <= member);
                if is_shrunk && client.live::<Pod>(namespace, &pod).await?.is_none() {
                    let claim = client
                        .live::<PersistentVolumeClaim>(namespace, &format!("data-{pod}"))
                        .await?;
                    if let Some(claim) = claim {
                        client.delete(&claim).await?;
                    }
                    say(client, &ring, Operation::Done, None).await?;
                }
            }
        }
        let done = ring
            .status
            .as_ref()
            .is_some_and(|status| status.operation == Operation::Done);
        Ok(if done {
            Action::await_change()
        } else {
            Action::requeue_after(SOON)
        })
    }
}

/// Notes the step, under the lock of the state that was read: nobody takes a step twice.
async fn say(client: &Client, ring: &Ring, operation: Operation, member: Option<i32>) -> Result<()> {
    let status = Some(RingStatus { operation, member });
    if ring.status != status {
        let mut ring = ring.clone();
        ring.status = status;
        client.update_status(&ring).await?;
    }
    Ok(())
}
