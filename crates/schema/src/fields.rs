//! Field selectors: `metadata.name=web,status.phase!=Running` (`fields.Selector`).
//!
//! Not here: which fields a kind can be selected by. That is data of the kind, and the API server refuses the others.

use std::fmt;

use crate::budget;

/// Why a text is no field selector, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldSelectorError(String);

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `a=b` and `a==b`
    Equals,
    /// `a!=b`
    NotEquals,
}

/// One condition of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The path of the field, such as `metadata.name`.
    pub field: String,
    /// How it is compared.
    pub operator: Operator,
    /// The value to compare with, without escapes.
    pub value: String,
}

/// A question about fields; all of its requirements must hold.
///
/// ```
/// use kubewright_schema::fields::FieldSelector;
/// let selector = FieldSelector::parse("spec.nodeName=,metadata.name!=a")?;
/// let fields = |field: &str| Some(if field == "metadata.name" { "b".to_owned() } else { String::new() });
/// assert!(selector.matches(fields));
/// # Ok::<(), kubewright_schema::fields::FieldSelectorError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

impl FieldSelector {
    /// Reads the form of the query parameter `fieldSelector` (`fields.ParseSelector`). The empty text selects
    /// everything.
    ///
    /// # Errors
    /// With the words of the API server, such as `invalid selector: 'a'; can't understand 'a'`.
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        budget::spend_on_selector(text.len());
        let mut terms = split(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let (field, operator, value) = divide(term)
                .ok_or_else(|| FieldSelectorError(format!("invalid selector: '{text}'; can't understand '{term}'")))?;
            // No field that is nothing is everything (`hasTerm.Transform`).
            if field.is_empty() && value.is_empty() {
                continue;
            }
            requirements.push(Requirement {
                field: field.to_owned(),
                operator,
                value: unescape(value)?,
            });
        }
        Ok(Self { requirements })
    }

    /// The conditions, sorted by their text.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether there is no condition, so that every object is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object is selected; the function gives its fields as texts, none being the empty text.
    pub fn matches(&self, field: impl Fn(&str) -> Option<String>) -> bool {
        self.requirements.iter().all(|requirement| {
            budget::spend(2);
            let equal = field(&requirement.field).unwrap_or_default() == requirement.value;
            equal == (requirement.operator == Operator::Equals)
        })
    }

    /// The value that the field must have, if a condition says so (`RequiresExactMatch`).
    pub fn exact(&self, field: &str) -> Option<&str> {
        let of_field =
            |requirement: &&Requirement| requirement.field == field && requirement.operator == Operator::Equals;
        self.requirements
            .iter()
            .find(of_field)
            .map(|requirement| requirement.value.as_str())
    }
}

/// The terms between commas; `\,` is part of a term.
fn split(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// A term at its first operator.
fn divide(term: &str) -> Option<(&str, Operator, &str)> {
    term.char_indices().find_map(|(at, _)| {
        let operators = [
            ("!=", Operator::NotEquals),
            ("==", Operator::Equals),
            ("=", Operator::Equals),
        ];
        operators.into_iter().find_map(|(text, operator)| {
            term[at..]
                .strip_prefix(text)
                .map(|value| (&term[..at], operator, value))
        })
    })
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let wrong =
        |sequence: String| FieldSelectorError(format!("invalid field selector: invalid escape sequence: {sequence}"));
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                Some(other) => return Err(wrong(format!("\\{other}"))),
                None => return Err(wrong("\\".to_owned())),
            },
            // Kubernetes prints the number of the character.
            ',' | '=' => {
                let number = u32::from(character);
                return Err(FieldSelectorError(format!(
                    "invalid field selector: unescaped character in value: {number}"
                )));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let operator = if requirement.operator == Operator::Equals {
                "="
            } else {
                "!="
            };
            let value = requirement
                .value
                .replace('\\', r"\\")
                .replace(',', r"\,")
                .replace('=', r"\=");
            write!(f, "{comma}{}{operator}{value}", requirement.field)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn selectors_read_and_print() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let found = FieldSelector::parse(text)
                .map(|found| found.to_string())
                .map_err(|error| error.to_string());
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        };
        check("", Ok(""));
        check("b=1,,a==2", Ok("a=2,b=1"));
        check("a!=", Ok("a!="));
        check(r"a=x\,y\=z\\", Ok(r"a=x\,y\=z\\"));
        check("a", Err("invalid selector: 'a'; can't understand 'a'"));
        check("a=b,c", Err("invalid selector: 'a=b,c'; can't understand 'c'"));
        check("a=b=c", Err("invalid field selector: unescaped character in value: 61"));
        check(r"a=\b", Err(r"invalid field selector: invalid escape sequence: \b"));
        check("a=b\\", Err("invalid field selector: invalid escape sequence: \\"));
    }

    #[test]
    fn selectors_match() {
        let check = |text: &str, matches: bool| {
            let selector = FieldSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let field = |field: &str| (field == "metadata.name").then(|| "a".to_owned());
            assert_eq!(selector.matches(field), matches, "{text}");
        };
        check("", true);
        check("metadata.name=a", true);
        check("metadata.name=b", false);
        check("metadata.name!=b,spec.nodeName=", true);
        check("metadata.name=a,metadata.name!=a", false);
    }

    proptest! {
        #[test]
        fn the_text_of_a_selector_reads_back(values in prop::collection::vec("[a-z,=!\\\\]{0,6}", 1..4)) {
            let written: Vec<Requirement> = values
                .into_iter()
                .map(|value| Requirement { field: "f".to_owned(), operator: Operator::Equals, value })
                .collect();
            let text = FieldSelector { requirements: written.clone() }.to_string();
            let read = FieldSelector::parse(&text);
            prop_assert!(read.is_ok(), "{text}: {read:?}");
            // Reading sorts.
            let sorted = |mut values: Vec<Requirement>| { values.sort_by(|a, b| a.value.cmp(&b.value)); values };
            prop_assert_eq!(sorted(read.map(|read| read.requirements).unwrap_or_default()), sorted(written));
        }
    }
}
