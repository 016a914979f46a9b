//! The controller `guestbook`: reconciles guestbooks.

use kubewright::conditions;
use kubewright::predicate;
use kubewright::prelude::*;

use plain_api::v1;

/// Reconciles [`v1::Guestbook`].
#[derive(Clone, Copy, Debug, Default)]
pub struct GuestbookReconciler;

// It may read guestbooks, write their status, and manage what it owns. Allow more here, such as:
// #[rbac(groups = "", resources = "secrets", verbs = "get")]
impl Reconciler for GuestbookReconciler {
    type Object = v1::Guestbook;

    /// Called when a Guestbook, or an object that it owns, has changed. Compare what it asks for with what exists, and do what is missing.
    async fn reconcile(&self, guestbook: Arc<v1::Guestbook>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the Guestbook and goes with it.
        let object = &*guestbook;
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
    Controller::of(GuestbookReconciler)
        .with_predicate::<v1::Guestbook>(predicate::generation_changed)
}
