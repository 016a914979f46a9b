//! The status that a stage writes: YAML with values put in, of Go's templates the part that puts in a value.
//!
//! Known are paths (`.metadata.name`), texts (`"a"`), `Now`, variables (`{{ $now := Now }}`), and the functions `Quote`
//! and `quote` behind a pipe.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::select;

#[derive(Clone, Debug)]
pub(super) struct Template(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Put(Term),
    Set(String, Term),
}

#[derive(Clone, Debug)]
struct Term {
    source: Source,
    quoted: bool,
}

#[derive(Clone, Debug)]
enum Source {
    Path(String),
    Text(String),
    Now,
    Variable(String),
}

impl Template {
    pub(super) fn of(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (action, after) = after.split_once("}}").ok_or("a statusTemplate has {{ without }}")?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(part(action.trim_matches('-').trim())?);
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Template(parts))
    }

    pub(super) fn render(&self, object: &Value, now: Timestamp) -> Result<Value, String> {
        let mut variables = BTreeMap::new();
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Put(term) => text.push_str(&term.value(object, now, &variables)?),
                Part::Set(name, term) => {
                    let value = term.value(object, now, &variables)?;
                    variables.insert(name.clone(), value);
                }
            }
        }
        serde_saphyr::from_str(&text).map_err(|error| error.to_string())
    }
}

fn part(action: &str) -> Result<Part, String> {
    match action.split_once(":=") {
        Some((name, value)) if name.trim().starts_with('$') => {
            Ok(Part::Set(name.trim().to_owned(), term(value.trim())?))
        }
        _ => Ok(Part::Put(term(action)?)),
    }
}

fn term(text: &str) -> Result<Term, String> {
    let wrong = || format!("{{{{ {text} }}}} is not supported; known are paths, texts, Now, variables and Quote");
    let (source, function) = text
        .split_once('|')
        .map_or((text, ""), |(source, function)| (source.trim(), function.trim()));
    let quoted = match function {
        "" => false,
        "Quote" | "quote" => true,
        _ => return Err(wrong()),
    };
    let literal = source.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let source = match literal {
        Some(literal) => Source::Text(literal.to_owned()),
        None if source == "Now" => Source::Now,
        None if source.starts_with('$') && !source.contains([' ', '.']) => Source::Variable(source.to_owned()),
        None if source.starts_with('.') => {
            select::at(source, &Value::Null).map_err(|_| wrong())?;
            Source::Path(source.to_owned())
        }
        None => return Err(wrong()),
    };
    Ok(Term { source, quoted })
}

impl Term {
    fn value(&self, object: &Value, now: Timestamp, variables: &BTreeMap<String, String>) -> Result<String, String> {
        let plain = match &self.source {
            Source::Text(text) => text.clone(),
            Source::Now => now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            Source::Variable(name) => variables
                .get(name)
                .cloned()
                .ok_or(format!("there is no variable {name}"))?,
            Source::Path(path) => select::at(path, object)?.map(select::text).unwrap_or_default(),
        };
        Ok(if self.quoted {
            Value::String(plain).to_string()
        } else {
            plain
        })
    }
}
