//! Reclaiming a volume whose claim is gone (`reclaimVolume`), and the messages of its failures.
//!
//! Pure. Nothing here has storage: a volume that would be deleted goes as an object, and its directory or server is
//! never touched. Recycling would promise that data are gone, so it is refused.

use kubewright_objects::api::core::v1::PersistentVolume;

use super::binding;
use kubewright_objects::meta;

/// The action for a released volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reclaim {
    /// It stays: as its policy says, or because another controller deletes it.
    Stay,
    /// It goes.
    Delete,
    /// It cannot: the reason of the event, and the message.
    Fail(&'static str, String),
}

/// The action for a released volume.
pub(super) fn of(volume: &PersistentVolume) -> Reclaim {
    let policy = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    match policy {
        Some("Delete") => match deleted(volume) {
            Ok(true) => Reclaim::Delete,
            Ok(false) => Reclaim::Stay,
            Err(why) => Reclaim::Fail("VolumeFailedDelete", why),
        },
        Some("Recycle") => Reclaim::Fail("VolumeFailedRecycle", recycled(volume).to_owned()),
        _ => Reclaim::Stay,
    }
}

/// Whether the volume is ours to delete; an external provisioner deletes its own (`findDeletablePlugin`).
fn deleted(volume: &PersistentVolume) -> Result<bool, String> {
    let no_plugin = |why: &str| {
        let name = meta::name(&volume.metadata);
        format!("error getting deleter volume plugin for volume {name:?}: {why}")
    };
    match meta::annotation(&volume.metadata, binding::PROVISIONED_BY) {
        Some(binding::SIMULATED) => return Ok(true),
        Some(by) if by.starts_with("kubernetes.io/") => {
            return Err(no_plugin(&format!("no volume plugin matched name: {by}")));
        }
        Some(by) if !by.is_empty() => return Ok(false),
        _ => {}
    }
    let Some(spec) = &volume.spec else { return Ok(false) };
    if let Some(host) = &spec.host_path {
        return match host.path.strip_prefix("/tmp/") {
            Some(rest) if !rest.is_empty() => Ok(true),
            _ => Err(format!(
                "host_path deleter only supports /tmp/.+ but received provided {}",
                host.path
            )),
        };
    }
    match (&spec.csi, &spec.nfs) {
        (Some(_), _) => Ok(false),
        (None, Some(_)) => Err(no_plugin("no deletable volume plugin matched")),
        (None, None) => Err(no_plugin("no volume plugin matched")),
    }
}

/// Why a volume is not recycled.
fn recycled(volume: &PersistentVolume) -> &'static str {
    let source = volume.spec.as_ref();
    match source.is_some_and(|spec| spec.host_path.is_some() || spec.nfs.is_some()) {
        true => "Volumes are not recycled here: no pod would empty it. Delete the volume and create it anew.",
        false => "No recycler plugin found for the volume!",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_becomes_of_released_volumes() {
        let check = |policy: &str, source: Value, by: Option<&str>, expected: Reclaim| {
            let mut volume =
                json!({ "metadata": { "name": "v" }, "spec": { "persistentVolumeReclaimPolicy": policy } });
            for (key, value) in source.as_object().expect("an object") {
                volume["spec"][key] = value.clone();
            }
            if let Some(by) = by {
                volume["metadata"]["annotations"] = json!({ binding::PROVISIONED_BY: by });
            }
            let typed = serde_json::from_value(volume.clone()).expect("a volume");
            assert_eq!(of(&typed), expected, "{volume}");
        };
        let lacks = |why: &str| {
            let message = format!("error getting deleter volume plugin for volume \"v\": {why}");
            Reclaim::Fail("VolumeFailedDelete", message)
        };
        let path = |path: &str| json!({ "hostPath": { "path": path } });
        let csi = || json!({ "csi": { "driver": "d", "volumeHandle": "h" } });
        let nfs = || json!({ "nfs": { "server": "s", "path": "/" } });
        check("Retain", path("/x"), None, Reclaim::Stay);
        check("Retain", path("/x"), Some(binding::SIMULATED), Reclaim::Stay);
        check("Delete", path("/x"), Some(binding::SIMULATED), Reclaim::Delete);
        check("Delete", path("/x"), Some("ex.io/p"), Reclaim::Stay);
        check(
            "Delete",
            path("/x"),
            Some("kubernetes.io/p"),
            lacks("no volume plugin matched name: kubernetes.io/p"),
        );
        check("Delete", path("/tmp/x"), None, Reclaim::Delete);
        let elsewhere = "host_path deleter only supports /tmp/.+ but received provided /x".to_owned();
        check(
            "Delete",
            path("/x"),
            None,
            Reclaim::Fail("VolumeFailedDelete", elsewhere),
        );
        check("Delete", csi(), None, Reclaim::Stay);
        check("Delete", nfs(), None, lacks("no deletable volume plugin matched"));
        check(
            "Delete",
            json!({ "local": { "path": "/x" } }),
            None,
            lacks("no volume plugin matched"),
        );
        let recycler = Reclaim::Fail(
            "VolumeFailedRecycle",
            "No recycler plugin found for the volume!".to_owned(),
        );
        check("Recycle", csi(), None, recycler);
    }
}
