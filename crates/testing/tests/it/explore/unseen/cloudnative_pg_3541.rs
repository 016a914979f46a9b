//! cloudnative-pg/cloudnative-pg#3541: the user asked for instances that fit on no node. The instance was replaced,
//! and its pod could not be scheduled. The user took the value back, and nothing happened: the operator replaces an
//! instance only when it is ready, and this one never is.

use k8s_openapi::api::core::v1::{Pod, Service};
use kubewright::prelude::*;
use kubewright::workloads::is_pod_ready;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::corpus::kit::{self, key};
use super::{Pair, Workload, newest};

pub(super) const PAIR: Pair = Pair {
    name: "cloudnative-pg-3541",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Postgres
metadata: {name: pg}
spec: {cpus: 1}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Postgres", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct PostgresSpec {
    /// How many processors the instance asks for.
    #[schemars(range(min = 1, max = 999))]
    cpus: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Databases { fixed }).owns::<Pod>().owns::<Service>();
    Operator::new("postgres").crd::<Postgres>().controller(controller)
}

struct Databases {
    fixed: bool,
}

/// What the instance was made with.
const CPUS: &str = "example.com/cpus";

impl Reconciler for Databases {
    type Object = Postgres;

    async fn reconcile(&self, postgres: Arc<Postgres>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*postgres));
        if kit::is_going(&*postgres) {
            return Ok(Action::await_change());
        }
        let spec = json!({ "selector": { "app": name }, "ports": [{ "name": "postgres", "port": 5432 }] });
        let service: Service = kit::child(&*postgres, &format!("{name}-rw"), json!({ "spec": spec }));
        kit::ensure(client, service).await?;
        let instance = format!("{name}-1");
        match client.get::<Pod>(namespace, &instance).await? {
            None => {
                client.create(&made(&postgres, &instance)).await?;
            }
            Some(pod) if kit::is_going(&*pod) => {}
            Some(pod) if kit::is_over(&pod) => {
                client.delete(&pod).await?;
            }
            Some(pod) if is_outdated(&pod, &postgres) => {
                // The mend: an instance that is not ready has nothing to lose.
                if is_pod_ready(&pod) || self.fixed {
                    newest(client, &*postgres).await?;
                    client.delete(&pod).await?;
                }
            }
            Some(_) => {}
        }
        Ok(Action::await_change())
    }
}

fn is_outdated(pod: &Pod, postgres: &Postgres) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let made_with = annotations.and_then(|annotations| annotations.get(CPUS));
    made_with != Some(&postgres.spec.cpus.to_string())
}

fn made(postgres: &Postgres, name: &str) -> Pod {
    let cpus = postgres.spec.cpus.to_string();
    let resources = json!({ "requests": { "cpu": cpus } });
    let container = json!({ "name": "postgres", "image": "postgres:16", "resources": resources });
    let body = json!({ "metadata": { "annotations": { CPUS: cpus } }, "spec": { "containers": [container] } });
    kit::child(postgres, name, body)
}
