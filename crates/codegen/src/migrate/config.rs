//! The additions of people to `config/` of the project in Go: objects beside those that kubebuilder scaffolds.
//!
//! The scaffold's own files come from the Rust scaffold, which renders to the same objects. A file that a list of Go's
//! names, and that no version of kubebuilder writes, was added by hand: it is copied and listed. Everything else
//! (patches, overlays, lists of their own) is named in MIGRATION.md.

use crate::config::list_resource;
use crate::diagnostic::Diagnostic;
use crate::plan::{Files, MemoryFiles};
use crate::yaml;

/// The folders whose lists are read: the same objects stand in the same folder here.
const FOLDERS: [&str; 4] = ["rbac", "manager", "network-policy", "prometheus"];

/// The prefixes of kubebuilder's files, in all its versions.
const SCAFFOLDED: [&str; 18] = [
    "allow-metrics-traffic",
    "allow-webhook-traffic",
    "auth_proxy_",
    "cainjection_in_",
    "cert_metrics_",
    "certificate",
    "controller_manager_config",
    "issuer",
    "kustomiz",
    "leader_election_",
    "manager",
    "manifests.yaml",
    "metrics_",
    "monitor",
    "namespace.yaml",
    "service.yaml",
    "webhook_in_",
    "webhookcainjection_",
];

/// … and their endings, or whole names.
const ROLES: [&str; 6] = [
    "_admin_role.yaml",
    "_editor_role.yaml",
    "_viewer_role.yaml",
    "/role.yaml",
    "/role_binding.yaml",
    "/service_account.yaml",
];

fn is_scaffolded(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    SCAFFOLDED.iter().any(|begin| name.starts_with(begin)) || ROLES.iter().any(|end| path.ends_with(end))
}

/// The result for `config/`.
pub(super) struct Config {
    /// Files that were copied and are listed.
    pub(super) kept: Vec<String>,
    /// Files that were not.
    pub(super) left: Vec<String>,
}

/// Carries over the files that can be, into the new project.
pub(super) fn carry(files: &dyn Files, made: &mut MemoryFiles) -> Result<Config, Diagnostic> {
    let mut kept = Vec::new();
    for folder in FOLDERS {
        let list = format!("config/{folder}/kustomization.yaml");
        let (Some(theirs), Some(mut ours)) = (files.read(&list)?, made.0.get(&list).cloned()) else {
            continue;
        };
        let fields = yaml::parse(&theirs).unwrap_or_default();
        for entry in fields["resources"].as_array().into_iter().flatten() {
            let entry = entry.as_str().unwrap_or_default();
            let path = format!("config/{folder}/{entry}");
            if entry.contains('/') || made.0.contains_key(&path) || is_scaffolded(&path) {
                continue;
            }
            let Some(text) = files.read(&path)? else { continue };
            ours = list_resource(&ours, &list, entry)?;
            made.0.insert(path.clone(), text);
            kept.push(path);
        }
        made.0.insert(list, ours);
    }
    let mut left = files.list("config")?;
    left.retain(|path| {
        let is_elsewhere = ["config/crd/", "config/samples/", "config/testdata/"]
            .iter()
            .any(|folder| path.starts_with(folder));
        !is_elsewhere && !made.0.contains_key(path) && !is_scaffolded(path)
    });
    Ok(Config { kept, left })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{carried, project};

    #[test]
    fn what_people_added_is_kept_and_listed() {
        let mut files = project();
        for (path, text) in [
            (
                "config/rbac/kustomization.yaml",
                "resources:\n- role.yaml\n- auth_proxy_role.yaml\n- sailing_role.yaml\n- gone.yaml\n- ../x.yaml\n",
            ),
            ("config/rbac/auth_proxy_role.yaml", "kind: ClusterRole\n"),
            ("config/rbac/sailing_role.yaml", "kind: ClusterRole # mine\n"),
            ("config/overlays/sea/kustomization.yaml", "resources: []\n"),
            ("config/overlays/sea/salt.yaml", "a: 1\n"),
        ] {
            files.0.insert(path.to_owned(), text.to_owned());
        }
        let made = carried(&files).unwrap().files.0;
        assert_eq!(made["config/rbac/sailing_role.yaml"], "kind: ClusterRole # mine\n");
        let list = &made["config/rbac/kustomization.yaml"];
        assert_eq!(list.matches("- sailing_role.yaml\n").count(), 1, "{list}");
        assert!(!list.contains("auth_proxy") && !list.contains("gone.yaml"), "{list}");
        assert!(!made.contains_key("config/rbac/auth_proxy_role.yaml"));
        let record = &made["MIGRATION.md"];
        for expected in [
            "`config/rbac/sailing_role.yaml` was copied",
            "`config/overlays/sea/salt.yaml`\n",
        ] {
            assert!(record.contains(expected), "{expected} in {record}");
        }
    }
}
