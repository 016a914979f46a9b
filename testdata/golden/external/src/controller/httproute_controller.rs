//! The controller `httproute`: reconciles httproutes.

use kubewright::prelude::*;

use external_api::external::gateway_networking::v1;

/// Reconciles [`v1::HTTPRoute`].
#[derive(Clone, Copy, Debug, Default)]
pub struct HTTPRouteReconciler;

// It may read httproutes and manage what it owns. Allow more here, such as:
#[rbac(groups = "", resources = "services", verbs = "get")]
impl Reconciler for HTTPRouteReconciler {
    type Object = v1::HTTPRoute;

    /// Called when an HTTPRoute, or an object that it owns, has changed. Compare what it asks for with what exists, and do what is missing.
    async fn reconcile(&self, httproute: Arc<v1::HTTPRoute>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the HTTPRoute and goes with it.
        // Report the result with `ctx.patch_status(&*httproute, |httproute| …).await?`.
        tracing::info!(name = httproute.name_any(), "reconciled");
        let _ = ctx;
        Ok(Action::await_change())
    }
}

/// The controller: what it watches. Kinds of children are added here: `.owns::<Deployment>()`.
pub fn controller() -> Controller {
    Controller::of(HTTPRouteReconciler)
}
