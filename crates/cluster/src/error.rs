//! The errors of a cluster's start and of its listeners.

use std::net::SocketAddr;

/// Why a cluster could not do a requested step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A part of its server could not be made: a certificate, TLS, the data folder.
    #[error(transparent)]
    Server(#[from] kubewright_server::Error),
    /// The address could not be bound: in use, not of this machine, or a port below 1024 without the right to it.
    #[error("cannot listen on {address}: {source}; pass another address, or port 0 for a free port")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A controller was asked for that does not exist.
    #[error("there is no controller {name:?}; controllers are {known}")]
    UnknownController {
        /// The name that was asked for.
        name: String,
        /// The names that exist, joined with ", ".
        known: String,
    },
    /// The simulated nodes cannot be as they are asked for.
    #[error("the simulated nodes are not valid: {0}")]
    Nodes(String),
    /// Pods cannot run as processes here.
    #[error("pods cannot run as processes: {0}")]
    Processes(#[source] std::io::Error),
    /// An authorization webhook cannot be asked as its kubeconfig says.
    #[error("{0}")]
    Webhook(String),
    /// The disk of the data folder refuses the first objects of every cluster.
    #[error("the cluster cannot keep anything: {}", .0.message)]
    NotKept(kubewright_apiserver::Status),
    /// The threads that serve HTTPS could not be started.
    #[error("cannot start the threads that serve HTTPS: {0}; allow the process more threads")]
    Threads(#[source] std::io::Error),
    /// The cluster is stopped: it answers no more and cannot be started again. Start another one.
    #[error("the cluster is stopped; start another one with Cluster::start()")]
    Stopped,
}

/// The result of fallible operations of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
