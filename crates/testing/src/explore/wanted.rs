//! What the user wants by now: the objects as the steps so far have put them, without what anybody else wrote.
//!
//! By it a state can be compared with that of a new cluster, whose user wants the same from the beginning. Invariant: it
//! follows the steps alone, never the cluster.

use serde_json::Value;

use super::steps::{Change, Step, Target};

/// The objects of the user, in the order in which they were made first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wanted(Vec<(Target, Object)>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Object {
    /// By the last apply.
    applied: Value,
    /// By merge patches: an apply that does not name such a field leaves it.
    patched: Value,
}

impl Object {
    fn whole(&self) -> Value {
        let mut whole = self.patched.clone();
        merge(&mut whole, &self.applied);
        whole
    }
}

impl Wanted {
    /// After a further step, which the server took.
    pub(super) fn after(&self, step: &Step) -> Wanted {
        let mut objects = self.0.clone();
        let target = step.target();
        let place = objects.iter().position(|(known, _)| *known == target);
        match (step.change(), place) {
            (Change::Delete(_), Some(place)) => drop(objects.remove(place)),
            (Change::Apply(object), Some(place)) => objects[place].1.applied = object.clone(),
            (Change::Apply(object), None) => {
                let applied = object.clone();
                let patched = Value::Null;
                objects.push((target, Object { applied, patched }));
            }
            (Change::Merge(_, patch), Some(place)) => {
                let object = &mut objects[place].1;
                merge(&mut object.applied, patch);
                merge(&mut object.patched, patch);
            }
            (Change::Delete(_) | Change::Merge(..), None) => {}
        }
        Wanted(objects)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The steps that make all of it at once.
    pub(super) fn steps(&self) -> Vec<Step> {
        let all = self.0.iter();
        all.map(|(target, object)| Step::apply(format!("create {target} as it is wanted"), object.whole()))
            .collect()
    }

    /// The kinds and names of the objects.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.0.iter().map(|(target, _)| target)
    }

    /// The fields whose values differ between two moments, of objects that are wanted at both: the object, the name of
    /// the field, the value before and the value now.
    pub(super) fn changes(&self, now: &Wanted) -> Vec<(&Target, Vec<String>, Value, Value)> {
        let mut changes = Vec::new();
        for (target, before) in &self.0 {
            let Some((_, now)) = now.0.iter().find(|(known, _)| known == target) else {
                continue;
            };
            differing(
                &before.whole(),
                &now.whole(),
                &mut Vec::new(),
                &mut |path, before, now| {
                    changes.push((target, path.to_vec(), before.clone(), now.clone()));
                },
            );
        }
        changes
    }
}

/// A merge patch (RFC 7386).
pub(super) fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(serde_json::Map::new());
    }
    let Some(into) = into.as_object_mut() else { return };
    for (name, value) in fields {
        match value {
            Value::Null => drop(into.remove(name)),
            value => merge(into.entry(name.clone()).or_insert(Value::Null), value),
        }
    }
}

/// The fields that both have, with different values.
pub(super) fn differing(
    one: &Value,
    other: &Value,
    path: &mut Vec<String>,
    found: &mut impl FnMut(&[String], &Value, &Value),
) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            for (name, value) in one {
                if let Some(other) = other.get(name) {
                    path.push(name.clone());
                    differing(value, other, path, found);
                    path.pop();
                }
            }
        }
        (one, other) if one != other => found(path, one, other),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wanted_follows_the_steps() {
        let object =
            |spec: Value| json!({"apiVersion": "v1", "kind": "Box", "metadata": {"name": "box"}, "spec": spec});
        let change = |patch| Step::merge("change it", "v1", "Box", "", "box", json!({ "spec": patch }));
        let mut wanted = Wanted::default();
        for (step, spec) in [
            (
                Step::apply("make it", object(json!({"size": 1, "lid": true}))),
                json!({"size": 1, "lid": true}),
            ),
            (change(json!({"size": 3, "lid": null})), json!({"size": 3})),
            (change(json!({"color": "red"})), json!({"size": 3, "color": "red"})),
            (
                Step::apply("apply it", object(json!({"size": 2}))),
                json!({"size": 2, "color": "red"}),
            ),
        ] {
            let next = wanted.after(&step);
            let steps = next.steps();
            let [step] = &steps[..] else { panic!("{steps:?}") };
            let Change::Apply(whole) = step.change() else {
                panic!("{step:?}")
            };
            assert_eq!(whole["spec"], spec);
            wanted = next;
        }
        assert!(wanted.after(&Step::delete("go", "v1", "Box", "", "box")).is_empty());
    }
}
