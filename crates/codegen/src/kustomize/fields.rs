//! Paths into objects as kustomize's configurations write them: `spec/template/spec/volumes/secret/secretName`.
//!
//! Lists on the way are gone through item by item; `\/` is a slash within a name, `name[]` says that the field is a
//! list.

use serde_json::{Map, Value};

use super::object::Id;

/// A field of the objects of some kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldSpec {
    /// Group, version and kind; an empty one is any.
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) path: String,
    /// Whether to make the field where it is missing.
    pub(super) create: bool,
}

impl FieldSpec {
    pub(super) fn new(group: &str, kind: &str, path: &str) -> FieldSpec {
        FieldSpec {
            group: group.to_owned(),
            version: String::new(),
            kind: kind.to_owned(),
            path: path.to_owned(),
            create: false,
        }
    }

    pub(super) fn creating(self) -> FieldSpec {
        FieldSpec { create: true, ..self }
    }

    pub(super) fn fits(&self, id: &Id) -> bool {
        id.is_kind(&self.group, &self.version, &self.kind)
    }

    /// Calls `change` with each value that the path leads to; a missing one is made, as `Null`, if the field says so.
    pub(super) fn visit(&self, value: &mut Value, change: &mut dyn FnMut(&mut Value)) {
        let path = split(&self.path);
        walk(value, &path, self.create, change);
    }
}

/// The steps of a path.
fn split(path: &str) -> Vec<String> {
    let mut steps = vec![String::new()];
    let mut letters = path.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&'/') => {
                letters.next();
                steps.last_mut().expect("it begins with one").push('/');
            }
            '/' => steps.push(String::new()),
            letter => steps.last_mut().expect("it begins with one").push(letter),
        }
    }
    steps.retain(|step| !step.is_empty());
    steps
}

fn walk(value: &mut Value, path: &[String], create: bool, change: &mut dyn FnMut(&mut Value)) {
    let Some((step, rest)) = path.split_first() else {
        return change(value);
    };
    match value {
        Value::Array(items) => {
            for item in items {
                walk(item, path, create, change);
            }
        }
        Value::Object(fields) => {
            let (name, is_list) = match step.strip_suffix("[]") {
                Some(name) => (name, true),
                None => (step.as_str(), false),
            };
            let may_create = create && !is_list;
            if may_create && !rest.is_empty() && fields.get(name).is_none_or(Value::is_null) {
                fields.insert(name.to_owned(), Value::Object(Map::new()));
            }
            if may_create && rest.is_empty() {
                change(fields.entry(name.to_owned()).or_insert(Value::Null));
            } else if let Some(inner) = fields.get_mut(name) {
                walk(inner, rest, create, change);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_go_through_lists_and_make_what_is_missing_only_when_told() {
        let check = |spec: FieldSpec, before: Value, after: Value| {
            let mut value = before;
            spec.visit(&mut value, &mut |found| *found = json!("x"));
            assert_eq!(value, after, "{spec:?}");
        };
        let spec = |path: &str| FieldSpec::new("", "", path);
        check(
            spec("a/b"),
            json!({"a": [{"b": 1}, {"c": 2}]}),
            json!({"a": [{"b": "x"}, {"c": 2}]}),
        );
        check(spec("a/b\\/c"), json!({"a": {"b/c": 1}}), json!({"a": {"b/c": "x"}}));
        check(spec("a/b"), json!({}), json!({}));
        check(spec("a/b").creating(), json!({"a": null}), json!({"a": {"b": "x"}}));
        check(spec("a[]/b").creating(), json!({}), json!({}));
    }
}
