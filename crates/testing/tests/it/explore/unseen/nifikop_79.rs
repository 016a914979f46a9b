//! konpyutaika/nifikop#79: the operator made the pod of a node, noted in the status that its configuration is in sync,
//! and then that it had joined. It died between the two. The pod was there when it came back, so it went past both
//! notes, for ever. When the user took the node away, the operator removed only nodes that are noted to have joined,
//! and the pod stayed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::corpus::kit::{self, key};
use super::{Pair, Workload, newest};

pub(super) const PAIR: Pair = Pair {
    name: "nifikop-79",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Flow
metadata: {name: flow}
spec: {nodes: 2}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Flow",
    namespaced,
    status = "FlowStatus"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct FlowSpec {
    #[schemars(range(min = 1, max = 3))]
    nodes: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
struct FlowStatus {
    /// By the name of the pod.
    nodes: BTreeMap<String, NodeState>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
struct NodeState {
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
}

const IN_SYNC: &str = "ConfigInSync";
const JOINED: &str = "GracefulUpscaleSucceeded";

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Flows { fixed }).owns::<Pod>();
    Operator::new("nifi").crd::<Flow>().controller(controller)
}

struct Flows {
    fixed: bool,
}

impl Reconciler for Flows {
    type Object = Flow;

    async fn reconcile(&self, flow: Arc<Flow>, ctx: Context) -> Result<Action> {
        let client = ctx.client();
        if kit::is_going(&*flow) {
            return Ok(Action::await_change());
        }
        let mut flow = (*flow).clone();
        let pods = kit::cached::<Pod>(client, &flow).await?;
        let mut nodes: BTreeSet<String> = pods.iter().map(|pod| key(&**pod).1.to_owned()).collect();
        nodes.extend((0..flow.spec.nodes).map(|ordinal| format!("{}-{ordinal}", key(&flow).1)));
        for node in &nodes {
            let is_new = !pods.iter().any(|pod| key(&**pod).1 == node);
            if is_new {
                client.create(&member(&flow, node)).await?;
            }
            // The mend: what is not noted is noted, whoever made the pod.
            if is_new || self.fixed {
                let mut status = flow.status.clone().unwrap_or_default();
                status.nodes.entry(node.clone()).or_default().configuration = Some(IN_SYNC.to_owned());
                say(client, &mut flow, status.clone()).await?;
                status.nodes.entry(node.clone()).or_default().action = Some(JOINED.to_owned());
                say(client, &mut flow, status).await?;
            }
        }
        let mut status = flow.status.clone().unwrap_or_default();
        for pod in pods.iter().filter(|pod| !kit::is_going(&***pod)) {
            let state = status.nodes.get(key(&**pod).1);
            let has_joined = state.is_some_and(|state| state.action.as_deref() == Some(JOINED));
            if kit::is_over(pod) {
                client.delete(pod).await?;
            } else if kit::ordinal(&**pod) >= flow.spec.nodes && has_joined {
                newest(client, &flow).await?;
                client.delete(pod).await?;
            }
        }
        status.nodes.retain(|node, _| nodes.contains(node));
        say(client, &mut flow, status).await?;
        Ok(Action::await_change())
    }
}

fn member(flow: &Flow, name: &str) -> Pod {
    let spec = json!({ "containers": [{ "name": "nifi", "image": "nifi:1.15" }] });
    kit::child(flow, name, json!({ "spec": spec }))
}

/// Notes it under the lock of the state that was read.
async fn say(client: &Client, flow: &mut Flow, status: FlowStatus) -> Result<()> {
    if flow.status.clone().unwrap_or_default() != status {
        flow.status = Some(status);
        let written = client.update_status(&*flow).await?;
        *flow = Arc::unwrap_or_clone(written);
    }
    Ok(())
}
