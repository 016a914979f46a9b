//! The flags of kube-apiserver that are served, under its own headings, and the names of its admission plugins.

use super::flags::{Flag, Section};

const fn flag(name: &'static str, value: &'static str, usage: &'static str) -> Flag {
    Flag {
        name,
        value: Some(value),
        usage,
    }
}

const fn boolean(name: &'static str, usage: &'static str) -> Flag {
    Flag {
        name,
        value: None,
        usage,
    }
}

/// The flags of kube-apiserver.
pub(super) const APISERVER: &[Section] = &[
    (
        "Generic",
        &[
            flag(
                "advertise-address",
                "ip",
                "The IP address that the endpoints of the Service kubernetes say. (default --bind-address)",
            ),
            flag(
                "feature-gates",
                "mapStringBool",
                "Features are those of a default cluster: another value than the default is accepted with a warning.",
            ),
        ],
    ),
    (
        "Etcd",
        &[
            flag(
                "etcd-compaction-interval",
                "duration",
                "How long changes are kept for watches that start in the past; 0 keeps them as long as memory allows. (default 5m0s)",
            ),
            flag(
                "etcd-prefix",
                "string",
                "Keeps the objects apart from those of servers with another one. (default \"/registry\")",
            ),
            flag(
                "etcd-servers",
                "strings",
                "The address of the etcd of `kubewright assets` (http://host:port). Required.",
            ),
            flag(
                "event-ttl",
                "duration",
                "Amount of time to retain events. (default 1h0m0s)",
            ),
        ],
    ),
    (
        "Secure serving",
        &[
            flag(
                "bind-address",
                "ip",
                "The IP address on which to listen for the --secure-port port. (default 0.0.0.0)",
            ),
            flag(
                "cert-dir",
                "string",
                "The folder of apiserver.crt and apiserver.key, which are made when both are missing.",
            ),
            flag("secure-port", "int", "The port on which to serve HTTPS. (default 6443)"),
            flag(
                "tls-cert-file",
                "string",
                "The certificate for HTTPS, with intermediate certificates after it.",
            ),
            flag(
                "tls-private-key-file",
                "string",
                "The private key that matches --tls-cert-file.",
            ),
        ],
    ),
    (
        "Authentication",
        &[
            boolean(
                "anonymous-auth",
                "Answers requests without credentials as those of system:anonymous. (default true)",
            ),
            flag(
                "api-audiences",
                "strings",
                "The audiences of the server. (default --service-account-issuer)",
            ),
            flag(
                "client-ca-file",
                "string",
                "The authorities of client certificates: CommonName is the user, Organization the groups.",
            ),
            flag(
                "service-account-issuer",
                "stringArray",
                "The issuer of service account tokens; tokens of further ones are believed. Required.",
            ),
            flag(
                "service-account-key-file",
                "stringArray",
                "Keys or certificates that verify service account tokens; may be given several times.",
            ),
            flag(
                "service-account-signing-key-file",
                "string",
                "The private key that signs service account tokens. Required.",
            ),
            flag(
                "token-auth-file",
                "string",
                "Users who authenticate with a token: lines of token,user,uid,\"group1,group2\".",
            ),
        ],
    ),
    (
        "Authorization",
        &[
            flag(
                "authorization-config",
                "string",
                "File with an AuthorizationConfiguration, instead of the other flags; read once, at the start.",
            ),
            flag(
                "authorization-mode",
                "strings",
                "AlwaysAllow, AlwaysDeny, RBAC, Node, Webhook, in this order. (default AlwaysAllow)",
            ),
            flag(
                "authorization-webhook-cache-authorized-ttl",
                "duration",
                "How long a yes of the webhook is remembered. (default 5m0s)",
            ),
            flag(
                "authorization-webhook-cache-unauthorized-ttl",
                "duration",
                "How long a no of the webhook is remembered. (default 30s)",
            ),
            flag(
                "authorization-webhook-config-file",
                "string",
                "Kubeconfig that names the webhook of the mode Webhook.",
            ),
            flag(
                "authorization-webhook-version",
                "string",
                "Version of SubjectAccessReview that the webhook is sent: v1 or v1beta1. (default v1beta1)",
            ),
        ],
    ),
    (
        "Auditing",
        &[
            boolean("audit-log-compress", "Rotated log files are compressed with gzip."),
            flag(
                "audit-log-format",
                "string",
                "Form of the events: json, or legacy, a line of text with a part of each. (default json)",
            ),
            flag(
                "audit-log-maxage",
                "int",
                "Days that old log files are kept; 0: for ever. (default 366)",
            ),
            flag(
                "audit-log-maxbackup",
                "int",
                "How many old log files are kept; 0: all. (default 100)",
            ),
            flag(
                "audit-log-maxsize",
                "int",
                "Megabytes after which a log file is rotated; 0: never. (default 100)",
            ),
            flag(
                "audit-log-mode",
                "string",
                "blocking, blocking-strict (a request that cannot be entered is refused), or batch. (default blocking)",
            ),
            flag(
                "audit-log-path",
                "string",
                "The file to which the audit log is written; - is standard output.",
            ),
            boolean(
                "audit-log-truncate-enabled",
                "Events that are too large are written without the objects of the request and the answer.",
            ),
            flag(
                "audit-log-truncate-max-batch-size",
                "int",
                "Bytes of a batch; each event is a batch here. (default 10485760)",
            ),
            flag(
                "audit-log-truncate-max-event-size",
                "int",
                "Bytes of an event; what is larger without its objects is left out. (default 102400)",
            ),
            flag(
                "audit-policy-file",
                "string",
                "The audit policy (audit.k8s.io/v1): which requests are entered, and how much of them.",
            ),
        ],
    ),
    (
        "API enablement",
        &[flag(
            "runtime-config",
            "mapStringString",
            "Versions are those of a default cluster: what asks for others is accepted with a warning.",
        )],
    ),
    (
        "Admission",
        &[
            flag(
                "disable-admission-plugins",
                "strings",
                "Admission plugins that do not run.",
            ),
            flag(
                "enable-admission-plugins",
                "strings",
                "Admission plugins that run besides the default ones; those that are not served are refused.",
            ),
        ],
    ),
    (
        "Misc",
        &[
            boolean(
                "allow-privileged",
                "Accepted for compatibility: privileged containers are a matter of Pod Security.",
            ),
            flag(
                "endpoint-reconciler-type",
                "string",
                "Who writes the endpoints of the Service kubernetes: this server (lease, master-count) or nobody (none). \
                 (default lease)",
            ),
            flag(
                "service-cluster-ip-range",
                "string",
                "The addresses that Services get. (default 10.0.0.0/24)",
            ),
        ],
    ),
    (
        "Logs",
        &[flag(
            "v",
            "Level",
            "Accepted for compatibility; KUBEWRIGHT_LOG says what is logged.",
        )],
    ),
    (
        "Global",
        &[flag(
            "version",
            "version[=true]",
            "Prints the version of Kubernetes that is served, and quits.",
        )],
    ),
    (
        "Kubewright",
        &[flag(
            "controllers",
            "string",
            "Built-in controllers to run, as in `kubewright cluster`: all, none, or names. (default none)",
        )],
    ),
];

/// The flags of etcd.
pub(super) const ETCD: &[Section] = &[(
    "Member",
    &[
        flag(
            "advertise-client-urls",
            "string",
            "Accepted for compatibility: nobody is told.",
        ),
        flag(
            "data-dir",
            "string",
            "The folder in which the kube-apiserver beside it keeps its objects. (default default.etcd)",
        ),
        flag(
            "initial-advertise-peer-urls",
            "string",
            "Accepted for compatibility: there are no peers.",
        ),
        flag(
            "initial-cluster",
            "string",
            "Accepted for compatibility: there are no peers.",
        ),
        flag(
            "listen-client-urls",
            "string",
            "The address for kube-apiserver and /health. (default http://localhost:2379)",
        ),
        flag(
            "listen-peer-urls",
            "string",
            "Accepted for compatibility: there are no peers.",
        ),
        flag("log-level", "string", "Accepted for compatibility."),
        flag("name", "string", "Accepted for compatibility: there are no peers."),
        boolean(
            "unsafe-no-fsync",
            "Does not wait for the disk: what was acknowledged survives the process, not the machine.",
        ),
    ],
)];

/// The admission plugins of kube-apiserver that are always part of this server.
pub(super) const BUILT_IN_PLUGINS: [&str; 8] = [
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "Priority",
    "RuntimeClass",
];

/// The plugins that this server does not have. None of them is on by default but the last.
pub(super) const MISSING_PLUGINS: [&str; 14] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "OwnerReferencesPermissionEnforcement",
    "PodNodeSelector",
    "PodTolerationRestriction",
    "NodeDeclaredFeatureValidator",
];
