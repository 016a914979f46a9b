//! `overrideValues` of a `watches.yaml`: values of the chart that no object can change.
//!
//! A text has references to the environment, and may be a template. Templates are Helm's business: a chart that has
//! nothing else in it is given to `helm template`, so that the functions are Helm's, too.

use std::fs;
use std::io;
use std::path::Path;

use kubewright::Stop;
use serde_json::{Map, Value, json};

use super::assignment::assign;
use super::program::{Helm, HelmError, Run, path};
use crate::watches::expand;

/// The values that an entry overrides.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Overrides {
    /// Each path as it was written, and its text.
    pub(super) texts: Vec<(String, String)>,
    /// As values.
    pub(super) values: Map<String, Value>,
}

/// Why overrides cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Wrong {
    #[error("overrideValues {0}: {1}")]
    Path(String, String),
    #[error("overrideValues: {0}")]
    Template(HelmError),
    #[error("overrideValues: {0}")]
    Io(#[from] io::Error),
}

impl Overrides {
    /// The overrides of a map, with the environment of `variable`; one that is not set is empty.
    ///
    /// # Errors
    /// Which of them is wrong, and why.
    pub(super) async fn of(
        map: &Map<String, Value>,
        variable: &(dyn Fn(&str) -> Option<String> + Sync),
        helm: &Helm,
    ) -> Result<Overrides, Wrong> {
        let set = |name: &str| Some(variable(name).unwrap_or_default());
        let mut texts = Vec::new();
        for (path, value) in map {
            let text = match value {
                Value::String(text) => expand(text, &set),
                Value::Null => String::new(),
                Value::Bool(_) | Value::Number(_) => {
                    let why = format!("it is a text; write it in quotes: \"{value}\"");
                    return Err(Wrong::Path(path.clone(), why));
                }
                _ => return Err(Wrong::Path(path.clone(), "it is a text".to_owned())),
            };
            texts.push((path.clone(), text));
        }
        if texts.iter().any(|(_, text)| text.contains("{{")) {
            texts = rendered(texts, helm).await?;
        }
        let mut values = Map::new();
        for (path, text) in &texts {
            assign(&mut values, path, text).map_err(|why| Wrong::Path(path.clone(), why))?;
        }
        Ok(Overrides { texts, values })
    }
}

/// The texts as `helm template` renders them.
async fn rendered(texts: Vec<(String, String)>, helm: &Helm) -> Result<Vec<(String, String)>, Wrong> {
    let chart = tempfile::tempdir_in(helm.folder())?;
    write_chart(chart.path(), &texts)?;
    let run = Run::new(["template", "overrides"]).arg(path(chart.path()));
    let said = helm.run(run, &Stop::never()).await.map_err(Wrong::Template)?;
    let decoded = kubewright_schema::decode::yaml(&said).map_err(|why| io::Error::other(why.to_string()))?;
    let text = |(number, (path, _)): (usize, (String, String))| {
        let text = decoded.value["data"][format!("v{number}")].as_str();
        let text = text.ok_or_else(|| io::Error::other(format!("helm rendered no text for {path}")))?;
        Ok((path, text.to_owned()))
    };
    texts.into_iter().enumerate().map(text).collect()
}

fn write_chart(folder: &Path, texts: &[(String, String)]) -> io::Result<()> {
    let head = json!({"apiVersion": "v2", "name": "overrides", "version": "0.0.0"});
    fs::write(folder.join("Chart.yaml"), head.to_string())?;
    let templates = folder.join("templates");
    fs::create_dir(&templates)?;
    let mut template = String::from("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: overrides}\ndata:\n");
    for (number, (_, text)) in texts.iter().enumerate() {
        fs::write(
            templates.join(format!("_{number}.tpl")),
            format!("{{{{ define \"v{number}\" }}}}{text}{{{{ end }}}}"),
        )?;
        template.push_str(&format!("  v{number}: {{{{ include \"v{number}\" . | toJson }}}}\n"));
    }
    fs::write(templates.join("overrides.yaml"), template)
}
