//! Kinds that limit others: PodDisruptionBudget, ResourceQuota, PriorityClass, RuntimeClass.
//!
//! Not here: LimitRanges (`limit_ranges`), and counting against a quota ([`quota`]).

use std::collections::BTreeSet;
use std::str::FromStr;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;
use serde_json::{Value, json};

use super::check::{At, Errors, FieldRule, Must, check_fields, child, ensure, fill, fixed, keep, not_negative, rule};
use super::pods::defaults::canonical_quantities;
use super::pods::resources::{Of, is_counted, overhead, resource_name};
use super::pods::scheduling::{label_selector, tolerations};
use super::workloads::{at_most_all, int_or_percent};
use kubewright_model::facts::SYSTEM_CLASSES;
use kubewright_model::facts::amounts::{is_counted_in_wholes, is_extended};
use kubewright_model::{Empties, GenerationRule, MetadataChecks, NameRule, PLAIN, StatusMetadata, Strategy};

/// How PodDisruptionBudgets are written.
pub(crate) const BUDGET: Strategy = Strategy {
    names: NameRule::Given,
    unconditional_update: false,
    generation: GenerationRule::Spec,
    status_metadata: StatusMetadata::WRITTEN,
    any_finalizer: true,
    metadata_checks: MetadataChecks::NONE,
    status_metadata_checks: MetadataChecks::NONE,
    default: default_budget,
    prepare_create: |object, _| {
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
        default_budget(object);
    },
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: budget,
    validate_update: |new, _| budget(new),
    fields: &[rule(
        &["spec", "unhealthyPodEvictionPolicy"],
        Must::BeAbsentOrOneOf(&["AlwaysAllow", "IfHealthyBudget"]),
        "ValidatePodDisruptionBudgetSpec",
    )],
    validate_status: |new, _| {
        let mut errors = Errors::default();
        check_fields(&mut errors, &BUDGET_STATUS, &At::root(new).key("status"), None);
        conditions(&mut errors, &At::root(new).keys(&["status", "conditions"]));
        errors.into_vec()
    },
    ..PLAIN
};

/// Conditions of the form that all new kinds share, each type once (`ValidateConditions`).
pub(super) fn conditions(errors: &mut Errors, at: &At<'_>) {
    let mut seen = BTreeSet::new();
    for condition in at.items() {
        let kind = condition.key("type");
        if !seen.insert(kind.text()) {
            errors.duplicate(&kind);
        }
        super::admission_policies::condition(errors, &condition);
    }
}

const BUDGET_STATUS: [FieldRule; 4] = [
    not_negative(&["disruptionsAllowed"], "ValidatePodDisruptionBudgetStatusUpdate"),
    not_negative(&["currentHealthy"], "ValidatePodDisruptionBudgetStatusUpdate"),
    not_negative(&["desiredHealthy"], "ValidatePodDisruptionBudgetStatusUpdate"),
    not_negative(&["expectedPods"], "ValidatePodDisruptionBudgetStatusUpdate"),
];

fn default_budget(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    ensure(object, "spec");
    let Some(status) = ensure(object, "status") else { return };
    for number in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        fill(status, number, 0);
    }
}

/// `ValidatePodDisruptionBudgetSpec`.
fn budget(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let (least, most) = (spec.key("minAvailable"), spec.key("maxUnavailable"));
    if least.present() && most.present() {
        errors.invalid(&spec, "minAvailable and maxUnavailable cannot be both set");
    }
    for amount in [least, most] {
        int_or_percent(&mut errors, &amount);
        at_most_all(&mut errors, &amount);
    }
    label_selector(&mut errors, &spec.key("selector"));
    errors.into_vec()
}

/// How ResourceQuotas are written.
pub(crate) const QUOTA: Strategy = Strategy {
    empties: Empties::Seen,
    delete_returns_object: true,
    status_metadata: StatusMetadata::WRITTEN,
    default: |object| {
        let Some(object) = object.as_object_mut() else { return };
        for (part, lists) in [("spec", &["hard"][..]), ("status", &["hard", "used"])] {
            let Some(part) = ensure(object, part) else { continue };
            for list in lists {
                if let Some(list) = child(part, list) {
                    canonical_quantities(list);
                }
            }
        }
    },
    prepare_create: |object, _| {
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), json!({}));
        }
    },
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: quota,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        errors.extend(quota(new));
        let scopes = |object: &Value| -> BTreeSet<String> {
            let at = At::root(object).keys(&["spec", "scopes"]);
            at.items().map(|scope| scope.text().to_owned()).collect()
        };
        if scopes(new) != scopes(old) {
            errors.invalid(&At::root(new).keys(&["spec", "scopes"]), "field is immutable");
        }
        errors.into_vec()
    },
    validate_status: |new, _| {
        let mut errors = Errors::default();
        for list in ["hard", "used"] {
            for (name, entry) in At::root(new).key("status").key(list).entries() {
                quota_amount(&mut errors, name, &entry);
            }
        }
        errors.into_vec()
    },
    ..PLAIN
};

/// Whether a quota counts only whole ones of a resource.
fn is_whole(name: &str) -> bool {
    is_counted_in_wholes(name) || is_extended(name) || name.starts_with("count/")
}

/// `ValidateResourceQuantityValue`.
fn quota_amount(errors: &mut Errors, name: &str, at: &At<'_>) {
    resource_name(errors, name, at, Of::Quota);
    let Ok(amount) = Quantity::from_str(at.text()) else {
        return;
    };
    if amount.sign() < 0 {
        errors.invalid(at, "must be greater than or equal to 0");
    } else if is_whole(name) && amount.milli_value() % 1000 != 0 {
        errors.invalid(at, "must be an integer");
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// `ValidateResourceQuotaSpec` and `validateResourceQuotaScopes`.
fn quota(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    for (name, entry) in spec.key("hard").entries() {
        quota_amount(&mut errors, name, &entry);
    }
    let hard: BTreeSet<&str> = spec.key("hard").entries().map(|(name, _)| name).collect();
    let scopes = spec.key("scopes");
    let mut seen = BTreeSet::new();
    for scope in scopes.items() {
        if !SCOPES.contains(&scope.text()) {
            errors.invalid(&scopes, "unsupported scope");
        }
        for _ in hard.iter().filter(|name| !may_scope(scope.text(), name)) {
            errors.invalid(&scopes, "unsupported scope applied to resource");
        }
        seen.insert(scope.text());
    }
    conflicts(&mut errors, &seen, &scopes, &scopes);
    scope_selector(&mut errors, &spec, &hard);
    errors.into_vec()
}

/// Whether a quota with this scope may count this resource. A resource without a standard name may be counted with any
/// scope.
fn may_scope(scope: &str, name: &str) -> bool {
    let compute = || {
        let plain = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits."));
        matches!(plain.unwrap_or(name), "cpu" | "memory")
    };
    !is_counted(name)
        || match scope {
            "BestEffort" => name == "pods",
            "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
            scope if SCOPES.contains(&scope) => name == "pods" || compute(),
            _ => true,
        }
}

/// Scopes that no object can be in both of; `shown` is the list that the message quotes.
/// `validateResourceQuotaScopes`.
fn conflicts(errors: &mut Errors, seen: &BTreeSet<&str>, at: &At<'_>, shown: &At<'_>) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| seen.contains(scope)) {
            errors.invalid_value(at, shown.value.clone(), "conflicting scopes");
        }
    }
}

/// `validateScopeSelector` and `validateScopedResourceSelectorRequirement`.
fn scope_selector(errors: &mut Errors, spec: &At<'_>, hard: &BTreeSet<&str>) {
    const ONLY_EXISTS: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                               ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                               ResourceQuotaScopeCrossNamespacePodAffinity";
    let selector = spec.key("scopeSelector");
    let list = selector.key("matchExpressions");
    let mut seen = BTreeSet::new();
    for item in list.items() {
        // The messages name the fields of the list, not of its items.
        let [scope, operator, values] =
            ["scopeName", "operator", "values"].map(|field| item.key(field).moved(list.key(field).path));
        if !SCOPES.contains(&scope.text()) {
            errors.invalid_value(&scope, scope.text(), "unsupported scope");
        }
        for _ in hard.iter().filter(|name| !may_scope(scope.text(), name)) {
            errors.invalid_value(&list, selector.value.clone(), "unsupported scope applied to resource");
        }
        let with_values =
            matches!(scope.text(), "PriorityClass" | "VolumeAttributesClass") || !SCOPES.contains(&scope.text());
        if !with_values && operator.text() != "Exists" {
            errors.invalid_value(&operator, operator.text(), ONLY_EXISTS);
        }
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => errors.required(
                &values,
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if values.is_empty() => {}
            "Exists" | "DoesNotExist" => errors.invalid(
                &values,
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            word => errors.invalid_value(&operator, word, "not a valid selector operator"),
        }
        seen.insert(scope.text());
    }
    conflicts(errors, &seen, &list, &spec.key("scopes"));
}

/// The highest value that a class of a user may have.
const HIGHEST: i64 = 1_000_000_000;

/// How PriorityClasses are written.
pub(crate) const PRIORITY_CLASS: Strategy = Strategy {
    default: |object| {
        let Some(object) = object.as_object_mut() else { return };
        fill(object, "preemptionPolicy", "PreemptLowerPriority");
    },
    // It has a generation that never grows.
    prepare_create: |object, _| {
        kubewright_model::object::metadata_mut(object).insert("generation".to_owned(), 1.into());
    },
    validate_create: priority_class,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        let (now, before) = (At::root(new), At::root(old));
        if now.key("value").value != before.key("value").value {
            errors.forbidden(&now.key("value"), "may not be changed in an update.");
        }
        errors.into_vec()
    },
    fields: &[fixed(&["preemptionPolicy"], "ValidatePriorityClassUpdate")],
    ..PLAIN
};

/// `ValidatePriorityClass`.
fn priority_class(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let (name, value) = (at.keys(&["metadata", "name"]), at.key("value"));
    if name.text().starts_with("system-") {
        let known = SYSTEM_CLASSES.iter().find(|class| class.0 == name.text());
        let why = match known {
            None => Some(format!("{} is not a known system priority class", name.text())),
            Some(class) if value.int() != Some(class.1) => {
                Some(format!("value of {} PriorityClass must be {}", class.0, class.1))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            errors.forbidden(
                &name,
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}"),
            );
        }
    } else if value.int().is_some_and(|value| value > HIGHEST) {
        errors.forbidden(
            &value,
            format!("maximum allowed value of a user defined priority is {HIGHEST}"),
        );
    }
    let preemption = at.key("preemptionPolicy");
    errors.one_of(&preemption, &["PreemptLowerPriority", "Never"], preemption.present());
    errors.into_vec()
}

/// How RuntimeClasses are written.
pub(crate) const RUNTIME_CLASS: Strategy = Strategy {
    create_on_update: true,
    unconditional_update: false,
    any_finalizer: true,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    validate_create: runtime_class,
    validate_update: |new, _| runtime_class(new),
    fields: &[fixed(&["handler"], "ValidateRuntimeClassUpdate")],
    ..PLAIN
};

/// `ValidateRuntimeClass`.
fn runtime_class(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let handler = at.key("handler");
    if handler.text().is_empty() {
        errors.required(&handler, "");
    } else {
        errors.messages(&handler, names::dns1123_label(handler.text()));
    }
    overhead(&mut errors, &at.key("overhead"), &at.keys(&["overhead", "podFixed"]));
    let scheduling = at.key("scheduling");
    if scheduling.key("nodeSelector").present() {
        let selector = scheduling.key("nodeSelector");
        errors.extend(names::labels(selector.value, &selector.path));
    }
    let tolerated = scheduling.key("tolerations");
    tolerations(&mut errors, &tolerated);
    let mut known = BTreeSet::new();
    for toleration in tolerated.items() {
        if !known.insert(toleration.value.to_string()) {
            errors.duplicate(&toleration);
        }
    }
    errors.into_vec()
}
