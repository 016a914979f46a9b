//! Which part of the objects this replica works on.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Labels, Metrics};

pub(super) struct Families {
    held: Family<Labels<1>, Gauge>,
    taken: Family<Labels<1>, Counter>,
    members: Family<Labels<1>, Gauge>,
}

impl Families {
    pub(super) fn register(registry: &mut Registry) -> Families {
        let families = Families {
            held: Family::default(),
            taken: Family::default(),
            members: Family::default(),
        };
        registry.register(
            "kubewright_shards_held",
            "Number of shards that this replica works on",
            families.held.clone(),
        );
        registry.register(
            "kubewright_shards_taken",
            "Total number of times that this replica began to work on a shard",
            families.taken.clone(),
        );
        registry.register(
            "kubewright_shard_members",
            "Number of replicas that share the shards, as this one sees them",
            families.members.clone(),
        );
        families
    }
}

impl Metrics {
    /// Work on a shard begins or ends.
    pub(crate) fn shard(&self, sharding: &str, begins: bool) {
        let (families, labels) = (&self.0.shards, [("name", sharding.to_owned())]);
        let held = families.held.get_or_create(&labels);
        match begins {
            true => held.inc(),
            false => held.dec(),
        };
        if begins {
            families.taken.get_or_create(&labels).inc();
        }
    }

    pub(crate) fn members(&self, sharding: &str, members: usize) {
        let labels = [("name", sharding.to_owned())];
        let members = i64::try_from(members).unwrap_or(i64::MAX);
        self.0.shards.members.get_or_create(&labels).set(members);
    }
}
