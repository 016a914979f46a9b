//! The Lease: reading and writing it. It is handled as JSON, so that fields of others stay (LE8).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ApiResource, DynamicObject};
use kubewright_engine::election::{Purpose, Record, Write};
use serde_json::{Value, json};

use crate::object::api_resource;

pub(crate) fn resource() -> ApiResource {
    api_resource::<Lease>()
}

/// Reads a Lease. `lease`: how long it lasts when it does not say.
pub(crate) fn record(lease: &DynamicObject, default: Duration) -> Record {
    let spec = &lease.data["spec"];
    let seconds = spec["leaseDurationSeconds"].as_u64().filter(|seconds| *seconds > 0);
    Record {
        holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
        lease: seconds.map_or(default, Duration::from_secs),
        transitions: spec["leaseTransitions"].as_u64().unwrap_or_default(),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// The Lease as it is to be: `present` with the fields of the election changed (`LeaseLock.Update`), or a new one.
pub(crate) fn written(
    present: Option<&DynamicObject>,
    name: &str,
    write: &Write,
    identity: &str,
    lease: Duration,
    now: Timestamp,
) -> DynamicObject {
    let mut object = match present {
        Some(present) => present.clone(),
        None => DynamicObject::new(name, &resource()),
    };
    object.metadata.resource_version.clone_from(&write.replaces);
    object.metadata.managed_fields = None; // The server keeps them.
    if !object.data["spec"].is_object() {
        object.data = json!({ "spec": {} });
    }
    let spec = &mut object.data["spec"];
    let time = json!(micro(now));
    spec["leaseTransitions"] = json!(i32::try_from(write.transitions).unwrap_or(i32::MAX));
    spec["renewTime"] = time.clone();
    match write.purpose {
        Purpose::Acquire | Purpose::Renew => {
            spec["holderIdentity"] = json!(identity);
            spec["leaseDurationSeconds"] = json!(seconds(lease));
        }
        // `LeaderElector.release`: others need not wait.
        Purpose::Release => {
            spec["holderIdentity"] = json!("");
            spec["leaseDurationSeconds"] = json!(1);
        }
    }
    if write.purpose != Purpose::Renew || spec["acquireTime"] == Value::Null {
        spec["acquireTime"] = time;
    }
    object
}

/// Whole seconds, never less than the duration.
fn seconds(lease: Duration) -> i32 {
    let up = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
    i32::try_from(up).unwrap_or(i32::MAX)
}

/// `metav1.MicroTime`.
fn micro(now: Timestamp) -> String {
    format!("{now:.6}")
}

/// The Lease, as events name their object.
pub(super) fn reference(lease: &DynamicObject) -> ObjectReference {
    let resource = resource();
    ObjectReference {
        api_version: Some(resource.api_version),
        kind: Some(resource.kind),
        name: lease.metadata.name.clone(),
        namespace: lease.metadata.namespace.clone(),
        uid: lease.metadata.uid.clone(),
        resource_version: lease.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn le8_fields_of_others_stay() {
        let present: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "l", "namespace": "a", "resourceVersion": "8", "labels": {"team": "red"}},
            "spec": {"holderIdentity": "me", "leaseTransitions": 3, "acquireTime": "2026-01-01T00:00:00.000000Z",
                     "preferredHolder": "other", "strategy": "OldestEmulationVersion"},
        }))
        .expect("a Lease");
        let now: Timestamp = "2026-01-02T03:04:05.5Z".parse().expect("a time");
        let check = |purpose: Purpose, spec: Value| {
            let write = Write {
                purpose,
                replaces: Some("8".to_owned()),
                transitions: 4,
            };
            let written = written(Some(&present), "l", &write, "me", Duration::from_millis(15_001), now);
            assert_eq!(written.data["spec"], spec, "{purpose:?}");
            assert_eq!(written.metadata, present.metadata, "{purpose:?}");
        };
        let now = "2026-01-02T03:04:05.500000Z";
        check(
            Purpose::Acquire,
            json!({"holderIdentity": "me", "leaseTransitions": 4, "leaseDurationSeconds": 16, "acquireTime": now, "renewTime": now,
                   "preferredHolder": "other", "strategy": "OldestEmulationVersion"}),
        );
        check(
            Purpose::Renew,
            json!({"holderIdentity": "me", "leaseTransitions": 4, "leaseDurationSeconds": 16, "acquireTime": "2026-01-01T00:00:00.000000Z",
                   "renewTime": now, "preferredHolder": "other", "strategy": "OldestEmulationVersion"}),
        );
        check(
            Purpose::Release,
            json!({"holderIdentity": "", "leaseTransitions": 4, "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now,
                   "preferredHolder": "other", "strategy": "OldestEmulationVersion"}),
        );
    }

    #[test]
    fn a_strange_lease_is_read_without_fear() {
        let check = |spec: Value, holder: &str, seconds: u64, transitions: u64| {
            let mut lease = DynamicObject::new("l", &resource());
            lease.data = json!({ "spec": spec });
            let read = record(&lease, Duration::from_secs(15));
            let got = (read.holder.as_str(), read.lease.as_secs(), read.transitions);
            assert_eq!(got, (holder, seconds, transitions), "{spec}");
        };
        check(Value::Null, "", 15, 0);
        check(
            json!({"holderIdentity": "a", "leaseDurationSeconds": 3, "leaseTransitions": 7}),
            "a",
            3,
            7,
        );
        check(
            json!({"holderIdentity": 1, "leaseDurationSeconds": 0, "leaseTransitions": -1}),
            "",
            15,
            0,
        );
        check(json!({"leaseDurationSeconds": u64::MAX}), "", u64::MAX, 0);
    }
}
