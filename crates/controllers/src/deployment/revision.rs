//! Revisions: the bookkeeping in annotations that `kubectl rollout history` and `undo` read.
//!
//! Pure. Invariants: the ReplicaSet of the present template has the highest revision; a revision number is used once; a
//! ReplicaSet that is used again remembers the numbers that it had.

use std::collections::BTreeMap;

use kubewright_objects::api::apps::v1::{Deployment, ReplicaSet};

use super::rollout::Bounds;
use kubewright_objects::meta;

/// The revision of a ReplicaSet, and of a Deployment the one of its present template.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The revisions that a ReplicaSet had before, with commas.
pub(crate) const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The Deployment's replicas when the ReplicaSet was last scaled.
pub(crate) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The most pods that the Deployment allowed at that moment.
pub(crate) const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// How long the list of former revisions may become; the oldest are forgotten.
const MAX_HISTORY: usize = 2000;

/// Annotations that are the Deployment's or the ReplicaSet's own, so that they are not copied from one to the other.
const NOT_COPIED: &[&str] = &[
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
];

/// The revision of a ReplicaSet; 0 when it has none.
pub(crate) fn of(set: &ReplicaSet) -> i64 {
    number(&set.metadata, REVISION).unwrap_or(0)
}

/// A number in an annotation.
pub(crate) fn number<T: std::str::FromStr>(
    meta: &kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    key: &str,
) -> Option<T> {
    meta::annotation(meta, key).and_then(|text| text.parse().ok())
}

/// The revision that the ReplicaSet of the present template gets: one more than any old one has.
pub(crate) fn next<'a>(old: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    old.into_iter().map(of).max().unwrap_or(0) + 1
}

/// The annotations of the ReplicaSet of the present template: the Deployment's, its revision, and the revisions that it
/// had.
pub(crate) fn annotations(deployment: &Deployment, set: &ReplicaSet, next: i64) -> BTreeMap<String, String> {
    let mut annotations = set.metadata.annotations.clone().unwrap_or_default();
    for (key, value) in deployment.metadata.annotations.iter().flatten() {
        if !NOT_COPIED.contains(&key.as_str()) {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let present = of(set);
    if present < next
        && let Some(former) = annotations.insert(REVISION.to_owned(), next.to_string())
    {
        let history = remember(annotations.get(HISTORY).map_or("", String::as_str), &former);
        annotations.insert(HISTORY.to_owned(), history);
    }
    annotations
}

fn remember(history: &str, former: &str) -> String {
    let mut revisions: Vec<&str> = history.split(',').filter(|revision| !revision.is_empty()).collect();
    revisions.push(former);
    while revisions.len() > 1 && revisions.iter().map(|revision| revision.len() + 1).sum::<usize>() > MAX_HISTORY {
        revisions.remove(0);
    }
    revisions.join(",")
}

/// Adds the annotations of a scaled ReplicaSet.
pub(crate) fn note_size(annotations: &mut BTreeMap<String, String>, bounds: &Bounds) {
    annotations.insert(DESIRED.to_owned(), bounds.replicas.to_string());
    annotations.insert(MAX.to_owned(), bounds.max_total().to_string());
}

/// The old ReplicaSets that revisionHistoryLimit does not keep: empty ones, the oldest revision first.
pub(crate) fn to_forget<'a>(old: &[&'a ReplicaSet], limit: Option<i32>) -> Vec<&'a ReplicaSet> {
    let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else {
        return vec![];
    };
    let mut old: Vec<&ReplicaSet> = old
        .iter()
        .copied()
        .filter(|set| !meta::is_deleting(&set.metadata))
        .collect();
    let surplus = old.len().saturating_sub(limit);
    old.sort_by_key(|set| (of(set), meta::created(&set.metadata)));
    old.truncate(surplus);
    old.retain(|set| is_empty(set));
    old
}

/// No replicas, wanted or there, and its status speaks of the present spec.
fn is_empty(set: &ReplicaSet) -> bool {
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = set.status.as_ref();
    wanted == 0
        && status.map_or(0, |status| status.replicas) == 0
        && status.and_then(|status| status.observed_generation) >= set.metadata.generation
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright_objects::api::apps::v1::{ReplicaSetSpec, ReplicaSetStatus};

    fn set(annotations: &[(&str, &str)]) -> ReplicaSet {
        let mut set = ReplicaSet::default();
        set.metadata.annotations = Some(
            annotations
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        );
        set
    }

    #[test]
    fn revisions_move_up_and_are_remembered() {
        let mut deployment = Deployment::default();
        deployment.metadata.annotations = Some(
            [
                ("note".to_owned(), "x".to_owned()),
                (REVISION.to_owned(), "9".to_owned()),
            ]
            .into(),
        );
        let check = |before: &[(&str, &str)], next: i64, expected: &[(&str, &str)]| {
            let expected = set(expected).metadata.annotations.expect("given");
            assert_eq!(
                annotations(&deployment, &set(before), next),
                expected,
                "{before:?} to {next}"
            );
        };
        check(&[], 1, &[(REVISION, "1"), ("note", "x")]);
        check(&[(REVISION, "1")], 3, &[(REVISION, "3"), (HISTORY, "1"), ("note", "x")]);
        check(
            &[(REVISION, "3"), (HISTORY, "1")],
            5,
            &[(REVISION, "5"), (HISTORY, "1,3"), ("note", "x")],
        );
        // Never backwards: the present one stays the highest.
        check(&[(REVISION, "5")], 2, &[(REVISION, "5"), ("note", "x")]);
        check(
            &[("note", "old"), (REVISION, "1")],
            1,
            &[(REVISION, "1"), ("note", "x")],
        );
    }

    #[test]
    fn history_does_not_grow_without_end() {
        let long = (0..2000).map(|n: i32| n.to_string()).collect::<Vec<_>>().join(",");
        let history = remember(&long, "7777");
        assert!(
            history.len() <= MAX_HISTORY && history.ends_with(",7777"),
            "{}",
            history.len()
        );
    }

    #[test]
    fn the_next_revision() {
        assert_eq!(next([]), 1);
        assert_eq!(
            next([
                &set(&[(REVISION, "2")]),
                &set(&[(REVISION, "7")]),
                &set(&[(REVISION, "nonsense")])
            ]),
            8
        );
    }

    #[test]
    fn the_oldest_empty_ones_are_forgotten() {
        let sized = |revision: &str, wanted: i32, there: i32| {
            let mut set = set(&[(REVISION, revision)]);
            set.spec = Some(ReplicaSetSpec {
                replicas: Some(wanted),
                ..ReplicaSetSpec::default()
            });
            set.status = Some(ReplicaSetStatus {
                replicas: there,
                ..ReplicaSetStatus::default()
            });
            set
        };
        let all = [sized("3", 0, 0), sized("1", 0, 0), sized("2", 0, 1), sized("4", 0, 0)];
        let check = |limit: Option<i32>, expected: &[i64]| {
            let forgotten: Vec<i64> = to_forget(&all.iter().collect::<Vec<_>>(), limit)
                .into_iter()
                .map(of)
                .collect();
            assert_eq!(forgotten, expected, "{limit:?}");
        };
        check(None, &[]);
        check(Some(4), &[]);
        check(Some(3), &[1]);
        check(Some(2), &[1]); // the second oldest still has a pod
        check(Some(0), &[1, 3, 4]);
    }
}
