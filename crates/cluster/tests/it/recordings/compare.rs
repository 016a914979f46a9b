//! Whether an answer matches the recording: values with placeholders against values.
//!
//! A placeholder such as `${uid:1}` stands for any UUID, the same one wherever the number is the same, another one
//! where it differs; `${rv:1}` < `${rv:2}` holds for the numbers that they stand for. Values that Kubernetes itself
//! leaves open (times, the order of several errors) are brought into one form on both sides before.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

/// The patterns of placeholders in recorded answers.
const PATTERNS: [(&str, &str); 13] = [
    ("uid", r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    ("rv", "[1-9][0-9]*"),
    ("listrv", "[0-9]+"),
    ("n", "[0-9]+"),
    ("time", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    ("microtime", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"),
    ("age", r"(?:\d+[smhdy])+|<unknown>"),
    ("suffix", "[bcdfghjklmnpqrstvwxz2456789]{5}"),
    ("ip", r"\d+\.\d+\.\d+\.\d+"),
    ("jwt", r"[\w-]+\.[\w-]+\.[\w-]+"),
    ("continue", r"[\w=.-]+"),
    ("nodePort", "[0-9]+"),
    ("any", r"[\s\S]+"),
];
/// Of these, different numbers stand for different values.
const UNIQUE: [&str; 4] = ["uid", "rv", "suffix", "ip"];

static SYMBOL: LazyLock<Regex> = LazyLock::new(|| {
    let names: Vec<&str> = PATTERNS.iter().map(|(name, _)| *name).collect();
    Regex::new(&format!(r"\$\{{({})(?::(\w+))?\}}", names.join("|"))).expect("a regular expression")
});
static ERRORS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r", |: \[|\]|: ").expect("a regular expression"));

/// The values of numbered placeholders in one sequence.
#[derive(Default)]
pub(crate) struct Bindings(BTreeMap<(String, String), String>);

impl Bindings {
    /// `Some` is why `actual` cannot be the value of the placeholder.
    fn unify(&mut self, kind: &str, number: &str, actual: &str) -> Option<String> {
        let key = (kind.to_owned(), number.to_owned());
        if let Some(bound) = self.0.get(&key) {
            return (bound != actual).then(|| format!("${{{kind}:{number}}} was {bound}"));
        }
        if UNIQUE.contains(&kind) {
            for ((other_kind, other), value) in self.0.iter().filter(|((other, _), _)| other == kind) {
                if value == actual {
                    return Some(format!("the same value as ${{{other_kind}:{other}}}"));
                }
                let less = |a: &str, b: &str| a.parse::<u64>().ok() < b.parse::<u64>().ok();
                if kind == "rv" && less(other, number) != less(value, actual) {
                    return Some(format!("not in order with ${{rv:{other}}} = {value}"));
                }
            }
        }
        self.0.insert(key, actual.to_owned());
        None
    }

    fn text(&mut self, expected: &str, actual: &str) -> Option<String> {
        let differs = || Some("differs".to_owned());
        if !expected.contains("${") {
            return if expected == actual { None } else { differs() };
        }
        let (mut pattern, mut at, mut symbols) = (String::from("^"), 0, Vec::new());
        for found in SYMBOL.captures_iter(expected) {
            let whole = found.get(0).expect("a match has a whole");
            pattern += &regex::escape(&expected[at..whole.start()]);
            let kind = &found[1];
            let (_, form) = PATTERNS.iter().find(|(name, _)| *name == kind).expect("a known name");
            pattern += &format!("({form})");
            symbols.push((kind.to_owned(), found.get(2).map(|number| number.as_str().to_owned())));
            at = whole.end();
        }
        pattern += &regex::escape(&expected[at..]);
        pattern.push('$');
        let found = Regex::new(&pattern)
            .expect("escaped text and known forms")
            .captures(actual);
        let Some(found) = found else { return differs() };
        symbols.iter().enumerate().find_map(|(index, (kind, number))| {
            let number = number.as_deref()?;
            self.unify(kind, number, &found[index + 1])
        })
    }

    /// Appends the differences, as `path: expected …, got …`.
    pub(crate) fn compare(&mut self, expected: &Value, actual: &Value, path: &str, out: &mut Vec<String>) {
        let mut differ = |why: &str| {
            out.push(format!(
                "{path}: expected {}, got {}{why}",
                short(expected),
                short(actual)
            ));
        };
        match (expected, actual) {
            (Value::Object(wanted), Value::Object(got)) => self.objects(wanted, got, path, out),
            (Value::Array(wanted), Value::Array(got)) => {
                if wanted.len() != got.len() {
                    out.push(format!(
                        "{path}: expected {} items, got {}: {}",
                        wanted.len(),
                        got.len(),
                        short(actual)
                    ));
                }
                for (index, (wanted, got)) in wanted.iter().zip(got).enumerate() {
                    self.compare(wanted, got, &format!("{path}/{index}"), out);
                }
            }
            (Value::String(wanted), Value::String(got)) => {
                if let Some(why) = self.text(wanted, got) {
                    differ(&format!(" ({why})"));
                }
            }
            (Value::String(wanted), got)
                if wanted == "${nodePort}" && got.is_i64() || wanted == "${any}" && !got.is_null() => {}
            _ if expected == actual => {}
            _ => differ(""),
        }
    }

    fn objects(&mut self, wanted: &Map<String, Value>, got: &Map<String, Value>, path: &str, out: &mut Vec<String>) {
        let keys: std::collections::BTreeSet<&String> = wanted.keys().chain(got.keys()).collect();
        for key in keys {
            let below = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
            match (wanted.get(key), got.get(key)) {
                (Some(wanted), Some(got)) => self.compare(wanted, got, &below, out),
                (Some(wanted), None) => out.push(format!("{below}: expected {}, got nothing", short(wanted))),
                (None, Some(got)) => out.push(format!("{below}: expected nothing, got {}", short(got))),
                (None, None) => {}
            }
        }
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The user of the tests; the recordings were made by another administrator.
#[derive(Clone, Default)]
pub(crate) struct Caller(pub(crate) Value);

impl Caller {
    /// Removes values that are never compared, and sorts lists without an order.
    pub(crate) fn shape(&self, value: &Value) -> Value {
        match value {
            Value::Array(list) => list.iter().map(|item| self.shape(item)).collect(),
            Value::Object(map) => {
                let mut out: Map<String, Value> = map
                    .iter()
                    .map(|(key, value)| (key.clone(), self.shape(value)))
                    .collect();
                managers(&mut out);
                self.as_recorded(&mut out);
                foreign_groups(&mut out);
                Value::Object(out)
            }
            other => other.clone(),
        }
    }

    fn as_recorded(&self, user: &mut Map<String, Value>) {
        let is_me = user.contains_key("groups") && user.get("username") == self.0.get("username");
        if !is_me || self.0.is_null() {
            return;
        }
        user.insert("username".to_owned(), json!("admin"));
        user.insert("uid".to_owned(), json!("admin-uid"));
        if user.get("groups") == self.0.get("groups") {
            user.insert("groups".to_owned(), json!(["system:masters", "system:authenticated"]));
        }
        if user.get("extra").is_some() && user.get("extra") == self.0.get("extra") {
            user.remove("extra");
        }
    }
}

fn managers(object: &mut Map<String, Value>) {
    let Some(entries) = object.get_mut("managedFields").and_then(Value::as_array_mut) else {
        return;
    };
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        entry.remove("time");
    }
    entries.sort_by_key(|entry| {
        ["operation", "manager", "apiVersion", "subresource"].map(|key| entry[key].as_str().unwrap_or("").to_owned())
    });
}

/// Groups of definitions that other sequences are using at the same time.
fn foreign_groups(object: &mut Map<String, Value>) {
    let (list, name) = match object.get("kind").and_then(Value::as_str) {
        Some("APIGroupList") => ("groups", "/name"),
        Some("APIGroupDiscoveryList") => ("items", "/metadata/name"),
        _ => return,
    };
    if let Some(groups) = object.get_mut(list).and_then(Value::as_array_mut) {
        groups.retain(|group| {
            !group
                .pointer(name)
                .and_then(Value::as_str)
                .unwrap_or("")
                .ends_with(".example.com")
        });
    }
}

/// Several errors in one Status come in any order.
pub(crate) fn unordered(body: &mut Value) {
    if body["kind"] != "Status" {
        return;
    }
    let Some(causes) = body.pointer_mut("/details/causes").and_then(Value::as_array_mut) else {
        return;
    };
    if causes.len() < 2 {
        return;
    }
    causes.sort_by_key(Value::to_string);
    if let Some(message) = body["message"].as_str().filter(|message| *message != "${any}") {
        let mut parts: Vec<&str> = ERRORS.split(message).filter(|part| !part.is_empty()).collect();
        parts.sort_unstable();
        body["message"] = json!(parts);
    }
}

/// Deletes the value at a JSON pointer, where `*` is any member.
pub(crate) fn drop_at(value: &mut Value, pointer: &str) {
    let (head, rest) = match pointer[1..].split_once('/') {
        Some((head, rest)) => (head, Some(format!("/{rest}"))),
        None => (&pointer[1..], None),
    };
    let head = head.replace("~1", "/").replace("~0", "~");
    match value {
        Value::Object(map) => {
            let keys: Vec<String> = if head == "*" {
                map.keys().cloned().collect()
            } else {
                vec![head]
            };
            for key in keys {
                match (&rest, map.get_mut(&key)) {
                    (None, _) => drop(map.remove(&key)),
                    (Some(rest), Some(below)) => drop_at(below, rest),
                    (Some(_), None) => {}
                }
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter_mut().enumerate() {
                if let (Some(rest), true) = (&rest, head == "*" || head == index.to_string()) {
                    drop_at(item, rest);
                }
            }
        }
        _ => {}
    }
}

/// Compares only the keys of the map that a pointer names.
pub(crate) fn keep_keys(body: &mut Value, pointer: &str) {
    if let Some(map) = body.pointer_mut(pointer)
        && let Some(keys) = map.as_object()
    {
        let keys: Vec<&String> = keys.keys().filter(|key| !key.contains(".example.com")).collect();
        *map = json!(keys);
    }
}
