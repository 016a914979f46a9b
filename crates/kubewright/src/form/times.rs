//! Times that Go's types hold and jiff's `Timestamp` does not, so that an object that has one can be read.
//!
//! The years of kube-apiserver end with 9999, 26 hours later than a `Timestamp` does; it writes Go's zero time as
//! `null`, also where a type wants a time (`lastTransitionTime` of a condition). Anyone who may write a status stores
//! such times. An object that cannot be decoded gets no reconcile, and with a finalizer is never removed.
//!
//! Only the members at which serde failed are read otherwise, and only when it failed. A text that is no time stays as
//! it is.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use serde::de::DeserializeOwned;

/// How many different members are read otherwise in one object: more than any type has times.
const MAX_MEMBERS: usize = 32;

/// Go's zero time.
const ZERO: &str = "\"0001-01-01T00:00:00Z\"";

/// The last whole second of a `Timestamp`.
const LAST: &str = "\"9999-12-30T22:00:00Z\"";

/// Reads a type out of JSON. A time beyond the last one counts as the last one, Go's zero time as what it is.
pub(crate) fn read<K: DeserializeOwned>(text: &str) -> serde_json::Result<K> {
    let error = match serde_json::from_str(text) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let mut read = None;
    with_times(text, &error, &mut |text| {
        read = Some(serde_json::from_str(text)?);
        Ok(())
    });
    read.ok_or(error)
}

/// Tries again with other times, until there is nothing to change where reading fails.
fn with_times(text: &str, error: &serde_json::Error, again: &mut dyn FnMut(&str) -> serde_json::Result<()>) {
    let Some(mut text) = replaced(text, error) else { return };
    for _ in 1..MAX_MEMBERS {
        let Err(error) = again(&text) else { return };
        let Some(next) = replaced(&text, &error) else { return };
        text = next;
    }
    let _ = again(&text);
}

/// The text with other times in all members that have the name of the one that could not be read.
fn replaced(text: &str, error: &serde_json::Error) -> Option<String> {
    let before = text.get(..place(text, error)?)?;
    let value = before
        .strip_suffix("null")
        .map_or_else(|| before.strip_suffix('"')?.rfind('"'), |rest| Some(rest.len()))?;
    other(&before[value..])?;
    let before = before[..value].trim_end().strip_suffix(':')?.trim_end();
    let key = &before[before.strip_suffix('"')?.rfind('"')?..];
    // A member of another name may be a text that is wanted.
    let is_time = ["Time\"", "Timestamp\"", "At\""].iter().any(|end| key.ends_with(end));
    if !is_time && !["\"time\"", "\"timestamp\""].contains(&key) {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(key) {
        let (head, tail) = rest.split_at(at + key.len());
        out.push_str(head);
        rest = tail;
        let Some(member) = tail.trim_start().strip_prefix(':').map(str::trim_start) else {
            continue;
        };
        let length = match member.strip_prefix('"') {
            Some(inner) => inner.find('"').map_or(0, |end| end + 2),
            None if member.starts_with("null") => 4,
            None => 0,
        };
        if let Some(other) = other(&member[..length]) {
            out.push(':');
            out.push_str(other);
            rest = &member[length..];
        }
    }
    out.push_str(rest);
    Some(out)
}

/// Where in the text serde stopped: after the value that it could not read.
fn place(text: &str, error: &serde_json::Error) -> Option<usize> {
    let lines = text.split_inclusive('\n').take(error.line().checked_sub(1)?);
    lines.map(str::len).sum::<usize>().checked_add(error.column())
}

/// The replacement for a value that is a time but not a `Timestamp`.
fn other(value: &str) -> Option<&'static str> {
    if value == "null" {
        return Some(ZERO);
    }
    let text = value.strip_prefix('"')?.strip_suffix('"')?;
    if text.parse::<Timestamp>().is_ok() {
        return None;
    }
    let pieces = Pieces::parse(text).ok()?;
    let time = DateTime::from_parts(pieces.date(), pieces.time()?);
    let is_late = pieces.to_numeric_offset().is_some() && time.year() == 9999;
    is_late.then_some(LAST)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Pod, Service};
    use kube::core::DynamicObject;
    use serde_json::{Value, json};

    use super::*;

    fn check<K: DeserializeOwned + serde::Serialize>(object: &Value, pointer: &str, want: Option<&str>) {
        for text in [object.to_string(), serde_json::to_string_pretty(object).expect("JSON")] {
            let read = read::<K>(&text)
                .ok()
                .map(|read| serde_json::to_value(read).expect("JSON"));
            let time = read
                .as_ref()
                .and_then(|read| read.pointer(pointer))
                .and_then(Value::as_str);
            assert_eq!(time, want, "{text}");
        }
    }

    #[test]
    fn times_that_only_go_has() {
        let condition = |time: Value| {
            let condition =
                json!({"type": "A", "status": "True", "reason": "", "message": "", "lastTransitionTime": time});
            json!({"metadata": {"name": "s", "annotations": {"a": "\"lastTransitionTime\":null"}},
                "status": {"conditions": [condition, condition]}})
        };
        const TIME: &str = "/status/conditions/1/lastTransitionTime";
        let service = |time: Value, want: Option<&str>| check::<Service>(&condition(time), TIME, want);
        service(json!("9999-12-31T23:59:59Z"), Some("9999-12-30T22:00:00Z"));
        service(json!("9999-12-30T23:30:00+01:00"), Some("9999-12-30T22:00:00Z"));
        service(Value::Null, Some("0001-01-01T00:00:00Z"));
        service(json!("9999-12-30T21:59:59Z"), Some("9999-12-30T21:59:59Z"));
        service(json!("9999-12-41T00:00:00Z"), None);
        service(json!("tomorrow"), None);
        service(json!(7), None);
        check::<Service>(
            &condition(Value::Null),
            "/metadata/annotations/a",
            Some("\"lastTransitionTime\":null"),
        );

        let pod = json!({"metadata": {"creationTimestamp": "9999-12-31T00:00:00Z"}, "status": {
            "startTime": "9999-12-31T00:00:00Z", "containerStatuses": [{"name": "c", "image": "", "imageID": "",
            "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "9999-12-31T00:00:00Z"}}}]}});
        check::<Pod>(&pod, "/metadata/creationTimestamp", Some("9999-12-30T22:00:00Z"));
        check::<Pod>(
            &pod,
            "/status/containerStatuses/0/state/running/startedAt",
            Some("9999-12-30T22:00:00Z"),
        );
        let template = json!({"metadata": {"managedFields": [{"manager": "m", "time": "9999-12-31T00:00:00Z"}]}});
        let deployment = json!({"spec": {"selector": {}, "template": template}});
        check::<Deployment>(
            &deployment,
            "/spec/template/metadata/managedFields/0/time",
            Some("9999-12-30T22:00:00Z"),
        );
        // What is text stays text, and what cannot be read for another reason stays an error.
        let other = json!({"metadata": {"name": "a", "deletionTimestamp": "9999-12-31T00:00:00Z"}, "expiryTime": null,
            "endTime": "9999-12-31T00:00:00Z"});
        check::<DynamicObject>(&other, "/endTime", Some("9999-12-31T00:00:00Z"));
        check::<Pod>(&json!({"spec": {"containers": [{"name": 5}]}}), "", None);
    }
}
