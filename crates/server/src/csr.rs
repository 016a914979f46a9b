//! Certificate signing requests (PKCS #10): the certificate that the cluster's authority makes of one.
//!
//! Invariant: of a request only the subject, the alternative names and the key enter the certificate; the API object
//! decides its usages, and it is never an authority (`PermissiveSigningPolicy`).

use std::time::Duration;

use rcgen::{CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};

/// The request as a certificate that may be used for `usages`, valid for `lifetime`; not signed yet.
pub(crate) fn prepared(
    pem: &[u8],
    usages: &[String],
    validity: impl FnOnce(Duration) -> rcgen::CertificateParams,
    lifetime: Duration,
) -> Result<CertificateSigningRequestParams, String> {
    let text = std::str::from_utf8(pem).map_err(|error| error.to_string())?;
    let mut request = CertificateSigningRequestParams::from_pem(text).map_err(|error| error.to_string())?;
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
