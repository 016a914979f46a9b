//! Kinds as the Go text declares them. PROJECT is written by hand or forgotten; controller-gen makes definitions of
//! types that embed `TypeMeta` and `ObjectMeta` in a package with `+groupName`.
//!
//! [`complete`] brings PROJECT in line with that: the group that Go says, kinds and versions that PROJECT does not
//! list, and none that is no kind. Each change is noted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::embedded::is_of_kinds;
use super::folder;
use super::go::{Decl, Type};
use super::markers::Marker;
use super::origin::{Source, resources};
use super::words::word;
use crate::names;

/// A kind of one version.
pub(super) struct Declared<'s> {
    pub(super) path: &'s str,
    pub(super) group: &'s str,
    pub(super) version: &'s str,
    pub(super) decl: &'s Decl,
}

/// Makes PROJECT list the kinds that the Go text declares.
pub(super) fn complete(fields: &mut Value, sources: &[Source], notes: &mut Vec<String>) {
    let declared = declared(sources);
    reconcile_once(fields, notes);
    if declared.is_empty() {
        return;
    }
    spell_out(fields, &declared);
    rename(fields, &declared, notes);
    say_api(fields, sources, &declared, notes);
    scope(fields, &declared, notes);
    leave_out(fields, sources, &declared, notes);
    add(fields, sources, &declared, notes);
}

/// All groups of a project are below its domain. Where Go has others, the project has no domain, and says groups whole.
fn spell_out(fields: &mut Value, declared: &[Declared<'_>]) {
    let domain = text(fields, "domain").to_owned();
    let mut groups = declared.iter().map(|other| other.group);
    if groups.all(|group| group == domain || group.ends_with(&format!(".{domain}"))) {
        return;
    }
    fields["domain"] = "".into();
    for resource in resources(fields).filter(|resource| is_own(resource)) {
        let whole = full_group(resource);
        put_group(resource, &whole, "");
    }
}

/// The kinds that controller-gen would find.
pub(super) fn declared(sources: &[Source]) -> Vec<Declared<'_>> {
    let mut packages: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        packages.entry(folder(&source.path)).or_default().push(source);
    }
    let mut found = Vec::new();
    for files in packages.values() {
        let markers = || files.iter().flat_map(|source| &source.file.markers);
        let said = |name: &str| markers().find_map(|marker| marker.strip_prefix(name));
        let Some(group) = said("groupName=").map(str::trim) else {
            continue;
        };
        if markers().any(|marker| marker == "kubebuilder:skip") {
            continue;
        }
        for source in files {
            let version = said("versionName=").unwrap_or(&source.file.package).trim();
            let kinds = source.file.types.iter().filter(|decl| is_kind(decl));
            found.extend(kinds.map(|decl| Declared {
                path: &source.path,
                group,
                version,
                decl,
            }));
        }
    }
    found
}

fn is_kind(decl: &Decl) -> bool {
    let mut markers = decl.doc.markers.iter();
    is_of_kinds(&decl.of) && !markers.any(|marker| marker == "kubebuilder:skipversion")
}

pub(super) fn text<'v>(resource: &'v Value, field: &str) -> &'v str {
    resource[field].as_str().unwrap_or_default()
}

pub(super) fn full_group(resource: &Value) -> String {
    names::full_group(text(resource, "group"), text(resource, "domain"))
}

pub(super) fn is_own(resource: &Value) -> bool {
    resource["external"] != true && resource["core"] != true
}

/// The group that PROJECT says is another than that of the objects.
fn rename(fields: &mut Value, declared: &[Declared<'_>], notes: &mut Vec<String>) {
    let domain = text(fields, "domain").to_owned();
    for resource in resources(fields).filter(|resource| is_own(resource)) {
        let (kind, version) = (text(resource, "kind"), text(resource, "version"));
        let mut same = declared
            .iter()
            .filter(|other| other.decl.name == kind && other.version == version);
        let there = full_group(resource);
        let (Some(only), None) = (same.next(), same.next()) else {
            continue;
        };
        if only.group == there || !only.group.contains('.') {
            continue;
        }
        notes.push(format!(
            "{there}/{version} {kind}: its Go package has +groupName={}, and PROJECT has it now",
            only.group
        ));
        put_group(resource, only.group, &domain);
    }
}

/// A file that was written by hand, or by an early operator-sdk, names a kind and nothing of what is scaffolded for it.
/// Where the Go text declares the type, the kind is one of the project's.
fn say_api(fields: &mut Value, sources: &[Source], declared: &[Declared<'_>], notes: &mut Vec<String>) {
    for resource in resources(fields).filter(|resource| is_own(resource) && !resource["api"].is_object()) {
        let (kind, version) = (text(resource, "kind").to_owned(), text(resource, "version").to_owned());
        let group = full_group(resource);
        let is_it = |other: &&Declared<'_>| other.decl.name == kind && other.version == version && other.group == group;
        let Some(found) = declared.iter().find(is_it) else {
            continue;
        };
        resource["api"] = json!({ "crdVersion": "v1", "namespaced": !is_cluster_wide(found.decl) });
        if resource["controller"].is_null() {
            let is_reconciled = sources
                .iter()
                .any(|source| source.is_for(&kind) || source.reconciles(&kind));
            resource["controller"] = is_reconciled.into();
        }
        notes.push(format!(
            "{kind} {version}: PROJECT did not list its type (`api`), which Go declares; it does now"
        ));
    }
}

/// Says a group as PROJECT does: without the project's domain.
fn put_group(resource: &mut Value, full: &str, domain: &str) {
    let group = match full.strip_suffix(domain).filter(|_| !domain.is_empty()) {
        Some("") => "",
        Some(below) => below.trim_end_matches('.'),
        None => full,
    };
    resource["group"] = group.into();
    resource["domain"] = domain.into();
}

/// The arguments of a kind's `+kubebuilder:resource`.
fn said(decl: &Decl) -> Map<String, Value> {
    let markers = decl.doc.markers.iter();
    let mut said = markers.filter_map(|marker| Marker::arguments(marker, "kubebuilder:resource"));
    said.next_back().unwrap_or_default()
}

fn is_cluster_wide(decl: &Decl) -> bool {
    word(&said(decl), "scope").is_some_and(|scope| scope == "Cluster")
}

/// controller-gen takes the scope from the markers, and ignores PROJECT, whose versions may even disagree.
fn scope(fields: &mut Value, declared: &[Declared<'_>], notes: &mut Vec<String>) {
    for resource in resources(fields).filter(|resource| is_own(resource) && resource["api"].is_object()) {
        let (kind, group) = (text(resource, "kind"), full_group(resource));
        let mut same = declared
            .iter()
            .filter(|other| other.decl.name == kind && other.group == group)
            .peekable();
        if same.peek().is_none() {
            continue;
        }
        let is_namespaced = !same.any(|other| is_cluster_wide(other.decl));
        if is_namespaced != (resource["api"]["namespaced"] == true) {
            let word = if is_namespaced { "Namespaced" } else { "Cluster" };
            notes.push(format!(
                "{kind} {}: its markers in Go have scope {word}, and PROJECT has it now",
                text(resource, "version")
            ));
            resource["api"]["namespaced"] = is_namespaced.into();
        }
    }
}

/// A controller is of a kind, in any version: PROJECT may list it with several.
fn reconcile_once(fields: &mut Value, notes: &mut Vec<String>) {
    let mut reconciled = BTreeSet::new();
    for resource in resources(fields).filter(|resource| resource["controller"] == true) {
        let (kind, version) = (text(resource, "kind").to_owned(), text(resource, "version").to_owned());
        if !reconciled.insert((full_group(resource), kind.clone())) {
            notes.push(format!(
                "{kind} {version}: PROJECT lists its controller with another version already; it has one"
            ));
            resource["controller"] = false.into();
        }
    }
}

/// A type without metadata is a file's, such as a configuration: no server has it. Neither has it a kind that was
/// deleted in Go.
fn leave_out(fields: &mut Value, sources: &[Source], declared: &[Declared<'_>], notes: &mut Vec<String>) {
    let Some(listed) = fields.get_mut("resources").and_then(Value::as_array_mut) else {
        return;
    };
    listed.retain(|resource| {
        let (kind, version) = (text(resource, "kind"), text(resource, "version"));
        // A kind of this name in another group of the project is another kind.
        let group = full_group(resource);
        let is_group = declared.iter().any(|other| other.group == group);
        let is_known = declared
            .iter()
            .any(|other| other.decl.name == kind && (other.group == group || !is_group));
        let mut there = sources.iter().filter(|source| source.file.package == version);
        let mut types = there.by_ref().flat_map(|source| &source.file.types);
        let is_other = types.any(|decl| decl.name == kind && matches!(decl.of, Type::Struct(_)) && !is_kind(decl));
        let is_kind = is_own(resource) && !resource["api"].is_null() && !is_known;
        if is_kind && is_other {
            notes.push(format!(
                "{kind}: its type in Go has no metadata, so no API server has it; it was left out"
            ));
        }
        let is_version = sources.iter().any(|source| source.file.package == version);
        let of_version = sources
            .iter()
            .filter(|source| !is_version || source.file.package == version);
        let mut all = of_version.flat_map(|source| &source.file.types);
        let is_gone = is_kind && !all.any(|decl| decl.name == kind);
        if is_gone {
            notes.push(format!(
                "{kind}: PROJECT lists it, and no Go file declares it; it was left out"
            ));
        }
        !(is_kind && is_other || is_gone)
    });
}

/// Kinds and versions that PROJECT does not list.
fn add(fields: &mut Value, sources: &[Source], declared: &[Declared<'_>], notes: &mut Vec<String>) {
    let domain = text(fields, "domain").to_owned();
    let mut added = Vec::new();
    for Declared {
        group, version, decl, ..
    } in declared
    {
        let kind = &decl.name;
        let listed = fields["resources"].as_array().into_iter().flatten();
        let versions: Vec<&Value> = listed
            .filter(|resource| text(resource, "kind") == kind && full_group(resource) == *group)
            .collect();
        if !group.contains('.') || versions.iter().any(|other| text(other, "version") == *version) {
            continue;
        }
        let is_reconciled = versions.is_empty() && sources.iter().any(|source| source.is_for(kind));
        let mut resource = json!({ "kind": kind, "version": version, "controller": is_reconciled });
        resource["api"] = json!({ "crdVersion": "v1", "namespaced": !is_cluster_wide(decl) });
        if let Some(plural) = word(&said(decl), "path") {
            resource["plural"] = plural.into();
        }
        // Versions of a kind have one name and one scope, which PROJECT says already.
        if let Some(other) = versions.first() {
            resource["api"]["namespaced"] = (other["api"]["namespaced"] == true).into();
            resource["plural"] = other["plural"].clone();
        }
        if let Some(resource) = resource.as_object_mut() {
            resource.retain(|_, value| !value.is_null());
        }
        put_group(&mut resource, group, &domain);
        added.push(format!("{kind} {version}"));
        match fields.get_mut("resources").and_then(Value::as_array_mut) {
            Some(listed) => listed.push(resource),
            None => fields["resources"] = json!([resource]),
        }
    }
    if !added.is_empty() {
        notes.push(format!(
            "PROJECT does not list what the Go text declares; it does now: {}",
            added.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::go;
    use super::*;

    #[test]
    fn a_kind_of_this_name_in_another_group_is_another_kind() {
        let kind = |group: &str, version: &str, kind: &str| {
            let text = format!(
                "// +groupName={group}\npackage {version}\n\ntype {kind} struct {{\n\tmetav1.TypeMeta\n\tmetav1.ObjectMeta\n}}\n"
            );
            Source {
                path: format!("apis/{group}/{version}/types.go"),
                import: String::new(),
                file: go::parse(&text).unwrap(),
                text,
            }
        };
        let sources = [kind("bit.io", "v1alpha2", "Output"), kind("d.io", "v1alpha1", "Input")];
        let listed = |group: &str, version: &str, kind: &str| json!({ "api": { "crdVersion": "v1", "namespaced": true }, "group": group, "version": version, "kind": kind });
        let resources = [
            listed("bit.io", "v1alpha2", "Input"),
            listed("bit.io", "v1alpha2", "Output"),
        ];
        let mut fields = json!({ "domain": "", "resources": resources });
        let mut notes = Vec::new();
        complete(&mut fields, &sources, &mut notes);
        let kinds = resources_of(&mut fields);
        assert_eq!(kinds, ["bit.io Output", "d.io Input"], "{notes:?}");
        assert!(notes[0].starts_with("Input: PROJECT lists it"), "{notes:?}");
    }

    fn resources_of(fields: &mut Value) -> Vec<String> {
        let name = |resource: &mut Value| format!("{} {}", full_group(resource), text(resource, "kind"));
        resources(fields).map(name).collect()
    }
}
