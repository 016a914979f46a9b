//! The controller `pod`: reconciles pods.

use kubewright::prelude::*;

use kubewright::k8s_openapi::api::core::v1;

/// Reconciles [`v1::Pod`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PodReconciler;

// It may read pods and manage what it owns. Allow more here, such as:
#[rbac(groups = "", resources = "nodes", verbs = "get")]
impl Reconciler for PodReconciler {
    type Object = v1::Pod;

    /// Called when a Pod, or an object that it owns, has changed. Compare what it asks for with what exists, and do what is missing.
    async fn reconcile(&self, pod: Arc<v1::Pod>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the Pod and goes with it.
        // Report the result with `ctx.patch_status(&*pod, |pod| …).await?`.
        tracing::info!(name = pod.name_any(), "reconciled");
        let _ = ctx;
        Ok(Action::await_change())
    }
}

/// The controller: what it watches. Kinds of children are added here: `.owns::<Deployment>()`.
pub fn controller() -> Controller {
    Controller::of(PodReconciler)
}
