//! The functions that expressions may call: names, overloads and their types, as data.
//!
//! `data/cel-functions.txt` has one line per overload: `id = name(types) -> type`; a dot before the name says that the
//! first type is a receiver (`'a'.size()`). Checker, cost estimator and interpreter share the table; the behaviour of a
//! function is told apart by the overload's id. It is the set of Kubernetes 1.36: the standard library with mixed
//! numeric comparisons and optional types, strings (version 2), lists (version 3), sets, two-variable comprehensions,
//! and Kubernetes' own.
//!
//! Invariant: the overloads of one name stand in the order in which they are tried.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::types::Type;
use kubewright_values::budget;

/// A function: a name with its overloads.
#[derive(Debug)]
pub struct Function {
    /// The name as it is called, such as `size`, `sets.contains` or an operator's (`_+_`).
    pub name: &'static str,
    /// The overloads, in the order in which they are tried.
    pub overloads: Vec<&'static Overload>,
}

/// One signature of a function.
#[derive(Debug, PartialEq)]
pub struct Overload {
    /// The name that tells it apart, such as `add_int64`.
    pub id: &'static str,
    /// The function's name.
    pub function: &'static str,
    /// Called in the style of a method; then the first of [`args`](Self::args) is the receiver.
    pub member: bool,
    /// The types of receiver and arguments.
    pub args: Vec<Type>,
    /// The type of the result.
    pub result: Type,
    /// The names of the type parameters in the order of their first use.
    pub params: Vec<Arc<str>>,
}

/// The function of that name.
///
/// ```
/// use kubewright_cel::decls;
///
/// let overloads: Vec<_> = decls::function("@in").expect("an operator").overloads.iter().map(|o| o.id).collect();
/// assert_eq!(overloads, ["in_list", "in_map"]);
/// assert!(decls::function("launch").is_none());
/// ```
pub fn function(name: &str) -> Option<&'static Function> {
    TABLE.get(name)
}

/// All functions by name.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    TABLE.values()
}

const TEXT: &str = include_str!("../data/cel-functions.txt");

static OVERLOADS: LazyLock<Vec<Overload>> = LazyLock::new(|| {
    budget::unlimited(|| {
        TEXT.lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| overload(line).expect("the table is constant and its test reads every line"))
            .collect()
    })
});

static TABLE: LazyLock<BTreeMap<&'static str, Function>> = LazyLock::new(|| {
    budget::unlimited(|| {
        let mut table = BTreeMap::new();
        for overload in OVERLOADS.iter() {
            table
                .entry(overload.function)
                .or_insert_with(|| Function {
                    name: overload.function,
                    overloads: Vec::new(),
                })
                .overloads
                .push(overload);
        }
        table
    })
});

/// Reads one line of the table.
fn overload(line: &'static str) -> Option<Overload> {
    let (id, rest) = line.split_once(" = ")?;
    let (call, result) = rest.rsplit_once(" -> ")?;
    let (name, args) = call.strip_suffix(')')?.split_once('(')?;
    let mut params = Vec::new();
    let args = split(args)
        .into_iter()
        .map(|arg| parse_type(arg, &mut params))
        .collect::<Option<_>>()?;
    Some(Overload {
        id,
        function: name.strip_prefix('.').unwrap_or(name),
        member: name.starts_with('.'),
        args,
        result: parse_type(result, &mut params)?,
        params,
    })
}

/// The parts of a list of types, at commas outside of parentheses.
fn split(text: &'static str) -> Vec<&'static str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text.is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}

/// A type as the table writes it: `int`, `list(A)`, `optional(V)`, `net.IP`.
fn parse_type(text: &'static str, params: &mut Vec<Arc<str>>) -> Option<Type> {
    if let Some((name, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let inner: Vec<Type> = split(inner)
            .into_iter()
            .map(|part| parse_type(part, params))
            .collect::<Option<_>>()?;
        return match (name, <[Type; 1]>::try_from(inner)) {
            ("list", Ok([element])) => Some(Type::list(element)),
            ("optional", Ok([value])) => Some(Type::optional(value)),
            ("type", Ok([named])) => Some(Type::type_of(named)),
            ("map", Err(pair)) => {
                let [key, value] = <[Type; 2]>::try_from(pair).ok()?;
                Some(Type::map(key, value))
            }
            _ => None,
        };
    }
    Some(match text {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "dyn" => Type::Dyn,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        _ if text.len() == 1 => {
            let name: Arc<str> = text.into();
            if !params.contains(&name) {
                params.push(name.clone());
            }
            Type::Param(name)
        }
        _ if text.contains('.') => Type::opaque(text),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_line_reads_and_ids_are_unique() {
        let lines = TEXT.lines().filter(|line| !line.starts_with('#')).count();
        let ids: BTreeSet<&str> = OVERLOADS.iter().map(|overload| overload.id).collect();
        assert_eq!((OVERLOADS.len(), ids.len()), (lines, lines));
        let insert = function("cel.@mapInsert").expect("in the table").overloads[0];
        assert_eq!(insert.args[0].to_string(), "map(K, V)");
        assert_eq!(insert.params.len(), 2);
        assert!(function("size").is_some_and(|size| size.overloads.iter().any(|overload| overload.member)));
    }
}
