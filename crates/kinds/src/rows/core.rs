//! The core group, and the refusals of its subresources.

use super::events::EVENT_FIELDS;
use super::{CLUSTER, KIND, Kind, SCALE};
use crate::cells;
use crate::strategies::{core, events, limit_ranges, nodes, pods, policy, services, storage, workloads};
use kubewright_model::{Connection, Minor, Subresource, Verbs, Way};

/// A ReplicationController selects by plain labels; `Scale` shows them as a text all the same.
const LABELS_SCALE: Subresource = SCALE;

const NO_KUBELET: &str = "there is no kubelet: nodes are simulated and containers do not run";

const NO_PROXY: &str = "connections are not passed on; reach the program at its own address";

const fn proxy(kind: &'static str) -> Subresource {
    Subresource::Connect(Connection {
        to: Way::Proxy,
        kind,
        instead: NO_PROXY,
    })
}

const fn connect(to: Way, kind: &'static str) -> Subresource {
    Subresource::Connect(Connection {
        to,
        kind,
        instead: NO_KUBELET,
    })
}

pub(super) const CORE: &[Kind] = &[
    Kind {
        kind: "Binding",
        plural: "bindings",
        verbs: Verbs::CreateOnly,
        cells: &[],
        ..KIND
    },
    Kind {
        kind: "ComponentStatus",
        plural: "componentstatuses",
        short_names: &["cs"],
        namespaced: false,
        verbs: Verbs::ReadOnly,
        cells: cells::COMPONENT,
        deprecation: Some("v1 ComponentStatus is deprecated in v1.19+"),
        ..KIND
    },
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
        etcd_name: Some("services/endpoints"),
        deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
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
        subresources: &[Subresource::Part(&core::FINALIZE), Subresource::Status],
        fields: &[("status.phase", &["/status/phase"])],
        cells: cells::NAMESPACE,
        strategy: core::NAMESPACE,
        ..KIND
    },
    Kind {
        kind: "Node",
        plural: "nodes",
        short_names: &["no"],
        namespaced: false,
        subresources: &[proxy("NodeProxyOptions"), Subresource::Status],
        fields: &[("spec.unschedulable", &["/spec/unschedulable"])],
        cells: cells::NODE,
        strategy: nodes::NODE,
        etcd_name: Some("minions"),
        ..KIND
    },
    Kind {
        kind: "Pod",
        plural: "pods",
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            connect(Way::Attach, "PodAttachOptions"),
            Subresource::Document(&pods::BINDING),
            Subresource::Part(&pods::EPHEMERAL_CONTAINERS),
            Subresource::Document(&pods::EVICTION),
            connect(Way::Exec, "PodExecOptions"),
            connect(Way::Log, "Pod"),
            connect(Way::PortForward, "PodPortForwardOptions"),
            proxy("PodProxyOptions"),
            Subresource::Part(&pods::RESIZE),
            Subresource::Status,
        ],
        fields: &[
            ("spec.nodeName", &["/spec/nodeName"]),
            // The name of the first days.
            ("spec.host", &["/spec/nodeName"]),
            ("spec.hostNetwork", &["/spec/hostNetwork"]),
            ("spec.restartPolicy", &["/spec/restartPolicy"]),
            ("spec.schedulerName", &["/spec/schedulerName"]),
            ("spec.serviceAccountName", &["/spec/serviceAccountName"]),
            ("status.phase", &["/status/phase"]),
            ("status.podIP", &["/status/podIP", "/status/podIPs/0/ip"]),
            // May be asked for, but no pod has a value of it.
            ("status.podIPs", &[]),
            ("status.nominatedNodeName", &["/status/nominatedNodeName"]),
        ],
        cells: cells::POD,
        strategy: pods::POD,
        changed: &[(Minor::V37, pods::POD_SINCE_37)],
        ..KIND
    },
    Kind {
        kind: "LimitRange",
        plural: "limitranges",
        short_names: &["limits"],
        cells: cells::PLAIN,
        strategy: limit_ranges::LIMITS,
        ..KIND
    },
    Kind {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        short_names: &["pvc"],
        subresources: &[Subresource::Status],
        cells: cells::CLAIM,
        strategy: storage::CLAIM,
        ..KIND
    },
    Kind {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        short_names: &["pv"],
        subresources: &[Subresource::Status],
        cells: cells::VOLUME,
        strategy: storage::VOLUME,
        ..CLUSTER
    },
    Kind {
        kind: "PodTemplate",
        plural: "podtemplates",
        cells: cells::POD_TEMPLATE,
        strategy: workloads::POD_TEMPLATE,
        ..KIND
    },
    Kind {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        short_names: &["rc"],
        categories: &["all"],
        subresources: &[LABELS_SCALE, Subresource::Status],
        fields: &[("status.replicas", &["/status/replicas"])],
        cells: cells::REPLICATION_CONTROLLER,
        strategy: workloads::REPLICATION_CONTROLLER,
        etcd_name: Some("controllers"),
        ..KIND
    },
    Kind {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        short_names: &["quota"],
        subresources: &[Subresource::Status],
        cells: cells::QUOTA,
        strategy: policy::QUOTA,
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
        subresources: &[Subresource::Document(&core::TOKEN)],
        strategy: core::SERVICE_ACCOUNT,
        ..KIND
    },
    Kind {
        kind: "Service",
        plural: "services",
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[proxy("ServiceProxyOptions"), Subresource::Status],
        fields: &[("spec.clusterIP", &["/spec/clusterIP"]), ("spec.type", &["/spec/type"])],
        cells: cells::SERVICE,
        strategy: services::SERVICE,
        etcd_name: Some("services/specs"),
        ..KIND
    },
];
