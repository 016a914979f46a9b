//! The Lease with which a node says that it is alive, cheaper than by its status (KEP-589).
//!
//! Pure. A kubelet renews every ten seconds. The nodes of a large fleet do it less often, and together: a thousand
//! Leases were the most that an idle cluster did.

use std::time::Duration;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::coordination::v1::{Lease, LeaseSpec};
use kubewright_objects::api::core::v1::Node;

use kubewright_objects::meta;
use kubewright_objects::node::RENEW;

/// Where the Leases of nodes are.
pub(super) const NAMESPACE: &str = "kube-node-lease";
/// For how long a renewal is good.
const DURATION: i32 = 40;

/// The most nodes that renew as often as a kubelet does.
const FEW: usize = 100;
/// How often each of more nodes does: as long as a renewal is good, and well before the node counts as silent, after 50
/// seconds (`--node-monitor-grace-period`).
const SELDOM: Duration = Duration::from_secs(30);

/// How often each of so many nodes renews its Lease.
pub(super) fn interval(nodes: usize) -> Duration {
    if nodes > FEW { SELDOM } else { RENEW }
}

/// How long until it is time for one of so many nodes to renew.
pub(super) fn due(lease: &Lease, nodes: usize, now: Timestamp) -> Duration {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    let next = renewed.and_then(|time| time.0.checked_add(interval(nodes)).ok());
    // Those of the same second have their turn together.
    let next = match nodes > FEW {
        true => next.and_then(|next| Timestamp::from_second(next.as_second()).ok()),
        false => next,
    };
    let wait = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
    // The clock may have been set back since.
    wait.unwrap_or_default().min(interval(nodes))
}

/// The Lease of a node, renewed now.
pub(super) fn renewed(present: Option<&Lease>, node: &Node, now: Timestamp) -> Lease {
    let mut lease = present.cloned().unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: node.metadata.name.clone(),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        ..Lease::default()
    });
    // The node may have been registered anew since.
    lease.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: meta::name(&node.metadata).to_owned(),
        uid: meta::uid(&node.metadata).to_owned(),
        ..OwnerReference::default()
    }]);
    let before = lease.spec.take().unwrap_or_default();
    lease.spec = Some(LeaseSpec {
        holder_identity: node.metadata.name.clone(),
        lease_duration_seconds: Some(DURATION),
        renew_time: Some(MicroTime(now)),
        ..before
    });
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_renewed_in_time() {
        let node = Node::default();
        let at = |second: i64| Timestamp::from_second(second).expect("small");
        let lease = renewed(None, &node, at(100));
        let check = |nodes: usize, now: f64, expected: f64| {
            let now = Timestamp::UNIX_EPOCH + Duration::from_secs_f64(now);
            assert_eq!(due(&lease, nodes, now).as_secs_f64(), expected, "{nodes} at {now}");
        };
        check(1, 100.0, 10.0);
        check(100, 100.5, 9.5);
        check(1, 109.0, 1.0);
        check(1, 110.0, 0.0);
        check(1, 500.0, 0.0);
        check(1, 10.0, 10.0);
        check(101, 100.0, 30.0);
        check(101, 129.5, 0.5);
        check(101, 130.0, 0.0);
        let again = renewed(Some(&lease), &node, at(500) + Duration::from_millis(250));
        assert_eq!(due(&again, 1, at(501)).as_secs_f64(), 9.25);
        assert_eq!(
            due(&again, 101, at(501)).as_secs_f64(),
            29.0,
            "with those of the same second"
        );
    }
}
