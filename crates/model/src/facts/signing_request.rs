//! A certificate signing request (PKCS#10), as a CertificateSigningRequest holds it.
//!
//! The one reader of them: what validation, admission and the approval of kubelets look at is this value, and the
//! signer takes subject, key and names out of it, never out of the text again. So it refuses every request that two
//! readers could take for two: texts with anything around the one block, values with something behind their last part,
//! extensions that are asked for twice. Upstream passes over some of these.
//!
//! Here: subject, key, alternative names, signature. Not here: whether the signature fits, which needs cryptography
//! (the signer checks it), and other attributes and extensions, which are passed over as upstream passes over them.
//!
//! Invariant: no input makes it panic.

use kubewright_schema::{base64, budget};

use super::der::{Reader, Value, tag};
use super::pem;
use super::subject::Subject;

/// The attributes of a request, `[0]`.
const ATTRIBUTES: u8 = 0xa0;
/// The attribute type `extensionRequest` (1.2.840.113549.1.9.14).
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
/// The extension `subjectAltName` (2.5.29.17).
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 17];

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SigningRequest {
    /// For whom.
    pub subject: Subject,
    /// The same as it stands there: a `Name`.
    pub name: Vec<u8>,
    /// The `SubjectPublicKeyInfo`.
    pub key: Vec<u8>,
    /// The alternative names that Kubernetes knows.
    pub names: AlternativeNames,
    /// What its signature signs: the `CertificationRequestInfo`.
    pub signed: Vec<u8>,
    /// The contents of the `AlgorithmIdentifier` of the signature.
    pub algorithm: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

/// Alternative names, by kind. Those of other kinds (`otherName`, registered ids) are passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    /// Names of DNS.
    pub dns: Vec<String>,
    /// Mail addresses.
    pub mails: Vec<String>,
    /// Addresses, each of 4 or 16 bytes.
    pub addresses: Vec<Vec<u8>>,
    /// URIs.
    pub uris: Vec<String>,
}

impl SigningRequest {
    /// Reads a request as it stands in JSON: base64 of a PEM block.
    ///
    /// # Errors
    /// As [`SigningRequest::of_pem`].
    pub fn read(text: &str) -> Result<SigningRequest, String> {
        let unreadable = |offset| format!("illegal base64 data at input byte {offset}");
        SigningRequest::of_pem(&base64::decode(text).map_err(unreadable)?)
    }

    /// Reads a request that is DER.
    ///
    /// # Errors
    /// Why it is no request.
    pub fn of_der(der: &[u8]) -> Result<SigningRequest, &'static str> {
        budget::spend_on_text(der.len());
        request(der)
    }

    /// Reads a request that is one PEM block.
    ///
    /// # Errors
    /// Why it is no request, in Go's words; they say less than Go's about what stands in a wrong place.
    pub fn of_pem(text: &[u8]) -> Result<SigningRequest, String> {
        const KIND: &str = "CERTIFICATE REQUEST";
        budget::spend_on_text(text.len());
        let Some(der) = pem::only(text, KIND) else {
            let text = String::from_utf8_lossy(text);
            let first = pem::blocks(&text).next();
            return Err(match first.is_some_and(|block| block.kind == KIND) {
                true => format!(
                    "the request must be exactly one PEM block of type {KIND}, with no headers and nothing before or after it"
                ),
                false => format!("PEM block type must be {KIND}"),
            });
        };
        Ok(request(&der)?)
    }
}

/// `CertificationRequest`.
fn request(der: &[u8]) -> Result<SigningRequest, &'static str> {
    let mut whole = Reader::of_one(der, tag::SEQUENCE)?;
    let signed = whole.value(tag::SEQUENCE)?;
    let mut info = Reader::new(signed.contents);
    info.enter(tag::INTEGER)?;
    let name = info.value(tag::SEQUENCE)?.whole;
    let key = info.value(tag::SEQUENCE)?.whole;
    let attributes = info.enter(ATTRIBUTES)?;
    info.end()?;
    let algorithm = whole.value(tag::SEQUENCE)?.contents;
    let signature = whole.bytes()?;
    whole.end()?;
    Ok(SigningRequest {
        subject: Subject::read(name)?,
        name: name.to_vec(),
        key: key.to_vec(),
        names: alternative_names(attributes)?,
        signed: signed.whole.to_vec(),
        algorithm: algorithm.to_vec(),
        signature: signature.to_vec(),
    })
}

/// Those of the extension that is requested (`parseCSRExtensions`, `parseSANExtension`).
fn alternative_names(mut attributes: Reader<'_>) -> Result<AlternativeNames, &'static str> {
    let mut requested = None;
    while !attributes.is_empty() {
        budget::spend(1);
        let mut attribute = attributes.enter(tag::SEQUENCE)?;
        let kind = attribute.value(tag::IDENTIFIER)?.contents;
        let mut values = attribute.enter(tag::SET)?;
        attribute.end()?;
        if kind != EXTENSION_REQUEST {
            continue;
        }
        if requested.replace(values.enter(tag::SEQUENCE)?).is_some() || !values.is_empty() {
            return Err("x509: certificate request contains duplicate requested extensions");
        }
    }
    let Some(mut extensions) = requested else {
        return Ok(AlternativeNames::default());
    };
    let (mut seen, mut names) = (std::collections::BTreeSet::new(), AlternativeNames::default());
    while !extensions.is_empty() {
        budget::spend(1);
        let mut extension = extensions.enter(tag::SEQUENCE)?;
        let kind = extension.value(tag::IDENTIFIER)?.contents;
        if extension.peek() == Some(tag::BOOLEAN) {
            extension.enter(tag::BOOLEAN)?;
        }
        let value = extension.value(tag::OCTETS)?;
        extension.end()?;
        if !seen.insert(kind) {
            return Err("x509: certificate request contains duplicate requested extensions");
        }
        if kind == ALTERNATIVE_NAMES {
            names = general_names(value)?;
        }
    }
    Ok(names)
}

/// `GeneralNames`, in the contents of an extension.
fn general_names(extension: Value<'_>) -> Result<AlternativeNames, &'static str> {
    let mut rest = Reader::of_one(extension.contents, tag::SEQUENCE)?;
    let mut names = AlternativeNames::default();
    while !rest.is_empty() {
        budget::spend(1);
        let name = rest.any()?;
        let text = || match std::str::from_utf8(name.contents) {
            Ok(text) if text.is_ascii() => Ok(text.to_owned()),
            _ => Err("x509: SAN is malformed"),
        };
        match name.tag {
            0x81 => names.mails.push(text()?),
            0x82 => names.dns.push(text()?),
            0x86 => names.uris.push(text()?),
            0x87 if matches!(name.contents.len(), 4 | 16) => names.addresses.push(name.contents.to_vec()),
            0x87 => return Err("x509: cannot parse IP address of another length than 4 or 16"),
            _ => {}
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
