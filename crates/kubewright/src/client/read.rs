//! Reads: from the cache, after it has seen our own writes; or live.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use kube::core::params::{GetParams, ListParams};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, Request as Requests, Selector};
use kubewright_engine::receipts::Ticket;
use kubewright_engine::reflector::ListPage;
use kubewright_engine::{Meta, ObjectKey};
use tokio::time::Instant;

use super::{Client, FIRST_READ_DEADLINE, Target, scoped};
use crate::cache::{
    EngineStore, Informer, KindInformers, KubeMeta, Listed, Objects, Scope, SharedInformer, decode_page, filed,
    matching, orphans, owned_by,
};
use crate::error::{Error, Result};
use crate::form::{Cached, Form, typed, typed_all};
use crate::namespace::InNamespace;
use crate::object::{AnyObject, Object, api_resource, collection_path};
use crate::request::Request;

impl Client {
    /// One object from the cache; `None` when it does not exist. Waits for writes of our own to the object.
    ///
    /// # Errors
    /// [`Error::NotSynced`] when the kind cannot be listed; [`Error::Undecodable`] when the type cannot read the
    /// object; [`Error::Api`] when the cache lags and the live read fails too.
    pub async fn get<K: Object>(&self, namespace: impl InNamespace, name: &str) -> Result<Option<Arc<K>>> {
        let namespace = namespace.namespace();
        self.get_of(&Form::of::<K>(), namespace, name)
            .await
            .map(|found| found.map(typed))
    }

    /// All objects of a kind from the cache, in one namespace or in all, ordered by namespace and name. Objects that
    /// cannot be decoded are left out, or in their last readable state; see [`Informer::unreadable`].
    ///
    /// # Errors
    /// [`Error::NotSynced`] when the kind cannot be listed, [`Error::Stale`] when the cache does not show our own
    /// writes in time.
    pub async fn list<K: Object>(&self, namespace: impl InNamespace) -> Result<Vec<Arc<K>>> {
        let namespace = namespace.namespace();
        self.listed(&Form::of::<K>(), namespace, Selection::All)
            .await
            .map(typed_all)
    }

    /// The objects whose labels match; see [`Client::list`].
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_matching<K: Object>(
        &self,
        namespace: impl InNamespace,
        labels: &Selector,
    ) -> Result<Vec<Arc<K>>> {
        let namespace = namespace.namespace();
        self.listed(&Form::of::<K>(), namespace, Selection::Labelled(labels))
            .await
            .map(typed_all)
    }

    /// The objects whose controller (the owner reference with `controller: true`) has this uid, by index.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn owned_by<K: Object>(&self, namespace: impl InNamespace, owner_uid: &str) -> Result<Vec<Arc<K>>> {
        let namespace = namespace.namespace();
        self.listed(&Form::of::<K>(), namespace, Selection::OwnedBy(owner_uid))
            .await
            .map(typed_all)
    }

    /// The objects without a controller whose labels match: those that may be adopted. In one namespace by index, which
    /// is made at the first question.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn orphans<K: Object>(&self, namespace: impl InNamespace, labels: &Selector) -> Result<Vec<Arc<K>>> {
        let namespace = namespace.namespace();
        self.listed(&Form::of::<K>(), namespace, Selection::Orphans(labels))
            .await
            .map(typed_all)
    }

    /// The objects that an index files under a value (controller-runtime's `MatchingFields`): an index of
    /// [`Controller::indexes`](crate::Controller::indexes) or of [`Informer::add_index`].
    ///
    /// ```
    /// # use kubewright::{Client, Result};
    /// # use kubewright::k8s_openapi::api::core::v1::Pod;
    /// # async fn show(client: &Client) -> Result<()> {
    /// let on_node = client.list_by_index::<Pod>(None, "spec.nodeName", "node-1").await?;
    /// # drop(on_node); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::list`], and [`Error::Configuration`] when there is no index of that name.
    pub async fn list_by_index<K: Object>(
        &self,
        namespace: impl InNamespace,
        index: &str,
        value: &str,
    ) -> Result<Vec<Arc<K>>> {
        let namespace = namespace.namespace();
        self.listed(&Form::of::<K>(), namespace, Selection::Filed { index, value })
            .await
            .map(typed_all)
    }

    /// [`Client::get`] through an informer of your own: another scope, a dynamic kind, metadata only.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_from<K: AnyObject>(
        &self,
        informer: &Informer<K>,
        namespace: impl InNamespace,
        name: &str,
    ) -> Result<Option<Arc<K>>> {
        let namespace = namespace.namespace();
        let found = self.get_shared(informer.parts().of(namespace), namespace, name).await?;
        Ok(found.map(typed))
    }

    /// [`Client::list`] through an informer of your own.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_from<K: AnyObject>(
        &self,
        informer: &Informer<K>,
        namespace: impl InNamespace,
    ) -> Result<Vec<Arc<K>>> {
        let namespace = namespace.namespace();
        let found = self.list_parts(informer.parts(), namespace, Selection::All).await?;
        Ok(typed_all(found))
    }

    /// One object straight from the API server.
    ///
    /// # Errors
    /// [`Error::Api`] when the server refuses; a missing object is `None`, a kind that the server does not know is an
    /// error that [`Error::is_not_found`].
    pub async fn live<K: Object>(&self, namespace: impl InNamespace, name: &str) -> Result<Option<K>> {
        let namespace = namespace.namespace();
        self.live_of::<K>(&api_resource::<K>(), namespace, name).await
    }

    /// [`Client::live`] for a kind that is known at run time.
    ///
    /// # Errors
    /// As [`Client::live`].
    pub async fn live_of<K: AnyObject>(
        &self,
        resource: &ApiResource,
        namespace: impl InNamespace,
        name: &str,
    ) -> Result<Option<K>> {
        let namespace = namespace.namespace();
        let form = Form::for_resource::<K>(resource);
        let live = self.live_shared(&form, namespace, name).await?;
        Ok(live.map(|live| Arc::unwrap_or_clone(typed(live))))
    }

    /// The objects that `params` select, straight from the API server: for lists that are needed too seldom for an
    /// index. Objects that cannot be decoded are left out.
    ///
    /// # Errors
    /// [`Error::Api`] when the server refuses.
    pub async fn list_live<K: Object>(&self, namespace: impl InNamespace, params: &ListParams) -> Result<Vec<Arc<K>>> {
        let namespace = namespace.namespace();
        let form = Form::of::<K>();
        let attempt = format!("list {}", form.resource.plural);
        let page = self
            .listed_live(&form, scoped(&form, namespace), params, &attempt)
            .await?;
        for object in &page.unreadable {
            tracing::warn!(object = %object.key, "{attempt}: an object that cannot be decoded is left out");
        }
        Ok(typed_all(page.items))
    }
}

/// Up to this many writes of unknown outcome are always asked for one by one.
const ONE_BY_ONE: usize = 4;
/// More of them are asked for one by one as long as the namespace has this many objects for each; otherwise one list of
/// metadata answers for all. Each object in that list costs the server about a third of a request.
const ONE_BY_ONE_IN: usize = 16;
/// How many of them are asked for at the same time.
const ASKED_AT_ONCE: usize = 8;
/// How many objects one page has, as informers list.
const PAGE: u32 = 500;

/// Which objects of a kind.
#[derive(Clone, Copy)]
pub(super) enum Selection<'a> {
    All,
    Labelled(&'a Selector),
    OwnedBy(&'a str),
    Orphans(&'a Selector),
    Filed { index: &'a str, value: &'a str },
}

/// The same without the type; see `form.rs`.
impl Client {
    pub(crate) fn get_of<'a>(
        &'a self,
        form: &'a Form,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn Cached>>>> {
        Box::pin(async move {
            let parts = self.cache().read_of(form)?;
            self.get_shared(parts.covering(namespace)?, namespace, name).await
        })
    }

    pub(crate) fn get_shared<'a>(
        &'a self,
        informer: &'a SharedInformer,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn Cached>>>> {
        Box::pin(async move {
            let request = Request::new(namespace, name);
            self.get_requested(informer, &request).await
        })
    }

    /// The object as the cache holds it, if the cache shows our own writes to it.
    pub(super) async fn at_rest(
        &self,
        form: &Form,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<dyn Cached>>> {
        let parts = self.cache().read_of(form)?;
        let informer = parts.covering(namespace)?;
        let key = ObjectKey::new(namespace, name);
        let found = informer.read_one(&key, informer.ticket(), Duration::ZERO).await;
        found.unwrap_or(Ok(None))
    }

    pub(crate) async fn get_requested(
        &self,
        informer: &SharedInformer,
        request: &Request,
    ) -> Result<Option<Arc<dyn Cached>>> {
        informer.synced_within(FIRST_READ_DEADLINE).await?;
        let key = ObjectKey::from(request);
        let ticket = informer.ticket();
        if informer.is_crowded(key.namespace.as_deref()) {
            let any = ObjectKey::new(key.namespace.as_deref(), "");
            self.ask_for(informer, key.namespace.as_deref(), &[any], ticket).await?;
        }
        if let Some(found) = informer.read_one(&key, ticket, self.read_deadline).await {
            return found?.map(|object| informer.core().unpacked(object)).transpose();
        }
        tracing::debug!(resource = %informer.name(), object = %request, "the cache lags behind our own write; asking the API server");
        self.ask(informer, &key, ticket).await
    }

    /// Objects from the cache, once all our own writes in the namespace are there.
    fn listed<'a>(
        &'a self,
        form: &'a Form,
        namespace: Option<&'a str>,
        which: Selection<'a>,
    ) -> BoxFuture<'a, Result<Objects>> {
        Box::pin(async move {
            let parts = self.cache().read_of(form)?;
            self.list_parts(&parts, namespace, which).await
        })
    }

    /// The parts follow each other by namespace, and so do the objects.
    fn list_parts<'a>(
        &'a self,
        parts: &'a KindInformers,
        namespace: Option<&'a str>,
        which: Selection<'a>,
    ) -> BoxFuture<'a, Result<Objects>> {
        Box::pin(async move {
            let mut objects = Vec::new();
            for informer in parts.listed(namespace)? {
                objects.extend(self.list_shared(informer, namespace, which).await?);
            }
            Ok(objects)
        })
    }

    fn list_shared<'a>(
        &'a self,
        informer: &'a SharedInformer,
        namespace: Option<&'a str>,
        which: Selection<'a>,
    ) -> BoxFuture<'a, Result<Objects>> {
        Box::pin(async move {
            let objects = self.list_at_rest(informer, namespace, which).await?;
            Ok(informer.core().all_unpacked(objects))
        })
    }

    /// The objects as the cache holds them: not decoded, if they are at rest.
    pub(super) fn list_at_rest<'a>(
        &'a self,
        informer: &'a SharedInformer,
        namespace: Option<&'a str>,
        which: Selection<'a>,
    ) -> BoxFuture<'a, Result<Objects>> {
        Box::pin(async move {
            informer.synced_within(FIRST_READ_DEADLINE).await?;
            let namespace = informer.core().namespace_of(namespace);
            match which {
                Selection::Orphans(_) => informer.index_orphans(),
                Selection::Filed { index, .. } => informer.core().has_index(index)?,
                Selection::All | Selection::Labelled(_) | Selection::OwnedBy(_) => {}
            }
            let ticket = informer.ticket();
            let deadline = Instant::now() + self.read_deadline;
            let filed_as = match which {
                Selection::Filed { index, .. } => informer.core().index_name(index),
                _ => String::new(),
            };
            let read = |store: &EngineStore| match which {
                Selection::All => store.list(namespace).items,
                Selection::Labelled(labels) => matching(store, namespace, labels),
                Selection::OwnedBy(uid) => owned_by(store, namespace, uid),
                Selection::Orphans(labels) => orphans(store, namespace, labels),
                Selection::Filed { value, .. } => filed(store, namespace, &filed_as, value),
            };
            loop {
                match informer.read_many(namespace, ticket, deadline, read).await {
                    Listed::Ready(objects) => {
                        if let Selection::Filed { index, .. } = which {
                            // Its controller may have ended meanwhile.
                            informer.core().has_index(index)?;
                        }
                        return Ok(objects);
                    }
                    Listed::Ask(keys) => self.ask_for(informer, namespace, &keys, ticket).await?,
                    Listed::Late => break,
                }
            }
            informer.overdue(namespace, ticket);
            Err(Error::Stale {
                what: informer.name().to_owned(),
                waited: self.read_deadline,
            })
        })
    }

    /// Asks the API server for the results of writes, one by one or all at once.
    async fn ask_for(
        &self,
        informer: &SharedInformer,
        namespace: Option<&str>,
        keys: &[ObjectKey],
        ticket: Ticket,
    ) -> Result<()> {
        let few = ONE_BY_ONE.max(informer.objects_in(namespace) / ONE_BY_ONE_IN);
        if keys.len() <= few && keys.iter().all(|key| !key.name.is_empty()) {
            for some in keys.chunks(ASKED_AT_ONCE) {
                let asked: Vec<_> = some.iter().map(|key| self.ask(informer, key, ticket)).collect();
                for answer in join_all(asked).await {
                    match answer {
                        Ok(_) | Err(Error::Undecodable { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            return Ok(());
        }
        let _pending = informer.begin_read(keys);
        let form = Form::for_resource::<PartialObjectMeta<DynamicObject>>(informer.resource());
        let page = self.list_page(informer, &form, namespace, None).await?;
        informer.asked_all(namespace, ticket, &page);
        Ok(())
    }

    /// Asks the API server for one object of the informer's scope. By a list and not by a get: its answer has a version
    /// also when there is no such object, and its right is one that the informer needs as well.
    async fn ask(&self, informer: &SharedInformer, key: &ObjectKey, ticket: Ticket) -> Result<Option<Arc<dyn Cached>>> {
        let _pending = informer.begin_read(std::slice::from_ref(key));
        let page = self
            .list_page(informer, informer.form(), key.namespace.as_deref(), Some(&key.name))
            .await?;
        informer.asked(key, ticket, &page);
        if let Some(object) = page.unreadable.iter().find(|object| object.key == *key) {
            return Err(informer.core().undecodable(object));
        }
        let mut items = page.items.into_iter();
        let found = items.find(|object| KubeMeta::key(&**object).as_ref() == Some(key));
        // The question was asked for all views of the kind.
        Ok(
            found
                .filter(|object| informer.scope() == &informer.coverage().scope || informer.scope().selects(&**object)),
        )
    }

    /// The API server's present objects of what the informer's store is to hold, in one namespace or of one name.
    async fn list_page(
        &self,
        informer: &SharedInformer,
        form: &Form,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<ListPage<dyn Cached>> {
        let scope = informer.coverage().scope;
        let fields = name.map(by_name).into_iter().chain(scope.fields.clone());
        let fields: Vec<String> = fields.collect();
        let params = ListParams {
            label_selector: (!scope.labels.selects_all()).then(|| scope.labels.to_string()),
            field_selector: (!fields.is_empty()).then(|| fields.join(",")),
            ..Default::default()
        };
        let attempt = match name {
            Some(name) => Target::new(&form.resource, namespace, name).attempt("list"),
            None => format!("list {}", informer.name()),
        };
        self.listed_live(form, namespace.or(scope.namespace.as_deref()), &params, &attempt)
            .await
    }

    /// A page of the metadata of all objects in this scope of the informer's resource.
    pub(crate) async fn metadata_page(
        &self,
        informer: &SharedInformer,
        scope: Scope,
        token: Option<String>,
    ) -> Result<ListPage<dyn Cached>> {
        let params = ListParams {
            label_selector: (!scope.labels.selects_all()).then(|| scope.labels.to_string()),
            field_selector: scope.fields,
            limit: Some(PAGE),
            continue_token: token,
            ..Default::default()
        };
        let form = Form::for_resource::<PartialObjectMeta<DynamicObject>>(informer.resource());
        let attempt = format!("list {}", informer.name());
        self.listed_live(&form, scope.namespace.as_deref(), &params, &attempt)
            .await
    }

    /// Whether the API server has such an object. By a list, as [`Client::ask`].
    pub(crate) async fn exists(&self, resource: &ApiResource, request: &Request) -> Result<bool> {
        let form = Form::for_resource::<PartialObjectMeta<DynamicObject>>(resource);
        let params = ListParams {
            field_selector: Some(by_name(request.name())),
            ..Default::default()
        };
        let attempt = Target::new(resource, request.namespace(), request.name()).attempt("list");
        let page = self.listed_live(&form, request.namespace(), &params, &attempt).await?;
        let key = ObjectKey::from(request);
        let readable = page
            .items
            .iter()
            .any(|object| KubeMeta::key(&**object).as_ref() == Some(&key));
        Ok(readable || page.unreadable.iter().any(|object| object.key == key))
    }

    async fn listed_live(
        &self,
        form: &Form,
        namespace: Option<&str>,
        params: &ListParams,
        attempt: &str,
    ) -> Result<ListPage<dyn Cached>> {
        let requests = Requests::new(collection_path(&form.resource, namespace));
        let request = if form.metadata_only {
            requests.list_metadata(params)
        } else {
            requests.list(params)
        };
        let text = self.send_text(attempt, request).await?;
        decode_page(text.as_bytes(), form).map_err(|failure| Error::retry(format!("{attempt}: {failure}")))
    }

    pub(crate) fn live_shared<'a>(
        &'a self,
        form: &'a Form,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn Cached>>>> {
        Box::pin(async move {
            let target = Target::new(&form.resource, namespace, name);
            let requests = target.requests();
            let params = GetParams::default();
            let request = if form.metadata_only {
                requests.get_metadata(name, &params)
            } else {
                requests.get(name, &params)
            };
            match self.send_object(&target.attempt("get"), request, form).await {
                Ok(object) => Ok(Some(object)),
                Err(error) if error.is_absent() => Ok(None),
                Err(error) => Err(error),
            }
        })
    }
}

/// The field selector of one object. Names have no characters that would have to be escaped.
fn by_name(name: &str) -> String {
    format!("metadata.name={name}")
}
