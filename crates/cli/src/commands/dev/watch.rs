//! Which files were saved.
//!
//! [`Interest::of`] decides about a path; a thread of the operating system's watcher collects paths, and
//! [`Watcher::next`] gives them out when it has been quiet for a moment, because editors save one file in several
//! steps. Invariants: a file with unchanged content (a `touch`, a build script that writes the same again) is not news;
//! files that cargo and git write are not looked at. Packages that the operator is built from count wherever they lie
//! on this machine; cargo says where ([`Watcher::also`]).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use kubewright_codegen::{Diagnostic, Place, codes};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// How long it must be quiet before saved files are news.
const QUIET: Duration = Duration::from_millis(40);
/// After so long they are news however unquiet it is.
const PATIENCE: Duration = Duration::from_millis(400);

/// The use of a saved file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Interest {
    /// The operator is built from it.
    Source,
    /// A definition below `config/crd/bases`.
    Definition,
    /// A sample below `config/samples`.
    Sample,
}

impl Interest {
    /// By the path within the project; `None` for a file that does not matter.
    pub(crate) fn of(path: &Path) -> Option<Interest> {
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
        // Settings of cargo are hidden, and the only hidden thing that counts.
        if parts == [".cargo", "config.toml"] {
            return Some(Interest::Source);
        }
        if parts.iter().any(|part| part.starts_with('.')) {
            return None;
        }
        let yaml = [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending));
        match folders {
            ["config", "crd", "bases", ..] if yaml => Some(Interest::Definition),
            ["config", "samples", ..] if yaml => Some(Interest::Sample),
            // Not part of the operator, or not read by cargo.
            [
                "config" | "dist" | "docs" | "hack" | "tests" | "benches" | "examples" | "bin",
                ..,
            ] => None,
            // Any file there may be included with `include_str!`.
            [first, ..] if ["src", "api"].contains(first) => Some(Interest::Source),
            _ if name.ends_with(".rs") || *name == "Cargo.toml" || *name == "rust-toolchain.toml" => {
                Some(Interest::Source)
            }
            _ => None,
        }
    }
}

/// Folders that others write, wherever they are.
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
        // vim tries with this name whether it may write.
        || name == "4913"
}

/// Saved files, by their use.
pub(crate) type Saved = BTreeMap<Interest, BTreeSet<PathBuf>>;

/// Watches a project.
pub(crate) struct Watcher {
    root: PathBuf,
    /// The folders of further packages, within the project or elsewhere.
    packages: BTreeSet<PathBuf>,
    watcher: RecommendedWatcher,
    events: mpsc::UnboundedReceiver<PathBuf>,
    contents: BTreeMap<PathBuf, Option<u64>>,
    /// Paths that wait for a quiet moment, and when they have waited long enough.
    collected: BTreeSet<PathBuf>,
    patience: Instant,
}

impl Watcher {
    /// Begins to watch.
    ///
    /// # Errors
    /// KWR0707 when the system refuses.
    pub(crate) fn start(root: &Path) -> Result<Watcher, Diagnostic> {
        let cannot = |why| cannot(root, why);
        // Links in the path would make the paths of events differ from ours.
        let root = root.canonicalize().map_err(|why| cannot(notify::Error::io(why)))?;
        let (send, events) = mpsc::unbounded_channel();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| match event {
            Ok(event) if !matches!(event.kind, EventKind::Access(_)) => {
                for path in event.paths {
                    // The receiver is gone when everything ends.
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
            collected: BTreeSet::new(),
            patience: Instant::now(),
        };
        let root = watching.root.clone();
        watching.settle(&root).map_err(cannot)?;
        watching.remember(&root, None);
        Ok(watching)
    }

    /// Watches these packages, too. A file that was saved there after the build began is news.
    ///
    /// # Errors
    /// KWR0707 when the system refuses.
    pub(crate) fn also(&mut self, packages: &BTreeSet<PathBuf>, began: SystemTime) -> Result<(), Diagnostic> {
        for package in packages {
            // A package that is gone meanwhile cannot change.
            let Ok(package) = package.canonicalize() else { continue };
            if package == self.root || !self.packages.insert(package.clone()) {
                continue;
            }
            if !package.starts_with(&self.root) {
                self.settle(&package).map_err(|why| cannot(&package, why))?;
            }
            self.remember(&package, Some(began));
        }
        Ok(())
    }

    /// Watches a folder with the folders in it that count.
    fn settle(&mut self, folder: &Path) -> notify::Result<()> {
        self.watcher.watch(folder, RecursiveMode::NonRecursive)?;
        for inner in std::fs::read_dir(folder).map_err(notify::Error::io)?.flatten() {
            self.adopt(&inner.path())?;
        }
        Ok(())
    }

    /// Watches a folder of the project with all that is in it, unless others write there.
    fn adopt(&mut self, folder: &Path) -> notify::Result<()> {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let hidden = name.starts_with('.') && name != ".cargo";
        if hidden || IGNORED.contains(&name) || !folder.is_dir() {
            return Ok(());
        }
        self.watcher.watch(folder, RecursiveMode::Recursive)
    }

    /// Remembers the present contents of the files, so that the first save counts only if it changes something. Files
    /// that were saved after `since` have changed.
    fn remember(&mut self, folder: &Path, since: Option<SystemTime>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !IGNORED.contains(&name) && !name.starts_with('.') => {
                    self.remember(&path, since);
                }
                Ok(kind) if kind.is_file() && self.interest(&path).is_some() => {
                    let saved = entry.metadata().and_then(|about| about.modified());
                    if self.contents.contains_key(&path) {
                        continue;
                    }
                    if since.is_some_and(|since| saved.is_ok_and(|saved| saved > since)) {
                        self.collected.insert(path);
                        self.patience = Instant::now() + PATIENCE;
                    } else {
                        let content = content(&path);
                        self.contents.insert(path, content);
                    }
                }
                _ => {}
            }
        }
    }

    fn interest(&self, path: &Path) -> Option<Interest> {
        let within = |folder: &Path| path.strip_prefix(folder).ok().and_then(Interest::of);
        let source = |package: &PathBuf| within(package).filter(|interest| *interest == Interest::Source);
        within(&self.root).or_else(|| self.packages.iter().find_map(source))
    }

    /// The next files that were saved. Never ends while the project is there. May be dropped half way: collected paths
    /// are kept for the next call.
    pub(crate) async fn next(&mut self) -> Saved {
        loop {
            if self.collected.is_empty() {
                let Some(first) = self.events.recv().await else {
                    return std::future::pending().await;
                };
                self.collected.insert(first);
                self.patience = Instant::now() + PATIENCE;
            }
            loop {
                let quiet = (Instant::now() + QUIET).min(self.patience);
                match timeout_at(quiet, self.events.recv()).await {
                    Ok(Some(path)) => {
                        self.collected.insert(path);
                    }
                    Ok(None) | Err(_) => break,
                }
            }
            let paths = std::mem::take(&mut self.collected);
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
                if new && let Err(error) = self.adopt(&path) {
                    tracing::warn!(%error, folder = %path.display(), "cannot watch a new folder");
                }
                continue;
            }
            let Some(interest) = self.interest(&path) else { continue };
            let now = content(&path);
            let before = self.contents.insert(path.clone(), now).flatten();
            if before != now {
                let short = path.strip_prefix(&self.root).map(Path::to_path_buf).unwrap_or(path);
                saved.entry(interest).or_default().insert(short);
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
    fn what_the_operator_is_made_of_counts_and_what_tools_write_does_not() {
        let check =
            |path: &str, expected: Option<Interest>| assert_eq!(Interest::of(Path::new(path)), expected, "{path}");
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
            check(path, Some(Interest::Source));
        }
        check("config/samples/webapp_v1_guestbook.yaml", Some(Interest::Sample));
        check("config/crd/bases/a.yaml", Some(Interest::Definition));
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
    async fn a_save_is_told_once_and_a_touch_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("src");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::create_dir_all(folder.path().join("target")).unwrap();
        let lib = source.join("lib.rs");
        std::fs::write(&lib, "// one").unwrap();
        let mut watcher = Watcher::start(folder.path()).unwrap();
        // Only the last of these is news.
        std::fs::write(&lib, "// one").unwrap();
        std::fs::write(folder.path().join("target/a.rs"), "").unwrap();
        std::fs::write(source.join("lib.rs~"), "").unwrap();
        std::fs::write(source.join("lib.new"), "// two").unwrap();
        std::fs::rename(source.join("lib.new"), &lib).unwrap();
        let saved = watcher.next().await;
        assert_eq!(saved[&Interest::Source], BTreeSet::from([PathBuf::from("src/lib.rs")]));
        assert_eq!(saved.len(), 1);
        // The caller may look elsewhere meanwhile; the save is not lost.
        std::fs::write(&lib, "// three").unwrap();
        // (On a slow machine it may be told already.)
        let saved = match tokio::time::timeout(QUIET / 2, watcher.next()).await {
            Ok(saved) => saved,
            Err(_) => watcher.next().await,
        };
        assert_eq!(saved[&Interest::Source].len(), 1);
        // Folders that come later are watched, too.
        std::fs::create_dir_all(source.join("webhook")).unwrap();
        std::fs::remove_file(&lib).unwrap();
        let saved = watcher.next().await;
        assert!(saved[&Interest::Source].contains(Path::new("src/lib.rs")), "{saved:?}");
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
            .also(&packages, SystemTime::now() + Duration::from_secs(60))
            .unwrap();
        std::fs::create_dir_all(other.join("config/samples")).unwrap();
        std::fs::write(other.join("config/samples/a.yaml"), "a: b").unwrap();
        std::fs::write(&lib, "// two").unwrap();
        let saved = watcher.next().await;
        assert_eq!(saved[&Interest::Source], BTreeSet::from([lib.canonicalize().unwrap()]));
        assert_eq!(saved.len(), 1);
        std::fs::write(text, "included").unwrap();
        let saved = watcher.next().await;
        assert!(
            saved[&Interest::Source].contains(Path::new("crates/more/src/text.txt")),
            "{saved:?}"
        );

        // Saved while the build ran that told of the package.
        let mut watcher = Watcher::start(&project).unwrap();
        watcher.also(&packages, SystemTime::UNIX_EPOCH).unwrap();
        assert!(watcher.next().await[&Interest::Source].contains(&lib.canonicalize().unwrap()));
    }
}
