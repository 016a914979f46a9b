//! The release of one object: what Helm is asked to do with it, and what its Secrets say.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kubewright::kube::Api;
use kubewright::kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kubewright::{Client, Stop, kube};
use serde_json::{Value, json};

use super::chart::Chart;
use super::owner::Owner;
use super::program::{Helm, HelmError, Run, path};
use super::release::{Record, Release, selector};

/// How many revisions Helm keeps.
const HISTORY: &str = "10";

/// Why a step with a release failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Wrong {
    #[error("{0}")]
    Helm(#[from] HelmError),
    #[error("the Secrets of the release: {0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Other(String),
}

/// What the object's annotations ask of Helm.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub(super) force: bool,
    pub(super) no_hooks: bool,
    pub(super) description: Option<String>,
}

/// The release of an object.
pub(super) struct Releases<'a> {
    pub(super) helm: &'a Helm,
    pub(super) chart: &'a Chart,
    pub(super) client: &'a Client,
    pub(super) stop: &'a Stop,
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
}

impl Releases<'_> {
    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.kube().clone(), self.namespace)
    }

    /// The revisions that there are.
    pub(super) async fn records(&self) -> Result<Vec<Record>, Wrong> {
        let params = ListParams::default().labels(&selector(self.name));
        let list = self.secrets().list_metadata(&params).await?;
        Ok(list.items.iter().filter_map(Record::of).collect())
    }

    /// The release of a record.
    pub(super) async fn read(&self, record: &Record) -> Result<Arc<Release>, Wrong> {
        let secret = self.secrets().get(&record.secret).await?;
        let release = Release::of(&secret).map_err(|why| Wrong::Other(format!("Secret {}: {why}", record.secret)))?;
        Ok(Arc::new(release))
    }

    /// Removes records that keep Helm from installing.
    pub(super) async fn forget(&self, stale: &[Record]) -> Result<(), Wrong> {
        for record in stale {
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: record.uid.clone(),
                    resource_version: Some(record.resource_version.clone()),
                }),
                ..DeleteParams::default()
            };
            match self.secrets().delete(&record.secret, &params).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Gives a release's Secret its owner, so that it goes with it even where nobody uninstalls it.
    pub(super) async fn own(&self, record: &Record, owner: &Owner) -> Result<(), Wrong> {
        if record.owner.is_some() {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": record.uid, "ownerReferences": [owner.reference()]}});
        let params = PatchParams::default();
        self.secrets()
            .patch_metadata(&record.secret, &params, &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    fn run<'r>(&self, verb: &str) -> Run<'r> {
        Run::new([verb, self.name, "--namespace", self.namespace])
    }

    /// Installs the chart.
    pub(super) async fn install(&self, values: &Value, asked: &Asked) -> Result<(), Wrong> {
        let run = self.run("install").arg(path(&self.chart.path));
        let run = described(run, asked).arg_if(asked.no_hooks, "--no-hooks");
        let run = run.args(self.helm.client_side());
        self.helm.run(run.values(values).waiting(), self.stop).await?;
        Ok(())
    }

    fn upgrading<'r>(&self, values: &'r Value, asked: &Asked) -> Run<'r> {
        let run = self.run("upgrade").arg(path(&self.chart.path)).arg("--reset-values");
        run.args(self.helm.client_side())
            .arg_if(asked.no_hooks, "--no-hooks")
            .values(values)
    }

    /// Upgrades to these values and the chart as it is now.
    pub(super) async fn upgrade(&self, values: &Value, asked: &Asked) -> Result<(), Wrong> {
        let run = described(self.upgrading(values, asked), asked)
            .arg("--history-max")
            .arg(HISTORY)
            .arg_if(asked.force, self.helm.force_flag());
        self.helm.run(run.waiting(), self.stop).await?;
        Ok(())
    }

    /// The manifest that an upgrade would lead to.
    pub(super) async fn candidate(&self, values: &Value, dry_run: &str) -> Result<String, Wrong> {
        let run = self
            .upgrading(values, &Asked::default())
            .arg(format!("--dry-run={dry_run}"))
            .arg("--output")
            .arg("json");
        let said = self.helm.run(run, self.stop).await?;
        // What stands before the document is for people.
        let begin = said.iter().position(|byte| *byte == b'{').unwrap_or(0);
        let release: Release = serde_json::from_slice(&said[begin..])
            .map_err(|why| Wrong::Other(format!("helm upgrade --dry-run did not answer a release: {why}")))?;
        Ok(release.manifest)
    }

    /// Restores a revision.
    pub(super) async fn restore(&self, revision: u64, force: bool) -> Result<(), Wrong> {
        let run = Run::new(["rollback", self.name])
            .arg(revision.to_string())
            .arg("--namespace")
            .arg(self.namespace)
            .arg("--history-max")
            .arg(HISTORY)
            .args(self.helm.client_side())
            .arg_if(force, self.helm.force_flag());
        self.helm.run(run.waiting(), self.stop).await?;
        Ok(())
    }

    /// Uninstalls the release.
    pub(super) async fn uninstall(&self, asked: &Asked) -> Result<(), Wrong> {
        let run = described(self.run("uninstall"), asked).arg_if(asked.no_hooks, "--no-hooks");
        self.helm.run(run.waiting(), self.stop).await?;
        Ok(())
    }
}

fn described<'r>(run: Run<'r>, asked: &Asked) -> Run<'r> {
    match &asked.description {
        // One argument, so that it is no flag.
        Some(text) => run.arg(format!("--description={text}")),
        None => run,
    }
}
