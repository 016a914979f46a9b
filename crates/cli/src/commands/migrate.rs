//! `kubewright migrate`: a kubebuilder project in Go, said in Rust.

use std::path::{Path, PathBuf};

use clap::Args;
use kubewright_codegen::{Diagnostic, Files, Place, Plan, codes, migrate};

use super::init;
use crate::files::{Disk, check_folder};
use crate::output::{Failure, Format, count};
use crate::scaffolding::Writing;

/// Convert a kubebuilder project in Go to Rust: types and their markers, roles, skeletons of controllers and
/// webhooks
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of the project in Go; it is not changed
    #[arg(value_name = "FROM")]
    from: PathBuf,

    /// Folder of the new project, created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Name of the new project [default: the one in PROJECT]
    #[arg(long, value_name = "NAME")]
    project_name: Option<String>,

    /// Where the project's dependency on kubewright comes from, as in `kubewright init`
    #[arg(long, value_name = "PATH|VERSION")]
    kubewright: Option<String>,

    /// Go's module cache, in which types of other modules are looked up [default: $GOMODCACHE, else $GOPATH/pkg/mod]
    #[arg(long, value_name = "DIR")]
    module_path: Option<PathBuf>,

    #[command(flatten)]
    writing: Writing,
}

const ATTEMPTED: &str = "cannot carry the project over";

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let (dependency, _) = init::dependency(self.kubewright.as_deref(), Some(&self.folder))?;
        self.module_path_is_there()?;
        check_folder(&self.folder, ATTEMPTED)?;
        let cache = self.module_path.clone().or_else(module_cache);
        let cached = cache.as_ref().filter(|folder| folder.is_dir()).map(Disk::new);
        let place = cache
            .as_ref()
            .map(|folder| folder.display().to_string())
            .unwrap_or_default();
        let cache = cached
            .as_ref()
            .map(|files| migrate::ModuleCache { files, place: &place });
        let done = migrate::migrate(
            &Disk::new(&self.from),
            cache,
            self.project_name.as_deref(),
            &dependency,
            env!("CARGO_PKG_VERSION"),
        )?;
        self.is_beside()?;
        let disk = Disk::new(&self.folder);
        let mut plan = Plan::new(&disk);
        for (path, text) in &done.files.0 {
            if disk.read(path)?.is_some_and(|there| there != *text) {
                return Err(Diagnostic::new(codes::files::EXISTS, ATTEMPTED)
                    .at(Place::file(path))
                    .because(format!(
                        "{} is not empty, and this file has other content",
                        self.folder.display()
                    ))
                    .fix("name an empty folder")
                    .into());
            }
            plan.write(path, text.clone())?;
        }
        if !self.writing.dry_run && !self.writing.diff {
            std::fs::create_dir_all(&self.folder).map_err(|why| {
                Diagnostic::new(codes::files::IO, ATTEMPTED)
                    .at(Place::file(self.folder.display().to_string()))
                    .because(why)
                    .fix("name a folder that can be made")
            })?;
        }
        plan.notes.push(format!("{} carried over", count(done.kinds, "kind")));
        plan.notes.extend(done.notes);
        if !plan.is_empty() {
            let folder = self.folder.display();
            plan.next.extend([
                format!("cd {folder}"),
                "cargo fmt".to_owned(),
                "kubewright manifests".to_owned(),
            ]);
        }
        self.writing.finish(&disk, &plan, output)
    }
}

impl Arguments {
    /// A module cache that is named must be there: without it types would be any value, without a word.
    fn module_path_is_there(&self) -> Result<(), Diagnostic> {
        match self.module_path.as_deref().filter(|cache| !cache.is_dir()) {
            Some(cache) => Err(Diagnostic::new(codes::project::FLAGS, ATTEMPTED)
                .at(Place::file(cache.display().to_string()))
                .because("--module-path names no folder")
                .fix("leave it out, or name Go's module cache: go env GOMODCACHE")),
            None => Ok(()),
        }
    }

    /// The project in Go stays as it is, so the new one is not made inside it.
    fn is_beside(&self) -> Result<(), Diagnostic> {
        let from = self.from.canonicalize().ok();
        let mut above = self
            .folder
            .ancestors()
            .map(|folder| match folder.as_os_str().is_empty() {
                true => Path::new("."),
                false => folder,
            });
        let made_in = above.find_map(|folder| folder.canonicalize().ok());
        match (from, made_in) {
            (Some(from), Some(made_in)) if made_in.starts_with(&from) => {
                Err(Diagnostic::new(codes::project::FLAGS, ATTEMPTED)
                    .at(Place::file(self.folder.display().to_string()))
                    .because("the new project would be inside the project in Go, which is not changed")
                    .fix("name a folder beside it"))
            }
            _ => Ok(()),
        }
    }
}

/// Where Go keeps modules, unless its own configuration (`go env -w`) says otherwise.
fn module_cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let path = || {
        let first = set("GOPATH").and_then(|paths| std::env::split_paths(&paths).next());
        first.or_else(|| Some(PathBuf::from(set("HOME")?).join("go")))
    };
    set("GOMODCACHE")
        .map(PathBuf::from)
        .or_else(|| Some(path()?.join("pkg/mod")))
}
