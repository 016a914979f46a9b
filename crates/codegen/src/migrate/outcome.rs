//! The check of the generated Rust: code that cannot compile is an error, never a result.

use std::collections::{BTreeMap, BTreeSet};

use super::folder;
use super::origin::ATTEMPTED;
use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::MemoryFiles;

/// Checks the types: each file is Rust, and no module or struct has a name twice.
///
/// # Errors
/// The file, and the name that it has twice.
pub(super) fn compiles(made: &MemoryFiles) -> Result<(), Diagnostic> {
    let mut names: BTreeMap<(&str, String), &str> = BTreeMap::new();
    for (path, text) in made.0.iter().filter(|(path, _)| is_of_types(path)) {
        let wrong = |why: String| {
            Diagnostic::new(codes::source::SYNTAX, ATTEMPTED)
                .at(Place::file(path))
                .because(format!("the Rust for it would not compile: {why}"))
                .fix("give the type or field another name in Go; its JSON name may stay")
        };
        let file = syn::parse_file(text).map_err(|why| wrong(why.to_string()))?;
        // Files of one version share their names; each shared package has its own.
        let module = if path.contains("/shared/") { path } else { folder(path) };
        for item in &file.items {
            let (ident, fields) = match item {
                syn::Item::Struct(item) => (&item.ident, Some(&item.fields)),
                syn::Item::Enum(item) => (&item.ident, None),
                _ => continue,
            };
            if let Some(other) = names.insert((module, ident.to_string()), path) {
                return Err(wrong(format!("{ident} would be in {other}, too")));
            }
            let mut seen = BTreeSet::new();
            let mut fields = fields.into_iter().flatten().filter_map(|field| field.ident.as_ref());
            if let Some(twice) = fields.find(|name| !seen.insert(name.to_string())) {
                return Err(wrong(format!("{ident} would have two fields {twice}")));
            }
        }
    }
    Ok(())
}

fn is_of_types(path: &str) -> bool {
    path.starts_with("api/src/") && path.ends_with(".rs")
}
