//! The file of a run log, which a thread of its own writes.
//!
//! Who records while it happens never waits: what finds no room is counted, and the count is written. The thread is woken
//! once for all that is recorded within a quarter of a second, because waking it costs more than recording. The file can
//! be read while it grows. A file that reaches its limit is renamed to `FILE.old`, in the place of the one before, and a
//! new one begins: both together hold the latest entries. Invariants: memory is bounded, also for large objects; the times
//! of entries never go back; a failed write ends the log and is told to the program's log and to [`RunLog::finish`]; a
//! file that is no run log is not written to.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kubewright_runlog::{Entry, LogError, Packer, Recorder, Unpacker, What};

/// Entries that may wait to be written, and the bytes of their objects.
const WAITING: usize = 16 * 1024;
const WAITING_BYTES: usize = 64 * 1024 * 1024;
/// How much text a member has, if that comes soon enough.
const MEMBER: usize = 256 * 1024;
/// How long the first entry of a batch waits.
const INTERVAL: Duration = Duration::from_millis(250);

/// A run log that is being written.
#[derive(Debug)]
pub struct RunLog {
    shared: Arc<Shared>,
    began: Instant,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread has something to do.
    work: Condvar,
    /// The thread has done something.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    /// Entries that wait or are being written, and the bytes of their objects.
    count: usize,
    bytes: usize,
    /// Entries that found no room since the last that did, and when.
    missed: u64,
    missed_at: Duration,
    /// How often somebody asked that all be written, and how often it was.
    asked: u64,
    answered: u64,
    is_closed: bool,
    failed: Option<String>,
}

impl RunLog {
    /// The most bytes of a file, if nothing else is said: with the one before it twice as many.
    pub const MAX_BYTES: u64 = 256 * 1024 * 1024;

    /// Where the file before this one is.
    #[must_use]
    pub fn old(path: &Path) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(".old");
        PathBuf::from(name)
    }

    /// Begins a log in this file, behind the log that is there.
    ///
    /// # Errors
    /// When the file cannot be opened, or holds something else.
    pub fn open(path: impl Into<PathBuf>, max_bytes: u64) -> io::Result<RunLog> {
        let shared = Arc::new(Shared::default());
        let mut out = Out::open(path.into(), max_bytes)?;
        let theirs = shared.clone();
        std::thread::Builder::new().name("run log".to_owned()).spawn(move || {
            if let Err(why) = out.write_all(&theirs) {
                tracing::error!(path = %out.path.display(), %why, "the run log ends here: it cannot be written");
                let mut state = theirs.lock();
                state.failed = Some(why.to_string());
                state.entries = Vec::new();
                theirs.done.notify_all();
            }
        })?;
        Ok(RunLog {
            shared,
            began: Instant::now(),
        })
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// Why the log could not be written, now or before.
    pub fn finish(&self) -> Result<(), String> {
        let mut state = self.shared.lock();
        state.asked += 1;
        let asked = state.asked;
        self.shared.work.notify_one();
        let state = self.shared.wait_until(state, |state| state.answered >= asked);
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// Takes an entry that has its time already, and waits while the thread is behind. For who records after the fact.
    pub fn add(&self, entry: Entry) {
        let state = self.shared.lock();
        let mut state = self.shared.wait_until(state, |state| state.has_room_for(0));
        self.shared.take(&mut state, entry);
    }
}

impl Drop for RunLog {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.work.notify_one();
    }
}

impl Recorder for RunLog {
    fn record(&self, mut entry: Entry) {
        let mut state = self.shared.lock();
        entry.at = self.began.elapsed();
        if !state.has_room_for(size(&entry)) {
            state.missed += 1;
            state.missed_at = entry.at;
            return;
        }
        self.shared.take(&mut state, entry);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the thread to bring this about, or to fail.
    fn wait_until<'a>(&self, state: MutexGuard<'a, State>, is_done: impl Fn(&State) -> bool) -> MutexGuard<'a, State> {
        let waits = |state: &mut State| state.failed.is_none() && !is_done(state);
        self.done
            .wait_while(state, waits)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, state: &mut State, entry: Entry) {
        if state.failed.is_some() {
            return;
        }
        let (was_idle, had_room) = (state.entries.is_empty(), state.is_early());
        state.miss();
        state.count += 1;
        state.bytes += size(&entry);
        state.entries.push(entry);
        if was_idle || (had_room && !state.is_early()) {
            self.work.notify_one();
        }
    }

    /// Waits for a batch: the first entry, and what follows it soon. Answers how often it was asked that all be written, and
    /// whether this batch is the last.
    fn batch(&self, into: &mut Vec<Entry>) -> (u64, bool) {
        let is_urgent = |state: &State| state.asked > state.answered || state.is_closed;
        let failed = PoisonError::into_inner;
        let rests = |state: &mut State| state.entries.is_empty() && !is_urgent(state);
        let state = self.work.wait_while(self.lock(), rests).unwrap_or_else(failed);
        let gathers = |state: &mut State| state.is_early() && !is_urgent(state);
        let waited = self.work.wait_timeout_while(state, INTERVAL, gathers);
        let mut state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        state.miss();
        std::mem::swap(&mut state.entries, into);
        (state.asked, state.is_closed)
    }
}

impl State {
    fn has_room_for(&self, bytes: usize) -> bool {
        self.count < WAITING && self.bytes.saturating_add(bytes) <= WAITING_BYTES
    }

    /// Whether a batch can grow without coming near the limits.
    fn is_early(&self) -> bool {
        self.count < WAITING / 4 && self.bytes < WAITING_BYTES / 4
    }

    /// Says how many entries are missing, in their place.
    fn miss(&mut self) {
        let count = std::mem::take(&mut self.missed);
        if count > 0 {
            self.count += 1;
            self.entries.push(Entry {
                at: self.missed_at,
                what: What::Missed { count },
                ..Entry::default()
            });
        }
    }
}

/// The bytes of the object of an entry; the rest is small.
fn size(entry: &Entry) -> usize {
    match &entry.what {
        What::Commit { object, .. } => object.len(),
        _ => 0,
    }
}

/// The writing end.
struct Out {
    path: PathBuf,
    file: File,
    bytes: u64,
    max_bytes: u64,
    packer: Packer,
}

impl Out {
    fn open(path: PathBuf, max_bytes: u64) -> io::Result<Out> {
        let (file, bytes) = opened(&path)?;
        let mut out = Out {
            path,
            file,
            bytes,
            max_bytes,
            packer: Packer::default(),
        };
        out.begin();
        out.write()?;
        Ok(out)
    }

    fn begin(&mut self) {
        self.packer.begin(jiff::Timestamp::now().to_string());
    }

    /// Writes what is recorded, until the recorder is gone.
    fn write_all(&mut self, shared: &Shared) -> io::Result<()> {
        let mut batch = Vec::new();
        loop {
            let (asked, is_last) = shared.batch(&mut batch);
            let count = batch.len();
            let mut bytes = 0;
            for entry in batch.drain(..) {
                bytes += size(&entry);
                self.packer.add(&entry);
                if self.packer.len() >= MEMBER {
                    self.write()?;
                }
            }
            self.write()?;
            batch.shrink_to(WAITING / 16);
            let mut state = shared.lock();
            state.count -= count;
            state.bytes -= bytes;
            state.answered = asked;
            shared.done.notify_all();
            if is_last {
                return Ok(());
            }
        }
    }

    /// Writes what was packed.
    fn write(&mut self) -> io::Result<()> {
        let member = self.packer.take();
        let length = u64::try_from(member.len()).unwrap_or(u64::MAX);
        if self.bytes > 0 && self.bytes.saturating_add(length) > self.max_bytes {
            fs::rename(&self.path, RunLog::old(&self.path))?;
            self.file = opened(&self.path)?.0;
            self.begin();
            let head = self.packer.take();
            self.file.write_all(&head)?;
            self.bytes = u64::try_from(head.len()).unwrap_or(u64::MAX);
        }
        self.file.write_all(&member)?;
        self.bytes = self.bytes.saturating_add(length);
        Ok(())
    }
}

/// The file, and its size; a log is for the owner only, since it holds Secrets.
fn opened(path: &Path) -> io::Result<(File, u64)> {
    let mut open = OpenOptions::new();
    let mut file = open.read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut first = [0; 2];
    let read = file.read(&mut first)?;
    if let Err(why @ LogError::Other) = Unpacker::default().add(&first[..read], |_| ()) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(revision: u64, object: &str) -> Entry {
        Entry {
            what: What::Commit {
                kind: "ADDED".into(),
                revision,
                object: object.into(),
            },
            ..Entry::default()
        }
    }

    /// The revisions in a file, and how many entries it says are missing.
    fn read(path: &Path) -> (Vec<u64>, u64) {
        let (mut revisions, mut missed) = (Vec::new(), 0);
        let (mut unpacker, bytes) = (Unpacker::default(), fs::read(path).expect("it is there"));
        let each = |entry: Entry| match entry.what {
            What::Commit { revision, .. } => revisions.push(revision),
            What::Missed { count } => missed += count,
            _ => {}
        };
        unpacker.add(&bytes, each).expect("it is a log");
        assert_eq!(unpacker.waiting(), 0, "every member is whole");
        (revisions, missed)
    }

    #[test]
    fn a_log_goes_on_and_keeps_the_latest() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.log");
        for round in 0..2 {
            let log = RunLog::open(&path, RunLog::MAX_BYTES).expect("it opens");
            for number in 0..100 {
                log.record(commit(round * 100 + number, "{}"));
            }
            log.finish().expect("it is written");
        }
        assert_eq!(read(&path), ((0..200).collect(), 0));

        let log = RunLog::open(&path, 2000).expect("it opens");
        for number in 200..260 {
            log.record(commit(number, "{}"));
            log.finish().expect("it is written");
        }
        let (mut kept, (latest, _)) = (read(&RunLog::old(&path)).0, read(&path));
        kept.extend(latest);
        assert!(kept.is_sorted() && kept.ends_with(&[258, 259]), "{kept:?}");
        let bytes = |path: &Path| fs::metadata(path).expect("it is there").len();
        assert!(bytes(&path) <= 2200, "{}", bytes(&path));
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.log");
        let log = RunLog::open(&path, RunLog::MAX_BYTES).expect("it opens");
        let large = "x".repeat(WAITING_BYTES + 1);
        log.record(commit(1, &large));
        log.record(commit(2, "{}"));
        log.finish().expect("it is written");
        assert_eq!(read(&path), (vec![2], 1));
    }

    #[test]
    fn who_comes_later_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.log");
        let log = RunLog::open(&path, RunLog::MAX_BYTES).expect("it opens");
        let many = 2 * u64::try_from(WAITING).expect("a number");
        (0..many).for_each(|number| log.add(commit(number, "{}")));
        log.finish().expect("it is written");
        assert_eq!(read(&path), ((0..many).collect(), 0));
    }

    #[test]
    fn another_file_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes.txt");
        fs::write(&path, "mine").expect("it is written");
        let why = RunLog::open(&path, RunLog::MAX_BYTES).expect_err("it is no log");
        assert!(why.to_string().contains("no run log"), "{why}");
        assert_eq!(fs::read(&path).expect("it is there"), b"mine");
    }
}
