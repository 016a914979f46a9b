//! `admissionregistration.k8s.io`: configurations of admission webhooks, and admission policies with their bindings.
//!
//! They are stored, not called: no admission plugin reads them yet. Whoever creates one is told so in a warning.
//!
//! Not here: whether an expression compiles; there is no CEL here.

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::check::{At, Errors, Object, child, each, ensure, fill};
use super::pods::scheduling::label_selector;
use crate::registry::{GenerationRule, PLAIN, Strategy};

/// How configurations of validating webhooks are written.
pub(crate) const VALIDATING: Strategy = Strategy {
    unconditional_update: false,
    generation: GenerationRule::AllButMetadataAndStatus,
    default: |object| default_webhooks(object, false),
    validate_create: |new| configuration(new, false),
    validate_update: |new, _| configuration(new, false),
    warnings: not_called,
    ..PLAIN
};

/// How configurations of mutating webhooks are written.
pub(crate) const MUTATING: Strategy = Strategy {
    default: |object| default_webhooks(object, true),
    validate_create: |new| configuration(new, true),
    validate_update: |new, _| configuration(new, true),
    ..VALIDATING
};

/// How ValidatingAdmissionPolicies are written.
pub(crate) const VALIDATING_POLICY: Strategy = Strategy {
    unconditional_update: false,
    generation: GenerationRule::Spec,
    default: |object| {
        default_policy(object);
        if let Some(object) = object.as_object_mut() {
            ensure(object, "status");
        }
    },
    prepare_create: |object, _| {
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), json!({}));
        }
    },
    prepare_update: |new, old, _| super::check::keep(new, old, "status"),
    validate_create: validating_policy,
    validate_update: |new, _| validating_policy(new),
    warnings: not_called,
    ..PLAIN
};

/// How MutatingAdmissionPolicies are written.
pub(crate) const MUTATING_POLICY: Strategy = Strategy {
    unconditional_update: false,
    generation: GenerationRule::Spec,
    default: default_policy,
    validate_create: mutating_policy,
    validate_update: |new, _| mutating_policy(new),
    warnings: not_called,
    ..PLAIN
};

/// How ValidatingAdmissionPolicyBindings are written.
pub(crate) const VALIDATING_BINDING: Strategy = Strategy {
    unconditional_update: false,
    generation: GenerationRule::Spec,
    default: default_binding,
    validate_create: |new| binding(new, true),
    validate_update: |new, _| binding(new, true),
    warnings: not_called,
    ..PLAIN
};

/// How MutatingAdmissionPolicyBindings are written.
pub(crate) const MUTATING_BINDING: Strategy = Strategy {
    validate_create: |new| binding(new, false),
    validate_update: |new, _| binding(new, false),
    ..VALIDATING_BINDING
};

fn not_called(new: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let kind = new.get("kind").and_then(Value::as_str).unwrap_or("object");
    vec![format!(
        "this {kind} is stored, but this server does not act on it yet: no request will be changed or refused because of it"
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

fn selectors(map: &mut Object) {
    ensure(map, "namespaceSelector");
    ensure(map, "objectSelector");
}

fn match_resources(resources: &mut Object) {
    selectors(resources);
    fill(resources, "matchPolicy", "Equivalent");
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in each(resources, list) {
            fill(rule, "scope", "*");
        }
    }
}

fn default_policy(object: &mut Value) {
    let Some(spec) = object.as_object_mut().and_then(|object| ensure(object, "spec")) else {
        return;
    };
    fill(spec, "failurePolicy", "Fail");
    if let Some(resources) = child(spec, "matchConstraints") {
        match_resources(resources);
    }
}

fn default_binding(object: &mut Value) {
    let Some(spec) = object.as_object_mut().and_then(|object| ensure(object, "spec")) else {
        return;
    };
    if let Some(resources) = child(spec, "matchResources") {
        match_resources(resources);
    }
}

fn configuration(new: &Value, mutating: bool) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let mut seen = BTreeSet::new();
    for webhook in At::root(new).key("webhooks").items() {
        self::webhook(&mut errors, &webhook, mutating);
        let name = webhook.key("name");
        if !seen.insert(name.text()) {
            errors.duplicate(&name);
        }
    }
    errors.into_vec()
}

fn webhook(errors: &mut Errors, at: &At<'_>, mutating: bool) {
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
    errors.one_of(&at.key("failurePolicy"), &["Fail", "Ignore"], false);
    errors.one_of(&at.key("matchPolicy"), &["Equivalent", "Exact"], false);
    let effects = at.key("sideEffects");
    if effects.present() {
        errors.one_of(&effects, &["None", "NoneOnDryRun"], true);
    } else {
        errors.required(&effects, "must specify one of None, NoneOnDryRun");
    }
    let timeout = at.key("timeoutSeconds");
    if timeout.int().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        errors.invalid(&timeout, "the timeout value must be between 1 and 30 seconds");
    }
    if mutating {
        errors.one_of(&at.key("reinvocationPolicy"), &["IfNeeded", "Never"], false);
    }
    label_selector(errors, &at.key("namespaceSelector"));
    label_selector(errors, &at.key("objectSelector"));
    client_config(errors, &at.key("clientConfig"));
    conditions(errors, &at.key("matchConditions"));
    review_versions(errors, &at.key("admissionReviewVersions"));
}

fn review_versions(errors: &mut Errors, at: &At<'_>) {
    if at.is_empty() {
        errors.required(at, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = BTreeSet::new();
    for version in at.items() {
        if seen.insert(version.text()) {
            errors.messages(&version, names::dns1035_label(version.text()));
        } else {
            errors.invalid(&version, "duplicate version");
        }
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        errors.invalid(at, "must include at least one of v1, v1beta1");
    }
}

fn conditions(errors: &mut Errors, at: &At<'_>) {
    let mut seen = BTreeSet::new();
    if at.len() > 64 {
        errors.push(FieldError::too_many(at.path.to_string(), at.len(), 64));
    }
    for condition in at.items() {
        let (name, expression) = (condition.key("name"), condition.key("expression"));
        if expression.text().trim().is_empty() {
            errors.required(&expression, "");
        }
        if name.text().is_empty() {
            errors.required(&name, "");
        } else {
            errors.messages(&name, names::qualified_name(name.text()));
            if !seen.insert(name.text()) {
                errors.duplicate(&name);
            }
        }
    }
}

fn rule(errors: &mut Errors, at: &At<'_>) {
    let operations = at.key("operations");
    stars(errors, &operations, "other operations");
    for operation in operations.items() {
        errors.one_of(&operation, &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"], true);
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
    errors.one_of(&at.key("scope"), &["*", "Cluster", "Namespaced"], false);
}

/// A list that is not empty, and has nothing beside a star.
fn stars(errors: &mut Errors, at: &At<'_>, others: &str) {
    if at.is_empty() {
        errors.required(at, "");
    }
    if at.len() > 1 && at.items().any(|entry| entry.text() == "*") {
        errors.invalid(at, format!("if '*' is present, must not specify {others}"));
    }
}

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
            plain |= text != "*";
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

fn client_config(errors: &mut Errors, at: &At<'_>) {
    let (url, service) = (at.key("url"), at.key("service"));
    match (url.present(), service.present()) {
        (true, false) => self::url(errors, &url),
        (false, true) => self::service(errors, &service),
        _ => errors.required(at, "exactly one of url or service is required"),
    }
}

fn url(errors: &mut Errors, at: &At<'_>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let Some((scheme, rest)) = at.text().split_once(':').filter(|(scheme, _)| !scheme.is_empty()) else {
        errors.required(
            at,
            &format!(
                "url must be a valid URL: parse {:?}: missing protocol scheme{FORM}",
                at.text()
            ),
        );
        return;
    };
    if !scheme.eq_ignore_ascii_case("https") {
        errors.invalid_value(at, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.strip_prefix("//").unwrap_or("").split('/').next().unwrap_or("");
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        errors.invalid_value(at, host, format!("host must be specified{FORM}"));
    }
    if !user.is_empty() {
        errors.invalid_value(at, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid_value(at, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid_value(at, query, "query parameters are not permitted in the URL");
    }
}

fn service(errors: &mut Errors, at: &At<'_>) {
    for field in ["name", "namespace"] {
        if at.key(field).text().is_empty() {
            errors.required(&at.key(field), &format!("service {field} is required"));
        }
    }
    let port = at.key("port");
    if port.int().is_some_and(|port| !(1..=65535).contains(&port)) {
        errors.invalid(&port, "port is not valid: must be between 1 and 65535, inclusive");
    }
    let path = at.key("path");
    if path.text().is_empty() || path.text() == "/" {
        return;
    }
    if !path.text().starts_with('/') {
        errors.invalid(&path, "must start with a '/'");
    }
    let inner = path.text().strip_prefix('/').unwrap_or("");
    for (index, segment) in inner.trim_end_matches('/').split('/').enumerate() {
        if segment.is_empty() {
            errors.invalid(&path, format!("segment[{index}] may not be empty"));
            continue;
        }
        for message in names::dns1123_subdomain(segment) {
            errors.invalid(&path, format!("segment[{index}]: {message}"));
        }
    }
}

fn match_constraints(errors: &mut Errors, at: &At<'_>) {
    label_selector(errors, &at.key("namespaceSelector"));
    label_selector(errors, &at.key("objectSelector"));
    errors.one_of(&at.key("matchPolicy"), &["Equivalent", "Exact"], false);
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in at.key(list).items() {
            self::rule(errors, &rule);
        }
    }
}

fn policy(errors: &mut Errors, spec: &At<'_>) {
    errors.one_of(&spec.key("failurePolicy"), &["Fail", "Ignore"], true);
    let constraints = spec.key("matchConstraints");
    if constraints.present() {
        match_constraints(errors, &constraints);
        if constraints.key("resourceRules").is_empty() {
            errors.required(&constraints.key("resourceRules"), "");
        }
    } else {
        errors.required(&constraints, "");
    }
    conditions(errors, &spec.key("matchConditions"));
}

fn expressions(errors: &mut Errors, list: &At<'_>, field: &str) {
    for entry in list.items() {
        if entry.key(field).text().trim().is_empty() {
            errors.required(&entry.key(field), &format!("{field} is not specified"));
        }
    }
}

fn validating_policy(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    policy(&mut errors, &spec);
    let (validations, audits) = (spec.key("validations"), spec.key("auditAnnotations"));
    if validations.is_empty() && audits.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.required(&validations, why);
        errors.required(&audits, why);
    }
    expressions(&mut errors, &validations, "expression");
    expressions(&mut errors, &audits, "valueExpression");
    errors.into_vec()
}

fn mutating_policy(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    policy(&mut errors, &spec);
    let mutations = spec.key("mutations");
    if mutations.is_empty() {
        errors.required(&mutations, "mutations must contain at least one item");
    }
    errors.one_of(&spec.key("reinvocationPolicy"), &["IfNeeded", "Never"], true);
    errors.into_vec()
}

fn binding(new: &Value, validating: bool) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let name = spec.key("policyName");
    if name.text().is_empty() {
        errors.required(&name, "");
    } else {
        errors.messages(&name, names::dns1123_subdomain(name.text()));
    }
    let parameters = spec.key("paramRef");
    if parameters.present() {
        let (name, selector) = (parameters.key("name"), parameters.key("selector"));
        match (!name.text().is_empty(), selector.present()) {
            (true, true) => {
                for at in [&name, &selector] {
                    errors.forbidden(at, "name and selector are mutually exclusive");
                }
            }
            (false, false) => errors.required(&parameters, "one of name or selector must be specified"),
            _ => {}
        }
        let missing = parameters.key("parameterNotFoundAction");
        errors.one_of(&missing, &["Deny", "Allow"], true);
    }
    match_constraints(&mut errors, &spec.key("matchResources"));
    if validating {
        actions(&mut errors, &spec.key("validationActions"));
    }
    errors.into_vec()
}

fn actions(errors: &mut Errors, at: &At<'_>) {
    if at.is_empty() {
        errors.required(at, "at least one validation action is required");
    }
    let mut seen = BTreeSet::new();
    for action in at.items() {
        errors.one_of(&action, &["Audit", "Deny", "Warn"], true);
        if !seen.insert(action.text()) {
            errors.duplicate(&action);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        errors.invalid(
            at,
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves \
             no purpose)",
        );
    }
}
