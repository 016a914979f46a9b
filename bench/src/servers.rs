//! The servers that are measured, each on loopback with one administrator, known by a token.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::client::TOKEN;
use crate::cluster::sides::Whole;
use crate::machine::{cpu_milliseconds, descriptors, free_address, private_megabytes};
use crate::peer::{self, Fsync, Peer, RunningPeer};
use crate::{https, write_tokens};

/// A server that answers; it ends when this is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    processes: Processes,
}

enum Processes {
    Ours(Child),
    Theirs(RunningPeer),
}

impl Server {
    /// Ours, without controllers; durable when it gets a folder for its data.
    pub(crate) async fn ours(program: &Path, folder: &Path, data: Option<&Path>) -> Result<Server, String> {
        Server::ours_with(program, folder, data, &[]).await
    }

    /// The same with more arguments.
    pub(crate) async fn ours_with(
        program: &Path,
        folder: &Path,
        data: Option<&Path>,
        arguments: &[&str],
    ) -> Result<Server, String> {
        let alone = ["--controllers", "none"];
        Server::start(program, folder, data, &[&alone, arguments].concat()).await
    }

    /// Ours, with all controllers.
    pub(crate) async fn whole(program: &Path, folder: &Path, arguments: &[&str]) -> Result<Server, String> {
        Server::start(program, folder, None, arguments).await
    }

    async fn start(program: &Path, folder: &Path, data: Option<&Path>, arguments: &[&str]) -> Result<Server, String> {
        Server::start_by(Command::new(program), Duration::from_secs(10), folder, data, arguments).await
    }

    /// Ours, started by a command that takes our arguments, such as `valgrind kubewright`.
    pub(crate) async fn start_by(
        mut command: Command,
        patience: Duration,
        folder: &Path,
        data: Option<&Path>,
        arguments: &[&str],
    ) -> Result<Server, String> {
        let address = free_address()?;
        let tokens = write_tokens(folder, TOKEN)?;
        command
            .args(["cluster", "--listen", &address.to_string()])
            .arg("--token-auth-file")
            .arg(tokens)
            .arg("--kubeconfig")
            .arg(folder.join("kubeconfig"))
            .args(arguments);
        if let Some(data) = data {
            command.arg("--data-dir").arg(data);
        }
        let child = command
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|why| format!("cannot start {command:?}: {why}"))?;
        https::until_ready(address, patience).await?;
        Ok(Server {
            address,
            processes: Processes::Ours(child),
        })
    }

    /// The peer.
    pub(crate) async fn theirs(peer: &Peer, folder: &Path, fsync: Fsync) -> Result<Server, String> {
        let running = peer.start(folder, fsync).await?;
        https::until_ready(running.address, peer::PATIENCE).await?;
        Ok(Server {
            address: running.address,
            processes: Processes::Theirs(running),
        })
    }

    /// The peer with its controllers, scheduler and kubelets.
    pub(crate) async fn theirs_whole(whole: &Whole<'_>, folder: &Path, fsync: Fsync) -> Result<Server, String> {
        let mut running = whole.peer.start(folder, fsync).await?;
        https::until_ready(running.address, peer::PATIENCE).await?;
        running.start_the_rest(&whole.programs, folder)?;
        Ok(Server {
            address: running.address,
            processes: Processes::Theirs(running),
        })
    }

    fn ids(&self) -> Vec<Option<u32>> {
        match &self.processes {
            Processes::Ours(child) => vec![child.id()],
            Processes::Theirs(running) => running.ids(),
        }
    }

    /// The process that was started first.
    pub(crate) fn id(&self) -> Option<u32> {
        self.ids().into_iter().next().flatten()
    }

    /// Time on a processor so far, all processes together.
    pub(crate) fn cpu_milliseconds(&self) -> Result<f64, String> {
        self.ids().into_iter().map(cpu_milliseconds).sum()
    }

    /// Resident memory, all processes together.
    pub(crate) fn private_megabytes(&self) -> Result<f64, String> {
        self.ids().into_iter().map(private_megabytes).sum()
    }

    /// Open files, all processes together.
    pub(crate) fn descriptors(&self) -> Result<usize, String> {
        self.ids().into_iter().map(descriptors).sum()
    }

    pub(crate) async fn stop(self) {
        match self.processes {
            Processes::Ours(mut child) => {
                // The process may be gone already, which is the aim.
                let _ = child.kill().await;
            }
            Processes::Theirs(running) => running.stop().await,
        }
    }
}
