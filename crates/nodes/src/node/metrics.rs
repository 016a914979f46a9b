//! The objects of an installed metrics-server beside its program: the APIService of its group and the role to read it.
//!
//! Both are created once, and an administrator may change them. Not here: the figures (`crate::meter`), and their
//! API, which the API server serves itself (so that the APIService names no Service).

use std::collections::BTreeMap;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceSpec};
use kubewright::{Client, Result, Stop};
use kubewright_objects::api::rbac::v1::{ClusterRole, PolicyRule};
use kubewright_objects::install;

const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";

/// Creates missing objects, where the group is served: on another API server an APIService without a Service would lead
/// nowhere.
pub(crate) async fn register(client: Client, stop: Stop) -> Result<()> {
    let served = client
        .kube()
        .list_api_group_resources(&format!("{GROUP}/{VERSION}"))
        .await;
    match served.map_err(kubewright::Error::from) {
        // No Status comes with it: it is no path at all.
        Err(error) if error.status().is_some_and(|status| status.code == 404) => return Ok(()),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    install(&client, &api_service(), &stop).await?;
    install(&client, &reader(), &stop).await.map(drop)
}

/// With the priorities of metrics-server's manifests.
fn api_service() -> APIService {
    APIService {
        metadata: named(&format!("{VERSION}.{GROUP}")),
        spec: Some(APIServiceSpec {
            group: Some(GROUP.to_owned()),
            group_priority_minimum: 100,
            version: Some(VERSION.to_owned()),
            version_priority: 100,
            ..APIServiceSpec::default()
        }),
        status: None,
    }
}

/// A user who may view, edit or administer a namespace may see the usage of its pods.
fn reader() -> ClusterRole {
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let labels = ["view", "edit", "admin"].map(|role| {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{role}");
        (label, "true".to_owned())
    });
    ClusterRole {
        metadata: ObjectMeta {
            labels: Some(BTreeMap::from(labels)),
            ..named("system:aggregated-metrics-reader")
        },
        rules: Some(vec![PolicyRule {
            api_groups: Some(texts(&[GROUP])),
            resources: Some(texts(&["pods", "nodes"])),
            verbs: texts(&["get", "list", "watch"]),
            ..PolicyRule::default()
        }]),
        aggregation_rule: None,
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}
