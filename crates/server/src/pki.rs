//! Given certificates and keys, in place of those that a cluster makes for itself: the ones of kube-apiserver's
//! `--tls-cert-file`, `--client-ca-file` and the flags of service account keys.
//!
//! Everything is read before the cluster starts. Roots of clients and of the server have nothing to do with each other.
//!
//! Not here: the keys of tokens (`keys`), the authority of a cluster (`certificates`).

use std::net::IpAddr;
use std::sync::Arc;

use kubewright_apiserver::authentication::Signer;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificates::Authority;
use crate::error::{Error, Result};
use crate::keys::GivenKeys;
use crate::tls::{Clients, Serving, Tls};

/// Certificates and keys of a caller's; see `ClusterBuilder::pki` of `kubewright-cluster`.
#[derive(Clone)]
pub struct Pki {
    /// PEM: the server's certificates, and those that pods are to trust.
    certificates: String,
    key: Arc<PrivateKeyDer<'static>>,
    chain: Vec<CertificateDer<'static>>,
    clients: Option<Vec<CertificateDer<'static>>>,
    /// The same as it was given.
    clients_text: Option<String>,
    signer: Option<Arc<GivenKeys>>,
}

impl Pki {
    /// The serving certificate with the certificates of its authority, and its private key, both PEM. No client is
    /// known by a certificate.
    ///
    /// # Errors
    /// When they cannot be read, or do not belong together.
    pub fn serving(certificates: &str, key: &str) -> Result<Pki> {
        let unread = |what: &str, why: &dyn std::fmt::Display| Error::Tls(format!("{what} cannot be read: {why}"));
        let chain = read_certificates(certificates).map_err(|why| unread("the serving certificate", &why))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|why| unread("the serving key", &why))?;
        let pki = Pki {
            certificates: certificates.to_owned(),
            key: Arc::new(key),
            chain,
            clients: None,
            clients_text: None,
            signer: None,
        };
        // A key of another certificate is told now, not by the first client.
        pki.tls()?;
        Ok(pki)
    }

    /// The authorities of clients, PEM (`--client-ca-file`).
    ///
    /// # Errors
    /// When there is no certificate in it that can be one.
    pub fn clients(mut self, authorities: &str) -> Result<Pki> {
        let unread = |why: String| Error::Tls(format!("the authorities of clients cannot be read: {why}"));
        let certificates = read_certificates(authorities).map_err(unread)?;
        Clients::of(certificates.clone()).map_err(unread)?;
        self.clients = Some(certificates);
        self.clients_text = Some(authorities.to_owned());
        Ok(self)
    }

    /// The key that tokens of service accounts are signed with, and those that they are believed of: PEM, RSA or ECDSA
    /// P-256 (`--service-account-signing-key-file`, `--service-account-key-file`). Without the latter the first is
    /// believed.
    ///
    /// # Errors
    /// When a key cannot be read or is of another kind.
    pub fn service_accounts(mut self, signing: &str, believed: &[String]) -> Result<Pki> {
        let keys = GivenKeys::read(signing, believed)
            .map_err(|why| Error::Tls(format!("the keys of service accounts cannot be used: {why}")))?;
        self.signer = Some(Arc::new(keys));
        Ok(self)
    }

    /// A certificate for a server at `address` and on loopback, of an authority that is used for nothing else, and its
    /// key: PEM.
    ///
    /// # Errors
    /// When the system has no entropy.
    pub fn self_signed(address: IpAddr) -> Result<(String, String)> {
        let authority = Authority::new()?;
        let certified = authority.serving(address)?;
        let chain = format!("{}{}", certified.certificate_pem(), authority.pem());
        Ok((chain, certified.key_pem()))
    }

    /// The TLS parts of a listener that serves with them.
    ///
    /// # Errors
    /// [`Error::Tls`] when the system has no entropy.
    pub fn tls(&self) -> Result<Tls> {
        let serving = Serving {
            chain: self.chain.clone(),
            key: self.key.clone_key(),
        };
        Tls::new(serving, self.clients.clone())
    }

    /// The authorities of clients (PEM).
    pub fn authorities(&self) -> Option<&str> {
        self.clients_text.as_deref()
    }

    /// Signs the tokens of service accounts, when it was given keys.
    pub fn signer(&self) -> Option<Arc<dyn Signer>> {
        self.signer.clone().map(|signer| signer as Arc<dyn Signer>)
    }

    /// The certificates with which pods trust the server.
    pub fn trust(&self) -> String {
        self.certificates.clone()
    }
}

fn read_certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|why| why.to_string())?;
    if certificates.is_empty() {
        return Err("it holds no certificate".to_owned());
    }
    Ok(certificates)
}
