//! Priority and fairness: FlowSchemas and PriorityLevelConfigurations. This server does not queue requests; it checks
//! these objects and stores them for their readers.
//!
//! The two of each kind that every cluster must have are fixed (`data/flowcontrol.json`).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use kubewright_schema::budget;
use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::check::{At, Errors, child, ensure, fill, fill_number, get, keep};
use super::system::empty_status;
use kubewright_model::{GenerationRule, MetadataChecks, PLAIN, Strategy};

const FLOW: Strategy = Strategy {
    generation: GenerationRule::Spec,
    metadata_checks: MetadataChecks::CREATE,
    prepare_create: |object, _| empty_status(object),
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_status: |new, _| status(new),
    ..PLAIN
};

/// `ValidateFlowSchemaStatus` and `ValidatePriorityLevelConfigurationStatus`.
fn status(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let mut seen = BTreeSet::new();
    for condition in At::root(new).keys(&["status", "conditions"]).items() {
        let kind = condition.key("type");
        if !seen.insert(kind.text()) {
            errors.duplicate(&kind);
        }
        if kind.text().is_empty() {
            errors.required(&kind, "");
        }
    }
    errors.into_vec()
}

/// How FlowSchemas are written.
pub(crate) const SCHEMA: Strategy = Strategy {
    default: |object| {
        let Some(object) = object.as_object_mut() else { return };
        ensure(object, "status");
        if let Some(spec) = child(object, "spec") {
            fill_number(spec, "matchingPrecedence", 1000);
        }
    },
    validate_create: schema,
    validate_update: |new, _| schema(new),
    // The order in which they are asked.
    table_order: Some(|schema| get(schema, &["spec", "matchingPrecedence"]).as_i64()),
    ..FLOW
};

/// How PriorityLevelConfigurations are written.
pub(crate) const LEVEL: Strategy = Strategy {
    default: |object| {
        let Some(object) = object.as_object_mut() else { return };
        ensure(object, "status");
        let Some(spec) = child(object, "spec") else { return };
        if let Some(exempt) = child(spec, "exempt") {
            fill(exempt, "nominalConcurrencyShares", 0);
            fill(exempt, "lendablePercent", 0);
        }
        let Some(limited) = child(spec, "limited") else { return };
        fill(limited, "nominalConcurrencyShares", 30);
        fill(limited, "lendablePercent", 0);
        if let Some(queuing) = ensure(limited, "limitResponse").and_then(|response| child(response, "queuing")) {
            fill_number(queuing, "queues", 64);
            fill_number(queuing, "handSize", 8);
            fill_number(queuing, "queueLengthLimit", 50);
        }
    },
    validate_create: level,
    validate_update: |new, _| level(new),
    ..FLOW
};

/// The spec that this object must have, if it is one of those that every cluster has.
fn fixed(kind: &str, name: &str) -> Option<&'static Value> {
    static ALL: LazyLock<Value> = LazyLock::new(|| {
        budget::unlimited(|| {
            serde_json::from_str(kubewright_model::facts::FLOW_CONTROL).expect("the file is JSON, as its users see")
        })
    });
    if !["exempt", "catch-all"].contains(&name) {
        return None;
    }
    let found = ALL.as_array().into_iter().flatten();
    let mut found = found.filter(|object| object["kind"] == kind && object["name"] == name);
    found.next().map(|object| &object["spec"])
}

fn non_empty(errors: &mut Errors, at: &At<'_>, words: &str) {
    if at.is_empty() {
        errors.required(at, words);
    }
}

/// A list in which a star stands alone.
fn alone(errors: &mut Errors, at: &At<'_>, what: &str) -> bool {
    let star = at.items().any(|item| item.text() == "*");
    if star && at.len() > 1 {
        errors.invalid(at, format!("if '*' is present, must not specify other {what}"));
    }
    star
}

/// `ValidateFlowSchemaSpec`.
fn schema(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (spec, name) = (
        At::root(new).key("spec"),
        At::root(new).keys(&["metadata", "name"]).text(),
    );
    let precedence = spec.key("matchingPrecedence");
    if precedence.int().is_some_and(|value| value <= 0) {
        errors.invalid(&precedence, "must be a positive value");
    }
    if precedence.int().is_some_and(|value| value > 10_000) {
        errors.invalid(&precedence, "must not be greater than 10000");
    }
    if precedence.int() == Some(1) && name != "exempt" {
        errors.invalid(
            &precedence,
            "only the schema named 'exempt' may have matchingPrecedence 1",
        );
    }
    let method = spec.key("distinguisherMethod");
    if method.present() && !["ByNamespace", "ByUser"].contains(&method.key("type").text()) {
        // Upstream shows the method where it means its type.
        let shown = json!({"Type": method.key("type").text()});
        errors.push(FieldError::not_supported(
            method.key("type").path.to_string(),
            shown,
            &["ByNamespace", "ByUser"],
        ));
    }
    let level = spec.keys(&["priorityLevelConfiguration", "name"]);
    if level.text().is_empty() {
        errors.required(&level, "must reference a priority level");
    } else {
        errors.messages(&level, names::dns1123_subdomain(level.text()));
    }
    for rule in spec.key("rules").items() {
        self::rule(&mut errors, &rule);
    }
    if let Some(wanted) = fixed("FlowSchema", name)
        && spec.value != wanted
    {
        errors.invalid(&spec, format!("spec of '{name}' must equal the fixed value"));
    }
    errors.into_vec()
}

/// `ValidateFlowSchemaPolicyRulesWithSubjects`.
fn rule(errors: &mut Errors, rule: &At<'_>) {
    let subjects = rule.key("subjects");
    non_empty(errors, &subjects, "subjects must contain at least one value");
    for subject in subjects.items() {
        self::subject(errors, &subject);
    }
    let (resources, paths) = (rule.key("resourceRules"), rule.key("nonResourceRules"));
    if resources.is_empty() && paths.is_empty() {
        errors.required(
            rule,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        );
    }
    for resource in resources.items() {
        verbs(errors, &resource.key("verbs"));
        for (field, words, others) in [
            (
                "apiGroups",
                "resource rules must supply at least one api group",
                "api groups",
            ),
            (
                "resources",
                "resource rules must supply at least one resource",
                "resources",
            ),
        ] {
            non_empty(errors, &resource.key(field), words);
            alone(errors, &resource.key(field), others);
        }
        let namespaces = resource.key("namespaces");
        if !resource.key("clusterScope").is_true() {
            let words = "resource rules that are not cluster scoped must supply at least one namespace";
            non_empty(errors, &namespaces, words);
        }
        if !alone(errors, &namespaces, "namespaces") {
            for namespace in namespaces.items() {
                for message in names::dns1123_label(namespace.text()) {
                    let why = format!("each member of this list must be '*' or a DNS-1123 label; {message}");
                    errors.invalid(&namespace, why);
                }
            }
        }
    }
    for path in paths.items() {
        verbs(errors, &path.key("verbs"));
        let urls = path.key("nonResourceURLs");
        non_empty(errors, &urls, "nonResourceURLs must contain at least one value");
        if !alone(errors, &urls, "non-resource URLs") {
            urls.items().for_each(|url| self::url(errors, &url));
        }
    }
}

/// `ValidateFlowSchemaSubject`.
fn subject(errors: &mut Errors, at: &At<'_>) {
    let kinds = [
        ("User", "user"),
        ("Group", "group"),
        ("ServiceAccount", "serviceAccount"),
    ];
    let kind = at.key("kind").text();
    if !kinds.iter().any(|(known, _)| *known == kind) {
        errors.unsupported(&at.key("kind"), &["Group", "ServiceAccount", "User"]);
        return;
    }
    for (known, field) in kinds {
        let given = at.key(field);
        if known != kind {
            if given.present() {
                let why = format!("{field} is forbidden when subject kind is not '{known}'");
                errors.forbidden(&given, why);
            }
            continue;
        }
        if !given.present() {
            errors.required(&given, &format!("{field} is required when subject kind is '{known}'"));
            continue;
        }
        let name = given.key("name");
        let is_account = known == "ServiceAccount";
        if name.text().is_empty() {
            errors.required(&name, "");
        } else if is_account && name.text() != "*" {
            errors.messages(&name, names::dns1123_subdomain(name.text()));
        }
        let namespace = given.key("namespace");
        if is_account && namespace.text().is_empty() {
            errors.required(&namespace, "must specify namespace for service account");
        } else if is_account {
            errors.messages(&namespace, names::dns1123_label(namespace.text()));
        }
    }
}

/// `ValidateFlowSchemaResourcePolicyRule`.
fn verbs(errors: &mut Errors, at: &At<'_>) {
    const VERBS: [&str; 9] = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "proxy",
        "update",
        "watch",
    ];
    non_empty(errors, at, "verbs must contain at least one value");
    if !alone(errors, at, "verbs") && at.items().any(|verb| !VERBS.contains(&verb.text())) {
        // All of them are shown, the known ones as well.
        errors.push(FieldError::not_supported(at.path.to_string(), at.value.clone(), &VERBS));
    }
}

/// `ValidateNonResourceURLPath`.
fn url(errors: &mut Errors, at: &At<'_>) {
    let text = at.text();
    let why = if text.is_empty() {
        "must not be empty"
    } else if text == "/" {
        return;
    } else if !text.starts_with('/') {
        "must start with slash"
    } else if text.contains(' ') {
        "must not contain white-space"
    } else if text.contains("//") {
        "must not contain double slash"
    } else if text.strip_suffix("/*").unwrap_or(text).contains('*') {
        "wildcard can only do suffix matching"
    } else {
        return;
    };
    errors.invalid(at, why);
}

/// `ValidatePriorityLevelConfigurationSpec`.
fn level(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let (spec, name) = (at.key("spec"), at.keys(&["metadata", "name"]).text());
    let (kind, limited, exempt) = (spec.key("type"), spec.key("limited"), spec.key("exempt"));
    if (name == "exempt") != (kind.text() == "Exempt") {
        errors.invalid(&kind, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    match kind.text() {
        "Exempt" => {
            if limited.present() {
                errors.forbidden(&limited, "must be nil if the type is not Limited");
            }
            shares(&mut errors, &exempt);
        }
        "Limited" => {
            if exempt.present() {
                errors.forbidden(&exempt, "must be nil if the type is Limited");
            }
            if limited.present() {
                self::limited(&mut errors, &limited);
            } else {
                errors.required(&limited, "must not be empty when type is Limited");
            }
        }
        _ => errors.one_of(&kind, &["Exempt", "Limited"], true),
    }
    if let Some(wanted) = fixed("PriorityLevelConfiguration", name) {
        let mut value = spec.value.clone();
        let mut except = "";
        if name == "exempt" {
            // The exempt level may lend some of its seats: only this part of its spec may change.
            keep(&mut value, wanted, "exempt");
            except = " except the 'spec.exempt' field";
        }
        if value != *wanted {
            errors.invalid(&spec, format!("spec of '{name}'{except} must equal the fixed value"));
        }
    }
    errors.into_vec()
}

/// `ValidateLimitedPriorityLevelConfiguration`.
fn shares(errors: &mut Errors, at: &At<'_>) {
    let (nominal, lendable) = (at.key("nominalConcurrencyShares"), at.key("lendablePercent"));
    if nominal.int().is_some_and(|number| number < 0) {
        errors.invalid(&nominal, "must be a non-negative integer");
    }
    if lendable.int().is_some_and(|number| !(0..=100).contains(&number)) {
        errors.invalid(&lendable, "must be between 0 and 100, inclusive");
    }
}

/// `ValidateLimitedPriorityLevelConfiguration`.
fn limited(errors: &mut Errors, at: &At<'_>) {
    shares(errors, at);
    let borrowed = at.key("borrowingLimitPercent");
    if borrowed.int().is_some_and(|number| number < 0) {
        errors.invalid(&borrowed, "if specified, must be a non-negative integer");
    }
    let response = at.key("limitResponse");
    let queuing = response.key("queuing");
    match response.key("type").text() {
        "Reject" if queuing.present() => {
            errors.forbidden(&queuing, "must be nil if limited.limitResponse.type is not Limited");
        }
        "Queue" if !queuing.present() => {
            errors.required(&queuing, "must not be empty if limited.limitResponse.type is Limited");
        }
        "Queue" => self::queuing(errors, &queuing),
        "Reject" => {}
        _ => errors.one_of(&response.key("type"), &["Queue", "Reject"], true),
    }
}

/// Queues that are dealt by hands: a hand is drawn out of 60 bits of a hash.
/// `ValidatePriorityLevelQueuingConfiguration`.
fn queuing(errors: &mut Errors, at: &At<'_>) {
    const MAX_QUEUES: i64 = 10_000_000;
    const MAX_BITS: f64 = 60.0;
    let number = |field: &str| at.key(field).int().unwrap_or(0);
    let (queues, hand) = (number("queues"), number("handSize"));
    for field in ["queueLengthLimit", "queues", "handSize"] {
        if number(field) <= 0 {
            errors.invalid(&at.key(field), "must be positive");
        }
    }
    if queues > MAX_QUEUES {
        errors.invalid(&at.key("queues"), format!("must not be greater than {MAX_QUEUES}"));
    }
    if hand > 0 && hand > queues {
        let why = format!("should not be greater than queues ({queues})");
        errors.invalid(&at.key("handSize"), why);
    } else if hand > 0 && ((queues as f64).log2() * hand as f64).ceil() > MAX_BITS {
        let why = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_BITS}"
        );
        errors.invalid(&at.key("handSize"), why);
    }
}
