//! A component is switched off and on again. What was off when the operator looked last is deleted.

use k8s_openapi::api::apps::v1::StatefulSet;
use kubewright::kube::api::DeleteParams;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, Volumes, key};
use super::{Case, Ends, Step};

/// The same with the arbiter (438), with HAProxy (pxc-725) and with ProxySQL (pxc-763).
pub(super) const CASE: Case = Case {
    name: "psmdb-433",
    bug: "The config servers in use are deleted if the operator restarts and sees sharding still switched off.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        ("StatefulSet/mongo-rs0", "/status/readyReplicas", "1"),
        ("StatefulSet/mongo-cfg", "/status/readyReplicas", "1"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Mongo", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct MongoSpec {
    sharding: bool,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Mongos { fixed }).owns::<StatefulSet>();
    Operator::new("psmdb").crd::<Mongo>().controller(controller)
}

fn steps() -> Vec<Step> {
    let mongo = json!({ "apiVersion": VERSION, "kind": "Mongo", "metadata": { "name": "mongo", "namespace": "default" },
        "spec": { "sharding": true } });
    let sharding = |on: bool| json!({ "spec": { "sharding": on } });
    vec![
        Step::apply("create the cluster", mongo),
        Step::merge(
            "switch sharding off",
            VERSION,
            "Mongo",
            "default",
            "mongo",
            sharding(false),
        ),
        Step::merge(
            "switch it on again",
            VERSION,
            "Mongo",
            "default",
            "mongo",
            sharding(true),
        ),
    ]
}

struct Mongos {
    fixed: bool,
}

impl Reconciler for Mongos {
    type Object = Mongo;

    async fn reconcile(&self, mongo: Arc<Mongo>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*mongo));
        if kit::is_going(&*mongo) {
            return Ok(Action::await_change());
        }
        kit::ensure(client, kit::set(&*mongo, "-rs0", 1, "mongo:4.4", Volumes::None)).await?;
        let servers = format!("{name}-cfg");
        if mongo.spec.sharding {
            kit::ensure(client, kit::set(&*mongo, "-cfg", 1, "mongo:4.4", Volumes::None)).await?;
        } else if self.fixed {
            // The mend: the API server says whether sharding is off, and which set has the name now.
            let live = client.live::<Mongo>(namespace, name).await?;
            let is_off = live.is_some_and(|live| live.metadata.uid == mongo.metadata.uid && !live.spec.sharding);
            if let Some(set) = client
                .live::<StatefulSet>(namespace, &servers)
                .await?
                .filter(|_| is_off)
            {
                client.delete(&set).await?;
            }
        } else if client.get::<StatefulSet>(namespace, &servers).await?.is_some() {
            client
                .delete_named::<StatefulSet>(namespace, &servers, DeleteParams::default())
                .await?;
        }
        Ok(Action::await_change())
    }
}
