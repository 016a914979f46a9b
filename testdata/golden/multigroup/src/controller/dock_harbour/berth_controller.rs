//! The controller `dock-harbour-berth`: brings the world in line with berths.

use kubewright::conditions;
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
        let object = &*berth;
        // People are told in the status; nothing is sent when nothing changes.
        let seen = ctx.condition(object, "Available", true, "Reconciled", "as asked for");
        ctx.patch_status(object, |object| {
            let status = object.status.get_or_insert_default();
            conditions::set(&mut status.conditions, seen);
        })
        .await?;
        Ok(Action::await_change())
    }
}

/// The controller: what it watches. Kinds of children are added here: `.owns::<Deployment>()`.
pub fn controller() -> Controller {
    Controller::of(BerthReconciler).named("dock-harbour-berth")
}
