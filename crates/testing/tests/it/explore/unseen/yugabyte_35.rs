//! yugabyte/yugabyte-operator#35: encryption was off, the user switched it on, and the operator made the Secret with
//! the certificates. Then it restarted, its API server was behind and said that encryption was still off, and the
//! operator deleted the Secret of a cluster that uses it. Whether encryption is off was read from the cache, and
//! whatever Secret there was by then was deleted.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::corpus::kit::{self, Volumes, key};
use super::{Pair, Workload, newest};

pub(super) const PAIR: Pair = Pair {
    name: "yugabyte-35",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Universe
metadata: {name: yb}
spec: {replicas: 1, tls: true}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Universe", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct UniverseSpec {
    /// How many masters there are, and how many tablet servers.
    #[schemars(range(min = 1, max = 3))]
    replicas: i32,
    /// Whether they encrypt what they send.
    tls: bool,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Universes { fixed })
        .owns::<Secret>()
        .owns::<StatefulSet>();
    Operator::new("yugabyte").crd::<Universe>().controller(controller)
}

struct Universes {
    fixed: bool,
}

impl Reconciler for Universes {
    type Object = Universe;

    async fn reconcile(&self, universe: Arc<Universe>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*universe));
        if kit::is_going(&*universe) {
            return Ok(Action::await_change());
        }
        let certificates = format!("{name}-certificates");
        if universe.spec.tls {
            let data = json!({ "data": { "tls.crt": "Y2VydA==", "tls.key": "a2V5" } });
            kit::ensure(client, kit::child::<Secret>(&*universe, &certificates, data)).await?;
        } else if let Some(secret) = client.live::<Secret>(namespace, &certificates).await? {
            // The mend: the API server says whether encryption is off.
            if self.fixed {
                newest(client, &*universe).await?;
            }
            client.delete(&secret).await?;
        }
        kit::ensure(client, servers(&universe, "-master")).await?;
        kit::ensure(client, servers(&universe, "-tserver")).await?;
        Ok(Action::await_change())
    }
}

/// The servers start again when encryption is switched.
fn servers(universe: &Universe, role: &str) -> StatefulSet {
    let mut set = kit::set(universe, role, universe.spec.replicas, "yugabyte:2.9", Volumes::None);
    if let Some(spec) = &mut set.spec {
        let template = spec.template.metadata.get_or_insert_default();
        let annotations = template.annotations.get_or_insert_default();
        annotations.insert("example.com/tls".to_owned(), universe.spec.tls.to_string());
    }
    set
}
