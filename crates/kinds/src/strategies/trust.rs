//! ClusterTrustBundle and PodCertificateRequest (`certificates.k8s.io`, from Kubernetes 1.37 on): whom pods trust, and
//! the certificates that kubelets request for them.
//!
//! Not here: who may attest or sign, whether a request is signed with its own key, and whether a certificate begins to be
//! valid now (the admission plugin `Signers`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use kubewright_schema::error::FieldError;
use kubewright_schema::path::FieldPath;
use kubewright_schema::{base64, names};
use serde_json::Value;

use super::certificates::{one_certificate, signer_name};
use super::check::{At, Errors, child, fill, fixed, get, keep};
use super::policy::conditions;
use super::system::{empty_status, ensure_status};
use kubewright_model::facts::der::{Reader, tag};
use kubewright_model::facts::pem;
use kubewright_model::facts::signing_request::SigningRequest;
use kubewright_model::{Empties, MetadataChecks, NameRule, PLAIN, StatusMetadata, Strategy};

/// How ClusterTrustBundles are written.
pub(crate) const BUNDLE: Strategy = Strategy {
    names: NameRule::Given,
    unconditional_update: false,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    validate_create: |new| bundle(new, None),
    validate_update: |new, old| bundle(new, Some(old)),
    fields: &[fixed(&["spec", "signerName"], "ValidateClusterTrustBundleUpdate")],
    ..PLAIN
};

/// How PodCertificateRequests are written.
pub(crate) const POD_REQUEST: Strategy = Strategy {
    empties: Empties::Seen,
    unconditional_update: false,
    status_metadata: StatusMetadata::RESET,
    default: |object| {
        ensure_status(object);
        if let Some(spec) = object.as_object_mut().and_then(|object| child(object, "spec")) {
            fill(spec, "maxExpirationSeconds", 24 * HOUR);
        }
    },
    prepare_create: |object, _| empty_status(object),
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: pod_request,
    fields: &[fixed(&["spec"], "ValidatePodCertificateRequestUpdate")],
    validate_status: pod_status,
    ..PLAIN
};

const MAX_BUNDLE: usize = 1024 * 1024;
const MAX_UID: usize = 128;
const MAX_REQUEST: usize = 10 * 1024;
const MAX_CHAIN: usize = 100 * 1024;
const HOUR: i64 = 3600;
/// The conditions that end a request.
const ENDS: [&str; 3] = ["Issued", "Denied", "Failed"];

/// `ValidateClusterTrustBundle`.
fn bundle(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let (name, spec) = (at.keys(&["metadata", "name"]), at.key("spec"));
    let signer = spec.key("signerName");
    if !name.text().is_empty() {
        errors.messages(&name, bundle_name(name.text(), signer.text()));
    }
    if !signer.text().is_empty() {
        signer_name(&mut errors, &signer);
    }
    let text = spec.key("trustBundle");
    // What is stored is not read again.
    if old.is_none_or(|old| get(old, &["spec", "trustBundle"]) != text.value) {
        anchors(&mut errors, &text);
    }
    errors.into_vec()
}

/// `ValidateClusterTrustBundleName`.
pub(super) fn bundle_name(name: &str, signer: &str) -> Vec<String> {
    if signer.is_empty() {
        return match name.contains(':') {
            true => vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()],
            false => names::dns1123_subdomain(name),
        };
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        Some(rest) => names::dns1123_subdomain(rest),
        None => vec![format!(
            "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
        )],
    }
}

/// `validateTrustBundle`.
fn anchors(errors: &mut Errors, at: &At<'_>) {
    if at.text().len() > MAX_BUNDLE {
        return errors.push(FieldError::too_long(at.path.to_string(), MAX_BUNDLE));
    }
    let before = errors.len();
    let mut known: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (index, block) in pem::blocks(at.text()).enumerate() {
        let why = match &block {
            block if block.kind != "CERTIFICATE" => format!("has bad block type: {}", block.kind),
            block if block.has_headers => "has PEM block headers".to_owned(),
            block => match authority(&block.bytes) {
                Err(_) => "does not parse as X.509".to_owned(),
                Ok(false) => "does not have the CA bit set".to_owned(),
                Ok(true) => {
                    known.entry(block.bytes.clone()).or_default().push(index);
                    continue;
                }
            },
        };
        errors.invalid_value(at, "<value omitted>", format!("entry {index} {why}"));
    }
    if errors.len() > before {
        return;
    }
    if known.is_empty() {
        errors.invalid_value(at, "<value omitted>", "at least one trust anchor must be provided");
    }
    for places in known.values().filter(|places| places.len() > 1) {
        let places: Vec<String> = places.iter().map(ToString::to_string).collect();
        let why = format!("duplicate trust anchor (indices [{}])", places.join(" "));
        errors.invalid_value(at, "<value omitted>", why);
    }
}

/// Whether a certificate says that it is an authority's (basic constraints).
fn authority(der: &[u8]) -> Result<bool, &'static str> {
    const EXTENSIONS: u8 = 0xa3;
    const BASIC_CONSTRAINTS: [u8; 3] = [0x55, 0x1d, 0x13];
    let mut rest = Reader::new(der);
    one_certificate(&mut rest)?;
    rest.end()?;
    let mut signed = Reader::of_one(der, tag::SEQUENCE)?.enter(tag::SEQUENCE)?;
    while !signed.is_empty() {
        let part = signed.any()?;
        if part.tag != EXTENSIONS {
            continue;
        }
        let mut list = Reader::of_one(part.contents, tag::SEQUENCE)?;
        while !list.is_empty() {
            let mut extension = list.enter(tag::SEQUENCE)?;
            if extension.value(tag::IDENTIFIER)?.contents != BASIC_CONSTRAINTS {
                continue;
            }
            if extension.peek() == Some(tag::BOOLEAN) {
                extension.any()?;
            }
            let mut constraints = Reader::of_one(extension.value(tag::OCTETS)?.contents, tag::SEQUENCE)?;
            return Ok(match constraints.peek() {
                Some(tag::BOOLEAN) => constraints.any()?.contents.iter().any(|byte| *byte != 0),
                _ => false,
            });
        }
    }
    Ok(false)
}

/// `ValidatePodCertificateRequestCreate`.
fn pod_request(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let signer = spec.key("signerName");
    signer_name(&mut errors, &signer);
    for (key, at) in spec.key("unverifiedUserAnnotations").entries() {
        let (key, list) = (key.to_lowercase(), at.moved(spec.path.key("unverifiedUserAnnotations")));
        let mut wrong = names::qualified_name(&key);
        if wrong.is_empty() && !key.contains('/') {
            wrong.push("must be a domain-prefixed key (such as \"acme.io/foo\")".to_owned());
        }
        for why in wrong {
            errors.invalid_value(&list, key.as_str(), why);
        }
    }
    for (name, uid) in [
        ("podName", "podUID"),
        ("serviceAccountName", "serviceAccountUID"),
        ("nodeName", "nodeUID"),
    ] {
        errors.messages(&spec.key(name), names::dns1123_subdomain(spec.key(name).text()));
        let uid = spec.key(uid);
        if uid.text().is_empty() {
            errors.invalid_value(&uid, "", "must not be empty");
        }
        if uid.text().len() > MAX_UID {
            errors.push(FieldError::too_long(uid.path.to_string(), MAX_UID));
        }
    }
    let seconds = spec.key("maxExpirationSeconds");
    let Some(asked) = seconds.int() else {
        errors.required(&seconds, "must be set");
        return errors.into_vec();
    };
    let domain = signer.text().split('/').next().unwrap_or_default();
    let is_of_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    let most = if is_of_kubernetes { 24 * HOUR } else { 91 * 24 * HOUR };
    if !(HOUR..=most).contains(&asked) {
        errors.invalid(&seconds, format!("must be in the range [{HOUR}, {most}]"));
    }
    let request = spec.key("stubPKCS10Request");
    let der = base64::decode(request.text()).unwrap_or_default();
    let (at, why) = match der.len() {
        0 => (
            &spec,
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
        ),
        length if length > MAX_REQUEST => {
            errors.push(FieldError::too_long(request.path.to_string(), MAX_REQUEST));
            return errors.into_vec();
        }
        _ => match SigningRequest::of_der(&der).and_then(|request| weakness(&request.key)) {
            Err(_) => (&request, "must be a valid PKCS#10 CSR"),
            Ok(Some((Some(shown), why))) => {
                errors.invalid_value(&request, shown.as_str(), why);
                return errors.into_vec();
            }
            Ok(Some((None, why))) => (&request, why),
            Ok(None) => return errors.into_vec(),
        },
    };
    errors.push(FieldError {
        bad_value: None,
        ..FieldError::invalid(at.path.to_string(), Value::Null, why)
    });
    errors.into_vec()
}

/// Why a key (`SubjectPublicKeyInfo`) is not one that pods may have: what is shown of it, and the reason.
fn weakness(key: &[u8]) -> Result<Option<(Option<String>, &'static str)>, &'static str> {
    const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    const P224: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x21];
    const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
    const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];
    const NULL: u8 = 0x05;
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    let mut parts = Reader::of_one(key, tag::SEQUENCE)?;
    let mut algorithm = parts.enter(tag::SEQUENCE)?;
    Ok(match algorithm.value(tag::IDENTIFIER)?.contents {
        ED25519 => {
            algorithm.end()?;
            None
        }
        ECDSA => match algorithm.value(tag::IDENTIFIER)?.contents {
            P256 | P384 | P521 => None,
            P224 => {
                let why = "elliptic public keys must use curve P256, P384, or P521";
                Some((Some("curve P-224".to_owned()), why))
            }
            _ => return Err("the elliptic curve is not known"), // as Go reads keys
        },
        RSA => {
            algorithm.value(NULL)?; // Go reads no RSA key without it
            let mut numbers = Reader::of_one(parts.bytes()?, tag::SEQUENCE)?;
            let modulus = numbers.value(tag::INTEGER)?.contents;
            let bits = 8 * modulus.iter().skip_while(|byte| **byte == 0).count();
            (![3072, 4096].contains(&bits)).then(|| {
                let why = "RSA keys must have modulus size 3072 or 4096";
                (Some(format!("{bits}-bit modulus")), why)
            })
        }
        _ => {
            let why = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
            Some((None, why))
        }
    })
}

/// The condition that ended a request.
fn end(object: &Value) -> Option<&str> {
    let list = At::root(object).keys(&["status", "conditions"]);
    let mut ended = list.items().filter(|one| one.key("status").text() == "True");
    ended.find_map(|one| ENDS.contains(&one.key("type").text()).then(|| one.key("type").text()))
}

/// `ValidatePodCertificateRequestStatusUpdate`, without the DNS names and mail addresses of the certificate.
fn pod_status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let status = At::root(new).key("status");
    let list = status.key("conditions");
    for (place, condition) in list.items().enumerate() {
        // Upstream writes a dot before the place.
        let part = |field: &str| {
            condition
                .key(field)
                .moved(FieldPath::new(format!("{}.[{place}].{field}", list.path)))
        };
        let kind = part("type");
        if !ENDS.contains(&kind.text()) {
            errors.unsupported(&kind, &ENDS);
            continue;
        }
        if place > 0 {
            errors.invalid(
                &kind,
                r#"There may be at most one condition with type "Issued", "Denied", or "Failed""#,
            );
        }
        if part("status").text() != "True" {
            errors.unsupported(&part("status"), &["True"]);
        }
    }
    conditions(&mut errors, &list);
    if !errors.is_empty() {
        return errors.into_vec();
    }
    let mut refuse = |why: &str| {
        errors.push(FieldError {
            bad_value: None,
            ..FieldError::invalid("status", Value::Null, why)
        });
    };
    let changed = get(new, &["status"]) != get(old, &["status"]);
    match (end(old), end(new)) {
        (Some(_), _) if changed => refuse("immutable after PodCertificateRequest is issued, denied, or failed"),
        (Some(_), _) => {}
        (None, Some("Issued")) => issued(&mut errors, &status, old),
        (None, Some(_)) if status.has_beyond(&["conditions"]) => {
            refuse("non-condition status fields must be empty when denying or failing the PodCertificateRequest");
        }
        (None, Some(_)) => {}
        (None, None) if changed => {
            refuse(r#"status is immutable unless transitioning to "Issued", "Denied", or "Failed""#);
        }
        (None, None) => {}
    }
    errors.into_vec()
}

/// The public key of a certificate or of a request for one, in which it stands behind so many other parts.
fn public_key(der: &[u8], behind: usize) -> Result<&[u8], &'static str> {
    Ok(parts_behind(der, behind)?.value(tag::SEQUENCE)?.contents)
}

/// What stands behind so many parts of a certificate or of a request for one, without the version of a certificate.
fn parts_behind(der: &[u8], behind: usize) -> Result<Reader<'_>, &'static str> {
    const VERSION: u8 = 0xa0;
    let mut parts = Reader::new(der).enter(tag::SEQUENCE)?.enter(tag::SEQUENCE)?;
    if parts.peek() == Some(VERSION) {
        parts.any()?;
    }
    for _ in 0..behind {
        parts.any()?;
    }
    Ok(parts)
}

fn issued(errors: &mut Errors, status: &At<'_>, old: &Value) {
    let chain = status.key("certificateChain");
    if chain.text().len() > MAX_CHAIN {
        return errors.push(FieldError::too_long(chain.path.to_string(), MAX_CHAIN));
    }
    let mut leaf = None;
    for block in pem::blocks(chain.text()) {
        if block.kind != "CERTIFICATE" {
            // As upstream writes it behind the leaf.
            let word = if leaf.is_none() { "CERTIFICATE" } else { "CERTFICATE" };
            let why = format!("issued certificate chain must consist entirely of {word} PEM blocks");
            return errors.invalid(&chain, why);
        }
        if one_certificate(&mut Reader::new(&block.bytes)).is_err() {
            let which = if leaf.is_none() { "leaf" } else { "intermediate" };
            return errors.invalid(&chain, format!("{which} certificate does not parse as valid X.509"));
        }
        let request = get(old, &["spec", "stubPKCS10Request"]).as_str().unwrap_or_default();
        let request = base64::decode(request).unwrap_or_default();
        if leaf.is_none() && public_key(&block.bytes, 5).ok() != public_key(&request, 2).ok() {
            return errors.invalid(&chain, "leaf certificate was not issued to the requested public key");
        }
        leaf.get_or_insert(block.bytes);
    }
    let Some(leaf) = leaf else {
        return errors.invalid(&chain, "issued certificate chain must contain at least one certificate");
    };
    let before = errors.len();
    let consistent = "must be present and consistent with the issued certificate";
    for (field, why) in [
        ("notBefore", consistent),
        ("notAfter", consistent),
        (
            "beginRefreshAt",
            "must be present and in the range [notbefore+10min, notafter-10min]",
        ),
    ] {
        if !status.key(field).present() {
            errors.required(&status.key(field), why);
        }
    }
    if errors.len() > before {
        return;
    }
    let Ok((since, until)) = validity(&leaf) else {
        return errors.invalid(&chain, "leaf certificate does not parse as valid X.509");
    };
    let read = |field: &str| status.key(field).text().parse::<Timestamp>();
    for (field, name, time) in [("notBefore", "NotBefore", since), ("notAfter", "NotAfter", until)] {
        if !read(field).is_ok_and(|said| said == time) {
            let why = format!("must be set to the {name} time encoded in the leaf certificate");
            return errors.invalid(&status.key(field), why);
        }
    }
    let (seconds, most) = (
        until.as_second() - since.as_second(),
        get(old, &["spec", "maxExpirationSeconds"])
            .as_i64()
            .unwrap_or(24 * HOUR),
    );
    let why = match seconds {
        ..HOUR => "leaf certificate lifetime must be >= 1 hour".to_owned(),
        _ if seconds > most => format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})"),
        _ => String::new(),
    };
    if !why.is_empty() {
        return errors.invalid_value(&chain, seconds.saturating_mul(1_000_000_000), why);
    }
    let refresh = status.key("beginRefreshAt");
    let Ok(begins) = read("beginRefreshAt") else {
        return;
    };
    if begins.as_second() < since.as_second() + 10 * 60 {
        errors.invalid(&refresh, "must be at least 10 minutes after status.notBefore");
    } else if begins.as_second() > until.as_second() - 10 * 60 {
        errors.invalid(&refresh, "must be at least 10 minutes before status.notAfter");
    }
}

/// Between which times a certificate is valid.
fn validity(der: &[u8]) -> Result<(Timestamp, Timestamp), &'static str> {
    // They stand behind the serial number, the algorithm and the issuer.
    let mut times = parts_behind(der, 3)?.enter(tag::SEQUENCE)?;
    Ok((time(&mut times)?, time(&mut times)?))
}

/// `UTCTime` and `GeneralizedTime`, each with seconds and in UTC (RFC 5280).
fn time(times: &mut Reader<'_>) -> Result<Timestamp, &'static str> {
    const UTC_TIME: u8 = 0x17;
    const WRONG: &str = "asn1: structure error: no time";
    let found = times.any()?;
    let mut text = std::str::from_utf8(found.contents).map_err(|_| WRONG)?.to_owned();
    if found.tag == UTC_TIME {
        text.insert_str(0, if text.as_str() < "50" { "20" } else { "19" });
    }
    if text.len() != "20260101000000Z".len() || !text.is_ascii() || !text.ends_with('Z') {
        return Err(WRONG);
    }
    let part = |from: usize| &text[from..from + 2];
    format!(
        "{}-{}-{}T{}:{}:{}Z",
        &text[..4],
        part(4),
        part(6),
        part(8),
        part(10),
        part(12)
    )
    .parse()
    .map_err(|_| WRONG)
}

#[cfg(test)]
mod tests {
    use ::base64::Engine as _;
    use ::base64::engine::general_purpose::STANDARD;
    use kubewright_model::facts::der;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(errors: Vec<FieldError>, expected: &[&str]) {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected);
    }

    #[test]
    fn bundles_are_named_after_their_signer_and_hold_authorities() {
        let of = |name: &str, signer: &str, text: &str| json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": text}});
        let omitted = "spec.trustBundle: Invalid value: \"<value omitted>\":";
        let none = format!("{omitted} at least one trust anchor must be provided");
        check(bundle(&of("a", "", ""), None), &[&none]);
        let old = of("a", "", "");
        check(bundle(&of("a", "", ""), Some(&old)), &[]);
        let name = "metadata.name: Invalid value: \"a:b\": ClusterTrustBundle without signer name must not have \":\" in its name";
        check(bundle(&of("a:b", "", ""), None), &[name, &none]);
        let name = "metadata.name: Invalid value: \"a\": ClusterTrustBundle for signerName x.io/s must be named with prefix x.io:s:";
        check(bundle(&of("a", "x.io/s", ""), None), &[name, &none]);
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let bad = format!("{omitted} entry 0 has bad block type: PRIVATE KEY");
        check(bundle(&of("x.io:s:a", "x.io/s", key), None), &[&bad]);
        let no = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        check(
            bundle(&of("a", "", no), None),
            &[&format!("{omitted} entry 0 does not parse as X.509")],
        );
    }

    #[test]
    fn keys_of_pods_are_strong() {
        let of = |algorithm: &[u8], parameter: &[u8], key: &[u8]| {
            let algorithm = der::value(tag::SEQUENCE, &[&der::value(tag::IDENTIFIER, &[algorithm]), parameter]);
            der::value(tag::SEQUENCE, &[&algorithm, &der::value(tag::BITS, &[&[0], key])])
        };
        let check = |algorithm: &[u8], parameter: &[u8], key: &[u8], expected: Option<(&str, &str)>| {
            let key = of(algorithm, parameter, key);
            let found = weakness(&key).expect("a key");
            let found = found
                .as_ref()
                .map(|(shown, why)| (shown.as_deref().unwrap_or("-"), *why));
            assert_eq!(found, expected);
        };
        let ecdsa = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
        let rsa = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
        let modulus = |bytes: usize| {
            let number = der::value(tag::INTEGER, &[&[0], &vec![0xff; bytes]]);
            der::value(tag::SEQUENCE, &[&number, &der::value(tag::INTEGER, &[&[3]])])
        };
        let curve = |last: u8| der::value(tag::IDENTIFIER, &[&[0x2b, 0x81, 0x04, 0x00, last]]);
        let null = der::value(0x05, &[]);
        check(&[0x2b, 0x65, 0x70], &[], &[7; 32], None);
        check(&ecdsa, &curve(0x23), &[4], None);
        let why = "elliptic public keys must use curve P256, P384, or P521";
        check(&ecdsa, &curve(0x21), &[4], Some(("curve P-224", why)));
        check(&rsa, &null, &modulus(384), None);
        let why = "RSA keys must have modulus size 3072 or 4096";
        check(&rsa, &null, &modulus(256), Some(("2048-bit modulus", why)));
        let why = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
        check(&[0x2b, 0x65, 0x6e], &[], &[7; 32], Some(("-", why)));
        // What Go does not read: secp256k1, RSA without NULL, Ed25519 with it.
        assert!(weakness(&of(&ecdsa, &curve(0x0a), &[4])).is_err());
        assert!(weakness(&of(&rsa, &[], &modulus(384))).is_err());
        assert!(weakness(&of(&[0x2b, 0x65, 0x70], &null, &[7; 32])).is_err());
    }

    #[test]
    fn certificates_have_the_times_of_the_status() {
        const NONE: &str = "";
        let wrong = |field: &str, value: &str, why: &str| format!("status.{field}: Invalid value: \"{value}\": {why}");
        let check = |dates: [(u8, &str); 2], said: [&str; 3], expected: &str| {
            let dates: Vec<u8> = dates
                .iter()
                .flat_map(|(kind, date)| der::value(*kind, &[date.as_bytes()]))
                .collect();
            let empty = der::value(tag::SEQUENCE, &[]);
            let number = der::value(tag::INTEGER, &[&[1]]);
            let dates = der::value(tag::SEQUENCE, &[&dates]);
            let body = [&number, &empty, &empty, &dates, &empty, &empty].map(Vec::as_slice);
            let bits = der::value(tag::BITS, &[&[0]]);
            let leaf = der::value(tag::SEQUENCE, &[&der::value(tag::SEQUENCE, &body), &empty, &bits]);
            let text = STANDARD.encode(&leaf);
            let chain = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
            let [since, until, refresh] = said;
            let status =
                json!({"certificateChain": chain, "notBefore": since, "notAfter": until, "beginRefreshAt": refresh});
            // The key of both is empty.
            let request = der::value(tag::SEQUENCE, &[&der::value(tag::SEQUENCE, &[&number, &empty, &empty])]);
            let old = json!({"spec": {"stubPKCS10Request": STANDARD.encode(&request), "maxExpirationSeconds": 7200}});
            let (mut errors, status) = (Errors::default(), json!({ "status": status }));
            issued(&mut errors, &At::root(&status).key("status"), &old);
            let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
            assert_eq!(found.join("; "), expected, "{said:?}");
        };
        let (utc, general) = (0x17, 0x18);
        let dates = [(utc, "260101000000Z"), (general, "20260101020000Z")];
        let [since, until, refresh] = ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z", "2026-01-01T01:00:00Z"];
        check(dates, [since, until, refresh], NONE);
        let why = "must be set to the NotBefore time encoded in the leaf certificate";
        check(dates, [refresh, until, refresh], &wrong("notBefore", refresh, why));
        let why = "must be set to the NotAfter time encoded in the leaf certificate";
        check(dates, [since, refresh, refresh], &wrong("notAfter", refresh, why));
        let why = "must be at least 10 minutes after status.notBefore";
        check(dates, [since, until, since], &wrong("beginRefreshAt", since, why));
        let why = "must be at least 10 minutes before status.notAfter";
        check(dates, [since, until, until], &wrong("beginRefreshAt", until, why));
        let short = [(utc, "260101010000Z"), (utc, "260101015959Z")];
        let why = "status.certificateChain: Invalid value: 3599000000000: leaf certificate lifetime must be >= 1 hour";
        check(short, [refresh, "2026-01-01T01:59:59Z", refresh], why);
        let long = [(utc, "260101000000Z"), (utc, "260101020001Z")];
        let why = "status.certificateChain: Invalid value: 7201000000000: leaf certificate lifetime must be <= spec.maxExpirationSeconds (7200)";
        check(long, [since, "2026-01-01T02:00:01Z", refresh], why);
    }

    #[test]
    fn requests_of_pods_end_once() {
        let status = |kind: &str, more: Value| {
            let mut status = json!({"conditions": [{"type": kind, "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
            if let (Some(status), Some(more)) = (status.as_object_mut(), more.as_object()) {
                status.extend(more.clone());
            }
            json!({ "status": status })
        };
        let open = json!({"status": {}});
        check(pod_status(&status("Denied", json!({})), &open), &[]);
        check(
            pod_status(&status("Failed", json!({"certificateChain": "x"})), &open),
            &[
                "status: Invalid value: non-condition status fields must be empty when denying or failing the PodCertificateRequest",
            ],
        );
        check(
            pod_status(&status("Issued", json!({})), &open),
            &[
                "status.certificateChain: Invalid value: null: issued certificate chain must contain at least one certificate",
            ],
        );
        check(
            pod_status(&open, &status("Denied", json!({}))),
            &["status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed"],
        );
        check(
            pod_status(&json!({"status": {"notBefore": "2026-01-01T00:00:00Z"}}), &open),
            &[r#"status: Invalid value: status is immutable unless transitioning to "Issued", "Denied", or "Failed""#],
        );
    }
}
