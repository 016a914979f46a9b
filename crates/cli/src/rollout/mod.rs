//! A project's objects on their way to a cluster and back: the shared parts of `install`, `deploy`, `build-installer`
//! and their opposites.
//!
//! - `render`: folders of `config/` into objects;
//! - `cluster`: the cluster of a kubeconfig and the kinds that it serves;
//! - `apply`: server-side apply, in an order that does not get in its own way;
//! - `ready`: the missing conditions, and the reasons;
//! - `namespaces`: which namespaces are the project's, and which are left alone;
//! - `remove`: the opposite, custom resources first, while the operator can still clean up behind them;
//! - `found`: what is there to be removed, and the question whether it may go;
//! - `trial`: all of it without doing it (`--dry-run`, `--diff`).
//!
//! Invariants: nothing is applied before all kinds are known to be served; every promised state is waited for, or the
//! message says what is missing; namespaces of others are not touched; nothing is deleted that nobody agreed to; no file of the
//! project is changed. Not here: the contents of `config/` (the crate
//! codegen).

mod apply;
mod cluster;
mod found;
mod namespaces;
mod ready;
mod remove;
mod render;
mod trial;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kubewright_cluster::go_duration;
use kubewright_codegen::{Diagnostic, Place, codes};
use serde_json::{Value, json};

use crate::output::{Failure, Format};
use crate::project::Project;
use crate::target::{Request, Target};

pub(crate) use apply::{Applying, apply_all};
pub(crate) use cluster::Cluster;
use found::Found;
pub(crate) use ready::missing;
use remove::{Removing, remove_all};
pub(crate) use render::render;
use trial::would_remove;

/// Which cluster, and how long to wait for it.
#[derive(Debug, Args)]
pub(crate) struct ClusterArguments {
    /// Kubeconfig to read [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", add = clap_complete::ArgValueCandidates::new(crate::complete::contexts))]
    pub(crate) context: Option<String>,

    /// How long to wait, such as 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "3m", value_parser = duration)]
    pub(crate) timeout: Duration,

    /// Print what would change, and change nothing; the API server validates every object
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Show what would change as a diff, and change nothing
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) diff: bool,
}

/// Whether something is done, or only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It is done.
    Real,
    /// It is tried, and told in a line for each object.
    DryRun,
    /// It is tried, and told as a diff.
    Diff,
}

impl ClusterArguments {
    /// Whether something is done, or only tried.
    pub(crate) fn mode(&self) -> Mode {
        match (self.dry_run, self.diff) {
            (_, true) => Mode::Diff,
            (true, false) => Mode::DryRun,
            (false, false) => Mode::Real,
        }
    }

    /// Reaches the cluster, and says which one it is.
    ///
    /// # Errors
    /// When there is none, it is far away and nobody named it, or it does not answer.
    pub(crate) async fn connect(
        &self,
        project: &Project,
        command: &str,
        output: Format,
    ) -> Result<Cluster, Diagnostic> {
        let (file, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
        let target = chosen(project, file, context, command)?;
        let cluster = Cluster::connect(&target).await?;
        if self.mode() == Mode::Real {
            remember(project, &target, output);
        }
        output.say(&cluster.title, &json!({"event": "cluster", "cluster": cluster.title}));
        Ok(cluster)
    }
}

/// The context that was named, or the current one if it is of this machine or the project has used it before.
///
/// # Errors
/// KWR0702 when a cluster far away would be guessed, KWR0801 when there is none.
pub(crate) fn chosen(
    project: &Project,
    file: Option<&Path>,
    context: Option<&str>,
    command: &str,
) -> Result<Target, Diagnostic> {
    let target = Target::read(file, context)?;
    let named = file.is_some() || context.is_some() || target.is_known_to(project);
    target.allow(&Request {
        command,
        confirmed: named.then_some(target.context.as_str()),
        harm: "it is only the current context: you did not name it, and this project has not used it before",
        alternative: "",
        flag: "--context",
    })?;
    Ok(target)
}

/// Remembers that the project has used a context, so that it need not be named again.
pub(crate) fn remember(project: &Project, target: &Target, output: Format) {
    if let Err(why) = target.remember(project) {
        // The next call asks for the name again.
        output.warning(&why.to_string(), &json!({"event": "warning", "warning": why}));
    }
}

/// From which cluster something goes, and whether it must be there.
#[derive(Debug, Args)]
pub(crate) struct RemovalArguments {
    #[command(flatten)]
    cluster: ClusterArguments,

    /// Succeed if an object does not exist
    #[arg(long, value_name = "BOOL", hide_default_value = true, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    ignore_not_found: bool,

    /// Delete without asking
    #[arg(short, long)]
    yes: bool,
}

impl RemovalArguments {
    /// Takes all objects of a folder of `config/` out of the cluster, and says how many they were; `None` when it was
    /// only tried.
    ///
    /// # Errors
    /// When the folder cannot be rendered, the cluster does not answer, or something does not go.
    pub(crate) async fn remove(
        &self,
        project: &Project,
        folder: &str,
        command: &str,
        output: Format,
    ) -> Result<Option<usize>, Failure> {
        let mut rendered = render(&project.root, folder, None)?;
        let cluster = self.cluster.connect(project, command, output).await?;
        let kinds = cluster.kinds(&rendered.objects).await?;
        namespaces::keep_those_of_others(&cluster, &kinds, &mut rendered.objects, output).await?;
        let found = Found::look(&cluster, &kinds, &rendered.objects).await?;
        if self.cluster.mode() != Mode::Real {
            would_remove(&found, self.cluster.mode(), output)?;
            return Ok(None);
        }
        found.confirm(&cluster, command, self.yes, output)?;
        let how = Removing {
            ignore_not_found: self.ignore_not_found,
            timeout: self.cluster.timeout,
        };
        remove_all(&cluster, &rendered.objects, how, output).await?;
        Ok(Some(rendered.objects.len()))
    }
}

/// The image of the operator: the flag's value, else `$IMG`, as the Makefile of the project has it.
pub(crate) fn image_or_variable(image: Option<String>) -> Option<String> {
    let variable = || std::env::var("IMG").ok().filter(|image| !image.is_empty());
    image.or_else(variable)
}

/// `90s`, `5m`, `1h0m0s`, or seconds. Every flag that takes a time reads it so.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let nanoseconds = go_duration(text)
        .ok()
        .and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
    nanoseconds
        .map(Duration::from_nanos)
        .ok_or_else(|| "use hours, minutes and seconds, such as 90s or 1h30m".to_owned())
}

/// A text at a JSON pointer; empty when there is none.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// `Deployment guestbook-system/guestbook-controller-manager`.
fn title(object: &Value) -> String {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    match text(object, "/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// The definitions in the files of a folder; none where there is no such folder.
///
/// # Errors
/// When a file cannot be read or is not YAML.
pub(crate) fn definitions(folder: &Path) -> Result<Vec<Value>, Diagnostic> {
    let cannot = |path: &Path, why: String| {
        Diagnostic::new(codes::files::IO, "cannot read the project's definitions")
            .at(Place::file(path.display().to_string()))
            .because(why)
            .fix("write them anew: kubewright manifests")
    };
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(why) => return Err(cannot(folder, why.to_string())),
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        if !file
            .extension()
            .is_some_and(|ending| ending == "yaml" || ending == "yml")
        {
            continue;
        }
        let text = crate::regular::text(&file).map_err(|why| cannot(&file, why.to_string()))?;
        found.extend(definitions_in(&text).map_err(|why| cannot(&file, why))?);
    }
    Ok(found)
}

/// The definitions in a YAML text.
///
/// # Errors
/// When it is not YAML.
pub(crate) fn definitions_in(text: &str) -> Result<Vec<Value>, String> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|why| why.to_string())?;
    Ok(objects.into_iter().filter(is_definition).collect())
}

fn is_definition(object: &Value) -> bool {
    text(object, "/kind") == "CustomResourceDefinition"
        && text(object, "/apiVersion").starts_with("apiextensions.k8s.io/")
}

fn is_webhook_configuration(object: &Value) -> bool {
    matches!(
        text(object, "/kind"),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("1h0m30s"), Ok(Duration::from_secs(3630)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(duration("soon").is_err());
        assert!(duration("-5m").is_err());
        assert!(duration("5d").is_err());
    }
}
