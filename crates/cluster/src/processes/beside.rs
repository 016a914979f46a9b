//! Commands that clients run beside a container's program, with their streams.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustix::pty::OpenptFlags;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Processes;
use super::launch::Reins;

/// A command that runs, and its streams.
pub(crate) struct Beside {
    pub(crate) input: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub(crate) output: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub(crate) error: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub(crate) terminal: Option<Arc<Terminal>>,
    /// Its exit code, when it and all that it started have ended.
    pub(crate) ended: BoxFuture<'static, i32>,
    pub(crate) reins: Reins,
}

/// The terminal of a command.
pub(crate) struct Terminal(File);

impl Terminal {
    /// Makes one, and says where the program finds its end.
    fn open(give: impl FnOnce(&std::path::Path) -> io::Result<()>) -> io::Result<(Terminal, String)> {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        let name = rustix::pty::ptsname(&master, Vec::new())?;
        let name = name.into_string().map_err(io::Error::other)?;
        give(&PathBuf::from(&name))?;
        Ok((Terminal(File::from(master)), name))
    }

    /// Says how large it is.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = rustix::termios::Winsize {
            ws_col: columns,
            ws_row: rows,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // One that is closed has no size.
        let _ = rustix::termios::tcsetwinsize(&self.0, size);
    }
}

impl Processes {
    /// Runs a command beside a container's program, with a terminal if it is to have one.
    ///
    /// # Errors
    /// In words, when the container does not run or the command cannot be started.
    pub(crate) async fn run_connected(
        &self,
        uid: &str,
        container: &str,
        command: &[String],
        has_input: bool,
        has_terminal: bool,
    ) -> Result<Beside, String> {
        let gone = || format!("container not found (\"{container}\")");
        let instance = self.instance(uid, container).ok_or_else(gone)?;
        let mut order = instance.running().ok_or_else(gone)?.beside(command);
        let in_words = |error: io::Error| error.to_string();
        let mut terminal = None;
        let stdio = if has_terminal {
            let (made, name) = Terminal::open(|path| self.0.home.give(path)).map_err(in_words)?;
            order.terminal = Some(name);
            order.environment.entry("TERM".to_owned()).or_insert_with(|| "xterm".to_owned());
            terminal = Some(Arc::new(made));
            [Stdio::null(), Stdio::null(), Stdio::null()]
        } else {
            let input = if has_input { Stdio::piped() } else { Stdio::null() };
            [input, Stdio::piped(), Stdio::piped()]
        };
        let mut launched = self.0.launcher.launch(&order, stdio).await.map_err(in_words)?;
        let shim = &mut launched.shim;
        let mut input = shim.stdin.take().map(|input| Box::new(input) as Box<dyn AsyncWrite + Send + Unpin>);
        let mut output = shim.stdout.take().map(|output| Box::new(output) as Box<dyn AsyncRead + Send + Unpin>);
        let error = shim.stderr.take().map(|error| Box::new(error) as Box<dyn AsyncRead + Send + Unpin>);
        if let Some(terminal) = &terminal {
            let half = || terminal.0.try_clone().map(tokio::fs::File::from_std).map_err(in_words);
            output = Some(Box::new(half()?));
            input = Some(Box::new(half()?)).filter(|_| has_input).map(|half| half as _);
        }
        let reins = launched.reins.clone();
        let (all, own) = (instance.clone(), reins.clone());
        let ended = async move {
            let mut ended = Box::pin(launched.ended());
            tokio::select! {
                code = &mut ended => return code,
                // With the container all that runs beside its program ends.
                () = all.ended() => own.kill(),
            }
            ended.await
        };
        Ok(Beside {
            input,
            output,
            error,
            terminal,
            ended: ended.boxed(),
            reins,
        })
    }
}
