//! In the operator's language a number that is not given is zero.

use k8s_openapi::api::apps::v1::StatefulSet;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, Volumes};
use super::{Case, Ends, Step};

/// Of several operators.
pub(super) const CASE: Case = Case {
    name: "scale-to-zero",
    bug: "A cluster that is scaled to zero goes on running.",
    undisturbed: Ends::Differ,
    operator,
    steps,
    always: &[],
    expected: &[
        ("StatefulSet/cache", "/spec/replicas", "0"),
        ("Pod/cache-0", "", "gone"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Cache", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct CacheSpec {
    /// Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3))]
    replicas: Option<i32>,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Caches { fixed }).owns::<StatefulSet>();
    Operator::new("cache").crd::<Cache>().controller(controller)
}

fn steps() -> Vec<Step> {
    let cache = json!({ "apiVersion": VERSION, "kind": "Cache", "metadata": { "name": "cache", "namespace": "default" },
        "spec": { "replicas": 2 } });
    vec![
        Step::apply("create the cluster", cache),
        Step::merge(
            "stop it",
            VERSION,
            "Cache",
            "default",
            "cache",
            json!({ "spec": { "replicas": 0 } }),
        ),
    ]
}

struct Caches {
    fixed: bool,
}

impl Reconciler for Caches {
    type Object = Cache;

    async fn reconcile(&self, cache: Arc<Cache>, ctx: Context) -> Result<Action> {
        if kit::is_going(&*cache) {
            return Ok(Action::await_change());
        }
        // The mend: zero is a number.
        let replicas = match cache.spec.replicas {
            Some(0) if !self.fixed => None,
            replicas => replicas,
        };
        let set = kit::set(&*cache, "", replicas.unwrap_or(1), "redis:6", Volumes::None);
        kit::ensure(ctx.client(), set).await?;
        Ok(Action::await_change())
    }
}
