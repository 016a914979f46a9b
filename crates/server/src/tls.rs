//! TLS of the listener, and the client's identity.
//!
//! A client may come without a certificate: it is then anonymous, and the API server decides its rights. A certificate
//! that our authority did not sign does not break the handshake either: as with kube-apiserver, the connection stands
//! and every request on it is answered 401, which a person can read, unlike a TLS alert. So of a certificate the
//! handshake looks only at the key.

use std::fmt::{Display, Write as _};
use std::net::IpAddr;
use std::sync::Arc;

use kubewright_apiserver::UserInfo;
use kubewright_apiserver::authentication::{CREDENTIAL_ID, Identity};
use kubewright_apiserver::model::facts::subject::Subject;
use ring::digest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring::Ticketer;
use rustls::crypto::verify_tls13_signature_with_raw_key;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificates::{Authority, Certified};
use crate::clients;
use crate::error::{Error, Result};
use crate::signatures::{self, Key};

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
    /// Without any, no client is asked for a certificate.
    clients: Option<Clients>,
}

/// The authorities of clients.
pub(crate) struct Clients {
    authorities: Vec<CertificateDer<'static>>,
    /// The same for webpki.
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Clients {
    pub(crate) fn of(authorities: Vec<CertificateDer<'static>>) -> Result<Clients, String> {
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            clients::check_authority(authority)?;
            roots.add(authority.clone()).map_err(|why| why.to_string())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|why| why.to_string())?;
        Ok(Clients { authorities, verifier })
    }

    /// The user of a client that presented these certificates; none when its own names nobody.
    fn user(&self, own: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> Result<Option<UserInfo>, String> {
        let now = UnixTime::now();
        let seconds = i64::try_from(now.as_secs()).map_err(|why| why.to_string())?;
        let certificate = clients::verify(own, intermediates, &self.authorities, seconds, || {
            let verified = self.verifier.verify_client_cert(own, intermediates, now);
            verified.map(drop).map_err(|why| why.to_string())
        })?;
        user(own, &certificate)
    }
}

impl Tls {
    /// Serves with a certificate of this authority for an address, and knows the clients that it has signed.
    ///
    /// # Errors
    /// [`Error::Certificate`] and [`Error::Tls`] when the system has no entropy.
    pub fn of(authority: &Authority, address: IpAddr) -> Result<Tls> {
        let serving = Serving::from(&authority.serving(address)?);
        Tls::new(serving, Some(vec![authority.der().clone()]))
    }

    /// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, client certificates of the authorities `clients`, or none.
    pub(crate) fn new(serving: Serving, clients: Option<Vec<CertificateDer<'static>>>) -> Result<Tls> {
        let refused = |error: &dyn Display| Error::Tls(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unread = |why: String| Error::Tls(format!("the authorities of clients cannot be used: {why}"));
        let clients = clients.map(Clients::of).transpose().map_err(unread)?;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&error))?;
        let builder = match &clients {
            Some(clients) => builder.with_client_cert_verifier(Arc::new(AskOnly(clients.verifier.clone()))),
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
            clients,
        })
    }

    /// The identity of a client that presented these certificates, its own first.
    pub(crate) fn identify(&self, chain: Option<&[CertificateDer<'_>]>) -> Identity {
        let Some((own, intermediates)) = chain.and_then(<[_]>::split_first) else {
            return Identity::Anonymous;
        };
        let Some(clients) = &self.clients else {
            return Identity::Anonymous;
        };
        match clients.user(own, intermediates) {
            Ok(user) => user.map_or(Identity::Anonymous, Identity::User),
            Err(error) => {
                tracing::info!(%error, "a client certificate is not accepted; its requests are answered 401");
                Identity::Rejected
            }
        }
    }
}

/// The user of a verified certificate: the common name, every organization as a group, and a UID
/// (`CommonNameUserConversion` and `parseUIDFromCert` of apiserver). None when it has no common name.
///
/// Which certificate it was stands in the user's extra fields.
fn user(der: &CertificateDer<'_>, certificate: &X509Certificate<'_>) -> Result<Option<UserInfo>, String> {
    let subject = Subject::read(certificate.subject().as_raw())
        .map_err(|why| format!("x509: invalid RDNSequence: invalid attribute value: {why}"))?;
    if subject.common_name.is_empty() {
        return Ok(None);
    }
    let groups: Vec<&str> = subject.organizations.iter().map(String::as_str).collect();
    let mut user = UserInfo::authenticated(&subject.common_name, groups);
    match subject.uids.as_slice() {
        [] => {}
        [uid] if !uid.is_empty() => user.uid.clone_from(uid),
        [_] => return Err("UID cannot be an empty string".to_owned()),
        more => return Err(format!("expected 1 UID, but found multiple: {more:?}")),
    }
    user.extra.insert(CREDENTIAL_ID.to_owned(), vec![credential_id(der)]);
    Ok(Some(user))
}

fn credential_id(certificate: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, certificate);
    digest.as_ref().iter().fold("X509SHA256=".to_owned(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

/// The key of a certificate, whatever else stands in it.
fn key_of(certificate: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'static>, rustls::Error> {
    let (_, read) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    Ok(SubjectPublicKeyInfoDer::from(read.public_key().raw.to_vec()))
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
        let key = key_of(cert)?;
        let key = Key::of(&key).map_err(|_| CertificateError::BadEncoding)?;
        match key.signed_handshake(message, dss.scheme, dss.signature()) {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(CertificateError::BadSignature.into()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature_with_raw_key(message, &key_of(cert)?, dss, &signatures::algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use kubewright_apiserver::model::facts::subject::UID;
    use rustls::client::ResolvesClientCert;
    use rustls::sign::CertifiedKey;
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, ClientConnection, ServerConnection, SupportedProtocolVersion};

    use super::*;
    use crate::clients::made::{self, COMMON_NAME, ORGANIZATION, Party, Wish};

    fn tls(authority: &Authority) -> Tls {
        let serving = authority.serving(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        Tls::new(Serving::from(&serving), Some(vec![authority.der().clone()])).unwrap()
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

    /// The authority of clients in these tests, and what a server says of a certificate for this subject.
    fn identity(subject: Vec<u8>, wish: fn(Wish<'_>) -> Wish<'_>) -> (CertificateDer<'static>, Identity) {
        let (ca, client) = (
            Party::new("ca"),
            Party {
                name: subject,
                ..Party::new("")
            },
        );
        let root = ca.signs(&Wish::of(&ca).with(made::authority(None)));
        let serving = Authority::new()
            .unwrap()
            .serving(IpAddr::V4(Ipv4Addr::LOCALHOST))
            .unwrap();
        let tls = Tls::new(Serving::from(&serving), Some(vec![root])).unwrap();
        let presented = ca.signs(&wish(Wish::of(&client)));
        let identity = tls.identify(Some(std::slice::from_ref(&presented)));
        (presented, identity)
    }

    #[test]
    fn the_subject_is_the_identity() {
        let check = |subject: &[(&[u8], u8, &[u8])], expected: Identity| {
            for wish in [(|wish| wish) as fn(Wish<'_>) -> Wish<'_>, |wish| wish.version(1)] {
                let (presented, identity) = identity(made::name(subject), wish);
                assert_eq!(identity, with_id(expected.clone(), &presented), "{subject:x?}");
            }
        };
        let user = |name: &str, groups: &[&str], uid: &str| {
            let mut user = UserInfo::authenticated(name, groups.iter().copied());
            uid.clone_into(&mut user.uid);
            Identity::User(user)
        };
        let (jane, dev, ops) = (
            (COMMON_NAME, 0x0c, b"jane".as_slice()),
            (ORGANIZATION, 0x0c, b"dev".as_slice()),
            (ORGANIZATION, 0x13, b"ops".as_slice()),
        );
        check(&[jane], user("jane", &[], ""));
        check(&[dev, jane, ops], user("jane", &["dev", "ops"], ""));
        // The last common name.
        check(&[(COMMON_NAME, 0x0c, b"first"), dev, jane], user("jane", &["dev"], ""));
        check(&[jane, (COMMON_NAME, 0x0c, b"")], Identity::Anonymous);
        check(&[(ORGANIZATION, 0x0c, b"system:masters")], Identity::Anonymous);
        // A UID.
        let uid = |text: &'static [u8]| (UID, 0x0c, text);
        check(&[jane, uid(b"uid-123")], user("jane", &[], "uid-123"));
        check(&[uid(b"uid-123")], Identity::Anonymous);
        check(&[jane, uid(b"")], Identity::Rejected);
        check(&[jane, uid(b"a"), uid(b"b")], Identity::Rejected);
        check(&[jane, uid(b"a"), uid(b"a")], Identity::Rejected);
        // What cannot be read is not passed over.
        check(&[jane, (ORGANIZATION, 0x0c, b"\xff")], Identity::Rejected);
        check(&[jane, (ORGANIZATION, 0x13, b"a_b"), dev], Identity::Rejected);
        check(&[jane, (ORGANIZATION, 0x1c, b"\0\0\0a")], Identity::Rejected);
        check(&[(COMMON_NAME, 0x04, b"jane")], Identity::Rejected);
        check(&[jane, (UID, 0x02, b"1")], Identity::Rejected);
        check(
            &[(COMMON_NAME, 0x14, b"jan\xe9"), (ORGANIZATION, 0x1e, b"\0d\0e\0v")],
            user("jané", &["dev"], ""),
        );
    }

    /// A client with any certificate, of which it owns the key or another one.
    #[derive(Debug)]
    struct Presents(Arc<CertifiedKey>);

    impl ResolvesClientCert for Presents {
        fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            Some(self.0.clone())
        }

        fn has_certs(&self) -> bool {
            true
        }
    }

    /// Whether a handshake succeeds, and the identity of its client.
    fn shakes_hands(
        tls: &Tls,
        server: &Authority,
        presented: CertificateDer<'static>,
        key: &rcgen::KeyPair,
        version: &'static SupportedProtocolVersion,
    ) -> Result<Identity, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(server.der().clone()).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_cert_resolver(Arc::new(Presents(Arc::new(CertifiedKey::new(vec![presented], key)))));
        let mut client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let mut server = ServerConnection::new(tls.config.clone()).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut sent = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut sent).unwrap();
            }
            let mut rest = sent.as_slice();
            while !rest.is_empty() {
                server.read_tls(&mut rest).unwrap();
                server.process_new_packets()?;
            }
            let mut sent = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut sent).unwrap();
            }
            let mut rest = sent.as_slice();
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets()?;
            }
        }
        Ok(tls.identify(server.peer_certificates()))
    }

    #[test]
    fn a_handshake_asks_for_the_key_alone() {
        let (ours, ca, other) = (Authority::new().unwrap(), Party::new("ca"), Party::new("ca"));
        let serving = ours.serving(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        let root = ca.signs(&Wish::of(&ca).with(made::authority(None)));
        let tls = Tls::new(Serving::from(&serving), Some(vec![root])).unwrap();
        for client in [Party::new("jane"), Party::with_ed25519("jane")] {
            for version in [&TLS12, &TLS13] {
                let check = |signer: &Party, wish: Wish<'_>, known: bool| {
                    let presented = signer.signs(&wish);
                    let identity = shakes_hands(&tls, &ours, presented, &client.key, version).expect("a handshake");
                    match known {
                        true => assert!(
                            matches!(&identity, Identity::User(user) if user.name == "jane"),
                            "{identity:?}"
                        ),
                        false => assert_eq!(identity, Identity::Rejected),
                    }
                };
                let own = || Wish::of(&client);
                check(&ca, own(), true);
                check(&ca, own().version(1), true);
                check(&other, own(), false);
                check(&other, own().version(1), false);
                check(&ca, own().with(made::extension(99, true, b"?")), false);
                check(&ca, own().expired(), false);
                // Who does not own the key is nobody, whatever the certificate.
                for wish in [own(), own().version(1)] {
                    let another = Party::new("jane");
                    assert!(shakes_hands(&tls, &ours, ca.signs(&wish), &another.key, version).is_err());
                }
            }
        }
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
