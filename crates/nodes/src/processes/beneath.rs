//! Paths below folders that a program owns.
//!
//! A program may replace every folder of its own by a link, at any moment. So a path that a pod's spec names is no string
//! that is joined to another: it is a [`Below`], a list of plain names, and is walked from a [`Folder`], which is held
//! open, by a call that follows no link (`openat2` with `RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS` and
//! `RESOLVE_NO_MAGICLINKS`; name by name with `O_NOFOLLOW` where the kernel has no such call). What is made or found is
//! given away, shown, read and written through its descriptor.
//!
//! Invariants: nothing outside of a folder is opened, made or changed through it, whatever its owner does meanwhile; a
//! [`Below`] has at least one name, and none of its names is empty, `.` or `..` or has a slash or a NUL. Not here: which
//! folders there are (`home`), and what is in them (`volumes`).

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::users::User;

/// How deep the folders of a volume may lie in each other where all of it is given to another user.
const DEEPEST: usize = 128;

/// A path below a folder: plain names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Below(Vec<String>);

impl Below {
    /// A relative path.
    ///
    /// # Errors
    /// In words, when it is no path below a folder.
    pub(super) fn new(text: &str) -> Result<Below, String> {
        Below::parse(text).map_err(|why| format!("the path {text:?} {why}"))
    }

    /// An absolute path of a container, which is one below its root folder. A slash at its end says nothing.
    ///
    /// # Errors
    /// In words, when it is none.
    pub(super) fn of_container(text: &str) -> Result<Below, String> {
        let relative = text.strip_prefix('/').unwrap_or(text);
        let relative = relative.strip_suffix('/').unwrap_or(relative);
        Below::parse(relative).map_err(|why| format!("the path {text:?} {why}"))
    }

    fn parse(text: &str) -> Result<Below, &'static str> {
        if text.is_empty() {
            return Err("names nothing below the folder");
        }
        if text.contains('\0') {
            return Err("has a NUL character");
        }
        if text.starts_with('/') {
            return Err("is absolute");
        }
        if text.split('/').any(|name| name == "..") {
            return Err("leads up with \"..\"");
        }
        if text.split('/').any(str::is_empty) {
            return Err("has an empty name: two slashes in a row, or one at its end");
        }
        // A dot leads nowhere.
        let names = text.split('/').filter(|name| *name != ".").map(str::to_owned);
        let below = Below(names.collect());
        match below.0.is_empty() {
            true => Err("names nothing below the folder"),
            false => Ok(below),
        }
    }

    /// A single name.
    ///
    /// # Errors
    /// In words, when it is none.
    pub(super) fn name(text: &str) -> Result<Below, String> {
        match text.contains('/') {
            true => Err(format!("{text:?} is a path, no name")),
            false => Below::new(text),
        }
    }

    /// Names as a path; none when there are none.
    pub(super) fn of(names: &[String]) -> Option<Below> {
        (!names.is_empty()).then(|| Below(names.to_vec()))
    }

    /// Names of the cluster's own, which are plain.
    pub(super) fn own(names: &[&str]) -> Below {
        debug_assert!(names.iter().all(|name| Below::name(name).is_ok()), "{names:?}");
        Below(names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// This path in another.
    pub(super) fn after(&self, outer: &Below) -> Below {
        Below([outer.0.as_slice(), &self.0].concat())
    }

    /// The path from an outer one, if it lies in that: empty when it is the same.
    pub(super) fn from<'a>(&'a self, outer: &Below) -> Option<&'a [String]> {
        self.0.strip_prefix(outer.0.as_slice())
    }

    /// The folder in which it lies, if that is not the first one; and its own name.
    pub(super) fn split(&self) -> (Option<Below>, &str) {
        let (name, folder) = self.0.split_last().expect("a path has a name");
        (Below::of(folder), name)
    }

    pub(super) fn first(&self) -> &str {
        &self.0[0]
    }

    pub(super) fn text(&self) -> String {
        self.0.join("/")
    }
}

/// A folder, held open.
#[derive(Debug)]
pub(super) struct Folder {
    file: OwnedFd,
    /// Where it was found; for links to it and for words.
    path: PathBuf,
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Folder {
    /// Opens a folder. Only the cluster may change the folders in which it lies; it itself is no link.
    pub(super) fn open(path: &Path) -> io::Result<Folder> {
        let file = fs::openat(CWD, path, FOLDER, Mode::empty())?;
        Ok(Folder {
            file,
            path: path.to_owned(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens what lies below, following no link.
    fn find(&self, below: &Below, flags: OFlags) -> Result<OwnedFd, Errno> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::ResolveFlags;
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match fs::openat2(&self.file, below.text(), flags, Mode::empty(), within) {
                // Kernels before 5.6, and filters of system calls that do not know it.
                Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
                done => return done,
            }
        }
        self.walk(below, flags)
    }

    /// The same, name by name.
    fn walk(&self, below: &Below, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (folder, name) = below.split();
        let mut at = None;
        for name in folder.iter().flat_map(|folder| &folder.0) {
            at = Some(fs::openat(
                at.as_ref().unwrap_or(&self.file),
                name,
                FOLDER,
                Mode::empty(),
            )?);
        }
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(at.as_ref().unwrap_or(&self.file), name, flags, Mode::empty())
    }

    /// The folder at a path below.
    pub(super) fn folder(&self, below: &Below) -> io::Result<Folder> {
        let file = self.find(below, FOLDER).map_err(|error| told(error, below))?;
        Ok(Folder {
            file,
            path: self.path.join(below.text()),
        })
    }

    /// Whether there is anything at a path below.
    ///
    /// # Errors
    /// When a link is on the way or in its place.
    pub(super) fn has(&self, below: &Below) -> io::Result<bool> {
        let (folder, name) = below.split();
        let folder = match folder.map(|folder| self.find(&folder, FOLDER)).transpose() {
            Err(Errno::NOENT) => return Ok(false),
            folder => folder.map_err(|error| told(error, below))?,
        };
        let at = folder.as_ref().unwrap_or(&self.file);
        match fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => Err(told(Errno::LOOP, below)),
            found => found.map(|_| true).map_err(|error| told(error, below)),
        }
    }

    /// The folder at a path below, made with all that is missing on the way. What is made belongs to this user.
    pub(super) fn make(&self, below: &Below, user: Option<User>) -> io::Result<Folder> {
        let mut at: Option<Folder> = None;
        for name in &below.0 {
            let outer = at.as_ref().unwrap_or(self);
            let is_new = match fs::mkdirat(&outer.file, name, Mode::RWXU) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(told(error, below)),
            };
            let file = fs::openat(&outer.file, name, FOLDER, Mode::empty()).map_err(|error| told(error, below))?;
            let inner = Folder {
                path: outer.path.join(name),
                file,
            };
            // In a folder of the program's another folder may stand there by now: only one of the cluster's is given.
            if is_new && fs::fstat(&inner.file)?.st_uid == rustix::process::geteuid().as_raw() {
                inner.give(user)?;
            }
            at = Some(inner);
        }
        at.ok_or_else(|| io::Error::other("a path has a name"))
    }

    /// Makes the folder this user's own.
    pub(super) fn give(&self, user: Option<User>) -> io::Result<()> {
        match user {
            Some(user) => Ok(fs::fchown(&self.file, Some(user.uid()), Some(user.gid()))?),
            None => Ok(()),
        }
    }

    /// Lets a user read the folder, which stays the cluster's.
    pub(super) fn show(&self, user: Option<User>) -> io::Result<()> {
        show(&self.file, 0o700, user)
    }

    pub(super) fn owner(&self) -> io::Result<u32> {
        Ok(fs::fstat(&self.file)?.st_uid)
    }

    /// A link at a path below, whose folders are made as this user's.
    pub(super) fn link(&self, below: &Below, target: &Path, user: Option<User>) -> io::Result<()> {
        let (folder, name) = below.split();
        let folder = folder.map(|folder| self.make(&folder, user)).transpose()?;
        let at = folder.as_ref().unwrap_or(self);
        fs::symlinkat(target, &at.file, name).map_err(|error| told(error, below))
    }

    /// The first bytes of a file below; nothing else than a file is opened for it. `owner`: whose it has to be.
    pub(super) fn read(&self, below: &Below, most: u64, owner: Option<User>) -> io::Result<Vec<u8>> {
        // A named pipe without a writer would be waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.find(below, flags).map_err(|error| told(error, below))?);
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other(format!("{} is no file", below.text())));
        }
        // A hard link to the file of another user is no file of the program.
        if owner.is_some_and(|owner| owner.uid().as_raw() != found.uid()) {
            return Err(io::Error::other(format!("{} belongs to another user", below.text())));
        }
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Makes a file below say this. A reader gets all of the old text or all of the new one; the user may read it, with
    /// the rights that a mode gives an owner, and the file stays the cluster's.
    pub(super) fn write(&self, below: &Below, content: &[u8], mode: u32, user: Option<User>) -> io::Result<()> {
        const NEW: &str = ".kubewright-new";
        let (folder, name) = below.split();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = folder.map(|folder| self.folder(&folder)).transpose()?;
        let at = &folder.as_ref().unwrap_or(self).file;
        // One that a killed cluster has left.
        let _ = fs::unlinkat(at, NEW, AtFlags::empty());
        let mut file = File::from(fs::openat(at, NEW, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(content)?;
        show(&file, mode, user)?;
        Ok(fs::renameat(at, NEW, at, name)?)
    }

    /// The names in the folder, with whether each is a file.
    pub(super) fn entries(&self) -> io::Result<Vec<(String, bool)>> {
        let mut all = Vec::new();
        for entry in Dir::read_from(&self.file)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                let found = fs::statat(&self.file, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                all.push((name, FileType::from_raw_mode(found.st_mode) == FileType::RegularFile));
            }
        }
        Ok(all)
    }

    pub(super) fn remove_file(&self, name: &str) -> io::Result<()> {
        Ok(fs::unlinkat(&self.file, name, AtFlags::empty())?)
    }

    /// Makes the folder and all in it the cluster's, for everybody to read. Nothing of the user who has made it runs any
    /// more.
    ///
    /// # Errors
    /// When there is anything but folders and files, and when something belongs to anybody else.
    pub(super) fn take_all(&self, from: User) -> io::Result<()> {
        self.take_tree(from, 0)
    }

    fn take_tree(&self, from: User, depth: usize) -> io::Result<()> {
        if depth > DEEPEST {
            return Err(io::Error::other("its folders lie too deep in each other"));
        }
        for (name, _) in self.entries()? {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = fs::openat(&self.file, &name, flags, Mode::empty())?;
            let found = fs::fstat(&file)?;
            let kind = FileType::from_raw_mode(found.st_mode);
            if found.st_uid != from.number() || !matches!(kind, FileType::Directory | FileType::RegularFile) {
                return Err(io::Error::other(format!(
                    "{name} is no file or folder of the program's own"
                )));
            }
            if kind == FileType::Directory {
                let path = self.path.join(&name);
                Folder { file, path }.take_tree(from, depth + 1)?;
            } else {
                take(&file, 0o644)?;
            }
        }
        take(&self.file, 0o755)
    }

    /// Gives the folder and all in it that belongs to one user to another. Links are given, not what they name; a hard
    /// link to a file of somebody else stays that user's.
    pub(super) fn give_all(&self, from: u32, to: User) -> io::Result<()> {
        self.give_tree(from, to, 0)?;
        self.give(Some(to))
    }

    fn give_tree(&self, from: u32, to: User, depth: usize) -> io::Result<()> {
        if depth > DEEPEST {
            return Err(io::Error::other("its folders lie too deep in each other"));
        }
        for entry in Dir::read_from(&self.file)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let found = fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if found.st_uid != from {
                continue;
            }
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                let inner = Folder {
                    file: fs::openat(&self.file, name, FOLDER, Mode::empty())?,
                    path: self.path.join(&*name.to_string_lossy()),
                };
                inner.give_tree(from, to, depth + 1)?;
                inner.give(Some(to))?;
            } else {
                let (user, group) = (Some(to.uid()), Some(to.gid()));
                fs::chownat(&self.file, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
        Ok(())
    }
}

/// Lets a user read a file or a folder, as its group; it stays the cluster's. The owner's rights in a mode hold for the
/// user, who changes nothing; others read nothing.
pub(super) fn show(file: impl std::os::fd::AsFd, mode: u32, user: Option<User>) -> io::Result<()> {
    let of_owner = mode >> 6 & 0o7;
    let of_group = if user.is_some() { of_owner & 0o5 } else { 0 };
    if let Some(user) = user {
        fs::fchown(&file, None, Some(user.gid()))?;
    }
    Ok(fs::fchmod(
        &file,
        Mode::from_raw_mode((of_owner << 6 | of_group << 3) as _),
    )?)
}

fn take(file: &OwnedFd, mode: u32) -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    fs::fchown(file, Some(user), Some(group))?;
    Ok(fs::fchmod(file, Mode::from_raw_mode(mode as _))?)
}

/// An error in words: a link is the one that says least by itself.
fn told(error: Errno, below: &Below) -> io::Error {
    let path = below.text();
    match error {
        Errno::LOOP => io::Error::other(format!("the path {path:?} leads through a link, which is not followed")),
        Errno::NOTDIR => io::Error::other(format!(
            "the path {path:?} leads through a link or a file, which is no folder"
        )),
        error => io::Error::new(
            io::Error::from(error).kind(),
            format!("the path {path:?}: {}", io::Error::from(error)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn which_paths_are_below() {
        let check = |text: &str, expected: &str| {
            let (Ok(said) | Err(said)) = Below::new(text).map(|below| below.text());
            assert_eq!(said, expected);
        };
        check("a", "a");
        check("a/b.c/..d", "a/b.c/..d");
        check("./a/./b", "a/b");
        check("", "the path \"\" names nothing below the folder");
        check(".", "the path \".\" names nothing below the folder");
        check("/etc", "the path \"/etc\" is absolute");
        check("..", "the path \"..\" leads up with \"..\"");
        check("a/../../b", "the path \"a/../../b\" leads up with \"..\"");
        check(
            "a//b",
            "the path \"a//b\" has an empty name: two slashes in a row, or one at its end",
        );
        check(
            "a/",
            "the path \"a/\" has an empty name: two slashes in a row, or one at its end",
        );
        check("a\0/b", "the path \"a\\0/b\" has a NUL character");
        let check = |text: &str, expected: Option<&str>| {
            let found = Below::of_container(text).ok().map(|below| below.text());
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("/dev/log", Some("dev/log"));
        check("/data/", Some("data"));
        check("relative/x", Some("relative/x"));
        for refused in ["", "/", "//", "/../etc", "/a/../../b", "//etc", "/a//b", "/a\0"] {
            check(refused, None);
        }
        assert!(Below::name("a/b").is_err());
        assert!(Below::name("..").is_err());
    }

    /// A secret outside of a folder, and every way that its owner can lay to it. `walk` is what kernels without
    /// `openat2` do, and gives the same answers.
    #[test]
    fn nothing_leads_out() {
        let outer = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(outer.path().join("out/deep")).expect("folders");
        std::fs::write(outer.path().join("out/secret"), "TOPSECRET").expect("a file");
        let inner = outer.path().join("in");
        std::fs::create_dir_all(inner.join("real")).expect("folders");
        std::fs::write(inner.join("real/file"), "own").expect("a file");
        symlink("../out", inner.join("up")).expect("a link");
        symlink(outer.path().join("out"), inner.join("absolute")).expect("a link");
        symlink("../../out/secret", inner.join("real/secret")).expect("a link");
        symlink("real", inner.join("inside")).expect("a link");
        symlink("/proc/self/root", inner.join("magic")).expect("a link");
        let folder = Folder::open(&inner).expect("a folder");
        let check = |path: &str, expected: Option<&str>| {
            let below = Below::new(path).expect("a path");
            let read = folder.read(&below, 100, None).ok();
            assert_eq!(read.as_deref(), expected.map(str::as_bytes), "{path}");
            let walked = folder.walk(&below, OFlags::RDONLY).map(File::from).ok();
            let walked = walked.filter(|file| file.metadata().is_ok_and(|found| found.is_file()));
            assert_eq!(walked.is_some(), expected.is_some(), "{path}");
        };
        check("real/file", Some("own"));
        for path in [
            "up/secret",
            "absolute/secret",
            "real/secret",
            "inside/file",
            "magic/etc/passwd",
            "real",
            "no",
        ] {
            check(path, None);
        }
        let before = tree(outer.path());
        for path in [
            "up/deep/made",
            "absolute/made",
            "inside/made",
            "real/file/made",
            "real/secret",
        ] {
            let below = Below::new(path).expect("a path");
            assert!(folder.make(&below, None).is_err(), "{path}");
            assert!(folder.link(&below, Path::new("/"), None).is_err(), "{path}");
            assert!(
                folder.write(&below, b"x", 0o600, None).is_err() || path == "real/secret",
                "{path}"
            );
        }
        assert!(folder.has(&Below::own(&["up"])).is_err());
        assert!(folder.has(&Below::own(&["up", "deep"])).is_err());
        assert!(!folder.has(&Below::own(&["no", "thing"])).expect("no link"));
        assert!(folder.has(&Below::own(&["real", "file"])).expect("no link"));
        // The link itself was replaced by a file, and what it named is as it was.
        std::fs::remove_file(inner.join("real/secret")).expect("a file");
        symlink("../../out/secret", inner.join("real/secret")).expect("a link");
        assert_eq!(tree(outer.path()), before);
    }

    /// All paths, with what each of them is, and says.
    fn tree(folder: &Path) -> Vec<String> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let found = std::fs::symlink_metadata(&path).expect("it is there");
            let text = if found.is_file() {
                std::fs::read_to_string(&path).unwrap_or_default()
            } else {
                String::new()
            };
            all.push(format!("{} {:o} {} {text}", path.display(), found.mode(), found.uid()));
            if found.is_dir() {
                all.extend(tree(&path));
            }
        }
        all.sort();
        all
    }

    #[test]
    fn only_so_much_of_a_file_is_read_and_no_pipe_is_waited_for() {
        let outer = tempfile::tempdir().expect("a folder");
        let file = File::create(outer.path().join("endless")).expect("a file");
        file.set_len(1 << 40).expect("a sparse file");
        let folder = Folder::open(outer.path()).expect("a folder");
        assert_eq!(
            folder.read(&Below::own(&["endless"]), 10, None).expect("a file").len(),
            10
        );
        let made = std::process::Command::new("mkfifo")
            .arg(outer.path().join("pipe"))
            .status();
        if made.is_ok_and(|made| made.success()) {
            assert!(folder.read(&Below::own(&["pipe"]), 10, None).is_err());
        }
    }
}
