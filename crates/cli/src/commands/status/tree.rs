//! Objects by their owners, as text and as JSON.
//!
//! Invariants: an object is shown once, below the first of its owners that is shown; owners that own each other end the
//! tree and not the program. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::health::{self, Health};
use crate::output::{BAD, DIM, GOOD, STRONG, paint};

/// The UIDs of an object's owners.
pub(super) fn owners(object: &Value) -> Vec<&str> {
    let references = object["metadata"]["ownerReferences"].as_array();
    let owners = references.into_iter().flatten();
    owners.filter_map(|owner| owner["uid"].as_str()).collect()
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// How many objects the tree has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) objects: usize,
    pub(super) ready: usize,
    pub(super) not_ready: usize,
}

/// The objects.
pub(super) struct Tree {
    objects: Vec<Value>,
    roots: Vec<usize>,
    children: BTreeMap<usize, Vec<usize>>,
}

impl Tree {
    /// These roots, with everything below them among the others.
    pub(super) fn of(roots: Vec<Value>, others: Vec<Value>) -> Tree {
        let number = roots.len();
        let mut objects = roots;
        let known: BTreeSet<String> = objects.iter().map(|object| uid(object).to_owned()).collect();
        objects.extend(others.into_iter().filter(|object| !known.contains(uid(object))));
        let mut by_owner: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, object) in objects.iter().enumerate() {
            for owner in owners(object) {
                by_owner.entry(owner).or_default().push(at);
            }
        }
        let name = |at: &usize| {
            let object = &objects[*at];
            let kind = text(object, "/kind").to_owned();
            (
                kind,
                text(object, "/metadata/namespace").to_owned(),
                text(object, "/metadata/name").to_owned(),
            )
        };
        // A root that another root owns is shown below it.
        let uids: BTreeSet<&str> = objects[..number].iter().map(uid).collect();
        let is_owned = |at: &usize| owners(&objects[*at]).iter().any(|owner| uids.contains(owner));
        let (below, tops): (Vec<usize>, Vec<usize>) = (0..number).partition(is_owned);
        let mut shown = BTreeSet::new();
        let mut roots = Vec::new();
        let mut children: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        // Those that own each other have no top; they are shown all the same.
        for root in tops.into_iter().chain(below) {
            if !shown.insert(root) {
                continue;
            }
            roots.push(root);
            let mut next = vec![root];
            while let Some(owner) = next.pop() {
                let found = by_owner.get(uid(&objects[owner])).cloned().unwrap_or_default();
                let mut found: Vec<usize> = found.into_iter().filter(|child| shown.insert(*child)).collect();
                found.sort_by_key(name);
                next.extend(&found);
                children.insert(owner, found);
            }
        }
        Tree {
            objects,
            roots,
            children,
        }
    }

    pub(super) fn roots(&self) -> impl Iterator<Item = usize> + '_ {
        self.roots.iter().copied()
    }

    /// An object and everything below it, a line for each.
    pub(super) fn text(&self, root: usize) -> String {
        let mut lines = Vec::new();
        self.lines(root, "", "", None, &mut lines);
        lines.join("\n")
    }

    fn lines(&self, at: usize, first: &str, rest: &str, namespace: Option<&str>, lines: &mut Vec<String>) {
        let object = &self.objects[at];
        let own = text(object, "/metadata/namespace");
        let name = match own {
            "" => text(object, "/metadata/name").to_owned(),
            // Children are in their owner's namespace.
            own if namespace == Some(own) => text(object, "/metadata/name").to_owned(),
            own => format!("{own}/{}", text(object, "/metadata/name")),
        };
        let Health { ready, why } = health::of(object);
        let sign = match ready {
            Some(true) => paint(GOOD, "✓"),
            Some(false) => paint(BAD, "✗"),
            None => paint(DIM, "·"),
        };
        let name = format!("{} {name}", text(object, "/kind"));
        let name = if namespace.is_none() { paint(STRONG, name) } else { name };
        let why = match ready {
            _ if why.is_empty() => String::new(),
            Some(false) => format!("  {}", paint(BAD, why)),
            _ => format!("  {}", paint(DIM, why)),
        };
        lines.push(format!("{first}{sign} {name}{why}"));
        let children = self.children.get(&at).map_or(&[][..], Vec::as_slice);
        for (number, child) in children.iter().enumerate() {
            let is_last = number + 1 == children.len();
            let (branch, below) = if is_last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            self.lines(
                *child,
                &format!("{rest}{branch}"),
                &format!("{rest}{below}"),
                Some(own),
                lines,
            );
        }
    }

    /// An object and everything below it, as one JSON object.
    pub(super) fn to_json(&self, root: usize) -> Value {
        let mut object = self.value(root);
        object["event"] = "object".into();
        object
    }

    fn value(&self, at: usize) -> Value {
        let object = &self.objects[at];
        let Health { ready, why } = health::of(object);
        let children = self.children.get(&at).map_or(&[][..], Vec::as_slice);
        json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "namespace": object["metadata"]["namespace"], "name": object["metadata"]["name"],
            "ready": ready, "why": why, "conditions": object["status"]["conditions"],
            "children": children.iter().map(|child| self.value(*child)).collect::<Vec<Value>>(),
        })
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let mut next = self.roots.clone();
        while let Some(at) = next.pop() {
            totals.objects += 1;
            match health::of(&self.objects[at]).ready {
                Some(true) => totals.ready += 1,
                Some(false) => totals.not_ready += 1,
                None => {}
            }
            next.extend(self.children.get(&at).into_iter().flatten());
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str, owners: &[&str], status: Value) -> Value {
        let owners: Vec<Value> = owners.iter().map(|owner| json!({"uid": owner})).collect();
        json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "namespace": "default", "uid": name, "ownerReferences": owners},
            "status": status,
        })
    }

    #[test]
    fn children_are_below_their_owners() {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True", "message": "up to date"}]});
        let roots = vec![
            object("Guestbook", "hello", &[], ready.clone()),
            object("Guestbook", "b", &[], json!({})),
        ];
        let others = vec![
            object("Pod", "p", &["rs"], json!({"phase": "Pending"})),
            object("ReplicaSet", "rs", &["d"], json!({})),
            object("Deployment", "d", &["hello"], json!({"availableReplicas": 0})),
            object("Service", "s", &["hello", "b"], json!({})),
            object("Pod", "stranger", &["other"], json!({})),
        ];
        let tree = Tree::of(roots, others);
        let text: Vec<String> = tree.roots().map(|root| tree.text(root)).collect();
        let text = anstream::adapter::strip_str(&text.join("\n")).to_string();
        insta::assert_snapshot!(text, @r"
        ✓ Guestbook default/hello  Ready: up to date
        ├─ ✗ Deployment d  0 of 1 pods are of this version
        │  └─ · ReplicaSet rs
        │     └─ ✗ Pod p  Pending
        └─ · Service s
        · Guestbook default/b
        ");
        let expected = Totals {
            objects: 6,
            ready: 1,
            not_ready: 2,
        };
        assert_eq!(tree.totals(), expected);
        let first = tree.roots().next().unwrap();
        assert_eq!(
            tree.to_json(first)["children"][0]["children"][0]["children"][0]["name"],
            "p"
        );
    }

    #[test]
    fn owners_in_a_circle_are_shown_once() {
        let roots = vec![object("A", "a", &["b"], json!({})), object("B", "b", &["a"], json!({}))];
        let tree = Tree::of(roots, Vec::new());
        assert_eq!(tree.totals().objects, 2);
    }

    #[test]
    fn a_root_that_another_owns_is_below_it() {
        let roots = vec![object("B", "b", &["a"], json!({})), object("A", "a", &[], json!({}))];
        let tree = Tree::of(roots, Vec::new());
        let tops: Vec<usize> = tree.roots().collect();
        assert_eq!(tops.len(), 1);
        assert!(tree.text(tops[0]).contains("└─"));
    }
}
