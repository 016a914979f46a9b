//! Ready-made predicates: which events of a source lead to a reconcile.
//!
//! A predicate sees the old and the new state. Predicates that compare them let creations and deletions pass, because
//! dropping these would lose updates. Note that a change of `metadata.deletionTimestamp` bumps the generation, so [`generation_changed`]
//! does not hide the beginning of a deletion.
//!
//! ```
//! use kubewright::k8s_openapi::api::core::v1::Secret;
//! use kubewright::{Request, Watch, predicate};
//!
//! let source = Watch::<Secret>::new()
//!     .when(predicate::or(predicate::generation_changed, predicate::labels_changed))
//!     .when(predicate::not(predicate::created))
//!     .map(|secret| vec![Request::of(secret)]);
//! ```

use crate::form::Event;
use kube::Resource;

/// Passes modifications that change `metadata.generation`: the spec, not status or metadata
/// (`GenerationChangedPredicate`).
pub fn generation_changed<K: Resource>(event: &Event<K>) -> bool {
    changed(event, |object| object.meta().generation)
}

/// Passes modifications that change labels (`LabelChangedPredicate`).
pub fn labels_changed<K: Resource>(event: &Event<K>) -> bool {
    changed(event, |object| object.meta().labels.clone().unwrap_or_default())
}

/// Passes modifications that change annotations (`AnnotationChangedPredicate`).
pub fn annotations_changed<K: Resource>(event: &Event<K>) -> bool {
    changed(event, |object| object.meta().annotations.clone().unwrap_or_default())
}

/// Passes real modifications: not the repetition of a known state (`ResourceVersionChangedPredicate`).
pub fn version_changed<K: Resource>(event: &Event<K>) -> bool {
    changed(event, |object| object.meta().resource_version.clone())
}

/// Passes creations, also those of the first list.
pub fn created<K>(event: &Event<K>) -> bool {
    matches!(event, Event::Added { .. })
}

/// Passes modifications.
pub fn modified<K>(event: &Event<K>) -> bool {
    matches!(event, Event::Modified { .. })
}

/// Passes deletions, also of objects that only left the source's selection.
pub fn deleted<K>(event: &Event<K>) -> bool {
    matches!(event, Event::Deleted { .. })
}

/// Passes events of objects for which `holds` is true, before or after: an object that is not meant any more wakes
/// those that it was meant for. (`NewPredicateFuncs` and `LabelSelectorPredicate` look at the new state alone and hide
/// that step.)
pub fn object<K>(holds: impl Fn(&K) -> bool) -> impl Fn(&Event<K>) -> bool {
    move |event| match event {
        Event::Modified { old, new } => holds(old) || holds(new),
        Event::Added { object, .. } | Event::Deleted { object, .. } => holds(object),
    }
}

/// Passes the events that both let pass.
pub fn and<K>(one: impl Fn(&Event<K>) -> bool, other: impl Fn(&Event<K>) -> bool) -> impl Fn(&Event<K>) -> bool {
    move |event| one(event) && other(event)
}

/// Passes the events that one of them lets pass.
pub fn or<K>(one: impl Fn(&Event<K>) -> bool, other: impl Fn(&Event<K>) -> bool) -> impl Fn(&Event<K>) -> bool {
    move |event| one(event) || other(event)
}

/// Passes the events that the predicate does not.
pub fn not<K>(predicate: impl Fn(&Event<K>) -> bool) -> impl Fn(&Event<K>) -> bool {
    move |event| !predicate(event)
}

fn changed<K, T: PartialEq>(event: &Event<K>, part: impl Fn(&K) -> T) -> bool {
    match event {
        Event::Modified { old, new } => part(old) != part(new),
        Event::Added { .. } | Event::Deleted { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::LazyObject;
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::sync::Arc;

    fn config(generation: i64, label: &str, annotation: &str) -> Arc<LazyObject<ConfigMap>> {
        let mut object = ConfigMap::default();
        object.metadata.generation = Some(generation);
        object.metadata.labels = Some([("a".to_owned(), label.to_owned())].into());
        object.metadata.annotations = Some([("a".to_owned(), annotation.to_owned())].into());
        Arc::new(LazyObject::from(object))
    }

    #[test]
    fn each_predicate_looks_at_its_part_and_passes_births_and_deaths() {
        let check = |event: Event<ConfigMap>, expected: [bool; 3]| {
            let actual = [
                generation_changed(&event),
                labels_changed(&event),
                annotations_changed(&event),
            ];
            assert_eq!(actual, expected, "{event:?}");
        };
        let modified = |new| Event::Modified {
            old: config(1, "x", "y"),
            new,
        };
        check(modified(config(1, "x", "y")), [false, false, false]);
        check(modified(config(2, "x", "y")), [true, false, false]);
        check(modified(config(1, "z", "y")), [false, true, false]);
        check(modified(config(1, "x", "z")), [false, false, true]);
        check(
            Event::Added {
                object: config(1, "x", "y"),
                initial: false,
            },
            [true; 3],
        );
    }

    #[test]
    fn predicates_can_be_put_together() {
        let added = Event::Added {
            object: config(1, "x", "y"),
            initial: true,
        };
        let relabelled = Event::Modified {
            old: config(1, "x", "y"),
            new: config(1, "z", "y"),
        };
        let gone = Event::Deleted {
            key: kubewright_engine::ObjectKey::namespaced("default", "a"),
            object: config(1, "z", "y"),
            final_state_unknown: false,
        };
        let check = |predicate: &dyn Fn(&Event<ConfigMap>) -> bool, expected: [bool; 3]| {
            assert_eq!([predicate(&added), predicate(&relabelled), predicate(&gone)], expected);
        };
        let labelled = |value: &'static str| {
            object(move |config: &ConfigMap| config.metadata.labels.iter().flatten().any(|(_, label)| label == value))
        };
        check(&created, [true, false, false]);
        check(&modified, [false, true, false]);
        check(&deleted, [false, false, true]);
        check(&version_changed, [true, false, true]);
        check(&or(created, deleted), [true, false, true]);
        check(&and(not(created), labels_changed), [false, true, true]);
        check(&not(generation_changed), [false, true, false]);
        // The label before the change counts, too.
        check(&labelled("x"), [true, true, false]);
        check(&labelled("z"), [false, true, true]);
    }
}
