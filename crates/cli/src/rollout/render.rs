//! Folders of `config/` into objects: by the built-in renderer, and by kustomize where that knows too little.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use kubewright_codegen::{Diagnostic, Files, Place, Plan, codes, config, kustomize};
use serde_json::Value;
use tempfile::TempDir;

use crate::files::{Disk, temporary_folder};

/// The rendering of a folder.
pub(crate) struct Rendered {
    pub(crate) objects: Vec<Value>,
    /// The program that had to be asked, if one was.
    pub(crate) by: Option<&'static str>,
}

/// Renders a folder of the project with the operator's image, changing no file.
///
/// # Errors
/// The error in the folder, or that neither kustomize nor kubectl is there to render fields that the built-in renderer
/// does not know.
pub(crate) fn render(root: &Path, dir: &str, image: Option<&str>) -> Result<Rendered, Diagnostic> {
    let files = Disk::new(root);
    // Never written: it holds the image for this one rendering.
    let mut plan = Plan::new(&files);
    if let Some(image) = image {
        config::set_image(image, &mut plan)?;
    }
    match kustomize::build(dir, &plan) {
        Ok(objects) => Ok(Rendered { objects, by: None }),
        Err(unsupported) if unsupported.code == codes::config::UNSUPPORTED => ask(root, dir, &plan, unsupported),
        Err(why) => Err(why),
    }
}

/// The kinds that run pods.
const WORKLOADS: [&str; 5] = ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"];

impl Rendered {
    /// The operator is among the objects: without it nothing would run, and no message would say so.
    ///
    /// # Errors
    /// When no object runs pods.
    pub(crate) fn with_operator(self, dir: &str) -> Result<Rendered, Diagnostic> {
        let runs = |object: &Value| object["kind"].as_str().is_some_and(|kind| WORKLOADS.contains(&kind));
        if self.objects.iter().any(runs) {
            return Ok(self);
        }
        Err(Diagnostic::new(codes::config::KUSTOMIZATION, "cannot find the operator among what is rendered")
            .at(Place::file(format!("{dir}/kustomization.yaml")))
            .because(format!("none of its {} objects runs pods", self.objects.len()))
            .fix("see that it lists ../manager, and that config/manager/manager.yaml has its Deployment; nothing was written"))
    }
}

fn cannot_read(path: &str, why: &std::io::Error) -> Diagnostic {
    Diagnostic::new(codes::files::IO, format!("cannot read {path}"))
        .at(Place::file(path))
        .because(why)
}

/// The programs that render, in the order in which they are tried.
const PROGRAMS: [(&str, &str); 2] = [("kustomize", "build"), ("kubectl", "kustomize")];

/// Asks a program, on a copy of `config/` with the image in it.
fn ask(root: &Path, dir: &str, plan: &Plan<'_>, unsupported: Diagnostic) -> Result<Rendered, Diagnostic> {
    let copy = copy(root, plan)?;
    for (program, verb) in PROGRAMS {
        let output = match Command::new(program)
            .args([verb, dir])
            .current_dir(copy.path())
            .output()
        {
            Ok(output) => output,
            Err(why) if why.kind() == ErrorKind::NotFound => continue,
            Err(why) => return Err(unsupported.because(format!("{program} cannot be run: {why}"))),
        };
        if !output.status.success() {
            return Err(
                Diagnostic::new(codes::config::KUSTOMIZE, format!("cannot render {dir} with {program}"))
                    .because(String::from_utf8_lossy(&output.stderr).trim())
                    .fix(format!("{program} {verb} {dir}")),
            );
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let objects = kustomize::documents(dir, &text)?;
        return Ok(Rendered {
            objects,
            by: Some(program),
        });
    }
    Err(unsupported.because("neither kustomize nor kubectl is on the PATH"))
}

/// A copy of `config/` with the changes of the plan.
fn copy(root: &Path, plan: &Plan<'_>) -> Result<TempDir, Diagnostic> {
    let copy = temporary_folder()?;
    for path in plan.list("config")? {
        // Files that are no text are copied as they are.
        let bytes = match plan.read(&path) {
            Ok(Some(text)) => text.into_bytes(),
            _ => crate::regular::bytes(&root.join(&path)).map_err(|why| cannot_read(&path, &why))?,
        };
        let target = copy.path().join(&path);
        let written = target.parent().map_or(Ok(()), std::fs::create_dir_all);
        written.and_then(|()| std::fs::write(&target, bytes)).map_err(|why| {
            Diagnostic::new(codes::files::IO, "cannot make a copy of config/ to render")
                .at(Place::file(target.display().to_string()))
                .because(why)
        })?;
    }
    Ok(copy)
}
