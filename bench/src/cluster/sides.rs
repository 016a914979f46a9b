//! The two sides: our command with all its controllers, and the peer's five programs.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::client::Connection;
use crate::cluster::{events, objects};
use crate::peer::{Fsync, PATIENCE, Peer};
use crate::servers::Server;

/// The peer with all that makes a cluster of it.
pub(crate) struct Whole<'a> {
    pub(crate) peer: &'a Peer,
    /// kube-controller-manager, kube-scheduler and kwok.
    pub(crate) programs: [PathBuf; 3],
}

impl Whole<'_> {
    /// The programs that lie beside the peer's kube-apiserver.
    pub(super) fn of(peer: &Peer) -> Result<Whole<'_>, String> {
        let programs = ["kube-controller-manager", "kube-scheduler", "kwok"].map(|name| peer.beside(name));
        match programs.iter().find(|path| !path.exists()) {
            Some(missing) => Err(format!(
                "{} does not exist: a cluster needs it beside kube-apiserver",
                missing.display()
            )),
            None => Ok(Whole { peer, programs }),
        }
    }
}

/// A cluster with nodes, which is gone when this is dropped.
pub(super) struct Side {
    pub(super) server: Server,
    _folder: TempDir,
}

impl Side {
    /// Ours, with so many nodes.
    pub(super) async fn ours(program: &Path, nodes: usize) -> Result<Side, String> {
        let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
        let server = Server::whole(program, folder.path(), &["--nodes", "0"]).await?;
        Side::with_nodes(server, folder, nodes).await
    }

    /// The peer's, with so many nodes.
    pub(super) async fn theirs(whole: &Whole<'_>, nodes: usize) -> Result<Side, String> {
        let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
        let server = Server::theirs_whole(whole, folder.path(), Fsync::Off).await?;
        Side::with_nodes(server, folder, nodes).await
    }

    async fn with_nodes(server: Server, folder: TempDir, nodes: usize) -> Result<Side, String> {
        let mut connection = Connection::open(server.address).await?;
        for number in 0..nodes {
            events::create(&mut connection, "/api/v1/nodes", &objects::node(number)).await?;
        }
        let mut ready = vec![false; nodes];
        let mut watch = events::Events::of(&server, "/api/v1/nodes").await?;
        let all_ready = watch.until(|_, node| {
            let number = node["metadata"]["name"]
                .as_str()
                .and_then(|name| name.strip_prefix("bench-")?.parse::<usize>().ok());
            let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            let is_ready = conditions
                .into_iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True");
            let is_tainted = node["spec"]["taints"]
                .as_array()
                .is_some_and(|taints| !taints.is_empty());
            if let Some(seen) = number.and_then(|number| ready.get_mut(number)) {
                *seen = is_ready && !is_tainted;
            }
            Ok(ready.iter().all(|ready| *ready))
        });
        tokio::time::timeout(PATIENCE, all_ready)
            .await
            .map_err(|_| format!("the nodes were not ready within {PATIENCE:?}: does their kubelet run?"))??;
        // The account without which no pod may be created.
        let mut accounts = events::Events::of(&server, "/api/v1/namespaces/default/serviceaccounts").await?;
        accounts
            .until(|_, account| Ok(account["metadata"]["name"] == "default"))
            .await?;
        Ok(Side {
            server,
            _folder: folder,
        })
    }
}
