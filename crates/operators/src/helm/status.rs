//! The status that an object of a chart has: conditions and the deployed release, in operator-sdk's words.

use kubewright::jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The condition types.
pub(super) const INITIALIZED: &str = "Initialized";
pub(super) const DEPLOYED: &str = "Deployed";
pub(super) const FAILED: &str = "ReleaseFailed";
pub(super) const IRRECONCILABLE: &str = "Irreconcilable";

/// A status that is being changed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Status {
    before: Value,
    conditions: Vec<Map<String, Value>>,
    release: Option<Value>,
    now: Timestamp,
}

impl Status {
    /// The status of an object, as it is.
    pub(super) fn of(status: &Value, now: Timestamp) -> Status {
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let conditions = conditions.into_iter().filter_map(|condition| match condition {
            Value::Object(condition) => Some(condition),
            _ => None,
        });
        Status {
            before: status.clone(),
            conditions: conditions.collect(),
            release: status
                .get("deployedRelease")
                .filter(|release| !release.is_null())
                .cloned(),
            now,
        }
    }

    /// A condition that is met (or is not); its time stays as long as that does.
    pub(super) fn set(&mut self, kind: &str, met: bool, reason: &str, message: &str) {
        let status = if met { "True" } else { "False" };
        let known = self
            .conditions
            .iter()
            .position(|condition| condition.get("type").is_some_and(|it| it == kind));
        let since = known
            .map(|at| &self.conditions[at])
            .filter(|condition| condition.get("status").is_some_and(|it| it == status))
            .and_then(|condition| condition.get("lastTransitionTime").cloned())
            .unwrap_or_else(|| json!(format!("{:.0}", self.now)));
        let mut condition = Map::new();
        let texts = [
            ("type", kind),
            ("status", status),
            ("reason", reason),
            ("message", message),
        ];
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            condition.insert(name.to_owned(), json!(text));
        }
        condition.insert("lastTransitionTime".to_owned(), since);
        match known {
            Some(at) => self.conditions[at] = condition,
            None => self.conditions.push(condition),
        }
    }

    /// A condition that nobody speaks of any more.
    pub(super) fn remove(&mut self, kind: &str) {
        self.conditions
            .retain(|condition| condition.get("type").is_none_or(|it| it != kind));
    }

    /// The release that is deployed, or that none is.
    pub(super) fn release(&mut self, release: Option<(&str, &str)>) {
        self.release = release.map(|(name, manifest)| json!({"name": name, "manifest": manifest}));
    }

    /// The manifest of the deployed release.
    pub(super) fn manifest(&self) -> Option<&str> {
        self.release.as_ref()?["manifest"].as_str()
    }

    /// The merge patch of the status; `None` when nothing has changed.
    pub(super) fn patch(&self) -> Option<Value> {
        let conditions = json!(self.conditions);
        let release = self.release.clone().unwrap_or(Value::Null);
        if self.before["conditions"] == conditions && self.before["deployedRelease"] == release {
            return None;
        }
        Some(json!({"status": {"conditions": conditions, "deployedRelease": release}}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time() {
        let now: Timestamp = "2026-01-02T00:00:00.5Z".parse().expect("a time");
        let before = json!({"conditions": [
            {"type": "Initialized", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"},
            {"type": "ReleaseFailed", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"},
        ], "other": 1});
        let mut status = Status::of(&before, now);
        status.set(INITIALIZED, true, "", "");
        assert_eq!(status.patch(), None, "it was so before");
        status.remove(FAILED);
        status.set(DEPLOYED, true, "InstallSuccessful", "notes");
        status.release(Some(("web", "---\n")));
        let patch = status.patch().expect("it has changed");
        assert_eq!(
            patch,
            json!({"status": {
                "conditions": [
                    {"type": "Initialized", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"},
                    {"type": "Deployed", "status": "True", "reason": "InstallSuccessful", "message": "notes", "lastTransitionTime": "2026-01-02T00:00:00Z"},
                ],
                "deployedRelease": {"name": "web", "manifest": "---\n"},
            }})
        );
        assert_eq!(Status::of(&patch["status"], now).patch(), None);
    }
}
