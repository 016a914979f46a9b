//! MySQL and MariaDB: a session that cannot write.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, OptsBuilder, Row};

use super::databases::words;
use super::sql::{self, MYSQL};
use super::{Question, Source, Trouble, Value};

/// A session.
pub(super) struct Connection(Conn);

impl Connection {
    pub(super) async fn open(source: &Source) -> Result<Connection, Trouble> {
        let options = OptsBuilder::default()
            .ip_or_hostname(&source.host)
            .tcp_port(source.port)
            .user(Some(&source.user))
            .pass(Some(&source.password))
            .db_name(Some(&source.database))
            .prefer_socket(false)
            .stmt_cache_size(0)
            .setup(vec!["SET SESSION TRANSACTION READ ONLY"]);
        let mut connection = Conn::new(options)
            .await
            .map_err(|error| Trouble::Unreachable(words(&error)))?;
        // MariaDB's bound, and MySQL's; each knows one of them, and a look has a bound of our own besides.
        for bound in [
            "SET SESSION max_statement_time = 5",
            "SET SESSION max_execution_time = 5000",
        ] {
            match connection.query_drop(bound).await {
                Ok(()) | Err(Error::Server(_)) => {}
                Err(error) => return Err(Trouble::Unreachable(words(&error))),
            }
        }
        Ok(Connection(connection))
    }

    pub(super) async fn look(&mut self, question: &Question) -> Result<Value, Trouble> {
        let statement = self.0.prep(MYSQL.statement(&question.what)).await.map_err(trouble)?;
        sql::check_columns(statement.columns().len()).map_err(Trouble::BadQuery)?;
        let mut answer = self.0.exec_iter(&statement, ()).await.map_err(trouble)?;
        let mut rows: Vec<Row> = Vec::new();
        // One more than may be, so that it shows.
        while rows.len() <= sql::MOST_ROWS {
            match answer.next().await.map_err(trouble)? {
                Some(row) => rows.push(row),
                None => break,
            }
        }
        answer.drop_result().await.map_err(trouble)?;
        self.0.close(statement).await.map_err(trouble)?;
        sql::check_rows(&question.what, rows.len()).map_err(Trouble::BadQuery)?;
        Ok(rows.into_iter().map(text).collect())
    }
}

/// The first value of a row as text, if it is not NULL.
fn text(row: Row) -> Option<String> {
    match row.unwrap_raw().into_iter().next().flatten()? {
        mysql_async::Value::NULL => None,
        mysql_async::Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        other => Some(other.as_sql(true)),
    }
}

/// An error of the server is about the statement; any other is about the connection.
fn trouble(error: Error) -> Trouble {
    match error {
        // 1053: it shuts down. 1927: the connection was killed.
        Error::Server(said) if ![1053, 1927].contains(&said.code) => Trouble::BadQuery(said.message),
        error => Trouble::Unreachable(words(&error)),
    }
}
