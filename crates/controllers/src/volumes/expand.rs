//! Claims that ask for more room than they have (`expandController`).
//!
//! A volume that was simulated grows, in the steps of a CSI driver's resizer: the claim says that it is resized, then
//! the volume has the new size, and then the claim has it. Nothing on a node need be done for it. Other volumes wait
//! for their driver.
//!
//! Not here: whether the class allows it (admission does).

use std::collections::BTreeMap;

use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::{Action, Context, EventType, Result};
use kubewright_objects::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition};

use super::binding::{self, STORAGE};
use kubewright_objects::meta;
use kubewright_objects::quantity::milli;

/// The source of the event of a claim that waits for its driver.
const WAITS: &str = "volume_expand";
/// The condition of a claim while its volume grows.
const RESIZING: &str = "Resizing";

/// The next step of a claim's growth.
#[derive(Debug, PartialEq)]
enum Step {
    /// It has the requested size.
    Nothing,
    /// Its driver is to do it.
    Wait,
    /// The claim says that it is resized.
    Begin(Box<PersistentVolumeClaim>),
    /// The volume grows.
    Grow(Box<PersistentVolume>),
    /// The claim has the room.
    Finish(Box<PersistentVolumeClaim>),
}

/// Takes the next step; its write leads back here.
pub(super) async fn grow(claim: &PersistentVolumeClaim, volume: &PersistentVolume, ctx: &Context) -> Result<Action> {
    let (client, name) = (ctx.client(), meta::name(&volume.metadata));
    let signs = format!("external-resizer {}", binding::SIMULATED);
    match step(claim, volume) {
        Step::Nothing => {}
        Step::Wait => {
            let message = "waiting for an external controller to expand this PVC";
            ctx.event_as(WAITS, claim, EventType::Normal, "ExternalExpanding", message);
        }
        Step::Begin(mut next) => {
            for condition in next
                .status
                .iter_mut()
                .flat_map(|status| status.conditions.iter_mut().flatten())
            {
                condition
                    .last_transition_time
                    .get_or_insert_with(|| meta::time(ctx.now()));
            }
            client.update_status(&*next).await?;
            let message = format!("External resizer is resizing volume {name}");
            ctx.event_as(&signs, claim, EventType::Normal, "Resizing", message);
        }
        Step::Grow(next) => drop(client.update(&*next).await?),
        Step::Finish(next) => {
            client.update_status(&*next).await?;
            let message = "Resize volume succeeded";
            ctx.event_as(&signs, claim, EventType::Normal, "VolumeResizeSuccessful", message);
        }
    }
    Ok(Action::await_change())
}

fn step(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Step {
    let asked = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let asked = asked.and_then(|resources| resources.requests.as_ref()?.get(STORAGE));
    let status = claim.status.clone().unwrap_or_default();
    let has = |sizes: Option<&BTreeMap<String, Quantity>>| {
        let size = sizes.and_then(|sizes| milli(sizes.get(STORAGE)?));
        size >= asked.and_then(milli)
    };
    let Some(asked) = asked else { return Step::Nothing };
    let is_bound = status.phase.as_deref() == Some("Bound");
    if !is_bound || has(status.capacity.as_ref()) {
        return Step::Nothing;
    }
    if meta::annotation(&volume.metadata, binding::PROVISIONED_BY) != Some(binding::SIMULATED) {
        return Step::Wait;
    }
    let mut next = claim.clone();
    let into = next.status.get_or_insert_default();
    let conditions = into.conditions.get_or_insert_default();
    let size = BTreeMap::from([(STORAGE.to_owned(), asked.clone())]);
    if !conditions.iter().any(|condition| condition.type_ == RESIZING) {
        conditions.push(PersistentVolumeClaimCondition {
            type_: RESIZING.to_owned(),
            status: "True".to_owned(),
            ..PersistentVolumeClaimCondition::default()
        });
        into.allocated_resources = Some(size);
        let under_way = (STORAGE.to_owned(), "ControllerResizeInProgress".to_owned());
        into.allocated_resource_statuses = Some(BTreeMap::from([under_way]));
        return Step::Begin(Box::new(next));
    }
    if !has(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref())) {
        let mut grown = volume.clone();
        grown.spec.get_or_insert_default().capacity = Some(size);
        return Step::Grow(Box::new(grown));
    }
    conditions.retain(|condition| condition.type_ != RESIZING);
    into.allocated_resource_statuses = None;
    into.allocated_resources = Some(size.clone());
    into.capacity = Some(size);
    Step::Finish(Box::new(next))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The steps, one after the other, until nothing is to be done.
    #[test]
    fn a_claim_grows_step_by_step() {
        let check = |by: &str, asked: &str, expected: &[&str]| {
            let mut claim: PersistentVolumeClaim = typed(json!({
                "metadata": { "name": "c" }, "spec": { "resources": { "requests": { "storage": asked } } },
                "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
            }));
            let mut volume: PersistentVolume = typed(json!({
                "metadata": { "name": "v", "annotations": { binding::PROVISIONED_BY: by } },
                "spec": { "capacity": { "storage": "1Gi" } },
            }));
            let mut taken = vec![];
            loop {
                match step(&claim, &volume) {
                    Step::Nothing => break,
                    Step::Wait => {
                        taken.push("wait");
                        break;
                    }
                    Step::Begin(next) => (claim, taken) = (*next, [taken, vec!["begin"]].concat()),
                    Step::Grow(next) => (volume, taken) = (*next, [taken, vec!["grow"]].concat()),
                    Step::Finish(next) => (claim, taken) = (*next, [taken, vec!["finish"]].concat()),
                }
            }
            assert_eq!(taken, expected, "{by} {asked}");
            if taken.last() == Some(&"finish") {
                let status = serde_json::to_value(&claim.status).expect("JSON");
                let sizes = json!({ "storage": asked });
                let grown =
                    json!({ "phase": "Bound", "capacity": sizes, "allocatedResources": sizes, "conditions": [] });
                assert_eq!(status, grown);
            }
        };
        check(binding::SIMULATED, "2Gi", &["begin", "grow", "finish"]);
        check(binding::SIMULATED, "1Gi", &[]);
        check("ex.io/p", "2Gi", &["wait"]);
    }

    fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object")
    }
}
