//! Which files were saved.
//!
//! [`FileKind::of`] classifies a path; a thread of the operating system's watcher sends the paths of events, and
//! [`Watcher::next`] returns them together, because editors save one file in several steps.
//!
//! Invariants: a file with unchanged content (a `touch`, a build script that writes the same again) does not count as
//! saved; files that cargo and git write are ignored. Packages that the operator is built from are watched wherever they
//! are on this machine; cargo says where ([`Watcher::add_packages`]).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use kubewright_codegen::{Diagnostic, Place, codes};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// Saved files are returned when there was no event for this time.
const QUIET_PERIOD: Duration = Duration::from_millis(40);
/// They are returned after this time at the latest.
const MAX_DELAY: Duration = Duration::from_millis(400);

/// What a saved file is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    /// The operator is built from it.
    Source,
    /// A definition below `config/crd/bases`.
    Definition,
    /// A sample below `config/samples`.
    Sample,
}

impl FileKind {
    /// By the path within the project; `None` for a file that is ignored.
    pub(crate) fn of(path: &Path) -> Option<FileKind> {
        let parts: Vec<&str> = path
            .components()
            .map(|part| match part {
                Component::Normal(name) => name.to_str(),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let (name, folders) = parts.split_last()?;
        if temporary(name) || folders.iter().any(|folder| IGNORED.contains(folder)) {
            return None;
        }
        // The only hidden file that counts.
        if parts == [".cargo", "config.toml"] {
            return Some(FileKind::Source);
        }
        if parts.iter().any(|part| part.starts_with('.')) {
            return None;
        }
        let yaml = [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending));
        match folders {
            ["config", "crd", "bases", ..] if yaml => Some(FileKind::Definition),
            ["config", "samples", ..] if yaml => Some(FileKind::Sample),
            // Not part of the operator, or not read by cargo.
            [
                "config" | "dist" | "docs" | "hack" | "tests" | "benches" | "examples" | "bin",
                ..,
            ] => None,
            // Any file there may be included with `include_str!`.
            [first, ..] if ["src", "api"].contains(first) => Some(FileKind::Source),
            _ if name.ends_with(".rs") || *name == "Cargo.toml" || *name == "rust-toolchain.toml" => {
                Some(FileKind::Source)
            }
            _ => None,
        }
    }
}

/// Folders that are ignored wherever they are, because tools write to them.
const IGNORED: &[&str] = &["target", "node_modules", ".git", ".kubewright"];

/// Files that editors make while they save.
fn temporary(name: &str) -> bool {
    name.ends_with('~')
        || name.ends_with(".swp")
        || name.ends_with(".swx")
        || name.ends_with(".tmp")
        || name.ends_with(".bak")
        || name.ends_with("___")
        || name.starts_with(".#")
        || name.starts_with('#')
        // vim creates this file to test whether it may write.
        || name == "4913"
}

/// Saved files, by kind.
pub(crate) type Saved = BTreeMap<FileKind, BTreeSet<PathBuf>>;

/// Watches a project.
pub(crate) struct Watcher {
    root: PathBuf,
    /// The folders of further packages, within the project or elsewhere.
    packages: BTreeSet<PathBuf>,
    watcher: RecommendedWatcher,
    events: mpsc::UnboundedReceiver<PathBuf>,
    contents: BTreeMap<PathBuf, Option<u64>>,
    /// Paths that are not returned yet, and when they must be.
    pending: BTreeSet<PathBuf>,
    deadline: Instant,
}

impl Watcher {
    /// Begins to watch.
    ///
    /// # Errors
    /// KWR0707 when the system refuses.
    pub(crate) fn start(root: &Path) -> Result<Watcher, Diagnostic> {
        let cannot = |why| cannot(root, why);
        // Symbolic links in the path would make the paths of events differ.
        let root = root.canonicalize().map_err(|why| cannot(notify::Error::io(why)))?;
        let (send, events) = mpsc::unbounded_channel();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| match event {
            Ok(event) if !matches!(event.kind, EventKind::Access(_)) => {
                for path in event.paths {
                    // The receiver is gone at the end.
                    let _ = send.send(path);
                }
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the watcher of files reports a fault"),
        })
        .map_err(cannot)?;
        let mut watching = Watcher {
            root,
            packages: BTreeSet::new(),
            watcher,
            events,
            contents: BTreeMap::new(),
            pending: BTreeSet::new(),
            deadline: Instant::now(),
        };
        let root = watching.root.clone();
        watching.watch_package(&root).map_err(cannot)?;
        watching.record(&root, None);
        Ok(watching)
    }

    /// Watches these packages, too. A file that was saved there after the build began counts as saved.
    ///
    /// # Errors
    /// KWR0707 when the system refuses.
    pub(crate) fn add_packages(&mut self, packages: &BTreeSet<PathBuf>, began: SystemTime) -> Result<(), Diagnostic> {
        for package in packages {
            // A package that was removed meanwhile cannot change.
            let Ok(package) = package.canonicalize() else { continue };
            if package == self.root || !self.packages.insert(package.clone()) {
                continue;
            }
            if !package.starts_with(&self.root) {
                self.watch_package(&package).map_err(|why| cannot(&package, why))?;
            }
            self.record(&package, Some(began));
        }
        Ok(())
    }

    /// Watches a package: its folder, and the folders in it that are not ignored.
    fn watch_package(&mut self, folder: &Path) -> notify::Result<()> {
        self.watcher.watch(folder, RecursiveMode::NonRecursive)?;
        for inner in std::fs::read_dir(folder).map_err(notify::Error::io)?.flatten() {
            self.watch_folder(&inner.path())?;
        }
        Ok(())
    }

    /// Watches a folder with everything in it, unless it is ignored.
    fn watch_folder(&mut self, folder: &Path) -> notify::Result<()> {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let hidden = name.starts_with('.') && name != ".cargo";
        if hidden || IGNORED.contains(&name) || !folder.is_dir() {
            return Ok(());
        }
        self.watcher.watch(folder, RecursiveMode::Recursive)
    }

    /// Records the contents of the files, so that a save counts only if it changes something. Files that were saved after
    /// `since` have changed.
    fn record(&mut self, folder: &Path, since: Option<SystemTime>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !IGNORED.contains(&name) && !name.starts_with('.') => {
                    self.record(&path, since);
                }
                Ok(kind) if kind.is_file() && self.kind_of(&path).is_some() => {
                    let saved = entry.metadata().and_then(|about| about.modified());
                    if self.contents.contains_key(&path) {
                        continue;
                    }
                    if since.is_some_and(|since| saved.is_ok_and(|saved| saved > since)) {
                        self.pending.insert(path);
                        self.deadline = Instant::now() + MAX_DELAY;
                    } else {
                        let content = content(&path);
                        self.contents.insert(path, content);
                    }
                }
                _ => {}
            }
        }
    }

    fn kind_of(&self, path: &Path) -> Option<FileKind> {
        let within = |folder: &Path| path.strip_prefix(folder).ok().and_then(FileKind::of);
        let source = |package: &PathBuf| within(package).filter(|kind_of| *kind_of == FileKind::Source);
        within(&self.root).or_else(|| self.packages.iter().find_map(source))
    }

    /// Waits for saved files. Cancel safe: pending paths are kept for the next call.
    pub(crate) async fn next(&mut self) -> Saved {
        loop {
            if self.pending.is_empty() {
                let Some(first) = self.events.recv().await else {
                    return std::future::pending().await;
                };
                self.pending.insert(first);
                self.deadline = Instant::now() + MAX_DELAY;
            }
            loop {
                let quiet = (Instant::now() + QUIET_PERIOD).min(self.deadline);
                match timeout_at(quiet, self.events.recv()).await {
                    Ok(Some(path)) => {
                        self.pending.insert(path);
                    }
                    Ok(None) | Err(_) => break,
                }
            }
            let paths = std::mem::take(&mut self.pending);
            let saved = self.changed(paths);
            if !saved.is_empty() {
                return saved;
            }
        }
    }

    /// The files among these paths whose contents changed.
    fn changed(&mut self, paths: BTreeSet<PathBuf>) -> Saved {
        let mut saved = Saved::new();
        for path in paths {
            if path.is_dir() {
                let new = path
                    .parent()
                    .is_some_and(|above| above == self.root || self.packages.contains(above));
                if new && let Err(error) = self.watch_folder(&path) {
                    tracing::warn!(%error, folder = %path.display(), "cannot watch a new folder");
                }
                continue;
            }
            let Some(kind_of) = self.kind_of(&path) else { continue };
            let now = content(&path);
            let before = self.contents.insert(path.clone(), now).flatten();
            if before != now {
                let short = path.strip_prefix(&self.root).map(Path::to_path_buf).unwrap_or(path);
                saved.entry(kind_of).or_default().insert(short);
            }
        }
        saved
    }
}

fn cannot(folder: &Path, why: notify::Error) -> Diagnostic {
    Diagnostic::new(codes::dev::WATCH, "cannot watch the project's files")
        .at(Place::file(folder.display().to_string()))
        .because(why)
        .fix("on Linux the limits are fs.inotify.max_user_watches and max_user_instances (sysctl)")
}

/// A fingerprint of a file's content; none when there is no such file.
fn content(path: &Path) -> Option<u64> {
    let bytes = crate::regular::bytes(path).ok()?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_count_and_files_of_tools_do_not() {
        let check =
            |path: &str, expected: Option<FileKind>| assert_eq!(FileKind::of(Path::new(path)), expected, "{path}");
        for path in [
            "src/main.rs",
            "src/controller/guestbook_controller.rs",
            "src/banner.txt",
            "api/src/v1/guestbook_types.rs",
            "api/Cargo.toml",
            "Cargo.toml",
            "build.rs",
            "crates/more/src/lib.rs",
            ".cargo/config.toml",
        ] {
            check(path, Some(FileKind::Source));
        }
        check("config/samples/webapp_v1_guestbook.yaml", Some(FileKind::Sample));
        check("config/crd/bases/a.yaml", Some(FileKind::Definition));
        for path in [
            "target/debug/build/x/out/a.rs",
            "api/target/a.rs",
            ".git/index",
            ".kubewright/kubeconfig",
            "src/.main.rs.swp",
            "src/main.rs~",
            "src/4913",
            "src/.#main.rs",
            "src/#main.rs#",
            "src/main.rs___jb_tmp___",
            "tests/guestbook.rs",
            "config/rbac/role.yaml",
            "config/samples/kustomization.yaml~",
            "README.md",
            "Cargo.lock",
            "dist/install.yaml",
        ] {
            check(path, None);
        }
    }

    #[tokio::test]
    async fn a_save_is_returned_once_and_a_touch_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("src");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::create_dir_all(folder.path().join("target")).unwrap();
        let lib = source.join("lib.rs");
        std::fs::write(&lib, "// one").unwrap();
        let mut watcher = Watcher::start(folder.path()).unwrap();
        // Only the last of these is a change.
        std::fs::write(&lib, "// one").unwrap();
        std::fs::write(folder.path().join("target/a.rs"), "").unwrap();
        std::fs::write(source.join("lib.rs~"), "").unwrap();
        std::fs::write(source.join("lib.new"), "// two").unwrap();
        std::fs::rename(source.join("lib.new"), &lib).unwrap();
        let saved = watcher.next().await;
        assert_eq!(saved[&FileKind::Source], BTreeSet::from([PathBuf::from("src/lib.rs")]));
        assert_eq!(saved.len(), 1);
        // The call may be cancelled; the save is not lost.
        std::fs::write(&lib, "// three").unwrap();
        // (On a slow machine it may be returned already.)
        let saved = match tokio::time::timeout(QUIET_PERIOD / 2, watcher.next()).await {
            Ok(saved) => saved,
            Err(_) => watcher.next().await,
        };
        assert_eq!(saved[&FileKind::Source].len(), 1);
        // Folders that come later are watched, too.
        std::fs::create_dir_all(source.join("webhook")).unwrap();
        std::fs::remove_file(&lib).unwrap();
        let saved = watcher.next().await;
        assert!(saved[&FileKind::Source].contains(Path::new("src/lib.rs")), "{saved:?}");
    }

    #[tokio::test]
    async fn packages_elsewhere_count_as_far_as_they_are_built() {
        let folder = tempfile::tempdir().unwrap();
        let (project, other) = (folder.path().join("guestbook"), folder.path().join("words"));
        let inner = project.join("crates/more");
        for folder in [&project, &other, &inner] {
            std::fs::create_dir_all(folder.join("src")).unwrap();
        }
        let [lib, text] = [other.join("src/lib.rs"), inner.join("src/text.txt")];
        std::fs::write(&lib, "// one").unwrap();
        let mut watcher = Watcher::start(&project).unwrap();
        let packages = BTreeSet::from([project.clone(), other.clone(), inner]);
        watcher
            .add_packages(&packages, SystemTime::now() + Duration::from_secs(60))
            .unwrap();
        std::fs::create_dir_all(other.join("config/samples")).unwrap();
        std::fs::write(other.join("config/samples/a.yaml"), "a: b").unwrap();
        std::fs::write(&lib, "// two").unwrap();
        let saved = watcher.next().await;
        assert_eq!(saved[&FileKind::Source], BTreeSet::from([lib.canonicalize().unwrap()]));
        assert_eq!(saved.len(), 1);
        std::fs::write(text, "included").unwrap();
        let saved = watcher.next().await;
        assert!(
            saved[&FileKind::Source].contains(Path::new("crates/more/src/text.txt")),
            "{saved:?}"
        );

        // Saved during the build that reported the package.
        let mut watcher = Watcher::start(&project).unwrap();
        watcher.add_packages(&packages, SystemTime::UNIX_EPOCH).unwrap();
        assert!(watcher.next().await[&FileKind::Source].contains(&lib.canonicalize().unwrap()));
    }
}
