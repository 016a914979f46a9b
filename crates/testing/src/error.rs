//! The text for a test when a state is not as expected. A test that returns an error prints its `Debug`, which is
//! therefore the text for people, with the causes.

use std::fmt;
use std::time::Duration;

use kubewright::kube;

/// Why the kit could not do a step of a test.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A state did not come about in time. The text holds the state that was there instead.
    #[error("{object} was not as expected ({expected}) within {deadline:?}; {seen}{troubles}")]
    Deadline {
        /// Kind and name of the awaited object.
        object: String,
        /// The expectation, in the test's words.
        expected: String,
        /// How long it was waited for.
        deadline: Duration,
        /// The last seen state, as JSON, or that there was none.
        seen: String,
        /// Reconciles that failed and events of the object, if there are any.
        troubles: String,
    },
    /// The operator lacks a right that the state depends on: the same request was refused again and again.
    #[error(
        "{object} cannot be as expected ({expected}), because the operator's role does not allow what it takes; {seen}{troubles}"
    )]
    Forbidden {
        /// Kind and name of the awaited object.
        object: String,
        /// The expectation, in the test's words.
        expected: String,
        /// The last seen state, as JSON, or that there was none.
        seen: String,
        /// The refused requests, with the rule that is missing.
        troubles: String,
    },
    /// The operator under test ended while the test waited for something.
    #[error("the operator {operator} ended: {why}")]
    OperatorEnded {
        /// The operator's name.
        operator: String,
        /// Its error, or its panic.
        why: String,
    },
    /// The API server refused a request that the kit made on the test's behalf.
    #[error("cannot {attempted}: {source}")]
    Api {
        /// The attempted action.
        attempted: String,
        /// The server's answer.
        #[source]
        source: kube::Error,
    },
    /// The time of this cluster is the machine's.
    #[error("the time of this cluster is the machine's; start it with TestCluster::in_virtual_time")]
    RealTime,
    /// Something goes on and on.
    #[error("the cluster did not settle within {0:?} of its own time: something changes again and again")]
    Unsettled(Duration),
    /// A long life did not go on as it began.
    #[error("after {round} rounds {what}")]
    Unsteady {
        /// The round in which it was seen.
        round: usize,
        /// What has changed.
        what: String,
    },
    /// A label selector that is none.
    #[error("{0}")]
    Selector(String),
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

/// The result of fallible operations of this crate; tests may return it as well.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<kubewright_cluster::ServerError> for Error {
    fn from(error: kubewright_cluster::ServerError) -> Error {
        Error::Cluster(error.into())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = std::error::Error::source(self);
        let mut text_so_far = self.to_string();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Most texts quote their cause.
            if !text_so_far.contains(&text) {
                write!(f, ": {text}")?;
            }
            (text_so_far, source) = (text, cause.source());
        }
        Ok(())
    }
}
