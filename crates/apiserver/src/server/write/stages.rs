//! The path of a write, from the client's object to the stored one. Each stage is a type, and each step takes one and
//! gives the next.
//!
//! | stage | step to it | upstream |
//! |---|---|---|
//! | [`Sent`] | [`Writer::sent`]: read, with the defaults of the kind | `handlers.CreateResource`, `UpdateResource`: decode, `Default` |
//! | [`Entered`] | [`Writer::entered`]: counted in `managedFields`, as far as this part may be written | `fieldmanager.FieldManager.Update` |
//! | [`Admitted`] | [`Writer::admitted`]: plugins have changed it | `MutationInterface.Admit`, then `dedupOwnerReferences` |
//! | [`Restricted`] | [`Writer::restricted`] (updates): version, system fields and what this part may not change are the present ones | `registry.Store.Update`: the version; `rest.BeforeUpdate` up to the strategy |
//! | [`Prepared`] | [`Writer::prepared_to_create`], [`Writer::prepared`]: the strategy has filled it in and found no error | `rest.BeforeCreate`, `rest.BeforeUpdate`: `PrepareFor…`, `Validate…`, `WarningsOn…` |
//! | [`Storable`] | [`Writer::storable`]: plugins have not refused it | `ValidationInterface.Validate`, called by `registry.Store` |
//! | [`Written`] | `Writer::insert`, `Writer::replace` in `store` | `storage.Interface.Create`, `GuaranteedUpdate` |
//!
//! Two things upstream sees that a stored object never has travel beside the object: lists that were sent empty
//! ([`Unwritten`] for the rules of a few kinds, [`PluginInput`] for plugins and all rules).

use kubewright_schema::apply::Views;
use serde_json::{Map, Value};

use super::generation::count_generation;
use super::restrict::{ResetFields, restrict, restrict_for_good};
use super::{Part, Writer, Written, fit_namespace};
use crate::admission::{Attributes, Operation, Session};
use crate::model::status::Status;
use crate::model::{Empties, GenerationRule, Minor, object};
use crate::server::empties::{Unwritten, seen_with_empty_lists, with_empty_lists, without_empty_lists};
use crate::server::managed::{self, Fields, Tracking};
use crate::server::options::parse_version;
use crate::server::update::check_version;
use crate::server::upkeep::claims::Claim;
use crate::values::get;

/// How often a generated name is tried that is taken (`rest.maxNameGenerationCreateAttempts`).
const MAX_NAMES: usize = 8;

/// The client's object, with the defaults of the kind.
struct Sent {
    object: Value,
    unwritten: Unwritten,
    /// `managedFields` as the client sent them.
    claimed: Option<Value>,
    /// See [`managed::beside_status`].
    beside: Fields,
}

/// The same, entered in `managedFields`; plugins see all that was sent.
struct Entered {
    object: Value,
    unwritten: Unwritten,
    /// Whether something was sent that this write may not change.
    exceeds: bool,
}

/// The object after mutating admission.
struct Admitted<'a> {
    object: Value,
    unwritten: Unwritten,
    exceeds: bool,
    shown: PluginInput<'a>,
}

/// The arguments of the plugins, before and after the strategy.
struct PluginInput<'a> {
    session: Session<'a>,
    attributes: Attributes,
    /// Where lists are empty, which plugins and rules see and storage does not.
    empty: Vec<String>,
}

/// An update that changes only the allowed fields.
struct Restricted<'a> {
    object: Value,
    unwritten: Unwritten,
    shown: PluginInput<'a>,
}

/// The object after the strategy, without an error.
struct Prepared {
    object: Value,
    /// The unique values that the object holds.
    claim: Claim,
}

/// The object to be stored.
pub(super) struct Storable {
    pub(super) object: Value,
    pub(super) claim: Claim,
}

impl<'a> Writer<'a> {
    /// Creates an object that is decoded and fits its path.
    pub(crate) async fn create(&mut self, object: Value) -> Result<Written, Status> {
        let namespace = object::namespace(&object).to_owned();
        let sent = self.sent_to_create(object);
        let entered = self.entered_to_create(sent).await?;
        let mut admitted = self.admitted_to_create(entered, &namespace).await?;
        let asked_version = object::text(&admitted.object, "resourceVersion").to_owned();
        // Only a generated name may be tried a second time.
        let template = object::is_to_be_named(&admitted.object).then(|| admitted.object.clone());
        for attempt in 0..MAX_NAMES {
            if let (Some(template), true) = (&template, attempt > 0) {
                admitted.object.clone_from(template);
            }
            let prepared = self.prepared_to_create(&mut admitted, attempt == 0).await?;
            let Storable { mut object, claim } = self.storable(&admitted.shown, prepared, None, Part::Main).await?;
            object::metadata_mut(&mut object).remove("resourceVersion");
            self.unlink(&mut object);
            self.check_new_version(&asked_version)?;
            match self.insert(object).await {
                // A generated name that is taken is no fault of the client.
                Err(status) if template.is_some() && status.code == 409 && attempt + 1 < MAX_NAMES => {}
                // An object that is not stored keeps the resourceVersion that it came with.
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

    /// All steps between the client's object and the one that is stored instead of the present object.
    pub(super) async fn change(&mut self, new: Value, old: &Value, name: &str, part: Part) -> Result<Storable, Status> {
        let sent = self.sent(new, old, part);
        let entered = self.entered(sent, old, part).await?;
        let admitted = self.admitted(entered, old, name, part).await?;
        let restricted = self.restricted(admitted, old, name, part).await?;
        let shown = restricted.shown;
        let prepared = self.prepared(restricted.object, &restricted.unwritten, &shown, old, part)?;
        let mut storable = self.storable(&shown, prepared, Some(old), part).await?;
        managed::keep_times(&mut storable.object, old);
        Ok(storable)
    }
}

/// The steps of a create.
impl<'a> Writer<'a> {
    fn sent_to_create(&mut self, mut object: Value) -> Sent {
        // A request that names the object is an update to upstream: its values of the system's fields are not removed.
        if !self.may_only_update {
            self.warnings.extend(object::dedup_owners(&mut object, false));
            object::wipe_system_fields(&mut object);
        }
        let unwritten = Unwritten::take(&self.resource, &mut object);
        let labels = get(&object, &["metadata", "labels"]).as_object();
        self.unlabelled = labels.is_none_or(Map::is_empty);
        self.default(&mut object);
        Sent {
            object,
            unwritten,
            claimed: None,
            beside: Fields::new(),
        }
    }

    async fn entered_to_create(&self, sent: Sent) -> Result<Entered, Status> {
        let Sent {
            mut object, unwritten, ..
        } = sent;
        let now = crate::env::rfc3339(self.server.env.now());
        let views = match (&self.tracking, managed::entries(&object)) {
            (Tracking::Update(_), claimed @ Some(_)) => {
                self.server
                    .views(&self.resource, &Value::Null, &object, claimed)
                    .await?
            }
            _ => Views::new(),
        };
        managed::track_create(&self.resource, &self.tracking, &mut object, &now, &views);
        Ok(Entered {
            object,
            unwritten,
            exceeds: false,
        })
    }

    async fn admitted_to_create(&mut self, entered: Entered, namespace: &str) -> Result<Admitted<'a>, Status> {
        let Entered {
            mut object,
            unwritten,
            exceeds,
        } = entered;
        let attributes = self.attributes(Operation::Create, "", namespace, object::name(&object));
        let session = self.session();
        let admitted = self.mutate(&session, &attributes, &mut object, None).await;
        self.warnings.extend(session.take_warnings());
        admitted?;
        let empty = without_empty_lists(&self.resource, &mut object);
        fit_namespace(&self.resource, &mut object, namespace)?;
        let asked_version = object::text(&object, "resourceVersion");
        if self.may_only_update && !asked_version.is_empty() {
            parse_version(asked_version).map_err(Status::untyped)?;
        }
        self.warnings.extend(object::dedup_owners(&mut object, true));
        let path_name = if self.may_only_update {
            object::name(&object)
        } else {
            ""
        };
        self.check_grant(namespace, path_name, &object, None).await?;
        Ok(Admitted {
            object,
            unwritten,
            exceeds,
            shown: PluginInput {
                session,
                attributes,
                empty,
            },
        })
    }

    /// Takes the object out of the stage, which may be filled again to try another name.
    async fn prepared_to_create(&mut self, admitted: &mut Admitted<'_>, first: bool) -> Result<Prepared, Status> {
        let resource = self.resource.clone();
        let mut object = std::mem::take(&mut admitted.object);
        if self.may_only_update && self.server.config.minor >= Minor::V37 {
            object::wipe_system_fields(&mut object);
        }
        object::fill_system_fields(&mut object, self.server.env.as_ref());
        self.begin(&mut object);
        let mut errors = object::validate(&object, &resource, self.server.config.minor);
        let claim = self.allocate(&mut object, None)?;
        let validate = |seen: &Value| resource.strategy.errors_of_new(seen);
        errors.extend(seen_with_empty_lists(&mut object, &admitted.shown.empty, |object| {
            admitted.unwritten.seen_in(object, &admitted.shown.session, validate)
        }));
        self.check_custom(&object, None, Part::Main, &mut errors);
        admitted
            .unwritten
            .seen_in(&mut object, &admitted.shown.session, |seen| {
                self.refuse(seen, None, errors)
            })?;
        self.ask_to_create(&object).await?;
        if first {
            self.warnings
                .extend(object::finalizer_warnings(&object, None, &resource));
            self.warnings.extend((resource.strategy.warnings)(&object, None));
            self.warnings.extend(self.advice(&object, None));
        }
        // By now a generated name is known.
        object::name(&object).clone_into(&mut admitted.shown.attributes.name);
        Ok(Prepared { object, claim })
    }

    /// `PrepareForCreate`: a new object has no status, and its generation is the first.
    fn begin(&self, object: &mut Value) {
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

    /// A new object has no version, unless nothing is stored or the request would as well have changed it
    /// (`registry.Store.Create`). A text that is no number is no version (`store.Create` of etcd3).
    fn check_new_version(&self, asked: &str) -> Result<(), Status> {
        if self.dry_run || self.may_only_update || parse_version(asked).unwrap_or(0) == 0 {
            return Ok(());
        }
        Err(Status::untyped(
            "resourceVersion should not be set on objects to be created",
        ))
    }
}

/// The steps of an update.
impl<'a> Writer<'a> {
    fn sent(&self, mut object: Value, old: &Value, part: Part) -> Sent {
        let unwritten = Unwritten::take(&self.resource, &mut object);
        let claimed = object::metadata_mut(&mut object).remove("managedFields");
        let beside = managed::beside_status(&self.resource, part, &object, old);
        self.default(&mut object);
        Sent {
            object,
            unwritten,
            claimed,
            beside,
        }
    }

    /// Only the fields that may be written here count as written; mutating plugins see all that the client sent.
    async fn entered(&self, sent: Sent, old: &Value, part: Part) -> Result<Entered, Status> {
        let Sent {
            mut object,
            unwritten,
            claimed,
            beside,
        } = sent;
        let resource = &self.resource;
        let reset = match part {
            Part::Of(portion) if portion.owns_all_that_is_sent => ResetFields::default(),
            _ => restrict(resource, &mut object, old, part),
        };
        let exceeds = !reset.is_empty();
        let now = crate::env::rfc3339(self.server.env.now());
        let views = match &self.tracking {
            Tracking::Update(_) => self.server.views(resource, old, &object, claimed.as_ref()).await?,
            Tracking::Untouched | Tracking::Given => Views::new(),
        };
        let (object_, tracking) = (&mut object, &self.tracking);
        managed::track_update(resource, tracking, part, claimed, beside, object_, old, &now, &views);
        reset.put_back(&mut object);
        Ok(Entered {
            object,
            unwritten,
            exceeds,
        })
    }

    async fn admitted(
        &mut self,
        entered: Entered,
        old: &Value,
        name: &str,
        part: Part,
    ) -> Result<Admitted<'a>, Status> {
        let Entered {
            mut object,
            unwritten,
            exceeds,
        } = entered;
        let session = self.session();
        let attributes = self.update_attributes(old, name, part);
        let admitted = self.admit_update(&session, &attributes, &mut object, old, part).await;
        self.warnings.extend(session.take_warnings());
        admitted?;
        let empty = without_empty_lists(&self.resource, &mut object);
        self.warnings.extend(object::dedup_owners(&mut object, true));
        Ok(Admitted {
            object,
            unwritten,
            exceeds,
            shown: PluginInput {
                session,
                attributes,
                empty,
            },
        })
    }

    async fn restricted(
        &self,
        admitted: Admitted<'a>,
        old: &Value,
        name: &str,
        part: Part,
    ) -> Result<Restricted<'a>, Status> {
        let Admitted {
            mut object,
            unwritten,
            exceeds,
            shown,
        } = admitted;
        let resource = &self.resource;
        let unconditional = resource.strategy.unconditional_update;
        let version = object::text(&object, "resourceVersion");
        check_version(resource, name, version, old, unconditional)?;
        object::keep_version(&mut object, old);
        fit_namespace(resource, &mut object, object::namespace(old))?;
        object::keep_system_fields(&mut object, old, resource.namespaced);
        // Plugins may not change more than the request itself may.
        if exceeds || resource.custom.is_none() || shown.session.was_changed() {
            let owners = object::metadata_mut(&mut object).remove("managedFields");
            restrict_for_good(resource, &mut object, old, part);
            managed::put(&mut object, owners);
        }
        if part == Part::Main {
            self.check_grant(object::namespace(old), name, &object, Some(old))
                .await?;
        }
        Ok(Restricted {
            object,
            unwritten,
            shown,
        })
    }

    fn prepared(
        &mut self,
        mut object: Value,
        unwritten: &Unwritten,
        shown: &PluginInput<'_>,
        old: &Value,
        part: Part,
    ) -> Result<Prepared, Status> {
        let resource = self.resource.clone();
        let strategy = &resource.strategy;
        let mut claim = Claim::default();
        let minor = self.server.config.minor;
        let mut errors = object::validate_update(&object, old, &resource, part == Part::Status, minor);
        match part {
            Part::Status => {
                (strategy.prepare_status)(&mut object, old, &self.context());
                errors.extend((strategy.validate_status)(&object, old));
            }
            Part::Of(portion) => {
                (portion.prepare)(&mut object, old, &self.context());
                if portion.counts_generation {
                    count_generation(&resource, &mut object, old, false);
                }
                errors.extend((portion.validate)(&object, old));
            }
            Part::Main | Part::Whole => {
                (strategy.prepare_update)(&mut object, old, &self.context());
                let emptied = strategy.empties == Empties::Changes && unwritten.has_any(&object, &shown.session);
                count_generation(&resource, &mut object, old, emptied);
                claim = self.allocate(&mut object, Some(old))?;
                let validate = |seen: &Value| strategy.errors_of_change(seen, old);
                errors.extend(seen_with_empty_lists(&mut object, &shown.empty, |object| {
                    unwritten.seen_in(object, &shown.session, validate)
                }));
            }
            Part::Raw => {}
        }
        self.check_custom(&object, Some(old), part, &mut errors);
        unwritten.seen_in(&mut object, &shown.session, |seen| self.refuse(seen, Some(old), errors))?;
        self.warnings
            .extend(object::finalizer_warnings(&object, Some(old), &resource));
        if part != Part::Status {
            self.warnings.extend((strategy.warnings)(&object, Some(old)));
            self.warnings.extend(self.advice(&object, Some(old)));
        }
        Ok(Prepared { object, claim })
    }
}

/// The last step of both.
impl Writer<'_> {
    /// What the surroundings warn of in an object, and did not in the one before.
    fn advice(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let Some(advice) = self.server.advice else {
            return Vec::new();
        };
        let mut warnings = advice(&self.resource, object);
        if let (false, Some(old)) = (warnings.is_empty(), old) {
            let said = advice(&self.resource, old);
            warnings.retain(|warning| !said.contains(warning));
        }
        warnings
    }

    async fn storable(
        &mut self,
        shown: &PluginInput<'_>,
        prepared: Prepared,
        old: Option<&Value>,
        part: Part,
    ) -> Result<Storable, Status> {
        let Prepared { mut object, claim } = prepared;
        let (session, attributes) = (&shown.session, &shown.attributes);
        with_empty_lists(&mut object, &shown.empty);
        let admitted = match old {
            None => self.validate(session, attributes, &object, None).await,
            Some(old) => self.admit_updated(session, attributes, &object, old, part).await,
        };
        self.warnings.extend(session.take_warnings());
        admitted?;
        without_empty_lists(&self.resource, &mut object);
        self.prune_changed(session, &mut object);
        // Fields that preparing removed get their defaults; upstream they appear when the stored object is read. An
        // update takes none from a custom resource that was filled in.
        if old.is_none() || self.resource.custom.is_none() || session.was_changed() {
            self.default(&mut object);
        }
        Ok(Storable { object, claim })
    }
}
