//! StatefulSets: their rules, and their mutable fields.

use kubewright_schema::check::semantically_equal;
use kubewright_schema::error::FieldError;
use serde_json::Value;

use super::int_or_percent;
use super::template::Restart;
use super::template::selector_and_template;
use crate::strategies::check::{At, Errors, Must, check_fields, get, not_negative, rule};
use crate::strategies::pods;

/// The policy for the claims of a StatefulSet.
const RETENTION: Must = Must::BeOneOf(&["Retain", "Delete"]);

/// Rules for a StatefulSet. Immutable fields of a stored StatefulSet are not validated again (`is_new`): they may be
/// older than the rule. Upstream: `ValidateStatefulSetSpec`.
pub(super) fn stateful_set(new: &Value, is_new: bool) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let management = spec.key("podManagementPolicy");
    match management.text() {
        "" => errors.required(&management, ""),
        "OrderedReady" | "Parallel" => {}
        _ => errors.invalid(&management, "must be 'OrderedReady' or 'Parallel'"),
    }
    let strategy = spec.key("updateStrategy");
    match strategy.key("type").text() {
        "" => errors.required(&strategy, ""),
        "OnDelete" => {
            if strategy.key("rollingUpdate").present() {
                errors.invalid(
                    &strategy.key("rollingUpdate"),
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => {
            errors.non_negative(&strategy.keys(&["rollingUpdate", "partition"]));
            int_or_percent(&mut errors, &strategy.keys(&["rollingUpdate", "maxUnavailable"]));
        }
        _ => errors.invalid(&strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
    let policy = spec.key("persistentVolumeClaimRetentionPolicy");
    let rules = [
        rule(
            &["whenDeleted"],
            RETENTION,
            "ValidatePersistentVolumeClaimRetentionPolicy",
        ),
        rule(
            &["whenScaled"],
            RETENTION,
            "ValidatePersistentVolumeClaimRetentionPolicy",
        ),
    ];
    check_fields(&mut errors, &rules, &policy, None);
    for claim in spec.key("volumeClaimTemplates").items().filter(|_| is_new) {
        pods::volumes::claim_spec(&mut errors, &claim.key("spec"));
    }
    let rules = [
        not_negative(&["replicas"], "ValidateStatefulSetSpec"),
        not_negative(&["minReadySeconds"], "ValidateStatefulSetSpec"),
        not_negative(&["ordinals", "start"], "ValidateStatefulSetSpec"),
    ];
    check_fields(&mut errors, &rules, &spec, None);
    let service = spec.key("serviceName");
    if is_new && !service.text().is_empty() {
        errors.messages(&service, kubewright_schema::names::dns1123_label(service.text()));
    }
    selector_and_template(&mut errors, &spec, Restart::Always("statefulset"));
    errors.into_vec()
}

/// The warnings about the claims and the history of a StatefulSet, besides those about its template.
pub(super) fn warnings(new: &Value, is_new: bool, warnings: &mut Vec<String>) {
    let spec = At::root(new).key("spec");
    for claim in spec.key("volumeClaimTemplates").items() {
        let resources = claim.keys(&["spec", "resources"]);
        // Upstream's paths lead through other names.
        let place = if is_new {
            claim.path.clone()
        } else {
            claim.path.key("Spec")
        };
        let resources = resources.moved(place.key("resources"));
        for list in ["requests", "limits"] {
            pods::warnings::fractions(&resources.key(list), &["storage"], warnings);
        }
    }
    let history = spec.key("revisionHistoryLimit");
    if history.int().is_some_and(|kept| kept < 0) {
        warnings.push(format!(
            "{}: a negative value retains all historical revisions; a value >= 0 is recommended",
            history.path
        ));
    }
}

/// The fields of a StatefulSet's spec that may change.
const STATEFUL_SET_UPDATABLE: [&str; 8] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "status",
];

/// `ValidateStatefulSetUpdate`.
pub(super) fn update_stateful_set(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    errors.extend(stateful_set(new, false));
    let without = |value: &Value| {
        let mut spec = get(value, &["spec"]).clone();
        if let Some(spec) = spec.as_object_mut() {
            for field in STATEFUL_SET_UPDATABLE {
                spec.remove(field);
            }
        }
        spec
    };
    if !semantically_equal(&without(new), &without(old)) {
        errors.forbidden(
            &At::root(new).key("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
    errors.into_vec()
}
