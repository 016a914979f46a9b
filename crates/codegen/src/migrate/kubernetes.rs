//! Types that Rust has already: Kubernetes' own, and those of Go's standard library that APIs use.

use kubewright_schema::catalog;

use super::types::RustType;

/// Whether a package is of Go's standard library, which no module has.
pub(super) fn is_standard(import: &str) -> bool {
    let first = import.split('/').next().unwrap_or_default();
    !first.contains('.')
}

/// The type of Rust for one of Go.
pub(super) fn known(import: &str, name: &str) -> Option<RustType> {
    let said = match (import.trim_start_matches("k8s.io/"), name) {
        ("time", "Duration") => "i64",
        ("encoding/json", "RawMessage") => "serde_json::Value",
        ("apimachinery/pkg/apis/meta/v1", "Duration") => "kube::core::Duration",
        ("apimachinery/pkg/runtime", "RawExtension") => "k8s_openapi::apimachinery::pkg::runtime::RawExtension",
        ("apimachinery/pkg/util/intstr", "IntOrString") => "k8s_openapi::apimachinery::pkg::util::intstr::IntOrString",
        ("apimachinery/pkg/api/resource", "Quantity") => "k8s_openapi::apimachinery::pkg::api::resource::Quantity",
        ("apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSON") => "serde_json::Value",
        ("apimachinery/pkg/types", "UID" | "NodeName")
        | ("apimachinery/pkg/apis/meta/v1", "ConditionStatus" | "LabelSelectorOperator") => "String",
        ("api/core/v1", "ResourceList") => {
            "std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>"
        }
        _ => "",
    };
    if !said.is_empty() {
        return Some(RustType {
            // A length of time has no default in kube.
            has_default: said != "kube::core::Duration",
            // Go writes its content; controller-gen calls it an object.
            schemars: match name {
                "RawMessage" => vec!["extend(\"type\" = \"object\")".to_owned()],
                _ => Vec::new(),
            },
            ..RustType::of(said)
        });
    }
    let rest = import.strip_prefix("k8s.io/")?;
    // `k8s.io/api/apps/v1` is `io.k8s.api.apps.v1`.
    let definition = format!("io.k8s.{}.{name}", rest.replace('/', "."));
    if catalog::names().any(|known| known == definition) {
        let module = rest.replace('/', "::").replace('-', "_");
        let needs_time = ["Time", "MicroTime", "Condition", "LeaseSpec"].contains(&name);
        return Some(RustType {
            has_default: !needs_time,
            ..RustType::of(format!("k8s_openapi::{module}::{name}"))
        });
    }
    // Types of Kubernetes that its published API has not are texts, such as `Protocol`.
    is_unpublished(import, name).then(|| RustType::of("String"))
}

/// Whether Kubernetes' published API has no such type: a text with a name of its own, or a struct that is only ever
/// embedded, such as `VolumeSource`. Its source tells which.
pub(super) fn is_unpublished(import: &str, name: &str) -> bool {
    let Some(rest) = import.strip_prefix("k8s.io/").filter(|rest| rest.starts_with("api/")) else {
        return false;
    };
    let definition = format!("io.k8s.{}.{name}", rest.replace('/', "."));
    !catalog::names().any(|known| known == definition) && name != "ResourceList"
}

/// Whether it is a struct of Kubernetes' APIs, which can be embedded.
pub(super) fn is_struct(import: &str, name: &str) -> bool {
    let is_api = import.starts_with("k8s.io/api/") || import == "k8s.io/apimachinery/pkg/apis/meta/v1";
    is_api && !["Time", "MicroTime", "Duration", "ObjectMeta", "ListMeta"].contains(&name)
}
