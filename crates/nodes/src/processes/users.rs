//! The users of pods: where root has started the cluster, every pod has one of its own.
//!
//! A user separates files, memory, environments and signals of pods without any namespace. Its number is one by chance
//! out of hundreds of millions that no distribution gives to anybody (systemd's `UIDS-GIDS`), so clusters that run at
//! the same time, or one after the other, have no users in common. A PersistentVolume remembers its user as the owner of
//! its folder: pods that mount it have that user, at the same time and later, and no other pod is given the number while
//! the folder is there.
//!
//! Invariants: two pods have the same user only if they mount the same PersistentVolume, or one that both may mount; a
//! number is not given again while a volume of this cluster belongs to it. Not here: what belongs to a user (`home`,
//! `volumes`), and how a program becomes it (`shim`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Gid, Uid};

use super::beneath::{Below, Folder};
use super::shim;

/// The numbers, best first: the second for containers in which only so many users exist.
const RANGES: [Range<u32>; 2] = [0x7000_0000..0x7ff0_0000, 20_000..60_000];
/// The user without rights that every system knows.
pub(super) const NOBODY: User = User(65_534);
/// The name of a pod's user and group in its own `/etc/passwd` and `/etc/group`: some programs do not start without one.
const NAME: &str = "pod";

/// A user, and the group of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct User(u32);

impl User {
    pub(super) fn number(self) -> u32 {
        self.0
    }

    pub(super) fn uid(self) -> Uid {
        Uid::from_raw(self.0)
    }

    pub(super) fn gid(self) -> Gid {
        Gid::from_raw(self.0)
    }

    /// Kills all processes of the user, and those that they start meanwhile.
    fn kill_all(self) {
        let is_own = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|found| found.uid() == self.0);
        for _ in 0..100 {
            let all = fs::read_dir("/proc").into_iter().flatten().flatten().filter(is_own);
            let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
            let pids: Vec<_> = pids.filter_map(rustix::process::Pid::from_raw).collect();
            for pid in &pids {
                // It may have ended meanwhile.
                let _ = rustix::process::kill_process(*pid, rustix::process::Signal::KILL);
            }
            if pids.is_empty() {
                return;
            }
        }
        tracing::warn!(
            user = self.0,
            "processes of a pod start others faster than they are killed"
        );
    }

    /// This machine's users and groups with this one: the texts of `/etc/passwd` and `/etc/group`.
    pub(super) fn texts(self, passwd: &str, group: &str, home: &Path) -> [String; 2] {
        let number = self.0;
        let with = |text: &str, line: String| match text.is_empty() || text.ends_with('\n') {
            true => format!("{text}{line}\n"),
            false => format!("{text}\n{line}\n"),
        };
        let user = format!("{NAME}:x:{number}:{number}::{}:/bin/sh", home.display());
        [with(passwd, user), with(group, format!("{NAME}:x:{number}:"))]
    }
}

/// The users of the pods of a cluster, by the uids of the pods.
#[derive(Debug)]
pub(super) struct Users {
    range: Range<u32>,
    /// Whether programs find the names of these users, in files that are mounted.
    have_names: bool,
    given: BTreeMap<String, User>,
}

impl Users {
    /// None where this process may not become another user.
    pub(super) fn new() -> Option<Users> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let map = |name: &str| fs::read_to_string(Path::new("/proc/self").join(name)).unwrap_or_default();
        let range = range(&map("uid_map"), &map("gid_map"))?;
        Some(Users {
            range,
            have_names: shim::may_mount(),
            given: BTreeMap::new(),
        })
    }

    /// The user of a pod that mounts these PersistentVolumes, whose folders become that user's; missing ones are made.
    ///
    /// A pod that lacks a name for its user has the one without rights that every system knows.
    ///
    /// # Errors
    /// When two of the volumes belong to different users and a pod of one of these is there.
    pub(super) fn of(&mut self, pod: &str, mounted: &[Below], volumes: &Folder, lacks_name: bool) -> io::Result<User> {
        let mut folders = Vec::new();
        for name in mounted {
            if volumes.has(name)? {
                folders.push(volumes.folder(name)?);
            }
        }
        let owners: Vec<u32> = folders.iter().map(Folder::owner).collect::<io::Result<_>>()?;
        let user = match self.given.get(pod) {
            Some(user) => *user,
            None if lacks_name => NOBODY,
            None => match owners.iter().find(|owner| self.range.contains(*owner)) {
                Some(owner) => User(*owner),
                None => self.fresh(volumes.path())?,
            },
        };
        let others = || {
            self.given
                .iter()
                .filter(|(name, _)| *name != pod)
                .map(|(_, user)| user.0)
        };
        let foreign = || folders.iter().zip(&owners).filter(|(_, owner)| **owner != user.0);
        for (folder, owner) in foreign() {
            if others().any(|other| other == *owner) {
                let path = folder.path().display();
                return Err(io::Error::other(format!(
                    "{path} is mounted by a pod with other volumes; programs of both would need two users"
                )));
            }
        }
        for (folder, owner) in foreign() {
            let is_of_pods = self.range.contains(owner) || *owner == NOBODY.0;
            let is_clusters = *owner == rustix::process::geteuid().as_raw();
            // Root's own is a copy that was put back, for example.
            if !is_of_pods && !is_clusters {
                let path = folder.path().display();
                return Err(io::Error::other(format!(
                    "{path} belongs to user {owner}, no pod's: give it to root (chown -R), and pods may have it"
                )));
            }
            folder.give_all(*owner, user)?;
        }
        for name in mounted {
            volumes.make(name, Some(user))?;
        }
        self.given.insert(pod.to_owned(), user);
        Ok(user)
    }

    fn fresh(&self, volumes: &Path) -> io::Result<User> {
        let owners = fs::read_dir(volumes).into_iter().flatten().flatten();
        let owners: BTreeSet<u32> = owners
            .filter_map(|entry| Some(entry.metadata().ok()?.uid()))
            .chain(self.given.values().map(|user| user.0))
            .collect();
        loop {
            let user = self.any()?;
            if !owners.contains(&user.0) {
                return Ok(user);
            }
        }
    }

    /// A random number of the range.
    pub(super) fn any(&self) -> io::Result<User> {
        let random = super::random()?;
        let count = u64::from(self.range.end - self.range.start);
        let number = u32::try_from(u64::from_be_bytes(random) % count).unwrap_or(0);
        Ok(User(self.range.start + number))
    }

    pub(super) fn have_names(&self) -> bool {
        self.have_names
    }

    /// Forgets a pod, with what may run of its user when the shim of a program was killed.
    pub(super) fn forget(&mut self, pod: &str) {
        let Some(user) = self.given.remove(pod) else { return };
        if RANGES[0].contains(&user.0) && !self.given.values().any(|other| *other == user) {
            user.kill_all();
        }
    }
}

/// The first range whose users and groups exist here. A system without user namespaces has no maps, and all numbers.
fn range(uids: &str, gids: &str) -> Option<Range<u32>> {
    let has = |map: &str, range: &Range<u32>| {
        let lines = map.lines().filter_map(|line| {
            let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().ok());
            let (first, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
            Some(first..first.saturating_add(count))
        });
        let (first, last) = (u64::from(range.start), u64::from(range.end - 1));
        map.is_empty()
            || lines
                .into_iter()
                .any(|line| line.contains(&first) && line.contains(&last))
    };
    RANGES.into_iter().find(|range| has(uids, range) && has(gids, range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_numbers_there_are() {
        let check = |map: &str, expected: Option<u32>| {
            assert_eq!(range(map, map).map(|range| range.start), expected, "{map}");
        };
        check("", Some(0x7000_0000));
        check("         0          0 4294967295\n", Some(0x7000_0000));
        check("0 100000 65536\n", Some(20_000));
        check("0 1000 1\n1 100000 65536\n", Some(20_000));
        check("0 1000 1\n", None);
    }

    #[test]
    fn what_a_program_finds_of_its_user() {
        let check = |passwd: &str, expected: &str| {
            let [users, groups] = User(7).texts(passwd, "", Path::new("/h"));
            assert_eq!(users, expected);
            assert_eq!(groups, "pod:x:7:\n");
        };
        check("", "pod:x:7:7::/h:/bin/sh\n");
        check(
            "root:x:0:0::/root:/bin/sh\n",
            "root:x:0:0::/root:/bin/sh\npod:x:7:7::/h:/bin/sh\n",
        );
        check("a:x:1:1::/:/bin/sh", "a:x:1:1::/:/bin/sh\npod:x:7:7::/h:/bin/sh\n");
    }

    #[test]
    fn pods_share_a_user_only_with_a_volume() {
        let Some(mut users) = Users::new() else {
            eprintln!("not root: users of pods were not tried");
            return;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let all = Folder::open(folder.path()).expect("a folder");
        let volume = |name: &str, owner: User| {
            let path = folder.path().join(name);
            fs::create_dir(&path).expect("a folder");
            fs::write(path.join("file"), "x").expect("a file");
            for path in [&path, &path.join("file")] {
                std::os::unix::fs::chown(path, Some(owner.0), Some(owner.0)).expect("root may");
            }
        };
        let owner = |path: &str| {
            fs::symlink_metadata(folder.path().join(path))
                .expect("it is there")
                .uid()
        };
        let name = |name: &str| Below::name(name).expect("a name");
        let one = users.of("one", &[], &all, false).expect("a user");
        let two = users.of("two", &[], &all, false).expect("a user");
        assert_ne!(one, two);
        assert_eq!(users.of("one", &[], &all, false).expect("a user"), one);
        volume("a", one);
        volume("b", users.any().expect("a user"));
        assert_eq!(users.of("three", &[name("a")], &all, false).expect("a user"), one);
        // All of a volume whose pods have gone becomes the new pod's, but what belongs to somebody else; links are not
        // followed. A volume that is in use stays.
        let host = folder.path().join("host");
        fs::write(&host, "root's").expect("a file");
        std::os::unix::fs::symlink(&host, folder.path().join("b/link")).expect("a link");
        std::os::unix::fs::lchown(folder.path().join("b/link"), Some(owner("b")), None).expect("root may");
        fs::hard_link(&host, folder.path().join("b/hard")).expect("root may");
        assert_eq!(
            users
                .of("four", &[name("a"), name("b"), name("new")], &all, false)
                .expect("a user"),
            one
        );
        for path in ["b/file", "b/link", "b", "new"] {
            assert_eq!(owner(path), one.0, "{path}");
        }
        assert_eq!((owner("host"), owner("b/hard")), (0, 0));
        volume("c", two);
        let refused = users.of("five", &[name("a"), name("c")], &all, false);
        assert!(refused.expect_err("two is there").to_string().contains("two users"));
        users.forget("two");
        // Its number is not given again while its files are there, and they are not anybody's.
        assert_eq!(owner("c/file"), two.0);
        assert_eq!(users.of("six", &[name("c")], &all, false).expect("a user"), two);
        // Where no user has a name, only the programs that need one share one.
        assert_eq!(users.of("eight", &[], &all, true).expect("a user"), NOBODY);
        assert_eq!(users.of("nine", &[name("e")], &all, true).expect("a user"), NOBODY);
        assert_eq!(owner("e"), NOBODY.0);
        assert_ne!(users.of("ten", &[], &all, false).expect("a user"), NOBODY);
        // What belongs to a real user of the machine is no pod's.
        volume("d", User(1000));
        assert!(users.of("seven", &[name("d")], &all, false).is_err());
    }
}
