//! From one version of a kind to another.
//!
//! Built-in kinds move through their stored form. A stored custom resource says in its `apiVersion` which version it is
//! of, because the storage version may change while old objects stay as they are. The versions have the same fields
//! (strategy `None`), or a webhook converts them.
//!
//! A definition may change as well while objects stay as they are, so a custom resource takes the form of the present
//! schema when it is read: fields that the schema has lost go, defaults that it has gained come
//! (`schemaCoercingDecoder`, `unstructuredDefaulter` of apiextensions-apiserver). Unlike upstream, defaults are left out
//! of an object that would become too large to be stored ([`MOST`]): it can still be read and deleted. Most objects of
//! kinds with one version are of the present form anyway, and are not even decoded: [`is_current`] tells by their
//! revision and the first bytes of their text.
//!
//! Invariants: an object from storage is never shown before [`Inner::show`] saw it; an object of a kind with one version
//! is stored in the form of the definition at that time, because later reads trust its revision.

use crate::model::form::object_type;
use std::sync::Arc;

use kubewright_schema::apply::{ObjectType, VersionView, View, Views};
use kubewright_schema::schema::{GroupVersionKind, SchemaRef};
use kubewright_schema::{budget, catalog, structural};
use serde_json::{Map, Value, json};

use super::conversion_review::{self, Conversion};
use super::options::FieldValidation;
use super::respond::{after_version, begins_after_kind};
use super::{Inner, decode, embedded, managed};
use crate::env::Env;
use crate::model::form::with_kind;
use crate::model::status::Status;
use crate::model::{Custom, Resource, Versions};
use crate::outbound::Outbound;
use crate::registry::Snapshot;
use crate::scheme::split_version;
use crate::server::write::to_stored;
use crate::storage::{Change, StoredObject};

/// How much is sent for conversion at once, in bytes of JSON: half of the limit for an answer, because conversions may
/// add fields.
const MAX_BATCH: usize = 3 << 19;

/// How large an object may become by the defaults that its definition has gained, in bytes: as large as one that is stored.
const MOST: u64 = 3 << 19;

/// The parts that a conversion needs, for users that outlive a request (watches).
#[derive(Clone)]
pub(crate) struct Converter {
    env: Arc<dyn Env>,
    outbound: Arc<dyn Outbound>,
}

/// The versions of a custom kind.
fn versions(resource: &Resource) -> Option<&Versions> {
    resource.custom.as_ref().map(|custom| &custom.versions)
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or("")
}

/// Removes fields from a custom resource that a conversion or a plugin left and its version does not have. Defaults are
/// not filled in: they belong to requests.
pub(crate) fn prune(object: &mut Value, resource: &Resource) {
    structural::prune(object, &resource.schema, structural::PruneOptions::CUSTOM_RESOURCE);
}

/// The version of a stored custom resource.
fn stored_version<'a>(object: &'a Value, versions: &'a Versions) -> &'a str {
    match text(object, "apiVersion") {
        "" => &versions.first,
        version => version.rsplit('/').next().unwrap_or_default(),
    }
}

/// Whether a stored object has the form of the present definition: it was written under that, and its kind has one
/// version. Where there are several, a write in another version than the stored one does not fill in the defaults of the
/// stored one; a read does. Nothing says in which version an object was written.
fn has_present_form(custom: &Custom, revision: u64) -> bool {
    revision > custom.revision && custom.versions.schemas.len() == 1
}

/// Whether a stored object is what the version of `resource` shows. It is read no further than to its `apiVersion`, so
/// the answer may be a needless no.
pub(crate) fn is_current(resource: &Resource, revision: u64, text: &[u8]) -> bool {
    let Some(custom) = &resource.custom else { return true };
    has_present_form(custom, revision)
        && match after_version(resource, text) {
            Some(_) => true,
            None => begins_after_kind(text) && *custom.versions.first == *resource.version,
        }
}

/// A stored object as it is, with its kind and its own version.
pub(crate) fn as_stored(resource: &Resource, stored: Value) -> Value {
    let Some(versions) = versions(resource) else {
        return crate::model::form::full_of(resource, stored);
    };
    let mut object = stored;
    if let Some(map) = object.as_object_mut() {
        map.insert("kind".to_owned(), json!(resource.kind));
        map.entry("apiVersion")
            .or_insert_with(|| json!(format!("{}/{}", resource.group, versions.first)));
    }
    object
}

/// [`as_stored`], in the form that the present definition gives it in its own version.
pub(crate) fn settled(resource: &Resource, stored: &StoredObject) -> Value {
    let kept = || as_stored(resource, stored.value().clone());
    let mut object = kept();
    if let Some(custom) = &resource.custom
        && !has_present_form(custom, stored.revision())
        && let Some(schema) = custom.versions.schemas.get(stored_version(&object, &custom.versions))
    {
        settle(&mut object, schema);
        if !fills(&mut object, schema, stored.encoded().len()) {
            object = kept();
            settle(&mut object, schema);
        }
    }
    object
}

/// Takes from a custom resource of some version what its schema does not have.
fn settle(object: &mut Value, schema: &SchemaRef) {
    embedded::drop_malformed(object, schema);
    structural::prune(object, schema, structural::PruneOptions::CUSTOM_RESOURCE);
}

/// Fills in the defaults of an object of so many bytes; false when that would make it too large: it is half filled then.
fn fills(object: &mut Value, schema: &SchemaRef, bytes: usize) -> bool {
    let room = MOST.saturating_sub(bytes as u64);
    let left = budget::left();
    let made = budget::share(MOST, || {
        let before = budget::left().bytes;
        structural::default(object, schema);
        before.saturating_sub(budget::left().bytes)
    });
    if made.is_none() && left.bytes.min(left.steps) < MOST {
        // It is the request that has too little left, and not the object that is too large.
        budget::spend(usize::MAX);
    }
    made.is_some_and(|made| made <= room)
}

/// How many of these objects, one at least, fit into one review.
fn batch(objects: &[&mut Value]) -> usize {
    let mut size = 0;
    let fitting = objects.iter().take_while(|object| {
        size += object.to_string().len();
        size <= MAX_BATCH
    });
    fitting.count().max(1)
}

impl Converter {
    /// Full objects of a custom kind in the version `to`.
    async fn convert(
        &self,
        resource: &Resource,
        versions: &Versions,
        mut objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, Status> {
        let differ = |object: &&mut Value| text(object, "apiVersion") != to;
        let Some(webhook) = &versions.webhook else {
            for object in objects.iter_mut().filter_map(Value::as_object_mut) {
                object.insert("apiVersion".to_owned(), json!(to));
            }
            return Ok(objects);
        };
        let mut waiting: Vec<&mut Value> = objects.iter_mut().filter(differ).collect();
        if waiting.is_empty() {
            return Ok(objects);
        }
        let conversion = Conversion {
            webhook,
            kind: &resource.kind,
            to,
        };
        let mut left = waiting.as_mut_slice();
        while !left.is_empty() {
            let (asked, rest) = left.split_at_mut(batch(left));
            let objects = asked.iter().map(|object| (**object).clone()).collect();
            let converted = conversion_review::ask(&conversion, self.env.as_ref(), self.outbound.as_ref(), objects)
                .await
                .map_err(Status::untyped)?;
            for (slot, converted) in asked.iter_mut().zip(converted) {
                **slot = converted;
            }
            left = rest;
        }
        Ok(objects)
    }

    /// Stored objects as the version of `resource` shows them.
    pub(crate) async fn show(
        &self,
        resource: &Resource,
        items: Vec<Arc<StoredObject>>,
    ) -> Result<Vec<Arc<StoredObject>>, Status> {
        let Some(versions) = versions(resource) else {
            return Ok(items);
        };
        let to = resource.api_version();
        let mut shown = Vec::with_capacity(items.len());
        // Of those that must be looked at: the place, and whether it is of another version.
        let mut places = Vec::new();
        let mut objects = Vec::new();
        for item in items {
            if !is_current(resource, item.revision(), item.encoded()) {
                // An object that was not read before is read on a copy, so that its tree goes when it is shown as stored.
                let tree = if item.is_read() {
                    item.clone()
                } else {
                    Arc::new(item.text_alone())
                };
                let mut object = settled(resource, &tree);
                if !versions.schemas.contains_key(stored_version(&object, versions)) {
                    return Err(Status::untyped(format!(
                        "request to convert CR from an invalid group/version: {}",
                        text(&object, "apiVersion")
                    )));
                }
                let foreign = text(&object, "apiVersion") != to;
                if foreign || !is_but_for_kind(&object, tree.value()) {
                    // A conversion webhook sees the stored object, which has no version of its own.
                    crate::model::object::metadata_mut(&mut object).remove("resourceVersion");
                    places.push((shown.len(), foreign));
                    objects.push(object);
                }
            }
            shown.push(item);
        }
        let converted = self.convert(resource, versions, objects, &to).await?;
        for (mut object, (place, foreign)) in converted.into_iter().zip(places) {
            if foreign {
                prune(&mut object, resource);
            }
            if let Some(map) = object.as_object_mut() {
                map.remove("apiVersion");
                map.remove("kind");
            }
            let item: &mut Arc<StoredObject> = &mut shown[place];
            *item = Arc::new(StoredObject::new(item.revision(), object));
        }
        Ok(shown)
    }

    /// A change as the version of `resource` shows it.
    pub(crate) async fn show_change(&self, resource: &Resource, change: Arc<Change>) -> Result<Arc<Change>, Status> {
        // A delete has a revision, and the content of the last write, whose revision tells of which form it is.
        let last = change.before.as_ref().filter(|_| change.deleted);
        let mut items = vec![last.unwrap_or(&change.after).clone()];
        items.extend(change.before.clone());
        let mut shown = self.show(resource, items).await?.into_iter();
        let Some(mut after) = shown.next() else {
            return Ok(change);
        };
        if last.is_some() {
            after = Arc::new(StoredObject::new(change.after.revision(), after.value().clone()));
        }
        Ok(Arc::new(Change::new(
            change.key.clone(),
            shown.next(),
            after,
            change.deleted,
        )))
    }
}

/// Whether a full object is a stored one, which may lack its version and has no kind.
fn is_but_for_kind(object: &Value, stored: &Value) -> bool {
    let (Some(object), Some(stored)) = (object.as_object(), stored.as_object()) else {
        return object == stored;
    };
    let fields = |map: &Map<String, Value>| map.len() - usize::from(map.contains_key("apiVersion"));
    fields(object) == fields(stored).saturating_add(1)
        && stored.iter().all(|(field, value)| object.get(field) == Some(value))
}

/// Whether the versions of a built-in kind differ in their fields, so that functions convert between them.
pub(crate) fn has_functions(kinds: &Snapshot, resource: &Resource) -> bool {
    let has = |row: &Arc<Resource>| row.conversion.is_some();
    resource.custom.is_none() && (resource.conversion.is_some() || kinds.equivalents(resource).iter().any(has))
}

/// The schema of a version of a custom kind.
fn schema_of(resource: &Resource, custom: &Custom, api_version: &str) -> Option<SchemaRef> {
    if api_version == resource.api_version() {
        return Some(resource.schema.clone());
    }
    let (group, version) = api_version.split_once('/')?;
    custom
        .versions
        .schemas
        .get(version)
        .filter(|_| group == resource.group)
        .cloned()
}

/// An object as another version of its custom kind has it, where all have the same values.
pub(crate) fn in_version(resource: &Resource, object: &Value, to: &str) -> Option<(ObjectType, Value)> {
    let schema = schema_of(resource, resource.custom.as_ref()?, to)?;
    Some((ObjectType::custom(schema), object.clone()))
}

/// Whether versions of a custom kind may have schemas of their own for the same values.
pub(crate) fn has_other_schemas(resource: &Resource) -> bool {
    versions(resource).is_some_and(|versions| versions.webhook.is_none())
}

/// The same kind in another version, if that is served.
fn row_of(kinds: &Snapshot, resource: &Resource, api_version: &str) -> Option<Arc<Resource>> {
    let (group, version) = split_version(api_version);
    let row = kinds.lookup(group, version, &resource.plural);
    row.filter(|row| row.store == resource.store)
}

/// An object of a built-in kind in another of its versions, and how fields are looked at there.
pub(crate) fn convert_by_function(
    kinds: &Snapshot,
    resource: &Resource,
    object: &Value,
    from: &str,
    to: &str,
) -> Option<(ObjectType, Value)> {
    let (from, to) = (row_of(kinds, resource, from)?, row_of(kinds, resource, to)?);
    let stored = from
        .conversion
        .map_or_else(|| object.clone(), |conversion| (conversion.unfilled[0])(object.clone()));
    let mut seen = match to.conversion {
        Some(conversion) => (conversion.unfilled[1])(stored),
        None => stored,
    };
    seen = with_kind(&to, seen);
    structural::prune(&mut seen, &to.schema, structural::PruneOptions::BUILT_IN);
    Some((object_type(&to), seen))
}

fn by_function(object: Value, from: &Resource, to: &Resource) -> Value {
    let stored = match from.conversion {
        Some(conversion) => (conversion.to_stored)(object),
        None => object,
    };
    let shown = match to.conversion {
        Some(conversion) => (conversion.from_stored)(stored),
        None => stored,
    };
    with_kind(to, shown)
}

impl Inner {
    pub(crate) fn converter(&self) -> Converter {
        Converter {
            env: self.env.clone(),
            outbound: self.outbound.clone(),
        }
    }

    /// The object in another version of its kind.
    pub(crate) async fn convert(&self, object: Value, from: &Resource, to: &Resource) -> Result<Value, Status> {
        if from.version == to.version && from.group == to.group {
            return Ok(object);
        }
        if from.custom.is_some() {
            // Admission sees fields that the version does not have; storing drops them.
            return self.convert_raw(object, from, to).await;
        }
        Ok(by_function(object, from, to))
    }

    /// An object of a custom kind as it comes out of its conversion.
    async fn convert_raw(&self, object: Value, from: &Resource, to: &Resource) -> Result<Value, Status> {
        let Some(versions) = versions(from) else {
            return Ok(object);
        };
        let mut converted = self
            .converter()
            .convert(from, versions, vec![object], &to.api_version())
            .await?;
        Ok(converted.pop().unwrap_or_default())
    }

    /// Stored objects as the version of `resource` shows them.
    pub(crate) async fn show(
        &self,
        resource: &Resource,
        items: Vec<Arc<StoredObject>>,
    ) -> Result<Vec<Arc<StoredObject>>, Status> {
        self.converter().show(resource, items).await
    }

    /// One stored object as the version of `resource` shows it.
    pub(crate) async fn show_one(
        &self,
        resource: &Resource,
        item: Arc<StoredObject>,
    ) -> Result<Arc<StoredObject>, Status> {
        if is_current(resource, item.revision(), item.encoded()) {
            return Ok(item);
        }
        let mut shown = self.converter().show(resource, vec![item.clone()]).await?;
        Ok(shown.pop().unwrap_or(item))
    }

    /// A full object, in any version, as the version of `resource` shows it.
    pub(crate) async fn show_full(&self, resource: &Resource, object: Value) -> Result<Value, Status> {
        let to = resource.api_version();
        let Some(versions) = versions(resource).filter(|_| text(&object, "apiVersion") != to) else {
            return Ok(object);
        };
        let mut shown = self.converter().convert(resource, versions, vec![object], &to).await?;
        let mut shown = shown.pop().unwrap_or_default();
        prune(&mut shown, resource);
        Ok(shown)
    }

    /// A write as the versions see it in which managers of the object wrote, or say they did in the entries that the
    /// client `claimed`; nothing where all versions have the same fields. `old` is null when the object is created.
    pub(crate) async fn views(
        &self,
        resource: &Resource,
        old: &Value,
        new: &Value,
        claimed: Option<&Value>,
    ) -> Result<Views, Status> {
        let mut views = Views::new();
        let own = resource.api_version();
        let mut written = managed::versions(managed::entries(old));
        written.extend(managed::versions(claimed));
        written.remove(own.as_str());
        if written.is_empty() {
            return Ok(views);
        }
        let kinds = self.registry.snapshot();
        let has_webhook = versions(resource).is_some_and(|versions| versions.webhook.is_some());
        // Where no webhook converts, all versions of a custom kind have the same values.
        let same = (resource.custom.is_some() && !has_webhook)
            .then(|| [old, new].map(|object| Arc::new(managed::without(object))));
        for api_version in written {
            let seen = match &resource.custom {
                Some(custom) => {
                    let same = same.clone();
                    self.custom_view(resource, custom, [old, new], same, api_version)
                        .await?
                }
                None => match row_of(&kinds, resource, api_version) {
                    None => VersionView::NotServed,
                    // Versions that differ in their name only see the same fields.
                    Some(row) if row.conversion.is_none() && resource.conversion.is_none() => continue,
                    Some(row) => VersionView::Converted(View {
                        kind: object_type(&row),
                        live: Arc::new(self.seen_as(resource, old, &row).await?),
                        new: Arc::new(self.seen_as(resource, new, &row).await?),
                    }),
                },
            };
            views.insert(api_version.to_owned(), seen);
        }
        Ok(views)
    }

    /// The same in one version of a custom kind, served or not. Under the strategy `None` all have the same values,
    /// regardless of their schemas (`crConverter.ConvertToVersion` upstream): these are `same`.
    async fn custom_view(
        &self,
        resource: &Resource,
        custom: &Custom,
        [old, new]: [&Value; 2],
        same: Option<[Arc<Value>; 2]>,
        api_version: &str,
    ) -> Result<VersionView, Status> {
        let Some(schema) = schema_of(resource, custom, api_version) else {
            return Ok(VersionView::Failed(match api_version.matches('/').count() {
                0 | 1 => format!("request to convert CR to an invalid group/version: {api_version}"),
                _ => format!("unexpected GroupVersion string: {api_version}"),
            }));
        };
        let [live, new] = match same {
            Some(same) => same,
            None => [
                Arc::new(self.converted_to(resource, old, api_version).await?),
                Arc::new(self.converted_to(resource, new, api_version).await?),
            ],
        };
        let kind = ObjectType::custom(schema);
        Ok(VersionView::Converted(View { kind, live, new }))
    }

    /// The fields of a custom resource in another version, with those that it does not have.
    async fn converted_to(&self, resource: &Resource, object: &Value, to: &str) -> Result<Value, Status> {
        let (Some(versions), false) = (versions(resource), object.is_null()) else {
            return Ok(object.clone());
        };
        let object = with_kind(resource, managed::without(object));
        let mut converted = self.converter().convert(resource, versions, vec![object], to).await?;
        Ok(converted.pop().unwrap_or_default())
    }

    /// The fields of a built-in object in another version.
    async fn seen_as(&self, resource: &Resource, object: &Value, to: &Resource) -> Result<Value, Status> {
        if object.is_null() {
            return Ok(Value::Null);
        }
        let mut object = with_kind(resource, object.clone());
        crate::model::object::metadata_mut(&mut object).remove("managedFields");
        let mut seen = self.convert(object, resource, to).await?;
        // Fields that only the other version has are no fields of this one.
        structural::prune(&mut seen, &to.schema, structural::PruneOptions::BUILT_IN);
        Ok(seen)
    }

    /// The stored form of an object.
    pub(crate) async fn stored_form(&self, resource: &Resource, mut object: Value) -> Result<Value, Status> {
        let Some(custom) = &resource.custom else {
            return Ok(to_stored(resource, object));
        };
        crate::model::object::metadata_mut(&mut object).remove("resourceVersion");
        let object = with_kind(resource, object);
        let to = format!("{}/{}", resource.group, resource.storage_version);
        let mut converted = (self.converter().convert(resource, &custom.versions, vec![object], &to)).await?;
        let mut converted = converted.pop().unwrap_or_default();
        // The definition may have changed since the request began, and later reads trust what is written from now on.
        let row = (self.registry).lookup(&resource.group, &resource.version, &resource.plural);
        let present = row.as_ref().and_then(|row| row.custom.as_ref());
        let changed = present.filter(|present| present.revision != custom.revision);
        if let Some(schema) = changed
            .unwrap_or(custom)
            .versions
            .schemas
            .get(&*resource.storage_version)
        {
            if changed.is_some() {
                settle(&mut converted, schema);
            } else if resource.storage_version != resource.version {
                structural::prune(&mut converted, schema, structural::PruneOptions::CUSTOM_RESOURCE);
            }
        }
        Ok(to_stored(resource, converted))
    }
}

fn check_object(object: &Value) -> Result<(), String> {
    match object {
        Value::Object(_) => Ok(()),
        Value::Null => Err("Object 'Kind' is missing in 'null'".to_owned()),
        other => Err(crate::scheme::not_an_object(other)),
    }
}

/// The same for a document that a subresource takes.
///
/// # Errors
/// The error of Go's decoder for a document that does not fit.
pub(crate) fn decode_posted(document: &mut Value, kind: &GroupVersionKind) -> Result<(), String> {
    check_object(document)?;
    if let Some(schema) = catalog::for_kind(&kind.group, &kind.version, &kind.kind) {
        structural::type_check(document, &schema, &kind.kind)?;
        structural::prune(document, &schema, structural::PruneOptions::BUILT_IN);
    }
    Ok(())
}

/// Makes an object of its kind out of a patched value.
///
/// # Errors
/// The error of Go's decoder for an object that does not fit.
pub(crate) fn decode_patched(
    object: &mut Value,
    before: &Value,
    resource: &Resource,
    kinds: &Snapshot,
) -> Result<(), crate::model::unfit::Unfit> {
    check_object(object)?;
    decode::check_admitted_kind(object, resource, kinds)?;
    if resource.custom.is_some() {
        // Custom resources have no type to be decoded into: later plugins see all of it, and validation judges.
        return Ok(decode::settle_metadata(object)?);
    }
    // Unknown fields are dropped without a word, as Go's decoder does.
    decode::fit_changed(object, before, resource, Vec::new())?;
    Ok(())
}

/// Makes an object of its kind out of a patched value, with defaults; unknown fields are errors, but those of custom
/// resources are dropped.
///
/// # Errors
/// The error of Go's strict decoder for an object that does not fit.
pub(crate) fn complete_strictly(object: &mut Value, resource: &Resource, kinds: &Snapshot) -> Result<(), String> {
    decode::check_kind(object, resource, kinds).map_err(|status| status.message)?;
    let findings = decode::fit(object, resource, Vec::new(), None)?;
    if resource.custom.is_none() {
        findings.apply(FieldValidation::Strict, &mut Vec::new())?;
    }
    super::write::default(object, resource);
    Ok(())
}
