//! The controller `book`: brings the world in line with books.

use kubewright::prelude::*;

use conversion_api::v1;

/// Reconciles [`v1::Book`].
#[derive(Clone, Copy, Debug, Default)]
pub struct BookReconciler;

// It may read books, write their status, and handle what it owns. What else it touches is allowed here, such as:
// #[rbac(groups = "", resources = "secrets", verbs = "get")]
impl Reconciler for BookReconciler {
    type Object = v1::Book;

    /// Called when a Book, or something that belongs to it, has changed. It is not told what: look at the world, and do
    /// what is missing.
    async fn reconcile(&self, book: Arc<v1::Book>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the Book and goes with it.
        // People are told with `ctx.patch_status(&*book, |book| …).await?`.
        let _ = (book, ctx);
        Ok(Action::await_change())
    }
}

/// The controller: what it watches. Kinds of children are added here: `.owns::<Deployment>()`.
pub fn controller() -> Controller {
    Controller::of(BookReconciler)
}
