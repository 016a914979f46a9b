//! Volumes and their provisioners: `storage.k8s.io`.

use super::{CLUSTER, Kind};
use crate::cells;
use crate::strategies::storage;
use kubewright_model::Subresource;

const STORAGE: Kind = Kind {
    group: "storage.k8s.io",
    ..CLUSTER
};

pub(super) const STORAGE_KINDS: &[Kind] = &[
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
];
