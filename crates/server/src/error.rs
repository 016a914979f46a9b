//! The errors of a server's start.

use crate::durable::DataDirError;

/// Why a part of the server could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key or a certificate could not be made.
    #[error("cannot make the {what}: {source}")]
    Certificate {
        /// Which one, such as "serving certificate".
        what: &'static str,
        /// The error of the certificate library.
        #[source]
        source: rcgen::Error,
    },
    /// The TLS library refused the certificates that were made for it.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// A certificate for a webhook server could not be put on the disk.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or folder.
        path: std::path::PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The data folder cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
}

/// The result of fallible operations of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
