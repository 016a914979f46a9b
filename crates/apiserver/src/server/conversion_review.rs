//! `ConversionReview`: a webhook converts custom resources from one version to another.
//!
//! A webhook converts, and nothing else: of the metadata only labels and annotations are taken from its answer, and
//! kind, name, namespace and uid must be unchanged.

use std::time::Duration;

use kubewright_schema::error::aggregate;
use kubewright_schema::go::{self, TypeMismatch};
use kubewright_schema::names;
use kubewright_schema::path::FieldPath;
use serde_json::{Map, Value, json};

use crate::env::{self, Env};
use crate::model::ConversionWebhook;
use crate::outbound::Outbound;
use crate::outbound::client::{Document, kind_text};

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "ConversionReview";
/// A definition cannot say how long to wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A conversion of objects of one kind.
pub(crate) struct Conversion<'a> {
    pub(crate) webhook: &'a ConversionWebhook,
    pub(crate) kind: &'a str,
    /// The `apiVersion` that is wanted.
    pub(crate) to: &'a str,
}

/// Asks the webhook for all objects at once. The error is the text that users see.
pub(crate) async fn ask(
    conversion: &Conversion<'_>,
    env: &dyn Env,
    outbound: &dyn Outbound,
    objects: Vec<Value>,
) -> Result<Vec<Value>, String> {
    let from = objects.first().map(kind_text).unwrap_or_default();
    let failed = |why: String| format!("conversion webhook for {from} failed: {why}");
    let versions = &conversion.webhook.review_versions;
    let version = versions.iter().find_map(|version| match version.as_str() {
        "v1" => Some("v1"),
        "v1beta1" => Some("v1beta1"),
        _ => None,
    });
    let version = version.ok_or_else(|| "no supported conversion review versions".to_owned())?;
    let kind = Document {
        group: GROUP,
        version,
        kind: KIND,
    };
    let uid = env::uuid(env);
    let review = json!({
        "kind": KIND,
        "apiVersion": kind.api_version(),
        "request": {"uid": uid, "desiredAPIVersion": conversion.to, "objects": objects},
        // Go has no way to leave this out.
        "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
    });
    let client = conversion.webhook.client.as_ref().map_err(Clone::clone)?;
    let answer = client
        .post(outbound, kind, review.to_string(), TIMEOUT)
        .await
        .map_err(failed)?;
    let converted = verify(kind, &uid, &answer).map_err(failed)?;
    if converted.len() != objects.len() {
        return Err(format!(
            "conversion webhook for {from} returned {} objects, expected {}",
            converted.len(),
            objects.len()
        ));
    }
    let pairs = objects.iter().zip(converted);
    pairs
        .map(|(original, converted)| check(conversion, original, converted, &from))
        .collect()
}

/// The objects of an answer to this review.
fn verify(kind: Document, uid: &str, answer: &Value) -> Result<Vec<Value>, String> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let is_v1 = kind.version == "v1";
    if is_v1 && kind_text(answer) != kind.text() {
        return Err(format!(
            "expected webhook response of {}, got {}",
            kind.text(),
            kind_text(answer)
        ));
    }
    let Some(response) = answer.get("response").filter(|response| !response.is_null()) else {
        return Err("no response provided".to_owned());
    };
    check_types(response)?;
    let got = text(response, "uid");
    if is_v1 && got != uid {
        return Err(format!("expected response.uid={uid:?}, got {got:?}"));
    }
    let result = response.get("result").unwrap_or(&Value::Null);
    let status = text(result, "status");
    if status != "Success" {
        return Err(match text(result, "message") {
            message if message.is_empty() => format!("response.result.status was '{status}', not 'Success'"),
            message => message,
        });
    }
    let objects = response.get("convertedObjects").and_then(Value::as_array);
    Ok(objects.cloned().unwrap_or_default())
}

/// Types in a `response`, in Go's words.
fn check_types(response: &Value) -> Result<(), String> {
    let fits = |field: &str, wanted: &str, is: fn(&Value) -> bool| match response.get(field) {
        None | Some(Value::Null) => Ok(()),
        Some(value) if is(value) => Ok(()),
        Some(other) => {
            let path = format!("response.{field}");
            Err(TypeMismatch::new(other, wanted)
                .in_field("ConversionResponse", &path)
                .to_string())
        }
    };
    fits("uid", "types.UID", Value::is_string)?;
    fits("convertedObjects", "[]runtime.RawExtension", Value::is_array)?;
    fits("result", "v1.Status", Value::is_object)
}

/// Takes over the changes that a webhook may make, and refuses all others.
fn check(conversion: &Conversion<'_>, original: &Value, mut converted: Value, from: &str) -> Result<Value, String> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let invalid = |why: String| format!("conversion webhook for {from} returned invalid object{why}");
    match &converted {
        Value::Null => return Err("unexpected end of JSON input".to_owned()),
        Value::Object(map) if map.get("kind").and_then(Value::as_str).is_none_or(str::is_empty) => {
            return Err(format!("Object 'Kind' is missing in '{converted}'"));
        }
        Value::Object(_) => {}
        other => return Err(TypeMismatch::new(other, "map[string]interface {}").to_string()),
    }
    let (expected, got) = (conversion.to, text(&converted, "apiVersion"));
    if got != expected {
        return Err(invalid(format!(
            " at index 0: invalid groupVersion (expected {expected}, received {got})"
        )));
    }
    let (expected, got) = (conversion.kind, text(&converted, "kind"));
    if got != expected {
        return Err(invalid(format!(
            " at index 0: invalid kind (expected {expected}, received {got})"
        )));
    }
    let metadata = |object: &Value| object.get("metadata").cloned().unwrap_or_default();
    let (before, after) = (metadata(original), metadata(&converted));
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (e, a) = (text(&before, field), text(&after, field));
        if e != a {
            return Err(invalid(format!(": must have the same {name}: {e} != {a}")));
        }
    }
    let restored = restore(before, &after);
    let restored = restored.map_err(|why| format!("conversion webhook for {from} returned invalid metadata: {why}"))?;
    if let Some(map) = converted.as_object_mut() {
        map.insert("metadata".to_owned(), restored);
    }
    Ok(converted)
}

/// The metadata of before with the labels and annotations of after.
fn restore(before: Value, after: &Value) -> Result<Value, String> {
    let after = match after {
        Value::Null => return Err("missing metadata in converted object".to_owned()),
        Value::Object(after) => after,
        other => {
            return Err(format!(
                "invalid metadata of type {} in converted object",
                go::type_name(other)
            ));
        }
    };
    let mut metadata = match before {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    for field in ["labels", "annotations"] {
        let given = match after.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
                continue;
            }
            Some(given) => given,
        };
        let Some(map) = given.as_object() else {
            let found = go::type_name(given);
            return Err(format!("invalid metadata.{field} of type {found} in converted object"));
        };
        if let Some((key, other)) = map.iter().find(|(_, value)| !value.is_string()) {
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {} in converted object",
                go::type_name(other)
            ));
        }
        if metadata.get(field) != Some(given) {
            let at = FieldPath::root().key("metadata");
            let errors = if field == "labels" {
                names::labels(given, &at.key("labels"))
            } else {
                names::annotations(given, &at.key("annotation"))
            };
            if !errors.is_empty() {
                return Err(aggregate(&errors));
            }
        }
        metadata.insert(field.to_owned(), given.clone());
    }
    Ok(Value::Object(metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_and_annotations_may_change() {
        let webhook = ConversionWebhook {
            client: Err("nobody".to_owned()),
            review_versions: Vec::new(),
        };
        let conversion = Conversion {
            webhook: &webhook,
            kind: "Foo",
            to: "ex.io/v2",
        };
        let original = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a", "uid": "u", "labels": {"x": "1"}}});
        let check = |converted: Value, expected: &str| {
            let said = check(&conversion, &original, converted, "ex.io/v1, Kind=Foo");
            let said = said.map_or_else(|why| why, |object| object.to_string());
            assert_eq!(said, expected);
        };
        let with = |metadata: Value| json!({"apiVersion": "ex.io/v2", "kind": "Foo", "metadata": metadata});
        let ex = "conversion webhook for ex.io/v1, Kind=Foo returned invalid";
        check(
            original.clone(),
            &format!("{ex} object at index 0: invalid groupVersion (expected ex.io/v2, received ex.io/v1)"),
        );
        check(
            json!({"apiVersion": "ex.io/v2", "kind": "Bar"}),
            &format!("{ex} object at index 0: invalid kind (expected Foo, received Bar)"),
        );
        check(Value::Null, "unexpected end of JSON input");
        check(json!({}), "Object 'Kind' is missing in '{}'");
        check(
            json!("x"),
            "json: cannot unmarshal string into Go value of type map[string]interface {}",
        );
        check(
            with(json!({"name": "b"})),
            &format!("{ex} object: must have the same name: a != b"),
        );
        check(
            with(json!({"name": "a", "uid": "x"})),
            &format!("{ex} object: must have the same UID: u != x"),
        );
        check(
            with(json!({"name": "a", "uid": "u", "labels": {"x": 1}})),
            &format!("{ex} metadata: metadata.labels[x] must be a string, but is int64 in converted object"),
        );
        check(
            with(json!({"name": "a", "uid": "u", "finalizers": ["no"], "labels": {"y": "2"}})),
            &with(json!({"name": "a", "uid": "u", "labels": {"y": "2"}})).to_string(),
        );
    }

    #[test]
    fn answers_must_be_to_the_question() {
        let kind = Document {
            group: GROUP,
            version: "v1",
            kind: KIND,
        };
        let check = |answer: Value, expected: &str| {
            let said = verify(kind, "u", &answer);
            assert_eq!(
                said.map_or_else(|why| why, |objects| json!(objects).to_string()),
                expected
            );
        };
        let with =
            |response: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": KIND, "response": response});
        check(
            json!({}),
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
        );
        check(with(Value::Null), "no response provided");
        check(with(json!({"uid": "x"})), "expected response.uid=\"u\", got \"x\"");
        check(
            with(json!({"uid": "u", "result": "x"})),
            "json: cannot unmarshal string into Go struct field ConversionResponse.response.result of type v1.Status",
        );
        check(
            with(json!({"uid": "u"})),
            "response.result.status was '', not 'Success'",
        );
        check(
            with(json!({"uid": "u", "result": {"status": "Failed", "message": "no way"}})),
            "no way",
        );
        check(
            with(json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{}]})),
            "[{}]",
        );
    }
}
