//! Tells the API server which certificate to trust: `caBundle` of everything that leads to this operator.
//!
//! Entries that lead here are found by the Service's namespace and the path, not by names of objects, which a
//! deployment chooses. Invariants: what is written is the bundle of an entry that leads here, and nothing else, guarded
//! by the entry's name and Service: entries of other operators in the same configuration, and fields that this program
//! does not know, are left alone; configurations are watched and not listed again and again.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::cache::{Informer, Scope};
use crate::client::Client;
use crate::object::api_resource;

/// The served webhooks and conversions.
#[derive(Clone)]
pub(crate) struct Served {
    /// The paths of webhooks and conversions.
    pub(crate) paths: Vec<String>,
    /// The definitions whose versions are converted.
    pub(crate) definitions: Vec<String>,
}

/// Who is called, and where.
pub(super) struct Bundles {
    client: Client,
    namespace: String,
    served: Served,
    /// Of both kinds of configurations, from the first look on.
    configurations: Vec<Informer<DynamicObject>>,
}

impl Bundles {
    pub(super) fn new(client: Client, namespace: &str, served: Served) -> Bundles {
        Bundles {
            client,
            namespace: namespace.to_owned(),
            served,
            configurations: Vec::new(),
        }
    }

    /// Puts the bundle everywhere where it is not yet. An entry that another client changes meanwhile is an error: the
    /// next look comes soon.
    pub(super) async fn write(&mut self, authorities: &str) -> Result<(), String> {
        let bundle = json!(ByteString(authorities.as_bytes().to_vec()));
        if self.configurations.is_empty() {
            let kinds = [
                api_resource::<MutatingWebhookConfiguration>(),
                api_resource::<ValidatingWebhookConfiguration>(),
            ];
            let watched = |kind: &ApiResource| self.client.cache().informer_dynamic(kind, Scope::all());
            self.configurations = kinds.iter().map(watched).collect();
        }
        for configurations in &self.configurations {
            let synced = configurations.synced_within(super::DEADLINE).await;
            synced.map_err(|error| format!("cannot watch webhook configurations: {error}"))?;
            for configuration in configurations.store().list() {
                let changes = self.changes(&configuration, &bundle);
                if !changes.is_empty() {
                    self.patch(configurations.resource(), &configuration, changes).await?;
                }
            }
        }
        for name in &self.served.definitions {
            self.definition(name, &bundle).await?;
        }
        Ok(())
    }

    /// The operations of a JSON patch that puts the bundle into the entries that lead here.
    fn changes(&self, configuration: &DynamicObject, bundle: &Value) -> Vec<Value> {
        let entries = configuration.data["webhooks"].as_array();
        let mut operations = Vec::new();
        for (index, entry) in entries.into_iter().flatten().enumerate() {
            let client = &entry["clientConfig"];
            if !self.leads_here(client) || client["caBundle"] == *bundle {
                continue;
            }
            let at = |field: &str| format!("/webhooks/{index}/{field}");
            let client = |field: &str| at(&format!("clientConfig/{field}"));
            operations.extend([
                json!({"op": "test", "path": at("name"), "value": entry["name"]}),
                json!({"op": "test", "path": client("service"), "value": entry["clientConfig"]["service"]}),
                json!({"op": "add", "path": client("caBundle"), "value": bundle}),
            ]);
        }
        operations
    }

    fn leads_here(&self, client: &Value) -> bool {
        let service = &client["service"];
        let is_served = |path: &str| self.served.paths.iter().any(|served| served == path);
        service["namespace"] == self.namespace.as_str() && service["path"].as_str().is_some_and(is_served)
    }

    async fn patch(
        &self,
        resource: &ApiResource,
        configuration: &DynamicObject,
        changes: Vec<Value>,
    ) -> Result<(), String> {
        let name = configuration.metadata.name.as_deref().unwrap_or_default();
        let patched = self.client.patch_json(resource, name, &Value::Array(changes)).await;
        patched.map_err(|error| format!("cannot write caBundle into {name}: {error}"))?;
        tracing::info!(
            configuration = name,
            "the API server is told whom to trust for webhooks"
        );
        Ok(())
    }

    async fn definition(&self, name: &str, bundle: &Value) -> Result<(), String> {
        let found = self.client.live::<CustomResourceDefinition>(None, name).await;
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
        if !is_here || json!(client.ca_bundle) == *bundle {
            return Ok(());
        }
        let change = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}});
        let patched = self
            .client
            .patch::<CustomResourceDefinition, _>(None, name, &Patch::Merge(change))
            .await;
        patched.map_err(|error| format!("cannot write caBundle into the definition {name}: {error}"))?;
        tracing::info!(
            definition = name,
            "the API server is told whom to trust for conversions"
        );
        Ok(())
    }
}
