//! A chart on the disk: its name, and whether it has changed.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

use kubewright::Stop;

use super::program::{Helm, Run, path};

/// A chart, in a folder or an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chart {
    pub(super) path: PathBuf,
    pub(super) name: String,
}

impl Chart {
    /// Reads what a chart says of itself.
    ///
    /// # Errors
    /// Why this is no chart.
    pub(super) async fn load(at: &Path, helm: &Helm) -> Result<Chart, String> {
        let said = match fs::metadata(at) {
            Err(why) => return Err(format!("{} cannot be read: {why}", at.display())),
            Ok(there) if there.is_dir() => {
                let file = at.join("Chart.yaml");
                fs::read(&file).map_err(|why| format!("{} is no chart: {}: {why}", at.display(), file.display()))?
            }
            Ok(_) => {
                let run = Run::new(["show", "chart"]).arg(path(at));
                let said = helm.run(run, &Stop::never()).await;
                said.map_err(|why| format!("{} is no chart: {why}", at.display()))?
            }
        };
        let read = kubewright_schema::decode::yaml(&said)
            .map_err(|why| format!("{}: its Chart.yaml cannot be read: {why}", at.display()))?;
        match read.value["name"].as_str().filter(|name| !name.is_empty()) {
            Some(name) => Ok(Chart {
                path: at.to_owned(),
                name: name.to_owned(),
            }),
            None => Err(format!("{}: its Chart.yaml says no name", at.display())),
        }
    }

    /// A number that differs when a file of the chart has changed: by the files' names, lengths and times.
    pub(super) fn stamp(&self) -> io::Result<u64> {
        let mut hasher = DefaultHasher::new();
        stamp(&self.path, &mut hasher)?;
        Ok(hasher.finish())
    }
}

fn stamp(at: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
    let there = fs::metadata(at)?;
    at.hash(hasher);
    if !there.is_dir() {
        there.len().hash(hasher);
        there.modified()?.hash(hasher);
        return Ok(());
    }
    let mut paths = fs::read_dir(at)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    paths.iter().try_for_each(|path| stamp(path, hasher))
}
