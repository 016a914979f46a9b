//! Kinds that several packages declare with the same group and version, as when an older copy of an API is kept in
//! another folder. Go builds both, and controller-gen makes the definition from the folder that it is given.
//!
//! PROJECT decides which declaration is taken; the others are left out with a note.

use std::collections::BTreeMap;

use serde_json::Value;

use super::checks::{Spot, Wrong, refused};
use super::declared::{declared, full_group, is_own, text};
use super::folder;
use super::origin::Source;
use crate::diagnostic::Diagnostic;

/// Leaves one declaration of each kind.
///
/// # Errors
/// When PROJECT lists a kind and does not say which of its declarations is meant.
pub(super) fn choose(fields: &Value, sources: &mut [Source], notes: &mut Vec<String>) -> Result<(), Diagnostic> {
    let mut found: BTreeMap<[String; 3], Vec<Spot>> = BTreeMap::new();
    for kind in declared(sources) {
        let key = [kind.group, kind.version, &kind.decl.name].map(str::to_owned);
        let place = (kind.path.to_owned(), kind.decl.line);
        found.entry(key).or_default().push(place);
    }
    let mut wrong: Vec<Wrong> = Vec::new();
    for ([group, version, kind], places) in found {
        // Two in one folder are an error, which `checks::packages` reports.
        if places.iter().all(|place| folder(&place.0) == folder(&places[0].0)) {
            continue;
        }
        let listed = listed(fields, [&group, &version, &kind]);
        let chosen = match (meant(fields, listed, [&group, &version], &places), listed) {
            (Some(chosen), _) => chosen,
            (None, None) => folder(&places[0].0).to_owned(),
            (None, Some(_)) => {
                let (path, line) = places[0].clone();
                let others = told(&places[1..]);
                let why = format!(
                    "{group}/{version} {kind} is declared in {others}, too, and PROJECT does not say which of them is \
                     meant (path: IMPORT PATH)"
                );
                wrong.push((path, line, why));
                continue;
            }
        };
        let (kept, left): (Vec<Spot>, Vec<Spot>) = places.into_iter().partition(|place| folder(&place.0) == chosen);
        notes.push(format!(
            "{group}/{version} {kind}: the type was made of {}; another declaration was left out: {}",
            told(&kept),
            told(&left)
        ));
        for (path, line) in left {
            for source in sources.iter_mut().filter(|source| source.path == path) {
                source.file.types.retain(|decl| decl.line != line || decl.name != kind);
            }
        }
    }
    refused(wrong)
}

fn told(places: &[Spot]) -> String {
    let places: Vec<String> = places.iter().map(|(path, line)| format!("{path}:{line}")).collect();
    places.join(", ")
}

/// The resource of a kind in PROJECT.
fn listed<'f>(fields: &'f Value, [group, version, kind]: [&str; 3]) -> Option<&'f Value> {
    let mut resources = fields["resources"].as_array().into_iter().flatten();
    resources.find(|resource| {
        is_own(resource)
            && text(resource, "kind") == kind
            && text(resource, "version") == version
            && full_group(resource) == group
    })
}

/// The folder that PROJECT means: the kind's `path`, or else the folder of kubebuilder's layouts.
fn meant(fields: &Value, listed: Option<&Value>, [group, version]: [&str; 2], places: &[Spot]) -> Option<String> {
    let repo = text(fields, "repo").trim_end_matches('/');
    let path = listed.map(|resource| text(resource, "path")).unwrap_or_default();
    let path = path.strip_prefix(repo).and_then(|rest| rest.strip_prefix('/'));
    let is_there = |wanted: &&str| places.iter().any(|place| folder(&place.0) == *wanted);
    if let Some(path) = path.filter(is_there) {
        return Some(path.to_owned());
    }
    let short = group.split('.').next().unwrap_or_default();
    let short = listed.map_or(short, |resource| text(resource, "group"));
    let layouts = [
        format!("api/{version}"),
        format!("api/{short}/{version}"),
        format!("apis/{short}/{version}"),
        format!("pkg/apis/{short}/{version}"),
    ];
    let mut found = layouts.into_iter().filter(|layout| is_there(&layout.as_str()));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}
