//! The authorizer that reads rules out of the stored roles and bindings.

use std::sync::Arc;

use super::policy::{Policy, Visit};
use super::{Answer, Attributes, Authorizer, Decision, KnownRules, aggregate};
use crate::model::user::UserInfo;

/// RBAC: a request is allowed when a rule of a role allows it that a binding gives to the user.
pub struct Rbac {
    policy: Arc<Policy>,
}

impl Rbac {
    /// With the roles and bindings of `policy`.
    pub fn new(policy: Arc<Policy>) -> Rbac {
        Rbac { policy }
    }
}

impl Authorizer for Rbac {
    fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Answer {
        let mut errors = Vec::new();
        let allowed = self.policy.visit(user, &attributes.namespace, |visit| match visit {
            Visit::Rule(rule, source) if rule.allows(attributes) => Some(format!("RBAC: allowed by {source}")),
            Visit::Rule(..) => None,
            Visit::Error(error) => {
                errors.push(error.to_string());
                None
            }
        });
        let decision = match allowed {
            Some(reason) => Decision::allow(reason),
            None if errors.is_empty() => Decision::no_opinion(""),
            None => Decision::no_opinion(format!("RBAC: {}", aggregate(errors))),
        };
        decision.into()
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> KnownRules {
        let (rules, errors) = self.policy.rules_for(user, namespace);
        KnownRules {
            rules,
            incomplete: false,
            error: aggregate(errors.iter().map(ToString::to_string)),
        }
    }
}
