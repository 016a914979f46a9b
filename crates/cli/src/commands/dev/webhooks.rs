//! Webhooks without a certificate step: configurations that lead the API server to the operator on this machine, and a certificate that
//! they vouch for.
//!
//! The operator declares what it answers; where it listens is known here. [`configurations`] and [`convert`] are functions of the two. What
//! only matters in a cluster (the Service, its namespace, a URL of its own) is replaced by the address on this machine.

use std::collections::BTreeMap;
use std::path::Path;

use kubewright_codegen::Place;
use serde_json::{Map, Value, json};

use super::declaration::Declaration;
use super::objects::Item;

/// The path on which conversions are answered.
const CONVERT: &str = "/convert";
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
    !declaration.items("webhooks").is_empty() || !declaration.items("conversions").is_empty()
}

/// The configurations of the operator's admission webhooks.
pub(crate) fn configurations(declaration: &Declaration, address: &Address) -> Vec<Item> {
    let mut made: BTreeMap<(&str, String), Vec<Value>> = BTreeMap::new();
    for webhook in declaration.items("webhooks") {
        let (kind, usual) = match webhook["mutating"] == true {
            true => ("MutatingWebhookConfiguration", "mutating-webhook-configuration"),
            false => ("ValidatingWebhookConfiguration", "validating-webhook-configuration"),
        };
        let name = webhook["configurationName"].as_str().unwrap_or(usual).to_owned();
        made.entry((kind, name)).or_default().push(entry(webhook, address));
    }
    made.into_iter()
        .map(|((kind, name), webhooks)| Item {
            object: json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": name, "labels": {LABEL.0: LABEL.1}},
                "webhooks": webhooks,
            }),
            place: Place::file("src/webhook"),
        })
        .collect()
}

fn entry(webhook: &Value, address: &Address) -> Value {
    let kind = &webhook["for"];
    let resources = match &webhook["resources"] {
        Value::Null => json!([kind["plural"]]),
        resources => resources.clone(),
    };
    let verbs = webhook["verbs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let operations: Vec<String> = verbs.map(str::to_uppercase).collect();
    let mut entry = Map::new();
    let path = webhook["path"].as_str().unwrap_or_default();
    entry.insert("clientConfig".to_owned(), address.client_config(path));
    let rule = json!({
        "apiGroups": [kind["group"]], "apiVersions": [kind["version"]], "resources": resources, "operations": operations,
    });
    entry.insert("rules".to_owned(), json!([rule]));
    let given = [
        "name",
        "failurePolicy",
        "matchPolicy",
        "sideEffects",
        "timeoutSeconds",
        "reinvocationPolicy",
        "admissionReviewVersions",
    ];
    for field in given {
        if !webhook[field].is_null() {
            entry.insert(field.to_owned(), webhook[field].clone());
        }
    }
    for (field, value) in webhook["patch"].as_object().into_iter().flatten() {
        entry.insert(field.clone(), value.clone());
    }
    Value::Object(entry)
}

/// Lets the definitions of kinds that the operator converts ask it.
pub(crate) fn convert(definitions: &mut [Value], declaration: &Declaration, address: &Address) {
    for conversion in declaration.items("conversions") {
        let hub = &conversion["hub"];
        let of_hub = |definition: &&mut Value| {
            let spec = &definition["spec"];
            spec["group"] == hub["group"] && spec["names"]["kind"] == hub["kind"]
        };
        if let Some(definition) = definitions.iter_mut().find(of_hub) {
            definition["spec"]["conversion"] = json!({
                "strategy": "Webhook",
                "webhook": {"clientConfig": address.client_config(CONVERT), "conversionReviewVersions": ["v1"]},
            });
        }
    }
}

/// Makes an authority and a certificate for this machine, and writes `tls.crt` and `tls.key` into a private folder. Gives the authority.
///
/// # Errors
/// When the system has no entropy or the files cannot be written.
pub(crate) fn certify(folder: &Path) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.push(DnType::CommonName, "kubewright dev");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names)?.signed_by(&key, &authority)?;
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("tls.key"), key.serialize_pem())?;
    std::fs::write(folder.join("tls.crt"), certificate.pem())?;
    Ok(authority.pem())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declaration() -> Declaration {
        let guestbook = json!({"group": "webapp.my.domain", "version": "v1", "kind": "Guestbook", "plural": "guestbooks", "namespaced": true});
        let hook = |mutating: bool, path: &str| {
            json!({
                "for": guestbook, "mutating": mutating, "path": path, "name": "x.kb.io", "verbs": ["create", "update"],
                "failurePolicy": "Fail", "matchPolicy": null, "sideEffects": "None", "timeoutSeconds": null,
                "admissionReviewVersions": ["v1"], "resources": null, "serviceName": "elsewhere", "configurationName": null,
                "patch": {"objectSelector": {}},
            })
        };
        Declaration(json!({
            "declaration": 1,
            "webhooks": [hook(true, "/mutate"), hook(false, "/validate")],
            "conversions": [{"hub": guestbook, "spokes": []}],
        }))
    }

    fn address() -> Address {
        Address {
            port: 40443,
            authority: "PEM".into(),
        }
    }

    #[test]
    fn configurations_lead_to_this_machine() {
        let made: Vec<Value> = configurations(&declaration(), &address())
            .into_iter()
            .map(|item| item.object)
            .collect();
        assert_eq!(made.len(), 2);
        insta::assert_snapshot!(serde_json::to_string_pretty(&made[0]).unwrap(), @"");
    }

    #[test]
    fn only_kinds_that_are_converted_ask() {
        let crd = |kind: &str| json!({"spec": {"group": "webapp.my.domain", "names": {"kind": kind}}});
        let mut definitions = [crd("Guestbook"), crd("Other")];
        convert(&mut definitions, &declaration(), &address());
        let conversion = &definitions[0]["spec"]["conversion"];
        assert_eq!(
            conversion["webhook"]["clientConfig"]["url"],
            "https://127.0.0.1:40443/convert"
        );
        assert!(definitions[1]["spec"]["conversion"].is_null());
        assert!(any(&declaration()));
        assert!(!any(&Declaration(json!({}))));
    }

    #[test]
    fn a_certificate_is_written_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let authority = certify(&folder.path().join("certificates")).unwrap();
        assert!(authority.contains("BEGIN CERTIFICATE"));
        let key = std::fs::read_to_string(folder.path().join("certificates/tls.key")).unwrap();
        assert!(key.contains("PRIVATE KEY"));
    }
}
