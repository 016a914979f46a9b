//! A stored role as requests are held against it.
//!
//! A client may write roles with a hundred thousand names each. So a role is read when it is first asked for, by
//! the request that asks: a user who is bound to no such role does not pay for it. Its lists are kept as sets, in little
//! more memory than their texts: to look for a name costs a few steps, however long the list is.
//!
//! Invariants: a [`CompiledRule`] allows what the [`Rule`] allows that it was made of, and gives that back; each step
//! is counted.

use std::sync::Arc;

use kubewright_schema::budget;

use super::{Attributes, Rule, rule};
use crate::storage::{ReadLater, StoredObject};

/// Lists up to this length are looked through one by one.
const SHORT: usize = 8;

/// A list of texts that is asked for single ones.
pub(super) trait Texts {
    /// Whether one of these is in the list.
    fn has_any(&self, wanted: &[&str]) -> bool;
    fn is_empty(&self) -> bool;
    /// All of them, in their order.
    fn each(&self) -> impl Iterator<Item = &str>;
}

impl Texts for Vec<String> {
    fn has_any(&self, wanted: &[&str]) -> bool {
        budget::spend(1 + self.len() / 4);
        self.iter().any(|entry| wanted.contains(&entry.as_str()))
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn each(&self) -> impl Iterator<Item = &str> {
        self.iter().map(String::as_str)
    }
}

/// Texts in their order, which are found as in a set.
#[derive(Debug, Default)]
struct Words {
    /// One after the other.
    text: Box<str>,
    /// Where each ends in `text`.
    ends: Box<[u32]>,
    /// Their numbers in the order of the texts; empty for a short list.
    sorted: Box<[u32]>,
}

/// A number within a stored object, which has no 4 GiB.
fn short(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Words {
    fn of(list: Vec<String>) -> Words {
        let mut end = 0;
        let ends = list.iter().map(|text| {
            end += text.len();
            short(end)
        });
        let mut words = Words {
            ends: ends.collect(),
            text: list.concat().into_boxed_str(),
            sorted: Box::default(),
        };
        drop(list);
        if words.len() > SHORT {
            let mut sorted: Vec<u32> = (0..short(words.len())).collect();
            sorted.sort_unstable_by_key(|number| words.get(*number));
            words.sorted = sorted.into_boxed_slice();
        }
        words
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, number: u32) -> &str {
        let at = number as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.text[start..self.ends[at] as usize]
    }

    fn to_vec(&self) -> Vec<String> {
        self.each().map(str::to_owned).collect()
    }
}

impl Texts for Words {
    fn has_any(&self, wanted: &[&str]) -> bool {
        if self.sorted.is_empty() {
            budget::spend(1 + self.len() / 4);
            return self.each().any(|entry| wanted.contains(&entry));
        }
        budget::spend(1 + self.len().ilog2() as usize);
        let found = |wanted: &&str| self.sorted.binary_search_by(|number| self.get(*number).cmp(wanted));
        wanted.iter().any(|wanted| found(wanted).is_ok())
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn each(&self) -> impl Iterator<Item = &str> {
        (0..short(self.len())).map(|number| self.get(number))
    }
}

/// A rule of a stored role.
#[derive(Debug)]
pub(crate) struct CompiledRule {
    verbs: Words,
    api_groups: Words,
    resources: Words,
    resource_names: Words,
    non_resource_urls: Words,
}

impl CompiledRule {
    fn of(rule: Rule) -> CompiledRule {
        CompiledRule {
            verbs: Words::of(rule.verbs),
            api_groups: Words::of(rule.api_groups),
            resources: Words::of(rule.resources),
            resource_names: Words::of(rule.resource_names),
            non_resource_urls: Words::of(rule.non_resource_urls),
        }
    }

    fn lists(&self) -> Lists<'_, Words> {
        Lists {
            verbs: &self.verbs,
            api_groups: &self.api_groups,
            resources: &self.resources,
            resource_names: &self.resource_names,
            non_resource_urls: &self.non_resource_urls,
        }
    }

    /// Whether it allows the request.
    pub(crate) fn allows(&self, wanted: &Attributes) -> bool {
        self.lists().allow(wanted)
    }

    /// A copy as it stands in the role, which is counted.
    pub(crate) fn to_rule(&self) -> Rule {
        let lists = [
            &self.verbs,
            &self.api_groups,
            &self.resources,
            &self.resource_names,
            &self.non_resource_urls,
        ];
        rule::count_copy(lists.into_iter().map(Words::len).sum());
        Rule {
            verbs: self.verbs.to_vec(),
            api_groups: self.api_groups.to_vec(),
            resources: self.resources.to_vec(),
            resource_names: self.resource_names.to_vec(),
            non_resource_urls: self.non_resource_urls.to_vec(),
        }
    }
}

/// The lists of a rule.
pub(super) struct Lists<'r, L> {
    pub(super) verbs: &'r L,
    pub(super) api_groups: &'r L,
    pub(super) resources: &'r L,
    pub(super) resource_names: &'r L,
    pub(super) non_resource_urls: &'r L,
}

impl<L: Texts> Lists<'_, L> {
    /// Whether the rule allows the request (`RuleAllows`).
    pub(super) fn allow(&self, wanted: &Attributes) -> bool {
        if !self.verbs.has_any(&[rule::ALL, &wanted.verb]) {
            return false;
        }
        if !wanted.is_resource() {
            return self.non_resource_urls.each().any(|url| {
                budget::spend(1);
                rule::path_fits(url, &wanted.path)
            });
        }
        self.api_groups.has_any(&[rule::ALL, &wanted.group])
            && self.has_resource(&wanted.resource, &wanted.subresource)
            && (self.resource_names.is_empty() || self.resource_names.has_any(&[&wanted.name]))
    }

    /// `*`, the very resource, or `*/subresource` (`ResourceMatches`).
    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        if subresource.is_empty() {
            return self.resources.has_any(&[rule::ALL, resource]);
        }
        let (own, any) = (format!("{resource}/{subresource}"), format!("*/{subresource}"));
        self.resources.has_any(&[rule::ALL, &own, &any])
    }
}

/// The rules of a stored role, which are read when they are first asked for.
#[derive(Debug)]
pub(super) struct Role(ReadLater<Box<[CompiledRule]>>);

impl Role {
    pub(super) fn new(stored: &StoredObject) -> Arc<Role> {
        Arc::new(Role(ReadLater::new(stored)))
    }

    /// Its rules.
    pub(super) fn rules(&self) -> &[CompiledRule] {
        self.0
            .get(|role| Rule::all_of(role).into_iter().map(CompiledRule::of).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a rule allows does not depend on its form, and the form gives the rule back.
    #[test]
    fn a_compiled_rule_is_the_rule() {
        let many = |texts: &[&str]| -> Vec<String> {
            let others = (0..20).map(|index| format!("other{}", index * 7 % 20));
            others.chain(texts.iter().map(|text| (*text).to_owned())).collect()
        };
        for long in [false, true] {
            let list = |texts: &[&str]| match long {
                true => many(texts),
                false => texts.iter().map(|text| (*text).to_owned()).collect(),
            };
            let rules = [
                json!({"verbs": list(&["get"]), "apiGroups": list(&[""]), "resources": list(&["pods", "*/scale"])}),
                json!({"verbs": list(&["*"]), "apiGroups": list(&["*"]), "resources": list(&["*"]), "resourceNames": list(&["a", ""])}),
                json!({"verbs": list(&["get"]), "apiGroups": list(&["", "apps"]), "resources": list(&["pods/log"]), "resourceNames": list(&["b", "a", "b"])}),
                json!({"verbs": list(&["get", "post"]), "nonResourceURLs": list(&["/a", "/b/*", "*"])}),
                json!({"verbs": list(&[])}),
            ];
            for value in rules {
                let rule = Rule::from_value(&value);
                let compiled = CompiledRule::of(rule.clone());
                assert_eq!(compiled.to_rule(), rule);
                for verb in ["get", "post", "other3", ""] {
                    for (resource, subresource) in [("pods", ""), ("pods", "log"), ("x", "scale"), ("other4", "")] {
                        for name in ["", "a", "b", "c", "other5"] {
                            let wanted = Attributes {
                                verb: verb.to_owned(),
                                resource: resource.to_owned(),
                                subresource: subresource.to_owned(),
                                name: name.to_owned(),
                                ..Attributes::default()
                            };
                            assert_eq!(compiled.allows(&wanted), rule.allows(&wanted), "{rule}: {wanted:?}");
                        }
                    }
                    for path in ["/a", "/b/c", "/c"] {
                        let wanted = Attributes {
                            verb: verb.to_owned(),
                            path: path.to_owned(),
                            ..Attributes::default()
                        };
                        assert_eq!(compiled.allows(&wanted), rule.allows(&wanted), "{rule}: {wanted:?}");
                    }
                }
            }
        }
    }
}
