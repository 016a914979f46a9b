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
    /// Where templates are; none where somebody else has taken the name.
    cache: Option<PathBuf>,
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
            cache: make_cache(&temp, if users.is_some() { 0o711 } else { 0o700 }),
            volumes,
            users,
            keeps_volumes: kept.is_some(),
            path,
        };
        // The mask of this process may have taken the way from the programs.
        fs::set_permissions(&home.path, fs::Permissions::from_mode(0o711))?;
        for folder in ["pods", "r"] {
            make_all(&home.path.join(folder), 0o711)?;
        }
        make_all(&home.volumes, 0o711)?;
        if let (Some(kept), Some(_)) = (kept, &home.users) {
            // Its programs are other users, which pass through the folder and can read only their own files in it.
            fs::set_permissions(kept, fs::Permissions::from_mode(0o711))?;
        }
        fs::write(
            home.path.join("owner"),
            launch::started(std::process::id()).unwrap_or_default(),
        )?;
        Ok(home)
    }

    /// The user of a pod's programs, if that is another than the cluster's; `mounted` are the PersistentVolumes that it
    /// mounts, whose folders are made.
    pub(super) fn user(&self, uid: &str, mounted: &[Below], lacks_name: bool) -> io::Result<Option<User>> {
        let Some(users) = &self.users else { return Ok(None) };
        let volumes = Folder::open(&self.volumes)?;
        lock(users).of(uid, mounted, &volumes, lacks_name).map(Some)
    }

    /// A user for a program that is no pod's.
    pub(super) fn any_user(&self) -> io::Result<Option<User>> {
        self.users.as_ref().map(|users| lock(users).any()).transpose()
    }

    /// Whether pods have users of their own.
    pub(super) fn has_users(&self) -> bool {
        self.users.is_some()
    }

    /// Whether these have names.
    pub(super) fn has_names(&self) -> bool {
        self.users.as_ref().is_some_and(|users| lock(users).have_names())
    }

    pub(super) fn cache(&self) -> Option<&Path> {
        self.cache.as_deref()
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
        make_all(path, self.passage())
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

/// The folder of templates, which is the cluster's own: programs of later clusters start from what is in it. Anybody may
/// take its name before; then there are no templates.
fn make_cache(temp: &Path, mode: u32) -> Option<PathBuf> {
    let path = temp.join(format!("kubewright-cache-{}", rustix::process::geteuid().as_raw()));
    let made = match fs::DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => fs::set_permissions(&path, fs::Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() && is_own(&found) && found.mode() & 0o022 == 0 => Ok(()),
            Ok(_) => Err(io::Error::other("it is not a folder of this user's own")),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    match made {
        Ok(()) => Some(path),
        Err(error) => {
            let cache = path.display();
            tracing::warn!(%cache, %error, "databases start without templates, which takes longer");
            None
        }
    }
}

fn is_own(found: &fs::Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}

/// Makes a folder, and those in which it lies, with a mode that the mask of this process does not narrow.
fn make_all(path: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_all(path.parent().ok_or(error)?, mode)?;
            make_all(path, mode)
        }
        Err(error) => Err(error),
    }
}

/// Removes the left-overs of killed clusters: shims that were killed with them, then their folders.
fn clear_up(temp: &Path) {
    for entry in fs::read_dir(temp).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let numbers = name.strip_prefix("kubewright-").and_then(|rest| rest.split_once('-'));
        let Some(pid) = numbers.and_then(|(pid, _)| pid.parse::<u32>().ok()) else {
            continue;
        };
        // Anybody may make a folder of this name: what is in it is not even looked at.
        if !entry.metadata().is_ok_and(|found| found.is_dir() && is_own(&found)) {
            continue;
        }
        let Ok(owner) = fs::read_to_string(entry.path().join("owner")) else {
            continue;
        };
        if launch::started(pid).is_some_and(|started| started == owner) {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Where everybody may write, a pod may leave folders with the names of a cluster's, for the next one to find.
    #[test]
    fn folders_of_others_are_left_alone() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: folders of other users were not tried");
            return;
        }
        let temp = tempfile::tempdir().expect("a folder");
        let (foreign, dead) = (temp.path().join("kubewright-0-7"), temp.path().join("kubewright-0-8"));
        let cache = temp.path().join("kubewright-cache-0");
        for folder in [&foreign, &dead, &cache] {
            fs::create_dir(folder).expect("a folder");
        }
        // Whoever reads this pipe waits for ever.
        let made = std::process::Command::new("mkfifo").arg(foreign.join("owner")).status();
        assert!(made.is_ok_and(|made| made.success()));
        fs::write(dead.join("owner"), "1").expect("a file");
        for folder in [&foreign, &cache] {
            std::os::unix::fs::chown(folder, Some(4711), None).expect("root may");
        }
        let (sender, receiver) = mpsc::channel();
        let path = temp.path().to_owned();
        std::thread::spawn(move || {
            clear_up(&path);
            sender.send(make_cache(&path, 0o711))
        });
        let found = receiver.recv_timeout(Duration::from_secs(60));
        assert_eq!(found.expect("it does not wait"), None);
        assert!(foreign.exists());
        assert!(!dead.exists());
        fs::remove_dir(&cache).expect("an empty folder");
        std::os::unix::fs::symlink(&foreign, &cache).expect("a link");
        assert_eq!(make_cache(temp.path(), 0o711), None);
        fs::remove_file(&cache).expect("a link");
        assert_eq!(make_cache(temp.path(), 0o711), Some(cache.clone()));
        assert_eq!(make_cache(temp.path(), 0o711), Some(cache));
    }

    #[test]
    fn uids_are_names() {
        let check = |uid: &str, expected: &str| assert_eq!(plain(uid), expected, "{uid}");
        check("0a-1b", "0a-1b");
        check("../x", "___x");
        check("/etc", "_etc");
        check("", "_");
    }
}
