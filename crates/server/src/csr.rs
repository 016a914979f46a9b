//! The certificate that the cluster's authority makes of a signing request.
//!
//! Invariant: of a request only the subject, the alternative names and the key enter the certificate, as they stood in
//! the request that was checked; the API object decides its usages, and it is never an authority
//! (`PermissiveSigningPolicy`). Upstream writes the subject anew from its fields; the groups and the user are the same.

use std::net::IpAddr;

use kubewright_apiserver::model::facts::der::{self, Reader, tag};
use kubewright_apiserver::model::facts::signing_request::SigningRequest;
use kubewright_apiserver::model::facts::subject::without_uids;
use rcgen::{
    CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
    SigningKey as _, SubjectPublicKeyInfo,
};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::signatures::Key;

/// The certificate (DER) of a request that may be used for `usages`; `params` say how long it is valid.
pub(crate) fn certificate(
    request: &SigningRequest,
    usages: &[String],
    mut params: CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<Vec<u8>, String> {
    let said = |error: rcgen::Error| error.to_string();
    let own = Key::of(&request.key)?.signed_request(&request.signed, &request.algorithm, &request.signature);
    if !own {
        let why = "it is not of the key in the request, or of an algorithm that is not supported";
        return Err(format!("unable to verify certificate request signature: {why}"));
    }
    (params.is_ca, params.use_authority_key_identifier_extension) = (IsCa::ExplicitNoCa, true);
    for usage in usages {
        match usage_of(usage).ok_or_else(|| format!("unrecognized usage values: [{usage:?}]"))? {
            Usage::Key(usage) if !params.key_usages.contains(&usage) => params.key_usages.push(usage),
            Usage::Extended(usage) if !params.extended_key_usages.contains(&usage) => {
                params.extended_key_usages.push(usage);
            }
            _ => {}
        }
    }
    params.subject_alt_names = alternative_names(request).map_err(said)?;
    params.serial_number = Some(serial()?);
    let key = SubjectPublicKeyInfo::from_der(&request.key).map_err(said)?;
    let made = params.signed_by(&key, issuer).map_err(said)?;
    let body = with_subject(made.der(), &without_uids(&request.name)?, &request.key)?;
    signed(&body, made.der(), issuer)
}

/// The body (`TBSCertificate`) of a certificate, with this subject and key, each as it stands in the request: rcgen's
/// names have one attribute of each type.
fn with_subject(certificate: &[u8], name: &[u8], key: &[u8]) -> Result<Vec<u8>, &'static str> {
    const SUBJECT: usize = 5;
    let mut parts = Reader::new(certificate).enter(tag::SEQUENCE)?.enter(tag::SEQUENCE)?;
    let mut all = Vec::new();
    while !parts.is_empty() {
        all.push(parts.any()?.whole);
    }
    // Version, serial number, algorithm, issuer, validity, subject, key, extensions.
    let [before @ .., _, _, extensions] = all.as_slice() else {
        return Err("x509: malformed certificate");
    };
    debug_assert_eq!(before.len(), SUBJECT, "a certificate of version 3");
    Ok(der::value(tag::SEQUENCE, &[before, &[name, key, extensions]].concat()))
}

/// The certificate of this body, signed under the algorithm of `sample`, another of the same issuer.
fn signed(body: &[u8], sample: &[u8], issuer: &Issuer<'_, KeyPair>) -> Result<Vec<u8>, String> {
    let mut parts = Reader::new(sample).enter(tag::SEQUENCE)?;
    parts.any()?;
    let algorithm = parts.value(tag::SEQUENCE)?.whole;
    let signature = issuer.key().sign(body).map_err(|error| error.to_string())?;
    let bits = der::value(tag::BITS, &[&[0], &signature]);
    Ok(der::value(tag::SEQUENCE, &[body, algorithm, &bits]))
}

/// Those of the request, in upstream's order of kinds.
fn alternative_names(request: &SigningRequest) -> Result<Vec<SanType>, rcgen::Error> {
    let names = &request.names;
    let mut all = Vec::new();
    for name in &names.dns {
        all.push(SanType::DnsName(name.as_str().try_into()?));
    }
    for name in &names.mails {
        all.push(SanType::Rfc822Name(name.as_str().try_into()?));
    }
    for bytes in &names.addresses {
        let v4 = <[u8; 4]>::try_from(bytes.as_slice()).map(IpAddr::from);
        let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes.as_slice()).map(IpAddr::from));
        debug_assert!(address.is_ok(), "addresses are of 4 or 16 bytes");
        all.extend(address.ok().map(SanType::IpAddress));
    }
    for name in &names.uris {
        all.push(SanType::URI(name.as_str().try_into()?));
    }
    Ok(all)
}

/// A random number of 127 bits: two certificates of one key have two.
fn serial() -> Result<SerialNumber, &'static str> {
    let mut bytes = [0; 16];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "unable to generate a serial number: no entropy")?;
    bytes[0] &= 0x7f;
    Ok(SerialNumber::from_slice(&bytes))
}

enum Usage {
    Key(KeyUsagePurpose),
    Extended(ExtendedKeyUsagePurpose),
}

/// `keyUsagesFromStrings`.
fn usage_of(usage: &str) -> Option<Usage> {
    let other = |id: &[u64]| ExtendedKeyUsagePurpose::Other(id.to_vec());
    Some(match usage {
        "signing" | "digital signature" => Usage::Key(KeyUsagePurpose::DigitalSignature),
        "content commitment" => Usage::Key(KeyUsagePurpose::ContentCommitment),
        "key encipherment" => Usage::Key(KeyUsagePurpose::KeyEncipherment),
        "key agreement" => Usage::Key(KeyUsagePurpose::KeyAgreement),
        "data encipherment" => Usage::Key(KeyUsagePurpose::DataEncipherment),
        "cert sign" => Usage::Key(KeyUsagePurpose::KeyCertSign),
        "crl sign" => Usage::Key(KeyUsagePurpose::CrlSign),
        "encipher only" => Usage::Key(KeyUsagePurpose::EncipherOnly),
        "decipher only" => Usage::Key(KeyUsagePurpose::DecipherOnly),
        "any" => Usage::Extended(ExtendedKeyUsagePurpose::Any),
        "server auth" => Usage::Extended(ExtendedKeyUsagePurpose::ServerAuth),
        "client auth" => Usage::Extended(ExtendedKeyUsagePurpose::ClientAuth),
        "code signing" => Usage::Extended(ExtendedKeyUsagePurpose::CodeSigning),
        "email protection" | "s/mime" => Usage::Extended(ExtendedKeyUsagePurpose::EmailProtection),
        "ipsec end system" => Usage::Extended(other(&[1, 3, 6, 1, 5, 5, 7, 3, 5])),
        "ipsec tunnel" => Usage::Extended(other(&[1, 3, 6, 1, 5, 5, 7, 3, 6])),
        "ipsec user" => Usage::Extended(other(&[1, 3, 6, 1, 5, 5, 7, 3, 7])),
        "timestamping" => Usage::Extended(ExtendedKeyUsagePurpose::TimeStamping),
        "ocsp signing" => Usage::Extended(ExtendedKeyUsagePurpose::OcspSigning),
        "microsoft sgc" => Usage::Extended(other(&[1, 3, 6, 1, 4, 1, 311, 10, 3, 3])),
        "netscape sgc" => Usage::Extended(other(&[2, 16, 840, 1, 113_730, 4, 1])),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use kubewright_apiserver::model::facts::subject::UID;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use std::time::Duration;
    use x509_parser::prelude::{FromDer as _, X509Certificate};

    use super::*;
    use crate::certificates::Authority;
    use crate::clients::made::{COMMON_NAME, ORGANIZATION, Party, extension, name};
    use crate::signatures;

    fn party(attributes: &[(&[u8], u8, &[u8])]) -> Party {
        Party {
            name: name(attributes),
            ..Party::new("")
        }
    }

    fn certify(authority: &Authority, request: &SigningRequest, usages: &[&str]) -> Result<Vec<u8>, String> {
        let usages: Vec<String> = usages.iter().map(|&usage| usage.to_owned()).collect();
        let made = authority.certify(request, &usages, Duration::from_secs(3600))?;
        Ok(CertificateDer::from_pem_slice(made.as_bytes()).expect("PEM").to_vec())
    }

    /// An attribute that asks for these extensions.
    fn asks(extensions: &[Vec<u8>]) -> Vec<u8> {
        let kind = der::value(
            tag::IDENTIFIER,
            &[&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e]],
        );
        let extensions = der::value(tag::SEQUENCE, &[&extensions.concat()]);
        der::value(tag::SEQUENCE, &[&kind, &der::value(tag::SET, &[&extensions])])
    }

    #[test]
    fn the_subject_is_signed_as_it_stood() {
        let authority = Authority::new().expect("an authority");
        let check = |before: &[(&[u8], u8, &[u8])], after: &[(&[u8], u8, &[u8])]| {
            let party = party(before);
            let request = SigningRequest::of_pem(party.requests(&[]).as_bytes()).expect("a request");
            let made = certify(&authority, &request, &["client auth"]).expect("a certificate");
            let (rest, read) = X509Certificate::from_der(&made).expect("a certificate");
            assert!(rest.is_empty());
            assert_eq!(read.subject().as_raw(), name(after));
            assert_eq!(read.public_key().raw, request.key);
            assert_eq!(read.issuer().to_string(), "CN=kubewright-ca");
        };
        let all: &[(&[u8], u8, &[u8])] = &[
            (ORGANIZATION, 0x13, b"dev"),
            (COMMON_NAME, 0x0c, b"first"),
            (ORGANIZATION, 0x0c, b"ops"),
            (&[0x55, 4, 11], 0x16, b"unit"),
            (&[0x55, 4, 11], 0x1e, b"\0u"),
            (COMMON_NAME, 0x14, b"jane"),
            (ORGANIZATION, 0x0c, b"ops"),
        ];
        check(all, all);
        check(&[], &[]);
        // But for a UID, which no approver looks at.
        check(&[&[(UID, 0x0c, b"root".as_slice())], all].concat(), all);
    }

    #[test]
    fn extensions_are_upstreams() {
        let authority = Authority::new().expect("an authority");
        let names = [
            (0x88, b"\x2a".as_slice()),
            (0x86, b"spiffe://a/b"),
            (0x87, &[10, 0, 0, 1]),
            (0x82, b"a.b"),
            (0x81, b"a@b"),
        ];
        let names: Vec<u8> = names
            .iter()
            .flat_map(|(kind, text)| der::value(*kind, &[text]))
            .collect();
        let attributes = asks(&[
            extension(99, true, b"?"),
            // To be an authority, and to sign certificates.
            extension(19, true, &[0x30, 3, 1, 1, 0xff]),
            extension(15, true, &[3, 2, 2, 4]),
            extension(17, false, &der::value(tag::SEQUENCE, &[&names])),
        ]);
        let party = Party::new("jane");
        let request = SigningRequest::of_pem(party.requests(&attributes).as_bytes()).expect("a request");
        let made = certify(
            &authority,
            &request,
            &["ipsec user", "digital signature", "client auth", "signing"],
        );
        let made = made.expect("a certificate");
        let (_, read) = X509Certificate::from_der(&made).expect("a certificate");
        let kinds: Vec<String> = read.extensions().iter().map(|one| one.oid.to_id_string()).collect();
        assert!(!kinds.contains(&"2.5.29.99".to_owned()), "{kinds:?}");
        assert!(!read.is_ca());
        let usage = read.key_usage().expect("readable").expect("there").value;
        assert!(usage.digital_signature() && !usage.key_cert_sign(), "{usage}");
        let usage = read.extended_key_usage().expect("readable").expect("there").value;
        assert!(usage.client_auth && usage.other.len() == 1, "{usage:?}");
        let names = read.subject_alternative_name().expect("readable").expect("there").value;
        let names: Vec<String> = names.general_names.iter().map(ToString::to_string).collect();
        let wanted = [
            "DNSName(a.b)",
            "RFC822Name(a@b)",
            "IPAddress(0a:00:00:01)",
            "URI(spiffe://a/b)",
        ];
        assert_eq!(names, wanted);
        let again = certify(&authority, &request, &["client auth"]).expect("a certificate");
        let (_, again) = X509Certificate::from_der(&again).expect("a certificate");
        assert_ne!(read.raw_serial(), again.raw_serial());
    }

    #[test]
    fn what_is_not_signed() {
        let authority = Authority::new().expect("an authority");
        let (ours, theirs) = (Party::new("jane"), Party::with_ed25519("jane"));
        let read = |party: &Party| SigningRequest::of_pem(party.requests(&[]).as_bytes()).expect("a request");
        let check = |request: SigningRequest, usages: &[&str], why: &str| {
            let said = certify(&authority, &request, usages).err().unwrap_or_default();
            assert!(said.starts_with(why) && said.is_empty() == why.is_empty(), "{said}");
            assert_eq!(signatures::proves(&request), !why.contains("signature"), "{why}");
        };
        check(read(&ours), &["client auth"], "");
        check(read(&theirs), &["client auth"], "");
        let another = SigningRequest {
            key: read(&theirs).key,
            ..read(&ours)
        };
        check(another, &[], "unable to verify certificate request signature");
        let unsigned = SigningRequest {
            signature: vec![0; 64],
            ..read(&theirs)
        };
        check(unsigned, &[], "unable to verify certificate request signature");
        check(read(&ours), &["client auth", "x"], "unrecognized usage values: [\"x\"]");
    }
}
