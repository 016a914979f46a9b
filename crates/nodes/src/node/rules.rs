//! Annotations of the simulation that are not a pod's own and count as if it had them: those that a test or a program sets
//! for pods by their labels, and those of its controller, its namespace and its node. So kubectl can say of pods to come
//! what a test can.
//!
//! Invariant: a pod's own annotation wins over a rule, and that over its controller, its namespace, its node, in this
//! order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::kube::core::{ApiResource, DynamicObject, Expression, Selector, SelectorExt as _};
use kubewright::kube::{self, Api};
use kubewright::{Client, Error, Object};
use kubewright_objects::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use kubewright_objects::api::batch::v1::Job;
use kubewright_objects::api::core::v1::{Namespace, Node, Pod};

use super::behaviour;
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
    fn apply(&self, pod: Arc<Pod>) -> Arc<Pod> {
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
        let said = found.flat_map(|rule| &rule.annotations);
        let said: Vec<_> = said.map(|(key, value)| (key.clone(), value.clone())).collect();
        with_annotations(pod, &said)
    }
}

/// Reads what an object says of pods.
trait Reads {
    type Error;

    /// Nothing, if there is no such object, or another one than that of the uid.
    fn said<K: Object>(
        &self,
        namespace: Option<&str>,
        name: &str,
        uid: Option<&str>,
    ) -> impl Future<Output = Result<Vec<(String, String)>, Self::Error>> + Send;
}

/// From the cache.
impl Reads for Client {
    type Error = Error;

    async fn said<K: Object>(
        &self,
        namespace: Option<&str>,
        name: &str,
        uid: Option<&str>,
    ) -> Result<Vec<(String, String)>, Error> {
        let object = self.get::<K>(namespace, name).await?;
        Ok(said(object.as_ref().map(|object| object.meta()), uid))
    }
}

/// From the API server.
impl Reads for kube::Client {
    type Error = kube::Error;

    async fn said<K: Object>(
        &self,
        namespace: Option<&str>,
        name: &str,
        uid: Option<&str>,
    ) -> kube::Result<Vec<(String, String)>> {
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.clone(), namespace, &resource),
            None => Api::all_with(self.clone(), &resource),
        };
        let object = api.get_metadata_opt(name).await?;
        Ok(said(object.as_ref().map(|object| &object.metadata), uid))
    }
}

/// The annotations of the simulation around a pod, the nearest first: of its controller (a Deployment's are on its
/// ReplicaSets), and of its namespace. Those of its node come after them.
async fn around<R: Reads>(pod: &Pod, reads: &R) -> Result<Vec<(String, String)>, R::Error> {
    let namespace = pod.metadata.namespace.as_deref();
    let mut found = Vec::new();
    if let Some(owner) = meta::controller_of(&pod.metadata) {
        let (name, uid) = (&owner.name, Some(owner.uid.as_str()));
        found = match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("apps/v1", "ReplicaSet") => reads.said::<ReplicaSet>(namespace, name, uid).await?,
            ("apps/v1", "StatefulSet") => reads.said::<StatefulSet>(namespace, name, uid).await?,
            ("apps/v1", "DaemonSet") => reads.said::<DaemonSet>(namespace, name, uid).await?,
            ("batch/v1", "Job") => reads.said::<Job>(namespace, name, uid).await?,
            _ => found,
        };
    }
    found.extend(
        reads
            .said::<Namespace>(None, namespace.unwrap_or_default(), None)
            .await?,
    );
    Ok(found)
}

/// The pod with all annotations that count for it.
///
/// # Errors
/// When an owner or a namespace cannot be read.
pub(super) async fn told(
    pod: Arc<Pod>,
    node: &Node,
    behaviours: &Behaviours,
    client: &Client,
) -> Result<Arc<Pod>, Error> {
    let mut around = around(&pod, client).await?;
    around.extend(said(Some(&node.metadata), None));
    Ok(with_annotations(behaviours.apply(pod), &around))
}

/// What a command prints that a client runs in a container of a simulated pod, and its exit code, by the annotations
/// `exec-output` and `exec-code` of the pod and of what is around it. `None` when none of them says so.
///
/// # Errors
/// When what is around the pod cannot be read.
pub async fn command_result(
    pod: &Pod,
    container: &str,
    behaviours: &Behaviours,
    kube: &kube::Client,
) -> kube::Result<Option<(String, i32)>> {
    let mut around = around(pod, kube).await?;
    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
        around.extend(kube.said::<Node>(None, node, None).await?);
    }
    let pod = with_annotations(behaviours.apply(Arc::new(pod.clone())), &around);
    Ok(behaviour::of_command(&pod, container))
}

/// What an object says of pods, if it is the one of the uid.
fn said(of: Option<&ObjectMeta>, uid: Option<&str>) -> Vec<(String, String)> {
    let of = of.filter(|of| uid.is_none() || of.uid.as_deref() == uid);
    let all = of.iter().flat_map(|of| of.annotations.iter().flatten());
    let all = all.filter(|(key, _)| behaviour::is_of_pods(key));
    all.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The pod with these annotations, as far as it does not have them.
fn with_annotations(pod: Arc<Pod>, more: &[(String, String)]) -> Arc<Pod> {
    if more.is_empty() {
        return pod;
    }
    let mut told = (*pod).clone();
    let annotations = told.metadata.annotations.get_or_insert_default();
    for (key, value) in more {
        annotations.entry(key.clone()).or_insert_with(|| value.clone());
    }
    Arc::new(told)
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
