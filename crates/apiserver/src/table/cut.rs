//! Metadata only, for watches and lists that ask for `PartialObjectMetadata`, as a garbage collector does of every
//! kind: cut out of the stored text, so that the object is not decoded.
//!
//! Invariant: the text is that of [`partial`](super::partial), which makes it from the object and is asked
//! where it does not stand in the stored text as it is shown: for custom resources, whose text is sorted, and where it
//! has a count that is not shown ([`TEMPLATE_COUNT`]).

use crate::model::Resource;
use crate::model::facts::TEMPLATE_COUNT;

/// Where the metadata begins in a stored text, which is in Go's order and has neither kind nor apiVersion.
const BEFORE: &[u8] = b"{\"metadata\":";

/// The metadata as they are shown; `None` where they must be made from the object.
fn metadata<'a>(resource: &Resource, stored: &'a [u8]) -> Option<&'a [u8]> {
    if resource.custom.is_some() || resource.conversion.is_some() {
        return None;
    }
    let rest = stored.strip_prefix(BEFORE)?;
    let metadata = rest.get(..end_of_object(rest)?)?;
    let counts = || {
        let count = TEMPLATE_COUNT.as_bytes();
        metadata.windows(count.len()).any(|part| part == count)
    };
    (&*resource.group != "apps" || !counts()).then_some(metadata)
}

/// How long the JSON object is that the text begins with.
fn end_of_object(text: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        match text.get(at)? {
            b'"' => at = end_of_string(text, at)?,
            b'{' => depth = depth.saturating_add(1),
            b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at = at.saturating_add(1);
        if depth == 0 {
            return (at > 1).then_some(at);
        }
    }
}

/// Where the closing quote is of the string that begins here.
fn end_of_string(text: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin.saturating_add(1);
    loop {
        at = at.saturating_add(text.get(at..)?.iter().position(|byte| matches!(byte, b'"' | b'\\'))?);
        match text.get(at)? {
            b'"' => return Some(at),
            _ => at = at.saturating_add(2),
        }
    }
}

/// Appends the `PartialObjectMetadata` of a stored text. `false` when it must be made from the object; nothing is
/// appended then.
pub(crate) fn write_partial(out: &mut Vec<u8>, resource: &Resource, stored: &[u8], version: &str) -> bool {
    let Some(metadata) = metadata(resource, stored) else {
        return false;
    };
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(b"\",\"metadata\":");
    out.extend_from_slice(metadata);
    out.push(b'}');
    true
}

#[cfg(test)]
mod tests {
    use kubewright_schema::protobuf::order::Ordered;
    use serde_json::json;

    use super::*;
    use crate::json;
    use crate::model::form::{bare, full};
    use crate::registry::Registry;
    use crate::table;

    #[test]
    fn what_is_cut_out_of_any_kind_is_what_is_made_of_it() {
        let metadata = json!({
            "name": "a", "generateName": "a-", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"b": "{\"", "a": "<\\>"},
            "annotations": {"deprecated.daemonset.template.generation": "1", "z": "}", "b": "\u{2028}\\"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u", "controller": true}],
            "finalizers": ["f"],
            "managedFields": [{
                "manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}}},
            }],
        });
        let registry = Registry::new();
        let mut cut = 0;
        for resource in registry.resources().iter() {
            let object = json!({"metadata": metadata, "spec": {"metadata": {}}, "status": {}, "data": {"a": "b"}});
            let stored = json::text(&Ordered::new(&bare(resource, &object), resource.order()));
            let mut out = Vec::new();
            if !write_partial(&mut out, resource, &stored, "meta.k8s.io/v1") {
                assert!(out.is_empty());
                continue;
            }
            cut += 1;
            let made = json::text(&Ordered::by_kind(&table::partial(&full(resource, &object))));
            assert_eq!(String::from_utf8(out), String::from_utf8(made), "{}", resource.kind);
        }
        assert!(cut > 50, "{cut}");
    }

    #[test]
    fn the_end_of_an_object_is_found_behind_braces_in_strings() {
        let check = |text: &str, expected: Option<&str>| {
            let found = end_of_object(text.as_bytes()).and_then(|end| text.get(..end));
            assert_eq!(found, expected, "{text}");
        };
        check("{}", Some("{}"));
        check(r#"{"a":{"b":[{}]}},"spec":{}}"#, Some(r#"{"a":{"b":[{}]}}"#));
        check(r#"{"a":"}"},"spec":{}}"#, Some(r#"{"a":"}"}"#));
        check(r#"{"a":"\"}"},1"#, Some(r#"{"a":"\"}"}"#));
        check(r#"{"a\\":"\\"},1"#, Some(r#"{"a\\":"\\"}"#));
        for broken in ["", "{", "}", "1", "null,{}", r#"{"a"#, r#"{"a\"#, r#"{"a\""#] {
            check(broken, None);
        }
    }
}
