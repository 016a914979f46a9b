//! The status is written last, and when that fails there is a line in the log and nothing else.

use k8s_openapi::api::apps::v1::Deployment;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, key};
use super::{Case, Ends, Step};

/// Of many operators.
pub(super) const CASE: Case = Case {
    name: "status-swallowed",
    bug: "The status says for ever that the site is not available if its last write failed.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        ("Site/web", "/status/available", "2"),
        ("Deployment/web", "/status/availableReplicas", "2"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Site",
    namespaced,
    status = "SiteStatus"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct SiteSpec {
    #[schemars(range(min = 0, max = 3))]
    replicas: i32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct SiteStatus {
    available: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Sites { fixed }).owns::<Deployment>();
    Operator::new("sites").crd::<Site>().controller(controller)
}

fn steps() -> Vec<Step> {
    let site = json!({ "apiVersion": VERSION, "kind": "Site", "metadata": { "name": "web", "namespace": "default" },
        "spec": { "replicas": 1 } });
    vec![
        Step::apply("create the site", site),
        Step::merge(
            "let it grow",
            VERSION,
            "Site",
            "default",
            "web",
            json!({ "spec": { "replicas": 2 } }),
        ),
    ]
}

struct Sites {
    fixed: bool,
}

impl Reconciler for Sites {
    type Object = Site;

    async fn reconcile(&self, site: Arc<Site>, ctx: Context) -> Result<Action> {
        let (client, (_, name)) = (ctx.client(), key(&*site));
        if kit::is_going(&*site) {
            return Ok(Action::await_change());
        }
        let labels = json!({ "app": name });
        let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "web", "image": "web:1" }] } });
        let spec =
            json!({ "replicas": site.spec.replicas, "selector": { "matchLabels": labels }, "template": template });
        let deployment = kit::ensure(client, kit::child::<Deployment>(&*site, name, json!({ "spec": spec }))).await?;
        let status = deployment.status.as_ref();
        let available = status.and_then(|status| status.available_replicas).unwrap_or(0);
        if site.status.as_ref().map(|status| status.available) != Some(available) {
            let mut site = (*site).clone();
            site.status = Some(SiteStatus { available });
            match client.update_status(&site).await {
                // The mend: the key is retried.
                Err(error) if self.fixed => return Err(error),
                Err(error) => tracing::warn!(%error, "the status was not written"),
                Ok(_) => {}
            }
        }
        Ok(Action::await_change())
    }
}
