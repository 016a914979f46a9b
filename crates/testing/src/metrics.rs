//! Metrics for autoscalers, set in one line: those of pods and other objects, and those of other systems.
//!
//! They are annotations (`kubewright_cluster::metrics`), so that a user who looks at the objects sees them.

use k8s_openapi::api::core::v1::Namespace;
use kubewright::kube::Api;
use kubewright::kube::api::{Patch, PatchParams};
use kubewright::kube::core::{ApiResource, DynamicObject};
use kubewright::{InNamespace, Object};
use kubewright_cluster::metrics;
use serde_json::json;

use crate::cluster::TestCluster;
use crate::error::{Error, Result};

impl TestCluster {
    /// Sets a metric of an object, as an adapter for `custom.metrics.k8s.io` would report it. HorizontalPodAutoscalers
    /// read it for metrics of the types Pods and Object. On a HorizontalPodAutoscaler it is a load that the ready pods
    /// share. `None` takes it back.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> kubewright_testing::Result<()> {
    /// # let cluster = kubewright_testing::TestCluster::start().await?;
    /// # use kubewright::k8s_openapi::api::core::v1::Service;
    /// # let service: Service = serde_json::from_value(serde_json::json!({
    /// #     "metadata": { "namespace": "default", "name": "web" }, "spec": { "ports": [{ "port": 80 }] } })).unwrap();
    /// # cluster.client().create(&service).await.unwrap();
    /// cluster.set_metric::<Service>("default", "web", "requests-per-second", "300").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Api`].
    pub async fn set_metric<'a, K: Object>(
        &self,
        namespace: impl InNamespace,
        name: &str,
        metric: &str,
        value: impl Into<Option<&'a str>>,
    ) -> Result<()> {
        let namespace = namespace.namespace();
        self.annotate::<K>(namespace, name, &metrics::custom(metric), value.into())
            .await
    }

    /// Sets a metric of another system, such as the length of a queue, for the autoscalers of a namespace: those with
    /// metrics of the type External read it. Several values have labels. `None` takes it back.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> kubewright_testing::Result<()> {
    /// # let cluster = kubewright_testing::TestCluster::start().await?;
    /// cluster.set_external_metric("default", "queue_length", "30").await?;
    /// cluster.set_external_metric("default", "queue_length", "queue=tasks: 30; queue=mails: 4").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Api`].
    pub async fn set_external_metric<'a>(
        &self,
        namespace: &str,
        metric: &str,
        value: impl Into<Option<&'a str>>,
    ) -> Result<()> {
        self.annotate::<Namespace>(None, namespace, &metrics::external(metric), value.into())
            .await
    }

    async fn annotate<K: Object>(
        &self,
        namespace: Option<&str>,
        name: &str,
        annotation: &str,
        value: Option<&str>,
    ) -> Result<()> {
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.kube(), namespace, &resource),
            None => Api::all_with(self.kube(), &resource),
        };
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { annotation: value } } }));
        let patched = api.patch(name, &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|source| Error::Api {
            attempted: format!("set the metric {annotation} of the {} {name}", resource.kind),
            source,
        })
    }
}
