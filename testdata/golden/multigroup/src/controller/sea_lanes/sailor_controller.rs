//! The controller `sea-lanes-sailor`: brings the world in line with sailors.

use kubewright::conditions;
use kubewright::prelude::*;

use multigroup_api::sea_lanes::v1;

/// Reconciles [`v1::Sailor`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SailorReconciler;

// It may read sailors, write their status, and handle what it owns. What else it touches is allowed here, such as:
// #[rbac(groups = "", resources = "secrets", verbs = "get")]
impl Reconciler for SailorReconciler {
    type Object = v1::Sailor;

    /// Called when a Sailor, or something that belongs to it, has changed. It is not told what: look at the world, and do what is missing.
    async fn reconcile(&self, sailor: Arc<v1::Sailor>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the Sailor and goes with it.
        let object = &*sailor;
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
    Controller::of(SailorReconciler).named("sea-lanes-sailor")
}
