//! PostgreSQL. Names and texts are quoted here: its `ALTER ROLE` takes no parameters.

use tokio_postgres::{Client, Error, NoTls};

use super::servers::{OPERATOR, words};
use super::{Login, Trouble};

async fn connect(login: &Login, user: &str, password: &str, database: &str) -> Result<Client, Trouble> {
    let mut config = tokio_postgres::Config::new();
    config
        .host(&login.host)
        .port(login.port)
        .user(user)
        .password(password)
        .dbname(database);
    let (client, connection) = config.connect(NoTls).await.map_err(trouble)?;
    tokio::spawn(async move { connection.await.ok() }); // its end is seen by the client
    Ok(client)
}

/// Class 28 is about who logs in, 3D about a database that is not there.
fn trouble(error: Error) -> Trouble {
    match error.as_db_error() {
        Some(said) if said.code().code().starts_with("28") || said.code().code().starts_with("3D") => {
            Trouble::Refused(said.message().to_owned())
        }
        _ => Trouble::Unreachable(words(&error)),
    }
}

pub(super) async fn login(login: &Login) -> Result<(), Trouble> {
    let client = connect(login, &login.user, &login.password, &login.database).await?;
    client.simple_query("SELECT 1").await.map_err(trouble)?;
    Ok(())
}

pub(super) async fn ensure(login: &Login, operators_password: &str) -> Result<(), Trouble> {
    let client = connect(login, OPERATOR, operators_password, "postgres").await?;
    let (user, database) = (name(&login.user), name(&login.database));
    let known = client
        .query_opt("SELECT FROM pg_roles WHERE rolname = $1", &[&login.user])
        .await
        .map_err(trouble)?;
    let verb = if known.is_some() { "ALTER" } else { "CREATE" };
    // The statement holds the password: it must not get into the server's log, with any setting.
    let quiet = "SET log_statement = 'none'; SET log_min_error_statement = 'panic'";
    client.batch_execute(quiet).await.map_err(trouble)?;
    let statement = format!("{verb} ROLE {user} LOGIN PASSWORD {}", text(&login.password));
    client.batch_execute(&statement).await.map_err(trouble)?;
    let there = client
        .query_opt("SELECT FROM pg_database WHERE datname = $1", &[&login.database])
        .await;
    if there.map_err(trouble)?.is_none() {
        client
            .batch_execute(&format!("CREATE DATABASE {database} OWNER {user}"))
            .await
            .map_err(trouble)?;
    }
    client
        .batch_execute(&format!("GRANT ALL ON DATABASE {database} TO {user}"))
        .await
        .map_err(trouble)
}

fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in which neither a quote nor a backslash means anything.
fn text(text: &str) -> String {
    format!(" E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
