//! Types that contain themselves. Go allows them through pointers, lists and maps; Rust needs a `Box` in place of a
//! pointer; a structural schema cannot express them.
//!
//! controller-gen leaves the schema of the inner type empty (`{}`), and an API server refuses that definition, since
//! every schema needs a type. Here the field that closes a circle takes any value in the schema, and keeps its type in
//! Rust.

use std::collections::{BTreeMap, BTreeSet};

use super::checks::Spot;
use super::embedded::is_of_kinds;
use super::fields::is_in_json;
use super::go::{Doc, Field, File, Type};
use super::types::Package;

/// A type: the import path of its package, and its name.
type Name = (String, String);

/// How a type holds another one.
#[derive(Clone, Copy, PartialEq)]
enum Through {
    Value,
    Pointer,
    /// A list or map, whose items are on the heap in Rust as well.
    Heap,
}

struct Edge {
    to: Name,
    through: Through,
    at: Spot,
    /// Whether the schema ends here.
    is_schemaless: bool,
    /// Whether the field is left out of JSON, and therefore of Rust.
    is_hidden: bool,
}

/// The places that need another type or schema because of circles.
#[derive(Default)]
pub(super) struct Circles {
    /// Fields whose type needs a box.
    pub(super) boxed: BTreeSet<Spot>,
    /// Fields that close a circle.
    pub(super) closed: BTreeSet<Spot>,
    /// Types that contain themselves by value, which Go refuses.
    pub(super) endless: Vec<(Spot, String)>,
}

impl Circles {
    pub(super) fn of(packages: &BTreeMap<String, Package<'_>>) -> Circles {
        let mut graph: BTreeMap<Name, Vec<Edge>> = BTreeMap::new();
        let mut kinds = Vec::new();
        for (import, package) in packages {
            for (name, (decl, file)) in &package.types {
                let from = (import.clone(), name.clone());
                let writes_itself = package.marshallers.contains_key(name);
                let mut edges = Vec::new();
                if !writes_itself && !decl.is_generic {
                    let at = (file.path.clone(), decl.line);
                    let way = Way::of(import, file, &decl.doc, at);
                    walk(&way, &decl.of, Through::Value, &mut edges);
                }
                if is_of_kinds(&decl.of) {
                    kinds.push(from.clone());
                }
                graph.insert(from, edges);
            }
        }
        let mut made = Circles::default();
        for (from, edges) in &graph {
            let by_value = |edge: &Edge| edge.through == Through::Value;
            if edges
                .iter()
                .any(|edge| by_value(edge) && reaches(&graph, &edge.to, from, by_value))
            {
                let (decl, file) = packages[&from.0].types[&from.1];
                made.endless.push(((file.path.clone(), decl.line), from.1.clone()));
            }
            let in_place = |edge: &Edge| edge.through != Through::Heap && !edge.is_hidden;
            let boxed = edges
                .iter()
                .filter(|edge| in_place(edge) && reaches(&graph, &edge.to, from, in_place));
            made.boxed.extend(boxed.map(|edge| edge.at.clone()));
        }
        let mut done = BTreeSet::new();
        for name in kinds.iter().chain(graph.keys()) {
            close(&graph, name, &mut done, &mut made.closed);
        }
        made
    }
}

/// The field or declaration whose type is searched for others.
struct Way<'w> {
    import: &'w str,
    file: &'w File,
    at: Spot,
    is_schemaless: bool,
    is_hidden: bool,
}

impl<'w> Way<'w> {
    fn of(import: &'w str, file: &'w File, doc: &Doc, at: Spot) -> Way<'w> {
        Way {
            import,
            file,
            at,
            is_schemaless: doc.is_schemaless(),
            is_hidden: false,
        }
    }

    /// The way of a field within the type.
    fn field(&self, field: &Field) -> Way<'w> {
        let at = (self.file.path.clone(), field.line);
        Way {
            is_hidden: self.is_hidden || !is_in_json(field),
            ..Way::of(self.import, self.file, &field.doc, at)
        }
    }
}

/// The types that a type holds.
fn walk(way: &Way<'_>, of: &Type, through: Through, into: &mut Vec<Edge>) {
    let mut push = |to: Name| {
        into.push(Edge {
            to,
            through,
            at: way.at.clone(),
            is_schemaless: way.is_schemaless,
            is_hidden: way.is_hidden,
        });
    };
    let deeper = |next: Through| if through == Through::Value { next } else { through };
    match of {
        Type::Pointer(inner) => walk(way, inner, deeper(Through::Pointer), into),
        // Rust has lists for Go's arrays, which hold their items by value.
        Type::Array(inner) => walk(way, inner, through, into),
        Type::List(inner) | Type::Map(_, inner) => walk(way, inner, Through::Heap, into),
        Type::Struct(fields) => {
            for field in fields {
                walk(&way.field(field), &field.of, through, into);
            }
        }
        Type::Named { package: None, name } => push((way.import.to_owned(), name.clone())),
        Type::Named {
            package: Some(package),
            name,
        } => {
            if let Some(import) = way.file.imports.get(package) {
                push((import.clone(), name.clone()));
            }
        }
        Type::Other(_) => {}
    }
}

/// Whether one type leads to another over the edges that `by` accepts.
fn reaches(graph: &BTreeMap<Name, Vec<Edge>>, from: &Name, to: &Name, by: impl Fn(&Edge) -> bool) -> bool {
    let mut pending = vec![from];
    let mut seen = BTreeSet::new();
    while let Some(name) = pending.pop() {
        if name == to {
            return true;
        }
        if seen.insert(name) {
            let edges = graph.get(name).into_iter().flatten();
            pending.extend(edges.filter(|edge| by(edge)).map(|edge| &edge.to));
        }
    }
    false
}

/// Finds the edges that lead back to a type above. It is no recursion, since a project may chain any number of types.
fn close<'g>(
    graph: &'g BTreeMap<Name, Vec<Edge>>,
    root: &'g Name,
    done: &mut BTreeSet<&'g Name>,
    closed: &mut BTreeSet<Spot>,
) {
    let edges = |name: &Name| {
        let edges = graph.get(name).into_iter().flatten();
        edges.filter(|edge| !edge.is_schemaless && !edge.is_hidden)
    };
    if !done.insert(root) {
        return;
    }
    let mut above = BTreeSet::from([root]);
    let mut pending = vec![(root, edges(root))];
    while let Some((name, rest)) = pending.last_mut() {
        match rest.next() {
            Some(edge) if above.contains(&edge.to) => {
                closed.insert(edge.at.clone());
            }
            Some(edge) => {
                if done.insert(&edge.to) {
                    above.insert(&edge.to);
                    pending.push((&edge.to, edges(&edge.to)));
                }
            }
            None => {
                above.remove(name);
                pending.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_many_types_is_closed_once() {
        const COUNT: usize = 100_000;
        let name = |at: usize| ("v1".to_owned(), format!("T{}", at % COUNT));
        let edge = |at: usize| Edge {
            to: name(at + 1),
            through: Through::Pointer,
            at: ("types.go".to_owned(), at),
            is_schemaless: false,
            is_hidden: false,
        };
        let graph: BTreeMap<Name, Vec<Edge>> = (0..COUNT).map(|at| (name(at), vec![edge(at)])).collect();
        let mut closed = BTreeSet::new();
        let mut done = BTreeSet::new();
        for root in graph.keys() {
            close(&graph, root, &mut done, &mut closed);
        }
        assert_eq!(closed, BTreeSet::from([("types.go".to_owned(), COUNT - 1)]));
    }
}
