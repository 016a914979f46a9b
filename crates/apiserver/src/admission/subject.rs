//! For whom a certificate is requested: the organizations in the subject of a PKCS#10 request, which are groups to Kubernetes.
//!
//! Invariant: no input makes it panic.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::request::CertReq;

/// The attribute type `organizationName`.
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// The organizations of a request as it stands in JSON: base64 of a PEM block.
///
/// # Errors
/// Why it is no request.
pub(super) fn organizations(request: &str) -> Result<Vec<String>, String> {
    let pem = STANDARD.decode(request).map_err(|error| error.to_string())?;
    let pem = String::from_utf8_lossy(&pem);
    let block = pem.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let (block, _) = block.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let block: String = block.chars().filter(|c| !c.is_whitespace()).collect();
    let der = STANDARD.decode(block).map_err(|error| error.to_string())?;
    read(&der).ok_or_else(|| "asn1: structure error: the request is malformed".to_owned())
}

/// The organizations in the subject, whatever kind of string each is.
fn read(der: &[u8]) -> Option<Vec<String>> {
    let request = CertReq::from_der(der).ok()?;
    let attributes = request.info.subject.0.iter().flat_map(|names| names.0.iter());
    let organizations = attributes.filter(|attribute| attribute.oid == ORGANIZATION);
    Some(
        organizations
            .map(|name| String::from_utf8_lossy(name.value.value()).into_owned())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
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
