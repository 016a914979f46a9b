//! The controller `sea-lanes-sailor`: reconciles sailors.

use kubewright::conditions;
use kubewright::predicate;
use kubewright::prelude::*;

use multigroup_api::sea_lanes::v1;

/// Reconciles [`v1::Sailor`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SailorReconciler;

// It may read sailors, write their status, and manage what it owns. Allow more here, such as:
// #[rbac(groups = "", resources = "secrets", verbs = "get")]
impl Reconciler for SailorReconciler {
    type Object = v1::Sailor;

    /// Called when a Sailor, or an object that it owns, has changed. Compare what it asks for with what exists, and do what is missing.
    async fn reconcile(&self, sailor: Arc<v1::Sailor>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the Sailor and goes with it.
        let object = &*sailor;
        // The status reports the result; nothing is sent if nothing changes.
        let ready = ctx.condition(object, "Ready", true, "Reconciled", "up to date");
        ctx.patch_status(object, |object| {
            let status = object.status.get_or_insert_default();
            conditions::set(&mut status.conditions, ready);
        })
        .await?;
        tracing::info!(generation = object.metadata.generation, "reconciled");
        Ok(Action::await_change())
    }
}

/// The controller: what it watches. Kinds of children are added here: `.owns::<Deployment>()`.
pub fn controller() -> Controller {
    Controller::of(SailorReconciler)
        .named("sea-lanes-sailor")
        .with_predicate::<v1::Sailor>(predicate::generation_changed)
}
