//! The texts of the status and of the events.
//!
//! Invariants: a status is written when it changes, and not at each reading; an event is told at a transition, and not
//! at each attempt.

use std::time::Duration;

use kubewright::conditions;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubewright::prelude::*;

use autorebooter_api::v1alpha1::{LastRestart, Phase, RebootPolicy, RebootPolicyStatus, Target};

use super::targets::{self, Found};
use crate::policy::decide::{Decision, backoff};
use crate::policy::terms::Terms;

const READY: &str = "Ready";
const REACHABLE: &str = "DatabaseReachable";
const TARGETS: &str = "TargetsFound";
const PENDING: &str = "RestartPending";

/// The observations of a reconcile.
pub(super) struct Sight<'a> {
    pub(super) hash: String,
    pub(super) display: Option<String>,
    pub(super) found: &'a [(&'a Target, Option<Found>)],
    pub(super) terms: &'a Terms,
}

impl Sight<'_> {
    fn missing(&self) -> Vec<String> {
        let missing = self.found.iter().filter(|(_, found)| found.is_none());
        missing
            .map(|(target, _)| format!("{:?} {}", target.kind, target.name))
            .collect()
    }
}

/// The status of the newest state.
fn status(policy: &mut RebootPolicy) -> &mut RebootPolicyStatus {
    let generation = policy.metadata.generation.unwrap_or_default();
    let status = policy.status.get_or_insert_default();
    status.observed_generation = generation;
    status
}

/// Says that nothing is done.
pub(super) async fn suspended(policy: &RebootPolicy, ctx: &Context) -> Result<()> {
    let ready = ctx.condition(policy, READY, false, "Suspended", "spec.suspend asks for it");
    let pending = ctx.condition(policy, PENDING, false, "Suspended", "spec.suspend asks for it");
    ctx.patch_status(policy, |policy| {
        let status = status(policy);
        status.phase = Some(Phase::Suspended);
        (status.pending_since, status.consecutive_errors) = (None, 0);
        conditions::set(&mut status.conditions, ready);
        conditions::set(&mut status.conditions, pending);
    })
    .await?;
    Ok(())
}

/// How long until a database that is not there yet is looked for again: its Secret and its address are watched, the
/// Database is not.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Says that there is no database to ask. Waiting for one is no error of a database: the first error after it has no
/// predecessors.
pub(super) async fn missing(policy: &RebootPolicy, ctx: &Context, reason: &str, why: &str) -> Result<Action> {
    let reachable = ctx.condition(policy, REACHABLE, false, reason, why);
    degraded(policy, ctx, reachable, (reason, why), |_| 0).await?;
    Ok(Action::requeue_after(LOOK_AGAIN))
}

/// Says that the database does not answer.
pub(super) async fn unreachable(policy: &RebootPolicy, ctx: &Context, reason: &str, why: &str) -> Result<Action> {
    let reachable = ctx.condition(policy, REACHABLE, false, reason, why);
    let errors = degraded(policy, ctx, reachable, (reason, why), one_more).await?;
    Ok(Action::requeue_after(backoff(errors, &seed(ctx))))
}

/// Says that the database answers, but not with a value.
pub(super) async fn bad_query(policy: &RebootPolicy, ctx: &Context, why: &str) -> Result<Action> {
    let reachable = ctx.condition(policy, REACHABLE, true, "Connected", "the database answers");
    let errors = degraded(policy, ctx, reachable, ("BadQuery", why), one_more).await?;
    Ok(Action::requeue_after(backoff(errors, &seed(ctx))))
}

fn one_more(errors: i32) -> i32 {
    errors.saturating_add(1)
}

/// Spreads the policies that wait for the same database.
fn seed(ctx: &Context) -> String {
    let namespace = ctx.request().namespace().unwrap_or_default();
    format!("{namespace}/{}", ctx.request().name())
}

/// Writes that the value is not known, and answers how many errors there were in a row, which `count` says.
async fn degraded(
    policy: &RebootPolicy,
    ctx: &Context,
    reachable: Condition,
    (reason, why): (&str, &str),
    count: impl Fn(i32) -> i32,
) -> Result<i32> {
    let ready = ctx.condition(policy, READY, false, reason, why);
    let known = policy
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, READY));
    let is_news = known.is_none_or(|known| known.reason != reason);
    let changed = ctx
        .patch_status(policy, |policy| {
            let status = status(policy);
            status.phase = Some(Phase::Degraded);
            status.consecutive_errors = count(status.consecutive_errors);
            conditions::set(&mut status.conditions, ready);
            conditions::set(&mut status.conditions, reachable);
        })
        .await?;
    if is_news {
        ctx.event(policy, EventType::Warning, reason, why);
    }
    Ok(changed.status.as_ref().map_or(1, |status| status.consecutive_errors))
}

/// Writes the value, the targets, and the due restart into the status. Answers the policy as it is now.
pub(super) async fn seen(
    policy: &RebootPolicy,
    ctx: &Context,
    sight: &Sight<'_>,
    decision: &Decision,
) -> Result<Arc<RebootPolicy>> {
    let missing = sight.missing();
    let reachable = ctx.condition(policy, REACHABLE, true, "Connected", "the database answers");
    let (found, ready) = if missing.is_empty() {
        let found = ctx.condition(policy, TARGETS, true, "AllFound", "all targets are there");
        (
            found,
            ctx.condition(
                policy,
                READY,
                true,
                "Watching",
                "the value is watched, and all targets are there",
            ),
        )
    } else {
        let why = format!("not there: {}", missing.join(", "));
        let found = ctx.condition(policy, TARGETS, false, "TargetsMissing", &why);
        (found, ctx.condition(policy, READY, false, "TargetsMissing", &why))
    };
    let (phase, due, reason, message) = pending(decision, sight.terms.debounce);
    let restart = ctx.condition(policy, PENDING, due.is_some(), reason, message);
    let known = policy
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, READY));
    let is_restored =
        known.is_some_and(|known| known.status == "False" && known.reason != "Suspended") && missing.is_empty();
    let is_missed = !missing.is_empty() && known.is_none_or(|known| known.reason != "TargetsMissing");
    let (told, now) = (ready.message.clone(), ctx.now());
    let changed = ctx
        .patch_status(policy, |policy| {
            let status = status(policy);
            (status.phase, status.consecutive_errors) = (Some(phase), 0);
            status.pending_since = due.map(Time);
            observe(status, sight, Time(now));
            if *decision == Decision::Record {
                status.applied_hash = Some(sight.hash.clone());
            }
            for condition in [ready, reachable, found, restart] {
                conditions::set(&mut status.conditions, condition);
            }
        })
        .await?;
    if is_missed {
        ctx.event(policy, EventType::Warning, "TargetsMissing", told);
    } else if is_restored {
        ctx.event(policy, EventType::Normal, "Watching", told);
    }
    Ok(changed)
}

fn observe(status: &mut RebootPolicyStatus, sight: &Sight<'_>, now: Time) {
    let observed = status.last_observed.get_or_insert_default();
    if observed.hash != sight.hash {
        (observed.hash, observed.at) = (sight.hash.clone(), Some(now));
    }
    observed.display = sight.display.clone();
    for restarted in status.last_restart.iter_mut().flat_map(|last| &mut last.targets) {
        let same = |found: &&Found| found.uid == restarted.uid;
        match sight.found.iter().filter_map(|(_, found)| found.as_ref()).find(same) {
            // A target that was rolled out stays so: later changes of it have other reasons.
            Some(found) if !restarted.rolled_out => {
                (restarted.rolled_out, restarted.message) = (found.lacks.is_none(), found.lacks.clone());
            }
            _ => {}
        }
    }
}

/// A decision in the status: the phase, since when a restart is due, and the condition.
fn pending(
    decision: &Decision,
    debounce: Duration,
) -> (Phase, Option<kubewright::jiff::Timestamp>, &'static str, String) {
    match decision {
        Decision::Rest | Decision::Record => (
            Phase::Watching,
            None,
            "NoChange",
            "the targets run with the newest value".to_owned(),
        ),
        Decision::Debounce { since, .. } => {
            let until = since.saturating_add(debounce).unwrap_or(*since);
            let message = format!("the value changed at {since}; it must rest until {until}");
            (Phase::Debouncing, Some(*since), "Debouncing", message)
        }
        Decision::Limit { since, until, .. } => {
            let message = format!("the value changed at {since}; the next restart is not before {until}");
            (Phase::RateLimited, Some(*since), "RateLimited", message)
        }
        Decision::Restart { since } => (
            Phase::Watching,
            Some(*since),
            "Restarting",
            format!("the value changed at {since}"),
        ),
    }
}

/// Says that the targets were restarted.
pub(super) async fn restarted(policy: &RebootPolicy, ctx: &Context, sight: &Sight<'_>, why: &str) -> Result<()> {
    let there: Vec<_> = sight
        .found
        .iter()
        .filter_map(|(target, found)| Some((target, found.as_ref()?)))
        .collect();
    let names: Vec<String> = there
        .iter()
        .map(|(target, _)| format!("{:?} {}", target.kind, target.name))
        .collect();
    let pending = ctx.condition(
        policy,
        PENDING,
        false,
        "NoChange",
        "the targets run with the newest value",
    );
    let at = Time(ctx.now());
    ctx.patch_status(policy, |policy| {
        let status = status(policy);
        status.last_restart = Some(LastRestart {
            at: Some(at),
            reason: why.to_owned(),
            from_hash: status.applied_hash.take(),
            to_hash: sight.hash.clone(),
            targets: there
                .iter()
                .map(|(target, found)| targets::restarted(target, found))
                .collect(),
        });
        status.applied_hash = Some(sight.hash.clone());
        status.restarts = status.restarts.saturating_add(1);
        status.pending_since = None;
        conditions::set(&mut status.conditions, pending);
    })
    .await?;
    ctx.event(
        policy,
        EventType::Normal,
        "Restarted",
        format!("{why}: restarted {}", names.join(", ")),
    );
    Ok(())
}
