//! PodSecurity: pods must keep to the Pod Security Standard that labels of their namespace name.
//!
//! A pod that violates the enforced level is refused. A violation of the level of the mode `warn` is a warning, for
//! pods and for workloads with a pod template; one of the level of the mode `audit` is an annotation in the audit log.
//! A namespace that begins to enforce more is told which of its pods would not be let in. The rules are listed in
//! `checks`.
//!
//! Not here: exemptions (kube-apiserver has none by default).

mod baseline;
mod checks;
mod levels;
mod restricted;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Admission, Admitted, Attributes, Operation, Session};
use crate::model::object;
use crate::model::status::Status;
use crate::storage::ListRequest;
use crate::values::get;
use checks::{Violations, text};
use levels::{Level, LevelVersion, Policy, policy};

/// Subresources of pods that do not write the pod.
const IGNORED: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];
/// How many pods of a namespace are looked at when it begins to enforce more.
const MAX_PODS: usize = 3000;

/// The plugin.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodSecurity;

impl PodSecurity {
    fn check(
        &self,
        session: &Session<'_>,
        attributes: &Attributes,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if !matches!(attributes.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        let resource = &attributes.resource;
        let main = attributes.subresource.is_empty();
        match (resource.group.as_ref(), resource.plural.as_ref()) {
            ("", "namespaces") if main => namespace(session, attributes, new, old),
            ("", "pods") if !IGNORED.contains(&attributes.subresource.as_str()) => pod(session, attributes, new, old),
            ("", "podtemplates") if main => template(session, attributes, get(new, &["template"])),
            ("", "replicationcontrollers")
            | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("batch", "jobs")
                if main =>
            {
                template(session, attributes, get(new, &["spec", "template"]))
            }
            ("batch", "cronjobs") if main => template(
                session,
                attributes,
                get(new, &["spec", "jobTemplate", "spec", "template"]),
            ),
            _ => Ok(()),
        }
    }
}

fn namespace(session: &Session<'_>, attributes: &Attributes, new: &Value, old: Option<&Value>) -> Result<(), Status> {
    let (new_policy, errors) = policy(new);
    let (old_policy, old_errors) = match old {
        Some(old) if attributes.operation == Operation::Update => policy(old),
        _ => (new_policy, Vec::new()),
    };
    if !errors.is_empty() && errors != old_errors {
        return Err(Status::invalid("", "Namespace", &attributes.name, &errors));
    }
    let (enforce, before) = (new_policy.enforce, old_policy.enforce);
    let relaxed = enforce.version == before.version && enforce.level <= before.level;
    if enforce.level != Level::Privileged && !relaxed {
        for warning in violations_in(session, object::name(new), enforce) {
            session.warn(warning);
        }
    }
    Ok(())
}

/// Warnings about pods that are there and would not be let in now.
fn violations_in(session: &Session<'_>, namespace: &str, enforce: LevelVersion) -> Vec<String> {
    let request = ListRequest {
        prefix: format!("{namespace}/"),
        ..ListRequest::default()
    };
    let Ok(pods) = session.storage().list("pods", &request) else {
        return vec!["failed to list pods while checking new PodSecurity enforce level".to_owned()];
    };
    let total = pods.items.len();
    let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for (_, pod) in pods.items.iter().take(MAX_PODS) {
        let pod = pod.value();
        let violations = checks::evaluate(enforce, get(pod, &["metadata"]), get(pod, &["spec"]));
        if violations.is_empty() {
            continue;
        }
        let (first, count) = found
            .entry(violations.reasons())
            .or_insert_with(|| (object::name(pod).to_owned(), 0));
        *count += 1;
        if object::name(pod) < first.as_str() {
            object::name(pod).clone_into(first);
        }
    }
    let mut warnings = Vec::new();
    if total > MAX_PODS {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MAX_PODS} of {total} existing pods"
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{enforce}\""
        ));
    }
    let mut lines: Vec<String> = found
        .into_iter()
        .map(|(reasons, (first, count))| match count {
            1 => format!("{first}: {reasons}"),
            2 => format!("{first} (and 1 other pod): {reasons}"),
            _ => format!("{first} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    lines.sort();
    warnings.append(&mut lines);
    warnings
}

/// The policy in the labels of the request's namespace.
fn policy_of(session: &Session<'_>, attributes: &Attributes) -> Option<Policy> {
    let namespace = session.namespace(&attributes.namespace)?;
    Some(policy(namespace.value()).0)
}

fn pod(session: &Session<'_>, attributes: &Attributes, new: &Value, old: Option<&Value>) -> Result<(), Status> {
    let Some(policy) = policy_of(session, attributes) else {
        let why = format!("failed to lookup namespace {:?}", attributes.namespace);
        return Err(Status::internal(&why));
    };
    let enforced = || session.annotate("pod-security.kubernetes.io/enforce-policy", policy.enforce.to_string());
    if policy.is_privileged() {
        enforced();
        return Ok(());
    }
    if let (Operation::Update, Some(old)) = (attributes.operation, old)
        && !is_significant(get(new, &["spec"]), get(old, &["spec"]))
    {
        return Ok(());
    }
    let (metadata, spec) = (get(new, &["metadata"]), get(new, &["spec"]));
    enforced();
    audit(session, policy, metadata, spec);
    let violations = checks::evaluate(policy.enforce, metadata, spec);
    if !violations.is_empty() {
        let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, violations.details());
        return Err(Status::forbidden(&attributes.resource, &attributes.name, &why));
    }
    warn(session, policy.warn, &checks::evaluate(policy.warn, metadata, spec));
    Ok(())
}

/// A workload with a pod template is only warned about: the pods themselves are refused.
fn template(session: &Session<'_>, attributes: &Attributes, template: &Value) -> Result<(), Status> {
    if let (Some(policy), true) = (policy_of(session, attributes), template.is_object()) {
        let (metadata, spec) = (get(template, &["metadata"]), get(template, &["spec"]));
        audit(session, policy, metadata, spec);
        let violations = checks::evaluate(policy.warn, metadata, spec);
        warn(session, policy.warn, &violations);
    }
    Ok(())
}

/// Adds the violations of the level of the mode `audit` to the audit log.
fn audit(session: &Session<'_>, policy: Policy, metadata: &Value, spec: &Value) {
    if policy.audit.level == Level::Privileged || !session.is_audited() {
        return;
    }
    let violations = checks::evaluate(policy.audit, metadata, spec);
    if !violations.is_empty() {
        let why = format!(
            "would violate PodSecurity \"{}\": {}",
            policy.audit,
            violations.details()
        );
        session.annotate("pod-security.kubernetes.io/audit-violations", why);
    }
}

fn warn(session: &Session<'_>, level: LevelVersion, violations: &Violations) {
    if !violations.is_empty() {
        session.warn(format!(
            "would violate PodSecurity \"{level}\": {}",
            violations.details()
        ));
    }
}

/// Whether an update changes fields that may change in a running pod and that the rules look at: images, and new
/// ephemeral containers.
fn is_significant(new: &Value, old: &Value) -> bool {
    let in_place = ["containers", "initContainers"].iter().any(|field| {
        let (new, old) = (list(new, field), list(old, field));
        new.len() != old.len()
            || new
                .iter()
                .zip(old)
                .any(|(new, old)| new.get("image") != old.get("image"))
    });
    if in_place {
        return true;
    }
    // Names are looked up: there may be thousands, and each is looked for.
    let (old, new) = (list(old, "ephemeralContainers"), list(new, "ephemeralContainers"));
    let mut before = BTreeMap::new();
    for container in old {
        before
            .entry(text(container, &["name"]))
            .or_insert(text(container, &["image"]));
    }
    let changed = |container| before.get(text(container, &["name"])) != Some(&text(container, &["image"]));
    new.iter().any(changed)
}

fn list<'a>(spec: &'a Value, field: &str) -> &'a [Value] {
    get(spec, &[field]).as_array().map_or(&[], Vec::as_slice)
}

impl Admission for PodSecurity {
    fn validate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        Admitted::Now(self.check(session, attributes, object, old))
    }
}
