//! What all writes share: preparing, defaulting and validating an object, admission, generation, compare-and-swap.
//!
//! A write is a function from the present object to the next one. It runs outside of any lock, and again when the compare-and-swap says
//! that somebody was faster: so the answer is always one that followed from what was really there (store-S3).

use std::sync::Arc;

use kubewright_schema::apply::Views;
use kubewright_schema::budget;
use kubewright_schema::error::FieldError;
use kubewright_schema::{protobuf, structural};
use serde_json::{Map, Value, json};

use super::convert::{as_stored, is_converted, prune};
use super::custom;
use super::empties::{Unwritten, with_empty_lists, without_empty_lists};
use super::managed::{self, Fields, Tracking};
use super::options::{WriteOptions, parse_version};
use super::settle::refused;
use super::update::check_version;
use super::upkeep::claims::Claim;
use super::{Call, Inner};
use crate::admission::{Operation, Session};
use crate::audit::Entry;
use crate::authorization::{self, escalation};
use crate::json;
use crate::model::form::full;
use crate::model::form::key;
use crate::model::object;
use crate::model::status::Status;
use crate::model::user::UserInfo;
use crate::model::{Empties, GenerationRule, Portion, Resource, StatusMetadata, StrategyContext, Unallocated};
use crate::storage::{SizeLimit, StorageError, StoredObject, same_content};
use crate::values::get;

/// How often a write is tried again when somebody else was faster. Upstream never gives up; a bound keeps a defect from hanging.
const MAX_ATTEMPTS: usize = 1000;

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object but for its status.
    Main,
    /// `/status`.
    Status,
    /// What the kind says that a subresource of its own writes.
    Of(&'static Portion),
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
            Part::Of(portion) => portion.name,
        }
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
    /// The options of the request as admission sees them, without `kind` and `apiVersion`.
    pub(crate) options: Value,
    pub(crate) warnings: Vec<String>,
    /// Whether a create comes from a request that names the object (PUT, apply), and so may update it only.
    pub(crate) may_only_update: bool,
    /// Whether the object that is created came without labels.
    pub(crate) unlabelled: bool,
    /// The entry in the audit log, if the request is entered.
    pub(crate) audit: Option<&'a Entry>,
}

impl<'a> Call<'a> {
    /// A writer whose writes belong to nobody (deletes, bindings).
    pub(crate) fn writer(&self, dry_run: bool) -> Writer<'a> {
        Writer {
            dry_run,
            audit: self.audit,
            ..Writer::new(self.server, self.resource.clone(), self.user)
        }
    }

    /// A writer whose writes belong to the client.
    pub(crate) fn tracked_writer(&self, options: &WriteOptions) -> Writer<'a> {
        let manager = managed::manager_name(&options.field_manager, self.headers);
        Writer {
            tracking: Tracking::Update(manager),
            options: options.to_value(),
            ..self.writer(options.dry_run)
        }
    }
}

/// The stored form: converted, without `apiVersion` and `kind`.
pub(crate) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if let Some(conversion) = resource.conversion {
        object = (conversion.to_stored)(object);
    }
    if let Some(map) = object.as_object_mut() {
        // Objects of a kind with several versions say of which one they are.
        if !is_converted(resource) {
            map.remove("apiVersion");
        }
        map.remove("kind");
    }
    object
}

impl<'a> Writer<'a> {
    /// A writer of this kind, for this user, whose writes belong to nobody.
    pub(crate) fn new(server: &'a Inner, resource: Arc<Resource>, user: &'a UserInfo) -> Writer<'a> {
        Writer {
            server,
            resource,
            user,
            dry_run: false,
            tracking: Tracking::Untouched,
            options: json!({}),
            warnings: Vec::new(),
            may_only_update: false,
            unlabelled: false,
            audit: None,
        }
    }

    pub(crate) fn context(&self) -> StrategyContext<'_> {
        StrategyContext {
            env: self.server.env.as_ref(),
            user: self.user,
            dry_run: self.dry_run,
            unlabelled: self.unlabelled,
            service_range: self.server.config.service_range,
            held_ips: self.server,
            turns: &self.server.turns,
        }
    }

    /// What plugins changed must still be in the namespace of the request.
    fn keep_namespace(resource: &Resource, object: &mut Value, namespace: &str) -> Result<(), Status> {
        let given = object::namespace(object);
        if !resource.namespaced || given == namespace {
            return Ok(());
        }
        if !given.is_empty() {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        object::metadata_mut(object).insert("namespace".to_owned(), namespace.into());
        Ok(())
    }

    /// Takes the link to itself away that nobody has any more: it is not stored, a dry run shows it.
    fn unlink(&self, object: &mut Value) {
        if !self.dry_run {
            object::metadata_mut(object).remove("selfLink");
        }
    }

    /// Fills in defaults: the kind's function, or the schema's words for custom kinds.
    fn default(&self, object: &mut Value) {
        default(object, &self.resource);
    }

    /// Holds a custom resource against its definition.
    fn check_custom(&mut self, object: &Value, old: Option<&Value>, part: Part, errors: &mut Vec<FieldError>) {
        let (found, warnings) = custom::validate(&self.resource, object, old, part, errors);
        self.warnings.extend(warnings);
        errors.extend(found);
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

    /// What the object needs of what there is only so much of. Nothing else is looked at when that cannot be had.
    fn allocate(&self, object: &mut Value, old: Option<&Value>) -> Result<Claim, Status> {
        let claim = self.server.allocate(&self.resource, object, old, &self.context());
        claim.map_err(|why| match why {
            Unallocated::Invalid(errors) => {
                Status::invalid(self.kind_group(), &self.resource.kind, object::name(object), &errors)
            }
            Unallocated::Failed(why) => Status::internal(&why),
            Unallocated::Untyped(why) => Status::untyped(why),
        })
    }

    /// Creates an object that is decoded and fits its path.
    pub(crate) async fn create(&mut self, mut object: Value) -> Result<Written, Status> {
        let resource = self.resource.clone();
        // A request that names the object is an update to upstream: what it says of the system's fields is not taken away.
        if !self.may_only_update {
            self.warnings.extend(object::dedup_owners(&mut object, false));
            object::wipe_system_fields(&mut object);
        }
        let namespace = object::namespace(&object).to_owned();
        let unwritten = Unwritten::take(&resource, &mut object);
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        self.unlabelled = labels.is_none_or(serde_json::Map::is_empty);
        self.default(&mut object);
        let now = crate::env::rfc3339(self.server.env.now());
        let views = match (&self.tracking, managed::entries(&object)) {
            (Tracking::Update(_), claimed @ Some(_)) => {
                self.server.views(&resource, &Value::Null, &object, claimed).await?
            }
            _ => Views::new(),
        };
        managed::track_create(&resource, &self.tracking, &mut object, &now, &views);
        let mut attributes = self.attributes(Operation::Create, "", &namespace, object::name(&object));
        let session = self.session();
        let admitted = self.mutate(&session, &attributes, &mut object, None).await;
        self.warnings.extend(session.take_warnings());
        admitted?;
        let empty = without_empty_lists(&resource, &mut object);
        Self::keep_namespace(&resource, &mut object, &namespace)?;
        let asked_version = object::text(&object, "resourceVersion").to_owned();
        if self.may_only_update && !asked_version.is_empty() {
            parse_version(&asked_version).map_err(Status::untyped)?;
        }
        self.warnings.extend(object::dedup_owners(&mut object, true));
        let path_name = if self.may_only_update {
            object::name(&object)
        } else {
            ""
        };
        self.check_grant(&namespace, path_name, &object, None)?;
        // Only a generated name may be tried a second time.
        let template = object::is_to_be_named(&object).then(|| object.clone());
        for attempt in 0.. {
            if let (Some(template), true) = (&template, attempt > 0) {
                object.clone_from(template);
            }
            object::fill_system_fields(&mut object, self.server.env.as_ref());
            self.prepare_create(&mut object);
            let mut errors = object::validate(&object, &resource);
            let claim = self.allocate(&mut object, None)?;
            let seen = unwritten.seen_in(&object, &session);
            errors.extend((resource.strategy.validate_create)(&seen));
            drop(seen);
            self.check_custom(&object, None, Part::Main, &mut errors);
            self.refuse(object::name(&object), &errors)?;
            self.ask_to_create(&object)?;
            if attempt == 0 {
                self.warnings
                    .extend(object::finalizer_warnings(&object, None, &resource));
                self.warnings.extend((resource.strategy.warnings)(&object, None));
            }
            // By now a generated name is known.
            object::name(&object).clone_into(&mut attributes.name);
            with_empty_lists(&mut object, &empty);
            let admitted = self.validate(&session, &attributes, &object, None).await;
            self.warnings.extend(session.take_warnings());
            admitted?;
            without_empty_lists(&resource, &mut object);
            self.prune_changed(&session, &mut object);
            // What preparing took away has defaults, too; upstream they are there when the stored object is read.
            self.default(&mut object);
            object::metadata_mut(&mut object).remove("resourceVersion");
            self.unlink(&mut object);
            if !self.dry_run && !self.may_only_update && !asked_version.is_empty() && asked_version != "0" {
                return Err(Status::untyped(
                    "resourceVersion should not be set on objects to be created",
                ));
            }
            match self.insert(std::mem::take(&mut object)).await {
                // A generated name that is taken is no fault of the client.
                Err(status) if template.is_some() && status.code == 409 && attempt < 7 => {}
                // What is not stored keeps the version that it came with.
                Ok(Written::Shown(mut shown)) if !asked_version.is_empty() => {
                    object::metadata_mut(&mut shown).insert("resourceVersion".to_owned(), asked_version.into());
                    return Ok(Written::Shown(shown));
                }
                Ok(written) => {
                    claim.keep();
                    return Ok(written);
                }
                Err(status) => return Err(status),
            }
        }
        Err(Status::untyped("no name could be generated"))
    }

    /// Roles and bindings: nobody grants what he does not have.
    fn check_grant(&self, namespace: &str, path_name: &str, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        if !escalation::concerns(&self.resource) {
            return Ok(());
        }
        let grant = escalation::Grant {
            policy: &self.server.policy,
            authorizer: &*self.server.authorizer,
            user: self.user,
            resource: &self.resource,
            namespace,
            path_name,
        };
        grant.check(new, old)
    }

    /// Whoever may update is asked once more before that creates something.
    fn ask_to_create(&self, object: &Value) -> Result<(), Status> {
        if !self.may_only_update {
            return Ok(());
        }
        let resource = &self.resource;
        let attributes = authorization::Attributes {
            verb: "create".to_owned(),
            group: resource.group.to_string(),
            version: resource.version.to_string(),
            resource: resource.plural.to_string(),
            namespace: object::namespace(object).to_owned(),
            name: object::name(object).to_owned(),
            ..authorization::Attributes::default()
        };
        self.server.authorize(self.user, &attributes)
    }

    fn prepare_create(&self, object: &mut Value) {
        let resource = &self.resource;
        let keeps_status = resource.strategy.keeps_first_status;
        if let (true, false, Some(map)) = (resource.has_status(), keeps_status, object.as_object_mut()) {
            map.remove("status");
        }
        let metadata = object::metadata_mut(object);
        if resource.strategy.generation != GenerationRule::Never {
            metadata.insert("generation".to_owned(), Value::from(1));
        }
        (resource.strategy.prepare_create)(object, &self.context());
    }

    async fn insert(&self, object: Value) -> Result<Written, Status> {
        let resource = &self.resource;
        let (namespace, name) = (object::namespace(&object).to_owned(), object::name(&object).to_owned());
        let key = key(&namespace, &name);
        // Whether or not the name was generated (`CheckGeneratedNameError`).
        let has_beginning = !object::text(&object, "generateName").is_empty();
        let taken = || {
            let terminating = self
                .server
                .storage
                .get(&resource.store, &key)
                .is_some_and(|present| object::is_terminating(present.value()));
            if has_beginning {
                Status::no_unique_name(resource, &name, terminating)
            } else {
                Status::already_exists(resource, &name, terminating)
            }
        };
        let form = self.server.stored_form(resource, object).await?;
        if self.dry_run {
            return match self.server.storage.get(&resource.store, &key) {
                Some(_) => Err(taken()),
                None => Ok(Written::Shown(self.as_shown(form).await?)),
            };
        }
        let counted = |value: &Value, length| counted(resource, &key, value, length);
        let created = budget::commit(|| {
            let storage = &self.server.storage;
            let stored = storage.create_up_to(&resource.store, &key, form, &limit(&counted))?;
            self.server.after_write(resource, &stored);
            self.server.after_create(resource, &stored);
            Ok(stored)
        });
        match created {
            Ok(stored) => Ok(Written::Stored(self.server.show_one(resource, stored).await?)),
            Err(StorageError::TooLarge(length)) => Err(too_large(length)),
            Err(error) => Err(refused(&error).unwrap_or_else(taken)),
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
            let shown = self.server.show_one(&resource, present.clone()).await?;
            let old = full(&resource, shown.value());
            let mut warnings = Vec::new();
            let new = next(&old, &mut warnings);
            self.warnings.append(&mut warnings);
            let new = new?;
            let (mut new, claim) = self.prepare_update(new, &old, name, part).await?;
            self.unlink(&mut new);
            let stored = self.server.stored_form(&resource, new).await?;
            match self.replace(&key, name, &present, &old, stored)? {
                None => {}
                Some(Written::Stored(stored)) => {
                    claim.keep();
                    return Ok(Written::Stored(self.server.show_one(&resource, stored).await?));
                }
                Some(Written::Shown(stored)) => return Ok(Written::Shown(self.as_shown(stored).await?)),
            }
        }
        Err(Status::modified(&resource, name))
    }

    /// What was to be stored, in the version of the request.
    async fn as_shown(&self, stored: Value) -> Result<Value, Status> {
        let object = as_stored(&self.resource, &stored);
        self.server.show_full(&self.resource, object).await
    }

    /// Drops what plugins put into a custom resource that it does not have.
    fn prune_changed(&self, session: &Session<'_>, object: &mut Value) {
        if self.resource.custom.is_some() && session.was_changed() {
            prune(object, &self.resource);
        }
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
        let unwritten = Unwritten::take(&resource, &mut new);
        let claimed = object::metadata_mut(&mut new).remove("managedFields");
        let beside = managed::beside_status(&resource, part, &new, old);
        self.default(&mut new);
        // Plugins that change objects see all that the client sent; only what it may write here counts as written.
        let sent = match part {
            Part::Of(portion) if portion.owns_all_that_is_sent => Aside::default(),
            _ => restrict(&resource, &mut new, old, part),
        };
        let aside = !sent.is_empty();
        let now = crate::env::rfc3339(self.server.env.now());
        let views = match &self.tracking {
            Tracking::Update(_) => self.server.views(&resource, old, &new, claimed.as_ref()).await?,
            Tracking::Untouched | Tracking::Given => Views::new(),
        };
        managed::track_update(
            &resource,
            &self.tracking,
            part,
            claimed,
            beside,
            &mut new,
            old,
            &now,
            &views,
        );
        sent.put_back(&mut new);
        let session = self.session();
        let attributes = self.update_attributes(old, name, part);
        let admitted = self.admit_update(&session, &attributes, &mut new, old, part).await;
        self.warnings.extend(session.take_warnings());
        admitted?;
        let empty = without_empty_lists(&resource, &mut new);
        self.warnings.extend(object::dedup_owners(&mut new, true));
        let unconditional = resource.strategy.unconditional_update;
        check_version(
            &resource,
            name,
            object::text(&new, "resourceVersion"),
            old,
            unconditional,
        )?;
        object::keep_version(&mut new, old);
        Self::keep_namespace(&resource, &mut new, object::namespace(old))?;
        object::keep_system_fields(&mut new, old, resource.namespaced);
        // Plugins may not change more than the request itself may.
        if aside || resource.custom.is_none() || session.was_changed() {
            let owners = object::metadata_mut(&mut new).remove("managedFields");
            restrict(&resource, &mut new, old, part);
            managed::put(&mut new, owners);
        }
        if part == Part::Main {
            self.check_grant(object::namespace(old), name, &new, Some(old))?;
        }
        let mut claim = Claim::default();
        let mut errors = object::validate_update(&new, old, &resource, part == Part::Status);
        match part {
            Part::Status => {
                (resource.strategy.prepare_status)(&mut new, old, &self.context());
                errors.extend((resource.strategy.validate_status)(&new, old));
            }
            Part::Of(portion) => {
                (portion.prepare)(&mut new, old, &self.context());
                if portion.counts_generation {
                    count_generation(&resource, &mut new, old, false);
                }
                errors.extend((portion.validate)(&new, old));
            }
            Part::Main | Part::Whole => {
                (resource.strategy.prepare_update)(&mut new, old, &self.context());
                let emptied = resource.strategy.empties == Empties::Changes && unwritten.has_any(&new, &session);
                count_generation(&resource, &mut new, old, emptied);
                claim = self.allocate(&mut new, Some(old))?;
                errors.extend((resource.strategy.validate_update)(
                    &unwritten.seen_in(&new, &session),
                    old,
                ));
            }
            Part::Raw => {}
        }
        self.check_custom(&new, Some(old), part, &mut errors);
        self.refuse(object::name(&new), &errors)?;
        self.warnings
            .extend(object::finalizer_warnings(&new, Some(old), &resource));
        if part != Part::Status {
            self.warnings.extend((resource.strategy.warnings)(&new, Some(old)));
        }
        with_empty_lists(&mut new, &empty);
        let admitted = self.admit_updated(&session, &attributes, &new, old, part).await;
        self.warnings.extend(session.take_warnings());
        admitted?;
        without_empty_lists(&resource, &mut new);
        self.prune_changed(&session, &mut new);
        // As after a create: what preparing took away has defaults. From a custom resource it takes none that was filled in.
        if resource.custom.is_none() || session.was_changed() {
            self.default(&mut new);
        }
        managed::keep_times(&mut new, old);
        Ok((new, claim))
    }

    /// The compare-and-swap of a stored form; shown is what is not stored, in that form. `None` when somebody else was faster.
    fn replace(
        &self,
        key: &str,
        name: &str,
        present: &StoredObject,
        old: &Value,
        stored: Value,
    ) -> Result<Option<Written>, Status> {
        let (resource, storage) = (&self.resource, &self.server.storage);
        let shown = |mut value: Value| {
            // The answer to a write that stores nothing shows the version that is there.
            object::metadata_mut(&mut value)
                .insert("resourceVersion".to_owned(), present.revision().to_string().into());
            Written::Shown(value)
        };
        if self.dry_run {
            return Ok(Some(shown(stored)));
        }
        let result = budget::commit(|| {
            if is_finished(resource, &stored, old) {
                let gone = storage.delete(&resource.store, key, present.revision())?;
                self.server.after_delete(resource, &gone);
                return Ok(shown(stored));
            }
            let unchanged = same_content(present.value(), &stored);
            let counted = |value: &Value, length| counted(resource, key, value, length);
            let stored = storage.update_up_to(&resource.store, key, present.revision(), stored, &limit(&counted))?;
            if !unchanged {
                self.server.after_write(resource, &stored);
                self.server.after_update(resource, old, &stored);
            }
            Ok(Written::Stored(stored))
        });
        match result {
            Ok(written) => Ok(Some(written)),
            Err(StorageError::NotFound(_)) => Err(Status::not_found(resource, name)),
            Err(StorageError::TooLarge(length)) => Err(too_large(length)),
            Err(error) => refused(&error).map_or(Ok(None), Err),
        }
    }
}

/// Fills in defaults: the kind's function, or the schema's words for custom kinds.
pub(crate) fn default(object: &mut Value, resource: &Resource) {
    if resource.custom.is_some() {
        structural::default(object, &resource.schema);
    } else {
        (resource.strategy.default)(object);
    }
}

/// What an object counts beside itself in the request to etcd: its key twice, and what is around them (measured).
fn around(resource: &Resource, key: &str) -> usize {
    const KEY: usize = "/registry//".len();
    const REST: usize = 39;
    let group = if resource.custom.is_some() {
        resource.group.len()
    } else {
        0
    };
    let names = group.saturating_add(resource.plural.len()).saturating_add(key.len());
    names.saturating_add(KEY).saturating_mul(2).saturating_add(REST)
}

/// How many bytes an object has in etcd whose text is so long: custom kinds are JSON there, built-in ones protobuf.
fn counted(resource: &Resource, key: &str, value: &Value, length: usize) -> usize {
    let mut whole = full(resource, value);
    object::metadata_mut(&mut whole).remove("resourceVersion");
    let content = match resource.custom {
        Some(_) => json::text(&whole).len().saturating_add("\n".len()),
        None => protobuf::encode(&whole).map_or(length, |bytes| bytes.len()),
    };
    content.saturating_add(around(resource, key))
}

/// How large a stored object may be: as etcd's `--max-request-bytes`. It counts only near that; no built-in kind is larger in protobuf than
/// in JSON but by what it leaves out of it, which is little.
fn limit(counted: &dyn Fn(&Value, usize) -> usize) -> SizeLimit<'_> {
    const ETCD: usize = 3 * 512 * 1024;
    const NEAR: usize = 1024;
    SizeLimit {
        max: ETCD,
        plain: ETCD - NEAR,
        counted,
    }
}

/// What etcd, or the client of it, says of an object that is too large.
fn too_large(length: usize) -> Status {
    const SENT: usize = 2 * 1024 * 1024;
    Status::untyped(if length > SENT {
        format!(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({length} vs. {SENT})"
        )
    } else {
        "etcdserver: request is too large".to_owned()
    })
}

/// Whether an update leaves nothing that keeps a terminating object (store's `ShouldDeleteDuringUpdate`).
fn is_finished(resource: &Resource, new: &Value, old: &Value) -> bool {
    let is_held = resource.strategy.ending.is_some_and(|ending| (ending.is_held)(new));
    object::is_terminating(old)
        && object::finalizers(new).is_empty()
        && object::grace_period(new).is_none_or(|seconds| seconds == 0)
        && !is_held
}

/// What a write may not change and a client sent all the same: put aside while it is worked out what counts as written.
#[derive(Default)]
struct Aside {
    /// The whole object as it was sent, where nearly nothing of it may be written.
    whole: Option<Value>,
    fields: Fields,
    metadata: Fields,
}

impl Aside {
    fn is_empty(&self) -> bool {
        self.whole.is_none() && self.fields.is_empty() && self.metadata.is_empty()
    }

    /// Makes the object what the client sent, but for who owns what.
    fn put_back(self, object: &mut Value) {
        if let Some(whole) = self.whole {
            let entries = managed::entries(object).cloned();
            *object = whole;
            managed::put(object, entries);
        }
        if let (false, Some(metadata)) = (self.metadata.is_empty(), object.get_mut("metadata")) {
            managed::exchange(metadata, self.metadata);
        }
        managed::exchange(object, self.fields);
    }
}

/// Makes fields of a map what they were; says what they would have been. Nearly all of them are, and what is so already is not copied.
fn put_back<'f>(
    new: &mut Map<String, Value>,
    old: &Map<String, Value>,
    fields: impl IntoIterator<Item = &'f str>,
) -> Fields {
    let mut aside = Fields::new();
    for field in fields {
        let was = match (old.get(field), new.get_mut(field)) {
            (None, None) => continue,
            (Some(value), Some(present)) if present == value => continue,
            (Some(value), Some(present)) => Some(std::mem::replace(present, value.clone())),
            (Some(value), None) => new.insert(field.to_owned(), value.clone()),
            (None, Some(_)) => new.remove(field),
        };
        aside.push((field.to_owned(), was));
    }
    aside
}

/// Makes a map what it was, but for some of its fields.
fn put_all_back(new: &mut Map<String, Value>, old: &Map<String, Value>, written: &[&str]) -> Fields {
    let strange = |field: &&String| !written.contains(&field.as_str()) && !old.contains_key(*field);
    let strange: Vec<String> = new.keys().filter(strange).cloned().collect();
    let kept = old.keys().map(String::as_str).filter(|field| !written.contains(field));
    put_back(new, old, strange.iter().map(String::as_str).chain(kept))
}

/// What of an object a write to this part reaches.
pub(super) fn reached(resource: &Resource, mut object: Value, part: Part) -> Value {
    if let Part::Main | Part::Status = part {
        restrict(resource, &mut object, &json!({"metadata": {}}), part);
    }
    object
}

/// Puts back what a write to this part may not change. Who owns what is left to [`managed`].
fn restrict(resource: &Resource, new: &mut Value, old: &Value, part: Part) -> Aside {
    let none = Map::new();
    let before = old.as_object().unwrap_or(&none);
    let mut aside = Aside::default();
    match part {
        Part::Main => {
            if let (true, Some(map)) = (resource.has_status(), new.as_object_mut()) {
                aside.fields = put_back(map, before, ["status"]);
            }
        }
        Part::Status => {
            let metadata = before.get("metadata").and_then(Value::as_object).unwrap_or(&none);
            let written = object::metadata_mut(new);
            aside.metadata = match resource.strategy.status_metadata {
                StatusMetadata::Kept => put_all_back(written, metadata, &["managedFields"]),
                StatusMetadata::WrittenBut(kept) => put_back(written, metadata, kept.iter().copied()),
            };
            if let Some(map) = new.as_object_mut() {
                aside.fields = put_all_back(map, before, &["metadata", "status"]);
            }
        }
        Part::Of(portion) => {
            let whole = new.clone();
            (portion.restrict)(new, old);
            aside.whole = Some(whole);
        }
        Part::Whole | Part::Raw => {}
    }
    aside
}

/// Whether two objects are the same but for some of their fields.
fn same_beside(new: &Value, old: &Value, fields: &[&str]) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            let kept = |(field, _): &(&String, &Value)| !fields.contains(&field.as_str());
            new.iter().filter(kept).eq(old.iter().filter(kept))
        }
        (new, old) => new.is_object() == old.is_object(),
    }
}

/// Raises `metadata.generation` when the kind's rule says so, or when what was absent is empty now and the kind takes that for a change.
fn count_generation(resource: &Resource, new: &mut Value, old: &Value, emptied: bool) {
    let spec = || new.get("spec") != old.get("spec");
    let metadata = |field: &str| get(new, &["metadata", field]) != get(old, &["metadata", field]);
    let beside = |fields: &[&str]| !same_beside(new, old, fields);
    let counts = match resource.strategy.generation {
        GenerationRule::Never => false,
        GenerationRule::Spec => spec(),
        GenerationRule::SpecOrAnnotations => spec() || metadata("annotations"),
        GenerationRule::AllButMetadataAndStatus => beside(&["metadata", "status"]),
        GenerationRule::AllButMetadataOrLabels => beside(&["metadata"]) || metadata("labels"),
        GenerationRule::AllButMetadata => beside(&["metadata"]),
    };
    if counts || emptied {
        let generation = object::generation(old) + 1;
        object::metadata_mut(new).insert("generation".to_owned(), Value::from(generation));
    }
}
