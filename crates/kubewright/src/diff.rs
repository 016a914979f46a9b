//! Which fields differ between two objects, for people to read.
//!
//! Invariants: the list is bounded ([`MAX_CHANGES`] entries, each value cut to [`MAX_VALUE`] characters when displayed); bookkeeping that
//! changes with every write (resourceVersion, generation, managedFields) never appears. Not here: patches, see `apply.rs`.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// At most this many changes are listed; the last entry then says how many there are in all.
pub const MAX_CHANGES: usize = 32;
/// Values are displayed up to this many characters.
pub const MAX_VALUE: usize = 80;

/// One field that changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
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

struct Collector {
    changes: Vec<FieldChange>,
    total: usize,
}

impl Collector {
    fn compare(&mut self, path: &str, before: Option<&Value>, after: Option<&Value>) {
        if before == after || BOOKKEEPING.contains(&path) {
            return;
        }
        match (before, after) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                for key in keys {
                    self.compare(&child(path, key), old.get(key), new.get(key));
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                for index in 0..old.len().max(new.len()) {
                    self.compare(&format!("{path}[{index}]"), old.get(index), new.get(index));
                }
            }
            // A whole new subtree is told by its leaves, so that `status: {}` → `status.phase` reads the same either way.
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

/// Fields that every write touches and that tell nobody anything.
const BOOKKEEPING: &[&str] = &[
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.managedFields",
];

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
}
