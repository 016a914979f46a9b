//! Errors in an expression whose types fit: literals that their function would refuse at every call, and lists and maps
//! of mixed types.

use super::super::Issue;
use super::super::ast::{Entry, Expr, ExprKind};
use super::super::eval::{Bindings, PER_CALL_LIMIT, Patterns, evaluate_expr};
use super::super::library::{formatting, regex};
use super::super::types::Type;

/// Reports them. The tree must be checked, and have these types.
pub(super) fn validate(expr: &Expr, types: &[Type]) -> Vec<Issue> {
    let mut issues = Vec::new();
    for function in ["duration", "timestamp", "matches"] {
        expr.walk(&mut |expr| argument(expr, function, &mut issues));
    }
    let mut mixed = Mixed {
        types,
        lists: Vec::new(),
        maps: Vec::new(),
    };
    mixed.walk(expr);
    issues.append(&mut mixed.lists);
    issues.append(&mut mixed.maps);
    expr.walk(&mut |expr| format_call(expr, types, &mut issues));
    issues
}

/// `'%d'.format([x])` with both literals: the types must fit the clauses.
fn format_call(expr: &Expr, types: &[Type], issues: &mut Vec<Issue>) {
    let ExprKind::Call(call) = &expr.kind else { return };
    let (Some(target), [args]) = (&call.target, call.args.as_slice()) else {
        return;
    };
    let (Some(text), ExprKind::List { elements, .. }, "format") = (target.as_str(), &args.kind, &*call.function) else {
        return;
    };
    let type_of = |expr: &Expr| types.get(expr.id as usize).cloned().unwrap_or(Type::Dyn);
    if let Err((arg, message)) = formatting::check(text, elements, &type_of) {
        let offset = arg.map_or(expr.offset, |arg| arg.offset);
        issues.push(Issue { offset, message });
    }
}

fn argument(expr: &Expr, function: &str, issues: &mut Vec<Issue>) {
    let ExprKind::Call(call) = &expr.kind else { return };
    let Some(literal) = call.args.first().filter(|_| &*call.function == function) else {
        return;
    };
    if !matches!(literal.kind, ExprKind::Literal(_)) {
        return;
    }
    let valid = match literal.as_str() {
        Some(text) if function == "matches" => regex::compile(text).is_ok(),
        _ => {
            let alone = (&Bindings::new(), &Patterns::default());
            evaluate_expr(expr, alone.0, alone.1, PER_CALL_LIMIT).result.is_ok()
        }
    };
    if !valid {
        issues.push(Issue {
            offset: literal.offset,
            message: format!("invalid {function} argument"),
        });
    }
}

/// Looks for lists and maps of mixed types, everywhere but in the arguments of `format`.
struct Mixed<'a> {
    types: &'a [Type],
    lists: Vec<Issue>,
    maps: Vec<Issue>,
}

impl Mixed<'_> {
    fn type_of(&self, expr: &Expr) -> &Type {
        self.types.get(expr.id as usize).unwrap_or(&Type::Dyn)
    }

    fn walk(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) | ExprKind::TypeName(_) => {}
            ExprKind::Select { operand, .. } => self.walk(operand),
            ExprKind::Call(call) if &*call.function == "format" => {}
            ExprKind::Call(call) => {
                call.target.iter().for_each(|target| self.walk(target));
                call.args.iter().for_each(|arg| self.walk(arg));
            }
            ExprKind::List { elements, optional } => {
                self.list(elements, optional);
                elements.iter().for_each(|element| self.walk(element));
            }
            ExprKind::Map(entries) | ExprKind::Struct { entries, .. } => {
                if matches!(expr.kind, ExprKind::Map(_)) {
                    self.map(entries);
                }
                for entry in entries {
                    self.walk(&entry.key);
                    self.walk(&entry.value);
                }
            }
            ExprKind::Comprehension(inner) => {
                for part in [
                    &inner.range,
                    &inner.accu_init,
                    &inner.condition,
                    &inner.step,
                    &inner.result,
                ] {
                    self.walk(part);
                }
            }
        }
    }

    fn list(&mut self, elements: &[Expr], optional: &[usize]) {
        let Some(first) = elements.first() else { return };
        let first = unwrap(self.type_of(first), optional.first() == Some(&0)).clone();
        let other = elements
            .iter()
            .enumerate()
            .map(|(at, element)| {
                (
                    element,
                    unwrap(self.type_of(element), optional.binary_search(&at).is_ok()),
                )
            })
            .find(|(_, ty)| !equivalent(&first, ty));
        if let Some((element, ty)) = other {
            let issue = mismatch(element, &first, ty);
            self.lists.push(issue);
        }
    }

    fn map(&mut self, entries: &[Entry]) {
        let Some((first, rest)) = entries.split_first() else {
            return;
        };
        let value_type = |entry: &Entry| unwrap(self.type_of(&entry.value), entry.optional).clone();
        let (key, value) = (self.type_of(&first.key).clone(), value_type(first));
        let mut issues = Vec::new();
        for entry in rest {
            let of_key = self.type_of(&entry.key);
            if !equivalent(&key, of_key) {
                issues.push(mismatch(&entry.key, &key, of_key));
            }
            let of_value = value_type(entry);
            if !equivalent(&value, &of_value) {
                issues.push(mismatch(&entry.value, &value, &of_value));
            }
        }
        self.maps.append(&mut issues);
    }
}

fn unwrap(ty: &Type, optional: bool) -> &Type {
    match ty {
        Type::Optional(inner) if optional => inner,
        other => other,
    }
}

/// The same type; the types inside of it count, too.
fn equivalent(a: &Type, b: &Type) -> bool {
    kubewright_values::budget::spend(1);
    match (a, b) {
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => equivalent(a, b),
        (Type::Map(k1, v1), Type::Map(k2, v2)) => equivalent(k1, k2) && equivalent(v1, v2),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}

fn mismatch(at: &Expr, expected: &Type, found: &Type) -> Issue {
    Issue {
        offset: at.offset,
        message: format!("expected type '{expected}' but found '{found}'"),
    }
}
