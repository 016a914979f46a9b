//! Tells the API server which certificate to trust: `caBundle` of everything that leads to this operator.
//!
//! Entries that lead here are found by the Service's namespace and the path, not by names of objects, which a
//! deployment chooses. Entries of other operators in the same configuration are left alone, and so is everything but
//! the bundle.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ServiceReference, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// The served webhooks and conversions.
#[derive(Clone)]
pub(crate) struct Served {
    /// The paths of webhooks and conversions.
    pub(crate) paths: Vec<String>,
    /// The definitions whose versions are converted.
    pub(crate) definitions: Vec<String>,
}

/// Who is called, and where.
#[derive(Clone)]
pub(super) struct Bundles {
    client: Client,
    namespace: String,
    served: Served,
}

impl Bundles {
    pub(super) fn new(client: Client, namespace: &str, served: Served) -> Bundles {
        Bundles {
            client,
            namespace: namespace.to_owned(),
            served,
        }
    }

    /// Puts the bundle everywhere where it is not yet. A conflict with another client's change is an error: the next
    /// look comes soon.
    pub(super) async fn write(&self, authorities: &str) -> Result<(), String> {
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let found = mutating.list(&ListParams::default()).await;
        for mut configuration in
            found.map_err(|error| format!("cannot list mutating webhook configurations: {error}"))?
        {
            let clients = configuration
                .webhooks
                .iter_mut()
                .flatten()
                .map(|webhook| &mut webhook.client_config);
            if self.put(clients, authorities) {
                replace(&mutating, &configuration).await?;
            }
        }
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let found = validating.list(&ListParams::default()).await;
        for mut configuration in
            found.map_err(|error| format!("cannot list validating webhook configurations: {error}"))?
        {
            let clients = configuration
                .webhooks
                .iter_mut()
                .flatten()
                .map(|webhook| &mut webhook.client_config);
            if self.put(clients, authorities) {
                replace(&validating, &configuration).await?;
            }
        }
        for name in &self.served.definitions {
            self.definition(name, authorities).await?;
        }
        Ok(())
    }

    /// Puts the bundle into the entries that lead here; whether anything changed.
    fn put<'a>(&self, clients: impl Iterator<Item = &'a mut WebhookClientConfig>, authorities: &str) -> bool {
        let mut is_changed = false;
        for client in clients {
            if self.leads_here(client) && !is(client.ca_bundle.as_ref(), authorities) {
                client.ca_bundle = Some(ByteString(authorities.as_bytes().to_vec()));
                is_changed = true;
            }
        }
        is_changed
    }

    fn leads_here(&self, client: &WebhookClientConfig) -> bool {
        let here = |service: &ServiceReference| {
            service.namespace == self.namespace
                && service
                    .path
                    .as_ref()
                    .is_some_and(|path| self.served.paths.contains(path))
        };
        client.service.as_ref().is_some_and(here)
    }

    async fn definition(&self, name: &str, authorities: &str) -> Result<(), String> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let found = api.get_opt(name).await;
        let Some(found) = found.map_err(|error| format!("cannot read the definition {name}: {error}"))? else {
            return Ok(()); // not installed yet; the next look comes soon
        };
        let client = found
            .spec
            .conversion
            .as_ref()
            .and_then(|conversion| conversion.webhook.as_ref());
        let Some(client) = client.and_then(|webhook| webhook.client_config.as_ref()) else {
            return Ok(());
        };
        let is_here = client
            .service
            .as_ref()
            .is_some_and(|service| service.namespace == self.namespace);
        if !is_here || is(client.ca_bundle.as_ref(), authorities) {
            return Ok(());
        }
        let bundle = ByteString(authorities.as_bytes().to_vec());
        let change = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}});
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
        patched.map_err(|error| format!("cannot write caBundle into the definition {name}: {error}"))?;
        tracing::info!(
            definition = name,
            "the API server is told whom to trust for conversions"
        );
        Ok(())
    }
}

/// Replaces a configuration, unless it has changed since it was read.
async fn replace<K>(api: &Api<K>, configuration: &K) -> Result<(), String>
where
    K: kube::Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let name = configuration.meta().name.clone().unwrap_or_default();
    let replaced = api.replace(&name, &PostParams::default(), configuration).await;
    replaced.map_err(|error| format!("cannot write caBundle into {name}: {error}"))?;
    tracing::info!(
        configuration = name,
        "the API server is told whom to trust for webhooks"
    );
    Ok(())
}

fn is(bundle: Option<&ByteString>, authorities: &str) -> bool {
    bundle.is_some_and(|bundle| bundle.0 == authorities.as_bytes())
}
