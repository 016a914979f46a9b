//! Programs that run are kept under names of their own, so that cargo may write the next one meanwhile.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::machine::Generation;

/// Tells one program from another without reading it.
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

/// Gives a program another name beside it. A link costs nothing, and linkers write a new file instead of into the old
/// one.
pub(super) fn keep(program: &Path, number: Generation) -> std::io::Result<PathBuf> {
    let folder = program.with_file_name(".kubewright-dev");
    std::fs::create_dir_all(&folder)?;
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let kept = folder.join(format!("{name}-{number}"));
    match std::fs::remove_file(&kept) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    std::fs::hard_link(program, &kept).or_else(|_| std::fs::copy(program, &kept).map(|_| ()))?;
    Ok(kept)
}
