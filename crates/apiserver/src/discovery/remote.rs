//! The discovery entries of versions that other servers serve: their names, and the resources that they have told.
//!
//! They come out of APIServices and stand where their priorities put them, in place of such a version of this server;
//! the other versions of this server keep their order.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};

use super::{Answer, DiscoveryPath, form_of, hash, respond};
use crate::registry::Snapshot;
use crate::registry::documents::discovery::Merged;
pub(crate) use crate::registry::documents::discovery::{Ranked, RemoteResources};

/// Ranks of the listed groups and versions.
struct Ranks<'a> {
    groups: BTreeMap<&'a str, i64>,
    versions: BTreeMap<(&'a str, &'a str), i64>,
}

impl<'a> Ranks<'a> {
    fn of(ranked: &'a [Ranked]) -> Ranks<'a> {
        let mut groups = BTreeMap::new();
        for one in ranked {
            let rank = groups.entry(one.group.as_str()).or_insert(one.of_group);
            *rank = one.of_group.max(*rank);
        }
        let versions = ranked
            .iter()
            .map(|one| ((one.group.as_str(), one.version.as_str()), one.of_version));
        Ranks {
            groups,
            versions: versions.collect(),
        }
    }

    /// Where a group belongs among those of these names. A group without an APIService's priority is the server's own
    /// and comes first.
    fn place_of_group<'n>(&self, group: &str, mut names: impl Iterator<Item = &'n str>) -> Option<usize> {
        let rank = |name: &str| self.groups.get(name).copied().unwrap_or(i64::MAX);
        let own = rank(group);
        names.position(|name| rank(name) < own || (rank(name) == own && name > group))
    }

    /// The same for a version of a group.
    fn place_of_version<'n>(
        &self,
        group: &str,
        version: &str,
        mut names: impl Iterator<Item = &'n str>,
    ) -> Option<usize> {
        let rank = |name: &str| self.versions.get(&(group, name)).copied().unwrap_or(i64::MAX);
        let own = rank(version);
        names.position(|name| rank(name) < own)
    }
}

/// The answer of [`respond`] with the versions of other servers, made once for each state of the APIServices.
/// `state` differs whenever one of them was written since; `ranked` reads them.
pub(crate) fn respond_with_remote(
    place: &DiscoveryPath,
    accept: &str,
    snapshot: &Snapshot,
    state: u64,
    ranked: impl FnOnce() -> Vec<Ranked>,
) -> Option<Answer> {
    let merged = || snapshot.discovery.merged.lock().unwrap_or_else(PoisonError::into_inner);
    let form = form_of(place, accept);
    let known = {
        let merged = merged();
        if merged.state == Some(state)
            && let Some(answer) = merged.answers.get(&(place.clone(), form))
        {
            return Some(answer.clone());
        }
        (merged.state == Some(state)).then(|| merged.ranked.clone())
    };
    // Made without the lock: no other request waits for it.
    let ranked = known.unwrap_or_else(|| ranked().into());
    let answer = with_remote(place, respond(place, accept, snapshot), &ranked);
    let mut merged = merged();
    if merged.state < Some(state) {
        *merged = Merged {
            state: Some(state),
            ranked,
            answers: BTreeMap::new(),
        };
    }
    // Unknown ones are not kept: there is no end of them.
    if merged.state == Some(state)
        && let Some(answer) = &answer
    {
        merged.answers.insert((place.clone(), form), answer.clone());
    }
    answer
}

/// The document at a path, with the versions of other servers. A group that is only there has one of its own.
pub(crate) fn with_remote(place: &DiscoveryPath, answer: Option<Answer>, ranked: &[Ranked]) -> Option<Answer> {
    if ranked.iter().all(|one| one.remote.is_none()) {
        return answer;
    }
    let ranks = Ranks::of(ranked);
    let remote = ranked.iter().filter(|one| one.remote.is_some());
    match place {
        DiscoveryPath::Groups => {
            let mut answer = answer?;
            let mut body = (*answer.body).clone();
            let list = if answer.aggregated.is_some() { "items" } else { "groups" };
            let groups = body.get_mut(list)?.as_array_mut()?;
            remote.for_each(|one| add_to_groups(groups, one, &ranks, answer.aggregated.is_some()));
            if let Some(aggregated) = &mut answer.aggregated {
                aggregated.etag = format!("\"{}\"", hash(body.to_string().as_bytes()));
            }
            answer.body = Arc::new(body);
            Some(answer)
        }
        DiscoveryPath::Group(group) if remote.clone().any(|one| one.group == *group) => {
            let mut body = match &answer {
                Some(answer) => (*answer.body).clone(),
                None => json!({"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": []}),
            };
            remote
                .filter(|one| one.group == *group)
                .for_each(|one| add_version(&mut body, one, &ranks, false));
            Some(Answer {
                body: Arc::new(body),
                aggregated: None,
            })
        }
        _ => answer,
    }
}

fn add_to_groups(groups: &mut Vec<Value>, one: &Ranked, ranks: &Ranks<'_>, aggregated: bool) {
    fn name(group: &Value) -> &str {
        let name = group.get("name").or_else(|| group.get("metadata")?.get("name"));
        name.and_then(Value::as_str).unwrap_or("")
    }
    let place = match groups.iter().position(|group| name(group) == one.group) {
        Some(place) => place,
        None => {
            let new = match aggregated {
                true => json!({"metadata": {"name": one.group}, "versions": []}),
                false => json!({"name": one.group, "versions": []}),
            };
            let place = ranks.place_of_group(&one.group, groups.iter().map(name));
            let place = place.unwrap_or(groups.len());
            groups.insert(place, new);
            place
        }
    };
    add_version(&mut groups[place], one, ranks, aggregated);
}

/// Adds a version to a group. One of this name that is there is not served.
fn add_version(group: &mut Value, one: &Ranked, ranks: &Ranks<'_>, aggregated: bool) {
    fn name(version: &Value) -> &str {
        version.get("version").and_then(Value::as_str).unwrap_or("")
    }
    let new = match aggregated {
        true => {
            let told = one.remote.clone().unwrap_or_default();
            let mut entry = json!({"version": one.version});
            if !told.list.is_null() {
                entry["resources"] = (*told.list).clone();
            }
            entry["freshness"] = if told.is_current { "Current" } else { "Stale" }.into();
            entry
        }
        false => json!({"groupVersion": format!("{}/{}", one.group, one.version), "version": one.version}),
    };
    let Some(versions) = group.get_mut("versions").and_then(Value::as_array_mut) else {
        return;
    };
    versions.retain(|version| name(version) != one.version);
    let place = ranks.place_of_version(&one.group, &one.version, versions.iter().map(name));
    versions.insert(place.unwrap_or(versions.len()), new);
    if !aggregated {
        let first = versions.first().cloned();
        group["preferredVersion"] = json!(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::respond;
    use crate::registry::Registry;

    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

    fn ranked(group: &str, version: &str, of_group: i64, of_version: i64, is_remote: bool) -> Ranked {
        let (group, version) = (group.to_owned(), version.to_owned());
        Ranked {
            group,
            version,
            of_group,
            of_version,
            remote: is_remote.then(RemoteResources::default),
        }
    }

    /// `apps`, then the groups between it and `batch`, and the last ones; a further version of `batch` on each side of
    /// its own.
    fn all() -> Vec<Ranked> {
        let snapshot = Registry::new().snapshot();
        let groups = snapshot.groups().iter().filter(|group| !group.name.is_empty());
        let mut all: Vec<Ranked> = groups
            .zip(0..)
            .flat_map(|(group, at)| {
                group
                    .versions
                    .iter()
                    .map(move |version| ranked(&group.name, version, 1000 - at * 10, 15, false))
            })
            .filter(|one| one.group != "apiregistration.k8s.io")
            .collect();
        let batch = all
            .iter()
            .find(|one| one.group == "batch")
            .expect("it is served")
            .of_group;
        all.push(ranked("m.io", "v1", batch + 5, 1, true));
        all.push(ranked("last.io", "v1", 1, 1, true));
        all.push(ranked("batch", "v9", batch, 100, true));
        all.push(ranked("batch", "v0", batch, 1, true));
        all.push(ranked("batch", "v1", batch, 15, true));
        all
    }

    fn place(path: &str) -> DiscoveryPath {
        DiscoveryPath::at(path).expect("a path of discovery")
    }

    #[test]
    fn groups_and_versions_stand_where_their_priorities_put_them() {
        let (snapshot, all) = (Registry::new().snapshot(), all());
        let names = |body: &Value, list: &str, name: &str| -> Vec<String> {
            let groups = body[list].as_array().expect("a list").iter();
            groups
                .map(|group| group.pointer(name).and_then(Value::as_str).unwrap_or("").to_owned())
                .collect()
        };
        for (accept, list, name) in [("", "groups", "/name"), (AGGREGATED, "items", "/metadata/name")] {
            let before = respond(&place("/apis"), accept, &snapshot).expect("served");
            let after = with_remote(&place("/apis"), Some(before.clone()), &all).expect("served");
            let mut wanted = names(&before.body, list, name);
            let at = wanted.iter().position(|name| name == "batch").expect("it is served");
            wanted.insert(at, "m.io".to_owned());
            wanted.push("last.io".to_owned());
            assert_eq!(names(&after.body, list, name), wanted);
            let batch = &after.body[list][at + 1];
            let versions: Vec<_> = batch["versions"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|one| one["version"].clone())
                .collect();
            assert_eq!(versions, ["v9", "v1", "v0"]);
            let etag = |answer: &Answer| answer.aggregated.as_ref().map(|form| form.etag.clone());
            assert_eq!(etag(&before).is_some(), etag(&before) != etag(&after));
            assert_eq!(
                with_remote(&place("/apis"), Some(before.clone()), &all[..3])
                    .expect("served")
                    .body,
                before.body
            );
        }
    }

    #[test]
    fn a_group_has_its_document() {
        let all = all();
        let m = json!({"groupVersion": "m.io/v1", "version": "v1"});
        let document = with_remote(&place("/apis/m.io/"), None, &all).expect("it is somewhere");
        assert_eq!(
            *document.body,
            json!({"kind": "APIGroup", "apiVersion": "v1", "name": "m.io", "versions": [m], "preferredVersion": m})
        );
        assert!(with_remote(&place("/apis/nobody.io"), None, &all).is_none());
        assert!(with_remote(&place("/apis/m.io/v1"), None, &all).is_none());
        let stale = json!({"version": "v1", "freshness": "Stale"});
        let snapshot = Registry::new().snapshot();
        let list = with_remote(&place("/apis"), respond(&place("/apis"), AGGREGATED, &snapshot), &all).expect("served");
        let last = list.body["items"]
            .as_array()
            .and_then(|items| items.last())
            .expect("there are groups");
        assert_eq!(*last, json!({"metadata": {"name": "last.io"}, "versions": [stale]}));
    }
}
