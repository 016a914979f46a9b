//! Detects common mistakes of an operator from its observations, and gives advice.
//!
//! Two sources: patterns over time (a reconciler that triggers itself, writes that change nothing, repeated conflicts, a
//! reconcile that does not return, a finalizer that no controller removes), and the texts of errors ([`about_error`]).
//! Invariants: each piece of advice is given once for each subject while an operator runs; the memory is bounded. No
//! input or output here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kubewright::{Cause, CauseKind, FieldChange, ObjectRef, Observation, Outcome, Rule};
use kubewright_codegen::{Code, Diagnostic, codes};

/// The number of reconciles in a row, caused by the controller's own writes, that are a loop…
const LOOP: usize = 10;
/// …if they happen within this time.
const LOOP_WITHIN: Duration = Duration::from_secs(30);
/// The number of writes in a row that change nothing, or the same thing again, that are a mistake.
const REPEATED: u32 = 5;
/// The number of conflicts in a row of one key that are a mistake.
const CONFLICTS: u32 = 5;
/// A reconcile or a finalizer that takes longer is reported.
const TOO_LONG: Duration = Duration::from_secs(30);
/// The number of objects whose writes are tracked.
const MAX_TRACKED: usize = 1024;

type Key = (String, String);

/// What is known about one operator.
#[derive(Debug, Default)]
pub(crate) struct Advisor {
    /// The kind that each controller reconciles, as far as the operator declares it.
    kinds: BTreeMap<String, String>,
    given: BTreeSet<(Code, String)>,
    /// The times of reconciles that only the controller's own writes caused, by key.
    self_triggers: BTreeMap<Key, VecDeque<Instant>>,
    conflicts: BTreeMap<Key, u32>,
    running: BTreeMap<Key, Instant>,
    /// The last write to an object by a controller, and how often it was the same.
    writes: BTreeMap<(String, ObjectRef), (Vec<FieldChange>, u32)>,
    deleting: BTreeMap<ObjectRef, Instant>,
    /// Errors that still occur: who reports them (a key, or a cache), and the subject of the advice.
    failing: BTreeSet<(String, String)>,
}

/// A piece of advice. The subject distinguishes it from others of the same code.
#[derive(Clone, Debug)]
pub(crate) struct Advice {
    pub(crate) subject: String,
    pub(crate) found: Diagnostic,
}

impl Advisor {
    /// For a new operator; `kinds` by the names of its controllers.
    pub(crate) fn new(kinds: BTreeMap<String, String>) -> Advisor {
        Advisor {
            kinds,
            ..Advisor::default()
        }
    }

    /// The advice that an observation leads to.
    pub(crate) fn observe(&mut self, now: Instant, what: &Observation) -> Vec<Advice> {
        let advice = match what {
            Observation::ReconcileStarted {
                controller,
                request,
                causes,
                ..
            } => {
                let key = (controller.to_string(), request.to_string());
                self.running.insert(key.clone(), now);
                self.track_deletions(now, causes);
                self.self_triggered(now, key, causes)
            }
            Observation::ReconcileFinished {
                controller,
                request,
                outcome,
                ..
            } => {
                let key = (controller.to_string(), request.to_string());
                self.running.remove(&key);
                self.finished(key, outcome)
            }
            Observation::Written {
                controller: Some(controller),
                verb,
                object,
                subresource,
                changes,
            } => self.written(controller, verb, object, subresource.as_deref(), changes),
            Observation::CacheDegraded { resource, reason } => {
                let found = about_error(reason).map(|found| (resource.clone(), found));
                if found.is_some() {
                    self.failing.insert((resource.clone(), resource.clone()));
                }
                found
            }
            _ => None,
        };
        self.give(advice)
    }

    /// The advice that the passing of time leads to.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Advice> {
        let long = |since: &Instant| now.saturating_duration_since(*since) >= TOO_LONG;
        let stuck: Vec<_> = self
            .running
            .iter()
            .filter(|(_, since)| long(since))
            .map(|((controller, request), since)| {
                let seconds = now.saturating_duration_since(*since).as_secs();
                let found = Diagnostic::new(
                    codes::dev::STUCK,
                    format!("the reconcile of {request} by {controller} does not end"),
                )
                .because(format!(
                    "it has been running for {seconds} s, and its worker waits with it"
                ))
                .fix("use asynchronous calls with a time limit, or return Action::requeue_after instead of waiting");
                (format!("{controller} {request}"), found)
            })
            .collect();
        let waiting: Vec<_> = self
            .deleting
            .iter()
            .filter(|(_, since)| long(since))
            .map(|(object, since)| {
                let seconds = now.saturating_duration_since(*since).as_secs();
                let found = Diagnostic::new(codes::dev::FINALIZER, format!("{object} was deleted and is still there"))
                    .because(format!("it has waited {seconds} s for its finalizer to be taken away, though the operator reconciled it"))
                    .fix("when the cleaning up is done the reconcile must remove the finalizer; see that this code is reached");
                (object.to_string(), found)
            })
            .collect();
        let mut advice = Vec::new();
        for found in stuck.into_iter().chain(waiting) {
            advice.extend(self.give(Some(found)));
        }
        advice
    }

    fn give(&mut self, advice: Option<(String, Diagnostic)>) -> Vec<Advice> {
        advice
            .filter(|(subject, found)| self.given.insert((found.code, subject.clone())))
            .map(|(subject, found)| Advice { subject, found })
            .into_iter()
            .collect()
    }

    /// The subjects of advice that this observation resolves: the reconcile succeeds, the cache is filled.
    pub(crate) fn resolved(&mut self, what: &Observation) -> Vec<String> {
        let who = match what {
            Observation::ReconcileFinished {
                controller,
                request,
                outcome: Outcome::Done | Outcome::RequeueAfter(_),
                ..
            } => format!("{controller} {request}"),
            Observation::CacheSynced { resource, .. } => resource.clone(),
            _ => return Vec::new(),
        };
        let (resolved, failing) = std::mem::take(&mut self.failing)
            .into_iter()
            .partition(|(failed, _)| *failed == who);
        self.failing = failing;
        let resolved: BTreeSet<(String, String)> = resolved;
        let subjects: Vec<String> = resolved.into_iter().map(|(_, subject)| subject).collect();
        // If the error comes back, the advice is given again.
        self.given.retain(|(_, subject)| !subjects.contains(subject));
        subjects
    }

    /// Detects a key that is reconciled again and again because of its controller's own writes.
    fn self_triggered(&mut self, now: Instant, key: Key, causes: &[Cause]) -> Option<(String, Diagnostic)> {
        let own = |cause: &Cause| {
            let object = cause.object()?;
            let (last, _) = self.writes.get(&(key.0.clone(), object.clone()))?;
            let changes = cause.changes();
            let all = !changes.is_empty()
                && changes
                    .iter()
                    .all(|change| last.iter().any(|write| write.path == change.path));
            (*cause.kind() == CauseKind::Changed && all).then(|| (object.clone(), changes[0].clone()))
        };
        let whys: Option<Vec<_>> = causes.iter().map(own).collect();
        let Some((object, change)) = whys.and_then(|whys| whys.into_iter().next()) else {
            self.self_triggers.remove(&key);
            return None;
        };
        let times = self.self_triggers.entry(key.clone()).or_default();
        times.push_back(now);
        if times.len() > LOOP {
            times.pop_front();
        }
        let first = *times.front()?;
        let took = now.saturating_duration_since(first);
        if times.len() < LOOP || took > LOOP_WITHIN {
            return None;
        }
        let (controller, request) = &key;
        let found = Diagnostic::new(codes::dev::LOOP, format!("{controller} reconciles {request} in a loop"))
            .because(format!("{LOOP} times in {:.1} s, each time because of its own write before", took.as_secs_f64()))
            .because(format!("every pass writes {object}: {change}"))
            .fix("write it only when something else changed, or drop it; to look again later return Action::requeue_after");
        Some((format!("{controller} {request}"), found))
    }

    fn written(
        &mut self,
        controller: &str,
        verb: &str,
        object: &ObjectRef,
        subresource: Option<&str>,
        changes: &[FieldChange],
    ) -> Option<(String, Diagnostic)> {
        if object.kind == "Event" {
            return None;
        }
        if changes
            .iter()
            .any(|change| change.path.starts_with("metadata.finalizers"))
        {
            self.deleting.remove(object);
        }
        let key = (controller.to_owned(), object.clone());
        if verb == "create" || verb == "delete" {
            self.writes.remove(&key);
            return None;
        }
        if self.writes.len() >= MAX_TRACKED && !self.writes.contains_key(&key) {
            self.writes.pop_first();
        }
        let (last, times) = self.writes.entry(key).or_default();
        if last == changes {
            *times += 1;
        } else {
            (*last, *times) = (changes.to_vec(), 1);
        }
        let repeated = *times >= REPEATED;
        let subject = format!("{controller} {object}");
        if repeated {
            return Some((subject, repeated_write(controller, object, changes)));
        }
        let spec = changes.iter().find(|change| change.path.starts_with("spec."));
        match spec {
            Some(change) if subresource.is_none() && self.kinds.get(controller) == Some(&object.kind) => {
                let found = Diagnostic::new(
                    codes::dev::OWN_SPEC,
                    format!("{controller} changes the spec of {object}, which it reconciles"),
                )
                .because(format!(
                    "it wrote {change}; a person, or their repository, will set it back"
                ))
                .fix("put computed values into status, and defaults into the schema or the defaulting webhook");
                Some((subject, found))
            }
            _ => None,
        }
    }

    fn finished(&mut self, key: Key, outcome: &Outcome) -> Option<(String, Diagnostic)> {
        let subject = format!("{} {}", key.0, key.1);
        match outcome {
            Outcome::Conflict { error, .. } => {
                let times = self.conflicts.entry(key.clone()).or_default();
                *times += 1;
                if *times < CONFLICTS {
                    return None;
                }
                let (controller, request) = &key;
                let found = Diagnostic::new(
                    codes::dev::CONFLICTS,
                    format!("{controller} meets a conflict each time it reconciles {request}"),
                )
                .because(format!("{CONFLICTS} times in a row: {error}"))
                .fix("write single fields (ctx.apply, ctx.patch_status) instead of whole objects; see who else writes with kubectl get -o yaml --show-managed-fields");
                Some((subject, found))
            }
            Outcome::Retry { error, .. } | Outcome::Terminal { error } => {
                self.conflicts.remove(&key);
                let found = about_error(error)?;
                // One for each text, because a reconciler may lack several rules.
                let about = format!("{} {}", key.0, found.causes.join(" "));
                if self.failing.len() < MAX_TRACKED {
                    self.failing.insert((subject, about.clone()));
                }
                Some((about, found))
            }
            _ => {
                self.conflicts.remove(&key);
                None
            }
        }
    }

    fn track_deletions(&mut self, now: Instant, causes: &[Cause]) {
        for cause in causes {
            let Some(object) = cause.object() else { continue };
            let marked = cause
                .changes()
                .iter()
                .any(|change| change.path == "metadata.deletionTimestamp");
            match cause.kind() {
                CauseKind::Deleted => drop(self.deleting.remove(object)),
                CauseKind::Changed if marked => drop(self.deleting.insert(object.clone(), now)),
                _ => {}
            }
        }
    }
}

fn repeated_write(controller: &str, object: &ObjectRef, changes: &[FieldChange]) -> Diagnostic {
    let found = Diagnostic::new(
        codes::dev::FIGHT,
        format!("{controller} writes {object} again and again"),
    );
    match changes.first() {
        None => found
            .because(format!("{REPEATED} times in a row, and nothing changed: what is sent is what is there, but for what the server adds"))
            .fix("use ctx.apply, which sends nothing when nothing changes"),
        Some(change) => found
            .because(format!("{REPEATED} times in a row it wrote {change}, and each time somebody set it back"))
            .fix("do not set fields that others own (an autoscaler, the server's defaults); ctx.apply compares only the fields that you set"),
    }
}

/// The advice for the text of an error, if it is a common one.
pub(crate) fn about_error(text: &str) -> Option<Diagnostic> {
    let has = |words: &str| text.contains(words);
    if let Some(found) = forbidden(text) {
        return Some(found);
    }
    let (code, attempted, fix): (Code, &str, &str) = if has("failed calling webhook") {
        (
            codes::dev::WEBHOOK,
            "a write fails because a webhook cannot be reached",
            "does the operator that serves it run? Look at the configuration's address, Service and caBundle",
        )
    } else if has("could not find the requested resource") || has("404 page not found") || has("no matches for kind") {
        (
            codes::dev::UNKNOWN_KIND,
            "the API server does not know a kind that the operator uses",
            "install its definition: kubewright install for the project's own; in `kubewright dev` that happens by itself",
        )
    } else if has("cannot own") && has("its own namespace") {
        (
            codes::dev::OWNER,
            "an object cannot be owned across namespaces",
            "label it with its owner's name, watch it with Controller::watches, and delete it in a finalizer",
        )
    } else if has("field is immutable")
        || has("may not change once set")
        || has("updates to statefulset spec for fields other than")
    {
        (
            codes::dev::IMMUTABLE,
            "the operator tries to change a field that cannot be changed",
            "leave the field as it was when the object was created, or delete the object and create it anew",
        )
    } else if has(" is invalid: ") {
        (
            codes::dev::INVALID,
            "the operator writes an object that breaks a rule of its kind",
            "set the field that the message names; refuse bad values earlier, in the schema of the custom resource",
        )
    } else {
        return None;
    };
    Some(Diagnostic::new(code, attempted).because(text).fix(fix))
}

/// The rule that is missing, for a `Forbidden` error.
fn forbidden(text: &str) -> Option<Diagnostic> {
    let rule = Rule::missing_in(text)?;
    let (_, told) = text.split_once(" cannot ")?;
    let (verb, told) = told.split_once(" resource \"")?;
    let (resource, _) = told.split_once('"')?;
    Some(
        Diagnostic::new(codes::dev::FORBIDDEN, format!("the operator may not {verb} {resource}"))
            .because(text)
            .fix(rule.advice()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright::Request;
    use serde_json::{Value, json};

    struct Harness {
        advisor: Advisor,
        now: Instant,
        given: Vec<String>,
    }

    fn guestbook() -> ObjectRef {
        ObjectRef {
            api_version: "webapp.my.domain/v1".into(),
            kind: "Guestbook".into(),
            namespace: Some("default".into()),
            name: "hello".into(),
        }
    }

    fn change(path: &str, before: Value, after: Value) -> FieldChange {
        FieldChange {
            path: path.into(),
            before: Some(before),
            after: Some(after),
        }
    }

    impl Harness {
        fn new() -> Harness {
            Harness {
                advisor: Advisor::new([("guestbook".to_owned(), "Guestbook".to_owned())].into()),
                now: Instant::now(),
                given: Vec::new(),
            }
        }

        fn observe(&mut self, what: Observation) {
            self.now += Duration::from_millis(10);
            let given = self.advisor.observe(self.now, &what);
            self.given.extend(given.iter().map(|advice| advice.found.to_string()));
        }

        fn later(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
            let given = self.advisor.tick(self.now);
            self.given.extend(given.iter().map(|advice| advice.found.to_string()));
        }

        fn start(&mut self, causes: Value) {
            self.observe(Observation::ReconcileStarted {
                controller: "guestbook".into(),
                request: Request::new(Some("default"), "hello"),
                reconcile_id: 1,
                causes: serde_json::from_value(causes).unwrap(),
                ready: 0,
                delayed: 0,
            });
        }

        fn finish(&mut self, outcome: Outcome) {
            self.observe(Observation::ReconcileFinished {
                controller: "guestbook".into(),
                request: Request::new(Some("default"), "hello"),
                reconcile_id: 1,
                outcome,
                took: Duration::from_millis(1),
            });
        }

        fn write(&mut self, object: ObjectRef, subresource: Option<&str>, changes: Vec<FieldChange>) {
            self.observe(Observation::Written {
                controller: Some("guestbook".into()),
                verb: "patch",
                object,
                subresource: subresource.map(str::to_owned),
                changes,
            });
        }

        fn changed(&mut self, path: &str) {
            let changes = [change(path, json!(1), json!(2))];
            self.start(json!([{"kind": "changed", "object": guestbook(), "changes": changes}]));
        }
    }

    #[test]
    fn a_reconciler_that_triggers_itself_is_reported_once() {
        let mut harness = Harness::new();
        for pass in 0..40 {
            harness.changed("status.lastChecked");
            harness.write(
                guestbook(),
                Some("status"),
                vec![change("status.lastChecked", json!(pass), json!(pass + 1))],
            );
            harness.finish(Outcome::Done);
        }
        insta::assert_snapshot!(harness.given.join("\n"), @"
        guestbook reconciles default/hello in a loop [KWR0720]
          because: 10 times in 0.3 s, each time because of its own write before
          because: every pass writes Guestbook default/hello: status.lastChecked 1 → 2
          fix: write it only when something else changed, or drop it; to look again later return Action::requeue_after
        ");
    }

    #[test]
    fn ordinary_work_gets_no_advice() {
        let mut harness = Harness::new();
        for pass in 0..40 {
            // Another client's change each time, and a status that follows it.
            harness.changed("spec.size");
            harness.write(
                guestbook(),
                Some("status"),
                vec![change("status.size", json!(pass), json!(pass + 1))],
            );
            harness.finish(Outcome::Done);
            harness.changed("status.size");
            harness.finish(Outcome::Done);
        }
        harness.finish(Outcome::Conflict {
            error: "newer".into(),
            after: Duration::from_millis(5),
        });
        harness.later(60);
        assert_eq!(harness.given, Vec::<String>::new());
    }

    #[test]
    fn writes_that_change_nothing_and_writes_that_are_undone() {
        let deployment = || ObjectRef {
            kind: "Deployment".into(),
            ..guestbook()
        };
        let mut harness = Harness::new();
        for _ in 0..REPEATED * 2 {
            harness.write(deployment(), None, Vec::new());
        }
        for _ in 0..REPEATED * 2 {
            harness.write(
                ObjectRef {
                    name: "scaled".into(),
                    ..deployment()
                },
                None,
                vec![change("spec.replicas", json!(4), json!(1))],
            );
        }
        insta::assert_snapshot!(harness.given.join("\n"), @"
        guestbook writes Deployment default/hello again and again [KWR0721]
          because: 5 times in a row, and nothing changed: what is sent is what is there, but for what the server adds
          fix: use ctx.apply, which sends nothing when nothing changes
        guestbook writes Deployment default/scaled again and again [KWR0721]
          because: 5 times in a row it wrote spec.replicas 4 → 1, and each time somebody set it back
          fix: do not set fields that others own (an autoscaler, the server's defaults); ctx.apply compares only the fields that you set
        ");
    }

    #[test]
    fn spec_conflicts_and_waits() {
        let mut harness = Harness::new();
        harness.write(guestbook(), None, vec![change("spec.size", json!(0), json!(1))]);
        for _ in 0..CONFLICTS * 2 {
            harness.finish(Outcome::Conflict {
                error: "the object has been modified".into(),
                after: Duration::from_millis(5),
            });
        }
        let marked = [FieldChange {
            path: "metadata.deletionTimestamp".into(),
            before: None,
            after: Some(json!("2026-11-21T20:00:00Z")),
        }];
        harness.start(json!([{"kind": "changed", "object": guestbook(), "changes": marked}]));
        harness.later(31);
        harness.later(31);
        insta::assert_snapshot!(harness.given.join("\n"), @"
        guestbook changes the spec of Guestbook default/hello, which it reconciles [KWR0730]
          because: it wrote spec.size 0 → 1; a person, or their repository, will set it back
          fix: put computed values into status, and defaults into the schema or the defaulting webhook
        guestbook meets a conflict each time it reconciles default/hello [KWR0722]
          because: 5 times in a row: the object has been modified
          fix: write single fields (ctx.apply, ctx.patch_status) instead of whole objects; see who else writes with kubectl get -o yaml --show-managed-fields
        the reconcile of default/hello by guestbook does not end [KWR0726]
          because: it has been running for 31 s, and its worker waits with it
          fix: use asynchronous calls with a time limit, or return Action::requeue_after instead of waiting
        Guestbook default/hello was deleted and is still there [KWR0725]
          because: it has waited 31 s for its finalizer to be taken away, though the operator reconciled it
          fix: when the cleaning up is done the reconcile must remove the finalizer; see that this code is reached
        ");
    }

    #[test]
    fn success_resolves_advice_about_an_error_which_may_come_again() {
        let text =
            "secrets is forbidden: User \"u\" cannot list resource \"secrets\" in API group \"\" at the cluster scope";
        let mut harness = Harness::new();
        let finished = |outcome| Observation::ReconcileFinished {
            controller: "guestbook".into(),
            request: Request::new(Some("default"), "hello"),
            reconcile_id: 1,
            outcome,
            took: Duration::from_millis(1),
        };
        for _ in 0..2 {
            for _ in 0..3 {
                harness.finish(Outcome::Terminal { error: text.into() });
            }
            let resolved = harness.advisor.resolved(&finished(Outcome::Done));
            assert_eq!(resolved.len(), 1, "{resolved:?}");
            assert_eq!(harness.advisor.resolved(&finished(Outcome::Done)), Vec::<String>::new());
        }
        assert_eq!(harness.given.len(), 2, "once for each time that it came");
    }

    #[test]
    fn texts_of_errors_lead_to_advice() {
        let check = |text: &str, code: Option<Code>, fix: &str| {
            let found = about_error(text);
            assert_eq!(found.as_ref().map(|found| found.code), code, "{text}");
            if let Some(found) = found {
                assert!(found.fix.as_ref().is_some_and(|found| found.contains(fix)), "{found}");
                assert!(
                    found.causes[0].contains(text),
                    "the server's own message stays: {found}"
                );
            }
        };
        check(
            "secrets is forbidden: User \"system:serviceaccount:a:b\" cannot list resource \"secrets\" in API group \"\" at the cluster scope",
            Some(codes::dev::FORBIDDEN),
            "#[rbac(groups = \"\", resources = \"secrets\", verbs = [\"get\", \"list\", \"watch\"])]",
        );
        check(
            "deployments.apps \"x\" is forbidden: User \"u\" cannot patch resource \"deployments/scale\" in API group \"apps\" in the namespace \"n\"",
            Some(codes::dev::FORBIDDEN),
            "resources = \"deployments/scale\", verbs = \"patch\"",
        );
        check("pods \"a\" is forbidden: exceeded quota: q", None, "");
        check(
            "Internal error occurred: failed calling webhook \"v.kb.io\": failed to call webhook: connect: connection refused",
            Some(codes::dev::WEBHOOK),
            "does the operator",
        );
        check(
            "the server could not find the requested resource",
            Some(codes::dev::UNKNOWN_KIND),
            "kubewright install",
        );
        check(
            "StatefulSet.apps \"db\" is invalid: spec: Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden",
            Some(codes::dev::IMMUTABLE),
            "delete the object",
        );
        check(
            "Deployment.apps \"a\" is invalid: spec.selector: Invalid value: {}: field is immutable",
            Some(codes::dev::IMMUTABLE),
            "created",
        );
        check(
            "metadata.ownerReferences: Guestbook b/a cannot own ConfigMap c/d: a namespaced owner owns only objects of its own namespace. Write it",
            Some(codes::dev::OWNER),
            "label it",
        );
        check(
            "Service \"a\" is invalid: spec.ports: Required value",
            Some(codes::dev::INVALID),
            "set the field",
        );
        check("no luck", None, "");
    }
}
