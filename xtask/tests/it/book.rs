//! The book holds together: every page is in its summary, every link leads somewhere, and no block of Rust stands on a
//! page that nothing compiles. `pieces.rs` has the code that pages copy from files.
//!
//! `crates/cli/tests/it/book.rs` compares the output of commands, which it types. Not here: prose.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::pieces::without_copies;
use crate::{files, root};

/// Where readers of the book find the files of the repository that are not in it.
const REPOSITORY: &str = "https://github.com/kubewright/kubewright/blob/main/";

/// The path without `.` and `..`.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

/// The pages of the book.
pub(crate) fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root().join("docs/src"), ".md", &mut found);
    found.sort();
    assert!(found.len() > 20, "where is the book?");
    found
}

/// The lines of a page that are no code, and no piece of one within a line.
fn prose(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let pieces: Vec<&str> = line.split('`').step_by(2).collect();
            lines.push(pieces.join("code"));
        }
    }
    lines
}

/// Targets of the links `[text](target)` of a page.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else {
                break;
            };
            found.push(target.to_owned());
            rest = after;
        }
    }
    found
}

/// The anchors of a page: its headings as mdBook writes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let title = line.trim_start_matches('#');
        if in_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let title = title.trim().to_lowercase();
        let name = title.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        found.insert(name.collect());
    }
    found
}

/// The target of a broken link.
fn broken(page: &Path, target: &str) -> Option<String> {
    if let Some(file) = target.strip_prefix(REPOSITORY) {
        let file = file.split('#').next().unwrap_or_default();
        return (!root().join(file).exists()).then(|| format!("{}: the repository has no {file}", page.display()));
    }
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = match file {
        "" => page.to_owned(),
        file => plain(&page.parent().unwrap().join(file)),
    };
    if !file.exists() {
        return Some(format!("{}: there is no {target}", page.display()));
    }
    if anchor.is_empty() || anchors(&fs::read_to_string(&file).unwrap()).contains(anchor) {
        return None;
    }
    Some(format!("{}: {target} has no such heading", page.display()))
}

#[test]
fn every_link_leads_somewhere() {
    let mut all = pages();
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "bench/README.md",
        "docs/conformance.md",
        "docs/measured.md",
        "docs/new-kubernetes.md",
        "docs/security.md",
        "docs/trials.md",
    ] {
        all.push(root().join(name));
    }
    let problems: Vec<String> = all
        .iter()
        .flat_map(|page| {
            let text = fs::read_to_string(page).unwrap();
            links(&text).into_iter().filter_map(move |target| broken(page, &target))
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = root().join("docs/src/SUMMARY.md");
    let check = |target: &str, found: bool| assert_eq!(broken(&page, target).is_some(), found, "{target}");
    check("runtime.md", false);
    check("commands/dev.md#advice", false);
    check("https://example.com/nowhere", false);
    check("nowhere.md", true);
    check(&format!("{REPOSITORY}docs/conformance.md#controllers"), false);
    check(&format!("{REPOSITORY}docs/nowhere.md"), true);
    check("commands/dev.md#nowhere", true);
    assert_eq!(
        links("a [b](c.md) `[d](e.md)` [f](g.md#h)\n```\n[i](j.md)\n```"),
        ["c.md", "g.md#h"]
    );
}

#[test]
fn every_page_is_in_the_summary_once() {
    let source = root().join("docs/src");
    let summary = fs::read_to_string(source.join("SUMMARY.md")).unwrap();
    let mut listed = BTreeMap::<PathBuf, usize>::new();
    for target in links(&summary) {
        *listed.entry(plain(&source.join(target))).or_default() += 1;
    }
    for page in pages() {
        if page.ends_with("SUMMARY.md") {
            continue;
        }
        assert_eq!(
            listed.remove(&page),
            Some(1),
            "{} stands once in SUMMARY.md",
            page.display()
        );
    }
    assert!(listed.is_empty(), "SUMMARY.md lists what is not there: {listed:?}");
}

#[test]
fn every_picture_is_on_a_page() {
    let mut pictures = Vec::new();
    files(&root().join("docs/src"), ".svg", &mut pictures);
    files(&root().join("docs/src"), ".png", &mut pictures);
    assert!(!pictures.is_empty(), "the book has pictures");
    let mut shown = BTreeSet::new();
    for page in pages().into_iter().chain([root().join("README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        shown.extend(
            links(&text)
                .iter()
                .map(|target| plain(&page.parent().unwrap().join(target))),
        );
    }
    for picture in pictures {
        assert!(shown.contains(&picture), "no page shows {}", picture.display());
    }
}

/// Pages that a crate takes as documentation, so that their blocks are compiled as its examples.
fn compiled_pages() -> BTreeSet<PathBuf> {
    let lib = root().join("crates/testing/src/lib.rs");
    let text = fs::read_to_string(&lib).unwrap();
    let taken = text
        .split("include_str!(\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    taken.map(|path| plain(&lib.parent().unwrap().join(path))).collect()
}

#[test]
fn every_block_of_rust_is_compiled() {
    let compiled = compiled_pages();
    assert!(!compiled.is_empty(), "crates/testing compiles pages of the book");
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        // What is copied from a file is compiled there.
        let text = without_copies(&text);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if !line.starts_with("```rust") {
                continue;
            }
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let is_included = block.is_empty();
            // `crates/cli/tests/it/tutorial.rs` makes a project of these pages.
            let is_built = page.parent().is_some_and(|folder| folder.ends_with("tutorial"));
            assert!(
                is_included || is_built || compiled.contains(&page),
                "{}: nothing compiles the block that begins with {:?}; include it from a file that is compiled",
                page.display(),
                block.first()
            );
        }
    }
}

/// Words of the pages in all, with tables and with code that is written there. What is longer belongs beside the book, or is generated on request
/// (`kubewright explain`, `--help`).
const MOST_WORDS: usize = 42_000;

#[test]
fn the_book_can_be_read() {
    let words: usize = pages()
        .iter()
        .map(|page| {
            without_copies(&fs::read_to_string(page).unwrap())
                .split_whitespace()
                .count()
        })
        .sum();
    assert!(
        words <= MOST_WORDS,
        "the book has {words} words, and should have {MOST_WORDS} at most"
    );
}

#[test]
fn spelling_is_that_of_kubernetes_pages() {
    let british = [
        "behaviour",
        "colour",
        "honour",
        "favour",
        "licence",
        "organis",
        "serialis",
        "recognis",
        "optimis",
    ];
    for page in pages() {
        for line in prose(&fs::read_to_string(&page).unwrap()) {
            let line = line.to_lowercase();
            let found = british.iter().find(|word| line.contains(*word));
            assert_eq!(found, None, "{}: US spelling: {line}", page.display());
        }
    }
}

#[test]
fn no_code_hides_in_a_block_of_text() {
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let mut language = None;
        for line in text.lines() {
            if let Some(after) = line.strip_prefix("```") {
                language = language.is_none().then_some(after);
            }
            let is_rust = ["fn ", "let ", "pub ", "impl ", "async ", "use "]
                .iter()
                .any(|word| line.trim_start().starts_with(word) && line.ends_with([';', '{', '}']));
            assert!(
                !(is_rust && matches!(language, Some("text" | ""))),
                "{}: this is Rust, in a block that nothing compiles: {line}",
                page.display()
            );
        }
    }
}

/// The commands of a script or page that make files, each on one line.
fn scaffolding(text: &str) -> BTreeSet<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines
        .filter(|line| line.starts_with("kubewright init ") || line.starts_with("kubewright create "))
        .collect()
}

#[test]
fn pages_about_examples_have_the_commands_that_began_them() {
    let mut known = BTreeSet::new();
    for example in ["autorebooter", "database", "guestbook", "sidecarset"] {
        let script = root().join(format!("examples/{example}/scaffold.sh"));
        let typed = scaffolding(&fs::read_to_string(script).unwrap());
        assert!(typed.len() > 1, "{example} was begun by commands");
        if example != "guestbook" {
            let page = root().join(format!("docs/src/examples/{example}.md"));
            assert_eq!(scaffolding(&fs::read_to_string(page).unwrap()), typed, "{example}");
        }
        known.extend(typed);
    }
    let chinese = scaffolding(&fs::read_to_string(root().join("docs/src/zh.md")).unwrap());
    let others: Vec<&String> = chinese.difference(&known).collect();
    assert!(
        chinese.len() > 8 && others.is_empty(),
        "zh.md: no example began so: {others:?}"
    );
}

#[test]
fn the_readme_shows_code_of_the_example() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let file = root().join("examples/guestbook/src/controller/guestbook_controller.rs");
    let controller = fs::read_to_string(file).unwrap();
    let code: Vec<&str> = controller.lines().map(str::trim).collect();
    let (_, block) = readme
        .split_once("```rust\nimpl Reconciler")
        .expect("README shows the core");
    let (block, _) = block.split_once("\n```").unwrap();
    let block = format!("impl Reconciler{block}");
    let shown: Vec<&str> = block
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"))
        .collect();
    assert!(
        code.windows(shown.len()).any(|piece| piece == shown),
        "README shows another code than {shown:#?}"
    );
}

/// The commands of the walk through a project, and their output.
fn walk() -> String {
    fs::read_to_string(root().join("crates/cli/tests/it/snapshots/it__walk__walk.snap")).unwrap()
}

#[test]
fn the_first_page_shows_what_the_walk_typed() {
    let walk = walk();
    let text = fs::read_to_string(root().join("docs/src/start.md")).unwrap();
    let mut count = 0;
    let mut in_block = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = line == "```console";
        } else if in_block && line != "..." {
            count += 1;
            assert!(
                walk.lines()
                    .any(|seen| seen == line || seen.ends_with(&format!("; {}", line.trim_start_matches("$ ")))),
                "start.md: the walk (crates/cli/tests/it/walk.rs) has no line {line:?}"
            );
        }
    }
    assert!(count > 10, "start.md shows the walk");
}
