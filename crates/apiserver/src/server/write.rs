//! The code that all writes share. The path of a write, stage by stage and beside upstream's, is in `stages`; the
//! fields that a write to a part may change in `restrict`, the rule for the generation in `generation`, the
//! compare-and-swap in `store`.
//!
//! A write is a function from the present object to the next one. It runs outside of any lock, and again after a
//! conflict in the compare-and-swap: so the answer always follows from the object that it replaced (store-S3).

mod generation;
mod restrict;
mod stages;
mod store;

use std::collections::BTreeSet;
use std::sync::Arc;

use kubewright_schema::budget;
use kubewright_schema::error::FieldError;
use kubewright_schema::structural;
use serde_json::{Value, json};

use super::authorize::further_attributes;
use super::convert::{as_stored, prune};
use super::custom;
use super::deadline::Deadline;
use super::managed::{self, Tracking};
use super::options::WriteOptions;
use super::upkeep::claims::Claim;
use super::{Call, Inner};
use crate::admission::Session;
use crate::audit::Entry;
use crate::authorization::{Inquiry, escalation};
use crate::model::form::key;
use crate::model::object;
use crate::model::status::Status;
use crate::model::user::UserInfo;
use crate::model::{Minor, Portion, Resource, StrategyContext, Unallocated};
use crate::storage::StoredObject;

pub(super) use restrict::reached;
use stages::Storable;
pub(super) use store::Present;

/// How often a write is tried again after a conflict with another one. Upstream never gives up; a bound keeps a defect
/// from hanging.
const MAX_ATTEMPTS: usize = 1000;

/// Groups whose servers have no rules that are declared with a type.
const WITHOUT_DECLARED: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object but for its status.
    Main,
    /// `/status`.
    Status,
    /// The fields that the kind lists for a subresource of its own.
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

/// The result of a write.
pub(crate) enum Written {
    /// The object as it is stored now.
    Stored(Arc<StoredObject>),
    /// The object as it would be (dry run), or as it was when the write removed it; with `apiVersion` and `kind`.
    Shown(Value),
}

/// The function of an update: from the present object to the next one, with warnings.
type Next<'n> = dyn FnMut(&mut Value, &mut Vec<String>) -> Result<Value, Status> + Send + 'n;

/// The data of a write besides the object.
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
    /// When the request has to stop, if the write belongs to one.
    pub(crate) deadline: Option<&'a Deadline>,
    /// The object that an update will find, where it was looked at before: it may be large, and is read once.
    pub(crate) present: Option<Present>,
}

impl<'a> Call<'a> {
    /// A writer without a field manager (deletes, bindings).
    pub(crate) fn writer(&self, dry_run: bool) -> Writer<'a> {
        Writer {
            dry_run,
            audit: self.audit,
            deadline: Some(self.deadline),
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

/// The stored form: converted, and without `kind`. Only custom resources say of which version they are.
pub(crate) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if let Some(conversion) = resource.conversion {
        object = (conversion.to_stored)(object);
    }
    if let Some(map) = object.as_object_mut() {
        if resource.custom.is_none() {
            map.remove("apiVersion");
        }
        map.remove("kind");
    }
    object
}

/// The namespace of the request goes into an object of a namespaced kind; another one is refused.
pub(crate) fn fit_namespace(resource: &Resource, object: &mut Value, namespace: &str) -> Result<(), Status> {
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

impl<'a> Writer<'a> {
    /// A writer of this kind, for this user, without a field manager.
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
            deadline: None,
            present: None,
        }
    }

    /// Says that the write changes something now, which nothing interrupts from here on.
    ///
    /// # Errors
    /// The 504 of a request whose time is up.
    pub(crate) fn begin_change(&self) -> Result<(), Status> {
        self.deadline.map_or(Ok(()), Deadline::begin_change)
    }

    /// Says that it changed nothing after all, and tries again.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn try_again(&self) -> Result<(), Status> {
        self.deadline.map_or(Ok(()), Deadline::go_on)
    }

    pub(crate) fn context(&self) -> StrategyContext<'_> {
        StrategyContext {
            minor: self.server.config.minor,
            env: self.server.env.as_ref(),
            user: self.user,
            dry_run: self.dry_run,
            unlabelled: self.unlabelled,
            service_range: self.server.config.service_range,
            reserved_ips: self.server,
            search_start: &self.server.search_start,
        }
    }

    /// Removes `selfLink`, which the API has no more: it is not stored, a dry run shows it.
    fn unlink(&self, object: &mut Value) {
        if !self.dry_run {
            object::metadata_mut(object).remove("selfLink");
        }
    }

    /// Fills in defaults, also those that depend on the time.
    fn default(&self, object: &mut Value) {
        default_now(object, &self.resource, self.server.env.now());
    }

    /// Holds a custom resource against its definition.
    fn check_custom(&mut self, object: &Value, old: Option<&Value>, part: Part, errors: &mut Vec<FieldError>) {
        let (patterns, minor) = (&self.server.patterns, self.server.config.minor);
        let (found, warnings) = custom::validate(&self.resource, object, old, part, errors, patterns, minor);
        self.warnings.extend(warnings);
        errors.extend(found);
    }

    /// The group of the kind in messages: that of the stored form, where one kind is served in two groups.
    fn kind_group(&self) -> &str {
        self.resource.stored_group()
    }

    /// Refuses an object with errors, of which there may be as many as it has fields.
    fn refuse(&self, object: &Value, old: Option<&Value>, mut errors: Vec<FieldError>) -> Result<(), Status> {
        if errors.is_empty() {
            return Ok(());
        }
        let fits = self.resource.strategy.fits_this_machine;
        let fits = fits.filter(|_| self.server.config.loopback_endpoints);
        errors.retain(|error| fits.is_none_or(|detail| error.detail != detail));
        if self.resource.custom.is_none() {
            let tell = self.server.registry.snapshot().tell();
            tell(self.kind_group(), &self.resource.kind, object, old, &mut errors);
        }
        // From 1.37 on an error that two rules find is told once, where rules may be declared with a type: not by the
        // servers of definitions and of APIServices.
        let has_own_server = self.resource.custom.is_some() || WITHOUT_DECLARED.contains(&self.kind_group());
        if self.server.config.minor >= Minor::V37 && !has_own_server {
            let mut told = BTreeSet::new();
            errors.retain(|error| told.insert(error.to_string()));
        }
        if errors.is_empty() {
            return Ok(());
        }
        let name = object::name(object);
        Err(Status::invalid(self.kind_group(), &self.resource.kind, name, &errors))
    }

    /// Allocates the scarce values of the object. When that fails, nothing else is checked.
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

    /// Roles and bindings: no user grants rights that he does not have.
    async fn check_grant(
        &self,
        namespace: &str,
        path_name: &str,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if !escalation::concerns(&self.resource) {
            return Ok(());
        }
        let inquiry = Inquiry::new(&*self.server.authorizer);
        let grant = escalation::Grant {
            policy: &self.server.policy,
            inquiry: &inquiry,
            user: self.user,
            resource: &self.resource,
            namespace,
            path_name,
        };
        inquiry.settled(|| grant.check(new, old)).await
    }

    /// A user who may update needs the right to create, too, before an update creates an object.
    async fn ask_to_create(&self, object: &Value) -> Result<(), Status> {
        if !self.may_only_update {
            return Ok(());
        }
        let (namespace, name) = (object::namespace(object), object::name(object));
        let attributes = further_attributes("create", &self.resource, namespace, name);
        self.server.authorize(self.user, &attributes).await
    }

    /// Replaces the object at `key` by the result of `next`; tries again after a conflict with another write, as long
    /// as the budget of the request allows. Then the answer is a conflict: the same request succeeds when others write
    /// less.
    ///
    /// `next` gets the present object with `apiVersion` and `kind`, and leaves it as it was. A resourceVersion that it
    /// leaves in place is the present one.
    pub(crate) async fn update(
        &mut self,
        namespace: &str,
        name: &str,
        part: Part,
        mut next: impl FnMut(&mut Value, &mut Vec<String>) -> Result<Value, Status> + Send,
    ) -> Result<Written, Status> {
        self.update_with(namespace, name, part, &mut next).await
    }

    /// [`update`](Self::update), compiled once for all functions.
    async fn update_with(
        &mut self,
        namespace: &str,
        name: &str,
        part: Part,
        next: &mut Next<'_>,
    ) -> Result<Written, Status> {
        let resource = self.resource.clone();
        let key = key(namespace, name);
        for _ in 0..MAX_ATTEMPTS {
            let before = budget::left();
            let Some(stored) = self.server.storage.get(&resource.store, &key) else {
                return Err(Status::not_found(&resource, name));
            };
            self.warnings.clear();
            let mut present = match self.present.take().filter(|present| present.is_of(&stored)) {
                Some(present) => present,
                None => Present::of(self.server, &resource, stored).await?,
            };
            let mut warnings = Vec::new();
            let new = next(&mut present.old, &mut warnings);
            self.warnings.append(&mut warnings);
            let new = new?;
            let Storable { object: mut new, claim } = self.change(new, &present.old, name, part).await?;
            self.unlink(&mut new);
            let stored = self.server.stored_form(&resource, new).await?;
            match self.replace(&key, name, present, stored)? {
                None if !budget::affords_again(before) => break,
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

    /// The object that was to be stored, in the version of the request.
    async fn as_shown(&self, stored: Value) -> Result<Value, Status> {
        let object = as_stored(&self.resource, stored);
        self.server.show_full(&self.resource, object).await
    }

    /// Drops fields that plugins put into a custom resource and that its schema does not have.
    fn prune_changed(&self, session: &Session<'_>, object: &mut Value) {
        if self.resource.custom.is_some() && session.was_changed() {
            prune(object, &self.resource);
        }
    }
}

/// Fills in defaults, also those that depend on the time.
pub(crate) fn default_now(object: &mut Value, resource: &Resource, now: jiff::Timestamp) {
    default(object, resource);
    if let Some(fill_in) = resource.strategy.default_time {
        fill_in(object, &crate::env::rfc3339(now));
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
