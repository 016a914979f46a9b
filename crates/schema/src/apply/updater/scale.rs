//! Managers of `/scale`: their fields as those of the object, and back.

use std::collections::BTreeMap;

use crate::apply::FieldSet;
use crate::apply::managers::{ManagedFields, Manager, Operation, Owned};

/// The owners of the replicas as a Scale shows them (`ScaleHandler.ToSubresource` upstream).
pub fn scale_managers(parent: &ManagedFields, path: &FieldSet) -> ManagedFields {
    let replicas = FieldSet::of_path(["spec", "replicas"].into_iter());
    let owners = parent
        .entries
        .iter()
        .filter(|(_, owned)| owned.fields.contains_all(path));
    let entries = owners.map(|(manager, owned)| {
        let owned = Owned {
            fields: replicas.clone(),
            api_version: "autoscaling/v1".to_owned(),
            time: owned.time.clone(),
        };
        (in_scale(manager), owned)
    });
    ManagedFields {
        entries: entries.collect(),
    }
}

/// A manager as a Scale names it: an update of the object counts as one in the version of the Scale.
fn in_scale(manager: &Manager) -> Manager {
    let mut manager = manager.clone();
    if manager.operation == Operation::Update {
        "autoscaling/v1".clone_into(&mut manager.api_version);
    }
    manager
}

/// The owners of an object after its Scale was written (`ScaleHandler.ToParent` upstream): `version` is that of the
/// object.
///
/// Who updated the object is another manager in the Scale, since it has another version, and loses the path to himself:
/// in an entry of its own, which looks like his other one and is lost when the entries are read the next time. It is
/// upstream's defect.
pub fn scale_to_parent(parent: &ManagedFields, scale: ManagedFields, path: &FieldSet, version: &str) -> ManagedFields {
    let mut scale = scale.entries;
    let mut entries = BTreeMap::new();
    for (manager, owned) in &parent.entries {
        let mut owned = owned.clone();
        if owned.fields.contains_all(path) && scale.remove(manager).is_none() {
            owned.fields.subtract(path);
        }
        if !owned.fields.is_empty() {
            entries.insert(manager.clone(), owned);
        }
    }
    let replicas = FieldSet::of_path(["spec", "replicas"].into_iter());
    for (manager, owned) in scale {
        if !owned.fields.contains_all(&replicas) {
            continue;
        }
        let time = parent.entries.get(&manager).and_then(|owned| owned.time.clone());
        let owned = Owned {
            fields: path.clone(),
            api_version: version.to_owned(),
            time,
        };
        entries.insert(manager, owned);
    }
    ManagedFields { entries }
}
