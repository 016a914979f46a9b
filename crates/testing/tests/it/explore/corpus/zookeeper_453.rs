//! The size of an ensemble is recorded outside of the StatefulSet, where members read it. The record is made when all
//! of the first members are ready.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, Volumes, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "zookeeper-453",
    bug: "The ensemble never changes its size if the operator did not see it ready in its first one.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        ("StatefulSet/zk", "/spec/replicas", "3"),
        ("ConfigMap/zk-size", "/data/size", "\"3\""),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Ensemble", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct EnsembleSpec {
    #[schemars(range(min = 1, max = 3))]
    replicas: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Ensembles { fixed })
        .owns::<StatefulSet>()
        .owns::<ConfigMap>();
    Operator::new("zookeeper").crd::<Ensemble>().controller(controller)
}

fn steps() -> Vec<Step> {
    let ensemble = json!({ "apiVersion": VERSION, "kind": "Ensemble",
        "metadata": { "name": "zk", "namespace": "default" }, "spec": { "replicas": 1 } });
    vec![
        Step::apply("create the ensemble", ensemble),
        Step::merge(
            "add two members",
            VERSION,
            "Ensemble",
            "default",
            "zk",
            json!({ "spec": { "replicas": 3 } }),
        ),
    ]
}

struct Ensembles {
    fixed: bool,
}

impl Reconciler for Ensembles {
    type Object = Ensemble;

    async fn reconcile(&self, ensemble: Arc<Ensemble>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*ensemble));
        if kit::is_going(&*ensemble) {
            return Ok(Action::await_change());
        }
        let size = ensemble.spec.replicas;
        let wanted = kit::set(&*ensemble, "", size, "zookeeper:3.6", Volumes::None);
        let data = json!({ "data": { "size": size.to_string() } });
        let record: ConfigMap = kit::child(&*ensemble, &format!("{name}-size"), data);
        let known = client.get::<StatefulSet>(namespace, name).await?;
        if let Some(set) = known {
            let changes = kit::replicas(&set) != size;
            // The mend: a record that is missing is made, whatever happened before.
            if changes
                && !self.fixed
                && client
                    .get::<ConfigMap>(namespace, &format!("{name}-size"))
                    .await?
                    .is_none()
            {
                return Err(Error::retry("the record of the size cannot be changed: there is none"));
            }
            if changes || kit::ready(&set) == size {
                kit::ensure(client, record).await?;
            }
        }
        kit::ensure(client, wanted).await?;
        Ok(Action::await_change())
    }
}
