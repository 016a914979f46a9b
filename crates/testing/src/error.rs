//! What a test gets to read when things are not as it expects.

use std::time::Duration;

use kubewright::kube;

/// Why the kit could not do what a test asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A state did not come about in time. The text holds what was there instead.
    #[error("{object} was not as expected ({expected}) within {deadline:?}; {seen}")]
    Deadline {
        /// Kind and name of what was waited for.
        object: String,
        /// What was expected, in the test's words.
        expected: String,
        /// How long it was waited for.
        deadline: Duration,
        /// What was seen last, as JSON, or that nothing was.
        seen: String,
    },
    /// The operator under test ended while the test waited for something.
    #[error("the operator {operator} ended: {why}")]
    OperatorEnded {
        /// The operator's name.
        operator: String,
        /// Its error, or its panic.
        why: String,
    },
    /// The API server refused what the kit asked for on the test's behalf.
    #[error("cannot {attempted}: {source}")]
    Api {
        /// What was attempted.
        attempted: String,
        /// The server's answer.
        #[source]
        source: kube::Error,
    },
    /// The cluster could not be started or could not listen.
    #[error(transparent)]
    Cluster(#[from] kubewright_cluster::Error),
    /// An error of the runtime, for tests that use its client with `?`.
    #[error(transparent)]
    Runtime(#[from] kubewright::Error),
    /// An error of kube, for tests that use its client with `?`.
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

/// What fallible operations of this crate return; tests may return it as well.
pub type Result<T, E = Error> = std::result::Result<T, E>;
