//! The role of an operator of charts: what Helm itself needs, the kinds, and what their charts render.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_schema::decode;
use serde_json::{Value, json};

use super::ROLE;
use crate::diagnostic::Diagnostic;
use crate::names;
use crate::plan::{Files as _, Plan};
use crate::project::{Project, Resource};
use crate::yaml;

/// Rules of a role, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rules(Vec<Value>);

impl Rules {
    /// The namespace that Helm looks at, its Secrets, and events.
    pub(super) fn base() -> Rules {
        Rules(vec![
            rule("", &["namespaces"], &["get"]),
            rule("", &["secrets"], &["*"]),
            rule("events.k8s.io", &["events"], &["create", "patch"]),
        ])
    }

    fn put(&mut self, rule: Value) {
        if !self.0.contains(&rule) {
            self.0.push(rule);
        }
    }

    /// What the operator does with objects of a kind.
    pub(super) fn add_kind(&mut self, resource: &Resource) {
        let plural = resource.plural();
        let all = ["create", "delete", "get", "list", "patch", "update", "watch"];
        let resources = [
            plural.clone(),
            format!("{plural}/status"),
            format!("{plural}/finalizers"),
        ];
        let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
        self.put(rule(&resource.full_group(), &resources, &all));
    }

    /// What a chart renders. An operator that makes roles must have what they grant.
    pub(super) fn add_chart(&mut self, rendered: &[Value], notes: &mut Vec<String>) {
        let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut granted = Vec::new();
        for object in rendered {
            let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
            let (group, _) = version.split_once('/').unwrap_or(("", version));
            if kind.is_empty() || version.is_empty() {
                continue;
            }
            if matches!(kind, "Role" | "ClusterRole") && group == "rbac.authorization.k8s.io" {
                granted.extend(object["rules"].as_array().cloned().unwrap_or_default());
            }
            groups.entry(group.to_owned()).or_default().insert(names::plural(kind));
        }
        for (group, resources) in groups {
            let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
            self.put(rule(&group, &resources, &["*"]));
        }
        if !granted.is_empty() {
            notes.push("the chart makes roles: the operator's role has what they grant, because an operator cannot grant more than it has".to_owned());
        }
        granted.into_iter().for_each(|rule| self.put(rule));
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// The rules of the role as it is.
pub(super) fn read(plan: &mut Plan<'_>) -> Result<Rules, Diagnostic> {
    let text = plan.read(ROLE)?.unwrap_or_default();
    let role = decode::yaml(text.as_bytes())
        .map(|decoded| decoded.value)
        .unwrap_or_default();
    match role["rules"].as_array() {
        Some(rules) => Ok(Rules(rules.clone())),
        None => Ok(Rules::base()),
    }
}

/// The text of its file.
pub(super) fn file(project: &Project, rules: &Rules) -> String {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": if project.namespaced { "Role" } else { "ClusterRole" },
        "metadata": {"name": "manager-role"},
        "rules": rules.0,
    });
    format!(
        "# What the operator may do; kubewright create api adds to it.\n{}",
        yaml::to_string(&role)
    )
}
