//! Hints for the annotation `service.kubernetes.io/topology-mode: Auto` (`topologycache` of `k8s.io/endpointslice`).
//!
//! Pure. Each zone is to have as large a share of the endpoints as it has of the cluster's processors. An endpoint is
//! meant for its own zone, unless that has too many and another too few. Where some zone would be overloaded all the
//! same there are no hints, and an event says why. Hints of slices that do not change otherwise stay while they are
//! good enough.

use std::collections::BTreeMap;

use kubewright_objects::api::core::v1::{Node, Service};
use kubewright_objects::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForZone};

use super::pods::Family;
use super::slices::{Group, Plan, key};
use kubewright_objects::quantity::milli;
use kubewright_objects::{meta, node};

/// The annotations that ask for hints, the older one first, which wins.
const MODES: [&str; 2] = [
    "service.kubernetes.io/topology-aware-hints",
    "service.kubernetes.io/topology-mode",
];
/// Nodes with one of these labels do not count.
const EXCLUDED: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
/// By how much an endpoint may be overloaded (`overloadThreshold`).
const OVERLOAD: f64 = 0.2;

const NODES: &str = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
const ENDPOINTS: &str = "Insufficient number of endpoints";
const MINIMUM: &str = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";
const NO_ZONE: &str = "One or more endpoints do not have a zone specified";
const NOTHING: &str = "No hints allocated for zones";

/// The share of the cluster's processors that each zone has.
pub(super) type Shares = BTreeMap<String, f64>;

/// Whether a Service asks for hints (`hintsEnabled`).
pub(super) fn is_wanted(service: &Service) -> bool {
    let mode = MODES.iter().find_map(|key| meta::annotation(&service.metadata, key));
    matches!(mode, Some("Auto" | "auto"))
}

/// The shares of the zones; none when there are fewer than two, or a node does not say its zone or its size
/// (`SetNodes`).
pub(super) fn shares<'a>(nodes: impl Iterator<Item = &'a Node>) -> Option<Shares> {
    let mut by_zone: BTreeMap<String, i128> = BTreeMap::new();
    for node in nodes {
        let labels = meta::labels(&node.metadata);
        if EXCLUDED.iter().any(|label| labels.contains_key(*label)) || !node::is_ready(node) {
            continue;
        }
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let cpu = allocatable
            .and_then(|all| milli(all.get("cpu")?))
            .filter(|cpu| *cpu > 0)?;
        let zone = labels.get(node::ZONE).filter(|zone| !zone.is_empty())?;
        let sum = by_zone.entry(zone.clone()).or_default();
        *sum = sum.saturating_add(cpu);
    }
    let total = by_zone.values().fold(0_i128, |sum, cpu| sum.saturating_add(*cpu));
    (by_zone.len() >= 2).then(|| {
        let share = |cpu: i128| cpu as f64 / total as f64;
        by_zone.into_iter().map(|(zone, cpu)| (zone, share(cpu))).collect()
    })
}

/// Endpoints that are there already keep their hints for now: only by these, their slice does not change.
pub(super) fn keep(groups: &mut [Group], existing: &[&EndpointSlice]) {
    let there = existing.iter().flat_map(|slice| {
        let endpoints = slice.endpoints.iter().flatten();
        endpoints.map(|endpoint| ((slice.address_type.as_str(), key(endpoint)), endpoint.hints.clone()))
    });
    let there: BTreeMap<_, _> = there.collect();
    for group in groups {
        let family = group.family.text();
        for endpoint in &mut group.endpoints {
            endpoint.hints = there.get(&(family, key(endpoint))).cloned().flatten();
        }
    }
}

/// How many endpoints a zone is to have.
#[derive(Clone, Copy, Debug)]
struct Allocation {
    minimum: usize,
    maximum: usize,
    desired: f64,
}

type Counts = BTreeMap<String, usize>;

/// Gives hints to the slices of a family, those that change and those that do not (`AddHints`); or takes them all away,
/// and answers why.
pub(super) fn hint(
    plan: &mut Plan,
    existing: &[&EndpointSlice],
    family: Family,
    shares: Option<&Shares>,
) -> Result<(), String> {
    let is_of = |slice: &EndpointSlice| slice.address_type == family.text();
    let is_changed = |slice: &EndpointSlice| {
        let mut changed = plan.update.iter().chain(&plan.delete);
        changed.any(|changed| changed.metadata.name == slice.metadata.name)
    };
    let unchanged = existing.iter().filter(|slice| is_of(slice) && !is_changed(slice));
    let unchanged: Vec<&EndpointSlice> = unchanged.copied().collect();
    let changing = plan.create.iter().chain(&plan.update).filter(|slice| is_of(slice));
    let total: usize = changing.chain(unchanged.iter().copied()).map(ready).sum();
    let hinted = allocate(total, shares).and_then(|allocations| {
        let mut counts = Counts::new();
        for slice in &unchanged {
            match kept(slice, &counts, &allocations) {
                None => plan.update.push((*slice).clone()),
                Some(kept) => kept
                    .into_iter()
                    .for_each(|(zone, count)| *counts.entry(zone).or_default() += count),
            }
        }
        let mut slices: Vec<&mut EndpointSlice> = plan
            .create
            .iter_mut()
            .chain(&mut plan.update)
            .filter(|slice| is_of(slice))
            .collect();
        at_home(&mut slices, &mut counts)?;
        let (mut givers, mut takers) = exchanges(&allocations, &counts);
        exchange(&mut slices, &mut givers, &mut takers);
        Ok(())
    });
    hinted.map_err(|why| {
        clear(plan, &unchanged, family);
        format!("{why}, addressType: {}", family.text())
    })
}

/// How many of a slice's endpoints are ready.
fn ready(slice: &EndpointSlice) -> usize {
    slice
        .endpoints
        .iter()
        .flatten()
        .filter(|endpoint| takes_requests(endpoint))
        .count()
}

fn takes_requests(endpoint: &Endpoint) -> bool {
    endpoint
        .conditions
        .as_ref()
        .is_some_and(|conditions| conditions.ready == Some(true))
}

fn clear(plan: &mut Plan, unchanged: &[&EndpointSlice], family: Family) {
    let has_hints = |slice: &EndpointSlice| {
        slice
            .endpoints
            .iter()
            .flatten()
            .any(|endpoint| endpoint.hints.is_some())
    };
    let is_new = |slice: &EndpointSlice| {
        !plan
            .update
            .iter()
            .any(|other| other.metadata.name == slice.metadata.name)
    };
    let also: Vec<EndpointSlice> = unchanged
        .iter()
        .filter(|slice| has_hints(slice) && is_new(slice))
        .map(|slice| (*slice).clone())
        .collect();
    plan.update.extend(also);
    let slices = plan.create.iter_mut().chain(&mut plan.update);
    for slice in slices.filter(|slice| slice.address_type == family.text()) {
        slice
            .endpoints
            .iter_mut()
            .flatten()
            .for_each(|endpoint| endpoint.hints = None);
    }
}

/// The endpoints of each zone (`getAllocations`).
fn allocate(total: usize, shares: Option<&Shares>) -> Result<BTreeMap<String, Allocation>, String> {
    let shares = shares.ok_or(NODES)?;
    let sizes = || format!("({total} endpoints, {} zones)", shares.len());
    if shares.len() > total {
        return Err(format!("{ENDPOINTS} {}", sizes()));
    }
    let mut allocations: BTreeMap<String, Allocation> = BTreeMap::new();
    for (zone, share) in shares {
        let desired = share * total as f64;
        // Both are small and not negative.
        let minimum = (desired * (1.0 / (1.0 + OVERLOAD))).ceil() as usize;
        let allocation = Allocation {
            minimum,
            maximum: 0,
            desired: desired.max(minimum as f64),
        };
        allocations.insert(zone.clone(), allocation);
    }
    let least: usize = allocations.values().map(|allocation| allocation.minimum).sum();
    let rest = total
        .checked_sub(least)
        .ok_or_else(|| format!("{MINIMUM} {}", sizes()))?;
    for allocation in allocations.values_mut() {
        allocation.maximum = allocation.minimum + rest;
    }
    Ok(allocations)
}

/// The hints of a slice by zone, when it can keep them (`getHintsByZone`).
fn kept(slice: &EndpointSlice, before: &Counts, allocations: &BTreeMap<String, Allocation>) -> Option<Counts> {
    let mut counts = Counts::new();
    for endpoint in slice
        .endpoints
        .iter()
        .flatten()
        .filter(|endpoint| takes_requests(endpoint))
    {
        let zones = endpoint
            .hints
            .as_ref()
            .and_then(|hints| hints.for_zones.as_deref())
            .unwrap_or_default();
        if zones.is_empty() {
            return None;
        }
        for zone in zones {
            *counts.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = |(zone, count): (&String, &usize)| {
        let before = before.get(zone).copied().unwrap_or(0);
        allocations
            .get(zone)
            .is_some_and(|allocation| count + before <= allocation.maximum)
    };
    counts.iter().all(fits).then_some(counts)
}

fn for_zone(zone: &str) -> Option<EndpointHints> {
    let name = zone.to_owned();
    Some(EndpointHints {
        for_zones: Some(vec![ForZone { name }]),
        for_nodes: None,
    })
}

/// Each endpoint is meant for its own zone, to begin with.
fn at_home(slices: &mut [&mut EndpointSlice], counts: &mut Counts) -> Result<(), String> {
    for endpoint in slices.iter_mut().flat_map(|slice| slice.endpoints.iter_mut().flatten()) {
        endpoint.hints = None;
        if takes_requests(endpoint) {
            let zone = endpoint
                .zone
                .as_deref()
                .filter(|zone| !zone.is_empty())
                .ok_or(NO_ZONE)?;
            *counts.entry(zone.to_owned()).or_default() += 1;
            endpoint.hints = for_zone(zone);
        }
    }
    match counts.is_empty() {
        true => Err(NOTHING.to_owned()),
        false => Ok(()),
    }
}

/// How many endpoints zones give to others, and how many they take (`getGivingAndReceivingZones`).
fn exchanges(allocations: &BTreeMap<String, Allocation>, counts: &Counts) -> (Counts, Counts) {
    let (mut too_many, mut too_few) = (BTreeMap::new(), BTreeMap::new());
    for (zone, allocation) in allocations {
        let surplus = counts.get(zone).copied().unwrap_or(0) as f64 - allocation.desired;
        match surplus > 0.0 {
            true => too_many.insert(zone.clone(), surplus),
            false => too_few.insert(zone.clone(), -surplus),
        };
    }
    let (mut givers, mut takers) = (Counts::new(), Counts::new());
    while let (Some((giver, gives)), Some((taker, takes))) = (most(&too_many), most(&too_few)) {
        if (gives < 1.0 && takes < 1.0) || gives < 0.5 || takes < 0.5 {
            break;
        }
        too_many.insert(giver.clone(), gives - 1.0);
        too_few.insert(taker.clone(), takes - 1.0);
        *givers.entry(giver).or_default() += 1;
        *takers.entry(taker).or_default() += 1;
    }
    (givers, takers)
}

fn most(zones: &BTreeMap<String, f64>) -> Option<(String, f64)> {
    let mut most: Option<(&String, f64)> = None;
    for (zone, amount) in zones {
        if *amount > most.map_or(0.0, |(_, most)| most) {
            most = Some((zone, *amount));
        }
    }
    most.map(|(zone, amount)| (zone.clone(), amount))
}

/// Means endpoints of givers for takers (`redistributeHints`).
fn exchange(slices: &mut [&mut EndpointSlice], givers: &mut Counts, takers: &mut Counts) {
    for endpoint in slices.iter_mut().flat_map(|slice| slice.endpoints.iter_mut().flatten()) {
        let zone = endpoint
            .zone
            .as_deref()
            .filter(|_| endpoint.hints.is_some())
            .unwrap_or_default();
        let Some(gives) = givers.get_mut(zone).filter(|gives| **gives > 0) else {
            continue;
        };
        let Some((taker, takes)) = takers.iter_mut().find(|(_, takes)| **takes > 0) else {
            return;
        };
        endpoint.hints = for_zone(taker);
        *gives -= 1;
        *takes -= 1;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// `zone:milli cpu`, with `!` a node that is not ready and `#` one of the control plane.
    fn nodes(all: &[&str]) -> Vec<Node> {
        let node = |text: &&str| {
            let (zone, cpu) = text.trim_end_matches(['!', '#']).split_once(':').expect("a zone");
            let mut labels = json!({ node::ZONE: Some(zone).filter(|zone| !zone.is_empty()) });
            if text.ends_with('#') {
                labels[EXCLUDED[0]] = json!("");
            }
            labels
                .as_object_mut()
                .expect("an object")
                .retain(|_, value| !value.is_null());
            let ready = if text.ends_with('!') { "False" } else { "True" };
            let node = json!({ "metadata": { "labels": labels }, "status": { "allocatable": { "cpu": format!("{cpu}m") },
                "conditions": [{ "type": "Ready", "status": ready }] } });
            serde_json::from_value(node).expect("a node")
        };
        all.iter().map(node).collect()
    }

    /// Endpoints as words: the zone, and with `!` one that is not ready; `a>b` has a hint for b.
    fn slice(name: &str, endpoints: &str) -> EndpointSlice {
        let endpoint = |(index, word): (usize, &str)| {
            let (zone, hint) = word
                .trim_end_matches('!')
                .split_once('>')
                .unwrap_or((word.trim_end_matches('!'), ""));
            let hints = (!hint.is_empty()).then(|| json!({ "forZones": [{ "name": hint }] }));
            let zone = Some(zone).filter(|zone| *zone != "-");
            json!({ "addresses": [format!("10.0.0.{index}")], "zone": zone, "hints": hints,
                "conditions": { "ready": !word.ends_with('!') } })
        };
        let endpoints: Vec<Value> = endpoints.split_whitespace().enumerate().map(endpoint).collect();
        let slice = json!({ "metadata": { "name": name }, "addressType": "IPv4", "endpoints": endpoints });
        serde_json::from_value(slice).expect("a slice")
    }

    fn text(slice: &EndpointSlice) -> String {
        let endpoints = slice.endpoints.iter().flatten().map(|endpoint| {
            let zone = endpoint.zone.as_deref().unwrap_or("-");
            let hints = endpoint.hints.iter().flat_map(|hints| hints.for_zones.iter().flatten());
            let hints: String = hints.map(|hint| format!(">{}", hint.name)).collect();
            let unready = if takes_requests(endpoint) { "" } else { "!" };
            format!("{zone}{hints}{unready}")
        });
        endpoints.collect::<Vec<_>>().join(" ")
    }

    /// The slices that are written, new ones and then changed ones.
    fn check(all: &[&str], new: &str, unchanged: &[&str], written: &[&str], why: Option<&str>) {
        let nodes = nodes(all);
        let shares = shares(nodes.iter());
        let existing: Vec<EndpointSlice> = unchanged
            .iter()
            .enumerate()
            .map(|(at, text)| slice(&at.to_string(), text))
            .collect();
        let existing: Vec<&EndpointSlice> = existing.iter().collect();
        let mut plan = Plan::default();
        if !new.is_empty() {
            plan.create.push(slice("", new));
        }
        let found = hint(&mut plan, &existing, Family::V4, shares.as_ref());
        let expected = why.map_or(Ok(()), |why| Err(format!("{why}, addressType: IPv4")));
        assert_eq!(found, expected, "{all:?} {new:?}");
        let found: Vec<String> = plan.create.iter().chain(&plan.update).map(text).collect();
        assert_eq!(found, written, "{all:?} {new:?}");
    }

    #[test]
    fn zones_have_their_share() {
        let even = &["a:1000", "b:1000"];
        check(even, "a a b b", &[], &["a>a a>a b>b b>b"], None);
        check(even, "a a a b", &[], &["a>b a>a a>a b>b"], None);
        check(even, "a a b b a!", &[], &["a>a a>a b>b b>b a!"], None);
        // A zone with three times the processors gets three quarters.
        check(&["a:3000", "b:1000"], "a a b b", &[], &["a>a a>a b>a b>b"], None);
        check(
            &["a:1000", "a:2000", "b:1000"],
            "b b b b",
            &[],
            &["b>a b>a b>a b>b"],
            None,
        );
        // Good enough as it is.
        check(even, "", &["a>a b>b"], &[], None);
        check(even, "a b", &["a>a b>b"], &["a>a b>b"], None);
        // Hints that are missing, or too many for a zone, are made anew.
        check(even, "", &["a>a b"], &["a>a b>b"], None);
        check(even, "", &["a>a b>a c>a b>a"], &["a>a b>b c>c b>b"], None);
    }

    #[test]
    fn where_there_are_no_hints() {
        let even = &["a:1000", "b:1000"];
        check(&["a:1000"], "a a", &[], &["a a"], Some(NODES));
        check(&["a:1000", "b:1000!"], "a a", &["a>a"], &["a a", "a"], Some(NODES));
        check(&["a:1000", "b:1000#"], "a a", &["a"], &["a a"], Some(NODES));
        check(&["a:1000", ":1000", "b:1000"], "a b", &[], &["a b"], Some(NODES));
        check(&["a:1000", "b:0"], "a b", &[], &["a b"], Some(NODES));
        let few = "Insufficient number of endpoints (1 endpoints, 2 zones)";
        check(even, "a b!", &[], &["a b!"], Some(few));
        let least = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (3 \
                     endpoints, 2 zones)";
        check(&["a:1000", "b:1000"], "a a b", &[], &["a a b"], Some(least));
        check(even, "a b -", &["b>b"], &["a b -", "b"], Some(NO_ZONE));
    }
}
