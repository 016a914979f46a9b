//! From the bytes of a body to an object of the kind that the path names.
//!
//! Built-in kinds are decoded as Go decodes them: a field of a wrong type is an error at once, unknown fields are
//! dropped, `null` is absence. Custom kinds are decoded freely; their schema speaks later, in validation.

use crate::model::unfit::Unfit;
use crate::scheme::not_an_object;
use std::fmt::Write as _;

use kubewright_schema::error::FieldError;
use kubewright_schema::go::TypeMismatch;
use kubewright_schema::protobuf::{Envelope, ProtobufError};
use kubewright_schema::structural::TypeError;
use kubewright_schema::{budget, catalog, decode, measure, structural};
use serde_json::{Value, json};

use super::empties::Unwritten;
use super::options::FieldValidation;
use crate::model::Resource;
use crate::model::status::Status;
use crate::registry::{Snapshot, unserved};
use crate::scheme::{join_version, split_version, unknown_conversion, unregistered};
use crate::wire::negotiate::Input;

/// Reads a body. `must_be`: the kind for the error's text, and of a protobuf body that does not say its kind.
pub(crate) fn parse(body: &[u8], format: Input, must_be: &str) -> Result<decode::Decoded, Status> {
    parse_as(body, format, "", must_be, true)
}

/// The same, with the `apiVersion` of a protobuf body that does not say it; `built_in` when it is read into a struct.
fn parse_as(
    body: &[u8],
    format: Input,
    api_version: &str,
    must_be: &str,
    built_in: bool,
) -> Result<decode::Decoded, Status> {
    let json = if built_in { decode::json_struct } else { decode::json };
    let parsed = match format {
        Input::Protobuf => return protobuf(body, api_version, must_be),
        Input::Json => json(body).map_err(|error| format!("couldn't get version/kind; json parse error: {error}")),
        Input::Yaml => decode::yaml(body).map_err(|error| error.to_string()),
    };
    let mut decoded = parsed.map_err(|why| unrecognized(must_be, &why, body))?;
    match decoded.value {
        Value::Object(_) => {}
        // Go leaves the object as it was, which is empty.
        Value::Null => decoded.value = json!({}),
        other => return Err(unrecognized(must_be, &not_an_object(&other), body)),
    }
    type_meta(&decoded.value).map_err(|why| unrecognized(must_be, &why, body))?;
    Ok(decoded)
}

/// Reads a body as protobuf, which can have no field twice.
fn protobuf(body: &[u8], api_version: &str, must_be: &str) -> Result<decode::Decoded, Status> {
    let mut envelope = Envelope::read(body).map_err(|error| unrecognized(must_be, &error.to_string(), body))?;
    if envelope.kind.is_empty() {
        must_be.clone_into(&mut envelope.kind);
    }
    if envelope.api_version.is_empty() {
        api_version.clone_into(&mut envelope.api_version);
    }
    let value = envelope.decode().map_err(|error| {
        let (group, version) = split_version(&envelope.api_version);
        let kind = &envelope.kind;
        let why = match error {
            ProtobufError::UnknownKind { .. } if catalog::name_for_kind(group, version, kind).is_some() => {
                unknown_conversion(version, kind, internal_group(split_version(api_version).0), must_be)
            }
            ProtobufError::UnknownKind { .. } => unregistered(kind, &envelope.api_version),
            other => other.to_string(),
        };
        cannot_be_handled(kind, version, must_be, &why)
    })?;
    Ok(decode::Decoded {
        value,
        duplicates: Vec::new(),
    })
}

/// The error for a body with a kind that does not fit the required one.
pub(crate) fn cannot_be_handled(kind: &str, version: &str, must_be: &str, why: &str) -> Status {
    Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {must_be}: {why}"
    ))
}

fn unrecognized(must_be: &str, why: &str, body: &[u8]) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {must_be}): {why} ({})",
        summary(body)
    ))
}

/// The beginning of a body: as text if it looks like JSON, else in hex.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let shown = &body[..body.len().min(SHOWN)];
    let mut text = if body[0] == b'{' {
        String::from_utf8_lossy(shown).into_owned()
    } else {
        shown.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    if body.len() > SHOWN {
        text.push_str(" ...");
    }
    text
}

/// The `apiVersion` and `kind` of an object, empty where they are absent. `apiVersion` and `kind`, empty where it says
/// nothing.
fn type_meta(object: &Value) -> Result<(String, String), String> {
    let text = |field: &str| match object.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => {
            let why = TypeMismatch::new(other, "string").in_field("", field);
            Err(format!("couldn't get version/kind; json parse error: {why}"))
        }
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    if api_version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {api_version}"));
    }
    Ok((api_version, kind))
}

fn missing_kind(document: &str) -> String {
    format!("Object 'Kind' is missing in '{document}'")
}

/// Makes sure that an object is of the kind of the path. A built-in kind need not be named; a custom object must have
/// `apiVersion` and `kind`, since nothing else tells how to read it.
pub(crate) fn check_kind(object: &mut Value, resource: &Resource, kinds: &Snapshot) -> Result<(), Status> {
    let expected = resource.api_version();
    let (mut api_version, mut kind) = type_meta(object).map_err(Status::bad_request)?;
    if resource.custom.is_some() {
        if kind.is_empty() {
            return Err(Status::bad_request(missing_kind(&object.to_string())));
        }
        return check_custom_kind(object, &api_version, &kind, resource);
    }
    let (group, version) = split_version(&api_version);
    api_version = if version.is_empty() && (group.is_empty() || *group == *resource.group) {
        expected.clone()
    } else {
        join_version(group, version)
    };
    if kind.is_empty() {
        kind = resource.kind.to_string();
    }
    if api_version != expected || kind != resource.kind {
        return Err(wrong_kind(object, &api_version, &kind, resource, kinds));
    }
    say_what_it_is(object, resource);
    Ok(())
}

/// As [`check_kind`], for the result of an admission plugin: it is decoded as the kind that it states, and only then
/// found to be of another.
pub(crate) fn check_admitted_kind(object: &mut Value, resource: &Resource, kinds: &Snapshot) -> Result<(), Unfit> {
    let (api_version, kind) = type_meta(object)?;
    let expected = resource.api_version();
    let is_expected = (api_version.is_empty() || api_version == expected) && (kind.is_empty() || kind == resource.kind);
    if is_expected || resource.custom.is_some() {
        return check_kind(object, resource, kinds).map_err(|status| Unfit::from(status.message));
    }
    let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
    let (api_version, kind) = (or(api_version, &expected), or(kind, &resource.kind));
    Err(match why_wrong(object, &api_version, &kind, resource, kinds) {
        WrongKind::Unregistered(why) => why.into(),
        WrongKind::Unreadable(error) => error.into(),
        WrongKind::Another(why) => Unfit::Refused(Status::untyped(why)),
    })
}

pub(crate) fn say_what_it_is(object: &mut Value, resource: &Resource) {
    let Some(map) = object.as_object_mut() else { return };
    for (field, text) in [("apiVersion", &*resource.api_version()), ("kind", &*resource.kind)] {
        // Most objects say it themselves.
        if map.get(field).and_then(Value::as_str) != Some(text) {
            map.insert(field.to_owned(), text.into());
        }
    }
}

/// A custom object is one of its own version first, and then named by its kind.
fn check_custom_kind(object: &Value, api_version: &str, kind: &str, resource: &Resource) -> Result<(), Status> {
    let expected = resource.api_version();
    if api_version != expected {
        return Err(Status::bad_request(unserved::mismatch(api_version, &expected)));
    }
    if kind == resource.kind {
        return Ok(());
    }
    let error = FieldError::invalid("kind", json!(kind), format!("must be {}", resource.kind));
    Err(Status::invalid(
        &resource.group,
        kind,
        crate::model::object::name(object),
        &[error],
    ))
}

/// As [`check_kind`], for a patched value: a custom object is judged by its kind as by its other fields. `whole` is
/// false for a subresource, which cannot change the object's kind. Answers the fields that are not even read.
pub(crate) fn check_patched_kind(
    object: &mut Value,
    resource: &Resource,
    kinds: &Snapshot,
    whole: bool,
) -> Result<Vec<String>, Unfit> {
    if !object.is_object() {
        return Err(not_an_object(object).into());
    }
    if resource.custom.is_none() {
        return check_patched_built_in(object, resource, kinds);
    }
    let (api_version, kind) = type_meta(object)?;
    if kind.is_empty() {
        return Err(missing_kind(&object.to_string()).into());
    }
    if api_version.is_empty() {
        let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
        return Err(Unfit::Refused(Status::internal(why)));
    }
    if !whole {
        say_what_it_is(object, resource);
        return Ok(Vec::new());
    }
    let wrong = [
        ("kind", &kind, resource.kind.to_string()),
        ("apiVersion", &api_version, resource.api_version()),
    ];
    let errors: Vec<FieldError> = wrong
        .into_iter()
        .filter(|(_, said, expected)| *said != expected)
        .map(|(field, said, expected)| FieldError::invalid(field, json!(said), format!("must be {expected}")))
        .collect();
    if errors.is_empty() {
        return Ok(Vec::new());
    }
    let (group, _) = split_version(&api_version);
    let name = crate::model::object::name(object);
    Err(Unfit::Refused(Status::invalid(group, &kind, name, &errors)))
}

/// A patched built-in object is decoded as the kind that it states.
fn check_patched_built_in(object: &mut Value, resource: &Resource, kinds: &Snapshot) -> Result<Vec<String>, Unfit> {
    let (api_version, kind) = type_meta(object)?;
    let (group, version) = split_version(&api_version);
    let kind = if kind.is_empty() {
        resource.kind.to_string()
    } else {
        kind
    };
    if version.is_empty() && (group.is_empty() || *group == *resource.group) && kind == resource.kind {
        // Without a version it is read as the internal type, which has none of these fields.
        let read = std::mem::replace(object, json!({}));
        say_what_it_is(object, resource);
        let fields = read.as_object().into_iter().flat_map(|map| map.keys());
        let unread = fields.filter(|field| *field != "apiVersion" && *field != "kind");
        return Ok(unread.cloned().collect());
    }
    let version = join_version(group, version);
    if version == resource.api_version() && kind == resource.kind {
        say_what_it_is(object, resource);
        return Ok(Vec::new());
    }
    Err(match why_wrong(object, &version, &kind, resource, kinds) {
        WrongKind::Unregistered(why) | WrongKind::Another(why) => why.into(),
        WrongKind::Unreadable(error) => error.into(),
    })
}

fn wrong_kind(object: &Value, api_version: &str, kind: &str, resource: &Resource, kinds: &Snapshot) -> Status {
    let (_, version) = split_version(api_version);
    match why_wrong(object, api_version, kind, resource, kinds) {
        WrongKind::Unreadable(error) => Status::bad_request(error),
        WrongKind::Unregistered(why) | WrongKind::Another(why) => {
            cannot_be_handled(kind, version, &resource.kind, &why)
        }
    }
}

/// Why an object that says to be of another kind is not one of the expected one.
enum WrongKind {
    /// The kind is not registered.
    Unregistered(String),
    /// It does not decode as the kind that it states.
    Unreadable(TypeError),
    /// It is something else.
    Another(String),
}

fn why_wrong(object: &Value, api_version: &str, kind: &str, resource: &Resource, kinds: &Snapshot) -> WrongKind {
    let (group, version) = split_version(api_version);
    let other = kinds.by_kind(group, version, kind);
    // It is decoded as the kind that it states before it is found to be another.
    if let Some(other) = &other
        && other.custom.is_none()
        && let Err(why) = structural::type_check(object, &other.schema, &other.kind)
    {
        return WrongKind::Unreadable(why);
    }
    // No path leads to a kind such as Status or List, which is known all the same.
    let is_known = other.is_some()
        || catalog::of(kinds.minor()).name_for_kind(group, version, kind).is_some()
        || (kind == "List" && api_version == "v1");
    let was_served = !is_known && unserved::knows(api_version, kind);
    if !is_known && !was_served {
        return WrongKind::Unregistered(unregistered(kind, api_version));
    }
    let same_store = other.as_ref().is_some_and(|other| other.store == resource.store);
    if kind == resource.kind && (was_served || same_store) {
        // Another version of the same.
        return WrongKind::Unreadable(unserved::mismatch(api_version, &resource.api_version()).into());
    }
    let internal = internal_group(&resource.group);
    WrongKind::Another(unknown_conversion(version, kind, internal, &resource.kind))
}

/// A body for a subresource that says it is of another kind than that takes.
pub(crate) struct OtherKind {
    /// Whether this server knows the kind.
    pub(crate) served: bool,
    pub(crate) refusal: Status,
}

/// Makes sure that a body for a subresource, if it states its kind, is `expected` (group and kind) in one of
/// `versions`.
pub(crate) fn check_taken_kind(
    body: &Value,
    expected: (&str, &str),
    versions: &[&str],
    kinds: &Snapshot,
) -> Result<(), OtherKind> {
    let text = |key: &str| body.get(key).and_then(Value::as_str).unwrap_or("");
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let (internal, expected) = expected;
    if (kind.is_empty() || kind == expected) && (api_version.is_empty() || versions.contains(&api_version)) {
        return Ok(());
    }
    let kind = if kind.is_empty() { expected } else { kind };
    if kind == expected && unserved::knows(api_version, kind) {
        let wanted = versions.first().copied().unwrap_or_default();
        let refusal = Status::bad_request(unserved::mismatch(api_version, wanted));
        return Err(OtherKind { served: true, refusal });
    }
    let (group, version) = split_version(api_version);
    let served = kinds.by_kind(group, version, kind).is_some()
        || catalog::of(kinds.minor()).name_for_kind(group, version, kind).is_some()
        || unserved::knows(api_version, kind);
    let why = if served {
        unknown_conversion(version, kind, internal, expected)
    } else {
        unregistered(kind, api_version)
    };
    let refusal = cannot_be_handled(kind, version, expected, &why);
    Err(OtherKind { served, refusal })
}

/// The package of a group's internal types.
fn internal_group(group: &str) -> &str {
    match group.split('.').next() {
        None | Some("") => "core",
        Some(first) => first,
    }
}

/// How many doubled and unknown fields of a built-in kind are reported (`saveStrictError`).
const MAX_STRICT: usize = 100;

/// Findings of the decoder that are not errors by themselves.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Texts such as `unknown field "spec.foo"`, in the order of Kubernetes.
    pub(crate) texts: Vec<String>,
    /// How many of the first are about duplicate keys in YAML, which a strict error puts together.
    pub(crate) yaml_duplicates: usize,
}

impl Findings {
    /// Warnings, or the text of a strict error.
    pub(crate) fn apply(self, how: FieldValidation, warnings: &mut Vec<String>) -> Result<(), String> {
        match how {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(self.texts),
            FieldValidation::Strict if self.texts.is_empty() => {}
            FieldValidation::Strict => return Err(self.strict()),
        }
        Ok(())
    }

    fn strict(&self) -> String {
        let (duplicates, others) = self.texts.split_at(self.yaml_duplicates.min(self.texts.len()));
        let mut texts: Vec<String> = Vec::new();
        if !duplicates.is_empty() {
            texts.push(format!("yaml: unmarshal errors:\n  {}", duplicates.join("\n  ")));
        }
        texts.extend(others.iter().cloned());
        format!("strict decoding error: {}", texts.join(", "))
    }
}

/// Fits an object into its kind: types, unknown fields.
///
/// `body`: the JSON text, if the object came as such, so that unknown fields are reported in its order.
pub(crate) fn fit(
    object: &mut Value,
    resource: &Resource,
    duplicates: Vec<String>,
    body: Option<&[u8]>,
) -> Result<Findings, TypeError> {
    let mut findings = Findings {
        texts: duplicates,
        yaml_duplicates: 0,
    };
    let unknown = if resource.custom.is_some() {
        settle_metadata(object)?;
        super::embedded::settle(object, &resource.schema)?;
        structural::prune(object, &resource.schema, structural::PruneOptions::CUSTOM_RESOURCE)
    } else {
        structural::type_check(object, &resource.schema, &resource.kind)?;
        let mut unknown = structural::prune(object, &resource.schema, structural::PruneOptions::BUILT_IN);
        if let (Some(body), true) = (body, unknown.len() > 1) {
            unknown = structural::unknown_fields_as_written(body, &resource.schema);
        }
        // An empty list of entries asks for all ownership to be forgotten, where other empty lists have no meaning.
        let entries = super::managed::entries(object);
        let forgets = entries.and_then(Value::as_array).is_some_and(Vec::is_empty);
        let unwritten = Unwritten::take(resource, object);
        structural::go_normalize_read(object, &resource.schema);
        unwritten.put_back(object);
        if forgets {
            super::managed::put(object, Some(json!([])));
        }
        unknown
    };
    if resource.custom.is_none() && !unknown.is_empty() {
        // An unknown field is skipped, so a duplicate of it is not noticed.
        let skipped = |text: &String| {
            let path = text
                .strip_prefix("duplicate field \"")
                .and_then(|text| text.strip_suffix('"'));
            budget::spend(unknown.len());
            path.is_some_and(|path| unknown.iter().any(|unknown| lies_in(path, unknown)))
        };
        findings.texts.retain(|text| !skipped(text));
    }
    // Those of YAML are found before the JSON that it stands for is read.
    let before = if body.is_none() { findings.texts.len() } else { 0 };
    findings
        .texts
        .extend(unknown.into_iter().map(|path| format!("unknown field {path:?}")));
    if resource.custom.is_none() {
        findings.texts.truncate(before + MAX_STRICT);
    }
    Ok(findings)
}

/// [`fit`] for the result of a write to `old`, an object of this kind: unchanged parts fit already, and are not checked
/// again.
pub(crate) fn fit_changed(
    object: &mut Value,
    old: &Value,
    resource: &Resource,
    duplicates: Vec<String>,
) -> Result<Findings, TypeError> {
    let same =
        |field: &str, value: &Value| value.is_object() && old.get(field).is_some_and(|old| measure::same(old, value));
    // Of a custom resource only the metadata: its definition may be another one by now.
    let looked_at = |field: &str| resource.custom.is_some() && field != "metadata";
    let fields = object.as_object().into_iter().flatten();
    let kept = fields.filter(|(field, value)| !looked_at(field) && same(field, value));
    let kept: Vec<String> = kept.map(|(field, _)| field.clone()).collect();
    let kept: Vec<(String, Value)> = match object.as_object_mut() {
        Some(map) => kept.iter().filter_map(|field| map.remove_entry(field)).collect(),
        None => Vec::new(),
    };
    let fitted = fit(object, resource, duplicates, None);
    if let Some(map) = object.as_object_mut() {
        map.extend(kept);
    }
    fitted
}

/// Whether a path is another or leads into it.
fn lies_in(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest.starts_with('['))
}

/// Types of the metadata of a custom resource, which is Go's `ObjectMeta` for a moment and loses empty fields.
pub(crate) fn settle_metadata(object: &mut Value) -> Result<(), TypeError> {
    match object.get_mut("metadata") {
        None | Some(Value::Null) => Ok(()),
        Some(metadata) => {
            structural::type_check(metadata, catalog::object_meta(), "ObjectMeta")?;
            structural::go_normalize_read(metadata, catalog::object_meta());
            Ok(())
        }
    }
}

/// The whole way for the body of a POST or PUT.
pub(crate) fn object(
    body: &[u8],
    format: Input,
    resource: &Resource,
    kinds: &Snapshot,
    how: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, Status> {
    if format == Input::Protobuf && resource.custom.is_some() {
        return Err(Status::unsupported_media_type("application/json, application/yaml"));
    }
    let built_in = resource.custom.is_none();
    let decoded = parse_as(body, format, &resource.api_version(), &resource.kind, built_in)?;
    let mut object = decoded.value;
    if resource.custom.is_some() && object.get("kind").and_then(Value::as_str).is_none_or(str::is_empty) {
        let why = missing_kind(&String::from_utf8_lossy(body));
        return Err(unrecognized(&resource.kind, &why, body));
    }
    check_kind(&mut object, resource, kinds)?;
    let refuse = |why: &str| cannot_be_handled(&resource.kind, &resource.version, &resource.kind, why);
    let json = (format == Input::Json).then_some(body);
    let yaml_duplicates = if json.is_some() { 0 } else { decoded.duplicates.len() };
    let mut findings =
        fit(&mut object, resource, decoded.duplicates, json).map_err(|error| refuse(&error.to_string()))?;
    findings.yaml_duplicates = yaml_duplicates;
    if format == Input::Protobuf {
        // A field of a later version of Kubernetes is one that no one sees: messages have no names.
        findings.texts.clear();
    }
    findings.apply(how, warnings).map_err(|why| refuse(&why))?;
    crate::model::object::metadata_mut(&mut object);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries() {
        assert_eq!(summary(b""), "<empty>");
        assert_eq!(summary(b"{bad"), "{bad");
        assert_eq!(summary(b"a: ["), "613a205b");
        assert_eq!(summary(&[b'{'; 31]), format!("{} ...", "{".repeat(30)));
    }

    #[test]
    fn only_objects_are_objects() {
        for (body, want) in [("{}", true), ("null", true), ("[]", false), ("3", false), ("", false)] {
            assert_eq!(parse(body.as_bytes(), Input::Json, "ConfigMap").is_ok(), want, "{body}");
        }
    }
}
