//! The moments at which an undisturbed run was at rest, from which disturbed runs begin.
//!
//! A run from such a moment shares the cluster's contents of that moment, and starts the operator and those of the
//! built-in controllers anew that the workload needs. Invariant: what it shows counts for nothing by itself; a finding
//! is played from the beginning before it is told.

use std::collections::BTreeSet;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::core::ApiResource;
use kubewright_cluster::controllers::Collected;
use kubewright_cluster::{ApiServer, ClusterBuilder, ForkPoint};

use super::fault::Fault;
use super::log::Log;
use super::snapshot::Reader;
use crate::cluster::TestCluster;

/// A moment at rest: before the first step, or after one.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) point: ForkPoint,
    pub(super) time: Timestamp,
    /// It has read the cluster.
    pub(super) reader: Reader,
    pub(super) revision: u64,
    /// The kinds of which there is something, or was; each with whether it has namespaces.
    pub(super) kinds: Collected,
}

/// A built-in controller, and the stores without whose changes it has nothing to do. The others always run.
type Work = (&'static str, &'static [&'static str]);

const WORK: &[Work] = &[
    ("namespace", &["namespaces"]),
    ("serviceaccount", &["namespaces", "serviceaccounts"]),
    ("replicaset", &["replicasets.apps"]),
    ("replicationcontroller", &["replicationcontrollers"]),
    ("deployment", &["deployments.apps"]),
    ("job", &["jobs.batch"]),
    ("cronjob", &["cronjobs.batch"]),
    ("statefulset", &["statefulsets.apps"]),
    ("daemonset", &["daemonsets.apps"]),
    ("scheduler", &["pods"]),
    ("node", &["pods", "nodes"]),
    ("node-lifecycle", &["nodes"]),
    (
        "volume-protection",
        &[
            "persistentvolumeclaims",
            "persistentvolumes",
            "volumeattributesclasses.storage.k8s.io",
        ],
    ),
    ("resourcequota", &["resourcequotas"]),
    ("clusterrole-aggregation", &["clusterroles.rbac.authorization.k8s.io"]),
    (
        "endpoints",
        &["services", "endpoints", "endpointslices.discovery.k8s.io"],
    ),
    ("disruption", &["poddisruptionbudgets.policy"]),
    ("taint-eviction", &["nodes"]),
    ("pod-garbage-collector", &["pods", "nodes"]),
    (
        "persistentvolume-binder",
        &[
            "persistentvolumeclaims",
            "persistentvolumes",
            "storageclasses.storage.k8s.io",
        ],
    ),
    (
        "certificatesigningrequest",
        &["certificatesigningrequests.certificates.k8s.io"],
    ),
    ("horizontalpodautoscaler", &["horizontalpodautoscalers.autoscaling"]),
    (
        "resourceclaim",
        &[
            "resourceclaims.resource.k8s.io",
            "resourceclaimtemplates.resource.k8s.io",
        ],
    ),
    ("service-proxy", &["services"]),
];

/// A cluster that goes on where an undisturbed run was at rest after a step, without the controllers that have nothing
/// to do.
pub(super) fn goes_on(places: &[Place], step: usize, builder: ClusterBuilder) -> ClusterBuilder {
    let builder = builder.fork(&places[step].point).idle(idle(places));
    match collected(places) {
        Some(kinds) => builder.collects(kinds),
        None => builder,
    }
}

impl Place {
    /// This moment of a cluster, which a reader has just read; `None` when the cluster cannot be forked.
    pub(super) fn of(cluster: &TestCluster, time: Timestamp, reader: &Reader) -> Option<Place> {
        let cluster = cluster.cluster();
        Some(Place {
            point: cluster.fork_point()?,
            time,
            reader: reader.clone(),
            revision: cluster.api().resource_version(),
            kinds: written(cluster.api()),
        })
    }

    /// The step after which a run with this fault begins; `None` for the beginning.
    pub(super) fn before(fault: &Fault, log: &Log) -> Option<usize> {
        let step = match fault {
            Fault::Stale { after, .. } | Fault::Past { after, .. } | Fault::Deleted { after, .. } => {
                return Some(*after);
            }
            Fault::Late { .. } => return None,
            Fault::Pair(pair) => {
                let [one, other] = pair.as_ref();
                return Some(Place::before(one, log)?.min(Place::before(other, log)?));
            }
            Fault::Down { step } => return step.checked_sub(1),
            Fault::Held { resource, event } | Fault::Missed { resource, event } | Fault::Cut { resource, event } => {
                log.step_of_event(resource, *event)?
            }
            at_write => log.attempts().get(at_write.write()?.checked_sub(1)?)?.step,
        };
        step.checked_sub(1)
    }
}

/// The controllers that have nothing to do in a run with these moments.
fn idle(places: &[Place]) -> BTreeSet<&'static str> {
    let (Some(first), Some(last)) = (places.first(), places.last()) else {
        return BTreeSet::new();
    };
    let changes = |store: &str| first.reader.changes(store) != last.reader.changes(store);
    let idle = WORK
        .iter()
        .filter(|(_, stores)| !stores.iter().any(|store| changes(store)));
    idle.map(|(controller, _)| *controller).collect()
}

/// The kinds of which there is something in a server, or was.
fn written(api: &ApiServer) -> Collected {
    let rows = api.kinds().resources();
    let stored = rows.iter().filter(|row| row.version == row.storage_version);
    let written = stored.filter(|row| &*row.kind != "Event" && api.changes(&row.store) != 0);
    written
        .map(|row| {
            let (group, version) = (row.group.to_string(), row.version.to_string());
            let resource = ApiResource {
                api_version: match group.as_str() {
                    "" => version.clone(),
                    group => format!("{group}/{version}"),
                },
                group,
                version,
                kind: row.kind.to_string(),
                plural: row.plural.to_string(),
            };
            (resource, row.namespaced)
        })
        .collect()
}

/// The kinds for the garbage collector in a run with these moments; `None` when kinds come and go.
fn collected(places: &[Place]) -> Option<Collected> {
    let (first, last) = (places.first()?, places.last()?);
    let changes = |place: &Place| {
        let of = [
            "customresourcedefinitions.apiextensions.k8s.io",
            "apiservices.apiregistration.k8s.io",
        ];
        of.map(|store| place.reader.changes(store))
    };
    (changes(first) == changes(last)).then(|| last.kinds.clone())
}

/// Whether the controllers that did not run had nothing to do since a moment.
pub(super) fn is_idle(places: &[Place], since: usize, api: &ApiServer) -> bool {
    let idle = idle(places);
    let stores = WORK.iter().filter(|(controller, _)| idle.contains(controller));
    let mut stores = stores.flat_map(|(_, stores)| *stores);
    let is_collected = collected(places).is_none_or(|kinds| written(api).len() <= kinds.len());
    is_collected && stores.all(|store| places[since].reader.changes(store) == api.changes(store))
}
