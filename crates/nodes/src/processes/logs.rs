//! The log of a container: a file for each of its lives, in the form of a kubelet's (`TIME STREAM F TEXT`).
//!
//! Invariants: a file has a bound ([`LARGEST`]); when it is full it becomes the older half, and the previous one is
//! gone; readers are told of every line, and of the end, and hold no more of a log than a piece of it ([`PIECE`]). Not
//! here: which lines a client wants (`lines`).

use std::collections::VecDeque;
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
/// How much of a file is read at a time, about.
const PIECE: u64 = 64 * 1024;
/// A longer line is kept in pieces (`CRI-O` and containerd cut here as well).
const LONGEST_LINE: usize = 16 * 1024;

/// The log of one life of a container.
pub(crate) struct Log {
    path: PathBuf,
    writer: Mutex<Writer>,
    /// How much was written, and whether more may come.
    told: watch::Sender<LogProgress>,
}

struct Writer {
    file: File,
    size: u64,
}

/// How far a log has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogProgress {
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
            told: watch::Sender::new(LogProgress::default()),
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
            files: VecDeque::new(),
            turns: None,
            rest: Vec::new(),
            taken: 0,
        }
    }

    /// The last of it, for a message: at most so many lines and bytes.
    pub(super) fn tail(&self, lines: usize, bytes: usize) -> String {
        let mut reader = self.reader();
        let skipped = reader.skip_to_the_last(u64::try_from(lines).unwrap_or(u64::MAX));
        let mut texts = Vec::new();
        // A part that cannot be read is left out.
        while let (Ok(()), Ok(some)) = (&skipped, reader.read()) {
            if some.is_empty() {
                break;
            }
            texts.extend(some.iter().map(|line| String::from_utf8_lossy(&line.text).into_owned()));
        }
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
pub struct Reader {
    path: PathBuf,
    told: watch::Receiver<LogProgress>,
    /// The file that is read, and the one behind it.
    files: VecDeque<File>,
    /// How often the file had been begun anew when it was opened last; none before that.
    turns: Option<u64>,
    /// The beginning of a line whose end has not been read.
    rest: Vec<u8>,
    /// How many bytes were read, in whole lines.
    taken: u64,
}

impl Reader {
    /// Some of the lines that have come since the last time; none when all have been read.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&mut self) -> io::Result<Vec<Line>> {
        // All lines that were announced before are in the files now.
        let turns = self.told.borrow_and_update().turns;
        loop {
            if self.turns.is_none() {
                self.open(turns)?;
            }
            let Some(file) = self.files.front_mut() else {
                return Ok(Vec::new());
            };
            if file.take(PIECE).read_to_end(&mut self.rest)? > 0 {
                let lines = self.whole_lines();
                if !lines.is_empty() {
                    return Ok(lines);
                }
            } else if self.files.len() > 1 {
                self.files.pop_front();
            } else if self.turns != Some(turns) {
                self.files.push_back(File::open(&self.path)?);
                self.turns = Some(turns);
            } else {
                return Ok(Vec::new());
            }
        }
    }

    /// Opens the present files of the log, the older half first.
    fn open(&mut self, turns: u64) -> io::Result<()> {
        self.files.extend(File::open(older(&self.path)).ok());
        self.files.push_back(File::open(&self.path)?);
        self.turns = Some(turns);
        Ok(())
    }

    /// Takes the whole lines out of the read bytes.
    fn whole_lines(&mut self) -> Vec<Line> {
        let end = self
            .rest
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        let rest = self.rest.split_off(end);
        let whole = std::mem::replace(&mut self.rest, rest);
        self.taken = self.taken.saturating_add(u64::try_from(end).unwrap_or(u64::MAX));
        whole.split(|byte| *byte == b'\n').filter_map(Line::read).collect()
    }

    /// Goes on at the last so many present lines. Call it before anything is read.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn skip_to_the_last(&mut self, lines: u64) -> io::Result<()> {
        let turns = self.told.borrow_and_update().turns;
        self.open(turns)?;
        let mut left = lines;
        // From the end, so that a log of which little is wanted is not read.
        for at in (0..self.files.len()).rev() {
            let begins = from_the_end(&mut self.files[at], &mut left)?;
            self.files[at].seek(SeekFrom::Start(begins))?;
            if left == 0 {
                drop(self.files.drain(..at));
                break;
            }
        }
        Ok(())
    }

    /// How many bytes were read so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// How many bytes there are to read now.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn ahead(&mut self) -> io::Result<u64> {
        if self.turns.is_none() {
            let turns = self.told.borrow().turns;
            self.open(turns)?;
        }
        self.files.iter_mut().try_fold(0_u64, |sum, file| {
            let length = file.metadata()?.len();
            Ok(sum.saturating_add(length.saturating_sub(file.stream_position()?)))
        })
    }

    /// Waits until there is more to read; false when nothing more will come.
    pub async fn more(&mut self) -> bool {
        if self.told.has_changed().unwrap_or(false) {
            return true;
        }
        if self.told.borrow().is_over {
            return false;
        }
        self.told.changed().await.is_ok()
    }
}

/// Where the last `left` lines of a file begin, or the file does; `left` is the number of them that it does not have.
fn from_the_end(file: &mut File, left: &mut u64) -> io::Result<u64> {
    let length = file.metadata()?.len();
    // The end of the last line is not that of the one before the wanted ones.
    let mut wanted = left.saturating_add(1);
    let mut at = length;
    let mut piece = Vec::new();
    while at > 0 {
        let begins = at.saturating_sub(PIECE);
        file.seek(SeekFrom::Start(begins))?;
        piece.clear();
        (&*file).take(at - begins).read_to_end(&mut piece)?;
        for (index, _) in piece.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            wanted -= 1;
            if wanted == 0 {
                *left = 0;
                return Ok(begins + u64::try_from(index).unwrap_or(0) + 1);
            }
        }
        at = begins;
    }
    *left = wanted - 1;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(reader: &mut Reader) -> Vec<Line> {
        let read = || Some(reader.read().expect("it reads")).filter(|lines| !lines.is_empty());
        std::iter::from_fn(read).flatten().collect()
    }

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
        assert_eq!(texts(&all(&mut reader)), ["one", "two", "unfinished"]);
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
            read += all(&mut reader).len();
        }
        assert_eq!(
            u64::try_from(read).expect("small"),
            5 * half,
            "a reader that keeps up loses nothing"
        );
        let again = all(&mut log.reader()).len();
        assert!(again < read, "the oldest lines are gone");
        let size = folder.path().join("0.log").metadata().expect("a file").len();
        assert!(size <= LARGEST);
    }

    #[test]
    fn the_last_lines_are_found_across_both_halves() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("0.log");
        let log = Log::create(&path).expect("a file");
        let kept = |from: u64, to: u64| {
            let lines = (from..to).map(|number| Line::new(jiff::Timestamp::UNIX_EPOCH, number.to_string()));
            lines.flat_map(|line| line.kept("stdout")).collect::<Vec<u8>>()
        };
        // More than a piece in each.
        let (first, second) = (kept(0, 5_000), kept(5_000, 10_000));
        assert!(u64::try_from(first.len()).expect("small") > 3 * PIECE);
        std::fs::write(older(&path), &first).expect("it writes");
        std::fs::write(&path, &second).expect("it writes");
        for wanted in [0, 1, 2, 4_999, 5_000, 5_001, 9_999, 10_000, 10_001, u64::MAX] {
            let mut reader = log.reader();
            reader.skip_to_the_last(wanted).expect("it reads");
            let expected: Vec<String> = (10_000_u64.saturating_sub(wanted)..10_000)
                .map(|number| number.to_string())
                .collect();
            assert_eq!(texts(&all(&mut reader)), expected, "{wanted}");
        }
        let mut reader = log.reader();
        assert_eq!(
            reader.ahead().expect("it reads"),
            u64::try_from(first.len() + second.len()).expect("small")
        );
        // No more of it is held than a piece.
        let lines = reader.read().expect("it reads");
        let size: usize = lines.iter().map(|line| line.kept("stdout").len()).sum();
        assert!(u64::try_from(size).expect("small") <= PIECE, "{size}");
        assert_eq!(log.tail(2, 100), "9998\n9999");
    }
}
