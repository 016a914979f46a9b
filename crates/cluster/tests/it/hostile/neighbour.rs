//! Another client, of another user where the server knows one, which writes, reads and deletes small objects all the while.

use std::time::Instant;

use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::client::Connection;
use super::input::{self, Request};
use super::server::Server;
use super::values::CONFIG_MAPS;

/// A client at work.
pub(crate) struct Neighbour {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), String>>,
}

impl Neighbour {
    pub(crate) fn start(server: &Server) -> Neighbour {
        let (stop, mut stopped) = oneshot::channel();
        let server = server.as_another();
        let task = tokio::spawn(async move {
            let mut connection = Connection::open(&server).await?;
            loop {
                turn(&mut connection).await?;
                if stopped.try_recv().is_ok() {
                    return Ok(());
                }
            }
        });
        Neighbour { stop, task }
    }

    /// The error in its answers.
    pub(crate) async fn stop(self) -> Result<(), String> {
        // A neighbour that failed has gone already.
        let _ = self.stop.send(());
        self.task.await.map_err(|error| error.to_string())?
    }
}

/// A small object's life.
async fn turn(connection: &mut Connection) -> Result<(), String> {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "neighbour"}, "data": {"a": "b"}});
    let path = format!("{CONFIG_MAPS}/neighbour");
    let life = [
        input::create(CONFIG_MAPS, "neighbour", object),
        input::get(&path),
        input::delete(&path, "{}"),
    ];
    for (request, code) in life.iter().zip([201, 200, 200]) {
        step(connection, request, code).await?;
    }
    Ok(())
}

async fn step(connection: &mut Connection, request: &Request, code: u16) -> Result<(), String> {
    let asked = Instant::now();
    let answer = connection.ask(request).await?;
    if answer.code != code {
        let waited = asked.elapsed();
        return Err(format!("{} after {waited:?}: {answer:?}", request.method));
    }
    Ok(())
}
