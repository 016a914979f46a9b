//! The definitions that a cluster has against those of `config/crd/bases`: an operator that is newer than its
//! definitions loses fields without a word, because the API server drops what a schema does not know.
//!
//! Additions of the server or a deployment (defaults, the Service of a conversion) are no difference; within a schema
//! every change is.

use std::path::Path;

use kubewright::kube::api::{Api, ApiResource, DynamicObject};
use kubewright::kube::{Client, Error};
use kubewright_codegen::{codes, manifests};
use serde_json::Value;

use super::{Check, Status};
use crate::commands::dev::objects;
use crate::errors::chain;

/// Differences that are named; further ones are counted.
const NAMED: usize = 3;

/// Looks at every definition of the project.
pub(super) async fn installed(root: &Path, client: &Client) -> Vec<Check> {
    let ours = match objects::read(root, manifests::CRDS, codes::files::IO) {
        Ok(ours) => ours,
        Err(why) => return vec![Check::of("definitions", Status::Bad, why)],
    };
    let resource = ApiResource {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "apiextensions.k8s.io/v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut checks = Vec::new();
    for item in &ours {
        let theirs = api.get_opt(item.plain_name()).await;
        checks.extend(rate(item.plain_name(), &item.object["spec"], &theirs));
    }
    if checks.is_empty() && !ours.is_empty() {
        let found = format!("{}, installed as in {}", ours.len(), manifests::CRDS);
        checks.push(Check::good("definitions", found));
    }
    checks
}

/// `None`: as it should be.
fn rate(name: &str, ours: &Value, theirs: &Result<Option<DynamicObject>, Error>) -> Option<Check> {
    let remark = |found: String| Some(Check::remark("definitions", found));
    match theirs {
        Err(why) => remark(format!("{name} cannot be looked at: {}", chain(why))),
        Ok(None) => remark(format!("{name} is not installed")).map(|check| check.fix("kubewright install")),
        Ok(Some(theirs)) => {
            let mut found = Vec::new();
            compare("spec", ours, &theirs.data["spec"], false, &mut found);
            if found.is_empty() {
                return None;
            }
            let more = match found.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            found.truncate(NAMED);
            remark(format!(
                "the cluster's {name} is not that of {}: {}{more}",
                manifests::CRDS,
                found.join(", ")
            ))
            .map(|check| check.code(codes::machine::STALE).fix("kubewright install"))
        }
    }
}

/// Values that a server leaves out when it writes an object.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(meant) => !meant,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    }
}

/// Collects the paths at which the two differ. `exact`: fields that only the cluster has count, too.
fn compare(path: &str, ours: &Value, theirs: &Value, exact: bool, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(_)) if path.ends_with(".clientConfig") && ours.contains_key("service") => {}
        (Value::Object(ours), Value::Object(theirs)) => {
            for (key, value) in ours {
                let at = format!("{path}.{key}");
                match theirs.get(key) {
                    Some(other) => compare(&at, value, other, exact || key == "openAPIV3Schema", found),
                    None if is_nothing(value) => {}
                    None => found.push(at),
                }
            }
            let theirs_alone = theirs
                .iter()
                .filter(|(key, value)| !ours.contains_key(*key) && !is_nothing(value));
            found.extend(theirs_alone.filter(|_| exact).map(|(key, _)| format!("{path}.{key}")));
        }
        (Value::Array(ours), Value::Array(theirs)) if path == "spec.versions" => versions(ours, theirs, found),
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                compare(&format!("{path}[{at}]"), ours, theirs, exact, found);
            }
        }
        (Value::Number(ours), Value::Number(theirs)) if ours.as_f64() == theirs.as_f64() => {}
        _ if ours == theirs => {}
        _ => found.push(path.to_owned()),
    }
}

/// Versions go by their names.
fn versions(ours: &[Value], theirs: &[Value], found: &mut Vec<String>) {
    let named = |versions: &[Value], name: &Value| versions.iter().find(|version| version["name"] == *name).cloned();
    for version in ours {
        let path = format!("spec.versions[{}]", version["name"].as_str().unwrap_or_default());
        match named(theirs, &version["name"]) {
            Some(other) => compare(&path, version, &other, false, found),
            None => found.push(path),
        }
    }
    for version in theirs.iter().filter(|version| named(ours, &version["name"]).is_none()) {
        found.push(format!(
            "spec.versions[{}]",
            version["name"].as_str().unwrap_or_default()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_somebody_meant_is_a_difference() {
        let spec = |properties: Value| {
            json!({
                "group": "a.b", "names": {"kind": "A", "plural": "as", "shortNames": []},
                "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "webhook-service"}}}},
                "versions": [{"name": "v1", "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}],
            })
        };
        let check = |ours: &Value, theirs: &Value, expected: &[&str]| {
            let mut found = Vec::new();
            compare("spec", ours, theirs, false, &mut found);
            assert_eq!(found, expected);
        };
        let size = spec(json!({"size": {"type": "integer", "minimum": 1.0, "nullable": false}}));
        let mut served = spec(json!({"size": {"type": "integer", "minimum": 1}}));
        served["names"] = json!({"kind": "A", "plural": "as", "singular": "a", "listKind": "AList"});
        served["conversion"]["webhook"]["clientConfig"] =
            json!({"caBundle": "x", "service": {"name": "p-webhook-service"}});
        check(&size, &served, &[]);
        let at = "spec.versions[v1].schema.openAPIV3Schema.properties";
        check(&spec(json!({})), &served, &[&format!("{at}.size")]);
        check(
            &spec(json!({"size": {"type": "string"}, "foo": {"type": "string"}})),
            &served,
            &[
                &format!("{at}.foo"),
                &format!("{at}.size.type"),
                &format!("{at}.size.minimum"),
            ],
        );
        served["versions"][0]["name"] = json!("v2");
        check(&size, &served, &["spec.versions[v1]", "spec.versions[v2]"]);
    }
}
