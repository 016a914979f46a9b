//! Values that a shell completes, found when a person presses Tab: contexts, kinds of the project, error codes, built-in
//! controllers.
//!
//! Invariant: nothing is changed, nothing is printed, and what cannot be read has no values.

use std::ffi::OsStr;

use clap_complete::CompletionCandidate;
use kubewright_cluster::controllers::NAMES;
use kubewright_codegen::codes;
use kubewright_codegen::project::{Project, Resource};

use crate::files::Disk;

/// The contexts of the kubeconfig.
pub(crate) fn contexts() -> Vec<CompletionCandidate> {
    unique(crate::target::contexts())
}

/// The error codes, with their titles.
pub(crate) fn codes() -> Vec<CompletionCandidate> {
    let candidate = |explanation: &codes::Explanation| {
        CompletionCandidate::new(explanation.code.to_string()).help(Some(explanation.title.into()))
    };
    codes::all().map(candidate).collect()
}

/// The kinds of the project.
pub(crate) fn kinds() -> Vec<CompletionCandidate> {
    unique(resources().into_iter().map(|resource| resource.kind))
}

/// The groups of the project, without its domain.
pub(crate) fn groups() -> Vec<CompletionCandidate> {
    unique(resources().into_iter().map(|resource| resource.group))
}

/// The versions of the project's kinds.
pub(crate) fn versions() -> Vec<CompletionCandidate> {
    unique(resources().into_iter().map(|resource| resource.version))
}

/// Built-in controllers, also after a comma: each of them that is not there yet.
pub(crate) fn controllers(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else {
        return Vec::new();
    };
    let there = current.rfind(',').map_or("", |comma| &current[..=comma]);
    let more = NAMES.iter().filter(|name| there.split(',').all(|one| one != **name));
    let offered = more.map(|name| format!("{there}{name}"));
    unique(offered.filter(|offered| offered.starts_with(current)))
}

fn resources() -> Vec<Resource> {
    let project = Disk::here().and_then(|disk| Project::load(&disk));
    project.map(|project| project.resources).unwrap_or_default()
}

fn unique(names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let names: std::collections::BTreeSet<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
    names.into_iter().map(CompletionCandidate::new).collect()
}
