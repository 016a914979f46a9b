//! Entries as bytes: lines of JSON in members of gzip.
//!
//! Members follow each other, and each is whole by itself: a reader takes those that are there and waits for the next
//! one; a writer that dies loses the one that it had not written. Invariants: what was added can be read after the member
//! is taken; a reader never takes half a member, holds no more than one besides what it gives, and says where a log is
//! damaged.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::entry::Entry;

/// The version that is written; a reader refuses newer ones.
pub const VERSION: u32 = 1;

/// How many bytes the text of one member may have: the largest object, several times. Nothing longer is written.
const LONGEST: u64 = 64 * 1024 * 1024;
/// The bytes with which a member begins.
const MAGIC: &[u8] = &[0x1f, 0x8b];

/// The first line of a log, and of what is appended to it later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// The version of the form.
    pub run_log: u32,
    /// When it began, as RFC 3339: the times of the entries count from there.
    pub began: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Head(Head),
    Entry(Box<Entry>),
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It is another file.
    #[error("this is no run log: a run log is lines of JSON, compressed with gzip")]
    Other,
    /// A newer program wrote it.
    #[error("the run log is of version {0}, and this program reads up to version {VERSION}")]
    Newer(u32),
    /// Bytes that are no member, or lines that are no entries.
    #[error("the run log is damaged at byte {at}: {why}")]
    Damaged {
        /// Where the member begins.
        at: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// Gathers entries, and gives them as members.
#[derive(Debug, Default)]
pub struct Packer {
    text: Vec<u8>,
}

impl Packer {
    /// Adds the first line.
    pub fn begin(&mut self, began: String) {
        self.line(&Head {
            run_log: VERSION,
            began,
        });
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: &Entry) {
        self.line(entry);
    }

    fn line(&mut self, line: &impl Serialize) {
        serde_json::to_writer(&mut self.text, line).expect("entries are plain data, and a vector takes all of it");
        self.text.push(b'\n');
    }

    /// How many bytes of text there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// A member with all that was added; nothing, if nothing was.
    pub fn take(&mut self) -> Vec<u8> {
        if self.text.is_empty() {
            return Vec::new();
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let done = encoder.write_all(&self.text).and_then(|()| encoder.finish());
        self.text.clear();
        done.expect("a vector takes all of it")
    }
}

/// Reads a log in pieces, as they come.
#[derive(Debug, Default)]
pub struct Unpacker {
    bytes: Vec<u8>,
    /// How many bytes came before these.
    before: u64,
}

impl Unpacker {
    /// Adds bytes, and calls `each` for the entries of the members that are whole now.
    ///
    /// # Errors
    /// When this is no log, one of a newer version, or damaged.
    pub fn add(&mut self, bytes: &[u8], mut each: impl FnMut(Entry)) -> Result<(), LogError> {
        self.bytes.extend_from_slice(bytes);
        loop {
            let known = self.bytes.len().min(MAGIC.len());
            if self.bytes[..known] != MAGIC[..known] {
                return Err(match self.before {
                    0 => LogError::Other,
                    at => damaged(at, "no member begins here"),
                });
            }
            if self.bytes.is_empty() {
                return Ok(());
            }
            let mut decoder = GzDecoder::new(&*self.bytes);
            let mut text = Vec::new();
            match (&mut decoder).take(LONGEST).read_to_end(&mut text) {
                Ok(_) => {}
                Err(why) if why.kind() == std::io::ErrorKind::UnexpectedEof => {
                    let is_too_long = u64::try_from(self.bytes.len()).unwrap_or(u64::MAX) > LONGEST;
                    return match is_too_long {
                        true => Err(damaged(self.before, "a member does not end")),
                        false => Ok(()),
                    };
                }
                Err(why) => return Err(damaged(self.before, why)),
            }
            if u64::try_from(text.len()).unwrap_or(u64::MAX) >= LONGEST {
                return Err(damaged(self.before, "a member is larger than any that is written"));
            }
            let rest = decoder.into_inner().len();
            for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                match serde_json::from_slice(line) {
                    Ok(Line::Head(Head { run_log, .. })) if run_log > VERSION => return Err(LogError::Newer(run_log)),
                    Ok(Line::Head(_)) => {}
                    Ok(Line::Entry(entry)) => each(*entry),
                    Err(why) => return Err(damaged(self.before, why)),
                }
            }
            let read = self.bytes.len() - rest;
            self.bytes.drain(..read);
            self.before += u64::try_from(read).unwrap_or_default();
        }
    }

    /// How many bytes are there of a member that is not whole: it is being written, or its writer died.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.bytes.len()
    }
}

fn damaged(at: u64, why: impl ToString) -> LogError {
    let why = why.to_string();
    LogError::Damaged { at, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::What;

    fn entry(number: u64) -> Entry {
        Entry {
            what: What::Commit {
                kind: "ADDED".into(),
                revision: number,
                object: format!("{{\"n\":{number}}}"),
            },
            ..Entry::default()
        }
    }

    fn log() -> Vec<u8> {
        let mut packer = Packer::default();
        packer.begin("2026-01-01T00:00:00Z".into());
        let mut bytes = packer.take();
        for number in 0..4 {
            packer.add(&entry(number));
            if number % 2 == 1 {
                bytes.extend(packer.take());
            }
        }
        assert!(packer.is_empty() && packer.take().is_empty());
        bytes
    }

    #[test]
    fn a_log_is_read_in_pieces_of_any_size() {
        let bytes = log();
        let expected: Vec<Entry> = (0..4).map(entry).collect();
        for size in [1, 2, 7, 64, bytes.len()] {
            let (mut unpacker, mut read) = (Unpacker::default(), Vec::new());
            for piece in bytes.chunks(size) {
                unpacker.add(piece, |entry| read.push(entry)).expect("it is sound");
            }
            assert_eq!((&read, unpacker.waiting()), (&expected, 0), "{size}");
        }
        // Its writer died.
        let (mut unpacker, mut read) = (Unpacker::default(), 0);
        unpacker
            .add(&bytes[..bytes.len() - 1], |_| read += 1)
            .expect("what is there is sound");
        assert_eq!(read, 2);
        assert!(unpacker.waiting() > 0);
    }

    #[test]
    fn what_is_no_log_is_refused_with_the_reason() {
        let check = |bytes: &[u8], expected: &str| {
            let error = Unpacker::default().add(bytes, |_| ()).expect_err("it is no log");
            assert!(error.to_string().contains(expected), "{error}");
        };
        let packed = |text: &str| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text.as_bytes()).expect("a vector");
            encoder.finish().expect("a vector")
        };
        check(b"kind: Pod\n", "no run log");
        check(&packed(r#"{"runLog":2,"began":""}"#), "version 2");
        check(&packed("kind: Pod\n"), "damaged at byte 0");
        check(&packed(r#"{"at":"soon"}"#), "damaged at byte 0");
        let mut turned = log();
        let length = turned.len();
        turned.extend_from_slice(b"more");
        check(&turned, &format!("damaged at byte {length}"));
        // Much in little: no more is unpacked than was ever written.
        let zeros = vec![b' '; usize::try_from(LONGEST).expect("a machine of 64 bits") + 1];
        check(&packed(&String::from_utf8(zeros).expect("spaces")), "larger than any");
    }
}
