//! Storing a written object: the create, the compare-and-swap, and the size limit (`registry.Store.Create`, `.Update`).

use std::sync::Arc;

use kubewright_schema::{budget, protobuf};
use serde_json::Value;

use super::{Writer, Written};
use crate::json;
use crate::model::form::{full, full_of, key};
use crate::model::status::Status;
use crate::model::{Resource, object};
use crate::server::Inner;
use crate::server::managed::Tracking;
use crate::server::respond::after_version;
use crate::server::settle::refused;
use crate::storage::{SizeLimit, StorageError, StoredObject, same_content};

impl Writer<'_> {
    /// Stores a new object; a name that is taken is an error.
    pub(super) async fn insert(&self, object: Value) -> Result<Written, Status> {
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
        self.begin_change()?;
        let created = budget::commit(|| {
            let storage = &self.server.storage;
            let stored = storage.create_up_to(&resource.store, &key, form, &self.limit(&counted))?;
            let stored = self.server.after_write(resource, stored);
            self.server.after_create(resource, &stored);
            Ok(stored)
        });
        match created {
            Ok(stored) => Ok(Written::Stored(self.server.show_one(resource, stored).await?)),
            Err(StorageError::TooLarge(length)) => Err(too_large(length)),
            Err(error) => Err(refused(&error).unwrap_or_else(taken)),
        }
    }

    /// The compare-and-swap of a stored form; a form that is not stored is answered as [`Written::Shown`]. `None`
    /// after a conflict with another write.
    pub(super) fn replace(
        &self,
        key: &str,
        name: &str,
        mut present: Present,
        stored: Value,
    ) -> Result<Option<Written>, Status> {
        let revision = present.revision;
        let shown = |mut value: Value| {
            // The answer to a write that stores nothing shows the version that is there.
            object::metadata_mut(&mut value).insert("resourceVersion".to_owned(), revision.to_string().into());
            Written::Shown(value)
        };
        if self.dry_run {
            return Ok(Some(shown(stored)));
        }
        let resource = &self.resource;
        self.begin_change()?;
        let result = budget::commit(|| {
            if is_finished(resource, &stored, &present.old) {
                let gone = self.server.storage.delete(&resource.store, key, revision)?;
                self.server.after_delete(resource, &gone);
                return Ok(shown(stored));
            }
            let written = if present.holds(resource, &stored) {
                self.still_there(key, revision)
            } else {
                self.exchange(key, &present, stored)
            };
            written.map(Written::Stored)
        });
        match result {
            Ok(written) => Ok(Some(written)),
            Err(StorageError::NotFound(_)) => Err(Status::not_found(resource, name)),
            Err(StorageError::TooLarge(length)) => Err(too_large(length)),
            Err(error) => refused(&error).map_or_else(|| self.try_again().map(|()| None), Err),
        }
    }

    /// Replaces the present object by one of another content.
    fn exchange(&self, key: &str, present: &Present, stored: Value) -> Result<Arc<StoredObject>, StorageError> {
        let (resource, server) = (&self.resource, self.server);
        let counted = |value: &Value, length| counted(resource, key, value, length);
        let limit = self.limit(&counted);
        let stored = server
            .storage
            .replace_up_to(&resource.store, key, present.revision, stored, &limit)?;
        let stored = server.after_write(resource, stored);
        server.after_update(resource, &present.old, &stored);
        Ok(stored)
    }

    /// How large a stored object may be: as etcd's `--max-request-bytes`. It counts only near that; no built-in kind is
    /// larger in protobuf than in JSON except by the part that JSON leaves out, which is little.
    ///
    /// The handlers of kube-apiserver try once more without `managedFields` (`isTooLargeError`), except that of an
    /// apply: its next conflicts are judged by them.
    fn limit<'c>(&self, counted: &'c dyn Fn(&Value, usize) -> usize) -> SizeLimit<'c> {
        const ETCD: usize = 3 * 512 * 1024;
        const NEAR: usize = 1024;
        SizeLimit {
            max: ETCD,
            plain: ETCD - NEAR,
            counted,
            drops_managers: self.tracking != Tracking::Given,
        }
    }

    /// The present object, which a write left as it is, if it is still at its revision.
    fn still_there(&self, key: &str, expected: u64) -> Result<Arc<StoredObject>, StorageError> {
        let found = self.server.storage.get(&self.resource.store, key);
        let found = found.ok_or_else(|| StorageError::NotFound(key.to_owned()))?;
        let current = found.revision();
        if current == expected {
            return Ok(found);
        }
        let key = key.to_owned();
        Err(StorageError::Conflict { key, expected, current })
    }
}

/// The object that a write finds. Trees of large objects are many times their texts, so it is held once where it can
/// be.
pub(crate) struct Present {
    revision: u64,
    /// As the version of the request shows it, with `apiVersion` and `kind`.
    pub(crate) old: Value,
    /// As it is stored, where that is something else.
    stored: Option<Arc<StoredObject>>,
}

impl Present {
    pub(crate) async fn of(server: &Inner, resource: &Resource, stored: Arc<StoredObject>) -> Result<Present, Status> {
        let revision = stored.revision();
        let shown = server.show_one(resource, stored.clone()).await?;
        let says_version = || resource.custom.is_none() || after_version(resource, stored.encoded()).is_some();
        let is_shown = Arc::ptr_eq(&shown, &stored) && resource.conversion.is_none() && says_version();
        let stored = (!is_shown).then_some(stored);
        Ok(Present {
            revision,
            old: full_of(resource, shown.into_value()),
            stored,
        })
    }

    /// Whether this is the object that is stored now.
    pub(super) fn is_of(&self, stored: &StoredObject) -> bool {
        self.revision == stored.revision()
    }

    /// Whether the stored object has the same content. Afterwards `old` does not say any more what it is.
    fn holds(&mut self, resource: &Resource, new: &Value) -> bool {
        if let Some(stored) = &self.stored {
            return same_content(stored.value(), new);
        }
        if let Some(map) = self.old.as_object_mut() {
            if resource.custom.is_none() {
                map.remove("apiVersion");
            }
            map.remove("kind");
        }
        same_content(&self.old, new)
    }
}

/// The bytes of an etcd request beside the object: its key twice, and the rest of the message (measured).
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
    // The object is large, so no copy is made of it where none is needed. Its resourceVersion is empty, which has no
    // bytes in protobuf.
    let content = match (&resource.custom, resource.conversion) {
        (Some(_), None) => shown_length(resource, value, length).saturating_add("\n".len()),
        (None, None) => protobuf::encoded_length(&resource.api_version(), &resource.kind, value).unwrap_or(length),
        (_, Some(_)) => protobuf::encode(&full(resource, value)).map_or(length, |bytes| bytes.len()),
    };
    content.saturating_add(around(resource, key))
}

/// How long the text is of a stored object of a custom kind whose own text has this length: with its version and kind,
/// and without the empty resourceVersion.
fn shown_length(resource: &Resource, value: &Value, length: usize) -> usize {
    let written = |value: &Value| json::text(value).len();
    let mut length = length.saturating_sub("\"resourceVersion\":\"\",".len());
    for (field, text) in [
        ("apiVersion", resource.api_version()),
        ("kind", resource.kind.to_string()),
    ] {
        length = match value.get(field) {
            Some(present) => length.saturating_sub(written(present)),
            None => length.saturating_add(field.len()).saturating_add("\"\":,".len()),
        };
        length = length.saturating_add(written(&text.into()));
    }
    length
}

/// The error of etcd, or of its client, for an object that is too large.
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

/// Whether nothing keeps a terminating object after an update (store's `ShouldDeleteDuringUpdate`).
fn is_finished(resource: &Resource, new: &Value, old: &Value) -> bool {
    let is_blocked = resource.strategy.ending.is_some_and(|ending| (ending.is_blocked)(new));
    object::is_terminating(old)
        && object::finalizers(new).is_empty()
        && object::grace_period(new).is_none_or(|seconds| seconds == 0)
        && !is_blocked
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    #[test]
    fn the_length_of_a_custom_object_is_that_of_its_text() {
        let registry = Registry::new();
        let names = json!({"plural": "ws", "singular": "w", "kind": "W", "listKind": "WList"});
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
        registry.apply_crds([&json!({"metadata": {"name": "ws.x.io"},
            "spec": {"group": "x.io", "scope": "Namespaced", "names": names, "versions": [version]},
            "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]}})]);
        let resource = registry.lookup("x.io", "v1", "ws").expect("it is served");
        let check = |object: Value| {
            let mut whole = full(&resource, &object);
            object::metadata_mut(&mut whole).remove("resourceVersion");
            let mut stored = object.clone();
            object::metadata_mut(&mut stored).insert("resourceVersion".to_owned(), "".into());
            let text = json::text(&stored).len();
            assert_eq!(
                shown_length(&resource, &stored, text),
                json::text(&whole).len(),
                "{object}"
            );
        };
        let metadata = json!({"name": "a", "labels": {"a": "<&>"}});
        check(json!({"metadata": metadata, "spec": {"b": "<\u{2028}\"é"}}));
        check(json!({"apiVersion": "x.io/v1alpha1", "kind": "W", "metadata": metadata, "spec": [1, null]}));
        check(json!({"apiVersion": "x.io/v1", "metadata": metadata}));
    }
}
