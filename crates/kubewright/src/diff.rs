//! Which fields differ between two objects, for people to read.
//!
//! Invariants: the list is bounded ([`MAX_CHANGES`] entries, each value cut to [`MAX_VALUE`] characters when
//! displayed); bookkeeping that changes with every write (resourceVersion, generation, managedFields) never appears.
//! Not here: patches, see `apply.rs`.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// At most this many changes are listed; the last entry then says how many there are in all.
pub const MAX_CHANGES: usize = 32;
/// Values are displayed up to this many characters.
pub const MAX_VALUE: usize = 80;

/// One field that changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The path, such as `spec.replicas`, `status.conditions[0].status` or `metadata.annotations[example.com/a]`.
    pub path: String,
    /// The value before; `None` when the field did not exist.
    pub before: Option<Value>,
    /// The value after; `None` when the field was removed.
    pub after: Option<Value>,
}

impl fmt::Display for FieldChange {
    /// `spec.replicas 1 → 3`, `spec.paused removed (was true)`, `metadata.labels.app set to "web"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "{} {} → {}", self.path, short(before), short(after)),
            (None, Some(after)) => write!(f, "{} set to {}", self.path, short(after)),
            (Some(before), None) => write!(f, "{} removed (was {})", self.path, short(before)),
            (None, None) => f.write_str(&self.path),
        }
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The fields that differ between two JSON values, in the order of their paths.
///
/// ```
/// use kubewright::changes_between;
/// use serde_json::json;
///
/// let changes = changes_between(&json!({"spec": {"replicas": 1}}), &json!({"spec": {"replicas": 3}}));
/// assert_eq!(changes[0].to_string(), "spec.replicas 1 → 3");
/// ```
pub fn changes_between(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut collector = Collector {
        changes: Vec::new(),
        total: 0,
    };
    collector.compare("", Some(before), Some(after));
    let Collector { mut changes, total } = collector;
    if total > MAX_CHANGES {
        changes.push(FieldChange {
            path: format!("and {} more fields", total - MAX_CHANGES),
            before: None,
            after: None,
        });
    }
    changes
}

/// A value that is kept in a cause has at most so many bytes.
const KEPT: usize = 256;
/// The end of a value that was cut.
const CUT: char = '…';

/// Cuts long values.
pub(crate) fn shorten(change: &mut FieldChange) {
    for value in [&mut change.before, &mut change.after].into_iter().flatten() {
        let text = match &*value {
            Value::String(text) if text.len() > KEPT => text.clone(),
            Value::Array(_) | Value::Object(_) => value.to_string(),
            _ => continue,
        };
        if text.len() > KEPT {
            let end = (0..=KEPT).rev().find(|end| text.is_char_boundary(*end));
            *value = Value::String(format!("{}{CUT}", &text[..end.unwrap_or(0)]));
        }
    }
}

fn is_cut(value: Option<&Value>) -> bool {
    value.and_then(Value::as_str).is_some_and(|text| text.ends_with(CUT))
}

/// Adds later changes of the same object: what was before the first and is after the last.
pub(crate) fn merge(changes: &mut Vec<FieldChange>, later: &[FieldChange]) {
    for change in later {
        match changes.iter().position(|known| known.path == change.path) {
            Some(known) => changes[known].after.clone_from(&change.after),
            None if changes.len() <= MAX_CHANGES => changes.push(change.clone()),
            None => {}
        }
    }
    // What is as it was before is no change; of values that were cut nobody knows.
    changes.retain(|change| {
        let unknown = is_cut(change.before.as_ref()) || (change.before.is_none() && change.after.is_none());
        unknown || change.before != change.after
    });
}

struct Collector {
    changes: Vec<FieldChange>,
    total: usize,
}

impl Collector {
    fn compare(&mut self, path: &str, before: Option<&Value>, after: Option<&Value>) {
        if before == after || is_bookkeeping(path) {
            return;
        }
        match (before, after) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                for key in keys {
                    self.compare(&child(path, key), old.get(key), new.get(key));
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) if key_of(old, new).is_some() => {
                self.compare_keyed(path, key_of(old, new).unwrap_or_default(), old, new);
            }
            // A first list of conditions is told condition by condition.
            (None, Some(Value::Array(new))) if key_of(&[], new) == Some("type") => {
                self.compare_keyed(path, "type", &[], new);
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                for index in 0..old.len().max(new.len()) {
                    self.compare(&format!("{path}[{index}]"), old.get(index), new.get(index));
                }
            }
            // A whole new subtree is told by its leaves, so that `status: {}` → `status.phase` reads the same either
            // way.
            (None, Some(Value::Object(new))) if !new.is_empty() => {
                for (key, value) in new {
                    self.compare(&child(path, key), None, Some(value));
                }
            }
            (Some(Value::Object(old)), None) if !old.is_empty() => {
                for (key, value) in old {
                    self.compare(&child(path, key), Some(value), None);
                }
            }
            _ => self.push(path, before, after),
        }
    }

    /// Compares lists of which the items have names: `status.conditions[Ready].status`, in any order.
    fn compare_keyed(&mut self, path: &str, key: &str, old: &[Value], new: &[Value]) {
        let find = |items: &'_ [Value], name: &str| items.iter().find(|item| item[key] == name).cloned();
        let names = old.iter().chain(new).filter_map(|item| item[key].as_str());
        let names: std::collections::BTreeSet<&str> = names.collect();
        for name in names {
            let (mut before, mut after) = (find(old, name), find(new, name));
            if key == "type" {
                // The type is in the path already.
                for side in [&mut before, &mut after] {
                    side.as_mut()
                        .and_then(Value::as_object_mut)
                        .map(|fields| fields.remove(key));
                }
            }
            self.compare(&format!("{path}[{name}]"), before.as_ref(), after.as_ref());
        }
    }

    fn push(&mut self, path: &str, before: Option<&Value>, after: Option<&Value>) {
        self.total += 1;
        if self.changes.len() < MAX_CHANGES {
            self.changes.push(FieldChange {
                path: path.to_owned(),
                before: before.cloned(),
                after: after.cloned(),
            });
        }
    }
}

/// Fields that every write touches and that have no meaning for a reader.
const BOOKKEEPING: &[&str] = &[
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.managedFields",
];

/// Fields of conditions that go with the change of another field.
const OF_CONDITIONS: &[&str] = &[
    "lastHeartbeatTime",
    "lastProbeTime",
    "lastTransitionTime",
    "lastUpdateTime",
    "observedGeneration",
];

fn is_bookkeeping(path: &str) -> bool {
    let of_condition = || {
        let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
        parent.contains("conditions[") && OF_CONDITIONS.contains(&field)
    };
    BOOKKEEPING.contains(&path) || of_condition()
}

/// The field by which the items of two lists are told apart: `type` of conditions, `name` of containers.
fn key_of(old: &[Value], new: &[Value]) -> Option<&'static str> {
    let names_all = |key: &str, items: &[Value]| {
        let names: Vec<&str> = items.iter().filter_map(|item| item[key].as_str()).collect();
        let distinct: std::collections::BTreeSet<&&str> = names.iter().collect();
        names.len() == items.len() && distinct.len() == items.len()
    };
    let has_items = !old.is_empty() || !new.is_empty();
    ["type", "name"]
        .into_iter()
        .find(|key| has_items && names_all(key, old) && names_all(key, new))
}

fn child(path: &str, key: &str) -> String {
    let plain = key
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '$');
    match (path.is_empty(), plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{key}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_read_as_sentences() {
        let check = |before: Value, after: Value, expected: &[&str]| {
            let texts: Vec<String> = changes_between(&before, &after)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(texts, expected, "{before} → {after}");
        };
        check(
            json!({"spec": {"replicas": 1}}),
            json!({"spec": {"replicas": 3}}),
            &["spec.replicas 1 → 3"],
        );
        check(
            json!({}),
            json!({"status": {"a": 1, "b": {}}}),
            &["status.a set to 1", "status.b set to {}"],
        );
        check(json!({"a": [1, 2]}), json!({"a": [1]}), &["a[1] removed (was 2)"]);
        check(
            json!({"metadata": {"annotations": {"x.io/a": "1"}}}),
            json!({"metadata": {"annotations": {"x.io/a": "2"}}}),
            &["metadata.annotations[x.io/a] \"1\" → \"2\""],
        );
        check(
            json!({"metadata": {"resourceVersion": "1", "generation": 1, "managedFields": []}}),
            json!({"metadata": {"resourceVersion": "2", "generation": 2}}),
            &[],
        );
        check(json!({"a": {"b": true}}), json!({}), &["a.b removed (was true)"]);
        let condition =
            |type_: &str, status: &str, time: u8| json!({"type": type_, "status": status, "lastTransitionTime": time});
        check(
            json!({"status": {"conditions": [condition("A", "True", 1), condition("B", "False", 1)]}}),
            json!({"status": {"conditions": [condition("B", "True", 2), condition("A", "True", 2)]}}),
            &["status.conditions[B].status \"False\" → \"True\""],
        );
        check(
            json!({"status": {}}),
            json!({"status": {"conditions": [condition("Ready", "False", 1)]}}),
            &["status.conditions[Ready].status set to \"False\""],
        );
        check(
            json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}),
            json!({"containers": [{"name": "b"}, {"name": "a", "image": "2"}]}),
            &["containers[a].image \"1\" → \"2\""],
        );
    }

    #[test]
    fn lists_are_bounded_and_say_so() {
        let many: serde_json::Map<String, Value> =
            (0..100).map(|n| (format!("k{n:03}"), json!("x".repeat(500)))).collect();
        let changes = changes_between(&json!({}), &Value::Object(many));
        assert_eq!(changes.len(), MAX_CHANGES + 1);
        assert_eq!(changes[MAX_CHANGES].to_string(), "and 68 more fields");
        assert!(changes[0].to_string().chars().count() < MAX_VALUE + 30);
    }

    #[test]
    fn changes_that_follow_each_other_become_one() {
        let of = |before: Value, after: Value| {
            let mut changes = changes_between(&before, &after);
            changes.iter_mut().for_each(shorten);
            changes
        };
        let check = |steps: &[Value], expected: &[&str]| {
            let mut changes = Vec::new();
            for step in steps.windows(2) {
                merge(&mut changes, &of(step[0].clone(), step[1].clone()));
            }
            let told: Vec<String> = changes.iter().map(ToString::to_string).collect();
            assert_eq!(told, expected);
        };
        check(&[json!({"a": 1}), json!({"a": 2}), json!({"a": 3})], &["a 1 → 3"]);
        check(&[json!({"a": 1}), json!({"a": 2}), json!({"a": 1})], &[]);
        check(
            &[json!({}), json!({"a": 1}), json!({"a": 2, "b": 1})],
            &["a set to 2", "b set to 1"],
        );
        check(&[json!({"a": 1}), json!({}), json!({"a": 1})], &[]);
        let long = |letter: &str| json!({"a": letter.repeat(1000)});
        let mut changes = of(long("x"), long("y"));
        assert!(
            changes[0]
                .before
                .as_ref()
                .is_some_and(|value| value.to_string().len() < 300)
        );
        merge(&mut changes, &of(long("y"), long("x")));
        assert_eq!(changes.len(), 1, "who knows what comes behind the cut");
    }
}
