//! Expressions with the answers that kube-apiserver 1.36.3 gave: `testdata/cel_eval.json`.

use serde::Deserialize;
use serde_json::Value as Json;

use super::{Bindings, Error, PER_CALL_LIMIT, evaluate, instantiate};
use crate::SchemaRef;
use crate::cel::types::{Decl, Type};
use crate::cel::value::Value;
use crate::cel::{Environment, Program, compile, schema};

#[derive(Deserialize)]
struct Table {
    schema: Json,
    object: Json,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expected {
    /// What `'%s'.format([x])` prints.
    Value(String),
    /// What the evaluation says.
    Error(String),
    /// The expression is refused when it is compiled.
    Refused(String),
    /// What depends on constants only is in error.
    Instantiation(String),
}

#[derive(Deserialize)]
struct Case {
    expression: String,
    #[serde(flatten)]
    expected: Expected,
}

fn table() -> Table {
    serde_json::from_str(include_str!("../../../testdata/cel_eval.json")).expect("the table is JSON")
}

fn run(program: &Program, decl: &Decl, object: &Json) -> Result<String, String> {
    let this = Value::from_declared(object, decl).expect("the object has its schema");
    let outcome = evaluate(program, &Bindings::new().with("self", this), PER_CALL_LIMIT);
    match outcome.result {
        Ok(value) => Ok(value.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// None when the answer is the expected one.
fn check(case: &Case, decl: &Decl, object: &Json) -> Option<String> {
    let environment = Environment::new().variable("self", decl.clone());
    let source = format!("'%s'.format([{}])", case.expression);
    let wrong = |got: String| Some(format!("{}\n    got {got}", case.expression));
    let program = match (compile(&source, &environment), &case.expected) {
        (Err(issues), Expected::Refused(why)) if issues.to_string().contains(why) => return None,
        (Err(issues), _) => return wrong(format!("refused: {issues}")),
        (Ok(program), _) => program,
    };
    match (instantiate(&program), &case.expected) {
        (Err(error), Expected::Instantiation(why)) if error.to_string() == *why => return None,
        (Ok(()), Expected::Value(_) | Expected::Error(_)) => {}
        (got, Expected::Value(why) | Expected::Error(why) | Expected::Refused(why) | Expected::Instantiation(why)) => {
            return wrong(format!("instantiated: {got:?}\n    for {why}"));
        }
    }
    match (run(&program, decl, object), &case.expected) {
        (Ok(got), Expected::Value(expected)) if got == *expected => None,
        (Err(got), Expected::Error(expected)) if got == *expected => None,
        (got, Expected::Value(expected) | Expected::Error(expected)) => wrong(format!("{got:?}\n    for {expected:?}")),
        (got, _) => wrong(format!("{got:?}")),
    }
}

#[test]
fn answers_of_the_api_server() {
    let table = table();
    let schema = SchemaRef::from_crd(&table.schema).expect("a schema");
    let decl = schema::declare(&schema, true, "selfType").expect("visible");
    let wrong: Vec<String> = table
        .cases
        .iter()
        .filter_map(|case| check(case, &decl, &table.object))
        .collect();
    assert!(table.cases.len() > 500, "the table is complete");
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
}

fn evaluate_alone(source: &str) -> (Result<String, Error>, u64) {
    let environment = Environment::new().variable("x", Decl::new(Type::Dyn));
    let program = compile(source, &environment).unwrap_or_else(|issues| panic!("{source}: {issues}"));
    let json = serde_json::json!({"a": [1, 2, 3], "s": "abcdefghij"});
    let variables = Bindings::new().with("x", Value::from_json(&json));
    let outcome = evaluate(&program, &variables, PER_CALL_LIMIT);
    (outcome.result.map(|value| value.to_string()), outcome.cost)
}

#[test]
fn costs() {
    for (source, cost) in [
        ("true", 0),
        ("x", 1),
        ("x.a", 2),
        ("has(x.a)", 1),
        ("x.a[0]", 3),
        ("x.a[x.a[0]]", 5),
        ("x.a[0] == 1", 4),
        ("x.s == 'abcdefghij'", 3),
        ("x.a[0] == 1 && x.a[1] == 2", 8),
        ("true ? x.a : x.a", 1),
        ("[1, 2, 3]", 0),
        ("[x]", 11),
        ("1 in [1, 2]", 0),
        ("x.s.startsWith('abc')", 3),
        ("[1, 2, 3].all(i, i > 0)", 16),
        ("int('1') + 1", 1),
    ] {
        assert_eq!(evaluate_alone(source).1, cost, "{source}");
    }
}

#[test]
fn work_is_bounded() {
    for source in [
        "lists.range(900000).all(i, lists.range(900000).all(j, i + j >= 0))",
        "lists.range(9223372036854775807)",
        "lists.range(100000).map(i, [i])",
    ] {
        let (result, cost) = evaluate_alone(source);
        assert_eq!(result, Err(Error::CostExceeded), "{source}");
        assert!(cost < 2 * PER_CALL_LIMIT, "{source}: {cost}");
    }
    let deep = "[".repeat(40) + "1" + &"]".repeat(40);
    assert!(evaluate_alone(&deep).0.is_ok());
}
