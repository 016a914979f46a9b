//! Changes before they happen: a command decides everything first, then writes.
//!
//! A [`Plan`] starts from a [`Files`], the project as it is, and remembers for each touched file its old and its new
//! content. Reading through the plan gives the new content, so that steps of one command see each other's edits.
//! Invariants: a change that changes nothing is not in the plan, so a command that runs twice does nothing the second
//! time; `before` is the content that the decision was based on, so that the writer can notice an edit by another
//! program meanwhile. A file whose lines end with CR LF is read with plain ends and keeps its own when it is written,
//! so that no step has to know. Not here: writing (the command does it).

use std::cell::RefCell;
use std::collections::BTreeMap;

use similar::TextDiff;

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};

/// The files of a project, for reading. Paths are relative to the project, with `/` between folders.
pub trait Files {
    /// The text of a file; `None` when there is none.
    ///
    /// # Errors
    /// When there is something that cannot be read, or is not UTF-8 text.
    fn read(&self, path: &str) -> Result<Option<String>, Diagnostic>;

    /// The paths of all files below a folder (`""`: the project), in order, without folders that are never ours
    /// (`.git`, `target`).
    ///
    /// # Errors
    /// When the folder cannot be listed. A folder that does not exist is empty.
    fn list(&self, folder: &str) -> Result<Vec<String>, Diagnostic>;
}

/// Files in memory: for tests, and for trees that are generated and used without being written.
///
/// ```
/// use kubewright_codegen::{Files, MemoryFiles};
/// let files = MemoryFiles::from([("config/a.yaml", "a: 1\n")]);
/// assert_eq!(files.list("config").unwrap(), ["config/a.yaml"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFiles(pub BTreeMap<String, String>);

impl<const N: usize> From<[(&str, &str); N]> for MemoryFiles {
    fn from(files: [(&str, &str); N]) -> MemoryFiles {
        MemoryFiles(
            files
                .into_iter()
                .map(|(path, text)| (path.to_owned(), text.to_owned()))
                .collect(),
        )
    }
}

impl MemoryFiles {
    /// Carries out a plan.
    pub fn apply(&mut self, plan: &Plan<'_>) {
        for (path, change) in plan.changes() {
            match &change.after {
                Some(text) => self.0.insert(path.to_owned(), text.clone()),
                None => self.0.remove(path),
            };
        }
    }
}

impl Files for MemoryFiles {
    fn read(&self, path: &str) -> Result<Option<String>, Diagnostic> {
        Ok(self.0.get(path).cloned())
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, Diagnostic> {
        Ok(self.0.keys().filter(|path| is_below(path, folder)).cloned().collect())
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// The change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The text as it was when the plan was made; `None`: there was no file.
    pub before: Option<String>,
    /// The text that it gets; `None`: it is removed.
    pub after: Option<String>,
}

impl Change {
    /// `create`, `update` or `delete`.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "create",
            (Some(_), Some(_)) => "update",
            (Some(_), None) => "delete",
        }
    }
}

/// All changes of a command, and its notes.
pub struct Plan<'a> {
    files: &'a dyn Files,
    changes: BTreeMap<String, Change>,
    /// The texts as they were when they were read: a decision about a text replaces that text and no newer one.
    seen: RefCell<BTreeMap<String, Option<String>>>,
    /// Doubts that do not keep the command from going on.
    pub warnings: Vec<Diagnostic>,
    /// The notes about it, in words for a person; one line each.
    pub notes: Vec<String>,
    /// Commands to type next.
    pub next: Vec<String>,
}

impl<'a> Plan<'a> {
    /// A plan that does nothing yet.
    #[must_use]
    pub fn new(files: &'a dyn Files) -> Plan<'a> {
        Plan {
            files,
            changes: BTreeMap::new(),
            seen: RefCell::default(),
            warnings: Vec::new(),
            notes: Vec::new(),
            next: Vec::new(),
        }
    }

    /// Sets the content of a file, creating it if need be.
    ///
    /// # Errors
    /// When the present file cannot be read.
    pub fn write(&mut self, path: &str, text: impl Into<String>) -> Result<(), Diagnostic> {
        self.change(path, Some(text.into()))
    }

    /// Sets the content of a generated file below its first line, which names its writer.
    ///
    /// # Errors
    /// When a file without that line is there, unless `force` says to write over it; when it cannot be read.
    pub(crate) fn write_marked(&mut self, path: &str, mark: &str, text: &str, force: bool) -> Result<(), Diagnostic> {
        if self.read(path)?.is_some_and(|there| !there.starts_with(mark)) && !force {
            return Err(Diagnostic::new(codes::files::EXISTS, format!("cannot create {path}"))
                .at(Place::file(path))
                .because("a file is there that this command did not write")
                .fix("give it another name, or pass --force to write over it"));
        }
        self.write(path, format!("{mark}{text}"))
    }

    /// Removes a file; does nothing when there is none.
    ///
    /// # Errors
    /// When the present file cannot be read.
    pub fn remove(&mut self, path: &str) -> Result<(), Diagnostic> {
        self.change(path, None)
    }

    fn change(&mut self, path: &str, after: Option<String>) -> Result<(), Diagnostic> {
        let before = match self.changes.remove(path) {
            Some(change) => change.before,
            None => self.as_seen(path)?,
        };
        let after = match &before {
            Some(text) if has_carriage_returns(text) => {
                after.map(|text| text.replace("\r\n", "\n").replace('\n', "\r\n"))
            }
            _ => after,
        };
        if before != after {
            self.changes.insert(path.to_owned(), Change { before, after });
        }
        Ok(())
    }

    /// The text of a file as it was when it was first read for this plan.
    fn as_seen(&self, path: &str) -> Result<Option<String>, Diagnostic> {
        if let Some(text) = self.seen.borrow().get(path) {
            return Ok(text.clone());
        }
        let text = self.files.read(path)?;
        self.seen.borrow_mut().insert(path.to_owned(), text.clone());
        Ok(text)
    }

    /// The changes by path, in order.
    pub fn changes(&self) -> impl Iterator<Item = (&str, &Change)> {
        self.changes.iter().map(|(path, change)| (path.as_str(), change))
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// All changes as one unified diff, as `git apply` reads it.
    ///
    /// ```
    /// use kubewright_codegen::{MemoryFiles, Plan};
    /// let files = MemoryFiles::from([("a", "1\n")]);
    /// let mut plan = Plan::new(&files);
    /// plan.write("a", "2\n").unwrap();
    /// assert_eq!(plan.diff(), "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n");
    /// ```
    #[must_use]
    pub fn diff(&self) -> String {
        let one = |(path, change): (&str, &Change)| {
            let side = |mark: char, text: &Option<String>| match text {
                Some(_) => format!("{mark}/{path}"),
                None => "/dev/null".to_owned(),
            };
            let before = change.before.as_deref().unwrap_or_default();
            let after = change.after.as_deref().unwrap_or_default();
            TextDiff::from_lines(before, after)
                .unified_diff()
                .header(&side('a', &change.before), &side('b', &change.after))
                .to_string()
        };
        self.changes().map(one).collect()
    }
}

/// Whether every line of a text ends with CR LF.
fn has_carriage_returns(text: &str) -> bool {
    text.contains("\r\n") && text.matches('\n').count() == text.matches("\r\n").count()
}

/// A text of CR LF lines with the ends that everything here is written with; another as it is.
fn plain(text: &str) -> String {
    if has_carriage_returns(text) {
        text.replace("\r\n", "\n")
    } else {
        text.to_owned()
    }
}

impl Files for Plan<'_> {
    fn read(&self, path: &str) -> Result<Option<String>, Diagnostic> {
        let text = match self.changes.get(path) {
            Some(change) => change.after.clone(),
            None => self.as_seen(path)?,
        };
        Ok(text.map(|text| plain(&text)))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, Diagnostic> {
        let mut paths = self.files.list(folder)?;
        paths.retain(|path| self.changes.get(path).is_none_or(|change| change.after.is_some()));
        let new = |(path, change): (&str, &Change)| {
            (change.before.is_none() && change.after.is_some() && is_below(path, folder)).then(|| path.to_owned())
        };
        paths.extend(self.changes().filter_map(new));
        paths.sort();
        Ok(paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that changes after each look.
    struct Turning(std::cell::Cell<u32>);

    impl Files for Turning {
        fn read(&self, _: &str) -> Result<Option<String>, Diagnostic> {
            self.0.set(self.0.get() + 1);
            Ok(Some(self.0.get().to_string()))
        }

        fn list(&self, _: &str) -> Result<Vec<String>, Diagnostic> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn what_was_decided_from_a_text_replaces_that_text() {
        let files = Turning(std::cell::Cell::new(0));
        let mut plan = Plan::new(&files);
        let read = plan.read("a").unwrap();
        plan.write("a", "new").unwrap();
        let (_, change) = plan.changes().next().unwrap();
        assert_eq!((read.as_deref(), change.before.as_deref()), (Some("1"), Some("1")));
    }

    #[test]
    fn a_plan_that_was_carried_out_leaves_nothing_to_do() {
        let mut files = MemoryFiles::from([("kept", "k\n"), ("changed", "1\n"), ("gone", "x\n")]);
        let edits = |plan: &mut Plan<'_>| {
            plan.write("kept", "k\n").unwrap();
            plan.write("changed", "2\n").unwrap();
            plan.write("new/one", "n\n").unwrap();
            plan.remove("gone").unwrap();
            plan.write("forth", "and\n").unwrap();
            plan.remove("forth").unwrap();
        };
        let before = files.clone();
        let mut plan = Plan::new(&before);
        edits(&mut plan);
        let verbs: Vec<String> = plan
            .changes()
            .map(|(path, change)| format!("{} {path}", change.verb()))
            .collect();
        assert_eq!(verbs, ["update changed", "delete gone", "create new/one"]);
        assert_eq!(plan.list("").unwrap(), ["changed", "kept", "new/one"]);
        files.apply(&plan);
        let again = files.clone();
        let mut plan = Plan::new(&again);
        edits(&mut plan);
        assert!(plan.is_empty(), "{}", plan.diff());
    }
}
