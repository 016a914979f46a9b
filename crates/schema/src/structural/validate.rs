//! A custom resource against its schema, in Kubernetes' words.
//!
//! The order of checks within a value and their early ends follow kube-openapi's validator, so that the same mistake
//! gives the same list of errors: type first (a wrong type still goes through the other checks), then combinators,
//! text, format, number, list, enum, object. Lists with `x-kubernetes-list-type` are looked at afterwards, on the whole
//! value.
//!
//! Each object's fields are visited by name, where upstream visits them in no order.

mod scalars;
mod unique;

use std::borrow::Cow;

use serde_json::{Value, json};

use super::Place;
use crate::correlate::{Correlation, key_text};
use crate::error::{FieldError, Reason, quote, quote_into};
use crate::path::FieldPath;
use crate::schema::{ListType, Schema, SchemaRef, Type};
use crate::sorted::sort_by_text;
use crate::{budget, measure};
pub(super) use scalars::type_of;

/// The errors in `value`; empty when there are none.
///
/// `at` is the place of the value for errors about a part of something else, such as a default in a CRD; the root for a
/// custom resource. Messages name the path within the value, as upstream's do.
///
/// ```
/// use kubewright_schema::{SchemaRef, path::FieldPath, structural::validate};
/// use serde_json::json;
///
/// let schema = SchemaRef::from_crd(&json!({"type": "object", "properties": {"size": {"type": "integer"}}})).unwrap();
/// let errors = validate(&json!({"size": "two"}), &schema, &FieldPath::root());
/// assert_eq!(errors[0].to_string(), r#"size: Invalid value: "string": size in body must be of type integer: "string""#);
/// ```
pub fn validate(value: &Value, schema: &SchemaRef, at: &FieldPath) -> Vec<FieldError> {
    Validator::new(at).errors(value, schema)
}

/// The errors in a default.
pub(super) fn validate_default(value: &Value, schema: &SchemaRef, at: &FieldPath) -> Vec<FieldError> {
    let validator = Validator {
        of_default: true,
        ..Validator::new(at)
    };
    // Whether items of sets and maps are unique is not asked of defaults.
    validator.value(value, schema, &Place::ROOT, None).errors
}

/// The errors in a value that replaces `old`: mistakes in unchanged parts are left alone (ratcheting), and those of
/// lists when the old value had any.
///
/// ```
/// use kubewright_schema::{SchemaRef, path::FieldPath, structural::validate_update};
/// use serde_json::json;
///
/// let schema = SchemaRef::from_crd(&json!({"type": "object", "properties": {
///     "size": {"type": "integer", "maximum": 1}, "color": {"type": "string"},
/// }})).unwrap();
/// let old = json!({"size": 3, "color": "red"});
/// assert!(validate_update(&json!({"size": 3, "color": "blue"}), &old, &schema, &FieldPath::root()).is_empty());
/// assert_eq!(validate_update(&json!({"size": 4}), &old, &schema, &FieldPath::root()).len(), 1);
/// ```
pub fn validate_update(value: &Value, old: &Value, schema: &SchemaRef, at: &FieldPath) -> Vec<FieldError> {
    let validator = Validator::new(at);
    let was = Correlation::new(value, old, schema);
    let mut outcome = validator.value(value, schema, &Place::ROOT, Some(was));
    let mut before = Vec::new();
    validator.lists(old, schema, &Place::ROOT, &mut before);
    if before.is_empty() {
        validator.lists(value, schema, &Place::ROOT, &mut outcome.errors);
    }
    outcome.errors
}

/// The errors of a value, and how many checks were made on the way: among alternatives that all fail, the one that got
/// furthest is shown.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    /// How many errors have no words: see [`Validator::speaks`].
    unsaid: usize,
    checks: usize,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.unsaid += other.unsaid;
        self.checks += other.checks;
    }

    fn fail(&mut self, failure: Failure) {
        match failure {
            Failure::Said(error) => self.errors.push(error),
            Failure::Unsaid => self.unsaid += 1,
        }
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty() && self.unsaid == 0
    }
}

/// A check that failed.
enum Failure {
    Said(FieldError),
    /// Without words, of a validator that does not speak.
    Unsaid,
}

struct Validator {
    at: String,
    /// Whether it makes error texts. Of alternatives it is first asked which fits: their errors are many, and mostly
    /// dropped.
    speaks: bool,
    /// Whether it looks at a default: an int-or-string has no type there (`Structural.ToKubeOpenAPI`).
    of_default: bool,
}

/// Equal as JSON: 1 and 1.0 are the same number.
fn same(a: &Value, b: &Value) -> bool {
    budget::spend(1);
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (Value::String(a), Value::String(b)) if a.len() == b.len() => {
            budget::spend_on_text(a.len());
            a == b
        }
        _ => a == b,
    }
}

/// Charges the cost of an error. Most errors of alternatives are dropped when another one fits, so that those of a
/// common size count as work, which is as good a bound, and only long ones count as made.
fn counted(error: FieldError) -> FieldError {
    const COMMON: usize = 512;
    let shown = error.bad_value.as_ref().map_or(0, measure::held);
    budget::spend(128);
    budget::produce((error.field.len() + error.detail.len() + shown).saturating_sub(COMMON));
    error
}

impl Validator {
    fn new(at: &FieldPath) -> Validator {
        Validator {
            at: at.to_string(),
            speaks: true,
            of_default: false,
        }
    }

    /// A validator that only tells whether there are errors, and how many checks were made.
    const SILENT: Validator = Validator {
        at: String::new(),
        speaks: false,
        of_default: false,
    };

    fn errors(&self, value: &Value, schema: &SchemaRef) -> Vec<FieldError> {
        let mut outcome = self.value(value, schema, &Place::ROOT, None);
        self.lists(value, schema, &Place::ROOT, &mut outcome.errors);
        outcome.errors
    }

    /// The path of an error: the place of the whole value, then the path within.
    fn field(&self, path: &str) -> String {
        match (self.at.as_str(), path) {
            ("", path) => path.to_owned(),
            (at, "") => at.to_owned(),
            (at, path) if path.starts_with('[') => format!("{at}{path}"),
            (at, path) => format!("{at}.{path}"),
        }
    }

    /// The failure that `make` describes; not even made by a validator that does not speak.
    fn failure(&self, make: impl FnOnce() -> FieldError) -> Failure {
        if self.speaks {
            return Failure::Said(counted(make()));
        }
        budget::spend(4);
        Failure::Unsaid
    }

    fn error(
        &self,
        reason: Reason,
        path: &Place<'_>,
        value: Option<&Value>,
        detail: impl FnOnce(&str) -> String,
    ) -> Failure {
        self.failure(|| {
            let path = path.text();
            FieldError {
                reason,
                field: self.field(&path),
                bad_value: value.cloned(),
                detail: detail(&path),
            }
        })
    }

    fn invalid(&self, path: &Place<'_>, value: &Value, what: impl FnOnce() -> String) -> Failure {
        let detail = |path: &str| format!("{path} in body {}", what());
        self.error(Reason::Invalid, path, Some(value), detail)
    }

    fn wrong_type(&self, path: &Place<'_>, expected: impl FnOnce() -> String, value: &str) -> Failure {
        let detail = |path: &str| format!("{path} in body must be of type {}: {}", expected(), quote(value));
        self.failure(|| {
            let path = path.text();
            FieldError {
                reason: Reason::TypeInvalid,
                field: self.field(&path),
                bad_value: Some(json!(value)),
                detail: detail(&path),
            }
        })
    }

    /// Errors that upstream reports without a place.
    fn placeless(&self, detail: impl FnOnce() -> String) -> Failure {
        self.failure(|| {
            let field = if self.at.is_empty() { "<nil>" } else { &self.at };
            FieldError {
                reason: Reason::Invalid,
                field: field.to_owned(),
                bad_value: Some(json!("")),
                detail: detail(),
            }
        })
    }

    fn value(&self, value: &Value, schema: &Schema, path: &Place<'_>, was: Option<Correlation<'_>>) -> Outcome {
        if was.is_some_and(Correlation::is_unchanged) {
            return Outcome::default();
        }
        // A schema may have as many alternatives as a resource has values, and each is a visit to another schema.
        budget::spend(10);
        let mut outcome = Outcome {
            checks: 1,
            ..Outcome::default()
        };
        self.type_(value, schema, path, &mut outcome);
        if !value.is_null() {
            self.combinators(value, schema, path, &mut outcome);
        }
        match value {
            Value::String(text) => self.text(text, value, schema, path, &mut outcome),
            Value::Number(number) => {
                self.number(number.as_f64().unwrap_or(f64::NAN), value, schema, path, &mut outcome);
            }
            Value::Array(list) => self.list(list, schema, path, was, &mut outcome),
            Value::Object(_) | Value::Null | Value::Bool(_) => {}
        }
        if !schema.enum_.is_empty() {
            outcome.checks += 1;
            if !schema.enumerates(value, same) {
                outcome.fail(self.not_in_enum(value, schema, path));
            }
        }
        if let Value::Object(map) = value {
            self.object(map, schema, path, was, &mut outcome);
        }
        outcome
    }

    fn type_(&self, value: &Value, schema: &Schema, path: &Place<'_>, outcome: &mut Outcome) {
        let allowed: &[Type] = match schema.type_.as_ref() {
            _ if schema.int_or_string && self.of_default => return,
            _ if schema.int_or_string => &[Type::Integer, Type::String],
            Some(type_) => std::slice::from_ref(type_),
            None => &[],
        };
        let expected = self.format(schema);
        if allowed.is_empty() && expected.is_empty() {
            return;
        }
        outcome.checks += 1;
        let words = || allowed.iter().map(|type_| type_.as_str()).collect::<Vec<_>>().join(",");
        if value.is_null() {
            if !schema.nullable && !allowed.is_empty() {
                outcome.fail(self.wrong_type(path, words, "null"));
            }
            return;
        }
        let (type_, format) = type_of(value);
        let has = |word: &str| allowed.iter().any(|type_| type_.as_str() == word);
        // Beyond these, floats do not tell one whole number from the next.
        const MAX_WHOLE: f64 = 9_007_199_254_740_991.0;
        let whole = value
            .as_f64()
            .is_some_and(|number| number.fract() == 0.0 && number.abs() <= MAX_WHOLE);
        let float_is_integer = type_ == "number" && whole && has("integer");
        let fits = has(type_) || float_is_integer || (type_ == "integer" && has("number"));
        let is_text_or_list = value.is_string() || value.is_array();
        if !is_text_or_list && !expected.is_empty() {
            if !fits && format != expected {
                outcome.fail(self.wrong_type(path, || expected.to_owned(), format));
            }
            return;
        }
        // Lists, too, are taken for what has a format of texts, as upstream takes them.
        if is_text_or_list && !expected.is_empty() && !has("number") && !has("integer") {
            return;
        }
        if !fits {
            outcome.fail(self.wrong_type(path, words, type_));
        }
    }

    fn not_in_enum(&self, value: &Value, schema: &Schema, path: &Place<'_>) -> Failure {
        // In the order of the schema, where other errors of this kind sort; JSON that is no string is quoted as text.
        let words = |_: &str| {
            let mut words = "supported values: ".to_owned();
            for (at, allowed) in schema.enum_.iter().enumerate() {
                words.push_str(if at == 0 { "" } else { ", " });
                match allowed {
                    Value::String(text) => quote_into(text, &mut words),
                    other => quote_into(&measure::shown(other), &mut words),
                }
            }
            // There may be as many errors as the budget has bytes.
            words.shrink_to_fit();
            words
        };
        self.error(Reason::NotSupported, path, Some(value), words)
    }

    fn combinators(&self, value: &Value, schema: &Schema, path: &Place<'_>, outcome: &mut Outcome) {
        self.any_of(value, schema, path, outcome);
        self.one_of(value, schema, path, outcome);
        if !schema.all_of.is_empty() {
            let results: Vec<_> = schema
                .all_of
                .iter()
                .map(|all| self.value(value, all, path, None))
                .collect();
            let valid = results.iter().filter(|result| result.is_valid()).count();
            if valid < results.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                let what = || format!("{} must validate all the schemas (allOf){none}", quote(&path.text()));
                outcome.fail(self.placeless(what));
            }
            results.into_iter().for_each(|result| outcome.add(result));
        }
        if let Some(not) = &schema.not
            && Self::SILENT.value(value, not, path, None).is_valid()
        {
            let what = || format!("{} must not validate the schema (not)", quote(&path.text()));
            outcome.fail(self.placeless(what));
        }
    }

    fn any_of(&self, value: &Value, schema: &Schema, path: &Place<'_>, outcome: &mut Outcome) {
        let mut best: Option<(Outcome, &SchemaRef)> = None;
        for any in &schema.any_of {
            let result = Self::SILENT.value(value, any, path, None);
            if result.is_valid() {
                return;
            }
            if best.as_ref().is_none_or(|(best, _)| result.checks > best.checks) {
                best = Some((result, any));
            }
        }
        if let Some(best) = best {
            let what = || format!("{} must validate at least one schema (anyOf)", quote(&path.text()));
            outcome.fail(self.placeless(what));
            self.furthest(value, best, path, outcome);
        }
    }

    fn one_of(&self, value: &Value, schema: &Schema, path: &Place<'_>, outcome: &mut Outcome) {
        let mut best: Option<(Outcome, &SchemaRef)> = None;
        let mut valid = 0;
        for one in &schema.one_of {
            let result = Self::SILENT.value(value, one, path, None);
            if result.is_valid() {
                valid += 1;
                best = None;
            } else if valid == 0 && best.as_ref().is_none_or(|(best, _)| result.checks > best.checks) {
                best = Some((result, one));
            }
        }
        if schema.one_of.is_empty() || valid == 1 {
            return;
        }
        let found = || match valid {
            0 => "Found none valid".to_owned(),
            _ => format!("Found {valid} valid alternatives"),
        };
        let what = || {
            let path = quote(&path.text());
            format!("{path} must validate one and only one schema (oneOf). {}", found())
        };
        outcome.fail(self.placeless(what));
        if let Some(best) = best {
            self.furthest(value, best, path, outcome);
        }
    }

    /// Adds the errors of the alternative that got furthest, in words if there are to be any.
    fn furthest(&self, value: &Value, best: (Outcome, &SchemaRef), path: &Place<'_>, outcome: &mut Outcome) {
        let (silent, alternative) = best;
        outcome.add(if self.speaks {
            self.value(value, alternative, path, None)
        } else {
            silent
        });
    }

    fn list(
        &self,
        list: &[Value],
        schema: &Schema,
        path: &Place<'_>,
        was: Option<Correlation<'_>>,
        outcome: &mut Outcome,
    ) {
        outcome.checks += 1;
        if let Some(items) = &schema.items {
            let before = was.map(Correlation::items);
            for (i, item) in list.iter().enumerate() {
                let was = before.as_ref().and_then(|before| before.index(i));
                outcome.add(self.value(item, items, &path.item(i), was));
            }
        }
        let count = i64::try_from(list.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_items
            && count < min
        {
            let what = || format!("should have at least {min} items");
            outcome.fail(self.invalid(path, &json!(count), what));
        }
        if let Some(max) = schema.max_items
            && count > max
        {
            outcome.fail(self.too_many(path, count, max));
        }
        if schema.unique_items && !unique::are(list) {
            outcome.fail(self.invalid(path, &Value::Null, || "shouldn't contain duplicates".to_owned()));
        }
    }

    fn too_many(&self, path: &Place<'_>, count: i64, max: i64) -> Failure {
        let size = |number: i64| usize::try_from(number).unwrap_or_default();
        self.failure(|| FieldError::too_many(self.field(&path.text()), size(count), size(max)))
    }

    fn object(
        &self,
        map: &serde_json::Map<String, Value>,
        schema: &Schema,
        path: &Place<'_>,
        was: Option<Correlation<'_>>,
        outcome: &mut Outcome,
    ) {
        outcome.checks += 1;
        let count = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_properties
            && count < min
        {
            let what = || format!("should have at least {min} properties");
            outcome.fail(self.invalid(path, &json!(count), what));
        }
        if let Some(max) = schema.max_properties
            && count > max
        {
            outcome.fail(self.too_many(path, count, max));
        }
        for (key, value) in map {
            if let Some(schema) = schema.field(key) {
                // The old object was converted to the version of the new one, which is no sign that nothing changed.
                let of_type = path.is_root() && matches!(key.as_str(), "apiVersion" | "kind");
                let was = was.filter(|_| !of_type).and_then(|was| was.key(key));
                outcome.add(self.value(value, schema, &path.field(key), was));
            } else if schema.additional_properties_allowed == Some(false) {
                let detail = |path: &str| format!("{path} in body is a forbidden property");
                outcome.fail(self.error(Reason::Invalid, &path.field(key), Some(&json!("")), detail));
            }
        }
        let embedded: &[&str] = if schema.embedded_resource {
            &["apiVersion", "kind"]
        } else {
            &[]
        };
        for key in schema
            .required
            .iter()
            .map(String::as_str)
            .chain(embedded.iter().copied())
        {
            if !map.contains_key(key) {
                outcome.fail(self.error(Reason::Required, &path.field(key), None, |_| String::new()));
            }
        }
    }

    /// Duplicates in lists that are sets or maps.
    fn lists(&self, value: &Value, schema: &Schema, path: &Place<'_>, errors: &mut Vec<FieldError>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if let Some(schema) = schema.field(key) {
                        self.lists(value, schema, &path.field(key), errors);
                    }
                }
            }
            Value::Array(list) => {
                match schema.list_type {
                    Some(ListType::Set) => {
                        // A text and another value are never the same.
                        let texts = |item| Value::as_str(item).map(Cow::Borrowed);
                        let others = |item: &Value| {
                            let is_other = !item.is_null() && !item.is_string();
                            is_other.then(|| Cow::Owned(item.to_string()))
                        };
                        let again = [again(list, texts), again(list, others)].concat();
                        self.duplicates(again, |at| list[at].clone(), path, errors);
                    }
                    Some(ListType::Map) => {
                        if let Some(mistake) = self.item_without_keys(list, path) {
                            return errors.push(mistake);
                        }
                        let names = &schema.list_map_keys;
                        let again = again(list, |item| key_text(item, names));
                        self.duplicates(again, |at| keys(&list[at], names), path, errors);
                    }
                    _ => {}
                }
                if let Some(items) = &schema.items {
                    for (i, item) in list.iter().enumerate() {
                        self.lists(item, items, &path.item(i), errors);
                    }
                }
            }
            _ => {}
        }
    }

    /// The first item that is no object, and so has no keys. Null was told of already.
    fn item_without_keys(&self, list: &[Value], path: &Place<'_>) -> Option<FieldError> {
        let without = |item: &Value| !item.is_null() && !item.is_object();
        let place = list.iter().position(without)?;
        Some(FieldError::invalid(
            self.field(&path.item(place).text()),
            list[place].clone(),
            "must be an object for an array of list-type map",
        ))
    }

    /// Reports the items that occur again, which are given by their places.
    fn duplicates(
        &self,
        mut again: Vec<usize>,
        shown: impl Fn(usize) -> Value,
        path: &Place<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        again.sort_unstable();
        for at in again {
            let field = self.field(&path.item(at).text());
            errors.push(FieldError::duplicate(field, shown(at)));
        }
    }
}

/// The second place of each item that occurs again. Items without a text have no identity.
fn again<'v, S: AsRef<str>>(list: &'v [Value], text: impl Fn(&'v Value) -> Option<S>) -> Vec<usize> {
    let places = list.iter().enumerate();
    let mut texts: Vec<(S, usize)> = places.filter_map(|(at, item)| Some((text(item)?, at))).collect();
    sort_by_text(&mut texts);
    let same = texts.chunk_by(|(one, _), (other, _)| one.as_ref() == other.as_ref());
    same.filter_map(|same| Some(same.get(1)?.1)).collect()
}

/// The key fields of an item of a map list; null when it is no object.
fn keys(item: &Value, names: &[String]) -> Value {
    let Value::Object(item) = item else { return Value::Null };
    names
        .iter()
        .filter_map(|name| item.get(name).map(|value| (name.clone(), value.clone())))
        .collect()
}

#[cfg(test)]
mod tests;
