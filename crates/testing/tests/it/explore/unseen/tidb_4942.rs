//! pingcap/tidb-operator#4942: a label of the discovery Service is added when the user adds it to the cluster, and
//! stays when the user takes it out again. The operator adds its labels to those that the Service has, and so cannot
//! tell one that it once set itself from one of somebody else.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::corpus::kit::{self, key};
use super::{Pair, Workload};

pub(super) const PAIR: Pair = Pair {
    name: "tidb-4942",
    operator,
    workload: Workload::Samples(&[SAMPLE]),
};

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Tidb
metadata: {name: ti}
spec: {replicas: 1, discovery: {team: storage, monitored: true}}
";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Tidb", namespaced)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct TidbSpec {
    #[schemars(range(min = 1, max = 3))]
    replicas: i32,
    #[serde(default)]
    discovery: Discovery,
}

/// The labels of the discovery Service.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct Discovery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    team: Option<Team>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    monitored: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Team {
    Storage,
    Query,
}

/// What all labels of the spec begin with.
const PREFIX: &str = "tidb.example.com/";

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Clusters { fixed })
        .owns::<Deployment>()
        .owns::<Service>();
    Operator::new("tidb").crd::<Tidb>().controller(controller)
}

struct Clusters {
    fixed: bool,
}

impl Reconciler for Clusters {
    type Object = Tidb;

    async fn reconcile(&self, tidb: Arc<Tidb>, ctx: Context) -> Result<Action> {
        let (client, (_, name)) = (ctx.client(), key(&*tidb));
        if kit::is_going(&*tidb) {
            return Ok(Action::await_change());
        }
        let discovery = format!("{name}-discovery");
        let (pods, labels) = (json!({ "app": name }), labels(&tidb.spec.discovery));
        let container = json!({ "name": "discovery", "image": "tidb:7" });
        let template = json!({ "metadata": { "labels": pods }, "spec": { "containers": [container] } });
        let spec = json!({ "replicas": tidb.spec.replicas, "selector": { "matchLabels": pods }, "template": template });
        let servers: Deployment = kit::child(&*tidb, &discovery, json!({ "spec": spec }));
        kit::ensure(client, servers).await?;
        let spec = json!({ "selector": pods, "ports": [{ "name": "discovery", "port": 10261 }] });
        let body = json!({ "metadata": { "labels": labels }, "spec": spec });
        let service = kit::ensure(client, kit::child::<Service>(&*tidb, &discovery, body)).await?;
        // The mend: our labels that the spec does not name any more are taken away.
        if self.fixed {
            let mut service = (*service).clone();
            let present = service.metadata.labels.get_or_insert_default();
            let before = present.len();
            present.retain(|label, _| !label.starts_with(PREFIX) || labels.contains_key(label));
            if present.len() < before {
                client.update(&service).await?;
            }
        }
        Ok(Action::await_change())
    }
}

fn labels(discovery: &Discovery) -> BTreeMap<String, String> {
    let team = discovery.team.map(|team| match team {
        Team::Storage => "storage".to_owned(),
        Team::Query => "query".to_owned(),
    });
    let monitored = discovery.monitored.map(|monitored| monitored.to_string());
    let labels = [("team", team), ("monitored", monitored)].into_iter();
    labels
        .filter_map(|(label, value)| Some((format!("{PREFIX}{label}"), value?)))
        .collect()
}
