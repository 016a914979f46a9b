//! The values that expressions of a policy see, and how an expression is evaluated within a budget.
//!
//! Invariants: a variable of the policy is computed when it is first named, and once; its cost is charged to the
//! expression that named it. A variable holds neither itself nor the map of all variables, so that every value has an
//! end.
//!
//! cel-go computes variables on a stack of up to 1 GB, and has no bound for how many name each other; here there is one
//! ([`MAX_CHAIN`]).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kubewright_cel::Program;
use kubewright_cel::eval::{Error, OUT_OF_BUDGET, PER_CALL_LIMIT, Patterns, Variables, evaluate};
use kubewright_cel::value::{Fields, Map, Value as Cel};
use kubewright_schema::{budget, stack};
use serde_json::{Map as JsonMap, Value, json};

use super::compiled::{Expression, Variable, Variables as Declared};
use crate::values::get;

/// So many variables may be under way at once because each names the next one. Each takes a few kilobytes of stack.
const MAX_CHAIN: u32 = 1_000;

/// The budget is used up, and nothing more is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfBudget;

impl std::fmt::Display for OutOfBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(OUT_OF_BUDGET)
    }
}

/// The variables of a request that a policy sees.
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
    /// The namespace, or null for a cluster-scoped object.
    pub(super) namespace: &'a Value,
    /// The server's compiled regular expressions.
    pub(super) patterns: &'a Patterns,
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
    variables: &'a Declared,
    computed: RefCell<BTreeMap<&'a str, Result<Cel<'a>, Error>>>,
    /// How many variables are being computed.
    under_way: Cell<u32>,
    cost: Cell<u64>,
}

/// `authorizer` and `authorizer.requestResource`.
#[derive(Clone)]
pub(super) struct Authorizers<'a> {
    pub(super) authorizer: Cel<'a>,
    pub(super) request_resource: Cel<'a>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(inputs: Inputs<'a>, variables: &'a Declared, authorizer: Option<Authorizers<'a>>) -> Scope<'a> {
        Scope(Rc::new(Activation {
            inputs,
            authorizer,
            variables,
            computed: RefCell::default(),
            under_way: Cell::new(0),
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
        let outcome = evaluate(program, self, self.0.inputs.patterns, PER_CALL_LIMIT);
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
        let value = match &variable.program {
            Err(why) => Err(format!("composited variable {name:?} fails to compile: {why}")),
            Ok(program) => self
                .evaluate(program)
                .map_err(|error| format!("composited variable {name:?} fails to evaluate: {error}")),
        };
        value.map_err(|text| {
            // It is kept, and lies in the errors of all variables that name this one.
            budget::produce(text.len());
            Error::new(text)
        })
    }

    /// The value of a variable, which may name one that names one, and so on.
    fn evaluate(&self, program: &'a Program) -> Result<Cel<'a>, Error> {
        let Activation { cost, under_way, .. } = &*self.0;
        if under_way.get() >= MAX_CHAIN {
            return Err(Error::new(format!(
                "more than {MAX_CHAIN} variables name each other in a chain"
            )));
        }
        under_way.set(under_way.get() + 1);
        let outcome = stack::with_room(|| evaluate(program, self, self.0.inputs.patterns, PER_CALL_LIMIT));
        under_way.set(under_way.get() - 1);
        cost.set(cost.get().saturating_add(outcome.cost));
        outcome.result.and_then(|value| match &value {
            Cel::Map(map) if map.is_computed() => Err(Error::new("a variable cannot hold all variables")),
            _ => Ok(value),
        })
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
        self.0.variables.names().cloned().collect()
    }

    fn get(&self, name: &str) -> Option<Result<Cel<'a>, Error>> {
        let variable = self.0.variables.get(name)?;
        if let Some(known) = self.0.computed.borrow().get(variable.name.as_str()) {
            return Some(known.clone());
        }
        // Where types are not known before, a variable can ask for itself.
        let itself = Error::new(format!("variable {name:?} is asked for while it is computed"));
        self.0.computed.borrow_mut().insert(&variable.name, Err(itself));
        let value = self.compute(variable);
        self.0.computed.borrow_mut().insert(&variable.name, value.clone());
        Some(value)
    }
}

/// `namespaceObject`: a namespace without `managedFields` and `ownerReferences`.
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
    use crate::model::facts::expression::{Compiler, Returns};

    /// An expression with the variables `a` (costly) and `b` (wrong): its value or error, and its cost.
    fn run(source: &str, budget: u64) -> (Result<String, String>, u64) {
        let mut compiler = Compiler::with_variables(false);
        let mut declare = |name: &str, source: &str| Variable {
            name: name.to_owned(),
            program: compiler.declare(name, source),
        };
        let variables = Declared::new([declare("a", "[1, 2, 3].map(x, x + 1)"), declare("b", "object.nope")]);
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
            patterns: &Patterns::default(),
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

    fn declared(sources: impl IntoIterator<Item = (String, String)>, compiler: &mut Compiler) -> Declared {
        let declare = |(name, source): (String, String)| Variable {
            program: compiler.declare(&name, &source),
            name,
        };
        Declared::new(sources.into_iter().map(declare).collect::<Vec<_>>())
    }

    fn nothing(patterns: &Patterns) -> Inputs<'_> {
        Inputs {
            object: &Value::Null,
            old: &Value::Null,
            params: &Value::Null,
            request: &Value::Null,
            namespace: &Value::Null,
            patterns,
        }
    }

    /// The result of a policy with these variables, within a budget.
    fn with_variables(sources: impl IntoIterator<Item = (String, String)>, expression: &str) -> Result<String, String> {
        let mut compiler = Compiler::with_variables(false);
        let variables = declared(sources, &mut compiler);
        let expression = Expression {
            source: expression.to_owned(),
            program: compiler.compile(expression, Returns::Bool),
        };
        let (mut budget, patterns) = (u64::MAX, Patterns::default());
        let found = Scope::new(nothing(&patterns), &variables, None).run(&expression, &mut budget);
        found.expect("the budget is large").map(|value| value.to_string())
    }

    #[test]
    fn a_variable_that_asks_for_itself_fails() {
        let check = |sources: &[(&str, &str)]| {
            let sources = sources
                .iter()
                .map(|(name, source)| ((*name).to_owned(), (*source).to_owned()));
            let why = with_variables(sources, "variables.a == 1").expect_err("there is no value");
            assert!(why.contains("is asked for while it is computed"), "{why}");
        };
        check(&[("a", "dyn(variables).a")]);
        check(&[("a", "dyn(variables)['a']")]);
        check(&[("a", "dyn(variables).b"), ("b", "variables.a")]);
    }

    #[test]
    fn no_variable_holds_all_variables() {
        let sources = [("a", "variables"), ("b", "true")].map(|(name, source)| (name.to_owned(), source.to_owned()));
        let why = with_variables(sources, "'%s'.format([variables.a]) == ''").expect_err("it has no end");
        assert!(why.contains("a variable cannot hold all variables"), "{why}");
    }

    /// Each of these lies in the next one.
    fn nested(count: usize, around: fn(usize) -> String) -> Vec<(String, String)> {
        let variable = |index: usize| {
            let source = if index == 0 { "1".to_owned() } else { around(index - 1) };
            (format!("v{index}"), source)
        };
        (0..count).map(variable).collect()
    }

    #[test]
    fn a_chain_of_variables_is_followed_as_far_as_the_stack_may_grow() {
        let chain = |count| nested(count, |before| format!("variables.v{before} + 1"));
        assert_eq!(
            with_variables(chain(900), "variables.v899 == 900"),
            Ok("true".to_owned())
        );
        let why = with_variables(chain(1_500), "variables.v1499 == 1500").expect_err("it is too long");
        assert!(why.contains("more than 1000 variables name each other"), "{why:.300}");
    }

    #[test]
    fn what_the_errors_of_a_chain_hold_is_counted() {
        // From the first to the last: no chain is long, but each error holds those of all variables before.
        let mut failing = nested(2_000, |before| format!("variables.v{before} + 1"));
        failing[0].1 = "object.none".to_owned();
        let variables = declared(failing, &mut Compiler::with_variables(false));
        let patterns = Patterns::default();
        let held = |count: usize| {
            let scope = Scope::new(nothing(&patterns), &variables, None);
            let texts = (0..count).map(|index| match Fields::get(&scope, &format!("v{index}")) {
                Some(Err(Error::Runtime(text))) => text.len() as u64,
                other => panic!("v{index}: {other:?}"),
            });
            budget::within(budget::Limits::REQUEST, || texts.sum::<u64>())
        };
        assert!(held(100).is_ok_and(|all| all > 100));
        assert_eq!(held(2_000), Err(budget::Exhausted::Bytes));
    }

    #[test]
    fn values_do_not_lie_in_each_other_without_end() {
        let limits = budget::Limits::REQUEST;
        for around in [
            |before: usize| format!("[variables.v{before}]"),
            |before: usize| format!("{{'a': variables.v{before}}}"),
            |before: usize| format!("optional.of(variables.v{before})"),
        ] {
            let few = || with_variables(nested(100, around), "type(variables.v99) != int");
            assert_eq!(budget::within(limits, few), Ok(Ok("true".to_owned())));
            let many = || with_variables(nested(1_000, around), "type(variables.v999) != int");
            assert!(budget::within(limits, many).is_err());
        }
    }

    #[test]
    fn the_budget_ends_everything() {
        for (source, budget) in [("variables.a[0] == 2", 20), ("object.n == 1", 2)] {
            assert_eq!(run(source, budget).0, Err(OUT_OF_BUDGET.to_owned()), "{source}");
        }
    }
}
