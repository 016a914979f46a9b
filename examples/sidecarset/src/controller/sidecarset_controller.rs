//! The controller `sidecarset`: brings the world in line with sidecarsets.

use kubewright::prelude::*;

use sidecarset_api::v1alpha1;

/// Reconciles [`v1alpha1::SidecarSet`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SidecarSetReconciler;

// It may read sidecarsets, write their status, and handle what it owns. What else it touches is allowed here, such as:
// #[rbac(groups = "", resources = "secrets", verbs = "get")]
impl Reconciler for SidecarSetReconciler {
    type Object = v1alpha1::SidecarSet;

    /// Called when a SidecarSet, or something that belongs to it, has changed. It is not told what: look at the world, and do what is missing.
    async fn reconcile(&self, sidecarset: Arc<v1alpha1::SidecarSet>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the SidecarSet and goes with it.
        // People are told with `ctx.patch_status(&*sidecarset, |sidecarset| …).await?`.
        let _ = (sidecarset, ctx);
        Ok(Action::await_change())
    }
}

/// The controller: what it watches. Kinds of children are added here: `.owns::<Deployment>()`.
pub fn controller() -> Controller {
    Controller::of(SidecarSetReconciler)
}
