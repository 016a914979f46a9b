//! `kubewright init`: a new project.

use std::path::{Component, Path, PathBuf};
use std::process::Command;

use clap::Args;
use kubewright_codegen::scaffold::{self, Dependency, Init, REPOSITORY};
use kubewright_codegen::{Diagnostic, Files, Place, ansible, codes};
use semver::{Comparator, Op};

use super::charts::{self, Chart};
use crate::external::{Chain, or_where};
use crate::files::{Disk, check_folder};
use crate::output::{Failure, Format, shell_word};
use crate::scaffolding::{Terms, Writing};

/// Create a project: an operator that builds, runs and has tests, with no kinds yet
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of the project, created if it does not exist [default: the current one]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Domain of the project's groups: group crew becomes crew.DOMAIN
    #[arg(long, default_value = "my.domain")]
    domain: String,

    /// Name of the project, prefix of all its objects [default: the folder's, in lower case]
    #[arg(long, value_name = "NAME")]
    project_name: Option<String>,

    /// Repository of the source, such as github.com/me/guestbook; written to Cargo.toml
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    repo: String,

    #[command(flatten)]
    terms: Terms,

    /// Put types and controllers into a folder for each group
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    multigroup: bool,

    /// Watch only the namespaces of WATCH_NAMESPACE, with Roles instead of ClusterRoles
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    namespaced: bool,

    /// Where the project's dependency on kubewright comes from: a git repository, a checkout (a relative path stays
    /// relative), or a version [env: KUBEWRIGHT_PATH] [default: the repository and revision that this program was built
    /// from, else its version]
    #[arg(long, value_name = "URL[@REV]|PATH|VERSION")]
    kubewright: Option<String>,

    /// The layout, if it is helm (kinds are Helm charts) and not Rust, and external plug-ins by NAME/VERSION, which run in
    /// later commands, too
    #[arg(long, value_delimiter = ',', value_name = "KEYS")]
    plugins: Vec<String>,

    /// Version of the PROJECT file; there is one
    #[arg(long, default_value = "3", hide = true)]
    project_version: String,

    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    fetch_deps: Option<bool>,

    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    skip_go_version_check: Option<bool>,

    /// For the layout helm: group of the first kind, without the project's domain
    #[arg(long, value_name = "GROUP", default_value = "", hide_default_value = true)]
    group: String,

    /// For the layout helm: version of the first kind
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    version: String,

    /// For the layout helm: the first kind
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    kind: String,

    #[command(flatten)]
    chart: Chart,

    #[command(flatten)]
    writing: Writing,
}

const ATTEMPTED: &str = "cannot create the project";

impl Arguments {
    pub(crate) fn run(self, output: Format, plugins: &Chain) -> Result<(), Failure> {
        let here = std::env::current_dir()
            .map_err(|why| Diagnostic::new(codes::files::IO, "cannot find the current folder").because(why))?;
        let root = self.folder.as_ref().map_or(here.clone(), |folder| here.join(folder));
        check_folder(&root, ATTEMPTED)?;
        if self
            .plugins
            .iter()
            .any(|key| kubewright_codegen::charts::is_layout(key))
        {
            return self.of_charts(&root, output);
        }
        if self.chart.is_given() || !(self.group.is_empty() && self.version.is_empty() && self.kind.is_empty()) {
            return Err(Diagnostic::new(codes::project::FLAGS, ATTEMPTED)
                .because("--group, --version, --kind and --helm-chart are of the layout helm")
                .fix("add --plugins helm, or leave them out and add kinds with kubewright create api")
                .into());
        }
        if self.plugins.iter().any(|key| ansible::is_layout(key)) {
            return self.of_ansible(&root, output);
        }
        let (dependency, note) = dependency(self.kubewright.as_deref(), self.folder.as_deref())?;
        let asked = Init {
            name: match &self.project_name {
                Some(name) => name.clone(),
                None => folder_name(&root),
            },
            domain: self.domain.clone(),
            repo: self.repo.clone(),
            owner: self.terms.owner().unwrap_or_default(),
            license: self.terms.license(ATTEMPTED)?.unwrap_or_default(),
            boilerplate: self.terms.boilerplate(ATTEMPTED)?,
            multigroup: self.multigroup,
            namespaced: self.namespaced,
            plugins: plugins.own_keys(self.plugins.clone()),
            external: plugins.titles(),
            dependency,
            cli_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        if self.project_version != "3" {
            return Err(Diagnostic::new(codes::project::FLAGS, ATTEMPTED)
                .because(format!("there is no project version {:?}", self.project_version))
                .fix("omit --project-version: it is 3")
                .into());
        }
        let disk = Disk::new(&root);
        let mut plan = scaffold::init(&disk, &asked).map_err(|wrong| or_where(wrong, &asked.plugins))?;
        plugins.run(&root, &mut plan)?;
        if !self.writing.only_tells() {
            std::fs::create_dir_all(&root).map_err(|why| {
                Diagnostic::new(codes::files::IO, ATTEMPTED)
                    .at(Place::file(root.display().to_string()))
                    .because(why)
                    .fix("name a folder that can be created: there is a file of that name, or you may not write to the folder above")
            })?;
        }
        plan.notes.extend(note);
        if disk.list("")?.iter().any(|path| !path.starts_with('.')) {
            plan.notes
                .push("the folder was not empty; what was in it is as it was".to_owned());
        }
        if let Some(folder) = &self.folder {
            let folder = shell_word(&folder.display().to_string());
            plan.next.insert(0, format!("cd {folder}"));
        }
        self.writing.finish(&disk, &plan, output)
    }
}

impl Arguments {
    /// The options of a project without code.
    fn without_code(&self, root: &Path) -> ansible::Init {
        ansible::Init {
            name: self.project_name.clone().unwrap_or_else(|| folder_name(root)),
            domain: self.domain.clone(),
            namespaced: self.namespaced,
            multigroup: self.multigroup,
            cli_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// A project whose kinds are charts, and its first kind.
    fn of_charts(self, root: &Path, output: Format) -> Result<(), Failure> {
        let disk = Disk::new(root);
        let asked = self.without_code(root);
        let mut plan = kubewright_codegen::charts::init(&disk, &asked)?;
        let has_kind = self.chart.is_given() || !self.kind.is_empty();
        if !has_kind {
            plan.next.push("kubewright create api --helm-chart CHART".to_owned());
        }
        if !self.writing.only_tells() {
            std::fs::create_dir_all(root.join(kubewright_codegen::charts::FOLDER)).map_err(|why| {
                Diagnostic::new(codes::files::IO, ATTEMPTED)
                    .at(Place::file(root.display().to_string()))
                    .because(why)
                    .fix("name a folder that can be made")
            })?;
        }
        self.writing.finish(&disk, &plan, output)?;
        if !has_kind || self.writing.only_tells() {
            return Ok(());
        }
        let subject = charts::Subject {
            group: self.group,
            version: self.version,
            kind: self.kind,
            plural: None,
            force: false,
        };
        charts::create_api(&Disk::new(root), &self.chart, subject, &self.writing, output)
    }

    /// A project whose kinds are Ansible roles.
    fn of_ansible(self, root: &Path, output: Format) -> Result<(), Failure> {
        let asked = self.without_code(root);
        let disk = Disk::new(root);
        let plan = ansible::init(&disk, &asked)?;
        if !self.writing.only_tells() {
            std::fs::create_dir_all(root).map_err(|why| {
                Diagnostic::new(codes::files::IO, ATTEMPTED)
                    .at(Place::file(root.display().to_string()))
                    .because(why)
            })?;
        }
        self.writing.finish(&disk, &plan, output)
    }
}

fn folder_name(root: &Path) -> String {
    let name = root.file_name().unwrap_or_default();
    name.to_string_lossy().to_lowercase()
}

/// Where kubewright comes from: as said, as the environment says, from the repository of this program, or by version.
pub(super) fn dependency(
    said: Option<&str>,
    folder: Option<&Path>,
) -> Result<(Dependency, Option<String>), Diagnostic> {
    let environment = std::env::var("KUBEWRIGHT_PATH").ok().filter(|path| !path.is_empty());
    let typed = said.is_some();
    if let Some(said) = said.map(str::to_owned).or(environment) {
        if let Some(git) = git_source(&said) {
            return Ok((git, None));
        }
        if said.starts_with(|c: char| c.is_ascii_digit()) && !Path::new(&said).is_dir() {
            if !is_version(&said) {
                return Err(Diagnostic::new(codes::project::FLAGS, ATTEMPTED)
                    .because(format!("{said:?} is neither a version of kubewright nor a folder"))
                    .fix(concat!("pass a version such as ", env!("CARGO_PKG_VERSION"))));
            }
            return Ok((Dependency::Version(said), None));
        }
        return match checkout(Path::new(&said)) {
            Some(path) => {
                let relative = typed.then(|| relative(&said, folder)).flatten();
                let note = format!(
                    "the project depends on kubewright in {path}: it builds on this machine only; --kubewright {REPOSITORY}@REVISION builds everywhere"
                );
                Ok((Dependency::Path(relative.unwrap_or(path)), Some(note)))
            }
            None => Err(Diagnostic::new(codes::project::SOURCE, ATTEMPTED)
                .at(Place::file(said))
                .because("this is neither the address of a git repository, nor a version, nor a checkout of kubewright (a folder with crates/kubewright)")
                .fix("name one with --kubewright URL[@REV]|PATH|VERSION or KUBEWRIGHT_PATH")),
        };
    }
    // Where this program was built; on another machine there is nothing of the kind.
    match checkout(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")) {
        Some(path) => Ok(match revision(&path) {
            Some((url, rev)) => {
                let note = format!(
                    "the project depends on kubewright at {url}, revision {rev}, which this program was built from; where it has not been pushed, take the checkout: --kubewright {path}"
                );
                (Dependency::Git { url, rev: Some(rev) }, Some(note))
            }
            // A checkout without git, as in an archive of the sources.
            None => {
                let note = format!("the project depends on kubewright in {path}: it builds on this machine only");
                (Dependency::Path(path), Some(note))
            }
        }),
        None => Ok((Dependency::Version(env!("CARGO_PKG_VERSION").to_owned()), None)),
    }
}

/// A git repository and perhaps a revision, `URL[@REV]`; none when the text is no address. `git@host:path` is written as
/// cargo takes it.
fn git_source(said: &str) -> Option<Dependency> {
    let said = match said.strip_prefix("git@") {
        Some(rest) => format!("ssh://git@{}", rest.replacen(':', "/", 1)),
        None => said.to_owned(),
    };
    let (_, rest) = said.split_once("://")?;
    // An @ before the path belongs to a user's name.
    let path = rest.find('/').map_or(said.len(), |at| said.len() - rest.len() + at);
    let (url, rev) = match said[path..].rsplit_once('@') {
        Some((before, rev)) => (format!("{}{before}", &said[..path]), Some(rev.to_owned())),
        None => (said, None),
    };
    Some(Dependency::Git {
        url,
        rev: rev.filter(|rev| !rev.is_empty()),
    })
}

/// Where others find a checkout: the address of its remote, if it has one that leads away from this machine, else that
/// of kubewright's repository; and its commit. None when it is not git's.
fn revision(checkout: &str) -> Option<(String, String)> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(["-C", checkout])
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let text = text.trim();
        (output.status.success() && !text.is_empty()).then(|| text.to_owned())
    };
    // A folder in another project's repository is not the checkout itself.
    let root = git(&["rev-parse", "--show-toplevel"])?;
    (Path::new(&root).canonicalize().ok()? == Path::new(checkout)).then_some(())?;
    let rev = git(&["rev-parse", "HEAD"])?;
    let remote = git(&["remote", "get-url", "origin"]).and_then(|url| match git_source(&url)? {
        Dependency::Git { url, .. } if !url.starts_with("file:") => Some(url),
        _ => None,
    });
    Some((remote.unwrap_or_else(|| REPOSITORY.to_owned()), rev))
}

/// Whether cargo takes a text for a version: one to three numbers, and behind three of them perhaps `-alpha.1`.
fn is_version(text: &str) -> bool {
    Comparator::parse(text).is_ok_and(|version| version.op == Op::Caret)
}

/// A relative path to a checkout, seen from the project's folder and not from the current one; none when there is no
/// such path.
///
/// It stays relative because the project may be committed beside the checkout, and then be cloned elsewhere.
fn relative(said: &str, folder: Option<&Path>) -> Option<String> {
    let said = Path::new(said);
    let mut path = PathBuf::new();
    for part in folder.unwrap_or(Path::new("")).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(_) => path.push(".."),
            // A path through `..` has no name here.
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    path.extend(said.components().filter(|part| *part != Component::CurDir));
    let text = path.to_str().filter(|text| !text.is_empty())?;
    said.is_relative().then(|| text.to_owned())
}

fn checkout(path: &Path) -> Option<String> {
    let path = std::fs::canonicalize(path).ok()?;
    let is_one =
        path.join("crates/kubewright/Cargo.toml").is_file() && path.join("crates/testing/Cargo.toml").is_file();
    is_one.then(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_cargo() {
        for (text, is) in [
            ("0.1.0", true),
            ("1", true),
            ("1.2", true),
            ("0.2.0-alpha.1", true),
            ("0.0.0.0", false),
            ("0.1.0-", false),
            ("0.1-alpha", false),
            ("01.2", false),
            ("1.x", false),
            ("1.", false),
            ("1.*", false),
        ] {
            assert_eq!(is_version(text), is, "{text}");
        }
    }

    #[test]
    fn a_repository_is_told_from_a_path_and_its_revision_from_a_user() {
        let table = [
            ("https://example.com/k.git", Some(("https://example.com/k.git", None))),
            (
                "https://example.com/k@v0.1.0",
                Some(("https://example.com/k", Some("v0.1.0"))),
            ),
            ("https://me@example.com/k", Some(("https://me@example.com/k", None))),
            (
                "ssh://git@example.com/k@abc",
                Some(("ssh://git@example.com/k", Some("abc"))),
            ),
            (
                "git@example.com:me/k.git@abc",
                Some(("ssh://git@example.com/me/k.git", Some("abc"))),
            ),
            ("file:///srv/k.git@", Some(("file:///srv/k.git", None))),
            ("../kubewright", None),
            ("0.1.0", None),
        ];
        for (said, expected) in table {
            let expected = expected.map(|(url, rev)| Dependency::Git {
                url: url.to_owned(),
                rev: rev.map(str::to_owned),
            });
            assert_eq!(git_source(said), expected, "{said}");
        }
    }

    #[test]
    fn a_relative_checkout_is_seen_from_the_project() {
        let table = [
            ("../kubewright", "", Some("../kubewright")),
            ("./kubewright", "mine", Some("../kubewright")),
            ("../..", "./my/own", Some("../../../..")),
            ("/opt/kubewright", "", None),
            ("../kubewright", "/home/me/mine", None),
            ("../kubewright", "../mine", None),
            // The checkout itself: no path to write.
            (".", "", None),
        ];
        for (said, folder, expected) in table {
            let found = relative(said, Some(Path::new(folder)));
            assert_eq!(found.as_deref(), expected, "{said} from {folder:?}");
        }
    }
}
