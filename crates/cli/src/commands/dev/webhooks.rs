//! Webhooks without a certificate step: the configurations that `manifests` would write lead to a Service in a cluster;
//! here they are led to the operator on this machine, with a certificate that they vouch for.

use kubewright_codegen::manifests::Declaration;
use serde_json::{Value, json};

/// Marks the configurations that `dev` made, so that those of webhooks that are gone can be found.
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

/// Whether the operator serves anything that needs a certificate.
pub(crate) fn any(declaration: &Declaration) -> bool {
    !declaration.webhooks.is_empty() || !declaration.conversions.is_empty()
}

/// Leads a webhook configuration to the operator on this machine, and marks it.
pub(crate) fn lead_here(configuration: &mut Value, address: &Address) {
    configuration["metadata"]["labels"][LABEL.0] = LABEL.1.into();
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        lead_client(&mut webhook["clientConfig"], address);
    }
}

/// Lets a definition whose versions the operator converts ask it on this machine; without an address they are not
/// converted.
pub(crate) fn convert_here(definition: &mut Value, address: Option<&Address>) {
    let Some(spec) = definition["spec"].as_object_mut() else {
        return;
    };
    match (spec.get_mut("conversion"), address) {
        (Some(conversion), Some(address)) if conversion["strategy"] == "Webhook" => {
            lead_client(&mut conversion["webhook"]["clientConfig"], address);
        }
        (_, Some(_)) => {}
        (_, None) => drop(spec.remove("conversion")),
    }
}

/// A Service is the operator's own, which is here now; a URL was given by a person and stays.
fn lead_client(client: &mut Value, address: &Address) {
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
    fn configurations_lead_to_this_machine() {
        let mut configuration = json!({
            "metadata": {"name": "mutating-webhook-configuration"},
            "webhooks": [
                {"name": "ours", "clientConfig": {"service": {"name": "webhook-service", "namespace": "system", "path": "/mutate-v1"}}},
                {"name": "elsewhere", "clientConfig": {"url": "https://hooks.example.com/x"}},
            ],
        });
        lead_here(&mut configuration, &address());
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
    fn only_kinds_that_are_converted_ask() {
        let service = json!({"service": {"name": "webhook-service", "namespace": "system", "path": "/convert"}});
        let converted = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": service}}}});
        let mut here = converted.clone();
        convert_here(&mut here, Some(&address()));
        let client = &here["spec"]["conversion"]["webhook"]["clientConfig"];
        assert_eq!(client["url"], "https://127.0.0.1:40443/convert");
        let mut elsewhere = converted;
        convert_here(&mut elsewhere, None);
        assert_eq!(elsewhere, json!({"spec": {}}));
        let mut plain = json!({"spec": {"group": "a"}});
        convert_here(&mut plain, Some(&address()));
        assert_eq!(plain, json!({"spec": {"group": "a"}}));

        let declared = |json| any(&serde_json::from_value(json).unwrap());
        assert!(declared(json!({"webhooks": [{}]})));
        assert!(declared(json!({"conversions": [{}]})));
        assert!(!declared(json!({})));
    }
}
