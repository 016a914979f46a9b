//! cert-manager/cert-manager#9097 (August 2026): while a certificate is issued, its new private key is in a Secret
//! with a generated name, which the status remembers; Secrets with other keys are deleted. A reconcile whose cache was
//! behind took the name in the status from the cache, and deleted the key that a request had just been signed with.

use k8s_openapi::api::core::v1::Secret;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::corpus::kit::{self, key};
use super::{Pair, Workload};

pub(super) const PAIR: Pair = Pair {
    name: "cert-manager-9097",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Certificate
metadata: {name: web}
spec: {algorithm: rsa}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Certificate",
    namespaced,
    status = "CertificateStatus"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct CertificateSpec {
    /// Another algorithm needs another key.
    algorithm: Algorithm,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Algorithm {
    Rsa,
    Ecdsa,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CertificateStatus {
    /// The Secret with the key of the certificate that is being issued.
    next_private_key_secret_name: String,
}

const ALGORITHM: &str = "algorithm";

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Certificates { fixed }).owns::<Secret>();
    Operator::new("certificates")
        .crd::<Certificate>()
        .controller(controller)
}

struct Certificates {
    fixed: bool,
}

impl Reconciler for Certificates {
    type Object = Certificate;

    async fn reconcile(&self, certificate: Arc<Certificate>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*certificate));
        // The mend: the API server says which key is in use.
        let known = match self.fixed {
            true => client.live::<Certificate>(namespace, name).await?.map(Arc::new),
            false => Some(certificate.clone()),
        };
        let uid = &certificate.metadata.uid;
        let Some(known) = known.filter(|known| known.metadata.uid == *uid && !kit::is_going(&**known)) else {
            return Ok(Action::await_change());
        };
        let algorithm = match known.spec.algorithm {
            Algorithm::Rsa => "rsa",
            Algorithm::Ecdsa => "ecdsa",
        };
        let next = known.status.clone().unwrap_or_default().next_private_key_secret_name;
        let mut suits = false;
        // There are too many Secrets in a cluster for a cache.
        for secret in kit::live::<Secret>(client, &*known).await? {
            let owners = secret.metadata.owner_references.iter().flatten();
            if !owners.into_iter().any(|owner| Some(&owner.uid) == uid.as_ref()) {
                continue;
            }
            if key(&*secret).1 == next {
                let labels = secret.metadata.labels.as_ref();
                let made_with = labels.and_then(|labels| labels.get(ALGORITHM));
                suits = made_with.is_some_and(|made_with| made_with == algorithm);
            } else if !kit::is_going(&*secret) {
                client.delete(&secret).await?;
            }
        }
        if !suits {
            let body = json!({ "metadata": { "labels": { ALGORITHM: algorithm } }, "data": { "tls.key": "a2V5" } });
            let mut secret: Secret = kit::child(&*known, name, body);
            secret.metadata.generate_name = secret.metadata.name.take().map(|name| name + "-");
            let secret = client.create(&secret).await?;
            let mut certificate = (*known).clone();
            certificate.status = Some(CertificateStatus {
                next_private_key_secret_name: key(&*secret).1.to_owned(),
            });
            client.update_status(&certificate).await?;
        }
        Ok(Action::await_change())
    }
}
