//! Rules for compute resources: names, quantities, and requests against limits.

use std::collections::BTreeMap;
use std::str::FromStr;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;
use serde_json::Value;

use super::host;
use crate::strategies::check::{At, Errors};
use kubewright_model::facts::amounts::{is_counted_in_wholes, is_extended, is_native, is_object_count};
use kubewright_model::facts::needs::containers_need;

/// The owner of the resources: it decides which names are allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// A container.
    Container,
    /// A pod as a whole.
    Pod,
    /// A quota.
    Quota,
    /// A limit of anything else, such as a claim.
    Other,
}

/// `resources` of a container or of a pod (`validateResourceRequirements`).
pub(crate) fn requirements(errors: &mut Errors, at: &At<'_>, of: Of) {
    amounts(errors, at, &at.key("limits"), &at.key("requests"), of);
}

/// Limits and requests, wherever they stand below `at`.
fn amounts(errors: &mut Errors, at: &At<'_>, limits: &At<'_>, requests: &At<'_>, of: Of) {
    let huge = |list: &At<'_>| list.entries().any(|(name, _)| name.starts_with("hugepages-"));
    let other = |list: &At<'_>| list.entries().any(|(name, _)| matches!(name, "cpu" | "memory"));
    let huge_alone = (huge(limits) || huge(requests)) && !other(limits) && !other(requests);
    for (name, entry) in limits.entries() {
        resource_name(errors, name, &entry, of);
        quantity(errors, name, &entry);
    }
    for (name, entry) in requests.entries() {
        resource_name(errors, name, &entry, of);
        quantity(errors, name, &entry);
        let limit = limits.key(name);
        match (Quantity::from_str(entry.text()), Quantity::from_str(limit.text())) {
            (Ok(request), Ok(limit)) if !overcommit_allowed(name) && request != limit => {
                errors.invalid_value(
                    requests,
                    entry.text(),
                    format!("must be equal to {name} limit of {limit}"),
                );
            }
            (Ok(request), Ok(limit)) if request > limit => {
                errors.invalid_value(
                    requests,
                    entry.text(),
                    format!("must be less than or equal to {name} limit of {limit}"),
                );
            }
            (Ok(_), Err(_)) if !overcommit_allowed(name) && !limit.present() => {
                errors.required(limits, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    if huge_alone {
        errors.forbidden(at, "HugePages require cpu or memory");
    }
}

/// `resources` of a pod as a whole (`validatePodResources`).
pub(crate) fn of_pod(errors: &mut Errors, spec: &At<'_>) {
    let at = spec.key("resources");
    if !at.present() {
        return;
    }
    if spec.keys(&["os", "name"]).text() == "windows" {
        errors.forbidden(&at, "may not be set for a windows pod");
        return;
    }
    if at.has("claims") {
        errors.forbidden(&at.key("claims"), "claims may not be set for Resources at pod-level");
        let claims = spec.key("resourceClaims").items();
        let known = claims.map(|claim| claim.text_of("name")).collect();
        host::claims_used(errors, &at.key("claims"), &known);
    }
    requirements(errors, &at, Of::Pod);
    for (field, only_huge) in [("requests", false), ("limits", true)] {
        let list = at.key(field);
        let given: BTreeMap<&str, At<'_>> = list.entries().collect();
        for (name, sum) in containers_need(spec.value, field) {
            let entry = given.get(name.as_str());
            let Some(entry) = entry.filter(|_| !only_huge || name.starts_with("hugepages-")) else {
                continue;
            };
            if Quantity::from_str(entry.text()).is_ok_and(|whole| sum > whole) {
                errors.invalid(
                    entry,
                    format!("must be greater than or equal to aggregate container {field} of {sum}"),
                );
            }
        }
    }
    for (index, container) in spec.key("containers").items().enumerate() {
        for (name, limit) in container.keys(&["resources", "limits"]).entries() {
            let whole = at.keys(&["limits", name]);
            if let (Ok(own), Ok(most)) = (Quantity::from_str(limit.text()), Quantity::from_str(whole.text()))
                && own > most
            {
                // The path stands so in Kubernetes.
                let path = at.path.key("containers").index(index).map_key(name).key("limits");
                errors.invalid(
                    &limit.moved(path),
                    format!("must be less than or equal to pod limits of {most}"),
                );
            }
        }
    }
}

/// What a pod needs besides its containers: limits of a container, to Kubernetes (`validateOverhead`). `list` holds the
/// amounts of `at`.
pub(crate) fn overhead(errors: &mut Errors, at: &At<'_>, list: &At<'_>) {
    let limits = list.moved(at.path.key("limits"));
    let requests = At {
        value: &Value::Null,
        path: at.path.key("requests"),
    };
    amounts(errors, at, &limits, &requests, Of::Container);
}

/// Whether a resource has a domain of its own, and a name of the right form (`IsExtendedResourceName`).
pub(crate) fn is_extended_name(name: &str) -> bool {
    is_extended(name) && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// `IsOvercommitAllowed`.
pub(crate) fn overcommit_allowed(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

/// Whether a quota counts a resource of this name (`IsStandardQuotaResourceName`).
pub(crate) fn is_counted(name: &str) -> bool {
    let (requested, limited) = (name.strip_prefix("requests."), name.strip_prefix("limits."));
    let computed = |name: &str| matches!(name, "cpu" | "memory" | "ephemeral-storage");
    let huge = requested.unwrap_or(name).starts_with("hugepages-");
    huge || computed(requested.or(limited).unwrap_or(name)) || name == "requests.storage" || is_object_count(name)
}

/// Refuses a name that no resource of such an owner has (`validateResourceName`, `validateContainerResourceName`,
/// `validatePodResourceName`, `ValidateResourceQuotaResourceName`).
pub(crate) fn resource_name(errors: &mut Errors, name: &str, at: &At<'_>, of: Of) {
    let messages = names::qualified_name(name);
    let qualified = messages.is_empty();
    for message in messages {
        errors.invalid_value(at, name, message);
    }
    let plain = !name.contains('/');
    let computed = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    let unknown = plain && !is_counted(name) && name != "storage";
    if qualified && unknown {
        errors.invalid_value(at, name, "must be a standard resource type or fully qualified");
    }
    match of {
        Of::Container if plain && !computed => {
            errors.invalid_value(at, name, "must be a standard resource for containers");
        }
        Of::Container if !is_native(name) && !is_extended_name(name) => {
            errors.invalid_value(at, name, "doesn't follow extended resource name standard");
        }
        Of::Quota if plain && !is_counted(name) => {
            errors.invalid_value(at, name, "must be a standard resource for quota");
        }
        Of::Pod if qualified && !unknown && (!computed || name == "ephemeral-storage") => {
            errors.push(FieldError::not_supported(
                at.path.to_string(),
                name,
                &["cpu", "hugepages-", "memory"],
            ));
        }
        _ => {}
    }
}

/// `validateBasicResource`.
fn quantity(errors: &mut Errors, name: &str, at: &At<'_>) {
    // The decoder refuses a value that is not a quantity; one that it let through is reported here.
    let Ok(value) = Quantity::from_str(at.text()) else {
        errors.invalid(
            at,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        );
        return;
    };
    if value.sign() < 0 {
        errors.invalid(at, "must be greater than or equal to 0");
    }
    if let Some(size) = name
        .strip_prefix("hugepages-")
        .and_then(|size| Quantity::from_str(size).ok())
        && (size.sign() <= 0 || size.milli_value() % 1000 != 0 || value.value() % size.value() != 0)
    {
        errors.invalid(at, format!("{} is not positive integer multiple of {name}", at.text()));
    }
    if is_counted_in_wholes(name) && value.milli_value() % 1000 != 0 {
        errors.invalid(at, "must be an integer");
    }
}
