//! Handlers that see the request as it came and the object as JSON, whatever its kind: for a webhook about many kinds,
//! about subresources and connections, or about fields that no Rust type has (controller-runtime's
//! `admission.Handler`).
//!
//! They stand in the same chain as typed ones, so that each sees what those before it changed.

use std::future::Future;

use futures::future::BoxFuture;
use serde_json::Value;

use super::denied::Denied;
use super::handlers::Admit;
use super::json_patch;
use super::request::AdmissionRequest;

/// Changes objects as JSON.
///
/// ```
/// use kubewright::webhook::RawDefaulter;
/// use kubewright::{AdmissionRequest, Denied};
/// use serde_json::{Value, json};
///
/// struct Owner;
///
/// impl RawDefaulter for Owner {
///     async fn default(&self, object: &mut Value, request: &AdmissionRequest) -> Result<(), Denied> {
///         object["metadata"]["labels"]["owner"] = json!(request.user_info.username);
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no raw defaulter",
    note = "implement `RawDefaulter` for it: `default` changes the object, which is JSON"
)]
pub trait RawDefaulter: Send + Sync + 'static {
    /// Changes the object in place. Asked about whatever the webhook is registered for and has an object: not about
    /// deletions.
    ///
    /// # Errors
    /// [`Denied`] refuses the write.
    fn default(
        &self,
        object: &mut Value,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<(), Denied>> + Send;
}

/// Judges requests as they come.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no raw validator",
    note = "implement `RawValidator` for it: `validate` says what is wrong with the request"
)]
pub trait RawValidator: Send + Sync + 'static {
    /// Looks at the request. Its `object` and `old_object` are JSON; which of them there are depends on its
    /// `operation`.
    ///
    /// # Errors
    /// [`Denied`] refuses it.
    fn validate(&self, request: &AdmissionRequest) -> impl Future<Output = Result<(), Denied>> + Send;
}

/// A raw defaulter as the handlers see it.
pub(super) struct RawDefaults<D>(pub(super) D);

impl<D: RawDefaulter> Admit for RawDefaults<D> {
    fn admit<'a>(
        &'a self,
        request: &'a AdmissionRequest,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Vec<json_patch::Operation>, Denied>> {
        Box::pin(async move {
            let Some(before) = object else { return Ok(Vec::new()) };
            let mut after = before.clone();
            self.0.default(&mut after, request).await?;
            let mut steps = Vec::new();
            json_patch::walk("", before, &after, &mut steps);
            Ok(steps)
        })
    }
}

/// A raw validator as the handlers see it.
pub(super) struct RawValidates<V>(pub(super) V);

impl<V: RawValidator> Admit for RawValidates<V> {
    fn admit<'a>(
        &'a self,
        request: &'a AdmissionRequest,
        _: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Vec<json_patch::Operation>, Denied>> {
        Box::pin(async move { self.0.validate(request).await.map(|()| Vec::new()) })
    }
}
