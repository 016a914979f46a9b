//! The scenarios that real servers decide: a PostgreSQL and a MariaDB, which the cluster runs as processes of this
//! machine.

use std::time::{Duration, Instant};

use database::operator;
use database::world::servers::Servers;
use database::world::{Login, Trouble, World as _};
use database_api::v1alpha1::{Database, Phase};
use kubewright::k8s_openapi::ByteString;
use kubewright::k8s_openapi::api::batch::v1::{CronJob, Job};
use kubewright::k8s_openapi::api::core::v1::{Event, Namespace, PersistentVolumeClaim, Pod, Secret};
use kubewright::k8s_openapi::api::node::v1::RuntimeClass;
use kubewright::kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kubewright::kube::{Resource, ResourceExt as _, core::NamespaceResourceScope};
use kubewright_testing::processes::{is_there, mariadb_is_there, postgres_is_there};
use kubewright_testing::{Cluster, Images, ProcessRuntime, RunningOperator, TestCluster};
use mysql_async::prelude::Queryable as _;
use serde_json::{Value, json};
use tokio_postgres::NoTls;

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const TEAM: &str = "team";

/// A cluster whose pods are processes, with the operator and a namespace.
struct Scene {
    cluster: TestCluster,
    _operator: RunningOperator,
}

impl Scene {
    async fn start() -> Outcome<Scene> {
        let processes = ProcessRuntime::new(Images::default()).every_pod();
        let cluster = TestCluster::start_with(Cluster::builder().processes(processes)).await?;
        let cluster = cluster.with_deadline(Duration::from_secs(90));
        cluster
            .wait_for::<RuntimeClass>(None, "process", "is there", |_| true)
            .await?;
        let team: Namespace = serde_json::from_value(json!({"metadata": {"name": TEAM}}))?;
        Api::all(cluster.kube()).create(&PostParams::default(), &team).await?;
        let operator = cluster.run(operator()).await?;
        Ok(Scene {
            cluster,
            _operator: operator,
        })
    }

    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.cluster.kube(), TEAM)
    }

    async fn database(&self, spec: Value) -> Outcome {
        let database: Database = serde_json::from_value(json!({"metadata": {"name": "mydb"}, "spec": spec}))?;
        self.api().create(&PostParams::default(), &database).await?;
        Ok(())
    }

    async fn change(&self, spec: Value) -> Outcome {
        self.api::<Database>()
            .patch("mydb", &PatchParams::default(), &Patch::Merge(json!({"spec": spec})))
            .await?;
        Ok(())
    }

    /// Waits until the present generation is in a phase.
    async fn phase(&self, phase: Phase) -> Outcome {
        let is = move |database: &Database| {
            let status = database.status.clone().unwrap_or_default();
            Some(status.observed_generation) == database.metadata.generation && status.phase == Some(phase)
        };
        self.cluster
            .wait_for(TEAM, "mydb", &format!("is {phase:?}"), is)
            .await?;
        Ok(())
    }

    /// Waits until the pod is one of this image, other than `before`.
    async fn pod(&self, image: &str, before: Option<&str>) -> Outcome<Pod> {
        let is = |pod: &Pod| {
            let of_image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref()) == Some(image);
            of_image
                && pod.uid().as_deref() != before
                && pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some())
        };
        Ok((*self.cluster.wait_for(TEAM, "mydb-0", "is there", is).await?).clone())
    }

    async fn host(&self) -> Outcome<String> {
        let pod = self.api::<Pod>().get("mydb-0").await?;
        Ok(pod.status.and_then(|status| status.pod_ip).ok_or("it has an address")?)
    }

    async fn password(&self) -> Outcome<String> {
        self.password_in("mydb-credentials").await
    }

    async fn password_in(&self, secret: &str) -> Outcome<String> {
        let secret = self.api::<Secret>().get(secret).await?;
        let bytes = secret.data.unwrap_or_default().remove("password");
        Ok(String::from_utf8(bytes.ok_or("a password")?.0)?)
    }

    async fn postgres(&self, password: &str) -> Outcome<tokio_postgres::Client> {
        let mut config = tokio_postgres::Config::new();
        config
            .host(self.host().await?)
            .user("app")
            .password(password)
            .dbname("mydb");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    async fn mysql(&self, user: &str, password: &str) -> Outcome<mysql_async::Conn> {
        let options = mysql_async::OptsBuilder::default()
            .ip_or_hostname(self.host().await?)
            .user(Some(user))
            .pass(Some(password))
            .db_name(Some("mydb"))
            .prefer_socket(false);
        Ok(mysql_async::Conn::new(options).await?)
    }
}

async fn s01_s04_postgres_and_its_password() -> Outcome {
    if !postgres_is_there() {
        return Ok(());
    }
    let scene = Scene::start().await?;
    scene.database(json!({"type": "postgres", "version": "15"})).await?;
    scene.phase(Phase::Running).await?;
    let first = scene.password().await?;
    let client = scene.postgres(&first).await?;
    client
        .batch_execute("CREATE TABLE kept (a int); INSERT INTO kept VALUES (42)")
        .await?;
    let pod = scene.api::<Pod>().get("mydb-0").await?;

    let secret = "quote's and \\ back";
    let data = json!({"data": {"password": ByteString(secret.as_bytes().to_vec())}});
    scene
        .api::<Secret>()
        .patch("mydb-credentials", &PatchParams::default(), &Patch::Merge(data))
        .await?;
    let begin = Instant::now();
    while scene.postgres(secret).await.is_err() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "the new password does not work"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(scene.postgres(&first).await.is_err(), "the old password works");
    let after = scene.api::<Pod>().get("mydb-0").await?;
    assert_eq!(after.uid(), pod.uid());
    let told = |events: &[Event]| {
        events
            .iter()
            .any(|event| event.reason.as_deref() == Some("PasswordRotated"))
    };
    scene.cluster.wait_for_all(TEAM, "tell of the rotation", told).await?;
    let events = scene.api::<Event>().list(&ListParams::default()).await?;
    let log = scene.api::<Pod>().logs("mydb-0", &Default::default()).await?;
    let status = scene.api::<Database>().get("mydb").await?.status;
    let all = format!("{events:?} {log} {status:?}");
    assert!(!all.contains("quote") && !all.contains(&first));
    Ok(())
}

async fn s08_postgres_is_deleted_and_comes_back() -> Outcome {
    if !postgres_is_there() {
        return Ok(());
    }
    let scene = Scene::start().await?;
    scene.database(json!({"type": "postgres", "version": "15"})).await?;
    scene.phase(Phase::Running).await?;
    let password = scene.password().await?;
    scene
        .postgres(&password)
        .await?
        .batch_execute("CREATE TABLE kept (a int); INSERT INTO kept VALUES (42)")
        .await?;
    scene.api::<Database>().delete("mydb", &DeleteParams::default()).await?;
    scene.cluster.wait_gone::<Database>(TEAM, "mydb").await?;
    scene.cluster.wait_gone::<Pod>(TEAM, "mydb-0").await?;
    scene
        .database(json!({"type": "postgres", "version": "15", "deletionPolicy": "Delete"}))
        .await?;
    scene.phase(Phase::Running).await?;
    let row = scene
        .postgres(&password)
        .await?
        .query_one("SELECT a FROM kept", &[])
        .await?;
    assert_eq!(row.get::<_, i32>(0), 42);
    // A namespace goes with all of it.
    let namespaces: Api<Namespace> = Api::all(scene.cluster.kube());
    namespaces.delete(TEAM, &DeleteParams::default()).await?;
    scene
        .cluster
        .wait_gone::<PersistentVolumeClaim>(TEAM, "data-mydb-0")
        .await?;
    scene.cluster.wait_gone::<Namespace>(None, TEAM).await?;
    Ok(())
}

async fn s09_a_killed_postgres_comes_back() -> Outcome {
    if !postgres_is_there() {
        return Ok(());
    }
    let scene = Scene::start().await?;
    scene.database(json!({"type": "postgres", "version": "15"})).await?;
    scene.phase(Phase::Running).await?;
    let password = scene.password().await?;
    // An administrator tells the server to end at once: its pod starts it again.
    let operators = scene.password_in("mydb-operator").await?;
    let mut config = tokio_postgres::Config::new();
    config
        .host(scene.host().await?)
        .user("kubewright_operator")
        .password(operators)
        .dbname("postgres");
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    // The postmaster's number is in its first file; it may read it itself, and so may a program that it starts.
    let kill = "COPY (SELECT 1) TO PROGRAM 'kill -9 $(head -1 postmaster.pid)'";
    client.batch_execute(kill).await.ok(); // the connection breaks
    let restarted = |pod: &Pod| {
        let statuses = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        statuses.map(|status| status.restart_count).sum::<i32>() > 0
    };
    scene
        .cluster
        .wait_for(TEAM, "mydb-0", "was restarted", restarted)
        .await?;
    let told = |events: &[Event]| events.iter().any(|event| event.reason.as_deref() == Some("Degraded"));
    scene
        .cluster
        .wait_for_all(TEAM, "tell that it is degraded", told)
        .await?;
    scene.phase(Phase::Running).await?;
    scene.postgres(&password).await?;
    Ok(())
}

impl Scene {
    /// A Database with a row and backups, of this type.
    async fn kept(&self, kind: &str, version: &str) -> Outcome {
        let backup = json!({"schedule": "0 3 1 1 *"});
        self.database(json!({"type": kind, "version": version, "backup": backup}))
            .await?;
        self.phase(Phase::Running).await?;
        let password = self.password().await?;
        let statements = ["CREATE TABLE kept (a int PRIMARY KEY)", "INSERT INTO kept VALUES (42)"];
        if kind == "postgres" {
            let client = self.postgres(&password).await?;
            client.batch_execute(&statements.join(";")).await?;
            return Ok(());
        }
        let mut client = self.mysql("app", &password).await?;
        for statement in statements {
            client.query_drop(statement).await?;
        }
        Ok(())
    }

    /// Makes a copy of it, as `kubectl create job --from=cronjob/mydb-backup now` does, and another Database that
    /// begins with the copy. Answers where that is, and the password of its user `reader`.
    async fn copied(&self, kind: &str, version: &str) -> Outcome<(String, String)> {
        let cron_job = self.api::<CronJob>().get("mydb-backup").await?;
        let template = cron_job.spec.job_template;
        let now: Job = serde_json::from_value(json!({"metadata": {"name": "now"}, "spec": template.spec}))?;
        self.api().create(&PostParams::default(), &now).await?;
        let is_over = |job: &Job| job.status.as_ref().is_some_and(|status| status.succeeded == Some(1));
        self.cluster.wait_for(TEAM, "now", "is over", is_over).await?;

        let spec = json!({"type": kind, "version": version, "user": "reader", "restoreFrom": {"database": "mydb"}});
        let copy: Database = serde_json::from_value(json!({"metadata": {"name": "copy"}, "spec": spec}))?;
        self.api().create(&PostParams::default(), &copy).await?;
        let is_running = |database: &Database| {
            let phase = database.status.as_ref().and_then(|status| status.phase);
            phase == Some(Phase::Running)
        };
        self.cluster.wait_for(TEAM, "copy", "is Running", is_running).await?;
        let password = self.password_in("copy-credentials").await?;
        let pod = self.api::<Pod>().get("copy-0").await?;
        let host = pod.status.and_then(|status| status.pod_ip).ok_or("it has an address")?;
        Ok((host, password))
    }
}

async fn a_copy_of_postgres_is_read_by_another() -> Outcome {
    if !postgres_is_there() {
        return Ok(());
    }
    let scene = Scene::start().await?;
    scene.kept("postgres", "15").await?;
    let (host, password) = scene.copied("postgres", "15").await?;
    let mut config = tokio_postgres::Config::new();
    config.host(host).user("reader").password(password).dbname("copy");
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    let row = client.query_one("SELECT a FROM kept", &[]).await?;
    assert_eq!(row.get::<_, i32>(0), 42);
    Ok(())
}

async fn a_copy_of_mariadb_is_read_by_another() -> Outcome {
    // The dump is a program of its own package.
    if !mariadb_is_there() || !is_there("mariadb-dump", &[], "apt-get install mariadb-client") {
        return Ok(());
    }
    let scene = Scene::start().await?;
    scene.kept("mariadb", "10.11").await?;
    let (host, password) = scene.copied("mariadb", "10.11").await?;
    let options = mysql_async::OptsBuilder::default()
        .ip_or_hostname(host)
        .user(Some("reader"))
        .pass(Some(password))
        .db_name(Some("copy"))
        .prefer_socket(false);
    let found: Option<i32> = mysql_async::Conn::new(options)
        .await?
        .query_first("SELECT a FROM kept")
        .await?;
    assert_eq!(found, Some(42));
    Ok(())
}

/// Who logs in, where, with which password: names that mean something to a server, the longest ones, and signs that mean
/// something in a statement.
fn names(server: &str) -> Vec<[String; 3]> {
    let (user, database) = ("u".repeat(31), "d".repeat(63));
    [
        ["app", server, "plain"],
        ["root", "root", "it's"],
        [server, "mydb", "\\ and \\' and '' and \\\\"],
        ["select", "table", "\"double\" `tick` $1 ? % _"],
        ["current_user", "user", "two\nlines\n"],
        [&user, &database, "'; DROP DATABASE mydb; --"],
        ["_", "_1", "Zürich\u{1f600}"],
        ["a\"b'c`d", "e\"f'g`h", " "],
    ]
    .map(|names| names.map(str::to_owned))
    .into()
}

/// Has the real world make a login work, which it then tries.
async fn ensured(login: &Login, operators: &str) -> Outcome {
    let told = |trouble: Trouble| format!("{} in {}: {trouble}", login.user, login.database);
    Servers.ensure(login, operators).await.map_err(told)?;
    Servers.ensure(login, operators).await.map_err(told)?;
    Ok(Servers.login(login).await.map_err(told)?)
}

async fn names_of_all_kinds_in_postgres() -> Outcome {
    if !postgres_is_there() {
        return Ok(());
    }
    let scene = Scene::start().await?;
    // Its user is none of those below, whose passwords the operator would set back.
    let spec = json!({"type": "postgres", "version": "15", "user": "keeper"});
    scene.database(spec).await?;
    scene.phase(Phase::Running).await?;
    let (host, operators) = (scene.host().await?, scene.password_in("mydb-operator").await?);
    for [user, database, password] in names("postgres") {
        let login = Login {
            is_postgres: true,
            host: host.clone(),
            port: 5432,
            user,
            password,
            database,
        };
        ensured(&login, &operators).await?;
        let mut config = tokio_postgres::Config::new();
        config.host(&host).user(&login.user).password(&login.password);
        let (client, connection) = config.dbname(&login.database).connect(NoTls).await?;
        tokio::spawn(connection);
        client
            .batch_execute("CREATE TABLE made (a int); DROP TABLE made")
            .await?;
        let owner = "SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname = current_database()";
        let row = client.query_one(owner, &[]).await?;
        assert_eq!(row.get::<_, String>(0), login.user, "{}", login.database);
    }
    Ok(())
}

async fn names_of_all_kinds_in_mariadb() -> Outcome {
    if !mariadb_is_there() {
        return Ok(());
    }
    let scene = Scene::start().await?;
    let spec = json!({"type": "mariadb", "version": "10.11", "user": "keeper"});
    scene.database(spec).await?;
    scene.phase(Phase::Running).await?;
    let (host, operators) = (scene.host().await?, scene.password_in("mydb-operator").await?);
    let check = async |[user, database, password]: [String; 3]| -> Outcome {
        let login = Login {
            is_postgres: false,
            host: host.clone(),
            port: 3306,
            user,
            password,
            database,
        };
        ensured(&login, &operators).await?;
        let options = mysql_async::OptsBuilder::default()
            .ip_or_hostname(&host)
            .user(Some(&login.user))
            .pass(Some(&login.password))
            .db_name(Some(&login.database))
            .prefer_socket(false);
        let mut client = mysql_async::Conn::new(options).await?;
        client.query_drop("CREATE TABLE made (a int)").await?;
        client.query_drop("DROP TABLE made").await?;
        let others = client.query_drop("SELECT * FROM mysql.user").await;
        assert!(
            others.is_err() || login.user == "root",
            "{} rules the server",
            login.user
        );
        Ok(())
    };
    // In a statement that gives rights, `_` stands for any letter.
    let wild = ["app", "m_sql", "plain"].map(str::to_owned);
    // Root keeps the operator's password until the operator has a user of its own.
    let mut all = names("mariadb");
    all.push(wild);
    for names in all {
        check(names).await?;
    }
    Ok(())
}

/// An operator that was killed between two statements of its first ones has a user that may do nothing.
async fn a_user_without_rights_gets_them_in_mariadb() -> Outcome {
    if !mariadb_is_there() {
        return Ok(());
    }
    let scene = Scene::start().await?;
    scene.database(json!({"type": "mariadb", "version": "10.11"})).await?;
    scene.phase(Phase::Running).await?;
    let operators = scene.password_in("mydb-operator").await?;
    let options = mysql_async::OptsBuilder::default()
        .ip_or_hostname(scene.host().await?)
        .user(Some("root"))
        .pass(Some(&operators))
        .prefer_socket(false);
    let mut root = mysql_async::Conn::new(options).await?;
    let statement = "REVOKE ALL PRIVILEGES, GRANT OPTION FROM 'kubewright_operator'@'%'";
    root.query_drop(statement).await?;
    let login = Login {
        is_postgres: false,
        host: scene.host().await?,
        port: 3306,
        user: "late".to_owned(),
        password: "secret".to_owned(),
        database: "late".to_owned(),
    };
    ensured(&login, &operators).await
}

async fn s02_s06_mariadb_from_the_seed_is_upgraded() -> Outcome {
    if !mariadb_is_there() {
        return Ok(());
    }
    let scene = Scene::start().await?;
    scene
        .database(json!({"type": "mariadb", "version": "10.11", "user": "root", "password": "root"}))
        .await?;
    scene.phase(Phase::Running).await?;
    assert_eq!(scene.password().await?, "root");
    let mut client = scene.mysql("root", "root").await?;
    client.query_drop("CREATE TABLE kept (a int)").await?;
    client.query_drop("INSERT INTO kept VALUES (42)").await?;
    let before = scene.pod("mariadb:10.11", None).await?;
    scene.change(json!({"version": "11.4"})).await?;
    scene.pod("mariadb:11.4", before.uid().as_deref()).await?;
    scene.phase(Phase::Running).await?;
    let found: Option<i32> = scene
        .mysql("root", "root")
        .await?
        .query_first("SELECT a FROM kept")
        .await?;
    assert_eq!(found, Some(42));
    scene.change(json!({"suspend": true})).await?;
    scene.phase(Phase::Suspended).await?;
    scene.api::<PersistentVolumeClaim>().get("data-mydb-0").await?;
    Ok(())
}

#[allow(dead_code, unreachable_pub, reason = "it is a program")]
#[path = "../examples/database-demo.rs"]
mod example;

async fn the_demo_comes_to_its_end() -> Outcome {
    if !postgres_is_there() {
        let refused = example::demo()
            .err()
            .and_then(kubewright_demo::Error::into_source)
            .map(|why| why.to_string());
        assert!(refused.is_some_and(|why| why.contains("apt-get install postgresql")));
        return Ok(());
    }
    let printed = kubewright_demo::play(example::demo()?).await?;
    for text in [
        "+ created StatefulSet default/mydb",
        "Database default/mydb is running, and somebody has logged in after",
    ] {
        assert!(
            printed.contains(text),
            "the demo should print {text:?}; it printed:\n{printed}"
        );
    }
    Ok(())
}

kubewright_testing::process_tests!(
    the_demo_comes_to_its_end,
    s01_s04_postgres_and_its_password,
    s08_postgres_is_deleted_and_comes_back,
    s09_a_killed_postgres_comes_back,
    a_copy_of_postgres_is_read_by_another,
    a_copy_of_mariadb_is_read_by_another,
    names_of_all_kinds_in_postgres,
    names_of_all_kinds_in_mariadb,
    a_user_without_rights_gets_them_in_mariadb,
    s02_s06_mariadb_from_the_seed_is_upgraded,
);
