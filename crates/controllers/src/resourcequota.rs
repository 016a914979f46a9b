//! ResourceQuotas: `status.hard` follows the spec, and `status.used` is the usage of the objects in the namespace.
//!
//! The API server charges created objects; this controller gives back the usage of deleted ones, and counts everything
//! once when a quota is new or its spec changes. It counts again when an object of a kind with a name of its own goes
//! or needs less; of other kinds (`count/…`) it only looks from time to time, because a watch on everything costs more
//! than such a quota is worth.
//!
//! Invariant: a charge is never taken back for an object that is just being created. The API server charges first and
//! stores at once after that; so the quota is taken from the cache, which is behind, the objects are asked for after
//! it, and the status is written only onto the version that was seen.
//!
//! Not here: refusing (the API server's admission), the counting itself (`kubewright_model::quota`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::kube::api::ListParams;
use kubewright::kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kubewright::kube::discovery::{ApiGroup, Discovery, Scope, verbs};
use kubewright::{
    Action, AnyObject, Context, Controller, Error, Event, Object, Reconciler, Result, Source, Watch, api_resource,
};
use kubewright_model::quota::{Evaluator, ResourceList, parse, to_value};
use kubewright_objects::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, ResourceQuotaStatus, Secret, Service,
};
use serde_json::Value;

use super::unstructured::UnstructuredApi;
use kubewright_objects::pods;

/// How soon objects are counted again that are not watched.
const UNWATCHED: Duration = Duration::from_secs(10);
/// How soon everything is counted again, even without any event.
const RESYNC: Duration = Duration::from_secs(300);
/// How many objects a page of a list has.
const PAGE: u32 = 500;

/// Counts what a quota limits.
pub(crate) struct QuotaReconciler;

/// The controller of quotas.
pub(crate) fn controller() -> Controller {
    Controller::of(QuotaReconciler)
        .named("resourcequota-controller")
        .concurrency(5)
        .with_predicate(|event: &Event<ResourceQuota>| match event {
            // A charge is no reason to count.
            Event::Modified { old, new } => old.spec != new.spec || is_behind(new),
            _ => true,
        })
        .with_predicate(|event: &Event<Pod>| match event {
            Event::Modified { old, new } => {
                old.spec != new.spec
                    || (pods::is_finished(new) && !pods::is_finished(old))
                    || resources_changed(old, new)
            }
            event => is_gone(event),
        })
        .with_predicate(|event: &Event<Service>| match event {
            Event::Modified { old, new } => old.spec != new.spec,
            event => is_gone(event),
        })
        .with_predicate(|event: &Event<PersistentVolumeClaim>| match event {
            Event::Modified { old, new } => old.spec != new.spec || old.status != new.status,
            event => is_gone(event),
        })
        .source(counted_with(Watch::<ResourceQuota>::new()))
        .source(counted_with(Watch::<Pod>::new()))
        .source(counted_with(Watch::<Service>::new()))
        .source(counted_with(Watch::<PersistentVolumeClaim>::new()))
        .source(freed_by::<ConfigMap>())
        .source(freed_by::<Secret>())
        .source(freed_by::<ReplicationController>())
}

/// Counts the quotas of a namespace again when an object of this kind in it changes.
fn counted_with<K: AnyObject>(watch: Watch<K>) -> Source {
    let namespace = |meta: &ObjectMeta| meta.namespace.clone().into_iter().collect();
    watch.by_index(
        move |quota: &ResourceQuota| namespace(&quota.metadata),
        move |object| namespace(object.meta()),
    )
}

/// The same when one is deleted, of a kind that is counted by its number: of other changes nothing is read. The type is
/// that of the garbage collector, so that metadata are decoded once for both.
fn freed_by<K: Object>() -> Source {
    counted_with(Watch::<PartialObjectMeta<DynamicObject>>::dynamic(&api_resource::<K>()).deleted())
}

fn is_gone<K>(event: &Event<K>) -> bool {
    matches!(event, Event::Deleted { .. })
}

/// Whether the status lags behind the spec.
fn is_behind(quota: &ResourceQuota) -> bool {
    let hard = |hard: Option<&BTreeMap<String, Quantity>>| hard.cloned().unwrap_or_default();
    let wanted = hard(quota.spec.as_ref().and_then(|spec| spec.hard.as_ref()));
    wanted != hard(quota.status.as_ref().and_then(|status| status.hard.as_ref()))
}

/// Whether a resize of a pod is done.
fn resources_changed(old: &Pod, new: &Pod) -> bool {
    let given = |pod: &Pod| -> Vec<_> {
        let status = pod.status.iter();
        status
            .flat_map(|status| {
                status
                    .container_statuses
                    .iter()
                    .chain(&status.init_container_statuses)
                    .flatten()
            })
            .map(|status| (status.resources.clone(), status.allocated_resources.clone()))
            .collect()
    };
    given(old) != given(new)
}

impl Reconciler for QuotaReconciler {
    type Object = ResourceQuota;

    async fn reconcile(&self, quota: Arc<ResourceQuota>, ctx: Context) -> Result<Action> {
        let document = serde_json::to_value(&*quota)?;
        let Count {
            used: counted,
            unwatched,
            failure,
        } = count(&ctx, &document).await;
        let spec = |pointer: &str| parse(document.pointer(pointer).unwrap_or(&Value::Null));
        let (hard, before) = (spec("/spec/hard"), quota.status.clone().unwrap_or_default());
        // Usage that cannot be counted now keeps its known value.
        let mut used = spec("/status/used");
        used.retain(|name, _| hard.contains_key(name));
        used.extend(counted);
        let changed = hard != spec("/status/hard") || used != spec("/status/used");
        if changed || before.hard.is_none() || before.used.is_none() {
            let mut next = (*quota).clone();
            next.status = Some(ResourceQuotaStatus {
                hard: Some(typed(&hard)?),
                used: Some(typed(&used)?),
            });
            match ctx.client().update_status(&next).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(Action::requeue_after(if unwatched { UNWATCHED } else { RESYNC })),
        }
    }
}

fn typed(list: &ResourceList) -> Result<BTreeMap<String, Quantity>> {
    Ok(serde_json::from_value(to_value(list))?)
}

/// The usage of a quota by the objects of the namespace.
#[derive(Default)]
struct Count {
    /// Of the kinds that could be listed.
    used: ResourceList,
    /// Whether kinds are among them that are not watched.
    unwatched: bool,
    /// Why a kind could not be listed: it is tried again, and keeps no other from being counted (`syncResourceQuota`).
    failure: Option<Error>,
}

impl Count {
    fn add(&mut self, counted: Result<ResourceList>) {
        match counted {
            Ok(counted) => self.used.extend(counted),
            Err(error) => drop(self.failure.get_or_insert(error)),
        }
    }
}

async fn count(ctx: &Context, quota: &Value) -> Count {
    let hard: Vec<&str> = quota
        .pointer("/spec/hard")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    let mut count = Count::default();
    let mut left = hard.clone();
    let watched = [
        (api_resource::<Pod>(), true),
        (api_resource::<Service>(), true),
        (api_resource::<PersistentVolumeClaim>(), true),
        (api_resource::<ConfigMap>(), false),
        (api_resource::<Secret>(), false),
        (api_resource::<ReplicationController>(), false),
        (api_resource::<ResourceQuota>(), false),
    ];
    for (kind, whole) in watched {
        let Some(evaluator) = Evaluator::of(&kind.group, &kind.plural) else {
            continue;
        };
        if hard.iter().any(|name| evaluator.counts(name)) {
            count.add(total(ctx, &evaluator, quota, &kind, whole).await);
            left.retain(|name| !evaluator.counts(name));
        }
    }
    left.retain(|name| name.starts_with("count/"));
    if left.is_empty() {
        return count;
    }
    count.unwatched = true;
    let kinds = match discover(ctx).await {
        Ok(kinds) => kinds,
        Err(error) => {
            count.add(Err(error));
            Vec::new()
        }
    };
    for kind in kinds {
        let Some(evaluator) = Evaluator::of(&kind.group, &kind.plural) else {
            continue;
        };
        if left.iter().any(|name| evaluator.counts(name)) {
            count.add(total(ctx, &evaluator, quota, &kind, false).await);
        }
    }
    count
}

/// Every namespaced kind whose objects can be created and listed, each in its most stable version.
async fn discover(ctx: &Context) -> Result<Vec<ApiResource>> {
    let discovery = Discovery::new(ctx.client().kube().clone()).run_aggregated().await?;
    let kinds = discovery.groups().flat_map(ApiGroup::resources_by_stability);
    let listed = kinds.filter(|(_, able)| {
        let can = |verb| able.supports_operation(verb);
        able.scope == Scope::Namespaced && can(verbs::LIST) && can(verbs::CREATE)
    });
    Ok(listed.map(|(kind, _)| kind).collect())
}

/// The usage of the objects of one kind, as the API server has them now: whole objects, or their metadata where only
/// their number matters.
async fn total(
    ctx: &Context,
    evaluator: &Evaluator,
    quota: &Value,
    kind: &ApiResource,
    whole: bool,
) -> Result<ResourceList> {
    let namespace = ctx.request().namespace().unwrap_or_default();
    let objects = UnstructuredApi::new(ctx.client().kube(), kind, namespace);
    let mut documents: Vec<Value> = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let listed = if whole {
            objects.list(&page).await?
        } else {
            objects.list_metadata(&page).await?
        };
        documents.extend(listed.items);
        match listed.rest {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    Ok(evaluator.total(quota, &documents, ctx.now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_quota_is_behind_until_its_status_shows_the_spec() {
        let check = |spec: Value, status: Value, expected: bool| {
            let quota = json!({"metadata": {"name": "q"}, "spec": spec, "status": status});
            let quota: ResourceQuota = serde_json::from_value(quota).expect("a quota");
            assert_eq!(is_behind(&quota), expected, "{quota:?}");
        };
        check(json!({}), json!({}), false);
        check(json!({"hard": {"pods": "1"}}), json!({}), true);
        check(json!({"hard": {"pods": "1"}}), json!({"hard": {"pods": "1"}}), false);
        check(
            json!({"hard": {"pods": "2"}}),
            json!({"hard": {"pods": "1"}, "used": {"pods": "1"}}),
            true,
        );
    }
}
