//! What every namespace has from its first moment: the ServiceAccount `default`, and the cluster's root certificate.
//!
//! Both come back when they are deleted, and the ConfigMap when it is changed: its data is exactly the certificate, whatever else somebody
//! puts beside it. Nothing is made in a namespace that is being deleted.
//! Not here: tokens. Pods get none, and Secrets of type service-account-token are not filled.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubewright::k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::{Action, Context, Controller, Error, Reconciler, Request, Result};

use super::{RootCa, meta};

const ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
/// The annotation that says what the ConfigMap is for.
const DESCRIPTION: &str = "kubernetes.io/description";

/// Knows where to find the cluster's certificate.
pub(crate) struct ServiceAccountReconciler {
    root_ca: RootCa,
}

/// The controller, ready to be added to a manager.
pub(crate) fn controller(root_ca: RootCa) -> Controller {
    Controller::of(ServiceAccountReconciler { root_ca })
        .named("serviceaccount-controller")
        .watches::<ServiceAccount>(|account| its_namespace(&account.metadata, ACCOUNT))
        .watches::<ConfigMap>(|config| its_namespace(&config.metadata, ROOT_CA))
        .concurrency(4)
}

fn its_namespace(meta: &ObjectMeta, name: &str) -> Vec<Request> {
    let namespace = meta.namespace.as_deref().filter(|_| meta::name(meta) == name);
    namespace
        .map(|namespace| Request::new(None, namespace))
        .into_iter()
        .collect()
}

impl Reconciler for ServiceAccountReconciler {
    type Object = Namespace;

    async fn reconcile(&self, namespace: Arc<Namespace>, ctx: Context) -> Result<Action> {
        if meta::is_deleting(&namespace.metadata) {
            return Ok(Action::await_change());
        }
        let done = async {
            ensure_account(&ctx).await?;
            match (self.root_ca)() {
                Some(certificate) => ensure_certificate(&ctx, &certificate).await,
                None => Ok(()),
            }
        };
        match done.await {
            // Deletion began in between.
            Err(error) if super::is_namespace_going(&error) => Ok(Action::await_change()),
            done => done.map(|()| Action::await_change()),
        }
    }
}

async fn ensure_account(ctx: &Context) -> Result<()> {
    let (client, namespace) = (ctx.client(), ctx.request().name());
    if client.get::<ServiceAccount>(Some(namespace), ACCOUNT).await?.is_some() {
        return Ok(());
    }
    let account = ServiceAccount {
        metadata: in_namespace(namespace, ACCOUNT),
        ..ServiceAccount::default()
    };
    there(client.create(&account).await)
}

async fn ensure_certificate(ctx: &Context, certificate: &str) -> Result<()> {
    let (client, namespace) = (ctx.client(), ctx.request().name());
    let data = BTreeMap::from([("ca.crt".to_owned(), certificate.to_owned())]);
    match client.get::<ConfigMap>(Some(namespace), ROOT_CA).await? {
        Some(present) if present.data.as_ref() == Some(&data) => Ok(()),
        Some(present) => {
            let mut wanted = (*present).clone();
            wanted.data = Some(data);
            client.update(&wanted).await.map(drop)
        }
        None => {
            let mut metadata = in_namespace(namespace, ROOT_CA);
            let text = "The certificate authority that signs the certificates of the API server, for clients inside the cluster.";
            metadata.annotations = Some(BTreeMap::from([(DESCRIPTION.to_owned(), text.to_owned())]));
            there(
                client
                    .create(&ConfigMap {
                        metadata,
                        data: Some(data),
                        ..ConfigMap::default()
                    })
                    .await,
            )
        }
    }
}

/// Whoever made it: it is there.
fn there<K>(created: Result<Arc<K>, Error>) -> Result<()> {
    match created {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

fn in_namespace(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectMeta::default()
    }
}
