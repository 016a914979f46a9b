//! The built-in kinds, one row each. Adding a kind is adding a row here (and its columns to `data/columns.json`).
//!
//! The order is that of discovery: groups as kube-apiserver lists them, the core group first.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use kubewright_schema::budget;
use kubewright_schema::catalog;
use kubewright_schema::protobuf::order::Order;

use super::{Cell, Column, Conversion, Resource, ScalePaths, SelectableField, Strategy, Subresource, Text, Verbs};
use crate::kinds::{
    admission_policies, autoscaling, certificates, core, cron, definitions, devices, events, flow, jobs, networking,
    nodes, pods, policy, rbac, services, slices, storage, system, webhooks, workloads,
};
use crate::table::cells;

/// A row as it is written here.
struct Kind {
    group: &'static str,
    version: &'static str,
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
    /// The version in which objects are stored.
    storage_version: &'static str,
    conversion: Option<Conversion>,
}

/// What most rows have.
const KIND: Kind = Kind {
    group: "",
    version: "v1",
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
    storage_version: "v1",
    conversion: None,
};

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
/// Of the groups below, most kinds live outside of namespaces.
const CLUSTER: Kind = Kind {
    namespaced: false,
    ..KIND
};
const STORAGE: Kind = Kind {
    group: "storage.k8s.io",
    ..CLUSTER
};
const NETWORKING: Kind = Kind {
    group: "networking.k8s.io",
    ..KIND
};
const ADMISSION: Kind = Kind {
    group: "admissionregistration.k8s.io",
    categories: &["api-extensions"],
    ..CLUSTER
};
const RESOURCE: Kind = Kind {
    group: "resource.k8s.io",
    ..KIND
};
const FLOW: Kind = Kind {
    group: "flowcontrol.apiserver.k8s.io",
    subresources: &[Subresource::Status],
    ..CLUSTER
};
/// Answered and never stored, so never shown in a Table.
const AUTHENTICATION: Kind = Kind {
    group: "authentication.k8s.io",
    verbs: Verbs::CreateOnly,
    cells: &[],
    ..CLUSTER
};
const AUTHORIZATION: Kind = Kind {
    group: "authorization.k8s.io",
    ..AUTHENTICATION
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

/// A ReplicationController selects by plain labels; `Scale` shows them as a text all the same.
const LABELS_SCALE: Subresource = SCALE;

const NO_KUBELET: &str = "there is no kubelet: nodes are simulated and containers do not run";

const NO_PROXY: &str = "connections are not passed on; reach the program at its own address";

const PROXY_VERBS: &[&str] = &["create", "delete", "get", "patch", "update"];

const fn proxy(kind: &'static str) -> Subresource {
    Subresource::Refused {
        name: "proxy",
        kind,
        verbs: PROXY_VERBS,
        instead: NO_PROXY,
    }
}

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
        ..KIND
    },
    Kind {
        kind: "Pod",
        plural: "pods",
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            refused("attach", "PodAttachOptions", &["create", "get"]),
            Subresource::Document(&pods::BINDING),
            Subresource::Part(&pods::EPHEMERAL_CONTAINERS),
            Subresource::Document(&pods::EVICTION),
            refused("exec", "PodExecOptions", &["create", "get"]),
            refused("log", "Pod", &["get"]),
            refused("portforward", "PodPortForwardOptions", &["create", "get"]),
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
        ..KIND
    },
    Kind {
        kind: "LimitRange",
        plural: "limitranges",
        short_names: &["limits"],
        cells: cells::PLAIN,
        strategy: policy::LIMITS,
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
        ..KIND
    },
    Kind {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        plural: "apiservices",
        categories: &["api-extensions"],
        subresources: &[Subresource::Status],
        cells: cells::API_SERVICE,
        strategy: system::API_SERVICE,
        ..CLUSTER
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
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        ..AUTHENTICATION
    },
    Kind {
        kind: "TokenReview",
        plural: "tokenreviews",
        ..AUTHENTICATION
    },
    Kind {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
        ..AUTHORIZATION
    },
    Kind {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        ..AUTHORIZATION
    },
    Kind {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        ..AUTHORIZATION
    },
    Kind {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        ..AUTHORIZATION
    },
    Kind {
        version: "v2",
        strategy: autoscaling::V2,
        ..AUTOSCALER
    },
    Kind {
        strategy: autoscaling::V1,
        conversion: Some(autoscaling::CONVERSION),
        ..AUTOSCALER
    },
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
    Kind {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        short_names: &["csr"],
        fields: &[("spec.signerName", &["/spec/signerName"])],
        subresources: &[Subresource::Part(&certificates::APPROVAL), Subresource::Status],
        cells: cells::SIGNING_REQUEST,
        strategy: certificates::SIGNING_REQUEST,
        ..CLUSTER
    },
    Kind {
        kind: "IngressClass",
        plural: "ingressclasses",
        namespaced: false,
        cells: cells::INGRESS_CLASS,
        strategy: networking::INGRESS_CLASS,
        ..NETWORKING
    },
    Kind {
        kind: "Ingress",
        plural: "ingresses",
        short_names: &["ing"],
        subresources: &[Subresource::Status],
        cells: cells::INGRESS,
        strategy: networking::INGRESS,
        ..NETWORKING
    },
    Kind {
        kind: "IPAddress",
        plural: "ipaddresses",
        short_names: &["ip"],
        namespaced: false,
        cells: cells::IP_ADDRESS,
        strategy: networking::IP_ADDRESS,
        ..NETWORKING
    },
    Kind {
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        short_names: &["netpol"],
        cells: cells::NETWORK_POLICY,
        strategy: networking::NETWORK_POLICY,
        ..NETWORKING
    },
    Kind {
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        namespaced: false,
        subresources: &[Subresource::Status],
        cells: cells::SERVICE_CIDR,
        strategy: networking::SERVICE_CIDR,
        ..NETWORKING
    },
    Kind {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        short_names: &["pdb"],
        subresources: &[Subresource::Status],
        cells: cells::BUDGET,
        strategy: policy::BUDGET,
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
        kind: "CSIDriver",
        plural: "csidrivers",
        cells: cells::DRIVER,
        strategy: storage::DRIVER,
        ..STORAGE
    },
    Kind {
        kind: "CSINode",
        plural: "csinodes",
        cells: cells::CSI_NODE,
        strategy: storage::NODE,
        ..STORAGE
    },
    Kind {
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        namespaced: true,
        cells: cells::PLAIN,
        strategy: storage::CAPACITY,
        ..STORAGE
    },
    Kind {
        kind: "StorageClass",
        plural: "storageclasses",
        short_names: &["sc"],
        cells: cells::STORAGE_CLASS,
        strategy: storage::CLASS,
        ..STORAGE
    },
    Kind {
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        subresources: &[Subresource::Status],
        cells: cells::ATTACHMENT,
        strategy: storage::ATTACHMENT,
        ..STORAGE
    },
    Kind {
        kind: "VolumeAttributesClass",
        plural: "volumeattributesclasses",
        short_names: &["vac"],
        cells: cells::ATTRIBUTES_CLASS,
        strategy: storage::ATTRIBUTES,
        ..STORAGE
    },
    Kind {
        kind: "MutatingAdmissionPolicy",
        plural: "mutatingadmissionpolicies",
        cells: cells::MUTATING_POLICY,
        strategy: admission_policies::MUTATING_POLICY,
        ..ADMISSION
    },
    Kind {
        kind: "MutatingAdmissionPolicyBinding",
        plural: "mutatingadmissionpolicybindings",
        cells: cells::POLICY_BINDING,
        strategy: admission_policies::MUTATING_BINDING,
        ..ADMISSION
    },
    Kind {
        kind: "MutatingWebhookConfiguration",
        plural: "mutatingwebhookconfigurations",
        cells: cells::WEBHOOKS,
        strategy: webhooks::MUTATING,
        ..ADMISSION
    },
    Kind {
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        subresources: &[Subresource::Status],
        cells: cells::VALIDATING_POLICY,
        strategy: admission_policies::VALIDATING_POLICY,
        ..ADMISSION
    },
    Kind {
        kind: "ValidatingAdmissionPolicyBinding",
        plural: "validatingadmissionpolicybindings",
        cells: cells::POLICY_BINDING,
        strategy: admission_policies::VALIDATING_BINDING,
        ..ADMISSION
    },
    Kind {
        kind: "ValidatingWebhookConfiguration",
        plural: "validatingwebhookconfigurations",
        cells: cells::WEBHOOKS,
        strategy: webhooks::VALIDATING,
        ..ADMISSION
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
        strategy: Strategy {
            ending: Some(&super::crd::ENDING),
            ..definitions::DEFINITION
        },
        ..KIND
    },
    Kind {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        short_names: &["pc"],
        cells: cells::PRIORITY_CLASS,
        strategy: policy::PRIORITY_CLASS,
        ..CLUSTER
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
        group: "node.k8s.io",
        kind: "RuntimeClass",
        plural: "runtimeclasses",
        cells: cells::RUNTIME_CLASS,
        strategy: policy::RUNTIME_CLASS,
        ..CLUSTER
    },
    Kind {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        cells: cells::ENDPOINT_SLICE,
        strategy: slices::ENDPOINT_SLICE,
        ..KIND
    },
    Kind {
        kind: "DeviceClass",
        plural: "deviceclasses",
        namespaced: false,
        strategy: devices::DEVICE_CLASS,
        ..RESOURCE
    },
    Kind {
        kind: "ResourceClaim",
        plural: "resourceclaims",
        subresources: &[Subresource::Status],
        cells: cells::RESOURCE_CLAIM,
        strategy: devices::CLAIM,
        ..RESOURCE
    },
    Kind {
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
        strategy: devices::CLAIM_TEMPLATE,
        ..RESOURCE
    },
    Kind {
        kind: "ResourceSlice",
        plural: "resourceslices",
        namespaced: false,
        fields: &[
            ("spec.nodeName", &["/spec/nodeName"]),
            ("spec.driver", &["/spec/driver"]),
        ],
        cells: cells::RESOURCE_SLICE,
        strategy: devices::slices::DEVICES,
        ..RESOURCE
    },
    Kind {
        kind: "FlowSchema",
        plural: "flowschemas",
        cells: cells::FLOW_SCHEMA,
        strategy: flow::SCHEMA,
        ..FLOW
    },
    Kind {
        kind: "PriorityLevelConfiguration",
        plural: "prioritylevelconfigurations",
        cells: cells::PRIORITY_LEVEL,
        strategy: flow::LEVEL,
        ..FLOW
    },
];

/// The rows of the built-in kinds, made once.
pub(super) fn rows() -> Vec<Arc<Resource>> {
    static ROWS: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(|| {
        budget::unlimited(|| {
            let mut columns = columns();
            KINDS.iter().map(|kind| Arc::new(row(kind, &mut columns))).collect()
        })
    });
    ROWS.clone()
}

/// The order in which the objects of a store are written: that of the kind as which they are stored.
pub(crate) fn order_of_store(store: &str) -> Order {
    // Only which kind it is: what its fields are is read when one is written.
    static KIND_OF: LazyLock<BTreeMap<String, Arc<Resource>>> = LazyLock::new(|| {
        let stored = rows().into_iter().filter(|row| row.conversion.is_none());
        stored.map(|row| (row.store.to_string(), row)).collect()
    });
    KIND_OF.get(store).map_or(Order::SORTED, |row| row.order())
}

/// What `/token` of a ServiceAccount takes and answers. No path leads to it as a kind of its own.
pub(crate) fn token_request() -> Arc<Resource> {
    static ROW: LazyLock<Arc<Resource>> = LazyLock::new(|| {
        budget::unlimited(|| {
            let kind = Kind {
                kind: "TokenRequest",
                plural: "tokenrequests",
                namespaced: true,
                ..AUTHENTICATION
            };
            Arc::new(row(&kind, &mut BTreeMap::new()))
        })
    });
    ROW.clone()
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

/// What a field selector sees of an object without the field: numbers and booleans have a zero that is written.
fn zero_of(label: &str) -> &'static str {
    match label {
        "status.replicas" | "status.successful" => "0",
        "spec.unschedulable" | "spec.hostNetwork" => "false",
        _ => "",
    }
}

fn row(kind: &Kind, columns: &mut BTreeMap<String, Vec<ColumnData>>) -> Resource {
    let path = match kind.group {
        "" => format!("{}/{}", kind.version, kind.plural),
        group => format!("{group}/{}/{}", kind.version, kind.plural),
    };
    let known = "every kind of the table is in the committed data: a test builds all rows";
    // What can only be created is never shown in a table.
    let headers = match kind.verbs {
        Verbs::CreateOnly => Vec::new(),
        _ => columns.remove(&path).expect(known),
    };
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
        singular: Text::Owned(kind.kind.to_lowercase()),
        short_names: texts(kind.short_names),
        categories: texts(kind.categories),
        namespaced: kind.namespaced,
        verbs: kind.verbs,
        store,
        storage_version: Text::Borrowed(kind.storage_version),
        subresources: kind.subresources.to_vec(),
        schema: catalog::for_kind(kind.group, kind.version, kind.kind).expect(known),
        schema_name: Text::Borrowed(catalog::name_for_kind(kind.group, kind.version, kind.kind).expect(known)),
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
        let shown = || {
            KINDS
                .iter()
                .zip(rows())
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
        assert_eq!(columns.len(), shown().count(), "no column without a kind");
    }

    #[test]
    fn columns_are_those_of_the_recording() {
        let recorded: BTreeMap<String, Vec<(String, String, String, i32)>> =
            serde_json::from_str(include_str!("../../testdata/table_columns.json")).expect("the recording");
        for row in rows().into_iter().filter(|row| row.verbs != Verbs::CreateOnly) {
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
