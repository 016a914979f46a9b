//! ClusterRoles that gather the rules of others: `aggregationRule` selects by labels, and the rules follow.
//!
//! `view`, `edit` and `admin` are such roles: a definition of a new kind brings its own roles with the labels
//! `rbac.authorization.k8s.io/aggregate-to-…`, and a user with the role `view` may view that kind as well.
//!
//! Rules come in the order of the selectors, for each in the order of the roles' names, each rule once. They are
//! applied by force: rules that another client writes into such a role are replaced.
//!
//! Not here: the right to write such a role (the API server checks it).

use std::sync::Arc;

use kubewright::kube::api::{Patch, PatchParams};
use kubewright::kube::core::{Request as Requests, Selector, SelectorExt as _};
use kubewright::kube::{Error, Resource as _};
use kubewright::{Action, Context, Controller, Reconciler, Result, Watch};
use kubewright_objects::api::rbac::v1::{ClusterRole, PolicyRule};
use serde_json::json;

use kubewright_objects::meta;

const NAME: &str = "clusterrole-aggregation-controller";

// ANCHOR: wiring
/// Fills the roles that gather others.
pub(crate) struct ClusterRoleAggregation;

/// The controller of ClusterRoles with an `aggregationRule`.
pub(crate) fn controller() -> Controller {
    Controller::of(ClusterRoleAggregation)
        .named(NAME)
        // Any role may be one of those that are gathered, or may have been.
        .source(Watch::<ClusterRole>::new().all_where(|role: &ClusterRole| role.aggregation_rule.is_some()))
}
// ANCHOR_END: wiring

// ANCHOR: reconcile
impl Reconciler for ClusterRoleAggregation {
    type Object = ClusterRole;

    async fn reconcile(&self, role: Arc<ClusterRole>, ctx: Context) -> Result<Action> {
        if role.aggregation_rule.is_none() {
            return Ok(Action::await_change());
        }
        let others = ctx.client().list::<ClusterRole>(None).await?;
        let rules = gathered(&role, &others)?;
        if role.rules.as_deref().unwrap_or_default() == rules {
            return Ok(Action::await_change());
        }
        let name = meta::name(&role.metadata);
        let mut wanted = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name },
        });
        // Nothing is applied where no role is selected: rules of other clients stay, those of this controller go.
        if !rules.is_empty() {
            wanted["rules"] = json!(rules);
        }
        let how = PatchParams::apply(NAME).force();
        let roles = Requests::new(ClusterRole::url_path(&(), None));
        let request = roles
            .patch(name, &how, &Patch::Apply(wanted))
            .map_err(Error::BuildRequest)?;
        // The answer is not read: the informer shows the role.
        ctx.client().kube().request_text(request).await?;
        Ok(Action::await_change())
    }
}
// ANCHOR_END: reconcile

// ANCHOR: decision
/// The rules that a role is to have, out of all roles.
fn gathered(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Result<Vec<PolicyRule>> {
    let selectors = role
        .aggregation_rule
        .iter()
        .flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        let name = meta::name(&role.metadata);
        let selector: Selector = meta::selector(&format!("ClusterRole {name}"), selector)?;
        let mut chosen: Vec<&Arc<ClusterRole>> = all
            .iter()
            .filter(|other| meta::name(&other.metadata) != name && selector.matches(meta::labels(&other.metadata)))
            .collect();
        chosen.sort_by_key(|other| meta::name(&other.metadata));
        for rule in chosen.iter().flat_map(|other| other.rules.iter().flatten()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Ok(rules)
}
// ANCHOR_END: decision

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn rules_are_gathered_in_order_and_once() {
        let role = |name: &str, labels: Value, verbs: &[&str]| -> Arc<ClusterRole> {
            let rules: Vec<Value> = verbs
                .iter()
                .map(|verb| json!({"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}))
                .collect();
            let role = json!({"metadata": {"name": name, "labels": labels}, "rules": rules});
            Arc::new(serde_json::from_value(role).expect("a role"))
        };
        let all = [
            role("c", json!({"to": "x"}), &["get", "list"]),
            role("a", json!({"to": "x"}), &["watch"]),
            role("b", json!({"to": "y"}), &["list", "delete"]),
            role("z", json!({}), &["create"]),
            role("self", json!({"to": "x"}), &["update"]),
        ];
        let check = |selectors: Value, expected: &[&str]| {
            let role = json!({"metadata": {"name": "self"}, "aggregationRule": {"clusterRoleSelectors": selectors}});
            let role: ClusterRole = serde_json::from_value(role).expect("a role");
            let rules = gathered(&role, &all).expect("well-formed selectors");
            let verbs: Vec<&str> = rules
                .iter()
                .flat_map(|rule| rule.verbs.iter().map(String::as_str))
                .collect();
            assert_eq!(verbs, expected);
        };
        check(json!([]), &[]);
        check(json!([{"matchLabels": {"to": "x"}}]), &["watch", "get", "list"]);
        let both = json!([{"matchLabels": {"to": "y"}}, {"matchLabels": {"to": "x"}}]);
        check(both, &["list", "delete", "watch", "get"]);
    }
}
