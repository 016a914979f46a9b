//! Where pods run, and the programs that stand for images: the table `[images]` of `kubewright.toml`.
//!
//! ```toml
//! [images]
//! "shop:dev" = "cargo run"
//! "registry.example/*/worker:*" = "node worker.js"
//! ```

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use kubewright_cluster::{Images, ProcessRuntime};
use kubewright_codegen::manifests::TABLES;
use toml_edit::{DocumentMut, Item};

use crate::output::Failure;

const FILE: &str = "kubewright.toml";

/// Where pods run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runtime {
    /// Nowhere: nodes are simulated, and only the status of pods changes
    Simulated,
    /// As processes of this machine
    Process,
    /// As processes of this machine, if they are of the RuntimeClass `process`
    Class,
}

impl Runtime {
    /// How pods run as processes, if they do; with the table in this folder or the nearest one above.
    ///
    /// # Errors
    /// When there is a table that cannot be understood.
    pub(crate) fn processes(self) -> Result<Option<ProcessRuntime>, Failure> {
        let every_pod = match self {
            Runtime::Simulated => return Ok(None),
            Runtime::Process => true,
            Runtime::Class => false,
        };
        let images = match file() {
            Some(path) => read(&path)?,
            None => Images::default(),
        };
        let runtime = ProcessRuntime::new(images);
        Ok(Some(if every_pod { runtime.every_pod() } else { runtime }))
    }
}

fn file() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors()
        .map(|folder| folder.join(FILE))
        .find(|path| std::fs::metadata(path).is_ok_and(|found| !found.is_dir()))
}

fn read(path: &Path) -> Result<Images, Failure> {
    let attempted = || Failure::new(format!("cannot read the images of {}", path.display()));
    let text = crate::regular::text(path).map_err(|why| {
        attempted()
            .because(why)
            .fix("put a readable file in its place; nothing has been started")
    })?;
    let rows = rows(&text).map_err(|why| {
        attempted()
            .because(std::io::Error::other(why))
            .fix("each row is \"image:tag\" = \"program arguments\"; nothing has been started")
    })?;
    Ok(Images::new(path.parent().unwrap_or(Path::new("/")), rows))
}

/// The rows of the table in their order.
fn rows(text: &str) -> Result<Vec<(String, String)>, String> {
    let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    let mut names = document.iter().map(|(name, _)| name);
    if let Some(name) = names.find(|name| !TABLES.contains(name)) {
        let known = TABLES.map(|table| format!("[{table}]")).join(" and ");
        return Err(format!("there is no table [{name}]; it has {known}"));
    }
    let table = match document.get("images") {
        None => return Ok(Vec::new()),
        Some(item) => item.as_table_like().ok_or("[images] is not a table")?,
    };
    let row = |(image, command): (&str, &Item)| match command.as_str() {
        Some(command) if !command.trim().is_empty() => Ok((image.to_owned(), command.to_owned())),
        _ => Err(format!("the row {image:?} is not a command")),
    };
    table.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_table() {
        let check = |text: &str, expected: &str| {
            let rows = rows(text).map(|rows| format!("{rows:?}"));
            let (Ok(said) | Err(said)) = rows;
            assert!(said.contains(expected), "{text}: {said}");
        };
        check("", "[]");
        check("[manifests]\na = 1", "[]");
        check("[image]\na = 1", "there is no table [image]");
        check(
            "[images]\n\"shop:dev\" = \"cargo run\"\n\"a:*\" = \"b\"",
            "[(\"shop:dev\", \"cargo run\"), (\"a:*\", \"b\")]",
        );
        check("[images]\n\"shop:dev\" = 7", "the row \"shop:dev\" is not a command");
        check("images = 7", "[images] is not a table");
        check("[images", "TOML parse error");
    }
}
