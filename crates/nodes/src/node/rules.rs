//! Annotations of the simulation that a test or a program sets for pods by their labels, present and future ones: they
//! count as if the pods had them.
//!
//! Invariant: a pod's own annotation wins over a rule.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::kube::core::{Expression, Selector, SelectorExt as _};

use kubewright_objects::meta;

/// How pods with certain labels behave. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Behaviours(Arc<Mutex<Vec<Rule>>>);

#[derive(Debug)]
struct Rule {
    namespace: Option<String>,
    text: String,
    selector: Selector,
    annotations: BTreeMap<String, String>,
}

impl Behaviours {
    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        // Nothing under this lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pods that a label selector selects, of one namespace or of all, behave from now on as these annotations say;
    /// with none, as they say themselves. Pods that run notice it when they are looked at next: annotate them as well
    /// to have it at once.
    ///
    /// # Errors
    /// When the selector is none.
    pub fn set(
        &self,
        namespace: Option<&str>,
        selector: &str,
        annotations: BTreeMap<String, String>,
    ) -> Result<(), String> {
        let parsed = parse(selector)?;
        let mut rules = self.rules();
        rules.retain(|rule| (rule.namespace.as_deref(), rule.text.as_str()) != (namespace, selector));
        if !annotations.is_empty() {
            rules.push(Rule {
                namespace: namespace.map(str::to_owned),
                text: selector.to_owned(),
                selector: parsed,
                annotations,
            });
        }
        Ok(())
    }

    /// The pod with the annotations of the rules.
    pub(super) fn apply(&self, pod: Arc<Pod>) -> Arc<Pod> {
        let rules = self.rules();
        let of_pod = |rule: &&Rule| {
            let namespace = rule.namespace.as_ref();
            namespace.is_none_or(|namespace| pod.metadata.namespace.as_ref() == Some(namespace))
                && rule.selector.matches(meta::labels(&pod.metadata))
        };
        let mut found = rules.iter().filter(of_pod).peekable();
        if found.peek().is_none() {
            return pod.clone();
        }
        let mut told = (*pod).clone();
        let annotations = told.metadata.annotations.get_or_insert_default();
        for (key, value) in found.flat_map(|rule| &rule.annotations) {
            annotations.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Arc::new(told)
    }
}

/// A label selector as kubectl's `-l` takes it, without sets.
fn parse(text: &str) -> Result<Selector, String> {
    let wrong = || format!("{text:?} is no label selector; say key=value, key!=value, key or !key, with commas");
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let expressions = parts.map(|part| {
        let is_key = |key: &str| !key.is_empty() && !key.contains([' ', '(', ')', '=', '!']);
        let (key, value, is_equal) = match (part.split_once("!="), part.split_once('=')) {
            (Some((key, value)), _) => (key.trim(), Some(value), false),
            (None, Some((key, value))) => (key.trim(), Some(value.trim_start_matches('=')), true),
            (None, None) => (part.trim_start_matches('!'), None, !part.starts_with('!')),
        };
        if !is_key(key) {
            return Err(wrong());
        }
        let key = key.to_owned();
        Ok(match (value.map(|value| value.trim().to_owned()), is_equal) {
            (Some(value), true) => Expression::Equal(key, value),
            (Some(value), false) => Expression::NotEqual(key, value),
            (None, true) => Expression::Exists(key),
            (None, false) => Expression::DoesNotExist(key),
        })
    });
    expressions.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_a_rule_selects() {
        let check = |selector: &str, namespace: Option<&str>, expected: Option<&str>| {
            let behaviours = Behaviours::default();
            let says = || [("kubewright.dev/never-ready".to_owned(), "true".to_owned())].into();
            behaviours.set(namespace, selector, says()).expect("a selector");
            let pod = json!({ "metadata": { "namespace": "n", "labels": { "app": "db", "tier": "a" } } });
            let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).expect("a pod"));
            let found = behaviours.apply(pod.clone());
            assert_eq!(
                meta::annotation(&found.metadata, "kubewright.dev/never-ready"),
                expected,
                "{selector}"
            );
            behaviours
                .set(namespace, selector, BTreeMap::new())
                .expect("a selector");
            assert_eq!(
                behaviours.apply(pod).metadata.annotations,
                None,
                "{selector} is taken back"
            );
        };
        check("app=db", None, Some("true"));
        check("app == db, tier", Some("n"), Some("true"));
        check("", None, Some("true"));
        check("app=db", Some("other"), None);
        check("app!=db", None, None);
        check("!tier", None, None);
        check("!other", None, Some("true"));
    }

    #[test]
    fn what_is_no_selector() {
        let check = |text: &str| assert!(parse(text).is_err(), "{text}");
        check("app in (a)");
        check("=x");
    }
}
