//! The controller `sailor`: reconciles sailors.

use kubewright::conditions;
use kubewright::k8s_openapi::api::core::v1::ConfigMap;
use kubewright::predicate;
use kubewright::prelude::*;

use multigroup_api::crew::v1;

/// Reconciles [`v1::Sailor`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SailorReconciler;

// It may read sailors, write their status, and manage what it owns. Allow more here, such as:
#[rbac(groups = "", resources = "secrets", verbs = "get")]
impl Reconciler for SailorReconciler {
    type Object = v1::Sailor;

    /// Called when a Sailor, or an object that it owns, has changed. Compare what it asks for with what exists, and do what is missing.
    async fn reconcile(&self, sailor: Arc<v1::Sailor>, ctx: Context) -> Result<Action> {
        // A child is created or updated with `ctx.apply(child).await?`: it belongs to the Sailor and goes with it.
        let mut papers = ConfigMap::default();
        papers.metadata.name = Some(format!("{}-papers", sailor.name_any()));
        papers.metadata.namespace = sailor.namespace();
        let rank = format!("{:?}", sailor.spec.rank);
        papers.data = Some([("rank".to_owned(), rank)].into());
        ctx.apply(papers).await?;
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
        .with_predicate::<v1::Sailor>(predicate::generation_changed)
        .owns::<ConfigMap>()
}
