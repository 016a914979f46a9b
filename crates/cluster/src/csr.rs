//! Certificate signing requests (PKCS #10): their contents, and the certificate that the cluster's authority makes of
//! one.
//!
//! Invariant: of a request only the subject, the alternative names and the key enter the certificate; the API object
//! decides its usages, and it is never an authority (`PermissiveSigningPolicy`).

use std::time::Duration;

use rcgen::{
    CertificateSigningRequestParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType,
};

/// The contents of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The common name of the subject.
    pub common_name: String,
    /// Its organizations.
    pub organizations: Vec<String>,
    /// How many alternative names are DNS names.
    pub dns_names: usize,
    /// How many are addresses.
    pub addresses: usize,
    /// How many are mail addresses.
    pub mails: usize,
    /// How many are URIs.
    pub uris: usize,
}

impl Wish {
    /// Reads a request in PEM.
    ///
    /// # Errors
    /// Why it cannot be read, in words.
    pub fn read(pem: &[u8]) -> Result<Wish, String> {
        let params = parse(pem)?.params;
        let mut wish = Wish::default();
        for (kind, value) in params.distinguished_name.iter() {
            let text = match value {
                DnValue::Utf8String(text) => text.clone(),
                DnValue::PrintableString(text) => text.as_str().to_owned(),
                DnValue::Ia5String(text) => text.as_str().to_owned(),
                _ => continue,
            };
            match kind {
                DnType::CommonName => wish.common_name = text,
                DnType::OrganizationName => wish.organizations.push(text),
                _ => {}
            }
        }
        for name in &params.subject_alt_names {
            let count = match name {
                SanType::DnsName(_) => &mut wish.dns_names,
                SanType::IpAddress(_) => &mut wish.addresses,
                SanType::Rfc822Name(_) => &mut wish.mails,
                SanType::URI(_) => &mut wish.uris,
                _ => continue,
            };
            *count = count.saturating_add(1);
        }
        Ok(wish)
    }
}

fn parse(pem: &[u8]) -> Result<CertificateSigningRequestParams, String> {
    let text = std::str::from_utf8(pem).map_err(|error| error.to_string())?;
    CertificateSigningRequestParams::from_pem(text).map_err(|error| error.to_string())
}

/// The request as a certificate that may be used for `usages`, valid for `lifetime`; not signed yet.
pub(crate) fn prepared(
    pem: &[u8],
    usages: &[String],
    validity: impl FnOnce(Duration) -> rcgen::CertificateParams,
    lifetime: Duration,
) -> Result<CertificateSigningRequestParams, String> {
    let mut request = parse(pem)?;
    let dates = validity(lifetime);
    let params = &mut request.params;
    (params.not_before, params.not_after) = (dates.not_before, dates.not_after);
    (params.is_ca, params.use_authority_key_identifier_extension) = (IsCa::ExplicitNoCa, true);
    params.key_usages = usages.iter().filter_map(|usage| key_usage(usage)).collect();
    params.extended_key_usages = usages.iter().filter_map(|usage| extended_usage(usage)).collect();
    Ok(request)
}

fn key_usage(usage: &str) -> Option<KeyUsagePurpose> {
    Some(match usage {
        "signing" | "digital signature" => KeyUsagePurpose::DigitalSignature,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "cert sign" => KeyUsagePurpose::KeyCertSign,
        "crl sign" => KeyUsagePurpose::CrlSign,
        "encipher only" => KeyUsagePurpose::EncipherOnly,
        "decipher only" => KeyUsagePurpose::DecipherOnly,
        _ => return None,
    })
}

fn extended_usage(usage: &str) -> Option<ExtendedKeyUsagePurpose> {
    Some(match usage {
        "any" => ExtendedKeyUsagePurpose::Any,
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "code signing" => ExtendedKeyUsagePurpose::CodeSigning,
        "email protection" | "s/mime" => ExtendedKeyUsagePurpose::EmailProtection,
        "timestamping" => ExtendedKeyUsagePurpose::TimeStamping,
        "ocsp signing" => ExtendedKeyUsagePurpose::OcspSigning,
        _ => return None,
    })
}
