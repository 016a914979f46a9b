//! What a user may ask for: changes of a sample, each of which is taken back, by the schema of its kind.
//!
//! Every field of the spec that can be reached by names is changed once: a truth value is turned round, a number grows
//! and goes to its bounds, a quantity grows, a word becomes another one that the schema names, a text gets another end,
//! an optional field or an entry of a map or list is taken out, and one that the sample does not have is put in. Those
//! that find something most often come one by one, and what is left over comes in one change. Invariant: the changes of
//! one sample are always the same. Not here: whether the server takes them.

use serde_json::{Map, Value, json};

/// A change, and the way back, as merge patches.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Input {
    /// In words: `spec.replicas to 3`.
    pub(super) what: String,
    path: Vec<String>,
    pub(super) there: Value,
    pub(super) back: Value,
}

/// How many changes of one sample come at most, with the last one for all that are left over.
pub(super) const MOST: usize = 6;
/// How many fields that one changes.
const TOGETHER: usize = 16;

/// How soon a change comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Another value, of those that the schema names.
    Change,
    /// Another text, of which the schema says nothing.
    Text,
    /// A bound of a number.
    Bound,
    /// Something is taken out.
    Less,
    /// Something is put in.
    More,
}

/// The changes of a sample, so many at most. `crd` is its kind's, when there is one.
pub(super) fn of(sample: &Value, crd: Option<&Value>, most: usize) -> Vec<Input> {
    let mut all = all_of(sample, crd);
    if all.len() > most {
        let rest = all.split_off(most.saturating_sub(1));
        all.extend(together(rest));
    }
    all.into_iter().map(|(_, input)| input).collect()
}

/// One change of several fields. Nothing is taken out, lest the server refuse all of it.
fn together(rest: Vec<(Rank, Input)>) -> Option<(Rank, Input)> {
    let mut taken: Vec<Input> = Vec::new();
    for (rank, input) in rest {
        let is_apart = |other: &Input| !(other.path.starts_with(&input.path) || input.path.starts_with(&other.path));
        if rank != Rank::Less && taken.len() < TOGETHER && taken.iter().all(is_apart) {
            taken.push(input);
        }
    }
    let mut taken = taken.into_iter();
    let mut all = taken.next()?;
    let mut count = 0;
    for input in taken {
        merge(&mut all.there, input.there);
        merge(&mut all.back, input.back);
        count += 1;
    }
    if count > 0 {
        all.what = format!("{} and {count} other fields", all.what);
    }
    Some((Rank::More, all))
}

/// Puts the fields of one patch into another; they have none in common.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, from) in from {
                match into.get_mut(&name) {
                    Some(into) => merge(into, from),
                    None => drop(into.insert(name, from)),
                }
            }
        }
        (into, from) => *into = from,
    }
}

fn all_of(sample: &Value, crd: Option<&Value>) -> Vec<(Rank, Input)> {
    let version = sample["apiVersion"].as_str().unwrap_or_default();
    let version = version.rsplit('/').next().unwrap_or_default();
    let versions = crd.and_then(|crd| crd["spec"]["versions"].as_array());
    let found = versions.and_then(|all| all.iter().find(|one| one["name"] == version));
    let schema = found.map_or(&Value::Null, |found| {
        &found["schema"]["openAPIV3Schema"]["properties"]["spec"]
    });
    let mut found = Vec::new();
    let mut spec = sample["spec"].clone();
    fill(&mut spec, schema);
    collect(&spec, schema, true, &mut vec!["spec".to_owned()], &mut found);
    found.sort_by_key(|(rank, _)| *rank);
    found
}

/// Whether it makes no difference to take a value out.
fn is_default(value: &Value, schema: &Value) -> bool {
    let mut default = schema["default"].clone();
    fill(&mut default, schema);
    default == *value
}

/// Puts in what the server would: a field that the sample leaves to its default is one that the user may change.
fn fill(value: &mut Value, schema: &Value) {
    let (Some(fields), Some(known)) = (value.as_object_mut(), schema["properties"].as_object()) else {
        return;
    };
    for (name, of_field) in known {
        let default = &of_field["default"];
        if !default.is_null() {
            fields.entry(name.clone()).or_insert_with(|| default.clone());
        }
        if let Some(value) = fields.get_mut(name) {
            fill(value, of_field);
        }
    }
}

fn collect(value: &Value, schema: &Value, is_required: bool, path: &mut Vec<String>, found: &mut Vec<(Rank, Input)>) {
    let mut rank = if is_free_text(value, schema) {
        Rank::Text
    } else {
        Rank::Change
    };
    for other in others(value, schema) {
        found.push((rank, input(path, format!("to {other}"), &other, value)));
        rank = Rank::Bound;
    }
    if let Value::Array(items) = value
        && let Some((_, fewer)) = items.split_last()
    {
        found.push((
            Rank::Less,
            input(path, "without its last item".to_owned(), &json!(fewer), value),
        ));
    }
    if !is_required {
        found.push((Rank::Less, input(path, "to nothing".to_owned(), &Value::Null, value)));
    }
    let Value::Object(fields) = value else { return };
    let known = schema["properties"].as_object();
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let is_map = known.is_none() && schema["additionalProperties"].is_object();
    for (name, value) in fields {
        let of_field = match is_map {
            true => &schema["additionalProperties"],
            false => &schema["properties"][name.as_str()],
        };
        // Without a schema nobody knows what may be left out.
        let is_required =
            !is_map && (known.is_none() || required.contains(&name.as_str()) || is_default(value, of_field));
        path.push(name.clone());
        collect(value, of_field, is_required, path, found);
        path.pop();
    }
    for (name, of_field) in known
        .into_iter()
        .flatten()
        .filter(|(name, _)| !fields.contains_key(*name))
    {
        let Some(new) = example(of_field) else { continue };
        path.push(name.clone());
        found.push((Rank::More, input(path, format!("to {new}"), &new, &Value::Null)));
        path.pop();
    }
    if is_map && let Some(new) = example(&schema["additionalProperties"]) {
        path.push("another".to_owned());
        found.push((Rank::More, input(path, format!("to {new}"), &new, &Value::Null)));
        path.pop();
    }
}

fn input(path: &[String], how: String, there: &Value, back: &Value) -> Input {
    let patch = |value: &Value| {
        path.iter()
            .rev()
            .fold(value.clone(), |inner, field| json!({field.as_str(): inner}))
    };
    Input {
        what: format!("{} {how}", path.join(".")),
        path: path.to_vec(),
        there: patch(there),
        back: patch(back),
    }
}

/// Whether the schema says no more of it than that it is a text.
fn is_free_text(value: &Value, schema: &Value) -> bool {
    let is_free = ["enum", "format", "pattern"]
        .iter()
        .all(|field| schema[field].is_null());
    is_free && schema["type"] == "string" && value.as_str().is_some_and(|text| quantity(text).is_none())
}

/// The text with a greater number at its end: `app:1.3` of `app:1.2`.
fn next(text: &str) -> String {
    let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (stem, number) = text.split_at(text.len() - digits);
    match number.parse::<u32>().ok().and_then(|number| number.checked_add(1)) {
        Some(number) => format!("{stem}{number}"),
        None => format!("{text}-2"),
    }
}

/// Other values for a field.
fn others(value: &Value, schema: &Value) -> Vec<Value> {
    let names = schema["enum"].as_array();
    if let Some(names) = names.filter(|_| !value.is_null()) {
        return names
            .iter()
            .filter(|name| *name != value && !name.is_null())
            .take(1)
            .cloned()
            .collect();
    }
    match value {
        Value::Bool(is_so) => vec![Value::from(!is_so)],
        Value::Number(number) => number.as_i64().map_or_else(Vec::new, |number| numbers(number, schema)),
        Value::String(text) if !text.is_empty() && is_free_text(value, schema) => vec![Value::from(next(text))],
        Value::String(text) => quantity(text).into_iter().map(Value::from).collect(),
        _ => Vec::new(),
    }
}

/// A greater number, and the bounds when they are near: a cluster of a thousand members tells no more than one of three.
fn numbers(number: i64, schema: &Value) -> Vec<Value> {
    const NEAR: u64 = 8;
    // A schema may have written 3 as 3.0.
    let bound = |name: &str| {
        schema[name]
            .to_string()
            .split('.')
            .next()
            .and_then(|whole| whole.parse::<i64>().ok())
    };
    // Without a schema nobody knows what zero means.
    let zero = (!schema.is_null()).then_some(0);
    let (least, most) = (bound("minimum").or(zero), bound("maximum"));
    let greater = number.saturating_add(2);
    let mut all = vec![most.map_or(greater, |most| greater.min(most))];
    all.extend(least.filter(|least| number.abs_diff(*least) <= NEAR));
    all.extend(most.filter(|most| number.abs_diff(*most) <= NEAR));
    let mut seen = vec![number];
    all.retain(|other| {
        !seen.contains(other) && {
            seen.push(*other);
            true
        }
    });
    all.into_iter().map(Value::from).collect()
}

/// Twice as much, of a quantity with a unit: `2Gi` of `1Gi`.
fn quantity(text: &str) -> Option<String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let is_unit = matches!(unit, "m" | "k" | "Ki" | "M" | "Mi" | "G" | "Gi" | "T" | "Ti");
    let number: u64 = number.parse().ok().filter(|_| is_unit)?;
    Some(format!("{}{unit}", number.checked_mul(2)?))
}

/// A value that a schema allows, unless it takes knowledge to find one.
fn example(schema: &Value) -> Option<Value> {
    if !schema["default"].is_null() {
        return others(&schema["default"], schema).into_iter().next();
    }
    if let Some(names) = schema["enum"].as_array() {
        return names.first().filter(|name| !name.is_null()).cloned();
    }
    match schema["type"].as_str()? {
        "boolean" => Some(Value::from(true)),
        "integer" => numbers(0, schema).into_iter().find(|number| number != 0),
        "string" if schema["format"].is_null() && schema["pattern"].is_null() => Some(Value::from("example")),
        "object" if schema["additionalProperties"]["type"] == "string" => Some(json!({"example": "example"})),
        "object" => {
            let required: Vec<&str> = schema["required"]
                .as_array()?
                .iter()
                .filter_map(Value::as_str)
                .collect();
            let fields: Option<Map<String, Value>> = required
                .into_iter()
                .map(|name| Some((name.to_owned(), example(&schema["properties"][name])?)))
                .collect();
            fields.map(Value::Object)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_changed_and_changed_back() {
        let schema = json!({"required": ["size", "image"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 3},
            "image": {"type": "string"},
            "debug": {"type": "boolean"},
            "level": {"type": "string", "enum": ["low", "high"]},
            "storage": {"type": "string"},
            "settings": {"type": "object", "additionalProperties": {"type": "string"}},
            "tls": {"type": "object", "required": ["on"], "properties": {"on": {"type": "boolean"}}},
        }});
        let crd = json!({"spec": {"versions": [
            {"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"spec": schema}}}},
        ]}});
        let sample = json!({"apiVersion": "example.com/v1", "kind": "Box", "spec": {
            "size": 2, "image": "box:1", "level": "low", "storage": "1Gi", "settings": {"a": "1"},
        }});
        let inputs: Vec<Input> = all_of(&sample, Some(&crd))
            .into_iter()
            .map(|(_, input)| input)
            .collect();
        let some = of(&sample, Some(&crd), MOST);
        assert_eq!(some[..MOST - 1], inputs[..MOST - 1]);
        let rest = &some[MOST - 1];
        assert_eq!(rest.what, "spec.size to 1 and 3 other fields");
        assert_eq!(
            rest.there,
            json!({"spec": {"size": 1, "settings": {"another": "example"}, "debug": true, "tls": {"on": true}}})
        );
        assert_eq!(of(&sample, Some(&crd), inputs.len()), inputs);
        let all: Vec<&str> = inputs.iter().map(|input| input.what.as_str()).collect();
        assert_eq!(
            all,
            [
                "spec.level to \"high\"",
                "spec.size to 3",
                "spec.storage to \"2Gi\"",
                "spec.image to \"box:2\"",
                "spec.settings.a to \"2\"",
                "spec.size to 1",
                "spec.level to nothing",
                "spec.settings to nothing",
                "spec.settings.a to nothing",
                "spec.storage to nothing",
                "spec.settings.another to \"example\"",
                "spec.debug to true",
                "spec.tls to {\"on\":true}",
            ]
        );
        for input in &inputs {
            let mut changed = sample.clone();
            super::super::wanted::merge(&mut changed, &input.there);
            assert_ne!(changed, sample, "{}", input.what);
            super::super::wanted::merge(&mut changed, &input.back);
            assert_eq!(changed, sample, "{}", input.what);
        }
    }

    #[test]
    fn what_is_left_to_its_default_may_be_changed() {
        let storage = json!({"type": "object", "default": {}, "properties": {
            "size": {"type": "string", "pattern": "^[0-9]+(Mi|Gi)$", "default": "10Gi"},
        }});
        let schema = json!({"properties": {"storage": storage, "spare": {"type": "boolean", "default": false}}});
        let crd = json!({"spec": {"versions": [
            {"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"spec": schema}}}},
        ]}});
        let sample = json!({"apiVersion": "example.com/v1", "kind": "Box", "spec": {}});
        let inputs = of(&sample, Some(&crd), MOST);
        let size = inputs
            .iter()
            .find(|input| input.what == "spec.storage.size to \"20Gi\"");
        let size = size.unwrap_or_else(|| panic!("{inputs:?}"));
        assert_eq!(size.there, json!({"spec": {"storage": {"size": "20Gi"}}}));
        assert_eq!(size.back, json!({"spec": {"storage": {"size": "10Gi"}}}));
        assert!(
            inputs.iter().any(|input| input.what == "spec.spare to true"),
            "{inputs:?}"
        );
        assert!(!inputs.iter().any(|input| input.what.contains("nothing")), "{inputs:?}");
    }

    #[test]
    fn without_a_schema_numbers_and_truth_values_are_changed() {
        let sample = json!({"apiVersion": "v1", "kind": "Box", "spec": {"size": 1, "on": false, "name": "x"}});
        let all: Vec<String> = of(&sample, None, MOST).into_iter().map(|input| input.what).collect();
        assert_eq!(all, ["spec.on to true", "spec.size to 3"]);
    }
}
