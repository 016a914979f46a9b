//! The operator changes nothing while a change is under way. One that can never end is under way for ever.

use k8s_openapi::api::apps::v1::Deployment;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "psmdb-897",
    bug: "A value that cannot work is not taken back when the user takes it back.",
    undisturbed: Ends::Differ,
    operator,
    steps,
    always: &[],
    expected: &[
        (
            "Deployment/router",
            "/spec/template/spec/containers/0/resources/requests/cpu",
            "\"1\"",
        ),
        ("Deployment/router", "/status/availableReplicas", "1"),
        ("Deployment/router", "/status/unavailableReplicas", "gone"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Router", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct RouterSpec {
    /// How many processors each pod asks for.
    #[schemars(range(min = 1, max = 999))]
    cpus: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Routers { fixed }).owns::<Deployment>();
    Operator::new("psmdb").crd::<Router>().controller(controller)
}

fn steps() -> Vec<Step> {
    let router = json!({ "apiVersion": VERSION, "kind": "Router", "metadata": { "name": "router", "namespace": "default" },
        "spec": { "cpus": 1 } });
    let cpus = |cpus: i32| json!({ "spec": { "cpus": cpus } });
    vec![
        Step::apply("create the router", router),
        Step::merge(
            "ask for more than any node has",
            VERSION,
            "Router",
            "default",
            "router",
            cpus(999),
        ),
        Step::merge("take that back", VERSION, "Router", "default", "router", cpus(1)),
    ]
}

struct Routers {
    fixed: bool,
}

impl Reconciler for Routers {
    type Object = Router;

    async fn reconcile(&self, router: Arc<Router>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*router));
        if kit::is_going(&*router) {
            return Ok(Action::await_change());
        }
        let known = client.get::<Deployment>(namespace, name).await?;
        // The mend: what the user wants now is begun now.
        if known.is_some_and(|known| is_changing(&known)) && !self.fixed {
            return Ok(Action::await_change());
        }
        let labels = json!({ "app": name });
        let resources = json!({ "requests": { "cpu": router.spec.cpus.to_string() } });
        let container = json!({ "name": "mongos", "image": "mongos:4.4", "resources": resources });
        let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let spec = json!({ "replicas": 1, "selector": { "matchLabels": labels }, "template": template });
        kit::ensure(
            client,
            kit::child::<Deployment>(&*router, name, json!({ "spec": spec })),
        )
        .await?;
        Ok(Action::await_change())
    }
}

fn is_changing(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    status.observed_generation != deployment.metadata.generation
        || status.updated_replicas != wanted
        || status.available_replicas != wanted
        || status.replicas != wanted
}
