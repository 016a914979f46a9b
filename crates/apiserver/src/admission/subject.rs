//! The subject of a PKCS#10 request: the user for whom a certificate is requested. Its organizations are groups to
//! Kubernetes, its common name the user.
//!
//! Invariant: no input makes it panic.

use kubewright_schema::base64;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::request::CertReq;

/// The attribute type `commonName`.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
/// The attribute type `organizationName`.
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// The organizations of a request as it stands in JSON: base64 of a PEM block.
///
/// # Errors
/// Why it is no request.
pub(super) fn organizations(request: &str) -> Result<Vec<String>, String> {
    parts(request, ORGANIZATION)
}

/// The common name of a request in the same form; empty when it has none.
///
/// # Errors
/// Why it is no request.
pub(super) fn common_name(request: &str) -> Result<String, String> {
    // Go keeps the last one that a subject has.
    Ok(parts(request, COMMON_NAME)?.pop().unwrap_or_default())
}

fn unreadable(offset: usize) -> String {
    format!("illegal base64 data at input byte {offset}")
}

/// The values of one attribute type in the subject.
fn parts(request: &str, wanted: ObjectIdentifier) -> Result<Vec<String>, String> {
    let pem = base64::decode(request).map_err(unreadable)?;
    let pem = String::from_utf8_lossy(&pem);
    let block = pem.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let (block, _) = block.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let block: String = block.chars().filter(|c| !c.is_whitespace()).collect();
    let der = base64::decode(&block).map_err(unreadable)?;
    read(&der, wanted).ok_or_else(|| "asn1: structure error: the request is malformed".to_owned())
}

/// The attributes of a type in the subject, in any string encoding.
fn read(der: &[u8], wanted: ObjectIdentifier) -> Option<Vec<String>> {
    let request = CertReq::from_der(der).ok()?;
    let attributes = request.info.subject.0.iter().flat_map(|names| names.0.iter());
    let found = attributes.filter(|attribute| attribute.oid == wanted);
    Some(
        found
            .map(|name| String::from_utf8_lossy(name.value.value()).into_owned())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use ::base64::Engine as _;
    use ::base64::engine::general_purpose::STANDARD;

    use super::*;

    fn check(request: &str, want: Result<&[&str], &str>) {
        let found = organizations(&STANDARD.encode(request));
        let found = found
            .as_ref()
            .map(|list| list.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(found.as_deref().map_err(|why| why.as_str()), want, "{request}");
    }

    #[test]
    fn groups_are_found() {
        let masters = include_str!("../../testdata/masters.csr.pem");
        check(masters, Ok(&["system:masters", "devs"]));
        check("x", Err("PEM block type must be CERTIFICATE REQUEST"));
        let cut = format!("{BEGIN}\nMIIB\n{END}");
        check(&cut, Err("asn1: structure error: the request is malformed"));
    }
}
