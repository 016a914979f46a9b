//! Validation: an object is looked at before it is stored or deleted.

use std::future::Future;

use futures::future::BoxFuture;
use serde_json::Value;

use super::denied::Denied;
use super::handlers::Admit;
use super::json_patch;
use super::request::{AdmissionRequest, Operation};
use crate::object::Object;

/// Says whether an object may be stored (controller-runtime's `admission.Validator`).
///
/// Objects come without `managedFields`, as from a cache; [`AdmissionRequest::object`] has them. An operation without an
/// implementation is allowed. Warnings for the user go through [`AdmissionRequest::warn`].
///
/// ```
/// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
/// use kubewright::{AdmissionRequest, Denied, FieldErrors, Validator};
///
/// struct Volume;
///
/// impl Validator for Volume {
///     type Object = ConfigMap;
///
///     async fn create(&self, config: &ConfigMap, _: &AdmissionRequest) -> Result<(), Denied> {
///         let mut errors = FieldErrors::new();
///         if let Some(volume) = config.data.as_ref().and_then(|data| data.get("volume"))
///             && volume.parse::<u8>().is_err()
///         {
///             errors.invalid("data[volume]", volume, "must be a number between 0 and 255");
///         }
///         errors.into_result()
///     }
///
///     async fn update(&self, old: &ConfigMap, new: &ConfigMap, request: &AdmissionRequest) -> Result<(), Denied> {
///         if old.immutable != new.immutable {
///             request.warn("immutable: think twice");
///         }
///         self.create(new, request).await
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no validator",
    note = "implement `Validator` for it: `type Object` is the kind, `create`, `update` and `delete` say what is wrong"
)]
pub trait Validator: Send + Sync + 'static {
    /// The kind that is validated.
    type Object: Object;

    /// An object is to be created.
    ///
    /// # Errors
    /// [`Denied`] refuses it.
    fn create(
        &self,
        object: &Self::Object,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<(), Denied>> + Send {
        let _ = (object, request);
        async { Ok(()) }
    }

    /// An object is to be changed from `old` to `new`.
    ///
    /// # Errors
    /// [`Denied`] refuses it.
    fn update(
        &self,
        old: &Self::Object,
        new: &Self::Object,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<(), Denied>> + Send {
        let _ = (old, new, request);
        async { Ok(()) }
    }

    /// An object is to be deleted. Asked only when the webhook is registered for deletions
    /// ([`Registration::operations`](super::Registration::operations)).
    ///
    /// # Errors
    /// [`Denied`] refuses it.
    fn delete(
        &self,
        object: &Self::Object,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<(), Denied>> + Send {
        let _ = (object, request);
        async { Ok(()) }
    }
}

/// A validator as the handlers see it.
pub(super) struct Validates<V>(pub(super) V);

impl<V: Validator> Admit for Validates<V> {
    fn admit<'a>(
        &'a self,
        request: &'a AdmissionRequest,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Vec<json_patch::Operation>, Denied>> {
        Box::pin(async move {
            match request.operation {
                Operation::Create => {
                    let object: V::Object = request.decode(request.needed(object)?, "object")?;
                    self.0.create(&object, request).await?;
                }
                Operation::Update => {
                    let new: V::Object = request.decode(request.needed(object)?, "object")?;
                    let old: V::Object = request.decode(request.raw_old_object()?, "oldObject")?;
                    self.0.update(&old, &new, request).await?;
                }
                Operation::Delete => {
                    let object: V::Object = request.decode(request.raw_old_object()?, "oldObject")?;
                    self.0.delete(&object, request).await?;
                }
                Operation::Connect => {} // no object of this kind takes part
            }
            Ok(Vec::new())
        })
    }
}
