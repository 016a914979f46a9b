//! StorageVersionMigration (`storagemigration.k8s.io`, from Kubernetes 1.37 on): which resource is to be written again in
//! the version in which it is stored now.
//!
//! Not here: the migration, which is a controller's.

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::Value;

use super::check::{At, Errors, fixed, keep};
use super::policy::conditions;
use super::system::{empty_status, ensure_status};
use kubewright_model::{MetadataChecks, PLAIN, StatusMetadata, Strategy};

/// How StorageVersionMigrations are written.
pub(crate) const MIGRATION: Strategy = Strategy {
    unconditional_update: false,
    status_metadata: StatusMetadata::RESET,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default: ensure_status,
    prepare_create: |object, _| empty_status(object),
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: migration,
    validate_update: |new, _| migration(new),
    fields: &[fixed(&["spec"], "ValidateStorageVersionMigrationUpdate")],
    validate_status: status,
    ..PLAIN
};

/// `ValidateStorageVersionMigration`.
fn migration(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).keys(&["spec", "resource"]);
    let (resource, group) = (at.key("resource"), at.key("group"));
    if resource.text().is_empty() {
        errors.required(&resource, "resource is required to be set");
    } else {
        let wrong = names::dns1035_label(resource.text());
        if !wrong.is_empty() {
            errors.invalid(&resource, wrong.join(","));
        }
    }
    if !group.text().is_empty() {
        let wrong = names::dns1123_subdomain(group.text());
        if !wrong.is_empty() {
            errors.invalid(&group, wrong.join(","));
        }
    }
    errors.into_vec()
}

fn is_true(object: &Value, kind: &str) -> bool {
    let mut conditions = At::root(object).keys(&["status", "conditions"]).items();
    conditions.any(|one| one.key("type").text() == kind && one.key("status").text() == "True")
}

/// `ValidateStorageVersionMigrationStatusUpdate`.
fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("status");
    let (version, list) = (at.key("resourceVersion"), at.key("conditions"));
    let is_version =
        |text: &str| text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    if !version.text().is_empty() && !is_version(version.text()) {
        errors.invalid(
            &version,
            format!("resource version is not well formed: {}", version.text()),
        );
    }
    conditions(&mut errors, &list);
    let was = At::root(old).keys(&["status", "resourceVersion"]);
    if !was.text().is_empty() && was.text() != version.text() {
        errors.invalid(&version, "field is immutable");
    }
    if is_true(new, "Succeeded") && is_true(new, "Failed") {
        errors.invalid(
            &list,
            "Both success and failed conditions cannot be true at the same time",
        );
    }
    for (kind, word) in [("Succeeded", "Success"), ("Failed", "Failed")] {
        if is_true(old, kind) && !is_true(new, kind) {
            errors.invalid(
                &list,
                format!("{word} condition cannot be set to false once it is true"),
            );
        }
    }
    errors.into_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_migration_names_a_resource_and_ends_once() {
        let check = |errors: Vec<FieldError>, expected: &[&str]| {
            let errors: Vec<String> = errors.iter().map(|error| error.field.clone()).collect();
            assert_eq!(errors, expected);
        };
        let of = |resource: Value| json!({"spec": {"resource": resource}});
        check(migration(&of(json!({"group": "apps", "resource": "deployments"}))), &[]);
        check(migration(&of(json!({}))), &["spec.resource.resource"]);
        check(
            migration(&of(json!({"group": "A", "resource": "B"}))),
            &["spec.resource.resource", "spec.resource.group"],
        );
        let ended = |kinds: &[&str], version: &str| {
            let condition = |kind: &&str| {
                json!({"type": kind, "status": "True", "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            json!({"status": {"conditions": kinds.iter().map(condition).collect::<Vec<_>>(), "resourceVersion": version}})
        };
        check(status(&ended(&["Succeeded"], "7"), &ended(&["Running"], "")), &[]);
        check(status(&ended(&[], "x"), &json!({})), &["status.resourceVersion"]);
        check(
            status(&ended(&["Failed"], "8"), &ended(&["Succeeded"], "7")),
            &["status.resourceVersion", "status.conditions"],
        );
        check(
            status(&ended(&["Failed", "Succeeded"], ""), &json!({})),
            &["status.conditions"],
        );
    }
}
