//! A new configuration is written to the ConfigMap, noted in the status, and then the pod is restarted. Only the note
//! leads to the restart.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "nifikop-49",
    bug: "The pod goes on with the old configuration if the operator dies between the ConfigMap and its status.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        ("ConfigMap/flow-config", "/data/nifi.properties", "\"banner=new\""),
        (
            "Pod/flow-0",
            "/metadata/annotations/example.com~1started-with",
            "\"banner=new\"",
        ),
        ("Flow/flow", "/status/config", "\"InSync\""),
    ],
};

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
    /// The content of the file of properties.
    config: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct FlowStatus {
    /// Whether the pod has the wanted configuration.
    config: String,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Flows { fixed }).owns::<ConfigMap>().owns::<Pod>();
    Operator::new("nifi").crd::<Flow>().controller(controller)
}

fn steps() -> Vec<Step> {
    let flow = json!({ "apiVersion": VERSION, "kind": "Flow", "metadata": { "name": "flow", "namespace": "default" },
        "spec": { "config": "banner=old" } });
    vec![
        Step::apply("create the cluster", flow),
        Step::merge(
            "change its configuration",
            VERSION,
            "Flow",
            "default",
            "flow",
            json!({ "spec": { "config": "banner=new" } }),
        ),
    ]
}

const STARTED_WITH: &str = "example.com/started-with";
const OUT_OF_SYNC: &str = "OutOfSync";
const IN_SYNC: &str = "InSync";

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
        let (namespace, name) = key(&*flow);
        let mut flow = (*flow).clone();
        let config = format!("{name}-config");
        let known = client.get::<ConfigMap>(namespace, &config).await?;
        let wanted = kit::child::<ConfigMap>(
            &flow,
            &config,
            json!({ "data": { "nifi.properties": flow.spec.config } }),
        );
        let data = wanted.data.clone();
        kit::ensure(client, wanted).await?;
        if known.is_some_and(|known| known.data != data) {
            flow = say(client, flow, OUT_OF_SYNC).await?;
        }

        let pod = client.get::<Pod>(namespace, &format!("{name}-0")).await?;
        let restarts = |pod: &Pod| match self.fixed {
            // The mend: the pod knows what it was started with.
            true => {
                pod.metadata
                    .annotations
                    .as_ref()
                    .and_then(|notes| notes.get(STARTED_WITH))
                    != Some(&flow.spec.config)
            }
            false => flow.status.as_ref().is_some_and(|status| status.config == OUT_OF_SYNC),
        };
        match pod {
            Some(pod) if kit::is_going(&*pod) => return Ok(Action::await_change()),
            Some(pod) if kit::is_over(&pod) || restarts(&pod) => {
                client.delete(&*pod).await?;
                return Ok(Action::await_change());
            }
            Some(_) => drop(kit::ensure(client, member(&flow)).await?),
            None => {
                let mut pod = member(&flow);
                let notes = pod.metadata.annotations.get_or_insert_default();
                notes.insert(STARTED_WITH.to_owned(), flow.spec.config.clone());
                client.create(&pod).await?;
            }
        }
        say(client, flow, IN_SYNC).await?;
        Ok(Action::await_change())
    }
}

fn member(flow: &Flow) -> Pod {
    let (_, name) = key(flow);
    let mount = json!({ "name": "config", "configMap": { "name": format!("{name}-config") } });
    let spec = json!({ "containers": [{ "name": "nifi", "image": "nifi:1.15" }], "volumes": [mount] });
    let mut pod: Pod = kit::child(flow, &format!("{name}-0"), json!({}));
    pod.spec = serde_json::from_value(spec).expect("a spec");
    pod
}

async fn say(client: &Client, mut flow: Flow, config: &str) -> Result<Flow> {
    let status = flow.status.get_or_insert_default();
    if status.config == config {
        return Ok(flow);
    }
    config.clone_into(&mut status.config);
    client.update_status(&flow).await.map(Arc::unwrap_or_clone)
}
