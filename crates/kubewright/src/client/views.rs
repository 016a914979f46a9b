//! Views: a few facts about many objects, for reconcilers that count more than they read.

use std::sync::Arc;

use kube::core::Selector;

use super::Client;
use super::read::Selection;
use crate::error::Result;
use crate::form::{Form, viewed};
use crate::namespace::InNamespace;
use crate::object::Object;

/// A few facts about an object, kept in the cache beside it.
///
/// The cache holds objects as text, and a reader of a whole object decodes it: a Pod takes eight times the memory of
/// its text. A reconciler that counts the pods of its object needs a few bytes of each. A view is made once for each
/// version of an object, when it is first asked for ([`Client::views`], [`Client::views_matching`],
/// [`Client::owned_views`]).
///
/// ```
/// # use kubewright::k8s_openapi::api::core::v1::Pod;
/// # use kubewright::{Context, Result, View};
/// struct Ready(bool);
///
/// impl View<Pod> for Ready {
///     fn of(pod: &Pod) -> Ready {
///         let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
///         Ready(conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True"))
///     }
/// }
///
/// async fn ready(ctx: &Context, owner_uid: &str) -> Result<usize> {
///     let pods = ctx.client().owned_views::<Pod, Ready>(ctx.request().namespace(), owner_uid).await?;
///     Ok(pods.iter().filter(|pod| pod.0).count())
/// }
/// ```
pub trait View<K>: Send + Sync + Sized + 'static {
    /// The facts about this version of an object. It must read nothing else: it is not made again.
    fn of(object: &K) -> Self;
}

impl Client {
    /// As [`Client::list`], with a view of each object instead of the object itself.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn views<K: Object, V: View<K>>(&self, namespace: impl InNamespace) -> Result<Vec<Arc<V>>> {
        self.views_of::<K, V>(namespace.namespace(), Selection::All).await
    }

    /// As [`Client::list_matching`], with a view of each object instead of the object itself.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn views_matching<K: Object, V: View<K>>(
        &self,
        namespace: impl InNamespace,
        labels: &Selector,
    ) -> Result<Vec<Arc<V>>> {
        self.views_of::<K, V>(namespace.namespace(), Selection::Labelled(labels))
            .await
    }

    /// As [`Client::owned_by`], with a view of each object instead of the object itself.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn owned_views<K: Object, V: View<K>>(
        &self,
        namespace: impl InNamespace,
        owner_uid: &str,
    ) -> Result<Vec<Arc<V>>> {
        self.views_of::<K, V>(namespace.namespace(), Selection::OwnedBy(owner_uid))
            .await
    }

    async fn views_of<K: Object, V: View<K>>(
        &self,
        namespace: Option<&str>,
        which: Selection<'_>,
    ) -> Result<Vec<Arc<V>>> {
        let parts = self.cache().read_of(&Form::of::<K>())?;
        let mut views = Vec::new();
        for informer in parts.listed(namespace)? {
            let objects = self.list_at_rest(informer, namespace, which).await?;
            let seen: Vec<_> = objects.iter().map(|object| viewed(&**object, V::of)).collect();
            if seen.iter().any(Result::is_err) {
                informer.core().report_unreadable();
            }
            views.extend(seen.into_iter().flatten());
        }
        Ok(views)
    }
}
