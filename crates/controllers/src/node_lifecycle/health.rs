//! Whether a node is still heard of (`tryUpdateNodeHealth`).
//!
//! Pure. A node is heard when the heartbeat in its condition Ready or its Lease changes. One that falls silent for
//! [`GRACE`] is Unknown in every respect; one that has never reported has [`STARTUP`] from its creation. The time at
//! which a sign was *seen* counts, so that clocks of other machines do not matter.

use std::time::Duration;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::coordination::v1::Lease;
use kubewright_objects::api::core::v1::{Node, NodeCondition};

use kubewright_objects::{meta, node};

/// `--node-monitor-grace-period`.
const GRACE: Duration = Duration::from_secs(50);
/// `--node-startup-grace-period`.
const STARTUP: Duration = Duration::from_secs(60);
/// The conditions of a silent node that become Unknown.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The last sign of life of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeHealth {
    heartbeat: Option<Time>,
    renewed: Option<MicroTime>,
    at: Timestamp,
}

impl NodeHealth {
    /// It counts as heard now, although it may not have been.
    pub(super) fn again(&mut self, now: Timestamp) {
        self.at = now;
    }
}

/// The present record, from the earlier one.
pub(super) fn hear(before: Option<&NodeHealth>, node: &Node, lease: Option<&Lease>, now: Timestamp) -> NodeHealth {
    let ready = node::ready(node);
    let heartbeat = ready.and_then(|ready| ready.last_heartbeat_time.clone());
    let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.clone());
    let at = match before {
        Some(before) if before.heartbeat == heartbeat && before.renewed == renewed => before.at,
        // A node that never reported is counted from its creation, even when it is seen late.
        None if ready.is_none() && renewed.is_none() => {
            node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0)
        }
        _ => now,
    };
    NodeHealth { heartbeat, renewed, at }
}

/// How long until the node counts as silent; zero when it does.
pub(super) fn left(heard: &NodeHealth, node: &Node, now: Timestamp) -> Duration {
    let grace = if node::ready(node).is_some() { GRACE } else { STARTUP };
    grace.saturating_sub(Duration::try_from(now.duration_since(heard.at)).unwrap_or_default())
}

/// The conditions of a node that has fallen silent; none when they say so already.
pub(super) fn silenced(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let status = node.status.as_ref();
    let mut conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
    let before = conditions.clone();
    for kind in CONDITIONS {
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(meta::time(now));
            }
            None => conditions.push(NodeCondition {
                type_: kind.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(meta::time(now)),
            }),
        }
    }
    (conditions != before).then_some(conditions)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("small")
    }

    fn node(heartbeat: Option<i64>) -> Node {
        let condition =
            |second: i64| json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": at(second).to_string() });
        let conditions: Vec<_> = heartbeat.map(condition).into_iter().collect();
        let node =
            json!({ "metadata": { "creationTimestamp": at(0).to_string() }, "status": { "conditions": conditions } });
        serde_json::from_value(node).expect("a node")
    }

    fn lease(second: i64) -> Lease {
        let time = format!("1970-01-01T00:00:{second:02}.000000Z");
        serde_json::from_value(json!({ "metadata": {}, "spec": { "renewTime": time } })).expect("a lease")
    }

    #[test]
    fn signs_of_life() {
        let check = |heard: &NodeHealth, node: &Node, now: i64, expected: u64| {
            assert_eq!(left(heard, node, at(now)).as_secs(), expected, "{heard:?} at {now}");
        };
        // Never a word: from its creation on.
        let silent = node(None);
        let heard = hear(None, &silent, None, at(10));
        check(&heard, &silent, 10, 50);
        check(&heard, &silent, 60, 0);
        // Seen first at 10, and nothing since.
        let alive = node(Some(3));
        let heard = hear(None, &alive, None, at(10));
        let heard = hear(Some(&heard), &alive, None, at(40));
        check(&heard, &alive, 40, 20);
        check(&heard, &alive, 60, 0);
        // A heartbeat, and then a lease.
        let alive = node(Some(4));
        let heard = hear(Some(&heard), &alive, None, at(55));
        check(&heard, &alive, 55, 50);
        let heard = hear(Some(&heard), &alive, Some(&lease(1)), at(58));
        check(&heard, &alive, 58, 50);
    }

    #[test]
    fn a_silent_node_is_unknown() {
        let check = |node: &Node, ready: &str, memory: &str| {
            let conditions = silenced(node, at(99)).expect("a change");
            let reason = |kind: &str| conditions.iter().find(|one| one.type_ == kind)?.reason.clone();
            assert!(conditions.iter().all(|condition| condition.status == "Unknown"));
            assert_eq!(
                (reason("Ready").as_deref(), reason("MemoryPressure").as_deref()),
                (Some(ready), Some(memory))
            );
            let mut after = node.clone();
            after.status.get_or_insert_default().conditions = Some(conditions);
            assert_eq!(silenced(&after, at(199)), None);
        };
        check(&node(None), "NodeStatusNeverUpdated", "NodeStatusNeverUpdated");
        check(&node(Some(1)), "NodeStatusUnknown", "NodeStatusNeverUpdated");
    }
}
