//! The controller `dock-harbour-berth`: brings the world in line with berths.

use kubewright::prelude::*;

use multigroup_api::dock_harbour::v1beta1;

/// Reconciles [`v1beta1::Berth`].
#[derive(Clone, Copy, Debug, Default)]
pub struct BerthReconciler;

// It may read berths, write their status, and handle what it owns. What else it touches is allowed here, such as:
// #[rbac(groups = "", resources = "secrets", verbs = "get")]
impl Reconciler for BerthReconciler {
    type Object = v1beta1::Berth;

    /// Called when a Berth, or something that belongs to it, has changed. It is not told what: look at the world, and do what is missing.
    async fn reconcile(&self, berth: Arc<v1beta1::Berth>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the Berth and goes with it.
        // People are told with `ctx.patch_status(&*berth, |berth| …).await?`.
        let _ = (berth, ctx);
        Ok(Action::await_change())
    }
}

/// The controller: what it watches. Kinds of children are added here: `.owns::<Deployment>()`.
pub fn controller() -> Controller {
    Controller::of(BerthReconciler).named("dock-harbour-berth")
}
