//! `kubewright upgrade` (kubebuilder's `alpha update`): brings a project to the scaffold of this version of the
//! command.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use kubewright_codegen::project::Project;
use kubewright_codegen::{Diagnostic, Files, MemoryFiles, Place, codes, helm, scaffold, upgrade};

use serde_json::json;

use crate::files::{Disk, temporary_folder};
use crate::output::{Failure, Format};
use crate::scaffolding::Writing;

/// Update the project to what this version scaffolds, and keep your changes
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder with what the old version scaffolds for this project: its `kubewright alpha generate --output-dir DIR`
    #[arg(long, value_name = "DIR", conflicts_with = "from_program")]
    from: Option<PathBuf>,

    /// The old version's program, which is run to make that folder
    #[arg(long, value_name = "PROGRAM")]
    from_program: Option<PathBuf>,

    /// Where you and the scaffold changed the same lines, write both versions, with conflict markers
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    writing: Writing,
}

const ATTEMPTED: &str = "cannot upgrade the project";
const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let disk = Disk::here()?;
        let project = Project::load(&disk)?;
        let mut base = match (&self.from, &self.from_program) {
            (Some(folder), _) => {
                is_another(folder, disk.root())?;
                folder_files(folder)?
            }
            (None, Some(program)) => asked(program, disk.root())?,
            (None, None) if project.cli_version.as_deref() == Some(VERSION) => {
                let text = format!(
                    "nothing to do: kubewright {VERSION} made the project (another build of the same version is named with --from-program)"
                );
                output.say(&text, &json!({"event": "current", "version": VERSION}));
                return Ok(());
            }
            (None, None) => return Err(nothing_to_compare(&project).into()),
        };
        let theirs = theirs(&project, &disk, &mut base)?;
        let mut plan = upgrade::upgrade(&disk, &base, &theirs, VERSION, self.force)?;
        if !plan.is_empty() {
            plan.next.push("git diff".to_owned());
            plan.next.push("kubewright manifests".to_owned());
        }
        self.writing.finish(&disk, &plan, output)
    }
}

/// The files of this version, as far as they can be compared. A chart is made anew out of `config/`, not merged; files
/// of other plugins are compared when the old version wrote them again, too.
fn theirs(project: &Project, disk: &Disk, base: &mut MemoryFiles) -> Result<MemoryFiles, Diagnostic> {
    let whole = scaffold::whole(disk, VERSION)?;
    let chart = project
        .plugins
        .get(helm::KEY)
        .and_then(|plugin| plugin["output"].as_str());
    let chart = chart.map(|output| format!("{output}/chart/"));
    let is_of_chart = |path: &String| chart.as_ref().is_some_and(|chart| path.starts_with(chart));
    base.0.retain(|path, _| !is_of_chart(path));
    let mut files = whole.files;
    for path in whole.of_plugins.iter().filter(|path| !base.0.contains_key(*path)) {
        files.0.remove(path);
    }
    Ok(files)
}

/// The scaffold of the old version has to come from somewhere: this program only has its own.
fn nothing_to_compare(project: &Project) -> Diagnostic {
    let old = project.cli_version.as_deref().unwrap_or("unknown");
    let wrong = Diagnostic::new(codes::project::MISSING, ATTEMPTED).because(format!(
        "the project was scaffolded by version {old}, and this is {VERSION}; the scaffold of {old} is needed to find your changes"
    ));
    wrong.fix(format!(
        "cargo install kubewright-cli --locked --git {} --tag v{old} --root DIR, then kubewright upgrade --from-program DIR/bin/kubewright",
        scaffold::REPOSITORY
    ))
}

/// The project is no scaffold of itself: nothing in it would count as its owner's change, and all of it be written over.
fn is_another(folder: &Path, project: &Path) -> Result<(), Diagnostic> {
    let is_same = match (folder.canonicalize(), project.canonicalize()) {
        (Ok(folder), Ok(project)) => folder == project,
        _ => false,
    };
    if !is_same {
        return Ok(());
    }
    Err(Diagnostic::new(codes::project::FLAGS, ATTEMPTED)
        .at(Place::file(folder.display().to_string()))
        .because("--from names the project itself, so your changes could not be distinguished from the scaffold, and all would be lost")
        .fix("name a folder in which the old version ran: kubewright alpha generate --output-dir DIR"))
}

/// All files of a folder that another version scaffolded.
fn folder_files(folder: &Path) -> Result<MemoryFiles, Diagnostic> {
    let disk = Disk::new(folder);
    let mut files = MemoryFiles::default();
    for path in disk.list("")? {
        if let Some(text) = disk.read(&path)? {
            files.0.insert(path, text);
        }
    }
    if files.0.contains_key("PROJECT") {
        return Ok(files);
    }
    Err(Diagnostic::new(codes::project::NONE, ATTEMPTED)
        .at(Place::file(folder.display().to_string()))
        .because("the folder has no file PROJECT, so it is not a scaffold of this project")
        .fix("make it with the old version: kubewright alpha generate --output-dir DIR"))
}

/// The scaffold of the old version's program for this project, in a folder that is removed again.
fn asked(program: &Path, project: &Path) -> Result<MemoryFiles, Diagnostic> {
    let io = |why: std::io::Error| {
        Diagnostic::new(codes::files::IO, ATTEMPTED)
            .at(Place::file(program.display().to_string()))
            .because(why)
            .fix("name a program that can be run with --from-program")
    };
    let folder = temporary_folder()?;
    let _working = crate::progress::during("running the old version");
    let done = Command::new(program)
        .args(["alpha", "generate", "--input-dir"])
        .arg(project)
        .arg("--output-dir")
        .arg(folder.path())
        .stdin(Stdio::null())
        .output();
    let done = done.map_err(io)?;
    if done.status.success() {
        return folder_files(folder.path());
    }
    let told = String::from_utf8_lossy(&done.stderr);
    Err(Diagnostic::new(codes::project::UNKNOWN, ATTEMPTED)
        .at(Place::file(program.display().to_string()))
        .because(format!("`alpha generate` ended with {}: {}", done.status, told.trim()))
        .fix("make the folder in another way, and name it with --from"))
}
