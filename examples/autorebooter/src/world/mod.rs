//! The world outside of the cluster, as the operator sees it: values in databases.
//!
//! The controller knows only [`World`]. [`databases::Databases`] is the real one; a test gives another, and has no
//! database. This is the pattern for anything that a cluster does not hold: a connection for each distinct source,
//! shared by all objects that need it, closed with the last of them; errors that are values, for the conditions of the
//! status; a wake-up instead of a callback, so that the object is reconciled by the one path there is.

pub mod databases;
mod mysql;
mod postgres;
mod sql;

use std::fmt;

use futures::future::BoxFuture;
use kubewright::Request;

pub use autorebooter_api::v1alpha1::DatabaseType;

// ANCHOR: world
/// The outside world.
pub trait World: Send + Sync + 'static {
    /// Reads a value. A connection to the source is made or shared; `who` uses it from now on and no other. When the
    /// value may have changed, or the connection is lost, `who` is woken.
    fn look<'a>(
        &'a self,
        who: &'a Request,
        source: &'a Source,
        question: &'a Question,
    ) -> BoxFuture<'a, Result<Value, Trouble>>;

    /// `who` needs no connection any longer. A connection without users is closed.
    fn leave(&self, who: &Request);
}
// ANCHOR_END: world

/// The rows of one column, in an order that depends on the values alone; `None` is NULL.
pub type Value = Vec<Option<String>>;

/// The place of a value, and the user who reads it. Equal sources share a connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The kind of database.
    pub kind: DatabaseType,
    /// A name or an address.
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

/// Without the password: this goes into logs.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Source {
            host,
            port,
            user,
            database,
            ..
        } = self;
        write!(f, "{:?} {user}@{host}:{port}/{database}", self.kind)
    }
}

/// The question to a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The value to read.
    pub what: What,
    /// The channel on which changes are told, where they are.
    pub channel: Option<String>,
}

/// The value to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// One column of some rows.
    Column {
        /// The schema, if not the one where the connection looks.
        schema: Option<String>,
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Which rows, in SQL.
        condition: Option<String>,
    },
    /// The answer of a statement: one column, at most one row.
    Query(String),
}

/// Why a value cannot be read. No text holds a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The database does not answer, or not to us.
    Unreachable(String),
    /// It answers, but there is no such value.
    BadQuery(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Trouble::Unreachable(why) | Trouble::BadQuery(why)) = self;
        f.write_str(why)
    }
}
