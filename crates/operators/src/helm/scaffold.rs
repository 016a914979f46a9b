//! Charts for a project: made anew, or fetched, and read as far as the project needs to know them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kubewright::Stop;
use kubewright_codegen::charts::Chart as Known;
use serde_json::Value;

use super::chart::Chart;
use super::manifest::parts;
use super::program::{Helm, HelmError, Run, path};

/// Where a chart comes from.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// A folder, an archive, a URL, or a name in a repository.
    pub chart: String,
    /// The address of the repository.
    pub repo: Option<String>,
    /// Its version; the newest without one.
    pub version: Option<String>,
}

fn failed(what: &str, why: impl ToString) -> HelmError {
    HelmError::Failed(format!("{what}: {}", why.to_string()))
}

impl Helm {
    async fn quietly(&self, run: Run<'_>) -> Result<Vec<u8>, HelmError> {
        self.run(run.long(), &Stop::never()).await
    }

    /// Makes Helm's own example of a chart, in `into`.
    ///
    /// # Errors
    /// What Helm says.
    pub async fn create_chart(&self, name: &str, into: &Path) -> Result<PathBuf, HelmError> {
        let at = into.join(name);
        self.quietly(Run::new(["create"]).arg(path(&at))).await?;
        Ok(at)
    }

    /// Puts a chart into a folder below `into`, with the charts that it depends on.
    ///
    /// # Errors
    /// What Helm says, and what cannot be copied.
    pub async fn fetch_chart(&self, wanted: &Wanted, into: &Path) -> Result<PathBuf, HelmError> {
        let local = Path::new(&wanted.chart);
        let before = into.join("fetched");
        fs::create_dir_all(&before).map_err(|why| failed("no folder can be made", why))?;
        let at = match fs::metadata(local) {
            Ok(there) if there.is_dir() => {
                let chart = Chart::load(local, self).await.map_err(HelmError::Failed)?;
                let at = before.join(&chart.name);
                copy(local, &at).map_err(|why| failed(&format!("{} cannot be copied", local.display()), why))?;
                at
            }
            Ok(_) => {
                self.unpack(local, &before).await?;
                only_folder(&before)?
            }
            Err(_) => {
                let mut run = Run::new(["pull"]).arg("--untar").arg("--untardir").arg(path(&before));
                for (flag, value) in [("--repo", &wanted.repo), ("--version", &wanted.version)] {
                    if let Some(value) = value {
                        run = run.arg(format!("{flag}={value}"));
                    }
                }
                self.quietly(run.arg("--").arg(&wanted.chart)).await?;
                only_folder(&before)?
            }
        };
        let text = fs::read(at.join("Chart.yaml")).map_err(|why| failed("it has no Chart.yaml", why))?;
        let read =
            kubewright_schema::decode::yaml(&text).map_err(|why| failed("its Chart.yaml cannot be read", why))?;
        let depends = read.value["dependencies"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        if depends && !at.join("charts").is_dir() {
            self.quietly(Run::new(["dependency", "build"]).arg(path(&at))).await?;
        }
        Ok(at)
    }

    /// Helm reads archives, and writes none of their files: it is `tar` that does.
    async fn unpack(&self, archive: &Path, into: &Path) -> Result<(), HelmError> {
        Chart::load(archive, self).await.map_err(HelmError::Failed)?;
        let done = tokio::process::Command::new("tar")
            .arg("-xzf")
            .arg(archive)
            .arg("-C")
            .arg(into)
            .output()
            .await
            .map_err(|why| failed("tar cannot be run", why))?;
        match done.status.success() {
            true => Ok(()),
            false => Err(failed("tar", String::from_utf8_lossy(&done.stderr).trim())),
        }
    }

    /// What a project needs to know of a chart.
    ///
    /// # Errors
    /// Why it is no chart, or why it does not render with its own values.
    pub async fn read_chart(&self, at: &Path) -> Result<Known, HelmError> {
        let chart = Chart::load(at, self).await.map_err(HelmError::Failed)?;
        let read = |name: &str| match fs::read_to_string(at.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(failed(name, why)),
        };
        let schema = read("values.schema.json")?
            .map(|text| serde_json::from_str::<Value>(&text).map_err(|why| failed("its values.schema.json", why)))
            .transpose()?;
        let said = self
            .quietly(Run::new(["template", "release-name"]).arg(path(at)))
            .await?;
        let rendered = parts(&String::from_utf8_lossy(&said)).map_err(HelmError::Failed)?;
        Ok(Known {
            name: chart.name,
            values: read("values.yaml")?.unwrap_or_default(),
            schema,
            rendered: rendered.into_iter().map(|part| Value::Object(part.0)).collect(),
        })
    }
}

fn only_folder(of: &Path) -> Result<PathBuf, HelmError> {
    let entries = fs::read_dir(of).map_err(|why| failed("the chart cannot be read", why))?;
    let mut folders = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    folders
        .next()
        .ok_or_else(|| failed("the chart", "there is no folder in it"))
}

/// Copies a folder, but for what is never part of a chart. Links are followed once: what they name is copied.
///
/// # Errors
/// Which file cannot be copied.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() == ".git" {
            continue;
        }
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match fs::metadata(&from)?.is_dir() {
            true => copy(&from, &to)?,
            false => drop(fs::copy(&from, &to)?),
        }
    }
    Ok(())
}
