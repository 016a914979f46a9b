//! The field managers of a Scale's fields: the entries of the scaled object, as a Scale has them and back
//! (`ScaleHandler` of apimachinery).

use kubewright_schema::apply::{self, FieldSet, ManagedFields, Manager, ObjectType, Operation};
use kubewright_schema::catalog;
use serde_json::Value;

use super::VERSION;
use crate::model::ScalePaths;
use crate::server::managed::{decode, set};

/// The owners of the replicas of an object, as its Scale shows them.
pub(crate) fn of_replicas(object: &Value, paths: &ScalePaths) -> ManagedFields {
    apply::scale_managers(&decode(object), &replicas(paths))
}

fn replicas(paths: &ScalePaths) -> FieldSet {
    FieldSet::of_path(super::steps(&paths.spec_replicas))
}

/// The field managers of a Scale's fields, while it is written.
pub(crate) struct Owners {
    kind: ObjectType,
    parent: ManagedFields,
    scale: ManagedFields,
    path: FieldSet,
    manager: String,
    now: String,
}

impl Owners {
    pub(crate) fn new(old: &Value, paths: &ScalePaths, manager: &str, now: &str) -> Owners {
        let parent = decode(old);
        let path = replicas(paths);
        let schema = catalog::for_kind("autoscaling", "v1", "Scale").expect("the catalog has the kind Scale");
        Owners {
            kind: ObjectType::built_in(schema),
            scale: apply::scale_managers(&parent, &path),
            parent,
            path,
            manager: manager.to_owned(),
            now: now.to_owned(),
        }
    }

    /// Whether all that it shows is unowned.
    pub(crate) fn is_empty(&self) -> bool {
        self.scale.entries.is_empty()
    }

    /// Enters a PUT or a patch.
    pub(crate) fn update(&mut self, live: &Value, new: &Value) {
        let manager = Manager::new(&self.manager, Operation::Update, VERSION, "scale");
        apply::update(&self.kind, live, new, &mut self.scale, &manager, VERSION, &self.now);
    }

    /// Applies a configuration; none when it changes no value.
    pub(crate) fn apply(
        &mut self,
        live: &Value,
        config: &Value,
        force: bool,
    ) -> Result<Option<Value>, apply::ApplyError> {
        let manager = Manager::new(&self.manager, Operation::Apply, VERSION, "scale");
        // A zero is not written in a Scale, so no field manager owned it before.
        let mut live = live.clone();
        if let Some(spec) = live.get_mut("spec").and_then(Value::as_object_mut) {
            spec.retain(|_, value| value != 0);
        }
        apply::apply(
            &self.kind,
            &live,
            config,
            &mut self.scale,
            &manager,
            VERSION,
            force,
            &self.now,
        )
    }

    /// Writes the entries of the scaled object.
    pub(crate) fn write_to(self, object: &mut Value, version: &str) {
        set(
            object,
            apply::scale_to_parent(&self.parent, self.scale, &self.path, version),
        );
    }
}
