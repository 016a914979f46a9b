//! `faults.lock`: the findings that a project lives with, and why.
//!
//! TOML, for people: a table `[[accepted]]` for each, with `finding`, the sentence of the report, and `reason`. A finding
//! without a reason is refused: whoever reads the file later needs it.

use std::io::ErrorKind;
use std::path::Path;

use kubewright_testing::explore::Report;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use crate::output::Failure;

#[derive(Debug, Default)]
pub(super) struct Accepted {
    document: DocumentMut,
    /// Finding and reason.
    all: Vec<(String, String)>,
}

impl Accepted {
    /// Reads the file; one that is not there accepts nothing.
    ///
    /// # Errors
    /// When it cannot be read, or an entry is not whole.
    pub(super) fn read(path: &Path) -> Result<Accepted, Failure> {
        let wrong = |why: String| {
            Failure::new(format!("cannot read the accepted findings in {}", path.display()))
                .because(why)
                .fix("each is a table [[accepted]] with finding = \"…\" and reason = \"…\"")
        };
        let text = match crate::regular::text(path) {
            Ok(text) => text,
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Accepted::default()),
            Err(why) => return Err(wrong(why.to_string())),
        };
        let document: DocumentMut = text
            .parse()
            .map_err(|why: toml_edit::TomlError| wrong(why.to_string()))?;
        let tables = match document.get("accepted") {
            None => ArrayOfTables::new(),
            Some(Item::ArrayOfTables(tables)) => tables.clone(),
            Some(_) => return Err(wrong("accepted is not an array of tables".to_owned())),
        };
        let mut all = Vec::new();
        for table in &tables {
            let text = |key: &str| {
                table
                    .get(key)
                    .and_then(Item::as_str)
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            };
            let (finding, reason) = (text("finding"), text("reason"));
            if finding.is_empty() || reason.is_empty() {
                return Err(wrong(format!(
                    "an entry has no finding or no reason: {finding}{reason}"
                )));
            }
            all.push((finding, reason));
        }
        Ok(Accepted { document, all })
    }

    /// Why a finding is accepted, if it is.
    pub(super) fn reason(&self, finding: &str) -> Option<&str> {
        let found = self.all.iter().find(|(accepted, _)| accepted == finding);
        found.map(|(_, reason)| reason.as_str())
    }

    /// The same file, with all findings of a report.
    pub(super) fn with(&self, report: &Report, reason: &str) -> DocumentOf {
        let mut document = self.document.clone();
        let entry = document
            .entry("accepted")
            .or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        if let Item::ArrayOfTables(tables) = entry {
            for finding in report
                .findings
                .iter()
                .filter(|finding| self.reason(&finding.what).is_none())
            {
                let mut table = Table::new();
                table.insert("finding", value(&finding.what));
                table.insert("reason", value(reason));
                tables.push(table);
            }
        }
        DocumentOf(document)
    }
}

/// A file that is to be written.
pub(super) struct DocumentOf(DocumentMut);

impl DocumentOf {
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        std::fs::write(path, self.0.to_string())
            .map_err(|why| Failure::new(format!("cannot write {}", path.display())).because(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_accepted_with_its_reason_and_not_without() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faults.lock");
        assert_eq!(Accepted::read(&path).unwrap().reason("x"), None);
        let check = |text: &str, reason: Option<&str>, wrong: Option<&str>| {
            std::fs::write(&path, text).unwrap();
            match (Accepted::read(&path), wrong) {
                (Ok(accepted), None) => assert_eq!(accepted.reason("x is left"), reason, "{text}"),
                (Err(failure), Some(wrong)) => assert!(failure.to_string().contains(wrong), "{failure}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        };
        let entry = "[[accepted]]\nfinding = \"x is left\"\n";
        check(
            &format!("{entry}reason = \"a job removes it\"\n"),
            Some("a job removes it"),
            None,
        );
        check("", None, None);
        check(entry, None, Some("no reason"));
        check("accepted = 1", None, Some("not an array of tables"));
        check("[[accepted", None, Some("[[accepted]] with finding"));
    }
}
