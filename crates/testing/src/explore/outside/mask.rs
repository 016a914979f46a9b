//! What two undisturbed runs do not have in common, and what is therefore compared in no run.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::snapshot::{Object, Snapshot};

/// Values and objects that are a matter of chance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mask {
    /// Resource and JSON pointer.
    values: BTreeSet<(String, String)>,
    /// Resources whose objects have other names each time.
    resources: BTreeSet<String>,
}

impl Mask {
    /// Adds what differs between two states.
    pub(super) fn add(&mut self, one: &Snapshot, other: &Snapshot) {
        for (these, those) in [(one, other), (other, one)] {
            for Object { text, named } in these.all() {
                let Some(that) = those.text(named) else {
                    self.resources.insert(named.0.clone());
                    continue;
                };
                // Of several with one made-up name no two belong together.
                let is_one = |all: &Snapshot| all.all().filter(|other| other.named == *named).count() == 1;
                if **text == *that || !is_one(these) || !is_one(those) {
                    continue;
                }
                let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
                differing(&read(text), &read(that), &mut String::new(), &mut |pointer| {
                    self.values.insert((named.0.clone(), pointer.to_owned()));
                });
            }
        }
    }

    /// The same state without that.
    pub(super) fn apply(&self, snapshot: Snapshot) -> Snapshot {
        if self.values.is_empty() && self.resources.is_empty() {
            return snapshot;
        }
        let kept = snapshot
            .all()
            .filter(|object| !self.resources.contains(&object.named.0));
        Snapshot::of(kept.map(|object| {
            let of: Vec<&str> = self
                .values
                .iter()
                .filter(|(resource, _)| *resource == object.named.0)
                .map(|(_, pointer)| pointer.as_str())
                .collect();
            if of.is_empty() {
                return object.clone();
            }
            let mut value: Value = serde_json::from_str(&object.text).unwrap_or_default();
            for pointer in of {
                remove(&mut value, pointer);
            }
            Object {
                text: value.to_string().into(),
                named: object.named.clone(),
            }
        }))
    }

    /// For people; empty when there is nothing.
    pub(super) fn describe(&self) -> String {
        let values = self.values.iter().map(|(resource, pointer)| {
            let path: Vec<String> = pointer.split('/').skip(1).map(plain).collect();
            format!("{resource}: {}", path.join("."))
        });
        let resources = self
            .resources
            .iter()
            .map(|resource| format!("{resource}: which there are"));
        values.chain(resources).collect::<Vec<_>>().join("\n")
    }
}

/// A part of a JSON pointer, as it is called.
fn plain(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Removes a value; one that is not there is not there in the other run.
fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return;
    };
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.remove(&plain(last));
        }
        // The others keep their places.
        Some(Value::Array(items)) => {
            if let Some(item) = last.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                *item = Value::Null;
            }
        }
        _ => {}
    }
}

fn differing(one: &Value, other: &Value, at: &mut String, found: &mut impl FnMut(&str)) {
    let length = at.len();
    match (one, other) {
        (Value::Object(these), Value::Object(those)) => {
            let keys: BTreeSet<&String> = these.keys().chain(those.keys()).collect();
            for key in keys {
                at.push('/');
                at.push_str(&key.replace('~', "~0").replace('/', "~1"));
                differing(
                    these.get(key).unwrap_or(&Value::Null),
                    those.get(key).unwrap_or(&Value::Null),
                    at,
                    found,
                );
                at.truncate(length);
            }
        }
        (Value::Array(these), Value::Array(those)) if these.len() == those.len() => {
            for (index, (one, other)) in these.iter().zip(those).enumerate() {
                at.push_str(&format!("/{index}"));
                differing(one, other, at, found);
                at.truncate(length);
            }
        }
        _ if one != other => found(at),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_left_out_and_nothing_else() {
        let of = |objects: &[Value]| {
            Snapshot::of(objects.iter().map(|object| {
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                Object {
                    text: object.to_string().into(),
                    named: ("cms".to_owned(), "a".to_owned(), name),
                }
            }))
        };
        let object =
            |chance: u32, fixed: u32| json!({"metadata": {"name": "x"}, "data": {"a/b": chance, "c": [fixed]}});
        let mut mask = Mask::default();
        mask.add(&of(&[object(1, 1)]), &of(&[object(2, 1)]));
        assert_eq!(mask.describe(), "cms: data.a/b");
        let masked = |chance, fixed| mask.apply(of(&[object(chance, fixed)]));
        assert_eq!(masked(1, 1), masked(2, 1));
        assert_ne!(masked(1, 1), masked(1, 2));

        let mut mask = Mask::default();
        mask.add(
            &of(&[json!({"metadata": {"name": "x"}})]),
            &of(&[json!({"metadata": {"name": "y"}})]),
        );
        assert_eq!(mask.describe(), "cms: which there are");
        assert_eq!(mask.apply(of(&[object(1, 1)])), Snapshot::default());
    }
}
