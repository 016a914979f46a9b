//! The cluster's own certificate authority: a CA, a serving certificate and the administrator's client certificate.
//!
//! Keys are ECDSA P-256 (a fraction of a millisecond to make) and live in memory; the one that leaves is the
//! administrator's, inside the kubeconfig. With a data folder the authority is kept there, so that kubeconfigs stay
//! valid. Nothing here implements `Debug`, so that no log line can show a key.
//!
//! Not here: renewal (certificates live for a year, clusters for minutes or days) and the key of service accounts
//! (`signer.rs`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kubewright_apiserver::model::facts::signing_request::SigningRequest;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::csr;
use crate::durable::{DataDirError, Folder};
use crate::error::{Error, Result};

/// The user of the administrator's certificate, as kubeadm names it.
pub(crate) const ADMIN_USER: &str = "kubernetes-admin";
/// Its group: may do everything.
pub(crate) const ADMIN_GROUP: &str = "system:masters";
/// The name of the cluster's proxy, by which other API servers know it. kubeadm's has the same.
pub const FRONT_PROXY_USER: &str = "front-proxy-client";

/// Names that the serving certificate is valid for, besides the addresses: this machine, and the API server as pods
/// call it.
const SERVING_NAMES: [&str; 6] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster",
    "kubernetes.default.svc.cluster.local",
];

/// Certificates are valid from an hour ago, so that a client whose clock is a little behind is served.
const BACKDATED: Duration = Duration::from_secs(60 * 60);
/// And for a year.
const LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The authority is valid for ten years, as kubeadm's: it may be kept in a folder, and nothing renews it.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

const AUTHORITY: &str = "certificate authority";

/// What an authority is for. One of them never believes the certificates of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Clients of the cluster, and its servers.
    Cluster,
    /// The cluster's proxy, by whose word other API servers know its users.
    FrontProxy,
}

impl Purpose {
    /// The common name of the authority.
    fn name(self) -> &'static str {
        match self {
            Purpose::Cluster => "kubewright-ca",
            Purpose::FrontProxy => "kubewright-front-proxy-ca",
        }
    }

    /// The files of the authority in a data folder: its key and its certificate.
    fn files(self) -> [&'static str; 2] {
        match self {
            Purpose::Cluster => ["pki/ca.key", "pki/ca.crt"],
            Purpose::FrontProxy => ["pki/front-proxy-ca.key", "pki/front-proxy-ca.crt"],
        }
    }
}

/// Signs certificates that only this cluster trusts.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

/// A certificate with its private key.
pub(crate) struct Certified {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    /// A new authority with a key of its own.
    pub fn new() -> Result<Authority> {
        Authority::with(Purpose::Cluster)
    }

    /// The same for this purpose.
    pub fn with(purpose: Purpose) -> Result<Authority> {
        let key = authority_key()?;
        let pem = self_signed(purpose, &key)?;
        Authority::of(purpose, key, pem)
    }

    /// The authority of a data folder: the one that is there, or a new one that is then kept.
    pub fn kept(purpose: Purpose, folder: &Folder) -> Result<Authority> {
        let [key_file, certificate_file] = purpose.files();
        let is_there = |name: &str| folder.path().join(name).exists();
        let damaged = |name: &str, damage: String| damaged(folder, purpose, name, damage);
        if is_there(certificate_file) && !is_there(key_file) {
            // A new key would not fit the certificate.
            let damage = format!("it is missing, and {certificate_file} is there");
            return Err(damaged(key_file, damage));
        }
        let key = folder.keep(key_file, || authority_key().map(|key| key.serialize_pem()))?;
        let key = KeyPair::from_pem(&key)
            .map_err(|error| damaged(key_file, format!("it cannot be read as a private key: {error}")))?;
        let pem = folder.keep(certificate_file, || self_signed(purpose, &key))?;
        let authority = Authority::of(purpose, key, pem)
            .map_err(|error| damaged(certificate_file, format!("it cannot be read as a certificate: {error}")))?;
        // Otherwise the cluster would start, and every client would reject its certificate.
        if !authority.is_of_its_key() {
            let damage = format!("it is not the certificate of the key in {key_file}");
            return Err(damaged(certificate_file, damage));
        }
        Ok(authority)
    }

    fn is_of_its_key(&self) -> bool {
        X509Certificate::from_der(&self.der).is_ok_and(|(_, certificate)| {
            *certificate.public_key().subject_public_key.data == *self.issuer.key().public_key_raw()
        })
    }

    fn of(purpose: Purpose, key: KeyPair, pem: String) -> Result<Authority> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| Error::Tls(error.to_string()))?;
        Ok(Authority {
            issuer: Issuer::new(authority_params(purpose), key),
            pem,
            der,
        })
    }

    /// The certificate that clients must trust, as PEM.
    pub fn pem(&self) -> String {
        self.pem.clone()
    }

    /// The certificate that clients must trust, as DER.
    pub(crate) fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// A serving certificate for this machine's loopback, the names that pods use, and the address that is listened on.
    pub(crate) fn serving(&self, listening_on: IpAddr) -> Result<Certified> {
        let what = "serving certificate";
        let mut params = valid_now(distinguished_name(&[(DnType::CommonName, "kube-apiserver")]), LIFETIME);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in SERVING_NAMES {
            let name = name.try_into().map_err(|source| Error::Certificate { what, source })?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let own = Some(listening_on).filter(|ip| !ip.is_unspecified() && !loopback.contains(ip));
        params
            .subject_alt_names
            .extend(loopback.into_iter().chain(own).map(SanType::IpAddress));
        self.sign(what, params)
    }

    /// A serving certificate of a webhook server, for these names and addresses.
    pub(crate) fn webhook(&self, names: &[&str]) -> Result<Certified> {
        let what = "webhook certificate";
        let mut params = valid_now(distinguished_name(&[(DnType::CommonName, "webhook")]), LIFETIME);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in names {
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(
                    (*name)
                        .try_into()
                        .map_err(|source| Error::Certificate { what, source })?,
                ),
            });
        }
        self.sign(what, params)
    }

    /// The certificate that the kubeconfig carries: `kubernetes-admin` in `system:masters`.
    pub(crate) fn admin(&self) -> Result<Certified> {
        self.client(distinguished_name(&[
            (DnType::CommonName, ADMIN_USER),
            (DnType::OrganizationName, ADMIN_GROUP),
        ]))
    }

    /// The certificate by which other API servers know the cluster's proxy.
    pub(crate) fn front_proxy_client(&self) -> Result<Certified> {
        self.client(distinguished_name(&[(DnType::CommonName, FRONT_PROXY_USER)]))
    }

    /// A client certificate for a subject.
    pub(crate) fn client(&self, subject: DistinguishedName) -> Result<Certified> {
        let mut params = valid_now(subject, LIFETIME);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign("client certificate", params)
    }

    /// Makes a certificate of a request, for these usages of the API; answers it in PEM, or why there is none.
    pub fn certify(
        &self,
        request: &SigningRequest,
        usages: &[String],
        lifetime: Duration,
    ) -> std::result::Result<String, String> {
        let dates = valid_now(DistinguishedName::new(), lifetime);
        csr::certificate(request, usages, dates, &self.issuer).map(|der| pem("CERTIFICATE", &der))
    }

    fn sign(&self, what: &'static str, mut params: CertificateParams) -> Result<Certified> {
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(|source| Error::Certificate { what, source })?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(|source| Error::Certificate { what, source })?;
        Ok(Certified { certificate, key })
    }
}

impl Certified {
    pub(crate) fn certificate_pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// The key in the form that kubeadm's kubeconfigs have for ECDSA (SEC 1, RFC 5915): its label names the type, and
    /// some clients take a key for RSA whose label does not.
    pub(crate) fn key_sec1_pem(&self) -> String {
        /// Where the private number stands in the PKCS #8 of a P-256 key, behind a version and its own length.
        const NUMBER: Range<usize> = 36..68;
        const BEFORE: [u8; 5] = [0x02, 0x01, 0x01, 0x04, 0x20];
        /// `[0]`: the curve prime256v1; `[1]`: the public key as a string of bits.
        const CURVE: [u8; 12] = [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
        const PUBLIC: [u8; 5] = [0xa1, 0x44, 0x03, 0x42, 0x00];
        let document = self.key.serialize_der();
        let (before, number) = (document.get(31..36), document.get(NUMBER));
        let (Some(number), true) = (number, before == Some(&BEFORE)) else {
            return self.key_pem();
        };
        let sequence = [0x30, 0x77];
        let der = [
            &sequence[..],
            &BEFORE,
            number,
            &CURVE,
            &PUBLIC,
            self.key.public_key_raw(),
        ]
        .concat();
        pem("EC PRIVATE KEY", &der)
    }

    pub(crate) fn certificate_der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    pub(crate) fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }
}

/// A PEM block.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len().div_ceil(64))
        .map(|line| &text[line * 64..text.len().min((line + 1) * 64)])
        .collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// The error for a file of the authority that cannot be used.
fn damaged(folder: &Folder, purpose: Purpose, name: &str, damage: String) -> Error {
    let [key_file, certificate_file] = purpose.files();
    let lost = match purpose {
        Purpose::Cluster => "kubeconfigs written before it are no longer valid",
        Purpose::FrontProxy => "servers behind APIServices read them when they start again",
    };
    Error::DataDir(DataDirError::Damaged {
        file: folder.path().join(name),
        damage: vec![damage],
        rescue: format!(
            "put it back; or remove both {key_file} and {certificate_file}: the next start makes new ones, and {lost}"
        ),
    })
}

fn authority_key() -> Result<KeyPair> {
    KeyPair::generate().map_err(|source| Error::Certificate {
        what: AUTHORITY,
        source,
    })
}

fn authority_params(purpose: Purpose) -> CertificateParams {
    let mut params = valid_now(
        distinguished_name(&[(DnType::CommonName, purpose.name())]),
        AUTHORITY_LIFETIME,
    );
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    params
}

fn self_signed(purpose: Purpose, key: &KeyPair) -> Result<String> {
    let certificate = authority_params(purpose)
        .self_signed(key)
        .map_err(|source| Error::Certificate {
            what: AUTHORITY,
            source,
        })?;
    Ok(certificate.pem())
}

/// A subject of these parts, in order.
pub(crate) fn distinguished_name(parts: &[(DnType, &str)]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for (kind, value) in parts {
        name.push(kind.clone(), *value);
    }
    name
}

fn valid_now(subject: DistinguishedName, lifetime: Duration) -> CertificateParams {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.not_before = epoch + since_epoch.saturating_sub(BACKDATED);
    params.not_after = epoch + since_epoch + lifetime;
    params.distinguished_name = subject;
    params
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use x509_parser::prelude::GeneralName;

    use super::*;

    /// The alternative names of a serving certificate for `address`, as text.
    fn names(address: &str) -> Vec<String> {
        let authority = Authority::new().unwrap();
        let serving = authority.serving(address.parse().unwrap()).unwrap();
        let der = serving.certificate_der();
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        names
            .value
            .general_names
            .iter()
            .map(|name| match name {
                GeneralName::DNSName(name) => (*name).to_owned(),
                GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
                    Ok(v4) => Ipv4Addr::from(v4).to_string(),
                    Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(*bytes).unwrap()).to_string(),
                },
                other => format!("{other:?}"),
            })
            .collect()
    }

    fn parsed<'a>(der: &'a CertificateDer<'_>) -> X509Certificate<'a> {
        X509Certificate::from_der(der).unwrap().1
    }

    #[test]
    fn the_serving_certificate_names_what_clients_call_it() {
        let loopback = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster",
            "kubernetes.default.svc.cluster.local",
            "127.0.0.1",
            "::1",
        ];
        assert_eq!(names("127.0.0.1"), loopback);
        assert_eq!(names("0.0.0.0"), loopback);
        assert_eq!(names("192.0.2.7"), [&loopback[..], &["192.0.2.7"]].concat());
    }

    #[test]
    fn the_admin_certificate_is_the_admin_and_valid_now() {
        let authority = Authority::new().unwrap();
        let admin = authority.admin().unwrap();
        let der = admin.certificate_der();
        let certificate = parsed(&der);
        assert_eq!(
            certificate.subject().to_string(),
            "CN=kubernetes-admin, O=system:masters"
        );
        assert_eq!(certificate.issuer().to_string(), "CN=kubewright-ca");
        assert!(certificate.validity().is_valid());
        assert!(!certificate.is_ca());
        assert!(parsed(authority.der()).is_ca());
        assert!(admin.key_pem().starts_with("-----BEGIN PRIVATE KEY-----"));
        // The same key in the other form: it signs what the certificate verifies.
        let text = admin.key_sec1_pem();
        assert!(text.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{text}");
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).expect("SEC 1");
        let key = rustls::crypto::ring::sign::any_ecdsa_type(&key).expect("a key of P-256");
        let chain = vec![admin.certificate_der()];
        let certified = rustls::sign::CertifiedKey::new(chain, key);
        certified.keys_match().expect("the key of the certificate");
    }

    #[test]
    fn a_request_becomes_a_certificate_for_what_it_may_be_used_for() {
        let mut params = CertificateParams::default();
        params.distinguished_name =
            distinguished_name(&[(DnType::CommonName, "jane"), (DnType::OrganizationName, "dev")]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.subject_alt_names = vec![SanType::DnsName("a.example".try_into().expect("a name"))];
        let key = KeyPair::generate().expect("entropy");
        let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
        let authority = Authority::new().expect("an authority");
        let usages = ["client auth".to_owned(), "digital signature".to_owned()];
        let request = SigningRequest::of_pem(request.as_bytes()).expect("a request");
        let made = authority.certify(&request, &usages, Duration::from_secs(3600));
        let der = CertificateDer::from_pem_slice(made.expect("a certificate").as_bytes()).expect("PEM");
        let certificate = parsed(&der);
        assert!(!certificate.is_ca());
        assert_eq!(certificate.subject().to_string(), "CN=jane, O=dev");
        let names = certificate
            .subject_alternative_name()
            .expect("readable")
            .expect("there");
        assert_eq!(names.value.general_names, [GeneralName::DNSName("a.example")]);
        let usage = certificate.extended_key_usage().expect("readable").expect("there");
        assert!(usage.value.client_auth && !usage.value.server_auth);
    }

    #[test]
    fn the_authority_is_one_whole_or_refused() {
        let read = |folder: &Path, name: &str| fs::read(folder.join(name)).unwrap();
        let start = |path: &Path| {
            let opened = crate::durable::open(path, true, Default::default()).unwrap();
            opened.journal.close();
            let authority = Authority::kept(Purpose::Cluster, &opened.folder);
            authority
                .map(|authority| authority.pem())
                .map_err(|error| error.to_string())
        };
        let other = tempfile::tempdir().unwrap();
        start(other.path()).unwrap();
        let foreign = |name: &str| Some(read(other.path(), name));
        let not_its_own = "ca.crt is damaged:\n  it is not the certificate of the key";
        for (name, content, said) in [
            ("pki/ca.key", foreign("pki/ca.key"), not_its_own),
            (
                "pki/ca.key",
                None,
                "ca.key is damaged:\n  it is missing, and pki/ca.crt is there",
            ),
            (
                "pki/ca.key",
                Some(vec![]),
                "ca.key is damaged:\n  it cannot be read as a private key",
            ),
            ("pki/ca.crt", foreign("pki/ca.crt"), not_its_own),
            (
                "pki/ca.crt",
                Some(b"text".to_vec()),
                "ca.crt is damaged:\n  it cannot be read as a certificate",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let before = start(folder.path()).unwrap();
            assert_eq!(start(folder.path()), Ok(before.clone()));
            match content {
                Some(content) => fs::write(folder.path().join(name), content).unwrap(),
                None => fs::remove_file(folder.path().join(name)).unwrap(),
            }
            let error = start(folder.path()).unwrap_err();
            assert!(error.contains(said) && error.contains("remove both"), "{name}: {error}");
            for name in ["pki/ca.key", "pki/ca.crt"] {
                let _ = fs::remove_file(folder.path().join(name));
            }
            assert_ne!(start(folder.path()).unwrap(), before);
        }
    }
}
