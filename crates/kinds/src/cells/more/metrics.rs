//! Cells of the usage of pods and nodes (`addPodMetricsToTable` of metrics-server).

use jiff::Timestamp;
use kubewright_schema::quantity::Quantity;
use serde_json::Value;

use crate::cells::text;
use kubewright_model::Cell;
use kubewright_model::values::At;

/// The usage of a resource, summed over all containers.
fn of_containers(object: &Value, resource: &str) -> Value {
    let root = At::root(object).key("containers");
    let used = root.items().map(|one| one.keys(&["usage", resource]).text().to_owned());
    let all: Vec<Quantity> = used.filter_map(|text| text.parse().ok()).collect();
    all.into_iter()
        .reduce(|sum, used| sum + used)
        .map_or(Value::Null, |sum| sum.to_string().into())
}

fn window(object: &Value, _: Timestamp) -> Value {
    text(object, &["window"]).into()
}

pub(crate) const POD_METRICS: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| of_containers(object, "cpu")),
    Cell::With(|object, _| of_containers(object, "memory")),
    Cell::With(window),
];

pub(crate) const NODE_METRICS: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["usage", "cpu"]).into()),
    Cell::With(|object, _| text(object, &["usage", "memory"]).into()),
    Cell::With(window),
];
