//! The bounds of the interpreter itself. Not here: expressions with recorded answers, which need schemas
//! (`kubewright-schema`).

use kubewright_values::Minor;

use super::{Bindings, Error, MAX_DEPTH, PER_CALL_LIMIT, Patterns, evaluate, evaluate_expr};
use crate::ast::{Call, Expr, ExprKind, Literal, op};
use crate::{Environment, compile};

/// Deeper than the parser goes: the interpreter has a limit of its own.
#[test]
fn trees_are_bounded() {
    for wrap in [
        |inner: Expr| ExprKind::List {
            elements: vec![inner],
            optional: Vec::new(),
        },
        |inner: Expr| {
            let literal = |value| Expr::new(0, 0, ExprKind::Literal(Literal::Bool(value)));
            ExprKind::Call(Call {
                function: op::CONDITIONAL.into(),
                target: None,
                args: vec![literal(true), inner, literal(false)],
                overloads: Vec::new(),
            })
        },
        |inner: Expr| {
            ExprKind::Call(Call {
                function: op::NOT.into(),
                target: None,
                args: vec![inner],
                overloads: Vec::new(),
            })
        },
    ] {
        for (depth, deep) in [(MAX_DEPTH / 2 - 2, false), (3 * MAX_DEPTH, true)] {
            let mut expr = Expr::new(0, 0, ExprKind::Literal(Literal::Bool(true)));
            for _ in 0..depth {
                expr = Expr::new(0, 0, wrap(expr));
            }
            let outcome = evaluate_expr(&expr, &Bindings::new(), &Patterns::default(), PER_CALL_LIMIT);
            assert_eq!(outcome.result.err() == Some(Error::TooDeep), deep);
        }
    }
}

/// As the policies of kube-apiserver 1.36.3 and 1.37.2 answer.
#[test]
fn functions_are_those_of_the_version() {
    let check = |minor, source: &str, expected: &str| {
        let program = compile(source, &Environment::new()).expect(source);
        let found = evaluate(&program, &Bindings::new(), &Patterns::of(minor), PER_CALL_LIMIT).result;
        let found = found.map_or_else(|error| error.to_string(), |value| value.to_string());
        assert_eq!(found, expected, "{source} at {minor}");
    };
    let negative = "lists.range: size must be non-negative, got -1";
    for (source, older, newer) in [
        ("lists.range(-1).size()", "0", negative),
        ("lists.range(2).size()", "2", "2"),
        (
            "lists.range(1000001).size()",
            "operation cancelled: actual cost limit exceeded",
            "lists.range: size 1000001 exceeds maximum allowed (1000000)",
        ),
        ("dyn(1).orValue(2)", "1", "no such overload"),
        (
            "dyn(1).or(optional.of(2)).value()",
            "no such overload: value(int)",
            "no such overload",
        ),
        ("optional.of(1).or(optional.of(2)).value()", "1", "1"),
        ("optional.none().orValue(2)", "2", "2"),
        ("'abc'.indexOf('', 2)", "2", "2"),
        ("'abc'.indexOf('', 4)", "4", "3"),
        ("'abc'.lastIndexOf('', 4)", "4", "3"),
        ("'abc'.indexOf('', -1)", "-1", "index out of range: -1"),
        ("'abc'.lastIndexOf('', -1)", "-1", "index out of range: -1"),
    ] {
        check(Minor::V36, source, older);
        check(Minor::V37, source, newer);
    }
}
