//! The arithmetic of a rollout: how many replicas each ReplicaSet of a Deployment shall have next.
//!
//! Pure: everything looks at [`Size`]s and answers with [`Scale`]s. One call decides one step; the next step is decided
//! when the status of the ReplicaSets shows the result of this one.
//!
//! Invariants of a rolling update: no more than `replicas + maxSurge` pods exist (not counting terminating ones), and
//! no ready pod is given up while fewer than `replicas - maxUnavailable` are available. Never both zero: then nothing
//! could ever move, so maxUnavailable counts as 1.

use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::apps::v1::DeploymentSpec;

use crate::intstr::resolve;

/// The bounds of the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The wished number of pods.
    pub(crate) replicas: i32,
    /// How many pods more than that may exist.
    pub(crate) max_surge: i32,
    /// How many of them may be unavailable.
    pub(crate) max_unavailable: i32,
    /// RollingUpdate, as opposed to Recreate.
    pub(crate) rolling: bool,
}

impl Bounds {
    /// Reads them out of the spec, with percentages resolved: surge rounds up, unavailable rounds down.
    pub(crate) fn of(spec: &DeploymentSpec) -> Bounds {
        let replicas = spec.replicas.unwrap_or(1);
        let strategy = spec.strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate");
        if !rolling {
            return Bounds {
                replicas,
                max_surge: 0,
                max_unavailable: 0,
                rolling,
            };
        }
        let parameters = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let quarter = IntOrString::String("25%".to_owned());
        let surge = parameters
            .and_then(|parameters| parameters.max_surge.as_ref())
            .unwrap_or(&quarter);
        let unavailable = parameters
            .and_then(|parameters| parameters.max_unavailable.as_ref())
            .unwrap_or(&quarter);
        let max_surge = resolve(surge, replicas, true);
        let mut max_unavailable = resolve(unavailable, replicas, false);
        if max_surge == 0 && max_unavailable == 0 {
            max_unavailable = 1;
        }
        Bounds {
            replicas,
            max_surge,
            max_unavailable: max_unavailable.min(replicas),
            rolling,
        }
    }

    /// The highest number of pods, and the value of the annotation `max-replicas`.
    pub(crate) fn max_total(&self) -> i32 {
        self.replicas.saturating_add(self.max_surge)
    }

    /// The lowest number of available pods.
    pub(crate) fn min_available(&self) -> i32 {
        self.replicas - self.max_unavailable
    }
}

/// The fields of a ReplicaSet that the decisions need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Size {
    /// Its name, unique among those of one Deployment.
    pub(crate) name: String,
    /// When it was created.
    pub(crate) created: Timestamp,
    /// `spec.replicas`.
    pub(crate) wanted: i32,
    /// `status.replicas`: the pods that exist and are not terminating.
    pub(crate) there: i32,
    /// `status.availableReplicas`. It may be older than `wanted`: see [`Size::kept`].
    pub(crate) available: i32,
    /// The annotation `desired-replicas`: the Deployment's replicas when this one was last scaled.
    pub(crate) desired: Option<i32>,
    /// The annotation `max-replicas`, of the same moment.
    pub(crate) max: Option<i32>,
}

impl Size {
    /// How many available pods stay. A ReplicaSet that was told to shrink may not have counted again; the pods it gives
    /// up are no reserve: counting them would give up the same pod twice and break maxUnavailable.
    pub(crate) fn kept(&self) -> i32 {
        self.available.min(self.wanted)
    }
}

/// A ReplicaSet shall have that many replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scale {
    /// The ReplicaSet.
    pub(crate) name: String,
    /// Its new `spec.replicas`.
    pub(crate) to: i32,
}

impl Scale {
    fn new(size: &Size, to: i32) -> Scale {
        Scale {
            name: size.name.clone(),
            to,
        }
    }
}

fn total(sizes: &[Size]) -> i32 {
    sizes.iter().map(|size| size.wanted).sum()
}

/// How many pods there are or will be: a ReplicaSet that was told to shrink still has those that it has not deleted
/// yet. Kubernetes counts only the wanted pods, so that a new pod can come before the old one has gone and maxSurge is
/// exceeded for a moment.
pub(crate) fn occupied(size: &Size) -> i32 {
    size.wanted.max(size.there)
}

/// How large the new ReplicaSet may be now, when all of them (it included) occupy `total` pods and it wants `wanted`.
pub(crate) fn new_size(bounds: &Bounds, wanted: i32, total: i32) -> i32 {
    if !bounds.rolling {
        return bounds.replicas;
    }
    let room = bounds.max_total() - total;
    if room <= 0 {
        wanted
    } else {
        wanted + room.min(bounds.replicas - wanted)
    }
}

/// The next step of the new ReplicaSet, if there is one.
pub(crate) fn scale_new(bounds: &Bounds, new: &Size, old: &[Size]) -> Option<Scale> {
    let to = if new.wanted > bounds.replicas {
        bounds.replicas
    } else {
        new_size(
            bounds,
            new.wanted,
            occupied(new) + old.iter().map(occupied).sum::<i32>(),
        )
    };
    (to != new.wanted).then(|| Scale::new(new, to))
}

/// The next step of the old ReplicaSets in a rolling update: first the pods that do not work anyhow, then as many that
/// do as may go.
pub(crate) fn scale_old(bounds: &Bounds, new: &Size, old: &[Size]) -> Vec<Scale> {
    let mut old: Vec<Size> = old.iter().filter(|size| size.wanted > 0).cloned().collect();
    old.sort_by(|a, b| a.created.cmp(&b.created).then_with(|| a.name.cmp(&b.name)));
    let before = old.clone();
    // New pods that are not available yet may all fail: no available pod may be given up for them.
    let new_unavailable = new.wanted - new.kept();
    let mut may_go = new.wanted + total(&old) - bounds.min_available() - new_unavailable;
    if may_go <= 0 {
        return vec![];
    }
    let available = new.kept() + old.iter().map(Size::kept).sum::<i32>();
    for size in &mut old {
        let broken = (size.wanted - size.kept()).clamp(0, may_go);
        size.wanted -= broken;
        may_go -= broken;
    }
    let mut spare = (available - bounds.min_available()).max(0);
    for size in &mut old {
        let gone = size.wanted.min(spare);
        size.wanted -= gone;
        spare -= gone;
    }
    std::iter::zip(&before, &old)
        .filter(|(was, is)| was.wanted != is.wanted)
        .map(|(_, is)| Scale::new(is, is.wanted))
        .collect()
}

/// Recreate: every old ReplicaSet goes to nothing.
pub(crate) fn scale_old_to_zero(old: &[Size]) -> Vec<Scale> {
    old.iter()
        .filter(|size| size.wanted > 0)
        .map(|size| Scale::new(size, 0))
        .collect()
}

/// Whether the Deployment was scaled since its ReplicaSets were: an active one remembers another wish.
pub(crate) fn was_scaled(bounds: &Bounds, all: &[&Size]) -> bool {
    all.iter()
        .any(|size| size.wanted > 0 && size.desired.is_some_and(|desired| desired != bounds.replicas))
}

/// The effect of scaling the Deployment (not of a change of its template) on its ReplicaSets.
///
/// One active ReplicaSet (or only the newest): it gets all. The new one complete: the old ones go. In the middle of a
/// rolling update every active one grows or shrinks in proportion, so that the share of the new template stays as it
/// is; the remainder of rounding goes to the largest. Active ones are listed even when their number stays: their
/// annotations must have the sizes they were scaled for.
pub(crate) fn scale_all(bounds: &Bounds, status_replicas: i32, new: Option<&Size>, old: &[Size]) -> Vec<Scale> {
    let active: Vec<&Size> = old.iter().chain(new).filter(|size| size.wanted > 0).collect();
    match active.as_slice() {
        [] => {
            let newest = new.or_else(|| old.iter().max_by(|a, b| a.created.cmp(&b.created)));
            newest
                .map(|size| Scale::new(size, bounds.replicas))
                .into_iter()
                .collect()
        }
        [only] => vec![Scale::new(only, bounds.replicas)],
        _ if new.is_some_and(|new| is_saturated(bounds, new)) => scale_old_to_zero(old),
        _ if bounds.rolling => proportionally(bounds, status_replicas, active),
        _ => vec![],
    }
}

fn is_saturated(bounds: &Bounds, new: &Size) -> bool {
    new.wanted == bounds.replicas && new.desired == Some(bounds.replicas) && new.available == bounds.replicas
}

fn proportionally(bounds: &Bounds, status_replicas: i32, mut active: Vec<&Size>) -> Vec<Scale> {
    let allowed = if bounds.replicas > 0 { bounds.max_total() } else { 0 };
    let to_add = allowed - active.iter().map(|size| size.wanted).sum::<i32>();
    // The largest first; among equals the newest grows first and the oldest shrinks first.
    active.sort_by(|a, b| {
        let age = if to_add > 0 {
            b.created.cmp(&a.created)
        } else {
            a.created.cmp(&b.created)
        };
        b.wanted.cmp(&a.wanted).then(age)
    });
    let mut added = 0;
    let mut scales: Vec<Scale> = Vec::with_capacity(active.len());
    for size in &active {
        let share = share(bounds, status_replicas, size);
        let rest = to_add - added;
        let share = if to_add > 0 {
            share.clamp(0, rest)
        } else {
            share.clamp(rest, 0)
        };
        added += share;
        scales.push(Scale::new(size, size.wanted + share));
    }
    if let Some(first) = scales.first_mut() {
        first.to = (first.to + to_add - added).max(0);
    }
    scales
}

/// By how much one ReplicaSet grows so that it keeps its share of all pods.
fn share(bounds: &Bounds, status_replicas: i32, size: &Size) -> i32 {
    if bounds.replicas == 0 {
        return -size.wanted;
    }
    let before = size.max.filter(|max| *max > 0).unwrap_or(status_replicas);
    if before <= 0 {
        return 0;
    }
    let (product, before) = (
        i64::from(size.wanted) * i64::from(bounds.max_total()),
        i64::from(before),
    );
    let rounded = (2 * product + before) / (2 * before);
    i32::try_from(rounded).unwrap_or(i32::MAX) - size.wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright_objects::api::apps::v1::{DeploymentStrategy, RollingUpdateDeployment};

    fn value(text: &str) -> IntOrString {
        text.parse()
            .map_or_else(|_| IntOrString::String(text.to_owned()), IntOrString::Int)
    }

    fn spec(replicas: i32, surge: &str, unavailable: &str) -> DeploymentSpec {
        DeploymentSpec {
            replicas: Some(replicas),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(value(surge)),
                    max_unavailable: Some(value(unavailable)),
                }),
            }),
            ..DeploymentSpec::default()
        }
    }

    fn bounds(replicas: i32, surge: &str, unavailable: &str) -> Bounds {
        Bounds::of(&spec(replicas, surge, unavailable))
    }

    /// `name wanted/available max`, created in the order of the names; as many pods are there as wanted.
    fn size(text: &str) -> Size {
        let mut words = text.split_whitespace();
        let name = words.next().expect("a name").to_owned();
        let (wanted, available) = words
            .next()
            .and_then(|word| word.split_once('/'))
            .expect("wanted/available");
        let max = words.next().map(|word| word.parse().expect("a number"));
        let age = i64::from(name.as_bytes()[0]);
        Size {
            created: Timestamp::from_second(age).expect("small"),
            wanted: wanted.parse().expect("a number"),
            there: wanted.parse().expect("a number"),
            available: available.parse().expect("a number"),
            desired: max,
            max,
            name,
        }
    }

    fn text(scales: &[Scale]) -> String {
        scales
            .iter()
            .map(|scale| format!("{}={}", scale.name, scale.to))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn percentages() {
        let check = |replicas, surge, unavailable, max_total, min_available| {
            let bounds = bounds(replicas, surge, unavailable);
            assert_eq!(
                (bounds.max_total(), bounds.min_available()),
                (max_total, min_available),
                "{replicas} {surge} {unavailable}"
            );
        };
        check(10, "25%", "25%", 13, 8);
        check(5, "0", "50%", 5, 3);
        check(3, "25%", "25%", 4, 3);
        check(1, "25%", "25%", 2, 1);
        check(0, "25%", "25%", 0, 0);
        check(3, "0", "10%", 3, 2); // both round to nothing: one may be unavailable
        check(2, "0", "5", 2, 0);
        check(3, "nonsense", "1", 3, 2);
        let recreate = DeploymentSpec {
            replicas: Some(3),
            strategy: Some(DeploymentStrategy {
                type_: Some("Recreate".to_owned()),
                rolling_update: None,
            }),
            ..DeploymentSpec::default()
        };
        assert_eq!(Bounds::of(&recreate).max_total(), 3);
    }

    #[test]
    fn rolling_steps() {
        // (replicas, surge, unavailable), old, new => the steps of the new one and of the old ones
        let check = |bounds: Bounds, old: &[&str], new: &str, new_step: &str, old_step: &str| {
            let (old, new) = (old.iter().map(|text| size(text)).collect::<Vec<_>>(), size(new));
            let scale = scale_new(&bounds, &new, &old);
            assert_eq!(text(scale.as_slice()), new_step, "new of {old:?} {new:?}");
            assert_eq!(
                text(&scale_old(&bounds, &new, &old)),
                old_step,
                "old of {old:?} {new:?}"
            );
        };
        let three = bounds(3, "2", "0");
        check(three, &["a 3/3"], "z 0/0", "z=2", "");
        check(three, &["a 3/3"], "z 2/0", "", "");
        check(three, &["a 3/3"], "z 2/1", "", "a=2");
        check(three, &["a 2/2"], "z 2/1", "z=3", "");
        check(three, &[], "z 3/3", "", "");
        let four = bounds(4, "1", "1");
        check(four, &["a 4/4"], "z 0/0", "z=1", "a=3");
        check(four, &["a 3/3"], "z 1/0", "z=2", "");
        // Broken pods of old ReplicaSets go first, also when nothing else may.
        check(bounds(3, "1", "0"), &["a 2/0", "b 2/2"], "z 0/0", "", "a=1");
        check(bounds(2, "1", "1"), &["a 2/0"], "z 1/0", "", "a=1");
        // Two old ones: the oldest gives first.
        check(bounds(4, "0", "2"), &["b 2/2", "a 2/2"], "z 0/0", "", "a=0");
        // Too large, because the Deployment shrank.
        check(bounds(2, "25%", "25%"), &[], "z 5/5", "z=2", "");
    }

    #[test]
    fn scaling() {
        let check = |bounds: Bounds, old: &[&str], new: Option<&str>, expected: &str| {
            let (old, new) = (old.iter().map(|text| size(text)).collect::<Vec<_>>(), new.map(size));
            assert_eq!(
                text(&scale_all(&bounds, 0, new.as_ref(), &old)),
                expected,
                "{old:?} {new:?}"
            );
        };
        // Recorded: 10 to 15 in the middle of 8 + 5 with surge 3; 8 to 4 in 6 + 6 with surge 50 %; to 0.
        check(bounds(15, "3", "25%"), &["a 8/8 13"], Some("z 5/0 13"), "a=11 z=7");
        check(bounds(4, "50%", "25%"), &["a 6/6 12"], Some("z 6/0 12"), "a=3 z=3");
        check(bounds(0, "25%", "25%"), &["a 8/8 13"], Some("z 5/0 13"), "a=0 z=0");
        // One active, or none.
        check(bounds(5, "25%", "25%"), &["a 0/0"], Some("z 3/3 4"), "z=5");
        check(bounds(5, "25%", "25%"), &["a 0/0", "b 0/0"], None, "b=5");
        check(bounds(5, "25%", "25%"), &[], None, "");
        // Both would grow by one and only one may: among equals the newest.
        check(bounds(5, "0", "1"), &["a 2/2 4"], Some("z 2/0 4"), "z=3 a=2");
    }

    #[test]
    fn a_scaled_deployment_is_noticed_by_its_active_replica_sets() {
        let check = |replicas, text: &str, expected| {
            assert_eq!(
                was_scaled(&bounds(replicas, "0", "1"), &[&size(text)]),
                expected,
                "{text}"
            );
        };
        check(3, "a 3/3 3", false);
        check(4, "a 3/3 3", true);
        check(4, "a 0/0 3", false);
        check(4, "a 3/3", false);
    }

    /// Every reachable step of a small rolling update keeps the invariants, whichever pods become ready in between, and
    /// whether old pods go at once or as late as possible.
    #[test]
    fn a_rolling_update_stays_within_its_bounds() {
        for replicas in 0..=5 {
            for (surge, unavailable) in [(0, 1), (1, 0), (1, 1), (2, 0), (3, 2)] {
                for late in [false, true] {
                    roll(bounds(replicas, &surge.to_string(), &unavailable.to_string()), late);
                }
            }
        }
    }

    fn roll(bounds: Bounds, late: bool) {
        let replicas = bounds.replicas;
        let (mut old, mut new) = (size(&format!("a {replicas}/{replicas}")), size("z 0/0"));
        for _ in 0..100 {
            let lags = old.there > old.wanted;
            if lags && !late {
                (old.there, old.available) = (old.wanted, old.available.min(old.wanted));
            } else if let Some(scale) = scale_new(&bounds, &new, std::slice::from_ref(&old)) {
                (new.wanted, new.there) = (scale.to, scale.to);
            } else if let Some(scale) = scale_old(&bounds, &new, std::slice::from_ref(&old)).pop() {
                old.wanted = scale.to;
            } else if lags {
                (old.there, old.available) = (old.wanted, old.available.min(old.wanted));
            } else if new.available < new.wanted {
                new.available += 1;
            } else {
                break;
            }
            assert!(
                old.there + new.there <= bounds.max_total(),
                "{bounds:?} {old:?} {new:?}"
            );
            let available = old.available.min(old.wanted) + new.available;
            assert!(available >= bounds.min_available(), "{bounds:?} {old:?} {new:?}");
        }
        assert_eq!(
            (old.there, new.wanted, new.available),
            (0, replicas, replicas),
            "{bounds:?} must complete"
        );
    }

    #[test]
    fn pods_that_were_given_up_are_no_reserve() {
        // 20 replicas of which 15 must be available: pods given up in the first step still count as available in a
        // status that lags.
        let twenty = bounds(20, "25%", "25%");
        let check = |old: &str, new: &str, expected: &str| {
            assert_eq!(
                text(&scale_old(&twenty, &size(new), &[size(old)])),
                expected,
                "{old} {new}"
            );
        };
        check("a 20/20", "z 5/0", "a=15");
        check("a 15/20", "z 5/0", "");
        check("a 15/20", "z 10/0", "");
        check("a 15/20", "z 10/4", "a=11");
        check("a 15/15", "z 5/9", "a=10");
    }

    #[test]
    fn a_new_pod_waits_until_an_old_one_has_gone() {
        let four = bounds(4, "1", "1");
        let check = |there: i32, expected: &str| {
            let old = Size { there, ..size("a 3/3") };
            assert_eq!(
                text(scale_new(&four, &size("z 1/0"), &[old]).as_slice()),
                expected,
                "{there} there"
            );
        };
        check(4, "");
        check(3, "z=2");
    }
}
