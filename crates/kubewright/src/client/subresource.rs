//! Subresources: parts of an object with an endpoint of their own (`status`, `scale`), and actions on it (`eviction`).

use std::fmt;
use std::sync::Arc;

use kube::api::Patch;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Client, Target, scoped};
use crate::error::Result;
use crate::form::Form;
use crate::namespace::InNamespace;
use crate::object::Object;

impl Client {
    /// A subresource as it is right now, such as the [`Scale`](crate::k8s_openapi::api::autoscaling::v1::Scale) of
    /// `scale`; `None` when there is no such object.
    ///
    /// # Errors
    /// [`Error::Api`](crate::Error::Api) when the server refuses.
    pub async fn live_subresource<K: Object, T: DeserializeOwned>(
        &self,
        namespace: impl InNamespace,
        name: &str,
        subresource: &str,
    ) -> Result<Option<T>> {
        let namespace = namespace.namespace();
        let form = Form::of::<K>();
        let target = Target::new(&form.resource, scoped(&form, namespace), name);
        let request = target.requests().get_subresource(subresource, name);
        match self.send(&target.attempt_at("get", Some(subresource)), request).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a subresource that is a document of its own, such as `scale` (PUT). A resourceVersion inside is the
    /// optimistic lock. [`Client::update_status`] is the one for the status.
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn update_subresource<K: Object, B: Serialize, T: DeserializeOwned>(
        &self,
        namespace: impl InNamespace,
        name: &str,
        subresource: &str,
        body: &B,
    ) -> Result<T> {
        let namespace = namespace.namespace();
        let body = serde_json::to_vec(body)?;
        self.act_on::<K, T>(namespace, name, "update", subresource, |target| {
            let params = self.post_params();
            target.requests().replace_subresource(subresource, name, &params, body)
        })
        .await
    }

    /// Posts to a subresource that is an action, such as a pod's `binding` or `eviction`; `T` is the type of the
    /// answer.
    ///
    /// # Errors
    /// As the server answers.
    pub async fn create_subresource<K: Object, B: Serialize, T: DeserializeOwned>(
        &self,
        namespace: impl InNamespace,
        name: &str,
        subresource: &str,
        body: &B,
    ) -> Result<T> {
        let namespace = namespace.namespace();
        let body = serde_json::to_vec(body)?;
        self.act_on::<K, T>(namespace, name, "create", subresource, |target| {
            let params = self.post_params();
            target.requests().create_subresource(subresource, name, &params, body)
        })
        .await
    }

    /// Patches a subresource whose answer is the object itself, such as `status`, `resize` or `ephemeralcontainers`.
    ///
    /// # Errors
    /// As [`Client::patch`].
    pub async fn patch_subresource<K: Object, P: Serialize + fmt::Debug>(
        &self,
        namespace: impl InNamespace,
        name: &str,
        subresource: &str,
        patch: &Patch<P>,
    ) -> Result<Arc<K>> {
        let namespace = namespace.namespace();
        self.patch_at(namespace, name, Some(subresource), patch).await
    }

    /// A write whose answer is not the object, so that its version is unknown.
    async fn act_on<K: Object, T: DeserializeOwned>(
        &self,
        namespace: Option<&str>,
        name: &str,
        verb: &'static str,
        subresource: &str,
        request: impl FnOnce(&Target<'_>) -> super::BuiltRequest + Send,
    ) -> Result<T> {
        let form = Form::of::<K>();
        let target = Target::new(&form.resource, scoped(&form, namespace), name);
        let request = request(&target);
        let flight = self.send_write(&target);
        let attempt = target.attempt_at(verb, Some(subresource));
        let answer = flight.outcome(self.send::<T>(&attempt, request).await)?;
        if !self.is_dry_run() {
            self.leave_unknown(&target);
            self.notify(&target, verb, Some(subresource), Vec::new);
        }
        Ok(answer)
    }
}
