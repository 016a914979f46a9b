//! The devices that a pod waits for (`DynamicResources`): its claims exist, are allocated, and their devices can be
//! reached from a node.
//!
//! Nothing is allocated here: a claim that no driver allocates keeps its pod waiting.

use kubewright::{Context, Result};
use kubewright_objects::api::core::v1::{Node, NodeSelector, Pod};
use kubewright_objects::api::resource::v1::ResourceClaim;

use super::fit::{self, Refusal};
use crate::resourceclaim::plan;

/// The constraints of a pod's claims on its node.
#[derive(Default)]
pub(super) struct Devices {
    /// Whether a claim is not allocated.
    is_waiting: bool,
    /// The nodes from which the devices of allocated claims can be reached.
    reached: Vec<NodeSelector>,
}

impl Devices {
    /// Looks at the claims of a pod; none while one does not exist, when the pod is not looked at (`PreEnqueue`).
    pub(super) async fn of(pod: &Pod, ctx: &Context) -> Result<Option<Devices>> {
        let mut devices = Devices::default();
        for entry in plan::entries(pod) {
            if plan::told(pod, entry) == plan::ClaimStatus::Unneeded {
                continue;
            }
            let Some(name) = plan::claim_name(pod, entry) else {
                return Ok(None);
            };
            // So few pods have claims that all other clusters are spared a watch.
            let namespace = pod.metadata.namespace.as_deref();
            let Some(claim) = ctx.client().live::<ResourceClaim>(namespace, name).await? else {
                return Ok(None);
            };
            let allocation = claim.status.and_then(|status| status.allocation);
            match allocation {
                Some(allocation) => devices.reached.extend(allocation.node_selector),
                None => devices.is_waiting = true,
            }
        }
        Ok(Some(devices))
    }

    /// Why a node will not do.
    pub(super) fn refusal(&self, node: &Node) -> Option<Refusal> {
        if !self.reached.iter().all(|selector| fit::selects(selector, node)) {
            return Some(Refusal::lasting("resourceclaim not available on the node"));
        }
        self.is_waiting.then(|| Refusal::lasting("cannot allocate all claims"))
    }
}

/// What the plugin for claims says when no node will do, before preemption says what it finds.
pub(super) fn said(pod: &Pod) -> &'static str {
    match plan::entries(pod).is_empty() {
        true => "no new claims to deallocate",
        false => "still not schedulable",
    }
}
