//! The status of a ResourceClaim: the allocated devices, the pods that reserve them, and the drivers' reports.

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use serde_json::Value;

use super::slices::bindings;
use super::{At, Errors, MAX_REQUESTS, Requests, driver_name, get, label, limited, opaque, parameters, pool_name, set};
use crate::strategies::pods::scheduling::node_selector;
use kubewright_model::object;

/// How many may share a claim, and how much drivers may say.
const MAX_CONSUMERS: usize = 256;
const MAX_DEVICE_CONDITIONS: usize = 8;

/// `validateResourceClaimStatusUpdate`.
pub(super) fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let status = At::root(new).key("status");
    let (reserved, allocation) = (status.key("reservedFor"), status.key("allocation"));
    let uid = |consumer: &At<'_>| consumer.key("uid").text().to_owned();
    if limited(&mut errors, &reserved, MAX_CONSUMERS, |errors, consumer| {
        for field in ["resource", "name", "uid"] {
            if consumer.key(field).text().is_empty() {
                errors.required(&consumer.key(field), "");
            }
        }
    }) {
        let mut seen = std::collections::BTreeSet::new();
        for consumer in reserved.items() {
            if !seen.insert(uid(&consumer)) {
                errors.push(FieldError::duplicate(consumer.path.to_string(), uid(&consumer)));
            }
        }
    }
    devices(&mut errors, &status);
    if !reserved.is_empty() && !allocation.present() {
        errors.forbidden(&reserved, "may not be specified when `allocated` is not set");
    } else if object::is_terminating(new) {
        let known = get(old, &["status", "reservedFor"]).as_array();
        let is_new = |consumer: &At<'_>| known.is_none_or(|known| !known.contains(consumer.value));
        if reserved.items().any(|consumer| is_new(&consumer)) {
            errors.forbidden(
                &reserved,
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
            );
        }
    }
    let was = At::root(old).keys(&["status", "allocation"]);
    if allocation.present() && was.present() {
        errors.immutable(&allocation, &was);
    } else if allocation.present() {
        allocated(&mut errors, new, &allocation);
    }
    errors.into_vec()
}

/// Devices for the requests that the claim makes (`validateAllocationResult`).
fn allocated(errors: &mut Errors, claim: &Value, allocation: &At<'_>) {
    let requests = Requests::of(&At::root(claim).keys(&["spec", "devices"]));
    let devices = allocation.key("devices");
    limited(errors, &devices.key("results"), MAX_REQUESTS, |errors, result| {
        requests.check_name(errors, &result.key("request"));
        driver_name(errors, &result.key("driver"));
        pool_name(errors, &result.key("pool"));
        label(errors, &result.key("device"));
        bindings(errors, &result);
    });
    limited(errors, &devices.key("config"), 2 * MAX_REQUESTS, |errors, config| {
        errors.one_of(&config.key("source"), &["FromClaim", "FromClass"], true);
        let names = config.key("requests");
        set(errors, &names, MAX_REQUESTS, At::text, |errors, name| {
            requests.check_name(errors, &name);
        });
        opaque(errors, &config, false);
    });
    if allocation.key("nodeSelector").present() {
        node_selector(errors, &allocation.key("nodeSelector"));
    }
}

/// The drivers' reports about the allocated devices (`validateDeviceStatus`).
fn devices(errors: &mut Errors, status: &At<'_>) {
    let results = status.keys(&["allocation", "devices", "results"]);
    let id = |at: &At<'_>| ["driver", "pool", "device", "shareID"].map(|field| at.key(field).text().to_owned());
    let shown = |at: &At<'_>| {
        let [driver, pool, device, share] = id(at);
        let share = if share.is_empty() { share } else { format!("/{share}") };
        format!("{driver}/{pool}/{device}{share}")
    };
    let allocated: BTreeSet<[String; 4]> = results.items().map(|result| id(&result)).collect();
    let mut seen = BTreeSet::new();
    for device in status.key("devices").items() {
        driver_name(errors, &device.key("driver"));
        pool_name(errors, &device.key("pool"));
        label(errors, &device.key("device"));
        if !allocated.contains(&id(&device)) {
            errors.invalid_value(&device, shown(&device), "must be an allocated device in the claim");
        }
        let conditions = device.key("conditions");
        if conditions.len() > MAX_DEVICE_CONDITIONS {
            let (path, count) = (conditions.path.to_string(), conditions.len());
            errors.push(FieldError::too_many(path, count, MAX_DEVICE_CONDITIONS));
        }
        if device.key("data").present() {
            parameters(errors, &device.key("data"), false);
        }
        if !seen.insert(id(&device)) {
            errors.push(FieldError::duplicate(device.path.to_string(), shown(&device)));
        }
    }
}
