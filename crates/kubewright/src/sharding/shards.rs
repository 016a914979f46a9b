//! What controllers ask about shards: whether a key's shard is held here, and for its permit. Cheap to clone.

use kubewright_engine::sharding::shard_of;
use tokio::time::Instant;

use crate::request::Request;
use crate::term::{AllHeld, Held, Permit};
use crate::watch;

/// The shards as this replica holds them now. Before the replicas have agreed on their number there are none.
#[derive(Clone, Debug)]
pub(crate) struct Shards(pub(super) watch::Receiver<AllHeld>);

impl Shards {
    /// Whether this replica works on a key.
    pub(crate) fn holds(&self, key: &Request) -> bool {
        let held = self.0.borrow();
        held.get(place(key, held.len())).is_some_and(Option::is_some)
    }

    /// The shard of a key, if it is held, and its permit, to be held while the key is worked on.
    pub(crate) fn held(&self, key: &Request) -> Option<(Generation, Permit)> {
        let all = self.0.borrow();
        let shard = place(key, all.len());
        let Held { generation, permit } = all.get(shard)?.as_ref()?;
        (!permit.fence().is_over()).then(|| (Generation(shard, *generation), permit.clone()))
    }

    /// Resolves when shards are held that were not, or that were given up meanwhile; answers which. `known`: the
    /// generations that the caller knows.
    pub(crate) async fn gained(&mut self, known: &mut Vec<Option<u64>>) -> Gained {
        loop {
            let (now, since): (Vec<Option<u64>>, Option<Instant>) = {
                let all = self.0.borrow_and_update();
                let held = all.iter().map(|held| Some(held.as_ref()?.generation));
                let began = all.iter().flatten().filter_map(|held| held.permit.began());
                (held.collect(), began.max())
            };
            let before = std::mem::replace(known, now);
            let is_new = |(at, generation): (usize, &Option<u64>)| {
                generation.is_some() && before.get(at).copied().flatten() != *generation
            };
            let gained: Vec<bool> = known.iter().enumerate().map(is_new).collect();
            if gained.contains(&true) {
                return Gained { gained, since };
            }
            if self.0.changed().await.is_err() {
                // The sharder has ended: nothing is gained any more.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// A shard in one time of being held: the number of the shard, and the one that grows each time that work begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(usize, u64);

impl Generation {
    /// Whether these generations, by shard, are as new.
    pub(crate) fn is_in(self, known: &[Option<u64>]) -> bool {
        known.get(self.0).copied().flatten() == Some(self.1)
    }
}

/// Shards that are held anew.
pub(crate) struct Gained {
    gained: Vec<bool>,
    since: Option<Instant>,
}

impl Gained {
    /// Whether a key belongs to one of them.
    pub(crate) fn has(&self, key: &Request) -> bool {
        self.gained
            .get(place(key, self.gained.len()))
            .copied()
            .unwrap_or_default()
    }

    /// When the last of the shards was gained: what earlier holders wrote was written before.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }
}

fn place(key: &Request, shards: usize) -> usize {
    shard_of(key.cluster(), key.namespace(), key.name(), shards)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::term::Term;
    use tokio::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn sh7_a_shard_is_gained_each_time_that_work_begins() {
        let (held, shards) = watch::channel(Vec::new());
        let shards = Shards(shards);
        let key = Request::new(Some("default"), "a");
        assert!(!shards.holds(&key), "nothing is held before the number is known");
        let until = Instant::now() + Duration::from_secs(10);
        let begin = |generation| {
            let (term, permit) = Term::begin(3, until, Duration::from_secs(15));
            held.send_replace(vec![Some(Held { generation, permit })]);
            term
        };
        let first = begin(1);
        let (mut watching, mut known) = (shards.clone(), Vec::new());
        assert!(watching.gained(&mut known).await.has(&key));
        assert!(shards.holds(&key) && shards.held(&key).is_some());
        let no_more = tokio::time::timeout(Duration::from_secs(1), watching.gained(&mut known)).await;
        assert!(no_more.is_err(), "the same term is not gained again");
        drop(first);
        assert!(shards.held(&key).is_none(), "a term that is over");
        held.send_replace(vec![None]);
        assert!(!shards.holds(&key));
        // The term was lost and gained between two looks: dropped keys are to be reconciled nevertheless.
        let _second = begin(2);
        assert!(watching.gained(&mut known).await.has(&key));
    }
}
