//! Where two resources of a project would meet in one name: a plural, a Rust type, a module.

use crate::names::{self, rust};
use crate::project::{Project, Resource};

/// The kind of the same group that has one of this one's names already, and why not both can have it.
pub(super) fn names_meet<'p>(project: &'p Project, resource: &Resource) -> Option<(&'p Resource, String)> {
    project
        .apis()
        .find_map(|other| Some((other, other.shares_a_name_with(resource)?)))
}

/// The Rust types that a kind makes, which must not meet another kind's in the same module.
pub(super) fn types_meet<'p>(project: &'p Project, resource: &Resource) -> Option<&'p Resource> {
    let types = |kind: &str| {
        let name = rust::kind(kind);
        ["", "Spec", "Status"].map(|part| format!("{name}{part}"))
    };
    let mine = types(&resource.kind);
    let folder = project.layout(resource).api_folder();
    project.apis().find(|other| {
        let same_place = project.layout(other).api_folder() == folder;
        let meets = types(&other.kind).iter().any(|name| mine.contains(name));
        let same_file = rust::part(&other.kind) == rust::part(&resource.kind);
        same_place && other.kind != resource.kind && (meets || same_file)
    })
}

/// Whether two groups would become one module.
pub(super) fn groups_meet<'p>(project: &'p Project, resource: &Resource) -> Option<&'p Resource> {
    let modules = |resource: &Resource| project.layout(resource).api_modules;
    project.resources.iter().find(|other| {
        other.full_group() != resource.full_group()
            && modules(other) == modules(resource)
            && (project.multigroup || other.external)
    })
}

/// The plural that follows from the kind, in words of PROJECT: only another one is written there.
pub(super) fn irregular(kind: &str, plural: &str) -> Option<String> {
    (names::plural(kind) != plural).then(|| plural.to_owned())
}
