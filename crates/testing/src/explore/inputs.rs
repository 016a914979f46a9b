//! What a user may ask for: changes of a sample, each of which is taken back, by the schema of its kind.
//!
//! Every field of the spec that can be reached by names is changed once: a truth value is turned round, a number grows
//! and goes to its bounds, a quantity grows, a word becomes another one that the schema names, an optional field or an
//! entry of a map or list is taken out, and one that the sample does not have is put in. Invariant: the changes of one
//! sample are always the same, the likely ones first. Not here: whether the server takes them.

use serde_json::{Map, Value, json};

/// A change, and the way back, as merge patches.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Input {
    /// In words: `spec.replicas to 3`.
    pub(super) what: String,
    pub(super) there: Value,
    pub(super) back: Value,
}

/// The most changes of one sample; a user who wants more writes them.
const MOST: usize = 6;

/// The changes of a sample. `crd` is its kind's, when there is one.
pub(super) fn of(sample: &Value, crd: Option<&Value>) -> Vec<Input> {
    let mut all = all_of(sample, crd);
    all.truncate(MOST);
    all
}

fn all_of(sample: &Value, crd: Option<&Value>) -> Vec<Input> {
    let version = sample["apiVersion"].as_str().unwrap_or_default();
    let version = version.rsplit('/').next().unwrap_or_default();
    let versions = crd.and_then(|crd| crd["spec"]["versions"].as_array());
    let found = versions.and_then(|all| all.iter().find(|one| one["name"] == version));
    let schema = found.map_or(&Value::Null, |found| {
        &found["schema"]["openAPIV3Schema"]["properties"]["spec"]
    });
    let mut found = Vec::new();
    collect(&sample["spec"], schema, true, &mut vec!["spec".to_owned()], &mut found);
    // What is changed comes before what is taken out, and that before what is new.
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, input)| input).collect()
}

fn collect(value: &Value, schema: &Value, is_required: bool, path: &mut Vec<String>, found: &mut Vec<(u8, Input)>) {
    for other in others(value, schema) {
        found.push((0, input(path, format!("to {other}"), &other, value)));
    }
    if let Value::Array(items) = value
        && let Some((_, fewer)) = items.split_last()
    {
        found.push((1, input(path, "without its last item".to_owned(), &json!(fewer), value)));
    }
    if !is_required {
        found.push((1, input(path, "to nothing".to_owned(), &Value::Null, value)));
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
        let is_required = !is_map && (known.is_none() || required.contains(&name.as_str()));
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
        found.push((2, input(path, format!("to {new}"), &new, &Value::Null)));
        path.pop();
    }
    if is_map && let Some(new) = example(&schema["additionalProperties"]) {
        path.push("another".to_owned());
        found.push((2, input(path, format!("to {new}"), &new, &Value::Null)));
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
        there: patch(there),
        back: patch(back),
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
        let inputs = all_of(&sample, Some(&crd));
        assert_eq!(of(&sample, Some(&crd)), inputs[..MOST]);
        let all: Vec<&str> = inputs.iter().map(|input| input.what.as_str()).collect();
        assert_eq!(
            all,
            [
                "spec.level to \"high\"",
                "spec.size to 3",
                "spec.size to 1",
                "spec.storage to \"2Gi\"",
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
    fn without_a_schema_numbers_and_truth_values_are_changed() {
        let sample = json!({"apiVersion": "v1", "kind": "Box", "spec": {"size": 1, "on": false, "name": "x"}});
        let all: Vec<String> = of(&sample, None).into_iter().map(|input| input.what).collect();
        assert_eq!(all, ["spec.on to true", "spec.size to 3"]);
    }
}
