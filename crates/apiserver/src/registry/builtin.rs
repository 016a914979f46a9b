//! The built-in kinds, one row each. Adding a kind is adding a row here (and its columns to `data/columns.json`).
//!
//! The order is that of discovery: groups as kube-apiserver lists them, the core group first.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use kubewright_schema::catalog;

use super::{Cell, Column, Conversion, Resource, ScalePaths, SelectableField, Strategy, Subresource, Text, Verbs};
use crate::kinds::{core, definitions, events, nodes, pods, rbac, services, workloads};
use crate::table::cells;

/// A row as it is written here.
struct Kind {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
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
    conversion: Option<Conversion>,
}

/// What most rows have.
const KIND: Kind = Kind {
    group: "",
    kind: "",
    plural: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: Verbs::All,
    subresources: &[],
    fields: &[],
    cells: cells::NAME_AND_AGE,
    strategy: super::PLAIN,
    store: None,
    conversion: None,
};

const APPS: Kind = Kind {
    group: "apps",
    categories: &["all"],
    ..KIND
};
const RBAC: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    ..KIND
};

const SCALE: Subresource = Subresource::Scale(ScalePaths {
    spec_replicas: Cow::Borrowed(".spec.replicas"),
    status_replicas: Cow::Borrowed(".status.replicas"),
    selector: Some(Cow::Borrowed(".spec.selector")),
});

const NO_KUBELET: &str = "there is no kubelet: nodes are simulated and containers do not run";

const fn refused(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource::Refused {
        name,
        kind,
        verbs,
        instead: NO_KUBELET,
    }
}

const EVENT_FIELDS: &[(&str, &[&str])] = &[
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

const KINDS: &[Kind] = &[
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        short_names: &["cm"],
        cells: cells::CONFIG_MAP,
        strategy: core::CONFIG_MAP,
        ..KIND
    },
    Kind {
        kind: "Endpoints",
        plural: "endpoints",
        short_names: &["ep"],
        cells: cells::ENDPOINTS,
        strategy: core::ENDPOINTS,
        ..KIND
    },
    Kind {
        kind: "Event",
        plural: "events",
        short_names: &["ev"],
        fields: EVENT_FIELDS,
        cells: cells::EVENT,
        strategy: events::CORE,
        ..KIND
    },
    Kind {
        kind: "Namespace",
        plural: "namespaces",
        short_names: &["ns"],
        namespaced: false,
        verbs: Verbs::AllButDeleteCollection,
        subresources: &[Subresource::Finalize, Subresource::Status],
        fields: &[("status.phase", &["/status/phase"]), ("name", &["/metadata/name"])],
        cells: cells::NAMESPACE,
        strategy: core::NAMESPACE,
        ..KIND
    },
    Kind {
        kind: "Node",
        plural: "nodes",
        short_names: &["no"],
        namespaced: false,
        subresources: &[Subresource::Status],
        fields: &[("spec.unschedulable", &["/spec/unschedulable"])],
        cells: cells::NODE,
        strategy: nodes::NODE,
        ..KIND
    },
    Kind {
        kind: "Pod",
        plural: "pods",
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            refused("attach", "PodAttachOptions", &["create", "get"]),
            Subresource::Binding,
            Subresource::Eviction,
            refused("exec", "PodExecOptions", &["create", "get"]),
            refused("log", "Pod", &["get"]),
            refused("portforward", "PodPortForwardOptions", &["create", "get"]),
            Subresource::Status,
        ],
        fields: &[
            ("spec.nodeName", &["/spec/nodeName"]),
            ("spec.restartPolicy", &["/spec/restartPolicy"]),
            ("spec.schedulerName", &["/spec/schedulerName"]),
            ("spec.serviceAccountName", &["/spec/serviceAccountName"]),
            ("status.phase", &["/status/phase"]),
            ("status.podIP", &["/status/podIP", "/status/podIPs/0/ip"]),
            ("status.nominatedNodeName", &["/status/nominatedNodeName"]),
        ],
        cells: cells::POD,
        strategy: pods::POD,
        ..KIND
    },
    Kind {
        kind: "Secret",
        plural: "secrets",
        fields: &[("type", &["/type"])],
        cells: cells::SECRET,
        strategy: core::SECRET,
        ..KIND
    },
    Kind {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        short_names: &["sa"],
        strategy: core::SERVICE_ACCOUNT,
        ..KIND
    },
    Kind {
        kind: "Service",
        plural: "services",
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[Subresource::Status],
        fields: &[("spec.clusterIP", &["/spec/clusterIP"]), ("spec.type", &["/spec/type"])],
        cells: cells::SERVICE,
        strategy: services::SERVICE,
        ..KIND
    },
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
        fields: &[("status.replicas", &["/status/replicas"])],
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
        ..APPS
    },
    Kind {
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
    },
    Kind {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        categories: &["all"],
        subresources: &[Subresource::Status],
        fields: &[("status.successful", &["/status/succeeded"])],
        cells: cells::JOB,
        strategy: workloads::JOB,
        ..KIND
    },
    Kind {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        namespaced: false,
        cells: cells::BINDING,
        strategy: rbac::CLUSTER_ROLE_BINDING,
        ..RBAC
    },
    Kind {
        kind: "ClusterRole",
        plural: "clusterroles",
        namespaced: false,
        cells: cells::PLAIN,
        strategy: rbac::CLUSTER_ROLE,
        ..RBAC
    },
    Kind {
        kind: "RoleBinding",
        plural: "rolebindings",
        cells: cells::BINDING,
        strategy: rbac::ROLE_BINDING,
        ..RBAC
    },
    Kind {
        kind: "Role",
        plural: "roles",
        cells: cells::PLAIN,
        strategy: rbac::ROLE,
        ..RBAC
    },
    Kind {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        subresources: &[Subresource::Status],
        cells: cells::PLAIN,
        strategy: definitions::DEFINITION,
        ..KIND
    },
    Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        cells: cells::LEASE,
        strategy: core::LEASE,
        ..KIND
    },
    Kind {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        cells: cells::ENDPOINT_SLICE,
        strategy: core::ENDPOINT_SLICE,
        ..KIND
    },
];

/// All built-in kinds are served at `v1` only.
const VERSION: &str = "v1";

/// The rows of the built-in kinds, made once.
pub(super) fn rows() -> Vec<Arc<Resource>> {
    static ROWS: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(|| {
        let mut columns = columns();
        KINDS.iter().map(|kind| Arc::new(row(kind, &mut columns))).collect()
    });
    ROWS.clone()
}

/// name, type, format, priority, description
type ColumnData = (String, String, String, i32, String);

fn columns() -> BTreeMap<String, Vec<ColumnData>> {
    serde_json::from_str(include_str!("../../data/columns.json"))
        .expect("the committed columns are well formed: a test reads them")
}

fn texts(list: &[&'static str]) -> Vec<Text> {
    list.iter().map(|text| Text::Borrowed(text)).collect()
}

fn row(kind: &Kind, columns: &mut BTreeMap<String, Vec<ColumnData>>) -> Resource {
    let path = match kind.group {
        "" => format!("{VERSION}/{}", kind.plural),
        group => format!("{group}/{VERSION}/{}", kind.plural),
    };
    let known = "every kind of the table is in the committed data: a test builds all rows";
    let headers = columns.remove(&path).expect(known);
    let store = match (kind.store, kind.group) {
        (Some(store), _) => Text::Borrowed(store),
        (None, "") => Text::Borrowed(kind.plural),
        (None, group) => Text::Owned(format!("{}.{group}", kind.plural)),
    };
    Resource {
        group: Text::Borrowed(kind.group),
        version: Text::Borrowed(VERSION),
        kind: Text::Borrowed(kind.kind),
        list_kind: Text::Owned(format!("{}List", kind.kind)),
        plural: Text::Borrowed(kind.plural),
        singular: Text::Owned(kind.kind.to_lowercase()),
        short_names: texts(kind.short_names),
        categories: texts(kind.categories),
        namespaced: kind.namespaced,
        verbs: kind.verbs,
        store,
        storage_version: Text::Borrowed(VERSION),
        subresources: kind.subresources.to_vec(),
        schema: catalog::for_kind(kind.group, VERSION, kind.kind).expect(known),
        schema_name: Text::Borrowed(catalog::name_for_kind(kind.group, VERSION, kind.kind).expect(known)),
        selectable_fields: kind
            .fields
            .iter()
            .map(|(label, pointers)| SelectableField {
                label: Text::Borrowed(label),
                pointers: texts(pointers),
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
        strategy: kind.strategy,
        custom: None,
        conversion: kind.conversion,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_cell_for_each_column() {
        let columns = columns();
        for (kind, row) in KINDS.iter().zip(rows()) {
            let path = if kind.group.is_empty() {
                format!("v1/{}", kind.plural)
            } else {
                format!("{}/v1/{}", kind.group, kind.plural)
            };
            assert_eq!(columns[&path].len(), kind.cells.len(), "{path}");
            assert_eq!(row.columns.len(), kind.cells.len(), "{path}");
        }
        assert_eq!(columns.len(), KINDS.len(), "no column without a kind");
    }

    #[test]
    fn columns_are_those_of_the_recording() {
        let recorded: BTreeMap<String, Vec<(String, String, String, i32)>> =
            serde_json::from_str(include_str!("../../testdata/table_columns.json")).expect("the recording");
        for row in rows() {
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
