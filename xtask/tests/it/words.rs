//! One word means one thing: the words that CONTRIBUTING.md retired do not come back as names of types, traits or
//! modules.
//!
//! The list is the table between `<!-- words -->` and the next heading there: the retired word, and the field's noun
//! that stands for it now. Not here: prose, fields and functions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;

use crate::{files, root};

/// The retired words, and what stands for each.
fn retired() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, list) = text.split_once("<!-- words -->").unwrap();
    let list = list.split("\n## ").next().unwrap_or_default();
    let rows = list.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let (words, instead) = (cells.next()?, cells.next()?.trim().to_owned());
        let words: Vec<String> = words
            .split(['`', ',', ' '])
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect();
        Some(words.into_iter().map(move |word| (word, instead.clone())))
    });
    rows.flatten().collect()
}

/// The names of the types, traits and modules that a line of source defines.
fn defined(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().peekable();
    while words
        .peek()
        .is_some_and(|word| *word == "pub" || word.starts_with("pub("))
    {
        words.next();
    }
    match words.next()? {
        "struct" | "enum" | "trait" | "type" | "mod" => {}
        _ => return None,
    }
    words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn definitions_are_found() {
    for (line, name) in [
        ("pub(crate) struct Line<'a> {", Some("Line")),
        ("    mod ear;", Some("ear")),
        ("pub trait Looks: Send {", Some("Looks")),
        ("type Told = u8;", Some("Told")),
        ("let type_of = Told;", None),
        ("// struct Line", None),
    ] {
        assert_eq!(defined(line), name, "{line}");
    }
}

#[test]
fn retired_words_stay_retired() {
    let retired = retired();
    assert!(retired.len() > 20, "CONTRIBUTING.md lists the words; found {retired:?}");
    let mut sources = Vec::new();
    for folder in ["crates", "examples", "bench"] {
        files(&root().join(folder), ".rs", &mut sources);
    }
    assert!(
        sources.len() > 1000,
        "the workspace has many sources; found {}",
        sources.len()
    );
    let mut wrong = Vec::new();
    for file in sources {
        let content = fs::read_to_string(&file).unwrap();
        for (number, line) in content.lines().enumerate() {
            let Some(name) = defined(line) else { continue };
            let word = retired.iter().find(|(word, _)| word.eq_ignore_ascii_case(name));
            if let Some((word, instead)) = word {
                wrong.push(format!("{}:{}: `{word}`, now {instead}", file.display(), number + 1));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "words that readers would have to learn first: {wrong:#?}"
    );
}
