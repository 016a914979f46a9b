//! Requests for a Lease, and how an election takes in their outcomes.

use std::time::Duration;

use futures::future::BoxFuture;
use kube::Api;
use kube::api::PostParams;
use kube::core::DynamicObject;
use kubewright_engine::Instant;
use kubewright_engine::election::{Election, Purpose, Settings, Write};
use tokio::time::timeout;

use super::lease;
use crate::clock::Env;
use crate::error::{Chain, Result};

/// Who asks, and where.
pub(crate) struct Requests {
    pub(crate) api: Api<DynamicObject>,
    pub(crate) identity: String,
    pub(crate) settings: Settings,
    pub(crate) env: Env,
}

/// The outcome of a request.
pub(crate) enum Outcome {
    Read(Result<Option<DynamicObject>, kube::Error>),
    Wrote {
        write: Write,
        sent: Instant,
        answer: Result<DynamicObject, kube::Error>,
    },
    /// It took too long. A write may have been carried out.
    Late(Option<(Write, Instant)>),
}

/// What the outcome of a request told about the Lease.
pub(crate) enum LeaseUpdate {
    Read,
    Wrote,
    Failed(String),
}

impl Requests {
    pub(crate) fn read(&self, name: &str) -> BoxFuture<'static, Outcome> {
        let (api, name) = (self.api.clone(), name.to_owned());
        self.in_time(None, async move { Outcome::Read(api.get_opt(&name).await) })
    }

    /// `prepare` adds the other fields of a new Lease.
    pub(crate) fn write(
        &self,
        name: &str,
        present: Option<&DynamicObject>,
        write: Write,
        sent: Instant,
        prepare: impl FnOnce(&mut DynamicObject),
    ) -> BoxFuture<'static, Outcome> {
        let (api, name) = (self.api.clone(), name.to_owned());
        let present = present.filter(|_| write.replaces.is_some());
        let (identity, duration, now) = (&self.identity, self.settings.lease, self.env.clock.now());
        let mut lease = lease::written(present, &name, &write, identity, duration, now);
        if write.replaces.is_none() {
            prepare(&mut lease);
        }
        self.in_time(Some((write.clone(), sent)), async move {
            let params = PostParams::default();
            let answer = match write.replaces {
                Some(_) => api.replace(&name, &params, &lease).await,
                None => api.create(&params, &lease).await,
            };
            Outcome::Wrote { write, sent, answer }
        })
    }

    /// A request that hangs must leave time for another one (controller-runtime's `RenewDeadline / 2`).
    pub(crate) fn limit(&self) -> Duration {
        (self.settings.renew / 2).max(Duration::from_secs(1))
    }

    fn in_time(
        &self,
        write: Option<(Write, Instant)>,
        request: impl Future<Output = Outcome> + Send + 'static,
    ) -> BoxFuture<'static, Outcome> {
        let limit = self.limit();
        Box::pin(async move { timeout(limit, request).await.unwrap_or(Outcome::Late(write)) })
    }

    /// Tells the election the outcome of a request.
    pub(crate) fn apply(
        &self,
        outcome: Outcome,
        election: &mut Election,
        present: &mut Option<DynamicObject>,
        now: Instant,
    ) -> LeaseUpdate {
        let (why, unknown) = match outcome {
            Outcome::Read(Ok(lease)) => {
                self.see(lease, election, present, now);
                return LeaseUpdate::Read;
            }
            Outcome::Wrote {
                write,
                sent,
                answer: Ok(lease),
            } => {
                let record = lease::record(&lease, self.settings.lease);
                *present = Some(lease);
                election.wrote(&write, record, sent, now);
                tracing::debug!(purpose = ?write.purpose, "the Lease was written");
                return LeaseUpdate::Wrote;
            }
            Outcome::Wrote {
                answer: Err(kube::Error::Api(status)),
                write,
                ..
            } if status.code == 409 || (status.code == 404 && write.replaces.is_some()) => {
                election.lost_race();
                return LeaseUpdate::Read;
            }
            Outcome::Read(Err(error)) => (format!("cannot read it: {}", Chain(&error)), None),
            Outcome::Wrote {
                answer: Err(error),
                write,
                sent,
            } => {
                let attempted = match write.purpose {
                    Purpose::Acquire if write.replaces.is_none() => "create",
                    Purpose::Acquire | Purpose::Renew | Purpose::Release => "update",
                };
                let refused = matches!(&error, kube::Error::Api(status) if status.code < 500);
                let unknown = (!refused).then_some((write, sent));
                (format!("cannot {attempted} it: {}", Chain(&error)), unknown)
            }
            Outcome::Late(unknown) => ("the API server does not answer".to_owned(), unknown),
        };
        match unknown {
            Some((write, sent)) => election.unknown(write, sent, now, self.env.entropy.draw()),
            None => election.failed(now, self.env.entropy.draw()),
        }
        LeaseUpdate::Failed(why)
    }

    /// The Lease as it was read or as a watch shows it.
    pub(crate) fn see(
        &self,
        lease: Option<DynamicObject>,
        election: &mut Election,
        present: &mut Option<DynamicObject>,
        now: Instant,
    ) {
        let record = lease.as_ref().map(|lease| lease::record(lease, self.settings.lease));
        election.seen(record, now);
        let version = lease
            .as_ref()
            .and_then(|lease| lease.metadata.resource_version.as_deref());
        // A watch may be behind: the election decides which state counts.
        if election.version() == version {
            *present = lease;
        }
    }
}
