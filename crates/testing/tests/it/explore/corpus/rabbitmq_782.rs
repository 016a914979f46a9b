//! A volume grows by replacing the StatefulSet. The operator looks at the StatefulSet alone to learn whether it has to.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::kube::api::DeleteParams;
use kubewright::prelude::*;
use kubewright::workloads::Amount;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, SOON, VERSION, Volumes, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "rabbitmq-782",
    bug: "The volume is never resized if the operator dies after it deleted the StatefulSet.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        (
            "StatefulSet/mq",
            "/spec/volumeClaimTemplates/0/spec/resources/requests/storage",
            "\"15Gi\"",
        ),
        (
            "PersistentVolumeClaim/data-mq-0",
            "/spec/resources/requests/storage",
            "\"15Gi\"",
        ),
        (
            "PersistentVolumeClaim/data-mq-1",
            "/status/capacity/storage",
            "\"15Gi\"",
        ),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Broker", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct BrokerSpec {
    /// The size of each volume, in Gi.
    #[schemars(range(min = 1, max = 100), extend("x-kubernetes-validations" = [{"rule": "self >= oldSelf", "message": "volumes do not shrink"}]))]
    storage: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Brokers { fixed })
        .owns::<StatefulSet>()
        .watches(kit::of_app::<PersistentVolumeClaim>);
    Operator::new("rabbitmq").crd::<Broker>().controller(controller)
}

fn steps() -> Vec<Step> {
    let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "growing" },
        "provisioner": "kubewright.dev/simulated", "allowVolumeExpansion": true });
    let broker = json!({ "apiVersion": VERSION, "kind": "Broker",
        "metadata": { "name": "mq", "namespace": "default" }, "spec": { "storage": 10 } });
    vec![
        Step::apply("add a class of volumes that can grow", class),
        Step::apply("create the broker", broker),
        Step::merge(
            "grow its volumes",
            VERSION,
            "Broker",
            "default",
            "mq",
            json!({ "spec": { "storage": 15 } }),
        ),
    ]
}

struct Brokers {
    fixed: bool,
}

impl Reconciler for Brokers {
    type Object = Broker;

    async fn reconcile(&self, broker: Arc<Broker>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*broker));
        if kit::is_going(&*broker) {
            return Ok(Action::await_change());
        }
        let wanted = Quantity(format!("{}Gi", broker.spec.storage));
        let set = client.get::<StatefulSet>(namespace, name).await?;
        if set.as_ref().is_some_and(|set| kit::is_going(&**set)) {
            return Ok(Action::requeue_after(SOON));
        }
        let outgrown = match &set {
            Some(set) => size(template(set))? < Amount::of(&wanted)?,
            None => false,
        };
        if let Some(set) = set.as_ref().filter(|_| outgrown) {
            client.delete_with(&**set, DeleteParams::orphan()).await?;
        }
        // The mend: the claims themselves say whether they are too small.
        if outgrown || self.fixed {
            for claim in kit::cached::<PersistentVolumeClaim>(client, &*broker).await? {
                if size(Some(&*claim))? < Amount::of(&wanted)? {
                    client.update(&resized((*claim).clone(), &wanted)).await?;
                }
            }
        }
        if outgrown {
            return Ok(Action::requeue_after(SOON));
        }
        let mut wanted_set = kit::set(&*broker, "", 2, "rabbitmq:3.8", Volumes::Owned);
        if let Some(claim) = wanted_set
            .spec
            .iter_mut()
            .flat_map(|spec| spec.volume_claim_templates.iter_mut().flatten())
            .next()
        {
            // The template of a set that is there cannot be changed.
            let size = set.as_deref().and_then(template).and_then(requested).unwrap_or(&wanted);
            *claim = resized(claim.clone(), size);
            claim.spec.get_or_insert_default().storage_class_name = Some("growing".to_owned());
        }
        kit::ensure(client, wanted_set).await?;
        Ok(Action::await_change())
    }
}

fn template(set: &StatefulSet) -> Option<&PersistentVolumeClaim> {
    set.spec.as_ref()?.volume_claim_templates.as_ref()?.first()
}

fn requested(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim
        .spec
        .as_ref()?
        .resources
        .as_ref()?
        .requests
        .as_ref()?
        .get("storage")
}

fn size(claim: Option<&PersistentVolumeClaim>) -> Result<Amount> {
    claim.and_then(requested).map_or(Ok(Amount::default()), Amount::of)
}

fn resized(mut claim: PersistentVolumeClaim, size: &Quantity) -> PersistentVolumeClaim {
    let resources = claim.spec.get_or_insert_default().resources.get_or_insert_default();
    resources
        .requests
        .get_or_insert_default()
        .insert("storage".to_owned(), size.clone());
    claim
}
