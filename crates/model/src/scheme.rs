//! Group, version and kind in the words of Go's scheme: how an `apiVersion` is read, and the error for an unwanted
//! kind.

use serde_json::Value;

use kubewright_schema::go;

/// Group and version of an `apiVersion`.
pub fn split_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The `apiVersion` of a version of a group; that of the core group is its version alone.
pub fn join_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        [group, "/", version].concat()
    }
}

/// The error for a kind that is not registered.
pub fn unregistered(kind: &str, api_version: &str) -> String {
    format!("no kind {kind:?} is registered for version {api_version:?} in scheme \"kubewright\"")
}

/// A kind is known, and another than `expected`, which lives in the package `internal`.
pub fn unknown_conversion(version: &str, kind: &str, internal: &str, expected: &str) -> String {
    format!("converting ({version}.{kind}) to ({internal}.{expected}): unknown conversion")
}

/// Go's error for another JSON type where a kind is read.
pub fn cannot_be(what: &str) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// Go's error for JSON that is read for its kind and is not an object.
pub fn not_an_object(value: &Value) -> String {
    cannot_be(go::json_type(value))
}
