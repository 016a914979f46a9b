//! A cluster grows and shrinks. Which volumes there are in the end depends on whether the operator saw it grow.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy};
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, Volumes};
use super::{Case, Ends, Step};

/// The same with the arbiter of psmdb (585).
pub(super) const CASE: Case = Case {
    name: "pxc-918",
    bug: "Volumes of members that are gone are there or not, depending on whether the operator saw each size of the cluster.",
    undisturbed: Ends::Differ,
    operator,
    steps,
    always: &[],
    expected: &[
        ("StatefulSet/pxc", "/status/readyReplicas", "1"),
        ("PersistentVolumeClaim/data-pxc-0", "", ""),
        ("PersistentVolumeClaim/data-pxc-1", "", "gone"),
        ("PersistentVolumeClaim/data-pxc-2", "", "gone"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Galera", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct GaleraSpec {
    #[schemars(range(min = 1, max = 3))]
    size: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Galeras { fixed }).owns::<StatefulSet>();
    Operator::new("pxc").crd::<Galera>().controller(controller)
}

fn steps() -> Vec<Step> {
    let galera = json!({ "apiVersion": VERSION, "kind": "Galera", "metadata": { "name": "pxc", "namespace": "default" },
        "spec": { "size": 1 } });
    let size = |size: i32| json!({ "spec": { "size": size } });
    vec![
        Step::apply("create the cluster", galera),
        Step::merge("add two members", VERSION, "Galera", "default", "pxc", size(3)),
        Step::merge("take them away again", VERSION, "Galera", "default", "pxc", size(1)),
    ]
}

struct Galeras {
    fixed: bool,
}

impl Reconciler for Galeras {
    type Object = Galera;

    async fn reconcile(&self, galera: Arc<Galera>, ctx: Context) -> Result<Action> {
        if kit::is_going(&*galera) {
            return Ok(Action::await_change());
        }
        let mut set = kit::set(&*galera, "", galera.spec.size, "pxc:8.0", Volumes::Kept);
        // The mend: a volume goes with its member.
        let when_scaled = if self.fixed { "Delete" } else { "Retain" };
        if let Some(spec) = &mut set.spec {
            spec.persistent_volume_claim_retention_policy = Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
                when_deleted: Some("Delete".to_owned()),
                when_scaled: Some(when_scaled.to_owned()),
            });
        }
        kit::ensure(ctx.client(), set).await?;
        Ok(Action::await_change())
    }
}
