//! Label selectors: `app=web,tier in (front,back),!legacy` and their form in objects (`metav1.LabelSelector`).
//!
//! The texts of errors are apimachinery's, its `<nil>` included: clients see them in answers to lists.
//!
//! Invariants: requirements are kept in the order of their keys; the text of a selector reads back as the same
//! selector, except that of [`Selector::nothing`], which has none.

mod parser;

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::budget;
use crate::error::FieldError;
use crate::names;
use crate::path::FieldPath;

/// Why a text is no label selector, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// How a requirement compares a label with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// `a=b`
    Equals,
    /// `a==b`, the same as [`Operator::Equals`]
    DoubleEquals,
    /// `a!=b`; true also where there is no such label
    NotEquals,
    /// `a in (b,c)`
    In,
    /// `a notin (b,c)`; true also where there is no such label
    NotIn,
    /// `a`
    Exists,
    /// `!a`
    DoesNotExist,
    /// `a>1`; both are integers
    GreaterThan,
    /// `a<1`; both are integers
    LessThan,
}

/// One condition of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

impl Requirement {
    /// A condition on the label `key`.
    ///
    /// # Errors
    /// When the key, a value or their number does not fit the operator.
    pub fn new<I>(key: impl Into<String>, operator: Operator, values: I) -> Result<Self, SelectorError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let requirement = Self {
            key: key.into(),
            operator,
            values: values.into_iter().map(Into::into).collect(),
        };
        let errors = requirement.errors();
        if errors.is_empty() {
            Ok(requirement)
        } else {
            Err(SelectorError(crate::error::aggregate(&errors)))
        }
    }

    /// The key of the label.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How the label is compared.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values to compare the label with, sorted.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(String::as_str)
    }

    fn errors(&self) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> = key_error(&self.key, "key").into_iter().collect();
        let count = self.values.len();
        let wrong = match self.operator {
            Operator::In | Operator::NotIn if count == 0 => "for 'in', 'notin' operators, values set can't be empty",
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if count != 1 => {
                "exact-match compatibility requires one single value"
            }
            Operator::Exists | Operator::DoesNotExist if count != 0 => {
                "values set must be empty for exists and does not exist"
            }
            Operator::GreaterThan | Operator::LessThan if count != 1 => {
                "for 'Gt', 'Lt' operators, exactly one value is required"
            }
            _ => "",
        };
        if !wrong.is_empty() {
            errors.push(FieldError::invalid("values", Value::from_iter(self.values()), wrong));
        }
        let integers = matches!(self.operator, Operator::GreaterThan | Operator::LessThan);
        for (index, value) in self.values().enumerate() {
            if integers && value.parse::<i64>().is_err() {
                let message = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(format!("values[{index}]"), value, message));
            }
        }
        for (index, value) in self.values().enumerate() {
            let messages = names::label_value(value);
            if !messages.is_empty() {
                errors.push(FieldError::invalid(
                    format!("values[{index}][{}]", self.key),
                    value,
                    messages.join("; "),
                ));
            }
        }
        errors
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let listed = || value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => listed(),
            Operator::NotEquals | Operator::NotIn => !listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compare(value).is_some_and(|(label, limit)| label > limit),
            Operator::LessThan => self.compare(value).is_some_and(|(label, limit)| label < limit),
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

fn key_error(key: &str, field: &str) -> Option<FieldError> {
    let messages = names::qualified_name(key);
    (!messages.is_empty()).then(|| FieldError::invalid(field, key, messages.join("; ")))
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values().collect::<Vec<_>>().join(",");
        let key = &self.key;
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A question about labels; all of its requirements must hold.
///
/// ```
/// use kubewright_schema::labels::Selector;
/// use serde_json::json;
/// let selector = Selector::parse("tier in (front,back),!legacy")?;
/// assert!(selector.matches(&json!({"tier": "front"})));
/// assert!(!selector.matches(&json!({"tier": "front", "legacy": ""})));
/// assert_eq!(selector.to_string(), "!legacy,tier in (back,front)");
/// # Ok::<(), kubewright_schema::labels::SelectorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// None selects nothing.
    requirements: Option<Vec<Requirement>>,
}

impl Selector {
    /// Selects every object (`labels.Everything`).
    pub fn everything() -> Self {
        Self {
            requirements: Some(Vec::new()),
        }
    }

    /// Selects no object (`labels.Nothing`).
    pub fn nothing() -> Self {
        Self { requirements: None }
    }

    /// Selects the objects that fulfil all of the requirements.
    pub fn from_requirements(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Self {
            requirements: Some(requirements),
        }
    }

    /// Reads the form of the query parameter `labelSelector` and of `kubectl -l` (`labels.Parse`). The empty text
    /// selects everything.
    ///
    /// # Errors
    /// With the words of the API server, such as `found 'b', expected: ',' or 'end of string'`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        budget::spend_on_selector(text.len());
        parser::parse(text).map(Self::from_requirements)
    }

    /// Reads the form that stands in objects, `matchLabels` and `matchExpressions` (`LabelSelectorAsSelector`). `null`
    /// selects nothing, an empty object everything.
    ///
    /// # Errors
    /// The errors of validation about the selector, with fields below `at`.
    pub fn from_label_selector(selector: &Value, at: &FieldPath) -> Result<Self, Vec<FieldError>> {
        let selector = match selector {
            Value::Null => return Ok(Self::nothing()),
            Value::Object(selector) => selector,
            other => return Err(vec![FieldError::type_invalid(at, other.clone(), "must be an object")]),
        };
        let mut errors = Vec::new();
        let mut requirements = Vec::new();
        let labels = selector.get("matchLabels").unwrap_or(&Value::Null);
        errors.extend(names::labels(labels, &at.key("matchLabels")));
        for (key, value) in labels.as_object().into_iter().flatten() {
            let values = BTreeSet::from([value.as_str().unwrap_or_default().to_owned()]);
            requirements.push(Requirement {
                key: key.clone(),
                operator: Operator::Equals,
                values,
            });
        }
        let at = at.key("matchExpressions");
        match selector.get("matchExpressions") {
            None | Some(Value::Null) => {}
            Some(Value::Array(expressions)) => {
                for (index, expression) in expressions.iter().enumerate() {
                    requirements.extend(expression_requirement(expression, &at.index(index), &mut errors));
                }
            }
            Some(other) => errors.push(FieldError::type_invalid(&at, other.clone(), "must be a list")),
        }
        if errors.is_empty() {
            Ok(Self::from_requirements(requirements))
        } else {
            Err(errors)
        }
    }

    /// Whether an object with these labels is selected; `null` is no labels.
    pub fn matches(&self, labels: &Value) -> bool {
        self.matches_with(|key| labels.get(key).and_then(Value::as_str))
    }

    /// Whether an object is selected whose labels the function gives.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.as_ref().is_some_and(|requirements| {
            budget::spend(requirements.len());
            requirements
                .iter()
                .all(|requirement| requirement.matches(label(&requirement.key)))
        })
    }

    /// How many requirements there are.
    pub fn len(&self) -> usize {
        self.requirements.as_ref().map_or(0, Vec::len)
    }

    /// Whether there is no requirement, so that every object is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// The requirements in the order of their keys; none also for [`Selector::nothing`].
    pub fn requirements(&self) -> &[Requirement] {
        self.requirements.as_deref().unwrap_or_default()
    }
}

/// One of `matchExpressions`. Its mistakes go to `errors`.
fn expression_requirement(expression: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Requirement> {
    let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
    let values: Vec<&str> = expression
        .get("values")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let before = errors.len();
    let operator = match text("operator") {
        "In" => Some(Operator::In),
        "NotIn" => Some(Operator::NotIn),
        "Exists" => Some(Operator::Exists),
        "DoesNotExist" => Some(Operator::DoesNotExist),
        _ => None,
    };
    match operator {
        Some(Operator::In | Operator::NotIn) if values.is_empty() => {
            errors.push(FieldError::required(
                at.key("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            ));
        }
        Some(Operator::Exists | Operator::DoesNotExist) if !values.is_empty() => errors.push(FieldError::forbidden(
            at.key("values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        Some(_) => {}
        None => errors.push(FieldError::invalid(
            at.key("operator"),
            text("operator"),
            "not a valid selector operator",
        )),
    }
    for message in names::qualified_name(text("key")) {
        errors.push(FieldError::invalid(at.key("key"), text("key"), message));
    }
    for (index, value) in values.iter().enumerate() {
        for message in names::label_value(value) {
            errors.push(FieldError::invalid(at.key("values").index(index), *value, message));
        }
    }
    let values = values.into_iter().map(str::to_owned).collect();
    operator.filter(|_| errors.len() == before).map(|operator| Requirement {
        key: text("key").to_owned(),
        operator,
        values,
    })
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements().iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn selectors_read_and_print() {
        let check = |text: &str, printed: &str| {
            let selector = Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.to_string(), printed, "{text}");
        };
        check("", "");
        check("  ", "");
        check("x=a,y=b,z=c", "x=a,y=b,z=c");
        check("b = 1 , a == 2", "a==2,b=1");
        check("x!=a", "x!=a");
        check("x=", "x=");
        check("x= ,z= ", "x=,z=");
        check("!x", "!x");
        check("x", "x");
        check("x>1,y<7", "x>1,y<7");
        check("in,notin", "in,notin");
        check("x in (b,a,a)", "x in (a,b)");
        check("x in ()", "x in ()");
        check("x notin (abc)", "x notin (abc)");
        check("x in (,b)", "x in (,b)");
        check("x in (a,)", "x in (,a)");
        check("in in (in,notin)", "in in (in,notin)");
        check("example.com/a_b.c-D=v", "example.com/a_b.c-D=v");
    }

    #[test]
    fn errors_have_the_words_of_kubernetes() {
        let check = |text: &str, expected: &str| {
            assert_eq!(
                Selector::parse(text).map_err(|error| error.to_string()),
                Err(expected.to_owned()),
                "{text}"
            );
        };
        check("a===b", "unable to parse requirement: found '=', expected: identifier");
        check("a in (b", "unable to parse requirement: found '', expected: ',' or ')'");
        check("a in b", "unable to parse requirement: found 'b' expected: '('");
        check(
            "a in (=)",
            "unable to parse requirement: found '=', expected: ',', ')' or identifier",
        );
        check(
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        );
        check("a=x b", "found 'b', expected: ',' or 'end of string'");
        check(
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        );
        check("a,", "found '', expected: identifier after ','");
        check("=a", "found '=', expected: !, identifier, or 'end of string'");
        check("!=a", "found '!=', expected: !, identifier, or 'end of string'");
        check("!!a", "unable to parse requirement: found '!', expected: identifier");
        check(
            "/a",
            "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty",
        );
    }

    #[test]
    fn selectors_match() {
        let labels = json!({"app": "web", "size": "5", "empty": ""});
        let check = |text: &str, matches: bool| {
            let selector = Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.matches(&labels), matches, "{text}");
        };
        for text in [
            "",
            "app=web",
            "app==web",
            "app!=db",
            "none!=x",
            "app in (db,web)",
            "none notin (a)",
            "app",
            "!none",
            "size>4",
            "size<6",
            "empty=",
            "app=web,size",
        ] {
            check(text, true);
        }
        for text in [
            "app=db",
            "app!=web",
            "none",
            "!app",
            "size>5",
            "size<5",
            "app>1",
            "none>1",
            "none=",
            "app=web,none",
        ] {
            check(text, false);
        }
        assert!(Selector::parse("!a").is_ok_and(|selector| selector.matches(&Value::Null)));
        assert!(!Selector::nothing().matches(&labels));
        assert!(Selector::everything().is_empty() && !Selector::nothing().is_empty());
    }

    #[test]
    fn selectors_in_objects() {
        let at = FieldPath::new("spec.selector");
        let check = |selector: Value, expected: Result<&str, &[&str]>| {
            let found = Selector::from_label_selector(&selector, &at).map(|found| found.to_string());
            let found = found.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(
                found,
                expected
                    .map(str::to_owned)
                    .map_err(|errors| errors.iter().map(ToString::to_string).collect()),
                "{selector}"
            );
        };
        check(json!({}), Ok(""));
        check(
            json!({"matchLabels": {"b": "1"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]}),
            Ok("a in (x,y),b=1,!c"),
        );
        check(
            json!({"matchExpressions": [
                {"key": "a", "operator": "In"},
                {"key": "a", "operator": "Exists", "values": ["x"]},
                {"key": "/a", "operator": "Near"},
            ]}),
            Err(&[
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                "spec.selector.matchExpressions[2].operator: Invalid value: \"Near\": not a valid selector operator",
                "spec.selector.matchExpressions[2].key: Invalid value: \"/a\": prefix part must be non-empty",
            ]),
        );
        assert_eq!(
            Selector::from_label_selector(&Value::Null, &at),
            Ok(Selector::nothing())
        );
    }

    fn requirement() -> impl Strategy<Value = Requirement> {
        let value = "([a-z]([a-zA-Z0-9_.-]{0,5}[a-z0-9])?)?";
        let key = "([a-z]{1,4}(\\.[a-z]{1,3})?/)?[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,5}[a-z0-9])?";
        let operator = prop::sample::select(vec![
            Operator::Equals,
            Operator::DoubleEquals,
            Operator::NotEquals,
            Operator::In,
            Operator::NotIn,
            Operator::Exists,
            Operator::DoesNotExist,
            Operator::GreaterThan,
            Operator::LessThan,
        ]);
        (key, operator, prop::collection::btree_set(value, 1..4), any::<u32>()).prop_map(
            |(key, operator, values, number)| {
                let values: Vec<String> = match operator {
                    Operator::In | Operator::NotIn => values.into_iter().collect(),
                    Operator::Exists | Operator::DoesNotExist => Vec::new(),
                    Operator::GreaterThan | Operator::LessThan => vec![number.to_string()],
                    _ => values.into_iter().take(1).collect(),
                };
                Requirement::new(key, operator, values).expect("the strategy makes valid requirements")
            },
        )
    }

    proptest! {
        #[test]
        fn the_text_of_a_selector_reads_back(requirements in prop::collection::vec(requirement(), 0..5)) {
            let selector = Selector::from_requirements(requirements);
            let text = selector.to_string();
            prop_assert_eq!(Selector::parse(&text), Ok(selector), "{}", text);
        }

        #[test]
        fn no_text_panics(text in "[a-b ,=!<>()]{0,12}") {
            let _ = Selector::parse(&text);
        }
    }
}
