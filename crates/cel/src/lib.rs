//! The Common Expression Language, as Kubernetes uses it: rules of custom resources, policies, match conditions.
//!
//! An expression goes through four steps, each in its own module: the [`parser`] builds a tree ([`ast`]) and expands
//! macros; the [`checker`] gives each node a [type](types) and each call its overloads ([`decls`]); [`cost`] estimates
//! the maximum cost of an evaluation, from the sizes that schemas guarantee; [`eval`] computes a
//! [`Value`](value::Value) and counts the actual cost. The code that turns the schema of a resource into declarations, and
//! `x-kubernetes-validations`, are in `kubewright-schema` (`declare`, `rules`).
//!
//! A caller declares the variables of its expressions and compiles an expression once, then evaluates it for each
//! value:
//!
//! ```
//! use kubewright_cel::eval::{Bindings, PER_CALL_LIMIT, Patterns, evaluate};
//! use kubewright_cel::{Environment, compile, types::{Decl, Type}, value::Value};
//! use serde_json::json;
//!
//! let environment = Environment::new()
//!     .variable("object", Decl::new(Type::Dyn))
//!     .variable("limit", Decl::new(Type::Int));
//! let program = compile("object.spec.replicas <= limit", &environment).expect("it is well typed");
//! assert_eq!(program.result_type(), &Type::Bool);
//!
//! let object = json!({"spec": {"replicas": 2}});
//! let variables = Bindings::new().with("object", Value::from_json(&object)).with("limit", Value::Int(3));
//! let outcome = evaluate(&program, &variables, &Patterns::default(), PER_CALL_LIMIT);
//! assert!(matches!(outcome.result, Ok(Value::Bool(true))));
//!
//! let issues = compile("limit + 'a'", &environment).expect_err("numbers and strings do not add");
//! assert_eq!(
//!     issues.to_string(),
//!     "ERROR: <input>:1:7: found no matching overload for '_+_' applied to '(int, string)'\n | limit + 'a'\n | ......^",
//! );
//! ```
//!
//! Untyped variables are [`Type::Dyn`]; typed ones come from
//! `kubewright_schema::declare`. The caller checks the type of the result
//! ([`Program::result_type`]): a rule must be [`Bool`](types::Type::Bool), a message
//! [`String`](types::Type::String).
//!
//! Invariant: every error message is that of cel-go 0.26 and Kubernetes 1.36, including the position. Where 1.37 answers
//! otherwise, the evaluation asks for the version.
//!
//! # Where to change what
//!
//! | change | in | checked by |
//! |---|---|---|
//! | what is accepted | `src/parser`, `src/checker` | the tables there |
//! | which functions there are | `src/decls.rs`, `data/cel-functions.txt`, `src/library` | the tables there |
//! | what an expression costs | the estimate: `src/cost.rs`; the actual cost: `src/eval/cost.rs` | `cel_eval.json` in the testdata of `schema`, recorded |
//! | a message | grep for it | its table |

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))] // of times: clippy.toml lists what else is added

pub mod ast;
pub mod checker;
pub mod cost;
pub mod decls;
pub mod error;
pub mod eval;
pub mod library;
pub mod names;
pub mod parser;

pub mod types;
pub mod value;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ast::{Expr, ExprId, ExprKind};
use kubewright_values::{Minor, budget};
use types::{Decl, Type};

/// The variables that an expression may name, and the further offers of its place.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<Arc<str>, Decl>,
    constructs_objects: bool,
    plain_names: bool,
}

impl Environment {
    /// No variables, all functions, all of the syntax.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable. A name with dots is one variable.
    #[must_use]
    pub fn variable(mut self, name: &str, decl: Decl) -> Self {
        self.variables.insert(name.into(), decl);
        self
    }

    /// Allows the constructors of mutating policies: `Object{…}`, `Object.spec{…}`, `JSONPatch{…}` and
    /// `jsonpatch.escapeKey`.
    #[must_use]
    pub fn constructing_objects(mut self) -> Self {
        self.constructs_objects = true;
        self
    }

    /// Takes the syntax of a version: names of fields in backticks came with 1.37.
    #[must_use]
    pub fn of_minor(mut self, minor: Minor) -> Self {
        self.plain_names = minor < Minor::V37;
        self
    }

    /// The declaration of a variable.
    pub fn get(&self, name: &str) -> Option<&Decl> {
        self.variables.get(name)
    }

    /// The variables by name.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &Decl)> {
        self.variables.iter().map(|(name, decl)| (&**name, decl))
    }

    /// Whether objects may be constructed ([`constructing_objects`](Self::constructing_objects)).
    pub fn constructs_objects(&self) -> bool {
        self.constructs_objects
    }
}

/// A checked expression, ready to be evaluated as often as one likes.
#[derive(Clone, Debug)]
pub struct Program {
    source: Arc<str>,
    expr: Expr,
    types: Vec<Type>,
    environment: Environment,
}

impl Program {
    /// The expression as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The tree, with overloads entered.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// The type of the whole.
    pub fn result_type(&self) -> &Type {
        self.type_of(self.expr.id)
    }

    /// The type of one node. Parameters that nothing decided are [`Type::Dyn`].
    pub fn type_of(&self, id: ExprId) -> &Type {
        self.types.get(id as usize).unwrap_or(&Type::Dyn)
    }

    /// The environment against which the expression was compiled.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The same for evaluation only: without the environment and the types, which may be large. Nodes are then of any
    /// type.
    #[must_use]
    pub fn to_be_evaluated(self) -> Program {
        Program {
            types: Vec::new(),
            environment: Environment::new(),
            ..self
        }
    }

    /// Whether the expression names this variable anywhere.
    pub fn names(&self, variable: &str) -> bool {
        let mut found = false;
        self.expr
            .walk(&mut |expr| found |= matches!(&expr.kind, ExprKind::Ident(name) if &**name == variable));
        found
    }
}

/// An error in an expression, at one place of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Where, in characters from the beginning of the source.
    pub offset: u32,
    /// The error, such as `undeclared reference to 'x' (in container '')`.
    pub message: String,
}

/// Everything that is wrong with an expression. Displays as cel-go does: each mistake with the line that it stands in
/// and a mark below the column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Issues {
    /// The single mistakes in the order of the source.
    pub issues: Vec<Issue>,
    text: Arc<str>,
}

/// Beyond so many mistakes the rest is only counted.
const MAX_ISSUES: usize = 100;
/// A longer line is not shown.
const MAX_SNIPPET: usize = 16384;

impl Issues {
    /// Puts the mistakes into the order of the source.
    pub fn new(source: &str, mut issues: Vec<Issue>) -> Self {
        let text: Arc<str> = source.into();
        issues.sort_by_key(|issue| (issue.offset != Issue::NOWHERE, issue.offset));
        Self { issues, text }
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, issue) in self.issues.iter().take(MAX_ISSUES).enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            issue.write(f, &self.text)?;
        }
        if self.issues.len() > MAX_ISSUES {
            write!(f, "\n{} more errors were truncated", self.issues.len() - MAX_ISSUES)?;
        }
        Ok(())
    }
}

impl Issue {
    /// The offset of a mistake that is at no place.
    pub const NOWHERE: u32 = u32::MAX;

    fn write(&self, f: &mut fmt::Formatter<'_>, source: &str) -> fmt::Result {
        if self.offset == Self::NOWHERE {
            return write!(f, "ERROR: <input>:-1:0: {}", self.message);
        }
        if source.is_empty() {
            return write!(f, "ERROR: <input>:1:0: {}", self.message);
        }
        let (mut number, mut column, mut line) = (1, self.offset as usize, "");
        for text in source.split('\n') {
            line = text;
            let length = text.chars().count();
            if column <= length {
                break;
            }
            column -= length + 1;
            number += 1;
        }
        write!(f, "ERROR: <input>:{number}:{}: {}", column + 1, self.message)?;
        if line.len() > MAX_SNIPPET {
            return Ok(());
        }
        write!(f, "\n | {}\n | ", line.replace('\t', " "))?;
        let mut chars = line.chars();
        for c in chars.by_ref().take(column) {
            f.write_str(if c.len_utf8() > 1 { "\u{ff0e}" } else { "." })?;
        }
        let wide = chars.next().is_some_and(|c| c.len_utf8() > 1);
        f.write_str(if wide { "\u{ff3e}" } else { "^" })
    }
}

/// Parses and checks an expression.
///
/// # Errors
/// Mistakes of syntax or, when there are none, of types; they display as cel-go displays them.
pub fn compile(source: &str, environment: &Environment) -> Result<Program, Issues> {
    // A short one, too, is read, checked and weighed.
    budget::spend(1000 + 4 * source.len());
    let fail = |issues| Issues::new(source, issues);
    let parsed = parser::parse(source, environment.plain_names).map_err(fail)?;
    let (expr, types) = checker::check(parsed, environment).map_err(fail)?;
    Ok(Program {
        source: source.into(),
        expr,
        types,
        environment: environment.clone(),
    })
}
