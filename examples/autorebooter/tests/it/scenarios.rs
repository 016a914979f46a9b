//! The promises of the operator: each test is one scenario; its name begins with the number. The world is the test's,
//! and so is the time. Behaviour that depends on real databases is in `tests/databases`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use autorebooter::controller::VALUE_HASH;
use autorebooter::operator_in;
use autorebooter::world::{Question, Source, Trouble, Value as Rows, World};
use autorebooter_api::v1alpha1::{Phase, RebootPolicy, RebootPolicyStatus};
use futures::future::{BoxFuture, FutureExt as _, ready};
use kubewright::conditions;
use kubewright::k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use kubewright::k8s_openapi::api::core::v1::{Event, Secret};
use kubewright::kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kubewright::kube::{self, ResourceExt as _};
use kubewright::prelude::*;
use kubewright_testing::{Cluster, DyingOperator, TestCluster, dies_after};
use serde_json::{Value, json};

pub(crate) type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

pub(crate) const DEFAULT: &str = "default";

/// A world with one value, which the test sets.
#[derive(Default)]
pub(crate) struct OneValue(Mutex<State>);

#[derive(Default)]
struct State {
    answer: Option<std::result::Result<Rows, Trouble>>,
    looks: usize,
    /// The user as whom each policy reads, while it does.
    users: BTreeMap<String, String>,
}

impl OneValue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World for OneValue {
    fn look<'a>(
        &'a self,
        who: &'a Request,
        source: &'a Source,
        _: &'a Question,
    ) -> BoxFuture<'a, std::result::Result<Rows, Trouble>> {
        let mut state = self.state();
        state.looks += 1;
        state.users.insert(who.name().to_owned(), source.user.clone());
        let answer = state.answer.clone().unwrap_or(Ok(Vec::new()));
        ready(answer).boxed()
    }

    fn leave(&self, who: &Request) {
        self.state().users.remove(who.name());
    }
}

/// A cluster in virtual time with a Deployment `shop` and the Secret of a database.
pub(crate) struct Scene {
    pub(crate) cluster: TestCluster,
    pub(crate) world: Arc<OneValue>,
    operator: Option<DyingOperator>,
}

impl Scene {
    async fn start() -> Outcome<Scene> {
        Scene::dying(dies_after()).await
    }

    async fn dying(dies_after: usize) -> Outcome<Scene> {
        let mut scene = Scene::without_operator().await?;
        scene.run(dies_after).await?;
        scene.pass(5).await?;
        Ok(scene)
    }

    pub(crate) async fn without_operator() -> Outcome<Scene> {
        let start = "2026-01-01T00:00:10Z".parse()?;
        let cluster = TestCluster::in_virtual_time(start, Cluster::builder()).await?;
        let scene = Scene {
            cluster,
            world: Arc::default(),
            operator: None,
        };
        scene.value("41");
        scene.secret("postgres://app:secret@db/shop").await?;
        scene.workload::<Deployment>("shop", json!({})).await?;
        Ok(scene)
    }

    async fn run(&mut self, dies_after: usize) -> Outcome {
        let world = self.world.clone();
        let operator = move || operator_in(world.clone(), &Waker::new());
        self.operator = Some(self.cluster.run_dying(operator, dies_after).await?);
        Ok(())
    }

    pub(crate) fn value(&self, text: &str) {
        self.world.state().answer = Some(Ok(vec![Some(text.to_owned())]));
    }

    fn trouble(&self, trouble: Trouble) {
        self.world.state().answer = Some(Err(trouble));
    }

    pub(crate) async fn pass(&self, seconds: u64) -> Outcome {
        self.cluster.advance(Duration::from_secs(seconds)).await?;
        Ok(())
    }

    fn api<K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.cluster.kube(), DEFAULT)
    }

    async fn secret(&self, uri: &str) -> Outcome {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shop-db"}, "stringData": {"uri": uri}});
        let apply = PatchParams::apply("test").force();
        self.api::<Secret>()
            .patch("shop-db", &apply, &Patch::Apply(secret))
            .await?;
        Ok(())
    }

    async fn workload<K>(&self, name: &str, more: Value) -> Outcome
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope> + Object,
    {
        let labels = json!({"app": name});
        let mut spec = json!({
            "selector": {"matchLabels": labels}, "serviceName": name,
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let workload: K = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        self.api::<K>().create(&PostParams::default(), &workload).await?;
        Ok(())
    }

    /// A policy for `shop`, with changes of its spec.
    pub(crate) async fn policy(&self, changes: Value) -> kube::Result<RebootPolicy> {
        let policy = policy(changes).map_err(kube::Error::SerdeError)?;
        self.api().create(&PostParams::default(), &policy).await
    }

    async fn change(&self, spec: Value) -> Outcome {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api::<RebootPolicy>()
            .patch("prices", &PatchParams::default(), &patch)
            .await?;
        self.pass(2).await
    }

    async fn status(&self) -> Outcome<RebootPolicyStatus> {
        Ok(self
            .api::<RebootPolicy>()
            .get("prices")
            .await?
            .status
            .unwrap_or_default())
    }

    /// Status and reason of a condition.
    async fn condition(&self, type_: &str) -> Outcome<(String, String)> {
        let status = self.status().await?;
        let found = conditions::find(&status.conditions, type_).ok_or(format!("there is no condition {type_}"))?;
        Ok((found.status.clone(), found.reason.clone()))
    }

    async fn is(&self, type_: &str, status: &str, reason: &str) -> Outcome {
        assert_eq!(
            self.condition(type_).await?,
            (status.to_owned(), reason.to_owned()),
            "{type_}"
        );
        Ok(())
    }

    /// How often the pods of `shop` were made anew: its generation, without the first.
    pub(crate) async fn rollouts(&self, name: &str) -> Outcome<i64> {
        Ok(self
            .api::<Deployment>()
            .get(name)
            .await?
            .metadata
            .generation
            .unwrap_or(1)
            - 1)
    }

    /// How often an event with such a reason was told.
    async fn events(&self, reason: &str) -> Outcome<Vec<String>> {
        let all = self.api::<Event>().list(&ListParams::default()).await?;
        let meant = all
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some(reason));
        let text = |event: Event| {
            let kind = event.involved_object.kind.unwrap_or_default();
            let times = event
                .series
                .map_or(event.count.unwrap_or(1), |series| series.count.unwrap_or(1));
            format!("{times}x {kind}: {}", event.message.unwrap_or_default())
        };
        Ok(meant.map(text).collect())
    }

    fn has_died(&self) -> bool {
        self.operator.as_ref().is_some_and(DyingOperator::has_died)
    }

    /// Checks what was told for this reason. An operator that is killed may take an event with it.
    async fn told(&self, reason: &str, expected: &str) -> Outcome {
        let found = self.events(reason).await?;
        let is_lost = self.has_died() && found.is_empty();
        assert!(is_lost || found == [expected], "{reason}: {found:?}");
        Ok(())
    }
}

fn policy(changes: Value) -> serde_json::Result<RebootPolicy> {
    let mut spec = json!({
        "targets": [{"kind": "Deployment", "name": "shop"}],
        "source": {
            "type": "postgres", "connectionSecretRef": {"name": "shop-db", "key": "uri"}, "pollInterval": "1s",
            "watch": {"table": {"name": "settings", "column": "version"}},
        },
        "debounce": "10s", "minRestartInterval": "0s",
    });
    merge(&mut spec, changes);
    serde_json::from_value(json!({"metadata": {"name": "prices", "namespace": DEFAULT}, "spec": spec}))
}

/// A merge patch.
fn merge(into: &mut Value, changes: Value) {
    match changes {
        Value::Object(fields) if into.is_object() => {
            for (key, value) in fields {
                match value.is_null() {
                    true => drop(into.as_object_mut().and_then(|object| object.remove(&key))),
                    false => merge(&mut into[key], value),
                }
            }
        }
        other => *into = other,
    }
}

#[tokio::test]
async fn s01_the_first_value_is_recorded() -> Outcome {
    let scene = Scene::start().await?;
    scene.policy(json!({})).await?;
    scene.pass(60).await?;
    let status = scene.status().await?;
    assert_eq!((status.phase, status.restarts), (Some(Phase::Watching), 0));
    let observed = status.last_observed.ok_or("nothing was observed")?;
    assert!(
        observed.hash.starts_with("sha256:") && observed.display.is_none(),
        "{observed:?}"
    );
    scene.is("Ready", "True", "Watching").await?;
    scene.is("TargetsFound", "True", "AllFound").await?;
    assert_eq!(scene.rollouts("shop").await?, 0);
    // Readings write nothing.
    let before = scene.api::<RebootPolicy>().get("prices").await?.resource_version();
    let looks = scene.world.state().looks;
    scene.pass(600).await?;
    assert_eq!(
        scene.api::<RebootPolicy>().get("prices").await?.resource_version(),
        before
    );
    assert!(scene.world.state().looks >= looks + 500);
    Ok(())
}

#[tokio::test]
async fn s02_a_change_restarts() -> Outcome {
    let scene = Scene::start().await?;
    scene.policy(json!({"showValue": true})).await?;
    scene.pass(5).await?;
    let pods = || scene.api::<kubewright::k8s_openapi::api::core::v1::Pod>();
    let before = pods().list(&ListParams::default()).await?.items;
    scene.value("42");
    scene.pass(15).await?;
    scene.pass(30).await?;
    let status = scene.status().await?;
    let last = status.last_restart.ok_or("there was no restart")?;
    assert_eq!(
        (status.restarts, last.reason.as_str()),
        (1, "column settings.version changed")
    );
    assert!(last.targets[0].rolled_out, "{last:?}");
    assert_eq!(
        status.last_observed.and_then(|observed| observed.display).as_deref(),
        Some("42")
    );
    let shop = scene.api::<Deployment>().get("shop").await?;
    let template = shop
        .spec
        .and_then(|spec| spec.template.metadata)
        .and_then(|meta| meta.annotations)
        .unwrap_or_default();
    assert!(
        template.contains_key("kubectl.kubernetes.io/restartedAt"),
        "{template:?}"
    );
    let after = pods().list(&ListParams::default()).await?.items;
    assert_eq!(after.len(), before.len());
    assert!(after.iter().all(|pod| before.iter().all(|old| old.uid() != pod.uid())));
    let changed = "column settings.version changed";
    let of_shop = format!("1x Deployment: Restarted by RebootPolicy prices: {changed}");
    scene.told("RestartedByPolicy", &of_shop).await?;
    let of_policy = format!("1x RebootPolicy: {changed}: restarted Deployment shop");
    scene.told("Restarted", &of_policy).await
}

// ANCHOR: rest
#[tokio::test]
async fn s04_the_value_must_rest() -> Outcome {
    let scene = Scene::start().await?;
    scene.policy(json!({})).await?;
    scene.pass(3).await?;
    for value in 0..20 {
        scene.value(&format!("new {value}"));
        scene.cluster.advance(Duration::from_millis(250)).await?;
    }
    scene.is("RestartPending", "True", "Debouncing").await?;
    assert_eq!(scene.status().await?.phase, Some(Phase::Debouncing));
    scene.pass(6).await?;
    assert_eq!(scene.rollouts("shop").await?, 0);
    scene.pass(10).await?;
    assert_eq!((scene.rollouts("shop").await?, scene.status().await?.restarts), (1, 1));
    // There and back again.
    scene.value("other");
    scene.pass(4).await?;
    scene.value("new 19");
    scene.pass(60).await?;
    assert_eq!((scene.rollouts("shop").await?, scene.status().await?.restarts), (1, 1));
    scene.is("RestartPending", "False", "NoChange").await
}
// ANCHOR_END: rest

#[tokio::test]
async fn s05_restarts_keep_their_distance() -> Outcome {
    let scene = Scene::start().await?;
    scene
        .policy(json!({"minRestartInterval": "5m", "debounce": "0s"}))
        .await?;
    scene.pass(3).await?;
    scene.value("42");
    scene.pass(3).await?;
    assert_eq!(scene.rollouts("shop").await?, 1);
    scene.pass(60).await?;
    scene.value("43");
    scene.pass(3).await?;
    scene.is("RestartPending", "True", "RateLimited").await?;
    let status = scene.status().await?;
    let pending = conditions::find(&status.conditions, "RestartPending").map(|found| found.message.clone());
    assert!(pending.is_some_and(|text| text.contains("not before 2026-01-01T00:05:")));
    scene.pass(220).await?;
    assert_eq!(scene.rollouts("shop").await?, 1);
    scene.pass(20).await?;
    assert_eq!((scene.rollouts("shop").await?, scene.status().await?.restarts), (2, 2));
    Ok(())
}

#[tokio::test]
async fn s06_a_database_that_is_down_restarts_nothing() -> Outcome {
    let scene = Scene::start().await?;
    scene.policy(json!({})).await?;
    scene.pass(3).await?;
    let down = || scene.trouble(Trouble::Unreachable("connection refused".to_owned()));
    down();
    let looks = scene.world.state().looks;
    scene.pass(63).await?;
    scene.is("DatabaseReachable", "False", "ConnectionFailed").await?;
    scene.is("Ready", "False", "ConnectionFailed").await?;
    assert_eq!(scene.status().await?.phase, Some(Phase::Degraded));
    let tries = scene.world.state().looks - looks;
    assert!((5..=8).contains(&tries), "1, 2, 4 … seconds: {tries} tries in 63 s");
    scene.pass(600).await?;
    let failed = "1x RebootPolicy: connection refused";
    scene.told("ConnectionFailed", failed).await?;
    scene.value("41");
    scene.pass(140).await?;
    scene.is("Ready", "True", "Watching").await?;
    assert_eq!(
        (scene.rollouts("shop").await?, scene.status().await?.consecutive_errors),
        (0, 0)
    );
    down();
    scene.pass(30).await?;
    scene.value("42");
    scene.pass(200).await?;
    assert_eq!((scene.rollouts("shop").await?, scene.status().await?.restarts), (1, 1));
    // A successor does not know what was told before, and counts nothing up.
    let told = scene.events("ConnectionFailed").await?.len();
    assert!((1..=1 + usize::from(scene.has_died())).contains(&told), "{told}");
    Ok(())
}

#[tokio::test]
async fn waiting_for_a_database_is_no_error_of_it() -> Outcome {
    let scene = Scene::start().await?;
    let secrets = scene.api::<Secret>();
    secrets.delete("shop-db", &DeleteParams::default()).await?;
    scene.policy(json!({})).await?;
    scene.pass(600).await?;
    scene.is("Ready", "False", "SecretNotFound").await?;
    assert_eq!(scene.status().await?.consecutive_errors, 0);
    scene.trouble(Trouble::Unreachable("the role is not there yet".to_owned()));
    scene.secret("postgres://app:secret@db/shop").await?;
    scene.pass(2).await?;
    scene.value("41");
    scene.pass(5).await?;
    scene.is("Ready", "True", "Watching").await?;
    // A cluster without Databases has no such kind.
    scene
        .change(json!({"source": {"connectionSecretRef": null, "databaseRef": {"name": "mydb"}}}))
        .await?;
    scene.is("Ready", "False", "DatabaseNotFound").await
}

/// The scenario of a change; how many writes it took, and what the targets and the status say at the end.
fn change_with_a_death(dies_after: usize) -> Outcome<(usize, Value)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let scene = Scene::dying(dies_after).await?;
        scene.workload::<StatefulSet>("store", json!({})).await?;
        let targets = json!([{"kind": "Deployment", "name": "shop"}, {"kind": "StatefulSet", "name": "store"}]);
        scene.policy(json!({"targets": targets})).await?;
        scene.pass(60).await?;
        scene.value("42");
        scene.pass(120).await?;
        let status = scene.status().await?;
        let last = status.last_restart.clone().ok_or("there was no restart")?;
        let store = scene.api::<StatefulSet>().get("store").await?;
        let found = json!({
            "rollouts": [scene.rollouts("shop").await?, store.metadata.generation.unwrap_or(1) - 1],
            "restarts": status.restarts, "applied": status.applied_hash, "to": last.to_hash, "from": last.from_hash,
            "rolled out": last.targets.iter().map(|target| target.rolled_out).collect::<Vec<_>>(),
        });
        let operator = scene.operator.as_ref().ok_or("it runs")?;
        assert_eq!(operator.has_died(), dies_after != usize::MAX);
        Ok((operator.writes(), found))
    })
}

#[test]
fn s07_a_death_after_any_write_leads_to_one_restart() -> Outcome {
    let (writes, expected) = change_with_a_death(usize::MAX)?;
    assert_eq!(expected["rollouts"], json!([1, 1]));
    assert_eq!(expected["restarts"], 1);
    assert!(writes >= 5, "{writes}");
    for dies_after in 1..=writes {
        assert_eq!(
            change_with_a_death(dies_after)?.1,
            expected,
            "killed after write {dies_after}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn s08_targets() -> Outcome {
    let scene = Scene::start().await?;
    scene.workload::<StatefulSet>("store", json!({})).await?;
    scene
        .workload::<DaemonSet>("agent", json!({"serviceName": null}))
        .await?;
    scene.workload::<Deployment>("held", json!({"paused": true})).await?;
    let targets = json!([
        {"kind": "Deployment", "name": "absent"}, {"kind": "Deployment", "name": "shop"}, {"kind": "StatefulSet", "name": "store"},
        {"kind": "DaemonSet", "name": "agent"}, {"kind": "Deployment", "name": "held"},
    ]);
    scene.policy(json!({"targets": targets})).await?;
    scene.pass(5).await?;
    scene.is("TargetsFound", "False", "TargetsMissing").await?;
    let missing = "1x RebootPolicy: not there: Deployment absent";
    scene.told("TargetsMissing", missing).await?;
    scene.value("42");
    scene.pass(60).await?;
    let last = scene.status().await?.last_restart.ok_or("there was no restart")?;
    let said: Vec<String> = last
        .targets
        .iter()
        .map(|target| {
            format!(
                "{} {} {}",
                target.name,
                target.rolled_out,
                target.message.clone().unwrap_or_default()
            )
        })
        .collect();
    assert_eq!(said, ["shop true ", "store true ", "agent true ", "held false paused"]);
    let held = scene.api::<Deployment>().get("held").await?;
    let template = held
        .spec
        .and_then(|spec| spec.template.metadata)
        .and_then(|meta| meta.annotations);
    assert!(template.is_some_and(|annotations| annotations.contains_key(VALUE_HASH)));
    let elsewhere = json!({"targets": [{"kind": "Deployment", "name": "shop", "namespace": "kube-system"}]});
    let refused = scene.policy(elsewhere).await;
    let text = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(text.contains("spec.targets[0].namespace: Invalid value"), "{text}");
    Ok(())
}

#[tokio::test]
async fn s09_what_is_wrong_is_refused_with_its_field() -> Outcome {
    let scene = Scene::start().await?;
    let many: Vec<Value> = (0..17)
        .map(|number| json!({"kind": "Deployment", "name": format!("t{number}")}))
        .collect();
    let cases = [
        (
            json!({"source": {"pollInterval": "100ms"}}),
            "spec.source.pollInterval: Invalid value",
        ),
        (
            json!({"source": {"watch": {"query": "SELECT 1"}}}),
            "spec.source.watch.query: Forbidden",
        ),
        (
            json!({"source": {"watch": {"table": null}}}),
            "spec.source.watch.table: Required value",
        ),
        (
            json!({"source": {"watch": {"table": null, "query": "DROP TABLE a"}}}),
            "spec.source.watch.query: Invalid value",
        ),
        (
            json!({"source": {"connectionSecretRef": null}}),
            "spec.source.databaseRef: Required value",
        ),
        (
            json!({"source": {"databaseRef": {"name": "a"}}}),
            "spec.source.connectionSecretRef: Forbidden",
        ),
        (
            json!({"source": {"type": "mysql", "mode": "Notify"}}),
            "spec.source.mode: Invalid value",
        ),
        (json!({"targets": many}), "spec.targets: Too many"),
        (json!({"targets": []}), "spec.targets: Invalid value"),
    ];
    for (changes, field) in cases {
        let refused = scene.policy(changes.clone()).await;
        let text = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains(field), "{changes}: {text}");
    }
    scene.trouble(Trouble::BadQuery(
        "the query returns 2 columns instead of one".to_owned(),
    ));
    scene.policy(json!({})).await?;
    scene.pass(60).await?;
    scene.is("Ready", "False", "BadQuery").await?;
    scene.is("DatabaseReachable", "True", "Connected").await?;
    assert_eq!(scene.rollouts("shop").await?, 0);
    Ok(())
}

#[tokio::test]
async fn s10_secrets_are_followed_and_connections_closed() -> Outcome {
    let scene = Scene::start().await?;
    scene.policy(json!({"source": {"pollInterval": "10m"}})).await?;
    scene.pass(5).await?;
    let users = || scene.world.state().users.values().cloned().collect::<Vec<_>>();
    assert_eq!(users(), ["app"]);
    scene.secret("postgres://other:secret@db/shop").await?;
    scene.pass(2).await?;
    assert_eq!(users(), ["other"]);
    scene.change(json!({"suspend": true})).await?;
    assert_eq!(users(), [""; 0]);
    assert_eq!(scene.status().await?.phase, Some(Phase::Suspended));
    scene.change(json!({"suspend": false})).await?;
    assert_eq!(users(), ["other"]);
    scene
        .api::<Secret>()
        .delete("shop-db", &DeleteParams::default())
        .await?;
    scene.pass(2).await?;
    scene.is("DatabaseReachable", "False", "SecretNotFound").await?;
    scene.secret("postgres://app:secret@db/shop").await?;
    scene.pass(2).await?;
    scene.is("Ready", "True", "Watching").await?;
    scene
        .api::<RebootPolicy>()
        .delete("prices", &DeleteParams::default())
        .await?;
    scene.pass(2).await?;
    assert_eq!(users(), [""; 0]);
    assert_eq!(scene.rollouts("shop").await?, 0);
    Ok(())
}
