//! `overrideValues`: paths into the values of a chart, and what stands there, in the notation of `helm --set-string`.
//!
//! The notation is that of Helm's `strvals.ParseIntoString`, which reads `path=value`: dots lead into maps, `[0]` into
//! lists, a backslash takes the next character as it is, `{a,b}` is a list, and a comma begins another path. It is read
//! here, because arguments can be seen by others on the machine.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Value};

/// The highest index of a list, as Helm has it.
const MAX_INDEX: usize = 65_536;
/// How deep a path may lead, as Helm has it.
const MAX_DEPTH: usize = 30;

/// Sets `path` to `value` in `values`.
///
/// # Errors
/// Why the two are no assignment.
pub(super) fn assign(values: &mut Map<String, Value>, path: &str, value: &str) -> Result<(), String> {
    let text = format!("{path}={value}");
    let mut reader = Reader {
        rest: text.chars().peekable(),
    };
    while reader.rest.peek().is_some() {
        reader.key(values, 0)?;
    }
    Ok(())
}

/// `over` on top of `values`: maps are merged, everything else is replaced.
pub(super) fn merge(values: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (name, value) in over {
        match (values.get_mut(name), value) {
            (Some(Value::Object(below)), Value::Object(above)) => merge(below, above),
            _ => {
                values.insert(name.clone(), value.clone());
            }
        }
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
}

impl Reader<'_> {
    /// Reads up to one of these characters, or to the end.
    fn until(&mut self, ends: &str) -> (String, Option<char>) {
        let mut text = String::new();
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => text.extend(self.rest.next()),
                c if ends.contains(c) => return (text, Some(c)),
                c => text.push(c),
            }
        }
        (text, None)
    }

    fn key(&mut self, into: &mut Map<String, Value>, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("the path is deeper than {MAX_DEPTH} fields"));
        }
        let (name, end) = self.until("=[,.");
        match end {
            Some('=') => {
                let value = self.value()?;
                into.insert(name, value);
            }
            Some('.') => {
                let inner = into.entry(name).or_insert(Value::Null);
                if !inner.is_object() {
                    *inner = Value::Object(Map::new());
                }
                if let Value::Object(inner) = inner {
                    self.key(inner, depth + 1)?;
                }
            }
            Some('[') => {
                let list = into.entry(name).or_insert(Value::Null);
                self.item(list, depth + 1)?;
            }
            _ => return Err(format!("the path {name:?} has no value")),
        }
        Ok(())
    }

    /// An index and what follows it.
    fn item(&mut self, list: &mut Value, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("the path is deeper than {MAX_DEPTH} fields"));
        }
        let (index, end) = self.until("]");
        let index: usize = index
            .parse()
            .ok()
            .filter(|index| *index <= MAX_INDEX && end.is_some())
            .ok_or_else(|| format!("{index:?} is no index of a list"))?;
        if !list.is_array() {
            *list = Value::Array(Vec::new());
        }
        let Value::Array(items) = list else { return Ok(()) };
        if items.len() <= index {
            items.resize(index + 1, Value::Null);
        }
        let item = &mut items[index];
        match self.rest.next() {
            Some('=') => *item = self.value()?,
            Some('[') => self.item(item, depth + 1)?,
            Some('.') => {
                if !item.is_object() {
                    *item = Value::Object(Map::new());
                }
                if let Value::Object(inner) = item {
                    self.key(inner, depth + 1)?;
                }
            }
            Some(other) => return Err(format!("{other:?} cannot follow an index")),
            None => return Err("an index has no value".to_owned()),
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Value, String> {
        if self.rest.peek() != Some(&'{') {
            return Ok(Value::String(self.until(",").0));
        }
        self.rest.next();
        let mut items = Vec::new();
        loop {
            let (item, end) = self.until(",}");
            match end {
                Some('}') => {
                    if !item.is_empty() || !items.is_empty() {
                        items.push(Value::String(item));
                    }
                    return match self.rest.next() {
                        None | Some(',') => Ok(Value::Array(items)),
                        Some(other) => Err(format!("{other:?} cannot follow a list")),
                    };
                }
                Some(_) => items.push(Value::String(item)),
                None => return Err("a list must end with '}'".to_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_notation_is_helms() {
        let check = |path: &str, value: &str, expected: Value| {
            let mut values = json!({"image": {"tag": "1", "name": "x"}, "args": ["a", "b"], "n": 1});
            let Value::Object(map) = &mut values else { return };
            let got = match assign(map, path, value) {
                Ok(()) => values,
                Err(why) => json!(why),
            };
            let mut all = json!({"image": {"tag": "1", "name": "x"}, "args": ["a", "b"], "n": 1});
            if let (Value::Object(all), Value::Object(expected)) = (&mut all, &expected) {
                for (name, value) in expected {
                    all.insert(name.clone(), value.clone());
                }
            } else {
                all = expected;
            }
            assert_eq!(got, all, "{path}={value}");
        };
        check("image.tag", "2", json!({"image": {"tag": "2", "name": "x"}}));
        check("a", "", json!({"a": ""}));
        check("a", "5", json!({"a": "5"}));
        check("a", "null", json!({"a": "null"}));
        check("a", "x=y.z", json!({"a": "x=y.z"}));
        check("n.b", "1", json!({"n": {"b": "1"}}));
        check("a", "x,b=y", json!({"a": "x", "b": "y"}));
        check("a", "x\\,b=y", json!({"a": "x,b=y"}));
        check("a\\.b", "1", json!({"a.b": "1"}));
        check("args[1]", "c", json!({"args": ["a", "c"]}));
        check("args[3].x", "c", json!({"args": ["a", "b", null, {"x": "c"}]}));
        check("m[0][1]", "c", json!({"m": [[null, "c"]]}));
        check("a", "{x,y}", json!({"a": ["x", "y"]}));
        check("a", "{}", json!({"a": []}));
        check("a", "x,y", json!("the path \"y\" has no value"));
        check("args[x]", "1", json!("\"x\" is no index of a list"));
        check("args[99999]", "1", json!("\"99999\" is no index of a list"));
        check("a", "{x", json!("a list must end with '}'"));
    }

    #[test]
    fn maps_are_merged_and_lists_replaced() {
        let mut values = json!({"a": {"x": 1, "y": [1, 2]}, "b": 1});
        let over = json!({"a": {"y": ["3"]}, "b": {"c": "1"}});
        if let (Value::Object(values), Value::Object(over)) = (&mut values, &over) {
            merge(values, over);
        }
        assert_eq!(values, json!({"a": {"x": 1, "y": ["3"]}, "b": {"c": "1"}}));
    }
}
