//! PATCH: JSON patch, merge patch, strategic merge patch. Each runs inside the compare-and-swap loop, on the present
//! object.
//!
//! Not here: server-side apply, which is a patch by its verb only (see `apply`).

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderMap;
use kubewright_schema::decode::{self as schema_decode};
use kubewright_schema::error::FieldError;
use kubewright_schema::go::{self, TypeMismatch};
use kubewright_schema::patch;
use kubewright_schema::patch::json::{JsonPatchError, unescape};
use kubewright_schema::patch::shown::Shown;
use kubewright_schema::patch::strategic::StrategicError;
use kubewright_schema::structural;
use serde_json::{Map, Value};

use super::options::{FieldValidation, WriteOptions};
use super::respond::Reply;
use super::route::Verb;
use super::write::Part;
use super::{Call, decode, managed, negotiate};
use crate::json;
use crate::model::object;
use crate::model::status::{Cause, Details, Status};
use crate::model::unfit::Unfit;
use crate::model::{Minor, Resource};
use crate::registry::Snapshot;

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
}

/// A patch, read but not yet applied.
pub(crate) struct Patch {
    kind: PatchType,
    document: Value,
    findings: Vec<String>,
}

const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const BUILT_IN_PATCHES: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
                                application/apply-patch+yaml";
const CUSTOM_PATCHES: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

const NO_JSON: &str = "invalid JSON patch";

/// Whether a path takes the content type, which may be a list; only the patch itself looks at the whole text.
fn is_routed(headers: &HeaderMap) -> bool {
    let list = negotiate::content_type(headers);
    list.split(',').any(|one| PATCHES.contains(&one.trim()))
}

fn no_route() -> Status {
    Status::failure(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_empty_details()
}

/// The refusal of a request that accepts no form of its answer: that the path of a built-in kind does not take the content
/// type of a patch comes first.
pub(super) fn refused(verb: Verb, resource: &Resource, headers: &HeaderMap, refusal: Status) -> Status {
    match verb == Verb::Patch && resource.custom.is_none() && !is_routed(headers) {
        true => no_route(),
        false => refusal,
    }
}

/// The largest number of operations in a JSON patch.
const MAX_OPERATIONS: usize = 10_000;

impl Call<'_> {
    pub(crate) async fn patch(&mut self, part: Part) -> Result<Reply, Status> {
        if super::apply::is_apply(self.headers) {
            return self.apply_part(part).await;
        }
        let kind = self.patch_type()?;
        let options = WriteOptions::parse(self.query, "PatchOptions")?;
        let resource = self.resource.clone();
        let patch = self.read_patch(kind, options.field_validation).map_err(|status| {
            // A patch is read when there is something to apply it to; whether it is JSON is known before.
            match self.server.storage.get(&resource.store, &self.key()) {
                None if status.message == NO_JSON => status,
                Some(_) => status,
                None => Status::not_found(&resource, self.name()),
            }
        })?;
        let kinds = self.kinds.clone();
        let (namespace, name) = (self.namespace().to_owned(), self.name().to_owned());
        let mut writer = self.tracked_writer(&options);
        // It may be large, and is done with once it is applied: it is read again only if another write came first.
        let mut sent = Some(patch);
        let written = writer
            .update(&namespace, &name, part, |old, warnings| {
                let how = options.field_validation;
                let again = || self.read_patch(kind, how);
                let patch = sent.take().map_or_else(again, Ok)?;
                let mut new = patch.finished(old, &resource, &kinds, part == Part::Main, how, &again, warnings)?;
                self.fit_namespace(&mut new)?;
                self.fit_name(&new)?;
                // The version is looked at after the plugins that may change it; custom resources may be patched to
                // have none.
                if resource.custom.is_some() && object::text(&new, "resourceVersion").is_empty() {
                    object::keep_version(&mut new, old);
                }
                Ok(new)
            })
            .await;
        self.warnings.append(&mut writer.warnings);
        Ok(self.show(200, written?))
    }

    /// Whether patches of the kind may be of the content type, which is asked before anything else.
    pub(crate) fn check_patch_type(&self) -> Result<(), Status> {
        match super::apply::is_apply(self.headers) {
            true => Ok(()),
            false => self.patch_type().map(drop),
        }
    }

    pub(crate) fn patch_type(&self) -> Result<PatchType, Status> {
        Ok(match negotiate::content_type(self.headers).as_str() {
            "application/json-patch+json" => PatchType::Json,
            "application/merge-patch+json" => PatchType::Merge,
            "application/strategic-merge-patch+json" if self.resource.custom.is_none() => PatchType::Strategic,
            "application/strategic-merge-patch+json" => {
                return Err(Status::unsupported_media_type(CUSTOM_PATCHES));
            }
            _ if is_routed(self.headers) => {
                return Err(Status::unsupported_media_type(match self.resource.custom {
                    None => BUILT_IN_PATCHES,
                    Some(_) => CUSTOM_PATCHES,
                }));
            }
            // `crdHandler` checks the patch type only with the patch; for built-in kinds the path does.
            _ if self.resource.custom.is_some() => return Err(Status::unsupported_media_type(CUSTOM_PATCHES)),
            _ => return Err(no_route()),
        })
    }

    /// Reads the body. How fields are validated decides which of Go's decoders speaks.
    pub(crate) fn read_patch(&self, kind: PatchType, how: FieldValidation) -> Result<Patch, Status> {
        let careless = how == FieldValidation::Ignore;
        let decoded = schema_decode::json(self.body).map_err(|error| match kind {
            // It is looked at before it is decoded, because it is entered in the audit log (`validateAndTranscodePatch`).
            _ if self.server.config.minor >= Minor::V37 => Status::bad_request(NO_JSON),
            PatchType::Merge if careless => Status::bad_request(BAD_MERGE_PATCH),
            _ => undecoded(kind, careless, &error.to_string()),
        })?;
        let document = match (kind, decoded.value) {
            // Go reads `null` as a patch that changes nothing; only its library for merge patches does not.
            (PatchType::Json, Value::Null) => Value::Array(Vec::new()),
            (PatchType::Strategic, Value::Null) => Value::Object(Map::new()),
            (PatchType::Merge, Value::Null) => return Err(Status::bad_request(BAD_MERGE_PATCH)),
            (PatchType::Json, document @ Value::Array(_))
            | (PatchType::Merge | PatchType::Strategic, document @ Value::Object(_)) => document,
            (kind, other) => {
                let wanted = match kind {
                    PatchType::Json if careless => "jsonpatch.Patch",
                    PatchType::Json => "[]handlers.jsonPatchOp",
                    PatchType::Merge | PatchType::Strategic => "map[string]interface {}",
                };
                let why = TypeMismatch::new(&other, wanted).to_string();
                return Err(undecoded(kind, careless, &why));
            }
        };
        self.enter_patch(&document);
        if let Some(operations) = document.as_array().filter(|list| list.len() > MAX_OPERATIONS) {
            let message = format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            );
            return Err(Status::failure(413, "RequestEntityTooLarge", message));
        }
        let findings = match kind {
            PatchType::Json => operation_findings(&document, decoded.duplicates),
            PatchType::Merge | PatchType::Strategic => decoded.duplicates,
        };
        Ok(Patch {
            kind,
            document,
            findings,
        })
    }
}

/// The error of the merge patch library for any text that it cannot read.
const BAD_MERGE_PATCH: &str = "Invalid JSON Patch";

/// 400 for a body that is no patch. With field validation the error names the attempted step.
fn undecoded(kind: PatchType, careless: bool, why: &str) -> Status {
    if kind == PatchType::Strategic || careless {
        Status::bad_request(why)
    } else {
        Status::bad_request(format!("error decoding patch: {why}"))
    }
}

fn strategic_error(error: &StrategicError) -> Status {
    match error.code() {
        400 => Status::bad_request(error.to_string()),
        422 => Status::inapplicable(),
        code => Status::failure(code, "", error.to_string()),
    }
}

impl Patch {
    /// Applies the patch to a document of this kind. It may be large, so its values move into the document.
    fn apply_to(self, document: &Value, resource: &Resource) -> Result<Value, Status> {
        match self.kind {
            PatchType::Json => patch::json::apply(document, &self.document).map_err(|error| json_patch_error(&error)),
            PatchType::Merge => Ok(patch::merge::apply(document, &self.document)),
            PatchType::Strategic => patch::strategic::apply(document, self.document, &resource.schema)
                .map_err(|error| strategic_error(&error)),
        }
    }

    /// Applies the patch to a document that has no schema for strategic merge (a Scale).
    pub(crate) fn apply_plain(&self, document: &Value) -> Result<Value, Status> {
        match self.kind {
            PatchType::Json => patch::json::apply(document, &self.document).map_err(|error| json_patch_error(&error)),
            // A Scale has no lists, so that both kinds of merge do the same.
            PatchType::Merge | PatchType::Strategic => Ok(patch::merge::apply(document, &self.document)),
        }
    }

    /// The patched object, fit into its kind; `whole` unless a subresource is patched. `again` reads the patch again,
    /// for messages that show it. The present object stays as it was.
    ///
    /// Its `managedFields` are often the larger part of it, and nearly no patch is about them: then the result is
    /// without them, which says that they stay as they are.
    #[expect(
        clippy::too_many_arguments,
        reason = "all of them are the circumstances of one patch"
    )]
    fn finished(
        self,
        old: &mut Value,
        resource: &Resource,
        kinds: &Arc<Snapshot>,
        whole: bool,
        how: FieldValidation,
        again: &dyn Fn() -> Result<Patch, Status>,
        warnings: &mut Vec<String>,
    ) -> Result<Value, Status> {
        let kind = self.kind;
        let entries = (!self.may_touch_entries()).then(|| managed::take(old)).flatten();
        let fitted = self.fitted(old, resource, kinds, whole, how, warnings);
        managed::put_if_any(old, entries);
        match fitted {
            Ok(new) => Ok(new),
            Err(Unfit::Refused(status)) => Err(status),
            // Findings in the document are reported about the patch.
            Err(Unfit::Strict(why)) if kind == PatchType::Strategic => {
                Err(refused_patch(go::text(&again()?.document), &why))
            }
            // Shown is the document as the patch left it. It is patched again because it seldom must be shown.
            Err(unfit) => {
                let patch = again()?;
                let (kind, sent) = (patch.kind, patch.document.clone());
                let new = patch.apply_to(old, resource)?;
                Err(undecodable(
                    kind,
                    &sent,
                    &new,
                    resource,
                    &unfit.into_error().to_string(),
                ))
            }
        }
    }

    /// Whether it may change entries of `managedFields`, or an error may show them.
    fn may_touch_entries(&self) -> bool {
        let (PatchType::Merge, Value::Object(changes)) = (self.kind, &self.document) else {
            return true;
        };
        changes.iter().any(|(field, change)| match field.as_str() {
            "apiVersion" | "kind" => true,
            "metadata" => change
                .as_object()
                .is_none_or(|change| change.contains_key("managedFields")),
            _ => false,
        })
    }

    fn fitted(
        mut self,
        old: &Value,
        resource: &Resource,
        kinds: &Arc<Snapshot>,
        whole: bool,
        how: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<Value, Unfit> {
        let (kind, findings) = (self.kind, std::mem::take(&mut self.findings));
        let mut new = self.apply_to(old, resource).map_err(Unfit::Refused)?;
        if kind == PatchType::Strategic {
            structural::convert_check(&new, &resource.schema).map_err(Unfit::Strict)?;
            structural::convert(&mut new, &resource.schema);
            // Reflection looks for fields, regardless of the `apiVersion` and `kind` in the object.
            decode::say_what_it_is(&mut new, resource);
        }
        let unread = decode::check_patched_kind(&mut new, resource, kinds, whole)?;
        fit_fields(&mut new, old, resource, &unread, findings, how, warnings)?;
        Ok(new)
    }

    /// Makes a patched document (a Scale) one of its kind: types are checked, unknown fields dropped and reported.
    pub(crate) fn fit(
        &self,
        new: &mut Value,
        resource: &Resource,
        how: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        if self.kind == PatchType::Strategic {
            structural::convert_check(new, &resource.schema)
                .map_err(|why| refused_patch(go::text(&self.document), &why))?;
        }
        let document = new.clone();
        fit_fields(new, &Value::Null, resource, &[], self.findings.clone(), how, warnings).map_err(|unfit| {
            let why = unfit.into_error().to_string();
            undecodable(self.kind, &self.document, &document, resource, &why)
        })
    }
}

/// Fits the fields of a patched object into its kind. Findings are those in the patch, and then those in the object.
fn fit_fields(
    new: &mut Value,
    old: &Value,
    resource: &Resource,
    unread: &[String],
    findings: Vec<String>,
    how: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), Unfit> {
    if !new.is_object() {
        return Err(crate::scheme::not_an_object(new).into());
    }
    let mut findings = decode::fit_changed(new, old, resource, findings)?;
    let unread = unread.iter().map(|field| format!("unknown field {field:?}"));
    findings.texts.extend(unread);
    findings.apply(how, warnings).map_err(Unfit::Strict)
}

/// The findings in the operations of a JSON patch themselves.
fn operation_findings(operations: &Value, duplicates: Vec<String>) -> Vec<String> {
    let in_the_document: Vec<String> = duplicates
        .iter()
        .filter_map(|text| in_document(operations, text))
        .collect();
    let mut findings: Vec<String> = duplicates
        .into_iter()
        .map(|text| format!("json patch {text}"))
        .collect();
    findings.extend(patch::json::unknown_fields(operations));
    findings.extend(in_the_document);
    findings
}

/// Where a key that stands twice in the value of an operation (`duplicate field "[0].value.a"`) stands twice in the
/// patched document.
fn in_document(operations: &Value, text: &str) -> Option<String> {
    let path = text.strip_prefix("duplicate field \"[")?.strip_suffix('"')?;
    // The value itself that stands twice is no part of the document: the last one counts.
    let (index, inner) = path.split_once("].value")?;
    if inner.is_empty() {
        return None;
    }
    let operation = operations.get(index.parse::<usize>().ok()?)?;
    if !matches!(operation["op"].as_str(), Some("add" | "replace")) {
        return None;
    }
    let mut outer = String::new();
    for step in operation["path"].as_str()?.split('/').skip(1) {
        let step = unescape(step);
        if step.parse::<usize>().is_ok() {
            outer.push_str(&format!("[{step}]"));
        } else {
            if !outer.is_empty() {
                outer.push('.');
            }
            outer.push_str(&step);
        }
    }
    Some(format!("duplicate field \"{outer}{inner}\""))
}

/// 422 for a document that is no object of its kind after such a patch, with an empty kind as upstream.
fn undecodable(kind: PatchType, patch: &Value, document: &Value, resource: &Resource, why: &str) -> Status {
    // Upstream shows the whole document; a longer text helps no reader.
    const SHOWN: usize = 10_000;
    let touched = match kind {
        PatchType::Json => Cow::Owned(patch::shown::touched(patch, document)),
        PatchType::Merge | PatchType::Strategic => Cow::Borrowed(patch),
    };
    let shown = Shown::new(document, &touched, resource.order());
    let mut text = String::from_utf8_lossy(&json::text(&shown)).into_owned();
    if text.len() > SHOWN {
        let mut end = SHOWN;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    refused_patch(text, why)
}

fn refused_patch(shown: String, why: &str) -> Status {
    let error = FieldError::invalid("patch", Value::String(shown), why);
    let message = format!(" \"\" is invalid: {error}");
    Status::failure(422, "Invalid", message).with_details(Details {
        causes: vec![Cause::from(&error)],
        ..Details::default()
    })
}

fn json_patch_error(error: &JsonPatchError) -> Status {
    match error {
        JsonPatchError::TooMany(_) => Status::failure(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {error}"),
        ),
        JsonPatchError::NotAList(_) => Status::bad_request(format!("error decoding patch: {error}")),
        _ => Status::inapplicable(),
    }
}
