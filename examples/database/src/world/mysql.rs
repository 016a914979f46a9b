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

/// 1044 and 1045 are about who logs in, 1049 about a database that is not there.
fn trouble(error: Error) -> Trouble {
    match error {
        Error::Server(said) if [1044, 1045, 1049].contains(&said.code) => Trouble::Refused(said.message),
        error => Trouble::Unreachable(words(&error)),
    }
}

pub(super) async fn login(login: &Login) -> Result<(), Trouble> {
    let mut connection = connect(login, &login.user, &login.password, Some(&login.database)).await?;
    connection.query_drop("SELECT 1").await.map_err(trouble)?;
    connection.disconnect().await.map_err(trouble)
}

pub(super) async fn ensure(login: &Login, operators_password: &str) -> Result<(), Trouble> {
    let mut connection = match connect(login, OPERATOR, operators_password, None).await {
        Ok(connection) => connection,
        // A new server knows only root. The operator gets a user of its own, because root may be the user of
        // applications.
        Err(Trouble::Refused(_)) => {
            let mut connection = connect(login, "root", operators_password, None).await?;
            let (user, password) = (account(OPERATOR), text(operators_password));
            let statements = [
                format!("CREATE USER IF NOT EXISTS {user} IDENTIFIED BY {password}"),
                format!("GRANT ALL ON *.* TO {user} WITH GRANT OPTION"),
            ];
            run(&mut connection, &statements).await?;
            connection
        }
        Err(trouble) => return Err(trouble),
    };
    let (user, password, database) = (account(&login.user), text(&login.password), name(&login.database));
    let statements = [
        format!("CREATE USER IF NOT EXISTS {user} IDENTIFIED BY {password}"),
        format!("ALTER USER {user} IDENTIFIED BY {password}"),
        format!("CREATE DATABASE IF NOT EXISTS {database}"),
        format!("GRANT ALL ON {database}.* TO {user}"),
    ];
    run(&mut connection, &statements).await?;
    connection.disconnect().await.map_err(trouble)
}

async fn run(connection: &mut Conn, statements: &[String]) -> Result<(), Trouble> {
    for statement in statements {
        connection.query_drop(statement).await.map_err(trouble)?;
    }
    Ok(())
}

fn account(user: &str) -> String {
    format!("{}@'%'", text(user))
}

fn name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
