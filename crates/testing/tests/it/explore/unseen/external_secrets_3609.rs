//! external-secrets/external-secrets#3609: a PushSecret whose copy in the other system is to be deleted with it gets a
//! finalizer. The user changed that policy, and the finalizer stayed. When the PushSecret was deleted, the operator
//! looked at the policy, found nothing to do, and so did not take its finalizer away: the object could not be deleted.
//! Here a switch stands for the policy: while it is off there is no copy.

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::corpus::kit::{self, key};
use super::{Pair, Workload, elsewhere, newest, of_elsewhere};

pub(super) const PAIR: Pair = Pair {
    name: "external-secrets-3609",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: PushSecret
metadata: {name: token}
spec: {push: true, value: alpha}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "PushSecret", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct PushSecretSpec {
    /// Whether the other system has a copy, as long as this object exists.
    push: bool,
    value: String,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(PushSecrets { fixed }).watches(of_elsewhere);
    Operator::new("push").crd::<PushSecret>().controller(controller)
}

struct PushSecrets {
    fixed: bool,
}

impl Reconciler for PushSecrets {
    type Object = PushSecret;

    async fn reconcile(&self, secret: Arc<PushSecret>, ctx: Context) -> Result<Action> {
        let client = ctx.client();
        let copy = elsewhere(&*secret, "copy", &json!({ "value": secret.spec.value }));
        let (place, name) = key(&copy);
        let (pushes, is_held) = (secret.spec.push, kit::is_held(&*secret));
        if kit::is_going(&*secret) || !pushes {
            if is_held || client.get::<ConfigMap>(place, name).await?.is_some() {
                newest(client, &*secret).await?;
                if let Some(copy) = client.live::<ConfigMap>(place, name).await? {
                    client.delete(&copy).await?;
                }
                // The mend: the finalizer goes when there is no copy, for whichever reason.
                if is_held && (pushes || self.fixed) {
                    kit::release(client, &*secret).await?;
                }
            }
            return Ok(Action::await_change());
        }
        if !is_held {
            kit::hold(client, &*secret).await?;
            return Ok(Action::await_change());
        }
        if client.get::<ConfigMap>(place, name).await?.is_none() {
            newest(client, &*secret).await?;
        }
        kit::ensure(client, copy).await?;
        Ok(Action::await_change())
    }
}
