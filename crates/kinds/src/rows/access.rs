//! Users and rights: `authentication.k8s.io`, `authorization.k8s.io`, `rbac.authorization.k8s.io`,
//! `certificates.k8s.io`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use kubewright_schema::budget;

use super::{CLUSTER, KIND, Kind, row};
use crate::cells;
use crate::strategies::{certificates, rbac};
use kubewright_model::{Resource, Subresource, Verbs};

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

pub(super) const CERTIFICATES: &[Kind] = &[Kind {
    group: "certificates.k8s.io",
    kind: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    short_names: &["csr"],
    fields: &[("spec.signerName", &["/spec/signerName"])],
    subresources: &[Subresource::Part(&certificates::APPROVAL), Subresource::Status],
    cells: cells::SIGNING_REQUEST,
    strategy: certificates::SIGNING_REQUEST,
    ..CLUSTER
}];

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
