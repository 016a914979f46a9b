//! A rule of a role: which requests it allows (`RuleAllows`), which other rules it covers (`Covers`), and how it is printed.
//!
//! Invariant: a rule that covers another allows every request that the other allows.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use super::{Attributes, quoted};

const ALL: &str = "*";

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

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == wanted)
}

fn has_all(list: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|wanted| has(list, wanted))
}

/// Whether the pattern fits the path, or another pattern.
fn path_fits(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

impl Rule {
    /// Reads a rule of a stored role. What has another shape is as if it were not there.
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
    pub fn to_value(&self) -> Value {
        let mut rule = Map::new();
        rule.insert("verbs".to_owned(), self.verbs.as_slice().into());
        for (field, list) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !list.is_empty() {
                rule.insert(field.to_owned(), list.as_slice().into());
            }
        }
        Value::Object(rule)
    }

    /// Whether it allows the request.
    pub fn allows(&self, wanted: &Attributes) -> bool {
        let fits = |list: &[String], wanted: &str| list.iter().any(|entry| entry == ALL || entry == wanted);
        if !fits(&self.verbs, &wanted.verb) {
            return false;
        }
        if !wanted.is_resource() {
            return self.non_resource_urls.iter().any(|url| path_fits(url, &wanted.path));
        }
        fits(&self.api_groups, &wanted.group)
            && self
                .resources
                .iter()
                .any(|resource| resource_fits(resource, &wanted.resource, &wanted.subresource))
            && (self.resource_names.is_empty() || has(&self.resource_names, &wanted.name))
    }

    /// Rules with one group, one resource, one verb and at most one name each, or one path and one verb, that allow the same together.
    fn parts(&self) -> Vec<Rule> {
        let one = |text: &String| vec![text.clone()];
        let mut parts = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Rule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    for name in &self.resource_names {
                        parts.push(Rule {
                            resource_names: one(name),
                            ..part.clone()
                        });
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            for verb in &self.verbs {
                parts.push(Rule {
                    verbs: one(verb),
                    non_resource_urls: one(url),
                    ..Rule::default()
                });
            }
        }
        parts
    }

    /// Whether it covers a part.
    fn covers_part(&self, part: &Rule) -> bool {
        let verbs = has(&self.verbs, ALL) || has_all(&self.verbs, &part.verbs);
        let groups = has(&self.api_groups, ALL) || has_all(&self.api_groups, &part.api_groups);
        let resources = has(&self.resources, ALL)
            || part.resources.iter().all(|resource| {
                let of_any = |(_, subresource): (&str, &str)| has(&self.resources, &format!("*/{subresource}"));
                has(&self.resources, resource) || resource.split_once('/').is_some_and(of_any)
            });
        let names = self.resource_names.is_empty()
            || (!part.resource_names.is_empty() && has_all(&self.resource_names, &part.resource_names));
        let urls = part
            .non_resource_urls
            .iter()
            .all(|url| self.non_resource_urls.iter().any(|own| path_fits(own, url)));
        verbs && groups && resources && names && urls
    }
}

/// `*`, the very resource, or `*/subresource`.
fn resource_fits(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == ALL {
        return true;
    }
    if subresource.is_empty() {
        return pattern == resource;
    }
    let of = |owner: &str| {
        pattern
            .strip_prefix(owner)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|rest| rest == subresource)
    };
    of(resource) || of(ALL)
}

/// What of `wanted` the rules in `owned` do not cover, broken down into parts; empty when they cover everything.
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
    let parts = wanted.iter().flat_map(Rule::parts);
    parts
        .filter(|part| !owned.iter().any(|rule| rule.covers_part(part)))
        .collect()
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
