//! The folder itself: made when it is missing, marked as ours, held by one process, and the keeper of small secrets.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use kubewright_apiserver::Minor;
use serde_json::{Value, json};

use super::OBJECTS_FILE;
use super::error::DataDirError;
use super::history;
use super::identity;

/// The newest version of everything in the folder. Raise it when an older kubewright would misread the files.
pub(super) const FORMAT: u64 = 2;
const MARK: &str = "kubewright.json";
const LOCK: &str = "lock";

/// A folder that this process holds.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    mark: Option<Mark>,
    /// Until a writer takes it.
    lock: Option<File>,
}

/// What the mark of a folder says.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The second number of the version of Kubernetes whose objects it holds. Folders of the first one do not say it.
    kubernetes: u64,
}

impl Folder {
    /// Takes the folder, and makes it when it is missing.
    ///
    /// # Errors
    /// When another process holds it, it holds other things, or a newer version wrote it.
    pub(super) fn open(path: &Path) -> Result<Folder, DataDirError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(DataDirError::io("create", path))?;
        let path = path.canonicalize().map_err(DataDirError::io("find", path))?;
        check_content(&path)?;
        let lock = Some(take_lock(&path)?);
        let mark = read_mark(&path)?;
        Ok(Folder { path, mark, lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the folder has its mark: it does from the first complete start on.
    pub(super) fn is_marked(&self) -> bool {
        self.mark.is_some()
    }

    /// Hands over the lock that keeps other processes out: it must live as long as something in the folder is written,
    /// and no longer.
    pub(super) fn take_lock(&mut self) -> Option<File> {
        self.lock.take()
    }

    /// Refuses a version of Kubernetes that is older than the one whose objects the folder holds: it does not know all
    /// their kinds and fields.
    pub(super) fn check_version(&self, minor: Minor) -> Result<(), DataDirError> {
        match self.mark {
            Some(mark) if mark.kubernetes > u64::from(minor.number()) => Err(DataDirError::NewerKubernetes {
                path: self.path.clone(),
                found: format!("1.{}", mark.kubernetes),
                asked: minor,
            }),
            _ => Ok(()),
        }
    }

    /// Writes the mark of the folder, unless it has the same already. Without a version that of the present mark stays.
    pub(super) fn mark(&self, minor: Option<Minor>) -> Result<(), DataDirError> {
        let kubernetes = match (minor, self.mark) {
            (Some(minor), Some(mark)) if mark.kubernetes == u64::from(minor.number()) => return Ok(()),
            (None, Some(_)) => return Ok(()),
            (minor, _) => minor.unwrap_or(Minor::OLDEST).to_string(),
        };
        // Programs that know the first format know the first version alone, and do not read which one it is.
        let format = if kubernetes == Minor::OLDEST.to_string() {
            1
        } else {
            FORMAT
        };
        let text = json!({"what": "the data of a kubewright cluster", "format": format, "kubernetes": kubernetes});
        self.write_whole(MARK, format!("{text:#}\n").as_bytes())
    }

    /// The text of a file, such as the key `pki/sa.key`: the present one, or the one that `make` makes, which is then
    /// kept. Only its owner can read it.
    ///
    /// # Errors
    /// When the file can be neither read nor written, and the error of `make`.
    pub(crate) fn keep<E: From<DataDirError>>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<String, E>,
    ) -> Result<String, E> {
        let path = self.path.join(name);
        match read_text(&path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = make()?;
                self.write_whole(name, text.as_bytes())?;
                Ok(text)
            }
            Err(error) => Err(DataDirError::io("read", path)(error).into()),
        }
    }

    /// Writes a file so that it is there whole or not at all, whenever the power goes.
    fn write_whole(&self, name: &str, bytes: &[u8]) -> Result<(), DataDirError> {
        let path = self.path.join(name);
        let parent = path.parent().unwrap_or(&self.path);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(DataDirError::io("create", parent))?;
        let new = path.with_extension("new");
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync_folder(parent)
        };
        write().map_err(DataDirError::io("write", &path))
    }
}

/// The whole text of a small file.
fn read_text(path: &Path) -> io::Result<String> {
    identity::regular(path)?;
    fs::read_to_string(path)
}

/// Makes the names in a folder safe.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Refuses a folder with other things in it, so that a mistyped path costs nothing.
fn check_content(path: &Path) -> Result<(), DataDirError> {
    if path.join(MARK).exists() || path.join(OBJECTS_FILE).exists() {
        return Ok(());
    }
    let ours = |name: &str| {
        [LOCK, "pki", "kubeconfig"].contains(&name) || history::NAMES.contains(&name) || name.ends_with(".new")
    };
    for entry in fs::read_dir(path).map_err(DataDirError::io("read", path))? {
        let name = entry.map_err(DataDirError::io("read", path))?.file_name();
        let name = name.to_string_lossy();
        if !ours(&name) {
            return Err(DataDirError::Foreign {
                path: path.to_owned(),
                why: format!("it has no {MARK}, and holds {name}"),
            });
        }
    }
    Ok(())
}

fn take_lock(path: &Path) -> Result<File, DataDirError> {
    let name = path.join(LOCK);
    identity::regular(&name).map_err(DataDirError::io("lock", &name))?;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&name)
        .map_err(DataDirError::io("open", &name))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The name of the holder is only for the message, so a failure to read it is ignored.
            let _ = file.read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                number => format!("process {number}"),
            };
            return Err(DataDirError::InUse {
                path: path.to_owned(),
                holder,
            });
        }
        Err(TryLockError::Error(error)) => return Err(DataDirError::io("lock", name)(error)),
    }
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(DataDirError::io("write", &name))?;
    Ok(file)
}

/// The mark, if it is there; an error when it is not one of ours.
fn read_mark(path: &Path) -> Result<Option<Mark>, DataDirError> {
    let name = path.join(MARK);
    let text = match read_text(&name) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DataDirError::io("read", name)(error)),
    };
    let mark = serde_json::from_str::<Value>(&text).unwrap_or_default();
    let kubernetes = match mark.get("kubernetes") {
        None => Some(u64::from(Minor::OLDEST.number())),
        Some(text) => text.as_str().and_then(|text| text.strip_prefix("1.")?.parse().ok()),
    };
    match mark.get("format").and_then(Value::as_u64).zip(kubernetes) {
        Some((found, _)) if found > FORMAT => Err(DataDirError::NewerFormat {
            path: name,
            found,
            known: FORMAT,
        }),
        Some((_, kubernetes)) => Ok(Some(Mark { kubernetes })),
        None => Err(DataDirError::Damaged {
            damage: vec![format!(
                "it does not say which format the folder has: {:?}",
                text.trim()
            )],
            rescue: format!(
                "if the rest of the folder is a cluster's, remove this file: {OBJECTS_FILE} says for itself whether it is intact"
            ),
            file: name,
        }),
    }
}
