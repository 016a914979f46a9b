//! The ControllerRevisions of a SidecarSet, in the namespace of the operator: one for each distinct content, the
//! present one with the highest number.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubewright::k8s_openapi::api::apps::v1::ControllerRevision;
use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kubewright::kube::core::Selector;
use kubewright::prelude::*;
use sidecarset_api::v1alpha1::SidecarSet;

use crate::sidecar::hash::{self, HASH};
use crate::sidecar::{defaults, record};

/// The label of a ControllerRevision with the name of its set.
pub const SET_NAME: &str = "kruise.io/sidecarset-name";
/// Where a pod finds the namespace that it is in.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The namespace of `config/default`, for an operator that runs outside a cluster.
const NAMESPACE: &str = "sidecarset-system";

/// The namespace of the operator.
pub fn namespace() -> String {
    let mounted = std::fs::read_to_string(NAMESPACE_FILE).unwrap_or_default();
    match mounted.trim() {
        "" => NAMESPACE.to_owned(),
        mounted => mounted.to_owned(),
    }
}

/// The revision of the present spec.
#[derive(Debug, PartialEq, Eq)]
pub enum Present {
    /// It is there, under this name.
    Named(String),
    /// Its name is taken by another content; `collisionCount` is to be raised.
    Taken,
}

/// Makes sure that the revision of the present spec is there and has the highest number.
///
/// # Errors
/// When a read or a write fails.
pub async fn present(ctx: &Context, set: &SidecarSet, all: &[Arc<ControllerRevision>]) -> Result<Present> {
    let name = hash::revision(set);
    let highest = all.iter().map(|revision| revision.revision).max().unwrap_or(0);
    let data = hash::revision_data(&set.spec);
    let Some(found) = all
        .iter()
        .find(|revision| revision.metadata.name.as_ref() == Some(&name))
    else {
        let revision = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace()),
                labels: Some([(SET_NAME.to_owned(), ctx.request().name().to_owned())].into()),
                ..ObjectMeta::default()
            },
            revision: highest.saturating_add(1),
            data: Some(RawExtension(data)),
        };
        ctx.client().create(&revision).await?;
        return Ok(Present::Named(name));
    };
    if found.data.as_ref().map(|RawExtension(found)| found) != Some(&data) {
        return Ok(Present::Taken);
    }
    if found.revision < highest {
        let mut renumbered = (**found).clone();
        renumbered.revision = highest.saturating_add(1);
        ctx.client().update(&renumbered).await?;
    }
    Ok(Present::Named(name))
}

/// The revisions of the set.
///
/// # Errors
/// When they cannot be read.
pub async fn list(client: &Client, set: &str) -> Result<Vec<Arc<ControllerRevision>>> {
    let selector: Selector = [(SET_NAME.to_owned(), set.to_owned())].into_iter().collect();
    client.list_matching(&namespace(), &selector).await
}

/// Deletes the oldest revisions that neither the set nor a pod uses, as far as there are too many.
///
/// # Errors
/// When a delete fails.
pub async fn truncate(ctx: &Context, set: &SidecarSet, all: &[Arc<ControllerRevision>], pods: &[&Pod]) -> Result<()> {
    for revision in superfluous(set, all, pods) {
        ctx.client().delete(&**revision).await?;
    }
    Ok(())
}

fn superfluous<'a>(
    set: &SidecarSet,
    all: &'a [Arc<ControllerRevision>],
    pods: &[&Pod],
) -> Vec<&'a Arc<ControllerRevision>> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let used = pods.iter().filter_map(|pod| {
        record::map_of::<record::Record>(pod, HASH)
            .remove(name)?
            .controller_revision
    });
    let used: BTreeSet<String> = used.chain([hash::revision(set)]).collect();
    let is_used =
        |revision: &&Arc<ControllerRevision>| revision.metadata.name.as_ref().is_some_and(|name| used.contains(name));
    let mut unused: Vec<_> = all.iter().filter(|revision| !is_used(revision)).collect();
    unused.sort_by_key(|revision| revision.revision);
    let limit = set
        .spec
        .revision_history_limit
        .unwrap_or(defaults::REVISION_HISTORY_LIMIT);
    let kept = usize::try_from(limit).unwrap_or(0);
    unused.truncate(unused.len().saturating_sub(kept));
    unused
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_oldest_that_are_not_used_go() {
        let set = |limit: i32| {
            let spec = json!({"containers": [{"name": "s"}], "revisionHistoryLimit": limit});
            SidecarSet::new("set", serde_json::from_value(spec).expect("a spec"))
        };
        let revision = |name: &str, number: i64| {
            let mut revision = ControllerRevision {
                revision: number,
                ..ControllerRevision::default()
            };
            revision.metadata.name = Some(name.to_owned());
            Arc::new(revision)
        };
        let now =
            kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(kubewright::jiff::Timestamp::UNIX_EPOCH);
        let mut pod = Pod::default();
        record::write(&mut pod, &set(0), &hash::of(&set(0).spec), "a", now).expect("JSON");
        let all = [
            revision("c", 3),
            revision("a", 1),
            revision("b", 2),
            revision(&hash::revision(&set(0)), 4),
        ];
        let check = |limit: i32, expected: &[&str]| {
            let gone = superfluous(&set(limit), &all, &[&pod]);
            let names: Vec<&str> = gone
                .iter()
                .filter_map(|revision| revision.metadata.name.as_deref())
                .collect();
            assert_eq!(names, expected, "{limit}");
        };
        check(0, &["b", "c"]);
        check(1, &["b"]);
        check(2, &[]);
    }
}
