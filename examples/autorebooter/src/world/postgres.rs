//! PostgreSQL: a session that cannot write, and that hears notifications.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Weak;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Error, NoTls, Socket, tls::NoTlsStream};

use super::databases::{Line, words};
use super::sql::{self, POSTGRES};
use super::{Question, Source, Trouble, Value};

/// The options of every session.
const OPTIONS: &str =
    "-c default_transaction_read_only=on -c statement_timeout=5s -c idle_in_transaction_session_timeout=10s";
const PATIENCE: Duration = Duration::from_secs(5);

/// A session.
pub(super) struct Connection {
    client: Client,
    hears: JoinHandle<()>,
    channels: BTreeSet<String>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.hears.abort();
    }
}

impl Connection {
    pub(super) async fn open(source: &Source, line: Weak<Line>) -> Result<Connection, Trouble> {
        let connected = tokio_postgres::Config::new()
            .host(&source.host)
            .port(source.port)
            .user(&source.user)
            .password(&source.password)
            .dbname(&source.database)
            .application_name("autorebooter")
            .options(OPTIONS)
            .connect_timeout(PATIENCE)
            .connect(NoTls)
            .await;
        let (client, connection) = connected.map_err(|error| Trouble::Unreachable(words(&error)))?;
        Ok(Connection {
            client,
            hears: tokio::spawn(hear(connection, line)),
            channels: BTreeSet::new(),
        })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    pub(super) async fn look(&mut self, question: &Question) -> Result<Value, Trouble> {
        if let Some(channel) = question
            .channel
            .as_ref()
            .filter(|channel| !self.channels.contains(*channel))
        {
            // Before the value is read: a change in between is heard of.
            let listen = format!("LISTEN \"{}\"", channel.replace('"', "\"\""));
            self.client
                .batch_execute(&listen)
                .await
                .map_err(|error| self.trouble(&error))?;
            self.channels.insert(channel.clone());
        }
        let statement = POSTGRES.statement(&question.what);
        let prepared = self
            .client
            .prepare(&statement)
            .await
            .map_err(|error| self.trouble(&error))?;
        sql::check_columns(prepared.columns().len()).map_err(Trouble::BadQuery)?;
        let as_text = match &question.what {
            super::What::Column { .. } => statement,
            super::What::Query(_) => format!("SELECT v.c::text FROM (\n{statement}\n) AS v(c) LIMIT 2"),
        };
        let rows = self
            .client
            .query(as_text.as_str(), &[])
            .await
            .map_err(|error| self.trouble(&error))?;
        sql::check_rows(&question.what, rows.len()).map_err(Trouble::BadQuery)?;
        let texts = rows.iter().map(|row| row.try_get::<_, Option<String>>(0));
        texts
            .collect::<Result<Value, Error>>()
            .map_err(|error| Trouble::BadQuery(words(&error)))
    }

    /// An error of the server about a statement is about the statement; any other is about the connection.
    fn trouble(&self, error: &Error) -> Trouble {
        match error.as_db_error() {
            Some(said) if !class_of_server(said.code().code()) => Trouble::BadQuery(said.message().to_owned()),
            Some(said) if said.code().code() == "57014" => Trouble::BadQuery(said.message().to_owned()), // it took too long
            _ => Trouble::Unreachable(words(error)),
        }
    }
}

/// Classes 53, 57 and 58: the server lacks something, shuts down, has trouble with its system.
fn class_of_server(code: &str) -> bool {
    ["53", "57", "58"].iter().any(|class| code.starts_with(class))
}

/// Passes on what the server says by itself, until the connection ends.
async fn hear(mut connection: tokio_postgres::Connection<Socket, NoTlsStream>, line: Weak<Line>) {
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(told))) => {
                Line::wake(&line, &format!("PostgreSQL told of a change on {}", told.channel()));
            }
            Some(Ok(_)) => {} // a notice
            Some(Err(_)) | None => return Line::wake(&line, "the connection to the database was lost"),
        }
    }
}
