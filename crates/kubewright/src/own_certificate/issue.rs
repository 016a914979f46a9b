//! Makes certificates, and judges them.
//!
//! Invariants: an authority signs one certificate, and its key is forgotten at once, so that there is nothing to steal
//! with which others could be signed. A certificate is good for the Services of one namespace. A certificate is judged
//! as a client would: chain, names, time.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

/// How long a certificate is good for.
pub(super) const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
/// How long before its end it is replaced.
pub(super) const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Clocks differ.
const BACKDATED: Duration = Duration::from_secs(3600);

/// An authority's certificate with the one that it signed, in PEM.
pub(super) struct Issued {
    pub(super) authority: String,
    pub(super) certificate: String,
    pub(super) key: String,
}

/// Makes an authority and a certificate for the Services of a namespace.
pub(super) fn issue(namespace: &str, now: Duration, lifetime: Duration) -> Result<Issued, rcgen::Error> {
    let dated = |name: &str| {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let mut params = CertificateParams::default();
        params.not_before = epoch + now.saturating_sub(BACKDATED);
        params.not_after = epoch + now + lifetime;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let mut authority = dated("kubewright webhooks");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let signer = KeyPair::generate()?;
    let signed_by_itself = authority.self_signed(&signer)?;
    let key = KeyPair::generate()?;
    let mut params = dated("webhooks");
    for name in names(namespace) {
        params.subject_alt_names.push(rcgen::SanType::DnsName(name.try_into()?));
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, &Issuer::from_params(&authority, &signer))?;
    Ok(Issued {
        authority: signed_by_itself.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// The names by which an API server calls the Services of a namespace.
fn names(namespace: &str) -> [String; 2] {
    [format!("*.{namespace}.svc"), format!("*.{namespace}.svc.cluster.local")]
}

/// How good a certificate is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Health {
    /// For long.
    Good,
    /// Not for long any more.
    Ageing,
    /// Not at all, and why.
    Bad(String),
}

/// Judges a certificate by the authorities that clients are told of.
pub(super) fn health(
    authorities: &str,
    certificate: &str,
    namespace: &str,
    now: Duration,
    provider: &Arc<CryptoProvider>,
) -> Health {
    match judged(authorities, certificate, namespace, now, provider) {
        Err(why) => Health::Bad(why),
        Ok(()) if judged(authorities, certificate, namespace, now + RENEW_BEFORE, provider).is_err() => Health::Ageing,
        Ok(()) => Health::Good,
    }
}

fn judged(
    authorities: &str,
    certificate: &str,
    namespace: &str,
    at: Duration,
    provider: &Arc<CryptoProvider>,
) -> Result<(), String> {
    let read = |text: &str, what: &str| {
        let all = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
        all.map_err(|error| format!("{what} cannot be read: {error}"))
    };
    let mut roots = RootCertStore::empty();
    for authority in read(authorities, "ca.crt")? {
        roots
            .add(authority)
            .map_err(|error| format!("ca.crt holds no authority: {error}"))?;
    }
    let chain = read(certificate, "the certificate")?;
    let (first, rest) = chain.split_first().ok_or("there is no certificate")?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| error.to_string())?;
    // Any Service: the name is a wildcard.
    let name = ServerName::try_from(format!("webhook-service.{namespace}.svc")).map_err(|error| error.to_string())?;
    let at = UnixTime::since_unix_epoch(at);
    let verified = verifier.verify_server_cert(first, rest, &name, &[], at);
    verified.map(|_| ()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    #[test]
    fn certificates_are_judged_as_a_client_does() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let made = issue("shop-system", NOW, LIFETIME).expect("a certificate");
        let other = issue("shop-system", NOW, LIFETIME).expect("a certificate");
        let check = |authorities: &str, certificate: &str, namespace: &str, later: Duration, expected: &str| {
            let found = match health(authorities, certificate, namespace, NOW + later, &provider) {
                Health::Bad(why) => why,
                found => format!("{found:?}"),
            };
            assert!(found.starts_with(expected), "{found}, not {expected}");
        };
        let days = |days: u64| Duration::from_secs(days * 24 * 3600);
        let (ca, leaf) = (made.authority.as_str(), made.certificate.as_str());
        check(ca, leaf, "shop-system", days(0), "Good");
        check(ca, leaf, "shop-system", days(59), "Good");
        check(ca, leaf, "shop-system", days(61), "Ageing");
        check(
            ca,
            leaf,
            "shop-system",
            days(91),
            "invalid peer certificate: certificate expired",
        );
        check(
            ca,
            leaf,
            "other",
            days(0),
            "invalid peer certificate: certificate not valid for name",
        );
        check(
            &other.authority,
            leaf,
            "shop-system",
            days(0),
            "invalid peer certificate",
        );
        check(
            &format!("{}{ca}", other.authority),
            leaf,
            "shop-system",
            days(0),
            "Good",
        );
        check(ca, "", "shop-system", days(0), "there is no certificate");
        check("rubbish", leaf, "shop-system", days(0), "");
    }
}
