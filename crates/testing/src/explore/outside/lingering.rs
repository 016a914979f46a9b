//! Operators that come back by themselves: after some seconds in which they ask for nothing they go on.
//!
//! A state in which such an operator waits looks like rest. Where it looks half done (something of the operator's is gone
//! that nobody deleted, an object of the user is not ready or is said to be of an older spec), the undisturbed run waits
//! longer; when something comes after all, that long is waited after every later step. Invariant: waiting in vain has an
//! end, and is not done again and again.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::super::snapshot::Snapshot;
use super::super::steps::Target;
use super::super::wanted::Wanted;
use super::Failed;
use super::play::{Player, TICK};

/// How long is waited for an operator that may come back: longer than most of them let pass.
const LINGER: Duration = Duration::from_secs(20);
/// How often is waited in vain.
const IN_VAIN: usize = 2;

/// How long an operator may go on asking, though nothing changes, until that is what it does all the time.
const ASKING: Duration = Duration::from_secs(5);

/// What comes and goes with other objects.
const PASSING: [&str; 7] = [
    "pods",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "replicasets.apps",
    "controllerrevisions.apps",
    "jobs.batch",
    "persistentvolumes",
];

/// How an undisturbed run waits for an operator that may come back by itself.
#[derive(Default)]
pub(super) struct Lingering {
    /// How long it asked for nothing until it went on; zero as long as it never did.
    pub(super) comes_back: Duration,
    /// How often nothing came.
    in_vain: usize,
}

/// Waits until an undisturbed run has come to rest; `false` when it never does. What is half done is waited for longer.
pub(super) async fn rests(
    player: &mut Player<'_>,
    noise: &mut BTreeSet<String>,
    lingering: &mut Lingering,
    is_half_done: impl Fn(&Snapshot) -> bool,
) -> Result<bool, Failed> {
    let begin = Instant::now();
    let (mut revision, mut state) = (0, Snapshot::default());
    let mut changed = Instant::now();
    // Since when nothing changed, once it has seemed to be at rest.
    let mut seemed: Option<Instant> = None;
    player.seam.kinds_of_requests();
    while begin.elapsed() < player.stage.longest {
        player.pass(TICK * 3).await?;
        let now = player.revision();
        if now != revision {
            let found = player.snapshot();
            revision = now;
            // Leases are renewed, and are no part of the state.
            if found != state {
                state = found;
                changed = Instant::now();
                player.seam.kinds_of_requests();
                if let Some(since) = seemed.take() {
                    lingering.comes_back = lingering.comes_back.max(since.elapsed());
                    player.rest = player.rest.max(lingering.comes_back * 5 / 4);
                }
            }
        }
        if changed.elapsed() < player.rest || !player.is_up() {
            continue;
        }
        let is_quiet = player.seam.quiet().is_some_and(|quiet| quiet >= player.rest);
        if !is_quiet && changed.elapsed() < player.rest + ASKING {
            continue;
        }
        if !is_quiet {
            noise.extend(player.seam.kinds_of_requests());
        }
        match seemed {
            _ if lingering.in_vain >= IN_VAIN => return Ok(true),
            None if is_half_done(&state) => seemed = Some(changed),
            None => return Ok(true),
            Some(since) if since.elapsed() < LINGER => {}
            Some(_) => {
                lingering.in_vain += 1;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether the state after a step looks as if the operator had not finished; `before` is the one before the step.
pub(super) fn is_half_done(before: &Snapshot, now: &Snapshot, wanted: &Wanted, deletes: bool) -> bool {
    let (had, has) = (before.names(), now.names());
    let mut gone = had.difference(&has);
    let is_gone = !deletes && gone.any(|((resource, ..), _)| !PASSING.contains(&resource.as_str()));
    is_gone
        || wanted
            .targets()
            .any(|target| is_unready(object_of(before, target).as_ref(), object_of(now, target).as_ref()))
}

/// An object of the user in a state.
fn object_of(state: &Snapshot, target: &Target) -> Option<Value> {
    let mut all = state
        .all()
        .filter(|object| object.named.1 == target.namespace && object.named.2 == target.name);
    all.find_map(|object| {
        let object: Value = serde_json::from_str(&object.text).ok()?;
        (object["kind"] == target.kind.as_str()).then_some(object)
    })
}

fn is_unready(before: Option<&Value>, now: Option<&Value>) -> bool {
    let Some(now) = now else { return false };
    // A snapshot says whether it is the present one.
    if now["status"]["observedGeneration"] == false {
        return true;
    }
    let conditions = now["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        let known = before.and_then(|before| {
            let mut known = before["status"]["conditions"].as_array()?.iter();
            known.find(|known| known["type"] == condition["type"])
        });
        let was_well = match known {
            Some(known) => known["status"] == "True",
            None => condition["type"] == "Ready" || condition["type"] == "Available",
        };
        was_well && condition["status"] != "True"
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::snapshot::Object;
    use super::super::super::steps::Step;
    use super::*;

    fn state(objects: &[(&str, Value)]) -> Snapshot {
        Snapshot::of(objects.iter().map(|(resource, object)| Object {
            text: object.to_string().into(),
            named: (
                (*resource).to_owned(),
                "default".to_owned(),
                object["metadata"]["name"].as_str().unwrap().to_owned(),
            ),
        }))
    }

    fn boxed(status: Value) -> (&'static str, Value) {
        let metadata = json!({"name": "box", "namespace": "default"});
        let object = json!({"apiVersion": "v1", "kind": "Box", "metadata": metadata, "status": status});
        ("boxes", object)
    }

    #[test]
    fn what_is_half_done_is_known() {
        let wanted = Wanted::default().after(&Step::apply("make it", boxed(Value::Null).1));
        let set = ("statefulsets.apps", json!({"metadata": {"name": "set"}}));
        let pod = ("pods", json!({"metadata": {"name": "pod"}}));
        let ready = |status: &str| boxed(json!({"conditions": [{"type": "Ready", "status": status}]}));
        let failing = |status: &str| boxed(json!({"conditions": [{"type": "Failing", "status": status}]}));
        let observed = |is: bool| boxed(json!({ "observedGeneration": is }));
        for (what, before, now, deletes, expected) in [
            ("all is there", vec![set.clone()], vec![set.clone()], false, false),
            ("a set is gone", vec![set.clone()], vec![], false, true),
            ("it was deleted", vec![set.clone()], vec![], true, false),
            ("pods come and go", vec![pod], vec![], false, false),
            ("the new object is not ready", vec![], vec![ready("False")], false, true),
            ("it is", vec![], vec![ready("True")], false, false),
            (
                "it is no longer",
                vec![ready("True")],
                vec![ready("Unknown")],
                false,
                true,
            ),
            ("it never was", vec![ready("False")], vec![ready("False")], false, false),
            ("nothing fails", vec![], vec![failing("False")], false, false),
            ("the spec is a newer one", vec![], vec![observed(false)], false, true),
            ("the spec is that one", vec![], vec![observed(true)], false, false),
        ] {
            let found = is_half_done(&state(&before), &state(&now), &wanted, deletes);
            assert_eq!(found, expected, "{what}");
        }
    }
}
