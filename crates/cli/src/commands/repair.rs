//! `kubewright cluster --repair`: saves the objects of a damaged data folder, and reports them.
//!
//! A cluster stores some two hundred objects of its own, which it creates again when they are missing; of those only the
//! number is printed. `--output json` names all. Not here: the repair (`kubewright-cluster`).

use std::path::Path;

use serde_json::json;

use crate::output::{Failure, Format, count};

/// Saves all recoverable objects of a damaged folder.
pub(super) fn repair(folder: &Path, output: Format) -> Result<(), Failure> {
    let report = kubewright_cluster::repair(folder).map_err(|why| {
        Failure::new(format!("cannot repair {}", folder.display()))
            .because(why)
            .fix("name the folder of a cluster, which `kubewright cluster --data-dir DIR` made")
    })?;
    let text = match &report.kept {
        None => format!("nothing is damaged: {}", count(report.saved, "object")),
        Some(kept) => format!(
            "{} saved; the damaged file is {}{}{}{}",
            count(report.saved, "object"),
            kept.display(),
            lines("damaged", report.damage.clone()),
            objects(
                "saved, but perhaps in an older version or deleted since",
                &report.uncertain
            ),
            objects("lost", &report.lost),
        ),
    };
    let event = json!({
        "event": "repaired",
        "saved": report.saved,
        "damage": report.damage,
        "uncertain": report.uncertain,
        "lost": report.lost,
        "kept": report.kept,
    });
    output.say(&text, &event);
    Ok(())
}

fn lines(heading: &str, lines: Vec<String>) -> String {
    if lines.is_empty() {
        return String::new();
    }
    format!("\n{heading}:\n  {}", lines.join("\n  "))
}

/// Objects by name, those of the cluster itself by number.
fn objects(heading: &str, names: &[String]) -> String {
    let (own, mut users): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| is_of_the_cluster(name));
    users.sort();
    let mut shown: Vec<String> = users.into_iter().cloned().collect();
    if !own.is_empty() {
        shown.push(format!("{} of the cluster itself", count(own.len(), "object")));
    }
    lines(heading, shown)
}

/// Whether a stored object (`configmaps default/settings`) is one that every cluster makes for itself.
fn is_of_the_cluster(stored: &str) -> bool {
    let (resource, key) = stored.split_once(' ').unwrap_or((stored, ""));
    let resource = resource.split('.').next().unwrap_or_default();
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let of_system = namespace.starts_with("kube-");
    match resource {
        "apiservices" | "flowschemas" | "prioritylevelconfigurations" | "events" | "servicecidrs" | "ipaddresses" => {
            true
        }
        "namespaces" => name == "default" || name.starts_with("kube-"),
        "clusterroles" | "clusterrolebindings" | "roles" | "rolebindings" => {
            name.starts_with("system:")
                || matches!(
                    name,
                    "admin" | "edit" | "view" | "cluster-admin" | "extension-apiserver-authentication-reader"
                )
        }
        "services" | "endpoints" | "endpointslices" => (namespace, name) == ("default", "kubernetes"),
        "serviceaccounts" => name == "default" || of_system,
        "configmaps" => name == "kube-root-ca.crt" || name == "extension-apiserver-authentication",
        "leases" => of_system,
        "priorityclasses" => name.starts_with("system-"),
        "storageclasses" => name == "standard",
        "nodes" | "csinodes" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_users_are_named_and_those_of_the_cluster_counted() {
        let names = [
            "clusterroles.rbac.authorization.k8s.io system:node",
            "clusterroles.rbac.authorization.k8s.io my-role",
            "configmaps default/settings",
            "configmaps default/kube-root-ca.crt",
            "namespaces default",
            "namespaces team",
            "services default/kubernetes",
            "guestbooks.webapp.my.domain default/hello",
            "leases.coordination.k8s.io kube-node-lease/node",
        ];
        let text = objects("lost", &names.map(str::to_owned));
        assert_eq!(
            text,
            "\nlost:\n  clusterroles.rbac.authorization.k8s.io my-role\n  configmaps default/settings\n  guestbooks.webapp.my.domain default/hello\n  \
             namespaces team\n  5 objects of the cluster itself"
        );
        assert_eq!(objects("lost", &[]), "");
        assert_eq!(
            objects("lost", &["namespaces default".to_owned()]),
            "\nlost:\n  1 object of the cluster itself"
        );
    }
}
