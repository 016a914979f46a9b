//! `paths` of the subresources that connect to something that runs: `exec`, `attach`, `portforward`, `proxy`, and the
//! `log`.
//!
//! They are documented as upstream documents them, because clients are made out of the document; the server's answer to
//! them is another matter (see [`Subresource::Connect`](crate::model::Subresource)).

use kubewright_schema::budget;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::paths::{Names, parameter, path_parameter, responses};
use crate::model::{Connection, Way};

/// Query parameters by the kind of the options: name, type, description.
type Parameters = BTreeMap<String, Vec<(String, String, String)>>;

const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

fn query_parameters(kind: &str) -> Vec<Value> {
    static DATA: LazyLock<Parameters> = LazyLock::new(|| {
        budget::unlimited(|| {
            serde_json::from_str(include_str!("../../data/connect-parameters.json"))
                .expect("the committed parameters are well formed: a test reads them")
        })
    });
    let known = DATA.get(kind).map_or(&[][..], Vec::as_slice);
    let parameters = known.iter().map(|(name, type_, description)| {
        json!({"name": name, "in": "query", "description": description, "schema": {"type": type_, "uniqueItems": true}})
    });
    parameters.collect()
}

/// Adds the paths of a connection below `item`, the path of an object; `common` are the parameters of that path.
pub(super) fn add(
    names: &Names<'_>,
    connection: &Connection,
    item: &str,
    common: &[Value],
    paths: &mut Map<String, Value>,
) {
    let Connection { to, kind, .. } = *connection;
    let name = to.name();
    let path = format!("{item}/{name}");
    // `pretty` is for answers that are objects.
    let mut given: Vec<Value> = common
        .iter()
        .filter(|given| given["name"] != "pretty")
        .cloned()
        .collect();
    if to == Way::Log {
        given.push(parameter("pretty"));
        given.extend(query_parameters("PodLogOptions"));
        paths.insert(path, json!({"get": log(names), "parameters": given}));
        return;
    }
    if let Some(first) = given.first_mut() {
        first["description"] = format!("name of the {kind}").into();
    }
    let suffix: String = kind.strip_prefix(names.row.kind.as_ref()).unwrap_or(kind).to_owned();
    let suffix = suffix
        .strip_suffix("Options")
        .unwrap_or(&suffix)
        .replace("PortForward", "Portforward");
    let methods = if to == Way::Proxy {
        &METHODS[..]
    } else {
        &["get", "post"]
    };
    let mut one = |path: String, suffix: &str, mut given: Vec<Value>| {
        given.extend(query_parameters(kind));
        let mut item: Map<String, Value> = methods
            .iter()
            .map(|method| ((*method).to_owned(), connect(names, method, name, kind, suffix)))
            .collect();
        item.insert("parameters".to_owned(), given.into());
        paths.insert(path, Value::Object(item));
    };
    one(path.clone(), &suffix, given.clone());
    if to == Way::Proxy {
        given.push(path_parameter("path", "path to the resource"));
        one(format!("{path}/{{path}}"), &format!("{suffix}WithPath"), given);
    }
}

fn connect(names: &Names<'_>, method: &str, name: &str, kind: &str, suffix: &str) -> Value {
    let word = method[..1].to_uppercase() + &method[1..];
    let words = format!(
        "connect {} requests to {name} of {}",
        method.to_uppercase(),
        names.row.kind
    );
    let answers = responses(&[("200", "OK")], &json!({"type": "string"}), &["*/*"]);
    let mut operation = names.operation("connect", suffix, "connect", &words, &[], answers);
    operation["operationId"] = format!("connect{}{word}{}{suffix}", names.prefix, names.noun).into();
    operation["x-kubernetes-group-version-kind"]["kind"] = kind.into();
    operation
}

fn log(names: &Names<'_>) -> Value {
    let types = [
        "application/json",
        "application/vnd.kubernetes.protobuf",
        "application/yaml",
        "text/plain",
    ];
    let answers = responses(&[("200", "OK")], &json!({"type": "string"}), &types);
    let words = format!("read log of the specified {}", names.row.kind);
    names.operation("read", "Log", "get", &words, &[], answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_described() {
        for kind in [
            "PodAttachOptions",
            "PodExecOptions",
            "PodLogOptions",
            "PodPortForwardOptions",
            "PodProxyOptions",
            "ServiceProxyOptions",
            "NodeProxyOptions",
        ] {
            assert!(!query_parameters(kind).is_empty(), "{kind}");
        }
    }
}
