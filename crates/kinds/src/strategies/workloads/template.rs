//! The pod template of workloads, the selector that matches it, and the claims beside it.

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use kubewright_schema::labels::Selector;
use kubewright_schema::measure;
use serde_json::{Value, json};

use crate::strategies::check::{At, Errors, ensure, get};
use crate::strategies::pods;
use crate::strategies::pods::scheduling::label_selector;

/// A selector that is there, selects something and matches the labels of the template; then the template itself.
/// `ValidatePodTemplateSpecForReplicaSet`.
pub(super) fn selector_and_template(errors: &mut Errors, spec: &At<'_>, restart: Restart) {
    let selector = spec.key("selector");
    let template = spec.key("template");
    let labels = template.keys(&["metadata", "labels"]);
    if selector.present() {
        label_selector(errors, &selector);
        if selector.key("matchLabels").is_empty() && selector.key("matchExpressions").is_empty() {
            // Of a ReplicaSet, Kubernetes says the same as of a Deployment.
            let kind = match restart.kind() {
                "replicaset" => "deployment",
                kind => kind,
            };
            errors.invalid(&selector, format!("empty selector is invalid for {kind}"));
        }
    } else {
        errors.required(&selector, "");
    }
    let parsed = Selector::from_label_selector(selector.value, &selector.path);
    if parsed.is_err() {
        // There is nothing to hold the template against, and it is not looked at.
        let why = match restart.kind() {
            "statefulset" => "",
            _ => "invalid label selector",
        };
        errors.invalid(&selector, why);
        if restart.kind() == "statefulset" {
            ends(errors, &template.key("spec"), restart);
        }
        return;
    }
    // An absent selector selects nothing, hence does not match either: Kubernetes reports both.
    let matches = selector.present() && parsed.is_ok_and(|parsed| parsed.matches(labels.value));
    if !matches {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
    if restart.kind() == "statefulset" {
        // Upstream looks at them twice.
        labels_and_annotations(errors, &template);
        let whole = of_stateful_set(&template, &spec.key("volumeClaimTemplates"));
        pod_template(errors, &At::root(&whole).moved(template.path.clone()), restart);
    } else {
        pod_template(errors, &template, restart);
    }
}

/// The template of a StatefulSet as its pods will have it: each claim is a volume of its name, before the volumes of
/// other names, and the controller names the hosts.
fn of_stateful_set(template: &At<'_>, claims: &At<'_>) -> Value {
    let mut whole = measure::copy(template.value);
    let Some(spec) = whole.as_object_mut().and_then(|whole| ensure(whole, "spec")) else {
        return whole;
    };
    for name in ["hostname", "subdomain"] {
        spec.remove(name);
    }
    let mut volumes: Vec<Value> = Vec::new();
    let mut names = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.keys(&["metadata", "name"]).text();
        if names.insert(name) {
            volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        }
    }
    if volumes.is_empty() {
        return whole;
    }
    let own = spec.get("volumes").and_then(Value::as_array);
    let others = own
        .into_iter()
        .flatten()
        .filter(|volume| get(volume, &["name"]).as_str().is_none_or(|name| !names.contains(name)));
    let others: Vec<Value> = others.cloned().collect();
    volumes.extend(others);
    spec.insert("volumes".to_owned(), volumes.into());
    whole
}

/// The restart policy that a workload demands of its template.
#[derive(Clone, Copy)]
pub(crate) enum Restart {
    Always(&'static str),
    NotAlways,
    Any,
}

impl Restart {
    fn kind(self) -> &'static str {
        match self {
            Restart::Always(kind) => kind,
            Restart::NotAlways => "job",
            Restart::Any => "podtemplate",
        }
    }
}

fn labels_and_annotations(errors: &mut Errors, template: &At<'_>) {
    let metadata = template.key("metadata");
    if metadata.key("labels").present() {
        errors.extend(kubewright_schema::names::labels(
            metadata.key("labels").value,
            // Upstream's structs have no field for the metadata itself.
            &template.path.key("labels"),
        ));
    }
    if metadata.key("annotations").present() {
        errors.extend(kubewright_schema::names::annotations(
            metadata.key("annotations").value,
            &template.path.key("annotations"),
        ));
    }
}

/// `ValidatePodTemplateSpec`.
pub(crate) fn pod_template(errors: &mut Errors, template: &At<'_>, restart: Restart) {
    labels_and_annotations(errors, template);
    let metadata = template.key("metadata");
    let spec = template.key("spec");
    // The path stands so in Kubernetes.
    let annotations = metadata.key("annotations").moved(template.path.key("annotations"));
    pods::annotations::annotations(errors, &annotations, &spec);
    pods::validate::template(errors, &spec);
    if !spec.key("ephemeralContainers").is_empty() {
        errors.forbidden(
            &spec.key("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
    ends(errors, &spec, restart);
}

/// How the pods of a template may end.
fn ends(errors: &mut Errors, spec: &At<'_>, restart: Restart) {
    let policy = spec.key("restartPolicy");
    match restart {
        Restart::Always(kind) => {
            let owner = match kind {
                "statefulset" => "StatefulSet",
                "daemonset" => "DaemonSet",
                "replicationcontroller" => "ReplicationController",
                _ => "ReplicaSet",
            };
            let deadline = spec.key("activeDeadlineSeconds");
            if deadline.present() {
                errors.forbidden(&deadline, format!("activeDeadlineSeconds in {owner} is not Supported"));
            }
            if !matches!(policy.text(), "Always" | "") {
                errors.unsupported(&policy, &["Always"]);
            }
        }
        Restart::Any => {}
        Restart::NotAlways => {
            if matches!(policy.text(), "Always" | "") {
                errors.required(&policy, "valid values: \"OnFailure\", \"Never\"");
            } else if !["OnFailure", "Never"].contains(&policy.text()) {
                errors.unsupported(&policy, &["OnFailure", "Never"]);
            }
        }
    }
}

pub(super) fn lone_template(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    pod_template(&mut errors, &At::root(new).key("template"), Restart::Any);
    errors.into_vec()
}
