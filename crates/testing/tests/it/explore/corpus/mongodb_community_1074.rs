//! Settings of the spec are added to those of the child.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "mongodb-community-1074",
    bug: "A setting that is taken out of the spec stays in force.",
    undisturbed: Ends::Differ,
    operator,
    steps,
    always: &[],
    expected: &[
        ("ConfigMap/mongo", "/data/journal", "\"true\""),
        ("ConfigMap/mongo", "/data/oplog", "gone"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Mongo", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct MongoSpec {
    #[serde(default)]
    settings: BTreeMap<String, String>,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Mongos { fixed }).owns::<ConfigMap>();
    Operator::new("mongodb").crd::<Mongo>().controller(controller)
}

fn steps() -> Vec<Step> {
    let mongo = |settings| {
        json!({ "apiVersion": VERSION, "kind": "Mongo", "metadata": { "name": "mongo", "namespace": "default" },
            "spec": { "settings": settings } })
    };
    vec![
        Step::apply(
            "create the cluster",
            mongo(json!({ "journal": "true", "oplog": "990" })),
        ),
        Step::apply("take a setting out", mongo(json!({ "journal": "true" }))),
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
        let mut settings = BTreeMap::new();
        // The mend: the spec says all of them.
        if let Some(known) = client.get::<ConfigMap>(namespace, name).await?.filter(|_| !self.fixed) {
            settings.extend(known.data.clone().unwrap_or_default());
        }
        settings.extend(mongo.spec.settings.clone());
        kit::ensure(
            client,
            kit::child::<ConfigMap>(&*mongo, name, json!({ "data": settings })),
        )
        .await?;
        Ok(Action::await_change())
    }
}
