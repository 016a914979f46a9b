//! How fast the nodes of a zone are tainted `NoExecute`, by which pods leave them (`handleDisruption`,
//! `ComputeZoneState`, `RateLimitedTimedQueue`).
//!
//! Pure. The nodes of a zone that are not ready wait in a queue, and one every ten seconds is tainted. If many nodes of
//! a zone are not ready, the network is a likelier cause than the nodes: a zone of which more than half is not ready is
//! tainted more slowly or not at all. While no zone has a ready node nothing is evicted, and nodes lose the
//! taints that they have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::core::v1::Node;

use kubewright_objects::{meta, node};

/// `--unhealthy-zone-threshold`, in percent, and the least number of nodes that it applies to.
const UNHEALTHY: (usize, usize) = (55, 3);
/// `--large-cluster-size-threshold`: smaller zones that are unhealthy stop.
const LARGE: usize = 50;
/// How long a node that stopped being ready waits at least. Nodes that fail together are found one after the other, and
/// the state of the zone is that after the last; upstream looks at all of them in one pass.
const SETTLED: Duration = Duration::from_secs(1);
/// The label of nodes that do not count for the state of their zone.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// All zones, with the nodes in them.
#[derive(Debug, Default)]
pub(super) struct Zones {
    nodes: BTreeMap<String, NodeState>,
    zones: BTreeMap<ZoneKey, Zone>,
}

/// Region and zone; both are empty where nodes have no such labels.
type ZoneKey = (String, String);

/// A node as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeState {
    zone: ZoneKey,
    ready: bool,
    excluded: bool,
}

#[derive(Debug, Default)]
struct Zone {
    /// All nodes in it.
    nodes: usize,
    /// Those that count for its state, and the ready ones of them.
    counted: usize,
    ready: usize,
    state: State,
    limiter: Limiter,
    /// Nodes that wait for their taint, each with the time since when.
    queue: VecDeque<(String, Timestamp)>,
    /// The nodes whose turn came. It stays theirs until they are ready, whether the write succeeds at once or not.
    granted: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Initial,
    Normal,
    Partial,
    Full,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rate {
    /// `--node-eviction-rate`: 0.1 a second.
    #[default]
    Normal,
    /// `--secondary-node-eviction-rate`: 0.01 a second.
    Slow,
    Never,
}

/// A bucket for one token.
#[derive(Debug, Default)]
struct Limiter {
    rate: Rate,
    /// When the last token was taken.
    taken: Option<Timestamp>,
}

/// What a change of a node changes for others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// All nodes are to be looked at again: a zone changed its state.
    pub(super) all: bool,
    /// The first ready node after none was: all nodes count as heard of now, since it was the network that failed.
    pub(super) recovered: bool,
    /// This node is the next of its zone.
    pub(super) next: Option<String>,
}

/// Whether a node may have its `NoExecute` taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permit {
    Granted,
    /// It is the next of its zone, in this time.
    In(Duration),
    /// Another node, or the state of its zone, has to change first.
    Waits,
}

impl Rate {
    fn pause(self) -> Option<Duration> {
        match self {
            Rate::Normal => Some(Duration::from_secs(10)),
            Rate::Slow => Some(Duration::from_secs(100)),
            Rate::Never => None,
        }
    }
}

impl Limiter {
    /// How long until there is a token.
    fn left(&self, now: Timestamp) -> Option<Duration> {
        let pause = self.rate.pause()?;
        let taken = self.taken.map_or(pause, |taken| since(taken, now));
        Some(pause.saturating_sub(taken))
    }

    /// A new rate begins without a token where the old one had none (`SwapLimiter`).
    fn swap(&mut self, rate: Rate, now: Timestamp) {
        if rate != self.rate {
            let had = self.left(now).is_some_and(|left| left.is_zero());
            *self = Limiter {
                rate,
                taken: (!had).then_some(now),
            };
        }
    }
}

impl Zone {
    fn next_state(&self) -> State {
        let unready = self.counted - self.ready;
        let (percent, least) = UNHEALTHY;
        match self.ready {
            0 if unready > 0 => State::Full,
            _ if unready >= least && unready * 100 >= self.counted * percent => State::Partial,
            _ => State::Normal,
        }
    }

    fn enter(&mut self, state: State, now: Timestamp) {
        self.state = state;
        let rate = match state {
            State::Partial if self.counted <= LARGE => Rate::Never,
            State::Partial => Rate::Slow,
            _ => Rate::Normal,
        };
        self.limiter.swap(rate, now);
    }

    /// Takes a node out of the queue; the next one, if this changes it.
    fn leave(&mut self, name: &str) -> Option<String> {
        self.granted.remove(name);
        let at = self.queue.iter().position(|(waiting, _)| waiting == name)?;
        self.queue.remove(at);
        self.queue.front().filter(|_| at == 0).map(|(next, _)| next.clone())
    }

    fn count(&mut self, seen: &NodeState, by: impl Fn(usize) -> usize) {
        self.nodes = by(self.nodes);
        if !seen.excluded {
            self.counted = by(self.counted);
            if seen.ready {
                self.ready = by(self.ready);
            }
        }
    }
}

fn since(before: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(before)).unwrap_or_default()
}

fn zone_of(node: &Node) -> ZoneKey {
    let (region, zone) = node::zone_key(node);
    (region.to_owned(), zone.to_owned())
}

impl Zones {
    /// Whether nothing was seen yet, as after a start.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Remembers a node as it is now.
    pub(super) fn see(&mut self, node: &Node) -> Effects {
        let name = meta::name(&node.metadata);
        let labels = node.metadata.labels.as_ref();
        let seen = NodeState {
            zone: zone_of(node),
            ready: node::is_ready(node),
            excluded: labels.is_some_and(|labels| labels.contains_key(EXCLUDED)),
        };
        if self.nodes.get(name) == Some(&seen) {
            return Effects::default();
        }
        let effects = self.forget(name);
        let zone = self.zones.entry(seen.zone.clone()).or_default();
        zone.count(&seen, |count| count + 1);
        self.nodes.insert(name.to_owned(), seen);
        effects
    }

    /// The node is gone.
    pub(super) fn forget(&mut self, name: &str) -> Effects {
        let Some(seen) = self.nodes.remove(name) else {
            return Effects::default();
        };
        let mut next = None;
        if let Some(zone) = self.zones.get_mut(&seen.zone) {
            zone.count(&seen, |count| count.saturating_sub(1));
            next = zone.leave(name);
        }
        self.zones.retain(|_, zone| zone.nodes > 0);
        Effects {
            next,
            ..Effects::default()
        }
    }

    /// Computes the states of the zones, after nodes were seen or forgotten.
    pub(super) fn judge(&mut self, now: Timestamp) -> Effects {
        let was_lost = self.is_lost();
        let counted = || self.zones.values().filter(|zone| zone.counted > 0);
        let is_lost = counted().next().is_some() && counted().all(|zone| zone.next_state() == State::Full);
        let mut effects = Effects {
            all: is_lost != was_lost,
            recovered: was_lost && !is_lost,
            next: None,
        };
        if is_lost && was_lost {
            return effects;
        }
        for zone in self.zones.values_mut().filter(|zone| zone.counted > 0) {
            let state = zone.next_state();
            if is_lost {
                zone.state = state;
                zone.limiter.swap(Rate::Never, now);
                zone.queue.clear();
                zone.granted.clear();
            } else if was_lost || zone.state != state {
                effects.all |= zone.state != State::Initial;
                zone.enter(state, now);
            }
        }
        effects
    }

    /// Whether no zone has a ready node.
    fn is_lost(&self) -> bool {
        let mut counted = self.zones.values().filter(|zone| zone.counted > 0).peekable();
        counted.peek().is_some() && counted.all(|zone| zone.state == State::Full && zone.limiter.rate == Rate::Never)
    }

    /// The node needs no taint; the next of its zone, if this changes it.
    pub(super) fn release(&mut self, name: &str) -> Option<String> {
        let seen = self.nodes.get(name)?;
        self.zones.get_mut(&seen.zone)?.leave(name)
    }

    /// Whether a node that is not ready may be tainted now, and the next of its zone, if this changes it. A node that is
    /// tainted already keeps its taint.
    pub(super) fn permit(&mut self, name: &str, tainted: bool, now: Timestamp) -> (Permit, Option<String>) {
        let is_lost = self.is_lost();
        let seen = self.nodes.get(name);
        let Some(zone) = seen.and_then(|seen| self.zones.get_mut(&seen.zone)) else {
            return (Permit::Waits, None);
        };
        if is_lost {
            return (Permit::Waits, None);
        }
        if tainted || zone.granted.contains(name) {
            let next = zone.leave(name);
            zone.granted.insert(name.to_owned());
            return (Permit::Granted, next);
        }
        if !zone.queue.iter().any(|(waiting, _)| waiting == name) {
            zone.queue.push_back((name.to_owned(), now));
        }
        let Some((_, added)) = zone.queue.front().filter(|(first, _)| first == name) else {
            return (Permit::Waits, None);
        };
        let Some(left) = zone.limiter.left(now) else {
            return (Permit::Waits, None);
        };
        let left = left.max(SETTLED.saturating_sub(since(*added, now)));
        if !left.is_zero() {
            return (Permit::In(left), None);
        }
        zone.limiter.taken = Some(now);
        let next = zone.leave(name);
        zone.granted.insert(name.to_owned());
        (Permit::Granted, next)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, zone: &str, ready: &str) -> Node {
        let (zone, excluded) = zone.split_once('!').map_or((zone, false), |(zone, _)| (zone, true));
        let mut labels = json!({ node::ZONE: zone });
        if excluded {
            labels[EXCLUDED] = json!("");
        }
        let conditions = json!([{ "type": "Ready", "status": ready }]);
        let node = json!({ "metadata": { "name": name, "labels": labels }, "status": { "conditions": conditions } });
        serde_json::from_value(node).expect("a node")
    }

    /// Plays changes (second, nodes as `zone/from-to=Ready`) and compares how many nodes of each zone are tainted, as
    /// `zone:count`, from the second on at which it is said.
    fn check(steps: &[(i64, &str, &str)]) {
        let mut zones = Zones::default();
        let mut nodes: BTreeMap<String, (String, String)> = BTreeMap::new();
        let mut tainted: BTreeSet<String> = BTreeSet::new();
        let last = steps.last().map_or(0, |(second, ..)| *second);
        for second in 0..=last {
            let now = Timestamp::from_second(second).expect("small");
            let due = || steps.iter().filter(|(at, ..)| *at == second);
            for change in due().flat_map(|(_, changes, _)| changes.split_whitespace()) {
                let (which, ready) = change.split_once('=').expect("a change");
                let (zone, range) = which.split_once('/').expect("a zone");
                let (from, to) = range.split_once('-').unwrap_or((range, range));
                for number in from.parse::<u32>().expect("a number")..=to.parse().expect("a number") {
                    let name = format!("{zone}/{number:03}");
                    if ready == "gone" {
                        nodes.remove(&name);
                        tainted.remove(&name);
                        zones.forget(&name);
                    } else {
                        zones.see(&node(&name, zone, ready));
                        nodes.insert(name, (zone.to_owned(), ready.to_owned()));
                    }
                }
            }
            // Those that were woken are looked at in the same second.
            for _ in 0..2 {
                zones.judge(now);
                for (name, (_, ready)) in &nodes {
                    let leave = match ready.as_str() {
                        "True" => {
                            zones.release(name);
                            false
                        }
                        _ => zones.permit(name, tainted.contains(name), now).0 == Permit::Granted,
                    };
                    match leave {
                        true => tainted.insert(name.clone()),
                        false => tainted.remove(name),
                    };
                }
            }
            let mut found: BTreeMap<&str, usize> = BTreeMap::new();
            for name in &tainted {
                *found.entry(&nodes[name].0).or_default() += 1;
            }
            let found: Vec<String> = found.iter().map(|(zone, count)| format!("{zone}:{count}")).collect();
            for (_, _, expected) in due() {
                assert_eq!(found.join(" "), *expected, "after {second} s of {steps:?}");
            }
        }
    }

    /// The first five as kube-controller-manager 1.36.3 does, which looks every five seconds.
    #[test]
    fn nodes_of_a_zone_are_tainted_one_by_one() {
        // One node alone keeps its pods, and so do all where none is ready.
        check(&[(0, "a/1=True", ""), (15, "a/1=False", ""), (99, "", "")]);
        // Another comes: ten seconds later the first is tainted.
        check(&[
            (0, "a/1=False", ""),
            (20, "a/2=True", ""),
            (29, "", ""),
            (30, "", "a:1"),
        ]);
        // Two of five fail.
        check(&[
            (0, "a/1-5=True", ""),
            (20, "a/1-2=False", ""),
            (21, "", "a:1"),
            (30, "", "a:1"),
            (31, "", "a:2"),
        ]);
        // A third: the zone stops. All: the taints go. One returns: ten seconds later they come.
        check(&[
            (0, "a/1-5=True", ""),
            (20, "a/1-2=Unknown", ""),
            (40, "a/3=Unknown", "a:2"),
            (99, "", "a:2"),
            (100, "a/4-5=False", ""),
            (200, "a/5=True", ""),
            (300, "a/3-4=True", ""),
            (310, "", "a:1"),
            (320, "", "a:2"),
            (321, "a/1=True", "a:1"),
        ]);
        // A large zone goes slower.
        check(&[
            (0, "a/1-60=True", ""),
            (200, "a/1-40=False", ""),
            (201, "", "a:1"),
            (300, "", "a:1"),
            (301, "", "a:2"),
        ]);
    }

    #[test]
    fn zones_do_not_wait_for_each_other() {
        // A zone without a ready node goes at the usual rate while another has one.
        check(&[
            (0, "a/1-3=True b/1-3=True", ""),
            (20, "a/1-3=Unknown b/1=False", ""),
            (21, "", "a:1 b:1"),
            (31, "", "a:2 b:1"),
            (41, "", "a:3 b:1"),
            (50, "b/2-3=False", ""),
            (90, "", ""),
        ]);
        // Excluded nodes are tainted, and do not count.
        check(&[(0, "a/1=True a!/1-9=False", ""), (20, "", "a!:2")]);
        // The first of the queue is deleted.
        check(&[
            (0, "a/1-9=True", ""),
            (20, "a/1-3=False", ""),
            (21, "a/2=gone", "a:1"),
            (31, "", "a:2"),
        ]);
    }
}
