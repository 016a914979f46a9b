//! The controller `book`: reconciles books.

use kubewright::conditions;
use kubewright::predicate;
use kubewright::prelude::*;

use conversion_api::v1;

/// Reconciles [`v1::Book`].
#[derive(Clone, Copy, Debug, Default)]
pub struct BookReconciler;

// It may read books, write their status, and manage what it owns. Allow more here, such as:
// #[rbac(groups = "", resources = "secrets", verbs = "get")]
impl Reconciler for BookReconciler {
    type Object = v1::Book;

    /// Called when a Book, or an object that it owns, has changed. Compare what it asks for with what exists, and do what is missing.
    async fn reconcile(&self, book: Arc<v1::Book>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the Book and goes with it.
        let object = &*book;
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
    Controller::of(BookReconciler).with_predicate::<v1::Book>(predicate::generation_changed)
}
