//! Templates of stages: Go's `text/template` with the functions that kwok gives it.
//!
//! A text is read once ([`parse`]) and run for many objects ([`run`]); its functions are in [`functions`]. Values are
//! JSON; a field that is not there is null, through which a path leads on, as through the untyped maps of Go. Invariants:
//! what is not understood (a function, an action) is refused when the text is read; a run ends, and writes at most
//! [`run::MOST`] bytes.
//!
//! Not here: methods and fields of typed values, `call`, `html`, `js`, `urlquery`, and what sprig has for files, keys and
//! certificates.

mod functions;
mod parse;
mod print;
mod run;

use std::collections::BTreeMap;

use serde_json::Value;

pub(crate) use self::functions::Surroundings;

/// A text that was read.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    main: Vec<parse::Node>,
    named: BTreeMap<String, Vec<parse::Node>>,
}

impl Template {
    /// Reads a text.
    ///
    /// # Errors
    /// With the line.
    pub(crate) fn of(text: &str) -> Result<Template, String> {
        parse::parse(text.trim())
    }

    /// Runs it for an object, whose values stand behind the dot.
    ///
    /// # Errors
    /// What could not be done with these values.
    pub(crate) fn text(&self, object: &Value, around: &Surroundings<'_>) -> Result<String, String> {
        run::run(self, object, around)
    }

    /// The same, read as YAML.
    ///
    /// # Errors
    /// As [`Template::text`], and when the result is no YAML.
    pub(crate) fn value(&self, object: &Value, around: &Surroundings<'_>) -> Result<Value, String> {
        let text = self.text(object, around)?;
        serde_saphyr::from_str(&text).map_err(|why| format!("the template's result is no YAML: {why}"))
    }
}

#[cfg(test)]
mod tests;
