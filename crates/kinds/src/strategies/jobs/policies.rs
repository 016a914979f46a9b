//! The policies of a Job: when a failure counts, and when the job has succeeded.

use std::collections::BTreeSet;

use kubewright_schema::error::{FieldError, Reason};
use kubewright_schema::names;

use super::number_of_indexes;
use crate::strategies::check::{At, Errors};

/// `validatePodFailurePolicy`.
pub(super) fn failure_policy(errors: &mut Errors, spec: &At<'_>, rules: &At<'_>) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    if rules.len() > 20 {
        errors.push(FieldError::too_many(rules.path.to_string(), rules.len(), 20));
    }
    let names: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec.keys(&["template", "spec", list]).items())
        .map(|container| container.key("name").text())
        .collect();
    for rule in rules.items() {
        let action = rule.key("action");
        if action.text().is_empty() {
            errors.required(
                &action,
                "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
            );
        } else if action.text() == "FailIndex" {
            if !spec.key("backoffLimitPerIndex").present() {
                errors.invalid(&action, "requires the backoffLimitPerIndex to be set");
            }
        } else {
            errors.one_of(&action, &ACTIONS, true);
        }
        let (codes, conditions) = (rule.key("onExitCodes"), rule.key("onPodConditions"));
        if codes.present() {
            exit_codes(errors, &codes, &names);
        }
        pod_conditions(errors, &conditions);
        let why = match (codes.present(), conditions.is_empty()) {
            (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(FieldError {
            reason: Reason::Invalid,
            field: rule.path.to_string(),
            bad_value: None,
            detail: why.to_owned(),
        });
    }
}

/// `validatePodFailurePolicyRuleOnExitCodes`.
fn exit_codes(errors: &mut Errors, at: &At<'_>, containers: &BTreeSet<&str>) {
    let operator = at.key("operator");
    if operator.text().is_empty() {
        errors.required(&operator, "valid values: [\"In\" \"NotIn\"]");
    } else {
        errors.one_of(&operator, &["In", "NotIn"], true);
    }
    let name = at.key("containerName");
    if name.present() && !containers.contains(name.text()) {
        errors.invalid(
            &name,
            "must be one of the container or initContainer names in the pod template",
        );
    }
    let values = at.key("values");
    if values.is_empty() {
        errors.invalid(&values, "at least one value is required");
    } else if values.len() > 255 {
        errors.push(FieldError::too_many(values.path.to_string(), values.len(), 255));
    }
    let mut seen = BTreeSet::new();
    let mut last = i64::MIN;
    let mut ordered = true;
    for value in values.items() {
        let code = value.int().unwrap_or(0);
        if operator.text() == "In" && code == 0 {
            errors.invalid(&value, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            errors.duplicate(&value);
        }
        ordered &= last <= code;
        last = code;
    }
    if !ordered {
        errors.invalid(&values, "must be ordered");
    }
}

/// `validatePodFailurePolicyRuleOnPodConditions`.
fn pod_conditions(errors: &mut Errors, at: &At<'_>) {
    if at.len() > 20 {
        errors.push(FieldError::too_many(at.path.to_string(), at.len(), 20));
    }
    for pattern in at.items() {
        errors.messages(&pattern.key("type"), names::qualified_name(pattern.key("type").text()));
        let status = pattern.key("status");
        if status.text().is_empty() {
            errors.required(&status, "valid values: [\"False\" \"True\" \"Unknown\"]");
        } else {
            errors.one_of(&status, &["False", "True", "Unknown"], true);
        }
    }
}

/// `validateSuccessPolicy`.
pub(super) fn success_policy(errors: &mut Errors, spec: &At<'_>, rules: &At<'_>) {
    if rules.is_empty() {
        errors.required(
            rules,
            "at least one rules must be specified when the successPolicy is specified",
        );
    }
    if rules.len() > 20 {
        errors.push(FieldError::too_many(rules.path.to_string(), rules.len(), 20));
    }
    let completions = spec.key("completions").int().unwrap_or(0);
    for rule in rules.items() {
        let (count, indexes) = (rule.key("succeededCount"), rule.key("succeededIndexes"));
        if !count.present() && !indexes.present() {
            errors.required(
                &rule,
                "at least one of succeededCount or succeededIndexes must be specified",
            );
        }
        let named = number_of_indexes(indexes.text(), completions);
        if let Err(why) = &named {
            errors.invalid(&indexes, format!("error parsing succeededIndexes: {why}"));
        }
        errors.non_negative(&count);
        let most = |errors: &mut Errors, most: i64, what: &str| {
            if count.int().is_some_and(|count| count > most) {
                errors.invalid(
                    &count,
                    format!("must be less than or equal to {most} (the number of {what})"),
                );
            }
        };
        most(errors, completions, "specified completions");
        if indexes.present() {
            let what = "indexes in the specified succeededIndexes field";
            most(errors, named.unwrap_or(0), what);
        }
    }
}
