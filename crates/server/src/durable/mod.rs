//! A cluster that survives its process: a folder with everything that a start needs to go on where the last one ended.
//!
//! ```text
//! DIR/kubewright.json   what this folder is, and the version of its format
//! DIR/lock              held by the process that uses the folder
//! DIR/objects.redb      every object, each with a checksum, and the latest revision
//! DIR/history.*         the latest changes, for watches that go on after a restart
//! DIR/pki/              the certificate authority and other keys, so that kubeconfigs and tokens stay valid
//! ```
//!
//! Objects are served from memory; the file is written behind them, several changes at a time, and an answer waits
//! until the write that it reports is on the disk (see [`kubewright_apiserver::storage::journal`]). Opening reads the
//! whole file and verifies every page and every record: a damaged one is an error that names the damage and the objects
//! that can be saved, never a start with missing objects.
//!
//! `folder` is the folder, `history` keeps the changes of late, `identity` tells whether a file is still in it, `journal` writes, `load` reads, `record` is the
//! form of an object on the disk, `salvage` saves objects of a damaged file, `contain` catches panics of the database.
//!
//! Invariants: nothing is acknowledged that is not on the disk, in the file that the next start will open; a file
//! appears whole or not at all; one process at a time.
//!
//! Not here: compaction of the file (its free pages are used again, and it does not shrink), backups.

mod contain;
mod error;
mod folder;
mod history;
mod identity;
mod journal;
mod load;
mod record;
mod salvage;
#[cfg(test)]
mod tests;
mod unsynced;

use std::path::Path;
use std::sync::Arc;

use kubewright_apiserver::Minor;
use kubewright_apiserver::storage::journal::Restored;

use self::history::History;
use self::identity::FileIdentity;
pub use contain::panic_is_reported;
pub use error::DataDirError;
pub use folder::Folder;
pub use journal::FileJournal;
pub use salvage::{Report, repair};

/// The name of the file that holds the objects.
const OBJECTS_FILE: &str = "objects.redb";

/// The parts that a folder gives to a cluster.
pub struct Opened {
    /// The folder, which is this process's until it is dropped.
    pub folder: Arc<Folder>,
    /// Takes what is written from now on.
    pub journal: Arc<FileJournal>,
    /// What was there.
    pub restored: Restored,
}

/// Opens the folder of a cluster, and makes it when it is not there; unless `synced`, the journal does not wait for the
/// disk. Reads all of it: not for an asynchronous thread. The folder remembers the version of Kubernetes: a newer one may
/// go on with it, an older one may not.
///
/// # Errors
/// When the folder is not a cluster's, is in use, damaged, or of a newer version.
pub fn open(path: &Path, synced: bool, minor: Minor) -> Result<Opened, DataDirError> {
    let mut folder = Folder::open(path)?;
    folder.check_version(minor)?;
    let file = folder.path().join(OBJECTS_FILE);
    if !file.exists() {
        if folder.is_marked() {
            return Err(DataDirError::Damaged {
                file: file.clone(),
                damage: vec![format!("{OBJECTS_FILE} is missing, and with it every object")],
                rescue: "nothing in the folder holds objects: put the file back, or start with another folder"
                    .to_owned(),
            });
        }
        load::create(&folder, &file)?;
    }
    folder.mark(Some(minor))?;
    let (database, mut restored) = load::open(&file, synced)?;
    let history = History::open(&folder, &mut restored);
    let reopen = {
        let file = file.clone();
        Box::new(move || load::database(&file, synced))
    };
    let identity = FileIdentity::of(&file).map_err(DataDirError::io("find", &file))?;
    let in_place = Box::new(move || identity.check());
    let journal = FileJournal::start(
        database,
        reopen,
        in_place,
        restored.revision,
        Some(history),
        folder.take_lock(),
    )
    .map_err(DataDirError::io("start a thread that writes", &file))?;
    Ok(Opened {
        folder: Arc::new(folder),
        journal: Arc::new(journal),
        restored,
    })
}
