//! Why a state does not come about: the last failures of the operators' reconciles, and the cluster's events about the
//! object.
//!
//! A failure is forgotten when the same key succeeds: the remaining ones are the reason why a test waits in vain.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubewright::k8s_openapi::api::core::v1::Event;
use kubewright::kube::api::ListParams;
use kubewright::kube::{self, Api};
use kubewright::webhook::Kind;
use kubewright::{Declaration, Observation, Observer, Outcome, Request, Rule};

use crate::usage::Refused;

/// How many failures are kept, and how many failures and events are shown.
const KEPT: usize = 1000;
const SHOWN: usize = 5;

/// The reconciles that failed last, by controller and key, and the caches that fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures(Arc<Mutex<FailureLog>>);

#[derive(Debug, Default)]
struct FailureLog {
    reconciles: BTreeMap<(Arc<str>, Request), Failure>,
    /// By kind and scope.
    caches: BTreeMap<String, String>,
    /// What the operators' code asks for.
    declared: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Failure {
    error: String,
    attempts: u32,
    /// Until the next attempt, if there is one.
    after: Option<Duration>,
}

impl Observer for Failures {
    fn observe(&self, observation: &Observation) {
        let mut log = self.log();
        match observation {
            Observation::CacheDegraded { resource, reason } => {
                log.caches.insert(resource.clone(), reason.clone());
            }
            Observation::CacheSynced { resource, .. } => {
                log.caches.remove(resource);
            }
            Observation::ReconcileFinished {
                controller,
                request,
                outcome,
                ..
            } => log.reconciled((controller.clone(), request.clone()), outcome),
            _ => {}
        }
    }
}

impl FailureLog {
    fn reconciled(&mut self, key: (Arc<str>, Request), outcome: &Outcome) {
        let (error, after) = match outcome {
            Outcome::Retry { error, after, .. } | Outcome::Conflict { error, after } => (error, Some(*after)),
            Outcome::Terminal { error } => (error, None),
            _ => {
                self.reconciles.remove(&key);
                return;
            }
        };
        let attempts = self.reconciles.get(&key).map_or(0, |failure| failure.attempts);
        if attempts > 0 || self.reconciles.len() < KEPT {
            let failure = Failure {
                error: error.clone(),
                attempts: attempts.saturating_add(1),
                after,
            };
            self.reconciles.insert(key, failure);
        }
    }
}

impl Failures {
    /// Notes what an operator's code asks for: of that only the role's file can be out of date.
    pub(crate) fn declared(&self, operator: &Declaration) {
        let mut log = self.log();
        log.declared.extend(operator.rbac.iter().cloned());
        for controller in operator
            .controllers
            .iter()
            .filter(|controller| controller.cluster.is_none())
        {
            log.declared.extend(controller.rbac.iter().cloned());
            let read = controller.watches.iter().chain([&controller.reconciles]);
            log.declared.extend(read.map(|kind| rule(kind, &READ)));
            log.declared
                .extend(controller.owns.iter().map(|kind| rule(kind, &APPLY)));
        }
    }

    fn log(&self) -> MutexGuard<'_, FailureLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The failures that remain, reconciles of this object first; empty when there are none.
    pub(crate) fn describe(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let log = self.log();
        let mut text = String::new();
        for (resource, reason) in log.caches.iter().take(SHOWN) {
            let _ = write!(text, "\nthe cache of {resource} fails: {reason}{}", log.hint(reason));
        }
        let mut shown: Vec<_> = log.reconciles.iter().collect();
        let is_meant = |request: &Request| name == Some(request.name()) && namespace == request.namespace();
        shown.sort_by_key(|((_, request), _)| !is_meant(request));
        if !shown.is_empty() {
            text.push_str("\nreconciles that failed:");
        }
        for ((controller, request), failure) in shown.iter().take(SHOWN) {
            let Failure { error, attempts, after } = failure;
            let times = match attempts {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            };
            let hint = log.hint(error);
            // A short delay is over when a person reads this.
            let later = after.filter(|after| *after >= Duration::from_secs(10));
            let later = later.map_or_else(String::new, |after| format!(" (the next attempt is {after:?} later)"));
            let _ = write!(
                text,
                "\n  controller {controller}, {request}, failed {times}: {error}{later}{hint}"
            );
        }
        if shown.len() > SHOWN {
            let _ = write!(text, "\n  … and {} more", shown.len() - SHOWN);
        }
        text
    }
}

impl Failures {
    /// Whether something fails for want of this right.
    pub(crate) fn are_for_want_of(&self, missing: &Rule) -> bool {
        let log = self.log();
        let errors = log.reconciles.values().map(|failure| &failure.error);
        let mut errors = log.caches.values().chain(errors);
        errors.any(|error| Rule::missing_in(error).as_ref() == Some(missing))
    }

    /// The requests that the role refused, besides those that `told` tells.
    pub(crate) fn describe_refused(&self, refused: &[Refused], told: &str) -> String {
        let log = self.log();
        let mut text = String::new();
        let untold = refused
            .iter()
            .filter(|refused| !told.contains(&log.advice(&refused.missing)));
        for Refused {
            missing,
            namespace,
            times,
        } in untold.take(SHOWN)
        {
            let place = namespace
                .as_ref()
                .map_or_else(String::new, |namespace| format!(" in namespace {namespace}"));
            let advice = log.advice(missing);
            let _ = write!(text, "\n  {}{place}, {times} x\n    fix: {advice}", asked_for(missing));
        }
        match text.is_empty() {
            true => text,
            false => format!("\nrequests that the operator's role refused:{text}"),
        }
    }
}

/// `create leases.coordination.k8s.io`.
fn asked_for(missing: &Rule) -> String {
    let rule = serde_json::to_value(missing).unwrap_or_default();
    let first = |list: &str| rule[list][0].as_str().unwrap_or_default().to_owned();
    let (verb, resource, group) = (first("verbs"), first("resources"), first("groups"));
    match group.as_str() {
        "" => format!("{verb} {resource}"),
        group => format!("{verb} {resource}.{group}"),
    }
}

/// What a controller may do with what it watches, and with what it owns.
const READ: [&str; 3] = ["get", "list", "watch"];
static LEASES: LazyLock<Rule> = LazyLock::new(|| {
    let leases = Rule::default().groups(["coordination.k8s.io"]).resources(["leases"]);
    leases.verbs(["*"])
});
/// As `kubewright manifests` grants it (`manifests/rbac.rs` of codegen).
const APPLY: [&str; 5] = ["create", "get", "list", "patch", "watch"];

fn rule(kind: &Kind, verbs: &[&'static str]) -> Rule {
    let rule = Rule::default().groups([kind.group.as_str()]);
    rule.resources([kind.plural.as_str()]).verbs(verbs.iter().copied())
}

impl FailureLog {
    /// The advice for a missing right.
    fn hint(&self, error: &str) -> String {
        match Rule::missing_in(error) {
            Some(missing) => format!("\n    fix: {}", self.advice(&missing)),
            None => String::new(),
        }
    }

    fn advice(&self, missing: &Rule) -> String {
        if self.declared.iter().any(|rule| rule.covers(missing)) {
            return "the code asks for it and the role does not say it: kubewright manifests".to_owned();
        }
        if LEASES.covers(missing) {
            return "Leases belong into the operator's own namespace, <name>-system, where its role allows them: leave \
                    .namespace(…) out of Sharding and LeaderElection, or name that one"
                .to_owned();
        }
        missing.advice()
    }
}

/// The events of an object; nothing when there are none, or they cannot be read.
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
