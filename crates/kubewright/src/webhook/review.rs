//! The documents on the wire: `AdmissionReview`, `ConversionReview` and `TokenReview`, read and answered.
//!
//! Invariant: an answer repeats version and uid of the review (W1), and texts are controller-runtime's.

use base64::Engine as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::authentication::TokenRequest;
use super::handlers::AdmissionResponse;
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
pub(super) struct ReviewRequest<T> {
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

/// Reads a review of a kind in one of its two versions. What is asked stands in its `field`.
fn read<T: for<'de> Deserialize<'de>>(
    mut document: Value,
    kind: &str,
    group: &str,
    field: &str,
) -> Result<ReviewRequest<T>, Malformed> {
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
        .get_mut(field)
        .map(Value::take)
        .filter(|request| !request.is_null());
    let request = request.ok_or_else(|| format!("the {kind} has no {field}"))?;
    let request = serde_json::from_value(request)
        .map_err(|error| format!("the {field} of the {kind} cannot be read: {error}"))?;
    Ok(ReviewRequest {
        api_version: header.api_version,
        request,
    })
}

pub(super) fn read_admission(mut document: Value) -> Result<ReviewRequest<AdmissionRequest>, Malformed> {
    // The objects are taken as they are: to be read with the rest, each would be built anew.
    let [object, old_object] = ["/request/object", "/request/oldObject"].map(|path| {
        let object = document.pointer_mut(path).map(Value::take);
        object.filter(|object| !object.is_null())
    });
    let mut asked: ReviewRequest<AdmissionRequest> = read(document, "AdmissionReview", "admission.k8s.io", "request")?;
    (asked.request.object, asked.request.old_object) = (object, old_object);
    if asked.request.uid.is_empty() {
        return Err(
            "the request of the AdmissionReview has no uid, so nobody could tell what an answer belongs to".to_owned(),
        );
    }
    Ok(asked)
}

pub(super) fn read_conversion(document: Value) -> Result<ReviewRequest<ConversionRequest>, Malformed> {
    read(document, "ConversionReview", "apiextensions.k8s.io", "request")
}

pub(super) fn read_token(document: Value) -> Result<ReviewRequest<TokenRequest>, Malformed> {
    read(document, "TokenReview", "authentication.k8s.io", "spec")
}

/// The answer to a write: a patch that may be empty, or a refusal.
pub(super) fn admission_answer(api_version: &str, uid: &str, decision: AdmissionResponse) -> Value {
    let mut response = Map::new();
    response.insert("uid".to_owned(), json!(uid));
    response.insert("allowed".to_owned(), json!(decision.refusal.is_none()));
    let status = match &decision.refusal {
        None => json!({"metadata": {}, "code": 200}),
        Some(status) => json!(status),
    };
    response.insert("status".to_owned(), status);
    if !decision.patch.is_empty() {
        let patch = base64::engine::general_purpose::STANDARD.encode(Value::Array(decision.patch).to_string());
        response.insert("patch".to_owned(), json!(patch));
        response.insert("patchType".to_owned(), json!("JSONPatch"));
    }
    if !decision.warnings.is_empty() {
        response.insert("warnings".to_owned(), json!(decision.warnings));
    }
    if !decision.audit_annotations.is_empty() {
        response.insert("auditAnnotations".to_owned(), json!(decision.audit_annotations));
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
