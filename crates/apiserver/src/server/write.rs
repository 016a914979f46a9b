//! What all writes share: preparing, defaulting and validating an object, admission, generation, compare-and-swap.
//!
//! A write is a function from the present object to the next one. It runs outside of any lock, and again when the compare-and-swap says
//! that somebody was faster: so the answer is always one that followed from what was really there (store-S3).

use std::sync::Arc;

use kubewright_schema::error::FieldError;
use kubewright_schema::path::FieldPath;
use kubewright_schema::structural;
use serde_json::Value;

use super::claims::Claim;
use super::managed::{self, Tracking};
use super::options::WriteOptions;
use super::respond::full;
use super::{Call, Inner, scales};
use crate::admission::{self, Operation};
use crate::kinds::pods;
use crate::object;
use crate::registry::{GenerationRule, Resource, StrategyContext};
use crate::status::Status;
use crate::storage::{StorageError, StoredObject, same_content};
use crate::user::UserInfo;

/// How often a write is tried again when somebody else was faster. Upstream never gives up; a bound keeps a defect from hanging.
const MAX_ATTEMPTS: usize = 1000;

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object but for its status.
    Main,
    /// `/status`.
    Status,
    /// `/finalize` of a namespace.
    Finalize,
    /// `/ephemeralcontainers` of a pod.
    EphemeralContainers,
    /// `/resize` of a pod.
    Resize,
    /// `/approval` of a certificate signing request.
    Approval,
    /// Everything, by the rules of the kind (scale).
    Whole,
    /// Everything, by no rules but those of the metadata: the server's own writes (binding, disruption budgets).
    Raw,
}

impl Part {
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Part::Main | Part::Whole | Part::Raw => "",
            Part::Status => "status",
            Part::Finalize => "finalize",
            Part::EphemeralContainers => "ephemeralcontainers",
            Part::Resize => "resize",
            Part::Approval => "approval",
        }
    }
}

/// The storage key: `namespace/name`, or `name`.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

/// What came of a write.
pub(crate) enum Written {
    /// The object as it is stored now.
    Stored(Arc<StoredObject>),
    /// The object as it would be (dry run), or as it was when the write removed it; with `apiVersion` and `kind`.
    Shown(Value),
}

/// What a write needs to know besides the object.
pub(crate) struct Writer<'a> {
    pub(crate) server: &'a Inner,
    pub(crate) resource: Arc<Resource>,
    pub(crate) user: &'a UserInfo,
    pub(crate) dry_run: bool,
    /// How the write is entered in `managedFields`.
    pub(crate) tracking: Tracking,
    pub(crate) warnings: Vec<String>,
}

impl<'a> Call<'a> {
    /// A writer whose writes belong to nobody (deletes, bindings).
    pub(crate) fn writer(&self, dry_run: bool) -> Writer<'a> {
        Writer {
            server: self.server,
            resource: self.resource.clone(),
            user: self.user,
            dry_run,
            tracking: Tracking::Untouched,
            warnings: Vec::new(),
        }
    }

    /// A writer whose writes belong to the client.
    pub(crate) fn tracked_writer(&self, options: &WriteOptions) -> Writer<'a> {
        Writer {
            tracking: Tracking::Update(managed::manager_name(&options.field_manager, self.headers)),
            ..self.writer(options.dry_run)
        }
    }
}

/// Empty lists belong to who wrote them, and are stored as null.
fn without_empty_lists(resource: &Resource, object: &mut Value) {
    fn any(value: &Value) -> bool {
        match value {
            Value::Array(list) => list.is_empty() || list.iter().any(any),
            Value::Object(map) => map.values().any(any),
            _ => false,
        }
    }
    if resource.custom.is_none() && any(object) {
        structural::go_normalize(object, &resource.schema);
    }
}

/// The stored form: converted, without `apiVersion` and `kind`.
pub(crate) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if let Some(conversion) = resource.conversion {
        object = (conversion.to_stored)(object);
    }
    if let Some(map) = object.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
    }
    object
}

impl Writer<'_> {
    fn context(&self) -> StrategyContext<'_> {
        StrategyContext {
            env: self.server.env.as_ref(),
            user: self.user,
            dry_run: self.dry_run,
            service_range: self.server.config.service_range,
        }
    }

    pub(crate) fn attributes(
        &self,
        operation: Operation,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> admission::Attributes {
        admission::Attributes {
            resource: self.resource.clone(),
            subresource: subresource.to_owned(),
            operation,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            user: self.user.clone(),
            dry_run: self.dry_run,
        }
    }

    pub(crate) async fn mutate(
        &self,
        attributes: &admission::Attributes,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        for plugin in &self.server.admission {
            plugin.mutate(attributes, object, old).await?;
        }
        Ok(())
    }

    pub(crate) async fn validate(
        &self,
        attributes: &admission::Attributes,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        for plugin in &self.server.admission {
            plugin.validate(attributes, object, old).await?;
        }
        Ok(())
    }

    /// Takes what changes away from those who wrote another version of the kind, in whose fields a change may be another one.
    fn track_other_versions(&self, new: &mut Value, old: &Value) {
        let resource = &self.resource;
        let managed = managed::decode(new);
        let versions: std::collections::BTreeSet<String> = managed
            .entries
            .values()
            .map(|owned| owned.api_version.clone())
            .filter(|version| *version != resource.api_version())
            .collect();
        let kinds = self.server.registry.snapshot();
        for version in versions {
            let (group, version) = version.split_once('/').unwrap_or(("", &version));
            let other = kinds.lookup(group, version, &resource.plural);
            let Some(other) = other.filter(|other| {
                group == resource.group && (other.conversion.is_some() || resource.conversion.is_some())
            }) else {
                continue;
            };
            let converted = |object: &Value| full(&other, &to_stored(resource, object.clone()));
            managed::forget_changed(&other, new, &converted(old), &converted(new));
        }
    }

    /// Fills in defaults: the kind's function, or the schema's words for custom kinds.
    fn default(&self, object: &mut Value) {
        if self.resource.custom.is_some() {
            structural::default(object, &self.resource.schema);
        } else {
            (self.resource.strategy.default)(object);
        }
    }

    fn schema_errors(&self, object: &Value) -> Vec<FieldError> {
        if self.resource.custom.is_none() {
            return Vec::new();
        }
        structural::validate(object, &self.resource.schema, &FieldPath::root())
    }

    /// The group of the kind in messages: that of the stored form, where one kind is served in two groups.
    fn kind_group(&self) -> &str {
        self.resource.stored_group()
    }

    fn refuse(&self, name: &str, errors: &[FieldError]) -> Result<(), Status> {
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Status::invalid(self.kind_group(), &self.resource.kind, name, errors))
        }
    }

    /// Creates an object that is decoded and fits its path.
    pub(crate) async fn create(&mut self, mut object: Value) -> Result<Written, Status> {
        let resource = self.resource.clone();
        let asked_version = object::text(&object, "resourceVersion").to_owned();
        self.warnings.extend(object::dedup_owners(&mut object));
        object::wipe_system_fields(&mut object);
        let namespace = object::namespace(&object).to_owned();
        self.default(&mut object);
        let now = crate::env::rfc3339(self.server.env.now());
        managed::track_create(&resource, &self.tracking, &mut object, &now);
        without_empty_lists(&resource, &mut object);
        let attributes = self.attributes(Operation::Create, "", &namespace, object::name(&object));
        self.mutate(&attributes, &mut object, None).await?;
        let template = object;
        for attempt in 0.. {
            let mut object = template.clone();
            object::fill_system_fields(&mut object, self.server.env.as_ref());
            let generated = object::name(&object) != object::name(&template);
            self.prepare_create(&mut object);
            let mut errors = object::validate(&object, &resource);
            let _claim = self
                .server
                .allocate(&resource, &mut object, None, &self.context(), &mut errors);
            errors.extend((resource.strategy.validate_create)(&object));
            errors.extend(self.schema_errors(&object));
            errors.extend(scales::path_errors(&resource, &object, false));
            self.refuse(object::name(&object), &errors)?;
            if attempt == 0 {
                self.warnings.extend(object::finalizer_warnings(&object, None));
                self.warnings.extend((resource.strategy.warnings)(&object, None));
            }
            self.validate(&attributes, &object, None).await?;
            if !self.dry_run && !asked_version.is_empty() && asked_version != "0" {
                return Err(Status::untyped(
                    "resourceVersion should not be set on objects to be created",
                ));
            }
            match self.insert(object) {
                // A generated name that is taken is no fault of the client.
                Err(status) if generated && status.code == 409 && attempt < 7 => {}
                result => return result,
            }
        }
        Err(Status::untyped("no name could be generated"))
    }

    fn prepare_create(&self, object: &mut Value) {
        let resource = &self.resource;
        let keeps_status = resource.group.is_empty() && resource.kind == "Node";
        if let (true, false, Some(map)) = (resource.has_status(), keeps_status, object.as_object_mut()) {
            map.remove("status");
        }
        let metadata = object::metadata_mut(object);
        metadata.remove("resourceVersion");
        if resource.strategy.generation != GenerationRule::Never {
            metadata.insert("generation".to_owned(), Value::from(1));
        }
        (resource.strategy.prepare_create)(object, &self.context());
        // What preparing took away has defaults, too.
        self.default(object);
    }

    fn insert(&self, object: Value) -> Result<Written, Status> {
        let resource = &self.resource;
        let (namespace, name) = (object::namespace(&object).to_owned(), object::name(&object).to_owned());
        let key = key(&namespace, &name);
        let taken = || {
            let terminating = self
                .server
                .storage
                .get(&resource.store, &key)
                .is_some_and(|present| object::is_terminating(present.value()));
            Status::already_exists(resource, &name, terminating)
        };
        if self.dry_run {
            return match self.server.storage.get(&resource.store, &key) {
                Some(_) => Err(taken()),
                None => Ok(Written::Shown(full(resource, &to_stored(resource, object)))),
            };
        }
        match self
            .server
            .storage
            .create(&resource.store, &key, to_stored(resource, object))
        {
            Ok(stored) => {
                self.server.after_write(resource, &stored);
                Ok(Written::Stored(stored))
            }
            Err(_) => Err(taken()),
        }
    }

    /// Replaces the object at `key` by what `next` makes of it; tries again when somebody else was faster.
    ///
    /// `next` gets the present object with `apiVersion` and `kind`. A resourceVersion that it leaves in place is the present one.
    pub(crate) async fn update(
        &mut self,
        namespace: &str,
        name: &str,
        part: Part,
        mut next: impl FnMut(&Value, &mut Vec<String>) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        let resource = self.resource.clone();
        let key = key(namespace, name);
        for _ in 0..MAX_ATTEMPTS {
            let Some(present) = self.server.storage.get(&resource.store, &key) else {
                return Err(Status::not_found(&resource, name));
            };
            self.warnings.clear();
            let old = full(&resource, present.value());
            let mut warnings = Vec::new();
            let new = next(&old, &mut warnings)?;
            self.warnings.append(&mut warnings);
            let (new, _claim) = self.prepare_update(new, &old, name, part).await?;
            if let Some(written) = self.replace(&key, name, &present, &old, new)? {
                return Ok(written);
            }
        }
        Err(Status::modified(&resource, name))
    }

    /// Everything between what the client wants and what is stored.
    async fn prepare_update(
        &mut self,
        mut new: Value,
        old: &Value,
        name: &str,
        part: Part,
    ) -> Result<(Value, Claim), Status> {
        let resource = self.resource.clone();
        self.warnings.extend(object::dedup_owners(&mut new));
        object::keep_system_fields(&mut new, old, resource.namespaced);
        let claimed = object::metadata_mut(&mut new).remove("managedFields");
        let beside = managed::beside_status(&resource, part, &new, old);
        // What these two leave alone counts as written all the same.
        let counts_all = matches!(part, Part::EphemeralContainers | Part::Resize);
        if !counts_all {
            restrict(&resource, &mut new, old, part);
        }
        if part != Part::Finalize {
            self.default(&mut new);
        }
        let now = crate::env::rfc3339(self.server.env.now());
        managed::track_update(&resource, &self.tracking, part, claimed, beside, &mut new, old, &now);
        self.track_other_versions(&mut new, old);
        without_empty_lists(&resource, &mut new);
        if counts_all {
            let entries = managed::entries(&new).cloned();
            restrict(&resource, &mut new, old, part);
            managed::put(&mut new, entries);
        }
        let attributes = self.attributes(Operation::Update, part.subresource(), object::namespace(old), name);
        self.mutate(&attributes, &mut new, Some(old)).await?;
        let mut claim = Claim::default();
        let mut errors = Vec::new();
        let metadata = object::validate_update(&new, old);
        // Upstream checks metadata once for all kinds and once in each kind, and names an error twice.
        errors.extend(metadata.iter().cloned());
        errors.extend(metadata);
        errors.extend(object::unqualified_finalizers(&new, &resource));
        if part == Part::Status {
            errors.extend((resource.strategy.validate_status)(&new, old));
        } else if part == Part::EphemeralContainers {
            count_generation(&resource, &mut new, old);
            errors.extend(pods::validate::ephemeral_containers(&new, old));
        } else if part == Part::Resize {
            count_generation(&resource, &mut new, old);
            errors.extend(pods::validate::resize(&new, old));
        } else if part == Part::Main || part == Part::Whole {
            (resource.strategy.prepare_update)(&mut new, old, &self.context());
            self.default(&mut new);
            count_generation(&resource, &mut new, old);
            claim = self
                .server
                .allocate(&resource, &mut new, Some(old), &self.context(), &mut errors);
            errors.extend((resource.strategy.validate_update)(&new, old));
        }
        errors.extend(self.schema_errors(&new));
        errors.extend(scales::path_errors(&resource, &new, part == Part::Status));
        self.refuse(name, &errors)?;
        self.warnings.extend(object::finalizer_warnings(&new, Some(old)));
        self.warnings.extend((resource.strategy.warnings)(&new, Some(old)));
        self.validate(&attributes, &new, Some(old)).await?;
        managed::keep_times(&mut new, old);
        Ok((new, claim))
    }

    /// The compare-and-swap; `None` when somebody else was faster.
    fn replace(
        &self,
        key: &str,
        name: &str,
        present: &StoredObject,
        old: &Value,
        new: Value,
    ) -> Result<Option<Written>, Status> {
        let (resource, storage) = (&self.resource, &self.server.storage);
        let stored = to_stored(resource, new);
        let shown = |mut value: Value| {
            // The answer to a write that stores nothing shows the version that is there.
            object::metadata_mut(&mut value)
                .insert("resourceVersion".to_owned(), present.revision().to_string().into());
            Written::Shown(full(resource, &value))
        };
        if self.dry_run {
            return Ok(Some(shown(stored)));
        }
        let result = if is_finished(resource, &stored, old) {
            storage.delete(&resource.store, key, present.revision()).map(|gone| {
                self.server.after_delete(resource, &gone);
                shown(stored)
            })
        } else {
            let unchanged = same_content(present.value(), &stored);
            storage
                .update(&resource.store, key, present.revision(), stored)
                .map(|stored| {
                    if !unchanged {
                        self.server.after_write(resource, &stored);
                    }
                    Written::Stored(stored)
                })
        };
        match result {
            Ok(written) => Ok(Some(written)),
            Err(StorageError::NotFound(_)) => Err(Status::not_found(resource, name)),
            Err(_) => Ok(None),
        }
    }
}

/// Whether an update leaves nothing that keeps a terminating object (store's `ShouldDeleteDuringUpdate`).
fn is_finished(resource: &Resource, new: &Value, old: &Value) -> bool {
    let held_by_namespace = resource.group.is_empty()
        && resource.kind == "Namespace"
        && new
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty());
    object::is_terminating(old)
        && object::finalizers(new).is_empty()
        && object::grace_period(new).is_none_or(|seconds| seconds == 0)
        && !held_by_namespace
}

/// Puts back what a write to this part may not change.
fn restrict(resource: &Resource, new: &mut Value, old: &Value, part: Part) {
    let put_back = |new: &mut Value, field: &str| {
        if let Some(map) = new.as_object_mut() {
            match old.get(field) {
                Some(value) => map.insert(field.to_owned(), value.clone()),
                None => map.remove(field),
            };
        }
    };
    match part {
        Part::Main => {
            if resource.has_status() {
                put_back(new, "status");
            }
        }
        Part::Status => {
            let status = new.get("status").cloned();
            let metadata = new.get("metadata").cloned().unwrap_or_default();
            *new = old.clone();
            if let Some(map) = new.as_object_mut() {
                match status {
                    Some(status) => map.insert("status".to_owned(), status),
                    None => map.remove("status"),
                };
            }
            if resource.strategy.status_keeps_metadata {
                // Deployments are alone in keeping their labels.
                let fields = ["annotations", "finalizers", "labels"];
                let taken = if resource.kind == "Deployment" { 2 } else { 3 };
                for field in fields.into_iter().take(taken) {
                    let target = object::metadata_mut(new);
                    match metadata.get(field) {
                        Some(value) => target.insert(field.to_owned(), value.clone()),
                        None => target.remove(field),
                    };
                }
            }
        }
        Part::Finalize => {
            let finalizers = new
                .pointer("/spec/finalizers")
                .cloned()
                .filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
            *new = old.clone();
            if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
                match finalizers {
                    Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers),
                    None => spec.remove("finalizers"),
                };
            }
        }
        Part::EphemeralContainers | Part::Resize => {
            let wanted = std::mem::replace(new, old.clone());
            if part == Part::Resize {
                pods::take_resources(new, &wanted);
            } else {
                pods::take_ephemeral_containers(new, &wanted);
            }
        }
        Part::Approval => {
            let conditions = new.pointer("/status/conditions").cloned();
            *new = old.clone();
            if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) {
                match conditions {
                    Some(conditions) => status.insert("conditions".to_owned(), conditions),
                    None => status.remove("conditions"),
                };
            }
        }
        Part::Whole | Part::Raw => {}
    }
}

/// Raises `metadata.generation` when the kind's rule says so.
fn count_generation(resource: &Resource, new: &mut Value, old: &Value) {
    let without = |object: &Value, fields: &[&str]| -> Value {
        let Some(map) = object.as_object() else {
            return Value::Null;
        };
        map.iter()
            .filter(|(key, _)| !fields.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    let annotations = |object: &Value| object.pointer("/metadata/annotations").cloned();
    let counts = match resource.strategy.generation {
        GenerationRule::Never => false,
        GenerationRule::Spec => new.get("spec") != old.get("spec"),
        GenerationRule::SpecOrAnnotations => new.get("spec") != old.get("spec") || annotations(new) != annotations(old),
        GenerationRule::AllButMetadataAndStatus => {
            without(new, &["metadata", "status"]) != without(old, &["metadata", "status"])
        }
        GenerationRule::AllButMetadataOrLabels => {
            without(new, &["metadata"]) != without(old, &["metadata"])
                || new.pointer("/metadata/labels") != old.pointer("/metadata/labels")
        }
        GenerationRule::AllButMetadata => without(new, &["metadata"]) != without(old, &["metadata"]),
    };
    if counts {
        let generation = object::generation(old) + 1;
        object::metadata_mut(new).insert("generation".to_owned(), Value::from(generation));
    }
}
