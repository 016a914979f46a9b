//! rabbitmq/cluster-operator#653: the volumes of a broker grew from 10 to 15 GiB, for which the operator replaces the
//! StatefulSet. Then it restarted, its API server was behind and said 10 GiB, which is not what the StatefulSet has,
//! and the operator deleted the StatefulSet of a healthy broker. It asked whether the two sizes differ, although
//! volumes can only grow.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::kube::api::DeleteParams;
use kubewright::prelude::*;
use kubewright_testing::explore::Step;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::corpus::kit::{self, SOON, VERSION, Volumes, key};
use super::{Pair, Workload};

pub(super) const PAIR: Pair = Pair {
    name: "rabbitmq-653",
    operator,
    workload: Workload::Steps(steps),
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Broker", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct BrokerSpec {
    /// The size of each volume, in GiB.
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
    let size = |storage: i32| json!({ "spec": { "storage": storage } });
    vec![
        Step::apply("add a class of volumes that can grow", class),
        Step::apply("create the broker", broker),
        Step::merge("grow its volumes", VERSION, "Broker", "default", "mq", size(15)),
        Step::merge("grow them again", VERSION, "Broker", "default", "mq", size(20)),
    ]
}

struct Brokers {
    fixed: bool,
}

const TEMPLATE: &str = "/spec/volumeClaimTemplates/0/spec/resources/requests/storage";
const CLAIM: &str = "/spec/resources/requests/storage";

impl Reconciler for Brokers {
    type Object = Broker;

    async fn reconcile(&self, broker: Arc<Broker>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*broker));
        if kit::is_going(&*broker) {
            return Ok(Action::await_change());
        }
        let wanted = broker.spec.storage;
        let set = client.get::<StatefulSet>(namespace, name).await?;
        // The template of a set that is there cannot be changed.
        let mut size = wanted;
        if let Some(set) = &set {
            if kit::is_going(&**set) {
                return Ok(Action::requeue_after(SOON));
            }
            size = gibibytes(&**set, TEMPLATE)?;
            // The mend: a set is outgrown by a larger size alone.
            let is_outgrown = match self.fixed {
                true => size < wanted,
                false => size != wanted,
            };
            if is_outgrown {
                client.delete_with(set, DeleteParams::orphan()).await?;
                return Ok(Action::requeue_after(SOON));
            }
        }
        for claim in kit::cached::<PersistentVolumeClaim>(client, &*broker).await? {
            if gibibytes(&*claim, CLAIM)? < wanted && !kit::is_going(&*claim) {
                client.update(&resized((*claim).clone(), wanted)).await?;
            }
        }
        let mut servers = kit::set(&*broker, "", 2, "rabbitmq:3.8", Volumes::Owned);
        let templates = servers.spec.iter_mut();
        for claim in templates.flat_map(|spec| spec.volume_claim_templates.iter_mut().flatten()) {
            *claim = resized(claim.clone(), size);
            claim.spec.get_or_insert_default().storage_class_name = Some("growing".to_owned());
        }
        kit::ensure(client, servers).await?;
        Ok(Action::await_change())
    }
}

fn gibibytes<K: Object>(object: &K, at: &str) -> Result<i32> {
    let object = serde_json::to_value(object)?;
    let size = object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let number = size.strip_suffix("Gi").and_then(|number| number.parse().ok());
    number.ok_or_else(|| Error::retry(format!("{at} is {size:?}, which is no number of GiB")))
}

fn resized(mut claim: PersistentVolumeClaim, size: i32) -> PersistentVolumeClaim {
    let resources = claim.spec.get_or_insert_default().resources.get_or_insert_default();
    let requests = resources.requests.get_or_insert_default();
    requests.insert("storage".to_owned(), Quantity(format!("{size}Gi")));
    claim
}
