//! The objects that can be saved of a damaged file.
//!
//! Two ways are tried. First the database's own, on a copy: from both ends towards the damage, which gives objects that
//! are certainly the latest ones. Then, for the parts between, every byte of the file is searched for records: each has
//! a checksum of its own, so a record that is found was written so; but it may be an older version, or an object that
//! was deleted since, and is called *uncertain*.
//!
//! Nothing is changed in the damaged file. A repair writes a new one beside it and lets them change names.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase as _};

use super::OBJECTS_FILE;
use super::contain::contain;
use super::error::DataDirError;
use super::folder::{Folder, sync_folder};
use super::load::{self, DatabaseFailure, META, OBJECTS, REVISION, key_of, name_of, read_object};
use super::record::{self, Record};

/// How far the revision jumps over the latest one that was found: revisions that are lost must not be given out again.
const JUMP: u64 = 1_000_000;
/// So many damages and objects are named in a message; the number says how many there are.
const NAMED: usize = 10;

/// The report of [`repair`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The damage, and its place; empty when there was none, and nothing was done.
    pub damage: Vec<String>,
    /// How many objects were saved.
    pub saved: usize,
    /// Those of them that may be older than the last write, or deleted since.
    pub uncertain: Vec<String>,
    /// The objects that are known to be lost. There may be others of which no trace is left.
    pub lost: Vec<String>,
    /// Where the damaged file is kept.
    pub kept: Option<PathBuf>,
}

/// Repairs the data folder of a cluster: saves all recoverable objects into a new file, and keeps the damaged one.
///
/// # Errors
/// When the folder is in use or is no folder of a cluster, or the file system refuses.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let opened = kubewright_server::open_data_dir(folder.path(), true, Default::default())?;
/// opened.journal.close();
/// drop(opened);
/// let report = kubewright_server::repair(folder.path())?;
/// assert!(report.damage.is_empty() && report.lost.is_empty(), "{report:?}");
/// # Ok(()) }
/// ```
pub fn repair(path: &Path) -> Result<Report, DataDirError> {
    // A missing folder is no damage, and a mistyped name must not create one.
    let objects = path.join(OBJECTS_FILE);
    fs::metadata(&objects).map_err(DataDirError::io("find", &objects))?;
    let folder = Folder::open(path)?;
    let file = folder.path().join(OBJECTS_FILE);
    let damage = match load::open(&file, true) {
        Ok((_, restored)) => {
            return Ok(Report {
                saved: restored.objects.len(),
                ..Report::default()
            });
        }
        Err(DataDirError::Damaged { damage, .. }) => damage,
        Err(error) => return Err(error),
    };
    let bytes = fs::read(&file).map_err(DataDirError::io("read", &file))?;
    let found = Found::search(&file, &bytes);
    let new = file.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(DataDirError::io("remove", new)(error)),
        _ => {}
    }
    let records = found.objects.iter().map(|(key, object)| (key.clone(), &*object.record));
    load::write_new(&new, found.revision + JUMP, records)
        .map_err(|why| DataDirError::Database { file: new.clone(), why })?;
    let kept = (1..)
        .map(|number| file.with_extension(format!("redb.damaged-{number}")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| file.with_extension("redb.damaged"));
    let exchange = || {
        fs::rename(&file, &kept)?;
        fs::rename(&new, &file)?;
        sync_folder(folder.path())
    };
    exchange().map_err(DataDirError::io("replace", &file))?;
    folder.mark(None)?;
    Ok(Report {
        damage,
        kept: Some(kept),
        ..found.report()
    })
}

/// The error for a damaged file: the damage, and the objects that a repair would save.
pub(super) fn damaged(file: &Path, damage: Vec<String>) -> DataDirError {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => return DataDirError::io("read", file)(error),
    };
    let found = Found::search(file, &bytes);
    let report = found.report();
    let places: Vec<String> = found
        .broken
        .iter()
        .map(|(at, what)| format!("the record at byte {at} {what}"))
        .collect();
    let rescue = if report.saved == 0 {
        "no object can be saved: it is not, or no longer, a file of objects".to_owned()
    } else {
        let doubt = match report.uncertain.len() {
            0 => String::new(),
            count => format!(
                ", {count} of them perhaps in an older version: {}",
                some(&report.uncertain)
            ),
        };
        let lost = match report.lost.len() {
            0 => String::new(),
            count => format!("; lost ({count}): {}", some(&report.lost)),
        };
        format!(
            "{} objects can be saved{doubt}{lost}\n`kubewright cluster --data-dir … --repair` saves them into a new file and keeps this one",
            report.saved
        )
    };
    DataDirError::Damaged {
        file: file.to_owned(),
        damage: shortened(damage.into_iter().chain(places).collect()),
        rescue,
    }
}

fn shortened(mut list: Vec<String>) -> Vec<String> {
    if list.len() > NAMED {
        let more = list.len() - NAMED;
        list.truncate(NAMED);
        list.push(format!("and {more} more"));
    }
    list
}

fn some(list: &[String]) -> String {
    shortened(list.to_vec()).join(", ")
}

/// An object that was found.
struct Object {
    revision: u64,
    /// Whether it is known to be the latest version.
    certain: bool,
    record: Vec<u8>,
}

/// Everything that was found.
#[derive(Default)]
struct Found {
    objects: BTreeMap<Vec<u8>, Object>,
    /// The latest revision of which there is a trace.
    revision: u64,
    /// Where records are that fail, and why.
    broken: BTreeMap<usize, String>,
    /// Keys whose record fails.
    failed: BTreeMap<Vec<u8>, ()>,
}

impl Found {
    fn search(file: &Path, bytes: &[u8]) -> Found {
        let mut found = Found::default();
        let readable = found.read_database(file);
        found.search_bytes(bytes, &readable);
        found
    }

    fn add(&mut self, key: Vec<u8>, revision: u64, certain: bool, record: &[u8]) {
        self.revision = self.revision.max(revision);
        match self.objects.get(&key) {
            Some(present) if present.certain || present.revision >= revision => {}
            _ => {
                let record = record.to_vec();
                self.objects.insert(
                    key,
                    Object {
                        revision,
                        certain,
                        record,
                    },
                );
            }
        }
    }

    /// Reads the part that the database can still read, from both ends; answers up to where each end came.
    fn read_database(&mut self, file: &Path) -> Readable {
        let copy = file.with_extension("salvage.new");
        let mut readable = Readable::default();
        if fs::copy(file, &copy).is_ok() {
            // In a damaged file the database may fail in ways that it does not expect; the objects read until then
            // count.
            let _ = contain(|| self.read_copy(&copy, &mut readable));
        }
        // A copy that stays is overwritten by the next one.
        let _ = fs::remove_file(&copy);
        readable
    }

    fn read_copy(&mut self, copy: &Path, readable: &mut Readable) -> Result<(), DatabaseFailure> {
        // Without verification: a file with one bad page would be refused as a whole.
        let database = Database::builder().open(copy)?;
        let transaction = database.begin_read()?;
        if let Ok(meta) = transaction.open_table(META)
            && let Ok(Some(mark)) = meta.get(REVISION)
            && let Ok((Record::Mark(revision), _)) = record::read(mark.value())
        {
            self.revision = self.revision.max(revision);
        }
        let objects = transaction.open_table(OBJECTS)?;
        for backwards in [false, true] {
            let all = (Bound::<&[u8]>::Unbounded, Bound::<&[u8]>::Unbounded);
            let mut range = objects.range::<&[u8]>(all)?;
            let whole = contain(|| {
                loop {
                    let next = if backwards { range.next_back() } else { range.next() };
                    match next {
                        None => return true,
                        Some(Err(_)) => return false,
                        Some(Ok((key, value))) => {
                            let (key, value) = (key.value(), value.value());
                            match read_object(key, value) {
                                Ok((_, _, object)) => self.add(key.to_vec(), object.revision(), true, value),
                                Err(_) => drop(self.failed.insert(key.to_vec(), ())),
                            }
                            readable.reached(key, backwards);
                        }
                    }
                }
            });
            if whole == Some(true) {
                readable.whole = true;
                break;
            }
        }
        Ok(())
    }

    /// Finds every record in the bytes; those that the database could read count no more.
    fn search_bytes(&mut self, bytes: &[u8], readable: &Readable) {
        let mut at = 0;
        while let Some(next) = find(bytes, at) {
            match record::read(&bytes[next..]) {
                Ok((Record::Mark(revision), size)) => {
                    self.revision = self.revision.max(revision);
                    at = next + size;
                }
                Ok((Record::Object(revision, store, key, _), size)) => {
                    let record = &bytes[next..next + size];
                    let key = key_of(store, key);
                    self.revision = self.revision.max(revision);
                    if !readable.covers(&key) || self.failed.contains_key(&key) {
                        self.add(key, revision, false, record);
                    }
                    at = next + size;
                }
                Err(broken) => {
                    self.note(next, broken, readable);
                    at = next + record::MAGIC.len();
                }
            }
        }
    }

    fn note(&mut self, at: usize, broken: record::Broken, readable: &Readable) {
        let Some((revision, store, key)) = broken.who else {
            self.broken.insert(at, broken.why.to_owned());
            return;
        };
        let key = key_of(&store, &key);
        // Free pages hold pieces of old records: their loss does not count.
        if readable.covers(&key) && !self.failed.contains_key(&key) {
            return;
        }
        let name = name_of(&key);
        self.broken
            .insert(at, format!("({name}, revision {revision}) {}", broken.why));
        self.failed.insert(key, ());
    }

    fn report(&self) -> Report {
        let uncertain = self.objects.iter().filter(|(_, object)| !object.certain);
        let lost = self.failed.keys().filter(|key| !self.objects.contains_key(*key));
        Report {
            saved: self.objects.len(),
            uncertain: uncertain.map(|(key, _)| name_of(key)).collect(),
            lost: lost.map(|key| name_of(key)).collect(),
            ..Report::default()
        }
    }
}

/// Which keys the database could read: from the first to one, and from another to the last.
#[derive(Default)]
struct Readable {
    whole: bool,
    forwards: Option<Vec<u8>>,
    backwards: Option<Vec<u8>>,
}

impl Readable {
    fn reached(&mut self, key: &[u8], backwards: bool) {
        let end = if backwards {
            &mut self.backwards
        } else {
            &mut self.forwards
        };
        *end = Some(key.to_vec());
    }

    fn covers(&self, key: &[u8]) -> bool {
        self.whole
            || self.forwards.as_deref().is_some_and(|end| key <= end)
            || self.backwards.as_deref().is_some_and(|end| key >= end)
    }
}

/// The next place at or after `from` where a record seems to begin.
fn find(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(record::MAGIC.len())
        .position(|window| window == record::MAGIC)
        .map(|at| from + at)
}
