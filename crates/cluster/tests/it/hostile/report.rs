//! `bench/hostile.md`: the inputs, the answers, the costs.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::client::Answer;
use super::input::{Input, Request};
use super::server::Figures;

/// How the file begins.
const HEAD: &str = "\
# Hostile inputs

What each input of `crates/cluster/tests/it/hostile` is answered with, and what it costs a release build: the server's
processor time for the request, and the largest increase of its resident memory. Where several clients send at once, the
time is that of one request, and the memory is that of all together. `.ci/night hostile` writes this file.
";

/// The cost of one input.
pub(crate) struct Row {
    pub(crate) code: u16,
    pub(crate) answered: usize,
    pub(crate) figures: Figures,
}

/// Rows, when they are wanted.
pub(crate) struct Report {
    file: Option<PathBuf>,
    text: String,
    /// The group whose rows are being written.
    group: &'static str,
    /// Whether answers are to be printed as they come.
    loud: bool,
}

impl Report {
    pub(crate) fn from_env() -> Report {
        Report {
            file: std::env::var_os("KUBEWRIGHT_HOSTILE_REPORT").map(PathBuf::from),
            text: HEAD.to_owned(),
            group: "",
            loud: std::env::var_os("KUBEWRIGHT_HOSTILE_SERVER").is_some(),
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.file.is_some()
    }

    /// Whether inputs must come one after the other: figures are of one alone, and so is what another server is asked.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.is_wanted() || self.loud
    }

    fn begin(&mut self, group: &'static str) {
        if group == self.group {
            return;
        }
        self.group = group;
        self.line(&format!("\n### {group}\n"));
        self.line("| input | sent | answer | answered | CPU ms | peak MB |");
        self.line("|---|--:|--:|--:|--:|--:|");
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("a string takes everything");
    }

    /// Prints the answer of another server.
    pub(crate) fn answered(&self, input: &Input, answer: &Answer) {
        if self.loud {
            println!("{} | {:?} | {answer:?}", input.name, input.answers);
        }
    }

    pub(crate) fn add(&mut self, group: &'static str, input: &Input, request: &Request, row: Row) {
        self.begin(group);
        let cells = [
            input.name.clone(),
            size(request.path.len() + request.body.len()),
            row.code.to_string(),
            size(row.answered),
            format!("{:.1}", row.figures.cpu as f64 / 1e6),
            format!("{:.1}", row.figures.memory as f64 / 1024.0),
        ];
        self.line(&format!("| {} |", cells.join(" | ")));
        // The measured rows are kept when the rest fails.
        self.write();
    }

    pub(crate) fn write(&self) {
        if let Some(file) = &self.file {
            std::fs::write(file, &self.text).expect("the report can be written");
        }
    }
}

/// A size as people read it.
fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}
