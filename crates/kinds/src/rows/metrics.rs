//! `metrics.k8s.io`: the usage of pods and nodes, in the rows of metrics-server. A server that measures nothing does
//! not serve it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubewright_schema::budget;

use super::{ColumnData, KIND, Kind, row};
use crate::cells;
use kubewright_model::{Minor, PerMinor, Resource, Verbs};

/// Both are computed. metrics-server gives them no singular name.
const METRICS: Kind = Kind {
    group: "metrics.k8s.io",
    version: "v1beta1",
    storage_version: "v1beta1",
    singular: Some(""),
    verbs: Verbs::ReadOnly,
    ..KIND
};

const KINDS: [Kind; 2] = [
    Kind {
        kind: "NodeMetrics",
        plural: "nodes",
        namespaced: false,
        cells: cells::NODE_METRICS,
        ..METRICS
    },
    Kind {
        kind: "PodMetrics",
        plural: "pods",
        cells: cells::POD_METRICS,
        ..METRICS
    },
];

/// The columns of both (`addPodMetricsToTable` of metrics-server).
fn columns() -> Vec<ColumnData> {
    let column = |name: &str, format: &str, description: &str| -> ColumnData {
        (
            name.to_owned(),
            "string".to_owned(),
            format.to_owned(),
            0,
            description.to_owned(),
        )
    };
    vec![
        column("Name", "name", "Name of the resource"),
        column("cpu", "quantity", ""),
        column("memory", "quantity", ""),
        column("Window", "duration", ""),
    ]
}

/// The rows, made once.
pub(crate) fn rows(minor: Minor) -> Vec<Arc<Resource>> {
    static ROWS: PerMinor<Vec<Arc<Resource>>> = PerMinor::new();
    let make = || {
        budget::unlimited(|| {
            let of = |kind: &Kind| format!("{}/{}/{}", kind.group, kind.version, kind.plural);
            let mut all: BTreeMap<_, _> = KINDS.iter().map(|kind| (of(kind), columns())).collect();
            KINDS.iter().map(|kind| Arc::new(row(kind, minor, &mut all))).collect()
        })
    };
    ROWS.get_or_init(minor, make).clone()
}
