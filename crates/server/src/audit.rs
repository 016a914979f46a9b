//! Where an audit log is written: a file that is rotated, or standard output.
//!
//! A line is one write to a file that is open for appending, so that another reader of the file sees whole lines. A
//! file that would grow beyond its limit gets the time as a part of its name, as kube-apiserver's does
//! (`audit-2026-11-23T12-00-00.000.log`), and a new one begins; old ones are compressed, and removed by number and age,
//! on a thread of their own.
//!
//! Invariants: a failed write is an error to the caller, which logs it; no line is lost in a rotation.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use kubewright_apiserver::audit::AuditSink;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How the time stands in the name of an old file.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S%.3f";

/// When an audit file gives way to a new one, and how many old ones are kept. The defaults are kube-apiserver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The size, in bytes, that a file does not exceed; 0: it grows for ever (`--audit-log-maxsize`, in megabytes).
    /// Default 100 MB.
    pub max_bytes: u64,
    /// How many old files are kept; 0: all (`--audit-log-maxbackup`). Default 100.
    pub max_files: usize,
    /// How long old files are kept; zero: for ever (`--audit-log-maxage`, in days). Default 366 days.
    pub max_age: Duration,
    /// Whether old files are compressed with gzip (`--audit-log-compress`). Default no.
    pub compress: bool,
}

impl Default for Rotation {
    fn default() -> Rotation {
        Rotation {
            max_bytes: 100 * 1024 * 1024,
            max_files: 100,
            max_age: DAY * 366,
            compress: false,
        }
    }
}

/// Writes the events of an audit log to a file.
#[derive(Debug)]
pub struct AuditFile {
    path: PathBuf,
    rotation: Rotation,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
}

impl AuditFile {
    /// Opens a file for appending; its folder and it are made, for the owner only, when they are missing.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn open(path: impl Into<PathBuf>, rotation: Rotation) -> io::Result<AuditFile> {
        let path = path.into();
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let open = Mutex::new(Open::at(&path)?);
        Ok(AuditFile { path, rotation, open })
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        let max = self.rotation.max_bytes;
        if max > 0 && open.size > 0 && open.size.saturating_add(length) > max {
            self.rotate(&mut open)?;
        }
        open.file.write_all(line.as_bytes())?;
        open.size = open.size.saturating_add(length);
        Ok(())
    }

    fn rotate(&self, open: &mut Open) -> io::Result<()> {
        let now = jiff::Timestamp::now().strftime(STAMP).to_string();
        let (front, end) = name_parts(&self.path);
        let mut old = self.path.with_file_name(joined(&front, &now, &end));
        // Several in one millisecond: none is overwritten.
        for again in 1.. {
            if !old.exists() {
                break;
            }
            old = self
                .path
                .with_file_name(joined(&front, &format!("{now}-{again}"), &end));
        }
        fs::rename(&self.path, &old)?;
        *open = Open::at(&self.path)?;
        let (path, rotation) = (self.path.clone(), self.rotation);
        let tidied = std::thread::Builder::new()
            .name("audit files".to_owned())
            .spawn(move || {
                if let Err(error) = tidy(&path, &old, rotation) {
                    tracing::warn!(path = %path.display(), %error, "old audit files could not be put in order");
                }
            });
        tidied.map(drop)
    }
}

impl Open {
    fn at(path: &Path) -> io::Result<Open> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok(Open { file, size })
    }
}

impl AuditSink for AuditFile {
    fn write(&self, line: &str) -> Result<(), String> {
        let path = self.path.display();
        self.write_line(line).map_err(|why| format!("{path}: {why}"))
    }
}

/// Writes the events of an audit log to standard output (`--audit-log-path=-`).
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditStdout;

impl AuditSink for AuditStdout {
    fn write(&self, line: &str) -> Result<(), String> {
        let written = io::stdout().lock().write_all(line.as_bytes());
        written.map_err(|why| format!("standard output: {why}"))
    }
}

/// `audit` and `.log`.
fn name_parts(path: &Path) -> (OsString, OsString) {
    let end = path.extension().map(|extension| {
        let mut end = OsString::from(".");
        end.push(extension);
        end
    });
    (path.file_stem().unwrap_or_default().to_owned(), end.unwrap_or_default())
}

fn joined(front: &OsString, time: &str, end: &OsString) -> OsString {
    let mut name = front.clone();
    name.push("-");
    name.push(time);
    name.push(end);
    name
}

/// Compresses the rotated file, and removes old ones that are too many or too old.
fn tidy(path: &Path, old: &Path, rotation: Rotation) -> io::Result<()> {
    if rotation.compress {
        compress(old)?;
    }
    let now = SystemTime::now();
    // The newest first: names hold the time.
    let mut files = old_files(path)?;
    files.sort_by(|a, b| b.cmp(a));
    for (at, file) in files.iter().enumerate() {
        // Another rotation may have removed it meanwhile.
        let Ok(metadata) = fs::metadata(file) else { continue };
        let age = metadata.modified()?;
        let is_old = !rotation.max_age.is_zero() && now.duration_since(age).is_ok_and(|age| age > rotation.max_age);
        if is_old || (rotation.max_files > 0 && at >= rotation.max_files) {
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

fn compress(old: &Path) -> io::Result<()> {
    let mut name = old.as_os_str().to_owned();
    name.push(".gz");
    let target = PathBuf::from(name);
    let packed = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&target)?;
    let mut packer = GzEncoder::new(packed, Compression::default());
    io::copy(&mut File::open(old)?, &mut packer)?;
    packer.finish()?.sync_all()?;
    fs::remove_file(old)
}

/// Rotated files beside `path`: its name with a time in it.
fn old_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (front, end) = name_parts(path);
    let (front, end) = (
        format!("{}-", front.to_string_lossy()),
        end.to_string_lossy().into_owned(),
    );
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let time = plain.strip_prefix(&front).and_then(|rest| rest.strip_suffix(&end));
        if time.is_some_and(|time| time.get(..23).is_some_and(is_time)) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Whether this is a [`STAMP`]: digits where `2026-11-23T12-00-00.000` has some.
fn is_time(text: &str) -> bool {
    let shape = "0000-00-00T00-00-00.000";
    let fits = |(have, want): (char, char)| match want {
        '0' => have.is_ascii_digit(),
        other => have == other,
    };
    text.len() == shape.len() && text.chars().zip(shape.chars()).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// All lines of all files, the oldest first; a file that is being compressed is read as it is.
    fn lines(folder: &Path) -> Vec<String> {
        let mut all = Vec::new();
        for name in names(folder) {
            let text = fs::read_to_string(folder.join(name)).unwrap();
            all.extend(text.lines().map(str::to_owned));
        }
        all
    }

    #[test]
    fn a_file_that_is_full_gives_way_and_no_line_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/audit.log");
        let rotation = Rotation {
            max_bytes: 20,
            ..Rotation::default()
        };
        let file = AuditFile::open(&path, rotation).unwrap();
        let written: Vec<String> = (0..6).map(|n| format!("line {n}xx")).collect();
        for line in &written {
            file.write(&format!("{line}\n")).unwrap();
        }
        let mut found = lines(path.parent().unwrap());
        found.sort();
        assert_eq!(found, written);
        let names = names(path.parent().unwrap());
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(
            names
                .iter()
                .all(|name| name.starts_with("audit") && name.ends_with(".log")),
            "{names:?}"
        );
        // Goes on in the file that is there.
        let again = AuditFile::open(&path, rotation).unwrap();
        again.write("one more\n").unwrap();
        assert_eq!(lines(path.parent().unwrap()).len(), 7);
    }

    #[test]
    fn old_files_are_compressed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        for name in [
            "audit-2026-11-23T12-00-00.001.log.gz",
            "audit-2026-11-23T12-00-00.002.log",
            "audit-other.log",
            "other-2026-11-23T12-00-00.003.log",
            "audit.log",
        ] {
            fs::write(folder.path().join(name), "x\n").unwrap();
        }
        let old = folder.path().join("audit-2026-11-23T12-00-00.004.log");
        fs::write(&old, "y\n").unwrap();
        let rotation = Rotation {
            max_files: 2,
            compress: true,
            ..Rotation::default()
        };
        tidy(&path, &old, rotation).unwrap();
        assert_eq!(
            names(folder.path()),
            [
                "audit-2026-11-23T12-00-00.002.log",
                "audit-2026-11-23T12-00-00.004.log.gz",
                "audit-other.log",
                "audit.log",
                "other-2026-11-23T12-00-00.003.log",
            ]
        );
    }
}
