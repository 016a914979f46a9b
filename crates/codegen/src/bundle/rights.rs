//! The rights of the operator's account, in the form of a ClusterServiceVersion: the rules of the roles that it is
//! bound to.
//!
//! OLM makes the account and its roles. A role for people (readers of metrics, editors of a kind) stays a manifest of
//! the bundle.

use serde_json::{Value, json};

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::Plan;

/// ClusterRoles that every cluster has, beside those of `system:`.
const OF_CLUSTERS: [&str; 4] = ["admin", "cluster-admin", "edit", "view"];

/// The rules of one kind of permission, by account.
#[derive(Debug, Default)]
pub(super) struct Rights {
    /// Everywhere.
    pub(super) cluster: Vec<Value>,
    /// In the operator's namespace, or those that it watches.
    pub(super) namespaced: Vec<Value>,
}

/// Takes the bindings of the operators' accounts, and the roles that they name, out of the objects. A binding to a role
/// that every cluster has stays an object.
///
/// # Errors
/// When a binding names a role that is not there.
pub(super) fn of(objects: &mut Vec<Value>, plan: &mut Plan<'_>) -> Result<Rights, Diagnostic> {
    let mut accounts: Vec<(String, String)> = Vec::new();
    for deployment in objects.iter().filter(|object| object["kind"] == "Deployment") {
        let (account, namespace) = (
            account(deployment).to_owned(),
            text(&deployment["metadata"]["namespace"]),
        );
        if !accounts.iter().any(|(known, _)| *known == account) {
            accounts.push((account, namespace));
        }
    }
    let mut rights = Rights::default();
    let mut gone: Vec<(String, String)> = Vec::new();
    for (account, namespace) in &accounts {
        let (mut cluster, mut namespaced) = (Vec::new(), Vec::new());
        for binding in objects.iter().filter(|object| binds(object, account)) {
            let role = (text(&binding["roleRef"]["kind"]), text(&binding["roleRef"]["name"]));
            let found = objects
                .iter()
                .find(|object| object["kind"] == role.0.as_str() && object["metadata"]["name"] == role.1.as_str());
            let Some(found) = found else {
                let is_of_clusters = role.1.starts_with("system:") || OF_CLUSTERS.contains(&role.1.as_str());
                if role.0 == "ClusterRole" && is_of_clusters {
                    continue;
                }
                return Err(Diagnostic::new(codes::config::BUNDLE, "cannot make the bundle")
                    .at(Place::default().field(format!(
                        "{} {}",
                        text(&binding["kind"]),
                        text(&binding["metadata"]["name"])
                    )))
                    .because(format!(
                        "it names the {} {}, which is not among the manifests",
                        role.0, role.1
                    ))
                    .fix("add the role to config/rbac, or take the binding out"));
            };
            let rules = found["rules"].as_array().cloned().unwrap_or_default();
            if binding["kind"] == "ClusterRoleBinding" {
                cluster.extend(rules);
            } else {
                elsewhere(binding, namespace, plan);
                namespaced.extend(rules);
            }
            gone.push((text(&binding["kind"]), text(&binding["metadata"]["name"])));
            gone.push(role);
        }
        for (rules, list) in [(cluster, &mut rights.cluster), (namespaced, &mut rights.namespaced)] {
            if !rules.is_empty() {
                list.push(json!({"rules": rules, "serviceAccountName": account}));
            }
        }
    }
    objects.retain(|object| !gone.contains(&(text(&object["kind"]), text(&object["metadata"]["name"]))));
    Ok(rights)
}

/// The account of a Deployment's pods.
pub(super) fn account(deployment: &Value) -> &str {
    let account = deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str();
    account.unwrap_or("default")
}

/// Whether a binding is one of the account.
fn binds(binding: &Value, account: &str) -> bool {
    let is_binding = binding["kind"] == "ClusterRoleBinding" || binding["kind"] == "RoleBinding";
    let mut subjects = binding["subjects"].as_array().into_iter().flatten();
    is_binding && subjects.any(|subject| subject["kind"] == "ServiceAccount" && subject["name"] == account)
}

/// Says that a permission in another namespace becomes one in the operator's.
fn elsewhere(binding: &Value, own: &str, plan: &mut Plan<'_>) {
    let namespace = text(&binding["metadata"]["namespace"]);
    if namespace.is_empty() || namespace == own {
        return;
    }
    let name = text(&binding["metadata"]["name"]);
    plan.warnings.push(
        Diagnostic::new(codes::config::BUNDLE, "a right is lost in the bundle")
            .at(Place::default().field(format!("RoleBinding {name}")))
            .because(format!(
                "it is one in the namespace {namespace}, and OLM grants rights only where the operator is installed, or everywhere"
            ))
            .fix("use a ClusterRole for it"),
    );
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
