//! Changes that another client made in a child: the fields that are not as they are wanted. Added fields are not looked
//! at.

use serde_json::Value;

/// The paths of the fields that differ from what is wanted, a few of them.
pub fn differences(wanted: &Value, found: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    walk("", wanted, found, &mut paths);
    paths.truncate(5);
    paths
}

fn walk(path: &str, wanted: &Value, found: &Value, paths: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(_)) => {
            for (key, value) in wanted {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                walk(&path, value, &found[key], paths);
            }
        }
        (Value::Array(wanted), Value::Array(items)) => {
            for (index, value) in wanted.iter().enumerate() {
                walk(
                    &format!("{path}[{index}]"),
                    value,
                    items.get(index).unwrap_or(&Value::Null),
                    paths,
                );
            }
        }
        // An empty value may be left out.
        (Value::Object(wanted), Value::Null) if wanted.is_empty() => {}
        (Value::Array(wanted), Value::Null) if wanted.is_empty() => {}
        (wanted, found) if wanted == found => {}
        _ => paths.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_wanted_fields_count() {
        let check = |wanted: Value, found: Value, expected: &[&str]| assert_eq!(differences(&wanted, &found), expected);
        check(json!({"a": 1}), json!({"a": 1, "b": 2}), &[]);
        check(
            json!({"a": {"b": [{"c": 1}]}}),
            json!({"a": {"b": [{"c": 2}]}}),
            &["a.b[0].c"],
        );
        check(json!({"a": [1, 2]}), json!({"a": [1]}), &["a[1]"]);
        check(json!({"a": {}, "b": []}), json!({}), &[]);
        check(json!({"a": "x"}), json!({}), &["a"]);
    }
}
