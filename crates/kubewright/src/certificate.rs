//! The certificate of a server: two files, read again when they change. One that the operator issues itself is
//! `own_certificate`'s.
//!
//! Invariants: W5 a new pair serves new connections and drops none; a pair that cannot be read or does not match
//! is reported once, and the last valid one is kept. The contents are compared, not times or events: a mounted Secret
//! changes by a switched link, and a file that was read half-way is read again.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::stop::Stop;

/// How often the files are looked at. They are small; a certificate that is not used in time would cost more.
const POLL: Duration = Duration::from_secs(1);

/// The two files.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The contents of the files.
#[derive(PartialEq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The pair that is served now.
#[derive(Debug)]
pub(crate) struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Current {
    pub(crate) fn new(pair: CertifiedKey) -> Current {
        Current(RwLock::new(Arc::new(pair)))
    }

    pub(crate) fn replace(&self, pair: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
    }
}

impl Files {
    fn read(&self) -> Result<Contents, String> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error: io::Error| format!("cannot read {}: {error}", path.display()))
        };
        Ok(Contents {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
        })
    }

    fn parse(&self, contents: &Contents, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
        let names = [&self.certificate, &self.key].map(|path| path.display().to_string());
        parse([&names[0], &names[1]], &contents.certificate, &contents.key, provider)
    }
}

/// A certificate and its key, in PEM; the names are for errors.
pub(crate) fn parse(
    names: [&str; 2],
    certificate: &[u8],
    key: &[u8],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let wrong = |name: &str, error: pem::Error| format!("{name} is not as it should be: {error}");
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(names[0], error))?;
    if chain.is_empty() {
        return Err(format!("{} holds no certificate in PEM", names[0]));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(names[1], error))?;
    CertifiedKey::from_der(chain, key, provider)
        .map_err(|error| format!("{} and {} do not make a pair: {error}", names[0], names[1]))
}

/// Reads the pair for the first time; `server` is the name of its server in logs. The future keeps it current until the
/// stop.
pub(crate) fn load(
    files: Files,
    server: &'static str,
    provider: Arc<CryptoProvider>,
    stop: Stop,
) -> Result<(Arc<Current>, impl Future<Output = ()> + Send), String> {
    let contents = files.read()?;
    let pair = files.parse(&contents, &provider)?;
    let current = Arc::new(Current::new(pair));
    let kept = current.clone();
    Ok((current, async move {
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = watch(files, server, contents, provider, kept) => {}
        }
    }))
}

async fn watch(
    files: Files,
    server: &'static str,
    mut served: Contents,
    provider: Arc<CryptoProvider>,
    current: Arc<Current>,
) {
    let mut complained = None;
    loop {
        tokio::time::sleep(POLL).await;
        let reader = files.clone();
        let read = tokio::task::spawn_blocking(move || reader.read())
            .await
            .unwrap_or_else(|error| Err(error.to_string()));
        let parsed = read.and_then(|contents| match contents == served {
            true => Ok(None),
            false => files.parse(&contents, &provider).map(|pair| Some((contents, pair))),
        });
        match parsed {
            Ok(None) => complained = None,
            Ok(Some((contents, pair))) => {
                current.replace(pair);
                (served, complained) = (contents, None);
                tracing::info!(certificate = %files.certificate.display(), "{server} has a new certificate");
            }
            Err(error) => {
                // Once for each reason: the next look is a second away.
                if complained.as_ref() != Some(&error) {
                    tracing::warn!(error, "{server} keeps its certificate, for there is no other");
                    complained = Some(error);
                }
            }
        }
    }
}
