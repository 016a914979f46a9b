//! Create-or-patch: make an object be as desired, and send nothing when it is.
//!
//! The desired object says only what the operator cares about. What the live object has besides (defaults, other people's labels) stays.
//! The plan is made without IO by [`plan`]: overlay `desired` on the live object, compare, and send the difference as a JSON merge patch,
//! which every kind accepts. A list that `desired` sets becomes exactly that list: its elements are laid over their counterparts in the live
//! list (by `name` where all elements have one, by position otherwise), so that defaulted fields inside stay and removed elements go.
//! A patch that replaces a list carries the resourceVersion it was computed from, because a list replaced blindly is a lost update (K6).
//!
//! Known limit, until server-side apply takes over behind the same signature: a field that `desired` no longer mentions is not removed
//! from the live object, except inside lists whose element went.
//!
//! Invariants: `status` is never written here; null means "not set"; nothing is sent that changes nothing, also when the server normalises a
//! value (`1000m` is stored as `1`): a patch that turned out to change nothing is remembered and not sent again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Patch;
use kube::core::{ApiResource, ObjectMeta};
use serde_json::{Map, Value, json};

use crate::client::{Client, Target};
use crate::error::{Error, Result};
use crate::form::{Cached, Form, typed};
use crate::object::{Object, ObjectRef, group_of};

/// How often a patch that lost a race against another writer is computed anew from the live object before the conflict is returned.
const CONFLICT_RETRIES: usize = 3;

/// The object that owns what is applied.
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
            let desired_json = to_desired(desired)?;
            let target = Target::of_object(form, desired.metadata())?;
            let mut live = self.get_of(form, target.namespace, target.name).await?;
            for attempt in 0.. {
                let result = match &live {
                    None => self.create_shared(form, desired).await,
                    Some(live) => self.patch_towards(owner, form, &target, &desired_json, live).await,
                };
                // Lost a race: somebody created or changed it meanwhile. The cache may not know yet, so ask the API.
                match result {
                    Err(error)
                        if attempt < CONFLICT_RETRIES
                            && (error.is_conflict() || (live.is_none() && error.is_already_exists())) =>
                    {
                        live = self.live_shared(form, target.namespace, target.name).await?;
                    }
                    Err(error) if attempt < CONFLICT_RETRIES && live.is_some() && error.is_not_found() => live = None,
                    result => return result,
                }
            }
            unreachable!("the last attempt returns its result")
        })
    }

    async fn patch_towards(
        &self,
        owner: Option<&Owner>,
        form: &Form,
        target: &Target<'_>,
        desired: &Value,
        live: &Arc<dyn Cached>,
    ) -> Result<Arc<dyn Cached>> {
        check_controller(owner, target, live.metadata())?;
        let live_json = live.json()?;
        let Some(mut patch) = plan(&live_json, desired) else {
            return Ok(live.clone());
        };
        let memory = NoOp::new(target, &patch, &live_json);
        if self.no_ops().contains(&memory) {
            return Ok(live.clone());
        }
        if let Some(version) = live
            .metadata()
            .resource_version
            .as_ref()
            .filter(|_| replaces_a_list(&patch))
        {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        let patched = self
            .patch_shared(form, target.namespace, target.name, None, &Patch::Merge(patch))
            .await?;
        if patched.metadata().resource_version == live.metadata().resource_version {
            self.no_ops().insert(memory);
        }
        Ok(patched)
    }
}

/// Fills in what the owner implies, and refuses what cannot work.
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

/// Refuses an object that somebody else controls.
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

/// The part of an object that apply speaks about: no status, no nulls, nothing that only the server sets.
fn to_desired(desired: &dyn Cached) -> Result<Value> {
    let mut value = desired.json()?;
    drop_nulls(&mut value);
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
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

/// The merge patch that makes `live` as `desired`; `None` when it is.
pub(crate) fn plan(live: &Value, desired: &Value) -> Option<Value> {
    let mut merged = overlay(live, desired);
    // Owners and finalizers belong to everybody: ours are added, nobody's are dropped.
    for (field, key) in [("ownerReferences", Some("uid")), ("finalizers", None)] {
        if let (Some(Value::Array(theirs)), Some(Value::Array(ours))) =
            (live["metadata"].get(field), desired["metadata"].get(field))
        {
            merged["metadata"][field] = Value::Array(union(theirs, ours, key));
        }
    }
    merge_patch_between(live, &merged)
}

fn overlay(live: &Value, desired: &Value) -> Value {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            let mut merged = live.clone();
            for (key, value) in desired {
                let under = live.get(key).unwrap_or(&Value::Null);
                merged.insert(key.clone(), overlay(under, value));
            }
            Value::Object(merged)
        }
        (Value::Array(live), Value::Array(desired)) => {
            let by_name = !desired.is_empty() && names(live).is_some() && names(desired).is_some();
            let counterpart = |index: usize, wanted: &Value| match by_name {
                true => live.iter().find(|element| element["name"] == wanted["name"]),
                false => live.get(index),
            };
            let elements = desired.iter().enumerate();
            Value::Array(
                elements
                    .map(|(index, wanted)| overlay(counterpart(index, wanted).unwrap_or(&Value::Null), wanted))
                    .collect(),
            )
        }
        _ => desired.clone(),
    }
}

/// The names of the elements, when every element has one and no two have the same.
fn names(elements: &[Value]) -> Option<Vec<&str>> {
    let mut names: Vec<&str> = elements
        .iter()
        .map(|element| element.get("name")?.as_str())
        .collect::<Option<_>>()?;
    names.sort_unstable();
    names.windows(2).all(|pair| pair[0] != pair[1]).then_some(names)
}

fn union(theirs: &[Value], ours: &[Value], key: Option<&str>) -> Vec<Value> {
    let same = |a: &Value, b: &Value| key.map_or(a == b, |key| a[key] == b[key]);
    let mut all = theirs.to_vec();
    for our in ours {
        match all.iter_mut().find(|their| same(their, our)) {
            Some(their) => *their = overlay(their, our),
            None => all.push(our.clone()),
        }
    }
    all
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

/// Whether a merge patch would replace a list: then it needs a lock, or what others wrote into the list is lost (K6).
pub(crate) fn replaces_a_list(patch: &Value) -> bool {
    match patch {
        Value::Array(_) => true,
        Value::Object(map) => map.values().any(replaces_a_list),
        _ => false,
    }
}

/// A patch that the server accepted without changing anything: the object, and a digest of the patch and of the live values it was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoOp {
    object: ObjectRef,
    digest: u64,
}

impl NoOp {
    fn new(target: &Target<'_>, patch: &Value, live: &Value) -> NoOp {
        let mut hasher = DefaultHasher::new();
        patch.to_string().hash(&mut hasher);
        under(patch, live).to_string().hash(&mut hasher);
        NoOp {
            object: ObjectRef::named(target.resource, target.namespace, target.name),
            digest: hasher.finish(),
        }
    }
}

/// The live values of the fields that a patch is about.
fn under(patch: &Value, live: &Value) -> Value {
    match (patch, live) {
        (Value::Object(patch), Value::Object(live)) => patch
            .iter()
            .map(|(key, patch)| (key.clone(), under(patch, live.get(key).unwrap_or(&Value::Null))))
            .collect::<Map<String, Value>>()
            .into(),
        _ => live.clone(),
    }
}

/// Patches that are known to change nothing, one per object, bounded.
#[derive(Debug, Default)]
pub(crate) struct NoOpMemory(Mutex<BTreeMap<ObjectRef, u64>>);

/// Beyond this many objects the memory starts over; the price is one idle request for each.
const MEMORY: usize = 10_000;

impl NoOpMemory {
    fn contains(&self, no_op: &NoOp) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&no_op.object) == Some(&no_op.digest)
    }

    fn insert(&self, no_op: NoOp) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MEMORY {
            known.clear();
        }
        known.insert(no_op.object, no_op.digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_plan_is_the_smallest_patch_or_nothing() {
        let check = |live: Value, desired: Value, expected: Option<Value>| {
            assert_eq!(plan(&live, &desired), expected, "{live} ← {desired}");
        };
        // What desired does not mention stays, what it mentions and has is not sent.
        check(
            json!({"spec": {"replicas": 2, "paused": false}}),
            json!({"spec": {"replicas": 2}}),
            None,
        );
        check(
            json!({"spec": {"replicas": 2, "paused": false}}),
            json!({"spec": {"replicas": 3}}),
            Some(json!({"spec": {"replicas": 3}})),
        );
        // Defaulted keys inside list elements are no difference, in whatever order named elements come to be.
        check(
            json!({"c": [{"name": "a", "image": "x", "imagePullPolicy": "Always"}]}),
            json!({"c": [{"name": "a", "image": "x"}]}),
            None,
        );
        check(
            json!({"c": [{"name": "a", "image": "x", "pull": "Always"}, {"name": "b", "image": "y"}]}),
            json!({"c": [{"name": "b", "image": "y"}]}),
            Some(json!({"c": [{"name": "b", "image": "y"}]})),
        );
        check(
            json!({"ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}]}),
            json!({"ports": [{"port": 81}]}),
            Some(json!({"ports": [{"port": 81, "nodePort": 30000, "protocol": "TCP"}]})),
        );
        check(
            json!({"args": ["a", "b"]}),
            json!({"args": ["a"]}),
            Some(json!({"args": ["a"]})),
        );
        check(json!({"args": ["a"]}), json!({"args": ["a"]}), None);
        // Other owners and finalizers stay.
        check(
            json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "x"}], "finalizers": ["a"]}}),
            json!({"metadata": {"ownerReferences": [{"uid": "2", "name": "y"}], "finalizers": ["a"]}}),
            Some(json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "x"}, {"uid": "2", "name": "y"}]}})),
        );
        check(
            json!({"metadata": {"labels": {"theirs": "1", "ours": "1"}}}),
            json!({"metadata": {"labels": {"ours": "2"}}}),
            Some(json!({"metadata": {"labels": {"ours": "2"}}})),
        );
    }

    fn merge(target: &Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else {
            return patch.clone();
        };
        let mut result = target.as_object().cloned().unwrap_or_default();
        for (key, value) in patch {
            match value {
                Value::Null => drop(result.remove(key)),
                value => drop(result.insert(key.clone(), merge(result.get(key).unwrap_or(&Value::Null), value))),
            }
        }
        Value::Object(result)
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..3i64).prop_map(Value::from),
            "[ab]{0,1}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]|name", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[abc]|metadata", value(), 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        /// Applied once, nothing is left to apply: what makes "send nothing when nothing changes" true.
        #[test]
        fn a_plan_that_was_carried_out_leaves_nothing_to_do(live in object(), desired in object()) {
            let after = plan(&live, &desired).map_or(live.clone(), |patch| merge(&live, &patch));
            prop_assert_eq!(plan(&after, &desired), None);
        }

        #[test]
        fn a_merge_patch_leads_from_one_value_to_the_other(before in object(), after in object()) {
            let patched = merge_patch_between(&before, &after).map_or(before.clone(), |patch| merge(&before, &patch));
            prop_assert_eq!(patched, after);
        }
    }
}
