//! Kinds of the API machinery itself: APIService, CertificateSigningRequest, FlowSchema, PriorityLevelConfiguration.
//!
//! They are stored, with the defaults and the coarse rules of Kubernetes. Nothing acts on them: requests are neither aggregated to other
//! servers nor queued by flow, and nobody signs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::check::{At, Errors, child, each, ensure, fill, get, keep};
use crate::registry::{Looks, NameRule, PLAIN, StatusMetadata, Strategy};

fn ensure_status(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        ensure(object, "spec");
        ensure(object, "status");
    }
}

/// A new object has no status yet, whatever the client sent.
pub(super) fn empty_status(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert("status".to_owned(), json!({}));
    }
}

/// What an APIService of this server says of itself.
pub(crate) fn locally_available(now: &str) -> Value {
    json!({"type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local",
        "message": "Local APIServices are always available"})
}

/// How APIServices are written.
pub(crate) const API_SERVICE: Strategy = Strategy {
    status_metadata: StatusMetadata::WrittenBut(&["labels", "annotations", "finalizers", "ownerReferences"]),
    names: NameRule::PathSegment,
    unconditional_update: false,
    any_finalizer: true,
    looks: Looks::CHANGED_AND_WHOLE,
    default: |object| {
        ensure_status(object);
        if let Some(service) = object
            .as_object_mut()
            .and_then(|object| child(object, "spec"))
            .and_then(|spec| child(spec, "service"))
        {
            fill(service, "port", 443);
        }
    },
    prepare_create: |object, context| {
        empty_status(object);
        if get(object, &["spec", "service"]).is_null() && object.is_object() {
            object["status"]["conditions"] = json!([locally_available(&crate::env::rfc3339(context.env.now()))]);
        }
    },
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: api_service,
    validate_update: |new, _| api_service(new),
    ..PLAIN
};

fn api_service(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let spec = at.key("spec");
    let (group, version) = (spec.key("group").text(), spec.key("version").text());
    let wanted = format!("{version}.{group}");
    let name = at.keys(&["metadata", "name"]);
    if !name.text().is_empty() && name.text() != wanted {
        errors.invalid(&name, format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
    }
    if !group.is_empty() {
        errors.messages(&spec.key("group"), names::dns1123_subdomain(group));
    } else if version != "v1" {
        errors.required(
            &spec.key("group"),
            "only v1 may have an empty group and it better be legacy kube",
        );
    }
    errors.messages(&spec.key("version"), names::dns1035_label(version));
    for (field, limit) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let number = spec.key(field);
        let value = number.int().unwrap_or(0);
        if value <= 0 || value > limit {
            errors.invalid_value(&number, value, format!("must be positive and less than {limit}"));
        }
    }
    let (service, insecure, bundle) = (
        spec.key("service"),
        spec.key("insecureSkipTLSVerify"),
        spec.key("caBundle"),
    );
    if service.present() {
        for field in ["namespace", "name"] {
            if service.key(field).text().is_empty() {
                errors.required(&service.key(field), "");
            }
        }
        let port = service.key("port");
        if port.int().is_some_and(|port| !(1..=65535).contains(&port)) {
            errors.invalid(&port, "port is not valid: must be between 1 and 65535, inclusive");
        }
        if insecure.is_true() && !bundle.text().is_empty() {
            errors.invalid(&insecure, "may not be true if caBundle is present");
        }
    } else {
        if !bundle.text().is_empty() {
            errors.invalid(&bundle, "local APIServices may not have a caBundle");
        }
        if insecure.is_true() {
            errors.invalid(&insecure, "local APIServices may not have insecureSkipTLSVerify");
        }
    }
    errors.into_vec()
}

/// How CertificateSigningRequests are written.
pub(crate) const SIGNING_REQUEST: Strategy = Strategy {
    names: NameRule::Given,
    status_metadata: StatusMetadata::WRITTEN,
    looks: Looks::CHANGED_AND_WHOLE,
    status_looks: Looks::CHANGED_AND_WHOLE,
    unowned: &["spec"],
    default: ensure_status,
    prepare_create: |object, context| {
        empty_status(object);
        let Some(spec) = object.as_object_mut().and_then(|object| ensure(object, "spec")) else {
            return;
        };
        for field in ["uid", "groups", "extra"] {
            spec.remove(field);
        }
        let user = context.user;
        spec.insert("username".to_owned(), user.name.as_str().into());
        if !user.uid.is_empty() {
            spec.insert("uid".to_owned(), user.uid.as_str().into());
        }
        if !user.groups.is_empty() {
            spec.insert("groups".to_owned(), json!(user.groups));
        }
        if !user.extra.is_empty() {
            spec.insert("extra".to_owned(), json!(user.extra));
        }
    },
    // The request never changes, its conditions have subresources of their own.
    prepare_update: |new, old, _| {
        keep(new, old, "spec");
        keep(new, old, "status");
    },
    validate_create: signing_request,
    prepare_status: |new, old, context| {
        let now = crate::env::rfc3339(context.env.now());
        let before: Vec<Value> = get(old, &["status", "conditions"])
            .as_array()
            .cloned()
            .unwrap_or_default();
        let Some(status) = new.as_object_mut().and_then(|object| child(object, "status")) else {
            return;
        };
        for condition in each(status, "conditions") {
            let same = |was: &&Value| {
                ["type", "status"]
                    .iter()
                    .all(|field| condition.get(*field) == was.get(field))
            };
            let since = before
                .iter()
                .find(same)
                .and_then(|was| was.get("lastTransitionTime"))
                .cloned();
            fill(condition, "lastUpdateTime", now.as_str());
            fill(
                condition,
                "lastTransitionTime",
                since.unwrap_or_else(|| now.as_str().into()),
            );
        }
    },
    validate_status: signing_status,
    ..PLAIN
};

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The name of a signer: `domain/path`.
pub(crate) fn signer_name(errors: &mut Errors, at: &At<'_>) {
    if at.text().is_empty() {
        errors.required(at, "");
        return;
    }
    let Some((domain, _)) = at.text().split_once('/').filter(|(_, path)| !path.is_empty()) else {
        errors.invalid(
            at,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
        return;
    };
    errors.messages(at, names::dns1123_subdomain(domain));
    if !domain.contains('.') {
        errors.invalid(at, "should be a domain with at least two segments separated by dots");
    }
}

/// Conditions are decisions, which nobody takes back; a certificate is one.
fn signing_status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (status, was) = (At::root(new).key("status"), At::root(old).key("status"));
    let list = status.key("conditions");
    let kinds = |status: &At<'_>| -> Vec<String> {
        let conditions = status.key("conditions").items();
        conditions
            .map(|condition| condition.key("type").text().to_owned())
            .collect()
    };
    let mut seen: Vec<&str> = Vec::new();
    for condition in list.items() {
        let kind = condition.key("type");
        if kind.text().is_empty() {
            errors.required(&kind, "");
        }
        match (kind.text(), condition.key("status").text()) {
            (_, "") => errors.required(&condition.key("status"), ""),
            ("Approved" | "Denied" | "Failed", word) if word != "True" => {
                errors.unsupported(&condition.key("status"), &["True"]);
            }
            (_, "True" | "False" | "Unknown") => {}
            _ => errors.unsupported(&condition.key("status"), &["True", "False", "Unknown"]),
        }
        let opposite = match kind.text() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !opposite.is_empty() && seen.contains(&opposite) {
            errors.invalid_value(
                &list,
                kind.text(),
                "Approved and Denied conditions are mutually exclusive",
            );
        }
        if seen.contains(&kind.text()) {
            errors.duplicate(&kind);
        }
        seen.push(kind.text());
    }
    let (now, before) = (kinds(&status), kinds(&was));
    for kind in ["Approved", "Denied", "Failed"] {
        if before.iter().any(|known| known == kind) && !now.iter().any(|known| known == kind) {
            let why = format!("updates may not remove a condition of type {kind:?}");
            errors.forbidden(&list, why);
        }
    }
    let certificate = status.key("certificate");
    if !certificate.text().is_empty() && certificate.value != was.key("certificate").value {
        let decoded = STANDARD.decode(certificate.text()).unwrap_or_default();
        if !String::from_utf8_lossy(&decoded).contains("-----BEGIN CERTIFICATE-----") {
            errors.invalid_value(
                &certificate,
                "<certificate data>",
                "must contain at least one CERTIFICATE PEM block",
            );
        }
    }
    errors.into_vec()
}

fn signing_request(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let request = spec.key("request");
    let decoded = STANDARD.decode(request.text()).unwrap_or_default();
    let text = String::from_utf8_lossy(&decoded);
    if !text.trim_start().starts_with("-----BEGIN CERTIFICATE REQUEST-----") {
        errors.invalid_value(&request, request.text(), "PEM block type must be CERTIFICATE REQUEST");
    }
    let usages = spec.key("usages");
    if usages.is_empty() {
        errors.required(&usages, "");
    }
    let mut seen = std::collections::BTreeSet::new();
    for usage in usages.items() {
        errors.one_of(&usage, &USAGES, true);
        if !seen.insert(usage.text()) {
            errors.duplicate(&usage);
        }
    }
    let signer = spec.key("signerName");
    signer_name(&mut errors, &signer);
    if signer.text() == "kubernetes.io/legacy-unknown" {
        errors.invalid(&signer, "the legacy signerName is not allowed via this API version");
    }
    let seconds = spec.key("expirationSeconds");
    if seconds.int().is_some_and(|seconds| seconds < 600) {
        errors.invalid(
            &seconds,
            "may not specify a duration less than 600 seconds (10 minutes)",
        );
    }
    errors.into_vec()
}
