//! OT-CONTAINER-KIT/redis-operator#921: a Redis may be given without storage, which then is to be that of its pod. The
//! operator looked into the storage all the same, and panicked at each attempt until the object was changed.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::corpus::kit::{self, key};
use super::{Pair, Workload};

pub(super) const PAIR: Pair = Pair {
    name: "redis-operator-921",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Cache
metadata: {name: cache}
spec: {persistent: true, storage: {mebibytes: 128}}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Cache", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct CacheSpec {
    /// Whether it writes what it knows to its storage.
    persistent: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    storage: Option<Storage>,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct Storage {
    #[schemars(range(min = 64, max = 512))]
    mebibytes: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Caches { fixed }).owns::<Deployment>().owns::<Service>();
    Operator::new("redis").crd::<Cache>().controller(controller)
}

struct Caches {
    fixed: bool,
}

impl Reconciler for Caches {
    type Object = Cache;

    async fn reconcile(&self, cache: Arc<Cache>, ctx: Context) -> Result<Action> {
        let (_, name) = key(&*cache);
        if kit::is_going(&*cache) {
            return Ok(Action::await_change());
        }
        let labels = json!({ "app": name });
        let appends = if cache.spec.persistent { "yes" } else { "no" };
        let container = json!({ "name": "redis", "image": "redis:7", "args": ["--appendonly", appends] });
        let mut pod = json!({ "containers": [container] });
        // The mend: what may be left out is asked for.
        if cache.spec.storage.is_some() || !self.fixed {
            let storage = cache.spec.storage.as_ref().expect("a cache has storage");
            let limit = format!("{}Mi", storage.mebibytes);
            pod["volumes"] = json!([{ "name": "data", "emptyDir": { "sizeLimit": limit } }]);
            pod["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
        }
        let template = json!({ "metadata": { "labels": labels }, "spec": pod });
        let spec = json!({ "replicas": 1, "selector": { "matchLabels": labels }, "template": template });
        let deployment: Deployment = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))?;
        ctx.apply(deployment).await?;
        let spec = json!({ "selector": labels, "ports": [{ "name": "redis", "port": 6379 }] });
        let service: Service = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))?;
        ctx.apply(service).await?;
        Ok(Action::await_change())
    }
}
