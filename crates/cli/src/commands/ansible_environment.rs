//! `kubewright ansible-operator install`: Ansible in a virtual environment of the project, for those who have only
//! Python.
//!
//! Invariant: an environment is used when it is whole; one that was not finished is made anew. Not here: how roles are
//! run; an environment of one's own, which `VIRTUAL_ENV` names and which comes first.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;

use clap::Args;
use serde_json::json;

use crate::files::Disk;
use crate::output::{Failure, Format, GOOD, paint};
use crate::project::PRIVATE;
use crate::signals::stop_signal;

/// What is installed. `ansible` brings the collection `kubernetes.core`.
const PACKAGES: [&str; 4] = ["ansible", "ansible-runner", "ansible-runner-http", "kubernetes"];

/// The file that says that an environment is whole.
const READY: &str = "kubewright-ready";

/// Where in it the collections of `requirements.yml` are.
const COLLECTIONS: &str = "collections";

/// How many lines of a program that failed are told.
const TOLD: usize = 6;

const ATTEMPTED: &str = "cannot install Ansible";

/// Install Ansible and its runner into a virtual environment below .kubewright, which ansible-operator run then uses
#[derive(Debug, Args)]
pub(super) struct Install {
    /// The Python that the environment is made of
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,

    /// Make it anew, though there is one
    #[arg(long)]
    force: bool,
}

/// The environment of a project, if one was made.
pub(super) fn of(project: &Path) -> Option<PathBuf> {
    let folder = folder(project);
    folder.join(READY).is_file().then_some(folder)
}

fn folder(project: &Path) -> PathBuf {
    project.join(PRIVATE).join("ansible")
}

impl Install {
    pub(super) async fn run(self, output: Format) -> Result<(), Failure> {
        let disk = Disk::here()?;
        let folder = folder(disk.root());
        let shown = folder.display().to_string();
        if of(disk.root()).is_some() && !self.force {
            output.say(
                &format!("Ansible is there: {shown}"),
                &json!({"event": "unchanged", "folder": shown}),
            );
            return Ok(());
        }
        match std::fs::remove_dir_all(&folder) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::new(ATTEMPTED).because(format!("{shown} cannot be removed: {why}")));
            }
            _ => {}
        }
        let made = program(
            &self.python,
            ["-m".as_ref(), "venv".as_ref(), folder.as_os_str()],
            "making a virtual environment",
        )
        .await?;
        told(
            &made,
            "python3 -m venv",
            "on Debian and Ubuntu: apt install python3-venv; or name another Python with --python",
        )?;
        let python = folder.join("bin/python");
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        let words = pip.into_iter().chain(PACKAGES).map(OsStr::new);
        let installed = program(&python, words, "pip install ansible").await?;
        told(
            &installed,
            "pip install",
            "without the internet, name a mirror with PIP_INDEX_URL, or a folder of wheels with PIP_NO_INDEX=1 and \
             PIP_FIND_LINKS; an environment that has Ansible is named by VIRTUAL_ENV",
        )?;
        let required = disk.root().join("requirements.yml");
        if required.is_file() {
            collections(&folder, &required, output).await?;
        }
        std::fs::write(folder.join(READY), "")
            .map_err(|why| Failure::new(ATTEMPTED).because(format!("{shown} cannot be written: {why}")))?;
        output.say(
            &format!("{} {shown}", paint(GOOD, "Ansible is installed:")),
            &json!({"event": "installed", "folder": shown}),
        );
        Ok(())
    }
}

/// The collections of the project, beside those of the package. Some of a project's may be there already, so it is no
/// failure that Galaxy does not answer.
async fn collections(folder: &Path, required: &Path, output: Format) -> Result<(), Failure> {
    let (galaxy, own) = (folder.join("bin/ansible-galaxy"), folder.join(COLLECTIONS));
    let words = ["collection", "install", "-r"].map(OsStr::new);
    let words = words
        .into_iter()
        .chain([required.as_os_str(), OsStr::new("-p"), own.as_os_str()]);
    let done = program(&galaxy, words, "ansible-galaxy collection install").await?;
    if let Err(failure) = told(&done, "ansible-galaxy collection install", "") {
        let why = failure.causes.join("; ");
        output.warning(
            &format!("not all collections of requirements.yml are installed: {why}"),
            &json!({"event": "warning", "warning": why}),
        );
    }
    Ok(())
}

/// Runs a program to its end; a signal ends it, too.
async fn program<'w>(path: &Path, words: impl IntoIterator<Item = &'w OsStr>, what: &str) -> Result<Output, Failure> {
    let _working = crate::progress::during(what.to_owned());
    let stop = stop_signal()?;
    let mut command = tokio::process::Command::new(path);
    command
        .args(words)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    tokio::select! {
        done = command.output() => done.map_err(|why| {
            Failure::new(ATTEMPTED)
                .because(format!("{} cannot be started: {why}", path.display()))
                .fix("install Python 3.10 or newer, or name one with --python")
        }),
        () = stop => Err(Failure::new(ATTEMPTED).because("it was stopped")),
    }
}

/// The last words of a program that failed.
fn told(done: &Output, what: &str, fix: &str) -> Result<(), Failure> {
    if done.status.success() {
        return Ok(());
    }
    let said = [&done.stdout, &done.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat();
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(TOLD)..].join("\n    ");
    Err(Failure::new(ATTEMPTED)
        .because(format!("{what} failed ({}): {last}", done.status))
        .fix(fix))
}

/// The variables of a run: they name the project's environment unless they name another one.
pub(super) fn named(project: &Path, variables: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = variables.into_iter().collect();
    let is_named = variables.get("VIRTUAL_ENV").is_some_and(|named| !named.is_empty());
    if let (false, Some(own)) = (is_named, of(project)) {
        // The others are those of Ansible's own default.
        let home = variables
            .get("HOME")
            .map(|home| format!(":{home}/.ansible/collections"));
        let own_ones = own.join(COLLECTIONS).display().to_string();
        let paths = format!("{own_ones}{}:/usr/share/ansible/collections", home.unwrap_or_default());
        variables.entry("ANSIBLE_COLLECTIONS_PATH".to_owned()).or_insert(paths);
        variables.insert("VIRTUAL_ENV".to_owned(), own.display().to_string());
    }
    variables
}
