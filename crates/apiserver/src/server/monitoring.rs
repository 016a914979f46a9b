//! `/metrics`: what this server did and holds, in the text format of Prometheus, under the names and labels of
//! kube-apiserver that dashboards and tests read. Every number is counted, none is made up.
//!
//! A request finds the numbers of its sort (verb, resource, scope) by one look into a map and counts itself in atomics:
//! no lock is held for long, and the map is written only when a sort comes for the first time. Only requests to served
//! resources have a sort, so no client can fill the map with names of its own; beyond [`MAX_SORTS`], which takes
//! definitions by the hundred, further sorts are one without labels.
//!
//! As upstream, requests that are refused before they reach a resource are not counted. A watch is counted when it
//! begins, and its duration nowhere.
//!
//! Not here: the usage of pods and nodes (`special/metrics.rs`), the numbers of the process and its threads.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use http::HeaderMap;
use jiff::Timestamp;

use super::Inner;
use super::head::Target;
use super::route::{ResourcePath, Verb};
use crate::env::Env;
use crate::model::Verbs;
use crate::wire::query::Query;

/// The media type of the text.
pub(super) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How many sorts of requests are told apart.
const MAX_SORTS: usize = 2_000;
/// All further ones; it is there when there are so many.
const OTHERS: u64 = 0;

/// The upper bounds of the durations that are told apart, in milliseconds: those of kube-apiserver.
const BOUNDS: [u64; 23] = [
    5, 25, 50, 100, 200, 400, 600, 800, 1_000, 1_250, 1_500, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000, 15_000,
    20_000, 30_000, 45_000, 60_000,
];

/// The codes of nearly all answers; a webhook may give any other.
const CODES: [u16; 20] = [
    200, 201, 101, 202, 301, 400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422, 429, 500, 503, 504,
];

/// The numbers of one sort of requests.
struct Sort {
    /// As they are written, in the order of their names, without the code.
    labels: String,
    codes: [AtomicU64; CODES.len()],
    other_codes: Mutex<BTreeMap<u16, u64>>,
    /// Of each bound those that are above the one before; last those that are longer.
    durations: [AtomicU64; BOUNDS.len() + 1],
    microseconds: AtomicU64,
}

impl Sort {
    fn new(labels: String) -> Arc<Sort> {
        Arc::new(Sort {
            labels,
            codes: Default::default(),
            other_codes: Mutex::default(),
            durations: Default::default(),
            microseconds: AtomicU64::new(0),
        })
    }

    fn count(&self, code: u16) {
        match CODES.iter().position(|known| *known == code) {
            Some(at) => {
                self.codes[at].fetch_add(1, Ordering::Relaxed);
            }
            None => {
                let mut others = self.other_codes.lock().unwrap_or_else(PoisonError::into_inner);
                *others.entry(code).or_default() += 1;
            }
        }
    }

    fn lasted(&self, microseconds: u64) {
        let at = BOUNDS.partition_point(|bound| bound.saturating_mul(1_000) < microseconds);
        self.durations[at].fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }
}

/// What the server has counted.
#[derive(Default)]
pub(crate) struct Monitoring {
    hasher: RandomState,
    sorts: RwLock<BTreeMap<u64, Arc<Sort>>>,
    /// Requests that are being answered: those that read, and those that write.
    in_flight: Arc<[AtomicUsize; 2]>,
}

/// A request that is being answered, and counted.
pub(super) struct Counted {
    sort: Arc<Sort>,
    env: Arc<dyn Env>,
    began: Timestamp,
    /// Absent for one that lasts for as long as its client wants.
    in_flight: Option<(Arc<[AtomicUsize; 2]>, usize)>,
}

impl Counted {
    /// It was answered with this code.
    pub(super) fn answered(&self, code: u16) {
        self.sort.count(code);
        if self.in_flight.is_some() {
            let took = self.env.now().duration_since(self.began).as_micros();
            self.sort.lasted(u64::try_from(took).unwrap_or(0));
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some((in_flight, kind)) = &self.in_flight {
            in_flight[*kind].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The verb as this metric names it (`cleanVerb` upstream).
fn verb_label(verb: Verb, headers: &HeaderMap) -> &'static str {
    let is_apply = || {
        let media = headers.get(http::header::CONTENT_TYPE);
        media.is_some_and(|media| media.as_bytes().starts_with(b"application/apply-patch+"))
    };
    match verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch if is_apply() => "APPLY",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
    }
}

/// `CleanScope` upstream.
fn scope_label(path: &ResourcePath, verb: Verb) -> &'static str {
    match (&path.name, &path.namespace) {
        (Some(_), _) => "resource",
        _ if verb == Verb::Create => "resource",
        (None, Some(_)) => "namespace",
        (None, None) => "cluster",
    }
}

impl Inner {
    /// Counts a request that begins, if it is to a resource that is served.
    pub(super) fn counted(
        &self,
        target: &Target,
        headers: &HeaderMap,
        query: &Query,
        began: Timestamp,
    ) -> Option<Counted> {
        let Target::Resource(path, Some(verb)) = target else {
            return None;
        };
        let dry_run = if query.get("dryRun") == "All" { "All" } else { "" };
        let subresource = path.subresource.as_deref().unwrap_or("");
        let (verb_label, scope) = (verb_label(*verb, headers), scope_label(path, *verb));
        let (group, version, plural) = (&*path.group, &*path.version, &*path.plural);
        let monitoring = &self.monitoring;
        let sort = (verb_label, dry_run, group, version, plural, subresource, scope);
        let hash = monitoring.hasher.hash_one(sort);
        let sorts = || monitoring.sorts.read().unwrap_or_else(PoisonError::into_inner);
        let known = sorts().get(&hash).cloned();
        let sort = match known {
            Some(sort) => sort,
            None => {
                let row = self.registry.lookup(group, version, plural)?;
                if !subresource.is_empty() && row.subresource(subresource).is_none() {
                    return None;
                }
                let labels = format!(
                    "component=\"apiserver\",dry_run=\"{dry_run}\",group=\"{group}\",resource=\"{plural}\",scope=\"{scope}\",\
                     subresource=\"{subresource}\",verb=\"{verb_label}\",version=\"{version}\""
                );
                let others = sorts().get(&OTHERS).cloned();
                others.unwrap_or_else(|| {
                    let mut all = monitoring.sorts.write().unwrap_or_else(PoisonError::into_inner);
                    let (hash, labels) = match all.len() < MAX_SORTS {
                        true => (hash, labels),
                        false => (OTHERS, "component=\"apiserver\"".to_owned()),
                    };
                    all.entry(hash).or_insert_with(|| Sort::new(labels)).clone()
                })
            }
        };
        let is_long = *verb == Verb::Watch || ["log", "proxy", "exec", "attach", "portforward"].contains(&subresource);
        let kind = usize::from(!matches!(verb, Verb::Get | Verb::List));
        let in_flight = (!is_long).then(|| {
            monitoring.in_flight[kind].fetch_add(1, Ordering::Relaxed);
            (monitoring.in_flight.clone(), kind)
        });
        Some(Counted {
            sort,
            env: self.env.clone(),
            began,
            in_flight,
        })
    }

    /// The text of `/metrics`.
    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        let all = || self.monitoring.sorts.read().unwrap_or_else(PoisonError::into_inner);
        let mut sorts: Vec<Arc<Sort>> = all().values().cloned().collect();
        sorts.sort_by(|one, other| one.labels.cmp(&other.labels));
        self.write_gauges(&mut text);
        let family = |text: &mut String, name: &str, kind: &str, help: &str| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        };
        let total = "apiserver_request_total";
        family(
            &mut text,
            total,
            "counter",
            "Requests to resources that were answered, by HTTP code.",
        );
        for sort in &sorts {
            let mut write = |code: u16, count: u64| {
                let _ = writeln!(text, "{total}{{code=\"{code}\",{}}} {count}", sort.labels);
            };
            for (code, count) in CODES.iter().zip(&sort.codes) {
                match count.load(Ordering::Relaxed) {
                    0 => {}
                    count => write(*code, count),
                }
            }
            let others = sort.other_codes.lock().unwrap_or_else(PoisonError::into_inner);
            others.iter().for_each(|(code, count)| write(*code, *count));
        }
        let duration = "apiserver_request_duration_seconds";
        family(
            &mut text,
            duration,
            "histogram",
            "How long the answers to requests took, except those that last for as long as the client wants.",
        );
        for sort in &sorts {
            let counts = sort.durations.each_ref().map(|count| count.load(Ordering::Relaxed));
            let all: u64 = counts.iter().sum();
            if all == 0 {
                continue;
            }
            let labels = &sort.labels;
            let mut below = 0_u64;
            for (bound, count) in BOUNDS.iter().zip(counts) {
                below = below.saturating_add(count);
                let bound = *bound as f64 / 1_000.0;
                let _ = writeln!(text, "{duration}_bucket{{{labels},le=\"{bound}\"}} {below}");
            }
            let seconds = sort.microseconds.load(Ordering::Relaxed) as f64 / 1e6;
            let _ = writeln!(
                text,
                "{duration}_bucket{{{labels},le=\"+Inf\"}} {all}\n{duration}_sum{{{labels}}} {seconds}\n\
                 {duration}_count{{{labels}}} {all}"
            );
        }
        self.flow_control.write_metrics(self.storage.as_ref(), &mut text);
        text
    }

    fn write_gauges(&self, text: &mut String) {
        let mut family = |name: &str, help: &str, numbers: &[(String, usize)]| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
            for (labels, number) in numbers {
                let _ = writeln!(text, "{name}{{{labels}}} {number}");
            }
        };
        let in_flight = |kind: usize| self.monitoring.in_flight[kind].load(Ordering::Relaxed);
        family(
            "apiserver_current_inflight_requests",
            "Requests that are being answered now.",
            &[
                ("request_kind=\"mutating\"".to_owned(), in_flight(1)),
                ("request_kind=\"readOnly\"".to_owned(), in_flight(0)),
            ],
        );
        family(
            "apiserver_longrunning_requests",
            "Watches that are open now.",
            &[(
                "component=\"apiserver\",verb=\"WATCH\"".to_owned(),
                self.watches.held().0,
            )],
        );
        // Kinds that are served in several versions, or in two groups, have one store.
        let rows = self.registry.resources();
        let stores: BTreeMap<(&str, &str), &str> = rows
            .iter()
            .filter(|row| !matches!(row.verbs, Verbs::CreateOnly | Verbs::ReadOnly))
            .map(|row| ((row.stored_group(), &*row.plural), &*row.store))
            .collect();
        let counts = stores
            .iter()
            .map(|(name, store)| (*name, self.storage.count(store, "")));
        let counts: Vec<((&str, &str), usize)> = counts.collect();
        let by_group = |((group, plural), count): &((&str, &str), usize)| {
            (format!("group=\"{group}\",resource=\"{plural}\""), *count)
        };
        let by_name = |((group, plural), count): &((&str, &str), usize)| match *group {
            "" => (format!("resource=\"{plural}\""), *count),
            group => (format!("resource=\"{plural}.{group}\""), *count),
        };
        family(
            "apiserver_resource_objects",
            "Stored objects of a kind.",
            &counts.iter().map(by_group).collect::<Vec<_>>(),
        );
        family(
            "apiserver_storage_objects",
            "Stored objects of a kind, under the older name.",
            &counts.iter().map(by_name).collect::<Vec<_>>(),
        );
    }
}
