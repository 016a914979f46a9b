//! What a change of definitions does to the objects and the clients that are there.
//!
//! Two kinds of changes matter: those that *break* (stored fields are dropped, a version or a field is gone, a value of
//! another type, a new field that every object must have), and those that *tighten*: new values must pass a check that
//! old ones need not have passed. Existing objects survive the latter, because the API server ratchets: an update is not
//! refused for a value that it does not change (`apiextensions-apiserver`, `pkg/registry/customresource/validator.go`,
//! feature CRDValidationRatcheting, since 1.33 always on). It does not ratchet what is about a list or an object as a
//! whole: `required`, `x-kubernetes-list-type`, `x-kubernetes-list-map-keys`, `x-kubernetes-map-type` and what is below
//! `not`, `allOf`, `anyOf` and `oneOf`. The rules are those of OpenShift's crd-schema-checker that compare two states
//! (NoFieldRemoval, NoEnumRemoval, NoNewRequiredFields, NoDataTypeChange), and the same for versions and names.
//!
//! Pure. Not here: where the earlier definitions come from.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// How much a change matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Existing objects or clients break.
    Breaks,
    /// Existing objects stay as they are; values that were valid are refused from now on.
    Tightens,
}

/// A change that matters to what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// How much it matters.
    pub effect: Effect,
    /// The definition: `guestbooks.webapp.my.domain`.
    pub definition: String,
    /// The version and the path of the field: `v1 .spec.size`; the version alone, or nothing.
    pub place: String,
    /// The change and what follows from it.
    pub what: String,
}

/// The changes from some definitions to others that matter to what is there; those that break first.
#[must_use]
pub fn compare(before: &[Value], after: &[Value]) -> Vec<Difference> {
    let mut found = Vec::new();
    for old in before {
        let definition = text(old, "/metadata/name").to_owned();
        let mut report = Report {
            definition,
            version: String::new(),
            found: &mut found,
        };
        match after
            .iter()
            .find(|new| new["metadata"]["name"] == old["metadata"]["name"])
        {
            Some(new) => report.definition(old, new),
            None => report.breaks("", "the definition is gone, and with it all objects of the kind"),
        }
    }
    found.sort_by_key(|difference| difference.effect);
    found
}

struct Report<'r> {
    definition: String,
    version: String,
    found: &'r mut Vec<Difference>,
}

/// Keywords of a number or a length, and whether a greater value is stricter.
const BOUNDS: [(&str, bool); 8] = [
    ("minimum", true),
    ("minLength", true),
    ("minItems", true),
    ("minProperties", true),
    ("maximum", false),
    ("maxLength", false),
    ("maxItems", false),
    ("maxProperties", false),
];

/// Keywords that are stricter when they are there, or are others.
const CHECKS: [&str; 6] = [
    "pattern",
    "format",
    "multipleOf",
    "uniqueItems",
    "exclusiveMinimum",
    "exclusiveMaximum",
];

/// Keywords about a list or an object as a whole, which are not ratcheted.
const WHOLE: [&str; 7] = [
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "not",
    "allOf",
    "anyOf",
    "oneOf",
];

impl Report<'_> {
    fn say(&mut self, effect: Effect, path: &str, what: impl Into<String>) {
        let place = [self.version.as_str(), path];
        let place: Vec<&str> = place.into_iter().filter(|part| !part.is_empty()).collect();
        self.found.push(Difference {
            effect,
            definition: self.definition.clone(),
            place: place.join(" "),
            what: what.into(),
        });
    }

    fn breaks(&mut self, path: &str, what: impl Into<String>) {
        self.say(Effect::Breaks, path, what);
    }

    fn tightens(&mut self, path: &str, what: impl Into<String>) {
        self.say(Effect::Tightens, path, what);
    }

    fn definition(&mut self, old: &Value, new: &Value) {
        for (path, name) in [
            ("/spec/scope", "scope"),
            ("/spec/names/kind", "kind"),
            ("/spec/names/listKind", "kind of a list"),
        ] {
            let (old, new) = (text(old, path), text(new, path));
            if old != new {
                self.breaks(
                    "",
                    format!("the {name} is {new}, and was {old}; the API server refuses that"),
                );
            }
        }
        let versions = |definition: &Value| definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
        let (before, after) = (versions(old), versions(new));
        for old in &before {
            let name = text(old, "/name");
            name.clone_into(&mut self.version);
            let was_served = old["served"] == true;
            match after.iter().find(|new| new["name"] == old["name"]) {
                None if old["storage"] == true => self.breaks(
                    "",
                    "the version in which objects are stored is gone: the API server refuses that until they are migrated",
                ),
                None if was_served => self.breaks("", "the version is gone; clients that use it fail"),
                None => {}
                Some(new) => {
                    if was_served && new["served"] != true {
                        self.breaks("", "the version is served no more; clients that use it fail");
                    }
                    if was_served {
                        self.version_of(old, new);
                    }
                }
            }
        }
        self.version.clear();
    }

    fn version_of(&mut self, old: &Value, new: &Value) {
        let has = |version: &Value, part: &str| !version["subresources"][part].is_null();
        for part in ["status", "scale"] {
            if has(old, part) && !has(new, part) {
                self.breaks(
                    "",
                    format!("the subresource {part} is gone; clients that write it fail"),
                );
            }
            if part == "status" && !has(old, part) && has(new, part) {
                self.breaks(
                    "",
                    "there is a subresource status now: a write of the object leaves .status as it is",
                );
            }
        }
        let fields = |version: &Value| -> BTreeSet<String> {
            let fields = version["selectableFields"].as_array().cloned().unwrap_or_default();
            fields.iter().map(|field| text(field, "/jsonPath").to_owned()).collect()
        };
        for gone in fields(old).difference(&fields(new)) {
            self.breaks(gone, "is not selectable any more; clients that select by it fail");
        }
        self.schema(&old["schema"]["openAPIV3Schema"], &new["schema"]["openAPIV3Schema"], "");
    }

    fn schema(&mut self, old: &Value, new: &Value, path: &str) {
        let at = if path.is_empty() { "." } else { path };
        if old["type"] != new["type"] {
            let name = |schema: &Value| match schema["x-kubernetes-int-or-string"] == true {
                true => "int-or-string".to_owned(),
                false => schema["type"].as_str().unwrap_or("of any type").to_owned(),
            };
            // Whatever has a type may have any.
            if !new["type"].is_null() || new["x-kubernetes-int-or-string"] == true {
                self.breaks(at, format!("is {}, and was {}", name(new), name(old)));
                return;
            }
        }
        if old["nullable"] == true && new["nullable"] != true {
            self.tightens(
                at,
                "may not be null any more; stored nulls are dropped or get the default",
            );
        }
        if old["default"] != new["default"] && !old["default"].is_null() {
            let what = match new["default"].is_null() {
                true => format!("has no default any more; it was {}", old["default"]),
                false => format!(
                    "has the default {}, and had {}: objects that leave it out change",
                    new["default"], old["default"]
                ),
            };
            self.tightens(at, what);
        }
        self.values(old, new, at);
        self.properties(old, new, path);
        for (keyword, below) in [("items", "[]"), ("additionalProperties", "[*]")] {
            match (&old[keyword], &new[keyword]) {
                (Value::Object(_), Value::Object(_)) => {
                    self.schema(&old[keyword], &new[keyword], &format!("{path}{below}"));
                }
                (Value::Null | Value::Bool(false), _) => {}
                (_, Value::Null | Value::Bool(false)) if keyword == "additionalProperties" => {
                    self.breaks(
                        at,
                        "takes no keys of any name any more; those that are stored are dropped",
                    );
                }
                _ => {}
            }
        }
        let keeps = |schema: &Value| schema["x-kubernetes-preserve-unknown-fields"] == true;
        if keeps(old) && !keeps(new) {
            self.breaks(at, "keeps unknown fields no more; those that are stored are dropped");
        }
    }

    /// The keywords about values.
    fn values(&mut self, old: &Value, new: &Value, at: &str) {
        if let Some(values) = new["enum"].as_array() {
            match old["enum"].as_array() {
                None => self.tightens(at, "is one of some values now"),
                Some(known) => {
                    let gone: Vec<String> = known
                        .iter()
                        .filter(|value| !values.contains(value))
                        .map(ToString::to_string)
                        .collect();
                    if !gone.is_empty() {
                        self.breaks(
                            at,
                            format!(
                                "may not be {} any more; clients send it, and objects hold it",
                                gone.join(", ")
                            ),
                        );
                    }
                }
            }
        }
        for (keyword, is_lower) in BOUNDS {
            let (before, after) = (old[keyword].as_f64(), new[keyword].as_f64());
            let is_stricter = match (before, after) {
                (_, None) => false,
                // The least that nothing can be below.
                (None, Some(after)) => !(is_lower && after == 0.0 && keyword != "minimum"),
                (Some(before), Some(after)) => (is_lower && after > before) || (!is_lower && after < before),
            };
            if is_stricter {
                self.tightens(
                    at,
                    format!("{keyword} is {}, and was {}", new[keyword], or_none(&old[keyword])),
                );
            }
        }
        for keyword in CHECKS {
            let is_on = !new[keyword].is_null() && new[keyword] != false;
            if is_on && old[keyword] != new[keyword] {
                self.tightens(
                    at,
                    format!("{keyword} is {}, and was {}", new[keyword], or_none(&old[keyword])),
                );
            }
        }
        for keyword in WHOLE {
            let is_on = !new[keyword].is_null() && new[keyword] != "atomic" && new[keyword] != "granular";
            if is_on && old[keyword] != new[keyword] {
                let what = format!(
                    "{keyword} is {}, and was {}: an update of an object that does not fit is refused",
                    new[keyword],
                    or_none(&old[keyword])
                );
                self.breaks(at, what);
            }
        }
        let rules = |schema: &Value| -> BTreeSet<String> {
            let rules = schema["x-kubernetes-validations"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            rules.iter().map(|rule| text(rule, "/rule").to_owned()).collect()
        };
        for rule in rules(new).difference(&rules(old)) {
            self.tightens(at, format!("there is a new rule: {rule}"));
        }
    }

    fn properties(&mut self, old: &Value, new: &Value, path: &str) {
        let none = Map::new();
        let (before, after) = (
            old["properties"].as_object().unwrap_or(&none),
            new["properties"].as_object().unwrap_or(&none),
        );
        let is_open = new["x-kubernetes-preserve-unknown-fields"] == true || new["additionalProperties"].is_object();
        for (name, old) in before {
            match after.get(name) {
                Some(new) => self.schema(old, new, &format!("{path}.{name}")),
                None if is_open => {}
                None => self.breaks(
                    &format!("{path}.{name}"),
                    "is gone; what is stored there is dropped with the next write",
                ),
            }
        }
        let required = |schema: &Value| -> BTreeSet<String> {
            let names = schema["required"].as_array().cloned().unwrap_or_default();
            names
                .iter()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect()
        };
        for name in required(new).difference(&required(old)) {
            let has_default = after.get(name).is_some_and(|field| !field["default"].is_null());
            if !has_default {
                let at = format!("{path}.{name}");
                self.breaks(
                    &at,
                    "is required now and has no default: objects without it cannot be updated, and clients fail",
                );
            }
        }
    }
}

fn or_none(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        value => value.to_string(),
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(spec: Value) -> Value {
        json!({
            "metadata": {"name": "guestbooks.webapp.my.domain"},
            "spec": {
                "scope": "Namespaced", "names": {"kind": "Guestbook", "listKind": "GuestbookList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }],
            },
        })
    }

    fn found(before: &Value, after: &Value) -> Vec<String> {
        compare(std::slice::from_ref(before), std::slice::from_ref(after))
            .iter()
            .map(|found| format!("{:?} {}: {}", found.effect, found.place, found.what))
            .collect()
    }

    /// A change of the spec, and the beginning of what is said about it; empty when nothing is.
    #[test]
    fn changes_of_a_schema_are_judged() {
        let object = |properties: Value| json!({"type": "object", "properties": properties});
        let size = |keywords: Value| {
            let mut field = json!({"type": "integer"});
            field
                .as_object_mut()
                .unwrap()
                .extend(keywords.as_object().unwrap().clone());
            object(json!({"size": field}))
        };
        let check = |before: Value, after: Value, expected: &str| {
            let found = found(&definition(before.clone()), &definition(after.clone()));
            match expected {
                "" => assert!(found.is_empty(), "{before} → {after}: {found:?}"),
                _ => assert!(
                    found.len() == 1 && found[0].starts_with(expected),
                    "{before} → {after}: {found:?}"
                ),
            }
        };
        let plain = size(json!({}));
        check(plain.clone(), plain.clone(), "");
        check(plain.clone(), size(json!({"description": "other"})), "");
        check(
            plain.clone(),
            object(json!({"size": {"type": "integer"}, "more": {"type": "string"}})),
            "",
        );
        check(plain.clone(), object(json!({})), "Breaks v1 .spec.size: is gone");
        check(
            plain.clone(),
            object(json!({"size": {"type": "string"}})),
            "Breaks v1 .spec.size: is string, and was integer",
        );
        check(
            plain.clone(),
            size(json!({"minimum": 1})),
            "Tightens v1 .spec.size: minimum is 1, and was not set",
        );
        check(size(json!({"minimum": 1})), plain.clone(), "");
        check(size(json!({"minimum": 1})), size(json!({"minimum": 0})), "");
        check(
            size(json!({"maximum": 9})),
            size(json!({"maximum": 5})),
            "Tightens v1 .spec.size: maximum is 5, and was 9",
        );
        check(size(json!({"enum": [1, 2]})), size(json!({"enum": [1, 2, 3]})), "");
        check(
            size(json!({"enum": [1, 2]})),
            size(json!({"enum": [1]})),
            "Breaks v1 .spec.size: may not be 2",
        );
        check(
            plain.clone(),
            size(json!({"enum": [1]})),
            "Tightens v1 .spec.size: is one of some values now",
        );
        check(
            size(json!({"default": 1})),
            size(json!({"default": 2})),
            "Tightens v1 .spec.size: has the default 2",
        );
        check(plain.clone(), size(json!({"default": 2})), "");
        let rule = json!({"x-kubernetes-validations": [{"rule": "self > 0"}]});
        check(
            plain.clone(),
            size(rule),
            "Tightens v1 .spec.size: there is a new rule: self > 0",
        );
        let list = |kind: &str| {
            object(json!({"list": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": kind}}))
        };
        check(
            list("atomic"),
            list("set"),
            "Breaks v1 .spec.list: x-kubernetes-list-type is \"set\"",
        );
        check(list("set"), list("atomic"), "");
        let required = |field: Value| json!({"type": "object", "properties": {"size": field}, "required": ["size"]});
        check(
            plain.clone(),
            required(json!({"type": "integer"})),
            "Breaks v1 .spec.size: is required now",
        );
        check(plain.clone(), required(json!({"type": "integer", "default": 1})), "");
        let open = |open: bool| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": open});
        check(open(true), open(false), "Breaks v1 .spec: keeps unknown fields no more");
        let items =
            |kind: &str| object(json!({"list": {"type": "array", "items": object(json!({"name": {"type": kind}}))}}));
        check(
            items("string"),
            items("integer"),
            "Breaks v1 .spec.list[].name: is integer",
        );
        let map = |value: Value| object(json!({"map": {"type": "object", "additionalProperties": value}}));
        check(
            map(json!({"type": "string"})),
            map(json!(null)),
            "Breaks v1 .spec.map: takes no keys",
        );
    }

    #[test]
    fn changes_of_versions_and_names_are_judged() {
        let before = definition(json!({"type": "object"}));
        let check = |change: &dyn Fn(&mut Value), expected: &str| {
            let mut after = before.clone();
            change(&mut after["spec"]);
            let found = found(&before, &after);
            assert!(
                found.iter().any(|found| found.contains(expected)),
                "{expected}: {found:?}"
            );
        };
        check(
            &|spec| spec["scope"] = "Cluster".into(),
            "the scope is Cluster, and was Namespaced",
        );
        check(&|spec| spec["versions"][0]["served"] = false.into(), "served no more");
        check(
            &|spec| spec["versions"] = json!([]),
            "the version in which objects are stored is gone",
        );
        check(
            &|spec| spec["versions"][0]["subresources"] = json!({}),
            "subresource status is gone",
        );
        let gone = compare(std::slice::from_ref(&before), &[]);
        assert_eq!(gone[0].effect, Effect::Breaks);
        assert!(
            compare(&[], std::slice::from_ref(&before)).is_empty(),
            "a new definition harms nobody"
        );
    }
}
