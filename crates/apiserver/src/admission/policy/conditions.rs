//! `matchConditions` of a policy: whether a request that its rules choose is meant after all.

use kubewright_schema::cel::eval::MATCH_CONDITIONS_BUDGET;
use kubewright_schema::cel::value::Value as Cel;
use serde_json::Value;

use super::super::{Attributes, Session};
use super::activation::{Inputs, Scope};
use super::authorizer;
use super::compiled::Policy;

/// Whether the conditions are met.
pub(super) enum Met {
    Yes,
    No,
    /// It cannot be told, and failures are not ignored.
    Failed(String),
}

/// Asks the conditions of a policy. One that is false decides, whatever the errors of others.
pub(super) fn conditions(policy: &Policy, inputs: &Inputs, session: &Session<'_>, attributes: &Attributes) -> Met {
    if policy.conditions.is_empty() {
        return Met::Yes;
    }
    let inputs = seen(inputs);
    let failed = |why: String| if policy.fails { Met::Failed(why) } else { Met::No };
    let scope = Scope::new(&inputs, &policy.variables, authorizer::bind(session, attributes));
    let mut budget = MATCH_CONDITIONS_BUDGET;
    let mut results = Vec::with_capacity(policy.conditions.len());
    for condition in &policy.conditions {
        match scope.run(condition, &mut budget) {
            Ok(result) => results.push(result),
            Err(spent) => return failed(spent.to_string()),
        }
    }
    let mut errors: Vec<String> = Vec::new();
    for result in results {
        match result {
            Ok(Cel::Bool(false)) => return Met::No,
            Ok(_) => {}
            Err(why) if errors.contains(&why) => {}
            Err(why) => errors.push(why),
        }
    }
    match errors.as_slice() {
        [] => Met::Yes,
        [one] => failed(one.clone()),
        many => failed(format!("[{}]", many.join(", "))),
    }
}

/// Conditions see no namespace, and the resource of the request instead of the matched one.
fn seen(inputs: &Inputs) -> Inputs {
    let mut request = inputs.request.clone();
    request["resource"] = request["requestResource"].clone();
    Inputs {
        object: inputs.object.clone(),
        old: inputs.old.clone(),
        params: inputs.params.clone(),
        request,
        namespace: Value::Null,
    }
}
