//! The controller `guestbook`: brings the world in line with guestbooks.

use kubewright::prelude::*;

use plain_api::v1;

/// Reconciles [`v1::Guestbook`].
#[derive(Clone, Copy, Debug, Default)]
pub struct GuestbookReconciler;

// It may read guestbooks, write their status, and handle what it owns. What else it touches is allowed here, such as:
// #[rbac(groups = "", resources = "secrets", verbs = "get")]
impl Reconciler for GuestbookReconciler {
    type Object = v1::Guestbook;

    /// Called when a Guestbook, or something that belongs to it, has changed. It is not told what: look at the world,
    /// and do what is missing.
    async fn reconcile(&self, guestbook: Arc<v1::Guestbook>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the Guestbook and goes with it.
        // People are told with `ctx.patch_status(&*guestbook, |guestbook| …).await?`.
        let _ = (guestbook, ctx);
        Ok(Action::await_change())
    }
}

/// The controller: what it watches. Kinds of children are added here: `.owns::<Deployment>()`.
pub fn controller() -> Controller {
    Controller::of(GuestbookReconciler)
}
