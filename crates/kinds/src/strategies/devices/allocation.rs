//! The status of a ResourceClaim: the allocated devices, the pods that reserve them, and the drivers' reports.

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use serde_json::Value;

use super::slices::bindings;
use super::{At, Errors, MAX_REQUESTS, Requests, driver_name, get, label, limited, opaque, parameters, pool_name, set};
use crate::strategies::pods::scheduling::node_selector;
use crate::strategies::ranges;
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
        let mut seen = BTreeSet::new();
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
        share(errors, &result.key("shareID"));
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
        share(errors, &device.key("shareID"));
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
        for address in device.keys(&["networkData", "ips"]).items() {
            interface_address(errors, &address);
        }
        if !seen.insert(id(&device)) {
            errors.push(FieldError::duplicate(device.path.to_string(), shown(&device)));
        }
    }
}

/// The name of a share of a device (`validateUID`).
fn share(errors: &mut Errors, at: &At<'_>) {
    const FORM: &str = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
                        hexadecimal characters";
    if !at.present() {
        return;
    }
    let text = at.text();
    match uuid(text) {
        Err(why) => errors.invalid_value(at, text, format!("error validating uid: {why}")),
        Ok(()) if text.len() != LENGTH || text.bytes().any(|byte| byte.is_ascii_uppercase()) => {
            errors.invalid_value(at, text, FORM);
        }
        Ok(()) => {}
    }
}

/// The length of a UUID in its usual form.
const LENGTH: usize = 36;

/// Whether a text is a UUID in any of the forms that Go's most common package for them reads.
fn uuid(text: &str) -> Result<(), String> {
    const WRONG: &str = "invalid UUID format";
    const URN: &str = "urn:uuid:";
    let bytes = text.as_bytes();
    let usual = match bytes.len() {
        32 if bytes.iter().all(u8::is_ascii_hexdigit) => return Ok(()),
        32 => return Err(WRONG.to_owned()),
        LENGTH => bytes,
        45 if bytes.iter().take(URN.len()).map(u8::to_ascii_lowercase).eq(URN.bytes()) => {
            bytes.get(9..).unwrap_or(bytes)
        }
        45 => {
            return Err(format!(
                "invalid urn prefix: {:?}",
                text.get(..URN.len()).unwrap_or(text)
            ));
        }
        38 if bytes.starts_with(b"{") && bytes.ends_with(b"}") => bytes.get(1..37).unwrap_or(bytes),
        38 => return Err("invalid bracketed UUID format".to_owned()),
        length => return Err(format!("invalid UUID length: {length}")),
    };
    let fits = |(index, byte): (usize, &u8)| match index {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    let fits = usual.iter().enumerate().all(fits);
    fits.then_some(()).ok_or_else(|| WRONG.to_owned())
}

/// `IsValidInterfaceAddress`.
fn interface_address(errors: &mut Errors, at: &At<'_>) {
    let Some(block) = ranges::read(at.text()) else {
        let why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return errors.invalid_value(at, at.text(), why);
    };
    let (address, mut length) = (block.addr().to_canonical(), block.prefix_len());
    if address.is_ipv4() && length > 32 {
        length -= 96;
    }
    let canonical = format!("{address}/{length}");
    if at.text() != canonical {
        errors.invalid_value(at, at.text(), format!("must be in canonical form ({canonical:?})"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The errors of kube-apiserver 1.36 for what a driver reports of a device.
    #[test]
    fn reports_of_drivers() {
        let check = |report: Value, expected: &[&str]| {
            let mut device = json!({"driver": "d.example.com", "pool": "p", "device": "x"});
            let of = |field: &str| device.get(field).or(report.get(field)).cloned();
            let result =
                json!({"driver": of("driver"), "pool": of("pool"), "device": of("device"), "shareID": of("shareID")});
            if let (Some(device), Value::Object(report)) = (device.as_object_mut(), report) {
                device.extend(report);
            }
            let claim = json!({"status": {"allocation": {"devices": {"results": [result]}}, "devices": [device]}});
            let mut errors = Errors::default();
            devices(&mut errors, &At::root(&claim).key("status"));
            let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{claim}");
        };
        let id = "0b8e9ea0-7d2f-4b0e-9d2a-2f7a3b7a1c11";
        check(
            json!({"shareID": id, "networkData": {"ips": ["10.9.8.7/24", "2001:db8::1/64"]}}),
            &[],
        );
        let share = |text: &str, why: &str| format!("status.devices[0].shareID: Invalid value: {text:?}: {why}");
        check(
            json!({"shareID": "a"}),
            &[&share("a", "error validating uid: invalid UUID length: 1")],
        );
        let odd = id.replace('-', "x");
        check(
            json!({"shareID": odd}),
            &[&share(&odd, "error validating uid: invalid UUID format")],
        );
        let form = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
                    hexadecimal characters";
        for text in [
            id.to_uppercase(),
            id.replace('-', ""),
            format!("urn:uuid:{id}"),
            format!("{{{id}}}"),
        ] {
            check(json!({"shareID": text}), &[&share(&text, form)]);
        }
        let address =
            |text: &str, why: &str| format!("status.devices[0].networkData.ips[0]: Invalid value: {text:?}: {why}");
        let ips = |text: &str| json!({"networkData": {"ips": [text]}});
        let no_address = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        check(ips("web"), &[&address("web", no_address)]);
        check(
            ips("2001:DB8::1/64"),
            &[&address(
                "2001:DB8::1/64",
                "must be in canonical form (\"2001:db8::1/64\")",
            )],
        );
        check(
            ips("::ffff:192.168.0.1/120"),
            &[&address(
                "::ffff:192.168.0.1/120",
                "must be in canonical form (\"192.168.0.1/24\")",
            )],
        );
    }
}
