//! Certificates for the webhook server of an operator that runs on this machine: the work of cert-manager in a real
//! cluster.
//!
//! Invariants: keys are readable by their owner only; each file changes at once, by a rename. Not here: the reader of
//! the files (`kubewright`'s webhook server) and the `caBundle` of configurations, which the installer of those fills
//! in.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::certificates::Authority;
use crate::error::{Error, Result};

/// An authority for webhook servers, and its certificates.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// use kubewright_server::WebhookCertificates;
///
/// let certificates = WebhookCertificates::new()?;
/// certificates.write(directory.path(), &["localhost", "127.0.0.1"])?; // tls.crt, tls.key, ca.crt
/// let ca_bundle = certificates.ca(); // PEM, for the caBundle of webhook configurations
/// # assert!(ca_bundle.starts_with("-----BEGIN CERTIFICATE-----"));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct WebhookCertificates(Authority);

impl std::fmt::Debug for WebhookCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookCertificates") // no log line shows a key
    }
}

impl WebhookCertificates {
    /// A new authority.
    ///
    /// # Errors
    /// [`Error::Certificate`] when the system has no entropy.
    pub fn new() -> Result<WebhookCertificates> {
        Authority::new().map(WebhookCertificates)
    }

    /// The certificate that callers must trust, in PEM.
    pub fn ca(&self) -> String {
        self.0.pem()
    }

    /// Writes a new certificate for these names and addresses, valid for a year: `tls.crt`, `tls.key` and `ca.crt` in a
    /// folder that is made when it is missing.
    ///
    /// # Errors
    /// [`Error::Certificate`] when a name is none, [`Error::Write`] when a file cannot be written.
    pub fn write(&self, directory: &Path, names: &[&str]) -> Result<()> {
        let certified = self.0.webhook(names)?;
        fs::create_dir_all(directory).map_err(|source| Error::Write {
            path: directory.to_owned(),
            source,
        })?;
        replace(&directory.join("ca.crt"), &self.0.pem())?;
        replace(&directory.join("tls.key"), &certified.key_pem())?;
        replace(&directory.join("tls.crt"), &certified.certificate_pem())
    }
}

/// Writes a file beside the old one and puts it in its place.
fn replace(path: &Path, contents: &str) -> Result<()> {
    let next: PathBuf = path.with_extension("new");
    let write = || {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&next)?.write_all(contents.as_bytes())?;
        fs::rename(&next, path)
    };
    write().map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}
