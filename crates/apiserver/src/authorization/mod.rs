//! Authorization: the question, the authorizers that answer it, and the effect of a refusal.
//!
//! Before every request the server asks an [`Authorizer`]. The usual one is [`standard`], a [`Union`] of
//! [`PrivilegedGroups`] (members of `system:masters` may do everything, regardless of the rules) and [`Rbac`] (the
//! stored Roles, ClusterRoles and their bindings). All of RBAC looks at one [`Policy`], which follows the four stores.
//!
//! | file | what |
//! |---|---|
//! | `rule.rs` | a rule: which rules it covers, how it is printed |
//! | `compiled.rs` | which requests a rule allows; the rules of a stored role |
//! | `policy.rs` | the stored roles and bindings, indexed by subject |
//! | `rbac.rs` | the authorizer |
//! | `webhook` | another server that is asked |
//! | `inquiry.rs` | how code that cannot wait gets an answer that takes time |
//! | `node` | the authorizer of kubelets |
//! | `escalation.rs` | a user grants only permissions that the user has |
//! | `impersonation.rs` | requests as another user |
//! | `bootstrap.rs` | the roles and bindings of every cluster |
//! | `refusal.rs` | the 403 |
//!
//! Invariants: a request that no authorizer allows is refused; nothing here changes anything; an answer follows from
//! the stored objects at the time of the question.
//!
//! Not here: the identity of a user (authentication, in the shell), and the places where the server asks (see
//! `server`).

pub mod bootstrap;
mod compiled;
pub(crate) mod escalation;
pub(crate) mod impersonation;
mod inquiry;
mod named;
pub(crate) mod node;
mod policy;
mod rbac;
mod refusal;
mod rule;
pub mod webhook;

#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kubewright_schema::{fields, labels};

pub(crate) use inquiry::Inquiry;
use named::Named;
pub use node::Nodes;
pub use policy::{Policy, ResolveError};
pub use rbac::Rbac;
pub(crate) use refusal::refused;
pub use rule::{Rule, covers};

use crate::env::{BoxFuture, Env};
use crate::model::Minor;
use crate::model::user::{SYSTEM_MASTERS, UserInfo};
use crate::storage::Storage;

/// The API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// The request as an authorizer sees it (`authorizer.Attributes`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `create`, …; for paths that are no resource the method in small letters. Empty for a method that
    /// resources never take.
    pub verb: String,
    /// API group of the resource.
    pub group: String,
    /// API version of the resource.
    pub version: String,
    /// Plural name of the resource; empty for a path that is no resource.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty for all or none.
    pub namespace: String,
    /// Name of the object, or empty.
    pub name: String,
    /// The path, if it is no resource's; else empty.
    pub path: String,
    /// The field selector of a list, watch or deletecollection. An authorizer may allow a part of a list that it would
    /// not allow as a whole; RBAC does not look at it.
    pub field_selector: Vec<fields::Requirement>,
    /// The same for labels.
    pub label_selector: Vec<labels::Requirement>,
}

impl Attributes {
    /// Whether it is about a resource, not about a path.
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty() || self.path.is_empty()
    }

    /// `pods` or `pods/status`.
    pub fn combined_resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

/// The decision of an authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Allow,
    /// No, regardless of other authorizers.
    Deny,
    /// Other authorizers decide. A request that none of them allows is refused.
    NoOpinion,
}

/// An answer and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The answer.
    pub verdict: Verdict,
    /// Why, in words to show; may be empty.
    pub reason: String,
    /// The error that kept an authorizer from an answer; empty without one. Such a request is answered 500, not 403,
    /// unless another authorizer allows it (`WithAuthorization`).
    pub error: String,
}

impl Decision {
    /// An answer, because of `reason`.
    pub fn new(verdict: Verdict, reason: impl Into<String>) -> Decision {
        Decision {
            verdict,
            reason: reason.into(),
            error: String::new(),
        }
    }

    /// Yes, because of `reason`.
    pub fn allow(reason: impl Into<String>) -> Decision {
        Decision::new(Verdict::Allow, reason)
    }

    /// No opinion, because of `reason`.
    pub fn no_opinion(reason: impl Into<String>) -> Decision {
        Decision::new(Verdict::NoOpinion, reason)
    }

    /// The answer of an authorizer that failed.
    pub fn failed(verdict: Verdict, error: impl Into<String>) -> Decision {
        Decision {
            verdict,
            reason: String::new(),
            error: error.into(),
        }
    }

    /// Whether it is a yes.
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }
}

/// The rules that a user is known to be allowed by (`SubjectRulesReviewStatus`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownRules {
    /// The rules, in the order in which they were found.
    pub rules: Vec<Rule>,
    /// Whether there may be more.
    pub incomplete: bool,
    /// The lookups that failed, in words; empty if none did.
    pub error: String,
}

/// The answer of an authorizer: a decision, or a future of it.
pub enum Answer {
    /// The decision.
    Known(Decision),
    /// Another server is asked.
    Asked(BoxFuture<'static, Decision>),
}

impl Answer {
    /// The decision, as soon as it is there.
    pub async fn decision(self) -> Decision {
        match self {
            Answer::Known(decision) => decision,
            Answer::Asked(answer) => answer.await,
        }
    }

    /// The decision of an authorizer that asks no other server.
    #[cfg(test)]
    pub(crate) fn known(self) -> Decision {
        match self {
            Answer::Known(decision) => decision,
            Answer::Asked(_) => panic!("another server is asked"),
        }
    }
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Answer {
        Answer::Known(decision)
    }
}

/// Decides about requests.
pub trait Authorizer: Send + Sync + 'static {
    /// Whether `user` may do it, and why.
    fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Answer;

    /// The rules that apply to `user` in `namespace`, as far as they can be listed.
    fn rules_for(&self, user: &UserInfo, namespace: &str) -> KnownRules {
        let _ = (user, namespace);
        KnownRules::default()
    }
}

/// Everything for members of certain groups; no opinion about others.
#[derive(Clone, Debug)]
pub struct PrivilegedGroups(Vec<String>);

impl PrivilegedGroups {
    /// The group `system:masters`.
    pub fn masters() -> PrivilegedGroups {
        PrivilegedGroups(vec![SYSTEM_MASTERS.to_owned()])
    }

    /// The groups given.
    pub fn of(groups: impl IntoIterator<Item = String>) -> PrivilegedGroups {
        PrivilegedGroups(groups.into_iter().collect())
    }
}

impl Authorizer for PrivilegedGroups {
    fn decide(&self, user: &UserInfo, _attributes: &Attributes) -> Answer {
        let member = self.0.iter().any(|group| user.in_group(group));
        let decision = if member {
            Decision::allow("")
        } else {
            Decision::no_opinion("")
        };
        decision.into()
    }
}

/// Asks one authorizer after the other until one has an opinion (`union.New`).
pub struct Union(Arc<[Arc<dyn Authorizer>]>);

impl Union {
    /// Of these, in this order.
    pub fn new(authorizers: impl IntoIterator<Item = Arc<dyn Authorizer>>) -> Union {
        Union(authorizers.into_iter().collect())
    }
}

/// The reasons and errors of a union's authorizers that had no opinion.
#[derive(Default)]
struct Opinions {
    reasons: Vec<String>,
    errors: Vec<String>,
}

impl Opinions {
    /// Takes a decision; answers it when it is an opinion.
    fn hear(&mut self, decision: Decision) -> Option<Decision> {
        if decision.verdict != Verdict::NoOpinion {
            return Some(decision);
        }
        let said = [(decision.reason, &mut self.reasons), (decision.error, &mut self.errors)];
        for (text, list) in said {
            if !text.is_empty() {
                list.push(text);
            }
        }
        None
    }

    fn none(self) -> Decision {
        Decision {
            verdict: Verdict::NoOpinion,
            reason: self.reasons.join("\n"),
            error: aggregate(self.errors),
        }
    }
}

impl Authorizer for Union {
    fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Answer {
        let mut opinions = Opinions::default();
        for (at, authorizer) in self.0.iter().enumerate() {
            match authorizer.decide(user, attributes) {
                Answer::Known(decision) => {
                    if let Some(decision) = opinions.hear(decision) {
                        return decision.into();
                    }
                }
                Answer::Asked(answer) => {
                    let (all, user, attributes) = (self.0.clone(), user.clone(), attributes.clone());
                    return Answer::Asked(Box::pin(async move {
                        if let Some(decision) = opinions.hear(answer.await) {
                            return decision;
                        }
                        for authorizer in &all[at + 1..] {
                            let decision = authorizer.decide(&user, &attributes).decision().await;
                            if let Some(decision) = opinions.hear(decision) {
                                return decision;
                            }
                        }
                        opinions.none()
                    }));
                }
            }
        }
        opinions.none().into()
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> KnownRules {
        let mut all = KnownRules::default();
        let mut errors = Vec::new();
        for authorizer in self.0.iter() {
            let known = authorizer.rules_for(user, namespace);
            all.rules.extend(known.rules);
            all.incomplete |= known.incomplete;
            if !known.error.is_empty() {
                errors.push(known.error);
            }
        }
        all.error = aggregate(errors);
        all
    }
}

/// The authorizer of users' requests (`--authorization-mode`).
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Every user may do everything.
    AlwaysAllow,
    /// No user but the members of `system:masters` may do anything.
    AlwaysDeny,
    /// The stored roles and bindings.
    Rbac,
    /// Kubelets may do what their pods need; this mode allows no other user anything.
    Node,
    /// Another server.
    Webhook(webhook::Webhook),
}

impl Mode {
    /// Its name in `--authorization-mode`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Mode::AlwaysAllow => "AlwaysAllow",
            Mode::AlwaysDeny => "AlwaysDeny",
            Mode::Rbac => "RBAC",
            Mode::Node => "Node",
            Mode::Webhook(_) => "Webhook",
        }
    }
}

/// Answers every question alike: yes, or no.
struct Always(bool);

impl Authorizer for Always {
    fn decide(&self, _user: &UserInfo, _attributes: &Attributes) -> Answer {
        let decision = match self.0 {
            true => Decision::allow(""),
            false => Decision::no_opinion("Everything is forbidden."),
        };
        decision.into()
    }

    /// As `alwaysAllowAuthorizer` of apiserver says it: all verbs on everything, or nothing.
    fn rules_for(&self, _user: &UserInfo, _namespace: &str) -> KnownRules {
        let rules = match self.0 {
            true => Rule::everything().into(),
            false => Vec::new(),
        };
        KnownRules {
            rules,
            ..KnownRules::default()
        }
    }
}

/// `system:masters`, then these in their order, as `NewAuthorizer` of the original puts them together.
pub(crate) fn by_modes(
    modes: &[Mode],
    policy: &Arc<Policy>,
    storage: &Arc<dyn Storage>,
    env: &Arc<dyn Env>,
    minor: Minor,
) -> Arc<dyn Authorizer> {
    let masters: Arc<dyn Authorizer> = Arc::new(PrivilegedGroups::masters());
    let others = modes.iter().map(|mode| -> Arc<dyn Authorizer> {
        let inner: Arc<dyn Authorizer> = match mode {
            Mode::Rbac => Arc::new(Rbac::new(policy.clone())),
            Mode::Node => Arc::new(Nodes::new(storage.clone(), minor)),
            Mode::Webhook(webhook) => Arc::new(webhook::Remote::new(webhook.clone(), env.clone(), minor)),
            Mode::AlwaysAllow => Arc::new(Always(true)),
            Mode::AlwaysDeny => Arc::new(Always(false)),
        };
        if minor < Minor::V37 {
            return inner;
        }
        let name = match mode {
            Mode::Webhook(webhook) => webhook.settings.name.clone(),
            mode => mode.name().to_lowercase(),
        };
        Arc::new(Named { name, inner })
    });
    Arc::new(Union::new(std::iter::once(masters).chain(others)))
}

/// The authorizer of a cluster: `system:masters`, then RBAC.
pub fn standard(policy: Arc<Policy>) -> Arc<dyn Authorizer> {
    let masters: Arc<dyn Authorizer> = Arc::new(PrivilegedGroups::masters());
    Arc::new(Union::new([masters, Arc::new(Rbac::new(policy))]))
}

/// Several errors in one text: one stands alone, more in brackets, equal ones once (`errors.NewAggregate`).
pub(crate) fn aggregate(errors: impl IntoIterator<Item = String>) -> String {
    let texts = kubewright_schema::error::distinct(errors);
    match texts.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        more => format!("[{}]", more.join(", ")),
    }
}

/// Texts as Go prints a list of strings with `%q`: `["a" "b"]`.
pub(crate) fn quoted(list: &[String]) -> String {
    let texts: Vec<String> = list.iter().map(|text| kubewright_schema::error::quote(text)).collect();
    format!("[{}]", texts.join(" "))
}
