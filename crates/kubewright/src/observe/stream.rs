//! Observations out of the process, to the program that started it.
//!
//! Invariants: the operator never waits for the reader (observations that do not fit into the queue are counted, and
//! the count is sent); an operator that was started to be observed ends when the reader is gone, for any reason;
//! nothing of this exists unless the environment asks for it.

use std::io::{self, BufWriter, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

use tokio::sync::oneshot;

use super::{Message, Observation, Observer};

/// The environment variable that names the Unix socket on which an operator sends its observations, one JSON
/// [`Message`] a line. When the reader there is gone, an operator that runs by [`run`](crate::run()) or
/// [`Operator::run`](crate::Operator::run) ends as after SIGTERM.
pub const OBSERVE_SOCKET: &str = "KUBEWRIGHT_OBSERVE";

/// Observations that may wait to be written.
const WAITING: usize = 4096;

/// The reader of the observations.
pub(crate) struct Listener(oneshot::Receiver<()>);

impl Listener {
    /// Waits until it is gone.
    pub(crate) async fn gone(self) {
        // The sender is dropped, or says so: both are the end.
        let _ = self.0.await;
    }

    /// Watches the reading side, which never says anything.
    fn watch(mut from: impl Read + Send + 'static) -> io::Result<Listener> {
        let (close, gone) = oneshot::channel();
        std::thread::Builder::new().name("listener".to_owned()).spawn(move || {
            let mut ignored = [0; 64];
            while from.read(&mut ignored).is_ok_and(|count| count > 0) {}
            // There is no waiter when the operator is not run by this library.
            let _ = close.send(());
        })?;
        Ok(Listener(gone))
    }
}

/// The observer that the environment asks for, connected, and its listener. Without a connection the operator runs
/// without an observer.
pub(crate) fn from_environment(operator: &str, controllers: Vec<String>) -> Option<(Arc<dyn Observer>, Listener)> {
    let path = std::env::var_os(OBSERVE_SOCKET).filter(|path| !path.is_empty())?;
    let hello = Message::Hello {
        operator: operator.to_owned(),
        controllers,
    };
    match start(&path, hello) {
        Ok(started) => Some(started),
        Err(error) => {
            tracing::warn!(
                %error, socket = %path.display(),
                "nobody listens where {OBSERVE_SOCKET} points; the operator runs unobserved"
            );
            None
        }
    }
}

#[cfg(unix)]
fn start(path: &std::ffi::OsStr, hello: Message) -> io::Result<(Arc<dyn Observer>, Listener)> {
    let socket = std::os::unix::net::UnixStream::connect(path)?;
    let listener = Listener::watch(socket.try_clone()?)?;
    Ok((Arc::new(Stream::start(socket, hello)?), listener))
}

#[cfg(not(unix))]
fn start(_: &std::ffi::OsStr, _: Message) -> io::Result<(Arc<dyn Observer>, Listener)> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this system has no Unix sockets",
    ))
}

/// An observer with a thread that writes.
struct Stream {
    queue: SyncSender<Observation>,
    missed: Arc<AtomicU64>,
}

impl Stream {
    fn start(out: impl Write + Send + 'static, hello: Message) -> io::Result<Stream> {
        let (queue, waiting) = sync_channel(WAITING);
        let missed = Arc::new(AtomicU64::new(0));
        let lost = missed.clone();
        // A thread and not a task: which fields changed is computed when a cause is written, and a full socket blocks.
        std::thread::Builder::new()
            .name("observations".to_owned())
            .spawn(move || {
                if let Err(error) = write(BufWriter::new(out), &hello, &waiting, &lost) {
                    tracing::debug!(%error, "nobody reads the observations any more");
                }
            })?;
        Ok(Stream { queue, missed })
    }
}

impl Observer for Stream {
    fn observe(&self, what: &Observation) {
        match self.queue.try_send(what.clone()) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Writes until the operator or the reader is gone.
fn write(mut out: impl Write, hello: &Message, waiting: &Receiver<Observation>, missed: &AtomicU64) -> io::Result<()> {
    let line = |out: &mut dyn Write, message: &Message| {
        serde_json::to_writer(&mut *out, message)?;
        out.write_all(b"\n")
    };
    line(&mut out, hello)?;
    loop {
        // Flushed only when there is nothing more to say at once, so that a busy operator costs few system calls.
        let observation = match waiting.try_recv() {
            Ok(observation) => observation,
            Err(TryRecvError::Empty) => {
                out.flush()?;
                match waiting.recv() {
                    Ok(observation) => observation,
                    Err(_) => return Ok(()),
                }
            }
            Err(TryRecvError::Disconnected) => return out.flush(),
        };
        match missed.swap(0, Ordering::Relaxed) {
            0 => {}
            count => line(&mut out, &Message::Missed { count })?,
        }
        line(&mut out, &Message::Observed(observation))?;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// A reader that reads nothing until it is let.
    #[derive(Clone, Default)]
    struct Gate(Arc<(Mutex<Passage>, Condvar)>);

    #[derive(Default)]
    struct Passage {
        open: bool,
        read: Vec<u8>,
    }

    impl Gate {
        fn open(&self) {
            self.0.0.lock().expect("no panic").open = true;
            self.0.1.notify_all();
        }

        fn until(&self, text: &str) -> String {
            let mut state = self.0.0.lock().expect("no panic");
            loop {
                let read = String::from_utf8(state.read.clone()).expect("JSON is UTF-8");
                if read.contains(text) {
                    return read;
                }
                state = self.0.1.wait(state).expect("no panic");
            }
        }
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.0.lock().expect("no panic");
            while !state.open {
                state = self.0.1.wait(state).expect("no panic");
            }
            state.read.extend_from_slice(bytes);
            self.0.1.notify_all();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_reader_loses_observations_and_is_told_how_many() {
        let gate = Gate::default();
        let hello = Message::Hello {
            operator: "guestbook".into(),
            controllers: vec!["guestbook".into()],
        };
        let stream = Stream::start(gate.clone(), hello).expect("a thread starts");
        let synced = |name: &str| Observation::CacheSynced {
            resource: name.into(),
            objects: 1,
        };
        let count = WAITING * 2;
        for _ in 0..count {
            stream.observe(&synced("flood"));
        }
        gate.open();
        gate.until("missed");
        stream.observe(&synced("last"));
        let read = gate.until("last");
        let (mut missed, mut observed) = (0, 0);
        for line in read.lines() {
            match serde_json::from_str(line).expect("a message") {
                Message::Hello { controllers, .. } => assert_eq!(controllers, ["guestbook"]),
                Message::Missed { count } => missed += count,
                Message::Observed(_) => observed += 1,
            }
        }
        assert!(missed > 0);
        assert_eq!(missed + observed, count as u64 + 1, "nothing is lost unsaid");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn the_end_of_the_listener_is_noticed() {
        use futures::FutureExt as _;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let mut gone = Box::pin(Listener::watch(ours).expect("a thread starts").gone());
        assert!(gone.as_mut().now_or_never().is_none(), "it is there");
        drop(theirs);
        gone.await;
    }
}
