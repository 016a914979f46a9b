//! What is accepted without acting, as data: kinds, fields and values that nothing in this cluster acts on.
//!
//! `xtask/tests/it/honesty.rs` reads this table, too: a field that no controller, node or scheduler reads stands here or
//! has its reason there.

/// A kind, a field or a value that nothing acts on.
pub(crate) struct Row {
    /// The API group.
    pub(crate) group: &'static str,
    /// The plural name of the kind. Rows of pods also count for the templates of pods.
    pub(crate) plural: &'static str,
    /// The names on the way to the field: `*` is every item of a list, `a|b` is either. Empty: the kind itself.
    pub(crate) path: &'static [&'static str],
    /// The values that nothing acts on; empty: all.
    pub(crate) values: &'static [&'static str],
    /// The effect that does not happen.
    pub(crate) text: &'static str,
}

const fn kind(group: &'static str, plural: &'static str, text: &'static str) -> Row {
    field(group, plural, &[], text)
}

const fn field(group: &'static str, plural: &'static str, path: &'static [&'static str], text: &'static str) -> Row {
    value(group, plural, path, &[], text)
}

const fn value(
    group: &'static str,
    plural: &'static str,
    path: &'static [&'static str],
    values: &'static [&'static str],
    text: &'static str,
) -> Row {
    Row {
        group,
        plural,
        path,
        values,
        text,
    }
}

/// Of a cluster that gives Services no addresses.
pub(crate) const NO_ADDRESSES: &str = "spec.type: this cluster gives Services of type LoadBalancer no addresses; start it with --load-balancer-range, or run a controller that does";

/// The containers of a pod.
const CONTAINERS: &str = "containers|initContainers|ephemeralContainers";

pub(crate) const ROWS: &[Row] = &[
    kind(
        "networking.k8s.io",
        "networkpolicies",
        "this cluster has no network plugin: a NetworkPolicy restricts nothing",
    ),
    kind(
        "networking.k8s.io",
        "ingresses",
        "this cluster has no ingress controller of its own: an Ingress leads nowhere until you run one",
    ),
    kind(
        "networking.k8s.io",
        "servicecidrs",
        "this cluster gives Services no addresses of additional ServiceCIDRs",
    ),
    kind(
        "storage.k8s.io",
        "volumeattachments",
        "this cluster has no controller attachdetach yet: nothing is attached",
    ),
    value("", "services", &["spec", "type"], &["LoadBalancer"], NO_ADDRESSES),
    field(
        "",
        "services",
        &["spec", "externalIPs"],
        "spec.externalIPs: nothing in this cluster accepts connections to these addresses",
    ),
    value(
        "",
        "services",
        &["spec", "sessionAffinity"],
        &["ClientIP"],
        "spec.sessionAffinity: this cluster does not send a client to the same pod again",
    ),
    value(
        "",
        "services",
        &["spec", "internalTrafficPolicy"],
        &["Local"],
        "spec.internalTrafficPolicy: this cluster prefers no pods of the client's node",
    ),
    value(
        "",
        "services",
        &["spec", "externalTrafficPolicy"],
        &["Local"],
        "spec.externalTrafficPolicy: this cluster prefers no pods of the receiving node, and answers no health checks",
    ),
    field(
        "",
        "services",
        &["spec", "loadBalancerSourceRanges"],
        "spec.loadBalancerSourceRanges: this cluster refuses no client",
    ),
    field(
        "",
        "persistentvolumeclaims",
        &["spec", "dataSource|dataSourceRef"],
        "spec.dataSource: the provisioner of this cluster makes empty volumes; only a driver of your own reads it",
    ),
    field(
        "",
        "pods",
        &["spec", "volumes", "*", DRIVERS],
        "spec.volumes: this cluster mounts no volumes of remote disks and of drivers: a simulated pod starts without them, and a process does not start",
    ),
    field(
        "",
        "pods",
        &[
            "spec",
            "volumes",
            "*",
            "projected",
            "sources",
            "*",
            "clusterTrustBundle|podCertificate",
        ],
        "spec.volumes: this cluster projects no certificates: a simulated pod starts without them, and a process does not start",
    ),
    field(
        "",
        "pods",
        &["spec", CONTAINERS, "*", "env", "*", "valueFrom", "fileKeyRef"],
        "spec.containers: this cluster reads no variables from files: a simulated pod starts without them, and a process does not start",
    ),
];

/// Sources of volumes that need more than a node: servers, drivers, registries.
const DRIVERS: &str = "awsElasticBlockStore|azureDisk|azureFile|cephfs|cinder|csi|fc|flexVolume|flocker|gcePersistentDisk|gitRepo|glusterfs|image|iscsi|nfs|photonPersistentDisk|portworxVolume|quobyte|rbd|scaleIO|storageos|vsphereVolume";
