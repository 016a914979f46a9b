//! States that differ, in words: of an object that both states have, the fields.

use std::collections::BTreeMap;

use serde_json::Value;

/// How many lines are told, and how much of a value.
const LINES: usize = 8;
const LENGTH: usize = 160;

/// The lines of [`Snapshot::differences`](super::Snapshot::differences) as a person reads them: the expected value, then
/// what was found.
pub(super) fn told(differences: &str) -> Vec<String> {
    let mut objects: BTreeMap<String, (Vec<Value>, Vec<Value>)> = BTreeMap::new();
    let mut lines = Vec::new();
    for line in differences.lines() {
        let object = line
            .split_once(' ')
            .map(|(_, text)| serde_json::from_str::<Value>(text));
        let (Some(Ok(object @ Value::Object(_))), Some(sign)) = (object, line.chars().next()) else {
            lines.push(short(line));
            continue;
        };
        let (expected, found) = objects.entry(named(&object)).or_default();
        match sign {
            '-' => expected.push(object),
            _ => found.push(object),
        }
    }
    for (name, (expected, found)) in objects {
        match (expected.as_slice(), found.as_slice()) {
            ([expected], [found]) => {
                let mut fields = Vec::new();
                differing(expected, found, "", &mut fields);
                lines.extend(fields.into_iter().map(|field| format!("{name}: {field}")));
            }
            (expected, found) => {
                let count =
                    |sign: char, all: &[Value]| (!all.is_empty()).then(|| format!("{sign}{} {name}", all.len()));
                lines.extend([count('-', expected), count('+', found)].into_iter().flatten());
            }
        }
    }
    if lines.len() > LINES {
        let more = lines.len() - LINES;
        lines.truncate(LINES);
        lines.push(format!("… {more} more"));
    }
    lines
}

fn named(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (kind, namespace, name) = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
    match namespace {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

fn differing(one: &Value, other: &Value, path: &str, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(before), Value::Object(after)) => {
            let added = after.keys().filter(|name| !before.contains_key(*name));
            for name in before.keys().chain(added) {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                differing(&one[name.as_str()], &other[name.as_str()], &path, found);
            }
        }
        (Value::Array(before), Value::Array(after)) if is_map(before) && is_map(after) => {
            let keys = |all: &[Value]| all.iter().map(|item| key(item).to_owned()).collect::<Vec<_>>();
            let (before, after) = (keys(before), keys(after));
            let added = after.iter().filter(|name| !before.contains(name));
            for name in before.iter().chain(added) {
                let item = |of: &Value| {
                    let mut items = of.as_array().into_iter().flatten();
                    items.find(|item| key(item) == name).cloned().unwrap_or_default()
                };
                differing(&item(one), &item(other), &format!("{path}.{name}"), found);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (at, (one, other)) in before.iter().zip(after).enumerate() {
                differing(one, other, &format!("{path}.{at}"), found);
            }
        }
        _ if one == other => {}
        _ => found.push(format!("{path}: {} → {}", value(one), value(other))),
    }
}

/// What tells the items of a list apart.
fn key(item: &Value) -> &str {
    let field = if item["name"].is_string() { "name" } else { "type" };
    item[field].as_str().unwrap_or_default()
}

/// Whether each item has a key, as conditions and containers have.
fn is_map(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|item| !key(item).is_empty())
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        value => short(&value.to_string()),
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_by_field() {
        let check = |differences: &str, expected: &[&str]| assert_eq!(told(differences), expected, "{differences}");
        let pod = |phase: &str| {
            format!(r#"{{"kind":"Pod","metadata":{{"name":"a","namespace":"n"}},"status":{{"phase":{phase:?}}}}}"#)
        };
        check("", &[]);
        check(
            &format!("-1 {}\n+1 {}\n", pod("Running"), pod("Pending")),
            &[r#"Pod n/a: status.phase: "Running" → "Pending""#],
        );
        check(&format!("-1 {}\n", pod("Running")), &["-1 Pod n/a"]);
        check(
            &format!("+1 {}\n+1 {}\n", pod("Running"), pod("Pending")),
            &["+2 Pod n/a"],
        );
        check(
            "-1 {\"kind\":\"Node\",\"metadata\":{\"name\":\"x\"},\"spec\":[1,2]}\n+1 {\"kind\":\"Node\",\"metadata\":{\"name\":\"x\"},\"spec\":[1],\"more\":true}",
            &["Node x: spec: [1,2] → [1]", "Node x: more: nothing → true"],
        );
        check(
            r#"-1 {"kind":"A","s":[{"type":"X","v":1},{"type":"Y","v":1}]}
+1 {"kind":"A","s":[{"type":"Y","v":2},{"type":"X","v":1}]}"#,
            &["A : s.Y.v: 1 → 2"],
        );
        // What is no object is told as it is.
        check("update pods default/a", &["update pods default/a"]);
    }
}
