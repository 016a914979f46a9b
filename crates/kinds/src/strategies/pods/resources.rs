//! Rules for compute resources: names, quantities, and requests against limits.

use std::collections::BTreeMap;
use std::str::FromStr;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;

use super::host;
use crate::strategies::check::{At, Errors};
use kubewright_model::facts::amounts::{is_counted_in_wholes, is_extended};
use kubewright_model::facts::needs::containers_need;

/// The owner of the resources: it decides which names are allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// A container.
    Container,
    /// A pod as a whole.
    Pod,
}

/// `resources` of a container or of a pod (`validateResourceRequirements`).
pub(crate) fn requirements(errors: &mut Errors, at: &At<'_>, of: Of) {
    let limits = at.key("limits");
    let requests = at.key("requests");
    let huge = |list: &At<'_>| list.entries().any(|(name, _)| name.starts_with("hugepages-"));
    let other = |list: &At<'_>| list.entries().any(|(name, _)| matches!(name, "cpu" | "memory"));
    let huge_alone = (huge(&limits) || huge(&requests)) && !other(&limits) && !other(&requests);
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
                    &requests,
                    entry.text(),
                    format!("must be equal to {name} limit of {limit}"),
                );
            }
            (Ok(request), Ok(limit)) if request > limit => {
                errors.invalid_value(
                    &requests,
                    entry.text(),
                    format!("must be less than or equal to {name} limit of {limit}"),
                );
            }
            (Ok(_), Err(_)) if !overcommit_allowed(name) && !limit.present() => {
                errors.required(&limits, "Limit must be set for non overcommitable resources");
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

/// `overhead` of a pod: limits of a container, to Kubernetes (`validateOverhead`).
pub(crate) fn overhead(errors: &mut Errors, at: &At<'_>) {
    let limits = at.moved(at.path.key("limits"));
    for (name, entry) in limits.entries() {
        resource_name(errors, name, &entry, Of::Container);
        quantity(errors, name, &entry);
    }
}

fn overcommit_allowed(name: &str) -> bool {
    !is_extended(name) && !name.starts_with("hugepages-")
}

/// Refuses a name that no resource of a container or a pod has (`validateResourceName`).
pub(crate) fn resource_name(errors: &mut Errors, name: &str, at: &At<'_>, of: Of) {
    const STANDARD: [&str; 10] = [
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
        "storage",
    ];
    let messages = names::qualified_name(name);
    let qualified = messages.is_empty();
    for message in messages {
        errors.invalid_value(at, name, message);
    }
    let plain = !name.contains('/');
    let computed = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    let quotas = ["requests.", "limits."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    let of_quotas =
        quotas.is_some_and(|rest| matches!(rest, "cpu" | "memory" | "ephemeral-storage") || name == "requests.storage");
    let unknown = plain && !computed && !of_quotas && !STANDARD.contains(&name);
    if qualified && unknown {
        errors.invalid_value(at, name, "must be a standard resource type or fully qualified");
    }
    match of {
        Of::Container if plain && !computed => {
            errors.invalid_value(at, name, "must be a standard resource for containers");
        }
        Of::Container if !plain && (name.starts_with("requests.") || (!qualified && is_extended(name))) => {
            errors.invalid_value(at, name, "doesn't follow extended resource name standard");
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
