//! Defaults: an object is changed before it is checked and stored.
//!
//! The handler decodes, lets the user's code change the typed object, and answers the difference as a patch of the
//! object as it was sent (W2). Not here: how the difference is found, see `merge.rs` and `json_patch.rs`.

use std::future::Future;

use futures::future::BoxFuture;
use serde_json::Value;

use super::denied::Denied;
use super::handlers::Admit;
use super::request::{AdmissionRequest, Operation};
use super::{json_patch, merge};
use crate::object::Object;

/// Fills in absent fields of an object (controller-runtime's `admission.Defaulter`).
///
/// It is called when an object is created or updated, perhaps more than once for one write, so it must give the same
/// result when it is applied to its own result. Its changes are answered as a minimal patch; fields that the Rust type
/// does not know are kept. The object comes without `managedFields`, as from a cache; [`AdmissionRequest::object`] has
/// them.
///
/// ```
/// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
/// use kubewright::{AdmissionRequest, Defaulter, Denied};
///
/// struct Volume;
///
/// impl Defaulter for Volume {
///     type Object = ConfigMap;
///
///     async fn default(&self, config: &mut ConfigMap, _: &AdmissionRequest) -> Result<(), Denied> {
///         config.data.get_or_insert_default().entry("volume".into()).or_insert("11".into());
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no defaulter",
    note = "implement `Defaulter` for it: `type Object` is the kind, `default` changes the object"
)]
pub trait Defaulter: Send + Sync + 'static {
    /// The kind that gets defaults.
    type Object: Object;

    /// Changes the object in place.
    ///
    /// # Errors
    /// [`Denied`] refuses the write; the object is then not stored.
    fn default(
        &self,
        object: &mut Self::Object,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<(), Denied>> + Send;
}

/// A defaulter as the handlers see it.
pub(super) struct Defaults<D>(pub(super) D);

impl<D: Defaulter> Admit for Defaults<D> {
    fn admit<'a>(
        &'a self,
        request: &'a AdmissionRequest,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Vec<json_patch::Operation>, Denied>> {
        Box::pin(async move {
            if !matches!(request.operation, Operation::Create | Operation::Update) {
                return Ok(Vec::new()); // there is no object that could get defaults
            }
            let raw = request.needed(object)?;
            let mut object: D::Object = request.decode(raw, "object")?;
            let before = serde_json::to_value(&object)?;
            self.0.default(&mut object, request).await?;
            let after = serde_json::to_value(&object)?;
            Ok(merge::changes(raw, &before, &after))
        })
    }
}
