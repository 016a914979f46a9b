//! The controller `dock-harbour-berth`: reconciles berths.

use kubewright::conditions;
use kubewright::predicate;
use kubewright::prelude::*;

use multigroup_api::dock_harbour::v1beta1;

/// Reconciles [`v1beta1::Berth`].
#[derive(Clone, Copy, Debug, Default)]
pub struct BerthReconciler;

// It may read berths, write their status, and manage what it owns. Allow more here, such as:
// #[rbac(groups = "", resources = "secrets", verbs = "get")]
impl Reconciler for BerthReconciler {
    type Object = v1beta1::Berth;

    /// Called when a Berth, or an object that it owns, has changed. Compare what it asks for with what exists, and do what is missing.
    async fn reconcile(&self, berth: Arc<v1beta1::Berth>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the Berth and goes with it.
        let object = &*berth;
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
    Controller::of(BerthReconciler)
        .named("dock-harbour-berth")
        .with_predicate::<v1beta1::Berth>(predicate::generation_changed)
}
