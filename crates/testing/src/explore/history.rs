//! What depends on the way on which a state was reached, and what the user asks for in vain; no fault is needed to see it.
//!
//! A cluster in which the user changed his mind ends as a new cluster to which he says the last word at once (the
//! differential oracle of Acto, SOSP 2023). Not compared: states, which tell of the way; what controllers keep of former
//! rollouts; pods and jobs that have done their work. Invariant: nothing is said of a new cluster in which a pod is not
//! well, because what is under way ends differently.

use std::collections::BTreeMap;

use serde_json::Value;

use super::log::Named;
use super::oracles::{Severity, Verdict, words};
use super::snapshot::{Object, Snapshot};
use super::wanted::{Wanted, differing};

/// Objects of one name are numbered.
type Compared = BTreeMap<(Named, usize), Value>;

/// Whether a step ends as a new cluster with the same objects of the user does, which ended with `fresh`.
pub(super) fn of_way(step: usize, found: &Snapshot, fresh: &Snapshot, wanted: &Wanted) -> Option<Verdict> {
    if !is_well(fresh) {
        return None;
    }
    let (expected, found) = (compared(fresh, wanted), compared(found, wanted));
    let missing = expected.keys().find(|key| !found.contains_key(*key));
    let is_volume = |((store, _, _), _): &&(Named, usize)| store.starts_with("persistentvolume");
    let (all, known) = (&found, &expected);
    let left = || all.keys().filter(|key| !known.contains_key(*key));
    // Volumes of what was deleted are kept by default, for their data.
    let volume = left().find(is_volume).filter(|_| !wanted.is_empty());
    let other = left().find(|key| !is_volume(key));
    let differing = expected
        .iter()
        .find(|(key, value)| found.get(*key).is_some_and(|found| found != *value));
    let (severity, named, how) = match (missing, other, differing, volume) {
        (Some((named, _)), ..) => (Severity::High, named, "is missing"),
        (_, Some((named, _)), ..) => (Severity::High, named, "is left"),
        (_, _, Some(((named, _), _)), _) => (Severity::High, named, "differs"),
        (.., Some((named, _))) => (Severity::Low, named, "is left"),
        _ => return None,
    };
    let than = match wanted.is_empty() {
        true => "all was deleted, and it was not there before",
        false => "a new cluster in which the user wants the same ends otherwise",
    };
    let line = |sign: char, all: &Compared| {
        let of_name = all.iter().filter(|((other, _), _)| other == named);
        of_name
            .map(|(_, value)| format!("{sign}1 {value}\n"))
            .collect::<String>()
    };
    Some(Verdict {
        severity,
        what: format!("{} {how} after step {step}: {than}", words(named)),
        details: line('-', &expected) + &line('+', &found),
    })
}

fn compared(snapshot: &Snapshot, wanted: &Wanted) -> Compared {
    let mut all = Compared::new();
    for Object { text, named } in snapshot.all() {
        let mut object: Value = serde_json::from_str(text).unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        let is_left_out = match kind {
            "ControllerRevision" | "Endpoints" | "EndpointSlice" | "ReplicaSet" => true,
            "Pod" => is_done(&object),
            "Job" => object["status"]["active"].is_null(),
            _ => false,
        };
        if is_left_out {
            continue;
        }
        // Where a pod runs, and what is bound to what, is a matter of chance.
        let is_placed = matches!(kind, "Pod" | "PersistentVolumeClaim" | "PersistentVolume");
        let is_users = wanted
            .targets()
            .any(|target| target.kind == kind && target.name == named.2);
        let phase = (kind == "Pod").then(|| object["status"]["phase"].clone());
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
            fields.extend(phase.map(|phase| ("phase".to_owned(), phase)));
        }
        if (is_users || is_placed)
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            // Of the user's objects: what the operator notes for itself.
            metadata.remove("annotations");
        }
        if is_placed && let Some(spec) = object["spec"].as_object_mut() {
            spec.retain(|field, _| ["containers", "resources"].contains(&field.as_str()));
        }
        let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
            port.remove("nodePort");
        }
        let number = (1..).find(|number| !all.contains_key(&(named.clone(), *number)));
        all.extend(number.map(|number| ((named.clone(), number), object)));
    }
    all
}

fn is_done(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether every pod that has not done its work is ready.
fn is_well(snapshot: &Snapshot) -> bool {
    let mut pods = snapshot.all().filter(|object| object.named.0 == "pods");
    pods.all(|pod| {
        let pod: Value = serde_json::from_str(&pod.text).unwrap_or_default();
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        is_done(&pod) || conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    })
}

/// A field that the user changed while a child with the same field and value was given another value instead: a number
/// that is asked for and not obeyed.
pub(super) fn unheeded(step: usize, before: (&Wanted, &Snapshot), now: (&Wanted, &Snapshot)) -> Option<Verdict> {
    for (target, path, old, new) in before.0.changes(now.0) {
        if !(old.is_number() || old.is_string() || old.is_boolean()) {
            continue;
        }
        let Some(field) = path.last() else { continue };
        let mut wrong = None;
        let mut is_heeded = false;
        for Object { text, named } in before.1.all() {
            let Some(after) = now.1.text(named).filter(|after| *after != &**text) else {
                continue;
            };
            let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
            let (child, after) = (read(text), read(after));
            let mut owners = child["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            if !owners.any(|owner| owner["kind"] == target.kind && owner["name"] == target.name) {
                continue;
            }
            differing(
                &child["spec"],
                &after["spec"],
                &mut Vec::new(),
                &mut |of_child, was, is| {
                    if of_child.last() == Some(field) && *was == old {
                        is_heeded |= *is == new;
                        if *is != new {
                            wrong.get_or_insert_with(|| (named.clone(), of_child.join("."), is.clone()));
                        }
                    }
                },
            );
        }
        if let Some((named, of_child, is)) = wrong.filter(|_| !is_heeded) {
            let path = path.join(".");
            return Some(Verdict {
                severity: Severity::High,
                what: format!(
                    "step {step} sets {path} of {target} from {old} to {new}, and spec.{of_child} of {} becomes {is}",
                    words(&named)
                ),
                details: String::new(),
            });
        }
    }
    None
}
