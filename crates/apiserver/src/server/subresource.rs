//! Subresources: status, scale, finalize, binding, eviction, and those that are refused in words.

use kubewright_schema::error::{FieldError, aggregate};
use kubewright_schema::labels::Selector;
use kubewright_schema::path::FieldPath;
use serde_json::{Map, Value, json};

use super::managed::{ScaleOwners, Tracking};
use super::options::WriteOptions;
use super::respond::{Content, Reply};
use super::route::Verb;
use super::update::{check_uid, check_version};
use super::write::{Part, Written};
use super::{Call, admit, decode, negotiate};
use super::special::scales;
use crate::kinds::pods;
use crate::model::form::full;
use crate::model::object;
use crate::model::status::{Details, Status};
use crate::model::{Resource, ScalePaths, Subresource};

impl Call<'_> {
    pub(crate) async fn run_subresource(&mut self, verb: Verb) -> Result<Reply, Status> {
        let wanted = self.path.subresource.clone().unwrap_or_default();
        let found = self
            .resource
            .subresources
            .iter()
            .find(|subresource| crate::model::form::subresource_name(subresource) == wanted)
            .cloned();
        match (found, verb) {
            (None, _) if self.resource.custom.is_some() => Err(Status::not_found(&self.resource, self.name())),
            (None, _) => Err(Status::no_such_path()),
            (Some(Subresource::Status), Verb::Get) => self.get().await,
            (Some(Subresource::Status), Verb::Update) => self.update_part(Part::Status).await,
            (Some(Subresource::Status), Verb::Patch) => self.patch_part(Part::Status).await,
            (Some(Subresource::EphemeralContainers | Subresource::Resize | Subresource::Approval), Verb::Get) => {
                self.get().await
            }
            (
                Some(found @ (Subresource::EphemeralContainers | Subresource::Resize | Subresource::Approval)),
                Verb::Update | Verb::Patch,
            ) => {
                let part = match found {
                    Subresource::EphemeralContainers => Part::EphemeralContainers,
                    Subresource::Resize => Part::Resize,
                    _ => Part::Approval,
                };
                if verb == Verb::Update {
                    self.update_part(part).await
                } else {
                    self.patch_part(part).await
                }
            }
            (Some(Subresource::Scale(paths)), Verb::Get) => {
                let stored = self.get_stored().await?;
                Ok(Reply::new(
                    200,
                    Content::Object(
                        scales::row_of(&self.resource),
                        scale_of(&full(&self.resource, stored.value()), &paths)?,
                    ),
                ))
            }
            (Some(Subresource::Scale(paths)), Verb::Update) => self.update_scale(&paths).await,
            (Some(Subresource::Scale(paths)), Verb::Patch) => self.patch_scale(&paths).await,
            (Some(Subresource::Finalize), Verb::Update) => self.update_part(Part::Finalize).await,
            (Some(Subresource::Binding), Verb::Create) => self.bind().await,
            (Some(Subresource::Eviction), Verb::Create) => self.evict().await,
            (Some(Subresource::Token), Verb::Create) => self.request_token().await,
            (Some(Subresource::Refused { verbs, .. }), _) if !verbs.contains(&verb.as_str()) => {
                Err(Status::method_not_allowed())
            }
            (
                Some(Subresource::Refused {
                    name, kind, instead, ..
                }),
                _,
            ) => self.connect(name, kind, instead).await,
            (_, verb) if self.resource.custom.is_some() => Err(Status::not_supported(&self.resource, verb.as_str())),
            _ => Err(Status::method_not_allowed()),
        }
    }

    async fn update_scale(&mut self, paths: &ScalePaths) -> Result<Reply, Status> {
        let options = WriteOptions::parse(self.query, "UpdateOptions")?;
        let format = negotiate::input(self.headers)?;
        let decoded = decode::parse(self.body, format, "Scale")?;
        let mut scale = decoded.value;
        decode::check_taken_kind(&scale, ("autoscaling", "Scale"), &["autoscaling/v1"], &self.kinds)
            .map_err(|other| other.refusal)?;
        let mut warnings = Vec::new();
        decode::fit(&mut scale, &scales::row(), decoded.duplicates, None)
            .and_then(|findings| findings.apply(options.field_validation, &mut warnings))
            .map_err(|why| decode::cannot_be_handled("Scale", "v1", "Scale", &why))?;
        self.warnings.append(&mut warnings);
        self.enter_sent(&scales::row(), &scale);
        self.fit_name(&scale)?;
        self.fit_namespace(&mut scale)?;
        self.warnings.extend(object::dedup_owners(&mut scale, false));
        self.write_scale(paths, &options, true, |live, owners, _| {
            owners.update(live, &scale);
            Ok(scale.clone())
        })
        .await
    }

    async fn patch_scale(&mut self, paths: &ScalePaths) -> Result<Reply, Status> {
        if super::apply::is_apply(self.headers) {
            return self.apply_scale(paths).await;
        }
        let options = WriteOptions::parse(self.query, "PatchOptions")?;
        let patch = self.read_patch(options.field_validation)?;
        let name = self.name().to_owned();
        self.write_scale(paths, &options, false, |live, owners, warnings| {
            let mut scale = patch.apply_plain(live)?;
            patch.fit(&mut scale, &scales::row(), options.field_validation, warnings)?;
            super::update::check_name(&scale, &name)?;
            owners.update(live, &scale);
            Ok(scale)
        })
        .await
    }

    /// Writes `spec.replicas` of a Scale into the object (`whole`: the client sent all of the Scale); `wanted` makes the new Scale of the present one, says who owns it, and what the
    /// client is to be warned of.
    pub(crate) async fn write_scale(
        &mut self,
        paths: &ScalePaths,
        options: &WriteOptions,
        whole: bool,
        wanted: impl Fn(&Value, &mut ScaleOwners, &mut Vec<String>) -> Result<Value, Status>,
    ) -> Result<Reply, Status> {
        let resource = self.resource.clone();
        let (namespace, name) = (self.namespace().to_owned(), self.name().to_owned());
        let mut writer = self.tracked_writer(options);
        let manager = writer.tracking.manager().to_owned();
        writer.tracking = Tracking::Given;
        let now = crate::env::rfc3339(self.server.env.now());
        let key = self.key();
        let written = writer
            .update(&namespace, &name, Part::Whole, |old, warnings| {
                let mut owners = ScaleOwners::new(old, paths, &manager, &now);
                let scale = wanted(&scale_or_none(old, paths)?, &mut owners, warnings)?;
                if !whole {
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
                    let mut errors = object::validate(&scale, &scales::row());
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
            Content::Object(scales::row_of(&resource), scale_of(&object, paths)?),
        ))
    }

    /// POST of a Binding to `/binding` of a pod: says on which node it runs.
    async fn bind(&mut self) -> Result<Reply, Status> {
        let options = WriteOptions::parse(self.query, "CreateOptions")?;
        let format = negotiate::input(self.headers)?;
        let row = self
            .kinds
            .lookup("", "v1", "bindings")
            .ok_or_else(Status::no_such_path)?;
        let (validation, warnings) = (options.field_validation, &mut self.warnings);
        let mut binding = decode::object(self.body, format, &row, &self.kinds, validation, warnings)?;
        self.enter_sent(&row, &binding);
        self.fit_namespace(&mut binding)?;
        let name = self.name().to_owned();
        let binding = self
            .admit_posted(admit::kind("", "v1", "Binding"), &options, binding)
            .await?;
        self.bind_pod(&binding, &name, &options).await
    }

    /// POST of a Binding to the collection of bindings: it names the pod itself.
    pub(crate) async fn bind_what_it_names(&mut self) -> Result<Reply, Status> {
        let options = WriteOptions::parse(self.query, "CreateOptions")?;
        let mut binding = self.object_in_body(&options)?;
        self.fit_namespace(&mut binding)?;
        object::wipe_system_fields(&mut binding);
        let binding = self
            .admit_posted(admit::kind("", "v1", "Binding"), &options, binding)
            .await?;
        let pods = self.kinds.lookup("", "v1", "pods").ok_or_else(Status::no_such_path)?;
        self.resource = pods;
        let name = object::name(&binding).to_owned();
        self.bind_pod(&binding, &name, &options).await
    }

    async fn bind_pod(&mut self, binding: &Value, name: &str, options: &WriteOptions) -> Result<Reply, Status> {
        let resource = self.resource.clone();
        let namespace = self.namespace().to_owned();
        let node = bound_node(binding).map_err(Status::untyped)?;
        let wanted = ["uid", "resourceVersion"].map(|field| object::text(binding, field).to_owned());
        let now = self.server.env.now();
        let mut writer = self.writer(options.dry_run);
        let conflict = |why: String| {
            let message = format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}");
            let details = Details {
                name: name.to_owned(),
                kind: "pods/binding".to_owned(),
                ..Details::default()
            };
            Status::failure(409, "Conflict", message).with_details(details)
        };
        writer
            .update(&namespace, name, Part::Raw, |old, _| {
                let present = old.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
                for (what, (field, wanted)) in ["UID", "ResourceVersion"]
                    .into_iter()
                    .zip(["uid", "resourceVersion"].into_iter().zip(&wanted))
                {
                    let present = object::text(old, field);
                    if !wanted.is_empty() && wanted != present {
                        let why = format!(
                            "StorageError: invalid object, Code: 4, Key: /registry/pods/{namespace}/{name}, ResourceVersion: 0, \
                             AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {present}"
                        );
                        return Err(Status::conflict(&resource, name, &why));
                    }
                }
                if object::is_terminating(old) {
                    return Err(conflict(format!(
                        "pod {name} is being deleted, cannot be assigned to a host"
                    )));
                }
                if !present.is_empty() {
                    return Err(conflict(format!("pod {name} is already assigned to node {present:?}")));
                }
                let gates = old.pointer("/spec/schedulingGates").and_then(Value::as_array);
                if gates.is_some_and(|gates| !gates.is_empty()) {
                    return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
                }
                let mut new = old.clone();
                copy_metadata(binding, &mut new);
                pods::bind(&mut new, &node, now);
                Ok(new)
            })
            .await?;
        Ok(Reply::status(&Status::created()))
    }
}

/// A dotted path with a leading dot, as a JSON pointer.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

pub(crate) fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for key in path.split('.').filter(|key| !key.is_empty()) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key];
    }
    *at = value;
}

/// The `autoscaling/v1` Scale of an object.
pub(crate) fn scale_of(object: &Value, paths: &ScalePaths) -> Result<Value, Status> {
    if replicas_at(object, &paths.spec_replicas).is_none() {
        let why = format!("the spec replicas field {:?} does not exist", paths.spec_replicas);
        return Err(Status::internal(&why));
    }
    scale_or_none(object, paths)
}

fn replicas_at(object: &Value, path: &str) -> Option<i64> {
    object.pointer(&pointer(path)).and_then(Value::as_i64)
}

/// Stands for the number of an object that has none, as upstream: whoever leaves it in place has not scaled.
const NO_REPLICAS: i64 = i32::MIN as i64;

/// The Scale of an object that is about to be scaled; it may have no number yet.
pub(crate) fn scale_or_none(object: &Value, paths: &ScalePaths) -> Result<Value, Status> {
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

/// The node of a Binding; the error is upstream's text for what is wrong with it.
fn bound_node(binding: &Value) -> Result<String, String> {
    let text = |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    let mut errors = Vec::new();
    let kind = text("/target/kind");
    if !kind.is_empty() && kind != "Node" {
        errors.push(FieldError::not_supported(
            "target.kind",
            json!(kind),
            &["Node", "<empty>"],
        ));
    }
    if text("/target/name").is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if errors.is_empty() {
        Ok(text("/target/name").to_owned())
    } else {
        Err(aggregate(&errors))
    }
}

fn copy_metadata(binding: &Value, pod: &mut Value) {
    for field in ["annotations", "labels"] {
        let Some(given) = binding
            .pointer(&format!("/metadata/{field}"))
            .and_then(Value::as_object)
        else {
            continue;
        };
        let target = object::metadata_mut(pod).entry(field).or_insert_with(|| json!({}));
        if let Some(target) = target.as_object_mut() {
            target.extend(given.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
}
