//! Clusters that begin with the contents of another one.
//!
//! A fork costs as much as an empty cluster, whatever the other one holds. Its controllers start anew, as after a
//! restart. Invariant: neither cluster sees what the other one does. Not here: how contents are shared
//! ([`kubewright_apiserver::ForkPoint`]).

use std::sync::Arc;

use kubewright_apiserver::authentication::Signer;

use super::Cluster;
use super::authority::LazyAuthority;

/// A cluster at one moment; [`ClusterBuilder::fork`](crate::ClusterBuilder::fork) goes on from there.
#[derive(Clone)]
pub struct ForkPoint {
    pub(super) api: kubewright_apiserver::ForkPoint,
    pub(super) authority: Arc<LazyAuthority>,
    pub(super) front_proxy: Arc<LazyAuthority>,
    pub(super) key: Arc<dyn Signer>,
}

impl std::fmt::Debug for ForkPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.api.fmt(f)
    }
}

impl Cluster {
    /// This cluster now. `None` when its storage cannot be shared; that in memory can.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use kubewright::k8s_openapi::api::core::v1::Namespace;
    /// use kubewright::kube::Api;
    /// use kubewright_cluster::Cluster;
    ///
    /// let cluster = Cluster::start().await?;
    /// let point = cluster.fork_point().expect("it is in memory");
    /// let other = Cluster::builder().fork(&point).start().await?;
    /// Api::<Namespace>::all(other.client()).delete("default", &Default::default()).await.unwrap_err();
    /// assert!(Api::<Namespace>::all(cluster.client()).get("default").await.is_ok());
    /// # Ok(()) }
    /// ```
    pub fn fork_point(&self) -> Option<ForkPoint> {
        Some(ForkPoint {
            api: self.inner.front.api.fork_point()?,
            authority: self.inner.authority.clone(),
            front_proxy: self.inner.front_proxy.clone(),
            key: self.inner.key.clone(),
        })
    }
}
