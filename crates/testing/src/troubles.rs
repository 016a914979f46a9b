//! Why a state does not come about: what the operators' reconciles failed with last, and what the cluster's events say of the object.
//!
//! A failure is forgotten when the same key succeeds: what is left is what a test waits in vain for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use kubewright::k8s_openapi::api::core::v1::Event;
use kubewright::kube::api::ListParams;
use kubewright::kube::{self, Api};
use kubewright::{Observation, Observer, Outcome, Request};

/// How many failures are kept, and how many failures and events are shown.
const KEPT: usize = 1000;
const SHOWN: usize = 5;

/// The reconciles that failed last, by controller and key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Troubles(Arc<Mutex<BTreeMap<(Arc<str>, Request), Failure>>>);

#[derive(Clone, Debug)]
struct Failure {
    error: String,
    attempts: u32,
}

impl Observer for Troubles {
    fn observe(&self, observation: &Observation) {
        let Observation::ReconcileFinished {
            controller,
            request,
            outcome,
            ..
        } = observation
        else {
            return;
        };
        let error = match outcome {
            Outcome::Retry { error, .. } | Outcome::Conflict { error, .. } | Outcome::Terminal { error } => Some(error),
            _ => None,
        };
        let key = (controller.clone(), request.clone());
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(error) = error else {
            failures.remove(&key);
            return;
        };
        let attempts = failures.get(&key).map_or(0, |failure| failure.attempts);
        if attempts > 0 || failures.len() < KEPT {
            let failure = Failure {
                error: error.clone(),
                attempts: attempts.saturating_add(1),
            };
            failures.insert(key, failure);
        }
    }
}

impl Troubles {
    /// The failures that still stand, those about this object first; nothing when there are none.
    pub(crate) fn describe(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shown: Vec<_> = failures.iter().collect();
        let is_meant = |request: &Request| name == Some(request.name()) && namespace == request.namespace();
        shown.sort_by_key(|((_, request), _)| !is_meant(request));
        let mut text = String::new();
        for ((controller, request), failure) in shown.iter().take(SHOWN) {
            let times = match failure.attempts {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            };
            let _ = write!(
                text,
                "\n  controller {controller}, {request}, failed {times}: {}",
                failure.error
            );
        }
        if shown.len() > SHOWN {
            let _ = write!(text, "\n  … and {} more", shown.len() - SHOWN);
        }
        match text.is_empty() {
            true => text,
            false => format!("\nreconciles that failed:{text}"),
        }
    }
}

/// What events say of an object; nothing when they say nothing, or cannot be read.
pub(crate) async fn events(kube: kube::Client, kind: &str, namespace: Option<&str>, name: &str) -> String {
    let api: Api<Event> = Api::namespaced(kube, namespace.unwrap_or("default"));
    let fields = format!("involvedObject.name={name},involvedObject.kind={kind}");
    let Ok(list) = api.list(&ListParams::default().fields(&fields)).await else {
        return String::new();
    };
    let mut text = String::new();
    let older = list.items.len().saturating_sub(SHOWN);
    for event in list.items.iter().skip(older) {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        let _ = write!(
            text,
            "\n  {} {}: {}",
            part(&event.type_),
            part(&event.reason),
            part(&event.message)
        );
    }
    match text.is_empty() {
        true => text,
        false => format!("\nits events:{text}"),
    }
}
