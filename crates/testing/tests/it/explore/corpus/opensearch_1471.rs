//! Managers are restarted one by one. Whether the others are ready is read from a cache that need not show the last
//! restart yet.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kubewright::kube::api::DeleteParams;
use kubewright::prelude::*;
use kubewright::workloads::is_pod_ready;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kit::{self, VERSION, Volumes, key};
use super::{Case, Ends, Invariant, Step};

pub(super) const CASE: Case = Case {
    name: "opensearch-1471",
    bug: "Two of three managers are restarted at the same time, and the cluster loses its quorum, if the operator's cache is late.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[Invariant {
        what: "a cluster that once was complete keeps two managers of three",
        holds,
    }],
    expected: &[
        ("Pod/os-0", "/spec/containers/0/image", "\"opensearch:2\""),
        ("Pod/os-1", "/spec/containers/0/image", "\"opensearch:2\""),
        ("Pod/os-2", "/spec/containers/0/image", "\"opensearch:2\""),
        ("Cluster/os", "/status/complete", "true"),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Cluster",
    namespaced,
    status = "ClusterStatus"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct ClusterSpec {
    version: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct ClusterStatus {
    /// Whether all managers have found each other once.
    complete: bool,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Clusters { fixed })
        .owns::<StatefulSet>()
        .watches(kit::of_app::<Pod>);
    Operator::new("opensearch").crd::<Cluster>().controller(controller)
}

fn steps() -> Vec<Step> {
    let cluster = json!({ "apiVersion": VERSION, "kind": "Cluster", "metadata": { "name": "os", "namespace": "default" },
        "spec": { "version": "1" } });
    vec![
        Step::apply("create the cluster", cluster),
        Step::merge(
            "update it",
            VERSION,
            "Cluster",
            "default",
            "os",
            json!({ "spec": { "version": "2" } }),
        ),
    ]
}

const MANAGERS: usize = 3;

fn holds(objects: &[Value]) -> bool {
    let is = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let is_complete = is("Cluster")
        .any(|cluster| cluster["status"]["complete"] == true && cluster["metadata"]["deletionTimestamp"].is_null());
    let is_ready = |pod: &&Value| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    let managers = is("Pod").filter(|pod| pod["metadata"]["labels"]["app"] == "os");
    let ready = managers
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .filter(is_ready);
    !is_complete || ready.count() >= MANAGERS - 1
}

struct Clusters {
    fixed: bool,
}

/// A manager needs a while to start, and the operator looks more often.
const LOOKS: Duration = Duration::from_secs(10);

impl Reconciler for Clusters {
    type Object = Cluster;

    async fn reconcile(&self, cluster: Arc<Cluster>, ctx: Context) -> Result<Action> {
        let (namespace, _) = key(&*cluster);
        if kit::is_going(&*cluster) {
            return Ok(Action::await_change());
        }
        // The cache of the operator with the bug knows nothing of its own writes until events tell of them.
        let client = match self.fixed {
            true => ctx.client().clone(),
            false => ctx.client().without_receipts(),
        };
        let image = format!("opensearch:{}", cluster.spec.version);
        let set = kit::ensure(&client, managers(&cluster, &image)).await?;
        // The mend: the API server says who is ready.
        let pods = match self.fixed {
            true => kit::live::<Pod>(&client, &*cluster).await?,
            false => kit::cached::<Pod>(&client, &*cluster).await?,
        };
        let ready = pods
            .iter()
            .filter(|pod| is_pod_ready(pod) && !kit::is_going(&***pod))
            .count();
        if ready == MANAGERS && !cluster.status.as_ref().is_some_and(|status| status.complete) {
            let mut cluster = (*cluster).clone();
            cluster.status = Some(ClusterStatus { complete: true });
            client.update_status(&cluster).await?;
        }
        let outdated: Vec<&Arc<Pod>> = pods.iter().filter(|pod| is_outdated(pod, &image)).collect();
        let Some(first) = outdated.first() else {
            return Ok(Action::await_change());
        };
        let is_seen = set.status.as_ref().and_then(|status| status.observed_generation) == set.metadata.generation;
        if ready == MANAGERS && is_seen {
            if self.fixed {
                client.delete(&***first).await?;
                return Ok(Action::requeue_after(LOOKS));
            }
            for pod in outdated {
                let (_, name) = key(&**pod);
                let now = client.live::<Pod>(namespace, name).await?;
                if now.is_some_and(|now| is_outdated(&now, &image) && !kit::is_going(&now)) {
                    client
                        .delete_named::<Pod>(namespace, name, DeleteParams::default())
                        .await?;
                    break;
                }
            }
        }
        Ok(Action::requeue_after(LOOKS))
    }
}

fn is_outdated(pod: &Pod, image: &str) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .into_iter()
        .any(|container| container.image.as_deref() != Some(image))
}

fn managers(cluster: &Cluster, image: &str) -> StatefulSet {
    let mut set = kit::set(cluster, "", 3, image, Volumes::None);
    if let Some(spec) = &mut set.spec {
        spec.pod_management_policy = Some("Parallel".to_owned());
        spec.update_strategy = serde_json::from_value(json!({ "type": "OnDelete" })).expect("a strategy");
        let containers = spec.template.spec.iter_mut().flat_map(|spec| &mut spec.containers);
        let probe = json!({ "tcpSocket": { "port": 9200 }, "initialDelaySeconds": 30 });
        for container in containers {
            container.readiness_probe = serde_json::from_value(probe.clone()).expect("a probe");
        }
    }
    set
}
