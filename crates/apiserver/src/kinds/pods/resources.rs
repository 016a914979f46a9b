//! Rules for compute resources: names, quantities, and requests against limits.

use std::str::FromStr;

use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;

use crate::kinds::check::{At, Errors};

/// `resources` of a container.
pub(crate) fn requirements(errors: &mut Errors, at: &At<'_>) {
    let limits = at.key("limits");
    let requests = at.key("requests");
    let huge = |list: &At<'_>| list.entries().any(|(name, _)| name.starts_with("hugepages-"));
    let other = |list: &At<'_>| list.entries().any(|(name, _)| matches!(name, "cpu" | "memory"));
    let huge_alone = (huge(&limits) || huge(&requests)) && !other(&limits) && !other(&requests);
    for (name, entry) in limits.entries() {
        resource_name(errors, name, &entry);
        quantity(errors, name, &entry);
    }
    for (name, entry) in requests.entries() {
        resource_name(errors, name, &entry);
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

/// Warnings about amounts that cannot be had.
pub(crate) fn warnings(at: &At<'_>, warn: &mut Vec<String>) {
    for list in ["limits", "requests"] {
        for name in ["memory", "ephemeral-storage"] {
            let entry = at.key(list).entries().find(|(known, _)| *known == name);
            let Some((_, entry)) = entry else { continue };
            if Quantity::from_str(entry.text()).is_ok_and(|amount| amount.milli_value() % 1000 != 0) {
                warn.push(format!(
                    "{}: fractional byte value {:?} is invalid, must be an integer",
                    entry.path,
                    entry.text()
                ));
            }
        }
    }
}

/// A list of quantities such as a node's capacity or a pod's overhead.
pub(crate) fn list(errors: &mut Errors, at: &At<'_>) {
    for (name, entry) in at.entries() {
        errors.messages(&entry, names::qualified_name(name));
        quantity(errors, name, &entry);
    }
}

fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

fn overcommit_allowed(name: &str) -> bool {
    !is_extended(name) && !name.starts_with("hugepages-")
}

fn resource_name(errors: &mut Errors, name: &str, at: &At<'_>) {
    for message in names::qualified_name(name) {
        errors.invalid_value(at, name, message);
    }
    if name.contains('/') {
        return;
    }
    if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !name.starts_with("hugepages-") {
        errors.invalid_value(at, name, "must be a standard resource type or fully qualified");
        errors.invalid_value(at, name, "must be a standard resource for containers");
    }
}

fn quantity(errors: &mut Errors, name: &str, at: &At<'_>) {
    // The decoder refuses what is no quantity; what slips through is named here.
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
        && (value.sign() <= 0 || (size.value() > 0 && value.value() % size.value() != 0))
    {
        errors.invalid(at, format!("{} is not positive integer multiple of {name}", at.text()));
    }
    if is_extended(name) && value.milli_value() % 1000 != 0 {
        errors.invalid(at, "must be an integer");
    }
}
