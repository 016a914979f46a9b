//! prometheus-operator/prometheus-operator#2950: the claims of a StatefulSet cannot be changed, so the operator
//! deletes the StatefulSet and makes it anew when they are to be others. It compared what it wants with what the API
//! server keeps, which fills in and drops fields of its own: the two never were the same, and the StatefulSet was
//! deleted again and again, as soon as its pods came up.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::corpus::kit::{self, SOON, Volumes, key};
use super::{Pair, Workload, newest};

pub(super) const PAIR: Pair = Pair {
    name: "prometheus-operator-2950",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Prometheus
metadata: {name: prom}
spec: {retention: day}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Prometheus", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct PrometheusSpec {
    retention: Retention,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Retention {
    Day,
    Week,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Servers { fixed }).owns::<StatefulSet>();
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
        let wanted = servers(&prometheus);
        if let Some(known) = client.get::<StatefulSet>(namespace, name).await? {
            if kit::is_going(&*known) {
                return Ok(Action::requeue_after(SOON));
            }
            if !self.has_claims(&known, &wanted) {
                newest(client, &*prometheus).await?;
                client.delete(&known).await?;
                return Ok(Action::requeue_after(SOON));
            }
        }
        kit::ensure(client, wanted).await?;
        Ok(Action::await_change())
    }
}

impl Servers {
    /// Whether the claims of a set are the wanted ones.
    fn has_claims(&self, known: &StatefulSet, wanted: &StatefulSet) -> bool {
        let (known, wanted) = (claims(known), claims(wanted));
        // The mend: what we ask for is compared, and nothing else.
        match self.fixed {
            true => known.iter().map(asked).eq(wanted.iter().map(asked)),
            false => known == wanted,
        }
    }
}

fn claims(set: &StatefulSet) -> Vec<PersistentVolumeClaim> {
    let spec = set.spec.as_ref();
    spec.and_then(|spec| spec.volume_claim_templates.clone())
        .unwrap_or_default()
}

/// The fields that we set.
fn asked(claim: &PersistentVolumeClaim) -> PersistentVolumeClaimSpec {
    let spec = claim.spec.clone().unwrap_or_default();
    PersistentVolumeClaimSpec {
        access_modes: spec.access_modes,
        resources: spec.resources,
        ..PersistentVolumeClaimSpec::default()
    }
}

/// The servers start again with another retention.
fn servers(prometheus: &Prometheus) -> StatefulSet {
    let mut set = kit::set(prometheus, "", 2, "prometheus:2.15", Volumes::Owned);
    let days = match prometheus.spec.retention {
        Retention::Day => "1d",
        Retention::Week => "7d",
    };
    if let Some(spec) = &mut set.spec {
        let template = spec.template.metadata.get_or_insert_default();
        let annotations = template.annotations.get_or_insert_default();
        annotations.insert("example.com/retention".to_owned(), days.to_owned());
    }
    set
}
