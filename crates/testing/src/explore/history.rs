//! What depends on the way on which a state was reached, and what the user asks for in vain; no fault is needed to see it.
//!
//! A cluster in which the user changed his mind ends as a new cluster to which he says the last word at once (the
//! differential oracle of Acto, SOSP 2023). Not compared: states, which tell of the way; what controllers keep of former
//! rollouts; pods and jobs that have done their work. Invariant: nothing is said of a new cluster in which a pod is not
//! well, because what is under way ends differently.

use std::collections::{BTreeMap, BTreeSet};

use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::workloads::Amount;
use serde_json::Value;

use super::log::Named;
use super::oracles::{Severity, Verdict, words};
use super::play::Run;
use super::snapshot::{Object, Snapshot};
use super::steps::Target;
use super::wanted::{Wanted, differing};

/// Objects of one name are numbered.
type Compared = BTreeMap<(Named, usize), Value>;

/// How new clusters end in which the user wants from the beginning what he wants after a step.
pub(super) struct Fresh<'a> {
    run: &'a Run,
    /// Each with its step.
    known: Vec<(usize, Option<Snapshot>)>,
}

impl<'a> Fresh<'a> {
    /// What the undisturbed run shows of it: as long as each step only adds something, it is itself a new cluster.
    pub(super) fn of(run: &'a Run) -> Fresh<'a> {
        let mut fresh = Fresh {
            run,
            known: vec![(0, run.ends.first().cloned())],
        };
        let mut is_new = true;
        for step in 1..run.wanted.len() {
            is_new &= run.wanted[step].can_be_made_anew();
            is_new &= run.wanted[step].targets().count() > run.wanted[step - 1].targets().count();
            if fresh.place(step).is_none() {
                let end = run.ends.get(step).filter(|_| is_new);
                fresh.known.push((step, end.cloned()));
            }
        }
        fresh
    }

    fn place(&self, step: usize) -> Option<usize> {
        let wanted = &self.run.wanted[step];
        self.known
            .iter()
            .position(|(known, _)| self.run.wanted[*known] == *wanted)
    }

    /// The steps of which it is not known.
    pub(super) fn open(&self) -> Vec<usize> {
        let can_be_made = |step: usize| self.run.wanted[step].can_be_made_anew();
        let open = self
            .known
            .iter()
            .filter(|(step, end)| end.is_none() && can_be_made(*step));
        open.map(|(step, _)| *step).collect()
    }

    /// A new cluster ended so.
    pub(super) fn ends(&mut self, step: usize, end: Option<Snapshot>) {
        if let Some(place) = self.place(step) {
            self.known[place].1 = end;
        }
    }

    fn end(&self, step: usize) -> Option<&Snapshot> {
        self.known[self.place(step)?].1.as_ref()
    }

    /// All of them, by step.
    pub(super) fn all(&self) -> Vec<Option<Snapshot>> {
        (0..self.run.wanted.len()).map(|step| self.end(step).cloned()).collect()
    }

    /// What the steps alone show.
    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        let Run { wanted, ends, .. } = self.run;
        let mut found = Vec::new();
        for step in 1..wanted.len().min(ends.len()) {
            let (before, now) = (&wanted[step - 1], &wanted[step]);
            found.extend(unheeded(step, (before, &ends[step - 1]), (now, &ends[step])));
            found.extend(self.end(step).and_then(|fresh| of_way(step, &ends[step], fresh, now)));
            // What the server took on the way may be more than the operator can do.
            let goes_next = wanted
                .get(step + 1)
                .is_some_and(|next| next.targets().count() < now.targets().count());
            found.extend(dishonest(step, &ends[step], now).filter(|_| goes_next));
        }
        found
    }
}

/// An object of the user whose status says that it is not of its present spec, though all is done.
fn dishonest(step: usize, end: &Snapshot, wanted: &Wanted) -> Option<Verdict> {
    let mut objects = end.all().filter_map(|Object { text, named }| {
        let object: Value = serde_json::from_str(text).ok()?;
        let is_users = |target: &Target| object["kind"] == target.kind.as_str() && named.2 == target.name;
        // A snapshot tells whether it is the present one.
        let lags = object["status"]["observedGeneration"] == false && wanted.targets().any(is_users);
        lags.then(|| words(named))
    });
    let named = objects.next()?;
    Some(Verdict {
        severity: Severity::Low,
        what: format!("the status of {named} is of an older spec after step {step}: see its observedGeneration"),
        details: String::new(),
    })
}

/// Whether a new cluster is as a step ended, and well.
pub(super) fn is_reached(end: &Snapshot, fresh: &Snapshot, wanted: &Wanted) -> bool {
    is_well(fresh) && of_way(0, end, fresh, wanted).is_none()
}

/// Whether a step ends as a new cluster with the same objects of the user does, which ended with `fresh`.
fn of_way(step: usize, found: &Snapshot, fresh: &Snapshot, wanted: &Wanted) -> Option<Verdict> {
    if !is_well(fresh) {
        return None;
    }
    let (expected, found) = (compared(fresh, wanted), compared(found, wanted));
    let is_gone =
        |((_, namespace, name), _): &(Named, usize), value: &Value| wanted.has_deleted(&value["kind"], namespace, name);
    let mut all_expected = expected.iter();
    let missing = all_expected.find(|(key, value)| !found.contains_key(*key) && !is_gone(key, value));
    let missing = missing.map(|(key, _)| key);
    let (all, known) = (&found, &expected);
    let left = || all.keys().filter(|key| !known.contains_key(*key));
    // Volumes of what was deleted are kept by default, for their data.
    let volume = left().find(|key| is_volume(&key.0)).filter(|_| !wanted.is_empty());
    let other = left().find(|key| !is_volume(&key.0));
    let differs = |found: &Value, value: &Value| found != value && !is_grown(found, value);
    let differing = expected
        .iter()
        .find(|(key, value)| found.get(*key).is_some_and(|found| differs(found, value)));
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

/// Whether a state that a user reached who did not wait is neither that of the undisturbed run nor that of a new cluster.
/// Volumes of what never came to be need not be there.
pub(super) fn of_hurry(
    step: usize,
    found: &Snapshot,
    (expected, fresh): (&Snapshot, &Snapshot),
    wanted: &Wanted,
) -> Option<Verdict> {
    if !is_well(expected) || !is_well(fresh) {
        return None;
    }
    let all = [found, expected, fresh].map(|snapshot| compared(snapshot, wanted));
    let names: BTreeSet<&(Named, usize)> = all.iter().flat_map(BTreeMap::keys).collect();
    for key in names {
        let [found, expected, fresh] = [0, 1, 2].map(|at| all[at].get(key));
        if found == expected || found == fresh || expected.is_some() != fresh.is_some() {
            continue;
        }
        if found.zip(fresh).is_some_and(|(found, fresh)| is_grown(found, fresh)) {
            continue;
        }
        let how = match (found, expected) {
            (None, _) if is_volume(&key.0) => continue,
            (Some(_), None) if is_volume(&key.0) && !wanted.is_empty() => continue,
            (None, _) => "is missing",
            (Some(_), None) => "is left",
            (Some(_), Some(_)) => "differs",
        };
        let line =
            |sign: char, value: Option<&Value>| value.map(|value| format!("{sign}1 {value}\n")).unwrap_or_default();
        return Some(Verdict {
            severity: Severity::High,
            what: format!("{} {how} after step {step}: the user did not wait", words(&key.0)),
            details: line('-', expected) + &line('+', found),
        });
    }
    None
}

/// What is there after a deletion that came too early, and is not there when it comes in time.
pub(super) fn left(step: usize, found: &Snapshot, expected: &Snapshot) -> Option<Verdict> {
    let (expected_names, found_names) = (expected.names(), found.names());
    let (named, _) = found_names.difference(&expected_names).next()?;
    Some(Verdict {
        severity: Severity::High,
        what: format!(
            "{} is left after step {step}: the user deleted its owner at once",
            words(named)
        ),
        details: expected.differences(found),
    })
}

fn is_volume((store, _, _): &Named) -> bool {
    store.starts_with("persistentvolume")
}

/// Whether a claim is like this one but for its size, which is larger: a claim never shrinks
/// (`ValidatePersistentVolumeClaimUpdate`).
fn is_grown(found: &Value, expected: &Value) -> bool {
    const SIZE: &str = "/spec/resources/requests/storage";
    let size = |claim: &Value| {
        let text = claim.pointer(SIZE)?.as_str()?.to_owned();
        Amount::of(&Quantity(text)).ok()
    };
    let mut grown = expected.clone();
    let (Some(place), Some(is)) = (grown.pointer_mut(SIZE), found.pointer(SIZE)) else {
        return false;
    };
    place.clone_from(is);
    found["kind"] == "PersistentVolumeClaim" && grown == *found && size(found) > size(expected)
}

fn compared(snapshot: &Snapshot, wanted: &Wanted) -> Compared {
    let mut all = Compared::new();
    for object in snapshot.all() {
        let (mut object, named) = without_defaults_of_once(object);
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
        // When something was last changed or restarted tells of the way.
        for place in ["/metadata", "/spec/template/metadata"] {
            let metadata = object.pointer_mut(place).and_then(Value::as_object_mut);
            let Some(metadata) = metadata else { continue };
            let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
            let is_empty = annotations.is_some_and(|annotations| {
                annotations.retain(|_, value| value != "<time>");
                annotations.is_empty()
            });
            if is_empty {
                metadata.remove("annotations");
            }
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

/// The object without what the API server chose when a container was first written: `imagePullPolicy` goes by the tag
/// that the image had then, and stays when another image comes (`SetDefaults_Container`). The hashes of a template, in
/// labels and names, count it in.
fn without_defaults_of_once(object: &Object) -> (Value, Named) {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if fields.contains_key("image") {
                    fields.remove("imagePullPolicy");
                }
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut named = object.named.clone();
    let mut value: Value = serde_json::from_str(&object.text).unwrap_or_default();
    for label in ["pod-template-hash", "controller-revision-hash"] {
        let hash = value["metadata"]["labels"][label]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if !hash.is_empty() {
            named.2 = named.2.replace(&hash, "*");
            value = serde_json::from_str(&value.to_string().replace(&hash, "*")).unwrap_or_default();
        }
    }
    strip(&mut value);
    (value, named)
}

/// Whether a pod has done its work, or failed at it.
pub(super) fn is_done(pod: &Value) -> bool {
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
fn unheeded(step: usize, before: (&Wanted, &Snapshot), now: (&Wanted, &Snapshot)) -> Option<Verdict> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod of a Deployment, as a snapshot has it.
    fn pod(hash: &str, image: &str, policy: &str) -> Object {
        let object = json!({
            "kind": "Pod",
            "metadata": {
                "generateName": format!("web-{hash}-"),
                "labels": {"app": "web", "pod-template-hash": hash},
                "ownerReferences": [{"kind": "ReplicaSet", "name": format!("web-{hash}")}],
            },
            "spec": {"containers": [{"name": "web", "image": image, "imagePullPolicy": policy}]},
        });
        Object {
            text: object.to_string().into(),
            named: ("pods".to_owned(), "default".to_owned(), format!("web-{hash}-*")),
        }
    }

    #[test]
    fn the_pull_policy_of_an_earlier_image_does_not_tell_the_way() {
        let way = without_defaults_of_once(&pod("nb2fw4ff4v", "nginx", "IfNotPresent"));
        let fresh = without_defaults_of_once(&pod("85t7txrfr7", "nginx", "Always"));
        assert_eq!(way, fresh);
        let other = without_defaults_of_once(&pod("85t7txrfr7", "nginx:1.29", "Always"));
        assert_eq!(other.1, way.1, "it is told as a difference of one pod");
        assert_ne!(other.0, way.0);
    }

    #[test]
    fn a_claim_may_have_grown_and_nothing_else() {
        let claim = |kind: &str, size: &str, mode: &str| json!({"kind": kind, "spec": {"resources": {"requests": {"storage": size}}}, "mode": mode});
        let check = |found: Value, grown: bool| {
            assert_eq!(
                is_grown(&found, &claim("PersistentVolumeClaim", "10Gi", "a")),
                grown,
                "{found}"
            );
        };
        check(claim("PersistentVolumeClaim", "20Gi", "a"), true);
        check(claim("PersistentVolumeClaim", "10Gi", "a"), false);
        check(claim("PersistentVolumeClaim", "9Gi", "a"), false);
        check(claim("PersistentVolumeClaim", "20Gi", "b"), false);
        check(claim("Shop", "20Gi", "a"), false);
        check(json!({"kind": "PersistentVolumeClaim"}), false);
    }

    #[test]
    fn what_is_no_container_keeps_its_fields() {
        let own = json!({"kind": "Shop", "metadata": {"labels": {}}, "spec": {"imagePullPolicy": "Always"}});
        let named = ("shops".to_owned(), String::new(), "a".to_owned());
        let object = Object {
            text: own.to_string().into(),
            named: named.clone(),
        };
        assert_eq!(without_defaults_of_once(&object), (own, named));
    }
}
