//! The built-in kinds, one row each. Adding a kind is adding a row to the file of its group (and its columns to
//! `data/columns.json`).
//!
//! The order is that of discovery: groups as kube-apiserver lists them, the core group first.

mod access;
mod core;
mod events;
mod extension;
mod metrics;
mod networking;
mod scale;
mod scheduling;
mod storage;
mod workloads;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use kubewright_schema::budget;
use kubewright_schema::catalog;
use kubewright_schema::protobuf::order::Order;

pub(crate) use access::token_request;
pub(crate) use metrics::rows as metrics;
pub(crate) use scale::{row as scale, row_of_custom as custom_scale};

use crate::cells;
use kubewright_model::{
    Cell, Column, Conversion, Minor, PLAIN, PerMinor, Resource, ScalePaths, SelectableField, Strategy, Subresource,
    Text, Verbs,
};

/// A row as it is written here.
struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    /// The kind in small letters, where it is not said.
    singular: Option<&'static str>,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    verbs: Verbs,
    subresources: &'static [Subresource],
    /// Field selectors: label, pointers.
    fields: &'static [(&'static str, &'static [&'static str])],
    cells: &'static [Cell],
    strategy: Strategy,
    /// For kinds that share a store with another group.
    store: Option<&'static str>,
    /// The version in which objects are stored.
    storage_version: &'static str,
    conversion: Option<Conversion>,
    /// See [`Resource::etcd_name`].
    etcd_name: Option<&'static str>,
    /// See [`Resource::deprecation`].
    deprecation: Option<&'static str>,
    /// The first version of Kubernetes that has the row.
    since: Minor,
    /// The last one.
    until: Minor,
    /// The strategies of later versions, each from the one on that it stands beside, in their order.
    changed: &'static [(Minor, Strategy)],
}

/// The values that most rows have.
const KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: None,
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: Verbs::All,
    subresources: &[],
    fields: &[],
    cells: cells::NAME_AND_AGE,
    strategy: PLAIN,
    store: None,
    storage_version: "v1",
    conversion: None,
    etcd_name: None,
    deprecation: None,
    since: Minor::OLDEST,
    until: Minor::NEWEST,
    changed: &[],
};

/// Of the groups below, most kinds live outside of namespaces.
const CLUSTER: Kind = Kind {
    namespaced: false,
    ..KIND
};
/// `/scale` of a built-in workload.
const SCALE: Subresource = Subresource::Scale(ScalePaths {
    spec_replicas: Cow::Borrowed(".spec.replicas"),
    status_replicas: Cow::Borrowed(".status.replicas"),
    selector: Some(Cow::Borrowed(".spec.selector")),
});

/// All of them, in the order of discovery.
const KINDS: &[&[Kind]] = &[
    core::CORE,
    extension::API_SERVICES,
    workloads::APPS_KINDS,
    events::EVENTS,
    access::REVIEWS_OF_USERS,
    access::REVIEWS_OF_ACCESS,
    workloads::AUTOSCALING,
    workloads::BATCH,
    access::CERTIFICATES,
    networking::NETWORKING_KINDS,
    workloads::POLICY,
    access::RBAC_KINDS,
    storage::STORAGE_KINDS,
    extension::ADMISSION_KINDS,
    extension::DEFINITIONS,
    scheduling::SCHEDULING,
    scheduling::COORDINATION,
    scheduling::NODE,
    networking::DISCOVERY,
    scheduling::DEVICES,
    extension::FLOW_CONTROL,
    extension::MIGRATIONS,
];

/// The rows of a version.
fn kinds(minor: Minor) -> impl Iterator<Item = &'static Kind> {
    let all = KINDS.iter().copied().flatten();
    all.filter(move |kind| (kind.since..=kind.until).contains(&minor))
}

/// The rows of the built-in kinds, made once.
pub(crate) fn rows(minor: Minor) -> Vec<Arc<Resource>> {
    static ROWS: PerMinor<Vec<Arc<Resource>>> = PerMinor::new();
    let make = || {
        budget::unlimited(|| {
            let mut columns = columns(minor);
            kinds(minor)
                .map(|kind| Arc::new(row(kind, minor, &mut columns)))
                .collect()
        })
    };
    ROWS.get_or_init(minor, make).clone()
}

/// The row of a kind that is served.
#[cfg(test)]
pub(crate) fn lookup(group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
    let is_it = |row: &Arc<Resource>| row.group == group && row.version == version && row.plural == plural;
    rows(Minor::default()).into_iter().find(is_it)
}

/// The order in which the objects of a store are written: that of the kind as which they are stored.
pub(crate) fn order_of_store(store: &str) -> Order {
    // Only the kind's identity: the types of its fields are read when one is written.
    static KIND_OF: LazyLock<BTreeMap<String, Arc<Resource>>> = LazyLock::new(|| {
        // The order is that of all versions, of which the newest has the most.
        let all = Minor::ALL.into_iter().flat_map(rows);
        let stored = all.filter(|row| row.conversion.is_none());
        stored.map(|row| (row.store.to_string(), row)).collect()
    });
    KIND_OF.get(store).map_or(Order::SORTED, |row| row.order())
}

/// name, type, format, priority, description
type ColumnData = (String, String, String, i32, String);

/// The columns by the path of a list. A path with a version, such as `…/v1/csinodes@1.37`, has the columns from that
/// version on.
fn columns(minor: Minor) -> BTreeMap<String, Vec<ColumnData>> {
    let all: BTreeMap<String, Vec<ColumnData>> = serde_json::from_str(include_str!("../../data/columns.json"))
        .expect("the committed columns are well formed: a test reads them");
    let mut columns = BTreeMap::new();
    // Sorted: those of a later version come later.
    for (path, of_path) in all {
        match path.split_once('@') {
            None => columns.insert(path, of_path),
            Some((path, since)) if since.parse().is_ok_and(|since: Minor| since <= minor) => {
                columns.insert(path.to_owned(), of_path)
            }
            Some(_) => None,
        };
    }
    columns
}

fn texts(list: &[&'static str]) -> Vec<Text> {
    list.iter().map(|text| Text::Borrowed(text)).collect()
}

/// The value that a field selector compares for an object without the field: the zero of numbers and booleans is
/// written out.
fn zero_of(label: &str) -> &'static str {
    match label {
        "status.replicas" | "status.successful" => "0",
        "spec.unschedulable" | "spec.hostNetwork" => "false",
        _ => "",
    }
}

fn row(kind: &Kind, minor: Minor, columns: &mut BTreeMap<String, Vec<ColumnData>>) -> Resource {
    let path = match kind.group {
        "" => format!("{}/{}", kind.version, kind.plural),
        group => format!("{group}/{}/{}", kind.version, kind.plural),
    };
    let known = "every kind of the table is in the committed data: a test builds all rows";
    // A kind that can only be created is never shown in a table.
    let headers = match kind.verbs {
        Verbs::CreateOnly => Vec::new(),
        _ => columns.remove(&path).expect(known),
    };
    let catalog = catalog::of(minor);
    let changed = kind.changed.iter().rev().find(|(since, _)| *since <= minor);
    let store = match (kind.store, kind.group) {
        (Some(store), _) => Text::Borrowed(store),
        (None, "") => Text::Borrowed(kind.plural),
        (None, group) => Text::Owned(format!("{}.{group}", kind.plural)),
    };
    Resource {
        group: Text::Borrowed(kind.group),
        version: Text::Borrowed(kind.version),
        kind: Text::Borrowed(kind.kind),
        list_kind: Text::Owned(format!("{}List", kind.kind)),
        plural: Text::Borrowed(kind.plural),
        singular: match kind.singular {
            Some(singular) => Text::Borrowed(singular),
            None => Text::Owned(kind.kind.to_lowercase()),
        },
        short_names: texts(kind.short_names),
        categories: texts(kind.categories),
        namespaced: kind.namespaced,
        verbs: kind.verbs,
        store,
        storage_version: Text::Borrowed(kind.storage_version),
        subresources: kind.subresources.to_vec(),
        schema: catalog.for_kind(kind.group, kind.version, kind.kind).expect(known),
        schema_name: Text::Borrowed(catalog.name_for_kind(kind.group, kind.version, kind.kind).expect(known)),
        selectable_fields: kind
            .fields
            .iter()
            .map(|(label, pointers)| SelectableField {
                label: Text::Borrowed(label),
                pointers: texts(pointers),
                absent: Text::Borrowed(zero_of(label)),
            })
            .collect(),
        columns: headers
            .into_iter()
            .zip(kind.cells)
            .map(|((name, type_, format, priority, description), cell)| Column {
                name: name.into(),
                type_: type_.into(),
                format: format.into(),
                description: description.into(),
                priority,
                cell: cell.clone(),
            })
            .collect(),
        strategy: changed.map_or(kind.strategy, |(_, strategy)| *strategy),
        custom: None,
        conversion: kind.conversion,
        etcd_name: kind.etcd_name,
        deprecation: kind.deprecation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_cell_for_each_column() {
        for minor in Minor::ALL {
            let columns = columns(minor);
            let shown = || {
                kinds(minor)
                    .zip(rows(minor))
                    .filter(|(kind, _)| kind.verbs != Verbs::CreateOnly)
            };
            for (kind, row) in shown() {
                let path = if kind.group.is_empty() {
                    format!("{}/{}", kind.version, kind.plural)
                } else {
                    format!("{}/{}/{}", kind.group, kind.version, kind.plural)
                };
                assert_eq!(columns[&path].len(), kind.cells.len(), "{path}");
                assert_eq!(row.columns.len(), kind.cells.len(), "{path}");
            }
            let of_others =
                |path: &&String| !shown().any(|(_, row)| path.ends_with(&format!("{}/{}", row.version, row.plural)));
            let unused: Vec<_> = columns.keys().filter(of_others).collect();
            assert!(
                minor < Minor::NEWEST || unused.is_empty(),
                "columns without a kind: {unused:?}"
            );
        }
    }

    #[test]
    fn columns_are_those_of_the_recording() {
        let recorded: BTreeMap<String, Vec<(String, String, String, i32)>> =
            serde_json::from_str(include_str!("../../testdata/table_columns.json")).expect("the recording");
        for row in rows(Minor::default())
            .into_iter()
            .filter(|row| row.verbs != Verbs::CreateOnly)
        {
            let ours: Vec<_> = row
                .columns
                .iter()
                .map(|column| {
                    (
                        column.name.to_string(),
                        column.type_.to_string(),
                        column.format.to_string(),
                        column.priority,
                    )
                })
                .collect();
            assert_eq!(
                Some(&ours),
                recorded.get(&format!("{}/{}", row.api_version(), row.plural))
            );
        }
    }
}
