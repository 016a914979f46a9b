//! The first objects of every namespace: the ServiceAccount `default`, and the cluster's root certificate.
//!
//! Both come back when they are deleted, and the ConfigMap when it is changed: its data is exactly the certificate, and
//! keys of other clients are removed. Nothing is made in a namespace that is being deleted.
//!
//! The publisher of the certificate is a controller of the metadata of ConfigMaps of one name: the garbage collector
//! watches that of all, and one watch serves both. If it asked for the data, the data of all would be sent and kept. A
//! namespace leads to the key of its ConfigMap, which is reconciled whether it exists or not. Not
//! here: tokens in Secrets (`token.rs`); those in pods are the API server's.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::kube::core::PartialObjectMeta;
use kubewright::{Action, Context, Controller, Error, Reconciler, Request, Result, Scope};
use kubewright_objects::api::core::v1::{ConfigMap, Namespace, ServiceAccount};

use super::RootCa;
use kubewright_objects::meta;

const ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
/// The annotation with the purpose of the ConfigMap.
const DESCRIPTION: &str = "kubernetes.io/description";

/// Nothing of its own: everything is in the objects.
pub(crate) struct ServiceAccountReconciler;

/// Gives every namespace its account.
pub(crate) fn accounts() -> Controller {
    Controller::of(ServiceAccountReconciler)
        .named("serviceaccount-controller")
        .watches::<ServiceAccount>(|account| {
            let namespace = account.metadata.namespace.as_deref();
            let ours = namespace.filter(|_| meta::name(&account.metadata) == ACCOUNT);
            ours.map(|namespace| Request::new(None, namespace))
                .into_iter()
                .collect()
        })
        .concurrency(4)
}

impl Reconciler for ServiceAccountReconciler {
    type Object = Namespace;

    async fn reconcile(&self, namespace: Arc<Namespace>, ctx: Context) -> Result<Action> {
        let (client, name) = (ctx.client(), ctx.request().name());
        let there = client.get::<ServiceAccount>(Some(name), ACCOUNT).await?.is_some();
        if !there && !meta::is_deleting(&namespace.metadata) {
            let metadata = in_namespace(name, ACCOUNT);
            created(
                client
                    .create(&ServiceAccount {
                        metadata,
                        ..ServiceAccount::default()
                    })
                    .await,
            )?;
        }
        Ok(Action::await_change())
    }
}

/// Knows where to find the cluster's certificate.
pub(crate) struct RootCaPublisher {
    root_ca: RootCa,
}

/// Gives every namespace the certificate.
pub(crate) fn root_ca(root_ca: RootCa) -> Controller {
    Controller::of(RootCaPublisher { root_ca })
        .named("root-ca-certificate-publisher")
        .within(Scope::all().fields(format!("metadata.name={ROOT_CA}")))
        .watches::<Namespace>(|namespace| vec![Request::new(Some(meta::name(&namespace.metadata)), ROOT_CA)])
        .concurrency(4)
}

impl RootCaPublisher {
    fn data(&self) -> Option<BTreeMap<String, String>> {
        Some(BTreeMap::from([("ca.crt".to_owned(), (self.root_ca)()?)]))
    }
}

impl Reconciler for RootCaPublisher {
    type Object = PartialObjectMeta<ConfigMap>;

    async fn reconcile(&self, known: Arc<PartialObjectMeta<ConfigMap>>, ctx: Context) -> Result<Action> {
        let Some(data) = self.data().filter(|_| !meta::is_deleting(&known.metadata)) else {
            return Ok(Action::await_change());
        };
        let namespace = known.metadata.namespace.as_deref();
        if let Some(mut present) = ctx.client().live::<ConfigMap>(namespace, ROOT_CA).await?
            && present.data.as_ref() != Some(&data)
        {
            (present.data, present.binary_data) = (Some(data), None);
            ctx.client().update(&present).await?;
        }
        Ok(Action::await_change())
    }

    async fn deleted(&self, request: Request, ctx: Context) -> Result<Action> {
        let (client, Some(name)) = (ctx.client(), request.namespace()) else {
            return Ok(Action::await_change());
        };
        let namespace = client.get::<Namespace>(None, name).await?;
        if let Some(data) = self.data()
            && namespace.is_some_and(|namespace| !meta::is_deleting(&namespace.metadata))
        {
            let mut metadata = in_namespace(name, ROOT_CA);
            let text = "The certificate of the authority that signs the API server's certificate, for clients inside the cluster.";
            metadata.annotations = Some(BTreeMap::from([(DESCRIPTION.to_owned(), text.to_owned())]));
            created(
                client
                    .create(&ConfigMap {
                        metadata,
                        data: Some(data),
                        ..ConfigMap::default()
                    })
                    .await,
            )?;
        }
        Ok(Action::await_change())
    }
}

/// It exists, whichever client created it, or it has no place any more because the deletion of the namespace began in
/// between.
fn created<K>(answer: Result<Arc<K>, Error>) -> Result<()> {
    match answer {
        Err(error) if !error.is_already_exists() && !super::is_namespace_going(&error) => Err(error),
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
