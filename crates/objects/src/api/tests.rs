//! Whatever the cluster serves passes through the types unharmed. How it could fail: a field that a version of Kubernetes
//! adds has no place and is lost where a controller copies a template or replaces a status; a key is misspelt; a type of
//! metadata, which is k8s-openapi's, is one of an older version.

use kubewright::k8s_openapi::Resource;
use kubewright_schema::Minor;
use kubewright_schema::catalog::{self, Catalog};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    admissionregistration, apps, authentication, authorization, autoscaling, batch, certificates, coordination, core,
    discovery, networking, node, policy, rbac, resource, storage, storagemigration,
};

/// A value of this definition that has every field.
fn full(catalog: Catalog, schema: &Value) -> Value {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    if let Some(name) = reference.and_then(|reference| reference.rsplit('/').next()) {
        return match name.rsplit('.').next() {
            Some("Quantity") => json!("1"),
            Some("IntOrString") => json!(1),
            Some("Time") => json!("2026-01-01T00:00:00Z"),
            Some("MicroTime") => json!("2026-01-01T00:00:00.000000Z"),
            _ => full(
                catalog,
                &serde_json::from_str(&catalog.raw(name).expect(name)).expect(name),
            ),
        };
    }
    if let Some(fields) = schema["properties"].as_object() {
        let field = |(key, schema): (&String, &Value)| (key.clone(), full(catalog, schema));
        let mut value: Value = fields.iter().map(field).collect();
        // A kind says what it is, also inside of another, as a claim in a StatefulSet.
        if let Some(kind) = schema["x-kubernetes-group-version-kind"].get(0) {
            let group = kind["group"].as_str().filter(|group| !group.is_empty());
            let version = kind["version"].as_str().expect("a version");
            value["apiVersion"] = json!(group.map_or(version.to_owned(), |group| format!("{group}/{version}")));
            value["kind"] = kind["kind"].clone();
        }
        return value;
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("string"), Some("byte")) => json!("eA=="),
        (Some("string"), _) => json!("text"),
        (Some("integer" | "number"), _) => json!(1),
        (Some("boolean"), _) => json!(true),
        (Some("array"), _) => json!([full(catalog, &schema["items"])]),
        _ if schema["additionalProperties"].is_object() => {
            json!({ "key": full(catalog, &schema["additionalProperties"]) })
        }
        _ => json!({ "any": ["thing"] }),
    }
}

/// Where a value is no longer what it was.
fn changed(was: &Value, is: &Value, at: String, found: &mut Vec<String>) {
    match (was, is) {
        (Value::Object(was), Value::Object(_)) => {
            for (key, was) in was {
                changed(was, &is[key], format!("{at}.{key}"), found);
            }
        }
        (Value::Array(was), Value::Array(is)) if was.len() == is.len() => {
            for (was, is) in was.iter().zip(is) {
                changed(was, is, format!("{at}[]"), found);
            }
        }
        _ if was != is => found.push(at),
        _ => {}
    }
}

/// Passes an object with all fields of each version through the type.
fn check<K: Resource + Serialize + DeserializeOwned>() {
    let mut is_served = false;
    for minor in Minor::ALL {
        let catalog = catalog::of(minor);
        // A kind may be newer than the oldest version.
        let Some(name) = catalog.name_for_kind(K::GROUP, K::VERSION, K::KIND) else {
            continue;
        };
        is_served = true;
        let whole = full(catalog, &json!({ "$ref": name }));
        let typed: K = serde_json::from_value(whole.clone()).expect(K::KIND);
        let mut lost = Vec::new();
        changed(&whole, &json!(typed), K::KIND.to_owned(), &mut lost);
        assert!(lost.is_empty(), "of Kubernetes {minor}: {lost:#?}");
    }
    assert!(is_served, "no version has {}", K::KIND);
}

#[test]
fn no_field_is_lost() {
    macro_rules! kinds {
        ($($kind:ty),* $(,)?) => { $( check::<$kind>(); )* };
    }
    kinds!(
        admissionregistration::v1::ValidatingAdmissionPolicy,
        apps::v1::ControllerRevision,
        apps::v1::DaemonSet,
        apps::v1::Deployment,
        apps::v1::ReplicaSet,
        apps::v1::StatefulSet,
        authentication::v1::TokenRequest,
        authorization::v1::SubjectAccessReview,
        autoscaling::v2::HorizontalPodAutoscaler,
        batch::v1::CronJob,
        batch::v1::Job,
        certificates::v1::CertificateSigningRequest,
        certificates::v1::ClusterTrustBundle,
        certificates::v1::PodCertificateRequest,
        coordination::v1::Lease,
        core::v1::Binding,
        core::v1::ConfigMap,
        core::v1::Endpoints,
        core::v1::Namespace,
        core::v1::Node,
        core::v1::PersistentVolume,
        core::v1::PersistentVolumeClaim,
        core::v1::Pod,
        core::v1::ReplicationController,
        core::v1::ResourceQuota,
        core::v1::Secret,
        core::v1::Service,
        core::v1::ServiceAccount,
        discovery::v1::EndpointSlice,
        networking::v1::IPAddress,
        networking::v1::ServiceCIDR,
        node::v1::RuntimeClass,
        policy::v1::PodDisruptionBudget,
        rbac::v1::ClusterRole,
        resource::v1::ResourceClaim,
        resource::v1::ResourceClaimTemplate,
        storage::v1::StorageClass,
        storage::v1::VolumeAttributesClass,
        storagemigration::v1::StorageVersionMigration,
    );
}

#[test]
fn null_and_unknown_fields_are_as_if_not_there() {
    let pod = |json: Value| serde_json::from_value::<core::v1::Pod>(json);
    let bare = pod(json!({})).expect("all fields may be absent");
    let odd = json!({ "spec": null, "metadata": null, "later": { "any": [1] } });
    assert_eq!(pod(odd).expect("as if empty"), bare);
    assert_eq!(
        serde_json::to_value(&bare).expect("JSON"),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {} })
    );
    let wrong = pod(json!({ "spec": [] })).expect_err("a list is no spec");
    assert_eq!(wrong.to_string(), "invalid type: sequence, expected PodSpec");
}
