//! The conditions of a namespace that is being deleted, about its remaining content.
//!
//! Pure. Invariant: the five conditions are always written together, in this order, with the texts of Kubernetes; a
//! lastTransitionTime moves only when its condition does.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::core::v1::NamespaceCondition;

use kubewright_objects::meta;

/// The findings while the content was deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Discovery failed, wholly or for some groups.
    pub(crate) discovery_failure: Option<String>,
    /// Deleting or listing some content failed.
    pub(crate) content_failures: Vec<String>,
    /// How many objects are left, by resource and group (`deployments.apps`, `pods.`).
    pub(crate) remaining: BTreeMap<String, usize>,
    /// How many of them carry which finalizer.
    pub(crate) finalizers: BTreeMap<String, usize>,
}

impl Found {
    /// Whether nothing is left and nothing went wrong, so that the namespace may go.
    pub(crate) fn is_empty(&self) -> bool {
        self == &Found::default()
    }
}

/// The conditions that this makes, after those that there were.
pub(crate) fn of(found: &Found, before: &[NamespaceCondition], now: Timestamp) -> Vec<NamespaceCondition> {
    let listed = |counts: &BTreeMap<String, usize>, how: fn(&str, usize) -> String| {
        counts
            .iter()
            .map(|(what, count)| how(what, *count))
            .collect::<Vec<_>>()
            .join(", ")
    };
    // Type, reason and message when all is well, reason and message when it is not.
    type Row<'a> = (&'a str, &'a str, Option<(&'a str, String)>, &'a str);
    let rows: [Row<'_>; 5] = [
        (
            "NamespaceDeletionDiscoveryFailure",
            "ResourcesDiscovered",
            found
                .discovery_failure
                .as_ref()
                .map(|error| ("DiscoveryFailed", format!("Discovery failed for some groups, {error}"))),
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            None,
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            (!found.content_failures.is_empty()).then(|| {
                (
                    "ContentDeletionFailed",
                    format!(
                        "Failed to delete all resource types, {} remaining: {}",
                        found.content_failures.len(),
                        found.content_failures.join(", ")
                    ),
                )
            }),
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            "ContentRemoved",
            (!found.remaining.is_empty()).then(|| {
                let list = listed(&found.remaining, |what, count| {
                    format!("{what} has {count} resource instances")
                });
                ("SomeResourcesRemain", format!("Some resources are remaining: {list}"))
            }),
            "All content successfully removed",
        ),
        (
            "NamespaceFinalizersRemaining",
            "ContentHasNoFinalizers",
            (!found.finalizers.is_empty()).then(|| {
                let list = listed(&found.finalizers, |what, count| {
                    format!("{what} in {count} resource instances")
                });
                (
                    "SomeFinalizersRemain",
                    format!("Some content in the namespace has finalizers remaining: {list}"),
                )
            }),
            "All content-preserving finalizers finished",
        ),
    ];
    let conditions = rows.into_iter().map(|(type_, good_reason, bad, good)| {
        let (status, reason, message) = match bad {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", good_reason, good.to_owned()),
        };
        let since = before
            .iter()
            .find(|before| before.type_ == type_ && before.status == status)
            .and_then(|before| before.last_transition_time.clone());
        NamespaceCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(since.unwrap_or_else(|| meta::time(now))),
        }
    });
    let others = before
        .iter()
        .filter(|before| !before.type_.starts_with("Namespace"))
        .cloned();
    conditions.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(conditions: &[NamespaceCondition]) -> Vec<String> {
        let texts = conditions.iter().filter(|condition| condition.status == "True");
        texts
            .map(|condition| condition.message.clone().unwrap_or_default())
            .collect()
    }

    #[test]
    fn words() {
        let check = |found: Found, expected: &[&str]| {
            let conditions = of(&found, &[], Timestamp::UNIX_EPOCH);
            assert_eq!(conditions.len(), 5);
            assert_eq!(text(&conditions), expected, "{found:?}");
            assert_eq!(found.is_empty(), expected.is_empty());
        };
        let counts = |pairs: &[(&str, usize)]| pairs.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect();
        check(Found::default(), &[]);
        check(
            Found {
                remaining: counts(&[("secrets.", 2), ("configmaps.", 1)]),
                finalizers: counts(&[("example.com/hold", 2), ("example.com/second", 2)]),
                ..Found::default()
            },
            &[
                "Some resources are remaining: configmaps. has 1 resource instances, secrets. has 2 resource instances",
                "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances, \
                 example.com/second in 2 resource instances",
            ],
        );
        check(
            Found {
                discovery_failure: Some("x/v1: down".to_owned()),
                content_failures: vec!["a".to_owned(), "b".to_owned()],
                ..Found::default()
            },
            &[
                "Discovery failed for some groups, x/v1: down",
                "Failed to delete all resource types, 2 remaining: a, b",
            ],
        );
    }

    #[test]
    fn transition_times_move_with_the_status() {
        let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(100).expect("small"));
        let first = of(&Found::default(), &[], early);
        assert_eq!(of(&Found::default(), &first, late), first);
        let found = Found {
            content_failures: vec!["a".to_owned()],
            ..Found::default()
        };
        let moved = of(&found, &first, late)
            .iter()
            .filter(|condition| condition.last_transition_time != Some(meta::time(early)))
            .count();
        assert_eq!(moved, 1);
    }
}
