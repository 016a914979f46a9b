//! Requirements of a stage's selector: a path into the object, and the rule for its values.
//!
//! A path is as kwok writes it in jq: names, `["keys"]`, `[]` for all items, and `select(.name == "text")` between
//! pipes.

use serde_json::Value;

/// One requirement.
#[derive(Clone, Debug)]
pub(super) struct Requirement {
    path: Vec<Step>,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Clone, Debug)]
enum Step {
    Name(String),
    Items,
    Select(Vec<Step>, String),
}

impl Requirement {
    pub(super) fn of(value: &Value) -> Result<Requirement, String> {
        let key = value["key"].as_str().unwrap_or_default();
        let operator = value["operator"].as_str().unwrap_or_default();
        let values = value["values"].as_array().into_iter().flatten();
        Ok(Requirement {
            path: pipe(key)?,
            operator: match operator {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("operator {other:?}: known are In, NotIn, Exists, DoesNotExist")),
            },
            values: values.filter_map(|value| value.as_str().map(str::to_owned)).collect(),
        })
    }

    pub(super) fn holds(&self, object: &Value) -> bool {
        let found = follow(&self.path, vec![object]);
        let is_one = || {
            found
                .iter()
                .any(|value| self.values.iter().any(|wanted| text(value) == *wanted))
        };
        match self.operator {
            Operator::Exists => !found.is_empty(),
            Operator::DoesNotExist => found.is_empty(),
            Operator::In => is_one(),
            Operator::NotIn => !is_one(),
        }
    }
}

/// The values at a path from an object.
pub(super) fn at<'a>(path: &str, object: &'a Value) -> Result<Option<&'a Value>, String> {
    Ok(follow(&pipe(path)?, vec![object]).into_iter().next())
}

/// A value as text: a string without quotes.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn follow<'a>(path: &[Step], mut found: Vec<&'a Value>) -> Vec<&'a Value> {
    for step in path {
        found = match step {
            Step::Name(name) => found.into_iter().filter_map(|value| value.get(name)).collect(),
            Step::Items => found
                .into_iter()
                .flat_map(|value| value.as_array().into_iter().flatten())
                .collect(),
            Step::Select(path, wanted) => {
                let fits = |value: &&Value| follow(path, vec![value]).iter().any(|found| text(found) == *wanted);
                found.into_iter().filter(fits).collect()
            }
        };
        found.retain(|value| !value.is_null());
    }
    found
}

fn pipe(text: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for part in text.split('|').map(str::trim) {
        match part.strip_prefix("select(").and_then(|part| part.strip_suffix(')')) {
            Some(inner) => {
                let (path, value) = inner.split_once("==").ok_or_else(|| not_understood(text))?;
                let value = value.trim().trim_matches('"').to_owned();
                steps.push(Step::Select(plain(path.trim(), text)?, value));
            }
            None => steps.extend(plain(part, text)?),
        }
    }
    Ok(steps)
}

fn not_understood(text: &str) -> String {
    format!("{text:?} is not understood; a path is such as .status.conditions[] | select(.type == \"Ready\") | .status")
}

/// `.a.b["c"].[]`.
fn plain(part: &str, whole: &str) -> Result<Vec<Step>, String> {
    let wrong = || not_understood(whole);
    let mut rest = part;
    let mut steps = Vec::new();
    if !rest.starts_with('.') {
        return Err(wrong());
    }
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(".[]").or_else(|| rest.strip_prefix("[]")) {
            steps.push(Step::Items);
            rest = after;
        } else if let Some(after) = rest.strip_prefix(".[\"").or_else(|| rest.strip_prefix("[\"")) {
            let (key, after) = after.split_once("\"]").ok_or_else(wrong)?;
            steps.push(Step::Name(key.to_owned()));
            rest = after;
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
            if name.is_empty() && !(part == "." && after.is_empty()) || !name.chars().all(is_name) {
                return Err(wrong());
            }
            steps.extend((!name.is_empty()).then(|| Step::Name(name.to_owned())));
            rest = after;
        } else {
            return Err(wrong());
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths() {
        let object = json!({
            "metadata": { "annotations": { "a.b/c": "x" } },
            "spec": { "replicas": 3 },
            "status": { "conditions": [{ "type": "A", "status": "False" }, { "type": "B", "status": "True" }], "none": null },
        });
        let check = |key: &str, operator: &str, values: &[&str], expected: bool| {
            let requirement = Requirement::of(&json!({ "key": key, "operator": operator, "values": values }));
            assert_eq!(
                requirement.expect(key).holds(&object),
                expected,
                "{key} {operator} {values:?}"
            );
        };
        check(".metadata.annotations[\"a.b/c\"]", "In", &["x"], true);
        check(".metadata.annotations.[\"a.b/c\"]", "NotIn", &["x"], false);
        check(".spec.replicas", "In", &["3"], true);
        check(".status.none", "Exists", &[], false);
        check(".status.nothing.deeper", "DoesNotExist", &[], true);
        check(
            ".status.conditions[] | select(.type == \"B\") | .status",
            "In",
            &["True"],
            true,
        );
        check(
            ".status.conditions.[] | select( .type == \"A\" ) | .status",
            "In",
            &["True"],
            false,
        );
    }
}
