//! The folders of processes, and the users that they run as.
//!
//! ```text
//! HOME/owner              when the cluster of this folder started, whose number is in the name
//! HOME/shims/PID          when the shim of this number started
//! HOME/control            the socket that shims connect to
//! HOME/names/NAMESPACE    the file of hosts of a namespace
//! HOME/pods/UID/          one pod: volumes/NAME, logs/CONTAINER, c/CONTAINER/root-ATTEMPT
//! HOME/r/XXXXXXXX         one pod's own folder for sockets, whose names must be short
//! HOME/new/NAME           a template while it is made
//! VOLUMES/NAME            one PersistentVolume
//! CACHE/                  templates that outlive the cluster
//! ```
//!
//! Invariants: all files of a cluster below HOME go with it; folders that a program may not change belong to the
//! cluster, all others to the one user of their pod (`users`); no other user may read them. A name that comes from an
//! object of the API is one plain name (`beneath`). Not here: the contents of volumes (`volumes`).

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::beneath::{Below, Folder, show};
use super::users::{User, Users};
use super::{launch, lock};

/// The folders of a cluster's processes.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    volumes: PathBuf,
    cache: PathBuf,
    /// The users of the pods, where these are others than the cluster's.
    users: Option<Mutex<Users>>,
    /// Whether the volumes outlive the cluster.
    keeps_volumes: bool,
}

impl Home {
    /// Makes the folders. `kept` is where PersistentVolumes are kept beyond this cluster, if anywhere.
    ///
    /// # Errors
    /// When a folder cannot be made, or another user has taken its name.
    pub(super) fn make(kept: Option<&Path>) -> io::Result<Home> {
        let users = Users::new().map(Mutex::new);
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
            cache: temp.join(format!("kubewright-cache-{}", rustix::process::geteuid().as_raw())),
            volumes,
            users,
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
        if let (Some(kept), Some(_)) = (kept, &home.users) {
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

    /// The folder of templates is the cluster's own: programs of later clusters start from what is in it.
    fn make_cache(&self) -> io::Result<()> {
        match fs::DirBuilder::new().mode(self.passage()).create(&self.cache) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = fs::symlink_metadata(&self.cache)?;
                let owner = rustix::process::geteuid().as_raw();
                if found.is_dir() && found.uid() == owner && found.mode() & 0o022 == 0 {
                    return Ok(());
                }
                let name = self.cache.display();
                Err(io::Error::other(format!(
                    "{name} exists and is not a folder of this user's own"
                )))
            }
            done => done,
        }
    }

    /// The user of a pod's programs, if that is another than the cluster's; `mounted` are the PersistentVolumes that it
    /// mounts, whose folders are made.
    pub(super) fn user(&self, uid: &str, mounted: &[Below]) -> io::Result<Option<User>> {
        let Some(users) = &self.users else { return Ok(None) };
        lock(users).of(uid, mounted, &Folder::open(&self.volumes)?).map(Some)
    }

    /// A user for a program that is no pod's.
    pub(super) fn any_user(&self) -> io::Result<Option<User>> {
        self.users.as_ref().map(|users| lock(users).any()).transpose()
    }

    /// Whether every pod has a user of its own.
    pub(super) fn has_users(&self) -> bool {
        self.users.is_some()
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
        self.path.join("pods").join(plain(uid))
    }

    /// Where a pod's sockets are.
    pub(super) fn run(&self, uid: &str) -> PathBuf {
        let short: String = uid.chars().filter(char::is_ascii_hexdigit).take(12).collect();
        self.path.join("r").join(short)
    }

    /// Makes the folder behind a PersistentVolume.
    pub(super) fn make_volume(&self, name: &Below, user: Option<User>) -> io::Result<Folder> {
        Folder::open(&self.volumes)?.make(name, user)
    }

    /// Makes a pod's folder for sockets.
    pub(super) fn make_run(&self, uid: &str, user: Option<User>) -> io::Result<()> {
        let path = self.run(uid);
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = Below::name(name).map_err(io::Error::other)?;
        Folder::open(&self.path.join("r"))?.make(&name, user).map(drop)
    }

    /// Writes what a program finds at `/etc/passwd` and `/etc/group` beside its own folder; none where it is the
    /// cluster's user.
    pub(super) fn write_users(&self, root: &Path, user: Option<User>) -> io::Result<Option<[PathBuf; 2]>> {
        let Some(user) = user else { return Ok(None) };
        let machine = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let texts = user.texts(&machine("/etc/passwd"), &machine("/etc/group"), root);
        let paths = ["passwd", "group"].map(|name| root.with_file_name(name));
        for (path, text) in paths.iter().zip(texts) {
            fs::write(path, text)?;
            self.show(path, 0o600, Some(user))?;
        }
        Ok(Some(paths))
    }

    fn passage(&self) -> u32 {
        if self.users.is_some() { 0o711 } else { 0o700 }
    }

    /// Makes a folder that programs may pass through, and in which they change nothing.
    pub(super) fn make_passage(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(self.passage()).create(path)
    }

    /// Lets the programs of a user read a file or a folder that stays the cluster's, in a folder of the cluster's.
    pub(super) fn show(&self, path: &Path, mode: u32, user: Option<User>) -> io::Result<()> {
        show(fs::File::open(path)?, mode, user)
    }

    /// Lets all programs read a file that stays the cluster's.
    pub(super) fn show_all(&self, path: &Path) -> io::Result<()> {
        let mode = if self.users.is_some() { 0o644 } else { 0o600 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    /// Removes the folders of a pod.
    pub(super) fn forget(&self, uid: &str) {
        for folder in [self.pod(uid), self.run(uid)] {
            remove(&folder);
        }
        if let Some(users) = &self.users {
            lock(users).forget(uid);
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

/// The uid of a pod as a name. The API server makes uids of letters, digits and dashes.
fn plain(uid: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    format!("{:_<1}", uid.replace(|c| !is_plain(c), "_"))
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
        clear_one(&entry.path());
    }
}

/// Removes the folder of a cluster that has ended, with the shims that did not end with it.
pub(super) fn clear_one(home: &Path) {
    for pid in shims(home) {
        tracing::warn!(?pid, "ends a process that a cluster has left behind");
        // It may end at this moment.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    remove(home);
}

/// The shims of a cluster that live.
pub(super) fn shims(home: &Path) -> Vec<rustix::process::Pid> {
    let written = fs::read_dir(home.join("shims")).into_iter().flatten().flatten();
    let living = written.filter_map(|shim| {
        let pid = shim.file_name().to_str()?.parse::<i32>().ok()?;
        let written = fs::read_to_string(shim.path()).ok()?;
        let pid = rustix::process::Pid::from_raw(pid)?;
        (launch::started(pid.as_raw_nonzero().get().unsigned_abs())? == written).then_some(pid)
    });
    living.collect()
}

fn remove(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(folder = %folder.display(), %error, "a folder of processes is left behind");
        }
        _ => {}
    }
}
