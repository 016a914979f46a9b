//! Definitions as they were: in a revision of the repository, a file, or a folder.

use std::path::Path;
use std::process::Command;

use kubewright_codegen::{Diagnostic, Place, codes, manifests};
use serde_json::Value;

use crate::rollout;

/// The definitions that `earlier` names.
///
/// # Errors
/// When there is neither such a path nor such a revision, or it holds no definitions.
pub(super) fn definitions(root: &Path, earlier: &str) -> Result<Vec<Value>, Diagnostic> {
    let path = Path::new(earlier);
    let found = match (path.is_dir(), path.exists()) {
        (true, _) => rollout::definitions(path)?,
        (false, true) => {
            let text = crate::regular::text(path).map_err(|why| cannot(earlier, why.to_string()))?;
            rollout::definitions_in(&text).map_err(|why| cannot(earlier, why))?
        }
        (false, false) => of_revision(root, earlier)?,
    };
    match found.is_empty() {
        true => Err(cannot(
            earlier,
            format!("it has no CustomResourceDefinition in {}", manifests::CRDS),
        )),
        false => Ok(found),
    }
}

fn cannot(earlier: &str, why: String) -> Diagnostic {
    Diagnostic::new(codes::project::FLAGS, "cannot compare the CRDs")
        .at(Place::file(earlier))
        .because(why)
        .fix("name a revision in which they are committed, such as v0.1.0 or HEAD, or a file or folder with them")
}

fn of_revision(root: &Path, revision: &str) -> Result<Vec<Value>, Diagnostic> {
    if revision.starts_with('-') {
        return Err(cannot(revision, "it is neither a path nor a revision".to_owned()));
    }
    let listed = git(root, &["ls-tree", "-r", "--name-only", revision, "--", manifests::CRDS]);
    let listed = listed.map_err(|why| cannot(revision, why))?;
    let mut found = Vec::new();
    for file in listed
        .lines()
        .filter(|file| file.ends_with(".yaml") || file.ends_with(".yml"))
    {
        // Git lists files from the current folder on, and `./` reads them from there.
        let text = git(root, &["show", &format!("{revision}:./{file}")]).map_err(|why| cannot(revision, why))?;
        found.extend(rollout::definitions_in(&text).map_err(|why| cannot(file, why))?);
    }
    Ok(found)
}

/// The output of git, or why there is none.
fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|why| format!("cannot run git: {why}"))?;
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(|why| why.to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
