//! Errors in the Go project that must be fixed before anything is written, and the checks of whole packages.

use std::collections::BTreeMap;

use super::folder;
use super::origin::{ATTEMPTED, Source};
use crate::codes;
use crate::diagnostic::{Diagnostic, Place};

/// Where a field or declaration is: the file and the line.
pub(super) type Spot = (String, usize);

/// An error in a Go file: the file, the line and the reason.
pub(super) type Wrong = (String, usize, String);

/// The most places that one error names.
const MOST: usize = 10;

/// One error for all errors in Go files, if there are any.
pub(super) fn refused(wrong: impl IntoIterator<Item = Wrong>) -> Result<(), Diagnostic> {
    let mut refused = Diagnostic::new(codes::source::SYNTAX, ATTEMPTED);
    let mut count = 0;
    for (path, line, why) in wrong {
        count += 1;
        if count <= MOST {
            refused = refused.at(Place::file(path).line(line)).because(why);
        }
    }
    if count > MOST {
        refused = refused.because(format!("and {} more", count - MOST));
    }
    match count {
        0 => Ok(()),
        _ => Err(refused.fix("see that the project builds: go vet ./..., controller-gen crd paths=./...")),
    }
}

/// Checks the packages of a project.
///
/// # Errors
/// Two packages in one folder, two types of one name in a package.
pub(super) fn packages(sources: &[Source]) -> Result<(), Diagnostic> {
    let mut folders: BTreeMap<&str, &Source> = BTreeMap::new();
    let mut types: BTreeMap<(&str, &str), (&str, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for source in sources {
        let folder = folder(&source.path);
        let first = folders.entry(folder).or_insert(source);
        if first.file.package != source.file.package {
            wrong.push((
                source.path.clone(),
                source.file.line,
                format!(
                    "two packages in one folder: {} here, and {} in {}",
                    source.file.package, first.file.package, first.path
                ),
            ));
            continue;
        }
        for decl in &source.file.types {
            let there = types.entry((folder, &decl.name)).or_insert((&source.path, decl.line));
            if *there != (source.path.as_str(), decl.line) && decl.name != "_" {
                let why = format!("{} is declared in {}:{}, too", decl.name, there.0, there.1);
                wrong.push((source.path.clone(), decl.line, why));
            }
        }
    }
    refused(wrong)
}
