//! Server-side apply: make an object be as desired, and send nothing when it is.
//!
//! The desired object has only the fields that the operator cares about, and the server merges it: these fields become
//! the operator's, fields that it no longer mentions go, everything else (defaults, other people's labels, fields that
//! the linked k8s-openapi does not know) stays. Lists merge by their keys. The operator is the field manager and takes
//! fields over from others (`force`), as controllers do.
//!
//! An apply that changes nothing is not sent. Digests of the applied configuration and of the server's result are
//! remembered: as long as both are the same, nothing would change. What an earlier process has applied is known from the
//! managedFields of a cached object (`form/applied.rs`): when they are exactly the fields of the configuration, with its
//! values, the first apply of this process changes nothing either. So an operator that starts anew writes what its new
//! version wants otherwise, and nothing else.
//!
//! Invariants: `status` is never written here; null means "not set"; a value that the server does not show as it was
//! applied, because it normalises (`1000m` is stored as `1`) or prunes it, is applied again after [`RESEND`] and not
//! for ever taken for done.
//!
//! Not here: the merge, it is the server's.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, ObjectMeta};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::client::{Client, Target};
use crate::error::{Error, Result};
use crate::form::applied::AppliedFields;
use crate::form::{Cached, Form, typed};
use crate::object::{Object, ObjectRef, group_of};

/// After so long an apply is sent again whose fields the server does not show as they were applied: a definition may
/// have learned them.
const RESEND: Duration = Duration::from_secs(600);

/// The object that owns applied objects.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    resource: ApiResource,
    namespace: Option<String>,
    name: String,
    uid: String,
}

impl Owner {
    pub(crate) fn of<K: Object>(object: &K) -> Option<Owner> {
        Owner::of_form(&Form::of::<K>(), object.meta())
    }

    pub(crate) fn of_form(form: &Form, meta: &ObjectMeta) -> Option<Owner> {
        Some(Owner {
            resource: form.resource.clone(),
            namespace: meta.namespace.clone().filter(|_| !form.cluster_scoped),
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
        })
    }

    fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.resource.api_version.clone(),
            kind: self.resource.kind.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    fn is_same_object(&self, resource: &ApiResource, meta: &ObjectMeta) -> bool {
        resource.group == self.resource.group
            && resource.kind == self.resource.kind
            && meta.name.as_deref() == Some(&self.name)
            && meta.namespace == self.namespace
    }
}

impl Client {
    /// Makes the object be as `desired`, without an owner; see [`crate::Context::apply`].
    ///
    /// # Errors
    /// As [`crate::Context::apply`].
    pub async fn apply<K: Object>(&self, desired: K) -> Result<Arc<K>> {
        self.apply_for(None, desired).await
    }

    /// Makes the object be as `desired`, controlled by `owner`; see [`crate::Context::apply`].
    ///
    /// # Errors
    /// As [`crate::Context::apply`]; [`Error::Terminal`] when the owner was never stored and so has no uid.
    pub async fn apply_owned<K: Object, O: Object>(&self, owner: &O, desired: K) -> Result<Arc<K>> {
        let Some(owner) = Owner::of(owner) else {
            let kind = O::kind(&());
            return Err(Error::terminal(format!(
                "metadata.uid: a {kind} that was not read from the API cannot own anything"
            )));
        };
        self.apply_for(Some(&owner), desired).await
    }

    pub(crate) async fn apply_for<K: Object>(&self, owner: Option<&Owner>, mut desired: K) -> Result<Arc<K>> {
        let form = Form::of::<K>();
        prepare(owner, &form, desired.meta_mut())?;
        self.apply_shared(owner, &form, &desired).await.map(typed)
    }

    fn apply_shared<'a>(
        &'a self,
        owner: Option<&'a Owner>,
        form: &'a Form,
        desired: &'a dyn Cached,
    ) -> BoxFuture<'a, Result<Arc<dyn Cached>>> {
        Box::pin(async move {
            let wanted = to_desired(form, desired)?;
            let meta = desired.metadata();
            let target = Target::of_object(form, &meta)?;
            let live = self.present(form, &target).await?;
            if let Some(live) = &live {
                check_controller(owner, &target, &live.metadata())?;
            }
            let key = (
                self.field_manager().to_owned(),
                ObjectRef::named(target.resource, target.namespace, target.name),
            );
            if let Some(live) = &live
                && self.applied().holds(
                    &key,
                    &State::of(&live.metadata(), &wanted, &live.json()?),
                    Instant::now(),
                )
            {
                return Ok(live.clone());
            }
            if let Some(live) = &live
                && self.was_applied(form, &target, &wanted, &**live).await?
            {
                let state = State::of(&live.metadata(), &wanted, &live.json()?);
                self.applied().remember(key, state, Instant::now());
                return Ok(live.clone());
            }
            if live.is_none() {
                self.applied().forget(&key);
            }
            let verb = if live.is_some() { "patch" } else { "create" };
            let written = self.send_apply(form, &target, verb, &wanted, live.as_deref()).await?;
            if !self.is_dry_run() {
                let state = State::of(&written.metadata(), &wanted, &written.json()?);
                self.applied().remember(key, state, Instant::now());
            }
            Ok(written)
        })
    }
}

impl Client {
    /// The object as it is now: from the cache where there is one of its kind, and from the API server where there is
    /// none. Applying alone starts no watch: what is only written need not be cached.
    async fn present(&self, form: &Form, target: &Target<'_>) -> Result<Option<Arc<dyn Cached>>> {
        match self.cache().is_read(form) {
            true => self.get_of(form, target.namespace, target.name).await,
            false => self.live_shared(form, target.namespace, target.name).await,
        }
    }
}

impl Client {
    /// Whether the cached object shows that this configuration was applied by this field manager, in this state of it.
    async fn was_applied(&self, form: &Form, target: &Target<'_>, wanted: &Value, live: &dyn Cached) -> Result<bool> {
        if !self.cache().is_read(form) {
            return Ok(false);
        }
        let at_rest = self.at_rest(form, target.namespace, target.name).await?;
        let same = at_rest.filter(|at_rest| at_rest.object_id().version == live.object_id().version);
        let Some(same) = same.filter(|same| !same.applied().is_empty()) else {
            return Ok(false);
        };
        Ok(AppliedFields::hold(
            same.applied(),
            self.field_manager(),
            wanted,
            &same.json()?,
        ))
    }
}

/// Fills in the fields that the owner implies, and refuses an object that cannot be applied.
fn prepare(owner: Option<&Owner>, form: &Form, meta: &mut ObjectMeta) -> Result<()> {
    let kind = &form.resource.kind;
    if meta.name.as_deref().unwrap_or_default().is_empty() {
        return Err(Error::terminal(format!(
            "metadata.name: apply needs to know which {kind} is meant; generateName cannot be applied"
        )));
    }
    if form.cluster_scoped {
        meta.namespace = None;
    } else if meta.namespace.is_none() {
        meta.namespace = owner.and_then(|owner| owner.namespace.clone());
        if meta.namespace.is_none() {
            let name = meta.name.as_deref().unwrap_or_default();
            return Err(Error::terminal(format!(
                "metadata.namespace: {kind} {name} is namespaced; say in which namespace it is to be"
            )));
        }
    }
    let Some(owner) = owner.filter(|owner| !owner.is_same_object(&form.resource, meta)) else {
        return Ok(());
    };
    if owner.namespace.is_some() && owner.namespace != meta.namespace {
        let object = ObjectRef::new(&form.resource, meta);
        let owner = ObjectRef::named(&owner.resource, owner.namespace.as_deref(), &owner.name);
        return Err(Error::terminal(format!(
            "metadata.ownerReferences: {owner} cannot own {object}: a namespaced owner owns only objects of its own namespace. Write it \
             with ctx.client().apply and clean it up in a finalizer instead"
        )));
    }
    let references = meta.owner_references.get_or_insert_default();
    references.retain(|reference| reference.uid != owner.uid);
    references.push(owner.reference());
    Ok(())
}

/// Refuses an object that another controller controls.
fn check_controller(owner: Option<&Owner>, target: &Target<'_>, live: &ObjectMeta) -> Result<()> {
    let Some(owner) = owner else { return Ok(()) };
    let controller = live
        .owner_references
        .iter()
        .flatten()
        .find(|reference| reference.controller == Some(true));
    let Some(controller) = controller.filter(|controller| controller.uid != owner.uid) else {
        return Ok(());
    };
    let former = group_of(&controller.api_version) == owner.resource.group
        && controller.kind == owner.resource.kind
        && controller.name == owner.name;
    let hint = if former {
        " (a former object of the same name; the garbage collector removes what it owned)"
    } else {
        ""
    };
    Err(Error::AlreadyOwned {
        object: ObjectRef::named(target.resource, target.namespace, target.name).to_string(),
        owner: format!(
            "{} {} with uid {}{hint}",
            controller.kind, controller.name, controller.uid
        ),
        wanted: format!("{} {} with uid {}", owner.resource.kind, owner.name, owner.uid),
    })
}

/// The part of an object that is applied: its kind, no status, no nulls, no field that only the server sets.
fn to_desired(form: &Form, desired: &dyn Cached) -> Result<Value> {
    let mut value = desired.json()?;
    drop_nulls(&mut value);
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
        object.insert("apiVersion".to_owned(), json!(form.resource.api_version));
        object.insert("kind".to_owned(), json!(form.resource.kind));
        if let Some(Value::Object(meta)) = object.get_mut("metadata") {
            for server_side in [
                "creationTimestamp",
                "deletionTimestamp",
                "generation",
                "managedFields",
                "resourceVersion",
                "uid",
                "selfLink",
            ] {
                meta.remove(server_side);
            }
        }
    }
    Ok(value)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The JSON merge patch (RFC 7386) from one value to another; `None` when they are equal.
pub(crate) fn merge_patch_between(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return Some(after.clone());
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(present) => {
                if let Some(difference) = merge_patch_between(present, value) {
                    patch.insert(key.clone(), difference);
                }
            }
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    Some(Value::Object(patch))
}

/// Whether a merge patch would replace a list: then it needs a lock, or items that other clients wrote into the list
/// are lost (K6).
pub(crate) fn replaces_a_list(patch: &Value) -> bool {
    match patch {
        Value::Array(_) => true,
        Value::Object(map) => map.values().any(replaces_a_list),
        _ => false,
    }
}

/// An object under a field manager.
type Key = (String, ObjectRef);

/// The configuration that was applied to an object, and the object's values under the applied fields.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    /// Another incarnation has none of our fields.
    uid: Option<String>,
    applied: u64,
    present: u64,
    /// Every field is as it was applied.
    reflected: bool,
}

impl State {
    fn of(meta: &ObjectMeta, wanted: &Value, object: &Value) -> State {
        State {
            uid: meta.uid.clone(),
            applied: digest(wanted),
            present: digest(&under(wanted, object)),
            reflected: reflects(object, wanted),
        }
    }
}

fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

/// The values that an object has where another one has fields. Lists are taken as a whole: an item that another client
/// adds to one of ours changes it.
fn under(fields: &Value, object: &Value) -> Value {
    match (fields, object) {
        (Value::Object(fields), Value::Object(object)) => fields
            .iter()
            .map(|(key, fields)| (key.clone(), under(fields, object.get(key).unwrap_or(&Value::Null))))
            .collect::<Map<String, Value>>()
            .into(),
        _ => object.clone(),
    }
}

/// Whether an object has everything that is wanted, somewhere in its lists.
fn reflects(object: &Value, wanted: &Value) -> bool {
    match (object, wanted) {
        (Value::Object(object), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| match object.get(key) {
            Some(present) => reflects(present, wanted),
            // Types that know their kind need not say it.
            None => ["apiVersion", "kind"].contains(&key.as_str()),
        }),
        (Value::Array(object), Value::Array(wanted)) => wanted
            .iter()
            .all(|wanted| object.iter().any(|present| reflects(present, wanted))),
        _ => object == wanted,
    }
}

/// The applied configurations, one entry per object and field manager, bounded.
#[derive(Debug, Default)]
pub(crate) struct Applied(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    known: BTreeMap<Key, Entry>,
    /// How many were remembered since old entries were last looked for.
    since: usize,
}

#[derive(Debug)]
struct Entry {
    state: State,
    sent: Instant,
    asked: Instant,
}

/// So many objects are remembered. One that is applied beyond that is sent each time, and takes no other's place: were
/// it to, a pass over more objects than this would find none of them.
const MEMORY: usize = 100_000;

/// What nobody has asked for in this time is forgotten, such as an object that was deleted; the price of a mistake is
/// one idle request.
const FORGOTTEN: Duration = Duration::from_secs(3 * 3600);

impl Applied {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether applying would change nothing: the same was applied, and the object is as the server made it then.
    fn holds(&self, key: &Key, state: &State, now: Instant) -> bool {
        let mut memory = self.memory();
        memory.known.get_mut(key).is_some_and(|entry| {
            entry.asked = now;
            let fresh = entry.state.reflected || now.duration_since(entry.sent) < RESEND;
            entry.state == *state && fresh
        })
    }

    fn remember(&self, key: Key, state: State, now: Instant) {
        let mut memory = self.memory();
        memory.since += 1;
        // Each entry is looked at once for each that was remembered, on average.
        if memory.since > memory.known.len() {
            memory.since = 0;
            memory
                .known
                .retain(|_, entry| now.duration_since(entry.asked) < FORGOTTEN);
        }
        if memory.known.len() < MEMORY || memory.known.contains_key(&key) {
            let entry = Entry {
                state,
                sent: now,
                asked: now,
            };
            memory.known.insert(key, entry);
        }
    }

    /// The object is not there any more.
    fn forget(&self, key: &Key) {
        self.memory().known.remove(key);
    }
}

#[cfg(test)]
mod tests;
