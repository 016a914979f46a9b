//! Which namespaces are the project's.
//!
//! A Namespace object sets labels, such as the Pod Security Standard that all pods of the namespace must keep, and its
//! deletion takes everything in it. So `deploy` touches a namespace only if it is new or carries the project's label, and
//! `undeploy` deletes no other. Invariant: the namespaces of Kubernetes are never anybody's, whatever labels they carry.

use kubewright_codegen::{Diagnostic, codes};
use serde_json::{Value, json};

use super::cluster::{Cluster, Kinds};
use super::ready::as_value;
use super::{text, title};
use crate::output::{DIM, Format, paint};

/// The label that says whose a namespace is.
const LABEL: &str = "app.kubernetes.io/name";

/// Objects of these kinds have a meaning in the namespaces of Kubernetes: rights to what is there.
const RIGHTS: [&str; 2] = ["Role", "RoleBinding"];

/// Why a namespace is not the project's.
enum NotOurs {
    /// It belongs to Kubernetes, or to everybody.
    System,
    /// It is there, and its label is another or missing.
    Labeled(Option<String>),
}

impl NotOurs {
    fn why(&self) -> String {
        match self {
            NotOurs::System => "it belongs to Kubernetes, not to one operator".to_owned(),
            NotOurs::Labeled(Some(other)) => format!("it is there already, and its label {LABEL} is {other}"),
            NotOurs::Labeled(None) => format!("it is there already, and has no label {LABEL}"),
        }
    }
}

fn is_system(namespace: &str) -> bool {
    namespace == "default" || namespace.starts_with("kube-")
}

fn is_namespace(object: &Value) -> bool {
    text(object, "/kind") == "Namespace" && text(object, "/apiVersion") == "v1"
}

fn label(object: &Value) -> Option<&str> {
    object["metadata"]["labels"][LABEL].as_str()
}

/// Why a rendered Namespace is not the project's; `None` when it is, or is not there.
async fn not_ours(cluster: &Cluster, kinds: &Kinds, namespace: &Value) -> Result<Option<NotOurs>, Diagnostic> {
    let name = text(namespace, "/metadata/name");
    if is_system(name) {
        return Ok(Some(NotOurs::System));
    }
    let Some(api) = cluster.api(kinds, namespace) else {
        return Ok(None);
    };
    let found = api.get_opt(name).await;
    let found = found.map_err(|why| cluster.failed(format!("cannot look for {}", title(namespace)), &why))?;
    let Some(found) = found.map(as_value) else {
        return Ok(None);
    };
    match (label(&found), label(namespace)) {
        (Some(is), Some(expected)) if is == expected => Ok(None),
        (is, _) => Ok(Some(NotOurs::Labeled(is.map(str::to_owned)))),
    }
}

/// Nothing of a rollout goes to a namespace of others.
///
/// # Errors
/// KWR0617 with the namespace and why it is not the project's.
pub(super) async fn check(cluster: &Cluster, kinds: &Kinds, objects: &[Value]) -> Result<(), Diagnostic> {
    let refused = |what: String| Diagnostic::new(codes::config::NAMESPACE, what);
    for namespace in objects.iter().filter(|object| is_namespace(object)) {
        let Some(reason) = not_ours(cluster, kinds, namespace).await? else {
            continue;
        };
        let name = text(namespace, "/metadata/name");
        let refused = refused(format!("refusing to deploy into Namespace {name}"))
            .because(reason.why())
            .because("nothing was changed");
        let other = "choose another one with `namespace:` in config/default/kustomization.yaml";
        return Err(match (reason, label(namespace)) {
            (NotOurs::System, _) => refused.fix(other),
            (NotOurs::Labeled(_), Some(ours)) => refused.fix(format!(
                "{other}; if it is this project's: kubectl label namespace {name} {LABEL}={ours} --overwrite"
            )),
            (NotOurs::Labeled(_), None) => refused.fix(format!(
                "{other}; if it is this project's, give it a label {LABEL}, and the same one to the Namespace in config/manager/manager.yaml"
            )),
        });
    }
    let stray = objects
        .iter()
        .find(|object| is_system(text(object, "/metadata/namespace")) && !RIGHTS.contains(&text(object, "/kind")));
    match stray {
        Some(object) => Err(refused(format!("refusing to deploy {}", title(object)))
            .because(format!(
                "its namespace is {}: {}",
                text(object, "/metadata/namespace"),
                NotOurs::System.why()
            ))
            .because("nothing was changed")
            .fix("choose a namespace of the operator's own with `namespace:` in config/default/kustomization.yaml")),
        None => Ok(()),
    }
}

/// Takes the namespaces of others out of the objects that go, and says so.
///
/// # Errors
/// When the cluster does not answer.
pub(super) async fn keep_those_of_others(
    cluster: &Cluster,
    kinds: &Kinds,
    objects: &mut Vec<Value>,
    output: Format,
) -> Result<(), Diagnostic> {
    let mut kept = Vec::new();
    for namespace in objects.iter().filter(|object| is_namespace(object)) {
        if let Some(reason) = not_ours(cluster, kinds, namespace).await? {
            let (title, why) = (title(namespace), reason.why());
            output.say(
                &paint(DIM, format!("{title} stays: {why}")),
                &json!({"event": "stays", "object": title, "why": why}),
            );
            kept.push(title);
        }
    }
    objects.retain(|object| !is_namespace(object) || !kept.contains(&title(object)));
    Ok(())
}
