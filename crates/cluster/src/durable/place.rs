//! Where a file is: whether its name still stands for the file that is open.
//!
//! A file that was removed can be written to without an error, and all of it is lost when it is closed. So before a
//! change is reported as safe, its file is looked up by its name.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// A file and its identity.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Place {
    /// The place of a file that is open now.
    pub(super) fn of(path: &Path) -> io::Result<Place> {
        Ok(Place {
            path: path.to_owned(),
            identity: identity(path)?,
        })
    }

    /// Whether the name still stands for the same file; an error in words.
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

/// Refuses what cannot be read to an end: a FIFO would be waited for, and a device may have no end.
///
/// # Errors
/// When there is such a file. A missing one is left to those who open it, and so is a folder.
pub(super) fn regular(path: &Path) -> io::Result<()> {
    let kind = match fs::metadata(path) {
        Ok(found) => found.file_type(),
        Err(_) => return Ok(()),
    };
    let other = match () {
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => return Ok(()),
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {other}, not a regular file"),
    ))
}
