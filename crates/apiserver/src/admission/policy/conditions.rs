//! `matchConditions` of a policy or a webhook: whether a request that its rules choose is meant after all.

use kubewright_cel::eval::MATCH_CONDITIONS_BUDGET;
use kubewright_cel::value::Value as Cel;
use serde_json::Value;

use super::super::{Attributes, Session};
use super::activation::{Inputs, Scope};
use super::authorizer;
use super::compiled::{Expression, Policy, Variables};
use crate::admission::matching::Matched;
use crate::model::facts::expression::{Compiler, Returns};
use crate::values::get;

/// What the conditions say of a request.
pub(super) enum MatchResult {
    Matches,
    DoesNotMatch,
    /// A condition failed with this error, and failures are not ignored.
    Error(String),
}

/// Asks the conditions of a policy. A single false condition decides, even when others fail with errors.
pub(super) fn conditions(
    policy: &Policy,
    inputs: Inputs<'_>,
    session: &Session<'_>,
    attributes: &Attributes,
) -> MatchResult {
    if policy.conditions.is_empty() {
        return MatchResult::Matches;
    }
    // Conditions see no namespace, and the resource of the request instead of the matched one.
    let mut request = inputs.request.clone();
    request["resource"] = request["requestResource"].clone();
    let inputs = Inputs {
        request: &request,
        namespace: &Value::Null,
        ..inputs
    };
    let scope = Scope::new(inputs, &policy.variables, authorizer::bind(session, attributes));
    ask(&policy.conditions, policy.fails, &scope)
}

/// `matchConditions` of a webhook, compiled.
#[derive(Debug)]
pub(in crate::admission) struct Conditions(Vec<Expression>);

impl Conditions {
    /// Of an entry of `webhooks`, as it is stored.
    pub(in crate::admission) fn of_webhook(webhook: &Value) -> Conditions {
        let compiler = Compiler::stateless(false);
        let conditions = get(webhook, &["matchConditions"]).as_array().into_iter().flatten();
        let compiled = conditions.map(|condition| {
            let source = get(condition, &["expression"]).as_str().unwrap_or("");
            Expression::new(&compiler, source, Returns::Bool)
        });
        Conditions(compiled.collect())
    }

    /// Whether there are none.
    pub(in crate::admission) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a webhook is asked; `fails`: whether an error of a condition fails the request. Objects in the version
    /// that the webhook sees, null where there is none. The error is upstream's text.
    pub(in crate::admission) fn evaluate(
        &self,
        fails: bool,
        session: &Session<'_>,
        attributes: &Attributes,
        matched: &Matched,
        object: &Value,
        old: &Value,
    ) -> Result<bool, String> {
        if self.is_empty() {
            return Ok(true);
        }
        let request = attributes.review(matched);
        let inputs = Inputs {
            object,
            old,
            params: &Value::Null,
            request: &request,
            namespace: &Value::Null,
            patterns: session.patterns(),
        };
        let none = Variables::default();
        let scope = Scope::new(inputs, &none, authorizer::bind(session, attributes));
        match ask(&self.0, fails, &scope) {
            MatchResult::Matches => Ok(true),
            MatchResult::DoesNotMatch => Ok(false),
            MatchResult::Error(why) => Err(why),
        }
    }
}

fn ask<'a>(conditions: &'a [Expression], fails: bool, scope: &Scope<'a>) -> MatchResult {
    let failed = |why: String| {
        if fails {
            MatchResult::Error(why)
        } else {
            MatchResult::DoesNotMatch
        }
    };
    let mut budget = MATCH_CONDITIONS_BUDGET;
    let mut results = Vec::with_capacity(conditions.len());
    for condition in conditions {
        match scope.run(condition, &mut budget) {
            Ok(result) => results.push(result),
            Err(spent) => return failed(spent.to_string()),
        }
    }
    let mut errors: Vec<String> = Vec::new();
    for result in results {
        match result {
            Ok(Cel::Bool(false)) => return MatchResult::DoesNotMatch,
            Ok(_) => {}
            Err(why) if errors.contains(&why) => {}
            Err(why) => errors.push(why),
        }
    }
    match errors.as_slice() {
        [] => MatchResult::Matches,
        [one] => failed(one.clone()),
        many => failed(format!("[{}]", many.join(", "))),
    }
}
