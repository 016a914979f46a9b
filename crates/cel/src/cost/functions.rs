//! The cost of each function.
//!
//! Kubernetes' own rules come first, then those of the language; a function that neither names costs one. The numbers
//! decide which definitions may be written, so they never change.

use super::super::ast::{Expr, ExprKind, Literal};
use super::super::decls::Overload;
use super::super::types::Type;
use super::{Arg, CREATE_LIST, CallCost, Estimator, REGEX, Range, TRAVERSAL};

/// An authorization check: two fit into one expression.
const CHECK: u64 = 350_000;
/// The longest regular expression of a named format.
const FORMAT_REGEX: f64 = 128.0;
/// The longest named format.
const FORMAT_SIZE: u64 = 64;

const ONE: Range = Range::exactly(1);

fn only(cost: Range) -> Option<CallCost> {
    Some(CallCost { cost, result: None })
}

fn sized(cost: Range, result: Range) -> Option<CallCost> {
    Some(CallCost {
        cost,
        result: Some(result),
    })
}

impl<'a> Estimator<'a> {
    pub(super) fn function_cost(
        &mut self,
        expr: &Expr,
        overload: &Overload,
        target: Option<&Arg<'a>>,
        args: &[Arg<'a>],
        costs: &[Range],
    ) -> CallCost {
        let args_cost = costs.iter().fold(Range::default(), |sum, cost| sum.plus(*cost));
        if let Some(cost) = self.logic_cost(expr, overload.id, args, costs) {
            return cost;
        }
        let own = self
            .sets_cost(overload.id, args)
            .or_else(|| lists_cost(overload.id, target, args))
            .or_else(|| self.library_cost(overload, target, args))
            .or_else(|| self.language_cost(expr, overload.id, target, args))
            .unwrap_or(CallCost {
                cost: ONE,
                result: None,
            });
        CallCost {
            cost: own.cost.plus(args_cost),
            result: own.result,
        }
    }

    /// Functions that do not always look at every argument.
    fn logic_cost(&mut self, expr: &Expr, id: &str, args: &[Arg<'a>], costs: &[Range]) -> Option<CallCost> {
        match (id, costs) {
            ("logical_or" | "logical_and", [left, right]) => only(Range {
                min: left.min,
                max: left.plus(*right).max,
            }),
            ("conditional", [condition, yes, no]) => {
                let size = known(&args[1]).union(known(&args[2]));
                if let (Some(yes), Some(no)) = (self.entries_of(args[1].expr), self.entries_of(args[2].expr)) {
                    self.entries.insert(expr.id, yes.union(no));
                }
                sized(condition.plus(yes.union(*no)), size)
            }
            _ => None,
        }
    }

    fn sets_cost(&self, id: &str, args: &[Arg<'a>]) -> Option<CallCost> {
        let factor = match id {
            "list_sets_contains_list" | "list_sets_intersects_list" => 1.0,
            "list_sets_equivalent_list" => 2.0,
            _ => return None,
        };
        let [left, right] = args else { return None };
        only(known(left).times(known(right)).scaled(factor).plus(ONE))
    }

    /// Kubernetes' rules.
    fn library_cost(&self, overload: &Overload, target: Option<&Arg<'a>>, args: &[Arg<'a>]) -> Option<CallCost> {
        let parse = |arg: &Arg<'_>| known(arg).scaled(TRAVERSAL);
        match (overload.function, target, args) {
            ("check", ..) => only(Range::exactly(CHECK)),
            (
                "serviceAccount"
                | "path"
                | "group"
                | "resource"
                | "subresource"
                | "namespace"
                | "name"
                | "allowed"
                | "reason"
                | "error"
                | "errored"
                | "masked"
                | "prefixLength"
                | "family"
                | "isUnspecified"
                | "isLoopback"
                | "isLinkLocalMulticast"
                | "isLinkLocalUnicast"
                | "isGlobalUnicast"
                | "format.named"
                | "sign"
                | "asInteger"
                | "isInteger"
                | "asApproximateFloat"
                | "isGreaterThan"
                | "isLessThan"
                | "compareTo"
                | "add"
                | "sub"
                | "major"
                | "minor"
                | "patch"
                | "getScheme"
                | "getHostname"
                | "getHost"
                | "getPort"
                | "getEscapedPath"
                | "getQuery",
                ..,
            ) => only(ONE),
            ("fieldSelector" | "labelSelector", _, [selector]) => only(selector_cost(known(selector))),
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                only(self.elements_cost(target))
            }
            ("url" | "jsonpatch.escapeKey", _, [text]) => sized(parse(text), known(text)),
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                sized(parse(target), known(target))
            }
            ("replace", Some(target), [from, to, ..]) => {
                let size = known(target);
                sized(
                    size.scaled(2.0 * TRAVERSAL),
                    replaced_size(size, known(from), known(to)),
                )
            }
            ("split", Some(target), args) => {
                let size = known(target);
                let limit = args.get(1).and_then(|limit| match limit.expr.kind {
                    #[expect(clippy::cast_sign_loss, reason = "a negative limit is no limit")]
                    ExprKind::Literal(Literal::Int(limit)) => Some(limit as u64),
                    _ => None,
                });
                let max = limit.unwrap_or(size.max);
                sized(size.scaled(2.0 * TRAVERSAL), Range { min: 0, max })
            }
            ("join", Some(target), args) => {
                let size = self.joined_size(target, args.first());
                sized(size.scaled(TRAVERSAL), size)
            }
            ("find" | "findAll", Some(target), [pattern, ..]) => {
                let size = known(target);
                sized(regex_cost(size, known(pattern)), Range { min: 0, max: size.max })
            }
            ("ip", ..) if overload.id == "cidr_ip" => only(ONE),
            ("ip.isCanonical", _, [text, ..]) => only(known(text).scaled(2.0 * TRAVERSAL)),
            ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", _, [text, ..]) => {
                only(parse(text))
            }
            ("containsIP" | "containsCIDR", _, [other, ..]) => only(contains_cost(overload, known(other))),
            ("validate", _, [text, ..]) => only(parse(text).scaled(FORMAT_REGEX * REGEX)),
            ("_==_", _, [left, right]) if left.ty == right.ty => self.equality_cost(left, right),
            _ => None,
        }
    }

    fn equality_cost(&self, left: &Arg<'a>, right: &Arg<'a>) -> Option<CallCost> {
        let Type::Opaque(name) = left.ty else { return None };
        match &**name {
            "kubernetes.NamedFormat" => only(
                Range {
                    min: 1,
                    max: FORMAT_SIZE,
                }
                .scaled(TRAVERSAL),
            ),
            "kubernetes.URL" => {
                let max = right.size.map_or(1, |size| size.max);
                only(Range { min: 1, max }.scaled(TRAVERSAL))
            }
            _ => only(ONE),
        }
    }

    /// Looking at each element of a list, or at each character of a string.
    fn elements_cost(&self, target: &Arg<'a>) -> Range {
        let Type::List(element) = target.ty else {
            return known(target).scaled(TRAVERSAL);
        };
        let mut each = ONE;
        if matches!(**element, Type::String | Type::Bytes) {
            each = each.plus(self.element_size(target).scaled(TRAVERSAL));
        }
        known(target).times(each)
    }

    fn element_size(&self, list: &Arg<'a>) -> Range {
        if list.path.is_empty() {
            return Range::UNKNOWN;
        }
        let mut path = list.path.clone();
        path.push("@items".into());
        self.declared_size(&path).unwrap_or(Range::UNKNOWN)
    }

    fn joined_size(&self, list: &Arg<'a>, separator: Option<&Arg<'a>>) -> Range {
        let count = known(list);
        let mut size = match list.ty {
            Type::List(_) => count.times(self.element_size(list)),
            _ => Range::default(),
        };
        if let Some(separator) = separator {
            let separators = Range {
                min: count.min.saturating_sub(1),
                max: count.max.saturating_sub(1),
            };
            size = size.plus(known(separator).times(separators));
        }
        size
    }

    /// The language's rules.
    fn language_cost(&mut self, expr: &Expr, id: &str, target: Option<&Arg<'a>>, args: &[Arg<'a>]) -> Option<CallCost> {
        match (id, target, args) {
            ("string_format", Some(target), _) => only(known(target).scaled(TRAVERSAL)),
            ("string_to_bytes", _, [text]) => {
                let size = known(text);
                let max = size.max.wrapping_mul(4);
                sized(size.scaled(TRAVERSAL), Range { min: size.min, max })
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = known(bytes);
                let min = size.min / 4;
                sized(size.scaled(TRAVERSAL), Range { min, max: size.max })
            }
            ("strings_quote", _, [text]) => {
                let size = known(text);
                let max = size.max.wrapping_mul(2).wrapping_add(2);
                let min = size.min + 2;
                sized(size.scaled(TRAVERSAL), Range { min, max })
            }
            ("starts_with_string" | "ends_with_string", _, [affix]) => only(known(affix).scaled(TRAVERSAL)),
            ("in_list", _, [_, list]) => only(known(list)),
            ("matches_string", Some(target), [pattern]) => only(regex_cost(known(target), known(pattern))),
            ("contains_string", Some(target), [part]) => {
                only(known(target).scaled(TRAVERSAL).times(known(part).scaled(TRAVERSAL)))
            }
            ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
                let size = known(left).plus(known(right));
                if let (Some(left), Some(right)) = (self.entries_of(left.expr), self.entries_of(right.expr)) {
                    self.entries.insert(expr.id, left.union(right));
                }
                let cost = if id == "add_list" { ONE } else { size.scaled(TRAVERSAL) };
                sized(cost, size)
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                [left, right],
            ) => {
                let max = known(left).max.min(known(right).max);
                only(
                    Range {
                        min: u64::from(max > 0),
                        max,
                    }
                    .scaled(TRAVERSAL),
                )
            }
            _ => None,
        }
    }
}

fn known(arg: &Arg<'_>) -> Range {
    arg.size.unwrap_or(Range::UNKNOWN)
}

/// Functions that make lists: as much as they look at, and a new list.
fn lists_cost(id: &str, target: Option<&Arg<'_>>, args: &[Arg<'_>]) -> Option<CallCost> {
    let make = |factor: f64, size: Range| sized(size.scaled(factor).plus(Range::exactly(1 + CREATE_LIST)), size);
    let number = |arg: &Arg<'_>, otherwise: u64| match arg.expr.kind {
        ExprKind::Literal(Literal::Int(number)) => u64::try_from(number).unwrap_or(0),
        _ => otherwise,
    };
    let squared = |list: &Arg<'_>| known(list).times(known(list));
    match (id, target, args) {
        ("list_slice", Some(list), [start, end]) => {
            let length = number(end, known(list).max).wrapping_sub(number(start, 0));
            make(1.0, Range::exactly(length))
        }
        ("list_flatten", Some(list), []) => make(1.0, known(list)),
        ("list_flatten_int", Some(list), [depth]) => {
            #[expect(clippy::cast_precision_loss, reason = "the estimate is made in floating point")]
            let depth = number(depth, u64::MAX) as f64;
            make(depth, known(list))
        }
        ("lists_range", _, [length]) => make(1.0, Range::exactly(number(length, u64::MAX))),
        ("list_reverse", Some(list), []) => make(1.0, known(list)),
        ("list_distinct", Some(list), []) => make(2.0, squared(list)),
        (id, Some(list), args) => {
            let (kind, list) = match (id.strip_suffix("_sort"), id.strip_suffix("_sortByAssociatedKeys"), args) {
                (Some(kind), _, []) => (kind, list),
                (_, Some(kind), [keys]) => (kind, keys),
                _ => return None,
            };
            let texts = matches!(kind, "list_string" | "list_bytes");
            make(if texts { 2.0 + TRAVERSAL } else { 2.0 }, squared(list))
        }
        _ => None,
    }
}

/// One is added to the text, so that an expensive expression on an empty text costs something.
fn regex_cost(text: Range, pattern: Range) -> Range {
    text.plus(ONE).scaled(TRAVERSAL).times(pattern.scaled(REGEX))
}

/// Parsing a selector, and making its requirements: one for every two characters at worst.
fn selector_cost(length: Range) -> Range {
    let requirements = length.scaled(0.5).scaled(50.0);
    Range::exactly(10).plus(length.scaled(TRAVERSAL)).plus(requirements)
}

/// Comparing two addresses of four or sixteen bytes; texts are parsed first.
fn contains_cost(overload: &Overload, other: Range) -> Range {
    let bytes = Range { min: 4, max: 16 };
    let mut cost = bytes.plus(bytes).scaled(TRAVERSAL);
    if overload.function == "containsCIDR" {
        cost = cost.plus(bytes.scaled(TRAVERSAL)).plus(ONE);
    }
    if overload.id.ends_with("_string") {
        cost = cost.plus(other.scaled(TRAVERSAL));
    }
    cost
}

/// The size of a text after replacing `from` by `to` everywhere.
fn replaced_size(size: Range, from: Range, to: Range) -> Range {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the estimate is made in floating point, and the cast saturates"
    )]
    let divide = |size: u64, by: u64| (size as f64 / by as f64).ceil() as u64;
    let (mut count, mut kept) = (Range::default(), Range::default());
    if from.min == 0 {
        // An empty text is replaced around every character.
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if to.max <= from.min {
        kept.max = size.max;
    } else {
        count.max = divide(size.max, from.min);
    }
    if from.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if from.max <= to.min {
        kept.min = size.min;
    } else {
        count.min = divide(size.min, from.max);
    }
    count.times(to).plus(kept)
}
