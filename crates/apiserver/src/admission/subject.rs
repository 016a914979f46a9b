//! For whom a certificate is requested: the organizations in the subject of a PKCS#10 request, which are groups to Kubernetes.
//!
//! Reads just as much of the DER as leads to the subject. Invariant: no input makes it panic.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// The attribute type `organizationName` (2.5.4.10).
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];
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

fn read(der: &[u8]) -> Option<Vec<String>> {
    // CertificationRequest { CertificationRequestInfo { version, subject, … }, … }
    let (request, _) = expect(SEQUENCE, der)?;
    let (info, _) = expect(SEQUENCE, request)?;
    let (_, _, rest) = element(info)?;
    let (mut subject, _) = expect(SEQUENCE, rest)?;
    let mut found = Vec::new();
    while !subject.is_empty() {
        let (_, mut set, rest) = element(subject)?;
        while !set.is_empty() {
            let (attribute, others) = expect(SEQUENCE, set)?;
            let (kind, value) = expect(OBJECT_IDENTIFIER, attribute)?;
            let (_, text, _) = element(value)?;
            if kind == ORGANIZATION {
                found.push(String::from_utf8_lossy(text).into_owned());
            }
            set = others;
        }
        subject = rest;
    }
    Some(found)
}

/// The content of an element of this tag, and what follows it.
fn expect(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(der)?;
    (found == tag).then_some((content, rest))
}

/// Tag, content and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        let length = bytes.iter().try_fold(0_usize, |length, byte| {
            length.checked_mul(256)?.checked_add(usize::from(*byte))
        });
        (length?, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
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
