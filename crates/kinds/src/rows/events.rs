//! Events: one kind in two groups, with other names for the same fields in each.

use super::{KIND, Kind};
use crate::cells;
use crate::strategies::events;

/// Field selectors of the core group.
pub(super) const EVENT_FIELDS: &[(&str, &[&str])] = &[
    ("involvedObject.kind", &["/involvedObject/kind"]),
    ("involvedObject.namespace", &["/involvedObject/namespace"]),
    ("involvedObject.name", &["/involvedObject/name"]),
    ("involvedObject.uid", &["/involvedObject/uid"]),
    ("involvedObject.apiVersion", &["/involvedObject/apiVersion"]),
    ("involvedObject.resourceVersion", &["/involvedObject/resourceVersion"]),
    ("involvedObject.fieldPath", &["/involvedObject/fieldPath"]),
    ("reason", &["/reason"]),
    ("reportingComponent", &["/reportingComponent"]),
    ("source", &["/source/component", "/reportingComponent"]),
    ("type", &["/type"]),
];

const REGARDING_FIELDS: &[(&str, &[&str])] = &[
    ("regarding.kind", &["/regarding/kind"]),
    ("regarding.namespace", &["/regarding/namespace"]),
    ("regarding.name", &["/regarding/name"]),
    ("regarding.uid", &["/regarding/uid"]),
    ("regarding.apiVersion", &["/regarding/apiVersion"]),
    ("regarding.resourceVersion", &["/regarding/resourceVersion"]),
    ("regarding.fieldPath", &["/regarding/fieldPath"]),
    ("reason", &["/reason"]),
    ("reportingController", &["/reportingController"]),
    ("type", &["/type"]),
];

pub(super) const EVENTS: &[Kind] = &[Kind {
    group: "events.k8s.io",
    kind: "Event",
    plural: "events",
    short_names: &["ev"],
    fields: REGARDING_FIELDS,
    cells: cells::EVENT,
    strategy: events::EVENTS,
    store: Some("events"),
    conversion: Some(events::CONVERSION),
    ..KIND
}];
