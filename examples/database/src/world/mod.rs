//! The world outside of the cluster, as the operator sees it: a database server that takes logins.
//!
//! [`servers::Servers`] is the real one; a test may give another. Errors are values, and no text of them holds a
//! password.

mod mysql;
mod postgres;
pub mod servers;

use futures::future::BoxFuture;

/// Who logs in, where.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Whether it is PostgreSQL, and not MySQL or MariaDB.
    pub is_postgres: bool,
    /// An address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user.
    pub user: String,
    /// His password.
    pub password: String,
    /// The database.
    pub database: String,
}

/// Why something did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The server does not answer.
    Unreachable(String),
    /// It answers, and refuses this user, or does not know the database.
    Refused(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Trouble::Unreachable(why) | Trouble::Refused(why)) = self;
        f.write_str(why)
    }
}

// ANCHOR: world
/// The outside world.
pub trait World: Send + Sync + 'static {
    /// Logs in and asks for something.
    fn login<'a>(&'a self, login: &'a Login) -> BoxFuture<'a, Result<(), Trouble>>;

    /// Makes the login work: the user, the password, the database. Done as the operator, whose password is given.
    fn ensure<'a>(&'a self, login: &'a Login, operators_password: &'a str) -> BoxFuture<'a, Result<(), Trouble>>;
}
// ANCHOR_END: world
