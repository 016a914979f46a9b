//! Volumes and their provisioners: `storage.k8s.io`.

use super::{CLUSTER, Kind};
use crate::cells;
use crate::strategies::{since_37, storage};
use kubewright_model::{Minor, Subresource};

const STORAGE: Kind = Kind {
    group: "storage.k8s.io",
    ..CLUSTER
};

const CSI_NODE: Kind = Kind {
    kind: "CSINode",
    plural: "csinodes",
    cells: cells::CSI_NODE,
    strategy: storage::NODE,
    ..STORAGE
};

const STORAGE_CLASS: Kind = Kind {
    kind: "StorageClass",
    plural: "storageclasses",
    short_names: &["sc"],
    cells: cells::STORAGE_CLASS,
    strategy: storage::CLASS,
    ..STORAGE
};

pub(super) const STORAGE_KINDS: &[Kind] = &[
    Kind {
        kind: "CSIDriver",
        plural: "csidrivers",
        cells: cells::DRIVER,
        strategy: storage::DRIVER,
        changed: &[(Minor::V37, since_37::CSI_DRIVER)],
        ..STORAGE
    },
    Kind {
        until: Minor::V36,
        ..CSI_NODE
    },
    Kind {
        since: Minor::V37,
        subresources: &[Subresource::Status],
        strategy: since_37::CSI_NODE,
        ..CSI_NODE
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
        until: Minor::V36,
        ..STORAGE_CLASS
    },
    Kind {
        since: Minor::V37,
        cells: cells::STORAGE_CLASS_SINCE_37,
        strategy: since_37::STORAGE_CLASS,
        ..STORAGE_CLASS
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
];
