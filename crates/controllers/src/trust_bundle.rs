//! The ClusterTrustBundle of the signer `kubernetes.io/kube-apiserver-serving` (from Kubernetes 1.37 on): the certificate
//! of the authority that signs the API server's.
//!
//! Its name has the digest of its text; those of other texts are deleted. It comes back when it is deleted or changed.
//! Upstream: `clustertrustbundlepublisher`. Not here: the same certificate as a ConfigMap in each namespace
//! (`serviceaccount.rs`).

use std::fmt::Write as _;
use std::sync::Arc;

use kubewright::kube::core::ObjectMeta;
use kubewright::{Action, Context, Controller, Reconciler, Request, Result, Scope};
use kubewright_objects::api::certificates::v1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use kubewright_objects::api::core::v1::Namespace;
use sha2::{Digest as _, Sha256};

use super::RootCa;
use kubewright_objects::meta;

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
/// A namespace that every cluster has: publishing begins with it.
const SYSTEM: &str = "kube-system";

/// Knows where to find the cluster's certificate.
pub(crate) struct TrustBundlePublisher(RootCa);

/// The controller of the bundles of [`SIGNER`].
pub(crate) fn controller(root_ca: RootCa) -> Controller {
    let of_namespace = root_ca.clone();
    Controller::of(TrustBundlePublisher(root_ca))
        .named("kube-apiserver-serving-clustertrustbundle-publisher")
        .within(Scope::all().fields(format!("spec.signerName={SIGNER}")))
        .watches::<Namespace>(move |namespace| {
            let text = of_namespace().filter(|_| meta::name(&namespace.metadata) == SYSTEM);
            text.map(|text| Request::new(None, &name_of(&text)))
                .into_iter()
                .collect()
        })
}

/// `constructBundleName`.
fn name_of(text: &str) -> String {
    let mut name = format!("{}:", SIGNER.replace('/', ":"));
    for byte in &Sha256::digest(text)[..12] {
        write!(name, "{byte:02x}").expect("a string takes everything");
    }
    name
}

impl TrustBundlePublisher {
    async fn publish(&self, ctx: &Context) -> Result<Action> {
        let client = ctx.client();
        let Some(text) = (self.0)() else {
            return Ok(Action::await_change());
        };
        let name = name_of(&text);
        let (wanted, others): (Vec<_>, Vec<_>) = client
            .list::<ClusterTrustBundle>(None)
            .await?
            .into_iter()
            .filter(|bundle| bundle.spec.signer_name.as_deref() == Some(SIGNER))
            .partition(|bundle| meta::name(&bundle.metadata) == name);
        match wanted.first() {
            Some(present) if present.spec.trust_bundle == text => {}
            Some(present) => {
                let mut next = (**present).clone();
                next.spec.trust_bundle = text;
                client.update(&next).await?;
            }
            None => {
                let metadata = ObjectMeta {
                    name: Some(name),
                    ..ObjectMeta::default()
                };
                let spec = ClusterTrustBundleSpec {
                    signer_name: Some(SIGNER.to_owned()),
                    trust_bundle: text,
                };
                client.create(&ClusterTrustBundle { metadata, spec }).await?;
            }
        }
        for other in others {
            client.delete(&*other).await?;
        }
        Ok(Action::await_change())
    }
}

impl Reconciler for TrustBundlePublisher {
    type Object = ClusterTrustBundle;

    async fn reconcile(&self, _: Arc<ClusterTrustBundle>, ctx: Context) -> Result<Action> {
        self.publish(&ctx).await
    }

    async fn deleted(&self, _: Request, ctx: Context) -> Result<Action> {
        self.publish(&ctx).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_has_the_digest_of_the_text() {
        assert_eq!(
            name_of("text"),
            "kubernetes.io:kube-apiserver-serving:982d9e3eb996f559e633f4d1"
        );
    }
}
