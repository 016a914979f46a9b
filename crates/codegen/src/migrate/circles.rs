//! Types that contain themselves. Go has them behind pointers, lists and maps; Rust needs a box behind a pointer; a
//! structural schema cannot have them at all.
//!
//! controller-gen leaves the schema of the inner one empty (`{}`), and an API server refuses that definition, since
//! every schema has a type. Here the field that closes a circle is any value in the schema, and keeps its type in Rust.

use std::collections::{BTreeMap, BTreeSet};

use super::embedded::is_of_kinds;
use super::go::{Doc, File, Type};
use super::types::Package;

/// A field or declaration: its file and line.
pub(super) type Spot = (String, usize);

/// A type: the import path of its package, and its name.
type Name = (String, String);

/// How a type holds another one.
#[derive(Clone, Copy, PartialEq)]
enum Through {
    Value,
    Pointer,
    /// A list or map, which Rust puts elsewhere, too.
    Heap,
}

struct Edge {
    to: Name,
    through: Through,
    at: Spot,
    /// Whether the schema ends here.
    is_schemaless: bool,
}

/// What circles ask for.
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
                    walk(import, file, &decl.of, Through::Value, (&decl.doc, at), &mut edges);
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
            let in_place = |edge: &Edge| edge.through != Through::Heap;
            let boxed = edges
                .iter()
                .filter(|edge| in_place(edge) && reaches(&graph, &edge.to, from, in_place));
            made.boxed.extend(boxed.map(|edge| edge.at.clone()));
        }
        let mut done = BTreeSet::new();
        for name in kinds.iter().chain(graph.keys()) {
            close(&graph, name, &mut Vec::new(), &mut done, &mut made.closed);
        }
        made
    }
}

/// The types that a type holds.
fn walk(import: &str, file: &File, of: &Type, through: Through, at: (&Doc, Spot), into: &mut Vec<Edge>) {
    let mut push = |to: Name| {
        let is_schemaless =
            at.0.markers
                .iter()
                .any(|marker| marker.contains("validation:Schemaless"));
        let at = at.1.clone();
        into.push(Edge {
            to,
            through,
            at,
            is_schemaless,
        });
    };
    let deeper = |next: Through| if through == Through::Value { next } else { through };
    match of {
        Type::Pointer(inner) => walk(import, file, inner, deeper(Through::Pointer), at, into),
        // Rust has lists for Go's arrays, which hold their items by value.
        Type::Array(inner) => walk(import, file, inner, through, at, into),
        Type::List(inner) | Type::Map(_, inner) => walk(import, file, inner, Through::Heap, at, into),
        Type::Struct(fields) => {
            for field in fields {
                let at = (&field.doc, (file.path.clone(), field.line));
                walk(import, file, &field.of, through, at, into);
            }
        }
        Type::Named { package: None, name } => push((import.to_owned(), name.clone())),
        Type::Named {
            package: Some(package),
            name,
        } => {
            if let Some(import) = file.imports.get(package) {
                push((import.clone(), name.clone()));
            }
        }
        Type::Other(_) => {}
    }
}

/// Whether one type holds another, by edges of some kind.
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

/// Finds the edges that lead back to a type above.
fn close<'g>(
    graph: &'g BTreeMap<Name, Vec<Edge>>,
    name: &'g Name,
    above: &mut Vec<&'g Name>,
    done: &mut BTreeSet<&'g Name>,
    closed: &mut BTreeSet<Spot>,
) {
    if done.contains(name) {
        return;
    }
    above.push(name);
    for edge in graph.get(name).into_iter().flatten().filter(|edge| !edge.is_schemaless) {
        if above.contains(&&edge.to) {
            closed.insert(edge.at.clone());
        } else {
            close(graph, &edge.to, above, done, closed);
        }
    }
    above.pop();
    done.insert(name);
}
