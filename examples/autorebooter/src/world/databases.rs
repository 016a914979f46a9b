//! The databases: a connection for each distinct source, shared by the policies that read from it.
//!
//! Invariants: a policy uses one source at a time; an unused source has no connection; there are at most `MOST`
//! connections; a connection that failed is dropped, and the next look makes another; a look has a bound in time. Every
//! user of a connection is woken when the database reports a change, and when the connection is lost: PostgreSQL keeps
//! no notices for clients that do not listen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kubewright::{Request, Waker};

use super::{DatabaseType, Question, Source, Trouble, Value, World, mysql, postgres};

/// The most connections.
const MOST: usize = 64;
/// How long a look may take, the connection included.
const LONGEST: Duration = Duration::from_secs(10);

/// The real databases.
pub struct Databases {
    shared: Mutex<Shared>,
    waker: Waker,
}

#[derive(Default)]
struct Shared {
    sources: BTreeMap<Source, Arc<Line>>,
    /// Which policy uses which source.
    users: BTreeMap<Request, Source>,
}

/// The way to one source. Looks wait for each other.
pub(super) struct Line {
    users: Mutex<BTreeSet<Request>>,
    waker: Waker,
    connection: tokio::sync::Mutex<Option<Connection>>,
}

/// A connection to a database of some kind.
enum Connection {
    Postgres(postgres::Connection),
    Mysql(mysql::Connection),
}

impl Databases {
    /// No connection yet. Policies are woken through this waker.
    pub fn new(waker: Waker) -> Databases {
        Databases {
            shared: Mutex::default(),
            waker,
        }
    }

    /// How many sources are in use.
    pub fn sources(&self) -> usize {
        self.shared().sources.len()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line to a source, which `who` uses from now on.
    fn line(&self, who: &Request, source: &Source) -> Result<Arc<Line>, Trouble> {
        let mut shared = self.shared();
        if shared.users.get(who) != Some(source) {
            shared.forget(who);
            if !shared.sources.contains_key(source) && shared.sources.len() >= MOST {
                return Err(Trouble::Unreachable(format!(
                    "the operator has {MOST} connections already, which is as many as it may have"
                )));
            }
            shared.users.insert(who.clone(), source.clone());
        }
        let line = shared.sources.entry(source.clone()).or_insert_with(|| {
            Arc::new(Line {
                users: Mutex::default(),
                waker: self.waker.clone(),
                connection: tokio::sync::Mutex::default(),
            })
        });
        line.users().insert(who.clone());
        Ok(line.clone())
    }
}

impl Shared {
    fn forget(&mut self, who: &Request) {
        let Some(source) = self.users.remove(who) else { return };
        let Some(line) = self.sources.get(&source) else { return };
        let is_last = {
            let mut users = line.users();
            users.remove(who);
            users.is_empty()
        };
        if is_last {
            self.sources.remove(&source);
        }
    }
}

impl Line {
    fn users(&self) -> MutexGuard<'_, BTreeSet<Request>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all users of the line.
    pub(super) fn wake(line: &Weak<Line>, reason: &str) {
        let Some(line) = line.upgrade() else { return };
        for who in line.users().iter() {
            // An error: there is no room, and they read at their intervals anyway.
            let _ = line.waker.try_wake(who.clone(), reason);
        }
    }
}

impl World for Databases {
    fn look<'a>(
        &'a self,
        who: &'a Request,
        source: &'a Source,
        question: &'a Question,
    ) -> BoxFuture<'a, Result<Value, Trouble>> {
        async move {
            let line = self.line(who, source)?;
            let late = || Trouble::Unreachable(format!("the database did not answer within {}s", LONGEST.as_secs()));
            let looked = tokio::time::timeout(LONGEST, look(&line, source, question)).await;
            match looked {
                Ok(looked) => looked,
                Err(_) => {
                    // Its remaining messages belong to no question any longer.
                    if let Ok(mut connection) = line.connection.try_lock() {
                        *connection = None;
                    }
                    Err(late())
                }
            }
        }
        .boxed()
    }

    fn leave(&self, who: &Request) {
        self.shared().forget(who);
    }
}

async fn look(line: &Arc<Line>, source: &Source, question: &Question) -> Result<Value, Trouble> {
    let mut kept = line.connection.lock().await;
    let mut connection = match kept.take() {
        Some(connection) if connection.is_open() => connection,
        _ => Connection::open(line, source)
            .await
            .map_err(|why| without(&source.password, why))?,
    };
    let looked = connection.look(question).await;
    // Taken before and put back now: a look that is cut off leaves no half-read connection.
    if !matches!(looked, Err(Trouble::Unreachable(_))) {
        *kept = Some(connection);
    }
    looked.map_err(|why| without(&source.password, why))
}

impl Connection {
    async fn open(line: &Arc<Line>, source: &Source) -> Result<Connection, Trouble> {
        match source.kind {
            DatabaseType::Postgres => {
                let connection = postgres::Connection::open(source, Arc::downgrade(line)).await?;
                Ok(Connection::Postgres(connection))
            }
            DatabaseType::Mysql => Ok(Connection::Mysql(mysql::Connection::open(source).await?)),
        }
    }

    fn is_open(&self) -> bool {
        match self {
            Connection::Postgres(connection) => connection.is_open(),
            Connection::Mysql(_) => true,
        }
    }

    async fn look(&mut self, question: &Question) -> Result<Value, Trouble> {
        match self {
            Connection::Postgres(connection) => connection.look(question).await,
            Connection::Mysql(connection) => connection.look(question).await,
        }
    }
}

/// The trouble without a password that a driver may have put into its words.
fn without(password: &str, trouble: Trouble) -> Trouble {
    let clean = |why: String| match password.len() {
        0..=3 => why, // every text has such pieces
        _ => why.replace(password, "…"),
    };
    match trouble {
        Trouble::Unreachable(why) => Trouble::Unreachable(clean(why)),
        Trouble::BadQuery(why) => Trouble::BadQuery(clean(why)),
    }
}

/// An error with all that caused it.
pub(super) fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}
