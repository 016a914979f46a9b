//! Which policies may be stored, beyond what the definition says.

use std::time::Duration;

use autorebooter_api::v1alpha1::{DatabaseType, Mode, RebootPolicy, Source, Target};
use kubewright::FieldErrors;
use kubewright::webhook::field_path;

/// The errors in a policy.
pub fn check(policy: &RebootPolicy) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
    for (index, target) in policy.spec.targets.iter().enumerate() {
        let path = field_path("spec.targets", index);
        check_target(target, namespace, &path, &mut errors);
        let is_twice = policy.spec.targets[..index]
            .iter()
            .any(|other| (other.kind, &other.name) == (target.kind, &target.name));
        if is_twice {
            errors.duplicate(path, &target.name);
        }
    }
    check_source(&policy.spec.source, &mut errors);
    errors
}

fn check_target(target: &Target, namespace: &str, path: &str, errors: &mut FieldErrors) {
    if let Some(other) = target.namespace.as_ref().filter(|other| *other != namespace) {
        errors.invalid(
            format!("{path}.namespace"),
            other,
            "must be the namespace of the policy",
        );
    }
    if let Some(version) = target.api_version.as_ref().filter(|version| *version != "apps/v1") {
        errors.invalid(format!("{path}.apiVersion"), version, "must be apps/v1");
    }
}

fn check_source(source: &Source, errors: &mut FieldErrors) {
    match (&source.database_ref, &source.connection_secret_ref) {
        (None, None) => errors.required("spec.source.databaseRef", "either this or connectionSecretRef"),
        (Some(_), Some(_)) => errors.forbidden("spec.source.connectionSecretRef", "may not be set beside databaseRef"),
        _ => {}
    }
    match (&source.watch.table, &source.watch.query) {
        (None, None) => errors.required("spec.source.watch.table", "either this or query"),
        (Some(_), Some(_)) => errors.forbidden("spec.source.watch.query", "may not be set beside table"),
        _ => {}
    }
    if let Some(query) = &source.watch.query {
        let first = query.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
        if !["SELECT", "WITH", "TABLE", "VALUES"].contains(&first.as_str()) {
            errors.invalid("spec.source.watch.query", query, "must be a SELECT");
        }
    }
    if source.type_ == DatabaseType::Mysql && source.mode == Some(Mode::Notify) {
        errors.invalid(
            "spec.source.mode",
            "Notify",
            "MySQL does not tell of changes: Poll or Auto",
        );
    }
    if let Some(interval) = source.poll_interval
        && Duration::from(interval) < Duration::from_secs(1)
    {
        errors.invalid("spec.source.pollInterval", interval, "must be at least 1s");
    }
}
