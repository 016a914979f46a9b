//! The cost of an evaluation, counted as cel-go and Kubernetes count it.
//!
//! The unit is one step: reading a variable or a field, comparing two numbers. Functions that walk over a string cost a
//! tenth of its characters, functions over lists as much as they have elements. Not here: the estimate from schemas
//! ([`cost`](crate::cost)), which knows no values.

use crate::ast::{Expr, ExprKind, op};
use crate::value::opaque::Opaque;
use crate::value::{Key, Value};

/// The most that one evaluation of one expression may cost.
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// The most that the rules of one custom resource, or the expressions of one policy and binding, may cost together.
pub const RUNTIME_BUDGET: u64 = 10_000_000;

/// The error of rules and policies whose budget is used up.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The most that the match conditions of one webhook or policy may cost together.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;

pub(super) const LIST_CREATION: u64 = 10;
pub(super) const MAP_CREATION: u64 = 30;
pub(super) const OBJECT_CREATION: u64 = 40;

/// Per character of a string.
const STRING: f64 = 0.1;
/// Per character of a regular expression.
const REGEX: f64 = 0.25;

/// `⌈size × factor⌉`.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are far below the precision of a double"
)]
fn share(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// Whether the API server computes an expression once, when it compiles it: constant expressions are free.
pub(super) fn is_constant(expr: &Expr) -> bool {
    kubewright_values::budget::spend(1);
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::TypeName(_) => true,
        ExprKind::List { elements, .. } => elements.iter().all(is_constant),
        ExprKind::Map(entries) => entries
            .iter()
            .all(|entry| is_constant(&entry.key) && is_constant(&entry.value)),
        ExprKind::Call(call) => match (&*call.function, &call.target, call.args.as_slice()) {
            (
                "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "uint",
                None,
                [arg],
            ) => is_constant(arg),
            _ => false,
        },
        _ => false,
    }
}

/// Whether `x in list` is a look-up in a set of constants, which is free.
pub(super) fn is_set_lookup(function: &str, overload: Option<&str>, args: &[Expr], values: &[Value<'_>]) -> bool {
    let primitive = |value: &Value<'_>| {
        matches!(
            value,
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)
        )
    };
    function == op::IN
        && overload == Some("in_list")
        && args.get(1).is_some_and(is_constant)
        && matches!(values.get(1), Some(Value::List(list)) if list.iter().all(|item| item.is_ok_and(|item| primitive(&item))))
}

/// The cost of a call. `overload` is known when the checker found exactly one.
pub(super) fn call(function: &str, overload: Option<&str>, args: &[Value<'_>], result: Option<&Value<'_>>) -> u64 {
    let length = |at: usize| args.get(at).map_or(1, size);
    match function {
        "check" if matches!(args, [Value::Opaque(_), ..]) => return 350_000,
        "fieldSelector" | "labelSelector" => {
            // Parsing, and a requirement for every second character.
            return LIST_CREATION + share(length(1), STRING) + share(share(length(1), 0.5), 50.0);
        }
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => return args.first().map_or(0, traversal),
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => return share(length(0), STRING),
        "ip" if overload != Some("cidr_ip") => return share(length(0), STRING),
        "replace" | "split" | "ip.isCanonical" => return share(length(0), 2.0 * STRING),
        "join" => return share(result.map_or(1, size), 2.0 * STRING),
        "find" | "findAll" => return share(1 + length(0), STRING) * share(length(1), REGEX),
        "containsIP" | "containsCIDR" => {
            let mut cost = share(length(0) * 2, STRING);
            if function == "containsCIDR" {
                cost += share(length(0), STRING) + 1;
            }
            if matches!(overload, Some("cidr_contains_ip_string" | "cidr_contains_cidr_string")) {
                cost += share(length(1), STRING);
            }
            return cost;
        }
        "validate" => {
            if let Some(Value::Opaque(Opaque::Format(format))) = args.first() {
                return share(1 + length(1), STRING) * share(format.regex_size, REGEX);
            }
        }
        op::EQUALS if matches!(args.first(), Some(Value::Opaque(_))) => return 1,
        op::EQUALS | op::NOT_EQUALS => return share(length(0).min(length(1)), STRING),
        _ => {}
    }
    by_overload(overload, args, result)
}

fn by_overload(overload: Option<&str>, args: &[Value<'_>], result: Option<&Value<'_>>) -> u64 {
    let length = |at: usize| args.get(at).map_or(1, size);
    let allocating = |factor: f64, size: u64| floor(size, factor) + 1 + LIST_CREATION;
    match overload.unwrap_or_default() {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
        | "string_format" => share(length(0), STRING),
        "in_list" => length(1),
        "less_string"
        | "less_equals_string"
        | "greater_string"
        | "greater_equals_string"
        | "less_bytes"
        | "less_equals_bytes"
        | "greater_bytes"
        | "greater_equals_bytes" => share(length(0).min(length(1)), STRING),
        "add_string" | "add_bytes" => share(length(0) + length(1), STRING),
        "matches_string" => share(1 + length(0), STRING) * share(length(1), REGEX),
        "contains_string" => share(length(0), STRING) * share(length(1), STRING),
        "list_sets_contains_list" | "list_sets_intersects_list" => 1 + length(0) * length(1),
        "list_sets_equivalent_list" => 1 + length(0) * length(1) * 2,
        "list_slice" | "lists_range" | "list_reverse" => allocating(1.0, result.map_or(1, size)),
        "list_flatten" => allocating(1.0, length(0)),
        #[allow(clippy::cast_precision_loss, reason = "a depth is small")]
        "list_flatten_int" => match args.get(1) {
            Some(Value::Int(depth)) => allocating(*depth as f64, length(0)),
            _ => allocating(1.0, length(0)),
        },
        "list_distinct" => self_comparing(args.first()),
        id if id.ends_with("_sort") => self_comparing(args.first()),
        id if id.ends_with("_sortByAssociatedKeys") => self_comparing(args.get(1)),
        _ => 1,
    }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are far below the precision of a double"
)]
fn floor(size: u64, factor: f64) -> u64 {
    (size as f64 * factor) as u64
}

/// Every element is compared with every other.
fn self_comparing(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else { return 1 };
    let texts = matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_))));
    let length = list.len() as u64;
    let factor = if texts { 2.0 + STRING } else { 2.0 };
    floor(length.saturating_mul(length), factor) + 1 + LIST_CREATION
}

/// Characters, elements or entries; one for everything else.
pub(super) fn size(value: &Value<'_>) -> u64 {
    match value {
        Value::Optional(Some(inner)) => size(inner),
        other => other.size().unwrap_or(1),
    }
}

/// All that is in a value.
fn traversal(value: &Value<'_>) -> u64 {
    kubewright_values::budget::spend(1);
    match value {
        Value::String(text) => floor(text.len() as u64, STRING),
        Value::Bytes(bytes) => floor(bytes.len() as u64, STRING),
        Value::List(list) => list.iter().map(|item| item.map_or(1, |item| traversal(&item))).sum(),
        Value::Map(map) => map
            .entries()
            .map(|entry| {
                entry.map_or(1, |(key, value)| match &key {
                    Key::String(text) => floor(text.len() as u64, STRING) + traversal(&value),
                    _ => 1 + traversal(&value),
                })
            })
            .sum(),
        _ => 1,
    }
}
