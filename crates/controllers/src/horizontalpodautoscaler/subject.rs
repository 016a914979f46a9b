//! The objects that autoscalers refer to: their targets, and those that metrics are about.

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::kube::core::{DynamicObject, GroupVersionKind, PartialObjectMeta};
use kubewright::kube::discovery::Scope;
use kubewright::{Context, Result};
use kubewright_objects::api::autoscaling::v2::CrossVersionObjectReference;

/// The kind of an object that is referred to.
pub(super) fn kind_of(reference: &CrossVersionObjectReference) -> GroupVersionKind {
    let version = reference.api_version.as_deref().unwrap_or("v1");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    GroupVersionKind::gvk(group, version, &reference.kind)
}

/// The metadata of an object that a metric is about, if there is one. A Namespace is the autoscaler's own, whatever its
/// name is (`GetObjectMetric`).
pub(super) async fn described(
    of: &CrossVersionObjectReference,
    namespace: &str,
    ctx: &Context,
) -> Result<Option<ObjectMeta>> {
    let kind = kind_of(of);
    let kube = ctx.client().kube().clone();
    let (resource, capabilities) = match kubewright::kube::discovery::pinned_kind(&kube, &kind).await {
        Err(error) if is_unknown(&error) => return Ok(None),
        found => found?,
    };
    let is_namespace = kind.group.is_empty() && kind.kind == "Namespace";
    let within = (capabilities.scope == Scope::Namespaced).then_some(namespace);
    let name = if is_namespace { namespace } else { &of.name };
    let client = ctx.client();
    let found = client.live_of::<PartialObjectMeta<DynamicObject>>(&resource, within, name);
    Ok(found.await?.map(|found| found.metadata))
}

/// Whether discovery knows no such kind.
pub(super) fn is_unknown(error: &kubewright::kube::Error) -> bool {
    match error {
        kubewright::kube::Error::Discovery(_) => true,
        kubewright::kube::Error::Api(status) => status.code == 404,
        _ => false,
    }
}
