//! Secrets that people copy have no owner that the garbage collector knows. A controller of their own deletes them when
//! the cluster of their label is gone.

use k8s_openapi::api::core::v1::Secret;
use kubewright::kube::api::DeleteParams;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "eck-5249",
    bug: "The password and the certificates of a new cluster are deleted if the operator restarts and sees that its namesake is gone.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        ("Secret/es-user", "/data/user", "null"),
        ("Secret/es-certs", "/data/certs", "null"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Search", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct SearchSpec {
    version: String,
}

fn operator(fixed: bool) -> Operator {
    let clusters = Controller::of(Clusters).watches(kit::of_app::<Secret>);
    let of_cluster = |search: &Search| {
        let (namespace, name) = key(search);
        SECRETS
            .map(|secret| Request::new(namespace, &format!("{name}-{secret}")))
            .to_vec()
    };
    let collector = Controller::of(Collector { fixed })
        .named("collector")
        .watches::<Search>(of_cluster);
    Operator::new("eck")
        .crd::<Search>()
        .controller(clusters)
        .controller(collector)
}

fn steps() -> Vec<Step> {
    let search = json!({ "apiVersion": VERSION, "kind": "Search", "metadata": { "name": "es", "namespace": "default" },
        "spec": { "version": "7.16" } });
    vec![
        Step::apply("create the cluster", search.clone()),
        Step::delete("delete it", VERSION, "Search", "default", "es"),
        Step::apply("create it again", search),
    ]
}

const SECRETS: [&str; 2] = ["user", "certs"];

struct Clusters;

impl Reconciler for Clusters {
    type Object = Search;

    async fn reconcile(&self, search: Arc<Search>, ctx: Context) -> Result<Action> {
        let (client, (_, name)) = (ctx.client(), key(&*search));
        for secret in SECRETS.iter().filter(|_| !kit::is_going(&*search)) {
            let data = json!({ "data": { *secret: "c2VjcmV0" } });
            kit::ensure(
                client,
                kit::left_behind::<Secret>(&*search, &format!("{name}-{secret}"), data),
            )
            .await?;
        }
        Ok(Action::await_change())
    }
}

struct Collector {
    fixed: bool,
}

impl Reconciler for Collector {
    type Object = Secret;

    async fn reconcile(&self, secret: Arc<Secret>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*secret));
        let Some(owner) = kit::of_app(&*secret).pop() else {
            return Ok(Action::await_change());
        };
        if client.get::<Search>(namespace, owner.name()).await?.is_some() {
            return Ok(Action::await_change());
        }
        if self.fixed {
            // The mend: the API server says whether the cluster is gone, and this very Secret is deleted.
            if client.live::<Search>(namespace, owner.name()).await?.is_none() {
                client.delete(&*secret).await?;
            }
        } else {
            client
                .delete_named::<Secret>(namespace, name, DeleteParams::default())
                .await?;
        }
        Ok(Action::await_change())
    }
}
