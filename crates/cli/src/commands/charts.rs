//! `init --plugins helm` and `create api` in such a project: kinds that are Helm charts.

use std::path::{Path, PathBuf};

use clap::Args;
use kubewright_codegen::charts::{self, CreateApi, FOLDER};
use kubewright_codegen::project::Project;
use kubewright_codegen::{Diagnostic, Files as _, Place, codes};
use kubewright_operators::helm::{Helm, HelmError, PROGRAM, Wanted, copy};
use serde_json::json;

use crate::files::{Disk, temporary_folder};
use crate::output::{CHANGE, Failure, Format, paint};
use crate::scaffolding::Writing;

/// Where the chart of a kind comes from.
#[derive(Debug, Default, Args)]
pub(crate) struct Chart {
    /// For the layout helm: the chart of the kind, as a folder, an archive, a URL, or a name in a repository [default: a
    /// new one, as `helm create` makes it]
    #[arg(long, value_name = "CHART", default_value = "", hide_default_value = true)]
    helm_chart: String,

    /// For the layout helm: the address of the chart's repository
    #[arg(long, value_name = "URL")]
    helm_chart_repo: Option<String>,

    /// For the layout helm: the version of the chart [default: the newest]
    #[arg(long, value_name = "VERSION")]
    helm_chart_version: Option<String>,
}

impl Chart {
    /// Whether anything is said of a chart.
    pub(crate) fn is_given(&self) -> bool {
        !self.helm_chart.is_empty() || self.helm_chart_repo.is_some() || self.helm_chart_version.is_some()
    }
}

/// The kind of a request.
pub(crate) struct Subject {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: Option<String>,
    pub(crate) force: bool,
}

const ATTEMPTED: &str = "cannot create the API";

/// Whether the folder has a project whose kinds are charts.
pub(crate) fn is_of_charts(disk: &Disk) -> bool {
    Project::load(disk).is_ok_and(|project| charts::is_of_charts(&project))
}

fn failure(error: HelmError) -> Failure {
    let failure = Failure::new(ATTEMPTED);
    match &error {
        HelmError::Missing(_) => failure
            .because(error)
            .fix(format!("install Helm 3 or 4, or name its program in {PROGRAM}")),
        _ => failure.because(error),
    }
}

/// Adds a kind that is a chart to the project.
pub(crate) fn create_api(
    disk: &Disk,
    chart: &Chart,
    subject: Subject,
    writing: &Writing,
    output: Format,
) -> Result<(), Failure> {
    if chart.helm_chart.is_empty() {
        if chart.is_given() {
            return Err(flags(
                "--helm-chart-repo and --helm-chart-version are about the chart that --helm-chart names",
                "add --helm-chart NAME",
            ));
        }
        if subject.kind.is_empty() {
            return Err(flags(
                "neither a kind nor a chart is named",
                "add --kind, or --helm-chart",
            ));
        }
    }
    let folder = temporary_folder()?;
    let (at, known) = crate::block_on_any(async {
        let helm = Helm::of_user().await.map_err(failure)?;
        let at = match chart.helm_chart.is_empty() {
            true => helm.create_chart(&subject.kind.to_lowercase(), folder.path()).await,
            false => {
                let wanted = Wanted {
                    chart: chart.helm_chart.clone(),
                    repo: chart.helm_chart_repo.clone(),
                    version: chart.helm_chart_version.clone(),
                };
                helm.fetch_chart(&wanted, folder.path()).await
            }
        };
        let at = at.map_err(failure)?;
        let known = helm.read_chart(&at).await.map_err(failure)?;
        Ok((at, known))
    })?;
    let name = known.name.clone();
    let asked = CreateApi {
        group: subject.group,
        version: subject.version,
        kind: subject.kind,
        plural: subject.plural,
        chart: known,
        force: subject.force,
    };
    let plan = charts::create_api(disk, &asked)?;
    put(disk, &at, &name, subject.force, writing, output)?;
    writing.finish(disk, &plan, output)
}

fn flags(why: &str, fix: &str) -> Failure {
    Diagnostic::new(codes::project::FLAGS, ATTEMPTED)
        .because(why)
        .fix(fix)
        .into()
}

/// Puts the chart into the project. One that is there already stays, so that two kinds may share it.
fn put(disk: &Disk, from: &Path, name: &str, force: bool, writing: &Writing, output: Format) -> Result<(), Failure> {
    let path = format!("{FOLDER}/{name}");
    let to: PathBuf = disk.root().join(&path);
    let is_there = !disk.list(&path)?.is_empty();
    if writing.only_tells() || (is_there && !force) {
        if is_there {
            let note = format!("  kept {path}, which was there (--force writes over it)");
            output.say(&note, &json!({"event": "kept", "path": path}));
        }
        return Ok(());
    }
    copy(from, &to).map_err(|why| {
        Diagnostic::new(codes::files::IO, ATTEMPTED)
            .at(Place::file(path.clone()))
            .because(why)
            .fix("see that the folder can be written to")
    })?;
    output.say(
        &format!("  {} {path}", paint(CHANGE, "create")),
        &json!({"event": "file", "verb": "create", "path": path, "written": true}),
    );
    Ok(())
}
