//! The volumes of a pod that is to be placed: which of its claims hold it up, and which nodes their volumes allow.
//!
//! Invariant: a claim that waits for its first pod is told the node before the pod is bound, and the pod is bound after
//! the claim (`VolumeBinding`). A volume that is there goes before one that is made. A claim for one pod is used by one
//! (`VolumeRestrictions`). Not here: the capacity of drivers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubewright::kube::api::Patch;
use kubewright::{Context, Result};
use kubewright_objects::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kubewright_objects::api::storage::v1::StorageClass;
use serde_json::json;

use super::cache::Cache;
use super::fit::{self, Refusal};
use super::prefer::{BEST, Feasible};
use crate::volumes::{binding, topology};
use kubewright_objects::NodeView;
use kubewright_objects::{meta, pods};

/// The constraints of a pod's claims on its node.
#[derive(Default)]
pub(super) struct Volumes {
    /// The bound volumes.
    bound: Vec<Arc<PersistentVolume>>,
    /// Claims that wait for a node, and the class by which a volume can be made for them.
    unplaced: Vec<(Arc<PersistentVolumeClaim>, Option<Arc<StorageClass>>)>,
    /// The volumes that may be for the claims that wait.
    all: Vec<Arc<PersistentVolume>>,
    /// Claims that one pod alone may use.
    exclusive: Vec<String>,
}

/// The index of the volumes that may be for a claim.
pub(super) const INDEX: &str = "spec.claimRef or spec.storageClassName of waiting pods";
/// The access mode of a volume that one pod alone may use.
const ONE_POD: &str = "ReadWriteOncePod";
/// The reason of every node while another pod uses it.
const IN_USE: &str =
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

impl Volumes {
    /// Looks at the claims of a pod; or why no node will do.
    pub(super) async fn of(pod: &Pod, ctx: &Context) -> Result<std::result::Result<Volumes, String>> {
        let (client, namespace) = (ctx.client(), pod.metadata.namespace.as_deref());
        let mut found = Volumes::default();
        for pods::PodClaim { name, is_ephemeral, .. } in pods::claims(pod) {
            let claim = client.get::<PersistentVolumeClaim>(namespace, &name).await?;
            let Some(claim) = claim else {
                // `podHasPVCs`: usual just after such a pod was created.
                return Ok(Err(match is_ephemeral {
                    true => format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
                    ),
                    false => format!("persistentvolumeclaim \"{name}\" not found"),
                }));
            };
            if let Some(why) = pods::not_made_for(pod, &claim).filter(|_| is_ephemeral) {
                return Ok(Err(why));
            }
            if meta::is_deleting(&claim.metadata) {
                return Ok(Err(format!("persistentvolumeclaim \"{name}\" is being deleted")));
            }
            let mut modes = claim.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten());
            if modes.any(|mode| mode == ONE_POD) {
                found.exclusive.push(name.clone());
            }
            if binding::is_bound(&claim) {
                let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
                if let Some(volume) = client.get::<PersistentVolume>(None, volume.unwrap_or_default()).await? {
                    found.bound.push(volume);
                }
                continue;
            }
            let class = client.get::<StorageClass>(None, binding::class(&claim)).await?;
            let Some(class) = class.filter(|class| binding::waits(class)) else {
                return Ok(Err("pod has unbound immediate PersistentVolumeClaims".to_owned()));
            };
            let maker = Some(class).filter(|class| class.provisioner != NO_PROVISIONER);
            found.unplaced.push((claim, maker));
        }
        for (claim, _) in &found.unplaced {
            found.all.extend(binding::candidates(claim, INDEX, ctx).await?);
        }
        Ok(Ok(found))
    }

    /// Whether a claim waits for a node.
    pub(super) fn waits(&self) -> bool {
        !self.unplaced.is_empty()
    }

    /// Why no node will do while the placed pods are there: one of them uses a volume that only one may use.
    pub(super) fn taken(&self, pod: &Pod, cache: &Cache) -> Option<Refusal> {
        let namespace = pod.metadata.namespace.as_deref();
        let is_used = self.exclusive.iter().any(|claim| cache.uses(namespace, claim));
        is_used.then(|| Refusal::by_pods(IN_USE))
    }

    /// Why a node will not do.
    pub(super) fn refusal(&self, node: &Node) -> Option<Refusal> {
        if !self.bound.iter().all(|volume| reaches(volume, node)) {
            return Some(Refusal::lasting(
                "node(s) didn't match PersistentVolume's node affinity",
            ));
        }
        let mut found = self.unplaced.iter().zip(self.on(node));
        let lacks = found.any(|((_, class), volume)| {
            let is_made = class.as_ref().is_some_and(|class| topology::serves(class, node));
            volume.is_none() && !is_made
        });
        lacks.then(|| Refusal::lasting("node(s) didn't find available persistent volumes to bind"))
    }

    /// The volume on a node for each claim that waits, if there is one.
    fn on(&self, node: &Node) -> Vec<Option<&Arc<PersistentVolume>>> {
        let mut taken = BTreeSet::new();
        let of = |(claim, _): &(Arc<PersistentVolumeClaim>, Option<Arc<StorageClass>>)| {
            let is_free = |volume: &&Arc<PersistentVolume>| {
                reaches(volume, node) && !taken.contains(meta::name(&volume.metadata))
            };
            let reserved = self.all.iter().find(|volume| binding::is_for(volume, claim));
            let candidates: Vec<&PersistentVolume> = match reserved {
                Some(reserved) => reaches(reserved, node).then_some(&**reserved).into_iter().collect(),
                None => self.all.iter().filter(is_free).map(|volume| &**volume).collect(),
            };
            let best = binding::best(claim, &candidates, false)?;
            taken.insert(meta::name(&best.metadata).to_owned());
            self.all.iter().find(|volume| std::ptr::eq(&raw const ***volume, best))
        };
        self.unplaced.iter().map(of).collect()
    }

    /// How much the nodes are preferred for the volumes on them: the less of these is asked for, the more
    /// (`VolumeBinding.Score`, of each class by itself).
    pub(super) fn scores(&self, nodes: &[Feasible<'_>]) -> Vec<i64> {
        let score = |(node, _): &Feasible<'_>| {
            let mut classes: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
            for ((claim, _), volume) in self.unplaced.iter().zip(self.on(&node.node)) {
                let Some(volume) = volume else { continue };
                let (asked, there) = classes.entry(binding::class(claim)).or_default();
                *asked += claim.spec.as_ref().map_or(0, binding::requested);
                *there += binding::capacity(volume);
            }
            let left = |(asked, there): &(i128, i128)| BEST - used(*asked, *there);
            let sum: i64 = classes.values().map(left).sum();
            let count = i64::try_from(classes.len()).unwrap_or(i64::MAX / 2);
            // Rounded, not cut off.
            (2 * sum + count).checked_div(2 * count).unwrap_or(0)
        };
        nodes.iter().map(score).collect()
    }

    /// Gives the claims that wait their volumes, or tells them the node. `false` when the pod may be bound, because
    /// none waits.
    pub(super) async fn place(&self, node: &str, nodes: &[Arc<NodeView>], ctx: &Context) -> Result<bool> {
        let Some(node) = nodes.iter().find(|known| known.name() == node) else {
            return Ok(self.waits());
        };
        for ((claim, _), volume) in self.unplaced.iter().zip(self.on(&node.node)) {
            match volume {
                Some(volume) => {
                    if let Some(next) = binding::volume_for(volume, claim) {
                        ctx.client().update(&next).await?;
                    }
                }
                None => tell(claim, node.name(), ctx).await?,
            }
        }
        Ok(self.waits())
    }
}

/// How many of a hundred parts are asked for: all, if the rest is not known.
fn used(asked: i128, there: i128) -> i64 {
    let used = asked.saturating_mul(BEST.into()).checked_div(there);
    used.and_then(|used| i64::try_from(used).ok())
        .map_or(BEST, |used| used.min(BEST))
}

/// Whether a volume can be used on a node.
fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| fit::selects(required, node))
}

/// Says in a claim for which node its volume is to be made.
async fn tell(claim: &PersistentVolumeClaim, node: &str, ctx: &Context) -> Result<()> {
    if meta::annotation(&claim.metadata, binding::SELECTED_NODE) == Some(node) {
        return Ok(());
    }
    let annotations = json!({ binding::SELECTED_NODE: node });
    let patch = json!({ "metadata": { "uid": claim.metadata.uid, "annotations": annotations } });
    let (namespace, name) = (claim.metadata.namespace.as_deref(), meta::name(&claim.metadata));
    ctx.client()
        .patch::<PersistentVolumeClaim, _>(namespace, name, &Patch::Merge(patch))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use kubewright::View as _;
    use serde_json::Value;

    use super::super::cache::NodeInfo;
    use super::*;

    /// Claims (class, size) that wait, and volumes (class, size, node).
    #[track_caller]
    fn check(claims: &[(&str, &str)], volumes: &[(&str, &str, &str)], expected: [i64; 2]) {
        fn of<K: serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
            Arc::new(serde_json::from_value(value).expect("an object"))
        }
        let node = |name: &str| json!({ "metadata": { "name": name, "labels": { "n": name } } });
        let nodes = ["a", "b"].map(|name| NodeView::of(&*of::<Node>(node(name))));
        let claim = |(number, (class, size)): (usize, &(&str, &str))| {
            let spec = json!({ "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": size } } });
            (
                of(json!({ "metadata": { "name": format!("c{number}"), "namespace": "n" }, "spec": spec })),
                None,
            )
        };
        let volume = |(number, (class, size, node)): (usize, &(&str, &str, &str))| {
            let term = json!({ "matchExpressions": [{ "key": "n", "operator": "In", "values": [node] }] });
            let affinity = json!({ "required": { "nodeSelectorTerms": [term] } });
            of(
                json!({ "metadata": { "name": format!("v{number}") }, "status": { "phase": "Available" },
                "spec": { "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                    "capacity": { "storage": size }, "nodeAffinity": affinity } }),
            )
        };
        let found = Volumes {
            unplaced: claims.iter().enumerate().map(claim).collect(),
            all: volumes.iter().enumerate().map(volume).collect(),
            ..Volumes::default()
        };
        let nothing = NodeInfo::default();
        let nodes: Vec<Feasible<'_>> = nodes.iter().map(|node| (node, &nothing)).collect();
        assert_eq!(found.scores(&nodes), expected, "{claims:?} {volumes:?}");
    }

    /// By `buildScorerFunction` with the shape of `SetDefaults_VolumeBindingArgs`.
    #[test]
    fn nodes_with_larger_volumes_are_preferred() {
        check(&[("s", "1Gi")], &[("s", "2Gi", "a"), ("s", "4Gi", "b")], [50, 75]);
        check(&[("s", "1Gi")], &[("s", "1Gi", "a")], [0, 0]);
        // Volumes of one class count together, and classes alike.
        let volumes = [
            ("s", "1Gi", "a"),
            ("s", "3Gi", "a"),
            ("t", "8Gi", "a"),
            ("t", "3Gi", "b"),
        ];
        check(&[("s", "1Gi"), ("s", "1Gi")], &volumes, [50, 0]);
        check(&[("s", "1Gi"), ("t", "1Gi")], &volumes, [44, 67]);
    }
}
