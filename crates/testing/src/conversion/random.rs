//! Random values out of a schema.
//!
//! Values are small and often at a bound, where conversions go wrong. Required fields are always there, the others
//! mostly.

use serde_json::{Map, Number, Value, json};

use super::pattern;

/// How deep values go; below, optional fields are left out.
const DEPTH: u32 = 8;

/// A sequence of random numbers (SplitMix64) that depends on its seed only.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: &str) -> Random {
        // FNV-1a: another type, another sequence.
        Random(seed.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let index = self.below(from.len() as u64) as usize;
        from.get(index)
    }

    /// A value that the schema allows.
    pub(super) fn value(&mut self, schema: &Value) -> Value {
        self.at(schema, 0)
    }

    fn at(&mut self, schema: &Value, depth: u32) -> Value {
        let has = |key: &str| schema.get(key).and_then(Value::as_bool) == Some(true);
        if has("nullable") && self.chance(10) {
            return Value::Null;
        }
        if let Some(allowed) = schema.get("enum").and_then(Value::as_array) {
            return self.pick(allowed).cloned().unwrap_or_default();
        }
        if has("x-kubernetes-int-or-string") {
            return match self.chance(50) {
                true => json!(self.below(100)),
                false => self.text(schema),
            };
        }
        if has("x-kubernetes-embedded-resource") {
            return json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "embedded"}});
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("object") => self.object(schema, depth),
            Some("array") => self.array(schema, depth),
            Some("string") => self.text(schema),
            Some("integer") => self.integer(schema),
            Some("number") => {
                let half = self.integer(schema).as_f64().unwrap_or_default() + 0.5;
                let max = schema.get("maximum").and_then(Value::as_f64).unwrap_or(f64::MAX);
                Number::from_f64(half.min(max)).map(Value::Number).unwrap_or_default()
            }
            Some("boolean") => json!(self.chance(50)),
            _ => match self.below(3) {
                0 => json!({"any": self.below(10)}),
                1 => json!("any"),
                _ => json!(self.below(10)),
            },
        }
    }

    fn object(&mut self, schema: &Value, depth: u32) -> Value {
        let mut object = Map::new();
        let required = names(schema.get("required"));
        // An enum of Rust with data: one of several properties is required.
        let branches: Vec<Vec<&str>> = ["oneOf", "anyOf"]
            .iter()
            .filter_map(|key| schema.get(*key)?.as_array())
            .flatten()
            .map(|branch| names(branch.get("required")))
            .filter(|names| !names.is_empty())
            .collect();
        let chosen = self.pick(&branches).cloned().unwrap_or_default();
        let others: Vec<&str> = branches
            .into_iter()
            .flatten()
            .filter(|name| !chosen.contains(name))
            .collect();
        for (name, property) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let needed = required.contains(&name.as_str()) || chosen.contains(&name.as_str());
            let wanted = !others.contains(&name.as_str()) && depth < DEPTH && self.chance(70);
            if needed || wanted {
                object.insert(name.clone(), self.at(property, depth + 1));
            }
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            for index in 0..self.below(3) {
                object.insert(format!("key-{index}"), self.at(values, depth + 1));
            }
        }
        if schema.get("properties").is_none()
            && schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
            && self.chance(50)
        {
            object.insert("any".to_owned(), json!(self.below(10)));
        }
        Value::Object(object)
    }

    fn array(&mut self, schema: &Value, depth: u32) -> Value {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let min = bound("minItems").unwrap_or(0);
        let max = bound("maxItems").unwrap_or(min + 3).min(min + 3).max(min);
        let wanted = if depth < DEPTH {
            min + self.below(max - min + 1)
        } else {
            min
        };
        let keys = names(schema.get("x-kubernetes-list-map-keys"));
        let is_set = schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("set");
        let mut items: Vec<Value> = Vec::new();
        for _ in 0..wanted {
            let item = self.at(schema.get("items").unwrap_or(&Value::Null), depth + 1);
            let same = |other: &Value| match keys.is_empty() {
                true => is_set && *other == item,
                false => keys.iter().all(|key| other.get(*key) == item.get(*key)),
            };
            if !items.iter().any(same) {
                items.push(item);
            }
        }
        Value::Array(items)
    }

    fn integer(&mut self, schema: &Value) -> Value {
        let narrow = schema.get("format").and_then(Value::as_str) == Some("int32");
        let (least, most) = match narrow {
            true => (i64::from(i32::MIN), i64::from(i32::MAX)),
            false => (-(1 << 53), 1 << 53),
        };
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64).map(|bound| bound as i64);
        let min = bound("minimum").unwrap_or(least).max(least);
        let max = bound("maximum").unwrap_or(most).min(most).max(min);
        let interesting = [0, 1, -1, 7, min, max];
        let chosen = self.pick(&interesting).copied().unwrap_or_default();
        match (min..=max).contains(&chosen) {
            true => json!(chosen),
            false => json!(min + (self.below(1 + max.abs_diff(min).min(1 << 20))) as i64),
        }
    }

    fn text(&mut self, schema: &Value) -> Value {
        let is = |key: &str| schema.get(key).and_then(Value::as_str);
        let number = self.below(60);
        match is("format") {
            Some("date-time") => return json!(format!("2026-01-02T03:04:{number:02}Z")),
            Some("date") => return json!(format!("2026-01-{:02}", 1 + number % 28)),
            Some("byte") => return json!(["", "aGVsbG8=", "AA=="][(number % 3) as usize]),
            Some("duration") => return json!(format!("{number}m0s")),
            Some("uuid") => return json!(format!("8f3a4c5e-0000-4000-8000-0000000000{number:02}")),
            Some("ipv4") => return json!(format!("10.0.0.{number}")),
            Some("ipv6") => return json!(format!("fd00::{number}")),
            Some("uri") => return json!(format!("https://example.com/{number}")),
            _ => {}
        }
        if let Some(text) = is("pattern").and_then(|pattern| pattern::matching(pattern, self)) {
            return json!(text);
        }
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let min = bound("minLength").unwrap_or(0);
        let max = bound("maxLength").unwrap_or(min + 12).min(min + 12).max(min);
        let length = min + self.below(max - min + 1);
        let text: String = (0..length)
            .filter_map(|_| self.pick(&['a', 'b', 'z', '0', '-', '.', ' ', 'ä', '"', '/']).copied())
            .collect();
        json!(text)
    }
}

fn names(list: Option<&Value>) -> Vec<&str> {
    let list = list.and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Values that hold a little less than this one; metadata stays, and so do texts and numbers, which a schema may
/// restrict.
pub(super) fn smaller(value: &Value) -> Vec<Value> {
    match value {
        Value::Object(map) => {
            let keys = map
                .keys()
                .filter(|key| !["apiVersion", "kind", "metadata"].contains(&key.as_str()));
            let without = keys.clone().map(|key| {
                let mut less = map.clone();
                less.remove(key);
                Value::Object(less)
            });
            let within = keys.flat_map(|key| {
                smaller(&map[key]).into_iter().map(|value| {
                    let mut less = map.clone();
                    less.insert(key.clone(), value);
                    Value::Object(less)
                })
            });
            without.chain(within).collect()
        }
        Value::Array(items) => {
            let without = (0..items.len()).map(|index| {
                let mut less = items.clone();
                less.remove(index);
                Value::Array(less)
            });
            let within = items.iter().enumerate().flat_map(|(index, item)| {
                smaller(item).into_iter().map(move |value| {
                    let mut less = items.clone();
                    less[index] = value;
                    Value::Array(less)
                })
            });
            without.chain(within).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value fits the schema of its kind.
    #[test]
    fn values_are_what_the_schema_allows() {
        let mut random = Random::new("seed");
        let mut check = |schema: Value, allowed: &dyn Fn(&Value) -> bool| {
            for _ in 0..200 {
                let value = random.value(&schema);
                assert!(allowed(&value), "{schema} gave {value}");
            }
        };
        check(json!({"type": "integer", "minimum": 3, "maximum": 5}), &|value| {
            value.as_i64().is_some_and(|number| (3..=5).contains(&number))
        });
        check(json!({"type": "integer", "format": "int32"}), &|value| {
            value.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
        });
        check(json!({"type": "string", "enum": ["a", "b"]}), &|value| {
            ["a", "b"].contains(&value.as_str().unwrap_or_default())
        });
        check(json!({"type": "string", "minLength": 2, "maxLength": 3}), &|value| {
            value
                .as_str()
                .is_some_and(|text| (2..=3).contains(&text.chars().count()))
        });
        check(json!({"type": "string", "pattern": "^[a-c]{2}(-x)?$"}), &|value| {
            let text = value.as_str().unwrap_or_default();
            let head = text.strip_suffix("-x").unwrap_or(text);
            head.len() == 2 && head.bytes().all(|byte| (b'a'..=b'c').contains(&byte))
        });
        check(
            json!({"type": "array", "items": {"type": "boolean"}, "x-kubernetes-list-type": "set"}),
            &|value| value.as_array().is_some_and(|items| items.len() < 3),
        );
        let one_of = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
        check(one_of, &|value| value.as_object().is_some_and(|map| map.len() == 1));
    }
}
