//! What the user wants by now: the objects as the steps so far have put them, without what anybody else wrote.
//!
//! By it a state can be compared with that of a new cluster, whose user wants the same from the beginning. Invariant: it
//! follows the steps alone, never the cluster.

use serde_json::Value;

use super::steps::{Change, Step, Target};

/// The objects of the user, in the order in which they were made first.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    objects: Vec<(Target, Object)>,
    /// The user has changed or deleted something that he did not make: no new cluster is as he wants it.
    is_of_this_cluster: bool,
    /// What he has deleted at any time. It says nothing of what he wants now.
    deleted: Vec<Target>,
}

impl PartialEq for Wanted {
    fn eq(&self, other: &Wanted) -> bool {
        (&self.objects, self.is_of_this_cluster) == (&other.objects, other.is_of_this_cluster)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Object {
    /// By the last apply.
    applied: Value,
    /// By merge patches: an apply that does not name such a field leaves it.
    patched: Value,
    /// Patches of subresources, each by its name, in their order.
    of_subresources: Vec<(String, Value)>,
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
        let Wanted {
            mut objects,
            mut is_of_this_cluster,
            mut deleted,
        } = self.clone();
        let target = step.target();
        let place = objects.iter().position(|(known, _)| *known == target);
        match (step.change(), place) {
            (Change::Delete(..), Some(place)) => {
                deleted.push(target.clone());
                objects.remove(place);
                // All that is in a namespace goes with it.
                objects.retain(|(other, _)| target.kind != "Namespace" || other.namespace != target.name);
            }
            (Change::Apply(object), Some(place)) => objects[place].1.applied = object.clone(),
            (Change::Apply(object), None) => {
                let applied = object.clone();
                let object = Object {
                    applied,
                    ..Object::default()
                };
                objects.push((target, object));
            }
            (Change::Merge(_, None, patch), Some(place)) => {
                let object = &mut objects[place].1;
                merge(&mut object.applied, patch);
                merge(&mut object.patched, patch);
            }
            (Change::Merge(_, Some(subresource), patch), Some(place)) => {
                let patch = (subresource.clone(), patch.clone());
                objects[place].1.of_subresources.push(patch);
            }
            (Change::Delete(..) | Change::Merge(..), None) => is_of_this_cluster = true,
        }
        Wanted {
            objects,
            is_of_this_cluster,
            deleted,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether the user has deleted this object: one that was there before him may be gone.
    pub(super) fn has_deleted(&self, kind: &Value, namespace: &str, name: &str) -> bool {
        let is_it =
            |target: &Target| (target.kind.as_str(), target.name.as_str()) == (kind.as_str().unwrap_or_default(), name);
        // Of a kind without namespaces a target may name one.
        let mut deleted = self.deleted.iter().filter(|target| is_it(target));
        deleted.any(|target| namespace.is_empty() || target.namespace == namespace)
    }

    /// Whether a new cluster can be as the user wants it.
    pub(super) fn can_be_made_anew(&self) -> bool {
        !self.is_of_this_cluster
    }

    /// The steps that make all of it at once.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (target, object) in &self.objects {
            steps.push(Step::apply(format!("create {target} as it is wanted"), object.whole()));
            let patches = object.of_subresources.iter();
            steps.extend(patches.map(|(subresource, patch)| target.patch_of(subresource, patch.clone())));
        }
        steps
    }

    /// The kinds and names of the objects.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.objects.iter().map(|(target, _)| target)
    }

    /// The fields whose values differ between two moments, of objects that are wanted at both: the object, the name of
    /// the field, the value before and the value now.
    pub(super) fn changes(&self, now: &Wanted) -> Vec<(&Target, Vec<String>, Value, Value)> {
        let mut changes = Vec::new();
        for (target, before) in &self.objects {
            let Some((_, now)) = now.objects.iter().find(|(known, _)| known == target) else {
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

    #[test]
    fn what_was_deleted_is_wanted_no_longer() {
        let made = |version: &str, kind: &str, namespace: &str, name: &str| {
            let metadata = json!({"name": name, "namespace": namespace});
            Step::apply(
                "make it",
                json!({"apiVersion": version, "kind": kind, "metadata": metadata}),
            )
        };
        let of = |steps: &[Step]| steps.iter().fold(Wanted::default(), |wanted, step| wanted.after(step));
        let names = |wanted: &Wanted| wanted.targets().map(|target| target.name.clone()).collect::<Vec<_>>();

        // A namespace takes its content with it.
        let mut steps = vec![
            made("v1", "Namespace", "", "shop"),
            made("v1", "Secret", "shop", "token"),
            made("v1", "Secret", "default", "other"),
        ];
        steps.push(Step::delete("go", "v1", "Namespace", "", "shop"));
        let wanted = of(&steps);
        assert_eq!(names(&wanted), ["other"]);
        assert!(wanted.can_be_made_anew());
        assert!(wanted.has_deleted(&"Namespace".into(), "", "shop"));
        assert!(!wanted.has_deleted(&"Namespace".into(), "", "default"));
        assert_eq!(
            wanted,
            of(&steps[2..3]),
            "what was deleted says nothing of what is wanted"
        );

        // What the user did not make is as it is in this cluster alone.
        for step in [
            Step::delete("go", "v1", "Node", "", "node-0"),
            Step::merge(
                "change it",
                "v1",
                "Node",
                "",
                "node-0",
                json!({"metadata": {"labels": {"a": "b"}}}),
            ),
        ] {
            assert!(!of(&[step]).can_be_made_anew());
        }

        // A patch of a subresource follows what it is about.
        let approve =
            Step::merge("approve", "v1", "Secret", "shop", "token", json!({"a": 1})).of_subresource("approval");
        steps.truncate(2);
        steps.push(approve);
        let steps: Vec<String> = of(&steps).steps().iter().map(|step| step.what().to_owned()).collect();
        assert_eq!(steps[2], "patch approval of Secret token");
        assert_eq!(steps.len(), 3);
    }
}
