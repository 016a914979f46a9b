//! Reads: from the cache, after it has seen our own writes; or live.

use std::sync::Arc;

use kube::core::params::GetParams;
use kube::core::{ApiResource, Selector, SelectorExt};

use super::{Client, FIRST_READ_DEADLINE, Target};
use crate::cache::Informer;
use crate::error::{Error, Result};
use crate::object::{AnyObject, Object, api_resource};
use crate::request::Request;

impl Client {
    /// One object from the cache; `None` when it does not exist. Waits for writes of our own to the object.
    ///
    /// # Errors
    /// [`Error::NotSynced`] when the kind cannot be listed; [`Error::Api`] when the cache lags and the live read fails too.
    pub async fn get<K: Object>(&self, namespace: Option<&str>, name: &str) -> Result<Option<Arc<K>>> {
        let informer = self.cache().pinned::<K>();
        covered(&informer, namespace)?;
        self.get_from(&informer, namespace, name).await
    }

    /// All objects of a kind from the cache, in one namespace or in all, ordered by namespace and name.
    ///
    /// # Errors
    /// [`Error::NotSynced`] when the kind cannot be listed, [`Error::Stale`] when the cache does not show our own writes in time.
    pub async fn list<K: Object>(&self, namespace: Option<&str>) -> Result<Vec<Arc<K>>> {
        let informer = self.cache().pinned::<K>();
        covered(&informer, namespace)?;
        self.list_from(&informer, namespace).await
    }

    /// The objects whose labels match; see [`Client::list`].
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_matching<K: Object>(&self, namespace: Option<&str>, labels: &Selector) -> Result<Vec<Arc<K>>> {
        let mut objects = self.list::<K>(namespace).await?;
        let none = Default::default();
        objects.retain(|object| labels.matches(object.meta().labels.as_ref().unwrap_or(&none)));
        Ok(objects)
    }

    /// The objects whose controller (the owner reference with `controller: true`) has this uid, by index.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn owned_by<K: Object>(&self, namespace: Option<&str>, owner_uid: &str) -> Result<Vec<Arc<K>>> {
        let informer = self.cache().pinned::<K>();
        covered(&informer, namespace)?;
        self.wait_for_list(&informer, namespace).await?;
        Ok(informer.store().owned_by(namespace, owner_uid))
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
        informer.synced_within(FIRST_READ_DEADLINE).await?;
        let request = Request::new(namespace, name);
        if informer.caught_up_with(&request, self.read_deadline).await {
            return Ok(informer.store().get(namespace, name));
        }
        tracing::debug!(resource = %informer.name(), object = %request, "the cache lags behind our own write; reading from the API");
        let live = self.live_of::<K>(informer.resource(), namespace, name).await?;
        informer.settle_receipt(&request, live.as_ref().map(kube::Resource::meta));
        Ok(live.map(Arc::new))
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
        self.wait_for_list(informer, namespace).await?;
        Ok(informer.store().list_in(namespace))
    }

    async fn wait_for_list<K: AnyObject>(&self, informer: &Informer<K>, namespace: Option<&str>) -> Result<()> {
        informer.synced_within(FIRST_READ_DEADLINE).await?;
        // A write whose outcome is unknown is looked up first: it would hold every list until the deadline.
        for request in informer.unknown_writes(namespace) {
            let live = self
                .live_of::<K>(informer.resource(), request.namespace(), request.name())
                .await?;
            informer.settle_receipt(&request, live.as_ref().map(kube::Resource::meta));
        }
        if informer.caught_up_in(namespace, self.read_deadline).await {
            return Ok(());
        }
        Err(Error::Stale {
            what: informer.name().to_owned(),
            waited: self.read_deadline,
        })
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
        let target = Target::new(resource, namespace, name);
        let requests = target.requests();
        let params = GetParams::default();
        let request = if K::metadata_api() {
            requests.get_metadata(name, &params)
        } else {
            requests.get(name, &params)
        };
        match self.send::<K>(&target.attempt("get"), request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Refuses to read of a namespace that the cache does not hold: "it does not exist" would be an invention.
fn covered<K: AnyObject>(informer: &Informer<K>, namespace: Option<&str>) -> Result<()> {
    match (informer.scope().namespace.as_deref(), namespace) {
        (Some(held), Some(wanted)) if held != wanted => Err(Error::Configuration(format!(
            "cannot read {} in namespace {wanted}: this manager is restricted to namespace {held}",
            informer.resource().plural
        ))),
        _ => Ok(()),
    }
}
