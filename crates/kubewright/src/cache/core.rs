//! An informer without the type of its objects: a view of the store of its kind.
//!
//! A view is a type and a scope. Everything that views of one kind have in common is in `shared.rs`: the watch, the
//! store, the dispatch of changes, receipts. Its share in the changes is in `part.rs`; here is what its readers ask.
//!
//! Health has three sources: the first list, the watch, and objects that do not decode. An object that does not decode
//! affects no other: the informer is synced without it and reports it ([`Core::health`]).
//!
//! Invariants: SI5 `synced` means that the store covers this view and every inline handler has returned for every
//! object of it, `handlers_synced` that the others have as well; SI9 the watch ends with the last view of its store.

mod catch_up;
mod shared_informer;

use std::sync::Arc;

use kube::core::{Selector, SelectorExt};
use kubewright_engine::dispatch::Handler;
use kubewright_engine::store::IndexError;
use kubewright_engine::{HandlerId, ObjectKey, ResourceVersion, Unreadable};

pub(crate) use self::shared_informer::{Listed, Objects, SharedInformer, WatchGuard};
use super::handlers::{Batch, Subscriber};
use super::informer::{self, Health};
use super::part::Part;
use super::scope::Scope;
use super::shared::{Contents, SharedStore};
use super::store::{CONTROLLER_UID, KubeMeta, ORPHANS, orphan_in};
use crate::error::{Error, Result};
use crate::form::{Cached, Form, check, text_len};
use crate::request::Request;

/// The values of an object in an index.
pub(crate) type IndexValues = Box<dyn Fn(&dyn Cached) -> Vec<String> + Send + Sync>;

pub(crate) type EngineStore = kubewright_engine::Store<dyn Cached, KubeMeta>;

/// A view, shared between its handles.
pub(crate) struct Core {
    pub(crate) name: String,
    pub(crate) form: Form,
    pub(crate) scope: Scope,
    pub(super) part: Arc<Part>,
    pub(super) store: Arc<SharedStore>,
}

impl Core {
    /// A view of a store, which becomes wider if it must.
    pub(super) fn new(form: Form, part: Part, store: Arc<SharedStore>) -> Core {
        let scope = part.needs.scope.clone();
        let name = store.listeners.name(&form.resource, &scope);
        let part = Arc::new(part);
        if store.add_part(&part) {
            tracing::debug!(resource = name, "the watch of this kind becomes wider");
        }
        Core {
            name,
            form,
            scope,
            part,
            store,
        }
    }

    /// Whether the watch said last that the object of this key is deleted; it may be forgotten.
    pub(crate) fn was_deleted(&self, key: &ObjectKey) -> bool {
        self.store.was_deleted(key)
    }

    fn add_slow_handler(self: &Arc<Self>, handler: Handler<dyn Cached>) -> HandlerId {
        let subscriber = Arc::new(Subscriber::new(
            &self.name,
            handler,
            self.store.listeners.handles_inline,
        ));
        let late = self.is_synced();
        let mailbox = subscriber.clone();
        let id = self
            .store
            .add_handler(&self.part, Arc::new(move |event| mailbox.put(event)));
        self.part.subscribers().insert(id, subscriber.clone());
        // Looked at after the subscriber was filed: either this sees the sync, or the sync sees the subscriber.
        if self.is_synced() {
            subscriber.mark(late);
        }
        let store = self.store.clone();
        let after = move |batch: Batch| {
            store.report(&batch.panics);
            store.changed();
        };
        self.store.runtime.spawn(subscriber.serve(id, after));
        id
    }

    fn remove_handler(&self, handler: HandlerId) -> bool {
        let known = self.store.remove_handler(&self.part, handler);
        let subscriber = self.part.subscribers().remove(&handler);
        if let Some(subscriber) = subscriber {
            subscriber.close();
            self.store.changed();
        }
        known
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.part.is_synced()
    }

    /// A reader needs the type of its objects: from now on they are decoded when they arrive, and the present ones are
    /// checked now.
    pub(crate) fn check_objects(&self) {
        if !self.part.check() {
            return;
        }
        for object in self.list_in(None) {
            // Those that cannot be read are noted.
            let _ = check(&*object, self.form.id);
        }
        self.store.report_unreadable();
    }

    /// An object of the store, decoded.
    ///
    /// # Errors
    /// [`Error::Undecodable`].
    pub(crate) fn unpacked(&self, object: Arc<dyn Cached>) -> Result<Arc<dyn Cached>> {
        let reference = object.object_id().reference(&self.form.resource);
        crate::form::unpacked(object, self.form.id).map_err(|reason| {
            self.store.report_unreadable();
            Error::Undecodable {
                object: reference.to_string(),
                reason: reason.to_string(),
            }
        })
    }

    /// Objects of the store, decoded; those that cannot be are shown in their last readable state or left out, and
    /// reported.
    pub(crate) fn all_unpacked(&self, objects: Objects) -> Objects {
        let mut broken = false;
        let readable = objects.into_iter().filter_map(|object| match self.part.show(object) {
            Ok(object) => Some(object),
            Err(_) => {
                broken = true;
                None
            }
        });
        let readable = readable.collect();
        if broken {
            self.store.report_unreadable();
        }
        readable
    }

    pub(crate) fn report_unreadable(&self) {
        self.store.report_unreadable();
    }

    pub(crate) fn health(&self) -> Health {
        self.store.report_unreadable();
        let progress = self.store.progress.borrow().clone();
        let wider = progress.wider_trouble.filter(|_| !self.is_synced());
        if let Some(reason) = wider.or(progress.trouble) {
            return Health::Degraded { reason };
        }
        let unreadable = self.broken();
        match unreadable.first() {
            _ if !self.is_synced() => Health::Syncing,
            None => Health::Synced,
            Some(first) => Health::Degraded {
                reason: format!(
                    "{} that cannot be decoded and are left out; the first is {}: {}",
                    unreadable.len(),
                    self.store.object_ref(first),
                    first.message
                ),
            },
        }
    }
}

/// Reading; see [`super::Store`].
impl Core {
    /// One object; an object that exists and cannot be decoded is an error, even when an older state of it is held.
    ///
    /// # Errors
    /// [`Error::Undecodable`].
    fn look_up(&self, contents: &Contents, key: &ObjectKey) -> Result<Option<Arc<dyn Cached>>> {
        let unreadable = contents.store.unreadable_by_name(key.namespace.as_deref(), &key.name);
        if let Some(object) = unreadable.cloned().or_else(|| self.part.unreadable_by_key(key)) {
            return Err(self.undecodable(&object));
        }
        let found = contents.store.peek(key);
        Ok(found.filter(|object| self.holds(contents, object)).cloned())
    }

    pub(crate) fn undecodable(&self, object: &Unreadable) -> Error {
        Error::Undecodable {
            object: self.store.object_ref(object).to_string(),
            reason: object.message.clone(),
        }
    }

    /// Whether an object of the store is inside this view.
    fn holds(&self, contents: &Contents, object: &Arc<dyn Cached>) -> bool {
        !self.part.selects_of(contents.coverage.as_ref()) || self.scope.selects(&**object)
    }

    /// Those of a store's objects that are inside this view.
    fn inside(&self, contents: &Contents, mut objects: Objects) -> Objects {
        if self.part.selects_of(contents.coverage.as_ref()) {
            objects.retain(|object| self.scope.selects(&**object));
        }
        objects
    }

    /// The namespace that a question concerns, which may be narrowed by the view's.
    pub(crate) fn namespace_of<'a>(&'a self, asked: Option<&'a str>) -> Option<&'a str> {
        asked
            .filter(|namespace| !namespace.is_empty())
            .or(self.scope.namespace.as_deref())
    }

    /// The objects that cannot be decoded, in order.
    fn broken(&self) -> Vec<Unreadable> {
        let contents = self.store.read();
        let in_scope = |object: &&Unreadable| {
            self.scope.namespace.is_none() || self.scope.namespace.as_deref() == object.key.namespace.as_deref()
        };
        let mut all: Vec<Unreadable> = contents.store.unreadable().filter(in_scope).cloned().collect();
        drop(contents);
        all.extend(self.part.unreadable());
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all.dedup_by(|a, b| a.key == b.key);
        all
    }

    pub(crate) fn unreadable(&self) -> Vec<informer::Unreadable> {
        self.store.report_unreadable();
        let all = self.broken().into_iter().map(|object| informer::Unreadable {
            request: Request::from(&object.key),
            resource_version: object
                .resource_version
                .as_ref()
                .map(|version| version.as_str().to_owned()),
            error: object.message,
        });
        all.collect()
    }

    pub(crate) fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<dyn Cached>> {
        let contents = self.store.read();
        let found = contents
            .store
            .get_by_name(namespace.filter(|namespace| !namespace.is_empty()), name)?;
        self.holds(&contents, &found).then_some(found)
    }

    /// As [`Core::get`], decoded, or in its last readable state.
    pub(crate) fn shown(&self, namespace: Option<&str>, name: &str) -> Option<Arc<dyn Cached>> {
        let found = self.get(namespace, name)?;
        let shown = self.part.show(found);
        if shown.is_err() {
            self.store.report_unreadable();
        }
        shown.ok()
    }

    /// What `read` finds in the store, as far as it is inside this view.
    pub(crate) fn found(&self, read: impl FnOnce(&EngineStore) -> Objects) -> Objects {
        let contents = self.store.read();
        self.inside(&contents, read(&contents.store))
    }

    pub(crate) fn list_in(&self, namespace: Option<&str>) -> Objects {
        self.found(|store| store.list(self.namespace_of(namespace)).items)
    }

    pub(crate) fn matching(&self, namespace: Option<&str>, labels: &Selector) -> Objects {
        self.found(|store| matching(store, self.namespace_of(namespace), labels))
    }

    pub(crate) fn owned_by(&self, namespace: Option<&str>, owner_uid: &str) -> Objects {
        self.found(|store| owned_by(store, self.namespace_of(namespace), owner_uid))
    }

    pub(crate) fn by_index(&self, index: &str, value: &str, namespace: Option<&str>) -> Result<Vec<Arc<dyn Cached>>> {
        self.has_index(index)?;
        Ok(self.filed(index, value, namespace))
    }

    /// The same; none without such an index.
    pub(crate) fn filed(&self, index: &str, value: &str, namespace: Option<&str>) -> Objects {
        let index = self.index_name(index);
        self.found(|store| filed(store, self.namespace_of(namespace), &index, value))
    }

    /// Several views may each have an index of one name.
    pub(crate) fn index_name(&self, index: &str) -> String {
        match index {
            CONTROLLER_UID | ORPHANS => index.to_owned(),
            _ => format!("{index}{BETWEEN}{:?} {}", self.form.id, self.scope),
        }
    }

    /// Whether there is such an index; it is an error if not.
    pub(crate) fn has_index(&self, index: &str) -> Result<()> {
        let contents = self.store.read();
        if contents.store.has_index(&self.index_name(index)) {
            return Ok(());
        }
        let ours = self.index_name("");
        let known = contents.store.index_names().filter_map(|name| {
            let own = name.strip_suffix(&*ours);
            own.or(Some(name).filter(|name| !name.contains(BETWEEN)))
        });
        let unknown = IndexError::Unknown {
            name: index.to_owned(),
            known: known.map(str::to_owned).collect(),
        };
        Err(Error::Configuration(format!("{}: {unknown}", self.name)))
    }

    pub(crate) fn keys(&self) -> Vec<Request> {
        let contents = self.store.read();
        match self.part.selects_of(contents.coverage.as_ref()) {
            false => contents.store.keys().map(Request::from).collect(),
            true => {
                let inside = contents
                    .store
                    .iter()
                    .filter(|(_, object)| self.scope.selects(&***object));
                inside.map(|(key, _)| Request::from(key)).collect()
            }
        }
    }

    /// Without the objects that are shown in no state.
    pub(crate) fn len(&self) -> usize {
        let contents = self.store.read();
        let all = match self.part.selects_of(contents.coverage.as_ref()) {
            false => contents.store.len(),
            true => contents
                .store
                .iter()
                .filter(|(_, object)| self.scope.selects(&***object))
                .count(),
        };
        all.saturating_sub(self.part.not_shown())
    }

    /// The texts of its objects.
    pub(crate) fn bytes(&self) -> usize {
        let objects = self.found(|store| store.list(None).items);
        objects.iter().map(|object| text_len(&**object)).sum()
    }

    pub(crate) fn resource_version(&self) -> Option<String> {
        let contents = self.store.read();
        let version = contents.store.resource_version();
        version.map(ResourceVersion::as_str).map(str::to_owned)
    }
}

/// Between the name of an index and its view.
const BETWEEN: char = '\u{0}';

/// The objects whose labels match.
pub(crate) fn matching(store: &EngineStore, namespace: Option<&str>, labels: &Selector) -> Objects {
    let mut objects = store.list(namespace).items;
    objects.retain(|object| labels.matches(&object.labels()));
    objects
}

/// The objects whose controller has this uid.
pub(crate) fn owned_by(store: &EngineStore, namespace: Option<&str>, owner_uid: &str) -> Objects {
    let owned = store.by_index(CONTROLLER_UID, owner_uid, namespace);
    owned.expect("every informer is made with this index").items
}

/// The objects that an index files under a value; none without such an index.
pub(crate) fn filed(store: &EngineStore, namespace: Option<&str>, index: &str, value: &str) -> Objects {
    let found = store.by_index(index, value, namespace);
    found.map(|found| found.items).unwrap_or_default()
}

/// The objects without a controller whose labels match. The informer must have been told that orphans are wanted.
pub(crate) fn orphans(store: &EngineStore, namespace: Option<&str>, labels: &Selector) -> Objects {
    let all = |namespace: &str| store.by_index(ORPHANS, namespace, None).map(|found| found.items);
    let mut objects = match namespace {
        Some(namespace) => all(namespace).expect("the index is added before it is asked"),
        None => store.list(None).items,
    };
    // Of all namespaces, the index has one list for each.
    objects.retain(|object| labels.matches(&object.labels()) && !orphan_in(&**object).is_empty());
    objects
}
