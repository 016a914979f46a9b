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
    let finds = async |query: &str, name: &String| {
        let found = client.query_opt(query, &[name]).await;
        found.map(|row| row.is_some()).map_err(trouble)
    };
    let is_known = finds("SELECT FROM pg_roles WHERE rolname = $1", &login.user).await?;
    let is_there = finds("SELECT FROM pg_database WHERE datname = $1", &login.database).await?;
    let verb = if is_known { "ALTER" } else { "CREATE" };
    let role = format!("{verb} ROLE {user} LOGIN PASSWORD {}", text(&login.password));
    let run = async |statements: &str| client.batch_execute(statements).await.map_err(trouble);
    // The statement holds the password: it must not get into the server's log, with any setting.
    run("SET log_statement = 'none'; SET log_min_error_statement = 'panic'").await?;
    if is_there {
        // Everybody may log in to a database that was there before, such as `postgres`. So role and owner change at
        // once: between the two a login would work, and nobody would come back for the owner.
        return run(&format!(
            "BEGIN; {role}; ALTER DATABASE {database} OWNER TO {user}; COMMIT"
        ))
        .await;
    }
    run(&role).await?;
    run(&format!("CREATE DATABASE {database} OWNER {user}")).await
}

fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in which neither a quote nor a backslash means anything.
fn text(text: &str) -> String {
    format!(" E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
