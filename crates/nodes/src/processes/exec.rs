//! Commands that clients run beside a container's program, with their streams, and clients that attach to the program.
//!
//! Invariant: an attached client never holds the program up: output that it does not take in time is missed, and the
//! log has it.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kubewright_objects::api::core::v1::LifecycleHandler;
use rustix::pty::OpenptFlags;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::broadcast;

use super::Processes;
use super::instance::{Instance, Running};
use super::launch::{Order, ShimControl};
use super::probes;

/// A command that runs, and its streams.
pub struct ExecProcess {
    /// Its standard input.
    pub input: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Its standard output.
    pub output: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its standard error.
    pub error: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its terminal, when it has one.
    pub terminal: Option<Arc<Terminal>>,
    /// Its exit code, when it and all that it started have ended.
    pub ended: BoxFuture<'static, i32>,
    /// Ends it.
    pub shim_control: ShimControl,
}

/// The terminal of a command.
pub struct Terminal(File);

impl Terminal {
    /// Makes one, and says where the program finds its end.
    pub(super) fn open(give: impl FnOnce(&std::path::Path) -> io::Result<()>) -> io::Result<(Terminal, String)> {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        let name = rustix::pty::ptsname(&master, Vec::new())?;
        let name = name.into_string().map_err(io::Error::other)?;
        give(&PathBuf::from(&name))?;
        Ok((Terminal(File::from(master)), name))
    }

    /// Says how large it is.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = rustix::termios::Winsize {
            ws_col: columns,
            ws_row: rows,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // A closed terminal has no size.
        let _ = rustix::termios::tcsetwinsize(&self.0, size);
    }
}

/// A stream in one direction of a terminal.
type Half = tokio::fs::File;

impl Terminal {
    /// Another handle to it.
    pub(super) fn half(&self) -> io::Result<Half> {
        self.0.try_clone().map(Half::from_std)
    }
}

/// The standard input of a container's program, to which clients may write.
pub struct Input {
    to: tokio::sync::Mutex<Option<Box<dyn AsyncWrite + Send + Unpin>>>,
    /// Whether it ends with the first client that had it (`stdinOnce`).
    is_once: bool,
}

impl Input {
    pub(super) fn new(to: impl AsyncWrite + Send + Unpin + 'static, is_once: bool) -> Input {
        Input {
            to: tokio::sync::Mutex::new(Some(Box::new(to))),
            is_once,
        }
    }

    /// Gives the program something to read. A program that has closed its input gets no more.
    pub async fn write(&self, bytes: &[u8]) {
        let mut to = self.to.lock().await;
        let Some(stream) = to.as_mut() else { return };
        let written = async {
            stream.write_all(bytes).await?;
            stream.flush().await
        };
        if written.await.is_err() {
            *to = None;
        }
    }

    /// A client has nothing more to say, or has gone.
    pub async fn detach(&self) {
        if self.is_once {
            *self.to.lock().await = None;
        }
    }
}

/// A client that has joined a container's program.
pub struct Attached {
    /// Pieces of its output, with the number of the stream.
    pub output: broadcast::Receiver<(u8, Bytes)>,
    /// Its input, when the client wants it.
    pub input: Option<Arc<Input>>,
    /// Its terminal, when it has one.
    pub terminal: Option<Arc<Terminal>>,
    /// Ready when the program has ended.
    pub ended: BoxFuture<'static, ()>,
}

impl Processes {
    /// Joins a container's program; none when it does not run.
    pub fn attach(&self, uid: &str, container: &str, has_input: bool) -> Option<Attached> {
        let instance = self.instance(uid, container)?;
        let running = instance.running()?;
        let (output, terminal) = (instance.output.subscribe(), running.terminal.clone());
        let input = running.input.clone().filter(|_| has_input);
        let ended = async move { instance.ended().await };
        Some(Attached {
            output,
            input,
            terminal,
            ended: ended.boxed(),
        })
    }

    /// Runs a command beside a container's program, with a terminal if it is to have one.
    ///
    /// # Errors
    /// In words, when the container does not run or the command cannot be started.
    pub async fn run_connected(
        &self,
        uid: &str,
        container: &str,
        command: &[String],
        has_input: bool,
        has_terminal: bool,
    ) -> Result<ExecProcess, String> {
        let gone = || format!("container not found (\"{container}\")");
        let instance = self.instance(uid, container).ok_or_else(gone)?;
        let mut order = instance.running().ok_or_else(gone)?.beside(command);
        let in_words = |error: io::Error| error.to_string();
        let (terminal, stdio) = self.stdio(&mut order, has_input, has_terminal).map_err(in_words)?;
        let mut launched = self.0.launcher.launch(&order, stdio).await.map_err(in_words)?;
        let shim = &mut launched.shim;
        let mut input = shim
            .stdin
            .take()
            .map(|input| Box::new(input) as Box<dyn AsyncWrite + Send + Unpin>);
        let mut output = shim
            .stdout
            .take()
            .map(|output| Box::new(output) as Box<dyn AsyncRead + Send + Unpin>);
        let error = shim
            .stderr
            .take()
            .map(|error| Box::new(error) as Box<dyn AsyncRead + Send + Unpin>);
        if let Some(terminal) = &terminal {
            let half = || terminal.half().map_err(in_words);
            output = Some(Box::new(half()?));
            input = Some(Box::new(half()?)).filter(|_| has_input).map(|half| half as _);
        }
        let shim_control = launched.shim_control.clone();
        let (all, own) = (instance.clone(), shim_control.clone());
        let ended = async move {
            let mut ended = Box::pin(launched.ended());
            tokio::select! {
                code = &mut ended => return code,
                // With the container all that runs beside its program ends.
                () = all.ended() => own.kill(),
            }
            ended.await
        };
        Ok(ExecProcess {
            input,
            output,
            error,
            terminal,
            ended: ended.boxed(),
            shim_control,
        })
    }

    /// The standard streams of a program: a terminal, or pipes.
    pub(super) fn stdio(
        &self,
        order: &mut Order,
        has_input: bool,
        has_terminal: bool,
    ) -> std::io::Result<(Option<Arc<Terminal>>, [Stdio; 3])> {
        if !has_terminal {
            let input = if has_input { Stdio::piped() } else { Stdio::null() };
            return Ok((None, [input, Stdio::piped(), Stdio::piped()]));
        }
        let (terminal, name) = Terminal::open(|path| match order.user {
            // The system's own folder of terminals has no links.
            Some(user) => std::os::unix::fs::chown(path, Some(user.number()), Some(user.number())),
            None => Ok(()),
        })?;
        order.terminal = Some(name);
        let kind = order.environment.entry("TERM".to_owned());
        kind.or_insert_with(|| "xterm".to_owned());
        Ok((Some(Arc::new(terminal)), [Stdio::null(), Stdio::null(), Stdio::null()]))
    }

    /// Runs a hook to its end.
    pub(super) async fn hook(&self, instance: &Instance, hook: &LifecycleHandler) -> Result<(), String> {
        let Some(running) = instance.running() else {
            return Ok(());
        };
        if let Some(exec) = &hook.exec {
            let command = exec.command.clone().unwrap_or_default();
            let (code, said) = self.run_beside(instance, running, &command).await?;
            return match code {
                0 => Ok(()),
                code => Err(format!("command '{}' exited with {code}: {said}", command.join(" "))),
            };
        }
        if let Some(sleep) = &hook.sleep {
            let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
            tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
            return Ok(());
        }
        match &hook.http_get {
            Some(get) => probes::http(running, &instance.container, get).await,
            None => Ok(()),
        }
    }

    /// Runs a command beside a container's program to its end; its exit code and the first 10 KiB that it says.
    pub(super) async fn run_beside(
        &self,
        instance: &Instance,
        running: &Running,
        command: &[String],
    ) -> Result<(i32, String), String> {
        use tokio::io::AsyncReadExt as _;
        let order = running.beside(command);
        let pipes = [Stdio::null(), Stdio::piped(), Stdio::piped()];
        let mut launched = self
            .0
            .launcher
            .launch(&order, pipes)
            .await
            .map_err(|error| error.to_string())?;
        let (out, err) = (launched.shim.stdout.take(), launched.shim.stderr.take());
        let read = |stream: Option<std::pin::Pin<Box<dyn tokio::io::AsyncRead + Send>>>| async {
            let mut said = Vec::new();
            if let Some(mut stream) = stream {
                // The part that could be read counts.
                let _ = (&mut stream).take(10 * 1024).read_to_end(&mut said).await;
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            }
            said
        };
        let (out, err) = (out.map(|out| Box::pin(out) as _), err.map(|err| Box::pin(err) as _));
        let shim_control = launched.shim_control.clone();
        let done = async { tokio::join!(launched.ended(), read(out), read(err)) };
        tokio::select! {
            (code, out, err) = done => {
                let said = String::from_utf8_lossy(&[out, err].concat()).trim_end().to_owned();
                Ok((code, said))
            }
            () = instance.ended() => {
                shim_control.kill();
                Err("the container ended".to_owned())
            }
        }
    }
}
