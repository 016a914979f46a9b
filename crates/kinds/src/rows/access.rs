//! Users and rights: `authentication.k8s.io`, `authorization.k8s.io`, `rbac.authorization.k8s.io`,
//! `certificates.k8s.io`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubewright_schema::budget;

use super::{CLUSTER, KIND, Kind, row};
use crate::cells;
use crate::strategies::{certificates, rbac, trust};
use kubewright_model::{Minor, PerMinor, Resource, Subresource, Verbs};

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

pub(super) const REVIEWS_OF_USERS: &[Kind] = &[
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
];

pub(super) const REVIEWS_OF_ACCESS: &[Kind] = &[
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
];

const CERTIFICATE: Kind = Kind {
    group: "certificates.k8s.io",
    fields: &[("spec.signerName", &["/spec/signerName"])],
    ..CLUSTER
};

pub(super) const CERTIFICATES: &[Kind] = &[
    Kind {
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        short_names: &["csr"],
        subresources: &[Subresource::Part(&certificates::APPROVAL), Subresource::Status],
        cells: cells::SIGNING_REQUEST,
        strategy: certificates::SIGNING_REQUEST,
        ..CERTIFICATE
    },
    Kind {
        since: Minor::V37,
        kind: "ClusterTrustBundle",
        plural: "clustertrustbundles",
        cells: cells::TRUST_BUNDLE,
        strategy: trust::BUNDLE,
        ..CERTIFICATE
    },
    Kind {
        since: Minor::V37,
        kind: "PodCertificateRequest",
        plural: "podcertificaterequests",
        namespaced: true,
        fields: &[
            ("spec.signerName", &["/spec/signerName"]),
            ("spec.podName", &["/spec/podName"]),
            ("spec.nodeName", &["/spec/nodeName"]),
        ],
        subresources: &[Subresource::Status],
        cells: cells::POD_CERTIFICATE,
        strategy: trust::POD_REQUEST,
        ..CERTIFICATE
    },
];

pub(super) const RBAC_KINDS: &[Kind] = &[
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
];

/// The kind that `/token` of a ServiceAccount takes and answers. No path leads to it as a kind of its own.
pub(crate) fn token_request(minor: Minor) -> Arc<Resource> {
    static ROW: PerMinor<Arc<Resource>> = PerMinor::new();
    let make = || {
        budget::unlimited(|| {
            let kind = Kind {
                kind: "TokenRequest",
                plural: "tokenrequests",
                namespaced: true,
                ..AUTHENTICATION
            };
            Arc::new(row(&kind, minor, &mut BTreeMap::new()))
        })
    };
    ROW.get_or_init(minor, make).clone()
}
