//! The conditions that users of ansible-operator know: Running, Successful, Failure, with the result of the last run.
//!
//! Invariants: conditions of other types and other fields of the status stay; a condition that says the same as before
//! keeps its time; types, reasons and messages are ansible-operator's, because `kubectl wait` and other operators look at
//! them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What Ansible counted in a run, as `ansibleResult` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AnsibleResult {
    /// Tasks that went well.
    pub ok: u64,
    /// Tasks that changed something.
    pub changed: u64,
    /// Tasks whose condition did not hold.
    pub skipped: u64,
    /// Tasks that failed.
    pub failures: u64,
    /// When the run ended, as Ansible wrote it.
    pub completion: String,
}

/// What is to be said of an object.
#[derive(Debug, Clone)]
pub enum Progress<'a> {
    /// A run begins.
    Running,
    /// A run ended well.
    Succeeded(&'a AnsibleResult),
    /// A run failed, or none could be begun.
    Failed(Option<&'a AnsibleResult>, &'a str),
}

/// The conditions after that; `now` in RFC 3339.
#[must_use]
pub fn conditions(status: &Value, progress: &Progress<'_>, now: &str) -> Value {
    let known = status["conditions"].as_array().cloned().unwrap_or_default();
    let mut conditions = Conditions { known, now };
    match progress {
        Progress::Running => {
            conditions.withdraw("Successful");
            conditions.set("Running", true, "Running", "Running reconciliation", None);
        }
        Progress::Succeeded(result) => {
            let message = "Awaiting next reconciliation";
            conditions.set("Running", true, "Successful", message, Some(result));
            conditions.set("Successful", true, "Successful", "Last reconciliation succeeded", None);
            conditions.set("Failure", false, "", "", None);
        }
        Progress::Failed(result, message) => {
            conditions.withdraw("Running");
            conditions.set("Failure", true, "Failed", message, *result);
            match result {
                Some(_) => conditions.set("Successful", false, "", "", None),
                None => conditions.withdraw("Successful"),
            }
        }
    }
    Value::Array(conditions.known)
}

struct Conditions<'a> {
    known: Vec<Value>,
    now: &'a str,
}

impl Conditions<'_> {
    fn place(&self, of: &str) -> Option<usize> {
        self.known.iter().position(|condition| condition["type"] == of)
    }

    /// A condition that is there holds no more; what it said stays.
    fn withdraw(&mut self, of: &str) {
        let Some(at) = self.place(of) else { return };
        if self.known[at]["status"] != "False" {
            self.known[at]["status"] = json!("False");
            self.known[at]["lastTransitionTime"] = json!(self.now);
        }
    }

    fn set(&mut self, of: &str, holds: bool, reason: &str, message: &str, result: Option<&AnsibleResult>) {
        let status = if holds { "True" } else { "False" };
        let mut next = json!({
            "type": of, "status": status, "lastTransitionTime": self.now, "reason": reason, "message": message,
        });
        if let Some(result) = result {
            next["ansibleResult"] = json!(result);
        }
        let Some(at) = self.place(of) else {
            return self.known.push(next);
        };
        if self.known[at]["status"] == status && self.known[at]["lastTransitionTime"].is_string() {
            next["lastTransitionTime"] = self.known[at]["lastTransitionTime"].take();
        }
        self.known[at] = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: &Value, progress: &Progress<'_>, now: &str) -> Vec<String> {
        let conditions = conditions(status, progress, now);
        let list = conditions.as_array().cloned().unwrap_or_default();
        let line = |c: &Value| {
            let text = |name: &str| c[name].as_str().unwrap_or_default().to_owned();
            let result = c
                .get("ansibleResult")
                .map(|result| format!(" ok={}", result["ok"]))
                .unwrap_or_default();
            format!(
                "{}={} {}: {} @{}{result}",
                text("type"),
                text("status"),
                text("reason"),
                text("message"),
                text("lastTransitionTime")
            )
        };
        list.iter().map(line).collect()
    }

    #[test]
    fn a_run_is_told_as_ansible_operator_tells_it() {
        let result = AnsibleResult {
            ok: 4,
            ..Default::default()
        };
        let mut status = json!({"nodes": ["a"]});
        let mut check = |progress: &Progress<'_>, now: &str, expected: &[&str]| {
            assert_eq!(told(&status, progress, now), expected);
            status["conditions"] = conditions(&status, progress, now);
        };
        check(
            &Progress::Running,
            "1",
            &["Running=True Running: Running reconciliation @1"],
        );
        let well = [
            "Running=True Successful: Awaiting next reconciliation @1 ok=4",
            "Successful=True Successful: Last reconciliation succeeded @2",
            "Failure=False :  @2",
        ];
        check(&Progress::Succeeded(&result), "2", &well);
        check(
            &Progress::Running,
            "3",
            &[
                "Running=True Running: Running reconciliation @1",
                "Successful=False Successful: Last reconciliation succeeded @3",
                "Failure=False :  @2",
            ],
        );
        check(
            &Progress::Failed(Some(&result), "no space"),
            "4",
            &[
                "Running=False Running: Running reconciliation @4",
                "Successful=False :  @3",
                "Failure=True Failed: no space @4 ok=4",
            ],
        );
        check(
            &Progress::Failed(None, "no python"),
            "5",
            &[
                "Running=False Running: Running reconciliation @4",
                "Successful=False :  @3",
                "Failure=True Failed: no python @4",
            ],
        );
    }

    #[test]
    fn conditions_of_a_role_stay() {
        let status =
            json!({"conditions": [{"type": "Ready", "status": "True"}, {"type": "Running", "status": "True"}]});
        let conditions = conditions(&status, &Progress::Failed(None, "x"), "1");
        assert_eq!(conditions[0], json!({"type": "Ready", "status": "True"}));
        assert_eq!(conditions[1]["status"], "False");
    }
}
