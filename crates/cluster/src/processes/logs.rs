//! What a container has written: a file for each of its lives, in the form of a kubelet's (`TIME STREAM F TEXT`).
//!
//! Invariants: a file has a bound ([`LARGEST`]); when it is full it becomes the older half, and what was older is gone; readers are told of
//! every line, and of the end. Not here: which lines a client wants (`lines`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::sync::watch;

use super::lines::Line;

/// How large a file may become (`containerLogMaxSize` of a kubelet).
const LARGEST: u64 = 10 * 1024 * 1024;
/// A longer line is kept in pieces (`CRI-O` and containerd cut here as well).
const LONGEST_LINE: usize = 16 * 1024;

/// The log of one life of a container.
pub(crate) struct Log {
    path: PathBuf,
    writer: Mutex<Writer>,
    /// How much was written, and whether more may come.
    told: watch::Sender<Told>,
}

struct Writer {
    file: File,
    size: u64,
}

/// How far a log has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    lines: u64,
    /// How often the file was begun anew.
    turns: u64,
    pub(crate) is_over: bool,
}

impl Log {
    pub(super) fn create(path: &Path) -> io::Result<Log> {
        let file = open(path)?;
        Ok(Log {
            path: path.to_owned(),
            writer: Mutex::new(Writer { file, size: 0 }),
            told: watch::Sender::new(Told::default()),
        })
    }

    /// Keeps a line.
    pub(super) fn write(&self, stream: &str, text: &[u8]) -> io::Result<()> {
        let kept = Line::new(jiff::Timestamp::now(), text).kept(stream);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let size = u64::try_from(kept.len()).unwrap_or(u64::MAX);
        let is_full = writer.size.saturating_add(size) > LARGEST;
        if is_full {
            std::fs::rename(&self.path, older(&self.path))?;
            *writer = Writer {
                file: open(&self.path)?,
                size: 0,
            };
        }
        writer.file.write_all(&kept)?;
        writer.size = writer.size.saturating_add(size);
        self.told.send_modify(|told| {
            told.lines += 1;
            told.turns += u64::from(is_full);
        });
        Ok(())
    }

    /// Nothing more will come.
    pub(super) fn end(&self) {
        self.told.send_modify(|told| told.is_over = true);
    }

    /// Keeps all that comes from a stream, line by line, until it ends; each piece is shown as it comes.
    pub(super) async fn take(&self, stream: &str, from: impl AsyncRead + Unpin, show: impl Fn(&[u8])) {
        let mut from = BufReader::with_capacity(LONGEST_LINE, from);
        let mut line = Vec::new();
        while let Ok(piece) = from.fill_buf().await {
            if piece.is_empty() {
                break;
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(piece.len(), |end| end + 1);
            line.extend_from_slice(&piece[..end.unwrap_or(taken)]);
            show(&piece[..taken]);
            from.consume(taken);
            if end.is_some() || line.len() >= LONGEST_LINE {
                self.keep(stream, &line);
                line.clear();
            }
        }
        if !line.is_empty() {
            self.keep(stream, &line);
        }
    }

    fn keep(&self, stream: &str, line: &[u8]) {
        if let Err(error) = self.write(stream, line) {
            tracing::error!(log = %self.path.display(), %error, "a line of a container is lost");
        }
    }

    /// Reads it from its beginning.
    pub(crate) fn reader(&self) -> Reader {
        Reader {
            path: self.path.clone(),
            told: self.told.subscribe(),
            file: None,
            turns: 0,
            rest: Vec::new(),
        }
    }

    /// The last of it, for a message: at most so many lines and bytes.
    pub(super) fn tail(&self, lines: usize, bytes: usize) -> String {
        let all = self.reader().read().unwrap_or_default();
        let from = all.len().saturating_sub(lines);
        let texts: Vec<_> = all[from..]
            .iter()
            .map(|line| String::from_utf8_lossy(&line.text))
            .collect();
        let mut text = texts.join("\n");
        let mut cut = text.len().saturating_sub(bytes);
        while !text.is_char_boundary(cut) {
            cut += 1;
        }
        text.split_off(cut)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("1")
}

/// Reads a log as it grows.
pub(crate) struct Reader {
    path: PathBuf,
    told: watch::Receiver<Told>,
    file: Option<File>,
    turns: u64,
    /// The beginning of a line whose end has not been written.
    rest: Vec<u8>,
}

impl Reader {
    /// The lines that have come since the last time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(&mut self) -> io::Result<Vec<Line>> {
        let turns = self.told.borrow_and_update().turns;
        let mut bytes = std::mem::take(&mut self.rest);
        match &mut self.file {
            None => {
                if let Ok(mut before) = File::open(older(&self.path)) {
                    before.read_to_end(&mut bytes)?;
                }
            }
            Some(file) => {
                file.read_to_end(&mut bytes)?;
            }
        }
        if self.file.is_none() || turns != self.turns {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(0))?;
            file.read_to_end(&mut bytes)?;
            self.file = Some(file);
            self.turns = turns;
        }
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.rest = bytes.split_off(end);
        Ok(bytes.split(|byte| *byte == b'\n').filter_map(Line::read).collect())
    }

    /// Waits until there is more to read; false when nothing more will come.
    pub(crate) async fn more(&mut self) -> bool {
        if self.told.has_changed().unwrap_or(false) {
            return true;
        }
        if self.told.borrow().is_over {
            return false;
        }
        self.told.changed().await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line]) -> Vec<String> {
        let texts = lines
            .iter()
            .map(|line| String::from_utf8_lossy(&line.text).into_owned());
        texts.collect()
    }

    #[tokio::test]
    async fn lines_are_kept_and_read_as_they_come() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = Log::create(&folder.path().join("0.log")).expect("a file");
        let mut reader = log.reader();
        log.take("stdout", &b"one\ntwo\nunfinished"[..], |_| ()).await;
        assert_eq!(texts(&reader.read().expect("it reads")), ["one", "two", "unfinished"]);
        assert_eq!(texts(&reader.read().expect("it reads")), Vec::<String>::new());
        log.write("stderr", b"three").expect("it writes");
        assert!(reader.more().await);
        assert_eq!(texts(&reader.read().expect("it reads")), ["three"]);
        log.end();
        assert!(reader.more().await, "that it is over is news");
        assert!(reader.read().expect("it reads").is_empty());
        assert!(!reader.more().await);
        assert_eq!(log.tail(2, 9), "hed\nthree");
    }

    #[tokio::test]
    async fn a_full_file_becomes_the_older_half() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = Log::create(&folder.path().join("0.log")).expect("a file");
        let mut reader = log.reader();
        let line = vec![b'x'; LONGEST_LINE];
        let half = LARGEST / u64::try_from(LONGEST_LINE).expect("small") / 2;
        let mut read = 0;
        for _ in 0..5 {
            for _ in 0..half {
                log.write("stdout", &line).expect("it writes");
            }
            read += reader.read().expect("it reads").len();
        }
        assert_eq!(
            u64::try_from(read).expect("small"),
            5 * half,
            "a reader that keeps up loses nothing"
        );
        let again = log.reader().read().expect("it reads").len();
        assert!(again < read, "the oldest lines are gone");
        let size = folder.path().join("0.log").metadata().expect("a file").len();
        assert!(size <= LARGEST);
    }
}
