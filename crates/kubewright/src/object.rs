//! The traits of objects, and how an object is named in logs and causes.
//!
//! Two layers: [`Object`] for types that are known when the program is compiled (what operators use), [`AnyObject`] for
//! everything that can be cached, which adds [`kube::core::DynamicObject`] and [`kube::core::PartialObjectMeta`] for
//! kinds known only at run time.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use kube::Resource;
use kube::core::{ApiResource, ClusterResourceScope, ObjectMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::namespace::InNamespace;

/// A Kubernetes type known at compile time: every `k8s_openapi` kind and every `#[derive(CustomResource)]`. Implemented
/// for all of them.
///
/// A projection is one, too: a type of your own with some fields of another. It shares the watch and the store of that
/// type, and is decoded in a part of the time. Write to such objects by patches and applies; an update would remove the
/// other fields.
///
/// ```
/// use kube::Resource;
/// use kube::core::ObjectMeta;
/// use kubewright::Event;
/// use kubewright::k8s_openapi::api::core::v1::Pod;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, Deserialize, Resource, Serialize)]
/// #[resource(inherit = "Pod")]
/// struct PlacedPod {
///     metadata: ObjectMeta,
///     spec: Placement,
/// }
///
/// #[derive(Clone, Debug, Deserialize, Serialize)]
/// #[serde(rename_all = "camelCase")]
/// struct Placement {
///     node_name: Option<String>,
/// }
///
/// fn is_placed(event: &Event<PlacedPod>) -> bool {
///     event.object().spec.node_name.is_some()
/// }
/// ```
pub trait Object: AnyObject + Resource<DynamicType = ()> {}

impl<K: AnyObject + Resource<DynamicType = ()>> Object for K {}

/// Anything that a cache can hold, typed or dynamic. Implemented for every type that fits.
pub trait AnyObject: Resource + Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<K: Resource + Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static> AnyObject for K {}

/// An object, where one is asked for: `&object`, or the `&Arc` that reads and reconciles hand out.
///
/// ```
/// use std::sync::Arc;
/// use kubewright::Request;
/// use kubewright::k8s_openapi::api::core::v1::Node;
///
/// let shared = Arc::new(Node::default());
/// assert_eq!(Request::of(&shared), Request::of(&*shared));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no reference to an object",
    note = "`&object` and `&Arc` of one are"
)]
pub trait Given<'a, K> {
    /// The object itself.
    fn given(self) -> &'a K;
}

impl<'a, K: Resource> Given<'a, K> for &'a K {
    fn given(self) -> &'a K {
        self
    }
}

impl<'a, K: Resource> Given<'a, K> for &'a Arc<K> {
    fn given(self) -> &'a K {
        self
    }
}

/// The group, version, kind and plural of a typed object.
pub fn api_resource<K: Object>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// Whether the type lives outside namespaces. Dynamic types do not know; they answer `false`.
pub fn is_cluster_scoped<K: AnyObject>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>()
}

/// An object by kind and name, for causes, observations and messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Group and version, such as `apps/v1`.
    pub api_version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectRef {
    /// The reference of a typed object.
    pub fn of<K: Object>(object: &K) -> ObjectRef {
        ObjectRef::new(&api_resource::<K>(), object.meta())
    }

    /// The reference of any object, given its resource.
    pub fn new(resource: &ApiResource, meta: &ObjectMeta) -> ObjectRef {
        ObjectRef::named(
            resource,
            meta.namespace.as_deref(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }

    /// The reference of an object that is known only by name.
    pub fn named(resource: &ApiResource, namespace: impl InNamespace, name: &str) -> ObjectRef {
        ObjectRef {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            namespace: namespace.namespace().map(str::to_owned),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for ObjectRef {
    /// `Deployment default/hello`, `Node node-1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// The URL path of a collection: `/api/v1/namespaces/default/pods`.
pub(crate) fn collection_path(resource: &ApiResource, namespace: Option<&str>) -> String {
    let prefix = if resource.group.is_empty() { "/api" } else { "/apis" };
    match namespace.filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => format!(
            "{prefix}/{}/namespaces/{namespace}/{}",
            resource.api_version, resource.plural
        ),
        None => format!("{prefix}/{}/{}", resource.api_version, resource.plural),
    }
}

/// The group part of an apiVersion: `apps/v1` is in `apps`, `v1` in the core group.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Node, Pod};

    #[test]
    fn paths_and_scopes_follow_the_type() {
        assert_eq!(
            collection_path(&api_resource::<Pod>(), Some("a")),
            "/api/v1/namespaces/a/pods"
        );
        assert_eq!(collection_path(&api_resource::<Pod>(), None), "/api/v1/pods");
        assert_eq!(
            collection_path(&api_resource::<Deployment>(), Some("a")),
            "/apis/apps/v1/namespaces/a/deployments"
        );
        assert!(is_cluster_scoped::<Node>());
        assert!(!is_cluster_scoped::<Pod>());
        assert!(!is_cluster_scoped::<kube::core::DynamicObject>());
        assert_eq!(group_of("v1"), "");
        assert_eq!(group_of("apps/v1"), "apps");
    }
}
