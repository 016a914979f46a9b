//! Authorizers with names. From 1.37 on, a reason for no opinion begins with the authorizer's name: `node: no relationship
//! found …` (`union.NamedAuthorizer`). The reason of an allow or a deny is not changed.

use std::sync::Arc;

use super::{Answer, Attributes, Authorizer, Decision, KnownRules, Verdict};
use crate::model::user::UserInfo;

/// An authorizer with its name.
pub(super) struct Named {
    pub(super) name: String,
    pub(super) inner: Arc<dyn Authorizer>,
}

fn named(name: &str, mut decision: Decision) -> Decision {
    if decision.verdict == Verdict::NoOpinion && !decision.reason.is_empty() {
        decision.reason = format!("{name}: {}", decision.reason);
    }
    decision
}

impl Authorizer for Named {
    fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Answer {
        match self.inner.decide(user, attributes) {
            Answer::Known(decision) => named(&self.name, decision).into(),
            Answer::Asked(answer) => {
                let name = self.name.clone();
                Answer::Asked(Box::pin(async move { named(&name, answer.await) }))
            }
        }
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> KnownRules {
        self.inner.rules_for(user, namespace)
    }
}
