//! The controller `sidecarset`: counts the pods of SidecarSets, and upgrades their sidecars in place.
//!
//! A reconcile writes the ControllerRevision of the present spec, then images of pods, then what pods and the
//! SidecarSet say of it. Each step follows from what is in the cluster, so that a reconcile which was cut off is
//! finished by the next. Decisions are in `plan.rs`, `pods.rs`, `upgrade.rs`.
//!
//! Not here: injection, which is the task of the webhook for pods.

use kubewright::Scope;
use kubewright::k8s_openapi::api::apps::v1::ControllerRevision;
use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubewright::predicate;
use kubewright::prelude::*;

use sidecarset_api::v1alpha1;

use super::revisions::Present;
use super::{plan, pods, revisions, upgrade};
use crate::sidecar::{hash, record};

/// Reconciles [`v1alpha1::SidecarSet`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SidecarSetReconciler;

// The webhooks read namespaces, and have the API server check containers as PodTemplates, in dry runs.
#[rbac(groups = "", resources = "namespaces", verbs = "get;list;watch")]
#[rbac(groups = "", resources = "podtemplates", verbs = "create")]
#[rbac(groups = "", resources = "pods", verbs = "update")]
#[rbac(groups = "", resources = "pods/status", verbs = "patch")]
#[rbac(
    groups = "apps",
    resources = "controllerrevisions",
    verbs = "get;list;watch;create;update;delete"
)]
impl Reconciler for SidecarSetReconciler {
    type Object = v1alpha1::SidecarSet;

    /// Called when a SidecarSet, or a pod that it was injected into, has changed.
    async fn reconcile(&self, set: Arc<v1alpha1::SidecarSet>, ctx: Context) -> Result<Action> {
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let known = revisions::list(ctx.client(), ctx.request().name()).await?;
        let revision = match revisions::present(&ctx, &set, &known).await? {
            Present::Named(revision) => revision,
            Present::Taken => {
                ctx.patch_status(&*set, |set| {
                    let count = set.status.get_or_insert_default().collision_count.get_or_insert(0);
                    *count = count.saturating_add(1);
                })
                .await?;
                return Err(Error::retry(
                    "the name of the ControllerRevision was taken by another content",
                ));
            }
        };
        let hashes = hash::of(&set.spec);
        let all = ctx.client().list::<Pod>(None).await?;
        let own: Vec<&Pod> = all
            .iter()
            .map(|pod| &**pod)
            .filter(|pod| pods::belongs(&set, pod))
            .collect();
        let status = pods::status(&set, &hashes, &own, &revision);
        ctx.patch_status(&*set, |set| set.status = Some(status)).await?;
        revisions::truncate(&ctx, &set, &known, &own).await?;

        let plan = plan::plan(&set, &hashes, &own);
        let now = Time(ctx.now());
        for pod in &plan.upgrade {
            let upgraded = upgrade::upgraded(pod, &set, &hashes, &revision, &now)?;
            ctx.client().update(&upgraded).await?;
        }
        let mut news = 0_usize;
        for pod in &own {
            let refused = plan.not_upgradable.iter().any(|other| std::ptr::eq(*other, *pod));
            if !refused && !pods::is_upgradable(&set, &hashes, pod) {
                continue; // nothing is tried with it now: paused, or not selected
            }
            if let Some(condition) = upgrade::condition(pod, ctx.request().name(), !refused, &now) {
                news = news.saturating_add(usize::from(refused));
                ctx.patch_status(*pod, |pod| upgrade::set_condition(pod, condition))
                    .await?;
            }
        }
        if news > 0 {
            let count = plan.not_upgradable.len();
            let message = format!(
                "SidecarSet in-place update detected {count} not upgradable pod(s) in this round, will skip them."
            );
            ctx.event(&*set, EventType::Normal, "NotUpgradablePods", message);
        }
        Ok(Action::await_change())
    }
}

/// The controller: it watches pods beside its SidecarSets. A pod wakes the sets that it was injected by.
pub fn controller() -> Controller {
    Controller::of(SidecarSetReconciler)
        .reads::<ControllerRevision>(Scope::all())
        .with_predicate::<v1alpha1::SidecarSet>(predicate::generation_changed)
        .watches::<Pod>(|pod| {
            record::injected(pod)
                .iter()
                .map(|set| Request::new(None, set))
                .collect()
        })
}
