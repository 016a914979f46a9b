//! `admissionregistration.k8s.io`: admission policies and their bindings, how they are written. How they act is in
//! the admission plugins.
//!
//! Invariant: a stored expression compiles; one that an update does not change is not refused for other changes since.
//!
//! Not here: types of the matched kinds. kube-controller-manager reports type errors in the status of a policy.

use std::collections::BTreeSet;

use kubewright_cel::names::is_reserved;
use kubewright_schema::error::FieldError;
use kubewright_schema::jsonpath::JsonPath;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::check::{At, Errors, Object, child, each, ensure, fill, get};
use super::pods::scheduling::label_selector;
use super::webhooks::{rule, selectors};
use kubewright_model::facts::expression::{Compiler, Returns};
use kubewright_model::{GenerationRule, MetadataChecks, Minor, PLAIN, StatusMetadata, Strategy};

/// Longest `valueExpression` of an audit annotation, in bytes.
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;
const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_CONDITIONS: usize = 64;
/// The operations that a mutating policy may match; in upstream's order.
const MUTABLE: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const POLICY: Strategy = Strategy {
    generation: GenerationRule::Spec,
    unconditional_update: false,
    any_finalizer: true,
    metadata_checks: MetadataChecks::CREATE,
    default: default_policy,
    warnings: |new, _| super::webhooks::static_name(new),
    ..PLAIN
};

/// How ValidatingAdmissionPolicies are written.
pub(crate) const VALIDATING_POLICY: Strategy = Strategy {
    rules_others: true,
    status_metadata: StatusMetadata::RESET,
    status_metadata_checks: MetadataChecks::NONE,
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
    validate_create: |new| validating_policy(new, None, Minor::OLDEST),
    validate_update: |new, old| validating_policy(new, Some(old), Minor::OLDEST),
    validate_status: |new, _| policy_status(new),
    ..POLICY
};

/// How MutatingAdmissionPolicies are written.
pub(crate) const MUTATING_POLICY: Strategy = Strategy {
    rules_others: true,
    validate_create: |new| mutating_policy(new, None, Minor::OLDEST),
    validate_update: |new, old| mutating_policy(new, Some(old), Minor::OLDEST),
    ..POLICY
};

/// How ValidatingAdmissionPolicyBindings are written.
pub(crate) const VALIDATING_BINDING: Strategy = Strategy {
    default: default_binding,
    validate_create: |new| binding(new, true),
    validate_update: |new, _| binding(new, true),
    ..POLICY
};

/// How MutatingAdmissionPolicyBindings are written.
pub(crate) const MUTATING_BINDING: Strategy = Strategy {
    validate_create: |new| binding(new, false),
    validate_update: |new, _| binding(new, false),
    ..VALIDATING_BINDING
};

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

/// `validateMatchResources`.
fn match_constraints(errors: &mut Errors, at: &At<'_>) {
    if !at.present() {
        return;
    }
    let policy = at.key("matchPolicy");
    if policy.present() {
        one_of(errors, &policy, &["Equivalent", "Exact"]);
    }
    label_selector(errors, &at.key("namespaceSelector"));
    label_selector(errors, &at.key("objectSelector"));
    for list in ["resourceRules", "excludeResourceRules"] {
        for named in at.key(list).items() {
            resource_names(errors, &named.key("resourceNames"));
            rule(errors, &named);
        }
    }
}

/// Here an empty text is unsupported as any other is (`validateNamedRuleWithOperations`).
fn one_of(errors: &mut Errors, at: &At<'_>, supported: &[&str]) {
    if !supported.contains(&at.text()) {
        errors.unsupported(at, supported);
    }
}

/// `validateNamedRuleWithOperations`.
fn resource_names(errors: &mut Errors, at: &At<'_>) {
    let mut seen = BTreeSet::new();
    for name in at.items() {
        errors.messages(&name, names::path_segment_name(name.text()));
        if !seen.insert(name.text()) {
            errors.duplicate(&name);
        }
    }
}

/// Deletes have no object to change. Upstream names the list, not the rule (`validateMutatingAdmissionPolicySpec`).
fn mutable_operations(errors: &mut Errors, at: &At<'_>) {
    let rules = at.key("resourceRules");
    let place = rules.key("operations").path;
    for rule in rules.items() {
        for operation in rule.key("operations").items() {
            one_of(errors, &operation.moved(place.clone()), &MUTABLE);
        }
    }
}

/// The rules that both kinds of policies share (`validateValidatingAdmissionPolicySpec`).
fn policy(errors: &mut Errors, spec: &At<'_>, old: Option<&Value>, minor: Minor, mutating: bool) {
    let failure = spec.key("failurePolicy");
    if failure.present() {
        one_of(errors, &failure, &["Fail", "Ignore"]);
    } else {
        errors.required(&failure, "");
    }
    param_kind(errors, &spec.key("paramKind"));
    let constraints = spec.key("matchConstraints");
    if constraints.present() {
        match_constraints(errors, &constraints);
        if constraints.key("resourceRules").is_empty() {
            errors.required(&constraints.key("resourceRules"), "");
        }
        if mutating {
            mutable_operations(errors, &constraints);
        }
    } else {
        errors.required(&constraints, "");
    }
    // An expression that was valid once stays valid, unless something changes that it may depend on.
    let known = old.is_some_and(|old| {
        ["paramKind", "matchConditions"]
            .iter()
            .all(|field| get(old, &["spec", field]) == spec.key(field).value)
    });
    if !known {
        let compiler = Compiler::stateless(spec.key("paramKind").present()).of_minor(minor);
        conditions(errors, &spec.key("matchConditions"), &compiler);
    }
}

/// `validateParamKind`.
fn param_kind(errors: &mut Errors, at: &At<'_>) {
    if !at.present() {
        return;
    }
    let (version, kind) = (at.key("apiVersion"), at.key("kind"));
    group_version(errors, &version);
    if kind.text().is_empty() {
        errors.required(&kind, "");
    } else {
        let messages = names::dns1035_label(&kind.text().to_lowercase());
        if !messages.is_empty() {
            let why = messages.join(",");
            errors.invalid(&kind, format!("may have mixed case, but should otherwise match: {why}"));
        }
    }
}

/// `validateParamKind`.
fn group_version(errors: &mut Errors, at: &At<'_>) {
    let text = at.text();
    let (group, version) = match text.split_once('/') {
        _ if text.is_empty() => return errors.required(at, ""),
        None => ("", text),
        Some((_, rest)) if rest.contains('/') => {
            return errors.invalid(at, format!("unexpected GroupVersion string: {text}"));
        }
        Some(parts) => parts,
    };
    if !group.is_empty() {
        let messages = names::dns1123_subdomain(group);
        if !messages.is_empty() {
            errors.invalid_value(at, group, messages.join(","));
        }
    }
    if version.is_empty() {
        errors.invalid(at, "version must be specified");
        return;
    }
    let messages = names::dns1035_label(version);
    if !messages.is_empty() {
        errors.invalid_value(at, version, messages.join(","));
    }
}

/// `matchConditions` of a webhook or a policy.
pub(super) fn conditions(errors: &mut Errors, at: &At<'_>, compiler: &Compiler) {
    let mut seen = BTreeSet::new();
    if at.len() > MAX_CONDITIONS {
        errors.push(FieldError::too_many(at.path.to_string(), at.len(), MAX_CONDITIONS));
    }
    for condition in at.items() {
        let (name, expression) = (condition.key("name"), condition.key("expression"));
        let trimmed = expression.text().trim();
        if trimmed.is_empty() {
            errors.required(&expression, "");
        } else if let Err(why) = compiler.compile(trimmed, Returns::Bool) {
            does_not_compile(errors, &expression, trimmed, why);
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

/// An expression that does not compile; one whose constants cannot be computed is an error of the server
/// (`convertCELErrorToValidationError`).
fn does_not_compile(errors: &mut Errors, at: &At<'_>, shown: &str, why: String) {
    if why.starts_with("program instantiation failed") {
        return errors.push(FieldError::internal(at.path.to_string(), why));
    }
    errors.invalid_value(at, shown, why);
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic())
        && chars.all(|c| c == '_' || c.is_ascii_alphanumeric())
        && !is_reserved(name)
}

/// `validateVariable`.
fn variables(errors: &mut Errors, at: &At<'_>, compiler: &mut Compiler) {
    for variable in at.items() {
        let (name, expression) = (variable.key("name"), variable.key("expression"));
        if name.text().trim().is_empty() {
            errors.required(&name, "name is not specified");
        } else if !is_identifier(name.text()) {
            errors.invalid(&name, "must be a valid CEL identifier");
        }
        if expression.text().trim().is_empty() {
            errors.required(&expression, "expression is not specified");
        } else if let Err(why) = compiler.declare(name.text(), expression.text()) {
            does_not_compile(errors, &expression, expression.text(), why);
        }
    }
}

/// `ValidateValidatingAdmissionPolicy`.
pub(super) fn validating_policy(new: &Value, old: Option<&Value>, minor: Minor) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let root = At::root(new);
    let spec = root.key("spec");
    policy(&mut errors, &spec, old, minor, false);
    let params = spec.key("paramKind").present();
    // Without variables there is no `variables` to be named.
    let mut compiler = if spec.key("variables").is_empty() {
        Compiler::stateless(params)
    } else {
        Compiler::with_variables(params)
    }
    .of_minor(minor);
    variables(&mut errors, &spec.key("variables"), &mut compiler);
    let (validations, audits) = (spec.key("validations"), spec.key("auditAnnotations"));
    if validations.is_empty() && audits.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.required(&validations, why);
        errors.required(&audits, why);
    }
    for entry in validations.items() {
        validation(&mut errors, &entry, &compiler);
    }
    audit_annotations(&mut errors, &audits, root.keys(&["metadata", "name"]).text(), &compiler);
    errors.into_vec()
}

/// `validateValidation`.
fn validation(errors: &mut Errors, at: &At<'_>, compiler: &Compiler) {
    let (expression, message) = (at.key("expression"), at.key("message"));
    let (from, reason) = (at.key("messageExpression"), at.key("reason"));
    if expression.text().trim().is_empty() {
        errors.required(&expression, "expression is not specified");
    } else if let Err(why) = compiler.compile(expression.text(), Returns::Bool) {
        does_not_compile(errors, &expression, expression.text(), why);
    }
    if !from.text().is_empty() {
        if from.text().trim().is_empty() {
            errors.invalid(&from, "must be non-empty if specified");
        } else if let Err(why) = compiler.compile(from.text(), Returns::Text) {
            does_not_compile(errors, &from, from.text(), why);
        }
    }
    let trimmed = message.text().trim();
    if !message.text().is_empty() && trimmed.is_empty() {
        errors.invalid(&message, "must be non-empty if specified");
    } else if trimmed.contains(['\n', '\r']) {
        errors.invalid(&message, "must not contain line breaks");
    }
    if reason.present() {
        one_of(errors, &reason, &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
    }
}

/// `validateAuditAnnotation`.
fn audit_annotations(errors: &mut Errors, at: &At<'_>, policy: &str, compiler: &Compiler) {
    if at.len() > MAX_AUDIT_ANNOTATIONS {
        // Shown with the names that Go gives the fields.
        let text = |entry: &At<'_>, field: &str| Value::from(entry.key(field).text());
        let shown: Vec<Value> = at
            .items()
            .map(|entry| json!({"Key": text(&entry, "key"), "ValueExpression": text(&entry, "valueExpression")}))
            .collect();
        let why = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        errors.invalid_value(at, shown, why);
    }
    let mut seen = BTreeSet::new();
    for entry in at.items() {
        let (key, expression) = (entry.key("key"), entry.key("valueExpression"));
        if policy.is_empty() {
            errors.invalid(&key, "requires metadata.name be non-empty");
        } else {
            let qualified = format!("{policy}/{}", key.text());
            for message in names::qualified_name(&qualified) {
                errors.invalid_value(&key, qualified.as_str(), message);
            }
        }
        let trimmed = expression.text().trim();
        if trimmed.is_empty() {
            errors.required(&expression, "valueExpression is not specified");
        } else if trimmed.len() > MAX_VALUE_EXPRESSION {
            errors.required(
                &expression,
                &format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length"),
            );
        } else if let Err(why) = compiler.compile(trimmed, Returns::TextOrNull) {
            does_not_compile(errors, &expression, expression.text(), why);
        }
        if !seen.insert(key.text()) {
            errors.duplicate(&key);
        }
    }
}

/// `ValidateMutatingAdmissionPolicy`.
pub(super) fn mutating_policy(new: &Value, old: Option<&Value>, minor: Minor) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    policy(&mut errors, &spec, old, minor, true);
    let mut compiler = Compiler::with_variables(spec.key("paramKind").present()).of_minor(minor);
    variables(&mut errors, &spec.key("variables"), &mut compiler);
    let mutations = spec.key("mutations");
    if mutations.is_empty() {
        errors.required(&mutations, "mutations must contain at least one item");
    }
    for entry in mutations.items() {
        mutation(&mut errors, &entry, &compiler);
    }
    errors.one_of(&spec.key("reinvocationPolicy"), &["IfNeeded", "Never"], true);
    errors.into_vec()
}

/// `validateMutation`.
fn mutation(errors: &mut Errors, at: &At<'_>, compiler: &Compiler) {
    let (kind, patch, configuration) = (at.key("patchType"), at.key("jsonPatch"), at.key("applyConfiguration"));
    let (own, other, other_name, returns) = match kind.text() {
        "JSONPatch" => (patch, configuration, "{applyConfiguration}", Returns::Patches),
        "ApplyConfiguration" => (configuration, patch, "{jsonPatch}", Returns::Configuration),
        _ => {
            errors.one_of(&kind, &["ApplyConfiguration", "JSONPatch"], true);
            return;
        }
    };
    let kind = kind.text();
    if own.present() {
        let expression = own.key("expression");
        let trimmed = expression.text().trim();
        if trimmed.is_empty() {
            errors.required(&expression, "");
        } else if let Err(why) = compiler.compile(trimmed, returns) {
            does_not_compile(errors, &expression, trimmed, why);
        }
    } else {
        errors.required(&own, &format!("must be specified when patchType is {kind}"));
    }
    if other.present() {
        errors.invalid_value(
            &other,
            other_name,
            format!("must not be specified when patchType is {kind}"),
        );
    }
}

/// `validateValidatingAdmissionPolicyBindingSpec`.
fn binding(new: &Value, validating: bool) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let name = spec.key("policyName");
    if name.text().is_empty() {
        errors.required(&name, "");
    } else {
        errors.messages(&name, names::dns1123_subdomain(name.text()));
    }
    param_ref(&mut errors, &spec.key("paramRef"));
    let resources = spec.key("matchResources");
    match_constraints(&mut errors, &resources);
    if validating {
        actions(&mut errors, &spec.key("validationActions"));
    } else {
        mutable_operations(&mut errors, &resources);
    }
    errors.into_vec()
}

/// `validateParamRef`.
fn param_ref(errors: &mut Errors, at: &At<'_>) {
    if !at.present() {
        return;
    }
    let (name, selector) = (at.key("name"), at.key("selector"));
    let named = !name.text().is_empty();
    if named {
        errors.messages(&name, names::path_segment_name(name.text()));
        if selector.present() {
            errors.forbidden(&name, "name and selector are mutually exclusive");
        }
    }
    if selector.present() {
        label_selector(errors, &selector);
        if named {
            errors.forbidden(&selector, "name and selector are mutually exclusive");
        }
    } else if !named {
        errors.required(at, "one of name or selector must be specified");
    }
    errors.one_of(&at.key("parameterNotFoundAction"), &["Deny", "Allow"], true);
}

/// `validateValidationActions`.
fn actions(errors: &mut Errors, at: &At<'_>) {
    let mut seen = BTreeSet::new();
    for action in at.items() {
        one_of(errors, &action, &["Audit", "Deny", "Warn"]);
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
    if at.is_empty() {
        errors.required(at, "at least one validation action is required");
    }
}

/// `validateValidatingAdmissionPolicyStatus`.
fn policy_status(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let warnings = At::root(new).keys(&["status", "typeChecking", "expressionWarnings"]);
    for warning in warnings.items() {
        let (text, field) = (warning.key("warning"), warning.key("fieldRef"));
        if text.text().is_empty() {
            errors.required(&text, "");
        }
        let trimmed = field.text().trim();
        if trimmed.is_empty() {
            errors.required(&field, "");
        } else if let Err(why) = JsonPath::parse(&format!("{{.{}}}", trimmed.trim_start_matches('.'))) {
            errors.invalid_value(&field, trimmed, format!("invalid JSONPath: {}", why.problem));
        }
    }
    super::policy::conditions(&mut errors, &At::root(new).keys(&["status", "conditions"]));
    errors.into_vec()
}

/// A `metav1.Condition` (`ValidateCondition`).
pub(super) fn condition(errors: &mut Errors, at: &At<'_>) {
    const MAX_MESSAGE: usize = 32 * 1024;
    let (kind, status) = (at.key("type"), at.key("status"));
    let (generation, reason) = (at.key("observedGeneration"), at.key("reason"));
    errors.messages(&kind, names::qualified_name(kind.text()));
    one_of(errors, &status, &["False", "True", "Unknown"]);
    if generation.int().is_some_and(|number| number < 0) {
        errors.invalid(&generation, "must be greater than or equal to zero");
    }
    let message = at.key("message");
    if message.text().len() > MAX_MESSAGE {
        errors.push(FieldError::too_long(message.path.to_string(), MAX_MESSAGE));
    }
    if !at.key("lastTransitionTime").present() {
        errors.required(&at.key("lastTransitionTime"), "");
    }
    if reason.text().is_empty() {
        errors.required(&reason, "");
    } else if !is_reason(reason.text()) {
        errors.invalid(
            &reason,
            "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', \
             and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or \
             'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')",
        );
    }
}

fn is_reason(text: &str) -> bool {
    let inner = |c: char| c == '_' || c.is_ascii_alphanumeric();
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| inner(c) || matches!(c, ',' | ':'))
        && text.ends_with(inner)
}
