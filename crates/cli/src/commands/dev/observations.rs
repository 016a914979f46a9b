//! Receives the operator's observations: the reading end of the socket that its environment names.
//!
//! Invariants: `dev` never makes an operator wait (observations that it cannot take are lost and counted at the other
//! end); one operator speaks at a time, and late observations of an older one are shown as its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use kubewright::{Message, Observation};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// Something that an operator said.
#[derive(Debug)]
pub(crate) enum Heard {
    Said(Instant, Box<Message>),
    /// A line that this command does not understand.
    Unknown(String),
}

/// Listens until it is dropped.
pub(crate) struct Ear {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Ear {
    /// Listens on a socket in `folder`, which must be private.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub(crate) fn open(folder: &Path, heard: mpsc::Sender<Heard>) -> std::io::Result<Ear> {
        let path = folder.join("observe.sock");
        let listener = UnixListener::bind(&path)?;
        let task = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(listen(stream, heard.clone()))),
                    Err(error) => {
                        tracing::warn!(%error, "the operator cannot be heard");
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(Ear { path, task })
    }

    /// Where the operator is to speak.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(stream: UnixStream, heard: mpsc::Sender<Heard>) {
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
        let said = match serde_json::from_str(&line) {
            Ok(message) => Heard::Said(Instant::now(), Box::new(message)),
            Err(why) => Heard::Unknown(why.to_string()),
        };
        if heard.send(said).await.is_err() {
            return;
        }
    }
}

/// Whether all controllers of an operator work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// The controllers that have not reported yet; none before the operator has introduced itself.
    expected: Option<BTreeSet<String>>,
}

impl Readiness {
    /// Takes a message; `true` when with it everything is ready.
    pub(crate) fn hear(&mut self, message: &Message) -> bool {
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

    /// Whether the operator has introduced itself.
    pub(crate) fn is_heard(&self) -> bool {
        self.expected.is_some()
    }
}
