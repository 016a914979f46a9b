//! The errors of a cluster's folder.

use std::io;
use std::path::PathBuf;

use kubewright_apiserver::Minor;

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// The file system refused something.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The attempted action, such as "create".
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Another process uses the folder.
    #[error("{} is in use by {holder}; a folder serves one cluster at a time", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process that uses it, such as "process 4711".
        holder: String,
    },
    /// The folder holds other things than a cluster. Nothing in it was touched.
    #[error("{} is not the folder of a cluster: {why}; name an empty folder or one that does not exist", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// The contents found there.
        why: String,
    },
    /// A newer version of kubewright wrote the folder.
    #[error("{} has format {found}, and this version knows formats up to {known}; use the version that wrote it", path.display())]
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest that is known here.
        known: u64,
    },
    /// The folder holds the objects of a newer version of Kubernetes than the cluster is to serve.
    #[error("{} holds the objects of a cluster of Kubernetes {found}, and Kubernetes {asked} does not know all of them; start it with --kubernetes-version {found}, or name another folder", path.display())]
    NewerKubernetes {
        /// The folder.
        path: PathBuf,
        /// The version whose objects it holds.
        found: String,
        /// The version that was to be served.
        asked: Minor,
    },
    /// The folder's contents differ from the written ones. Nothing in it was touched.
    #[error("{} is damaged:\n  {}\n{rescue}", file.display(), damage.join("\n  "))]
    Damaged {
        /// The damaged file.
        file: PathBuf,
        /// The damage, and its place.
        damage: Vec<String>,
        /// The objects that can be saved, and how.
        rescue: String,
    },
    /// The database failed in another way.
    #[error("cannot use {}: {why}", file.display())]
    Database {
        /// The file.
        file: PathBuf,
        /// The error of the database.
        why: String,
    },
}

impl DataDirError {
    /// Wraps an error of the file system.
    pub(super) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> DataDirError {
        let path = path.into();
        move |source| DataDirError::Io { doing, path, source }
    }
}
