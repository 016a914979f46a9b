//! `kubewright build-installer`: everything that a cluster needs, in one file that `kubectl apply -f` takes.

use std::path::{Path, PathBuf};

use clap::Args;
use kubewright_codegen::{Diagnostic, Place, codes, yaml};
use serde_json::json;

use super::deploy::FOLDER;
use crate::output::{DIM, Failure, Format, paint};
use crate::project::Project;
use crate::rollout::{image_or_variable, render};

/// Render `config/default` into one file to install from
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The operator's image [default: $IMG, else the one of config/manager]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// Where to write; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "dist/install.yaml")]
    to: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let project = Project::here()?;
        let image = image_or_variable(self.image);
        let rendered = render(&project.root, FOLDER, image.as_deref())?;
        let text = yaml::documents_to_string(&rendered.objects);
        if self.to == Path::new("-") {
            output.say(text.trim_end(), &json!({"event": "rendered", "objects": rendered.objects}));
            return Ok(());
        }
        let path = project.root.join(&self.to);
        let changed = write(&path, &text)?;
        let shown = self.to.display().to_string();
        let state = if changed { "written" } else { "unchanged" };
        let by = rendered.by.map(|program| format!(", rendered by {program}")).unwrap_or_default();
        output.say(
            &format!(
                "{shown} {}",
                paint(DIM, format!("{state}: {} objects{by}", rendered.objects.len()))
            ),
            &json!({
                "event": "written", "file": shown, "changed": changed, "objects": rendered.objects.len(), "by": rendered.by,
            }),
        );
        Ok(())
    }
}

/// Writes the file as a whole or not at all; `false` when it is as it should be.
fn write(path: &Path, text: &str) -> Result<bool, Diagnostic> {
    if std::fs::read_to_string(path).is_ok_and(|present| present == text) {
        return Ok(false);
    }
    let cannot = |why: std::io::Error| {
        Diagnostic::new(codes::files::IO, "cannot write the installer")
            .at(Place::file(path.display().to_string()))
            .because(why)
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(cannot)?;
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&temporary, text)
        .and_then(|()| std::fs::rename(&temporary, path))
        .map_err(|why| {
            // What is left of a failed attempt is of no use.
            let _ = std::fs::remove_file(&temporary);
            cannot(why)
        })?;
    Ok(true)
}
