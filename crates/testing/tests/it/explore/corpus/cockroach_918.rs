//! An optional part of the spec has an optional part, which the operator takes for granted.

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "cockroach-918",
    bug: "The operator panics, and the cluster obeys no more, when the ingress is given without the part for the user interface.",
    undisturbed: Ends::Differ,
    operator,
    steps,
    always: &[],
    expected: &[
        ("ConfigMap/roach", "/data/sql", "\"sql.example.com\""),
        ("ConfigMap/roach", "/data/ui", "gone"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Roach", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct RoachSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ingress: Option<Ingress>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct Ingress {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ui: Option<Endpoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sql: Option<Endpoint>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct Endpoint {
    host: String,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Roaches { fixed }).owns::<ConfigMap>();
    Operator::new("cockroach").crd::<Roach>().controller(controller)
}

fn steps() -> Vec<Step> {
    let roach = |ingress| {
        json!({ "apiVersion": VERSION, "kind": "Roach", "metadata": { "name": "roach", "namespace": "default" },
            "spec": { "ingress": ingress } })
    };
    let (ui, sql) = (
        json!({ "host": "ui.example.com" }),
        json!({ "host": "sql.example.com" }),
    );
    vec![
        Step::apply("create the cluster", roach(json!({ "ui": ui }))),
        Step::apply("offer SQL in place of the user interface", roach(json!({ "sql": sql }))),
    ]
}

struct Roaches {
    fixed: bool,
}

impl Reconciler for Roaches {
    type Object = Roach;

    async fn reconcile(&self, roach: Arc<Roach>, ctx: Context) -> Result<Action> {
        let (client, (_, name)) = (ctx.client(), key(&*roach));
        if kit::is_going(&*roach) {
            return Ok(Action::await_change());
        }
        let mut hosts = json!({});
        if let Some(ingress) = &roach.spec.ingress {
            // The mend: what may be left out is asked for.
            if ingress.ui.is_some() || !self.fixed {
                hosts["ui"] = json!(ingress.ui.as_ref().expect("an ingress has a user interface").host);
            }
            if let Some(sql) = &ingress.sql {
                hosts["sql"] = json!(sql.host);
            }
        }
        kit::ensure(client, kit::child::<ConfigMap>(&*roach, name, json!({ "data": hosts }))).await?;
        Ok(Action::await_change())
    }
}
