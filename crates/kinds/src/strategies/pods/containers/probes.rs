//! The actions on a running container: probes and lifecycle handlers.

use super::PodFacts;
use crate::strategies::check::{At, Errors, FieldRule, check_fields, check_port, check_port_or_name, not_negative};

const NUMBERS: &[FieldRule] = &[
    not_negative(&["initialDelaySeconds"], "validateProbe"),
    not_negative(&["timeoutSeconds"], "validateProbe"),
    not_negative(&["periodSeconds"], "validateProbe"),
    not_negative(&["successThreshold"], "validateProbe"),
    not_negative(&["failureThreshold"], "validateProbe"),
];

/// `validateProbe`.
pub(super) fn probes(errors: &mut Errors, container: &At<'_>) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if !container.has(field) {
            continue;
        }
        let at = container.key(field);
        handler(errors, &at, &["exec", "httpGet", "tcpSocket", "grpc"]);
        check_fields(errors, NUMBERS, &at, None);
        let grace = at.key("terminationGracePeriodSeconds");
        if grace.int().is_some_and(|seconds| seconds <= 0) {
            errors.invalid(&grace, "must be greater than 0");
        }
        if field == "readinessProbe" {
            if grace.present() {
                errors.invalid(&grace, "must not be set for readinessProbes");
            }
            continue;
        }
        let success = at.key("successThreshold");
        if success.present() && success.int() != Some(1) {
            errors.invalid(&success, "must be 1");
        }
    }
}

/// `validateLifecycle`.
pub(super) fn lifecycle(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    for hook in ["postStart", "preStop"] {
        let hook = at.key(hook);
        if !hook.present() {
            continue;
        }
        handler(errors, &hook, &["exec", "httpGet", "tcpSocket", "sleep"]);
        let seconds = hook.keys(&["sleep", "seconds"]);
        let only = ["exec", "httpGet", "tcpSocket"].iter().all(|kind| !hook.has(kind));
        if only && hook.has("sleep") && !(0..=facts.grace_period).contains(&seconds.int().unwrap_or(0)) {
            errors.invalid_value(
                &hook.key("sleep"),
                seconds.int().unwrap_or(0),
                format!(
                    "must be non-negative and less than terminationGracePeriodSeconds ({})",
                    facts.grace_period
                ),
            );
        }
    }
}

/// Exactly one of the kinds of handlers; only the first is looked at more closely (`validateHandler`).
fn handler(errors: &mut Errors, at: &At<'_>, kinds: &[&str]) {
    let mut given = kinds.iter().copied().filter(|kind| at.has(kind));
    let Some(first) = given.next() else {
        errors.required(at, "must specify a handler type");
        return;
    };
    action(errors, first, &at.key(first));
    for kind in given {
        errors.forbidden(&at.key(kind), "may not specify more than 1 handler type");
    }
}

/// `validateHandler`.
fn action(errors: &mut Errors, kind: &str, at: &At<'_>) {
    match kind {
        "exec" if at.key("command").is_empty() => errors.required(&at.key("command"), ""),
        "httpGet" => {
            if at.text_of("path").is_empty() {
                errors.required(&at.key("path"), "");
            }
            check_port_or_name(errors, &at.key("port"));
            errors.one_of(&at.key("scheme"), &["HTTP", "HTTPS"], true);
            headers(errors, &at.key("httpHeaders"));
        }
        "tcpSocket" => check_port_or_name(errors, &at.key("port")),
        "grpc" => check_port(errors, &at.key("port")),
        _ => {}
    }
}

/// `validateHTTPGetAction`.
fn headers(errors: &mut Errors, at: &At<'_>) {
    for header in at.items() {
        let name = header.text_of("name");
        let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if name.is_empty() || !name.bytes().all(known) {
            errors.invalid_value(
                at,
                name,
                "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
                 validation is '[-A-Za-z0-9]+')",
            );
        }
    }
}
