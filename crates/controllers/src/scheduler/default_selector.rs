//! The pods that belong together with a pod: those of its controller and of the Services that select it.
//!
//! kube-scheduler spreads them over nodes and zones if the pod has no constraints of its own
//! (`helper.DefaultSelector`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kubewright::{Context, Result};
use kubewright_objects::api::apps::v1::{ReplicaSet, StatefulSet};
use kubewright_objects::api::core::v1::{Pod, ReplicationController, Service};

use kubewright_objects::meta;

/// The index of the Services by a label that they select.
pub(super) const INDEX: &str = "spec.selector";

/// One label of a Service's selector, under which those pods find it that have the label.
pub(super) fn index_keys(service: &Service) -> Vec<String> {
    let selector = service.spec.iter().flat_map(|spec| spec.selector.iter().flatten());
    selector.map(|(key, value)| format!("{key}={value}")).take(1).collect()
}

/// The selectors of the controllers that were asked for last, by uid: they never change.
#[derive(Default)]
pub(super) struct OwnerSelectors(Mutex<BTreeMap<String, LabelSelector>>);

/// So many are remembered; then all are forgotten.
const KNOWN: usize = 256;

impl OwnerSelectors {
    fn map(&self) -> MutexGuard<'_, BTreeMap<String, LabelSelector>> {
        // Nothing under this lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, uid: &str) -> Option<LabelSelector> {
        self.map().get(uid).cloned()
    }

    fn keep(&self, uid: &str, selector: &LabelSelector) {
        let mut map = self.map();
        if map.len() >= KNOWN {
            map.clear();
        }
        map.insert(uid.to_owned(), selector.clone());
    }
}

/// Selects the pods that belong together with this one; nothing when no Service and no controller says which.
pub(super) async fn of(pod: &Pod, known: &OwnerSelectors, ctx: &Context) -> Result<Option<LabelSelector>> {
    let labels = meta::labels(&pod.metadata);
    let namespace = pod.metadata.namespace.as_deref();
    let mut services = vec![];
    for (key, value) in labels {
        let pair = format!("{key}={value}");
        services.extend(ctx.client().list_by_index::<Service>(namespace, INDEX, &pair).await?);
    }
    let controller = of_controller(pod, known, ctx).await?;
    Ok(selector(pod, services.iter().map(|service| &**service), controller))
}

/// Of these Services those count that select the pod.
pub(super) fn selector<'a>(
    pod: &Pod,
    services: impl IntoIterator<Item = &'a Service>,
    controller: Option<LabelSelector>,
) -> Option<LabelSelector> {
    let labels = meta::labels(&pod.metadata);
    let selectors = services
        .into_iter()
        .filter_map(|service| service.spec.as_ref()?.selector.as_ref());
    let fits =
        |selector: &&BTreeMap<String, String>| selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let pairs = selectors.filter(fits).flatten();
    let match_labels: BTreeMap<String, String> = pairs.map(|(key, value)| (key.clone(), value.clone())).collect();
    // As expressions: they may contradict the Services, and then nothing is selected.
    let controller = controller.unwrap_or_default();
    let only = |(key, value)| LabelSelectorRequirement {
        key,
        operator: "In".to_owned(),
        values: Some(vec![value]),
    };
    let expressions = controller.match_labels.into_iter().flatten().map(only);
    let expressions: Vec<_> = expressions
        .chain(controller.match_expressions.into_iter().flatten())
        .collect();
    (!match_labels.is_empty() || !expressions.is_empty()).then_some(LabelSelector {
        match_labels: Some(match_labels),
        match_expressions: Some(expressions),
    })
}

/// The selector of the pod's controller, if it is of a kind that spreads its pods.
async fn of_controller(pod: &Pod, known: &OwnerSelectors, ctx: &Context) -> Result<Option<LabelSelector>> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let Some(owner) = owners.into_iter().find(|owner| owner.controller == Some(true)) else {
        return Ok(None);
    };
    if let Some(selector) = known.get(&owner.uid) {
        return Ok(Some(selector));
    }
    let (client, namespace) = (ctx.client(), pod.metadata.namespace.as_deref());
    let selector = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("apps/v1", "ReplicaSet") => {
            let found = client.get::<ReplicaSet>(namespace, &owner.name).await?;
            found.and_then(|set| Some(set.spec.as_ref()?.selector.clone()))
        }
        ("apps/v1", "StatefulSet") => {
            let found = client.get::<StatefulSet>(namespace, &owner.name).await?;
            found.and_then(|set| Some(set.spec.as_ref()?.selector.clone()))
        }
        ("v1", "ReplicationController") => {
            let found = client.get::<ReplicationController>(namespace, &owner.name).await?;
            // This one may change.
            return Ok(found.and_then(|controller| {
                let match_labels = controller.spec.as_ref()?.selector.clone();
                Some(LabelSelector {
                    match_labels,
                    match_expressions: None,
                })
            }));
        }
        _ => None,
    };
    if let Some(selector) = &selector {
        known.keep(&owner.uid, selector);
    }
    Ok(selector)
}
