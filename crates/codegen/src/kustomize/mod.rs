//! The rendering of a folder as by `kustomize build`, for the fields that a project's `config/` uses.
//!
//! [`build`] renders `resources`, `components`, `patches` (strategic merge and JSON 6902), `namespace`, `namePrefix`,
//! `labels`, `images`, `replacements` and `configurations` (name references, namespaces) as kustomize 5 does: the same
//! objects in the same order. Everything else it refuses in words
//! ([`codes::config::UNSUPPORTED`](crate::codes::config::UNSUPPORTED)); it never leaves a field out silently.
//!
//! A folder is rendered in kustomize's steps: resources come in, components work on all that is there, then the
//! folder's own transformers in a fixed order; when the outermost folder is done, references to names that changed are
//! mended (`references`), objects marked as local go, and the rest is sorted (`order`). Not here: generators, remote
//! resources, plugins, name suffixes.

mod fields;
mod kustomization;
mod load;
mod merge;
pub(crate) mod object;
mod order;
mod patch;
mod references;
mod replacement;
mod transform;

use serde_json::Value;

use crate::diagnostic::Diagnostic;
use crate::plan::Files;

/// Renders a folder of the project, such as `config/default`.
///
/// ```
/// use kubewright_codegen::{MemoryFiles, kustomize};
/// let files = MemoryFiles::from([
///     ("config/default/kustomization.yaml", "namePrefix: guestbook-\nresources:\n- ../manager\n"),
///     ("config/manager/kustomization.yaml", "resources:\n- account.yaml\n"),
///     ("config/manager/account.yaml", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: manager}\n"),
/// ]);
/// let objects = kustomize::build("config/default", &files).unwrap();
/// assert_eq!(objects[0]["metadata"]["name"], "guestbook-manager");
/// ```
///
/// # Errors
/// When a file is missing or broken, a patch or replacement does not fit, or a field is used that is not known here.
pub fn build(dir: &str, files: &dyn Files) -> Result<Vec<Value>, Diagnostic> {
    let mut accumulator = load::folder(dir.trim_end_matches('/'), files)?;
    references::mend(&mut accumulator.objects, &accumulator.references)?;
    let mut objects = accumulator.objects;
    objects.retain(|object| !object.is_local());
    order::sort(&mut objects);
    Ok(objects.into_iter().map(|object| object.value).collect())
}

/// The objects of a YAML file with several documents, such as the output of `kustomize build`. `file` is for messages.
///
/// # Errors
/// When a document is no YAML, or names a field twice.
pub fn documents(file: &str, text: &str) -> Result<Vec<Value>, Diagnostic> {
    let documents = load::documents(file, text)?;
    Ok(documents.into_iter().map(|(value, _)| value).collect())
}
