//! The certificate authority of a cluster, made when it is first needed, and the certificates that it signs.

use std::path::PathBuf;
use std::sync::Arc;

use kubewright_apiserver::Minor;
use kubewright_apiserver::authentication::{Bound, ServiceAccountTokens, Signer};
use kubewright_controllers::{CertificateSource, RootCa, TokenSource};
use kubewright_server::{Authority, Error, Folder, GivenKeys, Opened, Purpose, open_data_dir};

use crate::error::Result;

/// Made when first asked for, by a listener or by the controller that publishes it, and then kept.
pub(super) struct LazyAuthority {
    purpose: Purpose,
    made: std::sync::Mutex<Option<Arc<Authority>>>,
    /// Where it is kept beyond this process.
    folder: Option<Arc<Folder>>,
}

/// Opens a data folder: much reading, so on a thread of its own.
pub(super) async fn opened(path: PathBuf, synced: bool, minor: Minor) -> Result<Opened> {
    match tokio::task::spawn_blocking(move || open_data_dir(&path, synced, minor)).await {
        Ok(opened) => Ok(opened.map_err(Error::from)?),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

impl LazyAuthority {
    /// None yet; it will be kept in this folder, or only as long as the process.
    pub(super) fn kept_in(purpose: Purpose, folder: Option<Arc<Folder>>) -> LazyAuthority {
        LazyAuthority {
            purpose,
            made: std::sync::Mutex::default(),
            folder,
        }
    }

    pub(super) fn get(&self) -> Result<Arc<Authority>, Error> {
        let mut authority = self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(authority) = &*authority {
            return Ok(authority.clone());
        }
        let made = match &self.folder {
            None => Authority::with(self.purpose)?,
            Some(folder) => Authority::kept(self.purpose, folder)?,
        };
        Ok(authority.insert(Arc::new(made)).clone())
    }
}

/// How the controllers get at the certificate that pods are to trust.
pub(super) fn root_ca(authority: Arc<LazyAuthority>, given: Option<String>) -> RootCa {
    if given.is_some() {
        return Arc::new(move || given.clone());
    }
    Arc::new(move || match authority.get() {
        Ok(authority) => Some(authority.pem()),
        Err(error) => {
            tracing::error!(%error, "pods get no certificate to trust the API server with");
            None
        }
    })
}

/// How the controllers get certificates for requests.
pub(super) fn certificates(authority: Arc<LazyAuthority>) -> CertificateSource {
    Arc::new(move |request, usages, lifetime| {
        let authority = authority.get().map_err(|error| error.to_string())?;
        authority.certify(request, usages, lifetime)
    })
}

/// Tokens for Secrets, signed with a key that an API server believes: PEM, RSA or ECDSA P-256
/// (`--service-account-private-key-file` of kube-controller-manager).
///
/// # Errors
/// [`kubewright_server::Error::Tls`] when the key cannot be read or is of another kind.
pub fn legacy_tokens(signing: &str) -> Result<TokenSource> {
    let keys = GivenKeys::read(signing, &[])
        .map_err(|why| Error::Tls(format!("the key of service accounts cannot be used: {why}")))?;
    Ok(service_account_token(Arc::new(keys)))
}

/// How the controllers get at tokens for Secrets.
pub(super) fn service_account_token(key: Arc<dyn Signer>) -> TokenSource {
    Arc::new(move |wanted| {
        let account = Bound {
            name: wanted.account.to_owned(),
            uid: wanted.account_uid.to_owned(),
        };
        match ServiceAccountTokens::issue_legacy(key.as_ref(), wanted.namespace, &account, wanted.secret) {
            Ok(token) => Some(token),
            Err(error) => {
                tracing::error!(%error, secret = wanted.secret, "a Secret gets no token");
                None
            }
        }
    })
}
