//! Requests for a Lease, and how an election takes in their outcomes. They go the way of all requests of the runtime:
//! through its [`Client`], with its deadlines and retries.

use std::time::Duration;

use futures::future::BoxFuture;
use kube::api::{DeleteParams, Preconditions};
use kube::core::DynamicObject;
use kubewright_engine::Instant;
use kubewright_engine::election::{Election, Purpose, Settings, Write};

use super::lease;
use crate::client::Client;
use crate::clock::Env;
use crate::error::{Chain, Error, Result};

/// Who asks, and where.
pub(crate) struct Requests {
    client: Client,
    pub(crate) namespace: String,
    pub(crate) identity: String,
    pub(crate) settings: Settings,
    pub(crate) env: Env,
}

/// The outcome of a request.
pub(crate) enum Outcome {
    Read(Result<Option<DynamicObject>>),
    Wrote {
        write: Write,
        sent: Instant,
        answer: Result<DynamicObject>,
    },
}

/// What the outcome of a request told about the Lease.
pub(crate) enum LeaseUpdate {
    Read,
    Wrote,
    Failed(String),
}

/// Warnings, of which the same one is not logged every two seconds.
#[derive(Default)]
pub(crate) struct Warnings(Option<String>);

impl Warnings {
    pub(crate) fn say(&mut self, lease: &str, why: String) {
        if self.0.as_ref() != Some(&why) {
            tracing::warn!(lease, "election: {why}");
            self.0 = Some(why);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

impl Requests {
    /// `namespace` and `identity`: those of the configuration.
    pub(crate) fn new(
        client: &Client,
        namespace: Option<String>,
        identity: Option<String>,
        settings: Settings,
    ) -> Requests {
        let env = client.cache().env().clone();
        // A request that hangs must leave time for another one (controller-runtime's `RenewDeadline / 2`).
        let deadline = (settings.renew / 2).max(Duration::from_secs(1));
        Requests {
            client: client.without_receipts().with_request_deadline(deadline),
            namespace: namespace.unwrap_or_else(|| client.kube().default_namespace().to_owned()),
            identity: identity.unwrap_or_else(|| super::identity(&env.entropy)),
            settings,
            env,
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn read(&self, name: &str) -> BoxFuture<'static, Outcome> {
        let (client, namespace, name) = (self.client.clone(), self.namespace.clone(), name.to_owned());
        Box::pin(async move { Outcome::Read(client.live_of(&lease::resource(), &namespace, &name).await) })
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
        let present = present.filter(|_| write.replaces.is_some());
        let (identity, duration, now) = (&self.identity, self.settings.lease, self.env.clock.now());
        let mut lease = lease::written(present, name, &write, identity, duration, now);
        if write.replaces.is_none() {
            prepare(&mut lease);
        }
        lease.metadata.namespace = Some(self.namespace.clone());
        let client = self.client.clone();
        Box::pin(async move {
            let answer = client.write_own(&lease::resource(), &lease).await;
            Outcome::Wrote { write, sent, answer }
        })
    }

    /// Deletes a Lease, if it is still as in this version, whose replica is gone.
    pub(crate) fn delete(&self, name: &str, version: &str) -> BoxFuture<'static, ()> {
        let (client, namespace, name) = (self.client.clone(), self.namespace.clone(), name.to_owned());
        let preconditions = Preconditions {
            resource_version: Some(version.to_owned()),
            uid: None,
        };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        Box::pin(async move {
            let deleted = client
                .delete_dynamic(&lease::resource(), &namespace, &name, params)
                .await;
            if let Err(error) = deleted {
                tracing::debug!(lease = name, error = %Chain(&error), "the Lease of a replica that is gone stays");
            }
        })
    }

    /// Tells the election the outcome of a request.
    pub(crate) fn apply(
        &self,
        outcome: Outcome,
        election: &mut Election,
        present: &mut Option<DynamicObject>,
        now: Instant,
    ) -> LeaseUpdate {
        let entropy = || self.env.entropy.draw();
        match outcome {
            Outcome::Read(Ok(lease)) => {
                self.see(lease, election, present, now);
                LeaseUpdate::Read
            }
            Outcome::Read(Err(error)) => {
                election.failed(now, entropy());
                LeaseUpdate::Failed(format!("cannot read it: {}", Chain(&error)))
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
                LeaseUpdate::Wrote
            }
            Outcome::Wrote {
                write,
                sent,
                answer: Err(error),
            } => {
                let lost = matches!(error, Error::Conflict(_))
                    || error.is_already_exists()
                    || (error.is_not_found() && write.replaces.is_some());
                if lost {
                    election.lost_race();
                    return LeaseUpdate::Read;
                }
                let attempted = match write.purpose {
                    Purpose::Acquire if write.replaces.is_none() => "create",
                    Purpose::Acquire | Purpose::Renew | Purpose::Release => "update",
                };
                match error.outcome_unknown() {
                    true => election.unknown(write, sent, now, entropy()),
                    false => election.failed(now, entropy()),
                }
                LeaseUpdate::Failed(format!("cannot {attempted} it: {}", Chain(&error)))
            }
        }
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
