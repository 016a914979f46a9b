//! `/scale` of any kind that has paths for it: reading and writing an `autoscaling/v1` Scale.
//!
//! A Scale is never stored. Writing one sets a number in the scaled object; plugins see the Scale, as the client does.

mod owners;

use kubewright_schema::decode::MAX_DEPTH;
use kubewright_schema::error::{FieldError, aggregate};
use kubewright_schema::labels::Selector;
use kubewright_schema::path::FieldPath;
use kubewright_schema::schema::GroupVersionKind;
use serde_json::{Map, Value, json};

use self::owners::{Owners, of_replicas};
use crate::model::form::full;
use crate::model::object;
use crate::model::status::{Details, Status};
use crate::model::{Minor, Resource, ScalePaths, Subresource};
use crate::server::apply::{CANNOT_CONVERT, Configuration, is_apply};
use crate::server::managed::{self, Tracking};
use crate::server::options::WriteOptions;
use crate::server::respond::{Content, Reply};
use crate::server::update::{check_uid, check_version};
use crate::server::write::{Part, Written};
use crate::server::{Call, admit, decode, negotiate};
use crate::storage::StorageError;

/// The version of every Scale, whatever kind it scales.
pub(crate) const VERSION: &str = "autoscaling/v1";

/// The subresource.
pub(crate) const NAME: &str = "scale";

/// As admission sees it.
pub(crate) fn group_version_kind() -> GroupVersionKind {
    admit::kind("autoscaling", "v1", "Scale")
}

/// Where a kind that can be scaled has its numbers.
pub(crate) fn paths(resource: &Resource) -> Option<&ScalePaths> {
    resource.subresources.iter().find_map(|subresource| match subresource {
        Subresource::Scale(paths) => Some(paths),
        _ => None,
    })
}

/// The Scale of an object, with the field managers of its replicas: as the mutating plugins see it.
pub(crate) fn owned(object: &Value, paths: &ScalePaths) -> Result<Value, Status> {
    let mut scale = of_any(object, paths)?;
    managed::set(&mut scale, of_replicas(object, paths));
    Ok(scale)
}

/// Scales the object as this Scale says.
pub(crate) fn take_replicas(object: &mut Value, scale: &Value, paths: &ScalePaths) {
    let replicas = scale.pointer("/spec/replicas").cloned().unwrap_or_else(|| json!(0));
    set_path(object, &paths.spec_replicas, replicas);
}

impl Call<'_> {
    pub(crate) async fn get_scale(&mut self, paths: &ScalePaths) -> Result<Reply, Status> {
        let stored = self.get_stored().await?;
        let scale = scale_of(&full(&self.resource, stored.value()), paths)?;
        Ok(Reply::new(
            200,
            Content::Object(self.kinds.scale_of(&self.resource), scale),
        ))
    }

    pub(crate) async fn update_scale(&mut self, paths: &ScalePaths) -> Result<Reply, Status> {
        let options = WriteOptions::parse(self.query, "UpdateOptions")?;
        let format = negotiate::input(self.headers)?;
        let decoded = decode::parse(self.body, format, "Scale")?;
        let mut scale = decoded.value;
        decode::check_taken_kind(&scale, ("autoscaling", "Scale"), &["autoscaling/v1"], &self.kinds)
            .map_err(|other| other.refusal)?;
        let mut warnings = Vec::new();
        decode::fit(&mut scale, self.kinds.scale(), decoded.duplicates, None)
            .map_err(String::from)
            .and_then(|findings| findings.apply(options.field_validation, &mut warnings))
            .map_err(|why| decode::cannot_be_handled("Scale", "v1", "Scale", &why))?;
        self.warnings.append(&mut warnings);
        let row = self.kinds.scale().clone();
        self.enter_sent(&row, &scale);
        self.fit_namespace(&mut scale)?;
        self.fit_name(&scale)?;
        self.warnings.extend(object::dedup_owners(&mut scale, false));
        self.write_scale(paths, &options, true, |live, owners, _| {
            owners.update(live, &scale);
            Ok(scale.clone())
        })
        .await
    }

    pub(crate) async fn patch_scale(&mut self, paths: &ScalePaths) -> Result<Reply, Status> {
        if is_apply(self.headers) {
            return self.apply_scale(paths).await;
        }
        let kind = self.patch_type()?;
        let options = WriteOptions::parse(self.query, "PatchOptions")?;
        let patch = self.read_patch(kind, options.field_validation)?;
        let row = self.kinds.scale().clone();
        self.write_scale(paths, &options, false, |live, owners, warnings| {
            let mut scale = patch.apply_plain(live)?;
            patch.fit(&mut scale, &row, options.field_validation, warnings)?;
            owners.update(live, &scale);
            Ok(scale)
        })
        .await
    }

    /// Writes `spec.replicas` of a Scale into the object (`whole`: the client sent all of the Scale); `wanted` makes
    /// the new Scale of the present one, with its field managers and the warnings for the client.
    async fn write_scale(
        &mut self,
        paths: &ScalePaths,
        options: &WriteOptions,
        whole: bool,
        wanted: impl Fn(&Value, &mut Owners, &mut Vec<String>) -> Result<Value, Status> + Send + Sync,
    ) -> Result<Reply, Status> {
        check_depth(&paths.spec_replicas)?;
        let resource = self.resource.clone();
        let (namespace, name) = (self.namespace().to_owned(), self.name().to_owned());
        let mut writer = self.tracked_writer(options);
        let manager = writer.tracking.manager().to_owned();
        writer.tracking = Tracking::Given;
        let now = crate::env::rfc3339(self.server.env.now());
        let key = self.key();
        let written = writer
            .update(&namespace, &name, Part::Whole, |old, warnings| {
                let mut owners = Owners::new(old, paths, &manager, &now);
                let mut scale = wanted(&of_any(old, paths)?, &mut owners, warnings)?;
                if !whole {
                    self.fit_namespace(&mut scale)?;
                    self.fit_name(&scale)?;
                    check_patched_uid(&resource, &name, &scale, object::uid(old))?;
                }
                check_uid(&resource, &key, &name, &scale, object::uid(old), options.dry_run)?;
                check_version(&resource, &name, object::text(&scale, "resourceVersion"), old, true)?;
                let replicas = match scale.pointer("/spec/replicas") {
                    None | Some(Value::Null) => 0,
                    Some(value) => value.as_i64().ok_or_else(|| {
                        let why = format!("spec.replicas is not an integer: {value}");
                        decode::cannot_be_handled("Scale", "v1", "Scale", &why)
                    })?,
                };
                if replicas == NO_REPLICAS {
                    let message = format!("the spec replicas field {:?} cannot be empty", paths.spec_replicas);
                    return Err(Status::bad_request(message));
                }
                // The numbers of custom kinds are their definition's to judge.
                if resource.custom.is_none() {
                    let mut errors = match self.kinds.minor() {
                        minor if minor >= Minor::V37 => Vec::new(),
                        minor => object::validate(&scale, self.kinds.scale(), minor),
                    };
                    if replicas < 0 {
                        let why = "must be greater than or equal to 0";
                        errors.push(FieldError::invalid("spec.replicas", json!(replicas), why));
                    }
                    if !errors.is_empty() {
                        return Err(Status::invalid("autoscaling", "Scale", &name, &errors));
                    }
                }
                let mut new = old.clone();
                set_path(&mut new, &paths.spec_replicas, json!(replicas));
                owners.write_to(&mut new, &resource.api_version());
                Ok(new)
            })
            .await;
        self.warnings.append(&mut writer.warnings);
        let object = match written? {
            Written::Stored(stored) => full(&resource, stored.value()),
            Written::Shown(object) => object,
        };
        Ok(Reply::new(
            200,
            Content::Object(self.kinds.scale_of(&resource), scale_of(&object, paths)?),
        ))
    }

    /// Applies an `autoscaling/v1` Scale.
    async fn apply_scale(&mut self, paths: &ScalePaths) -> Result<Reply, Status> {
        let options = WriteOptions::parse_apply(self.query)?;
        let configuration = Configuration::read(self.body, self.server.config.minor)?;
        self.enter_patch(&configuration.value);
        let custom = self.resource.custom.is_some();
        let version = VERSION;
        self.write_scale(paths, &options, false, |live, owners, _| {
            configuration.check(VERSION, "Scale")?;
            if custom && owners.is_empty() {
                // Upstream asks the kind for the owner of the existing fields, and no custom kind is of Scale's group.
                return Err(Status::untyped(format!(
                    "failed to create manager for existing fields: failed to convert live object (/; {version}, Kind=Scale) to proper \
                     version: {CANNOT_CONVERT}{version}"
                )));
            }
            let applied = owners.apply(live, &configuration.value, options.force);
            match applied.map_err(|error| configuration.refused(error, live))? {
                // The result is a Scale, and the kind is asked to convert it to one of its own versions.
                Some(_) if custom => Err(Status::untyped(format!(
                    "failed to convert new object ({}/{}; {version}, Kind=Scale) to proper version: {CANNOT_CONVERT}{version}",
                    object::namespace(&configuration.value),
                    object::name(&configuration.value),
                ))),
                Some(scale) => Ok(scale),
                None => Ok(live.clone()),
            }
        })
        .await
    }
}

/// A dotted path with a leading dot, as a JSON pointer.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

fn steps(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('.').filter(|key| !key.is_empty())
}

/// A definition may name a path that is longer than objects are deep: a value below it could not be stored, and takes
/// room on the stack before any check.
fn check_depth(path: &str) -> Result<(), Status> {
    let depth = steps(path).count() + 1;
    if depth <= MAX_DEPTH {
        return Ok(());
    }
    Err(Status::bad_request(StorageError::TooDeep { depth }.to_string()))
}

fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for key in steps(path) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key];
    }
    *at = value;
}

/// The `autoscaling/v1` Scale of an object.
fn scale_of(object: &Value, paths: &ScalePaths) -> Result<Value, Status> {
    if replicas_at(object, &paths.spec_replicas).is_none() {
        let why = format!("the spec replicas field {:?} does not exist", paths.spec_replicas);
        return Err(Status::internal(&why));
    }
    of_any(object, paths)
}

fn replicas_at(object: &Value, path: &str) -> Option<i64> {
    object.pointer(&pointer(path)).and_then(Value::as_i64)
}

/// Stands for the number of an object that has none, as upstream: a client that leaves it in place has not scaled.
const NO_REPLICAS: i64 = i32::MIN as i64;

/// The Scale of an object that is about to be scaled; it may have no number yet.
pub(crate) fn of_any(object: &Value, paths: &ScalePaths) -> Result<Value, Status> {
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        let text = object::text(object, field);
        if !text.is_empty() {
            metadata.insert(field.to_owned(), json!(text));
        }
    }
    let replicas = replicas_at(object, &paths.spec_replicas).unwrap_or(NO_REPLICAS);
    let mut spec = Map::new();
    if replicas != 0 {
        spec.insert("replicas".to_owned(), json!(replicas));
    }
    let mut status = Map::new();
    status.insert(
        "replicas".to_owned(),
        json!(replicas_at(object, &paths.status_replicas).unwrap_or(0)),
    );
    let selector = match paths.selector.as_ref().and_then(|path| object.pointer(&pointer(path))) {
        Some(Value::String(text)) => text.clone(),
        Some(labels @ Value::Object(map)) if map.values().all(Value::is_string) => {
            // A ReplicationController selects by plain labels.
            let selector = json!({"matchLabels": labels});
            Selector::from_label_selector(&selector, &FieldPath::root())
                .map(|selector| selector.to_string())
                .unwrap_or_default()
        }
        Some(selector @ Value::Object(_)) => {
            Selector::from_label_selector(selector, &FieldPath::root().key("selector"))
                .map(|selector| selector.to_string())
                .map_err(|errors| {
                    Status::failure(
                        500,
                        "InternalError",
                        format!("Internal error occurred: {}", aggregate(&errors)),
                    )
                })?
        }
        _ => String::new(),
    };
    if !selector.is_empty() {
        status.insert("selector".to_owned(), json!(selector));
    }
    Ok(json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}))
}

/// The uid that a patch puts into a Scale: it is compared before the object is asked for it.
fn check_patched_uid(resource: &Resource, name: &str, scale: &Value, present: &str) -> Result<(), Status> {
    let wanted = object::uid(scale);
    if wanted.is_empty() || wanted == present {
        return Ok(());
    }
    let kind = format!("{}/scale", resource.plural);
    let qualified = if resource.group.is_empty() {
        kind.clone()
    } else {
        format!("{kind}.{}", resource.group)
    };
    let message = format!(
        "Operation cannot be fulfilled on {qualified} \"{name}\": Precondition failed: UID in precondition: {wanted}, UID in object meta: {present}"
    );
    let details = Details {
        name: name.to_owned(),
        group: resource.group.to_string(),
        kind,
        ..Details::default()
    };
    Err(Status::failure(409, "Conflict", message).with_details(details))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_lies_no_deeper_than_what_may_be_stored() {
        let check = |depth: usize, expected: bool| {
            let path = format!(".spec{}", ".a".repeat(depth));
            assert_eq!(check_depth(&path).is_ok(), expected, "{depth}");
        };
        check(1, true);
        check(MAX_DEPTH - 2, true);
        check(MAX_DEPTH - 1, false);
        check(200_000, false);
    }
}
