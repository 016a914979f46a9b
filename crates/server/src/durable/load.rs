//! From the file to the initial state of a storage.
//!
//! Everything is verified before anything is used: the pages by the database, the records by their checksums, the texts
//! by reading them.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kubewright_apiserver::storage::StoredObject;
use kubewright_apiserver::storage::journal::Restored;
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::contain::contain;
use super::error::DataDirError;
use super::folder::{Folder, sync_folder};
use super::identity;
use super::record::{self, Record};
use super::salvage;
use super::unsynced::Unsynced;

/// Objects by [`key_of`].
pub(super) const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
/// Under [`REVISION`] the record of the latest revision.
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
pub(super) const REVISION: &str = "revision";

/// Objects are served from memory, so pages are read once; this is for those that are written.
const CACHE: usize = 16 * 1024 * 1024;

/// The key of an object in the file: objects of one store stand together, in the order of their keys.
pub(super) fn key_of(store: &str, key: &str) -> Vec<u8> {
    [store.as_bytes(), &[0], key.as_bytes()].concat()
}

/// Opens the database and verifies every page of it.
pub(super) fn database(file: &Path, synced: bool) -> Result<Database, DatabaseError> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
    if synced {
        return builder.open(file);
    }
    let file = Unsynced::open(file).map_err(|why| DatabaseError::Storage(why.into()))?;
    builder.create_with_backend(file)
}

/// Any error of the database, in words: they have no common type.
pub(super) fn words(error: impl Into<redb::Error>) -> String {
    error.into().to_string()
}

/// Makes an empty file of objects. It gets its name when it is complete.
pub(super) fn create(folder: &Folder, file: &Path) -> Result<(), DataDirError> {
    let new = file.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(DataDirError::io("remove", new)(error)),
        _ => {}
    }
    write_new(&new, 1, std::iter::empty()).map_err(|why| DataDirError::Database { file: new.clone(), why })?;
    let place = || {
        fs::rename(&new, file)?;
        sync_folder(folder.path())
    };
    place().map_err(DataDirError::io("create", file))
}

/// Writes a new database with these records.
pub(super) fn write_new<'a>(
    path: &Path,
    revision: u64,
    records: impl Iterator<Item = (Vec<u8>, &'a [u8])>,
) -> Result<(), String> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // Secrets stand in it, so it is its owner's from the first moment on.
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| error.to_string())?;
    drop(file);
    let write = || -> Result<(), redb::Error> {
        let database = Database::builder().set_cache_size(CACHE).create(path)?;
        let transaction = database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for (key, record) in records {
                objects.insert(key.as_slice(), record)?;
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert(REVISION, record::mark(revision).as_slice())?;
        }
        transaction.commit()?;
        Ok(database.close()?)
    };
    write().map_err(words)
}

/// Opens a file of objects and reads it; a damaged one is an error that lists the objects that can be saved.
pub(super) fn open(file: &Path, synced: bool) -> Result<(Database, Restored), DataDirError> {
    identity::regular(file).map_err(DataDirError::io("read", file))?;
    // A file that is damaged in a way that the database does not expect must not end the process.
    let opened = contain(|| -> Result<_, DatabaseFailure> {
        let database = database(file, synced)?;
        let restored = read(&database)?;
        Ok((database, restored))
    });
    let damage = match opened {
        Some(Ok(opened)) => return Ok(opened),
        Some(Err(DatabaseFailure::Damaged(damage))) => damage,
        Some(Err(DatabaseFailure::Other(why))) => {
            return Err(DataDirError::Database {
                file: file.to_owned(),
                why,
            });
        }
        None => vec!["the database cannot make sense of it".to_owned()],
    };
    Err(salvage::damaged(file, damage))
}

/// Why a file could not be read.
pub(super) enum DatabaseFailure {
    /// Something in it is not as it was written.
    Damaged(Vec<String>),
    /// Something else.
    Other(String),
}

impl<E: Into<redb::Error>> From<E> for DatabaseFailure {
    fn from(error: E) -> DatabaseFailure {
        match error.into() {
            redb::Error::Corrupted(why) => DatabaseFailure::Damaged(vec![why]),
            redb::Error::Io(error) if is_damage(&error) => DatabaseFailure::Damaged(vec![error.to_string()]),
            other @ (redb::Error::TableDoesNotExist(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::UpgradeRequired(_)) => DatabaseFailure::Damaged(vec![other.to_string()]),
            other => DatabaseFailure::Other(other.to_string()),
        }
    }
}

/// A file that is too short, or does not begin as a database, is damaged; anything else is the disk's fault.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData)
}

/// Reads every record.
pub(super) fn read(database: &Database) -> Result<Restored, DatabaseFailure> {
    let transaction = database.begin_read()?;
    let mut damage = Vec::new();
    let mut restored = Restored::default();
    match transaction
        .open_table(META)?
        .get(REVISION)?
        .as_ref()
        .map(|mark| record::read(mark.value()))
    {
        Some(Ok((Record::Mark(revision), _))) => restored.revision = revision,
        Some(Ok(_)) | None => damage.push("the latest revision is not written down".to_owned()),
        Some(Err(broken)) => damage.push(format!("the record of the latest revision {}", broken.why)),
    }
    for entry in transaction.open_table(OBJECTS)?.iter()? {
        let (key, value) = entry?;
        match read_object(key.value(), value.value()) {
            Ok((store, key, object)) => {
                if object.revision() > restored.revision {
                    let revision = object.revision();
                    damage.push(format!(
                        "{store} {key} is of revision {revision}, which was never reached"
                    ));
                }
                let store = match restored.objects.last() {
                    Some((last, ..)) if **last == *store => last.clone(),
                    _ => Arc::from(store),
                };
                restored.objects.push((store, Arc::from(key), object));
            }
            Err(why) => damage.push(why),
        }
    }
    if damage.is_empty() {
        Ok(restored)
    } else {
        Err(DatabaseFailure::Damaged(damage))
    }
}

/// A key in words.
pub(super) fn name_of(key: &[u8]) -> String {
    String::from_utf8_lossy(key).replace('\0', " ")
}

/// Verifies a record that stands at `key`.
pub(super) fn read_object<'a>(key: &[u8], value: &'a [u8]) -> Result<(&'a str, &'a str, StoredObject), String> {
    let name = || name_of(key);
    match record::read(value) {
        Ok((Record::Object(revision, store, object_key, text), size)) if size == value.len() => {
            if key_of(store, object_key) != key {
                return Err(format!("the record of {} is that of {store} {object_key}", name()));
            }
            match StoredObject::restore(revision, Bytes::copy_from_slice(text)) {
                Ok(object) => Ok((store, object_key, object)),
                Err(error) => Err(format!("the text of {} is no JSON: {error}", name())),
            }
        }
        Ok(_) => Err(format!("the record of {} is that of something else", name())),
        Err(broken) => Err(format!("the record of {} {}", name(), broken.why)),
    }
}
