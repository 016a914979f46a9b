//! The Lease with which a node says that it is alive, cheaper than by its status (KEP-589).
//!
//! Pure.

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

/// How long until it is time to renew.
pub(super) fn due(lease: &Lease, now: Timestamp) -> Duration {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    let age = renewed.map(|time| Duration::try_from(now.duration_since(time.0)).unwrap_or_default());
    age.map_or(Duration::ZERO, |age| RENEW.saturating_sub(age))
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
        let check = |now: i64, expected: u64| assert_eq!(due(&lease, at(now)).as_secs(), expected, "{now}");
        check(100, 10);
        check(109, 1);
        check(110, 0);
        check(500, 0);
        assert_eq!(due(&renewed(Some(&lease), &node, at(500)), at(501)).as_secs(), 9);
    }
}
