//! Two Secrets belong together. The operator looks for the first to learn whether it has to make both.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, Volumes, key};
use super::{Case, Ends, Step};

pub(super) const CASE: Case = Case {
    name: "cass-operator-1023",
    bug: "The pods never start, because a Secret is missing, if the operator dies between the first Secret and the second.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    expected: &[
        ("Secret/dc-ca-keystore", "", ""),
        ("Secret/dc-keystore", "", ""),
        ("StatefulSet/dc", "/status/readyReplicas", "1"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Datacenter", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct DatacenterSpec {
    #[schemars(range(min = 1, max = 3))]
    size: i32,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Datacenters { fixed })
        .owns::<Secret>()
        .owns::<StatefulSet>();
    Operator::new("cass").crd::<Datacenter>().controller(controller)
}

fn steps() -> Vec<Step> {
    let datacenter = json!({ "apiVersion": VERSION, "kind": "Datacenter",
        "metadata": { "name": "dc", "namespace": "default" }, "spec": { "size": 1 } });
    vec![
        Step::apply("create the datacenter", datacenter.clone()),
        Step::delete("delete it", VERSION, "Datacenter", "default", "dc"),
        Step::apply("create it again", datacenter),
    ]
}

struct Datacenters {
    fixed: bool,
}

impl Reconciler for Datacenters {
    type Object = Datacenter;

    async fn reconcile(&self, datacenter: Arc<Datacenter>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*datacenter));
        if kit::is_going(&*datacenter) {
            return Ok(Action::await_change());
        }
        let ca = format!("{name}-ca-keystore");
        let authority = kit::child::<Secret>(&*datacenter, &ca, json!({ "data": { "ca": "Y2E=" } }));
        let signed = json!({ "data": { "node-keystore.jks": "c2lnbmVk" } });
        let keystore = kit::child::<Secret>(&*datacenter, &format!("{name}-keystore"), signed);
        // The mend: each of them is looked for.
        let is_new = client.get::<Secret>(namespace, &ca).await?.is_none();
        if is_new || self.fixed {
            kit::ensure(client, authority).await?;
            kit::ensure(client, keystore).await?;
        }
        let mut set = kit::set(&*datacenter, "", datacenter.spec.size, "cassandra:3.11", Volumes::None);
        if let Some(pod) = set.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()) {
            let volume = json!([{ "name": "encryption", "secret": { "secretName": format!("{name}-keystore") } }]);
            pod.volumes = serde_json::from_value(volume).expect("volumes");
        }
        kit::ensure(client, set).await?;
        Ok(Action::await_change())
    }
}
