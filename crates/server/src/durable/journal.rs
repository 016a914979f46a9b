//! Writes changes to the disk behind a storage, in groups.
//!
//! One thread takes all changes that have gathered while it wrote the last group, writes them as one transaction, and
//! reports them as safe when the disk does. So a lonely change waits for one write, and a thousand at the same time
//! wait for little more.
//!
//! A disk that fails (full, broken) fails everything that waits; the storage takes it back. Then the thread tries again
//! and again to open the file and to write to it, and when that works the storage goes on. If the failed transaction is
//! on the disk after all, it is undone there first, because every client was told that it failed. A file that was moved
//! away or removed counts as a disk that fails. It stays open, so writes go on when it is put back.
//!
//! Not here: the format of the file (the database), the contents of a record (see [`super::record`]), the changes of late
//! (see [`super::history`]).

use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use kubewright_apiserver::storage::journal::{Journal, Listener, Outcome, Record};
use redb::{Database, DatabaseError, ReadableDatabase as _};

use super::contain::contain;
use super::history::History;
use super::load::{META, OBJECTS, REVISION, key_of, words};
use super::record;

/// Changes in one transaction, at most: the others must not wait for long.
const GROUP: usize = 4096;
/// How long to wait before a failed disk is tried again: at first, and at most.
const RETRY: Duration = Duration::from_millis(250);
const RETRY_MOST: Duration = Duration::from_secs(10);

/// Opens the file again after a failure.
pub(super) type Reopen = Box<dyn FnMut() -> Result<Database, DatabaseError> + Send>;

/// Checks that the file is still where the next start looks for it. The error is a message for the user.
pub(super) type InPlace = Box<dyn Fn() -> Result<(), String> + Send>;

/// The journal of a storage in a file.
pub struct FileJournal {
    inbox: Arc<Inbox>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The records that the storage leaves for the thread.
#[derive(Default)]
struct Inbox {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    listener: OnceLock<Listener>,
}

#[derive(Default)]
struct Waiting {
    records: Vec<Record>,
    closing: bool,
}

impl Inbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next group; `None` when there is none and none will come.
    fn take(&self) -> Option<Vec<Record>> {
        let waiting = self.waiting();
        let mut waiting = self
            .changed
            .wait_while(waiting, |waiting| waiting.records.is_empty() && !waiting.closing)
            .unwrap_or_else(PoisonError::into_inner);
        if waiting.records.len() > GROUP {
            return Some(waiting.records.drain(..GROUP).collect());
        }
        let records = std::mem::take(&mut waiting.records);
        (!records.is_empty()).then_some(records)
    }

    /// Waits, unless the journal is closed; whether it is.
    fn pause(&self, duration: Duration) -> bool {
        let waiting = self.waiting();
        let (waiting, _) = self
            .changed
            .wait_timeout_while(waiting, duration, |waiting| !waiting.closing)
            .unwrap_or_else(PoisonError::into_inner);
        waiting.closing
    }

    fn tell(&self, outcome: Outcome) {
        if let Some(listener) = self.listener.get() {
            listener(outcome);
        }
    }

    fn close(&self) {
        self.waiting().closing = true;
        self.changed.notify_all();
    }
}

impl Journal for FileJournal {
    fn start(&self, listener: Listener) {
        // A journal serves one storage; a second listener would hear outcomes of another.
        let _ = self.inbox.listener.set(listener);
    }

    fn append(&self, record: Record) {
        self.inbox.waiting().records.push(record);
        self.inbox.changed.notify_all();
    }
}

impl FileJournal {
    /// Starts to write to `database`, which holds everything up to `durable`. The `lock` is held until the last byte is
    /// written.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(super) fn start(
        database: Database,
        reopen: Reopen,
        in_place: InPlace,
        durable: u64,
        history: Option<History>,
        lock: Option<File>,
    ) -> io::Result<FileJournal> {
        let inbox = Arc::new(Inbox::default());
        let mut writer = Writer {
            inbox: inbox.clone(),
            database: Some(database),
            reopen,
            in_place,
            durable,
            history,
        };
        let thread = std::thread::Builder::new()
            .name("kubewright-journal".to_owned())
            .spawn(move || {
                writer.run();
                drop(writer);
                drop(lock);
            });
        Ok(FileJournal {
            inbox,
            thread: Mutex::new(Some(thread?)),
        })
    }

    /// Writes the waiting records, closes the file and lets go of the folder; changes that come later are refused.
    /// Waits for the disk: not for an asynchronous thread.
    pub fn close(&self) {
        self.inbox.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes changes to the disk panicked; this is a defect of kubewright");
        }
    }
}

impl Drop for FileJournal {
    fn drop(&mut self) {
        // The thread writes the waiting records and ends by itself.
        self.inbox.close();
    }
}

struct Writer {
    inbox: Arc<Inbox>,
    /// `None` while it cannot be opened.
    database: Option<Database>,
    reopen: Reopen,
    in_place: InPlace,
    durable: u64,
    /// The changes of late, for watches after a restart.
    history: Option<History>,
}

impl Writer {
    fn run(&mut self) {
        while let Some(group) = self.inbox.take() {
            let last = group.last().map_or(self.durable, |record| record.change.revision);
            match self.write(&group) {
                Ok(()) => {
                    self.durable = last;
                    self.inbox.tell(Outcome::Durable(last));
                }
                Err(why) => {
                    if !self.fail(&group, why) {
                        break;
                    }
                }
            }
        }
        self.inbox.tell(Outcome::Failed("the cluster is stopped".to_owned()));
        if let Some(Err(error)) = self.database.take().map(Database::close) {
            // Everything that was acknowledged is on the disk; the next start only has to look more closely.
            tracing::warn!(error = words(error), "the file of the cluster was not closed cleanly");
        }
    }

    fn write(&mut self, group: &[Record]) -> Result<(), String> {
        let Some(database) = &self.database else {
            return Err("the file is not open".to_owned());
        };
        // Checked before the write and after it: a file that was moved away gets no further changes, and a change that
        // it got while it was moved is not acknowledged.
        (self.in_place)()?;
        if let Some(history) = &mut self.history {
            history.add(group);
        }
        // The storage must learn of the end of its journal, even after a panic.
        let written = contain(|| write_group(database, group)).unwrap_or_else(panicked);
        if written.is_err() {
            self.database = None;
            return written;
        }
        (self.in_place)()
    }

    /// Everything that waits has failed. Answers whether the journal works again; it does not when it is closed.
    fn fail(&mut self, group: &[Record], why: String) -> bool {
        tracing::error!(
            error = why,
            "changes cannot be written to the disk: writes are refused until they can"
        );
        // It holds changes that are taken back.
        if let Some(mut history) = self.history.take() {
            history.forget();
        }
        self.inbox.tell(Outcome::Failed(why));
        // From here on the storage sends nothing, and has taken back its earlier records.
        self.inbox.waiting().records.clear();
        let mut pause = RETRY;
        loop {
            if self.inbox.pause(pause) {
                return false;
            }
            match self.recover(group) {
                Ok(()) => {
                    tracing::info!("changes can be written to the disk again");
                    self.inbox.tell(Outcome::Recovered);
                    return true;
                }
                Err(error) => tracing::warn!(error, "the disk still fails"),
            }
            pause = (pause * 2).min(RETRY_MOST);
        }
    }

    /// Opens the file, unless it is open, undoes a group that was reported as failed and is there nevertheless, and
    /// proves that it can be written.
    fn recover(&mut self, group: &[Record]) -> Result<(), String> {
        (self.in_place)()?;
        let database = match self.database.take() {
            Some(database) => database,
            None => contain(|| (self.reopen)().map_err(words)).unwrap_or_else(panicked)?,
        };
        let written = revision_of(&database)?;
        let undone = if written > self.durable { group } else { &[] };
        contain(|| undo_group(&database, undone, written)).unwrap_or_else(panicked)?;
        self.database = Some(database);
        Ok(())
    }
}

fn panicked<T>() -> Result<T, String> {
    Err("the database panicked".to_owned())
}

fn write_group(database: &Database, group: &[Record]) -> Result<(), String> {
    let Some(last) = group.last() else { return Ok(()) };
    let write = || -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            // Of several changes of one object the last stands.
            for Record { store, change } in group {
                let key = key_of(store, &change.key);
                let record = if change.deleted {
                    None
                } else {
                    record::object(change.revision, store, &change.key, change.after.encoded())
                };
                match record {
                    Some(record) => drop(objects.insert(key.as_slice(), record.as_slice())?),
                    None if change.deleted => drop(objects.remove(key.as_slice())?),
                    None => return Err(redb::Error::ValueTooLarge(change.after.encoded().len())),
                }
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert(REVISION, record::mark(last.change.revision).as_slice())?;
        }
        Ok(transaction.commit()?)
    };
    write().map_err(words)
}

/// Writes the states before a group; the revision stays where the group has left it.
fn undo_group(database: &Database, group: &[Record], revision: u64) -> Result<(), String> {
    let write = || -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for Record { store, change } in group.iter().rev() {
                let key = key_of(store, &change.key);
                let before = change
                    .before
                    .as_ref()
                    .and_then(|before| record::object(before.revision(), store, &change.key, before.encoded()));
                match before {
                    Some(record) => drop(objects.insert(key.as_slice(), record.as_slice())?),
                    None => drop(objects.remove(key.as_slice())?),
                }
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert(REVISION, record::mark(revision).as_slice())?;
        }
        Ok(transaction.commit()?)
    };
    write().map_err(words)
}

fn revision_of(database: &Database) -> Result<u64, String> {
    let read = || -> Result<Option<u64>, redb::Error> {
        let transaction = database.begin_read()?;
        let mark = transaction.open_table(META)?.get(REVISION)?;
        Ok(mark.and_then(|mark| match record::read(mark.value()) {
            Ok((record::Record::Mark(revision), _)) => Some(revision),
            _ => None,
        }))
    };
    read()
        .map_err(words)?
        .ok_or_else(|| "the latest revision is not written down".to_owned())
}
