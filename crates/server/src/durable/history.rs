//! The latest changes, beside the objects: so that watches go on over a restart, from revisions before it.
//!
//! ```text
//! DIR/history.log       the changes of late, one record behind the other
//! DIR/history.old       those before them, when there are many
//! ```
//!
//! A record is a change with its revision and that of the change before it. When a file has [`FILE`] bytes it becomes the
//! old one, and the old one goes: so there are at most twice as many. A record has the state before its change only
//! where no record of the same file has it.
//!
//! What stands here is worth nothing by itself, and nobody waits for it: it is written before the transaction of the same
//! changes, and never forced to the disk. What a kill leaves is complete; what the end of the machine leaves may not be,
//! and then the history begins later, as it does without these files.
//!
//! Invariants: history is used only as far as it leads, change by change, to the latest revision of the objects, and to
//! these objects; what does not is left out, and never an error; a write does not fail because its history cannot be
//! written.
//!
//! Not here: how much of it is kept in memory, and for how long (the API server's).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use kubewright_apiserver::storage::StoredObject;
use kubewright_apiserver::storage::journal::{PastChange, Record, Restored};

use super::folder::Folder;
use super::record::checksum;

/// How large a file may be until the next one begins.
const FILE: u64 = 32 * 1024 * 1024;

pub(super) const NAMES: [&str; 2] = ["history.old", "history.log"];

const DELETED: u8 = 1;
/// There was an object before the change.
const REPLACES: u8 = 2;
/// Its text stands in the record.
const HAS_BEFORE: u8 = 4;

/// Writes changes down for watches after a restart.
pub(super) struct History {
    folder: PathBuf,
    file_size: u64,
    /// `None` when it cannot be written: there is none from then on, until the next start.
    file: Option<File>,
    written: u64,
    /// The latest change that is in a file.
    latest: u64,
    /// The first change of the present file; the states since then stand there.
    begins: u64,
}

impl History {
    /// The history in a folder, which leads to what was restored; that gets it.
    pub(super) fn open(folder: &Folder, restored: &mut Restored) -> History {
        History::with(folder.path().to_owned(), FILE, restored)
    }

    fn with(folder: PathBuf, file_size: u64, restored: &mut Restored) -> History {
        let mut history = History {
            folder,
            file_size,
            file: None,
            written: 0,
            latest: restored.revision,
            begins: restored.revision + 1,
        };
        let opened = history.read(restored);
        if let Err(error) = opened.and_then(|()| history.append_to_file()) {
            tracing::warn!(%error, "the latest changes cannot be kept: watches begin anew after the next start");
            history.file = None;
        }
        history
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Reads the files, and removes what does not lead to what was restored.
    fn read(&mut self, restored: &mut Restored) -> io::Result<()> {
        let mut past = Vec::new();
        for name in NAMES {
            let text = match fs::read(self.path(name)) {
                Ok(text) => Bytes::from(text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Bytes::new(),
                Err(error) => return Err(error),
            };
            let (mut at, mut first) = (0, None);
            while let Some((line, size)) = Line::read(&text.slice(at..)) {
                // Written, but the transaction of the same changes was not.
                if line.revision > restored.revision {
                    break;
                }
                at += size;
                first = first.or(Some(line.revision));
                past.push(line);
            }
            if name == NAMES[1] {
                self.written = at as u64;
                self.begins = first.unwrap_or(restored.revision + 1);
            }
        }
        let past = leading(past, restored);
        let Some(first) = past.first() else {
            // A new file, or a later change would seem to follow on one of these.
            self.written = 0;
            self.begins = restored.revision + 1;
            return self.remove();
        };
        restored.floor = first.previous;
        restored.past = past.into_iter().map(|line| line.change).collect();
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        for name in NAMES {
            match fs::remove_file(self.path(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Opens the present file behind its good records.
    fn append_to_file(&mut self) -> io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt as _;
        // Secrets stand in it.
        let file = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.path(NAMES[1]))?;
        file.set_len(self.written)?;
        self.file = Some(file);
        Ok(())
    }

    /// Adds changes, which are about to be written down elsewhere.
    pub(super) fn add(&mut self, group: &[Record]) {
        let Some(file) = &mut self.file else { return };
        let mut text = Vec::new();
        for Record { store, change } in group {
            let before = change.before.as_ref();
            let before = before.map(|before| (before.revision(), before.encoded()));
            let is_known = before.is_some_and(|(revision, _)| revision >= self.begins);
            let line = Written {
                revision: change.revision,
                previous: self.latest,
                flags: (if change.deleted { DELETED } else { 0 })
                    | (if before.is_some() { REPLACES } else { 0 })
                    | (if before.is_some() && !is_known { HAS_BEFORE } else { 0 }),
                parts: [store.as_bytes(), change.key.as_bytes(), change.after.encoded()],
                before: before
                    .filter(|_| !is_known)
                    .map(|(revision, text)| (revision, &text[..])),
            };
            line.write(&mut text);
            self.latest = change.revision;
        }
        if let Err(error) = file.write_all(&text) {
            tracing::warn!(%error, "the latest changes cannot be kept: watches begin anew after the next start");
            return self.forget();
        }
        self.written += text.len() as u64;
        if self.written > self.file_size
            && let Err(error) = self.turn()
        {
            tracing::warn!(%error, "the latest changes cannot be kept: watches begin anew after the next start");
            self.forget();
        }
    }

    /// The changes of late are not what happened.
    pub(super) fn forget(&mut self) {
        self.file = None;
        if let Err(error) = self.remove() {
            // They do not lead to what will be written, and so are not used.
            tracing::debug!(%error, "files of changes stay");
        }
    }

    /// Begins the next file.
    fn turn(&mut self) -> io::Result<()> {
        fs::rename(self.path(NAMES[1]), self.path(NAMES[0]))?;
        (self.written, self.begins) = (0, self.latest + 1);
        self.append_to_file()
    }
}

/// A record that was read.
struct Line {
    revision: u64,
    previous: u64,
    replaces: bool,
    change: PastChange,
}

/// A record that is written.
struct Written<'a> {
    revision: u64,
    previous: u64,
    flags: u8,
    /// Store, key, and the text after the change.
    parts: [&'a [u8]; 3],
    before: Option<(u64, &'a [u8])>,
}

impl Written<'_> {
    /// `length 4 │ checksum 4 │ revision 8 │ previous 8 │ flags 1 │ revision before 8 │ four parts, each with its length`
    fn write(&self, out: &mut Vec<u8>) {
        let at = out.len();
        let (revision_before, before) = self.before.unwrap_or_default();
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&self.revision.to_le_bytes());
        out.extend_from_slice(&self.previous.to_le_bytes());
        out.push(self.flags);
        out.extend_from_slice(&revision_before.to_le_bytes());
        for part in self.parts.into_iter().chain([before]) {
            // Texts of objects are a few megabytes at most.
            out.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(part);
        }
        let body = &out[at + 8..];
        let (length, sum) = (u32::try_from(body.len()).unwrap_or(u32::MAX), checksum(body));
        out[at..at + 4].copy_from_slice(&length.to_le_bytes());
        out[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Takes so many bytes from the front.
fn take(text: &mut Bytes, count: usize) -> Option<Bytes> {
    (text.len() >= count).then(|| text.split_to(count))
}

fn number(text: &mut Bytes) -> Option<u64> {
    Some(u64::from_le_bytes(take(text, 8)?.as_ref().try_into().ok()?))
}

fn length(text: &mut Bytes) -> Option<usize> {
    let bytes = take(text, 4)?;
    usize::try_from(u32::from_le_bytes(bytes.as_ref().try_into().ok()?)).ok()
}

impl Line {
    /// The record at the beginning of a text, and how long it is; none if it is no whole one.
    fn read(text: &Bytes) -> Option<(Line, usize)> {
        let mut rest = text.clone();
        let size = length(&mut rest)?;
        let sum = take(&mut rest, 4)?;
        let mut body = take(&mut rest, size)?;
        if checksum(&body).to_le_bytes() != *sum {
            return None;
        }
        let (revision, previous) = (number(&mut body)?, number(&mut body)?);
        let flags = take(&mut body, 1)?[0];
        let revision_before = number(&mut body)?;
        let mut part = || {
            let length = length(&mut body)?;
            take(&mut body, length)
        };
        let [store, key, after, before] = [part()?, part()?, part()?, part()?];
        let name = |part: Bytes| std::str::from_utf8(&part).ok().map(Arc::from);
        // A copy, or one text would hold the memory of the whole file.
        let object = |revision: u64, text: Bytes| {
            let text = Bytes::copy_from_slice(&text);
            StoredObject::restore(revision, text).ok().map(Arc::new)
        };
        let change = PastChange {
            store: name(store)?,
            key: name(key)?,
            before: match flags & HAS_BEFORE {
                0 => None,
                _ => Some(object(revision_before, before)?),
            },
            after: object(revision, after)?,
            deleted: flags & DELETED != 0,
        };
        let line = Line {
            revision,
            previous,
            replaces: flags & REPLACES != 0,
            change,
        };
        Some((line, size + 8))
    }
}

/// Store and key of an object.
type Name = (Arc<str>, Arc<str>);

/// The revision of the latest change of an object, and the object, unless it is gone.
type State = (u64, Option<Arc<StoredObject>>);

/// The changes that lead to what was restored, with the states before them.
fn leading(lines: Vec<Line>, restored: &Restored) -> Vec<Line> {
    let mut wanted = restored.revision;
    let mut leading: Vec<Line> = Vec::new();
    for line in lines.into_iter().rev() {
        if line.revision != wanted {
            break;
        }
        wanted = line.previous;
        leading.push(line);
    }
    leading.reverse();
    // The states before them: from the records before, or their own.
    let mut states: BTreeMap<Name, State> = BTreeMap::new();
    let mut begins = 0;
    for (at, line) in leading.iter_mut().enumerate() {
        let change = &mut line.change;
        let known = states.get(&(change.store.clone(), change.key.clone()));
        if line.replaces && change.before.is_none() {
            change.before = known.and_then(|(_, state)| state.clone());
        }
        if line.replaces != change.before.is_some() {
            // It stood in a file that is gone.
            begins = at + 1;
        }
        let after = (!change.deleted).then(|| change.after.clone());
        states.insert((change.store.clone(), change.key.clone()), (line.revision, after));
    }
    leading.drain(..begins);
    let from = leading.first().map_or(u64::MAX, |line| line.revision);
    // And the objects are those that they lead to.
    let mut present = BTreeSet::new();
    for (store, key, object) in &restored.objects {
        let expected = states.get(&(store.clone(), key.clone()));
        let is_led_to = match expected {
            Some((revision, state)) => *revision < from || (*revision == object.revision() && state.is_some()),
            None => object.revision() < from,
        };
        if !is_led_to {
            return Vec::new();
        }
        present.insert((store.clone(), key.clone()));
    }
    let is_gone =
        |(name, (revision, state)): (&Name, &State)| *revision >= from && state.is_some() && !present.contains(name);
    if states.iter().any(is_gone) {
        return Vec::new();
    }
    leading
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kubewright_apiserver::storage::Change;
    use serde_json::json;

    use super::*;

    /// Changes as a storage makes them, and the objects that come of them.
    #[derive(Default)]
    struct Made {
        revision: u64,
        objects: BTreeMap<String, Arc<StoredObject>>,
    }

    impl Made {
        fn put(&mut self, key: &str) -> Record {
            self.revision += 1;
            let value = json!({"metadata": {"name": key}, "data": {"n": self.revision, "text": "x".repeat(100)}});
            let after = Arc::new(StoredObject::new(self.revision, value));
            let before = self.objects.insert(key.to_owned(), after.clone());
            record(key, before, after, false)
        }

        fn delete(&mut self, key: &str) -> Record {
            self.revision += 1;
            let before = self.objects.remove(key).expect("it is there");
            let after = Arc::new(StoredObject::new(self.revision, before.value().clone()));
            record(key, Some(before), after, true)
        }

        fn restored(&self) -> Restored {
            let objects = self.objects.iter().map(|(key, object)| {
                let object = StoredObject::restore(object.revision(), object.encoded().clone()).expect("JSON");
                (Arc::from("s"), Arc::from(key.as_str()), object)
            });
            Restored {
                revision: self.revision,
                objects: objects.collect(),
                ..Restored::default()
            }
        }
    }

    fn record(key: &str, before: Option<Arc<StoredObject>>, after: Arc<StoredObject>, deleted: bool) -> Record {
        Record {
            store: "s".into(),
            change: Arc::new(Change::new(key.into(), before, after, deleted)),
        }
    }

    /// What a start gets: where its history begins, and the revision of each change with that before it.
    fn start(folder: &Path, made: &Made) -> (History, u64, Vec<(u64, Option<u64>)>) {
        let mut restored = made.restored();
        let history = History::with(folder.to_owned(), 2000, &mut restored);
        let past = restored.past.iter().map(|change| {
            let before = change.before.as_ref().map(|before| before.revision());
            (change.after.revision(), before)
        });
        let past = past.collect();
        (history, restored.floor, past)
    }

    #[test]
    fn changes_come_back_as_far_as_they_lead_to_the_objects() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut made = Made::default();
        let (mut history, floor, past) = start(folder.path(), &made);
        assert_eq!((floor, past.len()), (0, 0));
        history.add(&[made.put("a"), made.put("b")]);
        history.add(&[made.put("a"), made.delete("b")]);
        let expected = [(1, None), (2, None), (3, Some(1)), (4, Some(2))];
        let (mut history, floor, past) = start(folder.path(), &made);
        assert_eq!((floor, &past[..]), (0, &expected[..]));

        // A change whose transaction was not written is forgotten.
        history.add(&[Made {
            revision: 4,
            objects: made.objects.clone(),
        }
        .put("c")]);
        let (mut history, floor, past) = start(folder.path(), &made);
        assert_eq!((floor, &past[..]), (0, &expected[..]));
        history.add(&[made.put("d")]);
        let (_, _, past) = start(folder.path(), &made);
        assert_eq!(past.last(), Some(&(5, None)));

        // A transaction whose history was not written: nothing leads to it.
        made.put("e");
        let (mut history, floor, past) = start(folder.path(), &made);
        assert_eq!((floor, past.len()), (0, 0));
        history.add(&[made.put("e")]);
        let (_, floor, past) = start(folder.path(), &made);
        assert_eq!((floor, &past[..]), (6, &[(7, Some(6))][..]));
    }

    #[test]
    fn only_so_many_bytes_are_kept_and_each_state_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut made = Made::default();
        let (mut history, ..) = start(folder.path(), &made);
        for round in 0..200 {
            let next = made.put(&format!("k{}", round % 3));
            history.add(&[next]);
            let bytes = NAMES.map(|name| fs::metadata(folder.path().join(name)).map_or(0, |file| file.len()));
            assert!(bytes.iter().all(|bytes| *bytes < 3000), "{bytes:?}");
        }
        let (_, floor, past) = start(folder.path(), &made);
        assert!(past.len() > 3 && floor + past.len() as u64 == 200, "{floor}: {past:?}");
        for (revision, before) in past {
            assert_eq!(before, Some(revision - 3));
        }
    }

    #[test]
    fn damage_makes_the_history_shorter_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut made = Made::default();
        let (mut history, ..) = start(folder.path(), &made);
        for key in ["a", "b", "a"] {
            history.add(&[made.put(key)]);
        }
        let file = folder.path().join(NAMES[1]);
        let good = fs::read(&file).expect("a file");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&file, &bad).expect("it can be written");
            let (_, _, past) = start(folder.path(), &made);
            assert_eq!(past.len(), 0, "the latest change is behind byte {at} or is there");
            fs::write(&file, &good[..at]).expect("it can be written");
            assert_eq!(start(folder.path(), &made).2.len(), 0, "{at} bytes");
        }
        // Objects of another time with the same revision.
        fs::write(&file, &good).expect("it can be written");
        let mut other = Made::default();
        for key in ["a", "a", "c"] {
            other.put(key);
        }
        assert_eq!(start(folder.path(), &other).2.len(), 0);
    }
}
