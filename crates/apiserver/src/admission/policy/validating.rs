//! ValidatingAdmissionPolicies: rules that may refuse a request, or warn.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kubewright_cel::eval::{Patterns, RUNTIME_BUDGET};
use kubewright_cel::value::Value as Cel;
use serde_json::Value;

use super::super::matching::Matched;
use super::super::{Admission, Admitted, Attributes, Session};
use super::activation::{self, Inputs, OutOfBudget, Scope};
use super::authorizer;
use super::compiled::{Action, Binding, Policy, ValidatingPolicy, Validation};
use super::conditions::{MatchResult, conditions};
use super::source::{Hook, Source};
use super::{is_exempt, is_namespace, params};
use crate::admission::subject;
use crate::audit::{self, Level};
use crate::model::status::{Cause, Status};

/// A longer message of an expression is not shown, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;
/// A longer value of an audit annotation is cut, in bytes (`maxAuditAnnotationValueLength`).
const MAX_ANNOTATION: usize = 10 * 1024;

/// The plugin `ValidatingAdmissionPolicy`. It stands before the validating webhooks.
pub struct ValidatingPolicies {
    source: Source<ValidatingPolicy>,
}

impl Default for ValidatingPolicies {
    fn default() -> ValidatingPolicies {
        ValidatingPolicies { source: Source::new() }
    }
}

/// Why a request is refused, or would be.
#[derive(Debug)]
struct Refusal {
    message: String,
    /// Which of the rules it is; the first one when the policy fails as a whole.
    index: usize,
    reason: (&'static str, u16),
}

impl Refusal {
    fn error(message: String) -> Refusal {
        Refusal {
            message,
            index: 0,
            reason: ("Invalid", 422),
        }
    }
}

/// The result of one evaluation of a policy.
#[derive(Default)]
struct Outcome {
    /// Of failed rules; the actions of the binding decide the effect.
    refusals: Vec<Refusal>,
    /// Of audit annotations, which refuse regardless of the binding's actions.
    audits: Vec<Refusal>,
    /// Audit annotations: keys and values.
    annotations: Vec<(String, String)>,
}

/// The audit annotations of a policy: the values for its bindings and parameters, each once
/// (`auditAnnotationCollector`).
#[derive(Default)]
struct Annotations(BTreeMap<String, Vec<String>>);

impl Annotations {
    fn add(&mut self, (key, value): (String, String)) {
        let values = self.0.entry(key).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }

    fn publish(self, policy: &str, session: &Session<'_>) {
        for (key, values) in self.0 {
            session.annotate(&format!("{policy}/{key}"), values.join(", "));
        }
    }
}

/// The first refusal of a request, in words: upstream's answer tells no others.
#[derive(Default)]
struct Denied(Option<(String, (&'static str, u16))>);

impl Denied {
    fn add(&mut self, policy: &Policy, binding: Option<&Binding>, refusal: Refusal) {
        if self.0.is_some() {
            return;
        }
        let (name, why) = (&policy.name, &refusal.message);
        let message = match binding {
            Some(binding) => format!(
                "ValidatingAdmissionPolicy '{name}' with binding '{}' denied request: {why}",
                binding.name
            ),
            None => format!("ValidatingAdmissionPolicy '{name}' denied request: {why}"),
        };
        self.0 = Some((message, refusal.reason));
    }

    /// A policy that cannot be asked refuses the request, unless its failures are ignored.
    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        if policy.fails {
            let what = if binding.is_some() { "binding" } else { "policy" };
            let message = format!("failed to configure {what}: {why}");
            self.add(policy, binding, Refusal::error(message));
        }
    }

    fn into_result(self, attributes: &Attributes, object: &Value) -> Result<(), Status> {
        let Some((message, (reason, code))) = self.0 else {
            return Ok(());
        };
        let mut status = Status::forbidden(&attributes.resource, subject(attributes, object), &message);
        status.reason = reason.into();
        status.code = code;
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                reason: String::new(),
                message,
                field: String::new(),
            });
        }
        Err(status)
    }
}

/// Holds the object against the policies.
async fn check(
    hooks: Vec<Hook<ValidatingPolicy>>,
    session: &Session<'_>,
    attributes: &Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let mut denied = Denied::default();
    for hook in &hooks {
        check_hook(hook, session, attributes, object, old, &mut denied).await?;
    }
    denied.into_result(attributes, object)
}

async fn check_hook(
    hook: &Hook<ValidatingPolicy>,
    session: &Session<'_>,
    attributes: &Attributes,
    object: &Value,
    old: Option<&Value>,
    denied: &mut Denied,
) -> Result<(), Status> {
    let policy = &hook.policy.policy;
    let matched = match policy.criteria.matches(session, attributes, object, old) {
        Ok(Some(matched)) => matched,
        Ok(None) => return Ok(()),
        Err(status) => {
            denied.misconfigured(policy, None, &status.message);
            return Ok(());
        }
    };
    let row = match params::kind(session, policy) {
        Ok(row) => row,
        Err(why) => {
            denied.misconfigured(policy, None, &why);
            return Ok(());
        }
    };
    let mut seen: Option<RequestVariables<'_>> = None;
    let mut annotations = Annotations::default();
    for binding in &hook.bindings {
        let chosen = match &binding.criteria {
            None => Ok(true),
            Some(criteria) => criteria
                .matches(session, attributes, object, old)
                .map(|found| found.is_some()),
        };
        match chosen {
            Ok(true) => {}
            Ok(false) => continue,
            Err(status) => {
                denied.misconfigured(policy, Some(binding), &status.message);
                continue;
            }
        }
        let params = match params::collect(session, row.as_deref(), binding, &attributes.namespace).await {
            Ok(params) => params,
            Err(why) => {
                denied.misconfigured(policy, Some(binding), &why);
                continue;
            }
        };
        for param in params {
            if seen.is_none() {
                match prepare(session, attributes, &matched, object, old).await? {
                    Ok(prepared) => seen = Some(prepared),
                    Err(why) => {
                        denied.misconfigured(policy, Some(binding), &why);
                        break;
                    }
                }
            }
            let Some(seen) = &seen else { break };
            let outcome = session
                .settled(|| {
                    evaluate(
                        &hook.policy,
                        seen.inputs(&param, session.patterns()),
                        session,
                        attributes,
                    )
                })
                .await;
            act(outcome, policy, binding, session, denied, &mut annotations);
        }
    }
    annotations.publish(&policy.name, session);
    Ok(())
}

/// The variables of the expressions, except the parameter.
struct RequestVariables<'a> {
    object: Cow<'a, Value>,
    old: Cow<'a, Value>,
    request: Value,
    namespace: Value,
}

impl RequestVariables<'_> {
    fn inputs<'a>(&'a self, params: &'a Value, patterns: &'a Patterns) -> Inputs<'a> {
        Inputs {
            object: &self.object,
            old: &self.old,
            params,
            request: &self.request,
            namespace: &self.namespace,
            patterns,
        }
    }
}

/// The inner error is that of a conversion.
async fn prepare<'a>(
    session: &Session<'_>,
    attributes: &Attributes,
    matched: &Matched,
    object: &'a Value,
    old: Option<&'a Value>,
) -> Result<Result<RequestVariables<'a>, String>, Status> {
    let namespace = namespace(session, attributes)?;
    let converted = async {
        let object = matched.show(session, attributes, object).await?;
        let old = matched.show(session, attributes, old.unwrap_or(&Value::Null)).await?;
        Ok::<_, Status>((object, old))
    };
    Ok(match converted.await {
        Ok((object, old)) => Ok(RequestVariables {
            object,
            old,
            request: attributes.review(matched),
            namespace,
        }),
        Err(status) => Err(format!("failed to convert object version: {}", status.message)),
    })
}

/// `namespaceObject` of a request.
pub(super) fn namespace(session: &Session<'_>, attributes: &Attributes) -> Result<Value, Status> {
    let name = &attributes.namespace;
    if name.is_empty() || is_namespace(attributes) {
        return Ok(Value::Null);
    }
    let stored = session
        .namespace(name)
        .ok_or_else(|| Status::namespace_not_found(name))?;
    Ok(activation::namespace(stored.value()))
}

fn act(
    outcome: Outcome,
    policy: &Policy,
    binding: &Binding,
    session: &Session<'_>,
    denied: &mut Denied,
    annotations: &mut Annotations,
) {
    for annotation in outcome.annotations {
        annotations.add(annotation);
    }
    for refusal in outcome.refusals {
        if binding.actions.contains(&Action::Audit) {
            annotate_failure(&refusal, policy, binding, session);
        }
        if binding.actions.contains(&Action::Warn) {
            session.warn(format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                policy.name, binding.name, refusal.message
            ));
        }
        if binding.actions.contains(&Action::Deny) {
            denied.add(policy, Some(binding), refusal);
        }
    }
    for refusal in outcome.audits {
        denied.add(policy, Some(binding), refusal);
    }
}

/// `publishValidationFailureAnnotation`.
fn annotate_failure(refusal: &Refusal, policy: &Policy, binding: &Binding, session: &Session<'_>) {
    let actions: Vec<&str> = binding.actions.iter().map(|action| action.as_str()).collect();
    session.annotate_from(Level::Metadata, "validation.policy.admission.k8s.io/validation_failure", || {
        let (message, actions) = (audit::in_go(&refusal.message), audit::in_go(&actions));
        let (policy, binding) = (audit::in_go(&policy.name), audit::in_go(&binding.name));
        format!(
            "[{{\"message\":{message},\"policy\":{policy},\"binding\":{binding},\"expressionIndex\":{},\"validationActions\":{actions}}}]",
            refusal.index
        )
    });
}

/// Evaluates a policy with one parameter.
fn evaluate(
    validating: &ValidatingPolicy,
    inputs: Inputs<'_>,
    session: &Session<'_>,
    attributes: &Attributes,
) -> Outcome {
    let policy = &validating.policy;
    let mut outcome = Outcome::default();
    let refuse = |message: String| policy.fails.then(|| Refusal::error(message));
    match conditions(policy, inputs, session, attributes) {
        MatchResult::Matches => {}
        MatchResult::DoesNotMatch => return outcome,
        MatchResult::Error(why) => {
            outcome.refusals.extend(refuse(why));
            return outcome;
        }
    }
    match validations(validating, inputs, session, attributes) {
        Ok(refusals) => outcome.refusals = refusals,
        Err(spent) => {
            outcome.refusals.extend(refuse(spent.to_string()));
            return outcome;
        }
    }
    match audits(validating, inputs) {
        Ok((annotations, errors)) => {
            outcome.annotations = annotations;
            outcome.audits.extend(errors.into_iter().filter_map(refuse));
        }
        Err(spent) => outcome.refusals = refuse(spent.to_string()).into_iter().collect(),
    }
    outcome
}

fn validations(
    validating: &ValidatingPolicy,
    inputs: Inputs<'_>,
    session: &Session<'_>,
    attributes: &Attributes,
) -> Result<Vec<Refusal>, OutOfBudget> {
    let policy = &validating.policy;
    let mut budget = RUNTIME_BUDGET;
    let scope = Scope::new(inputs, &policy.variables, authorizer::bind(session, attributes));
    let mut results = Vec::with_capacity(validating.validations.len());
    for validation in &validating.validations {
        results.push(scope.run(&validation.expression, &mut budget)?);
    }
    // Messages see no authorizer, and thus variables of their own.
    let scope = Scope::new(inputs, &policy.variables, None);
    let mut messages = Ok(Vec::with_capacity(results.len()));
    for validation in &validating.validations {
        let message = validation.message_expression.as_ref();
        match (
            &mut messages,
            message.map(|message| scope.run(message, &mut budget)).transpose(),
        ) {
            (Ok(messages), Ok(message)) => messages.push(message.and_then(Result::ok)),
            (_, Err(spent)) => messages = Err(spent),
            (Err(_), _) => break,
        }
    }
    let mut refusals = Vec::new();
    for (at, (validation, result)) in validating.validations.iter().zip(results).enumerate() {
        let failed = |why: String| {
            policy.fails.then(|| Refusal {
                index: at,
                ..Refusal::error(why)
            })
        };
        refusals.extend(match (result, &messages) {
            (Err(why), _) => failed(why),
            (Ok(_), Err(spent)) => failed(format!("failed messageExpression: {spent}")),
            (Ok(Cel::Bool(true)), _) => None,
            (Ok(_), Ok(messages)) => Some(Refusal {
                message: message(validation, messages.get(at).and_then(Option::as_ref)),
                index: at,
                reason: validation.reason,
            }),
        });
    }
    Ok(refusals)
}

/// The message of a failed rule: the result of its expression for it, its text, or the rule itself.
fn message(validation: &Validation, evaluated: Option<&Cel<'_>>) -> String {
    let own = match evaluated {
        Some(Cel::String(text)) => text.trim(),
        _ => "",
    };
    if !own.is_empty() && own.len() <= MAX_MESSAGE && !own.contains('\n') {
        own.to_owned()
    } else if validation.message.is_empty() {
        format!("failed expression: {}", validation.expression.source.trim())
    } else {
        validation.message.clone()
    }
}

/// Audit annotations, as keys and values, and the errors of others. One without text is left out.
#[expect(clippy::type_complexity, reason = "a pair that one caller takes apart")]
fn audits(
    validating: &ValidatingPolicy,
    inputs: Inputs<'_>,
) -> Result<(Vec<(String, String)>, Vec<String>), OutOfBudget> {
    let mut budget = RUNTIME_BUDGET;
    // As upstream, an annotation may name the authorizer, yet cannot reach it.
    let scope = Scope::new(inputs, &validating.policy.variables, None);
    let (mut annotations, mut errors) = (Vec::new(), Vec::new());
    for (key, audit) in &validating.audits {
        match scope.run(audit, &mut budget)? {
            Ok(Cel::String(text)) if !text.trim().is_empty() => {
                annotations.push((key.clone(), cut(text.trim(), MAX_ANNOTATION).to_owned()));
            }
            Ok(_) => {}
            Err(why) => errors.push(why),
        }
    }
    Ok((annotations, errors))
}

/// The beginning of a text that has no more bytes than that.
fn cut(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

impl Admission for ValidatingPolicies {
    fn validate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        if is_exempt(attributes) {
            return Admitted::YES;
        }
        let hooks = self.source.hooks(session, attributes);
        if hooks.is_empty() {
            return Admitted::YES;
        }
        Admitted::later(check(hooks, session, attributes, object, old))
    }
}
