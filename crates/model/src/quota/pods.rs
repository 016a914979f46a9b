//! The quota usage of a pod.
//!
//! `count/pods` counts every pod; everything else stops counting when the pod is over, or should have been gone by now.
//! The usage of a container is the larger of its request and its allocation, so that a resize is charged before it is
//! done.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::env;
use crate::facts::amounts::{self, ResourceList, is_native};
use crate::facts::needs::{containers_need, together};
use crate::object;
use crate::values::{get, items};

const COUNT: &str = "count/pods";
const REQUESTS: &str = "requests.";
const HUGE_PAGES: &str = "hugepages-";
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// The resources that every container has to name when a quota counts them.
const REQUIRED: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];

/// Whether pods use the resource of this name.
pub(super) fn counts(name: &str) -> bool {
    let plain = name
        .strip_prefix(REQUESTS)
        .or_else(|| name.strip_prefix("limits."))
        .unwrap_or(name);
    matches!(name, "pods" | COUNT)
        || COMPUTE.contains(&plain)
        || name.starts_with(HUGE_PAGES)
        || name
            .strip_prefix(REQUESTS)
            .is_some_and(|rest| rest.starts_with(HUGE_PAGES))
        || (!is_native(name) && name.starts_with(REQUESTS))
}

/// The usage of the pod.
pub(super) fn usage(pod: &Value, now: Timestamp) -> ResourceList {
    let mut used = ResourceList::from([(COUNT.to_owned(), amounts::number(1))]);
    if is_live(pod, now) {
        amounts::add(&mut used, &named(&total(pod, "requests"), &total(pod, "limits")));
    }
    used
}

/// Neither over nor past its time.
fn is_live(pod: &Value, now: Timestamp) -> bool {
    if matches!(get(pod, &["status", "phase"]).as_str(), Some("Failed" | "Succeeded")) {
        return false;
    }
    let deleted = get(pod, &["metadata", "deletionTimestamp"]).as_str();
    let deleted = deleted.and_then(|time| time.parse::<Timestamp>().ok());
    let (Some(deleted), Some(grace)) = (deleted, object::grace_period(pod)) else {
        return true;
    };
    now <= env::later(deleted, grace)
}

/// Requests and limits under the names that quotas have for them.
fn named(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut used = ResourceList::from([("pods".to_owned(), amounts::number(1))]);
    for name in COMPUTE {
        if let Some(request) = requests.get(name) {
            used.insert(name.to_owned(), request.clone());
            used.insert(format!("{REQUESTS}{name}"), request.clone());
        }
        if let Some(limit) = limits.get(name) {
            used.insert(format!("limits.{name}"), limit.clone());
        }
    }
    for (name, request) in requests {
        let huge = name.starts_with(HUGE_PAGES);
        if huge {
            used.insert(name.clone(), request.clone());
        }
        if huge || (!is_native(name) && !name.starts_with(REQUESTS)) {
            used.insert(format!("{REQUESTS}{name}"), request.clone());
        }
    }
    used
}

/// The resources that a pod asks for in all, regardless of its allocation: the `requests` or the `limits`, without the
/// overhead of its runtime.
pub fn wanted(pod: &Value, field: &str) -> ResourceList {
    let mut sum = containers_need(get(pod, &["spec"]), field);
    as_a_whole(&mut sum, pod, field);
    sum
}

/// The same, with the allocation where that is more, and the overhead.
fn total(pod: &Value, field: &str) -> ResourceList {
    let spec = get(pod, &["spec"]);
    let statuses = Statuses::of(pod);
    let mut sum = together(spec, field, |container, list| statuses.need(container, list, field));
    as_a_whole(&mut sum, pod, field);
    let overhead = amounts::parse(get(pod, &["spec", "overhead"]));
    // The overhead adds no limit for a resource without one.
    let overhead = amounts::only(&overhead, |name| {
        field == "requests" || sum.get(name).is_some_and(|limit| !limit.is_zero())
    });
    amounts::add(&mut sum, &overhead);
    sum
}

/// Pod-level resources count instead of the sum of the containers.
fn as_a_whole(sum: &mut ResourceList, pod: &Value, field: &str) {
    for (name, amount) in amounts::parse(get(pod, &["spec", "resources", field])) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with(HUGE_PAGES) {
            sum.insert(name, amount);
        }
    }
}

/// What the status of a pod says of its containers. A pod may have thousands of them, so each is looked up by its name.
struct Statuses<'a> {
    /// By the list and the name; of several of one name the first.
    named: BTreeMap<(&'static str, &'a str), &'a Value>,
    /// Whether a resize that is wanted will not come.
    infeasible: bool,
}

impl<'a> Statuses<'a> {
    fn of(pod: &'a Value) -> Statuses<'a> {
        let mut named = BTreeMap::new();
        for list in ["containerStatuses", "initContainerStatuses"] {
            for status in items(pod, &["status", list]) {
                let name = get(status, &["name"]).as_str().unwrap_or_default();
                named.entry((list, name)).or_insert(status);
            }
        }
        let pending = items(pod, &["status", "conditions"])
            .iter()
            .find(|condition| get(condition, &["type"]) == "PodResizePending");
        Statuses {
            named,
            infeasible: pending.is_some_and(|condition| get(condition, &["reason"]) == "Infeasible"),
        }
    }

    /// The resources of a container whose status is in this list.
    fn need(&self, container: &'a Value, list: &'static str, field: &str) -> ResourceList {
        let wanted = amounts::parse(get(container, &["resources", field]));
        let name = get(container, &["name"]).as_str().unwrap_or_default();
        let status = self.named.get(&(list, name));
        let Some(status) = status.filter(|status| get(status, &["resources"]).is_object()) else {
            return wanted;
        };
        let mut most = if self.infeasible { ResourceList::new() } else { wanted };
        amounts::at_least(&mut most, &amounts::parse(get(status, &["resources", field])));
        if field == "requests" {
            amounts::at_least(&mut most, &amounts::parse(get(status, &["allocatedResources"])));
        }
        most
    }
}

/// Which of the resources that every container has to name are missing where, as a refusal says it.
pub(super) fn missing(names: &[&str], pod: &Value) -> Option<String> {
    // A pod with resources of its own need not have them in each container.
    let whole = ["requests", "limits"].iter().any(|field| {
        let listed = amounts::parse(get(pod, &["spec", "resources", field]));
        listed
            .keys()
            .any(|name| matches!(name.as_str(), "cpu" | "memory") || name.starts_with(HUGE_PAGES))
    });
    if whole {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let containers = items(pod, &["spec", "containers"]).iter();
    for container in containers.chain(items(pod, &["spec", "initContainers"])) {
        let of = |field: &str| amounts::parse(get(container, &["resources", field]));
        let has = named(&of("requests"), &of("limits"));
        let lacks = names
            .iter()
            .filter(|name| REQUIRED.contains(name) && !has.contains_key(**name));
        for name in lacks {
            let container = get(container, &["name"]).as_str().unwrap_or("");
            missing.entry(name).or_default().insert(container);
        }
    }
    let texts: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| {
            let containers: Vec<&str> = containers.into_iter().collect();
            format!("{name} for: {}", containers.join(","))
        })
        .collect();
    (!texts.is_empty()).then(|| format!("must specify {}", texts.join("; ")))
}
