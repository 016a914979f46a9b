//! Leader election: one Lease, which every replica wants. Its holder is told of in the log, by the metric, and by the
//! events that client-go writes.

use std::time::Duration;

use kube::core::DynamicObject;
use kubewright_engine::sharding::{LeaseId, Sharding};

use super::elections::{Change, Elected, Elections, Role};
use super::request::Requests;
use super::{LeaderElection, lease};
use crate::cache::Scope;
use crate::client::Client;
use crate::events::{EventRecorder, EventType};
use crate::metrics::Metrics;
use crate::term::Permits;
use crate::watch;

/// One Lease.
pub(crate) struct Leader {
    lease: String,
    identity: String,
    recorder: EventRecorder,
    metrics: Metrics,
}

/// The task that takes part, and the permits for the guarded work.
pub(crate) fn stand(
    of: LeaderElection,
    client: &Client,
    recorder: EventRecorder,
    metrics: Metrics,
) -> (Elections<Leader>, Permits) {
    metrics.leads(&of.name, false);
    let requests = Requests::new(client, of.namespace, of.identity, of.settings);
    let identity = requests.identity.clone();
    tracing::info!(lease = of.name, identity, "stands for election");
    let (held, seen) = watch::channel(Vec::new());
    let machine = Sharding::single(&identity, of.settings);
    let leader = Leader {
        lease: of.name,
        identity,
        recorder,
        metrics,
    };
    (Elections::new(leader, machine, requests, held), Permits::of(seen))
}

impl Elected for Leader {
    /// Another replica is to lead at once.
    const HAND_OVER: Duration = Duration::ZERO;

    fn scope(&self) -> Scope {
        Scope::all().fields(format!("metadata.name={}", self.lease))
    }

    fn name_of(&self, _: LeaseId) -> String {
        self.lease.clone()
    }

    fn role_of(&self, _: &str) -> Role {
        Role::Ours(LeaseId::Shard(0))
    }

    fn changes(&self, _: usize, change: Change, lease: Option<&DynamicObject>) {
        let name = &self.lease;
        let what = match change {
            Change::Begins { term } => {
                tracing::info!(lease = name, term, "this replica leads");
                "became leader"
            }
            Change::Ends { term, leaving: true } => {
                tracing::info!(lease = name, term, "this replica stops leading: the operator stops");
                "stopped leading"
            }
            Change::Ends { term, leaving: false } => {
                let why = "it was not renewed in time, or another replica took it";
                tracing::warn!(lease = name, term, "this replica stops leading: {why}");
                "stopped leading"
            }
        };
        self.metrics.leads(name, matches!(change, Change::Begins { .. }));
        if let Some(lease) = lease {
            let (lease, message) = (lease::reference(lease), format!("{} {what}", self.identity));
            self.recorder
                .record(&self.identity, lease, EventType::Normal, "LeaderElection", message);
        }
    }
}
