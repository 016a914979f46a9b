//! JSONPath in the dialect of kubectl: `.spec.replicas`, `{.items[*].metadata.name}`, `{range
//! .items[*]}{.kind}{"\n"}{end}`.
//!
//! The API server uses it for the columns of CRDs and for the paths of scale subresources; kubectl's templates work as
//! well. There: fields, `['quoted.fields']`, `\.` in fields, `*`, indexes and slices (also negative), unions, `..`, and
//! filters such as `[?(@.type=="Ready")]`.
//!
//! Invariants: a missing value is not found, and is not an error; parsing bounds the cost of a path.
//!
//! Not here: arithmetic and functions, which the dialect does not have.

mod parser;

use std::fmt;

use serde_json::Value;

use crate::{budget, measure};

/// Why a text is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("JSONPath {path:?}: {problem}")]
pub struct JsonPathError {
    path: String,
    /// The error.
    pub problem: String,
}

/// A parsed path or template.
///
/// ```
/// use kubewright_schema::jsonpath::JsonPath;
/// use serde_json::json;
/// let object = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
/// let path = JsonPath::parse(r#".status.conditions[?(@.type=="Ready")].status"#)?;
/// assert_eq!(path.find(&object), [&json!("True")]);
/// assert_eq!(path.render(&object), "True");
/// # Ok::<(), kubewright_schema::jsonpath::JsonPathError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    source: String,
    nodes: Vec<Node>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Text(String),
    Query(Vec<Step>),
    Range(Vec<Step>, Vec<Node>),
}

/// A step from values to values.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Index(i64),
    Slice(Option<i64>, Option<i64>, usize),
    /// The value and everything in it.
    Recursive,
    Union(Vec<Step>),
    Filter(Box<Filter>),
}

/// A condition on an item; without a comparison, that the left side is there.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Operand,
    comparison: Option<(Comparison, Operand)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Literal(Value),
    Query(Vec<Step>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Reads a path with or without braces, or a template.
    ///
    /// # Errors
    /// When the text is neither, with the place in words.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        let wrong = |problem| JsonPathError {
            path: text.to_owned(),
            problem,
        };
        let nodes = parser::parse(text).map_err(wrong)?;
        Ok(Self {
            source: text.to_owned(),
            nodes,
        })
    }

    /// The values that the path leads to, in the order of the document; of a template, those of all of its paths.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = Vec::new();
        find(&self.nodes, value, &mut found);
        found
    }

    /// The text of a template as kubectl prints it: values are separated by spaces, texts stand without quotes, lists
    /// and objects as JSON.
    pub fn render(&self, value: &Value) -> String {
        let mut text = String::new();
        render(&self.nodes, value, &mut text);
        text
    }

    /// The names of the fields, where the path is nothing else: `.spec.replicas` is `["spec", "replicas"]`. The paths
    /// of scale subresources and of selectable fields must be such.
    ///
    /// ```
    /// use kubewright_schema::jsonpath::JsonPath;
    /// assert_eq!(JsonPath::parse(".spec.replicas")?.fields(), Some(vec!["spec", "replicas"]));
    /// assert_eq!(JsonPath::parse(".spec.list[0]")?.fields(), None);
    /// # Ok::<(), kubewright_schema::jsonpath::JsonPathError>(())
    /// ```
    pub fn fields(&self) -> Option<Vec<&str>> {
        let [Node::Query(steps)] = &self.nodes[..] else {
            return None;
        };
        steps
            .iter()
            .map(|step| match step {
                Step::Field(name) => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

fn find<'a>(nodes: &[Node], value: &'a Value, found: &mut Vec<&'a Value>) {
    budget::spend(nodes.len());
    for node in nodes {
        match node {
            Node::Text(_) => {}
            Node::Query(steps) => found.extend(walk(steps, value)),
            Node::Range(steps, body) => walk(steps, value).into_iter().for_each(|item| find(body, item, found)),
        }
    }
}

fn render(nodes: &[Node], value: &Value, text: &mut String) {
    for node in nodes {
        match node {
            Node::Text(written) => {
                budget::produce(written.len());
                text.push_str(written);
            }
            Node::Query(steps) => {
                let values: Vec<String> = walk(steps, value).into_iter().map(printed).collect();
                text.push_str(&values.join(" "));
            }
            Node::Range(steps, body) => walk(steps, value).into_iter().for_each(|item| render(body, item, text)),
        }
    }
}

fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => measure::shown(text),
        Value::Null => String::new(),
        other => measure::shown(other),
    }
}

fn walk<'a>(steps: &[Step], value: &'a Value) -> Vec<&'a Value> {
    steps.iter().fold(vec![value], |values, step| {
        let mut next = Vec::new();
        for value in values {
            let before = next.len();
            step.take(value, &mut next);
            // Unions and descents find the same value more than once.
            budget::spend(1 + next.len() - before);
            budget::produce(size_of::<&Value>() * (next.len() - before));
        }
        next
    })
}

impl Step {
    fn take<'a>(&self, value: &'a Value, next: &mut Vec<&'a Value>) {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => next.extend(fields.get(name)),
            (Self::Wildcard, Value::Object(fields)) => next.extend(fields.values()),
            (Self::Wildcard, Value::Array(items)) => next.extend(items),
            (Self::Index(index), Value::Array(items)) => {
                next.extend(place(*index, items.len()).and_then(|at| items.get(at)));
            }
            (Self::Slice(from, to, step), Value::Array(items)) => {
                let bound = |bound: Option<i64>, otherwise| bound.map_or(otherwise, |bound| clamp(bound, items.len()));
                let (from, to) = (bound(*from, 0), bound(*to, items.len()));
                next.extend(items.get(from..to).into_iter().flatten().step_by(*step));
            }
            (Self::Recursive, value) => descend(value, next),
            (Self::Union(steps), value) => {
                budget::spend(steps.len());
                steps.iter().for_each(|step| step.take(value, next));
            }
            (Self::Filter(filter), Value::Array(items)) => {
                budget::spend(items.len());
                next.extend(items.iter().filter(|item| filter.holds(item)));
            }
            _ => {}
        }
    }
}

/// An index that counts from the end when negative.
fn place(index: i64, count: usize) -> Option<usize> {
    let from_end = if index < 0 { i64::try_from(count).ok()? } else { 0 };
    usize::try_from(index.checked_add(from_end)?).ok()
}

/// A bound of a slice; beyond the ends it is the end.
fn clamp(bound: i64, count: usize) -> usize {
    if bound < 0 {
        place(bound, count).unwrap_or(0)
    } else {
        usize::try_from(bound).unwrap_or(count).min(count)
    }
}

fn descend<'a>(value: &'a Value, next: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            next.push(value);
            fields.values().for_each(|value| descend(value, next));
        }
        Value::Array(items) => {
            next.push(value);
            items.iter().for_each(|value| descend(value, next));
        }
        _ => {}
    }
}

impl Filter {
    fn holds(&self, item: &Value) -> bool {
        let Some(left) = self.left.value(item) else {
            return false;
        };
        match &self.comparison {
            None => true,
            Some((comparison, right)) => right.value(item).is_some_and(|right| comparison.holds(left, right)),
        }
    }
}

impl Operand {
    /// The first value that the operand leads to.
    fn value<'a>(&'a self, item: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Literal(value) => Some(value),
            Self::Query(steps) => walk(steps, item).into_iter().next(),
        }
    }
}

impl Comparison {
    /// Values of different types compare as nothing but unequal.
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                _ => left.as_f64().partial_cmp(&right.as_f64()),
            },
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            _ => (left == right).then_some(std::cmp::Ordering::Equal),
        };
        match self {
            Self::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
            Self::NotEqual => !order.is_some_and(std::cmp::Ordering::is_eq),
            Self::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Self::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Self::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn object() -> Value {
        json!({
            "kind": "List",
            "metadata": {"labels": {"app.kubernetes.io/name": "x", "a": "1"}},
            "items": [
                {"name": "a", "n": 1, "ready": true, "ports": [{"port": 80}, {"port": 81}]},
                {"name": "b", "n": 2, "ready": false, "ports": []},
                {"name": "c", "n": 3},
            ],
        })
    }

    #[test]
    fn paths_lead_to_values() {
        let check = |path: &str, rendered: &str| {
            let path = JsonPath::parse(path).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(path.render(&object()), rendered, "{path}");
        };
        check(".kind", "List");
        check("kind", "List");
        check("$.kind", "List");
        check("{.kind}", "List");
        check("{$.kind}", "List");
        check("{['kind']}", "List");
        check(".missing.field[0]", "");
        check(".items[0].name", "a");
        check(".items[-1].name", "c");
        check(".items[7].name", "");
        check(".items[*].name", "a b c");
        check(".items[0:2].name", "a b");
        check(".items[1:].name", "b c");
        check(".items[:-1].name", "a b");
        check(".items[::2].name", "a c");
        check(".items[0,2].name", "a c");
        check(".items[0]['name','n']", "a 1");
        check(".items[*].ports[*].port", "80 81");
        check("..port", "80 81");
        check("{.items[*]..port}", "80 81");
        check(r".metadata.labels.app\.kubernetes\.io/name", "x");
        check(".metadata.labels['app.kubernetes.io/name']", "x");
        check(".metadata.labels['app\\.kubernetes\\.io/name']", "x");
        check(".metadata.labels.*", "1 x");
        check(".metadata.labels", r#"{"a":"1","app.kubernetes.io/name":"x"}"#);
        check(r#".items[?(@.name=="b")].n"#, "2");
        check(r".items[?(@.name=='b')].n", "2");
        check(".items[?(@.n>1)].name", "b c");
        check(".items[?( @.n >= 1.5 )].name", "b c");
        check(".items[?(@.n!=2)].name", "a c");
        check(".items[?(@.ready==true)].name", "a");
        check(".items[?(@.ports)].name", "a b");
        check(".items[?(@.ports[0].port<81)].name", "a");
        check("names: {.items[*].name}!", "names: a b c!");
        check("{range .items[*]}{.name}={.n}{\"\\n\"}{end}", "a=1\nb=2\nc=3\n");
        check("{range .items[*]}{range .ports[*]}{.port},{end};{end}", "80,81,;;;");
        check("{@.kind}", "List");
    }

    #[test]
    fn what_is_no_path_says_why() {
        let check = |path: &str, problem: &str| {
            let error = JsonPath::parse(path).map_err(|error| error.to_string());
            assert_eq!(error, Err(format!("JSONPath {path:?}: {problem}")));
        };
        check("", "is empty");
        check("{.a", "unclosed action");
        check("{.a[0}", "unterminated array");
        check(".a[x]", "invalid array index x");
        check(".a[\"x\"]", "invalid array index \"x\"");
        check(".a[0:1:0]", "the step of a slice must be greater than 0");
        check(".a['b]", "unterminated quoted string");
        check(".a[?(@.b]", "unterminated filter");
        check(".a[?(@.b==)]", "a filter has nothing on one side");
        check(
            ".a[?(b==1)]",
            "a filter compares @ paths, numbers, quoted texts, true and false, not b",
        );
        check(".a#", "unrecognized character in action: '#'");
        check("{.a}{end}", "not in range, nothing to end");
        check("{range .a[*]}x", "unterminated range");
        check("{.a b}", "unrecognized character in action: 'b'");
        check("{..a..b..c}", "more than 2 recursive descents");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r#"[-{}\[\].*?@$()'"\\:,=<>0-9a ]{0,20}"#) {
            if let Ok(path) = JsonPath::parse(&text) {
                path.render(&object());
            }
        }
    }
}
