//! A watch whose events are read as JSON, for kinds with few events; and the requests that a work makes.
//!
//! kube-apiserver closes a watch whose client falls behind (the `terminateWatch` of its watch cache), as it may any
//! watch. As client-go's `RetryWatcher` does, [`Events`] then watches again from the last version that it saw, so that
//! no event is lost.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use crate::client::{Call, Connection};
use crate::servers::Server;

/// How long a work may take on either side.
const PATIENCE: Duration = Duration::from_secs(900);

/// The events of a watch, those of present objects first.
pub(super) struct Events {
    connection: Connection,
    address: SocketAddr,
    /// The path with its query, without a version.
    path: String,
    /// The resourceVersion of the last event.
    version: Option<String>,
    /// Bytes that have come and are not yet a whole line.
    rest: Vec<u8>,
    chunk: Vec<u8>,
}

impl Events {
    /// Watches a path.
    pub(super) async fn of(server: &Server, path: &str) -> Result<Events, String> {
        let begin = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{begin}watch=true&timeoutSeconds=3000");
        let mut connection = Connection::open(server.address).await?;
        connection.watch(&path).await?;
        Ok(Events {
            connection,
            address: server.address,
            path,
            version: None,
            rest: Vec::new(),
            chunk: Vec::new(),
        })
    }

    /// Watches on after the watch has ended. Without a version nothing can be continued.
    async fn again(&mut self) -> Result<(), String> {
        let version = self.version.as_ref().ok_or("the watch ended before its first event")?;
        self.connection = Connection::open(self.address).await?;
        let path = format!("{}&resourceVersion={version}", self.path);
        self.rest.clear();
        self.connection.watch(&path).await
    }

    async fn next(&mut self) -> Result<Value, String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let event: Value =
                    serde_json::from_slice(&line).map_err(|why| format!("an event is no JSON: {why}"))?;
                let version = event["object"]["metadata"]["resourceVersion"].as_str();
                self.version = version.map(str::to_owned).or(self.version.take());
                return Ok(event);
            }
            match self.connection.some_lines(&mut self.chunk).await? {
                Some(_) => self.rest.append(&mut self.chunk),
                None => self.again().await?,
            }
        }
    }

    /// Hands over each event, `ADDED` and the like with its object, until `is_over` says so.
    pub(super) async fn until(
        &mut self,
        mut is_over: impl FnMut(&str, &Value) -> Result<bool, String>,
    ) -> Result<(), String> {
        let seen = async {
            loop {
                let event = self.next().await?;
                let kind = event["type"].as_str().unwrap_or_default();
                if kind == "ERROR" {
                    return Err(format!("the watch was told: {}", event["object"]));
                }
                if is_over(kind, &event["object"])? {
                    return Ok(());
                }
            }
        };
        tokio::time::timeout(PATIENCE, seen)
            .await
            .map_err(|_| format!("it was not over within {PATIENCE:?}"))?
    }
}

/// Creates an object.
pub(super) async fn create(connection: &mut Connection, path: &str, object: &Value) -> Result<(), String> {
    connection
        .call(&Call::post(path, object.to_string().as_bytes()))
        .await
        .map(drop)
}

/// Changes an object by a merge patch.
pub(super) async fn patch(connection: &mut Connection, path: &str, patch: &Value) -> Result<(), String> {
    let patch = patch.to_string();
    let call = Call {
        method: "PATCH",
        path,
        content_type: "application/merge-patch+json",
        body: patch.as_bytes(),
    };
    connection.call(&call).await.map(drop)
}

/// Deletes an object, or all of a kind in a namespace, in the background.
pub(super) async fn delete(connection: &mut Connection, path: &str) -> Result<(), String> {
    let call = Call {
        method: "DELETE",
        path,
        content_type: "application/json",
        body: br#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#,
    };
    connection.call(&call).await.map(drop)
}
