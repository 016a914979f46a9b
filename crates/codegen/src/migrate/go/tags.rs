//! Struct tags: the name that a field has in JSON, as Go finds it.

use std::collections::BTreeSet;

use super::Field;

/// The value of a key of a struct tag, by the rules of Go's `reflect.StructTag.Lookup`: after the first pair that is
/// not `key:"value"`, nothing is found.
///
/// # Errors
/// When the key is behind such a pair, or is one: Go would ignore it without a word, and the field would get another
/// name. controller-gen refuses a field of an API without a JSON tag.
pub(super) fn tag_of(tag: &str, key: &str) -> Result<Option<String>, String> {
    let mut rest = tag.trim_start_matches(' ');
    while !rest.is_empty() {
        let pair = rest.split_once(":\"").filter(|(name, _)| {
            let is_named = !name.is_empty() && !name.contains(|c: char| c <= ' ' || c == '"' || c == ':');
            is_named && !name.contains('\u{7f}')
        });
        let Some((value, after)) = pair.and_then(|(_, after)| quoted(after)) else {
            return match rest.contains(key) {
                true => Err(format!(
                    "the struct tag `{tag}` is not a list of key:\"value\", so Go finds no `{key}` in it"
                )),
                false => Ok(None),
            };
        };
        if pair.is_some_and(|(name, _)| name == key) {
            return Ok(Some(value.to_owned()));
        }
        rest = after.trim_start_matches(' ');
    }
    Ok(None)
}

/// The tag `json`, if Go accepts its name.
///
/// # Errors
/// When it has a letter that `isValidTag` of `encoding/json` refuses: Go would call the field by its own name, and
/// controller-gen by this one.
pub(super) fn as_name(json: Option<String>) -> Result<Option<String>, String> {
    const SIGNS: &str = "!#$%&()*+-./:;<=>?@[]^_{|}~ ";
    let name = json
        .as_deref()
        .and_then(|json| json.split(',').next())
        .unwrap_or_default();
    match name.chars().find(|c| !c.is_alphanumeric() && !SIGNS.contains(*c)) {
        Some(letter) => Err(format!(
            "Go does not take the JSON name {name:?}, in which there is {letter:?}, and uses the name of the field"
        )),
        None => Ok(json),
    }
}

/// A field whose JSON name another field of the struct has. Go would leave both out of the JSON.
pub(super) fn twice(fields: &[Field]) -> Option<(usize, String)> {
    let mut names = BTreeSet::new();
    let again = fields.iter().find_map(|field| {
        let name = field.json_name().filter(|name| !matches!(*name, "" | "-"))?;
        (!names.insert(name)).then_some((field.line, name))
    });
    again.map(|(line, name)| (line, format!("two fields of the struct have the JSON name {name:?}")))
}

/// The text up to the closing quote, which no backslash precedes, and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !is_escaped => return Some((&text[..at], &text[at + 1..])),
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}
