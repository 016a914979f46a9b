//! Policies and bindings as they are in force: read once from the stored objects.

use std::collections::BTreeMap;

use kubewright_cel::Program;
use serde_json::Value;

use super::super::matching::Criteria;
use super::source::Kind;
use crate::model::facts::expression::{Compiler, Returns};
use crate::model::object;
use crate::scheme::split_version;
use crate::values::get;

/// An expression, or why it does not compile. A stored expression compiled when it was written, perhaps by an older
/// version.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) source: String,
    pub(super) program: Result<Program, String>,
}

impl Expression {
    pub(super) fn new(compiler: &Compiler, source: &str, returns: Returns) -> Expression {
        Expression {
            source: source.to_owned(),
            program: compiler.compile(source, returns),
        }
    }
}

/// A variable of a policy.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) program: Result<Program, String>,
}

/// The variables of a policy by name. Of two of one name the later one counts.
#[derive(Debug, Default)]
pub(super) struct Variables(BTreeMap<String, Variable>);

impl Variables {
    pub(super) fn new(variables: impl IntoIterator<Item = Variable>) -> Variables {
        let named = |variable: Variable| (variable.name.clone(), variable);
        Variables(variables.into_iter().map(named).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Variable> {
        self.0.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}

/// The kind of a policy's parameters.
#[derive(Debug)]
pub(super) struct ParamKind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

impl std::fmt::Display for ParamKind {
    /// As Go prints a `GroupVersionKind`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

impl ParamKind {
    /// `v1` or `apps/v1`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Reads a `paramKind`; none when there is none.
    pub(super) fn new(value: &Value) -> Option<ParamKind> {
        let text = |field: &str| get(value, &[field]).as_str().unwrap_or("");
        let (group, version) = split_version(text("apiVersion"));
        (!value.is_null()).then(|| ParamKind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text("kind").to_owned(),
        })
    }
}

/// The part that both kinds of policies have.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    /// `failurePolicy: Fail`: errors refuse the request.
    pub(super) fails: bool,
    pub(super) criteria: Criteria,
    pub(super) param_kind: Option<ParamKind>,
    pub(super) variables: Variables,
    pub(super) conditions: Vec<Expression>,
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    get(value, &[field]).as_str().unwrap_or("")
}

fn items<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    get(value, &[field]).as_array().into_iter().flatten()
}

impl Policy {
    fn new(stored: &Value) -> (Policy, Compiler) {
        let spec = get(stored, &["spec"]);
        let param_kind = ParamKind::new(get(spec, &["paramKind"]));
        let mut compiler = Compiler::with_variables(param_kind.is_some());
        let variables = Variables::new(items(spec, "variables").map(|variable| Variable {
            name: text(variable, "name").to_owned(),
            program: compiler.declare(text(variable, "name"), text(variable, "expression")),
        }));
        let condition = |condition| Expression::new(&compiler, text(condition, "expression"), Returns::Bool);
        let policy = Policy {
            name: object::name(stored).to_owned(),
            fails: text(spec, "failurePolicy") != "Ignore",
            criteria: Criteria::of_match_resources(get(spec, &["matchConstraints"])),
            param_kind,
            variables,
            conditions: items(spec, "matchConditions").map(condition).collect(),
        };
        (policy, compiler)
    }
}

/// A rule of a ValidatingAdmissionPolicy.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    /// Reason and code of the refusal.
    pub(super) reason: (&'static str, u16),
}

/// A ValidatingAdmissionPolicy.
#[derive(Debug)]
pub(super) struct ValidatingPolicy {
    pub(super) policy: Policy,
    pub(super) validations: Vec<Validation>,
    /// Keys of audit annotations, and the expressions of their values.
    pub(super) audits: Vec<(String, Expression)>,
}

impl Kind for ValidatingPolicy {
    const STORES: [&'static str; 2] = [
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    ];

    fn read(stored: &Value) -> ValidatingPolicy {
        let (policy, compiler) = Policy::new(stored);
        let spec = get(stored, &["spec"]);
        let validation = |entry: &Value| {
            let message = text(entry, "messageExpression");
            Validation {
                expression: Expression::new(&compiler, text(entry, "expression"), Returns::Bool),
                message: text(entry, "message").trim().to_owned(),
                message_expression: (!message.is_empty()).then(|| Expression::new(&compiler, message, Returns::Text)),
                reason: match text(entry, "reason") {
                    "Forbidden" => ("Forbidden", 403),
                    "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
                    _ => ("Invalid", 422),
                },
            }
        };
        let audit = |entry| {
            let value = Expression::new(&compiler, text(entry, "valueExpression"), Returns::TextOrNull);
            (text(entry, "key").to_owned(), value)
        };
        ValidatingPolicy {
            validations: items(spec, "validations").map(validation).collect(),
            audits: items(spec, "auditAnnotations").map(audit).collect(),
            policy,
        }
    }
}

/// The change that a mutation makes to an object.
#[derive(Debug)]
pub(super) enum Mutation {
    /// Merges the configuration that the expression constructs.
    Configuration(Expression),
    /// Applies the operations that the expression lists.
    Patches(Expression),
}

/// A MutatingAdmissionPolicy.
#[derive(Debug)]
pub(super) struct MutatingPolicy {
    pub(super) policy: Policy,
    pub(super) mutations: Vec<Mutation>,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) reinvocable: bool,
}

impl Kind for MutatingPolicy {
    const STORES: [&'static str; 2] = [
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    ];

    fn read(stored: &Value) -> MutatingPolicy {
        let (policy, compiler) = Policy::new(stored);
        let spec = get(stored, &["spec"]);
        let mutation = |entry: &Value| {
            let source = |field: &str| get(entry, &[field, "expression"]).as_str();
            match text(entry, "patchType") {
                "JSONPatch" => source("jsonPatch")
                    .map(|source| Mutation::Patches(Expression::new(&compiler, source, Returns::Patches))),
                _ => source("applyConfiguration")
                    .map(|source| Mutation::Configuration(Expression::new(&compiler, source, Returns::Configuration))),
            }
        };
        MutatingPolicy {
            mutations: items(spec, "mutations").filter_map(mutation).collect(),
            reinvocable: text(spec, "reinvocationPolicy") == "IfNeeded",
            policy,
        }
    }
}

/// The action of a validating binding for a failed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Action::Deny => "Deny",
            Action::Warn => "Warn",
            Action::Audit => "Audit",
        }
    }
}

/// A binding of either kind.
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    /// None: everything that the policy matches.
    pub(super) criteria: Option<Criteria>,
    /// The `paramRef`, or null.
    pub(super) param_ref: Value,
    /// In the order in which they are written; none of a mutating binding.
    pub(super) actions: Vec<Action>,
}

impl Binding {
    pub(super) fn new(stored: &Value) -> Binding {
        let spec = get(stored, &["spec"]);
        let resources = get(spec, &["matchResources"]);
        let action = |action: &Value| match action.as_str() {
            Some("Deny") => Some(Action::Deny),
            Some("Warn") => Some(Action::Warn),
            Some("Audit") => Some(Action::Audit),
            _ => None,
        };
        Binding {
            name: object::name(stored).to_owned(),
            policy: text(spec, "policyName").to_owned(),
            criteria: (!resources.is_null()).then(|| Criteria::of_match_resources(resources)),
            param_ref: get(spec, &["paramRef"]).clone(),
            actions: items(spec, "validationActions").filter_map(action).collect(),
        }
    }
}
