//! The folders of processes, and the users that they run as.
//!
//! ```text
//! HOME/owner              when the cluster of this folder started, whose number is in the name
//! HOME/shims/PID          when the shim of this number started
//! HOME/control            the socket that shims connect to
//! HOME/names/NAMESPACE    the file of hosts of a namespace
//! HOME/pods/UID/          one pod: volumes/NAME, logs/CONTAINER, c/CONTAINER/root-ATTEMPT
//! HOME/r/XXXXXXXX         one pod's own folder for sockets, whose names must be short
//! VOLUMES/NAME            one PersistentVolume
//! CACHE/                  templates that outlive the cluster
//! ```
//!
//! Invariants: all files of a cluster below HOME go with it; folders that a program may not change belong to the
//! cluster; no other user may read them. Not here: the contents of volumes (`volumes`).

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use super::launch;

/// The user of the programs, when root has started the cluster.
const NOBODY: u32 = 65_534;

/// The folders of a cluster's processes.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    volumes: PathBuf,
    cache: PathBuf,
    /// The user of the programs, where that is another than the cluster's.
    user: Option<u32>,
    /// Whether the volumes outlive the cluster.
    keeps_volumes: bool,
}

impl Home {
    /// Makes the folders. `kept` is where PersistentVolumes are kept beyond this cluster, if anywhere.
    ///
    /// # Errors
    /// When a folder cannot be made, or another user has taken its name.
    pub(super) fn make(kept: Option<&Path>) -> io::Result<Home> {
        let user = rustix::process::geteuid().is_root().then_some(NOBODY);
        let temp = std::env::temp_dir();
        clear_up(&temp);
        let path = (0..u32::MAX)
            .map(|number| temp.join(format!("kubewright-{}-{number}", std::process::id())))
            .find_map(|path| match fs::DirBuilder::new().mode(0o711).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                done => Some(done.map(|()| path)),
            })
            .ok_or_else(|| io::Error::other("every name of a temporary folder is taken"))??;
        let volumes = kept.map_or_else(|| path.join("volumes"), |kept| kept.join("volumes"));
        let home = Home {
            cache: temp.join(format!(
                "kubewright-cache-{}",
                user.unwrap_or(rustix::process::geteuid().as_raw())
            )),
            volumes,
            user,
            keeps_volumes: kept.is_some(),
            path,
        };
        for folder in ["pods", "r"] {
            fs::DirBuilder::new().mode(0o711).create(home.path.join(folder))?;
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(&home.volumes)?;
        if let (Some(kept), Some(_)) = (kept, user) {
            // Its programs are other users, which pass through the folder and can read only their own files in it.
            fs::set_permissions(kept, fs::Permissions::from_mode(0o711))?;
        }
        fs::write(
            home.path.join("owner"),
            launch::started(std::process::id()).unwrap_or_default(),
        )?;
        home.make_cache()?;
        Ok(home)
    }

    fn make_cache(&self) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(&self.cache) {
            Ok(()) => self.give(&self.cache),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = fs::symlink_metadata(&self.cache)?;
                let owner = self.user.unwrap_or(rustix::process::geteuid().as_raw());
                if found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0 {
                    return Ok(());
                }
                let name = self.cache.display();
                Err(io::Error::other(format!(
                    "{name} exists and is not a folder of this user's own"
                )))
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn user(&self) -> Option<u32> {
        self.user
    }

    pub(super) fn cache(&self) -> &Path {
        &self.cache
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The socket that shims connect to.
    pub(super) fn control(&self) -> PathBuf {
        self.path.join("control")
    }

    /// Where the files of hosts are.
    pub(super) fn names(&self) -> PathBuf {
        self.path.join("names")
    }

    /// Where shims are written down.
    pub(super) fn shims(&self) -> PathBuf {
        self.path.join("shims")
    }

    pub(super) fn pod(&self, uid: &str) -> PathBuf {
        self.path.join("pods").join(uid)
    }

    /// Where a pod's sockets are.
    pub(super) fn run(&self, uid: &str) -> PathBuf {
        let short: String = uid.chars().filter(char::is_ascii_hexdigit).take(12).collect();
        self.path.join("r").join(short)
    }

    /// The folder behind a PersistentVolume.
    pub(super) fn volume(&self, name: &str) -> PathBuf {
        self.volumes.join(name)
    }

    /// Makes a folder that belongs to the programs.
    pub(super) fn make_own(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        self.give(path)
    }

    /// Makes a folder that programs may pass through, and in which they change nothing.
    pub(super) fn make_passage(&self, path: &Path) -> io::Result<()> {
        let mode = if self.user.is_some() { 0o711 } else { 0o700 };
        fs::DirBuilder::new().recursive(true).mode(mode).create(path)
    }

    /// Makes a file or a folder the programs' own.
    pub(super) fn give(&self, path: &Path) -> io::Result<()> {
        match self.user {
            Some(user) => chown(path, Some(user), Some(user)),
            None => Ok(()),
        }
    }

    /// Lets programs read a file or a folder that stays the cluster's.
    pub(super) fn show(&self, path: &Path, mode: u32) -> io::Result<()> {
        if let Some(user) = self.user {
            chown(path, None, Some(user))?;
        }
        // The owner's rights in a mode hold for the programs, which are the group; but they change nothing. Other
        // users read nothing.
        let of_owner = mode >> 6 & 0o7;
        let of_group = if self.user.is_some() { of_owner & 0o5 } else { 0 };
        fs::set_permissions(path, fs::Permissions::from_mode(of_owner << 6 | of_group << 3))
    }

    /// Removes the folders of a pod.
    pub(super) fn forget(&self, uid: &str) {
        for folder in [self.pod(uid), self.run(uid)] {
            remove(&folder);
        }
    }

    /// Removes all folders except those that are to be kept.
    pub(super) fn clear(&self) {
        if !self.keeps_volumes {
            remove(&self.volumes);
        }
        remove(&self.path);
    }
}

/// Removes the left-overs of killed clusters: shims that were killed with them, then their folders.
fn clear_up(temp: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(temp).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let numbers = name.strip_prefix("kubewright-").and_then(|rest| rest.split_once('-'));
        let Some(pid) = numbers.and_then(|(pid, _)| pid.parse::<u32>().ok()) else {
            continue;
        };
        let is_ours = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own);
        let Ok(owner) = fs::read_to_string(entry.path().join("owner")) else {
            continue;
        };
        if !is_ours || launch::started(pid).is_some_and(|started| started == owner) {
            continue;
        }
        for shim in fs::read_dir(entry.path().join("shims")).into_iter().flatten().flatten() {
            let pid = shim.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let written = fs::read_to_string(shim.path()).ok();
            let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else {
                continue;
            };
            if written.is_some() && launch::started(pid.as_raw_nonzero().get().unsigned_abs()) == written {
                tracing::warn!(?pid, "ends a process that a cluster has left behind");
                // It may end at this moment.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        remove(&entry.path());
    }
}

fn remove(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(folder = %folder.display(), %error, "a folder of processes is left behind");
        }
        _ => {}
    }
}
