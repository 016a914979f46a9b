//! The effect of a rollout: objects are sent as dry runs, and removed ones are looked up. Nothing changes in the
//! cluster.
//!
//! The API server defaults, validates and admits a dry run as it would the real thing, so it refuses the same objects
//! here and there. An object that it cannot try (in a namespace, or of a kind, that the same rollout brings) is shown
//! as it is written. Not here: the order, and waiting, which a trial has not.

use kubewright::kube;
use kubewright::kube::api::Patch;
use kubewright_codegen::{Diagnostic, MemoryFiles, Plan, codes, yaml};
use serde_json::{Value, json};

use super::apply::{Applying, advised, parameters};
use super::cluster::{Cluster, Kinds, defined};
use super::found::Found;
use super::ready::as_value;
use super::{Mode, text, title};
use crate::output::{CHANGE, DIM, Format, count, paint};

/// How many objects came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    created: usize,
    configured: usize,
    unchanged: usize,
}

impl Tally {
    /// Counts an object by its result.
    pub(super) fn add(&mut self, result: &str) {
        match result {
            "created" => self.created += 1,
            "configured" => self.configured += 1,
            _ => self.unchanged += 1,
        }
    }

    /// Says the end of a trial.
    pub(crate) fn tell(self, output: Format) {
        let Tally {
            created,
            configured,
            unchanged,
        } = self;
        output.say(
            &paint(
                DIM,
                format!(
                    "nothing was changed: {} to create, {configured} to change, {unchanged} as they should be",
                    count(created, "object")
                ),
            ),
            &json!({"event": "tried", "created": created, "configured": configured, "unchanged": unchanged}),
        );
    }
}

/// Tries to apply an object. `objects`: all that would be applied.
///
/// # Errors
/// When the cluster refuses it.
pub(super) async fn apply(
    cluster: &Cluster,
    kinds: &Kinds,
    object: &Value,
    objects: &[Value],
    how: Applying,
    output: Format,
) -> Result<&'static str, Diagnostic> {
    let title = title(object);
    let attempted = || format!("cannot apply {title}");
    let api = cluster
        .api(kinds, object)
        .ok_or_else(|| Diagnostic::new(codes::config::NO_KIND, attempted()))?;
    let name = text(object, "/metadata/name");
    let failed = |why: &kube::Error| cluster.failed(attempted(), why);
    let before = match api.get_opt(name).await {
        Ok(found) => found.map(as_value),
        Err(why) => return Err(failed(&why)),
    };
    let after = match api.patch(name, &parameters(how), &Patch::Apply(object)).await {
        Ok(after) => as_value(after),
        // Its namespace or its kind comes with the same rollout.
        Err(kube::Error::Api(status)) if status.code == 404 && comes_with(object, objects) => object.clone(),
        Err(why) => return Err(advised(failed(&why), &why)),
    };
    let (was, is) = (before.as_ref().map(plain), plain(&after));
    let result = match &was {
        None => "created",
        Some(was) if *was == is => "unchanged",
        Some(_) => "configured",
    };
    if how.mode == Mode::Diff {
        tell_diff(&title, was.as_ref(), Some(&is), output)?;
    } else {
        output.say(
            &format!(
                "{title} would be {}",
                paint(if result == "unchanged" { DIM } else { CHANGE }, result)
            ),
            &json!({"event": "would-apply", "object": title, "result": result}),
        );
    }
    Ok(result)
}

/// Whether the namespace or the kind of an object is among the others.
fn comes_with(object: &Value, objects: &[Value]) -> bool {
    let namespace = text(object, "/metadata/namespace");
    let kind = (text(object, "/apiVersion"), text(object, "/kind"));
    objects.iter().any(|other| {
        let is_namespace = text(other, "/kind") == "Namespace" && text(other, "/metadata/name") == namespace;
        let mut brings = defined(other).into_iter();
        is_namespace || brings.any(|resource| (resource.api_version.as_str(), resource.kind.as_str()) == kind)
    })
}

/// An object without the fields that the server keeps for itself.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "managedFields",
            "resourceVersion",
            "generation",
            "uid",
            "creationTimestamp",
        ] {
            metadata.remove(field);
        }
    }
    object
}

fn tell_diff(title: &str, before: Option<&Value>, after: Option<&Value>, output: Format) -> Result<(), Diagnostic> {
    let mut files = MemoryFiles::default();
    if let Some(before) = before {
        files.0.insert(title.to_owned(), yaml::to_string(before));
    }
    let mut plan = Plan::new(&files);
    match after {
        Some(after) => plan.write(title, yaml::to_string(after))?,
        None => plan.remove(title)?,
    }
    let diff = plan.diff();
    if !diff.is_empty() {
        output.say(
            diff.trim_end(),
            &json!({"event": "diff", "object": title, "diff": diff}),
        );
    }
    Ok(())
}

/// Lists the objects that would be removed.
///
/// # Errors
/// When a diff cannot be made.
pub(super) fn would_remove(found: &Found, mode: Mode, output: Format) -> Result<(), Diagnostic> {
    for object in &found.objects {
        let title = title(object);
        if mode == Mode::Diff {
            tell_diff(&title, Some(&plain(object)), None, output)?;
        } else {
            output.say(
                &format!("{title} would be {}", paint(CHANGE, "deleted")),
                &json!({"event": "would-delete", "object": title}),
            );
        }
    }
    output.say(
        &paint(
            DIM,
            format!(
                "nothing was changed: {} to delete, {} not there",
                count(found.objects.len(), "object"),
                found.absent
            ),
        ),
        &json!({"event": "tried", "deleted": found.objects.len(), "absent": found.absent}),
    );
    Ok(())
}
