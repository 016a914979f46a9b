//! When a cluster is deleted, the operator cleans up and lets it go, and then goes on as on any other day.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, Volumes, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "zookeeper-410",
    bug: "The configuration of a deleted ensemble is made again and left for ever if the operator dies during the cleanup.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        ("ConfigMap/zk-config", "", "gone"),
        ("StatefulSet/zk", "", "gone"),
        ("Ensemble/zk", "", "gone"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Ensemble", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
#[serde(rename_all = "camelCase")]
struct EnsembleSpec {
    tick_time: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Ensembles { fixed })
        .owns::<StatefulSet>()
        .watches(kit::of_app::<ConfigMap>);
    Operator::new("zookeeper").crd::<Ensemble>().controller(controller)
}

fn steps() -> Vec<Step> {
    let ensemble = json!({ "apiVersion": VERSION, "kind": "Ensemble",
        "metadata": { "name": "zk", "namespace": "default" }, "spec": { "tickTime": 2000 } });
    vec![
        Step::apply("create the ensemble", ensemble),
        Step::delete("delete it", VERSION, "Ensemble", "default", "zk"),
    ]
}

struct Ensembles {
    fixed: bool,
}

impl Reconciler for Ensembles {
    type Object = Ensemble;

    async fn reconcile(&self, ensemble: Arc<Ensemble>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*ensemble));
        let config = format!("{name}-config");
        let known = client.get::<ConfigMap>(namespace, &config).await?;
        if kit::is_going(&*ensemble) {
            if !kit::is_held(&*ensemble) {
                return Ok(Action::await_change());
            }
            let there = match self.fixed {
                true => client.live::<ConfigMap>(namespace, &config).await?,
                false => known.as_deref().cloned(),
            };
            if let Some(there) = there {
                client.delete(&there).await?;
            }
            kit::release(client, &*ensemble).await?;
            if self.fixed {
                // The mend: nothing is made for an ensemble that is being deleted.
                return Ok(Action::await_change());
            }
        } else if !kit::is_held(&*ensemble) {
            kit::hold(client, &*ensemble).await?;
        }

        let text = format!("tickTime={}", ensemble.spec.tick_time);
        let wanted: ConfigMap = kit::left_behind(&*ensemble, &config, json!({ "data": { "zoo.cfg": text } }));
        match known {
            Some(known) if known.data != wanted.data && !kit::is_going(&*ensemble) => {
                drop(kit::ensure(client, wanted).await?);
            }
            Some(_) => {}
            None if self.fixed && !kit::is_current(client, &*ensemble).await? => return Ok(Action::await_change()),
            None => drop(client.create(&wanted).await?),
        }
        if client.get::<StatefulSet>(namespace, name).await?.is_none() || !kit::is_going(&*ensemble) {
            kit::ensure(client, kit::set(&*ensemble, "", 1, "zookeeper:3.6", Volumes::None)).await?;
        }
        Ok(Action::await_change())
    }
}
