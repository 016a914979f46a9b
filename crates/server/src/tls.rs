//! TLS of the listener, and the client's identity.
//!
//! A client may come without a certificate: it is then anonymous, and the API server decides its rights. A certificate
//! that our authority did not sign does not break the handshake either: as with kube-apiserver, the connection stands
//! and every request on it is answered 401, which a person can read, unlike a TLS alert.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use kubewright_apiserver::UserInfo;
use kubewright_apiserver::authentication::{CREDENTIAL_ID, Identity};
use ring::digest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring::Ticketer;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificates::{Authority, Certified};
use crate::error::{Error, Result};

/// The certificates and the key of a server.
pub(crate) struct Serving {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl From<&Certified> for Serving {
    fn from(certified: &Certified) -> Serving {
        Serving {
            chain: vec![certified.certificate_der()],
            key: certified.key_der(),
        }
    }
}

/// The TLS parts of a listener; its connections share them.
pub struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    /// Without one no client is asked for a certificate.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl Tls {
    /// Serves with a certificate of this authority for an address, and knows the clients that it has signed.
    ///
    /// # Errors
    /// [`Error::Certificate`] and [`Error::Tls`] when the system has no entropy.
    pub fn of(authority: &Authority, address: IpAddr) -> Result<Tls> {
        let serving = Serving::from(&authority.serving(address)?);
        Tls::new(serving, Some(authority.roots()?))
    }

    /// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, client certificates of the authorities `clients`, or none.
    pub(crate) fn new(serving: Serving, clients: Option<RootCertStore>) -> Result<Tls> {
        let refused = |error: &dyn std::fmt::Display| Error::Tls(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = clients
            .map(|roots| {
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .build()
                    .map_err(|error| refused(&error))
            })
            .transpose()?;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&error))?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(Arc::new(AskOnly(verifier.clone()))),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(serving.chain, serving.key)
            .map_err(|error| refused(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A session that may be resumed is remembered by its client, in a ticket that only this process can read. The
        // ticket has a second use: it acknowledges the end of the handshake. A client that leaves Nagle's algorithm on
        // keeps its first request back until something does, and the system's own acknowledgement takes 40 ms.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Ticketer::new().map_err(|error| refused(&error))?;
        config.send_tls13_tickets = 1;
        Ok(Tls {
            config: Arc::new(config),
            verifier,
        })
    }

    /// The identity of a client that presented these certificates, its own first.
    pub(crate) fn identify(&self, chain: Option<&[CertificateDer<'_>]>) -> Identity {
        let Some((own, intermediates)) = chain.and_then(<[_]>::split_first) else {
            return Identity::Anonymous;
        };
        let Some(verifier) = &self.verifier else {
            return Identity::Anonymous;
        };
        match verifier.verify_client_cert(own, intermediates, UnixTime::now()) {
            Ok(_) => user(own).map_or(Identity::Anonymous, Identity::User),
            Err(error) => {
                tracing::info!(%error, "a client certificate is not accepted; its requests are answered 401");
                Identity::Rejected
            }
        }
    }
}

/// The user of a verified certificate: the common name, and every organization as a group (`CommonNameUserConversion`
/// of apiserver).
///
/// Which certificate it was stands in the user's extra fields.
fn user(der: &CertificateDer<'_>) -> Option<UserInfo> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    if name.is_empty() {
        return None;
    }
    let groups: Vec<&str> = subject
        .iter_organization()
        .filter_map(|group| group.as_str().ok())
        .collect();
    let mut user = UserInfo::authenticated(name, groups);
    user.extra.insert(CREDENTIAL_ID.to_owned(), vec![credential_id(der)]);
    Some(user)
}

fn credential_id(certificate: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, certificate);
    digest.as_ref().iter().fold("X509SHA256=".to_owned(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

/// Asks for a certificate and checks that the client owns its key; whether it is worth anything is decided after the
/// handshake, by [`Tls::identify`].
#[derive(Debug)]
struct AskOnly(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AskOnly {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use rcgen::DnType;

    use super::*;
    use crate::certificates::distinguished_name;

    fn tls(authority: &Authority) -> Tls {
        let serving = authority.serving(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        Tls::new(Serving::from(&serving), Some(authority.roots().unwrap())).unwrap()
    }

    /// Checks the identity of a client whose certificate has this subject and is signed by the server's own authority.
    fn check(subject: &[(DnType, &str)], expected: Identity) {
        let authority = Authority::new().unwrap();
        let certificate = authority.client(distinguished_name(subject)).unwrap();
        let der = certificate.certificate_der();
        assert_eq!(
            tls(&authority).identify(Some(std::slice::from_ref(&der))),
            with_id(expected, &der),
            "{subject:?}"
        );
    }

    /// A user as this certificate shows it.
    fn with_id(identity: Identity, der: &[u8]) -> Identity {
        match identity {
            Identity::User(mut user) => {
                user.extra.insert(CREDENTIAL_ID.to_owned(), vec![credential_id(der)]);
                Identity::User(user)
            }
            other => other,
        }
    }

    #[test]
    fn the_subject_is_the_identity() {
        // rcgen keeps one entry per kind; the same attribute under its number is another kind to it.
        let organization = DnType::CustomDnType(vec![2, 5, 4, 10]);
        check(
            &[
                (DnType::CommonName, "jane"),
                (DnType::OrganizationName, "dev"),
                (organization, "ops"),
            ],
            Identity::User(UserInfo::authenticated("jane", ["dev", "ops"])),
        );
        check(
            &[(DnType::CommonName, "jane")],
            Identity::User(UserInfo::authenticated("jane", [])),
        );
        check(&[(DnType::OrganizationName, "system:masters")], Identity::Anonymous);
    }

    #[test]
    fn the_admin_certificate_is_the_administrator() {
        let authority = Authority::new().unwrap();
        let chain = [authority.admin().unwrap().certificate_der()];
        assert_eq!(
            tls(&authority).identify(Some(&chain)),
            with_id(Identity::User(UserInfo::admin()), &chain[0])
        );
    }

    #[test]
    fn certificates_of_other_authorities_identify_no_client() {
        let (ours, theirs) = (Authority::new().unwrap(), Authority::new().unwrap());
        let tls = tls(&ours);
        assert_eq!(tls.identify(None), Identity::Anonymous);
        assert_eq!(tls.identify(Some(&[])), Identity::Anonymous);
        assert_eq!(
            tls.identify(Some(&[theirs.admin().unwrap().certificate_der()])),
            Identity::Rejected
        );
        // A serving certificate is signed by us, but not for clients.
        let serving = ours.serving(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        assert_eq!(tls.identify(Some(&[serving.certificate_der()])), Identity::Rejected);
        assert_eq!(
            tls.identify(Some(&[CertificateDer::from(vec![0x30, 0x00])])),
            Identity::Rejected
        );
    }
}
