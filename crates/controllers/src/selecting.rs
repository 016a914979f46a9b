//! Which Services or budgets select an object: the answer to a `watches` of Pods.
//!
//! Invariant: a selector is remembered *before* the objects that it selects are listed. An object that comes before is
//! in the list; one that comes later finds the selector.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright::Request;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kubewright::kube::core::{Selector, SelectorExt as _};

type Namespaces = BTreeMap<Option<Arc<str>>, BTreeMap<Request, Selector>>;

/// The selectors of all objects of one kind. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Selecting(Arc<Mutex<Namespaces>>);

impl Selecting {
    fn map(&self) -> MutexGuard<'_, Namespaces> {
        // Nothing under this lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of this key selects that.
    pub(crate) fn remember(&self, request: &Request, selector: &Selector) {
        let mut map = self.map();
        let near = map.entry(request.namespace.clone()).or_default();
        near.insert(request.clone(), selector.clone());
    }

    /// The object of this key is gone, or selects nothing any more.
    pub(crate) fn forget(&self, request: &Request) {
        let mut map = self.map();
        if let Some(near) = map.get_mut(&request.namespace) {
            near.remove(request);
            if near.is_empty() {
                map.remove(&request.namespace);
            }
        }
    }

    /// The keys of those that select this object.
    pub(crate) fn of(&self, meta: &ObjectMeta) -> Vec<Request> {
        let none = BTreeMap::new();
        let labels = meta.labels.as_ref().unwrap_or(&none);
        self.chosen(meta, |selector| selector.matches(labels))
    }

    /// The keys of those in the namespace of this object whose selectors are chosen.
    pub(super) fn chosen(&self, meta: &ObjectMeta, chooses: impl Fn(&Selector) -> bool) -> Vec<Request> {
        let namespace: Option<Arc<str>> = meta.namespace.as_deref().map(Arc::from);
        let map = self.map();
        let near = map.get(&namespace).into_iter().flatten();
        near.filter(|(_, selector)| chooses(selector))
            .map(|(request, _)| request.clone())
            .collect()
    }

    /// Whether the object of this key was remembered.
    pub(super) fn knows(&self, request: &Request) -> bool {
        let map = self.map();
        map.get(&request.namespace)
            .is_some_and(|near| near.contains_key(request))
    }
}

/// A selector as Go prints it.
pub(super) fn go_text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.match_expressions.iter().flatten();
    let expressions: String = expressions
        .map(|one| {
            let values = one.values.as_deref().unwrap_or_default().join(" ");
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
                one.key, one.operator
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_find_what_selects_them() {
        let selecting = Selecting::default();
        let key = |name: &str| Request::new(Some("a"), name);
        let web: Selector = [("app", "web")].into_iter().collect();
        selecting.remember(&key("web"), &web);
        selecting.remember(&key("all"), &Selector::default());
        selecting.remember(&Request::new(Some("b"), "web"), &web);
        let check = |app: &str, expected: &[&str]| {
            let meta = ObjectMeta {
                namespace: Some("a".to_owned()),
                labels: Some([("app".to_owned(), app.to_owned())].into()),
                ..ObjectMeta::default()
            };
            let found: Vec<String> = selecting.of(&meta).iter().map(|key| key.name().to_owned()).collect();
            assert_eq!(found, expected, "{app}");
        };
        check("web", &["all", "web"]);
        check("db", &["all"]);
        selecting.forget(&key("all"));
        check("db", &[]);
    }

    #[test]
    fn a_selector_in_go() {
        let selector = json!({ "matchLabels": { "app": "web" }, "matchExpressions": [{ "key": "k", "operator": "In", "values": ["a", "b"] }] });
        let selector: LabelSelector = serde_json::from_value(selector).expect("a selector");
        assert_eq!(
            go_text(&selector),
            "&LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:k,Operator:In,Values:[a b],},},}"
        );
    }
}
