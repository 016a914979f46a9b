//! States that differ, in words: of an object that both states have, the fields.

use std::collections::BTreeMap;

use kubewright::changes_between;
use serde_json::Value;

/// How many lines are told.
const LINES: usize = 8;
/// How much of a line that is no object is told.
const LENGTH: usize = 160;

/// The lines of [`Snapshot::differences`](super::Snapshot::differences) as a person reads them, in the words in which a
/// timeline tells of a change: the expected value, then what was found.
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
        let changes = match (expected.as_slice(), found.as_slice()) {
            ([expected], [found]) => changes_between(expected, found),
            _ => Vec::new(),
        };
        lines.extend(changes.iter().map(|change| format!("{name}: {change}")));
        if changes.is_empty() {
            let count = |sign: char, all: &[Value]| (!all.is_empty()).then(|| format!("{sign}{} {name}", all.len()));
            lines.extend([count('-', &expected), count('+', &found)].into_iter().flatten());
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
            &[r#"Pod n/a: status.phase "Running" → "Pending""#],
        );
        check(&format!("-1 {}\n", pod("Running")), &["-1 Pod n/a"]);
        check(
            &format!("+1 {}\n+1 {}\n", pod("Running"), pod("Pending")),
            &["+2 Pod n/a"],
        );
        check(
            r#"-1 {"kind":"Node","metadata":{"name":"x"},"spec":[1,2]}
+1 {"kind":"Node","metadata":{"name":"x"},"spec":[1],"more":true}"#,
            &["Node x: more set to true", "Node x: spec[1] removed (was 2)"],
        );
        check(
            r#"-1 {"kind":"A","s":[{"type":"X","v":1},{"type":"Y","v":1}]}
+1 {"kind":"A","s":[{"type":"Y","v":2},{"type":"X","v":1}]}"#,
            &["A : s[Y].v 1 → 2"],
        );
        // What a change of fields leaves out is a difference all the same.
        check(
            r#"-1 {"kind":"A","status":{"conditions":[{"type":"X","observedGeneration":true}]}}
+1 {"kind":"A","status":{"conditions":[{"type":"X","observedGeneration":false}]}}"#,
            &["-1 A ", "+1 A "],
        );
        // What is no object is told as it is.
        check("update pods default/a", &["update pods default/a"]);
    }
}
