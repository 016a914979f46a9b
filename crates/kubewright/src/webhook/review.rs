//! The documents on the wire: `AdmissionReview` and `ConversionReview`, read and answered.
//!
//! Invariant: an answer repeats version and uid of the review (W1), and texts are controller-runtime's.

use base64::Engine as _;
use kube::core::Status;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::json_patch;
use super::request::AdmissionRequest;

/// Why a document could not be read; answered as 400.
pub(super) type Malformed = String;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
}

/// The request, with the version in which the answer goes back.
pub(super) struct Asked<T> {
    pub(super) api_version: String,
    pub(super) request: T,
}

/// A request for conversions.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionRequest {
    #[serde(default)]
    pub(super) uid: String,
    #[serde(rename = "desiredAPIVersion")]
    pub(super) desired_api_version: String,
    #[serde(default)]
    pub(super) objects: Vec<Value>,
}

/// Reads a review of a kind in one of its two versions.
fn read<T: for<'de> Deserialize<'de>>(mut document: Value, kind: &str, group: &str) -> Result<Asked<T>, Malformed> {
    if !document.is_object() {
        return Err(format!("the body is no object; this path takes {kind} of {group}"));
    }
    let header = Header::deserialize(&document).map_err(|error| format!("the body is not {kind}: {error}"))?;
    let versions = [format!("{group}/v1"), format!("{group}/v1beta1")];
    if header.kind != kind || !versions.contains(&header.api_version) {
        return Err(format!(
            "the body is a {:?} of {:?}, but this path takes {kind} of {} or {}",
            header.kind, header.api_version, versions[0], versions[1]
        ));
    }
    let request = document
        .get_mut("request")
        .map(Value::take)
        .filter(|request| !request.is_null());
    let request = request.ok_or_else(|| format!("the {kind} has no request"))?;
    let request = serde_json::from_value(request)
        .map_err(|error| format!("the request of the {kind} cannot be read: {error}"))?;
    Ok(Asked {
        api_version: header.api_version,
        request,
    })
}

pub(super) fn read_admission(mut document: Value) -> Result<Asked<AdmissionRequest>, Malformed> {
    // The objects are taken as they are: to be read with the rest, each would be built anew.
    let [object, old_object] = ["/request/object", "/request/oldObject"].map(|path| {
        let object = document.pointer_mut(path).map(Value::take);
        object.filter(|object| !object.is_null())
    });
    let mut asked: Asked<AdmissionRequest> = read(document, "AdmissionReview", "admission.k8s.io")?;
    (asked.request.object, asked.request.old_object) = (object, old_object);
    if asked.request.uid.is_empty() {
        return Err(
            "the request of the AdmissionReview has no uid, so nobody could tell what an answer belongs to".to_owned(),
        );
    }
    Ok(asked)
}

pub(super) fn read_conversion(document: Value) -> Result<Asked<ConversionRequest>, Malformed> {
    read(document, "ConversionReview", "apiextensions.k8s.io")
}

/// The answer to a write: a patch that may be empty, or a refusal.
pub(super) fn admission_answer(
    api_version: &str,
    uid: &str,
    verdict: Result<Vec<json_patch::Operation>, Status>,
    warnings: Vec<String>,
) -> Value {
    let mut response = Map::new();
    response.insert("uid".to_owned(), json!(uid));
    response.insert("allowed".to_owned(), json!(verdict.is_ok()));
    match verdict {
        Ok(patch) => {
            response.insert("status".to_owned(), json!({"metadata": {}, "code": 200}));
            if !patch.is_empty() {
                let patch = base64::engine::general_purpose::STANDARD.encode(json!(patch).to_string());
                response.insert("patch".to_owned(), json!(patch));
                response.insert("patchType".to_owned(), json!("JSONPatch"));
            }
        }
        Err(status) => {
            response.insert("status".to_owned(), json!(status));
        }
    }
    if !warnings.is_empty() {
        response.insert("warnings".to_owned(), json!(warnings));
    }
    json!({"apiVersion": api_version, "kind": "AdmissionReview", "response": response})
}

/// The answer to a request for conversions.
pub(super) fn conversion_answer(api_version: &str, uid: &str, converted: Result<Vec<Value>, String>) -> Value {
    let response = match converted {
        Ok(objects) => json!({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}}),
        Err(message) => json!({
            "uid": uid,
            "convertedObjects": [],
            "result": {"status": "Failure", "message": message},
        }),
    };
    json!({"apiVersion": api_version, "kind": "ConversionReview", "response": response})
}
