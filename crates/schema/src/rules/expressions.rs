//! Expressions with the answers that kube-apiserver 1.36.3 gave (`testdata/cel_*.json`), and the bounds of every
//! expression.

use std::rc::Rc;

use serde::Deserialize;
use serde_json::Value as Json;

use crate::SchemaRef;
use crate::declare::declare;
use kubewright_cel::eval::{Bindings, Error, PER_CALL_LIMIT, Patterns, evaluate, instantiate};
use kubewright_cel::types::{Decl, Type};
use kubewright_cel::value::opaque::authorizer::{Authorizer, Decision, Question};
use kubewright_cel::value::{Fields, Map, Value};
use kubewright_cel::{Environment, Program, compile};

#[derive(Deserialize)]
struct Table {
    #[serde(default)]
    schema: Json,
    object: Json,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expected {
    /// The text of `'%s'.format([x])`.
    Value(String),
    /// The error of the evaluation.
    Error(String),
    /// The expression is refused when it is compiled.
    Refused(String),
    /// A part that depends on constants only is in error.
    Instantiation(String),
}

#[derive(Deserialize)]
struct Case {
    expression: String,
    #[serde(flatten)]
    expected: Expected,
}

/// None when the answer is the expected one.
fn check(case: &Case, environment: &Environment, object: &Json) -> Option<String> {
    let source = format!("'%s'.format([{}])", case.expression);
    let wrong = |got: String| Some(format!("{}\n    got {got}", case.expression));
    let program = match (compile(&source, environment), &case.expected) {
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
    match (run(&program, environment, object), &case.expected) {
        (Ok(got), Expected::Value(expected)) if got == *expected => None,
        (Err(got), Expected::Error(expected)) if got == *expected => None,
        (got, Expected::Value(expected) | Expected::Error(expected)) => wrong(format!("{got:?}\n    for {expected:?}")),
        (got, _) => wrong(format!("{got:?}")),
    }
}

fn run(program: &Program, environment: &Environment, object: &Json) -> Result<String, String> {
    let variables = match environment.get("self") {
        Some(decl) => {
            let this = Value::from_declared(object, decl).expect("the object has its schema");
            Bindings::new().with("self", this)
        }
        None => Bindings::new()
            .with("object", Value::from_json(object))
            .with("oldObject", Value::Null),
    };
    let outcome = evaluate(program, &variables, &Patterns::default(), PER_CALL_LIMIT);
    outcome
        .result
        .map(|value| value.to_string())
        .map_err(|error| error.to_string())
}

fn check_all(table: &Table, environment: &Environment) {
    let cases = table.cases.iter();
    let wrong: Vec<String> = cases
        .filter_map(|case| check(case, environment, &table.object))
        .collect();
    assert!(table.cases.len() > 100, "the table is complete");
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn answers_about_objects_with_a_schema() {
    let table: Table = serde_json::from_str(include_str!("../../testdata/cel_eval.json")).expect("the table is JSON");
    let schema = SchemaRef::from_crd(&table.schema).expect("a schema");
    let decl = declare(&schema, true, "selfType").expect("visible");
    check_all(&table, &Environment::new().variable("self", decl));
}

#[test]
fn answers_about_objects_without_a_schema() {
    let table: Table =
        serde_json::from_str(include_str!("../../testdata/cel_untyped.json")).expect("the table is JSON");
    let environment = Environment::new()
        .variable("object", Decl::new(Type::Dyn))
        .variable("oldObject", Decl::new(Type::Dyn));
    check_all(&table, &environment);
}

fn evaluate_alone(source: &str) -> (Result<String, Error>, u64) {
    let environment = Environment::new().variable("x", Decl::new(Type::Dyn));
    let program = compile(source, &environment).unwrap_or_else(|issues| panic!("{source}: {issues}"));
    let json = serde_json::json!({"a": [1, 2, 3], "s": "abcdefghij"});
    let variables = Bindings::new().with("x", Value::from_json(&json));
    let outcome = evaluate(&program, &variables, &Patterns::default(), PER_CALL_LIMIT);
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
        "[x.s].map(a, a.replace('', a)).map(a, a.replace('', a)).map(a, a.replace('', a)).map(a, a.replace('', a)).size()",
        "lists.range(1000).map(i, lists.range(30000).map(j, x.s).join('')).join('').size()",
    ] {
        let (result, cost) = evaluate_alone(source);
        assert_eq!(result, Err(Error::CostExceeded), "{source}");
        assert!(cost < 2 * PER_CALL_LIMIT, "{source}: {cost}");
    }
}

/// Every expression is answered: no panic, and no end of the stack.
#[test]
fn nesting_is_bounded() {
    let environment = Environment::new().variable("x", Decl::new(Type::Dyn));
    let mut evaluated = 0;
    for depth in [10, 40, 120, 245, 3000] {
        let nested = |open: &str, inner: &str, close: &str| open.repeat(depth) + inner + &close.repeat(depth);
        for source in [
            nested("[", "1", "]"),
            nested("{'a': ", "1", "}"),
            nested("(", "1", ")"),
            nested("!", "true", ""),
            nested("-", "1", ""),
            nested("(true ? ", "1", " : 2)"),
            nested("dyn(", "1", ")"),
            nested("x == 1 || (", "true", ")"),
            nested("[1].map(i, ", "1", ")"),
            nested("[1].all(i, ", "true", ")"),
            nested("optional.of(", "1", ")"),
            "1".to_owned() + &" + 1".repeat(depth),
            "true".to_owned() + &" && true".repeat(depth),
            "x".to_owned() + &".a".repeat(depth),
            "x".to_owned() + &"[0]".repeat(depth),
            "x".to_owned() + &".?a".repeat(depth),
        ] {
            let Ok(program) = compile(&source, &environment) else {
                continue;
            };
            let outcome = evaluate(
                &program,
                &Bindings::new().with("x", Value::Int(1)),
                &Patterns::default(),
                PER_CALL_LIMIT,
            );
            evaluated += usize::from(outcome.result.is_ok());
        }
    }
    assert!(evaluated > 20, "{evaluated} expressions were evaluated");
}

#[test]
fn hostile_arguments() {
    for (source, expected) in [
        (
            "'abc'.substring(9223372036854775807)",
            "index out of range: 9223372036854775807",
        ),
        ("'abc'.indexOf('b', 9223372036854775807)", "-1"),
        (
            "'abc'.lastIndexOf('b', -9223372036854775807)",
            "index out of range: -9223372036854775807",
        ),
        ("'abc'.replace('b', 'x', 9223372036854775807)", "axc"),
        ("'abc'.split('', 9223372036854775807).size()", "3"),
        ("'abc'.split('b', -9223372036854775807).size()", "2"),
        (
            "[1].slice(0, 9223372036854775807)",
            "cannot slice(0, 9223372036854775807), list is length 1",
        ),
        ("[1][9223372036854775807]", "index out of bounds: 9223372036854775807"),
        ("lists.range(-1).size()", "0"),
        ("timestamp(0).getHours('99999999999999:99999999999999') >= 0", "true"),
        (
            "timestamp(0) + duration('2562047h47m16.854775807s') > timestamp(0)",
            "true",
        ),
        ("duration('-2562047h47m16.854775808s').getHours()", "-2562047"),
    ] {
        let got = evaluate_alone(source).0.unwrap_or_else(|error| error.to_string());
        assert_eq!(got, expected, "{source}");
    }
}

struct Squares;

impl<'a> Fields<'a> for Squares {
    fn type_name(&self) -> &str {
        "kubernetes.variables"
    }

    fn names(&self) -> Vec<String> {
        vec!["four".into(), "broken".into()]
    }

    fn get(&self, name: &str) -> Option<Result<Value<'a>, Error>> {
        match name {
            "four" => Some(Ok(Value::Int(4))),
            "broken" => Some(Err(Error::new("no such key: a"))),
            _ => None,
        }
    }
}

struct OnlyList;

impl Authorizer for OnlyList {
    fn authorize(&self, question: &Question) -> Decision {
        let resource = question.resource.clone().unwrap_or_default();
        Decision {
            allowed: question.verb == "list" && resource.resource == "pods",
            reason: format!(
                "{:?} {}/{}.{}",
                question.service_account, resource.group, resource.resource, resource.namespace
            ),
            error: question.path.clone(),
        }
    }
}

fn policy_variables<'a>() -> Bindings<'a> {
    Bindings::new()
        .with("variables", Value::Map(Map::computed(Rc::new(Squares))))
        .with("authorizer", Value::authorizer(Rc::new(OnlyList)))
}

#[test]
fn policies() {
    let environment = Environment::new()
        .constructing_objects()
        .variable("variables", Decl::new(Type::Dyn))
        .variable(
            "authorizer",
            Decl::new(Type::opaque("kubernetes.authorization.Authorizer")),
        );
    for (source, expected) in [
        ("variables.four + 1", "5"),
        ("variables.broken", "\"no such key: a\""),
        ("has(variables.four)", "true"),
        ("has(variables.nine)", "false"),
        ("variables.nine", "\"no such key: nine\""),
        (
            "authorizer.group('').resource('pods').namespace('a').check('list').allowed()",
            "true",
        ),
        ("authorizer.group('').resource('pods').check('get').allowed()", "false"),
        (
            "authorizer.serviceAccount('ns', 'sa').group('apps').resource('deployments').namespace('x').check('get').reason()",
            "\"Some((\\\"ns\\\", \\\"sa\\\")) apps/deployments.x\"",
        ),
        ("authorizer.path('/healthz').check('get').errored()", "true"),
        ("authorizer.path('/healthz').check('get').error()", "\"/healthz\""),
        (
            "authorizer.path(' ').check('get').allowed()",
            "\"path must not be empty\"",
        ),
        (
            "authorizer.group('').resource('').check('get').allowed()",
            "\"resource must not be empty\"",
        ),
        (
            "authorizer.serviceAccount('N', 'sa').group('').resource('a').check('get').allowed()",
            "\"Invalid service account namespace\"",
        ),
        (
            "Object{spec: Object.spec{replicas: 1 + 1, ?paused: optional.none()}}",
            r#"{"spec":{"replicas":2}}"#,
        ),
        ("Object{}", "{}"),
        (
            "Object{metadata: Object.metadata{labels: {'a': 'b'}}}.metadata.labels.a",
            "\"b\"",
        ),
        ("has(Object{}.metadata)", "false"),
        ("JSONPatch{op: 'add'}.op", "\"add\""),
        (
            "Object{a: quantity('1')}",
            "\"type conversion error from 'Quantity' to '*structpb.Value'\"",
        ),
        (
            "[JSONPatch{op: dyn(1)}]",
            "\"unexpected type int64 for JSONPatchType 'op' field\"",
        ),
        (
            "[JSONPatch{value: duration('1h')}, JSONPatch{value: b'abc'}]",
            r#"[{"value":"3600s"},{"value":"YWJj"}]"#,
        ),
        ("Object{a: 1} == Object{a: 1}", "true"),
        (
            "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('x/y~z'), value: [1, 2]}]",
            r#"[{"op":"add","path":"/metadata/labels/x~1y~0z","value":[1,2]}]"#,
        ),
    ] {
        let program = compile(source, &environment).unwrap_or_else(|issues| panic!("{source}: {issues}"));
        let result = evaluate(&program, &policy_variables(), &Patterns::default(), PER_CALL_LIMIT).result;
        let json = result.and_then(|value| value.to_json());
        let got = json.unwrap_or_else(|error| Json::String(error.to_string()));
        assert_eq!(got.to_string(), expected, "{source}");
    }
}

#[test]
fn types_of_constructed_objects() {
    let environment = Environment::new().constructing_objects();
    for (source, expected) in [
        (
            "Object{metadata: Object.metadata{labels: Object.metadata.labels{a: 'b'}}}",
            Ok(()),
        ),
        ("Object{items: [Object.items{a: 1}]}", Ok(())),
        (
            "Object{metadata: Object.foo{labels: {'a': 'b'}}}",
            Err(
                "unexpected type name \"Object.foo\", expected \"Object.metadata\", which matches field name path from root \
                 Object type",
            ),
        ),
    ] {
        let program = compile(source, &environment).unwrap_or_else(|issues| panic!("{source}: {issues}"));
        let value = evaluate(&program, &Bindings::new(), &Patterns::default(), PER_CALL_LIMIT).result;
        let checked = value.expect("a constructed object").check_type_names();
        assert_eq!(checked, expected.map_err(str::to_owned), "{source}");
    }
}

/// How often an expression may be repeated in one evaluation tells its cost in the API server.
#[test]
fn costs_of_the_api_server() {
    #[derive(Deserialize)]
    struct Costs {
        turns: Vec<(String, u64)>,
    }
    let costs: Costs = serde_json::from_str(include_str!("../../testdata/cel_costs.json")).expect("the table is JSON");
    let environment = Environment::new().variable("object", Decl::new(Type::Dyn));
    let mut wrong = Vec::new();
    for (expression, expected) in &costs.turns {
        let turn = format!("lists.range(1000).size() == 1000 && (({expression}) || true)");
        let source = format!("lists.range(int(object.data.n)).all(x, {turn})");
        let program = compile(&source, &environment).unwrap_or_else(|issues| panic!("{source}: {issues}"));
        let cost = |turns: u64| {
            let object = serde_json::json!({
                "metadata": {"name": "c", "labels": {"a": "b", "c": "d"}},
                "data": {"n": turns.to_string(), "s": "abcdefghijklmnopqrstuvwxyz"},
            });
            let variables = Bindings::new().with("object", Value::from_json(&object));
            evaluate(&program, &variables, &Patterns::default(), PER_CALL_LIMIT).cost
        };
        // Every turn costs the same: some text of a number has as many digits as others.
        let (five, six) = (cost(5), cost(6));
        let each = six - five;
        let most = (PER_CALL_LIMIT - (five - 5 * each)) / each;
        if most != *expected {
            wrong.push(format!("{expression}: {most} turns of {each}, not {expected}"));
        }
    }
    assert!(costs.turns.len() > 40 && wrong.is_empty(), "{}", wrong.join("\n"));
}
