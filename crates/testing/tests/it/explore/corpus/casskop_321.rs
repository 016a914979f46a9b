//! A budget of disruptions could once not be changed, so the operator replaces it.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kubewright::kube::api::DeleteParams;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "casskop-321",
    bug: "The budget of disruptions is deleted and made anew if the operator restarts and sees its former size.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[("PodDisruptionBudget/ring", "/spec/maxUnavailable", "1")],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Ring", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
#[serde(rename_all = "camelCase")]
struct RingSpec {
    #[schemars(range(min = 0, max = 10))]
    max_pod_unavailable: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Rings { fixed }).owns::<PodDisruptionBudget>();
    Operator::new("casskop").crd::<Ring>().controller(controller)
}

fn steps() -> Vec<Step> {
    let ring = json!({ "apiVersion": VERSION, "kind": "Ring", "metadata": { "name": "ring", "namespace": "default" },
        "spec": { "maxPodUnavailable": 4 } });
    let fewer = json!({ "spec": { "maxPodUnavailable": 1 } });
    vec![
        Step::apply("create the cluster", ring),
        Step::merge(
            "let fewer members be unavailable",
            VERSION,
            "Ring",
            "default",
            "ring",
            fewer,
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
        let spec =
            json!({ "maxUnavailable": ring.spec.max_pod_unavailable, "selector": { "matchLabels": { "app": name } } });
        let wanted: PodDisruptionBudget = kit::child(&*ring, name, json!({ "spec": spec }));
        let size = |budget: &PodDisruptionBudget| budget.spec.as_ref().and_then(|spec| spec.max_unavailable.clone());
        if !self.fixed {
            let found = client.get::<PodDisruptionBudget>(namespace, name).await?;
            if found.is_some_and(|found| size(&found) != size(&wanted)) {
                client
                    .delete_named::<PodDisruptionBudget>(namespace, name, DeleteParams::default())
                    .await?;
            }
        }
        // The mend: it is changed, under the lock of the state that was read.
        kit::ensure(client, wanted).await?;
        Ok(Action::await_change())
    }
}
