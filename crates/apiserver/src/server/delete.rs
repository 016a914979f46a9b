//! DELETE of an object and of a collection: preconditions, grace periods, finalizers, propagation.
//!
//! An object that something still holds (finalizers, a grace period, a namespace's content) only gets a
//! deletionTimestamp here; the update that takes the last hold away removes it (store-S4, see `write`).

mod marked;
mod options;
mod preconditions;

use std::collections::BTreeSet;
use std::sync::Arc;

use kubewright_schema::budget;
use kubewright_schema::budget::Limits;
use serde_json::{Value, json};

use super::Call;
use super::convert::settled;
use super::lists::{Item, List};
use super::options::{DeleteOptions, Propagation};
use super::respond::{Content, Reply};
use super::settle::refused;
use super::weight::TRIAL;
use super::write::{Writer, to_stored};
use crate::admission::{Attributes, Operation, Session};
use crate::env::{self, rfc3339};
use crate::model::form::full;
use crate::model::object::{self, FOREGROUND_DELETION, ORPHAN};
use crate::model::status::Status;
use crate::model::{Delete, Ending, GracePeriod};
use crate::storage::{StorageError, StoredObject};
use crate::values::ensure;
use marked::Marked;
use preconditions::check_preconditions;

const ORPHAN_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them \
                              or set propagationPolicy=Orphan to suppress this warning";

/// How many objects of a collection are read at a time.
const COLLECTION_PAGE: usize = 10_000;

/// The state of an object after its delete.
pub(crate) enum Deleted {
    /// It is gone; its last state, with `apiVersion` and `kind`.
    Gone(Value),
    /// It waits; as it is stored now.
    Waits(Arc<StoredObject>),
    /// It would wait (dry run).
    WouldWait(Value),
}

/// How admission learns of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admit {
    /// As the request says it.
    Named,
    /// One object of a collection: the request names none.
    Nameless,
    /// Not at all: the request was another one (an eviction) and is admitted already.
    Nothing,
}

/// The effect of a delete on storage, for the code that has to follow it.
enum After {
    Nothing,
    Write(Arc<StoredObject>),
    Delete(Arc<StoredObject>),
    /// It has been marked for the first time, and is to end now.
    End(Arc<StoredObject>),
}

impl Call<'_> {
    /// A delete that says nothing of the dependents leaves them, which surprises where the default is older than the
    /// API's.
    fn warn_of_orphans(&mut self, options: &DeleteOptions) {
        let silent = options.propagation.is_none() && options.orphan_dependents.is_none();
        if silent && self.resource.strategy.warns_of_orphans {
            self.warnings.push(ORPHAN_WARNING.to_owned());
        }
    }

    pub(crate) async fn delete(&mut self) -> Result<Reply, Status> {
        let options = self.delete_options()?;
        self.warn_of_orphans(&options);
        if options.unreadable_only == Some(true) {
            return Err(self.refuse_readable().await);
        }
        let resource = self.resource.clone();
        let (namespace, name) = (self.namespace().to_owned(), self.name().to_owned());
        let mut writer = self.writer(options.dry_run);
        writer.options = options.to_value();
        let deleted = writer.delete(&namespace, &name, &options, Admit::Named).await;
        self.warnings.append(&mut writer.warnings);
        let deleted = deleted?;
        // A client that sets the deprecated `orphanDependents` learns whether the object is still there.
        let cascades = options.orphan_dependents == Some(false);
        let code = match deleted {
            Deleted::Waits(_) | Deleted::WouldWait(_) if cascades => 202,
            _ => 200,
        };
        let content = match deleted {
            Deleted::Waits(stored) => Content::Stored(resource, stored),
            Deleted::WouldWait(object) => Content::Object(resource, object),
            Deleted::Gone(object) if resource.strategy.delete_returns_object => Content::Object(resource, object),
            Deleted::Gone(object) => Content::Plain(Status::deleted(&resource, &name, object::uid(&object)).to_value()),
        };
        Ok(Reply::new(code, content))
    }

    pub(crate) async fn delete_collection(&mut self) -> Result<Reply, Status> {
        // The options of the list are read and judged before those of the delete.
        self.query.number("timeoutSeconds")?;
        self.query.number("limit")?;
        self.version_match(false)?;
        self.selection()?;
        let options = self.delete_options()?;
        options.check_collection()?;
        self.warn_of_orphans(&options);
        // A collection is read in pages, all of them unless the client limits it.
        let (mut list, is_limited) = self.listed(Some(COLLECTION_PAGE)).await?;
        if !is_limited && !list.continue_token.is_empty() {
            let selection = self.selection()?;
            let (revision, items) = self.present(&selection).await?;
            list = List {
                resource_version: revision.to_string(),
                continue_token: String::new(),
                remaining: None,
                items: items.into_iter().map(Item::Read).collect(),
            };
        }
        let mut turn = 0;
        for item in &list.items {
            self.deadline.go_on()?;
            let item = item.object();
            let mut writer = self.writer(options.dry_run);
            writer.options = options.to_value();
            let (namespace, name) = (object::namespace(item.value()), object::name(item.value()));
            let mut deleting = budget::item(
                Limits::REQUEST,
                writer.delete(namespace, name, &options, Admit::Nameless),
            );
            let deleted = (&mut deleting).await;
            turn += deleting.spent();
            drop(deleting);
            self.warnings.append(&mut writer.warnings);
            match deleted.map_err(Status::too_costly)? {
                Ok(_) => {}
                // Another client deleted the object first, which is the wanted result.
                Err(status) if status.code == 404 => {}
                Err(status) => return Err(status),
            }
            if turn > TRIAL {
                turn = 0;
                budget::give_way().await;
            }
        }
        Ok(Reply::new(200, Content::List(self.resource.clone(), list)))
    }
}

impl Writer<'_> {
    /// Deletes the object, or marks it; tries again after a conflict with another write.
    pub(crate) async fn delete(
        &mut self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        admit: Admit,
    ) -> Result<Deleted, Status> {
        let resource = self.resource.clone();
        let key = crate::model::form::key(namespace, name);
        loop {
            let Some(present) = self.server.storage.get(&resource.store, &key) else {
                // The system's own namespaces are protected before anything is looked up.
                return Err(Status::not_found(&resource, name));
            };
            let shown = self.server.show_one(&resource, present.clone()).await?;
            let old = full(&resource, shown.value());
            check_preconditions(&resource, name, &old, options, self.server.config.minor)?;
            // A tree of values takes twenty times the memory of its text: no copy outlives its last use.
            drop(shown);
            self.admit_delete(namespace, name, old, options, admit).await?;
            let mut marked = None;
            self.begin_change()?;
            let done = budget::commit(|| {
                let (deleted, after) = self.delete_once(&key, &present, options)?;
                match after {
                    After::Nothing => {}
                    After::Write(stored) => drop(self.server.after_write(&resource, stored)),
                    After::Delete(gone) => self.server.after_delete(&resource, &gone),
                    After::End(last) => marked = Some(last),
                }
                Ok(deleted)
            });
            let done = match (done, marked) {
                (Ok(_), Some(last)) => self.end(&key, last, admit).await,
                (done, _) => done,
            };
            match done {
                Err(StorageError::Conflict { .. }) => self.try_again()?,
                Err(error) => return Err(refused(&error).unwrap_or_else(|| Status::not_found(&resource, name))),
                Ok(deleted) => return self.shown(deleted).await,
            }
        }
    }

    /// Ends an object that has just been marked. Objects of a collection end without the pause: they are deleted one
    /// after another.
    async fn end(&self, key: &str, last: Arc<StoredObject>, admit: Admit) -> Result<Deleted, StorageError> {
        let marked = Marked {
            server: self.server,
            resource: &self.resource,
            key,
            last: Some(last),
        };
        let gone = match admit {
            Admit::Nameless => marked.end_now()?,
            Admit::Named | Admit::Nothing => marked.end_in_a_moment().await?,
        };
        Ok(Deleted::Gone(self.last_state(&gone)))
    }

    /// What the answer to a delete needs of an object that has ended.
    fn last_state(&self, gone: &StoredObject) -> Value {
        if self.resource.strategy.delete_returns_object {
            settled(&self.resource, gone)
        } else {
            metadata_of(gone.head())
        }
    }

    /// The state of an object after its delete, in the version of the request.
    async fn shown(&self, deleted: Deleted) -> Result<Deleted, Status> {
        let (server, resource) = (self.server, &self.resource);
        Ok(match deleted {
            Deleted::Gone(object) if resource.strategy.delete_returns_object => {
                Deleted::Gone(server.show_full(resource, object).await?)
            }
            Deleted::Gone(object) => Deleted::Gone(object),
            Deleted::WouldWait(object) => Deleted::WouldWait(server.show_full(resource, object).await?),
            Deleted::Waits(stored) => Deleted::Waits(server.show_one(resource, stored).await?),
        })
    }

    async fn admit_delete(
        &mut self,
        namespace: &str,
        name: &str,
        old: Value,
        options: &DeleteOptions,
        admit: Admit,
    ) -> Result<(), Status> {
        let mut attributes = self.attributes(Operation::Delete, "", namespace, name);
        match admit {
            Admit::Named => {}
            Admit::Nameless => attributes.name.clear(),
            Admit::Nothing => return Ok(()),
        }
        if self.resource.strategy.ending.is_some() {
            // Deletes of such kinds are always about the present object: its uid is a precondition.
            let preconditions = attributes.options.as_object_mut();
            let preconditions = preconditions.and_then(|options| ensure(options, "preconditions"));
            if let Some(preconditions) = preconditions {
                preconditions.entry("uid").or_insert_with(|| json!(object::uid(&old)));
            }
        }
        let session = self.session();
        let admitted = self.ask_delete(&session, attributes, old, options).await;
        let mut warnings = session.take_warnings();
        drop(session);
        self.warnings.append(&mut warnings);
        admitted
    }

    /// Lets the plugins refuse a delete. They see the resulting grace period. A delete that changes nothing calls no
    /// plugin. When the object ends at once, all plugins are called twice: before it is marked, and before it is
    /// removed.
    async fn ask_delete(
        &self,
        session: &Session<'_>,
        mut attributes: Attributes,
        mut old: Value,
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        let default = (self.resource.strategy.grace_period)(&old);
        if default.is_none() {
            return self.ask_plugins(session, &attributes, &old).await;
        }
        let mut marked = metadata_of(&old);
        let seconds = match self.grace(&mut marked, default, options) {
            Grace::None => None,
            Grace::Pending => return Ok(()),
            Grace::Seconds(seconds) => Some(seconds),
        };
        if let Some(seconds) = seconds {
            attributes.options["gracePeriodSeconds"] = json!(seconds);
        }
        self.ask_plugins(session, &attributes, &old).await?;
        self.dependents(&mut marked, options);
        if seconds == Some(0) && object::finalizers(&marked).is_empty() && !self.dry_run {
            old["metadata"] = marked["metadata"].take();
            self.ask_plugins(session, &attributes, &old).await?;
        }
        Ok(())
    }

    /// Asks the mutating and the validating plugins: a delete has no object to change.
    async fn ask_plugins(&self, session: &Session<'_>, attributes: &Attributes, old: &Value) -> Result<(), Status> {
        self.mutate(session, attributes, &mut Value::Null, Some(old)).await?;
        self.validate(session, attributes, &Value::Null, Some(old)).await
    }

    /// Deletes without admission and without consequences for definitions: the server's own clean-up.
    pub(crate) fn delete_now(&mut self, namespace: &str, name: &str) {
        let resource = self.resource.clone();
        let key = crate::model::form::key(namespace, name);
        while let Some(present) = self.server.storage.get(&resource.store, &key) {
            let result = self.delete_once(&key, &present, &DeleteOptions::default());
            // An object that was only marked now is removed in the next turn.
            if !matches!(result, Err(StorageError::Conflict { .. }) | Ok((_, After::End(_)))) {
                return;
            }
        }
    }

    fn delete_once(
        &mut self,
        key: &str,
        present: &Arc<StoredObject>,
        options: &DeleteOptions,
    ) -> Result<(Deleted, After), StorageError> {
        let resource = self.resource.clone();
        let mut marked = settled(&resource, present);
        if let Some(ending) = resource.strategy.ending {
            match (ending.delete)(&marked) {
                Delete::AsAny => {}
                Delete::Mark => {
                    self.mark_first(&mut marked, ending, options);
                    return self.store_mark(key, present, marked);
                }
                Delete::Stay => return self.store_mark(key, present, marked),
                Delete::StayWithoutGrace => {
                    object::metadata_mut(&mut marked).insert("deletionGracePeriodSeconds".to_owned(), json!(0));
                    return self.store_mark(key, present, marked);
                }
            }
        }
        let default = (resource.strategy.grace_period)(&marked);
        let was_marked = object::is_terminating(&marked);
        let grace = self.grace(&mut marked, default, options);
        if grace == Grace::Pending {
            let waits = if self.dry_run {
                Deleted::WouldWait(marked)
            } else {
                Deleted::Waits(present.clone())
            };
            return Ok((waits, After::Nothing));
        }
        self.dependents(&mut marked, options);
        let held = !object::finalizers(&marked).is_empty();
        if held && grace == Grace::None {
            self.mark(&mut marked, 0);
        }
        if held || matches!(grace, Grace::Seconds(seconds) if seconds > 0) {
            return self.store_mark(key, present, marked);
        }
        if self.dry_run {
            return Ok((Deleted::Gone(marked), After::Nothing));
        }
        // A kind with a grace period shows its end as a change of its own before it goes.
        let last = if matches!(grace, Grace::Seconds(_)) {
            let marked = to_stored(&resource, marked);
            let last = (self.server.storage).update(&resource.store, key, present.revision(), marked)?;
            if !was_marked {
                return Ok((Deleted::Gone(metadata_of(last.head())), After::End(last)));
            }
            last
        } else {
            drop(marked);
            present.clone()
        };
        let gone = self.server.storage.delete(&resource.store, key, last.revision())?;
        Ok((Deleted::Gone(self.last_state(&gone)), After::Delete(gone)))
    }

    fn store_mark(
        &self,
        key: &str,
        present: &Arc<StoredObject>,
        marked: Value,
    ) -> Result<(Deleted, After), StorageError> {
        let resource = &self.resource;
        if self.dry_run {
            return Ok((Deleted::WouldWait(marked), After::Nothing));
        }
        let stored =
            self.server
                .storage
                .update(&resource.store, key, present.revision(), to_stored(resource, marked))?;
        let changed = stored.revision() != present.revision();
        let after = if changed {
            After::Write(stored.clone())
        } else {
            After::Nothing
        };
        Ok((Deleted::Waits(stored), after))
    }

    /// Sets the deletionTimestamp of an object that finalizers hold.
    fn mark(&self, marked: &mut Value, grace: i64) {
        let now = rfc3339(self.server.env.now());
        let generation = object::generation(marked);
        let first = !object::is_terminating(marked);
        let metadata = object::metadata_mut(marked);
        if first {
            if generation > 0 {
                metadata.insert("generation".to_owned(), json!(generation + 1));
            }
            metadata.insert("deletionTimestamp".to_owned(), json!(now));
            metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
        }
    }

    /// The first mark of an object that ends in steps.
    fn mark_first(&self, marked: &mut Value, ending: &Ending, options: &DeleteOptions) {
        if ending.heeds_dependents {
            self.dependents(marked, options);
        }
        let now = self.server.env.now();
        object::metadata_mut(marked).insert("deletionTimestamp".to_owned(), json!(rfc3339(now)));
        (ending.mark)(marked, now);
    }

    /// The grace period of the delete; sets the times in `marked`, whose metadata are enough (the counterpart of
    /// `rest.BeforeDelete`).
    fn grace(&self, marked: &mut Value, default: Option<GracePeriod>, options: &DeleteOptions) -> Grace {
        let Some(default) = default else { return Grace::None };
        let asked = options
            .grace_period
            .map(|seconds| if seconds < 0 { 1 } else { seconds });
        if object::is_terminating(marked) {
            let present = object::grace_period(marked).unwrap_or(0);
            let Some(shorter) = asked.filter(|seconds| *seconds < present) else {
                return if present == 0 {
                    Grace::Seconds(0)
                } else {
                    Grace::Pending
                };
            };
            let end = object::text(marked, "deletionTimestamp")
                .parse::<jiff::Timestamp>()
                .unwrap_or_else(|_| self.server.env.now());
            let begun = env::later(end, -counted(present));
            set_grace(marked, env::later(begun, counted(shorter)), shorter);
            return Grace::Seconds(shorter);
        }
        let seconds = match default {
            GracePeriod::AtOnce => 0,
            GracePeriod::Seconds(default) => asked.unwrap_or(default),
        };
        let generation = object::generation(marked);
        set_grace(marked, env::later(self.server.env.now(), counted(seconds)), seconds);
        if generation > 0 {
            object::metadata_mut(marked).insert("generation".to_owned(), json!(generation + 1));
        }
        Grace::Seconds(seconds)
    }

    /// Puts or takes the finalizers of garbage collection; whether the dependents are orphaned.
    fn dependents(&self, marked: &mut Value, options: &DeleteOptions) {
        if !self.resource.strategy.has_dependents {
            return;
        }
        let present = object::finalizers(marked);
        let set: BTreeSet<&str> = present.iter().copied().collect();
        let has = |finalizer: &str| set.contains(finalizer);
        let orphan = match (options.orphan_dependents, options.propagation) {
            (Some(orphan), _) => orphan,
            (None, Some(propagation)) => propagation == Propagation::Orphan,
            (None, None) => has(ORPHAN) || (self.resource.strategy.orphan_by_default && !has(FOREGROUND_DELETION)),
        };
        let foreground = match (options.orphan_dependents, options.propagation) {
            (Some(_), _) => false,
            (None, Some(propagation)) => propagation == Propagation::Foreground,
            (None, None) => has(FOREGROUND_DELETION),
        };
        let mut next: Vec<String> = present
            .iter()
            .filter(|finalizer| ![ORPHAN, FOREGROUND_DELETION].contains(finalizer))
            .map(|finalizer| (*finalizer).to_owned())
            .collect();
        if orphan {
            next.push(ORPHAN.to_owned());
        }
        if foreground {
            next.push(FOREGROUND_DELETION.to_owned());
        }
        // The same finalizers in another order are no change.
        let same = next.len() == present.len() && next.iter().all(|finalizer| has(finalizer));
        if !same {
            object::set_finalizers(marked, next);
        }
    }
}

/// Longest grace period that is added to a time, in seconds: a century, so that the time stays one.
const MAX_GRACE: i64 = 100 * 365 * 24 * 3600;

/// How much of a grace period counts in a deletionTimestamp.
fn counted(seconds: i64) -> i64 {
    seconds.clamp(0, MAX_GRACE)
}

/// How much time an object gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grace {
    /// The kind knows none.
    None,
    /// It has begun and is not shortened.
    Pending,
    /// This much.
    Seconds(i64),
}

fn set_grace(marked: &mut Value, end: jiff::Timestamp, seconds: i64) {
    let metadata = object::metadata_mut(marked);
    metadata.insert("deletionTimestamp".to_owned(), json!(rfc3339(end)));
    metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(seconds));
}

/// An object with only the metadata of this one.
fn metadata_of(object: &Value) -> Value {
    json!({"metadata": object["metadata"]})
}
