//! Privilege escalation: no user grants rights that he does not have. The checks on writes of roles and bindings.
//!
//! A role may hold only rules that its writer has himself in that place, unless he may `escalate` it; a binding may
//! refer only to a role all of whose rules its writer has, unless he may `bind` it. A role that gathers others
//! (`aggregationRule`) needs everything. Members of `system:masters` are not asked.
//!
//! The checks come after admission may have changed the object and before it is validated.

use kubewright_schema::error::quote;
use kubewright_schema::names;
use serde_json::Value;

use super::policy::RoleRef;
use super::{Attributes, GROUP, Inquiry, Policy, ResolveError, Rule, aggregate, quoted, rule};
use crate::model::Resource;
use crate::model::object;
use crate::model::status::Status;
use crate::model::user::{SYSTEM_MASTERS, UserInfo};

/// How many of the missing rules, broken down to single verbs, a refusal tells. kube-apiserver tells all: a role of 2
/// KB breaks down into 700,000.
const MAX_SHOWN: usize = 1000;

/// A write of a role or a binding.
pub(crate) struct Grant<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) inquiry: &'a Inquiry<'a>,
    pub(crate) user: &'a UserInfo,
    pub(crate) resource: &'a Resource,
    /// Namespace of the request; empty for cluster roles and their bindings.
    pub(crate) namespace: &'a str,
    /// The name in the path; empty for a POST.
    pub(crate) path_name: &'a str,
}

fn gathers(role: &Value) -> bool {
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors");
    selectors
        .and_then(Value::as_array)
        .is_some_and(|selectors| !selectors.is_empty())
}

/// Whether a write changes only fields that garbage collection changes.
fn is_housekeeping(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        let metadata = object::metadata_mut(&mut object);
        for field in ["ownerReferences", "finalizers", "managedFields"] {
            metadata.remove(field);
        }
        object
    };
    rest(new) == rest(old)
}

/// Whether writes of a kind grant anything.
pub(crate) fn concerns(resource: &Resource) -> bool {
    resource.group == GROUP
}

impl Grant<'_> {
    /// Whether the user may write the object; `old` is the one that it replaces. Call it within [`Inquiry::settled`].
    pub(crate) fn check(&self, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        if self.user.in_group(SYSTEM_MASTERS) {
            return Ok(());
        }
        let binding = matches!(self.resource.kind.as_ref(), "RoleBinding" | "ClusterRoleBinding");
        if !binding && self.may("escalate", &self.resource.plural, self.path_name) {
            return Ok(());
        }
        if old.is_some_and(|old| is_housekeeping(new, old)) {
            return Ok(());
        }
        if binding {
            self.check_binding(new)
        } else {
            self.check_role(new, old)
        }
    }

    fn may(&self, verb: &str, resource: &str, name: &str) -> bool {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: resource.to_owned(),
            namespace: self.namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        self.inquiry.decide(self.user, &attributes).is_allowed()
    }

    fn forbidden(&self, object: &Value, why: &str) -> Status {
        Status::forbidden(self.resource, object::name(object), why)
    }

    fn check_role(&self, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        self.confirm(&Rule::all_of(new))
            .map_err(|why| self.forbidden(new, &why))?;
        if (gathers(new) || old.is_some_and(gathers)) && self.confirm(&Rule::everything()).is_err() {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(self.forbidden(new, why));
        }
        Ok(())
    }

    fn check_binding(&self, new: &Value) -> Result<(), Status> {
        let role = RoleRef::of(new);
        let resource = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            other => {
                let message = ResolveError::Unsupported(other.to_owned()).to_string();
                return Err(Status::untyped(message));
            }
        };
        let may_bind = role.group == GROUP && self.may("bind", resource, &role.name);
        if may_bind {
            return Ok(());
        }
        let rules = self.rules_of(&role)?;
        self.confirm(&rules).map_err(|why| self.forbidden(new, &why))
    }

    /// The rules of the role, looked up as a GET would.
    fn rules_of(&self, role: &RoleRef) -> Result<Vec<Rule>, Status> {
        if role.kind == "Role" && self.namespace.is_empty() {
            return Err(Status::bad_request("Namespace parameter required."));
        }
        if role.name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        let wrong = names::path_segment_name(&role.name);
        if !wrong.is_empty() {
            let message = format!("Name parameter invalid: {}: {}", quote(&role.name), wrong.join(";"));
            return Err(Status::bad_request(message));
        }
        self.policy.resolve(role, self.namespace).map_err(|error| match error {
            // Upstream names the kind that is written, not the one that is missing.
            ResolveError::Missing { name, .. } => Status::not_found(self.resource, &name),
            ResolveError::Unsupported(_) => Status::untyped(error.to_string()),
        })
    }

    /// Whether the user has all of these rules; the error lists the missing ones.
    fn confirm(&self, wanted: &[Rule]) -> Result<(), String> {
        let (owned, errors) = self.policy.rules_for(self.user, self.namespace);
        let mut missing = rule::missing(&owned, wanted, MAX_SHOWN + 1);
        if missing.is_empty() {
            return Ok(());
        }
        let more = missing.len() > MAX_SHOWN;
        missing.truncate(MAX_SHOWN);
        let mut lines: Vec<String> = rule::compact(missing).iter().map(ToString::to_string).collect();
        lines.sort_unstable();
        lines.dedup();
        if more {
            lines.push("and more".to_owned());
        }
        let mut message = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            quote(&self.user.name),
            quoted(&self.user.groups),
            lines.join("\n")
        );
        let errors = aggregate(errors.iter().map(|error| match error {
            ResolveError::Missing { name, .. } => {
                format!("{} {} not found", self.resource.group_resource(), quote(name))
            }
            ResolveError::Unsupported(_) => error.to_string(),
        }));
        if !errors.is_empty() {
            message.push_str(&format!("; resolution errors: [{errors}]"));
        }
        Err(message)
    }
}
