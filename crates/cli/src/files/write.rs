//! Carrying out a plan: all files are written beside their places first, and then renamed into them.
//!
//! A full disk or a missing right is met before anything changed. A rename that fails after others succeeded is
//! reported with the files that are written and those that are not; git has the old ones. Two commands do not write at
//! once: the project's own folder is locked from before the files are compared with those that the plan saw until all of
//! them are in place.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use kubewright_codegen::{Diagnostic, Files as _, Place, Plan, codes};
use tempfile::{Builder, NamedTempFile};

use super::Disk;

/// The attempt of every error here.
const ATTEMPTED: &str = "cannot write the project";
/// The mode of a new file, from which the user's umask takes.
const MODE: u32 = 0o666;
const UNCHANGED: &str = "nothing was changed";

/// A plan whose files are beside their places.
pub(super) struct Prepared<'p> {
    disk: &'p Disk,
    /// Dropped before the folders that they are in.
    steps: Vec<Step<'p>>,
    #[expect(dead_code, reason = "those that stay empty are removed when it is dropped")]
    folders: Folders,
    #[expect(dead_code, reason = "held until the end")]
    lock: File,
}

/// One change.
struct Step<'p> {
    path: &'p str,
    place: PathBuf,
    /// The new text, beside its place; none for a file that is to go.
    text: Option<NamedTempFile>,
}

impl<'p> Prepared<'p> {
    /// Checks that the files are as the plan saw them, and puts the new ones beside.
    pub(super) fn of(disk: &'p Disk, plan: &'p Plan<'_>) -> Result<Prepared<'p>, Diagnostic> {
        let refused = |place: &Path, why: &io::Error| refused(disk, place, why, UNCHANGED);
        fs::create_dir_all(disk.root()).map_err(|why| refused(disk.root(), &why))?;
        let lock = lock(disk)?;
        for (path, change) in plan.changes() {
            if disk.read(path)? != change.before {
                return Err(Diagnostic::new(codes::files::EDITED, ATTEMPTED)
                    .at(Place::file(path))
                    .because("the file changed while the command ran")
                    .fix(format!("run the command again; {UNCHANGED}")));
            }
        }
        let (mut folders, mut steps) = (Folders::default(), Vec::new());
        for (path, change) in plan.changes() {
            let place = disk.place(path)?;
            let text = change.after.as_ref().map(|text| beside(&place, text, &mut folders));
            let text = text.transpose().map_err(|why| refused(&place, &why))?;
            steps.push(Step { path, place, text });
        }
        Ok(Prepared {
            disk,
            steps,
            folders,
            lock,
        })
    }

    /// Moves everything into place.
    pub(super) fn carry_out(self) -> Result<(), Diagnostic> {
        let mut written = Vec::new();
        let mut steps = self.steps.into_iter();
        while let Some(Step { path, place, text }) = steps.next() {
            if let Err(why) = put(self.disk, &place, text) {
                let left: Vec<&str> = [path].into_iter().chain(steps.map(|step| step.path)).collect();
                return Err(refused(self.disk, &place, &why, &halfway(&written, &left)));
            }
            written.push(path);
        }
        Ok(())
    }
}

/// Takes the project for this process alone.
fn lock(disk: &Disk) -> Result<File, Diagnostic> {
    let root = File::open(disk.root()).map_err(|why| refused(disk, disk.root(), &why, UNCHANGED))?;
    match root.try_lock() {
        Err(fs::TryLockError::WouldBlock) => Err(Diagnostic::new(codes::files::IO, ATTEMPTED)
            .because("another kubewright command is writing to it at this moment")
            .fix("wait until it is done and run the command again")),
        // Some network file systems lock no folders; one person alone is no danger there.
        Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(root),
    }
}

/// Writes a text beside its place, with the mode of the file that is there.
fn beside(place: &Path, text: &str, folders: &mut Folders) -> io::Result<NamedTempFile> {
    let folder = place.parent().unwrap_or(Path::new("."));
    folders.make(folder)?;
    let mut builder = Builder::new();
    builder.prefix(".kubewright-").permissions(Permissions::from_mode(MODE));
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    if let Ok(found) = fs::metadata(place) {
        file.as_file().set_permissions(found.permissions())?;
    }
    Ok(file)
}

/// Puts a file in its place, or takes away the one that is there, with the folders that are empty then.
fn put(disk: &Disk, place: &Path, text: Option<NamedTempFile>) -> io::Result<()> {
    if let Some(file) = text {
        return file.persist(place).map(drop).map_err(|failed| failed.error);
    }
    match fs::remove_file(place) {
        Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let above = place.ancestors().skip(1).take_while(|above| *above != disk.root());
    for folder in above {
        // Refused when something is in it, which ends this loop.
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
    Ok(())
}

/// The folders that were made for new files. When it is dropped, those in which nothing is are removed.
#[derive(Default)]
struct Folders(Vec<PathBuf>);

impl Folders {
    /// Makes a folder with those above it.
    fn make(&mut self, folder: &Path) -> io::Result<()> {
        let is_missing = |above: &&Path| fs::symlink_metadata(above).is_err();
        let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
        for folder in missing.into_iter().rev() {
            fs::create_dir(folder)?;
            self.0.push(folder.to_path_buf());
        }
        // Fails where something else than a folder is.
        fs::create_dir_all(folder)
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // Refused when something is in it, which is why it stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Which files are written and which are not, and how to have the old ones back.
fn halfway(written: &[&str], left: &[&str]) -> String {
    if written.is_empty() {
        return UNCHANGED.to_owned();
    }
    let (written, left) = (written.join(", "), left.join(", "));
    format!("written: {written}; not written: {left}; git status shows the former, and git restore has what they were")
}

fn refused(disk: &Disk, place: &Path, why: &io::Error, state: &str) -> Diagnostic {
    let file = match disk.relative(place) {
        root if root.is_empty() => disk.root().display().to_string(),
        file => file,
    };
    let fix = match why.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "make the folder writable for you",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room on the disk",
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists | ErrorKind::IsADirectory => {
            "there is a file where a folder must be, or the other way round: move it away"
        }
        _ => "correct what the cause names",
    };
    Diagnostic::new(codes::files::IO, ATTEMPTED)
        .at(Place::file(file))
        .because(why)
        .fix(format!("{fix}, and run the command again; {state}"))
}
