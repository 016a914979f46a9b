//! The files of a project on disk: reading them for a plan, and carrying a plan out; and folders for temporary files.
//!
//! [`Disk`] reads, `write` writes. Invariants: no path leaves the project; a symbolic link is never followed; a file has
//! its old content or its new one, whole; a file that changed since it was read for the plan is left alone, and so is
//! everything else.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use kubewright_codegen::{Diagnostic, Files, Place, Plan, codes};
use tempfile::TempDir;

use crate::regular;

mod write;

/// Folders that hold nothing of a project's own.
const NEVER_OURS: [&str; 3] = [".git", ".kubewright", "target"];

/// Makes a folder for temporary files that nobody but this user can enter. It is removed when it is dropped.
///
/// # Errors
/// When the operating system refuses.
pub(crate) fn temporary_folder() -> Result<TempDir, Diagnostic> {
    let private = fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new()
        .prefix("kubewright-")
        .permissions(private)
        .tempdir();
    folder.map_err(|why| {
        Diagnostic::new(codes::files::IO, "cannot make a folder for temporary files")
            .because(why)
            .fix("name a folder that you can write to with TMPDIR")
    })
}

/// Whether a folder has a PROJECT. What is no regular file counts, too, so that it is an error; a folder of that name
/// does not: it may be the one in which a person keeps all projects.
pub(crate) fn has_project(folder: &Path) -> bool {
    fs::metadata(folder.join("PROJECT")).is_ok_and(|found| !found.is_dir())
}

/// Whether a path is a folder, or can become one: nothing but folders is above it.
///
/// # Errors
/// With the file that is in the way.
pub(crate) fn check_folder(path: &Path, attempted: &str) -> Result<(), Diagnostic> {
    for above in path.ancestors().filter(|above| !above.as_os_str().is_empty()) {
        let why = match fs::metadata(above) {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => "it is not a folder".to_owned(),
            // Also a link to nothing, which a new folder cannot replace.
            Err(why) if why.kind() == ErrorKind::NotFound && fs::symlink_metadata(above).is_ok() => {
                "it is a symbolic link to a folder that does not exist".to_owned()
            }
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(why) => why.to_string(),
        };
        return Err(Diagnostic::new(codes::files::IO, attempted)
            .at(Place::file(above.display().to_string()))
            .because(why)
            .fix("name another folder, or move the file away"));
    }
    Ok(())
}

/// A project's folder.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    root: PathBuf,
}

impl Disk {
    /// The files below a folder.
    pub(crate) fn new(root: impl Into<PathBuf>) -> Disk {
        Disk { root: root.into() }
    }

    /// The project that the current folder is in: the nearest folder above with a PROJECT file, or the current one when
    /// there is none.
    ///
    /// # Errors
    /// When there is no current folder.
    pub(crate) fn here() -> Result<Disk, Diagnostic> {
        let here = std::env::current_dir()
            .map_err(|why| Diagnostic::new(codes::files::IO, "cannot find the current folder").because(why))?;
        let root = here.ancestors().find(|folder| has_project(folder));
        Ok(Disk::new(root.unwrap_or(&here)))
    }

    /// The folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Carries a plan out.
    ///
    /// # Errors
    /// When a file changed since the plan was made, something is in the way, or the operating system refuses. Nothing
    /// has changed then, or the error says what.
    pub(crate) fn write(&self, plan: &Plan<'_>) -> Result<(), Diagnostic> {
        if plan.is_empty() {
            return Ok(());
        }
        write::Prepared::of(self, plan)?.carry_out()
    }

    /// The place of a path on the disk, when no link and no `..` leads out of the project.
    fn place(&self, path: &str) -> Result<PathBuf, Diagnostic> {
        let relative = Path::new(path);
        let inside = !path.is_empty() && relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !inside {
            return Err(Diagnostic::new(codes::files::IO, format!("cannot touch {path}"))
                .because("the path leads out of the project"));
        }
        let mut place = self.root.clone();
        for part in relative.components() {
            place.push(part);
            if fs::symlink_metadata(&place).is_ok_and(|found| found.file_type().is_symlink()) {
                return Err(Diagnostic::new(codes::files::IO, format!("cannot touch {path}"))
                    .at(Place::file(self.relative(&place)))
                    .because("it is a symbolic link, which could lead out of the project")
                    .fix("put a folder or file in its place"));
            }
        }
        Ok(place)
    }

    fn relative(&self, place: &Path) -> String {
        let parts = place.strip_prefix(&self.root).unwrap_or(place);
        let parts: Vec<String> = parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        parts.join("/")
    }
}

impl Files for Disk {
    fn read(&self, path: &str) -> Result<Option<String>, Diagnostic> {
        let place = self.place(path)?;
        match regular::text(&place) {
            Ok(text) => Ok(Some(text)),
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(why) => {
                let fix = match why.kind() {
                    ErrorKind::InvalidData => "save it as UTF-8, or take it back from version control",
                    ErrorKind::IsADirectory => "there is a folder where a file must be: move it away",
                    ErrorKind::InvalidInput | ErrorKind::FileTooLarge => "put the file of the project in its place",
                    _ => "see who may read it, and run the command again",
                };
                Err(Diagnostic::new(codes::files::IO, format!("cannot read {path}"))
                    .at(Place::file(path))
                    .because(why)
                    .fix(fix))
            }
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, Diagnostic> {
        let mut found = Vec::new();
        let mut folders = vec![if folder.is_empty() {
            self.root.clone()
        } else {
            self.place(folder)?
        }];
        while let Some(folder) = folders.pop() {
            let refused = |why: std::io::Error| {
                Diagnostic::new(codes::files::IO, "cannot list the files of the project")
                    .at(Place::file(self.relative(&folder)))
                    .because(why)
            };
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
                Err(why) => return Err(refused(why)),
            };
            for entry in entries {
                let entry = entry.map_err(refused)?;
                let kind = entry.file_type().map_err(refused)?;
                let ours = !NEVER_OURS.iter().any(|name| entry.file_name() == *name);
                if kind.is_dir() && ours {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    found.push(self.relative(&entry.path()));
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
