//! Ready-made predicates: which events of a source lead to a reconcile.
//!
//! A predicate sees old and new state. Creations and deletions pass all of these: dropping them is how updates get lost. Note that a change of
//! `metadata.deletionTimestamp` bumps the generation, so [`generation_changed`] does not hide the beginning of a deletion.

use kube::Resource;
use kubewright_engine::Event;

/// Passes modifications that change `metadata.generation`: the spec, not status or metadata (`GenerationChangedPredicate`).
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

fn changed<K, T: PartialEq>(event: &Event<K>, part: impl Fn(&K) -> T) -> bool {
    match event {
        Event::Modified { old, new } => part(old) != part(new),
        Event::Added { .. } | Event::Deleted { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::sync::Arc;

    fn config(generation: i64, label: &str, annotation: &str) -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.generation = Some(generation);
        object.metadata.labels = Some([("a".to_owned(), label.to_owned())].into());
        object.metadata.annotations = Some([("a".to_owned(), annotation.to_owned())].into());
        Arc::new(object)
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
}
