//! What an operator writes when it starts anew: what its new version wants otherwise, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::Api;
use kubewright::kube::api::{Patch, PatchParams, PostParams};
use kubewright::{Action, Context, Controller, Operator, Reconciler};
use kubewright_testing::{Answer, Cluster, Controllers, Result, TestCluster};
use serde_json::json;

const PARENTS: usize = 40;

/// Gives each ServiceAccount `p…` a Deployment, a Service and a ConfigMap.
struct Family {
    replicas: Arc<AtomicI32>,
}

impl Reconciler for Family {
    type Object = ServiceAccount;

    async fn reconcile(&self, parent: Arc<ServiceAccount>, ctx: Context) -> kubewright::Result<Action> {
        let Some(name) = parent.metadata.name.clone().filter(|name| name.starts_with('p')) else {
            return Ok(Action::await_change());
        };
        let (labels, probe) = (json!({ "app": name }), json!({ "tcpSocket": { "port": 80 } }));
        let deployment = json!({ "metadata": { "name": name, "labels": labels }, "spec": {
            "replicas": self.replicas.load(Ordering::Relaxed), "selector": { "matchLabels": labels }, "strategy": {},
            "template": { "metadata": { "labels": labels }, "spec": {
                "containers": [{ "name": "web", "image": "web:1", "args": ["-v", "2"], "readinessProbe": probe, "resources": {},
                    "ports": [{ "containerPort": 80 }, { "containerPort": 81, "name": "admin" }], "env": [{ "name": "A", "value": "1" }] }],
                "volumes": [{ "name": "tmp", "emptyDir": {} }],
            } },
        } });
        ctx.apply(serde_json::from_value::<Deployment>(deployment)?).await?;
        let service = json!({ "metadata": { "name": name }, "spec": { "selector": labels,
            "ports": [{ "port": 80, "name": "web" }, { "port": 81, "name": "admin" }] } });
        ctx.apply(serde_json::from_value::<Service>(service)?).await?;
        let config =
            json!({ "metadata": { "name": name, "finalizers": ["example.com/kept"] }, "data": { "a": "1", "b": "2" } });
        ctx.apply(serde_json::from_value::<ConfigMap>(config)?).await?;
        Ok(Action::await_change())
    }
}

#[tokio::test]
async fn an_operator_that_starts_anew_writes_what_it_wants_otherwise_and_nothing_else() -> Result<()> {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().controllers(Controllers::None)).await?;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.kube());
    for number in 0..PARENTS {
        let parent =
            serde_json::from_value(json!({ "metadata": { "name": format!("p{number}") } })).expect("an object");
        accounts.create(&PostParams::default(), &parent).await?;
    }
    let replicas = Arc::new(AtomicI32::new(2));
    // The writes of one process, from its start until nothing is left to do.
    let writes = async || -> Result<Vec<String>> {
        let seen: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let noted = seen.clone();
        let _watched = cluster.intercept(move |call| {
            if !["get", "list", "watch"].contains(&&*call.verb) && call.resource != "events" {
                let line = format!("{} {} {}", call.verb, call.resource, call.name);
                noted.lock().expect("no panic").push(line);
            }
            Answer::Pass
        });
        let family = Family {
            replicas: replicas.clone(),
        };
        let controller = Controller::of(family)
            .owns::<Deployment>()
            .owns::<Service>()
            .owns::<ConfigMap>();
        let running = cluster
            .run_as_admin(Operator::new("family").controller(controller))
            .await?;
        cluster.advance(Duration::from_secs(60)).await?;
        running.stop().await?;
        let mut seen = seen.lock().expect("no panic").clone();
        seen.sort();
        Ok(seen)
    };
    assert_eq!(writes().await?.len(), 3 * PARENTS, "everything is made once");
    assert_eq!(writes().await?, [] as [String; 0], "nothing has changed");
    // Others change what is not ours, take a field over, take a field away, and say the same as we do.
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.kube());
    let configs: Api<ConfigMap> = Api::default_namespaced(cluster.kube());
    let scaled = Patch::Merge(json!({ "spec": { "replicas": 5 } }));
    deployments.patch("p1", &PatchParams::default(), &scaled).await?;
    let theirs = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "theirs" } });
    configs
        .patch("p2", &PatchParams::apply("them").force(), &Patch::Apply(&theirs))
        .await?;
    let gone = Patch::Merge(json!({ "data": { "b": null } }));
    configs.patch("p3", &PatchParams::default(), &gone).await?;
    let same = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "1" } });
    configs
        .patch("p4", &PatchParams::apply("them"), &Patch::Apply(&same))
        .await?;
    let further = Patch::Merge(json!({ "metadata": { "labels": { "theirs": "x" } }, "data": { "c": "3" } }));
    configs.patch("p5", &PatchParams::default(), &further).await?;
    assert_eq!(
        writes().await?,
        ["patch configmaps p2", "patch configmaps p3", "patch deployments p1"]
    );
    assert_eq!(writes().await?, [] as [String; 0], "all is as it was applied");
    // Another version of the operator.
    replicas.store(3, Ordering::Relaxed);
    let writes = writes().await?;
    assert_eq!(writes.len(), PARENTS, "{writes:?}");
    assert!(
        writes.iter().all(|write| write.starts_with("patch deployments p")),
        "{writes:?}"
    );
    Ok(())
}
