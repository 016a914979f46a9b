//! prometheus-operator/prometheus-operator#4392: since a release the annotations for the pods are taken over when the
//! StatefulSet is made, and changes of them are accepted and do nothing. The report tells what is seen; here they do
//! not count among what is compared, and the StatefulSet keeps the annotations that it has.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::corpus::kit::{self, Volumes, key};
use super::{Pair, Workload};

pub(super) const PAIR: Pair = Pair {
    name: "prometheus-operator-4392",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Prometheus
metadata: {name: prom}
spec: {replicas: 1, retention: day, podMetadata: {mesh: false, tier: bronze}}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Prometheus", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
#[serde(rename_all = "camelCase")]
struct PrometheusSpec {
    #[schemars(range(min = 1, max = 3))]
    replicas: i32,
    retention: Retention,
    pod_metadata: PodMetadata,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Retention {
    Day,
    Week,
}

/// The annotations of the pods.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct PodMetadata {
    mesh: bool,
    tier: Tier,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Tier {
    Bronze,
    Silver,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Servers { fixed })
        .owns::<StatefulSet>()
        .owns::<ConfigMap>();
    Operator::new("prometheus").crd::<Prometheus>().controller(controller)
}

struct Servers {
    fixed: bool,
}

impl Reconciler for Servers {
    type Object = Prometheus;

    async fn reconcile(&self, prometheus: Arc<Prometheus>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*prometheus));
        if kit::is_going(&*prometheus) {
            return Ok(Action::await_change());
        }
        let config = json!({ "data": { "retention": prometheus.spec.retention } });
        let config = kit::child::<ConfigMap>(&*prometheus, &format!("{name}-config"), config);
        kit::ensure(client, config).await?;
        let mut annotations = Some(annotations(&prometheus.spec.pod_metadata));
        // The mend: the annotations are those of the spec at any time.
        if !self.fixed
            && let Some(known) = client.get::<StatefulSet>(namespace, name).await?
        {
            let template = known.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
            annotations = template.and_then(|template| template.annotations.clone());
        }
        let size = prometheus.spec.replicas;
        let mut set = kit::set(&*prometheus, "", size, "prometheus:2.52", Volumes::None);
        if let Some(spec) = &mut set.spec {
            spec.template.metadata.get_or_insert_default().annotations = annotations;
        }
        kit::ensure(client, set).await?;
        Ok(Action::await_change())
    }
}

fn annotations(pods: &PodMetadata) -> BTreeMap<String, String> {
    let tier = match pods.tier {
        Tier::Bronze => "bronze",
        Tier::Silver => "silver",
    };
    BTreeMap::from([
        ("example.com/mesh".to_owned(), pods.mesh.to_string()),
        ("example.com/tier".to_owned(), tier.to_owned()),
    ])
}
