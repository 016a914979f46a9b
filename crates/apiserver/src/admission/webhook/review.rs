//! `AdmissionReview`: the request to a webhook, and the form that its answer must have. A webhook in this process is
//! asked the same, but nothing is written as text for it.

use kubewright_schema::go::TypeMismatch;
use kubewright_schema::structural::TypeError;
use kubewright_schema::{base64, budget, catalog, measure, structural};
use serde::Serialize;
use serde_json::{Value, json};

use super::Failure;
use super::config::Webhook;
use crate::admission::matching::Matched;
use crate::admission::{Attributes, Session};
use crate::env;
use crate::model::status::{Cause, Details, Status};
use crate::outbound::Inside;
use crate::outbound::client::{Client, Document, kind_text};

const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";

/// The cost of a call, in steps: a request may make about a thousand.
const CALL: usize = 10_000;
/// So many letters of a review are written in a step.
const LETTERS: usize = 4;

/// An object and the one it replaces, in the version that a webhook is asked in. Null where there is none.
#[derive(Serialize)]
pub(super) struct Objects<'a> {
    pub(super) object: &'a Value,
    #[serde(rename = "oldObject")]
    pub(super) old: &'a Value,
}

/// The patch of an answer.
#[derive(Debug, Default)]
enum Patch {
    #[default]
    None,
    /// As it was sent, decoded from base64 and nothing more.
    Text(Vec<u8>),
    /// A list of operations.
    Operations(Value),
}

impl Patch {
    fn is_none(&self) -> bool {
        matches!(self, Patch::None)
    }
}

/// The answer of a webhook.
#[derive(Debug, Default)]
struct Response {
    allowed: bool,
    patch: Patch,
    patch_type: Option<String>,
    status: Value,
    warnings: Vec<String>,
    annotations: Vec<(String, String)>,
}

/// Asks one webhook. The answer is its JSON patch, which a validating webhook never has.
pub(super) async fn ask(
    hook: &Webhook,
    session: &Session<'_>,
    attributes: &Attributes,
    seen: &Matched,
    objects: Objects<'_>,
    mutating: bool,
) -> Result<Option<Value>, Failure> {
    if attributes.dry_run && !["None", "NoneOnDryRun"].contains(&hook.side_effects.as_str()) {
        let message = format!("admission webhook {:?} does not support dry run", hook.name);
        return Err(Failure::Refused(Status::bad_request(message)));
    }
    let version = hook.review_versions.iter().find_map(|version| match version.as_str() {
        "v1" => Some("v1"),
        "v1beta1" => Some("v1beta1"),
        _ => None,
    });
    let version = version.ok_or_else(|| {
        let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        Failure::Calling(format!("could not create admission objects: {why}"))
    })?;
    let asking = WebhookCall {
        hook,
        session,
        kind: Document {
            group: GROUP,
            version,
            kind: KIND,
        },
        uid: env::uuid(session.env()),
        mutating,
    };
    let client = hook.client.as_ref();
    let inside = client.ok().and_then(|client| client.inside(session.outbound()));
    let response = match inside.filter(|_| version == "v1") {
        Some(inside) => asking.inside(&*inside, attributes, seen, &objects).await?,
        None => asking.post(attributes.review(seen), &objects).await?,
    };
    asking.settle(response)
}

/// A webhook that is being asked.
struct WebhookCall<'a> {
    hook: &'a Webhook,
    session: &'a Session<'a>,
    kind: Document,
    uid: String,
    mutating: bool,
}

impl WebhookCall<'_> {
    fn client(&self) -> Result<&Client, Failure> {
        let client = self.hook.client.as_ref();
        client.map_err(|why| Failure::Calling(format!("could not get REST client: {why}")))
    }

    /// Sends a review as text.
    async fn post(&self, what: Value, objects: &Objects<'_>) -> Result<Response, Failure> {
        let review = text(self.kind, what, objects, &self.uid)
            .map_err(|why| Failure::Calling(format!("could not create admission objects: {why}")))?;
        let answer = self
            .client()?
            .post(self.session.outbound(), self.kind, review, self.hook.timeout)
            .await
            .map_err(|why| Failure::Calling(format!("failed to call webhook: {why}")))?;
        verify(self.kind, &self.uid, self.mutating, &answer)
    }

    /// Asks in this process, where neither question nor answer is written.
    async fn inside(
        &self,
        inside: &dyn Inside,
        attributes: &Attributes,
        seen: &Matched,
        objects: &Objects<'_>,
    ) -> Result<Response, Failure> {
        budget::spend(CALL);
        let objects = [objects.object, objects.old];
        for object in objects {
            budget::produce(measure::held(object));
        }
        let question = attributes.question(seen, self.uid.clone(), objects);
        let verdict = self
            .client()?
            .ask(inside, question, self.hook.timeout)
            .await
            .map_err(|why| Failure::Calling(format!("failed to call webhook: {why}")))?;
        let patch = match verdict.patch {
            none if none.is_empty() => Patch::None,
            operations => Patch::Operations(Value::Array(operations)),
        };
        let response = Response {
            allowed: verdict.allowed,
            patch_type: (!patch.is_none()).then(|| "JSONPatch".to_owned()),
            patch,
            status: verdict.status,
            warnings: verdict.warnings,
            annotations: verdict.audit_annotations,
        };
        check_patch(&response, self.mutating).map_err(invalid)?;
        Ok(response)
    }

    /// What an answer means, and what it leaves behind.
    fn settle(&self, response: Response) -> Result<Option<Value>, Failure> {
        let name = &self.hook.name;
        for (key, value) in response.annotations {
            self.session.annotate(&format!("{name}/{key}"), value);
        }
        for warning in response.warnings {
            self.session.warn(warning);
        }
        if !response.allowed {
            return Err(Failure::Refused(denial(name, &response.status)));
        }
        match response.patch {
            Patch::None => Ok(None),
            Patch::Operations(operations) => Ok(Some(operations)),
            Patch::Text(text) => patch(name, &text, response.patch_type.as_deref()),
        }
    }
}

/// What is done, with the uid of the question and without objects.
fn identified(mut what: Value, uid: &str) -> Value {
    if let Some(fields) = what.as_object_mut() {
        fields.insert("uid".to_owned(), json!(uid));
        fields.retain(|field, _| !["object", "oldObject"].contains(&field.as_str()));
    }
    what
}

fn invalid(why: &str) -> Failure {
    Failure::Calling(format!("received invalid webhook response: {why}"))
}

/// A review as JSON: what is done, and to which objects. Those are not copied first: hundreds of webhooks may be asked
/// about one object.
fn text(kind: Document, what: Value, objects: &Objects<'_>, uid: &str) -> Result<String, serde_json::Error> {
    let what = identified(what, uid);
    let text = serde_json::to_string(&Review {
        api_version: kind.api_version(),
        kind: kind.kind,
        request: Request { what, objects },
    })?;
    budget::spend(CALL + text.len() / LETTERS);
    Ok(text)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: String,
    kind: &'a str,
    request: Request<'a>,
}

#[derive(Serialize)]
struct Request<'a> {
    #[serde(flatten)]
    what: Value,
    #[serde(flatten)]
    objects: &'a Objects<'a>,
}

/// Makes sure that an answer is one to this review (`VerifyAdmissionResponse`).
fn verify(kind: Document, uid: &str, mutating: bool, answer: &Value) -> Result<Response, Failure> {
    let malformed = |why: String| Failure::Calling(format!("failed to call webhook: {why}"));
    let Some(given) = answer.get("response").filter(|given| !given.is_null()) else {
        return Err(invalid("webhook response was absent"));
    };
    let (got, mut response) = read(given).map_err(malformed)?;
    if kind.version == "v1" {
        if got != uid {
            return Err(invalid(&format!("expected response.uid={uid:?}, got {got:?}")));
        }
        let (wanted, named) = (kind.text(), kind_text(answer));
        if named != wanted {
            return Err(invalid(&format!("expected webhook response of {wanted}, got {named}")));
        }
        check_patch(&response, mutating).map_err(invalid)?;
        if response.patch_type.as_deref() == Some("") {
            return Err(invalid("webhook returned invalid response.patchType of \"\""));
        }
    } else {
        // v1beta1 never looked at the type of a patch.
        response.patch_type = (!response.patch.is_none()).then(|| "JSONPatch".to_owned());
        if !mutating {
            response.patch = Patch::None;
        }
    }
    Ok(response)
}

fn check_patch(response: &Response, mutating: bool) -> Result<(), &'static str> {
    match (mutating, response.patch.is_none(), response.patch_type.is_some()) {
        (true, false, false) => Err("webhook returned response.patch but not response.patchType"),
        (true, true, true) => Err("webhook returned response.patchType but not response.patch"),
        (false, false, _) => Err("validating webhook may not return response.patch"),
        (false, _, true) => Err("validating webhook may not return response.patchType"),
        _ => Ok(()),
    }
}

/// The uid and the rest of a `response`, with Go's error about a value of another type.
fn read(given: &Value) -> Result<(String, Response), String> {
    let wrong = |value: &Value, field: &str, wanted: &str| {
        let path = format!("response.{field}");
        TypeMismatch::new(value, wanted)
            .in_field("AdmissionResponse", &path)
            .to_string()
    };
    let field = |name: &str| given.get(name).filter(|value| !value.is_null());
    let text = |name: &str| match field(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong(other, name, "string")),
    };
    if !given.is_object() {
        return Err(wrong(given, "", "v1.AdmissionResponse"));
    }
    let allowed = match field("allowed") {
        None => false,
        Some(Value::Bool(allowed)) => *allowed,
        Some(other) => return Err(wrong(other, "allowed", "bool")),
    };
    let patch = match text("patch")? {
        None => Patch::None,
        Some(text) => match base64::decode(&text) {
            Err(offset) => return Err(format!("illegal base64 data at input byte {offset}")),
            Ok(empty) if empty.is_empty() => Patch::None,
            Ok(bytes) => Patch::Text(bytes),
        },
    };
    let warnings = match field("warnings") {
        None => Vec::new(),
        Some(Value::Array(list)) => list
            .iter()
            .map(|item| {
                item.as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| wrong(item, "warnings", "string"))
            })
            .collect::<Result<_, _>>()?,
        Some(other) => return Err(wrong(other, "warnings", "[]string")),
    };
    let annotations = match field("auditAnnotations") {
        None => Vec::new(),
        Some(Value::Object(map)) => map
            .iter()
            .map(|(key, value)| match value.as_str() {
                Some(text) => Ok((key.clone(), text.to_owned())),
                None => Err(wrong(value, "auditAnnotations", "string")),
            })
            .collect::<Result<_, _>>()?,
        Some(other) => return Err(wrong(other, "auditAnnotations", "map[string]string")),
    };
    if let Some(status) = field("status") {
        if !status.is_object() {
            return Err(wrong(status, "status", "v1.Status"));
        }
        check_status(status)?;
    }
    let response = Response {
        allowed,
        patch,
        patch_type: text("patchType")?,
        status: field("status").cloned().unwrap_or_default(),
        warnings,
        annotations,
    };
    Ok((text("uid")?.unwrap_or_default(), response))
}

/// Types in the `status` of a `response`; Go's words about a field.
fn check_status(status: &Value) -> Result<(), String> {
    let Some(schema) = catalog::definition("io.k8s.apimachinery.pkg.apis.meta.v1.Status") else {
        return Ok(());
    };
    structural::type_check(status, &schema, "Status").map_err(|error| match error {
        // The field is named with the way to it.
        TypeError::Mismatch(TypeMismatch {
            value,
            field: Some((of, path)),
            type_,
        }) => {
            let field = Some((of, format!("response.status.{path}")));
            TypeMismatch { value, field, type_ }.to_string()
        }
        other => other.to_string(),
    })
}

/// The operations of a patch that was sent as text, if it has any.
fn patch(name: &str, patch: &[u8], kind: Option<&str>) -> Result<Option<Value>, Failure> {
    let undecodable = |why: String| Failure::Calling(format!("received undecodable patch in webhook response: {why}"));
    let decoded = kubewright_schema::decode::json(patch).map_err(|error| undecodable(error.to_string()))?;
    match &decoded.value {
        Value::Null => return Ok(None),
        Value::Array(operations) if operations.is_empty() => return Ok(None),
        Value::Array(operations) => {
            if let Some(odd) = operations.iter().find(|operation| !operation.is_object()) {
                return Err(undecodable(TypeMismatch::new(odd, "jsonpatch.Operation").to_string()));
            }
        }
        _ => {
            let why = "json: cannot unmarshal object into Go value of type jsonpatch.Patch";
            return Err(undecodable(why.to_owned()));
        }
    }
    match kind {
        Some("JSONPatch") => Ok(Some(decoded.value)),
        other => {
            tracing::debug!(webhook = name, "a patch of an unknown type");
            Err(Failure::Calling(format!(
                "unsupported patch type {:?}",
                other.unwrap_or("")
            )))
        }
    }
}

/// The Status of a refusal (`ToStatusErr`): the webhook's status, made an error in any case.
fn denial(name: &str, given: &Value) -> Status {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let by = format!("admission webhook {name:?} denied the request");
    let (said, reason) = (text(given, "message"), text(given, "reason"));
    let message = match (said.as_str(), reason.as_str()) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (said, _) => format!("{by}: {said}"),
    };
    let code = given.get("code").and_then(Value::as_u64).unwrap_or(0).max(400);
    let mut status = Status::failure(u16::try_from(code).unwrap_or(400), reason, message);
    let metadata = given.get("metadata").and_then(Value::as_object);
    for (key, value) in metadata.into_iter().flatten() {
        let is_known = ["selfLink", "resourceVersion", "continue", "remainingItemCount"].contains(&key.as_str());
        if is_known && !value.is_null() && value != "" {
            status.metadata.insert(key.clone(), value.clone());
        }
    }
    if let Some(details) = given.get("details").filter(|details| details.is_object()) {
        let causes = details.get("causes").and_then(Value::as_array);
        status.details = Some(Box::new(Details {
            name: text(details, "name"),
            group: text(details, "group"),
            kind: text(details, "kind"),
            uid: text(details, "uid"),
            causes: causes
                .into_iter()
                .flatten()
                .map(|cause| Cause {
                    reason: text(cause, "reason"),
                    message: text(cause, "message"),
                    field: text(cause, "field"),
                })
                .collect(),
            retry_after_seconds: details
                .get("retryAfterSeconds")
                .and_then(Value::as_u64)
                .and_then(|seconds| u32::try_from(seconds).ok())
                .unwrap_or(0),
        }));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_has_its_objects() {
        let kind = Document {
            group: GROUP,
            version: "v1",
            kind: KIND,
        };
        let (object, old) = (json!({"a": ["\"}"]}), Value::Null);
        let objects = Objects {
            object: &object,
            old: &old,
        };
        let request = json!({"operation": "CREATE", "uid": "", "object": null, "userInfo": {"username": "u"}});
        let text = text(kind, request, &objects, "1").expect("JSON");
        let review: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            review,
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"operation": "CREATE",
                "uid": "1", "object": {"a": ["\"}"]}, "oldObject": null, "userInfo": {"username": "u"}}})
        );
    }
}
