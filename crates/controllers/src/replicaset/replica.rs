//! What is read of a pod to count it: a few bytes that the cache keeps beside it, because a ReplicaSet looks at all of
//! its pods in each reconcile.
//!
//! Pure. Not here: which pods go when there are too many, for which whole pods are read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use kubewright::View;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::core::Selector;
use kubewright_objects::api::core::v1::Pod;

use kubewright_objects::meta;
use kubewright_objects::pods;

/// A pod as it is counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replica {
    labels: LabelText,
    is_active: bool,
    is_terminating: bool,
    is_ready: bool,
    ready_since: Option<Timestamp>,
}

impl View<Pod> for Replica {
    fn of(pod: &Pod) -> Replica {
        Replica {
            labels: LabelText::of(meta::labels(&pod.metadata)),
            is_active: pods::is_active(pod),
            is_terminating: pods::is_terminating(pod),
            is_ready: pods::is_ready(pod),
            ready_since: pods::ready_since(pod),
        }
    }
}

impl Replica {
    /// Neither finished nor being deleted.
    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Being deleted and not finished yet.
    pub(super) fn is_terminating(&self) -> bool {
        self.is_terminating
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// As [`pods::is_available`].
    pub(super) fn is_available(&self, min_ready_seconds: i32, now: Timestamp) -> bool {
        self.is_ready && (min_ready_seconds <= 0 || self.available_in(min_ready_seconds, now) == Some(Duration::ZERO))
    }

    /// How long until it is available, if it is ready.
    pub(super) fn available_in(&self, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
        let ready = self.ready_since?;
        Some(pods::available_since(ready, min_ready_seconds, now))
    }
}

/// Labels as one text, which takes a tenth of the memory of a map. No name or value of a label has one of the
/// separating characters.
#[derive(Debug, PartialEq, Eq)]
struct LabelText(Box<str>);

impl LabelText {
    fn of(labels: &BTreeMap<String, String>) -> LabelText {
        let mut text = String::new();
        for (key, value) in labels {
            // Writing to a string cannot fail.
            let _ = write!(text, "{key}={value},");
        }
        LabelText(text.into_boxed_str())
    }

    fn map(&self) -> BTreeMap<String, String> {
        let pairs = self.0.split_terminator(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

/// Asks about the labels of pods. Nearly all have those of the template, which are asked about once.
pub(super) struct Labels<'a> {
    selector: &'a Selector,
    template: &'a BTreeMap<String, String>,
    text: LabelText,
    template_fits: bool,
}

impl<'a> Labels<'a> {
    pub(super) fn of(selector: &'a Selector, template: &'a BTreeMap<String, String>) -> Labels<'a> {
        Labels {
            selector,
            template,
            text: LabelText::of(template),
            template_fits: meta::fits_labels(selector, template),
        }
    }

    /// Whether the selector fits a pod, as [`meta::fits`].
    pub(super) fn fit(&self, replica: &Replica) -> bool {
        match replica.labels == self.text {
            true => self.template_fits,
            false => meta::fits_labels(self.selector, &replica.labels.map()),
        }
    }

    /// Whether a pod has all labels of the template.
    pub(super) fn are_full(&self, replica: &Replica) -> bool {
        if replica.labels == self.text {
            return true;
        }
        let labels = replica.labels.map();
        self.template.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    /// Of labels with every character that separates, and without values.
    #[test]
    fn labels_survive_as_text() {
        for labels in [
            map(&[]),
            map(&[("a", "")]),
            map(&[("app.kubernetes.io/name", "web"), ("b", ""), ("c", "x_y.z-1")]),
        ] {
            assert_eq!(LabelText::of(&labels).map(), labels);
        }
    }

    #[test]
    fn labels_are_asked_as_those_of_a_pod() {
        let template = map(&[("app", "web"), ("tier", "a")]);
        let check = |selector: serde_json::Value, labels: &[(&str, &str)], is_full: bool| {
            let selector = serde_json::from_value(selector).expect("a selector");
            let selector = meta::selector("x", &selector).expect("a good selector");
            let pod = Pod {
                metadata: ObjectMeta {
                    labels: Some(map(labels)),
                    ..ObjectMeta::default()
                },
                ..Pod::default()
            };
            let asked = Labels::of(&selector, &template);
            let replica = Replica::of(&pod);
            assert_eq!(asked.fit(&replica), meta::fits(&selector, &pod.metadata), "{labels:?}");
            assert_eq!(asked.are_full(&replica), is_full, "{labels:?}");
        };
        for selector in [
            json!({}),
            json!({ "matchLabels": { "app": "web" } }),
            json!({ "matchLabels": { "app": "lab" } }),
            json!({ "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["b"] }] }),
        ] {
            check(selector.clone(), &[("app", "web"), ("tier", "a")], true);
            check(selector.clone(), &[("app", "web"), ("tier", "a"), ("z", "")], true);
            check(selector.clone(), &[("app", "web")], false);
            check(selector.clone(), &[("app", "lab"), ("tier", "b")], false);
            check(selector, &[], false);
        }
    }
}
