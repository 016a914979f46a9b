//! The promises of the operator: each test is one scenario, or two, on a cluster of its own; its name begins with the
//! number of the scenario.

mod crashes;
mod demo;
mod soak;
mod sources;

use kubewright::NoNamespace;
use kubewright::k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use kubewright::k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kubewright::kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kubewright::kube::{self, ResourceExt as _};
use kubewright::prelude::*;
use kubewright_testing::{DyingOperator, TestCluster, dies_after};
use serde_json::{Value, json};
use sidecarset::controller::upgrade::UPGRADABLE;
use sidecarset::sidecar::hash::{HASH, HASH_WITHOUT_IMAGE};
use sidecarset::sidecar::record;
use sidecarset_api::v1alpha1::{SidecarSet, SidecarSetStatus};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const DEFAULT: &str = "default";
/// An image that no node can pull.
const BAD: &str = "registry.invalid/agent:2";

/// A cluster on which the operator runs.
struct World {
    cluster: TestCluster,
    operator: DyingOperator,
}

impl World {
    async fn start() -> Outcome<World> {
        let cluster = TestCluster::start().await?;
        // Its ControllerRevisions are in the namespace of its deployment.
        let own = json!({"metadata": {"name": sidecarset::controller::revisions::namespace()}});
        let own: Namespace = serde_json::from_value(own)?;
        Api::all(cluster.kube()).create(&PostParams::default(), &own).await?;
        let operator = cluster.run_dying(sidecarset::operator, dies_after()).await?;
        Ok(World { cluster, operator })
    }

    fn sets(&self) -> Api<SidecarSet> {
        Api::all(self.cluster.kube())
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.cluster.kube(), namespace)
    }

    /// Creates a set and waits until the operator knows it.
    async fn set(&self, name: &str, spec: Value) -> Outcome {
        let set = SidecarSet::new(name, serde_json::from_value(spec)?);
        self.sets().create(&PostParams::default(), &set).await?;
        self.known(name).await
    }

    /// Changes the spec of a set and waits until the operator knows it.
    async fn change(&self, name: &str, spec: Value) -> Outcome {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.sets().patch(name, &PatchParams::default(), &patch).await?;
        self.known(name).await
    }

    async fn known(&self, name: &str) -> Outcome {
        let known = |set: &SidecarSet| {
            let observed = set.status.as_ref().map(|status| status.observed_generation);
            observed == set.metadata.generation
        };
        self.cluster
            .wait_for(None, name, "is known to the operator", known)
            .await?;
        Ok(())
    }

    async fn deployment(&self, name: &str, replicas: i32) -> Outcome {
        deployment(&self.cluster, name, replicas).await
    }

    async fn pod(&self, namespace: &str, name: &str, labels: Value) -> kube::Result<Pod> {
        let containers = json!([{"name": "main", "image": "main:1"}]);
        let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}});
        let pod = serde_json::from_value(pod).map_err(kube::Error::SerdeError)?;
        self.pods(namespace).create(&PostParams::default(), &pod).await
    }

    async fn namespace(&self, name: &str, labels: Value) -> Outcome {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
        Api::all(self.cluster.kube())
            .create(&PostParams::default(), &namespace)
            .await?;
        Ok(())
    }

    /// Waits until the status counts so many matched, updated, ready and updated ready pods, of the present generation.
    async fn counts(&self, name: &str, expected: [i32; 4]) -> Outcome {
        let counted = move |set: &SidecarSet| counts(set) == Some(expected);
        let text = format!("counts {expected:?}");
        self.cluster.wait_for(None, name, &text, counted).await?;
        Ok(())
    }

    async fn all_pods(&self) -> Outcome<Vec<Pod>> {
        Ok(self.pods(DEFAULT).list(&ListParams::default()).await?.items)
    }
}

async fn deployment(cluster: &TestCluster, name: &str, replicas: i32) -> Outcome {
    let labels = json!({"app": name});
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}},
        },
    }))?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.kube(), DEFAULT);
    deployments.create(&PostParams::default(), &deployment).await?;
    Ok(())
}

fn counts(set: &SidecarSet) -> Option<[i32; 4]> {
    let SidecarSetStatus {
        observed_generation,
        matched_pods,
        updated_pods,
        ready_pods,
        updated_ready_pods,
        ..
    } = set.status.clone()?;
    let present = Some(observed_generation) == set.metadata.generation;
    present.then_some([matched_pods, updated_pods, ready_pods, updated_ready_pods])
}

fn names(pod: &Pod) -> Vec<&str> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.map(|container| container.name.as_str()).collect()
}

fn image(pod: &Pod) -> Option<&str> {
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.find(|container| container.name == "agent")?.image.as_deref()
}

/// A set for pods with `app: web`, with one container.
fn agent(image: &str) -> Value {
    json!({
        "selector": {"matchLabels": {"app": "web"}},
        "containers": [{"name": "agent", "image": image}],
    })
}

fn containers(image: &str) -> Value {
    json!({"containers": [{"name": "agent", "image": image}]})
}

fn refusal<T>(result: kube::Result<T>) -> String {
    match result {
        Ok(_) => "nothing was refused".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Two ready pods of a set with the image `agent:1`.
async fn two_pods() -> Outcome<World> {
    let world = World::start().await?;
    world.set("agents", agent("agent:1")).await?;
    world.deployment("web", 2).await?;
    world.counts("agents", [2, 2, 2, 2]).await?;
    Ok(world)
}

#[tokio::test]
async fn s01_containers_are_injected_before_and_after() -> Outcome {
    let world = World::start().await?;
    let spec = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "containers": [
            {"name": "nginx-sidecar", "image": "nginx:1", "podInjectPolicy": "BeforeAppContainer"},
            {"name": "busybox-sidecar", "image": "busybox:1", "podInjectPolicy": "AfterAppContainer"},
        ],
    });
    world.set("set", spec).await?;
    world.deployment("web", 2).await?;
    world.counts("set", [2, 2, 2, 2]).await?;
    for pod in world.all_pods().await? {
        assert_eq!(names(&pod), ["nginx-sidecar", "main", "busybox-sidecar"]);
        let marked = |index: usize| {
            let container = pod.spec.as_ref().and_then(|spec| spec.containers.get(index));
            let env = container
                .and_then(|container| container.env.clone())
                .unwrap_or_default();
            env.iter()
                .any(|env| env.name == "IS_INJECTED" && env.value.as_deref() == Some("true"))
        };
        assert_eq!([marked(0), marked(1), marked(2)], [true, false, true]);
        let annotations = pod.annotations();
        assert_eq!(annotations.get(record::INJECTED).map(String::as_str), Some("set"));
        assert!(annotations.contains_key(HASH) && annotations.contains_key(HASH_WITHOUT_IMAGE));
    }
    Ok(())
}

#[tokio::test]
async fn s02_s04_other_pods_and_older_pods_are_left_alone() -> Outcome {
    let world = World::start().await?;
    let older = world.pod(DEFAULT, "older", json!({"app": "web"})).await?;
    world.set("agents", agent("agent:1")).await?;
    let other = world.pod(DEFAULT, "other", json!({"app": "apache"})).await?;
    for pod in [older, other] {
        assert_eq!((names(&pod), pod.annotations().len()), (vec!["main"], 0));
    }
    let meant = world.pod(DEFAULT, "meant", json!({"app": "web"})).await?;
    assert_eq!(names(&meant), ["agent", "main"]);
    world.counts("agents", [1, 1, 1, 1]).await
}

#[tokio::test]
async fn s03_namespaces_are_chosen_by_name_and_by_label() -> Outcome {
    let world = World::start().await?;
    world.namespace("ns-1", json!({"env": "prod"})).await?;
    world.namespace("ns-2", json!({})).await?;
    let web = json!({"app": "web"});
    let mut by_name = agent("agent:1");
    by_name["namespace"] = json!("ns-1");
    world.set("by-name", by_name).await?;
    assert_eq!(names(&world.pod("ns-1", "a", web.clone()).await?), ["agent", "main"]);
    assert_eq!(names(&world.pod("ns-2", "a", web.clone()).await?), ["main"]);

    let by_label = json!({
        "selector": {"matchLabels": {"app": "web"}}, "namespaceSelector": {"matchLabels": {"env": "prod"}},
        "containers": [{"name": "other", "image": "other:1"}],
    });
    world.set("by-label", by_label).await?;
    assert_eq!(
        names(&world.pod("ns-1", "b", web.clone()).await?),
        ["other", "agent", "main"]
    );
    assert_eq!(names(&world.pod("ns-2", "b", web).await?), ["main"]);
    Ok(())
}

#[tokio::test]
async fn s07_defaults_are_filled_in() -> Outcome {
    let world = World::start().await?;
    world.set("agents", agent("agent:1")).await?;
    let set = world.sets().get("agents").await?;
    let spec = serde_json::to_value(&set.spec)?;
    assert_eq!(
        spec["updateStrategy"],
        json!({"type": "RollingUpdate", "partition": 0, "maxUnavailable": 1})
    );
    assert_eq!(spec["revisionHistoryLimit"], 10);
    let container = &spec["containers"][0];
    let words = ["podInjectPolicy", "imagePullPolicy", "terminationMessagePath"].map(|field| container[field].clone());
    assert_eq!(
        words,
        [
            json!("BeforeAppContainer"),
            json!("IfNotPresent"),
            json!("/dev/termination-log")
        ]
    );
    assert_eq!(container["upgradeStrategy"]["upgradeType"], "ColdUpgrade");
    assert_eq!(container["shareVolumePolicy"]["type"], "disabled");
    assert!(set.annotations().contains_key(HASH) && set.annotations().contains_key(HASH_WITHOUT_IMAGE));
    Ok(())
}

#[tokio::test]
async fn s08_what_is_wrong_is_refused_with_its_field() -> Outcome {
    let world = World::start().await?;
    let check = |changes: Value, field: &'static str| {
        let sets = world.sets();
        async move {
            let mut spec = agent("agent:1");
            for (key, value) in changes.as_object().into_iter().flatten() {
                spec[key] = value.clone();
            }
            let set = SidecarSet::new("wrong", serde_json::from_value(spec)?);
            let text = refusal(sets.create(&PostParams::default(), &set).await);
            assert!(text.contains(field), "{changes}: {text}");
            Outcome::Ok(())
        }
    };
    let twice = json!([{"name": "a", "image": "a"}, {"name": "a", "image": "b"}]);
    let native = json!([{"name": "i", "image": "i", "restartPolicy": "Always"}]);
    let canary = json!({"selector": {"matchLabels": {"canary": "true"}}, "partition": 1});
    check(json!({"selector": {}}), "spec.selector: Invalid value").await?;
    check(json!({"containers": []}), "spec.containers: Required value").await?;
    check(json!({"containers": twice}), "spec.containers[1].name: Duplicate value").await?;
    check(
        json!({"containers": [{"name": "a"}]}),
        "spec.containers[0].image: Required value",
    )
    .await?;
    check(
        json!({"updateStrategy": canary}),
        "spec.updateStrategy.partition: Invalid value",
    )
    .await?;
    check(
        json!({"updateStrategy": {"maxUnavailable": "abc"}}),
        "spec.updateStrategy.maxUnavailable: Invalid value",
    )
    .await?;
    check(
        json!({"initContainers": native}),
        "spec.updateStrategy.type: Invalid value",
    )
    .await?;
    assert_eq!(world.sets().list(&ListParams::default()).await?.items.len(), 0);
    Ok(())
}

#[tokio::test]
async fn s09_images_are_upgraded_in_place() -> Outcome {
    let world = two_pods().await?;
    let before = world.all_pods().await?;
    world.change("agents", containers("agent:2")).await?;
    world.counts("agents", [2, 2, 2, 2]).await?;
    for pod in before {
        let restarts = |pod: &Pod, name: &str| {
            let statuses = pod
                .status
                .iter()
                .flat_map(|status| status.container_statuses.iter().flatten());
            statuses
                .filter(|status| status.name == name)
                .map(|status| status.restart_count)
                .sum::<i32>()
        };
        let after = world.pods(DEFAULT).get(&pod.name_any()).await?;
        assert_eq!(image(&after), Some("agent:2"));
        assert_eq!(after.uid(), pod.uid());
        let place = |pod: &Pod| {
            let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
            (ip, pod.spec.as_ref().and_then(|spec| spec.node_name.clone()))
        };
        assert_eq!(place(&after), place(&pod));
        assert_eq!((restarts(&after, "agent"), restarts(&after, "main")), (1, 0));
    }
    let told = |events: &[Event]| {
        events.iter().any(|event| {
            event
                .message
                .as_deref()
                .is_some_and(|text| text.contains("definition changed"))
        })
    };
    world.cluster.wait_for_all(DEFAULT, "tell of the change", told).await?;
    Ok(())
}

#[tokio::test]
async fn s10_a_bad_image_stops_at_the_budget() -> Outcome {
    let world = World::start().await?;
    let mut spec = agent("agent:1");
    spec["updateStrategy"] = json!({"maxUnavailable": "50%"});
    world.set("agents", spec).await?;
    world.deployment("web", 4).await?;
    world.counts("agents", [4, 4, 4, 4]).await?;
    world.change("agents", containers(BAD)).await?;
    world.counts("agents", [4, 2, 2, 0]).await?;
    world.change("agents", containers("agent:3")).await?;
    world.counts("agents", [4, 4, 4, 4]).await
}

#[tokio::test]
async fn s11_by_default_one_pod_at_a_time() -> Outcome {
    let world = two_pods().await?;
    world.change("agents", containers(BAD)).await?;
    world.counts("agents", [2, 1, 1, 0]).await
}

#[tokio::test]
async fn s12_a_partition_keeps_pods_back() -> Outcome {
    let world = two_pods().await?;
    let mut change = containers("agent:2");
    change["updateStrategy"] = json!({"partition": "50%"});
    world.change("agents", change).await?;
    world.counts("agents", [2, 1, 2, 1]).await?;
    world
        .change("agents", json!({"updateStrategy": {"partition": null}}))
        .await?;
    world.counts("agents", [2, 2, 2, 2]).await
}

#[tokio::test]
async fn s13_a_pause_and_a_selector_hold_pods_back() -> Outcome {
    let world = two_pods().await?;
    let mut change = containers("agent:2");
    change["updateStrategy"] = json!({"paused": true});
    world.change("agents", change).await?;
    world.counts("agents", [2, 0, 2, 0]).await?;
    let new = world.pod(DEFAULT, "new", json!({"app": "web", "lone": "true"})).await?;
    assert_eq!(image(&new), Some("agent:2"));
    world.counts("agents", [3, 1, 3, 1]).await?;
    let canary = json!({"paused": null, "selector": {"matchLabels": {"canary": "true"}}});
    world.change("agents", json!({"updateStrategy": canary})).await?;
    let pods = world.all_pods().await?;
    let old: Vec<&Pod> = pods.iter().filter(|pod| image(pod) == Some("agent:1")).collect();
    let label = Patch::Merge(json!({"metadata": {"labels": {"canary": "true"}}}));
    world
        .pods(DEFAULT)
        .patch(&old[0].name_any(), &PatchParams::default(), &label)
        .await?;
    world.counts("agents", [3, 2, 3, 2]).await?;
    world
        .change("agents", json!({"updateStrategy": {"selector": null}}))
        .await?;
    world.counts("agents", [3, 3, 3, 3]).await
}

#[tokio::test]
async fn s14_more_than_an_image_waits_for_new_pods() -> Outcome {
    let world = two_pods().await?;
    let env = json!([{"name": "agent", "image": "agent:2", "env": [{"name": "A", "value": "1"}]}]);
    world.change("agents", json!({"containers": env})).await?;
    let told = |pods: &[Pod]| {
        let refused = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let mut found = conditions.filter(|condition| condition.type_ == UPGRADABLE);
            found.any(|found| {
                let words = (found.status.as_str(), found.reason.as_deref(), found.message.as_deref());
                words == ("False", Some("UpdateImmutableField"), Some(r#"{"agents":false}"#))
            })
        };
        pods.len() == 2 && pods.iter().all(|pod| refused(pod) && image(pod) == Some("agent:1"))
    };
    world
        .cluster
        .wait_for_all(DEFAULT, "say that they cannot be upgraded", told)
        .await?;
    let event = |events: &[Event]| {
        let mut found = events
            .iter()
            .filter(|event| event.reason.as_deref() == Some("NotUpgradablePods"));
        found.any(|event| {
            event
                .message
                .as_deref()
                .is_some_and(|text| text.contains("2 not upgradable pod(s)"))
        })
    };
    let told = world.cluster.wait_for_all(DEFAULT, "tell of it", event);
    tokio::select! {
        told = told => drop(told?),
        () = world.operator.death() => {} // the event may be lost with it
    }
    let restart = json!({"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}});
    let deployments: Api<Deployment> = Api::namespaced(world.cluster.kube(), DEFAULT);
    deployments
        .patch("web", &PatchParams::default(), &Patch::Merge(restart))
        .await?;
    world.counts("agents", [2, 2, 2, 2]).await
}

#[tokio::test]
async fn s15_each_content_has_a_revision() -> Outcome {
    let world = World::start().await?;
    let mut spec = agent("agent:1");
    spec["revisionHistoryLimit"] = json!(2);
    world.set("agents", spec).await?;
    let latest = async || -> Outcome<String> {
        let status = world.sets().get("agents").await?.status.unwrap_or_default();
        Ok(status.latest_revision.unwrap_or_default())
    };
    let first = latest().await?;
    world.change("agents", containers("agent:2")).await?;
    assert_ne!(latest().await?, first);
    world.change("agents", containers("agent:1")).await?;
    assert_eq!(latest().await?, first);
    let namespace = sidecarset::controller::revisions::namespace();
    let revisions: Api<ControllerRevision> = Api::namespaced(world.cluster.kube(), &namespace);
    assert_eq!(revisions.get(&first).await?.revision, 3);
    world.change("agents", containers("agent:3")).await?;
    world.change("agents", containers("agent:4")).await?;
    let numbers = |revisions: &[ControllerRevision]| {
        let mut numbers: Vec<i64> = revisions.iter().map(|revision| revision.revision).collect();
        numbers.sort_unstable();
        numbers == [3, 4, 5]
    };
    world
        .cluster
        .wait_for_all(&namespace, "are the last three", numbers)
        .await?;
    Ok(())
}

#[tokio::test]
async fn s16_sets_do_not_meet_and_containers_keep_their_names() -> Outcome {
    let world = World::start().await?;
    world.set("first", agent("agent:1")).await?;
    let second = SidecarSet::new("second", serde_json::from_value(agent("agent:1"))?);
    let text = refusal(world.sets().create(&PostParams::default(), &second).await);
    assert!(text.contains("container agent already exist in first"), "{text}");
    let mut disjoint = agent("agent:1");
    disjoint["selector"] = json!({"matchLabels": {"app": "db"}});
    world.set("disjoint", disjoint).await?;
    let renamed = Patch::Merge(json!({"spec": {"containers": [{"name": "renamed", "image": "a"}]}}));
    let text = refusal(world.sets().patch("first", &PatchParams::default(), &renamed).await);
    assert!(text.contains("container renamed is not found"), "{text}");
    let hot = json!([{"name": "agent", "image": "a", "upgradeStrategy": {"upgradeType": "HotUpgrade"}}]);
    let hot = Patch::Merge(json!({"spec": {"containers": hot}}));
    let text = refusal(world.sets().patch("first", &PatchParams::default(), &hot).await);
    assert!(text.contains("upgradeType is immutable"), "{text}");
    Ok(())
}

#[tokio::test]
async fn s17_a_pause_of_injection_concerns_new_pods_only() -> Outcome {
    let world = two_pods().await?;
    let mut change = containers("agent:2");
    change["injectionStrategy"] = json!({"paused": true});
    world.change("agents", change).await?;
    let new = world.pod(DEFAULT, "new", json!({"app": "web", "lone": "true"})).await?;
    assert_eq!(names(&new), ["main"]);
    world.counts("agents", [2, 2, 2, 2]).await
}

#[tokio::test]
async fn s18_without_the_operator_pods_wait() -> Outcome {
    let world = World::start().await?;
    world
        .namespace("operators", json!({"control-plane": "controller-manager"}))
        .await?;
    world.operator.stop().await;
    let pods = |namespace: &str| Api::<Pod>::namespaced(world.cluster.kube(), namespace);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "main:1"}]},
    }))?;
    let text = refusal(pods(DEFAULT).create(&PostParams::default(), &pod).await);
    assert!(text.contains("failed calling webhook"), "{text}");
    pods("operators").create(&PostParams::default(), &pod).await?;
    let again = world.cluster.run(sidecarset::operator()).await?;
    pods(DEFAULT).create(&PostParams::default(), &pod).await?;
    again.stop().await?;
    Ok(())
}
