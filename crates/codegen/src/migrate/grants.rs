//! What the committed role of a project in Go allows and no marker asks for: somebody wrote it by hand, or a marker has
//! changed since. `kubewright manifests` does not know of it, so the person who migrates is told.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::bodies;
use super::origin::Source;
use crate::diagnostic::Diagnostic;
use crate::kustomize::documents;
use crate::plan::Files;

const ROLE: &str = "config/rbac/role.yaml";

/// A verb on a resource of a group, or on a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    on: On,
    verb: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum On {
    Resource(String, String),
    Path(String),
}

impl Grant {
    fn is_covered_by(&self, other: &Grant) -> bool {
        let fits = |wanted: &str, given: &str| given == "*" || given == wanted;
        let on = match (&self.on, &other.on) {
            (On::Resource(group, resource), On::Resource(groups, resources)) => {
                fits(group, groups) && fits(resource, resources)
            }
            (On::Path(path), On::Path(paths)) => fits(path, paths),
            _ => false,
        };
        on && fits(&self.verb, &other.verb)
    }
}

/// A note about what the role allows beside the markers, if it does.
pub(super) fn by_hand(files: &dyn Files, sources: &[Source]) -> Result<Option<String>, Diagnostic> {
    let Some(text) = files.read(ROLE)? else { return Ok(None) };
    let asked: Vec<Grant> = sources
        .iter()
        .flat_map(bodies::rules)
        .flat_map(|rule| of_marker(&rule))
        .collect();
    let missing = granted(&text)?
        .into_iter()
        .filter(|grant| !asked.iter().any(|asked| grant.is_covered_by(asked)));
    let mut verbs: BTreeMap<On, Vec<String>> = BTreeMap::new();
    for Grant { on, verb } in missing {
        verbs.entry(on).or_default().push(verb);
    }
    let all: Vec<String> = verbs
        .iter()
        .map(|(on, verbs)| format!("{} on {}", verbs.join(", "), name(on)))
        .collect();
    Ok((!all.is_empty()).then(|| {
        format!(
            "{ROLE} allows what no marker asks for, so that `kubewright manifests` does not: {}. If the operator needs \
             it, say it with #[rbac(…)] on the reconciler",
            all.join("; ")
        )
    }))
}

fn name(on: &On) -> String {
    match on {
        On::Resource(group, resource) if group.is_empty() => resource.clone(),
        On::Resource(group, resource) => format!("{resource} of {group}"),
        On::Path(path) => path.clone(),
    }
}

fn of_marker(rule: &bodies::RbacRule) -> Vec<Grant> {
    all(
        &rule.words("groups"),
        &rule.words("resources"),
        &rule.words("urls"),
        &rule.words("verbs"),
    )
}

/// The grants of the roles in a file.
fn granted(text: &str) -> Result<BTreeSet<Grant>, Diagnostic> {
    let mut found = BTreeSet::new();
    for role in documents(ROLE, text)? {
        for rule in role["rules"].as_array().into_iter().flatten() {
            let words = |field: &str| -> Vec<String> {
                let list = rule[field].as_array().into_iter().flatten();
                list.filter_map(Value::as_str).map(str::to_owned).collect()
            };
            let urls = words("nonResourceURLs");
            found.extend(all(&words("apiGroups"), &words("resources"), &urls, &words("verbs")));
        }
    }
    Ok(found)
}

fn all(groups: &[String], resources: &[String], urls: &[String], verbs: &[String]) -> Vec<Grant> {
    let resources = groups.iter().flat_map(|group| {
        resources
            .iter()
            .map(|resource| On::Resource(group.clone(), resource.clone()))
    });
    let places: Vec<On> = resources.chain(urls.iter().cloned().map(On::Path)).collect();
    let grants = places.iter().flat_map(|on| {
        verbs.iter().map(|verb| Grant {
            on: on.clone(),
            verb: verb.clone(),
        })
    });
    grants.collect()
}

#[cfg(test)]
mod tests {
    use crate::migrate::tests::{carried, project};

    #[test]
    fn what_a_role_allows_beside_the_markers_is_told() {
        #[track_caller]
        fn check(role: &str, wanted: Option<&str>) {
            let mut files = project();
            files.0.insert("config/rbac/role.yaml".to_owned(), role.to_owned());
            let done = carried(&files).unwrap();
            let told: Vec<&String> = done
                .notes
                .iter()
                .filter(|note| note.starts_with("config/rbac/role.yaml"))
                .collect();
            assert_eq!(told.len(), usize::from(wanted.is_some()), "{told:?}");
            if let Some(wanted) = wanted {
                assert!(
                    told[0].contains(&format!("`kubewright manifests` does not: {wanted}. If")),
                    "{}",
                    told[0]
                );
            }
        }
        let asked = "kind: ClusterRole\nrules:\n- apiGroups: [crew.example.com]\n  resources: [captains]\n  verbs: [get, list, watch]\n\
                     - apiGroups: ['']\n  resources: [secrets]\n  verbs: [get]\n";
        check("kind: ClusterRole\nrules: []\n", None);
        check(asked, None);
        check(
            &format!(
                "---\n{asked}- apiGroups: ['', apps]\n  resources: [secrets]\n  verbs: [get, patch]\n- nonResourceURLs: [/metrics]\n  verbs: [get]\n"
            ),
            Some("patch on secrets; get, patch on secrets of apps; get on /metrics"),
        );
        check(
            &format!("{asked}---\nkind: Role\nrules:\n- apiGroups: ['*']\n  resources: ['*']\n  verbs: ['*']\n"),
            Some("* on * of *"),
        );
    }
}
