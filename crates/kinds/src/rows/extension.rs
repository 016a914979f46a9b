//! How the API itself is extended and guarded: `apiregistration.k8s.io`, `admissionregistration.k8s.io`,
//! `apiextensions.k8s.io`, `flowcontrol.apiserver.k8s.io`.

use super::{CLUSTER, KIND, Kind};
use crate::cells;
use crate::strategies::{admission_policies, definitions, flow, migrations, since_37, system, webhooks};
use kubewright_model::facts::definitions as endings;
use kubewright_model::{Minor, Strategy, Subresource};

const ADMISSION: Kind = Kind {
    group: "admissionregistration.k8s.io",
    categories: &["api-extensions"],
    ..CLUSTER
};

const FLOW: Kind = Kind {
    group: "flowcontrol.apiserver.k8s.io",
    subresources: &[Subresource::Status],
    ..CLUSTER
};

pub(super) const API_SERVICES: &[Kind] = &[Kind {
    group: "apiregistration.k8s.io",
    kind: "APIService",
    plural: "apiservices",
    categories: &["api-extensions"],
    subresources: &[Subresource::Status],
    cells: cells::API_SERVICE,
    strategy: system::API_SERVICE,
    ..CLUSTER
}];

pub(super) const ADMISSION_KINDS: &[Kind] = &[
    Kind {
        kind: "MutatingAdmissionPolicy",
        plural: "mutatingadmissionpolicies",
        cells: cells::MUTATING_POLICY,
        strategy: admission_policies::MUTATING_POLICY,
        changed: &[(Minor::V37, since_37::MUTATING_POLICY)],
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
        changed: &[(Minor::V37, since_37::MUTATING_WEBHOOKS)],
        ..ADMISSION
    },
    Kind {
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        subresources: &[Subresource::Status],
        cells: cells::VALIDATING_POLICY,
        strategy: admission_policies::VALIDATING_POLICY,
        changed: &[(Minor::V37, since_37::VALIDATING_POLICY)],
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
        changed: &[(Minor::V37, since_37::VALIDATING_WEBHOOKS)],
        ..ADMISSION
    },
];

const DEFINITION: Kind = Kind {
    group: "apiextensions.k8s.io",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    namespaced: false,
    subresources: &[Subresource::Status],
    cells: cells::PLAIN,
    strategy: Strategy {
        ending: Some(&endings::ENDING),
        ..definitions::DEFINITION
    },
    ..KIND
};

pub(super) const DEFINITIONS: &[Kind] = &[
    Kind {
        until: Minor::V36,
        ..DEFINITION
    },
    Kind {
        since: Minor::V37,
        cells: cells::DEFINITION,
        strategy: Strategy {
            ending: Some(&endings::ENDING),
            ..definitions::DEFINITION_SINCE_37
        },
        ..DEFINITION
    },
];

pub(super) const MIGRATIONS: &[Kind] = &[Kind {
    since: Minor::V37,
    group: "storagemigration.k8s.io",
    kind: "StorageVersionMigration",
    plural: "storageversionmigrations",
    subresources: &[Subresource::Status],
    cells: cells::MIGRATION,
    strategy: migrations::MIGRATION,
    ..CLUSTER
}];

pub(super) const FLOW_CONTROL: &[Kind] = &[
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
