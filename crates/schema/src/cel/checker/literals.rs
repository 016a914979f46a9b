//! Literals that can only be wrong: durations, timestamps and regular expressions in the arguments of functions.

use super::super::Issue;
use super::super::ast::{Expr, ExprKind};

/// Reports the literals that their function would refuse whenever it is called. The tree must be checked.
pub(super) fn validate(expr: &Expr, issues: &mut Vec<Issue>) {
    for function in ["duration", "timestamp", "matches"] {
        expr.walk(&mut |expr| {
            let ExprKind::Call(call) = &expr.kind else { return };
            let Some(literal) = call.args.first().filter(|_| &*call.function == function) else {
                return;
            };
            if !matches!(literal.kind, ExprKind::Literal(_)) {
                return;
            }
            let valid = match literal.as_str() {
                Some(text) if function == "matches" => regex::Regex::new(text).is_ok(),
                _ => true,
            };
            if !valid {
                issues.push(Issue {
                    offset: literal.offset,
                    message: format!("invalid {function} argument"),
                });
            }
        });
    }
}
