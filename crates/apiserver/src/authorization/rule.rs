//! A rule of a role: which other rules it covers (`Covers`), and how it is
//! printed.
//!
//! Invariant: a rule that covers another allows every request that the other allows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kubewright_schema::{budget, measure};
use serde_json::{Map, Value};

use super::compiled::Lists;
use super::{Attributes, quoted};

pub(super) const ALL: &str = "*";

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Verbs, `*` for all.
    pub verbs: Vec<String>,
    /// API groups, `*` for all.
    pub api_groups: Vec<String>,
    /// Resources: `pods`, `pods/log`, `*/scale`, `*`.
    pub resources: Vec<String>,
    /// Names of objects; none means all.
    pub resource_names: Vec<String>,
    /// Paths that are no resource; a trailing `*` stands for any rest.
    pub non_resource_urls: Vec<String>,
}

/// Says that a rule of so many entries is copied, which an answer then says in JSON.
pub(super) fn count_copy(entries: usize) {
    const ENTRY: usize = 40;
    budget::spend(1 + entries);
    budget::produce(std::mem::size_of::<Rule>() + ENTRY * entries + measure::map_held(1));
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == wanted)
}

fn set(list: &[String]) -> BTreeSet<&str> {
    list.iter().map(String::as_str).collect()
}

/// Whether the pattern fits the path, or another pattern.
pub(super) fn path_fits(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

impl Rule {
    /// All verbs on all resources and all paths.
    pub fn everything() -> [Rule; 2] {
        let all = || vec![ALL.to_owned()];
        [
            Rule {
                verbs: all(),
                api_groups: all(),
                resources: all(),
                ..Rule::default()
            },
            Rule {
                verbs: all(),
                non_resource_urls: all(),
                ..Rule::default()
            },
        ]
    }

    /// Reads a rule of a stored role. A value of another shape counts as absent.
    pub fn from_value(value: &Value) -> Rule {
        let list = |field: &str| -> Vec<String> {
            let entries = value.get(field).and_then(Value::as_array).into_iter().flatten();
            entries.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Rule {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// The rules of a stored role.
    pub fn all_of(role: &Value) -> Vec<Rule> {
        let rules = role.get("rules").and_then(Value::as_array).into_iter().flatten();
        rules.map(Rule::from_value).collect()
    }

    /// As it stands in a role; empty lists are left out, but for the verbs.
    pub fn into_value(self) -> Value {
        let mut rule = Map::new();
        rule.insert("verbs".to_owned(), self.verbs.into());
        for (field, list) in [
            ("apiGroups", self.api_groups),
            ("resources", self.resources),
            ("resourceNames", self.resource_names),
            ("nonResourceURLs", self.non_resource_urls),
        ] {
            if !list.is_empty() {
                rule.insert(field.to_owned(), list.into());
            }
        }
        Value::Object(rule)
    }

    /// Whether it allows the request.
    pub fn allows(&self, wanted: &Attributes) -> bool {
        let lists = Lists {
            verbs: &self.verbs,
            api_groups: &self.api_groups,
            resources: &self.resources,
            resource_names: &self.resource_names,
            non_resource_urls: &self.non_resource_urls,
        };
        lists.allow(wanted)
    }

    /// How much there is to look at.
    fn len(&self) -> usize {
        let lists = [
            &self.verbs,
            &self.api_groups,
            &self.resources,
            &self.resource_names,
            &self.non_resource_urls,
        ];
        lists.into_iter().map(Vec::len).sum()
    }
}

/// Which entries of a list are covered.
struct List {
    each: Vec<bool>,
    all: bool,
}

impl List {
    fn of(list: &[String], covers: impl FnMut(&String) -> bool) -> List {
        budget::spend(list.len());
        let each: Vec<bool> = list.iter().map(covers).collect();
        let all = each.iter().all(|covered| *covered);
        List { each, all }
    }
}

/// Which entries of a wanted rule an owned one covers, list by list.
struct Covered {
    verbs: List,
    groups: List,
    resources: List,
    /// All of them when none is named and all are covered.
    names: List,
    /// Whether it is for all names. Paths have none.
    any_name: bool,
    paths: List,
}

impl Covered {
    /// `None`: nothing at all, as it has none of the verbs.
    fn of(owned: &Rule, wanted: &Rule) -> Option<Covered> {
        budget::spend(1 + owned.verbs.len());
        let of_list = |owned: &[String], wanted: &[String]| {
            let (all, owned) = (has(owned, ALL), set(owned));
            List::of(wanted, |entry| all || owned.contains(entry.as_str()))
        };
        let verbs = of_list(&owned.verbs, &wanted.verbs);
        if !verbs.each.contains(&true) {
            return None;
        }
        budget::spend(owned.len());
        let (all, resources) = (has(&owned.resources, ALL), set(&owned.resources));
        let of_any = |(_, subresource): (&str, &str)| resources.contains(format!("*/{subresource}").as_str());
        let resource =
            |wanted: &String| all || resources.contains(wanted.as_str()) || wanted.split_once('/').is_some_and(of_any);
        let path = |wanted: &String| {
            budget::spend(owned.non_resource_urls.len());
            owned.non_resource_urls.iter().any(|own| path_fits(own, wanted))
        };
        let any_name = owned.resource_names.is_empty();
        let own_names = set(&owned.resource_names);
        let mut names = List::of(&wanted.resource_names, |name| {
            any_name || own_names.contains(name.as_str())
        });
        names.all &= any_name || !wanted.resource_names.is_empty();
        Some(Covered {
            verbs,
            groups: of_list(&owned.api_groups, &wanted.api_groups),
            resources: List::of(&wanted.resources, resource),
            names,
            any_name,
            paths: List::of(&wanted.non_resource_urls, path),
        })
    }
}

/// The parts of one wanted rule that are not covered: of one group, one resource, one verb and at most one name each,
/// or of one path and one verb. There may be very many parts, so those that one owned rule covers together are left out
/// together.
struct Parts<'a> {
    wanted: &'a Rule,
    at_most: usize,
    missing: Vec<Rule>,
}

impl Parts<'_> {
    /// Takes a part; `false` when no more are wanted.
    fn take(&mut self, part: Rule) -> bool {
        if self.missing.len() < self.at_most {
            self.missing.push(part);
        }
        self.missing.len() < self.at_most
    }

    /// Looks at all groups; `false` when it ended before, as the functions below.
    fn of_resources(&mut self, owned: &[Covered]) -> bool {
        (0..self.wanted.api_groups.len()).all(|group| {
            let owned = only(owned, |owned| owned.groups.each[group]);
            let covered = |owned: &&Covered| owned.resources.all && owned.verbs.all && owned.names.all;
            owned.iter().any(covered) || self.of_group(group, &owned)
        })
    }

    fn of_group(&mut self, group: usize, owned: &[&Covered]) -> bool {
        (0..self.wanted.resources.len()).all(|resource| {
            let owned = only(owned.iter().copied(), |owned| owned.resources.each[resource]);
            let covered = |owned: &&Covered| owned.verbs.all && owned.names.all;
            owned.iter().any(covered) || self.of_resource(group, resource, &owned)
        })
    }

    fn of_resource(&mut self, group: usize, resource: usize, owned: &[&Covered]) -> bool {
        let wanted = self.wanted;
        wanted.verbs.iter().enumerate().all(|(index, verb)| {
            let owned = only(owned.iter().copied(), |owned| owned.verbs.each[index]);
            if owned.iter().any(|owned| owned.names.all) {
                return true;
            }
            let part = Rule {
                verbs: vec![verb.clone()],
                api_groups: vec![wanted.api_groups[group].clone()],
                resources: vec![wanted.resources[resource].clone()],
                ..Rule::default()
            };
            if wanted.resource_names.is_empty() {
                return self.take(part);
            }
            wanted.resource_names.iter().enumerate().all(|(index, name)| {
                budget::spend(1 + owned.len());
                let named = || Rule {
                    resource_names: vec![name.clone()],
                    ..part.clone()
                };
                owned.iter().any(|owned| owned.names.each[index]) || self.take(named())
            })
        })
    }

    fn of_paths(&mut self, owned: &[Covered]) -> bool {
        let wanted = self.wanted;
        wanted.non_resource_urls.iter().enumerate().all(|(index, path)| {
            let owned = only(owned, |owned| owned.any_name && owned.paths.each[index]);
            wanted.verbs.iter().enumerate().all(|(index, verb)| {
                budget::spend(1 + owned.len());
                let part = || Rule {
                    verbs: vec![verb.clone()],
                    non_resource_urls: vec![path.clone()],
                    ..Rule::default()
                };
                owned.iter().any(|owned| owned.verbs.each[index]) || self.take(part())
            })
        })
    }
}

/// Those of the owned rules that cover something.
fn only<'a>(owned: impl IntoIterator<Item = &'a Covered>, covers: impl Fn(&Covered) -> bool) -> Vec<&'a Covered> {
    let owned = owned.into_iter().inspect(|_| budget::spend(1));
    let covering: Vec<&Covered> = owned.filter(|owned| covers(owned)).collect();
    budget::spend(1);
    covering
}

/// The part of `wanted` that the rules in `owned` do not cover, broken down into single rules; empty when they cover
/// everything.
///
/// ```
/// use kubewright_apiserver::authorization::{Rule, covers};
/// use serde_json::json;
///
/// let rule = |verbs: &[&str]| Rule::from_value(&json!({"apiGroups": [""], "resources": ["pods"], "verbs": verbs}));
/// assert!(covers(&[rule(&["get", "list"])], &[rule(&["get"])]).is_empty());
/// assert_eq!(covers(&[rule(&["get"])], &[rule(&["get", "list"])]), [rule(&["list"])]);
/// ```
pub fn covers(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    missing(owned, wanted, usize::MAX)
}

/// The first parts of `wanted` that [`covers`] answers.
pub(crate) fn missing(owned: &[Rule], wanted: &[Rule], at_most: usize) -> Vec<Rule> {
    let mut missing = Vec::new();
    for wanted in wanted {
        let owned: Vec<Covered> = owned.iter().filter_map(|rule| Covered::of(rule, wanted)).collect();
        let mut parts = Parts {
            wanted,
            at_most,
            missing,
        };
        let all = parts.of_resources(&owned) && parts.of_paths(&owned);
        missing = parts.missing;
        if !all {
            break;
        }
    }
    missing
}

/// Puts parts that differ only in their verbs together, as messages show them.
pub(crate) fn compact(parts: Vec<Rule>) -> Vec<Rule> {
    let mut simple: BTreeMap<(String, String, Option<String>), Rule> = BTreeMap::new();
    let mut compacted = Vec::new();
    for part in parts {
        let key = match (
            part.api_groups.as_slice(),
            part.resources.as_slice(),
            part.resource_names.as_slice(),
        ) {
            ([group], [resource], []) => (group.clone(), resource.clone(), None),
            ([group], [resource], [name]) => (group.clone(), resource.clone(), Some(name.clone())),
            _ => {
                compacted.push(part);
                continue;
            }
        };
        match simple.get_mut(&key) {
            Some(rule) => rule.verbs.extend(part.verbs),
            None => {
                simple.insert(key, part);
            }
        }
    }
    compacted.extend(simple.into_values());
    compacted
}

impl fmt::Display for Rule {
    /// `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let texts: Vec<String> = fields
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quoted(list)))
            .collect();
        write!(f, "{{{}}}", texts.join(", "))
    }
}
