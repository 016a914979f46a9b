//! The bounds of the interpreter itself. Not here: expressions with recorded answers, which need schemas
//! (`kubewright-schema`).

use super::{Bindings, Error, MAX_DEPTH, PER_CALL_LIMIT, Patterns, evaluate_expr};
use crate::ast::{Call, Expr, ExprKind, Literal, op};

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
