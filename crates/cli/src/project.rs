//! The project that a command works on: where it is, and what `dev`, `run` and `doctor` must know about it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use kubewright_codegen::{Diagnostic, Place, codes};

use crate::files::has_project;

/// The folder for files of this machine, in the project.
pub(crate) const PRIVATE: &str = ".kubewright";

/// A project on disk.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    /// The folder with `Cargo.toml` (and, in a scaffolded project, `PROJECT`).
    pub(crate) root: PathBuf,
    /// Whether there is a `PROJECT` file.
    pub(crate) scaffolded: bool,
}

impl Project {
    /// The project of a folder, or of the nearest folder above it that has a `PROJECT` file.
    ///
    /// # Errors
    /// When there is none, or it is none of Rust.
    pub(crate) fn find(folder: &Path) -> Result<Project, Diagnostic> {
        let project = Project::find_any(folder)?;
        if !project.root.join("Cargo.toml").is_file() {
            return Err(Diagnostic::new(codes::project::NONE, "cannot build the project")
                .at(Place::file(project.root.join("PROJECT").display().to_string()))
                .because("there is no Cargo.toml beside PROJECT, so this is not a Rust project")
                .fix("a project in Go keeps its own tools; make one in Rust with kubewright init"));
        }
        Ok(project)
    }

    /// As [`Project::find`], and it may be one without code, whose `config/` is all that there is to deploy.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn find_any(folder: &Path) -> Result<Project, Diagnostic> {
        let has = |folder: &Path, file: &str| folder.join(file).is_file();
        let above = folder.ancestors().find(|above| has_project(above));
        let root = match above {
            Some(above) => above,
            None if has(folder, "Cargo.toml") => folder,
            None => {
                return Err(Diagnostic::new(codes::project::NONE, "cannot find the project")
                    .at(Place::file(folder.display().to_string()))
                    .because("neither this folder nor one above it has a file PROJECT, and this one has no Cargo.toml")
                    .fix("go to the project's folder, or make one: kubewright init --domain my.domain"));
            }
        };
        Ok(Project {
            root: root.to_path_buf(),
            scaffolded: above.is_some(),
        })
    }

    /// The project of the current folder.
    ///
    /// # Errors
    /// As [`Project::find`], and when there is no current folder.
    pub(crate) fn here() -> Result<Project, Diagnostic> {
        let folder = std::env::current_dir().map_err(|why| {
            Diagnostic::new(codes::files::IO, "cannot find the project")
                .because(format!("the current folder cannot be read: {why}"))
        })?;
        Project::find(&folder)
    }

    /// As [`Project::here`], and it may be one without code.
    ///
    /// # Errors
    /// As [`Project::find_any`], and when there is no current folder.
    pub(crate) fn here_any() -> Result<Project, Diagnostic> {
        let folder = std::env::current_dir().map_err(|why| {
            Diagnostic::new(codes::files::IO, "cannot find the project")
                .because(format!("the current folder cannot be read: {why}"))
        })?;
        Project::find_any(&folder)
    }

    /// Where commands keep files of this machine between two runs: `.kubewright`, which git does not see.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn private_folder(&self) -> Result<PathBuf, Diagnostic> {
        let folder = self.root.join(PRIVATE);
        let ignore = folder.join(".gitignore");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        let made = made.and_then(|()| match ignore.exists() {
            true => Ok(()),
            false => std::fs::write(
                &ignore,
                "# Written by kubewright: keys and sockets, of no use to others.\n*\n",
            ),
        });
        made.map_err(|why| {
            Diagnostic::new(codes::files::IO, "cannot make the folder for files of this machine")
                .at(Place::file(folder.display().to_string()))
                .because(why)
        })?;
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_project_is_found_and_none_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("src/controller");
        std::fs::create_dir_all(&deep).unwrap();
        let none = Project::find(&deep).unwrap_err();
        assert_eq!(none.code, codes::project::NONE);

        std::fs::write(folder.path().join("PROJECT"), "version: \"3\"\n").unwrap();
        let go = Project::find(&deep).unwrap_err();
        assert!(go.to_string().contains("no Cargo.toml beside PROJECT"), "{go}");

        std::fs::write(folder.path().join("Cargo.toml"), "[package]\n").unwrap();
        let found = Project::find(&deep).unwrap();
        assert_eq!(found.root, folder.path());
        assert!(found.scaffolded);
    }
}
