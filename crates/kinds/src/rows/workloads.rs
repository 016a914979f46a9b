//! The kinds that run pods, and those that decide how many pods run: `apps`, `batch`, `autoscaling`, `policy`.

use super::{KIND, Kind, SCALE};
use crate::cells;
use crate::strategies::{autoscaling, cron, jobs, policy, since_37, workloads};
use kubewright_model::{Minor, Subresource};

const APPS: Kind = Kind {
    group: "apps",
    categories: &["all"],
    ..KIND
};

/// One kind in two versions, which share a store.
const AUTOSCALER: Kind = Kind {
    group: "autoscaling",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource::Status],
    cells: cells::AUTOSCALER,
    storage_version: "v2",
    ..KIND
};

pub(super) const APPS_KINDS: &[Kind] = &[
    Kind {
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        categories: &[],
        cells: cells::CONTROLLER_REVISION,
        strategy: workloads::CONTROLLER_REVISION,
        ..APPS
    },
    Kind {
        kind: "DaemonSet",
        plural: "daemonsets",
        short_names: &["ds"],
        subresources: &[Subresource::Status],
        cells: cells::DAEMON_SET,
        strategy: workloads::DAEMON_SET,
        ..APPS
    },
    Kind {
        kind: "Deployment",
        plural: "deployments",
        short_names: &["deploy"],
        subresources: &[SCALE, Subresource::Status],
        cells: cells::DEPLOYMENT,
        strategy: workloads::DEPLOYMENT,
        ..APPS
    },
    Kind {
        kind: "ReplicaSet",
        plural: "replicasets",
        short_names: &["rs"],
        subresources: &[SCALE, Subresource::Status],
        cells: cells::REPLICA_SET,
        strategy: workloads::REPLICA_SET,
        ..APPS
    },
    Kind {
        kind: "StatefulSet",
        plural: "statefulsets",
        short_names: &["sts"],
        subresources: &[SCALE, Subresource::Status],
        cells: cells::STATEFUL_SET,
        strategy: workloads::STATEFUL_SET,
        changed: &[(Minor::V37, since_37::STATEFUL_SET)],
        ..APPS
    },
];

pub(super) const AUTOSCALING: &[Kind] = &[
    Kind {
        version: "v2",
        strategy: autoscaling::V2,
        changed: &[(Minor::V37, since_37::AUTOSCALER_V2)],
        ..AUTOSCALER
    },
    Kind {
        strategy: autoscaling::V1,
        changed: &[(Minor::V37, since_37::AUTOSCALER_V1)],
        conversion: Some(autoscaling::CONVERSION),
        ..AUTOSCALER
    },
];

pub(super) const BATCH: &[Kind] = &[
    Kind {
        group: "batch",
        kind: "CronJob",
        plural: "cronjobs",
        short_names: &["cj"],
        categories: &["all"],
        subresources: &[Subresource::Status],
        cells: cells::CRON_JOB,
        strategy: cron::CRON_JOB,
        ..KIND
    },
    Kind {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        categories: &["all"],
        subresources: &[Subresource::Status],
        fields: &[("status.successful", &["/status/succeeded"])],
        cells: cells::JOB,
        strategy: jobs::JOB,
        ..KIND
    },
];

pub(super) const POLICY: &[Kind] = &[Kind {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    short_names: &["pdb"],
    subresources: &[Subresource::Status],
    cells: cells::BUDGET,
    strategy: policy::BUDGET,
    ..KIND
}];
