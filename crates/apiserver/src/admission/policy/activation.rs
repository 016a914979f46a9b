//! The values that expressions of a policy see, and how an expression is evaluated within a budget.
//!
//! Invariants: a variable of the policy is computed when it is first named, and once; what that costs is charged to the expression that
//! named it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kubewright_cel::eval::{Error, PER_CALL_LIMIT, Variables, evaluate};
use kubewright_cel::value::{Fields, Map, Value as Cel};
use serde_json::{Map as JsonMap, Value, json};

use super::compiled::{Expression, Variable};
use crate::values::get;

/// Said where the budget of a request is used up.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The budget is used up, and nothing more is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfBudget;

impl std::fmt::Display for OutOfBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(OUT_OF_BUDGET)
    }
}

/// What a policy sees of a request.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    /// The object as it would be stored; null for a delete.
    pub(super) object: &'a Value,
    /// The object as it is; null for a create.
    pub(super) old: &'a Value,
    /// The parameter, or null.
    pub(super) params: &'a Value,
    /// The `AdmissionRequest`, without objects.
    pub(super) request: &'a Value,
    /// The namespace, or null for what lives in none.
    pub(super) namespace: &'a Value,
}

impl<'a> Inputs<'a> {
    /// The same around another object.
    pub(super) fn with<'b>(self, object: &'b Value) -> Inputs<'b>
    where
        'a: 'b,
    {
        Inputs { object, ..self }
    }
}

/// The variables of one evaluation. Clones are the same evaluation.
#[derive(Clone)]
pub(super) struct Scope<'a>(Rc<Activation<'a>>);

struct Activation<'a> {
    inputs: Inputs<'a>,
    /// None where expressions may not ask.
    authorizer: Option<Authorizers<'a>>,
    variables: &'a [Variable],
    computed: RefCell<BTreeMap<&'a str, Result<Cel<'a>, Error>>>,
    cost: Cell<u64>,
}

/// `authorizer` and `authorizer.requestResource`.
#[derive(Clone)]
pub(super) struct Authorizers<'a> {
    pub(super) authorizer: Cel<'a>,
    pub(super) request_resource: Cel<'a>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(inputs: Inputs<'a>, variables: &'a [Variable], authorizer: Option<Authorizers<'a>>) -> Scope<'a> {
        Scope(Rc::new(Activation {
            inputs,
            authorizer,
            variables,
            computed: RefCell::default(),
            cost: Cell::new(0),
        }))
    }

    /// Evaluates an expression at the expense of `budget`. The inner error is that of the expression.
    pub(super) fn run(
        &self,
        expression: &'a Expression,
        budget: &mut u64,
    ) -> Result<Result<Cel<'a>, String>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: {why}"))),
        };
        let outcome = evaluate(program, self, PER_CALL_LIMIT);
        for cost in [self.0.cost.take(), outcome.cost] {
            *budget = budget.checked_sub(cost).ok_or(OutOfBudget)?;
        }
        Ok(outcome.result.map_err(|error| {
            let source = &expression.source;
            format!("expression '{source}' resulted in error: {error}")
        }))
    }

    fn compute(&self, variable: &'a Variable) -> Result<Cel<'a>, Error> {
        let name = &variable.name;
        match &variable.program {
            Err(why) => Err(Error::new(format!(
                "composited variable {name:?} fails to compile: {why}"
            ))),
            Ok(program) => {
                let outcome = evaluate(program, self, PER_CALL_LIMIT);
                let cost = &self.0.cost;
                cost.set(cost.get().saturating_add(outcome.cost));
                outcome
                    .result
                    .map_err(|error| Error::new(format!("composited variable {name:?} fails to evaluate: {error}")))
            }
        }
    }
}

impl<'a> Variables<'a> for Scope<'a> {
    fn get(&self, name: &str) -> Option<Result<Cel<'a>, Error>> {
        let activation = &*self.0;
        let inputs = activation.inputs;
        let authorizers = || activation.authorizer.clone();
        Some(Ok(match name {
            "object" => Cel::from_json(inputs.object),
            "oldObject" => Cel::from_json(inputs.old),
            "params" => Cel::from_json(inputs.params),
            "request" => Cel::from_json(inputs.request),
            "namespaceObject" => Cel::from_json(inputs.namespace),
            "variables" => Cel::Map(Map::computed(Rc::new(self.clone()))),
            "authorizer" => authorizers()?.authorizer,
            "authorizer.requestResource" => authorizers()?.request_resource,
            _ => return None,
        }))
    }
}

impl<'a> Fields<'a> for Scope<'a> {
    fn type_name(&self) -> &str {
        "kubernetes.variables"
    }

    fn names(&self) -> Vec<String> {
        self.0.variables.iter().map(|variable| variable.name.clone()).collect()
    }

    fn get(&self, name: &str) -> Option<Result<Cel<'a>, Error>> {
        // Of two variables of one name the later one counts.
        let variable = self.0.variables.iter().rev().find(|variable| variable.name == name)?;
        if let Some(known) = self.0.computed.borrow().get(variable.name.as_str()) {
            return Some(known.clone());
        }
        let value = self.compute(variable);
        self.0.computed.borrow_mut().insert(&variable.name, value.clone());
        Some(value)
    }
}

/// `namespaceObject`: a namespace without what only concerns its owners.
pub(super) fn namespace(stored: &Value) -> Value {
    let mut metadata = JsonMap::new();
    for field in [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "finalizers",
    ] {
        let value = get(stored, &["metadata", field]);
        if !value.is_null() {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let part = |field: &str| match get(stored, &[field]) {
        Value::Null => json!({}),
        value => value.clone(),
    };
    json!({"metadata": metadata, "spec": part("spec"), "status": part("status")})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::admission_policies::expression::{Compiler, Returns};

    /// An expression with the variables `a` (costly) and `b` (wrong): its value or error, and what it cost.
    fn run(source: &str, budget: u64) -> (Result<String, String>, u64) {
        let mut compiler = Compiler::with_variables(false);
        let mut declare = |name: &str, source: &str| Variable {
            name: name.to_owned(),
            program: compiler.declare(name, source),
        };
        let variables = [declare("a", "[1, 2, 3].map(x, x + 1)"), declare("b", "object.nope")];
        let expression = Expression {
            source: source.to_owned(),
            program: compiler.compile(source, Returns::Bool),
        };
        let object = json!({"n": 1});
        let inputs = Inputs {
            object: &object,
            old: &Value::Null,
            params: &Value::Null,
            request: &Value::Null,
            namespace: &Value::Null,
        };
        let mut left = budget;
        let found = Scope::new(inputs, &variables, None).run(&expression, &mut left);
        let found = match found {
            Ok(found) => found,
            Err(spent) => Err(spent.to_string()),
        };
        (found.map(|value| value.to_string()), budget - left)
    }

    #[test]
    fn variables_are_computed_when_they_are_named_and_once() {
        let cost = |source: &str| {
            let (found, cost) = run(source, 1000);
            assert_eq!(found, Ok("true".to_owned()), "{source}");
            cost
        };
        assert_eq!(cost("object.n == 1 || variables.b == 1"), cost("object.n == 1"));
        let (once, twice) = (
            cost("variables.a[0] == 2"),
            cost("variables.a[0] == 2 && variables.a[1] == 3"),
        );
        assert!(once > 30 && twice > once && twice < once + once / 2, "{once}, {twice}");
        let (found, _) = run("object.n == 1 && variables.b == 1", 1000);
        let why = "composited variable \"b\" fails to evaluate: no such key: nope";
        let text = format!("expression 'object.n == 1 && variables.b == 1' resulted in error: {why}");
        assert_eq!(found, Err(text));
    }

    #[test]
    fn the_budget_ends_everything() {
        for (source, budget) in [("variables.a[0] == 2", 20), ("object.n == 1", 2)] {
            assert_eq!(run(source, budget).0, Err(OUT_OF_BUDGET.to_owned()), "{source}");
        }
    }
}
