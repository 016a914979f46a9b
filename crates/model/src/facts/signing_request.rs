//! A PKCS#10 request: whether it is one, and the subject for whom a certificate is requested. Its organizations are
//! groups to Kubernetes, its common name the user.
//!
//! A reader of DER of its own: those at hand sort the sets in it, which for sets in another order takes minutes. This
//! one reads each byte once, and looks no deeper than the subject. Not here: the key, the extensions, the signature.
//!
//! Invariant: no input makes it panic.

use kubewright_schema::{base64, budget};

use super::pem;

/// The attribute type `commonName` (2.5.4.3).
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// The attribute type `organizationName` (2.5.4.10).
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

/// Tags of DER.
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const ATTRIBUTES: u8 = 0xa0;

/// What is read of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SigningRequest {
    /// Its organizations, in any encoding of strings.
    pub organizations: Vec<String>,
    /// Its common name, the last one as for Go; empty when it has none.
    pub common_name: String,
}

impl SigningRequest {
    /// Reads a request as it stands in JSON: base64 of a PEM block.
    ///
    /// # Errors
    /// Why it is no request, in Go's words; they say less than Go's about what stands in a wrong place.
    pub fn read(text: &str) -> Result<SigningRequest, String> {
        let unreadable = |offset| format!("illegal base64 data at input byte {offset}");
        let text = base64::decode(text).map_err(unreadable)?;
        budget::spend_on_text(text.len());
        let block = pem::blocks(&String::from_utf8_lossy(&text))
            .next()
            .filter(|block| block.kind == "CERTIFICATE REQUEST")
            .map(|block| block.bytes);
        let der = block.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
        Ok(request(&der)?)
    }
}

/// `CertificationRequest`.
fn request(der: &[u8]) -> Result<SigningRequest, &'static str> {
    let mut all = Reader(der);
    let mut whole = all.enter(SEQUENCE)?;
    if !all.0.is_empty() {
        return Err("asn1: syntax error: trailing data");
    }
    let mut info = whole.enter(SEQUENCE)?;
    info.enter(INTEGER)?;
    let subject = info.enter(SEQUENCE)?;
    info.enter(SEQUENCE)?;
    info.enter(ATTRIBUTES)?;
    whole.enter(SEQUENCE)?;
    whole.enter(BITS)?;
    names(subject)
}

/// `RDNSequence`.
fn names(mut subject: Reader<'_>) -> Result<SigningRequest, &'static str> {
    let mut found = SigningRequest::default();
    while !subject.0.is_empty() {
        let mut together = subject.enter(SET)?;
        while !together.0.is_empty() {
            budget::spend(1);
            let mut attribute = together.enter(SEQUENCE)?;
            let kind = attribute.enter(IDENTIFIER)?.0;
            let (_, value) = attribute.next()?;
            let text = || String::from_utf8_lossy(value).into_owned();
            match kind {
                COMMON_NAME => found.common_name = text(),
                ORGANIZATION => found.organizations.push(text()),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// The rest of a value in DER.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The contents of the next value, which has this tag.
    fn enter(&mut self, wanted: u8) -> Result<Reader<'a>, &'static str> {
        match self.next()? {
            (tag, contents) if tag == wanted => Ok(Reader(contents)),
            _ => Err("asn1: structure error: tags don't match"),
        }
    }

    /// Tag and contents of the next value.
    fn next(&mut self) -> Result<(u8, &'a [u8]), &'static str> {
        const TRUNCATED: &str = "asn1: syntax error: data truncated";
        let [tag, first, rest @ ..] = self.0 else {
            return Err("asn1: syntax error: sequence truncated");
        };
        let (length, rest) = match first {
            0..0x80 => (usize::from(*first), rest),
            0x80 => return Err("asn1: syntax error: indefinite length found (not DER)"),
            long => {
                let count = usize::from(long & 0x7f);
                let (digits, rest) = rest
                    .split_at_checked(count)
                    .ok_or("asn1: syntax error: truncated tag or length")?;
                (length(digits)?, rest)
            }
        };
        let (contents, rest) = rest.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok((*tag, contents))
    }
}

/// A length of several bytes.
fn length(digits: &[u8]) -> Result<usize, &'static str> {
    let mut length = 0;
    for digit in digits {
        if length >= 1 << 23 {
            return Err("asn1: structure error: length too large");
        }
        length = (length << 8) | usize::from(*digit);
        if length == 0 {
            return Err("asn1: structure error: superfluous leading zeros in length");
        }
    }
    if length < 0x80 {
        return Err("asn1: structure error: non-minimal length");
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use ::base64::Engine as _;
    use ::base64::engine::general_purpose::STANDARD;

    use super::*;

    fn check(request: &str, want: Result<(&[&str], &str), &str>) {
        let found = SigningRequest::read(&STANDARD.encode(request));
        let want = want.map(|(organizations, common_name)| SigningRequest {
            organizations: organizations.iter().map(|&name| name.to_owned()).collect(),
            common_name: common_name.to_owned(),
        });
        assert_eq!(
            found.as_ref().map_err(String::as_str),
            want.as_ref().map_err(|why| *why),
            "{request:.200}"
        );
    }

    fn block(der: &[u8]) -> String {
        let text = STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
    }

    /// A value of this tag.
    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        let length = u32::try_from(contents.len()).unwrap().to_be_bytes();
        let leading = length.iter().take_while(|digit| **digit == 0).count().min(3);
        let used = &length[leading..];
        let mut made = vec![tag];
        if contents.len() >= 0x80 {
            made.push(0x80 | u8::try_from(used.len()).unwrap());
        }
        made.extend(used);
        made.extend(contents);
        made
    }

    /// A request for this subject.
    fn for_subject(subject: &[u8]) -> Vec<u8> {
        let empty = [der(SEQUENCE, &[5, 0]), der(ATTRIBUTES, &[4, 0])].concat();
        let info = [der(INTEGER, &[0]), der(SEQUENCE, subject), empty].concat();
        let signed = [der(SEQUENCE, &info), der(SEQUENCE, &[5, 0]), der(BITS, &[0])].concat();
        der(SEQUENCE, &signed)
    }

    fn organization(name: &str) -> Vec<u8> {
        let attribute = [der(IDENTIFIER, ORGANIZATION), der(0x0c, name.as_bytes())].concat();
        der(SEQUENCE, &attribute)
    }

    /// Words as those of kube-apiserver 1.36, but where tags differ.
    #[test]
    fn the_subject_is_found() {
        let masters = include_str!("../../testdata/masters.csr.pem");
        check(masters, Ok((&["system:masters", "devs"], "x")));
        check(
            &format!("words before\n{masters}"),
            Ok((&["system:masters", "devs"], "x")),
        );
        let no_block = "PEM block type must be CERTIFICATE REQUEST";
        check("x", Err(no_block));
        check(&masters.replace(" REQUEST", ""), Err(no_block));
        check(&block(b"").replace('\n', "\n!"), Err(no_block));
        check(
            &block(&[0x30, 0x80, 0x30, 0x80]),
            Err("asn1: syntax error: indefinite length found (not DER)"),
        );
        check(
            &block(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]),
            Err("asn1: structure error: length too large"),
        );
        check(&block(&[0x30, 3, 0x30]), Err("asn1: syntax error: data truncated"));
        check(
            &block(&[0x30, 0x84, 0xff]),
            Err("asn1: syntax error: truncated tag or length"),
        );
        check(
            &block(&[0x30, 3, 0x02, 1, 0]),
            Err("asn1: structure error: tags don't match"),
        );
        let more = [for_subject(&organization("")[..0]), vec![0]].concat();
        check(&block(&more), Err("asn1: syntax error: trailing data"));
    }

    /// A set whose members stand in the wrong order is read as fast as any other, and as Go reads it.
    #[test]
    fn sets_are_not_sorted() {
        let count = 60_000;
        let names: Vec<String> = (0..count).rev().map(|number| format!("o{number}")).collect();
        let set: Vec<u8> = names.iter().flat_map(|name| organization(name)).collect();
        let request = SigningRequest::read(&STANDARD.encode(block(&for_subject(&der(SET, &set)))));
        assert_eq!(request.map(|request| request.organizations), Ok(names));
    }
}
