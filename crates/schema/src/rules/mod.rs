//! `x-kubernetes-validations`: the rules that a custom resource definition brings along.
//!
//! [`check`] looks at them when the definition is written: they must compile, cost not too much, and use `oldSelf` only
//! where an old value can be found. A [`Validator`] holds the compiled rules of one version and runs them when a
//! resource is written.
//!
//! Not here: the checks of rules without compiling them (a message without line breaks), which
//! [`check_crd_schema`](crate::structural::check_crd_schema) makes with those of the other keywords.

mod definition;
#[cfg(test)]
mod expressions;
mod messages;
#[cfg(test)]
mod tests;
mod validator;

use serde_json::{Value, json};

pub use definition::check;
pub use kubewright_cel::eval::Patterns;
pub(crate) use messages::follow;
pub(crate) use validator::check_default;
pub use validator::{Outcome, Validator};

use kubewright_cel::eval;
use kubewright_cel::types::{Decl, Type};
use kubewright_cel::{Environment, Program, compile, cost};
use kubewright_values::Minor;

/// A rule as it is written.
#[derive(Clone, Debug)]
struct Rule {
    rule: String,
    message: String,
    message_expression: String,
    reason: Option<String>,
    field_path: String,
    optional_old_self: Option<bool>,
}

impl Rule {
    fn read(value: &Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let owned = |key: &str| text(key).unwrap_or_default().to_owned();
        Self {
            rule: owned("rule"),
            message: owned("message"),
            message_expression: owned("messageExpression"),
            reason: text("reason").map(str::to_owned),
            field_path: owned("fieldPath"),
            optional_old_self: value.get("optionalOldSelf").and_then(Value::as_bool),
        }
    }

    /// The rule as an error shows it: with the names of the internal type.
    fn shown(&self) -> Value {
        json!({
            "Rule": self.rule, "Message": self.message, "MessageExpression": self.message_expression,
            "Reason": self.reason, "FieldPath": self.field_path, "OptionalOldSelf": self.optional_old_self,
        })
    }

    /// The rule in messages: its message, or its text.
    fn name(&self) -> &str {
        if self.message.is_empty() {
            self.rule.trim()
        } else {
            self.message.trim()
        }
    }
}

/// An expression with the most that it may cost.
#[derive(Debug)]
struct Compiled {
    program: Program,
    max_cost: u64,
}

/// A rule, compiled. An empty rule has neither program nor error.
#[derive(Debug)]
struct CompiledRule {
    rule: Rule,
    program: Option<Result<Compiled, String>>,
    message: Option<Result<Compiled, String>>,
    uses_old_self: bool,
}

/// The variables of a rule on values of this declaration.
fn environment(decl: &Decl, optional_old_self: bool) -> Environment {
    let old = if optional_old_self {
        Decl::new(Type::optional(decl.ty.clone()))
    } else {
        decl.clone()
    };
    Environment::new()
        .variable("self", decl.clone())
        .variable("oldSelf", old)
}

/// Compiles a rule in the syntax of a version.
fn compile_rule(rule: Rule, decl: &Decl, minor: Minor) -> CompiledRule {
    let environment = environment(decl, rule.optional_old_self == Some(true)).of_minor(minor);
    let mut compiled = CompiledRule {
        program: None,
        message: None,
        uses_old_self: false,
        rule,
    };
    let rule = &compiled.rule;
    if rule.rule.trim().is_empty() {
        return compiled;
    }
    let program = expression(
        &rule.rule,
        &environment,
        decl,
        &Type::Bool,
        &Wording {
            issues: "compilation failed",
            result: "cel expression must evaluate to a bool",
            constants: "program instantiation failed",
        },
    );
    if let Ok(program) = &program {
        compiled.uses_old_self = program.program.names("oldSelf");
        if !rule.message_expression.is_empty() {
            compiled.message = Some(expression(
                &rule.message_expression,
                &environment,
                decl,
                &Type::String,
                &Wording {
                    issues: "messageExpression compilation failed",
                    result: "messageExpression must evaluate to a string",
                    constants: "messageExpression instantiation failed",
                },
            ));
        }
    }
    compiled.program = Some(program);
    compiled
}

/// How an expression's mistakes are said.
struct Wording {
    issues: &'static str,
    result: &'static str,
    constants: &'static str,
}

fn expression(
    source: &str,
    environment: &Environment,
    decl: &Decl,
    result: &Type,
    wording: &Wording,
) -> Result<Compiled, String> {
    let program = compile(source, environment).map_err(|issues| format!("{}: {issues}", wording.issues))?;
    if program.result_type() != result {
        return Err(wording.result.to_owned());
    }
    eval::instantiate(&program).map_err(|error| format!("{}: {error}", wording.constants))?;
    let max_cost = cost::estimate(&program, decl).max;
    Ok(Compiled { program, max_cost })
}
