//! DaemonSets: their rules, and the generation of their template, which they count in an annotation.

use kubewright_model::facts::TEMPLATE_COUNT;
use kubewright_schema::error::FieldError;
use kubewright_schema::labels::Selector;
use serde_json::Value;

use super::template::{Restart, pod_template};
use super::{at_most_all, int_or_percent, percent_or_number};
use crate::strategies::check::{At, Errors, ensure, get};
use crate::strategies::pods::scheduling::label_selector;

pub(super) fn template_count(object: &Value) -> i64 {
    let count = get(object, &["metadata", "annotations", TEMPLATE_COUNT]);
    count.as_str().and_then(|count| count.parse().ok()).unwrap_or(0)
}

pub(super) fn count_template(object: &mut Value, count: i64) {
    if let Some(annotations) = ensure(kubewright_model::object::metadata_mut(object), "annotations") {
        annotations.insert(TEMPLATE_COUNT.to_owned(), count.to_string().into());
    }
}

/// `ValidateDaemonSetSpec`.
pub(super) fn daemon_set(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let (selector, template) = (spec.key("selector"), spec.key("template"));
    label_selector(&mut errors, &selector);
    // No selector selects nothing; it is not said to be missing.
    let parsed = Selector::from_label_selector(selector.value, &selector.path);
    let labels = template.keys(&["metadata", "labels"]);
    if !selector.present() || parsed.is_ok_and(|parsed| !parsed.matches(labels.value)) {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
    if selector.present() && selector.key("matchLabels").is_empty() && selector.key("matchExpressions").is_empty() {
        errors.invalid(&selector, "empty selector is invalid for daemonset");
    }
    pod_template(&mut errors, &template, Restart::Always("daemonset"));
    errors.non_negative(&spec.key("minReadySeconds"));
    let strategy = spec.key("updateStrategy");
    let rolling = strategy.key("rollingUpdate");
    match strategy.key("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.present() => errors.required(&rolling, ""),
        "RollingUpdate" => {
            let unavailable = rolling.key("maxUnavailable");
            let surge = rolling.key("maxSurge");
            int_or_percent(&mut errors, &unavailable);
            int_or_percent(&mut errors, &surge);
            at_most_all(&mut errors, &unavailable);
            at_most_all(&mut errors, &surge);
            // A text without a percent sign may be a number; any other counts as zero.
            let number = |at: &At<'_>| percent_or_number(at).or(at.text().parse().ok()).unwrap_or(0);
            match (number(&unavailable), number(&surge)) {
                (0, 0) => errors.required(&unavailable, "cannot be 0 when maxSurge is 0"),
                (0, _) | (_, 0) => {}
                _ => errors.invalid(&surge, "may not be set when maxUnavailable is non-zero"),
            }
        }
        _ => errors.push(FieldError::not_supported(
            strategy.path.to_string(),
            strategy.value.clone(),
            &["RollingUpdate", "OnDelete"],
        )),
    }
    errors.non_negative(&spec.key("revisionHistoryLimit"));
    errors.into_vec()
}
