//! One write: prepared in a folder of its own, decided by one rename, then carried out.
//!
//! In the folder are the new texts (`0`, `1`, …), copies of the old ones (`0.before`, …) and, as soon as all of them
//! are there, the `journal`: the list of steps. A command that finds a folder with a journal finishes the list; one
//! without it throws the folder away. The lock keeps two commands from doing so at once: it is on the project's own
//! folder, which is never removed, and is held from before the files are compared with those that the plan saw until
//! all of them are in place.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use kubewright_codegen::{Diagnostic, Files, Place, Plan, codes};
use serde::{Deserialize, Serialize};

use super::{Disk, NEVER_OURS, STAGE};

/// The step for one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Step {
    path: String,
    /// Whether there is a file before.
    before: bool,
    /// Whether there is one after.
    after: bool,
}

/// A write that is prepared.
pub(super) struct Staged<'d> {
    disk: &'d Disk,
    folder: PathBuf,
    steps: Vec<Step>,
    /// Held until the end.
    lock: File,
}

fn refused(disk: &Disk, place: &Path, why: &io::Error) -> Diagnostic {
    let wrong = Diagnostic::new(codes::files::IO, "cannot write the project").because(why);
    let file = match disk.relative(place) {
        root if root.is_empty() => disk.root().display().to_string(),
        file => file,
    };
    let fix = match why.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "make the folder writable for you",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room on the disk",
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists | ErrorKind::IsADirectory => {
            "a file stands where a folder belongs, or the other way round: move it away"
        }
        _ => "correct what the cause names",
    };
    wrong
        .at(Place::file(file))
        .fix(format!("{fix}, and run the command again; nothing was changed"))
}

/// Takes the project for this process alone.
fn lock(disk: &Disk) -> Result<File, Diagnostic> {
    let taken = File::open(disk.root()).map(|root| (root.try_lock(), root));
    match taken {
        Ok((Err(fs::TryLockError::WouldBlock), _)) => {
            Err(Diagnostic::new(codes::files::IO, "cannot write the project")
                .because("another kubewright command is writing to it at this moment")
                .fix("wait until it is done and run the command again"))
        }
        // Some file systems of a network lock no folders; one person alone is no danger there.
        Ok((Ok(()) | Err(fs::TryLockError::Error(_)), root)) => Ok(root),
        Err(why) => Err(refused(disk, disk.root(), &why)),
    }
}

/// Whether there is the folder of a write. A link is none: it would lead to files of others.
fn is_begun(disk: &Disk) -> bool {
    fs::symlink_metadata(disk.root().join(STAGE)).is_ok_and(|found| found.is_dir())
}

/// A journal may have come with a project from elsewhere, so its paths are held to the rules of every write: inside the
/// project, over no link, and not where git and this command keep their own files.
fn check(disk: &Disk, steps: &[Step]) -> Result<(), Diagnostic> {
    for step in steps {
        let first = step.path.split('/').next().unwrap_or_default();
        let why = match disk.place(&step.path) {
            Err(_) => "leads out of the project",
            Ok(_) if NEVER_OURS.contains(&first) => "is not in a folder that a command writes to",
            Ok(_) => continue,
        };
        return Err(
            Diagnostic::new(codes::files::IO, "cannot finish what an interrupted command had begun")
                .at(Place::file(format!("{STAGE}/journal")))
                .because(format!(
                    "{:?} {why}, so no kubewright command wrote this journal",
                    step.path
                ))
                .fix(format!("remove the folder {STAGE}; nothing was changed")),
        );
    }
    Ok(())
}

/// Finishes or forgets the work of an interrupted command. Answers whether something was finished.
pub(super) fn recover(disk: &Disk) -> Result<bool, Diagnostic> {
    if !is_begun(disk) {
        return Ok(false);
    }
    recover_locked(disk, lock(disk)?).map(|(finished, _)| finished)
}

/// The same, for a caller that has the lock, and gets it back.
fn recover_locked(disk: &Disk, lock: File) -> Result<(bool, File), Diagnostic> {
    let folder = disk.root().join(STAGE);
    if !is_begun(disk) {
        return Ok((false, lock));
    }
    let steps: Vec<Step> = match fs::read(folder.join("journal")) {
        Ok(journal) => serde_json::from_slice(&journal).map_err(|why| {
            Diagnostic::new(codes::files::IO, "cannot finish what an interrupted command had begun")
                .at(Place::file(format!("{STAGE}/journal")))
                .because(why)
                .fix(format!(
                    "look at the files with git diff, then remove the folder {STAGE}"
                ))
        })?,
        Err(_) => Vec::new(),
    };
    check(disk, &steps)?;
    let finished = !steps.is_empty();
    let staged = Staged {
        disk,
        folder,
        steps,
        lock,
    };
    if finished {
        staged.carry_out().map_err(|(place, why)| refused(disk, &place, &why))?;
    }
    staged.clean_up();
    Ok((finished, staged.lock))
}

impl<'d> Staged<'d> {
    /// Checks that the files are as the plan saw them and puts the new ones beside.
    pub(super) fn prepare(disk: &'d Disk, plan: &Plan<'_>) -> Result<Staged<'d>, Diagnostic> {
        fs::create_dir_all(disk.root()).map_err(|why| refused(disk, disk.root(), &why))?;
        let (_, lock) = recover_locked(disk, lock(disk)?)?;
        for (path, change) in plan.changes() {
            if disk.read(path)? != change.before {
                return Err(Diagnostic::new(codes::files::EDITED, "cannot write the project")
                    .at(Place::file(path))
                    .because("the file was changed while the command was thinking")
                    .fix("run the command again; nothing was changed"));
            }
            disk.place(path)?;
        }
        let folder = disk.root().join(STAGE);
        // Not all that are missing: a link to a folder would do then, and lead out of the project.
        fs::create_dir(&folder).map_err(|why| refused(disk, &folder, &why))?;
        let mut staged = Staged {
            disk,
            folder,
            steps: Vec::new(),
            lock,
        };
        match staged.fill(plan) {
            Ok(()) => Ok(staged),
            Err((place, why)) => {
                let wrong = refused(disk, &place, &why);
                staged.clean_up();
                Err(wrong)
            }
        }
    }

    fn fill(&mut self, plan: &Plan<'_>) -> Result<(), (PathBuf, io::Error)> {
        for (at, (path, change)) in plan.changes().enumerate() {
            let place = self.disk.root().join(path);
            if let Some(text) = &change.after {
                let new = self.incoming(at);
                let permissions = fs::metadata(&place).ok().map(|found| found.permissions());
                let written = write(&new, text.as_bytes()).and_then(|()| match permissions {
                    Some(permissions) => fs::set_permissions(&new, permissions),
                    None => Ok(()),
                });
                written.map_err(|why| (place.clone(), why))?;
            }
            if let Some(text) = &change.before {
                write(&self.old(at), text.as_bytes()).map_err(|why| (place, why))?;
            }
            self.steps.push(Step {
                path: path.to_owned(),
                before: change.before.is_some(),
                after: change.after.is_some(),
            });
        }
        let journal = serde_json::to_vec(&self.steps).map_err(|why| (self.folder.clone(), why.into()))?;
        let draft = self.folder.join("journal.new");
        write(&draft, &journal).map_err(|why| (self.folder.clone(), why))
    }

    fn incoming(&self, at: usize) -> PathBuf {
        self.folder.join(at.to_string())
    }

    fn old(&self, at: usize) -> PathBuf {
        self.folder.join(format!("{at}.before"))
    }

    /// Decides, and moves everything into place; or, when that fails, back.
    pub(super) fn commit(self) -> Result<(), Diagnostic> {
        self.decide().map_err(|why| refused(self.disk, &self.folder, &why))?;
        let done = self.carry_out();
        let told = match done {
            Ok(()) => Ok(()),
            Err((place, why)) => {
                let wrong = refused(self.disk, &place, &why);
                match self.roll_back() {
                    Ok(()) => Err(wrong),
                    Err((place, again)) => {
                        // The folder stays: it holds the old contents of the files.
                        return Err(wrong
                            .because(format!("and {} could not be put back: {again}", place.display()))
                            .fix(format!("the files as they were are in {STAGE}; copy them back by hand")));
                    }
                }
            }
        };
        self.clean_up();
        told
    }

    /// From here on the write happens, even if this process ends.
    pub(super) fn decide(&self) -> io::Result<()> {
        fs::rename(self.folder.join("journal.new"), self.folder.join("journal"))
    }

    fn carry_out(&self) -> Result<(), (PathBuf, io::Error)> {
        for (at, step) in self.steps.iter().enumerate() {
            let place = self.disk.root().join(&step.path);
            let done = if step.after {
                let new = self.incoming(at);
                // A missing file was moved before an interruption.
                if new.exists() {
                    make_folders(&place).and_then(|()| fs::rename(&new, &place))
                } else {
                    Ok(())
                }
            } else {
                match fs::remove_file(&place) {
                    Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
                    _ => {
                        self.remove_empty(&place);
                        Ok(())
                    }
                }
            };
            done.map_err(|why| (place, why))?;
        }
        Ok(())
    }

    fn roll_back(&self) -> Result<(), (PathBuf, io::Error)> {
        for (at, step) in self.steps.iter().enumerate() {
            let place = self.disk.root().join(&step.path);
            let untouched = step.after && self.incoming(at).exists();
            if untouched {
                continue;
            }
            let done = if step.before {
                make_folders(&place).and_then(|()| fs::copy(self.old(at), &place).map(drop))
            } else {
                match fs::remove_file(&place) {
                    Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
                    _ => Ok(()),
                }
            };
            done.map_err(|why| (place.clone(), why))?;
            if !step.before {
                self.remove_empty(&place);
            }
        }
        Ok(())
    }

    /// Removes the folders above a file that is gone, as long as nothing is in them.
    fn remove_empty(&self, place: &Path) {
        let above = place
            .ancestors()
            .skip(1)
            .take_while(|folder| *folder != self.disk.root());
        for folder in above {
            // Refused when something is in it, which ends this loop.
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }

    fn clean_up(&self) {
        // A file that cannot be removed now is removed by the next command.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn make_folders(place: &Path) -> io::Result<()> {
    place.parent().map_or(Ok(()), fs::create_dir_all)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.flush()
}
