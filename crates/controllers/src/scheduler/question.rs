//! The filters of a pod on the nodes, at this moment: the filter plugins of kube-scheduler, in its order.

use std::sync::Arc;

use kubewright::k8s_openapi::api::core::v1::{Node, Pod};
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::devices::Devices;
use super::fit::{Refusal, Wish};
use super::ledger::{Ledger, Taken};
use super::neighbours::{Namespaces, Neighbours};
use super::volumes::Volumes;
use kubewright_objects::meta;

/// The surroundings of a pod that is to be placed.
pub(super) struct Surroundings<'a> {
    pub(super) volumes: &'a Volumes,
    pub(super) devices: &'a Devices,
    pub(super) namespaces: &'a Namespaces,
    pub(super) nodes: &'a [Arc<Node>],
    /// Selects the pods that belong together with it.
    pub(super) kin: Option<&'a LabelSelector>,
}

/// The filters of a pod on the nodes, at this moment.
pub(super) struct Question<'a> {
    wish: Wish<'a>,
    volumes: &'a Volumes,
    devices: &'a Devices,
    ledger: &'a Ledger,
    neighbours: Neighbours,
    pub(super) all: Vec<&'a Node>,
    /// Another pod uses a volume that only one may use.
    taken: Option<Refusal>,
}

impl<'a> Question<'a> {
    pub(super) fn new(pod: &'a Pod, around: &Surroundings<'a>, ledger: &'a Ledger) -> Question<'a> {
        let all: Vec<&Node> = around.nodes.iter().map(|node| &**node).collect();
        Question {
            wish: Wish::of(pod),
            volumes: around.volumes,
            devices: around.devices,
            taken: around.volumes.taken(pod, ledger),
            ledger,
            neighbours: Neighbours::of(pod, &all, ledger, around.namespaces),
            all,
        }
    }

    /// Why a node refuses; nothing when it does not.
    pub(super) fn ask(&self, node: &Node) -> Option<Refusal> {
        let nothing = Taken::default();
        let taken = self.ledger.on(meta::name(&node.metadata)).unwrap_or(&nothing);
        let refusal = self.wish.refusal(node, taken).or_else(|| self.taken.clone());
        refusal.or_else(|| {
            let other = self.volumes.refusal(node).or_else(|| self.neighbours.refusal(node));
            other.or_else(|| self.devices.refusal(node)).map(Refusal::of)
        })
    }
}
