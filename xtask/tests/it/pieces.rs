//! Pieces of code on pages of the book: copies of files that are compiled and tested.
//!
//! A block is a copy when `<!-- include FILE:PIECE -->` stands above it. The piece is the name of two marks in the file
//! (`ANCHOR: name`, `ANCHOR_END: name`) or a range of lines, and the whole file without one. Copies, and not mdBook's
//! `{{#include}}`, so that a page reads the same as a file of the repository. Invariant: a copy is what its file says.
//! `KUBEWRIGHT_UPDATE_BOOK=1` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::ops::Range;
use std::path::Path;

use super::book::{pages, plain};

const BEGIN: &str = "<!-- include ";
const END: &str = " -->";

/// A copy on a page.
pub(crate) struct Copy<'p> {
    /// The file, from the folder of the page.
    pub(crate) file: &'p str,
    /// What of it; empty for the whole.
    pub(crate) piece: &'p str,
    /// The bytes of the page that say so.
    pub(crate) comment: Range<usize>,
    /// Those between the fences.
    pub(crate) body: Range<usize>,
}

/// The copies on a page.
pub(crate) fn copies(page: &str) -> Vec<Copy<'_>> {
    let mut found = Vec::new();
    for (at, _) in page.match_indices(BEGIN).filter(|(at, _)| page[..*at].ends_with('\n')) {
        let rest = &page[at + BEGIN.len()..];
        let (named, _) = rest
            .split_once(END)
            .unwrap_or_else(|| panic!("this comment does not end: {rest:.60}"));
        let (file, piece) = named.split_once(':').unwrap_or((named, ""));
        let fence = at + BEGIN.len() + named.len() + END.len() + 1;
        assert!(page[fence..].starts_with("```"), "a block follows: {named}");
        let first = fence + page[fence..].find('\n').expect("a block has lines") + 1;
        let last = first + page[first..].find("```\n").expect("a block ends");
        found.push(Copy {
            file,
            piece,
            comment: at..fence,
            body: first..last,
        });
    }
    found
}

/// The page without its copies.
pub(crate) fn without_copies(page: &str) -> String {
    let mut rest = page.to_owned();
    for copy in copies(page).iter().rev() {
        rest.replace_range(copy.body.clone(), "");
        rest.replace_range(copy.comment.clone(), "");
    }
    rest
}

/// A piece of a file, moved to the left as far as it goes.
fn piece(text: &str, named: &str) -> Result<String, String> {
    let lines: Vec<&str> = text.lines().collect();
    let range = if let Some((first, last)) = named.split_once(':') {
        let number = |digits: &str| digits.parse::<usize>().map_err(|why| format!("{digits:?}: {why}"));
        number(first)?.saturating_sub(1)..if last.is_empty() { lines.len() } else { number(last)? }
    } else if named.is_empty() {
        0..lines.len()
    } else {
        let mark = |word: &str| {
            let end = format!("{word}: {named}");
            let mut at = (0..lines.len()).filter(|at| lines[*at].trim().ends_with(&end));
            match (at.next(), at.next()) {
                (Some(only), None) => Ok(only),
                (found, _) => Err(format!(
                    "{end} is there {}",
                    if found.is_some() { "twice" } else { "nowhere" }
                )),
            }
        };
        mark("ANCHOR")? + 1..mark("ANCHOR_END")?
    };
    let lines = lines
        .get(range.clone())
        .ok_or_else(|| format!("it has no lines {range:?}"))?;
    let kept = lines
        .iter()
        .filter(|line| !line.contains("ANCHOR: ") && !line.contains("ANCHOR_END: "));
    let kept: Vec<&str> = kept.copied().collect();
    let filled = kept.iter().filter(|line| !line.trim().is_empty());
    let indent = filled
        .map(|line| line.len() - line.trim_start().len())
        .min()
        .unwrap_or_default();
    Ok(kept
        .iter()
        .map(|line| format!("{}\n", line.get(indent..).unwrap_or_default()))
        .collect())
}

/// A range of lines of Rust, of a file that is generated and bears no marks, begins and ends where an item does.
fn is_whole(file: &str, named: &str, text: &str) -> bool {
    let starts = ["///", "#[", "impl ", "pub "];
    !file.ends_with(".rs")
        || !named.contains(':')
        || (starts.iter().any(|start| text.starts_with(start)) && text.ends_with("\n}\n"))
}

/// The page with its copies as the files are.
fn renewed(page: &Path, text: &str) -> String {
    let mut renewed = text.to_owned();
    for Copy {
        file,
        piece: named,
        body,
        ..
    } in copies(text).into_iter().rev()
    {
        let place = || format!("{}: {file}:{named}", page.display());
        let path = plain(&page.parent().unwrap().join(file));
        let source = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", place()));
        let now = piece(&source, named).unwrap_or_else(|why| panic!("{}: {why}", place()));
        assert!(
            is_whole(file, named, &now),
            "{}: it is not a whole item:\n{now}",
            place()
        );
        assert!(!now.contains("```"), "{}: it has a fence inside", place());
        renewed.replace_range(body, &now);
    }
    renewed
}

#[test]
fn every_copy_is_what_its_file_says() {
    let (mut count, mut old) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        count += copies(&text).len();
        assert!(
            !text.contains("{{#"),
            "{}: copy the piece: {BEGIN}FILE:PIECE{END}",
            page.display()
        );
        let now = renewed(&page, &text);
        if now == text {
            continue;
        }
        if std::env::var_os("KUBEWRIGHT_UPDATE_BOOK").is_some() {
            fs::write(&page, now).unwrap();
        } else {
            old.push(page.display().to_string());
        }
    }
    assert!(count > 40, "where are the pieces of code?");
    assert!(
        old.is_empty(),
        "KUBEWRIGHT_UPDATE_BOOK=1 renews the code on: {}",
        old.join(", ")
    );
}

#[test]
fn pieces_are_found_by_marks_and_lines() {
    let file =
        "mod a {\n    // ANCHOR: b\n    fn b() {\n        c();\n    // ANCHOR: d\n    }\n    // ANCHOR_END: b\n}\n";
    for (named, expected) in [
        ("b", Ok("fn b() {\n    c();\n}\n")),
        ("4:4", Ok("c();\n")),
        ("8:", Ok("}\n")),
        ("c", Err("nowhere")),
        ("d", Err("ANCHOR_END: d is there nowhere")),
        ("7:90", Err("no lines")),
        ("x:y", Err("\"x\"")),
    ] {
        match (piece(file, named), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{named}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{named}: {why}"),
            (found, _) => panic!("{named}: {found:?}"),
        }
    }
    let twice = piece("// ANCHOR: a\n// ANCHOR: a\n// ANCHOR_END: a\n", "a").unwrap_err();
    assert!(twice.ends_with("twice"), "{twice}");
    assert!(is_whole("a.rs", "1:2", "pub fn a() {\n}\n") && !is_whole("a.rs", "1:2", "    a();\n}\n"));
    let page = "Text.\n<!-- include a.rs:b -->\n```rust\nold old\n```\nMore.\n";
    assert_eq!(without_copies(page), "Text.\n```rust\n```\nMore.\n");
}
