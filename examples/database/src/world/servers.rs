//! The real servers. A login has a bound in time, and no connection is kept: it is made to see whether it can be.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{Login, Trouble, World, mysql, postgres};

/// How long anything may take.
const LONGEST: Duration = Duration::from_secs(8);
/// The user of the operator in each server, and the one that images begin with.
pub const OPERATOR: &str = "kubewright_operator";

/// The real servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Servers;

impl World for Servers {
    fn login<'a>(&'a self, login: &'a Login) -> BoxFuture<'a, Result<(), Trouble>> {
        bounded(async move {
            match login.is_postgres {
                true => postgres::login(login).await,
                false => mysql::login(login).await,
            }
        })
    }

    fn ensure<'a>(&'a self, login: &'a Login, operators_password: &'a str) -> BoxFuture<'a, Result<(), Trouble>> {
        bounded(async move {
            match login.is_postgres {
                true => postgres::ensure(login, operators_password).await,
                false => mysql::ensure(login, operators_password).await,
            }
        })
    }
}

fn bounded<'a>(work: impl Future<Output = Result<(), Trouble>> + Send + 'a) -> BoxFuture<'a, Result<(), Trouble>> {
    async move {
        let late = || Trouble::Unreachable(format!("the server did not answer within {}s", LONGEST.as_secs()));
        tokio::time::timeout(LONGEST, work)
            .await
            .unwrap_or_else(|_| Err(late()))
    }
    .boxed()
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
