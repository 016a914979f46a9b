//! Sets of fields: a trie of path elements, as `fieldsV1` writes it.
//!
//! An element is kept in its written form: `f:name` (a field), `k:{"port":80}` (an item of a list by its keys), `v:"x"`
//! (an item of a set), `i:0` (an item by its place). Keys are sorted and written without spaces, so that equal elements
//! are equal texts.
//!
//! Invariants: every node is a member or has members below it; the elements of a level are sorted and each is there
//! once. Levels are short and mostly read in order, so they are lists rather than trees.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::shape::Shape;
use super::written;
use crate::sorted::sort_by_text;
use crate::{budget, measure};

/// The memory of an element beside its text.
const NODE: usize = 72;

/// A set of paths into an object (`fieldpath.Set` upstream).
///
/// ```
/// use kubewright_schema::apply::FieldSet;
/// use serde_json::json;
///
/// let set = FieldSet::decode(&json!({"f:data": {".": {}, "f:a": {}}}))?;
/// assert_eq!(set.paths(), [".data", ".data.a"]);
/// assert_eq!(set.encode(), json!({"f:data": {".": {}, "f:a": {}}}));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: Vec<(String, Node)>,
}

/// The entry of one element in a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// Whether the path up to here is in the set.
    pub(super) member: bool,
    /// Longer paths.
    pub(super) children: FieldSet,
}

impl Node {
    pub(super) const LEAF: Node = Node {
        member: true,
        children: FieldSet { nodes: Vec::new() },
    };

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    fn join(&mut self, other: Node) {
        self.member |= other.member;
        self.children.extend(other.children);
    }
}

/// The element of a field.
pub(super) fn field(name: &str) -> String {
    let mut element = String::with_capacity("f:".len() + name.len());
    element.push_str("f:");
    element.push_str(name);
    element
}

impl FieldSet {
    /// The set of this one path of field names.
    pub fn of_path<'a>(path: impl DoubleEndedIterator<Item = &'a str>) -> FieldSet {
        let mut path = path.rev();
        let Some(last) = path.next() else {
            return FieldSet::default();
        };
        let of = |name: &str, node: Node| FieldSet {
            nodes: vec![(field(name), node)],
        };
        path.fold(of(last, Node::LEAF), |children, name| {
            budget::spend(1);
            of(
                name,
                Node {
                    member: false,
                    children,
                },
            )
        })
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The elements of the first level with their entries, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(element, node)| (element.as_str(), node))
    }

    /// The entry of an element.
    pub(super) fn get(&self, element: &str) -> Option<&Node> {
        let at = self.find(element).ok()?;
        Some(&self.nodes[at].1)
    }

    /// Where an element is, or where it would be.
    fn find(&self, element: &str) -> Result<usize, usize> {
        match self.nodes.last() {
            // Most sets are made in order.
            Some((last, _)) if last.as_str() < element => Err(self.nodes.len()),
            _ => self.nodes.binary_search_by(|(known, _)| known.as_str().cmp(element)),
        }
    }

    /// Puts a node in, unless it says nothing.
    pub(super) fn put(&mut self, element: String, node: Node) {
        if node.is_empty() {
            return;
        }
        budget::produce(NODE + element.len());
        match self.find(&element) {
            Ok(at) => self.nodes[at].1 = node,
            Err(at) => {
                // All that follow move.
                budget::spend((self.nodes.len() - at) / 2);
                self.nodes.insert(at, (element, node));
            }
        }
    }

    /// The set of these elements, which come in any order; `twice` makes the entry of an element that comes again.
    pub(super) fn of_elements(mut elements: Vec<(String, Node)>, twice: fn(Node) -> Node) -> FieldSet {
        sort_by_text(&mut elements);
        budget::produce(elements.iter().map(|(element, _)| NODE + element.len()).sum());
        elements.dedup_by(|(element, node), (last, known)| {
            let again = element == last;
            if again {
                *known = twice(std::mem::take(node));
            }
            again
        });
        elements.retain(|(_, node)| !node.is_empty());
        FieldSet { nodes: elements }
    }

    /// Nothing yet, with room for so many elements.
    pub(super) fn with_capacity(elements: usize) -> FieldSet {
        FieldSet {
            nodes: Vec::with_capacity(elements),
        }
    }

    /// Adds all paths of the other set.
    pub fn extend(&mut self, other: FieldSet) {
        if self.is_empty() {
            *self = other;
            return;
        }
        budget::spend(other.nodes.len());
        // A few are put in; many are merged, for all that follow an element move when it is put in.
        const FEW: usize = 8;
        if other.nodes.len() > FEW {
            self.merge(other);
            return;
        }
        for (element, theirs) in other.nodes {
            match self.find(&element) {
                Ok(at) => self.nodes[at].1.join(theirs),
                Err(at) => {
                    budget::spend((self.nodes.len() - at) / 2);
                    self.nodes.insert(at, (element, theirs));
                }
            }
        }
    }

    /// Adds all paths of the other set, reading both in order.
    fn merge(&mut self, other: FieldSet) {
        budget::spend(self.nodes.len());
        let mut ours = std::mem::take(&mut self.nodes).into_iter().peekable();
        let mut theirs = other.nodes.into_iter().peekable();
        while let (Some((our, _)), Some((their, _))) = (ours.peek(), theirs.peek()) {
            let order = our.cmp(their);
            let mine = (order != Ordering::Greater).then(|| ours.next()).flatten();
            let other = (order != Ordering::Less).then(|| theirs.next()).flatten();
            match (mine, other) {
                (Some((element, mut node)), Some((_, other))) => {
                    node.join(other);
                    self.nodes.push((element, node));
                }
                (mine, other) => self.nodes.extend(mine.or(other)),
            }
        }
        self.nodes.extend(ours);
        self.nodes.extend(theirs);
    }

    /// All paths of the sets, which may be many: they are joined in pairs.
    pub(super) fn union(mut sets: Vec<FieldSet>) -> FieldSet {
        while sets.len() > 1 {
            let mut joined = Vec::with_capacity(sets.len().div_ceil(2));
            let mut rest = sets.into_iter();
            while let Some(mut set) = rest.next() {
                set.extend(rest.next().unwrap_or_default());
                joined.push(set);
            }
            sets = joined;
        }
        sets.pop().unwrap_or_default()
    }

    /// Takes out the paths of the other set; longer and shorter paths stay.
    pub fn subtract(&mut self, other: &FieldSet) {
        let mut others = Ordered(&other.nodes);
        self.nodes.retain_mut(|(element, ours)| {
            if let Some(theirs) = others.pass(element) {
                ours.member &= !theirs.member;
                ours.children.subtract(&theirs.children);
            }
            !ours.is_empty()
        });
    }

    /// Makes every struct field on the way a member of its own.
    pub(super) fn name_fields(&mut self, shape: Shape<'_>) {
        for (element, node) in &mut self.nodes {
            budget::spend(1);
            let (below, declared) = shape.below(element);
            node.member |= declared;
            node.children.name_fields(below);
        }
    }

    /// Takes out the paths of the other set, and the struct fields on the way to them.
    pub(super) fn subtract_named(&mut self, other: &FieldSet, shape: Shape<'_>) {
        let mut others = Ordered(&other.nodes);
        self.nodes.retain_mut(|(element, ours)| {
            if let Some(theirs) = others.pass(element) {
                let (below, declared) = shape.below(element);
                ours.member &= !(theirs.member || declared);
                ours.children.subtract_named(&theirs.children, below);
            }
            !ours.is_empty()
        });
    }

    /// The paths that are not in the other set.
    #[must_use]
    pub(super) fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut others = Ordered(&other.nodes);
        let mut left = FieldSet::default();
        for (element, ours) in &self.nodes {
            let node = match others.pass(element) {
                Some(theirs) => Node {
                    member: ours.member && !theirs.member,
                    children: ours.children.difference(&theirs.children),
                },
                None => ours.clone(),
            };
            if !node.is_empty() {
                left.put(element.clone(), node);
            }
        }
        left
    }

    /// Takes out the paths of the other set with all that is below them.
    pub fn subtract_below(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        let mut others = Ordered(&other.nodes);
        self.nodes.retain_mut(|(element, ours)| match others.pass(element) {
            Some(theirs) if theirs.member => false,
            Some(theirs) => {
                ours.children.subtract_below(&theirs.children);
                !ours.is_empty()
            }
            None => true,
        });
    }

    /// The paths that are in both.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut others = Ordered(&other.nodes);
        let mut both = FieldSet::default();
        for (element, ours) in &self.nodes {
            if let Some(theirs) = others.pass(element) {
                let node = Node {
                    member: ours.member && theirs.member,
                    children: ours.children.intersection(&theirs.children),
                };
                both.put(element.clone(), node);
            }
        }
        both
    }

    /// Replaces the elements below a list or a map that is owned as a whole by itself; answers whether there were any.
    pub(super) fn close_atomic(&mut self, shape: Shape<'_>) -> bool {
        let mut changed = false;
        for (element, node) in self.nodes.iter_mut().filter(|(_, node)| !node.children.is_empty()) {
            budget::spend(1);
            let below = match element.split_once(':') {
                Some(("f", name)) => shape.part_or_nothing(name).shape,
                _ => shape.items(),
            };
            if below.is_atomic() {
                *node = Node::LEAF;
                changed = true;
            } else {
                changed |= node.children.close_atomic(below);
            }
        }
        changed
    }

    /// Whether all paths of the other set are in this one.
    pub fn contains_all(&self, other: &FieldSet) -> bool {
        let mut known = Ordered(&self.nodes);
        other.nodes.iter().all(|(element, theirs)| {
            known
                .pass(element)
                .is_some_and(|ours| (ours.member || !theirs.member) && ours.children.contains_all(&theirs.children))
        })
    }

    /// The paths as messages show them (`.spec.ports[port=53,protocol="TCP"].name`): at each level the members first,
    /// then the paths below.
    pub fn paths(&self) -> Vec<String> {
        fn walk(set: &FieldSet, prefix: &str, found: &mut Vec<String>) {
            let members = set.iter().filter(|(_, node)| node.member);
            found.extend(members.map(|(element, _)| {
                let path = format!("{prefix}{}", shown(element));
                budget::produce(measure::text_held(path.len()));
                path
            }));
            for (element, node) in set.iter().filter(|(_, node)| !node.children.is_empty()) {
                budget::spend_on_text(prefix.len() + element.len());
                walk(&node.children, &format!("{prefix}{}", shown(element)), found);
            }
        }
        let mut found = Vec::new();
        walk(self, "", &mut found);
        found
    }

    /// Reads `fieldsV1`.
    ///
    /// # Errors
    /// The error, with the element, for a value that is not of the form of `fieldsV1`.
    pub fn decode(fields: &Value) -> Result<FieldSet, String> {
        let Value::Object(map) = fields else {
            return Err(format!("fieldsV1 must be an object, not {}", measure::shown(fields)));
        };
        let (set, member) = decode_map(map)?;
        if member {
            return Err("the object itself cannot be a field".to_owned());
        }
        Ok(set)
    }

    /// Writes `fieldsV1`.
    pub fn encode(self) -> Value {
        let nodes = self.nodes.into_iter();
        Value::Object(nodes.map(|(element, node)| (element, node.encode())).collect())
    }
}

/// The rest of a level that is read in order.
struct Ordered<'a>(&'a [(String, Node)]);

impl<'a> Ordered<'a> {
    /// Goes to the element, if it is there. The elements must be asked for in order.
    fn pass(&mut self, element: &str) -> Option<&'a Node> {
        budget::spend(1);
        // Mostly it is the next one. Where the other set is far larger, most of it is passed over in leaps.
        let (mut from, mut leap) = (0, 1);
        while self
            .0
            .get(from + leap - 1)
            .is_some_and(|(known, _)| known.as_str() < element)
        {
            from += leap;
            leap *= 2;
        }
        let within = &self.0[from..self.0.len().min(from + leap)];
        let at = from + within.partition_point(|(known, _)| known.as_str() < element);
        self.0 = &self.0[at..];
        let ((known, node), rest) = self.0.split_first()?;
        if known != element {
            return None;
        }
        self.0 = rest;
        Some(node)
    }
}

impl Node {
    fn encode(self) -> Value {
        let itself = self.member && !self.children.is_empty();
        let mut below = self.children.encode();
        if let (true, Value::Object(map)) = (itself, &mut below) {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        below
    }
}

/// The set, and whether `.` is in it.
fn decode_map(map: &Map<String, Value>) -> Result<(FieldSet, bool), String> {
    let mut elements = Vec::with_capacity(map.len());
    let mut itself = false;
    let nothing = Map::new();
    for (written, below) in map {
        let below = match below {
            Value::Object(below) => below,
            Value::Null => &nothing,
            _ => return Err(format!("the value of {written:?} must be an object")),
        };
        if written == "." {
            itself = true;
            continue;
        }
        let Some(element) = canonical(written)? else {
            continue;
        };
        let (children, member) = decode_map(below)?;
        let member = member || below.is_empty();
        elements.push((element, Node { member, children }));
    }
    Ok((FieldSet::of_elements(elements, std::convert::identity), itself))
}

/// The element in its one written form; none for one of a kind that is not known, which a later version may know.
fn canonical(written: &str) -> Result<Option<String>, String> {
    let wrong = || format!("{written:?} is no element of a path");
    match written.split_once(':').ok_or_else(wrong)? {
        ("f", _) => Ok(Some(written.to_owned())),
        ("i", place) => place
            .parse::<i64>()
            .map(|place| Some(format!("i:{place}")))
            .map_err(|_| wrong()),
        ("v" | "k", value) if written::is_plain(value) => Ok(Some(written.to_owned())),
        ("v", value) => {
            let value: Value = serde_json::from_str(value).map_err(|_| wrong())?;
            Ok(Some(format!("v:{value}")))
        }
        ("k", keys) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).map_err(|_| wrong())?;
            Ok(Some(key_element(keys)))
        }
        (kind, _) if kind.len() == 1 => Ok(None),
        _ => Err(wrong()),
    }
}

/// The element of an item with these keys; the map is sorted by its nature.
fn key_element(keys: Map<String, Value>) -> String {
    format!("k:{}", Value::Object(keys))
}

/// An element as messages show it.
pub(super) fn shown(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("v", value)) => format!("[={value}]"),
        Some(("i", place)) => format!("[{place}]"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let mut text = String::from("[");
            for (at, (key, value)) in keys.iter().enumerate() {
                let comma = if at == 0 { "" } else { "," };
                // Writing into a String cannot fail.
                let _ = write!(text, "{comma}{key}={value}");
            }
            text.push(']');
            text
        }
        _ => element.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn set(value: &Value) -> FieldSet {
        FieldSet::decode(value).expect("well-formed")
    }

    #[test]
    fn what_is_written_is_read() {
        for (written, again) in [
            (json!({}), None),
            (json!({"f:a": {}}), None),
            (json!({"f:a": {".": {}}}), Some(json!({"f:a": {}}))),
            (json!({"f:a": {".": {}, "v:\"x\"": {}, "i:3": {}}}), None),
            (
                json!({"f:p": {"k:{\"protocol\":\"TCP\", \"port\":80}": {"f:x": {}}}}),
                Some(json!({"f:p": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {"f:x": {}}}})),
            ),
        ] {
            assert_eq!(set(&written).encode(), again.unwrap_or(written));
        }
        for wrong in [
            json!([]),
            json!({"a": {}}),
            json!({"f:a": 1}),
            json!({"k:x": {}}),
            json!({"i:x": {}}),
            json!({"v:": {}}),
            json!({".": {}}),
        ] {
            assert!(FieldSet::decode(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn members_come_before_what_is_below() {
        let set = set(&json!({"f:a": {"k:{\"n\":\"x\",\"p\":1}": {".": {}, "f:z": {}}, "v:2": {}}, "f:b": {}}));
        assert_eq!(set.paths(), [".b", ".a[n=\"x\",p=1]", ".a[=2]", ".a[n=\"x\",p=1].z"]);
    }

    fn some_set() -> impl Strategy<Value = FieldSet> {
        let paths = prop::collection::vec(
            prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4),
            0..6,
        );
        paths.prop_map(|paths| {
            let mut set = FieldSet::default();
            for path in paths {
                set.extend(FieldSet::of_path(path.into_iter()));
            }
            set
        })
    }

    proptest! {
        #[test]
        fn sets_are_sets(a in some_set(), b in some_set()) {
            let paths = |set: &FieldSet| set.paths().into_iter().collect::<std::collections::BTreeSet<_>>();
            let mut union = a.clone();
            union.extend(b.clone());
            prop_assert_eq!(paths(&union), &paths(&a) | &paths(&b));
            let mut rest = a.clone();
            rest.subtract(&b);
            prop_assert_eq!(paths(&rest), &paths(&a) - &paths(&b));
            prop_assert_eq!(a.difference(&b), rest);
            prop_assert_eq!(paths(&a.intersection(&b)), &paths(&a) & &paths(&b));
            prop_assert_eq!(a.contains_all(&b), paths(&b).is_subset(&paths(&a)));
            prop_assert_eq!(FieldSet::decode(&a.clone().encode()), Ok(a));
        }
    }
}
