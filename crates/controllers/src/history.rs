//! ControllerRevisions: earlier templates of a StatefulSet or DaemonSet, under names that pods carry as a label.
//!
//! Which revision is the present one is decided by [`decide`], which is pure; [`present`] makes the writes that follow.
//!
//! Invariants: the revision of the present template has the highest number; going back to an older template uses its
//! revision again under the next number; a hash that collides with another template is counted and another name is
//! tried.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kubewright::{Context, Error, Object, Result};
use kubewright_objects::api::apps::v1::ControllerRevision;
use kubewright_objects::api::core::v1::PodTemplateSpec;
use serde_json::{Value, json};

use super::deployment::template;
use kubewright_objects::meta;

/// The label of a pod, and of a DaemonSet's revision, that says of which revision it is.
pub(crate) const POD_LABEL: &str = "controller-revision-hash";
/// The label of a StatefulSet's revision with its hash.
pub(crate) const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// The decision about the revisions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The present template is this one, and its number is the highest already.
    Is(usize),
    /// The present template is this one, and it gets this number.
    Renumber(usize, i64),
    /// There is none yet: one of this number is made.
    New(i64),
}

/// The template that a revision keeps; `None` when it keeps something else.
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let RawExtension(data) = revision.data.as_ref()?;
    let mut template = data.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// A patch that brings the template back: the data of a revision (`getPatch`).
fn data(template: &PodTemplateSpec) -> Result<Value> {
    let mut template = serde_json::to_value(template).map_err(Error::terminal)?;
    if let Some(fields) = template.as_object_mut() {
        fields.insert("$patch".to_owned(), json!("replace"));
    }
    Ok(json!({ "spec": { "template": template } }))
}

/// By number, then age, then name (`SortControllerRevisions`).
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|a, b| {
        let key = |of: &ControllerRevision| (of.revision, meta::created(&of.metadata), of.metadata.name.clone());
        key(a).cmp(&key(b))
    });
}

/// Which of the sorted revisions the present template is.
pub(crate) fn decide(revisions: &[Arc<ControllerRevision>], template: &PodTemplateSpec) -> Decision {
    let next = revisions.last().map_or(0, |last| last.revision).saturating_add(1);
    let found = revisions
        .iter()
        .rposition(|of| template_of(of).as_ref() == Some(template));
    match found {
        None => Decision::New(next),
        Some(at) if at.saturating_add(1) == revisions.len() => Decision::Is(at),
        Some(at) => Decision::Renumber(at, next),
    }
}

/// The revision of the owner's present template, made or renumbered if need be. `revisions` are sorted and stay so.
///
/// # Errors
/// When a write fails.
pub(crate) async fn present<O: Object>(
    ctx: &Context,
    owner: &O,
    template: &PodTemplateSpec,
    hash_label: &str,
    collisions: &mut i32,
    revisions: &mut Vec<Arc<ControllerRevision>>,
) -> Result<Arc<ControllerRevision>> {
    let revision = match decide(revisions, template) {
        Decision::Is(at) => return Ok(revisions[at].clone()),
        Decision::Renumber(at, number) => {
            let mut revision = (*revisions.remove(at)).clone();
            revision.revision = number;
            ctx.client().update(&revision).await?
        }
        Decision::New(number) => create(ctx, owner, template, hash_label, collisions, number).await?,
    };
    revisions.push(revision.clone());
    Ok(revision)
}

async fn create<O: Object>(
    ctx: &Context,
    owner: &O,
    of: &PodTemplateSpec,
    hash_label: &str,
    collisions: &mut i32,
    number: i64,
) -> Result<Arc<ControllerRevision>> {
    loop {
        let hash = template::hash(of, Some(*collisions)).map_err(Error::terminal)?;
        let mut labels = of.metadata.as_ref().map(meta::labels).cloned().unwrap_or_default();
        labels.insert(hash_label.to_owned(), hash.clone());
        let revision = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(template::name(meta::name(owner.meta()), &hash)),
                namespace: owner.meta().namespace.clone(),
                labels: Some(labels),
                annotations: owner.meta().annotations.clone(),
                owner_references: Some(vec![meta::reference_to(owner)]),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data(of)?)),
            revision: number,
        };
        match ctx.client().create(&revision).await {
            Err(error) if error.is_already_exists() => {}
            answer => return answer,
        }
        let name = meta::name(&revision.metadata);
        let there = ctx
            .client()
            .live::<ControllerRevision>(ctx.request().namespace(), name)
            .await?;
        let ours = |there: &ControllerRevision| {
            meta::controller_of(&there.metadata).is_some_and(|of| of.uid == meta::uid(owner.meta()))
        };
        match there {
            // Made by ourselves in a write whose answer was lost.
            Some(there) if ours(&there) && template_of(&there).as_ref() == Some(of) => return Ok(Arc::new(there)),
            _ => *collisions = collisions.saturating_add(1),
        }
    }
}

/// The revisions that revisionHistoryLimit does not keep, the oldest first. Those in `live` are in use and stay.
pub(crate) fn to_forget<'a>(
    revisions: &'a [Arc<ControllerRevision>],
    live: &BTreeSet<&str>,
    limit: i32,
) -> Vec<&'a ControllerRevision> {
    let Ok(limit) = usize::try_from(limit) else {
        return vec![];
    };
    let mut idle: Vec<&ControllerRevision> = revisions.iter().map(|revision| &**revision).collect();
    idle.retain(|revision| !live.contains(meta::name(&revision.metadata)));
    idle.truncate(idle.len().saturating_sub(limit));
    idle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(image: &str) -> PodTemplateSpec {
        serde_json::from_value(json!({ "spec": { "containers": [{ "name": "c", "image": image }] } }))
            .expect("a template")
    }

    /// `image@number`, sorted.
    fn revisions(texts: &[&str]) -> Vec<Arc<ControllerRevision>> {
        let mut all: Vec<Arc<ControllerRevision>> = texts
            .iter()
            .map(|text| {
                let (image, number) = text.split_once('@').expect("image@number");
                Arc::new(ControllerRevision {
                    metadata: ObjectMeta {
                        name: Some((*text).to_owned()),
                        ..ObjectMeta::default()
                    },
                    data: Some(RawExtension(data(&template(image)).expect("JSON"))),
                    revision: number.parse().expect("a number"),
                })
            })
            .collect();
        sort(&mut all);
        all
    }

    #[test]
    fn which_revision_is_present() {
        let check = |texts: &[&str], image: &str, expected: Decision| {
            assert_eq!(
                decide(&revisions(texts), &template(image)),
                expected,
                "{texts:?} {image}"
            );
        };
        check(&[], "a", Decision::New(1));
        check(&["a@1"], "a", Decision::Is(0));
        check(&["a@1"], "b", Decision::New(2));
        check(&["b@2", "a@1"], "b", Decision::Is(1));
        check(&["a@1", "b@2"], "a", Decision::Renumber(0, 3));
    }

    #[test]
    fn history_has_a_limit() {
        let all = revisions(&["a@1", "b@2", "c@3", "d@4"]);
        let check = |live: &[&str], limit: i32, expected: &[&str]| {
            let gone = to_forget(&all, &live.iter().copied().collect(), limit);
            let names: Vec<&str> = gone.iter().map(|revision| meta::name(&revision.metadata)).collect();
            assert_eq!(names, expected, "{live:?} {limit}");
        };
        check(&["d@4"], 10, &[]);
        check(&["d@4"], 1, &["a@1", "b@2"]);
        check(&["a@1", "d@4"], 0, &["b@2", "c@3"]);
        check(&[], -1, &[]);
    }
}
