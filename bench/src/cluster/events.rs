//! A watch whose events are read as JSON, for kinds with few events; and the requests that a work makes.

use std::time::Duration;

use serde_json::Value;

use crate::client::{Call, Connection};
use crate::servers::Server;

/// How long a work may take on either side.
const PATIENCE: Duration = Duration::from_secs(900);

/// The events of a watch, those of present objects first.
pub(super) struct Events {
    connection: Connection,
    /// Bytes that have come and are not yet a whole line.
    rest: Vec<u8>,
    chunk: Vec<u8>,
}

impl Events {
    /// Watches a path.
    pub(super) async fn of(server: &Server, path: &str) -> Result<Events, String> {
        let mut connection = Connection::open(server.address).await?;
        let begin = if path.contains('?') { '&' } else { '?' };
        connection
            .watch(&format!("{path}{begin}watch=true&timeoutSeconds=3000"))
            .await?;
        Ok(Events {
            connection,
            rest: Vec::new(),
            chunk: Vec::new(),
        })
    }

    async fn next(&mut self) -> Result<Value, String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|why| format!("an event is no JSON: {why}"));
            }
            self.connection.some_lines(&mut self.chunk).await?;
            self.rest.append(&mut self.chunk);
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
