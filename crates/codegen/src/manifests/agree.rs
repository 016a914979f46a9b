//! The files that are generated from the code, compared with those that the kustomizations of `config/` name.
//!
//! A list that names a file that the code no longer makes cannot be rendered, and a file that no list names reaches no
//! cluster. Both are warnings: `manifests` writes the files of the code all the same, and `--check` fails on the first.
//! A project without the kustomization in question has decided otherwise, and nothing is said. Not here: the lists
//! themselves ([`crate::config`]).

use crate::codes::crds as codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::{Files as _, Plan};
use crate::yaml;

use super::{BINDINGS, CRDS, ROLES, WEBHOOKS};

/// A kustomization, the folder of its entries, and the test for an entry of ours.
type List = (&'static str, &'static str, fn(&str) -> bool);

const LISTS: [List; 3] = [
    ("config/crd/kustomization.yaml", "config/crd", |entry| {
        entry.starts_with("bases/")
    }),
    ("config/rbac/kustomization.yaml", "config/rbac", |entry| {
        ["role.yaml", "role_bindings.yaml"].contains(&entry)
    }),
    ("config/webhook/kustomization.yaml", "config/webhook", |entry| {
        entry == "manifests.yaml"
    }),
];

/// The disagreements in the project as the plan leaves it.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn warnings(plan: &Plan<'_>) -> Result<Vec<Diagnostic>, Diagnostic> {
    let mut found = Vec::new();
    let mut listed = Vec::new();
    for (list, folder, is_ours) in LISTS {
        for entry in entries(list, plan)?.into_iter().filter(|entry| is_ours(entry)) {
            let path = format!("{folder}/{entry}");
            if plan.read(&path)?.is_none() {
                found.push(dangling(list, &entry, &path));
            }
            listed.push(path);
        }
    }
    if plan.read("config/default/kustomization.yaml")?.is_none() {
        return Ok(found);
    }
    let mut made = plan.list(CRDS)?;
    for path in [ROLES, BINDINGS, WEBHOOKS] {
        made.extend(plan.read(path)?.map(|_| path.to_owned()));
    }
    for path in made.iter().filter(|path| !listed.contains(path)) {
        if super::is_ours(&plan.read(path)?.unwrap_or_default()) {
            found.push(unlisted(path));
        }
    }
    Ok(found)
}

/// The `resources` of a kustomization; none when there is no such file or it cannot be read (rendering reports the
/// reason).
fn entries(list: &str, plan: &Plan<'_>) -> Result<Vec<String>, Diagnostic> {
    let text = plan.read(list)?.unwrap_or_default();
    let read = yaml::parse(&text).unwrap_or_default();
    let resources = read["resources"].as_array().cloned().unwrap_or_default();
    Ok(resources
        .iter()
        .filter_map(|entry| entry.as_str())
        .map(|entry| entry.trim_start_matches("./").to_owned())
        .collect())
}

fn dangling(list: &str, entry: &str, path: &str) -> Diagnostic {
    let (why, fix) = match path {
        WEBHOOKS => (
            "`operator()` declares no admission webhook",
            "add `.webhook(…)` for it in operator(), or remove the webhook: kubewright delete webhook",
        ),
        _ => (
            "`operator()` declares no such kind",
            "add `.crd::<…>()` for the kind in operator(), or remove the API: kubewright delete api",
        ),
    };
    Diagnostic::new(codes::DANGLING, format!("{list} names {path}, which there is not"))
        .at(Place::file(list).field(format!("resources: {entry}")))
        .because(why)
        .fix(fix)
}

fn unlisted(path: &str) -> Diagnostic {
    let list = LISTS
        .iter()
        .find(|(_, folder, _)| path.starts_with(folder))
        .map_or("config/default/kustomization.yaml", |(list, ..)| list);
    Diagnostic::new(codes::UNLISTED, format!("{path} reaches no cluster"))
        .at(Place::file(path))
        .because(format!("{list} does not name it"))
        .fix("add it to `resources` there; `kubewright create` does so for what it makes")
}
