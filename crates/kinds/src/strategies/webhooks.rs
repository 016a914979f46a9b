//! `admissionregistration.k8s.io`: configurations of admission webhooks.
//!
//! Not here: how they are called (the admission plugins), policies (see
//! [`admission_policies`](super::admission_policies)).

use std::collections::BTreeSet;

use kubewright_schema::check::webhook as rules;
use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::Value;

use super::admission_policies::conditions;
use super::check::{self, At, Errors, Must, Object, check_fields, child, each, ensure, fill};
use super::pods::scheduling::label_selector;
use kubewright_model::facts::expression::Compiler;
use kubewright_model::{Empties, GenerationRule, MetadataChecks, Minor, PLAIN, Strategy};

/// How configurations of validating webhooks are written.
pub(crate) const VALIDATING: Strategy = Strategy {
    rules_others: true,
    unconditional_update: false,
    generation: GenerationRule::AllButMetadataAndStatus,
    empties: Empties::Changes,
    any_finalizer: true,
    metadata_checks: MetadataChecks::CREATE,
    default: |object| default_webhooks(object, false),
    validate_create: |new| configuration(new, false, Minor::OLDEST),
    validate_update: |new, _| configuration(new, false, Minor::OLDEST),
    warnings: |new, _| static_name(new),
    ..PLAIN
};

/// How configurations of mutating webhooks are written.
pub(crate) const MUTATING: Strategy = Strategy {
    rules_others: true,
    default: |object| default_webhooks(object, true),
    validate_create: |new| configuration(new, true, Minor::OLDEST),
    validate_update: |new, _| configuration(new, true, Minor::OLDEST),
    ..VALIDATING
};

/// Names that are kept for configurations out of files.
pub(super) fn static_name(new: &Value) -> Vec<String> {
    const SUFFIX: &str = ".static.k8s.io";
    if !kubewright_model::object::name(new).ends_with(SUFFIX) {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: names ending with {SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed via the API"
    )]
}

fn default_webhooks(object: &mut Value, mutating: bool) {
    let Some(object) = object.as_object_mut() else { return };
    for webhook in each(object, "webhooks") {
        fill(webhook, "failurePolicy", "Fail");
        fill(webhook, "matchPolicy", "Equivalent");
        fill(webhook, "timeoutSeconds", 10);
        if mutating {
            fill(webhook, "reinvocationPolicy", "Never");
        }
        selectors(webhook);
        for rule in each(webhook, "rules") {
            fill(rule, "scope", "*");
        }
        if let Some(service) = ensure(webhook, "clientConfig").and_then(|config| child(config, "service")) {
            fill(service, "port", 443);
        }
    }
}

pub(super) fn selectors(map: &mut Object) {
    ensure(map, "namespaceSelector");
    ensure(map, "objectSelector");
}

/// `ValidateValidatingWebhookConfiguration`.
pub(super) fn configuration(new: &Value, mutating: bool, minor: Minor) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let mut seen = BTreeSet::new();
    for webhook in At::root(new).key("webhooks").items() {
        self::webhook(&mut errors, &webhook, mutating, minor);
        let name = webhook.key("name");
        if !seen.insert(name.text()) {
            errors.duplicate(&name);
        }
    }
    errors.into_vec()
}

/// `validateValidatingWebhook`.
fn webhook(errors: &mut Errors, at: &At<'_>, mutating: bool, minor: Minor) {
    let name = at.key("name");
    if name.text().is_empty() {
        errors.required(&name, "");
    } else {
        let messages = names::dns1123_subdomain(name.text());
        if messages.is_empty() && name.text().split('.').count() < 3 {
            errors.invalid(
                &name,
                "should be a domain with at least three segments separated by dots",
            );
        }
        errors.messages(&name, messages);
    }
    for rule in at.key("rules").items() {
        self::rule(errors, &rule);
    }
    let rules = [
        check::rule(
            &["failurePolicy"],
            Must::BeAbsentOrOneOf(&["Fail", "Ignore"]),
            "validateValidatingWebhook",
        ),
        check::rule(
            &["matchPolicy"],
            Must::BeAbsentOrOneOf(&["Equivalent", "Exact"]),
            "validateValidatingWebhook",
        ),
    ];
    check_fields(errors, &rules, at, None);
    let effects = at.key("sideEffects");
    if effects.present() {
        errors.one_of_all(&effects, &["None", "NoneOnDryRun"]);
    } else {
        errors.required(&effects, "must specify one of None, NoneOnDryRun");
    }
    let timeout = at.key("timeoutSeconds");
    if timeout.int().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        errors.invalid(&timeout, "the timeout value must be between 1 and 30 seconds");
    }
    if mutating {
        errors.one_of_all(&at.key("reinvocationPolicy"), &["IfNeeded", "Never"]);
    }
    label_selector(errors, &at.key("namespaceSelector"));
    label_selector(errors, &at.key("objectSelector"));
    rules::client_config(errors, &at.key("clientConfig"));
    let compiler = Compiler::stateless(false).of_minor(minor);
    conditions(errors, &at.key("matchConditions"), &compiler);
    let versions = at.key("admissionReviewVersions");
    if versions.is_empty() {
        errors.required(&versions, "must specify one of v1, v1beta1");
    } else {
        rules::review_versions(errors, &versions);
    }
}

/// `validateRuleWithOperations`.
pub(super) fn rule(errors: &mut Errors, at: &At<'_>) {
    let operations = at.key("operations");
    stars(errors, &operations, "other operations");
    for operation in operations.items() {
        errors.one_of_all(&operation, &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]);
    }
    stars(errors, &at.key("apiGroups"), "other API groups");
    let versions = at.key("apiVersions");
    stars(errors, &versions, "other API versions");
    for version in versions.items() {
        if version.text().is_empty() {
            errors.required(&version, "");
        }
    }
    resources(errors, &at.key("resources"));
    errors.one_of_all(&at.key("scope"), &["*", "Cluster", "Namespaced"]);
}

/// A list that is not empty, and has nothing beside a star (`validateRule`).
fn stars(errors: &mut Errors, at: &At<'_>, others: &str) {
    if at.is_empty() {
        errors.required(at, "");
    }
    if at.len() > 1 && at.items().any(|entry| entry.text() == "*") {
        errors.invalid(at, format!("if '*' is present, must not specify {others}"));
    }
}

/// `validateResources`.
fn resources(errors: &mut Errors, at: &At<'_>) {
    if at.is_empty() {
        errors.required(at, "");
    }
    let (mut all_of, mut with): (BTreeSet<&str>, BTreeSet<&str>) = (BTreeSet::new(), BTreeSet::new());
    let (mut double, mut single, mut plain) = (false, false, false);
    for resource in at.items() {
        let text = resource.text();
        match text {
            "" => errors.required(&resource, ""),
            "*/*" => double = true,
            "*" => single = true,
            _ => {}
        }
        let Some((name, sub)) = text.split_once('/') else {
            // Upstream remembers the last one.
            plain = text != "*";
            continue;
        };
        if all_of.contains(name) {
            errors.invalid(&resource, format!("if '{name}/*' is present, must not specify {text}"));
        }
        if with.contains(sub) {
            errors.invalid(&resource, format!("if '*/{sub}' is present, must not specify {text}"));
        }
        if sub == "*" {
            all_of.insert(name);
        }
        if name == "*" {
            with.insert(sub);
        }
    }
    if at.len() > 1 && double {
        errors.invalid(at, "if '*/*' is present, must not specify other resources");
    }
    if single && plain {
        errors.invalid(
            at,
            "if '*' is present, must not specify other resources without subresources",
        );
    }
}
