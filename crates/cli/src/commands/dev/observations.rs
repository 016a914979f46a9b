//! Receives the operator's observations, on the socket that its environment names.
//!
//! Invariant: an operator never waits for `dev`: it drops and counts the observations that do not fit into the socket.
//! Late observations of an older operator are shown as those of the present one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use kubewright::{Message, Observation};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// A line from an operator.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Instant, Box<Message>),
    /// A line that this command does not understand.
    Unknown(String),
}

/// Listens on the socket until it is dropped.
pub(crate) struct Listener {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Listener {
    /// Listens on a socket in `folder`, which must be private.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub(crate) fn open(folder: &Path, received: mpsc::Sender<Received>) -> std::io::Result<Listener> {
        let path = folder.join("observe.sock");
        let listener = UnixListener::bind(&path)?;
        let task = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(receive(stream, received.clone()))),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept the operator's connection");
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(Listener { path, task })
    }

    /// The socket that the operator sends to.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn receive(stream: UnixStream, received: mpsc::Sender<Received>) {
    let mut lines = BufReader::new(stream).lines();
    loop {
        let line = match lines.next_line().await {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "an operator broke off in the middle of a line");
                return;
            }
        };
        let received_line = match serde_json::from_str(&line) {
            Ok(message) => Received::Message(Instant::now(), Box::new(message)),
            Err(why) => Received::Unknown(why.to_string()),
        };
        if received.send(received_line).await.is_err() {
            return;
        }
    }
}

/// Whether all controllers of an operator have started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// The controllers that have not started yet; `None` before the operator's hello.
    expected: Option<BTreeSet<String>>,
}

impl Readiness {
    /// Whether the operator becomes ready with this message.
    pub(crate) fn observe(&mut self, message: &Message) -> bool {
        match message {
            Message::Hello { controllers, .. } => {
                self.expected = Some(controllers.iter().cloned().collect());
                controllers.is_empty()
            }
            Message::Observed(Observation::ControllerStarted { controller }) => self
                .expected
                .as_mut()
                .is_some_and(|expected| expected.remove(&**controller) && expected.is_empty()),
            _ => false,
        }
    }

    /// Whether the operator's hello came.
    pub(crate) fn is_known(&self) -> bool {
        self.expected.is_some()
    }
}
