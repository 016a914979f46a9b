//! The file of a run log, which a thread of its own writes.
//!
//! Who records while it happens never waits: what the thread cannot take is counted, and the count is written. A member
//! follows at the latest a quarter of a second after the first entry in it, so that the file can be read while it
//! grows. A file that reaches its limit is renamed to `FILE.old`, in the place of the one before, and a new one begins:
//! both together hold the latest entries. Invariants: memory is bounded, also for large objects; a failed write ends
//! the log and is told to the program's log and to [`RunLog::finish`]; a file that is no run log is not written to.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kubewright_runlog::{Entry, LogError, Packer, Recorder, Unpacker, What};

/// Entries that may wait to be written, and the bytes of their objects.
const WAITING: usize = 16 * 1024;
const WAITING_BYTES: usize = 64 * 1024 * 1024;
/// How much text a member has, if that comes soon enough.
const MEMBER: usize = 256 * 1024;
/// When a member is written that has less.
const INTERVAL: Duration = Duration::from_millis(250);

/// A run log that is being written.
#[derive(Debug)]
pub struct RunLog {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
    began: Instant,
}

#[derive(Debug, Default)]
struct Shared {
    missed: AtomicU64,
    /// The bytes of objects that wait.
    bytes: AtomicUsize,
    failed: Mutex<Option<String>>,
}

#[derive(Debug)]
enum Message {
    Entry(Box<Entry>),
    /// Write all, and say so.
    Finish(Sender<()>),
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
        let path = path.into();
        let (queue, waiting) = sync_channel(WAITING);
        let shared = Arc::new(Shared::default());
        let mut out = Out::open(path, max_bytes, shared.clone())?;
        std::thread::Builder::new().name("run log".to_owned()).spawn(move || {
            if let Err(why) = out.write_all(&waiting) {
                tracing::error!(path = %out.path.display(), %why, "the run log ends here: it cannot be written");
                out.shared.failed().get_or_insert(why.to_string());
            }
        })?;
        Ok(RunLog {
            queue,
            shared,
            began: Instant::now(),
        })
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// Why the log could not be written, now or before.
    pub fn finish(&self) -> Result<(), String> {
        let (done, written) = channel();
        let is_sent = self.queue.send(Message::Finish(done)).is_ok();
        // The thread that failed drops what it was sent.
        let is_written = is_sent && written.recv().is_ok();
        match self.shared.failed().clone() {
            Some(why) => Err(why),
            None if is_written => Ok(()),
            None => Err("its thread has ended".to_owned()),
        }
    }

    /// Takes an entry that has its time already, and waits while the thread is behind. For who records after the fact.
    pub fn add(&self, entry: Entry) {
        self.shared.bytes.fetch_add(size(&entry), Ordering::Relaxed);
        // The thread is gone when it failed, which `finish` tells.
        let _gone = self.queue.send(Message::Entry(Box::new(entry)));
    }
}

impl Recorder for RunLog {
    fn record(&self, mut entry: Entry) {
        entry.at = self.began.elapsed();
        let bytes = size(&entry);
        let waits = self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_full = waits.saturating_add(bytes) > WAITING_BYTES;
        if is_full
            || matches!(
                self.queue.try_send(Message::Entry(Box::new(entry))),
                Err(TrySendError::Full(_))
            )
        {
            self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    fn failed(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
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
    shared: Arc<Shared>,
}

impl Out {
    fn open(path: PathBuf, max_bytes: u64, shared: Arc<Shared>) -> io::Result<Out> {
        let (file, bytes) = opened(&path)?;
        let mut out = Out {
            path,
            file,
            bytes,
            max_bytes,
            packer: Packer::default(),
            shared,
        };
        out.begin();
        out.write()?;
        Ok(out)
    }

    fn begin(&mut self) {
        self.packer.begin(jiff::Timestamp::now().to_string());
    }

    /// Writes what is recorded, until the last recorder is gone.
    fn write_all(&mut self, waiting: &Receiver<Message>) -> io::Result<()> {
        let mut due = None;
        loop {
            let left = due.map_or(Duration::MAX, |due: Instant| {
                due.saturating_duration_since(Instant::now())
            });
            match waiting.recv_timeout(left) {
                Ok(Message::Entry(entry)) => {
                    self.shared.bytes.fetch_sub(size(&entry), Ordering::Relaxed);
                    match self.shared.missed.swap(0, Ordering::Relaxed) {
                        0 => {}
                        count => self.packer.add(&Entry {
                            at: entry.at,
                            what: What::Missed { count },
                            ..Entry::default()
                        }),
                    }
                    self.packer.add(&entry);
                    due.get_or_insert_with(|| Instant::now() + INTERVAL);
                    if self.packer.len() < MEMBER {
                        continue;
                    }
                }
                Ok(Message::Finish(done)) => {
                    self.write()?;
                    // Who waited may have gone.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.write(),
            }
            self.write()?;
            due = None;
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
