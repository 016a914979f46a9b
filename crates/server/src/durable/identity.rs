//! Whether a path still leads to the file that is open, and whether the file is a regular one.
//!
//! A file that was removed can be written to without an error, and all of it is lost when it is closed. So before a
//! change is reported as safe, its file is looked up by its path.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::regular::require_regular;

/// A file and its identity.
#[derive(Clone, Debug)]
pub(super) struct FileIdentity {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl FileIdentity {
    /// The identity of a file that is open now.
    pub(super) fn of(path: &Path) -> io::Result<FileIdentity> {
        Ok(FileIdentity {
            path: path.to_owned(),
            identity: identity(path)?,
        })
    }

    /// Checks that the path still leads to the same file. The error is a message for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        let path = self.path.display();
        match identity(&self.path) {
            Ok(found) if found == self.identity => Ok(()),
            Ok(_) => Err(format!(
                "{path} was replaced by another file; put it back, or stop the cluster"
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(format!("{path} was moved or removed; put it back, or stop the cluster"))
            }
            Err(error) => Err(format!("cannot find {path}: {error}")),
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Refuses a file that cannot be read to an end.
///
/// # Errors
/// As [`require_regular`]. A missing file is no error here: opening it reports that.
pub(super) fn regular(path: &Path) -> io::Result<()> {
    fs::metadata(path).map_or(Ok(()), |found| require_regular(found.file_type()))
}
