//! Routes webhooks to the operator on this machine: the configurations that `manifests` writes name a Service in the
//! cluster; here they get a URL and the certificate of its authority instead.

use kubewright_codegen::manifests::Declaration;
use serde_json::{Value, json};

/// The label of the objects that `dev` made, by which those of earlier builds are pruned.
pub(crate) const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "kubewright-dev");

/// Where the operator's webhooks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) port: u16,
    /// The certificate of the authority, in PEM.
    pub(crate) authority: String,
}

impl Address {
    fn client_config(&self, path: &str) -> Value {
        use base64::Engine as _;
        let bundle = base64::prelude::BASE64_STANDARD.encode(&self.authority);
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": bundle})
    }
}

/// Whether the operator serves webhooks or conversions, which need a certificate.
pub(crate) fn has_webhooks(declaration: &Declaration) -> bool {
    !declaration.webhooks.is_empty() || !declaration.conversions.is_empty()
}

/// Routes a webhook configuration to the operator on this machine, and labels it.
pub(crate) fn route_to_operator(configuration: &mut Value, address: &Address) {
    configuration["metadata"]["labels"][LABEL.0] = LABEL.1.into();
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        route_client(&mut webhook["clientConfig"], address);
    }
}

/// Routes the conversion of a definition to the operator on this machine; without an address there is no conversion.
pub(crate) fn route_conversion(definition: &mut Value, address: Option<&Address>) {
    let Some(spec) = definition["spec"].as_object_mut() else {
        return;
    };
    match (spec.get_mut("conversion"), address) {
        (Some(conversion), Some(address)) if conversion["strategy"] == "Webhook" => {
            route_client(&mut conversion["webhook"]["clientConfig"], address);
        }
        (_, Some(_)) => {}
        (_, None) => drop(spec.remove("conversion")),
    }
}

/// A Service is the operator's own, and is replaced; a URL was written by a person, and stays.
fn route_client(client: &mut Value, address: &Address) {
    if client["url"].is_null() {
        let path = client["service"]["path"].as_str().unwrap_or("/").to_owned();
        *client = address.client_config(&path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        Address {
            port: 40443,
            authority: "PEM".into(),
        }
    }

    #[test]
    fn configurations_are_routed_to_this_machine() {
        let mut configuration = json!({
            "metadata": {"name": "mutating-webhook-configuration"},
            "webhooks": [
                {"name": "ours", "clientConfig": {"service": {"name": "webhook-service", "namespace": "system", "path": "/mutate-v1"}}},
                {"name": "elsewhere", "clientConfig": {"url": "https://hooks.example.com/x"}},
            ],
        });
        route_to_operator(&mut configuration, &address());
        assert_eq!(
            configuration,
            json!({
                "metadata": {"name": "mutating-webhook-configuration", "labels": {LABEL.0: LABEL.1}},
                "webhooks": [
                    {"name": "ours", "clientConfig": {"url": "https://127.0.0.1:40443/mutate-v1", "caBundle": "UEVN"}},
                    {"name": "elsewhere", "clientConfig": {"url": "https://hooks.example.com/x"}},
                ],
            })
        );
    }

    #[test]
    fn only_definitions_with_conversion_are_routed() {
        let service = json!({"service": {"name": "webhook-service", "namespace": "system", "path": "/convert"}});
        let converted = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": service}}}});
        let mut here = converted.clone();
        route_conversion(&mut here, Some(&address()));
        let client = &here["spec"]["conversion"]["webhook"]["clientConfig"];
        assert_eq!(client["url"], "https://127.0.0.1:40443/convert");
        let mut elsewhere = converted;
        route_conversion(&mut elsewhere, None);
        assert_eq!(elsewhere, json!({"spec": {}}));
        let mut plain = json!({"spec": {"group": "a"}});
        route_conversion(&mut plain, Some(&address()));
        assert_eq!(plain, json!({"spec": {"group": "a"}}));

        let declared = |json| has_webhooks(&serde_json::from_value(json).unwrap());
        assert!(declared(json!({"webhooks": [{}]})));
        assert!(declared(json!({"conversions": [{}]})));
        assert!(!declared(json!({})));
    }
}
