//! MIGRATION.md: the tasks that a migration left to a person, in the project itself, since the output of a terminal is
//! soon gone.
//!
//! It lists the notes, the tests in Go, and the Go files of which nothing was made. Not here: the texts of the notes.

use std::collections::{BTreeMap, BTreeSet};

use super::config::Config;
use super::folder;
use super::origin::Source;
use crate::diagnostic::Diagnostic;
use crate::plan::Files;

/// The file.
pub(super) const RECORD: &str = "MIGRATION.md";

/// The text of the record. `told`: the Go files that stand beside their Rust, or were made into it.
pub(super) fn written(
    files: &dyn Files,
    sources: &[Source],
    told: &BTreeSet<String>,
    notes: &[String],
    config: &Config,
) -> Result<String, Diagnostic> {
    let mut out =
        "# Carried over from Go\n\nWritten once by `kubewright migrate`. Delete it when nothing here is left to do.\n"
            .to_owned();
    let mut section = |title: &str, about: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let lines: String = lines.iter().map(|line| format!("- [ ] {line}\n")).collect();
            out.push_str(&format!("\n## {title}\n\n{about}\n\n{lines}"));
        }
    };
    section(
        "Said during the migration",
        "What has no counterpart in Rust, or was decided for you.",
        notes.to_vec(),
    );
    section(
        "Controllers and webhooks",
        "Rust has skeletons, with the Go text below each in comments. They do nothing yet.",
        told.iter().map(|path| format!("`{path}`")).collect(),
    );
    section(
        "Tests",
        "No test was carried over. A test has a cluster of its own: `kubewright_testing::TestCluster`, in `tests/it`.",
        tests(files)?,
    );
    let kept = config
        .kept
        .iter()
        .map(|path| format!("`{path}` was copied, and is listed; read it"));
    let left = config.left.iter().map(|path| format!("`{path}`"));
    section(
        "Configuration",
        "`config/` is the scaffold's, with what you added to its lists. Files that are not copied are not in it.",
        kept.chain(left).collect(),
    );
    section("Other Go files", "Nothing was made of them.", others(sources, told));
    Ok(out)
}

/// The files of tests, with how many tests each has.
fn tests(files: &dyn Files) -> Result<Vec<String>, Diagnostic> {
    let mut found = Vec::new();
    for path in files.list("")? {
        if !path.ends_with("_test.go") || path.split('/').any(|part| part == "vendor") {
            continue;
        }
        let text = files.read(&path)?.unwrap_or_default();
        let is_test = |line: &&str| {
            let line = line.trim_start();
            line.starts_with("func Test") || line.starts_with("It(") || line.starts_with("Entry(")
        };
        let tests = text.lines().filter(is_test).count();
        let word = if tests == 1 { "test" } else { "tests" };
        found.push(format!("`{path}` ({tests} {word})"));
    }
    Ok(found)
}

/// Go files that were read and not used, by their folders.
fn others(sources: &[Source], told: &BTreeSet<String>) -> Vec<String> {
    let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !told.contains(&source.path)) {
        // Types were carried over; the bodies of their methods were not. `init` adds them to a scheme, which Rust has not.
        let mut functions = source.file.functions.iter();
        let is_types = !source.file.types.is_empty() && functions.all(|function| function.name == "init");
        let name = source.path.rsplit('/').next().unwrap_or_default();
        if !is_types && !matches!(name, "doc.go" | "groupversion_info.go") {
            folders.entry(folder(&source.path)).or_default().push(name);
        }
    }
    let line = |(folder, names): (&str, Vec<&str>)| {
        let folder = if folder.is_empty() { "." } else { folder };
        format!("`{folder}`: {}", names.join(", "))
    };
    folders.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{carried, project};

    #[test]
    fn what_was_not_carried_over_is_written_down() {
        let mut files = project();
        let test = "package controller\n\nfunc TestSails(t *testing.T) {}\nfunc helper() {}\nfunc TestSinks(t *testing.T) {}\n";
        for (path, text) in [
            ("internal/controller/captain_controller_test.go", test),
            ("vendor/a/b_test.go", test),
            ("cmd/main.go", "package main\n\nfunc main() {}\n"),
            ("internal/sea/salt.go", "package sea\n\nfunc Salt() int { return 1 }\n"),
            (
                "api/v1/deck_types.go",
                "package v1\n\ntype Deck struct{}\n\nfunc init() {\n\tSchemeBuilder.Register(&Deck{})\n}\n",
            ),
        ] {
            files.0.insert(path.to_owned(), text.to_owned());
        }
        let done = carried(&files).unwrap();
        let record = &done.files.0["MIGRATION.md"];
        for expected in [
            "- [ ] `internal/controller/captain_controller_test.go` (2 tests)\n",
            "- [ ] `internal/controller/captain_controller.go`\n",
            "- [ ] `cmd`: main.go\n",
            "- [ ] `internal/sea`: salt.go\n",
        ] {
            assert!(record.contains(expected), "{expected} in {record}");
        }
        assert!(!record.contains("vendor") && !record.contains("deck"), "{record}");
        // Indented lines of Go's comments are not run as Rust.
        assert!(done.files.0["api/Cargo.toml"].contains("doctest = false"));
        for note in &done.notes {
            assert!(record.contains(&format!("- [ ] {note}\n")), "{note} in {record}");
        }
    }
}
