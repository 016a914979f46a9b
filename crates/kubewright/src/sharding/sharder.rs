//! Takes part in the sharding: agrees with the other replicas on the number of shards, and then in the elections of
//! their Leases and of its own.
//!
//! One watch shows all Leases of the operator. Not here: the elections, see `election/elections.rs`.

use std::time::Duration;

use kube::core::DynamicObject;
use kubewright_engine::sharding::{LeaseId, Sharding as Machine, fnv1a};
use tokio::time::sleep;

use super::shards::Shards;
use super::{MOST, Sharding};
use crate::cache::Scope;
use crate::client::Client;
use crate::election::elections::{Change, Elected, Elections, Role};
use crate::election::lease;
use crate::election::request::{Requests, Warnings};
use crate::error::{Chain, Error, Result};
use crate::metrics::Metrics;
use crate::stop::Stop;
use crate::term::AllHeld;
use crate::watch;

/// The label of all Leases of one operator; its value is their name.
const LABEL: &str = "kubewright.dev/sharding";
/// The annotation that says how many shards there are.
const COUNT: &str = "kubewright.dev/shards";

/// Takes part in one sharding.
pub(crate) struct Sharder {
    of: Sharding,
    requests: Requests,
    metrics: Metrics,
    held: watch::Sender<AllHeld>,
}

impl Sharder {
    pub(crate) fn new(of: Sharding, client: &Client, metrics: Metrics) -> (Sharder, Shards) {
        let requests = Requests::new(client, of.namespace.clone(), of.identity.clone(), of.settings);
        let (held, shards) = watch::channel(Vec::new());
        let sharder = Sharder {
            of,
            requests,
            metrics,
            held,
        };
        (sharder, Shards(shards))
    }

    /// Runs until the stop, then gives every shard back once its work has ended. A replica that is not `ready` to work
    /// leaves it to others for one lease duration, and no longer: controllers whose caches are synced must not wait for
    /// the others for ever.
    pub(crate) async fn run(self, ready: watch::Receiver<bool>, stop: Stop) -> Result<()> {
        let shards = tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            shards = agree(&self.requests, &self.of) => shards?,
        };
        let Sharder {
            of,
            requests,
            metrics,
            held,
        } = self;
        let (name, identity) = (of.name, requests.identity.clone());
        tracing::info!(sharding = name, identity, shards, "takes its share of the objects");
        let member = format!("{name}-member-{:016x}", fnv1a(identity.bytes()));
        let machine = Machine::new(&member, identity, shards, of.settings);
        let leases = ShardLeases {
            name,
            member,
            shards,
            metrics,
        };
        Elections::new(leases, machine, requests, held).run(ready, stop).await
    }
}

/// The number of shards, which all replicas agree on before any of them works (SH6).
async fn agree(requests: &Requests, of: &Sharding) -> Result<usize> {
    let (name, mut warnings) = (count_lease(&of.name), Warnings::default());
    loop {
        match agreed(requests, of, &name).await {
            Ok(Some(lease)) => {
                let shards = count_of(&lease).ok_or_else(|| {
                    Error::Configuration(format!(
                        "sharding by Leases {:?}: Lease {name} does not say how many shards there are: its annotation {COUNT} is to be a number \
                         from 1 to {MOST}; end all replicas and delete it",
                        of.name
                    ))
                })?;
                if shards != of.shards {
                    tracing::warn!(
                        sharding = of.name,
                        "there are {shards} shards, as Lease {name} says, and not {}; to change it, end all replicas and delete that Lease",
                        of.shards
                    );
                }
                return Ok(shards);
            }
            Ok(None) => {} // somebody else made it
            Err(error) => warnings.say(&name, format!("cannot read or create it: {}", Chain(&error))),
        }
        sleep(of.settings.retry).await;
    }
}

/// The Lease that has the number, read or written; `None` when another replica was faster.
async fn agreed(requests: &Requests, of: &Sharding, name: &str) -> Result<Option<DynamicObject>> {
    let (client, resource, namespace) = (requests.client(), lease::resource(), &requests.namespace);
    if let Some(lease) = client.live_of(&resource, namespace, name).await? {
        return Ok(Some(lease));
    }
    let mut lease = DynamicObject::new(name, &resource).within(namespace);
    lease.metadata.annotations = Some([(COUNT.to_owned(), of.shards.to_string())].into());
    label(&mut lease, &of.name);
    match client.write_own(&resource, &lease).await {
        Ok(lease) => Ok(Some(lease)),
        Err(error) if error.is_already_exists() => Ok(None),
        Err(error) => Err(error),
    }
}

fn count_lease(sharding: &str) -> String {
    format!("{sharding}-shards")
}

/// The number of shards in a Lease, if it is one.
fn count_of(lease: &DynamicObject) -> Option<usize> {
    let count = lease.metadata.annotations.as_ref()?.get(COUNT)?.parse().ok()?;
    (1..=MOST).contains(&count).then_some(count)
}

fn label(lease: &mut DynamicObject, name: &str) {
    let labels = lease.metadata.labels.get_or_insert_default();
    labels.insert(LABEL.to_owned(), name.to_owned());
}

/// The Leases of a sharding.
struct ShardLeases {
    name: String,
    /// That of this replica.
    member: String,
    shards: usize,
    metrics: Metrics,
}

impl Elected for ShardLeases {
    /// Running reconciles are waited for.
    const HAND_OVER: Duration = Duration::from_secs(30);

    fn scope(&self) -> Scope {
        Scope::all().labels([(LABEL.to_owned(), self.name.clone())].into_iter().collect())
    }

    fn name_of(&self, id: LeaseId) -> String {
        match id {
            LeaseId::Member => self.member.clone(),
            LeaseId::Shard(shard) => format!("{}-shard-{shard}", self.name),
        }
    }

    fn role_of(&self, lease: &str) -> Role {
        let rest = lease.strip_prefix(&self.name).unwrap_or_default();
        let shard = rest.strip_prefix("-shard-").and_then(|shard| shard.parse().ok());
        match shard {
            Some(shard) => Role::Ours(LeaseId::Shard(shard)),
            None if lease == self.member => Role::Ours(LeaseId::Member),
            None if rest.starts_with("-member-") => Role::Member,
            None => Role::Other,
        }
    }

    fn prepare(&self, new: &mut DynamicObject) {
        label(new, &self.name);
    }

    fn changes(&self, shard: usize, change: Change, _: Option<&DynamicObject>) {
        let sharding = &self.name;
        match change {
            Change::Begins { term } => tracing::info!(sharding, shard, term, "this replica works on a shard"),
            Change::Ends { term, .. } => tracing::info!(sharding, shard, term, "this replica stops work on a shard"),
        }
        self.metrics.shard(sharding, matches!(change, Change::Begins { .. }));
    }

    fn assigned(&self, members: &[String]) {
        tracing::info!(
            sharding = self.name,
            ?members,
            "the shards are assigned to these replicas"
        );
        self.metrics.members(&self.name, members.len());
    }

    /// The number of shards must not change while replicas work: a key might be worked on by two (SH6).
    fn check(&self, lease: &DynamicObject) -> Result<()> {
        let (name, known) = (count_lease(&self.name), self.shards);
        let count = count_of(lease);
        if lease.metadata.name.as_ref() != Some(&name) || count == Some(known) {
            return Ok(());
        }
        Err(Error::Configuration(format!(
            "sharding by Leases {:?}: Lease {name} says {} shards, and this replica began with {known}; it ends, because a key must not belong to \
             two shards",
            self.name,
            count.map_or_else(|| "no number of".to_owned(), |count| count.to_string()),
        )))
    }
}
