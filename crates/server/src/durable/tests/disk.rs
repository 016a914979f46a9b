//! Disks that are full, broken, or without power.

use std::io;
use std::sync::{Mutex, MutexGuard};

use redb::{Database, DatabaseError, StorageBackend};

use super::super::journal::FileJournal;
use super::super::load;
use super::*;

/// A scripted disk in memory.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// As programs see it.
    now: Vec<u8>,
    /// The safe bytes, and the writes since: a power cut keeps some of them.
    safe: Vec<u8>,
    since: Vec<Written>,
    /// Operations that still work; all do when there is none.
    budget: Option<usize>,
    error: Option<io::ErrorKind>,
    /// Whether it says that bytes are safe that are not.
    lies: bool,
}

#[derive(Debug)]
enum Written {
    Bytes(usize, Vec<u8>),
    Length(usize),
}

/// The size of one atomic write of a disk.
const SECTOR: usize = 512;

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics under the lock")
    }

    fn open(&self) -> Result<Database, DatabaseError> {
        Database::builder()
            .set_check_integrity_on_open(true)
            .create_with_backend(self.clone())
    }

    /// A disk with an empty store on it.
    fn new() -> Disk {
        let file = tempfile::tempdir().expect("a temporary folder");
        let opened = super::super::open(file.path(), true, Default::default()).expect("a new folder");
        opened.journal.close();
        let bytes = std::fs::read(file.path().join(OBJECTS_FILE)).expect("it is there");
        let disk = Disk::default();
        disk.state().now = bytes.clone();
        disk.state().safe = bytes;
        disk
    }

    /// The storage that is on the disk.
    fn start(&self) -> Waiting {
        self.try_start().unwrap_or_else(|why| panic!("{why}"))
    }

    fn try_start(&self) -> Result<Waiting, String> {
        let database = self.open().map_err(load::words)?;
        let restored = load::read(&database).map_err(|failure| match failure {
            load::DatabaseFailure::Damaged(damage) => format!("damaged: {damage:?}"),
            load::DatabaseFailure::Other(why) => why,
        })?;
        let disk = self.clone();
        let reopen = Box::new(move || disk.open());
        let journal = FileJournal::start(database, reopen, Box::new(|| Ok(())), restored.revision, None, None)
            .map_err(|error| error.to_string())?;
        Ok(Waiting::new(Arc::new(journal), restored, Bounds::default()))
    }

    /// The disk that another start would find after a power cut now: of everything since the last sync some sectors, by
    /// chance.
    fn without_power(&self, random: &mut Random) -> Disk {
        let state = self.state();
        let mut bytes = state.safe.clone();
        for written in &state.since {
            match written {
                Written::Length(size) => {
                    if random.below(2) == 0 {
                        bytes.resize(*size, 0);
                    }
                }
                Written::Bytes(at, data) => {
                    for (number, sector) in data.chunks(SECTOR).enumerate() {
                        let at = at + number * SECTOR;
                        if random.below(3) > 0 && at + sector.len() <= bytes.len() {
                            bytes[at..at + sector.len()].copy_from_slice(sector);
                        }
                    }
                }
            }
        }
        let disk = Disk::default();
        disk.state().now = bytes.clone();
        disk.state().safe = bytes;
        disk
    }
}

impl State {
    fn spend(&mut self) -> io::Result<()> {
        match &mut self.budget {
            Some(0) => Err(self.error.unwrap_or(io::ErrorKind::Other).into()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = state.now.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.spend()?;
        let size = usize::try_from(len).map_err(io::Error::other)?;
        state.now.resize(size, 0);
        state.since.push(Written::Length(size));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.spend()?;
        if !state.lies {
            state.safe = state.now.clone();
            state.since.clear();
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.spend()?;
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let place = state
            .now
            .get_mut(at..at + data.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        place.copy_from_slice(data);
        state.since.push(Written::Bytes(at, data.to_vec()));
        Ok(())
    }
}

/// Small and reproducible.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// One write by chance; its error when it is refused for the disk.
fn write(storage: &Waiting, random: &mut Random) -> Result<(), StorageError> {
    let key = format!("n/{}", random.below(12));
    let n = random.below(1_000_000);
    match storage.get("s", &key) {
        None => storage.create("s", &key, object(n)).map(drop),
        Some(old) if n.is_multiple_of(4) => storage.delete("s", &key, old.revision()).map(drop),
        Some(old) => storage.update("s", &key, old.revision(), object(n)).map(drop),
    }
}

#[test]
fn a_failing_disk_fails_writes_and_nothing_else() {
    for (budget, error) in [
        (0, io::ErrorKind::StorageFull),
        (1, io::ErrorKind::StorageFull),
        (3, io::ErrorKind::Other),
        (7, io::ErrorKind::StorageFull),
        (12, io::ErrorKind::Other),
        (40, io::ErrorKind::StorageFull),
    ] {
        let mut random = Random(budget as u64 + 1);
        let disk = Disk::new();
        let storage = disk.start();
        for _ in 0..10 {
            write(&storage, &mut random).expect("the disk works");
        }
        {
            let mut state = disk.state();
            (state.budget, state.error) = (Some(budget), Some(error));
        }
        let mut acknowledged = storage.content();
        let failure = loop {
            match write(&storage, &mut random) {
                Ok(()) => acknowledged = storage.content(),
                Err(failure) => break failure,
            }
        };
        assert!(matches!(failure, StorageError::Unavailable(_)), "{budget}: {failure:?}");
        assert_eq!(
            storage.content(),
            acknowledged,
            "{budget}: a refused write has left something"
        );
        assert!(storage.storage.trouble().is_some(), "{budget}");
        assert!(
            matches!(storage.create("t", "x", object(1)), Err(StorageError::Unavailable(_))),
            "{budget}"
        );
        disk.state().budget = None;
        storage.recover();
        assert_eq!(storage.content(), acknowledged, "{budget}");
        for _ in 0..10 {
            write(&storage, &mut random).expect("the disk works again");
        }
        let (content, revision) = (storage.content(), storage.revision());
        storage.journal.close();
        let again = disk.start();
        assert_eq!(
            again.content(),
            content,
            "{budget}: the disk disagrees with what was served"
        );
        assert!(again.revision() >= revision, "{budget}");
        again.journal.close();
    }
}

/// Cuts the power again and again, and reports acknowledged writes that are missing.
fn cut_power(rounds: u64, lies: bool) -> Result<(), String> {
    let mut random = Random(42);
    let mut disk = Disk::new();
    for round in 0..rounds {
        let storage = disk.try_start()?;
        disk.state().lies = lies;
        for _ in 0..=random.below(6) {
            write(&storage, &mut random).map_err(|error| error.to_string())?;
        }
        let (mut expected, revision) = (storage.content(), storage.revision());
        // Something is under way when the power goes.
        let key = format!("new-{round}");
        let created = storage.storage.create("s", &key, object(round));
        let under_way = created.map_err(|error| error.to_string())?.revision();
        for _ in 0..random.below(2_000) {
            std::hint::spin_loop();
        }
        let cut = disk.without_power(&mut random);
        storage.journal.close();
        let after = cut.try_start()?;
        let (mut content, now) = (after.content(), after.revision());
        after.journal.close();
        content.retain(|(name, revision, _)| *name != key || *revision != under_way);
        expected.retain(|(name, ..)| *name != key);
        if content != expected {
            return Err(format!(
                "round {round}: {content:?} is there, {expected:?} was acknowledged"
            ));
        }
        if now < revision {
            return Err(format!("round {round}: the revision is {now} and was {revision}"));
        }
        disk = cut;
    }
    Ok(())
}

#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged() {
    assert_eq!(cut_power(40, false), Ok(()));
}

#[test]
fn a_disk_that_says_too_early_that_bytes_are_safe_is_caught() {
    // So the test above can fail.
    assert!(cut_power(40, true).is_err());
}
