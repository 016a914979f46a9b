//! MySQL and MariaDB. Names and texts are quoted here: their `ALTER USER` takes no parameters.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, OptsBuilder};

use super::servers::{OPERATOR, words};
use super::{Login, Trouble};

async fn connect(login: &Login, user: &str, password: &str, database: Option<&str>) -> Result<Conn, Trouble> {
    let options = OptsBuilder::default()
        .ip_or_hostname(&login.host)
        .tcp_port(login.port)
        .user(Some(user))
        .pass(Some(password))
        .db_name(database)
        .prefer_socket(false);
    Conn::new(options).await.map_err(trouble)
}

/// 1044 and 1045 are about who logs in, 1142 and 1227 about what he may do, 1049 about a database that is not there.
fn trouble(error: Error) -> Trouble {
    match error {
        Error::Server(said) if [1044, 1045, 1049, 1142, 1227].contains(&said.code) => Trouble::Refused(said.message),
        error => Trouble::Unreachable(words(&error)),
    }
}

pub(super) async fn login(login: &Login) -> Result<(), Trouble> {
    let mut connection = connect(login, &login.user, &login.password, Some(&login.database)).await?;
    connection.query_drop("SELECT 1").await.map_err(trouble)?;
    connection.disconnect().await.map_err(trouble)
}

pub(super) async fn ensure(login: &Login, operators_password: &str) -> Result<(), Trouble> {
    let (user, password) = (account(&login.user), text(&login.password));
    let wanted = [
        format!("CREATE USER IF NOT EXISTS {user} IDENTIFIED BY {password}"),
        format!("ALTER USER {user} IDENTIFIED BY {password}"),
        format!("CREATE DATABASE IF NOT EXISTS {}", name(&login.database)),
        format!("GRANT ALL ON {}.* TO {user}", pattern(&login.database)),
    ];
    match run(login, OPERATOR, operators_password, &wanted).await {
        // A new server knows only root. The operator gets a user of its own, because root may be the user of
        // applications. Who was killed while it made that user left one without rights: it is made again.
        Err(Trouble::Refused(_)) => {
            let (operator, password) = (account(OPERATOR), text(operators_password));
            let first = [
                format!("CREATE USER IF NOT EXISTS {operator} IDENTIFIED BY {password}"),
                format!("ALTER USER {operator} IDENTIFIED BY {password}"),
                format!("GRANT ALL ON *.* TO {operator} WITH GRANT OPTION"),
            ];
            run(login, "root", operators_password, &[&first[..], &wanted[..]].concat()).await
        }
        done => done,
    }
}

async fn run(login: &Login, user: &str, password: &str, statements: &[String]) -> Result<(), Trouble> {
    let mut connection = connect(login, user, password, None).await?;
    for statement in statements {
        connection.query_drop(statement).await.map_err(trouble)?;
    }
    connection.disconnect().await.map_err(trouble)
}

fn account(user: &str) -> String {
    format!("{}@'%'", text(user))
}

fn name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A name where rights are given: there `_` and `%` stand for others, and the rights on `m_sql` were those on `mysql`.
fn pattern(database: &str) -> String {
    name(&database.replace('_', r"\_").replace('%', r"\%"))
}

fn text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
