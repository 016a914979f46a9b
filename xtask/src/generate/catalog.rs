//! The definitions of all versions as one text with an index.
//!
//! The text has a line `name<TAB>json` for each different text of a definition. The index has a line
//! `name<TAB>since..until<TAB>offset length` for each run of versions in which the definition, and all that it refers
//! to, is the same: so whoever found a line may follow its references in any version of the run.
//!
//! From 1.37 on, the items of lists and the values of maps have no `default` of their own, which every definition had
//! before. That is a rule ([`inner_defaults`]) and no other text.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Definitions, REFERENCE};

#[path = "../../../crates/schema/src/schema/inner_defaults.rs"]
mod inner_defaults;

use inner_defaults::without_inner_defaults;

/// The first version without inner defaults.
const WITHOUT_INNER_DEFAULTS: u32 = 37;

/// The definitions of each minor version.
pub(super) struct Catalog(pub(super) BTreeMap<u32, Definitions>);

impl Catalog {
    /// Reads what [`Catalog::write`] wrote.
    pub(super) fn read(text: &str, index: &str) -> Result<Catalog, String> {
        let mut all: BTreeMap<u32, Definitions> = BTreeMap::new();
        for line in index.lines() {
            let wrong = || format!("generate: the index has no such line: {line}");
            let [name, versions, place] = line.split('\t').collect::<Vec<_>>()[..] else {
                return Err(wrong());
            };
            let numbers = |text: &str, between: &str| -> Option<(usize, usize)> {
                let (first, second) = text.split_once(between)?;
                Some((first.parse().ok()?, second.parse().ok()?))
            };
            let (since, until) = numbers(versions, "..").ok_or_else(wrong)?;
            let (offset, length) = numbers(place, " ").ok_or_else(wrong)?;
            let json = text.get(offset..offset + length).ok_or_else(wrong)?;
            let value: Value = serde_json::from_str(json).map_err(|why| format!("generate: {name}: {why}"))?;
            for minor in since..=until {
                let minor = u32::try_from(minor).map_err(|why| why.to_string())?;
                let value = of_version(value.clone(), minor);
                all.entry(minor).or_default().insert(name.to_owned(), value);
            }
        }
        Ok(Catalog(all))
    }

    /// The text and its index.
    pub(super) fn write(&self) -> (String, String) {
        let (mut text, mut index) = (String::new(), String::new());
        let mut names: Vec<&String> = self.0.values().flat_map(BTreeMap::keys).collect();
        names.sort();
        names.dedup();
        let changed = self.changed();
        for name in names {
            // The texts of this name, each with its place.
            let mut written: Vec<(&Value, usize, usize)> = Vec::new();
            let mut runs: Vec<(u32, u32, usize, usize)> = Vec::new();
            for (minor, definitions) in &self.0 {
                let Some(value) = definitions.get(name) else { continue };
                let known = written
                    .iter()
                    .find(|(known, ..)| *known == value || of_version((*known).clone(), *minor) == *value);
                let (offset, length) = match known {
                    Some((_, offset, length)) => (*offset, *length),
                    None => {
                        let json = value.to_string();
                        let place = (text.len() + name.len() + 1, json.len());
                        text.push_str(&format!("{name}\t{json}\n"));
                        written.push((value, place.0, place.1));
                        place
                    }
                };
                match runs.last_mut() {
                    Some(run) if run.1 + 1 == *minor && !changed.contains(&(*minor, name)) => run.1 = *minor,
                    _ => runs.push((*minor, *minor, offset, length)),
                }
            }
            for (since, until, offset, length) in runs {
                index.push_str(&format!("{name}\t{since}..{until}\t{offset} {length}\n"));
            }
        }
        (text, index)
    }

    /// The definitions that differ from the version before, themselves or in what they refer to.
    fn changed(&self) -> Vec<(u32, &String)> {
        let mut all = Vec::new();
        for (minor, definitions) in &self.0 {
            let Some(before) = self.0.get(&(minor - 1)) else {
                continue;
            };
            let differs = |(name, value): &(&String, &Value)| {
                let old = before.get(*name).map(|old| of_version(old.clone(), *minor));
                old.as_ref() != Some(*value)
            };
            let mut changed: Vec<&String> = definitions.iter().filter(differs).map(|(name, _)| name).collect();
            loop {
                let is_new = |(name, value): &(&String, &Value)| {
                    !changed.contains(name) && refers(value, &|target| changed.iter().any(|one| *one == target))
                };
                let more: Vec<&String> = definitions.iter().filter(is_new).map(|(name, _)| name).collect();
                if more.is_empty() {
                    break;
                }
                changed.extend(more);
            }
            all.extend(changed.into_iter().map(|name| (*minor, name)));
        }
        all
    }

    /// `group/version/kind<TAB>name`, sorted, of all versions: a kind is there when its definition is. Types that every
    /// group shares are listed once, under the core group.
    pub(super) fn kinds(&self) -> String {
        let mut kinds = BTreeMap::new();
        for (name, definition) in self.0.values().flatten() {
            let gvks = definition
                .get("x-kubernetes-group-version-kind")
                .and_then(Value::as_array);
            let gvks: Vec<_> = gvks.into_iter().flatten().collect();
            let shared = gvks.len() > 1;
            for gvk in gvks {
                let part = |key: &str| gvk.get(key).and_then(Value::as_str).unwrap_or_default();
                if !shared || (part("group").is_empty() && part("version") == "v1") {
                    kinds.insert(format!("{}/{}/{}", part("group"), part("version"), part("kind")), name);
                }
            }
        }
        kinds.iter().map(|(gvk, name)| format!("{gvk}\t{name}\n")).collect()
    }
}

/// Whether a definition refers to one of these names.
pub(super) fn refers(value: &Value, is_it: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| match (key.as_str(), value) {
            ("$ref", Value::String(target)) => is_it(target.trim_start_matches(REFERENCE)),
            (_, value) => refers(value, is_it),
        }),
        Value::Array(list) => list.iter().any(|value| refers(value, is_it)),
        _ => false,
    }
}

/// A definition as it is in this version, if it was written for an older one and did not change.
pub(super) fn of_version(value: Value, minor: u32) -> Value {
    match minor < WITHOUT_INNER_DEFAULTS {
        true => value,
        false => without_inner_defaults(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_texts_stand_once_and_changes_reach_those_who_refer_to_them() {
        let reference = |name: &str| json!({"$ref": format!("{REFERENCE}{name}")});
        let list = |default: bool| match default {
            true => json!({"items": {"allOf": [reference("same")], "default": {}}}),
            false => json!({"items": reference("same")}),
        };
        let of = |changed: &str, list: Value| -> Definitions {
            let texts = [
                ("changed", json!({"description": changed})),
                ("list", list),
                ("same", json!({"type": "string"})),
                ("user", json!({"properties": {"a": reference("changed")}})),
            ];
            texts
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()
        };
        let all = Catalog(BTreeMap::from([(36, of("a", list(true))), (37, of("b", list(false)))]));
        let (text, index) = all.write();
        assert_eq!(text.lines().count(), 5);
        let runs: Vec<String> = index
            .lines()
            .map(|line| line.rsplit_once('\t').map_or(line, |(run, _)| run).replace('\t', " "))
            .collect();
        let expected = [
            "changed 36..36",
            "changed 37..37",
            "list 36..37",
            "same 36..37",
            "user 36..36",
            "user 37..37",
        ];
        assert_eq!(runs, expected);
        let read = Catalog::read(&text, &index).expect("as it was written");
        assert_eq!(read.0, all.0);
        assert_eq!(read.write(), (text, index));
    }
}
