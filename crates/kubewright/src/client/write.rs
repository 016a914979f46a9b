//! Writes: each leaves a receipt for reads and is told to the observers.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::api::{DeleteParams, ListParams, ObjectList, Patch, PatchParams};
use kube::core::params::Preconditions;
use kube::core::{ApiResource, DynamicObject, ObjectMeta, Status};
use serde::Serialize;
use serde_json::Value;

use super::{BuiltRequest, Client, Target, is_gone, scoped};
use crate::cache::Gone;
use crate::error::Result;
use crate::form::{AsJson, Cached, Form, times, typed};
use crate::namespace::InNamespace;
use crate::object::{Given, Object};

impl Client {
    /// Creates an object (POST).
    ///
    /// # Errors
    /// [`Error::Api`](crate::Error::Api) when the server refuses;
    /// [`Error::is_already_exists`](crate::Error::is_already_exists) tells the most common reason.
    pub async fn create<K: Object>(&self, object: &K) -> Result<Arc<K>> {
        self.create_shared(&Form::of::<K>(), object).await.map(typed)
    }

    /// Replaces an object (PUT). The resourceVersion inside is the optimistic lock, and the server judges it: an update
    /// that changes nothing is sent too (the server then writes nothing), because the cache cannot know whether the
    /// object has changed since. Compare before you call.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) when the object changed since it was read;
    /// [`Error::Api`](crate::Error::Api) when the server refuses.
    pub async fn update<'a, K: Object>(&self, object: impl Given<'a, K>) -> Result<Arc<K>> {
        self.replace(&Form::of::<K>(), object.given(), None).await.map(typed)
    }

    /// Replaces the status of an object (PUT of `/status`).
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn update_status<'a, K: Object>(&self, object: impl Given<'a, K>) -> Result<Arc<K>> {
        self.replace(&Form::of::<K>(), object.given(), Some("status"))
            .await
            .map(typed)
    }

    /// Patches an object. [`Patch::Merge`] and [`Patch::Strategic`] carry no lock unless the patch names a
    /// resourceVersion.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) and [`Error::Api`](crate::Error::Api) as the server answers.
    pub async fn patch<K: Object, P: Serialize + fmt::Debug>(
        &self,
        namespace: impl InNamespace,
        name: &str,
        patch: &Patch<P>,
    ) -> Result<Arc<K>> {
        let namespace = namespace.namespace();
        self.patch_at::<K, P>(namespace, name, None, patch).await
    }

    /// Patches the status of an object (PATCH of `/status`).
    ///
    /// # Errors
    /// As [`Client::patch`].
    pub async fn patch_status<K: Object, P: Serialize + fmt::Debug>(
        &self,
        namespace: impl InNamespace,
        name: &str,
        patch: &Patch<P>,
    ) -> Result<Arc<K>> {
        let namespace = namespace.namespace();
        self.patch_at(namespace, name, Some("status"), patch).await
    }

    pub(super) async fn patch_at<K: Object, P: Serialize + fmt::Debug>(
        &self,
        namespace: Option<&str>,
        name: &str,
        subresource: Option<&str>,
        patch: &Patch<P>,
    ) -> Result<Arc<K>> {
        let form = Form::of::<K>();
        let request = self.patch_request(&form, namespace, name, subresource, patch);
        self.send_patch(&form, namespace, name, subresource, request)
            .await
            .map(typed)
    }

    /// [`Client::patch`] for a kind that is known at run time.
    ///
    /// # Errors
    /// As [`Client::patch`].
    pub async fn patch_dynamic<P: Serialize + fmt::Debug>(
        &self,
        resource: &ApiResource,
        namespace: impl InNamespace,
        name: &str,
        patch: &Patch<P>,
    ) -> Result<DynamicObject> {
        let namespace = namespace.namespace();
        self.patch_dynamic_in(resource, namespace, name, None, patch).await
    }

    /// [`Client::patch_status`] for a kind that is known at run time.
    ///
    /// # Errors
    /// As [`Client::patch`].
    pub async fn patch_status_dynamic<P: Serialize + fmt::Debug>(
        &self,
        resource: &ApiResource,
        namespace: impl InNamespace,
        name: &str,
        patch: &Patch<P>,
    ) -> Result<DynamicObject> {
        let namespace = namespace.namespace();
        self.patch_dynamic_in(resource, namespace, name, Some("status"), patch)
            .await
    }

    async fn patch_dynamic_in<P: Serialize + fmt::Debug>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        subresource: Option<&str>,
        patch: &Patch<P>,
    ) -> Result<DynamicObject> {
        let form = Form::for_resource::<DynamicObject>(resource);
        let target = Target::new(resource, namespace, name);
        let request = self.patch_request(&form, namespace, name, subresource, patch);
        let written = self.write(&target, "patch", subresource, request, &form).await?;
        self.wrote(&target, "patch", subresource, None, &*written);
        Ok(Arc::unwrap_or_clone(typed(written)))
    }

    /// Creates or replaces an object of the runtime itself, of which observers are not told.
    pub(crate) async fn write_own(&self, resource: &ApiResource, object: &DynamicObject) -> Result<DynamicObject> {
        let form = Form::for_resource::<DynamicObject>(resource);
        let target = Target::of_object(&form, &object.metadata)?;
        let (requests, params, body) = (target.requests(), self.post_params(), serde_json::to_vec(object)?);
        let (verb, request) = match object.metadata.resource_version {
            Some(_) => ("update", requests.replace(target.name, &params, body)),
            None => ("create", requests.create(&params, body)),
        };
        let written = self.write(&target, verb, None, request, &form).await?;
        Ok(Arc::unwrap_or_clone(typed(written)))
    }

    /// A JSON patch (RFC 6902): its operations, and the guards among them (`test`), meet the state that the server has.
    pub(crate) async fn patch_json(
        &self,
        resource: &ApiResource,
        name: &str,
        operations: &Value,
    ) -> Result<DynamicObject> {
        let form = Form::for_resource::<DynamicObject>(resource);
        let target = Target::new(resource, None, name);
        let request = self.patch_request(&form, None, name, None, &Patch::Merge(operations));
        let request = request.map(|mut request| {
            let json_patch = http::HeaderValue::from_static("application/json-patch+json");
            request.headers_mut().insert(http::header::CONTENT_TYPE, json_patch);
            request
        });
        let written = self.write(&target, "patch", None, request, &form).await?;
        self.wrote(&target, "patch", None, None, &*written);
        Ok(Arc::unwrap_or_clone(typed(written)))
    }

    fn patch_request<P: Serialize + fmt::Debug>(
        &self,
        form: &Form,
        namespace: Option<&str>,
        name: &str,
        subresource: Option<&str>,
        patch: &Patch<P>,
    ) -> BuiltRequest {
        let target = Target::new(&form.resource, scoped(form, namespace), name);
        let params = PatchParams {
            dry_run: self.dry_run,
            field_manager: Some(self.field_manager.to_string()),
            ..Default::default()
        };
        match subresource {
            Some(subresource) => target
                .requests()
                .patch_subresource(subresource, target.name, &params, patch),
            None => target.requests().patch(target.name, &params, patch),
        }
    }

    /// Deletes exactly this object: the request carries its uid. `false` when it was gone already, or replaced by a
    /// namesake.
    ///
    /// # Errors
    /// [`Error::Api`](crate::Error::Api) when the server refuses.
    pub async fn delete<'a, K: Object>(&self, object: impl Given<'a, K>) -> Result<bool> {
        self.delete_with(object, DeleteParams::default()).await
    }

    /// [`Client::delete`] with a propagation policy, a grace period or a resourceVersion precondition. The uid is added
    /// for you.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) when a resourceVersion precondition fails;
    /// [`Error::Api`](crate::Error::Api) when the server refuses.
    pub async fn delete_with<'a, K: Object>(&self, object: impl Given<'a, K>, params: DeleteParams) -> Result<bool> {
        self.delete_exactly(&Form::of::<K>(), object.given().meta(), params)
            .await
    }

    /// Deletes by name, whichever object has it now. `false` when there is none.
    ///
    /// # Errors
    /// As [`Client::delete_with`].
    pub async fn delete_named<K: Object>(
        &self,
        namespace: impl InNamespace,
        name: &str,
        params: DeleteParams,
    ) -> Result<bool> {
        let namespace = namespace.namespace();
        let form = Form::of::<K>();
        let target = Target::new(&form.resource, scoped(&form, namespace), name);
        self.delete_target(&target, params, None).await
    }

    /// Deletes all objects of a kind that these selectors choose, in one namespace (or in none, of a kind without
    /// namespaces), and says how many (`DeleteAllOf`); 0 when the server does not say. It deletes them one after the
    /// other: an error may come when some are gone.
    ///
    /// ```
    /// # use kubewright::{Client, Result};
    /// # use kubewright::k8s_openapi::api::core::v1::ConfigMap;
    /// # use kubewright::kube::api::{DeleteParams, ListParams};
    /// # async fn clean(client: &Client) -> Result<()> {
    /// let old = ListParams::default().labels("generation=old");
    /// client.delete_collection::<ConfigMap>("default", &old, DeleteParams::default()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Api`](crate::Error::Api) when the server refuses.
    pub async fn delete_collection<K: Object>(
        &self,
        namespace: impl InNamespace,
        which: &ListParams,
        mut params: DeleteParams,
    ) -> Result<usize> {
        let namespace = namespace.namespace();
        let form = Form::of::<K>();
        // Whichever objects they are.
        let target = Target {
            generated: true,
            ..Target::new(&form.resource, scoped(&form, namespace), "")
        };
        params.dry_run |= self.is_dry_run();
        let request = target.requests().delete_collection(&params, which);
        let mut flight = self.send_write(&target);
        flight.open &= !params.dry_run;
        let attempt = format!("delete all {} that are selected", form.resource.plural);
        // With an error, or an answer that does not say which, some may be gone: the flight stays open.
        let answer = self.send_text(&attempt, request).await?;
        let Ok(deleted) = times::read::<ObjectList<DynamicObject>>(&answer) else {
            return Ok(0);
        };
        flight.open = false;
        for object in deleted.items.iter().filter(|_| !params.dry_run) {
            let one = Target::of_object(&form, &object.metadata)?;
            // The answer shows it as it was: whether finalizers or a grace period hold it is not known.
            self.leave_unknown(&one);
            self.notify(&one, "delete", None, Vec::new);
        }
        Ok(deleted.items.len())
    }

    /// Deletes an object of a kind that is known at run time; give the uid as a precondition. `false` when there is
    /// none.
    ///
    /// # Errors
    /// As [`Client::delete_with`].
    pub async fn delete_dynamic(
        &self,
        resource: &ApiResource,
        namespace: impl InNamespace,
        name: &str,
        params: DeleteParams,
    ) -> Result<bool> {
        let namespace = namespace.namespace();
        self.delete_target(&Target::new(resource, namespace, name), params, None)
            .await
    }
}

/// The same without the type; see `form.rs`.
impl Client {
    pub(crate) fn create_shared<'a>(
        &'a self,
        form: &'a Form,
        object: &'a dyn Cached,
    ) -> BoxFuture<'a, Result<Arc<dyn Cached>>> {
        Box::pin(async move {
            let meta = object.metadata();
            let name = meta.name.as_deref().or(meta.generate_name.as_deref());
            let namespace = scoped(form, meta.namespace.as_deref());
            let target = Target {
                generated: meta.name.is_none(),
                ..Target::new(&form.resource, namespace, name.unwrap_or_default())
            };
            let body = serde_json::to_vec(&object.json()?)?;
            let request = target.requests().create(&self.post_params(), body);
            let created = self.write(&target, "create", None, request, form).await?;
            self.wrote(&target, "create", None, None, &*created);
            Ok(created)
        })
    }

    fn replace<'a>(
        &'a self,
        form: &'a Form,
        object: &'a dyn Cached,
        subresource: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Arc<dyn Cached>>> {
        Box::pin(async move {
            let meta = object.metadata();
            let target = Target::of_object(form, &meta)?;
            let before = self.cached(form, &target);
            let wanted = object.json()?;
            let (requests, params) = (target.requests(), self.post_params());
            let body = serde_json::to_vec(&wanted)?;
            let request = match subresource {
                Some(subresource) => requests.replace_subresource(subresource, target.name, &params, body),
                None => requests.replace(target.name, &params, body),
            };
            let written = self.write(&target, "update", subresource, request, form).await?;
            self.wrote(&target, "update", subresource, before.as_deref(), &*written);
            Ok(written)
        })
    }

    pub(crate) async fn patch_shared(
        &self,
        form: &Form,
        namespace: Option<&str>,
        name: &str,
        subresource: Option<&str>,
        patch: &Patch<Value>,
    ) -> Result<Arc<dyn Cached>> {
        let request = self.patch_request(form, namespace, name, subresource, patch);
        self.send_patch(form, namespace, name, subresource, request).await
    }

    fn send_patch<'a>(
        &'a self,
        form: &'a Form,
        namespace: Option<&'a str>,
        name: &'a str,
        subresource: Option<&'a str>,
        request: BuiltRequest,
    ) -> BoxFuture<'a, Result<Arc<dyn Cached>>> {
        Box::pin(async move {
            let target = Target::new(&form.resource, scoped(form, namespace), name);
            let before = self.cached(form, &target);
            let written = self.write(&target, "patch", subresource, request, form).await?;
            self.wrote(&target, "patch", subresource, before.as_deref(), &*written);
            Ok(written)
        })
    }

    /// Server-side apply, taking over the fields of others unless the client does not. `verb` is the resulting verb.
    pub(crate) async fn send_apply(
        &self,
        form: &Form,
        target: &Target<'_>,
        verb: &'static str,
        wanted: &Value,
        before: Option<&dyn Cached>,
    ) -> Result<Arc<dyn Cached>> {
        let params = PatchParams {
            dry_run: self.dry_run,
            force: self.forces,
            ..PatchParams::apply(&self.field_manager)
        };
        let request = target.requests().patch(target.name, &params, &Patch::Apply(wanted));
        let written = self.write(target, verb, None, request, form).await?;
        self.wrote(target, verb, None, before, &*written);
        Ok(written)
    }

    fn delete_exactly<'a>(
        &'a self,
        form: &'a Form,
        meta: &'a ObjectMeta,
        mut params: DeleteParams,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let target = Target::of_object(form, meta)?;
            let preconditions = params.preconditions.get_or_insert(Preconditions {
                resource_version: None,
                uid: None,
            });
            if preconditions.uid.is_none() {
                preconditions.uid.clone_from(&meta.uid);
            }
            self.delete_target(&target, params, meta.resource_version.as_deref())
                .await
        })
    }

    /// `seen`: a version at which the object existed.
    fn delete_target<'a>(
        &'a self,
        target: &'a Target<'a>,
        mut params: DeleteParams,
        seen: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            params.dry_run |= self.dry_run;
            let wanted = params.preconditions.as_ref();
            let by_uid_only = wanted.is_some_and(|given| given.uid.is_some() && given.resource_version.is_none());
            let uid = wanted.and_then(|given| given.uid.clone());
            let request = target.requests().delete(target.name, &params);
            let mut flight = self.send_write(target);
            flight.open &= !params.dry_run;
            let answer = self.send_text(&target.attempt("delete"), request).await;
            match flight.outcome(answer) {
                Ok(answer) => {
                    if !params.dry_run {
                        let (object, status) = deletion(&answer);
                        self.arm_delete(target, object.as_ref(), status.as_ref(), uid.as_deref(), seen);
                        self.notify(target, "delete", None, Vec::new);
                    }
                    Ok(true)
                }
                Err(error) if error.is_absent() => Ok(false),
                // Only a uid was demanded: the object that was meant is gone, a namesake lives.
                Err(error) if error.is_conflict() && by_uid_only => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// Leaves the receipt of a delete. The server answers with the object when it waits for its finalizers or its grace
    /// period (then it was written), and for some kinds also when it is gone; otherwise with a status that names the
    /// uid.
    fn arm_delete(
        &self,
        target: &Target<'_>,
        object: Option<&DynamicObject>,
        status: Option<&Status>,
        uid: Option<&str>,
        seen: Option<&str>,
    ) {
        if let Some(object) = object
            && object.metadata.deletion_timestamp.is_some()
            && !is_gone(&object.metadata)
        {
            return self.arm(target, &object.metadata, &|| object.json_or_null());
        }
        let answered = status.and_then(|status| Some(status.details.as_ref()?.uid.as_str()));
        let answered = object.and_then(|object| object.metadata.uid.as_deref()).or(answered);
        let gone = Gone {
            key: target.object_key(),
            uid: answered.filter(|uid| !uid.is_empty()).or(uid),
            seen: object
                .and_then(|object| object.metadata.resource_version.as_deref())
                .or(seen),
        };
        self.leave_receipt(|cache| cache.arm_deleted(target.resource, &gone));
    }
}

/// The answer to a delete: the object, or a status. Neither when it cannot be understood.
fn deletion(text: &str) -> (Option<DynamicObject>, Option<Status>) {
    match times::read::<DynamicObject>(text) {
        Ok(object) if object.types.as_ref().is_none_or(|types| types.kind != "Status") => (Some(object), None),
        _ => (None, serde_json::from_str(text).ok()),
    }
}
