//! The promises of the operator, on servers that are simulated: each test is one scenario, or two; its name begins with
//! the number. Decisions of real servers are in `tests/databases.rs`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use database::operator_in;
use database::world::{Login, Trouble, World};
use database_api::v1alpha1::{Database, DatabaseStatus, Phase};
use futures::future::{BoxFuture, FutureExt as _, ready};
use kubewright::conditions;
use kubewright::k8s_openapi::api::apps::v1::StatefulSet;
use kubewright::k8s_openapi::api::batch::v1::{CronJob, Job};
use kubewright::k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod, Secret, Service};
use kubewright::k8s_openapi::api::storage::v1::StorageClass;
use kubewright::kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kubewright::kube::{self, Resource, ResourceExt as _, core::NamespaceResourceScope};
use kubewright::prelude::Object;
use kubewright_testing::{Cluster, DyingOperator, TestCluster, dies_after};
use serde_json::{Value, json};

pub(crate) type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

pub(crate) const DEFAULT: &str = "default";

/// A server that knows one password.
#[derive(Default)]
pub(crate) struct OneServer(pub(crate) Mutex<Server>);

#[derive(Default)]
pub(crate) struct Server {
    pub(crate) password: Option<String>,
    pub(crate) rotations: usize,
    is_down: bool,
}

impl World for OneServer {
    fn login<'a>(&'a self, login: &'a Login) -> BoxFuture<'a, std::result::Result<(), Trouble>> {
        let server = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match server.is_down {
            true => Err(Trouble::Unreachable("connection refused".to_owned())),
            false if server.password.as_ref() == Some(&login.password) => Ok(()),
            false => Err(Trouble::Refused("wrong password".to_owned())),
        };
        ready(answer).boxed()
    }

    fn ensure<'a>(&'a self, login: &'a Login, _: &'a str) -> BoxFuture<'a, std::result::Result<(), Trouble>> {
        let mut server = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        server.password = Some(login.password.clone());
        server.rotations += 1;
        ready(Ok(())).boxed()
    }
}

/// A cluster in virtual time on which the operator runs.
struct Scene {
    cluster: TestCluster,
    server: Arc<OneServer>,
    operator: DyingOperator,
}

impl Scene {
    async fn start() -> Outcome<Scene> {
        Scene::dying(dies_after()).await
    }

    async fn dying(dies_after: usize) -> Outcome<Scene> {
        let start = "2026-01-01T00:00:10Z".parse()?;
        let cluster = TestCluster::in_virtual_time(start, Cluster::builder()).await?;
        let server = Arc::new(OneServer::default());
        let world = server.clone();
        let operator = cluster
            .run_dying(move || operator_in(world.clone()), dies_after)
            .await?;
        let scene = Scene {
            cluster,
            server,
            operator,
        };
        scene.pass(5).await?;
        Ok(scene)
    }

    async fn pass(&self, seconds: u64) -> Outcome {
        self.cluster.advance(Duration::from_secs(seconds)).await?;
        Ok(())
    }

    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.cluster.kube(), DEFAULT)
    }

    async fn database(&self, spec: Value) -> kube::Result<Database> {
        let database = json!({"metadata": {"name": "mydb"}, "spec": spec});
        let database = serde_json::from_value(database).map_err(kube::Error::SerdeError)?;
        self.api().create(&PostParams::default(), &database).await
    }

    async fn running(&self, spec: Value) -> Outcome {
        self.database(spec).await?;
        self.pass(60).await?;
        self.is("Ready", "True", "LoggedIn").await
    }

    async fn change(&self, spec: Value) -> kube::Result<Database> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api::<Database>()
            .patch("mydb", &PatchParams::default(), &patch)
            .await
    }

    async fn status(&self) -> Outcome<DatabaseStatus> {
        Ok(self.api::<Database>().get("mydb").await?.status.unwrap_or_default())
    }

    async fn is(&self, type_: &str, status: &str, reason: &str) -> Outcome {
        let all = self.status().await?.conditions;
        let found = conditions::find(&all, type_).map(|found| (found.status.as_str(), found.reason.as_str()));
        assert_eq!(found, Some((status, reason)), "{type_}: {all:?}");
        Ok(())
    }

    async fn phase(&self) -> Outcome<Option<Phase>> {
        Ok(self.status().await?.phase)
    }

    async fn gone<K>(&self, name: &str) -> Outcome
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        assert!(self.api::<K>().get_opt(name).await?.is_none(), "{name} is there");
        Ok(())
    }

    async fn events(&self, reason: &str) -> Outcome<Vec<String>> {
        let all = self.api::<Event>().list(&ListParams::default()).await?;
        let meant = all
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some(reason));
        Ok(meant.map(|event| event.message.unwrap_or_default()).collect())
    }

    /// Checks what was told for this reason. An operator that is killed may take an event with it.
    async fn told(&self, reason: &str, expected: &[&str]) -> Outcome {
        let found = self.events(reason).await?;
        let mut rest = expected.iter();
        let is_lost = self.operator.has_died() && found.iter().all(|text| rest.any(|expected| expected == text));
        assert!(is_lost || found == expected, "{reason}: {found:?}");
        Ok(())
    }

    async fn password(&self) -> Outcome<String> {
        let secret = self.api::<Secret>().get("mydb-credentials").await?;
        let bytes = secret
            .data
            .unwrap_or_default()
            .remove("password")
            .ok_or("it has a password")?;
        Ok(String::from_utf8(bytes.0)?)
    }
}

#[tokio::test]
async fn s01_children_are_made() -> Outcome {
    let scene = Scene::start().await?;
    scene.running(json!({"type": "postgres"})).await?;
    let uid = scene.api::<Database>().get("mydb").await?.uid();
    let check = |meta: &kube::core::ObjectMeta, owned: bool| {
        let owner = meta
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.kind == "Database")
            .map(|owner| owner.uid.clone());
        assert_eq!(owner, uid.clone().filter(|_| owned), "{:?}", meta.name);
        let labels = meta.labels.clone().unwrap_or_default();
        assert_eq!(
            labels.get("app.kubernetes.io/managed-by").map(String::as_str),
            Some("database-operator")
        );
    };
    for name in ["mydb", "mydb-headless"] {
        check(&scene.api::<Service>().get(name).await?.metadata, true);
    }
    for name in ["mydb-credentials", "mydb-operator"] {
        check(&scene.api::<Secret>().get(name).await?.metadata, true);
    }
    check(&scene.api::<StatefulSet>().get("mydb").await?.metadata, true);
    check(
        &scene.api::<PersistentVolumeClaim>().get("data-mydb-0").await?.metadata,
        false,
    );
    assert!(scene.password().await?.len() >= 24);
    let status = scene.status().await?;
    let endpoint = status.endpoint.ok_or("it has an endpoint")?;
    assert_eq!((endpoint.host.as_str(), endpoint.port), ("mydb.default.svc", 5432));
    assert_eq!(scene.phase().await?, Some(Phase::Running));
    Ok(())
}

#[tokio::test]
async fn s02_a_password_in_the_spec_is_moved() -> Outcome {
    let scene = Scene::start().await?;
    scene
        .running(json!({"type": "mysql", "user": "root", "password": "root"}))
        .await?;
    assert_eq!(scene.password().await?, "root");
    let stored = serde_json::to_string(&scene.api::<Database>().get("mydb").await?)?;
    assert!(!stored.contains(r#""password":"root""#), "{stored}");
    let moved = "spec.password was moved to Secret mydb-credentials";
    scene.told("PasswordMoved", &[moved]).await
}

#[tokio::test]
async fn s03_a_secret_of_ones_own_is_waited_for() -> Outcome {
    let scene = Scene::start().await?;
    scene
        .database(json!({"type": "postgres", "passwordSecretRef": {"name": "mine"}}))
        .await?;
    scene.pass(60).await?;
    scene.is("CredentialsReady", "False", "SecretNotFound").await?;
    assert_eq!(scene.phase().await?, Some(Phase::Pending));
    scene.gone::<StatefulSet>("mydb").await?;
    let mine = serde_json::from_value(json!({"metadata": {"name": "mine"}, "stringData": {"password": "secret"}}))?;
    scene.api::<Secret>().create(&PostParams::default(), &mine).await?;
    scene.pass(1).await?;
    scene.api::<StatefulSet>().get("mydb").await?;
    scene.pass(60).await?;
    scene.is("Ready", "True", "LoggedIn").await?;
    scene.gone::<Secret>("mydb-credentials").await
}

#[tokio::test]
async fn s04_a_password_is_rotated() -> Outcome {
    let scene = Scene::start().await?;
    scene.running(json!({"type": "postgres"})).await?;
    let pod = scene.api::<Pod>().get("mydb-0").await?.uid();
    let patch = Patch::Merge(json!({"stringData": {"password": "another-password"}}));
    scene
        .api::<Secret>()
        .patch("mydb-credentials", &PatchParams::default(), &patch)
        .await?;
    scene.pass(5).await?;
    assert_eq!(
        scene
            .server
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .password
            .as_deref(),
        Some("another-password")
    );
    assert_eq!(scene.api::<Pod>().get("mydb-0").await?.uid(), pod);
    let rotated = "app has the password of the Secret mydb-credentials";
    scene.told("PasswordRotated", &[rotated]).await?;
    let uri = scene
        .api::<Secret>()
        .get("mydb-credentials")
        .await?
        .data
        .and_then(|mut data| data.remove("uri"))
        .ok_or("a uri")?;
    assert!(String::from_utf8(uri.0)?.contains("another%2Dpassword"));
    let all: Vec<Event> = scene.api::<Event>().list(&ListParams::default()).await?.items;
    let text = format!("{:?} {:?}", all, scene.status().await?);
    assert!(!text.contains("another-password"));
    Ok(())
}

#[tokio::test]
async fn s05_children_are_put_right() -> Outcome {
    let scene = Scene::start().await?;
    scene.running(json!({"type": "postgres"})).await?;
    scene.api::<Service>().delete("mydb", &DeleteParams::default()).await?;
    scene.pass(5).await?;
    scene.api::<Service>().get("mydb").await?;
    let port = json!({"spec": {"template": {"spec": {"containers": [{"name": "database", "image": "evil:1"}]}}}, "metadata": {"annotations": {"mine": "1"}}});
    scene
        .api::<StatefulSet>()
        .patch("mydb", &PatchParams::default(), &Patch::Strategic(port))
        .await?;
    scene.pass(60).await?;
    let set = scene.api::<StatefulSet>().get("mydb").await?;
    let image = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref())
        .and_then(|spec| spec.containers[0].image.clone());
    assert_eq!(image.as_deref(), Some("postgres:17"));
    assert_eq!(set.annotations().get("mine").map(String::as_str), Some("1"));
    let told = scene.events("Restored").await?;
    assert!(
        told.iter()
            .any(|text| text == "Service mydb was gone, and is made anew"),
        "{told:?}"
    );
    assert!(
        told.iter()
            .any(|text| text == "StatefulSet mydb is put right: spec.template.spec.containers[0].image"),
        "{told:?}"
    );
    Ok(())
}

#[tokio::test]
async fn s06_s07_what_cannot_be_is_refused() -> Outcome {
    let scene = Scene::start().await?;
    scene
        .running(json!({"type": "mariadb", "version": "10.11", "storage": {"size": "2Gi"}}))
        .await?;
    let cases = [
        (json!({"type": "postgres"}), "type cannot be changed"),
        (json!({"version": "10.6"}), "spec.version: Forbidden"),
        (json!({"storage": {"size": "1Gi"}}), "spec.storage.size: Invalid value"),
        (json!({"user": "other"}), "spec.user: Forbidden"),
        (json!({"replicas": 2}), "spec.replicas"),
    ];
    for (change, expected) in cases {
        let text = scene
            .change(change.clone())
            .await
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(text.contains(expected), "{change}: {text}");
    }
    scene.change(json!({"version": "11.4"})).await?;
    scene.pass(60).await?;
    scene.told("Updating", &["its pod is being replaced"]).await?;
    assert_eq!(scene.phase().await?, Some(Phase::Running));
    let pod = scene.api::<Pod>().get("mydb-0").await?;
    assert_eq!(
        pod.spec.and_then(|spec| spec.containers[0].image.clone()).as_deref(),
        Some("mariadb:11.4")
    );
    Ok(())
}

#[tokio::test]
async fn names_that_a_server_or_a_child_cannot_have_are_refused() -> Outcome {
    let scene = Scene::start().await?;
    let taken = "is the server's own";
    let cases = [
        ("postgres", json!({"type": "postgres"}), ""),
        ("mysql", json!({"type": "postgres"}), ""),
        ("template1", json!({"type": "mariadb"}), ""),
        ("template1", json!({"type": "postgres"}), taken),
        ("a", json!({"type": "postgres", "database": "template0"}), taken),
        ("mysql", json!({"type": "mysql"}), taken),
        ("mysql", json!({"type": "mysql", "database": "app"}), ""),
        ("performance-schema", json!({"type": "mariadb"}), taken),
        ("a", json!({"type": "postgres", "user": "pg_app"}), taken),
        ("a", json!({"type": "postgres", "user": "public"}), taken),
        ("a", json!({"type": "mariadb", "user": "public"}), ""),
        (
            "a",
            json!({"type": "mysql", "user": "kubewright_operator"}),
            "is the operator's own",
        ),
        ("1a", json!({"type": "mysql"}), "must begin with a letter"),
        ("a.b", json!({"type": "mysql"}), "must begin with a letter"),
        (&"a".repeat(41), json!({"type": "mysql"}), "at most 40 characters"),
    ];
    for (name, spec, expected) in cases {
        let database: Database = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let refused = scene.api().create(&dry, &database).await.err();
        let text = refused.map(|error| error.to_string()).unwrap_or_default();
        assert!(
            text.contains(expected) && text.is_empty() == expected.is_empty(),
            "{name} {spec}: {text}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn s07_a_claim_grows() -> Outcome {
    let scene = Scene::start().await?;
    let class = json!({
        "metadata": {"name": "grows"}, "provisioner": "kubewright.dev/simulated", "allowVolumeExpansion": true,
    });
    let classes: Api<StorageClass> = Api::all(scene.cluster.kube());
    classes
        .create(&PostParams::default(), &serde_json::from_value(class)?)
        .await?;
    let storage = |size: &str| json!({"storage": {"size": size, "storageClassName": "grows"}});
    let mut spec = storage("1Gi");
    spec["type"] = json!("postgres");
    scene.running(spec).await?;
    scene.is("StorageReady", "True", "Bound").await?;
    scene.change(storage("2Gi")).await?;
    scene.pass(60).await?;
    scene.is("StorageReady", "True", "Bound").await?;
    let claim = scene.api::<PersistentVolumeClaim>().get("data-mydb-0").await?;
    let room = claim.status.and_then(|status| status.capacity).unwrap_or_default();
    assert_eq!(room["storage"].0, "2Gi");
    // The template of the StatefulSet cannot change.
    let set = serde_json::to_value(scene.api::<StatefulSet>().get("mydb").await?)?;
    let template = "/spec/volumeClaimTemplates/0/spec/resources/requests/storage";
    assert_eq!(set.pointer(template), Some(&json!("1Gi")));
    Ok(())
}

#[tokio::test]
async fn s07_a_class_that_does_not_let_claims_grow() -> Outcome {
    let scene = Scene::start().await?;
    scene
        .running(json!({"type": "postgres", "storage": {"size": "1Gi"}}))
        .await?;
    scene.change(json!({"storage": {"size": "2Gi"}})).await?;
    scene.pass(60).await?;
    scene.is("StorageReady", "False", "ExpansionNotSupported").await?;
    assert_eq!(scene.phase().await?, Some(Phase::Degraded));
    Ok(())
}

#[tokio::test]
async fn s08_data_are_kept_or_deleted() -> Outcome {
    let scene = Scene::start().await?;
    scene.running(json!({"type": "postgres"})).await?;
    let password = scene.password().await?;
    let delete = || async { scene.api::<Database>().delete("mydb", &DeleteParams::default()).await };
    delete().await?;
    scene.pass(120).await?;
    scene.gone::<Database>("mydb").await?;
    scene.gone::<StatefulSet>("mydb").await?;
    scene.gone::<Service>("mydb").await?;
    scene.gone::<Pod>("mydb-0").await?;
    let claim = scene.api::<PersistentVolumeClaim>().get("data-mydb-0").await?.uid();
    assert_eq!(scene.password().await?, password);
    let kept = "Secret mydb-credentials, Secret mydb-operator, PersistentVolumeClaim data-mydb-0";
    let retained = format!("deletionPolicy is Retain, so these are kept: {kept}");
    scene.told("Retained", &[&retained]).await?;

    scene
        .running(json!({"type": "postgres", "deletionPolicy": "Delete"}))
        .await?;
    assert_eq!(
        scene.api::<PersistentVolumeClaim>().get("data-mydb-0").await?.uid(),
        claim
    );
    assert_eq!(scene.password().await?, password);
    delete().await?;
    scene.pass(200).await?;
    scene.gone::<Database>("mydb").await?;
    scene.gone::<PersistentVolumeClaim>("data-mydb-0").await?;
    scene.gone::<Secret>("mydb-credentials").await?;
    scene.gone::<Secret>("mydb-operator").await
}

#[tokio::test]
async fn s09_a_sick_server_is_told() -> Outcome {
    let scene = Scene::start().await?;
    scene.running(json!({"type": "postgres"})).await?;
    let down = |is_down| scene.server.0.lock().unwrap_or_else(PoisonError::into_inner).is_down = is_down;
    down(true);
    scene.pass(30).await?;
    scene.is("Ready", "False", "NotAnswering").await?;
    assert_eq!(scene.phase().await?, Some(Phase::Degraded));
    down(false);
    scene.pass(5).await?;
    assert_eq!(scene.phase().await?, Some(Phase::Running));
    Ok(())
}

#[tokio::test]
async fn s10_s11_the_status_is_honest_and_quiet() -> Outcome {
    let scene = Scene::start().await?;
    scene.running(json!({"type": "postgres"})).await?;
    let writes = scene.operator.writes();
    scene.pass(600).await?;
    assert_eq!(scene.operator.writes(), writes);
    let changed = scene.change(json!({"suspend": true})).await?;
    scene.pass(30).await?;
    let status = scene.status().await?;
    assert_eq!(
        (status.phase, Some(status.observed_generation)),
        (Some(Phase::Suspended), changed.metadata.generation)
    );
    let of_now = status
        .conditions
        .iter()
        .all(|condition| condition.observed_generation == changed.metadata.generation);
    assert!(of_now, "{:?}", status.conditions);
    scene.is("Ready", "False", "Suspended").await?;
    scene.gone::<Pod>("mydb-0").await?;
    scene.api::<PersistentVolumeClaim>().get("data-mydb-0").await?;
    scene.change(json!({"suspend": false})).await?;
    scene.pass(60).await?;
    scene.is("Ready", "True", "LoggedIn").await
}

#[tokio::test]
async fn copies_are_made_and_one_is_read() -> Outcome {
    let scene = Scene::start().await?;
    scene
        .running(json!({"type": "postgres", "backup": {"schedule": "*/5 * * * *", "keep": 2}}))
        .await?;
    scene.is("BackedUp", "Unknown", "NoCopyYet").await?;
    scene.pass(300).await?;
    scene.is("BackedUp", "True", "Copied").await?;
    let job = scene.api::<CronJob>().get("mydb-backup").await?;
    let pod = serde_json::to_value(job.spec)?["jobTemplate"]["spec"]["template"]["spec"].take();
    assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], "mydb-backups");
    let key = json!({"secretKeyRef": {"name": "mydb-credentials", "key": "password"}});
    let env = pod["containers"][0]["env"].as_array().ok_or("an environment")?;
    assert!(
        env.contains(&json!({"name": "PGPASSWORD", "valueFrom": key})),
        "{env:?}"
    );

    // A text that is not a schedule is reported, and the earlier condition is not lost.
    scene.change(json!({"backup": {"schedule": "at night"}})).await?;
    scene.pass(30).await?;
    scene.is("BackedUp", "False", "InvalidSchedule").await?;
    scene.is("Ready", "True", "LoggedIn").await?;
    scene.change(json!({"backup": null})).await?;
    scene.pass(30).await?;
    assert!(conditions::find(&scene.status().await?.conditions, "BackedUp").is_none());
    scene.gone::<CronJob>("mydb-backup").await?;
    scene.api::<PersistentVolumeClaim>().get("mydb-backups").await?;

    let copy = |name: &str, of: &str| -> Outcome<Database> {
        let spec = json!({"type": "postgres", "restoreFrom": {"database": of}});
        Ok(serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": spec}),
        )?)
    };
    let make = PostParams::default();
    scene.api().create(&make, &copy("copy", "mydb")?).await?;
    scene.api().create(&make, &copy("lost", "nobody")?).await?;
    scene.pass(120).await?;
    let of = async |name: &str| -> Outcome<(Option<Phase>, String)> {
        let status = scene.api::<Database>().get(name).await?.status.unwrap_or_default();
        let restored = conditions::find(&status.conditions, "Restored").ok_or("a condition")?;
        Ok((status.phase, restored.reason.clone()))
    };
    assert_eq!(of("copy").await?, (Some(Phase::Running), "Restored".to_owned()));
    assert_eq!(of("lost").await?, (Some(Phase::Failed), "BackupNotFound".to_owned()));
    // It is read once, even when the Job is gone.
    scene
        .api::<Job>()
        .delete("copy-restore", &DeleteParams::background())
        .await?;
    scene.pass(60).await?;
    scene.gone::<Job>("copy-restore").await?;
    assert_eq!(of("copy").await?, (Some(Phase::Running), "Restored".to_owned()));
    Ok(())
}

/// A life with a death; how many writes it took, and what there is at the end.
fn life(dies_after: usize) -> Outcome<(usize, Value)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let scene = Scene::dying(dies_after).await?;
        scene.database(json!({"type": "mysql", "user": "root", "password": "root"})).await?;
        scene.pass(120).await?;
        let status = scene.status().await?;
        let found = json!({
            "phase": status.phase, "hash": status.password_hash.is_some(), "password": scene.password().await?,
            "spec": scene.api::<Database>().get("mydb").await?.spec,
            "conditions": status.conditions.iter().map(|found| (&found.type_, &found.status, &found.reason)).collect::<Vec<_>>(),
            "rotations": scene.server.0.lock().unwrap_or_else(PoisonError::into_inner).rotations,
        });
        assert_eq!(scene.operator.has_died(), dies_after != usize::MAX);
        scene.api::<Database>().delete("mydb", &DeleteParams::default()).await?;
        scene.pass(120).await?;
        scene.gone::<Database>("mydb").await?;
        assert_eq!(scene.password().await?, "root");
        Ok((scene.operator.writes(), found))
    })
}

#[test]
fn a_death_after_any_write_changes_nothing() -> Outcome {
    let (writes, expected) = life(usize::MAX)?;
    assert_eq!(expected["phase"], "Running");
    // The last writes are those of the deletion.
    for dies_after in 1..writes.saturating_sub(3) {
        assert_eq!(
            life(dies_after)?.1,
            expected,
            "killed after write {dies_after} of {writes}"
        );
    }
    Ok(())
}
