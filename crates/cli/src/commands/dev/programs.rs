//! Each program that runs has a file name of its own, so that cargo can write the next one meanwhile.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::lifecycle::Generation;

/// Distinguishes programs without reading them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    path: PathBuf,
    modified: SystemTime,
    length: u64,
}

impl Fingerprint {
    pub(super) fn of(program: &Path) -> std::io::Result<Fingerprint> {
        let metadata = std::fs::metadata(program)?;
        Ok(Fingerprint {
            path: program.to_path_buf(),
            modified: metadata.modified()?,
            length: metadata.len(),
        })
    }
}

/// Links a program to another name in a folder beside it. A hard link costs nothing, and cargo's linker writes a new file
/// and does not change the old one.
pub(super) fn link(program: &Path, number: Generation) -> std::io::Result<PathBuf> {
    let folder = program.with_file_name(".kubewright-dev");
    std::fs::create_dir_all(&folder)?;
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let linked = folder.join(format!("{name}-{number}"));
    match std::fs::remove_file(&linked) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    std::fs::hard_link(program, &linked).or_else(|_| std::fs::copy(program, &linked).map(|_| ()))?;
    Ok(linked)
}
