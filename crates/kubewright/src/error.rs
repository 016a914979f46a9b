//! The errors of the runtime, by how the runtime reacts to them.
//!
//! A reconcile returns [`Error`] and the variant decides: retry with backoff, retry quietly (conflicts are normal), or
//! give up until the object changes. `?` works on [`kube::Error`], on [`BoxError`] (and so, by way of a function that
//! returns one, on any error), on the usual errors of the standard library, and with the feature `anyhow` on its errors;
//! [`Fails`] says of any other what it leads to.
//!
//! Invariant: every text names the attempt and its object. Not here: field errors of the API server, they arrive inside
//! [`kube::core::Status`].

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use kube::core::Status;

use crate::fault::fault_of;

/// Any error, boxed, as it travels inside [`Error`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// The result of everything in kubewright.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed; the variant decides the next step of a controller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A failure of the reconciler itself that may pass: retried with exponential backoff.
    #[error("{0}")]
    Retry(#[source] BoxError),

    /// A failure that trying again cannot cure (controller-runtime's `TerminalError`): logged and dropped until the
    /// object changes.
    #[error("{0}")]
    Terminal(#[source] BoxError),

    /// As [`Error::Retry`], with the time that the retry waits, such as the one that a service asked for.
    #[error("{source}")]
    RetryAfter {
        /// How long.
        after: Duration,
        /// The failure.
        source: BoxError,
    },

    /// An error that has passed through other code, which may have added to it. It leads to what the error of this type
    /// among its sources leads to; without one it is retried as [`Error::Retry`].
    #[error("{}", Chain(&**.0))]
    Passed(BoxError),

    /// The cache did not catch up with a write of our own within the deadline, so an answer would have been out of
    /// date. Retried.
    #[error(
        "the cache of {what} did not show our own write within {waited:?}; reading it now could return an older state"
    )]
    Stale {
        /// The read: the kind and, for one object, its name.
        what: String,
        /// How long the read waited.
        waited: Duration,
    },

    /// The object exists and its Rust type cannot read it. Logged and dropped until it changes; see
    /// [`crate::Informer::unreadable`].
    #[error("{object} cannot be decoded into the Rust type: {reason}")]
    Undecodable {
        /// The kind and name.
        object: String,
        /// The error of serde.
        reason: String,
    },

    /// The object changed since it was read (409 Conflict). Normal under concurrency: retried, logged at info level.
    #[error("{0}")]
    Conflict(#[source] Box<ApiError>),

    /// The API server refused or the request did not reach it. Retried with exponential backoff.
    #[error("{0}")]
    Api(#[source] Box<ApiError>),

    /// A write that was not sent, because another replica may lead by now (see [`crate::LeaderElection`]). Nothing is
    /// repeated here: the leader reconciles the object.
    #[error("{attempted}: it was not sent, because this replica does not lead any more")]
    NotLeading {
        /// The attempted action.
        attempted: String,
    },

    /// The object has another controller, so it is not ours to change. Retried, because the owner may go away.
    #[error(
        "cannot take over {object}: it is controlled by {owner}, not by {wanted}; rename one of the two or remove the other owner"
    )]
    AlreadyOwned {
        /// The object that was to be written.
        object: String,
        /// The controller that owns it now.
        owner: String,
        /// The controller that wanted it.
        wanted: String,
    },

    /// A cache did not finish its initial list in time.
    #[error("the cache of {what} was not synced after {waited:?}: {reason}")]
    NotSynced {
        /// The kind and scope.
        what: String,
        /// How long was waited.
        waited: Duration,
        /// The last failure of its list or watch, or that the server has not answered yet.
        reason: String,
    },

    /// The reconciler or a runnable panicked. Other keys are not affected; this one is retried.
    #[error("{what} panicked: {message}")]
    Panic {
        /// The function that ran.
        what: String,
        /// The panic's message.
        message: String,
    },

    /// The manager could not stop everything in time.
    #[error("still running {deadline:?} after the stop was asked for: {}", .stuck.join(", "))]
    Shutdown {
        /// The graceful period.
        deadline: Duration,
        /// Who did not stop, by name.
        stuck: Vec<String>,
    },

    /// A part of the manager failed; the source says how.
    #[error("{name}: {source}")]
    Failed {
        /// The controller, runnable or server.
        name: String,
        /// Its error.
        #[source]
        source: Box<Error>,
    },

    /// The operator is put together in a way that cannot work.
    #[error("{0}")]
    Configuration(String),
}

/// A request that the API server refused or never answered, with the attempt.
#[derive(Debug)]
pub struct ApiError {
    /// The attempted action, such as `create Deployment default/hello`. Empty when unknown.
    pub attempted: String,
    /// The client's error.
    pub source: kube::Error,
}

impl ApiError {
    /// The server's `Status`, when it was the server that refused.
    pub fn status(&self) -> Option<&Status> {
        match &self.source {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.attempted.is_empty() {
            write!(f, "{}: ", self.attempted)?;
        }
        match self.status() {
            // kube's own Display prints the whole struct; people want the server's sentence.
            Some(status) if status.message.is_empty() => write!(f, "{} (HTTP {})", status.reason, status.code),
            Some(status) => f.write_str(&status.message),
            None => write!(f, "{}", Chain(&self.source)),
        }
    }
}

impl std::error::Error for ApiError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Prints an error with its sources, skipping those that the outer text already contains.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut next = self.0.source();
        while let Some(error) = next {
            let inner = error.to_string();
            if !text.contains(&inner) {
                text.push_str(": ");
                text.push_str(&inner);
            }
            // An error of this type has said what its sources say.
            next = error.source().filter(|_| !error.is::<Error>());
        }
        f.write_str(&text)
    }
}

/// Whether it can be the reason of a condition.
fn is_word(reason: &str) -> bool {
    let mut letters = reason.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic()) && letters.all(|c| c.is_ascii_alphanumeric())
}

/// Whether other managers' fields are the reason (`FieldManagerConflict`).
fn names_managers(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "FieldManagerConflict")
}

impl Error {
    /// A failure that may pass: the key is retried with backoff.
    ///
    /// ```
    /// let error = kubewright::Error::retry("the load balancer has no address yet");
    /// assert_eq!(error.to_string(), "the load balancer has no address yet");
    /// ```
    pub fn retry(cause: impl Into<BoxError>) -> Error {
        Error::Retry(cause.into())
    }

    /// A failure that may pass: the key is retried after this time, however often it has failed. It counts as a failure
    /// in metrics and logs; a reconcile that merely has to wait answers [`crate::Action::requeue_after`].
    pub fn retry_after(after: Duration, cause: impl Into<BoxError>) -> Error {
        let source = cause.into();
        Error::RetryAfter { after, source }
    }

    /// A failure that only a change of the object can cure: the key is not retried.
    pub fn terminal(cause: impl Into<BoxError>) -> Error {
        Error::Terminal(cause.into())
    }

    /// Sorts a client error into [`Error::Conflict`] or [`Error::Api`], with the attempt.
    pub fn from_api(attempted: impl Into<String>, source: kube::Error) -> Error {
        // An error of ours that came through a `kube::Api` (see `Client::api`) is what it was.
        let source = match source {
            kube::Error::Service(inner) => match inner.downcast::<Error>() {
                Ok(ours) => return *ours,
                Err(inner) => kube::Error::Service(inner),
            },
            source => source,
        };
        // Reading again does not change who manages a field.
        let conflict = matches!(&source, kube::Error::Api(status) if status.is_conflict() && !names_managers(status));
        let error = Box::new(ApiError {
            attempted: attempted.into(),
            source,
        });
        if conflict {
            Error::Conflict(error)
        } else {
            Error::Api(error)
        }
    }

    /// The error that decides what this one leads to: itself, or the one that has passed through other code.
    pub(crate) fn deciding(&self) -> &Error {
        let Error::Passed(outer) = self else { return self };
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&**outer);
        while let Some(error) = next {
            if let Some(inner) = error.downcast_ref::<Error>() {
                return inner.deciding();
            }
            next = error.source();
        }
        self
    }

    /// Why, in one word in CamelCase, as conditions and events have it: the API server's reason, such as `Forbidden`, or
    /// the kind of error.
    pub fn reason(&self) -> &str {
        match self.deciding() {
            Error::Api(error) | Error::Conflict(error) => match error.status() {
                Some(status) if is_word(&status.reason) => &status.reason,
                Some(_) => "Refused",
                None => "ApiServerUnreachable",
            },
            Error::Failed { source, .. } => source.reason(),
            Error::Terminal(_) => "Invalid",
            Error::Stale { .. } | Error::NotSynced { .. } => "CacheBehind",
            Error::Undecodable { .. } => "Undecodable",
            Error::NotLeading { .. } => "NotLeading",
            Error::AlreadyOwned { .. } => "AlreadyOwned",
            Error::Panic { .. } => "Panic",
            Error::Configuration(_) => "Misconfigured",
            Error::Retry(_) | Error::RetryAfter { .. } | Error::Passed(_) | Error::Shutdown { .. } => "Failed",
        }
    }

    /// The server's `Status` when the API server refused.
    pub fn status(&self) -> Option<&Status> {
        match self.deciding() {
            Error::Api(error) | Error::Conflict(error) => error.status(),
            Error::Failed { source, .. } => source.status(),
            _ => None,
        }
    }

    /// The object does not exist, or its kind does not (404).
    pub fn is_not_found(&self) -> bool {
        // Of a kind that it does not serve, the API server says no reason, but `404 page not found`.
        self.status()
            .is_some_and(|status| status.is_not_found() || status.code == 404)
    }

    /// The API server knows the kind, and has no such object.
    pub(crate) fn is_absent(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// The object exists already (409 AlreadyExists).
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// The object changed since it was read (409 Conflict).
    pub fn is_conflict(&self) -> bool {
        matches!(self.deciding(), Error::Conflict(_))
    }

    /// An apply was refused because it would change fields of other managers (409 with the fields as causes); see
    /// [`Client::without_force`](crate::Client::without_force).
    pub fn is_field_conflict(&self) -> bool {
        self.status().is_some_and(names_managers)
    }

    /// Trying again cannot help.
    pub fn is_terminal(&self) -> bool {
        matches!(self.deciding(), Error::Terminal(_) | Error::Undecodable { .. })
    }

    /// A write may or may not have happened: the request left and no answer came back, or only a server-side time-out
    /// did.
    pub(crate) fn outcome_unknown(&self) -> bool {
        match self.deciding() {
            Error::Api(error) => match error.status() {
                Some(status) => status.code >= 500,
                None => match error.source {
                    kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => false,
                    ref source => !fault_of(source).not_applied(),
                },
            },
            _ => false,
        }
    }

    pub(crate) fn in_part(self, name: impl Into<String>) -> Error {
        Error::Failed {
            name: name.into(),
            source: Box::new(self),
        }
    }
}

impl From<kube::Error> for Error {
    fn from(source: kube::Error) -> Error {
        Error::from_api("", source)
    }
}

impl From<serde_json::Error> for Error {
    /// JSON that cannot be made or read now cannot be made or read later: terminal.
    fn from(source: serde_json::Error) -> Error {
        Error::Terminal(Box::new(source))
    }
}

impl From<std::io::Error> for Error {
    fn from(source: std::io::Error) -> Error {
        Error::Retry(Box::new(source))
    }
}

/// Any error by `?`, with its effect on the key: errors of other crates know nothing of retries, so their place in the
/// code says it.
///
/// (An error type of the operator's own may say it once and for all, by `impl From<MyError> for kubewright::Error`.)
///
/// ```
/// use std::time::Duration;
/// use kubewright::{Fails, Result};
///
/// fn parse(port: &str) -> Result<u16> {
///     port.parse().or_terminal() // only another spec can help
/// }
///
/// fn load(path: &str) -> Result<String> {
///     std::fs::read_to_string(path).or_retry_after(Duration::from_secs(30))
/// }
///
/// assert!(parse("http").unwrap_err().is_terminal());
/// assert!(!load("/nowhere").unwrap_err().is_terminal());
/// ```
pub trait Fails<T>: Sized {
    /// The key is retried with backoff, as after [`Error::retry`].
    ///
    /// # Errors
    /// [`Error::Retry`].
    fn or_retry(self) -> Result<T>;

    /// The key is retried after this time, as after [`Error::retry_after`].
    ///
    /// # Errors
    /// [`Error::RetryAfter`].
    fn or_retry_after(self, after: Duration) -> Result<T>;

    /// The key waits until something changes, as after [`Error::terminal`].
    ///
    /// # Errors
    /// [`Error::Terminal`].
    fn or_terminal(self) -> Result<T>;
}

impl<T, E: Into<BoxError>> Fails<T> for Result<T, E> {
    fn or_retry(self) -> Result<T> {
        self.map_err(Error::retry)
    }

    fn or_retry_after(self, after: Duration) -> Result<T> {
        self.map_err(|cause| Error::retry_after(after, cause))
    }

    fn or_terminal(self) -> Result<T> {
        self.map_err(Error::terminal)
    }
}

impl From<BoxError> for Error {
    /// An error that was one of these before leads to the same; one without a verdict may pass.
    ///
    /// ```
    /// use kubewright::{BoxError, Error, Result};
    ///
    /// // `?` works on every error here.
    /// fn ports(text: &str) -> Result<Vec<u16>, BoxError> {
    ///     let port: u16 = text.parse()?;
    ///     if port == 0 {
    ///         return Err(Error::terminal("port 0 is no port").into());
    ///     }
    ///     Ok(vec![port])
    /// }
    ///
    /// fn reconciled(text: &str) -> Result<usize> {
    ///     Ok(ports(text)?.len())
    /// }
    ///
    /// assert!(reconciled("0").unwrap_err().is_terminal());
    /// ```
    fn from(cause: BoxError) -> Error {
        let cause = match cause.downcast::<Error>() {
            Ok(same) => return *same,
            Err(cause) => cause,
        };
        let cause = match cause.downcast::<kube::Error>() {
            Ok(answer) => return Error::from(*answer),
            Err(cause) => cause,
        };
        Error::Passed(cause)
    }
}

#[cfg(feature = "anyhow")]
impl From<anyhow::Error> for Error {
    /// As an error in a box; context that was added stays in the text.
    fn from(cause: anyhow::Error) -> Error {
        match cause.downcast::<Error>() {
            Ok(same) => same,
            Err(cause) => Error::from(BoxError::from(cause)),
        }
    }
}

/// Errors of the standard library: what cannot be understood now cannot be understood later.
macro_rules! terminal {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Error {
            /// Terminal: the same text is no other one later.
            fn from(source: $error) -> Error {
                Error::Terminal(Box::new(source))
            }
        }
    )*};
}

terminal!(
    std::num::ParseIntError,
    std::num::ParseFloatError,
    std::num::TryFromIntError,
    std::str::ParseBoolError,
    std::str::Utf8Error,
    std::string::FromUtf8Error,
    std::net::AddrParseError,
    std::fmt::Error,
);

impl From<tokio::time::error::Elapsed> for Error {
    /// What took too long may be quicker later.
    fn from(source: tokio::time::error::Elapsed) -> Error {
        Error::Retry(Box::new(source))
    }
}

pub(crate) use kubewright_engine::dispatch::end_of_panic;

/// The text of something whose `Display` is a user's, and may panic.
pub(crate) fn text_of(what: &dyn fmt::Display) -> String {
    catch_unwind(AssertUnwindSafe(|| what.to_string())).unwrap_or_else(|payload| {
        let message = end_of_panic(payload);
        format!("(the Display of this error panicked: {message})")
    })
}

#[cfg(test)]
mod tests;
