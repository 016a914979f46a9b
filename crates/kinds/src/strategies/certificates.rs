//! CertificateSigningRequest: the rules for a request, and the two ways to write its status: `/approval` decides,
//! `/status` brings the certificate.
//!
//! Not here: signing. Nothing of this server signs.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_schema::error::FieldError;
use kubewright_schema::{base64, names};
use serde_json::{Value, json};

use super::check::{At, Errors, child, each, ensure, fill, get, keep};
use super::system::{empty_status, ensure_status};
use kubewright_model::facts::der::{Reader, tag};
use kubewright_model::facts::pem;
use kubewright_model::facts::signing_request::SigningRequest;
use kubewright_model::{
    MetadataChecks, NameRule, PLAIN, Portion, READ_WRITE, StatusMetadata, Strategy, StrategyContext,
};

/// How CertificateSigningRequests are written.
pub(crate) const SIGNING_REQUEST: Strategy = Strategy {
    names: NameRule::Given,
    status_metadata: StatusMetadata::WRITTEN,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    status_metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    reset: &[
        ("", &["spec"]),
        ("status", &["spec", "status.conditions"]),
        ("approval", &["spec", "status.certificate"]),
    ],
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
        keep_decisions(new, old);
        note_times(new, old, context);
    },
    validate_status: |new, old| status(new, old, Written::Status),
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

/// The name of a signer: `domain/path` (`ValidateSignerName`).
pub(crate) fn signer_name(errors: &mut Errors, at: &At<'_>) {
    if at.text().is_empty() {
        errors.required(at, "");
        return;
    }
    let Some((domain, path)) = at.text().split_once('/').filter(|(_, path)| !path.contains('/')) else {
        errors.invalid(
            at,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
        return;
    };
    if domain.len() > names::SUBDOMAIN_MAX {
        errors.push(FieldError::too_long(at.path.to_string(), names::SUBDOMAIN_MAX));
    }
    labels(errors, at, domain, names::dns1123_label);
    if !domain.contains('.') {
        errors.invalid_value(
            at,
            domain,
            "should be a domain with at least two segments separated by dots",
        );
    }
    labels(errors, at, path, names::dns1123_subdomain);
    // The path has room for a label, a dot and a subdomain.
    let most = names::SUBDOMAIN_MAX + 1 + (names::SUBDOMAIN_MAX + 63 + 1);
    if at.text().len() > most {
        errors.push(FieldError::too_long(at.path.to_string(), most));
    }
}

/// The parts of a text between its dots; after the first that is wrong none is looked at.
fn labels(errors: &mut Errors, at: &At<'_>, text: &str, rule: fn(&str) -> Vec<String>) {
    for label in text.split('.') {
        let messages = rule(label);
        for message in &messages {
            errors.invalid_value(at, text, format!("validating label {label:?}: {message}"));
        }
        if !messages.is_empty() {
            return;
        }
    }
}

/// Which part of the status is written.
#[derive(Clone, Copy, PartialEq)]
enum Written {
    /// `/status`: the certificate, and conditions that decide nothing.
    Status,
    /// `/approval`: the conditions.
    Approval,
}

/// The conditions that decide about a request.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];

fn conditions(object: &Value) -> &[Value] {
    let conditions = get(object, &["status", "conditions"]).as_array();
    conditions.map_or(&[], Vec::as_slice)
}

/// The conditions of a type.
fn of_type<'a>(object: &'a Value, kind: &str) -> Vec<&'a Value> {
    conditions(object)
        .iter()
        .filter(|condition| get(condition, &["type"]) == kind)
        .collect()
}

/// A write to the status leaves the decisions as they are, unless it adds or removes one, which is refused.
fn keep_decisions(new: &mut Value, old: &Value) {
    for kind in DECISIONS {
        let before = of_type(old, kind);
        if before.len() != of_type(new, kind).len() {
            return;
        }
        let now = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        let now = now
            .into_iter()
            .flatten()
            .filter(|condition| get(condition, &["type"]) == kind);
        for (now, before) in now.zip(before) {
            now.clone_from(before);
        }
    }
}

fn text_of(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or("")
}

/// The times at which conditions changed, where the client does not say.
fn note_times(new: &mut Value, old: &Value, context: &StrategyContext<'_>) {
    let now = kubewright_model::env::rfc3339(context.env.now());
    let Some(status) = new.as_object_mut().and_then(|object| child(object, "status")) else {
        return;
    };
    let mut before: BTreeMap<[&str; 2], &Value> = BTreeMap::new();
    for was in conditions(old) {
        let [kind, status] = ["type", "status"].map(|field| text_of(was.get(field)));
        before.entry([kind, status]).or_insert(was);
    }
    for condition in each(status, "conditions") {
        let key = ["type", "status"].map(|field| text_of(condition.get(field)));
        let was = before.get(&key);
        let since = was.and_then(|was| was.get("lastTransitionTime")).cloned();
        fill(condition, "lastUpdateTime", now.as_str());
        fill(
            condition,
            "lastTransitionTime",
            since.unwrap_or_else(|| now.as_str().into()),
        );
    }
}

/// `/approval`: only the conditions are written.
pub(crate) static APPROVAL: Portion = Portion {
    name: "approval",
    verbs: READ_WRITE,
    restrict: |new, old| {
        let mut wanted = std::mem::replace(new, old.clone());
        if let (Some(map), Some(metadata)) = (new.as_object_mut(), wanted.get_mut("metadata")) {
            map.insert("metadata".to_owned(), metadata.take());
        }
        let conditions = wanted.pointer_mut("/status/conditions").map(Value::take);
        if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) {
            match conditions {
                Some(conditions) => status.insert("conditions".to_owned(), conditions),
                None => status.remove("conditions"),
            };
        }
    },
    owns_all_that_is_sent: false,
    writes_status: true,
    counts_generation: false,
    prepare: note_times,
    validate: |new, old| status(new, old, Written::Approval),
};

/// Conditions are decisions and are never taken back; a certificate is one.
/// `ValidateCertificateSigningRequestStatusUpdate` and `validateCertificateSigningRequestUpdate`.
fn status(new: &Value, old: &Value, written: Written) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (status, was) = (At::root(new).key("status"), At::root(old).key("status"));
    let list = status.key("conditions");
    condition_rules(&mut errors, &list);
    let mut forbid = |what: &str, kind: &str| {
        errors.forbidden(&list, format!("updates may not {what} a condition of type {kind:?}"));
    };
    for kind in ["Approved", "Denied", "Failed"] {
        if of_type(new, kind).len() < of_type(old, kind).len() {
            forbid("remove", kind);
        }
    }
    if written == Written::Status {
        for kind in DECISIONS {
            let (now, before) = (of_type(new, kind), of_type(old, kind));
            if now.len() > before.len() {
                forbid("add", kind);
            } else if now.len() == before.len() && now != before {
                forbid("modify", kind);
            }
        }
    }
    let certificate = status.key("certificate");
    if !certificate.text().is_empty()
        && certificate.value != was.key("certificate").value
        && let Err(why) = certificates(certificate.text())
    {
        errors.invalid_value(&certificate, "<certificate data>", why);
    }
    errors.into_vec()
}

/// The certificates that a signer gives out (`validateCertificate`): base64 of PEM. No block of another type
/// is allowed, so that every reader finds the certificates that are checked here.
fn certificates(text: &str) -> Result<(), String> {
    let text = base64::decode(text).unwrap_or_default();
    let mut blocks = 0_usize;
    for block in pem::blocks(&String::from_utf8_lossy(&text)) {
        if block.kind != "CERTIFICATE" {
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {:?}",
                block.kind
            ));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if block.bytes.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        let mut rest = Reader::new(&block.bytes);
        while !rest.is_empty() {
            one_certificate(&mut rest).map_err(|_| "x509: malformed certificate")?;
        }
        blocks += 1;
    }
    match blocks {
        0 => Err("must contain at least one CERTIFICATE PEM block".to_owned()),
        _ => Ok(()),
    }
}

/// The parts of a certificate: what is signed, an algorithm, a signature.
pub(super) fn one_certificate(rest: &mut Reader<'_>) -> Result<(), &'static str> {
    let mut parts = rest.enter(tag::SEQUENCE)?;
    parts.enter(tag::SEQUENCE)?;
    parts.enter(tag::SEQUENCE)?;
    parts.bytes().map(drop)
}

/// The rules for each condition, and for those that exclude each other (`validateConditions`).
fn condition_rules(errors: &mut Errors, list: &At<'_>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
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
            _ => errors.unsupported(&condition.key("status"), &["False", "True", "Unknown"]),
        }
        let opposite = match kind.text() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !opposite.is_empty() && seen.contains(opposite) {
            errors.invalid_value(
                list,
                kind.text(),
                "Approved and Denied conditions are mutually exclusive",
            );
        }
        if seen.contains(kind.text()) {
            errors.duplicate(&kind);
        }
        seen.insert(kind.text());
    }
}

/// `validateCertificateSigningRequest`.
fn signing_request(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let request = spec.key("request");
    if let Err(why) = SigningRequest::read(request.text()) {
        errors.invalid_value(&request, request.text(), why);
    }
    let usages = spec.key("usages");
    if usages.is_empty() {
        errors.required(&usages, "");
    }
    let mut seen = std::collections::BTreeSet::new();
    for usage in usages.items() {
        errors.one_of_all(&usage, &USAGES);
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

#[cfg(test)]
mod tests {
    use ::base64::Engine as _;
    use ::base64::engine::general_purpose::STANDARD;

    use super::*;

    /// Words as those of kube-apiserver 1.36.
    #[test]
    fn a_signer_gives_out_certificates_alone() {
        let check = |text: &str, why: &str| {
            let said = certificates(&STANDARD.encode(text)).err().unwrap_or_default();
            assert_eq!(said, why, "{text:?}");
        };
        let block = |kind: &str, body: &str| format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n");
        // What is signed, an algorithm and a signature: all of them empty.
        let body = STANDARD.encode([0x30, 7, 0x30, 0, 0x30, 0, 3, 1, 0]);
        let one = block("CERTIFICATE", &body);
        check(&one, "");
        check(&format!("x\n{one}{one}"), "");
        let nothing = "must contain at least one CERTIFICATE PEM block";
        for text in [
            "",
            "x",
            "x-----BEGIN CERTIFICATE-----\n",
            &one.replace("END", "END X"),
            &block("CERTIFICATE", "!"),
        ] {
            check(text, nothing);
        }
        let key = block("PRIVATE KEY", "AA==");
        let other = "only CERTIFICATE PEM blocks are allowed, found \"PRIVATE KEY\"";
        check(&key, other);
        check(&format!("{one}{key}"), other);
        check(
            &block("CERTIFICATE", &format!("K: v\n\n{body}")),
            "no PEM block headers are permitted",
        );
        check(
            &block("CERTIFICATE", ""),
            "found CERTIFICATE PEM block containing 0 certificates",
        );
        check(&block("CERTIFICATE", "AAEC"), "x509: malformed certificate");
        check(&block("CERTIFICATE", &format!("MAA={body}")), nothing);
    }
}
