//! Reads: from the cache, after it has seen our own writes; or live.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::core::params::GetParams;
use kube::core::{ApiResource, Selector};

use super::{Client, FIRST_READ_DEADLINE, Target};
use crate::cache::{Informer, Shared};
use crate::error::{Error, Result};
use crate::form::{Cached, Form, typed, typed_all};
use crate::object::{AnyObject, Object, api_resource};
use crate::request::Request;

impl Client {
    /// One object from the cache; `None` when it does not exist. Waits for writes of our own to the object.
    ///
    /// # Errors
    /// [`Error::NotSynced`] when the kind cannot be listed; [`Error::Undecodable`] when the object is not what the type expects;
    /// [`Error::Api`] when the cache lags and the live read fails too.
    pub async fn get<K: Object>(&self, namespace: Option<&str>, name: &str) -> Result<Option<Arc<K>>> {
        self.get_of(&Form::of::<K>(), namespace, name)
            .await
            .map(|found| found.map(typed))
    }

    /// All objects of a kind from the cache, in one namespace or in all, ordered by namespace and name. Objects that cannot be decoded are
    /// left out, or in their last readable state; see [`Informer::unreadable`].
    ///
    /// # Errors
    /// [`Error::NotSynced`] when the kind cannot be listed, [`Error::Stale`] when the cache does not show our own writes in time.
    pub async fn list<K: Object>(&self, namespace: Option<&str>) -> Result<Vec<Arc<K>>> {
        self.listed(&Form::of::<K>(), namespace, Which::All)
            .await
            .map(typed_all)
    }

    /// The objects whose labels match; see [`Client::list`].
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_matching<K: Object>(&self, namespace: Option<&str>, labels: &Selector) -> Result<Vec<Arc<K>>> {
        self.listed(&Form::of::<K>(), namespace, Which::Labelled(labels))
            .await
            .map(typed_all)
    }

    /// The objects whose controller (the owner reference with `controller: true`) has this uid, by index.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn owned_by<K: Object>(&self, namespace: Option<&str>, owner_uid: &str) -> Result<Vec<Arc<K>>> {
        self.listed(&Form::of::<K>(), namespace, Which::OwnedBy(owner_uid))
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
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<K>>> {
        let found = self.get_shared(informer.shared(), namespace, name).await?;
        Ok(found.map(typed))
    }

    /// [`Client::list`] through an informer of your own.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_from<K: AnyObject>(
        &self,
        informer: &Informer<K>,
        namespace: Option<&str>,
    ) -> Result<Vec<Arc<K>>> {
        self.wait_for_list(informer.shared(), namespace).await?;
        Ok(informer.store().list_in(namespace))
    }

    /// One object straight from the API server.
    ///
    /// # Errors
    /// [`Error::Api`] when the server refuses; a missing object is `None`.
    pub async fn live<K: Object>(&self, namespace: Option<&str>, name: &str) -> Result<Option<K>> {
        self.live_of::<K>(&api_resource::<K>(), namespace, name).await
    }

    /// [`Client::live`] for a kind that is known at run time.
    ///
    /// # Errors
    /// As [`Client::live`].
    pub async fn live_of<K: AnyObject>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<K>> {
        let form = Form::for_resource::<K>(resource);
        let live = self.live_shared(&form, namespace, name).await?;
        Ok(live.map(|live| Arc::unwrap_or_clone(typed(live))))
    }
}

/// Which objects of a kind.
enum Which<'a> {
    All,
    Labelled(&'a Selector),
    OwnedBy(&'a str),
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
            let informer = self.cache().pinned_of(form);
            covered(&informer, namespace)?;
            self.get_shared(&informer, namespace, name).await
        })
    }

    pub(crate) fn get_shared<'a>(
        &'a self,
        informer: &'a Shared,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn Cached>>>> {
        Box::pin(async move {
            informer.synced_within(FIRST_READ_DEADLINE).await?;
            let request = Request::new(namespace, name);
            if informer.caught_up_with(&request, self.read_deadline).await {
                return informer.core().look_up(namespace, name);
            }
            tracing::debug!(resource = %informer.name(), object = %request, "the cache lags behind our own write; reading from the API");
            let live = self.live_shared(informer.form(), namespace, name).await?;
            informer.settle_receipt(&request, live.as_ref().map(|live| live.metadata()));
            Ok(live)
        })
    }

    /// Objects from the cache, once all our own writes in the namespace are there.
    fn listed<'a>(
        &'a self,
        form: &'a Form,
        namespace: Option<&'a str>,
        which: Which<'a>,
    ) -> BoxFuture<'a, Result<Vec<Arc<dyn Cached>>>> {
        Box::pin(async move {
            let informer = self.cache().pinned_of(form);
            covered(&informer, namespace)?;
            self.wait_for_list(&informer, namespace).await?;
            Ok(match which {
                Which::All => informer.core().list_in(namespace),
                Which::Labelled(labels) => informer.core().matching(namespace, labels),
                Which::OwnedBy(uid) => informer.core().owned_by(namespace, uid),
            })
        })
    }

    fn wait_for_list<'a>(&'a self, informer: &'a Shared, namespace: Option<&'a str>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            informer.synced_within(FIRST_READ_DEADLINE).await?;
            // A write whose outcome is unknown is looked up first: it would hold every list until the deadline.
            for request in informer.unknown_writes(namespace) {
                let live = self
                    .live_shared(informer.form(), request.namespace(), request.name())
                    .await?;
                informer.settle_receipt(&request, live.as_ref().map(|live| live.metadata()));
            }
            if informer.caught_up_in(namespace, self.read_deadline).await {
                return Ok(());
            }
            Err(Error::Stale {
                what: informer.name().to_owned(),
                waited: self.read_deadline,
            })
        })
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
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        })
    }
}

/// Refuses to read of a namespace that the cache does not hold: "it does not exist" would be an invention.
fn covered(informer: &Shared, namespace: Option<&str>) -> Result<()> {
    match (informer.scope().namespace.as_deref(), namespace) {
        (Some(held), Some(wanted)) if held != wanted => Err(Error::Configuration(format!(
            "cannot read {} in namespace {wanted}: this manager is restricted to namespace {held}",
            informer.resource().plural
        ))),
        _ => Ok(()),
    }
}
