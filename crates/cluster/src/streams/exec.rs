//! Runs a command beside a container's program, or joins the program itself, and connects the streams with a client.
//!
//! Invariants: a command ends with its client and with its container, a container's program does not; output that the
//! client does not take is not read. As `ServeExec` and `ServeAttach` of the CRI's streaming server.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use kubewright_apiserver::Streams;
use kubewright_nodes::{Attached, ExecProcess, Processes, Terminal};
use kubewright_server::streams::{self as wire, ClientMessage, Remote, STATUS, STDERR, STDOUT};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{broadcast, mpsc};

/// How large a piece of output may be.
const PIECE: usize = 16 * 1024;

/// Of which container, and which of its streams.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) uid: String,
    pub(super) container: String,
    pub(super) streams: Streams,
}

/// Runs a command for a client.
pub(super) async fn run(processes: Processes, target: Target, command: Vec<String>, remote: Remote) {
    let streams = target.streams;
    let run = processes.run_connected(&target.uid, &target.container, &command, streams.stdin, streams.tty);
    match run.await {
        Ok(beside) => connect(beside, streams, remote).await,
        Err(why) => {
            let why = format!("error executing command in container: {why}");
            // A client that has gone is told nothing.
            let _ = remote.to.send((STATUS, wire::failed(&why))).await;
        }
    }
}

/// Answers for a command that does not run: nothing reads the client's input.
pub(super) async fn say(output: String, code: i32, streams: Streams, remote: Remote) {
    // As long as this is here the client may go on to speak.
    let Remote { said: _said, to } = remote;
    let output = Bytes::from(output);
    let pieces = (0..output.len()).step_by(PIECE).filter(|_| streams.stdout);
    for at in pieces {
        let piece = output.slice(at..output.len().min(at + PIECE));
        if to.send((STDOUT, piece)).await.is_err() {
            return;
        }
    }
    // A client that has gone is told nothing.
    let _ = to.send((STATUS, wire::ended(code))).await;
}

async fn connect(beside: ExecProcess, streams: Streams, remote: Remote) {
    let ExecProcess {
        input,
        output,
        error,
        terminal,
        ended,
        shim_control,
    } = beside;
    let Remote { said, to } = remote;
    let wanted = |is_wanted: bool| is_wanted.then(|| to.clone());
    let reading = async {
        tokio::join!(
            read(output, STDOUT, wanted(streams.stdout)),
            read(error, STDERR, wanted(streams.stderr))
        );
    };
    let running = async {
        let (code, ()) = tokio::join!(ended, reading);
        // Behind the last piece.
        let _ = to.send((STATUS, wire::ended(code))).await;
    };
    let mut running = std::pin::pin!(running);
    tokio::select! {
        () = &mut running => {}
        () = hear(said, input, terminal) => {
            shim_control.kill();
            running.await;
        }
        () = to.closed() => {
            shim_control.kill();
            running.await;
        }
    }
}

/// Reads a stream to its end; bytes that no client wants are thrown away.
async fn read(from: Option<Box<dyn AsyncRead + Send + Unpin>>, stream: u8, to: Option<mpsc::Sender<(u8, Bytes)>>) {
    let Some(mut from) = from else { return };
    let mut piece = vec![0; PIECE];
    // A terminal ends with an error when its program has ended.
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        if let Some(to) = &to
            && to
                .send((stream, Bytes::copy_from_slice(&piece[..length])))
                .await
                .is_err()
        {
            return;
        }
    }
}

/// Reads the client's messages until it goes.
async fn hear(
    mut said: mpsc::Receiver<ClientMessage>,
    mut input: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    terminal: Option<Arc<Terminal>>,
) {
    while let Some(said) = said.recv().await {
        match said {
            ClientMessage::Input(bytes) => {
                if let Some(to) = &mut input
                    && write(to, &bytes).await.is_err()
                {
                    // The program reads nothing more.
                    input = None;
                }
            }
            ClientMessage::InputEnds => input = None,
            ClientMessage::Size(columns, rows) => {
                if let Some(terminal) = &terminal {
                    terminal.resize(columns, rows);
                }
            }
            ClientMessage::Nothing => {}
        }
    }
}

async fn write(to: &mut (dyn AsyncWrite + Send + Unpin), bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// Joins a client with the program of a container, until that ends.
pub(super) async fn attach(attached: Attached, streams: Streams, remote: Remote) {
    let Remote { mut said, to } = remote;
    let Attached {
        mut output,
        input,
        terminal,
        ended,
    } = attached;
    let telling = async {
        loop {
            let (stream, piece) = match output.recv().await {
                Ok(piece) => piece,
                // A client that is too slow misses something; the log has it.
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return,
            };
            let is_wanted = if stream == STDERR {
                streams.stderr
            } else {
                streams.stdout
            };
            if is_wanted && to.send((stream, piece)).await.is_err() {
                return;
            }
        }
    };
    let hearing = async {
        while let Some(said) = said.recv().await {
            match said {
                ClientMessage::Input(bytes) => {
                    if let Some(input) = &input {
                        input.write(&bytes).await;
                    }
                }
                ClientMessage::InputEnds => {
                    if let Some(input) = &input {
                        input.detach().await;
                    }
                }
                ClientMessage::Size(columns, rows) => {
                    if let Some(terminal) = &terminal {
                        terminal.resize(columns, rows);
                    }
                }
                ClientMessage::Nothing => {}
            }
        }
    };
    let is_over = async {
        let mut telling = std::pin::pin!(telling);
        tokio::select! {
            () = &mut telling => {}
            () = ended => {
                // The output before the end is there already.
                let _ = tokio::time::timeout(std::time::Duration::from_millis(100), telling).await;
            }
        }
        let _ = to.send((STATUS, wire::ended(0))).await;
    };
    tokio::select! {
        () = is_over => {}
        () = hearing => {}
    }
    if let Some(input) = &input {
        input.detach().await;
    }
}
