//! A scaffolded operator against a real kube-apiserver: deployed with its own manifests, run with its own service
//! account.
//!
//! Runs where the environment names the server (`support/real.rs`); elsewhere it says that it was left out. No node
//! exists, so the program runs on this machine, with the arguments of the Deployment and a token of the account that
//! `config/rbac` made: a request beyond the generated role fails here. Not here: pods, and cert-manager, whose two
//! effects (certificate files, `caBundle`) the test brings about.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::KUBEWRIGHT;
use crate::support::operators::{checkout, lock};
use crate::support::real::{RealCluster, free_port};
use kubewright::k8s_openapi::ByteString;
use kubewright::k8s_openapi::api::core::v1::{ConfigMap, Event, Service};
use kubewright::kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kubewright::kube::{Client, ResourceExt as _};
use kubewright_cluster::WebhookCertificates;
use serde_json::{Value, json};

/// How long a state may take to come.
const SOON: Duration = Duration::from_secs(60);
/// How long a build may take: everything that an operator is made of, the first time.
const BUILT: Duration = Duration::from_secs(1200);

/// A reconciler that does a bit of everything that a role must allow: reads, a child, an event, a status, a finalizer.
const CONTROLLER: &str = r#"//! Keeps a ConfigMap for each Guestbook.

use kubewright::k8s_openapi::api::core::v1::ConfigMap;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubewright::kube::api::Patch;
use kubewright::prelude::*;

use guestbook_api::v1;

const FINALIZER: &str = "my.domain/farewell";

#[derive(Clone, Copy, Debug, Default)]
pub struct GuestbookReconciler;

#[rbac(groups = "webapp.my.domain", resources = "guestbooks", verbs = "patch")]
impl Reconciler for GuestbookReconciler {
    type Object = v1::Guestbook;

    async fn reconcile(&self, guestbook: Arc<v1::Guestbook>, ctx: Context) -> Result<Action> {
        let going = guestbook.metadata.deletion_timestamp.is_some();
        let finalizers: &[&str] = if going { &[] } else { &[FINALIZER] };
        if guestbook.finalizers().is_empty() != going {
            let patch = Patch::Merge(serde_json::json!({"metadata": {"finalizers": finalizers}}));
            let namespace = guestbook.namespace();
            ctx.client().patch::<v1::Guestbook, _>(namespace.as_deref(), &guestbook.name_any(), &patch).await?;
        }
        if going {
            return Ok(Action::await_change());
        }
        let child = ConfigMap {
            metadata: ObjectMeta { name: Some(guestbook.name_any()), ..ObjectMeta::default() },
            data: Some([("foo".to_owned(), guestbook.spec.foo.clone().unwrap_or_default())].into()),
            ..ConfigMap::default()
        };
        ctx.apply(child).await?;
        ctx.event(&*guestbook, EventType::Normal, "Kept", "the ConfigMap is as wanted");
        let condition = Condition {
            type_: "Available".to_owned(),
            status: "True".to_owned(),
            reason: "Kept".to_owned(),
            message: String::new(),
            observed_generation: guestbook.metadata.generation,
            last_transition_time: Time(kubewright::jiff::Timestamp::UNIX_EPOCH),
        };
        let status = v1::GuestbookStatus { conditions: vec![condition] };
        ctx.patch_status(&*guestbook, |guestbook| guestbook.status = Some(status)).await?;
        Ok(Action::await_change())
    }
}

pub fn controller() -> Controller {
    Controller::of(GuestbookReconciler).owns::<ConfigMap>()
}
"#;

/// The definitions of cert-manager, as far as `config/default` with webhooks needs them.
fn cert_manager() -> [Value; 2] {
    [("certificates", "Certificate"), ("issuers", "Issuer")].map(|(plural, kind)| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.cert-manager.io")},
            "spec": {
                "group": "cert-manager.io", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        })
    })
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

fn guestbooks(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = resource("webapp.my.domain", "v1", "Guestbook", "guestbooks");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

fn guestbook(name: &str, spec: Value) -> DynamicObject {
    let object =
        json!({"apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// Asks until the answer is yes; fails with the operator's output meanwhile.
async fn until<F: Future<Output = bool>>(what: &str, operator: &Operator, mut ask: impl FnMut() -> F) {
    let end = Instant::now() + SOON;
    while !ask().await {
        assert!(
            Instant::now() < end,
            "never came: {what}; the operator said\n{}",
            operator.said()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

struct Project {
    name: &'static str,
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Project {
    fn new(name: &'static str, kubeconfig: PathBuf) -> Project {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(name)).unwrap();
        Project {
            name,
            folder,
            kubeconfig,
        }
    }

    /// A copy of a project of `testdata/golden`.
    fn golden(name: &'static str, kubeconfig: PathBuf) -> Project {
        let project = Project::new(name, kubeconfig);
        let golden = checkout().join("testdata/golden").join(name);
        let copied = Command::new("cp")
            .arg("-R")
            .arg(golden.join("."))
            .arg(project.path())
            .status();
        assert!(copied.unwrap().success());
        for library in ["kubewright", "testing"] {
            let path = checkout().join("crates").join(library).display().to_string();
            project.edit("Cargo.toml", &format!("../../../crates/{library}"), &path);
        }
        lock(&project.path());
        project
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }

    fn namespace(&self) -> String {
        format!("{}-system", self.name)
    }

    fn prefixed(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// The work of cert-manager, and the way to this machine in place of the one to a pod.
    async fn reachable(&self, client: &Client) -> Reachable {
        let certificates = WebhookCertificates::new().unwrap();
        let folder = self.folder.path().join("certificates");
        let service = self.prefixed("webhook-service");
        let host = format!("{service}.{}.svc", self.namespace());
        certificates.write(&folder, &[host.as_str()]).unwrap();
        let services: Api<Service> = Api::namespaced(client.clone(), &self.namespace());
        let here = json!({"spec": {
            "type": "ExternalName", "externalName": "localhost", "clusterIP": null, "clusterIPs": null, "selector": null,
        }});
        services
            .patch(&service, &PatchParams::default(), &Patch::Merge(here))
            .await
            .unwrap();
        Reachable {
            folder,
            port: free_port(),
            ca: ByteString(certificates.ca().into_bytes()),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(KUBEWRIGHT);
        command
            .args(arguments)
            .current_dir(self.path())
            .env("KUBECONFIG", &self.kubeconfig)
            // The dependencies of operators are compiled once for all runs of the test.
            .env(
                "CARGO_TARGET_DIR",
                Path::new(env!("CARGO_TARGET_TMPDIR")).join("operators"),
            )
            .stdin(Stdio::null());
        for variable in [
            "IMG",
            "ENABLE_WEBHOOKS",
            "WATCH_NAMESPACE",
            "RUST_LOG",
            "KUBEWRIGHT_PATH",
        ] {
            command.env_remove(variable);
        }
        command
    }

    /// Types a command, and fails if it does.
    fn kubewright(&self, arguments: &str) {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = self.command(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?} said:\n{said}");
    }

    fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from:?}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    /// Runs the operator as its pod would: its account, its arguments, its environment, but for ports and for where
    /// certificates are.
    async fn run(&self, cluster: &RealCluster, more: &[String]) -> Operator {
        let deployments: Api<DynamicObject> = Api::namespaced_with(
            cluster.client().await,
            &self.namespace(),
            &resource("apps", "v1", "Deployment", "deployments"),
        );
        let account = self.prefixed("controller-manager");
        let deployment = deployments.get(&account).await.unwrap();
        let container = &deployment.data["spec"]["template"]["spec"]["containers"][0];
        let elsewhere = ["--health-probe-bind-address", "--webhook-cert-path"];
        let declared = container["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|argument| argument.as_str().unwrap().to_owned());
        let health = free_port();
        let arguments = declared
            .filter(|argument| !elsewhere.iter().any(|flag| argument.starts_with(flag)))
            .chain([format!("--health-probe-bind-address=127.0.0.1:{health}")])
            .chain(more.iter().cloned());
        let account = cluster.kubeconfig_of_account(&self.namespace(), &account).await;
        let log = self.folder.path().join("operator.log");
        let mut command = self.command(&["run", "--kubeconfig"]);
        command.arg(account).arg("--").args(arguments);
        for variable in container["env"].as_array().into_iter().flatten() {
            // The pod's own namespace comes from the pod.
            let own = self.namespace();
            let value = variable["value"].as_str().unwrap_or(&own);
            command.env(variable["name"].as_str().unwrap(), value);
        }
        let process = command
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut operator = Operator {
            process,
            log,
            judged: 0,
        };
        let end = Instant::now() + BUILT;
        while !operator.is_ready(health) {
            assert!(Instant::now() < end, "it does not become ready:\n{}", operator.said());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        operator
    }
}

const NAMESPACE: &str = "guestbook-system";

/// The address of an operator on this machine, and the certificate that the server must trust for it.
struct Reachable {
    folder: PathBuf,
    port: u16,
    ca: ByteString,
}

impl Reachable {
    /// Leads a `clientConfig` here.
    fn lead(&self, caller: &mut Value) {
        caller["caBundle"] = json!(self.ca);
        caller["service"]["port"] = json!(self.port);
    }

    fn arguments(&self) -> [String; 3] {
        [
            format!("--webhook-cert-path={}", self.folder.display()),
            "--webhook-host=127.0.0.1".to_owned(),
            format!("--webhook-port={}", self.port),
        ]
    }
}

/// Leads the webhooks of configurations to this machine.
async fn lead_webhooks(client: &Client, project: &Project, reachable: &Reachable, kinds: &[(&str, &str)]) {
    for (flavour, kind) in kinds {
        let api = Api::<DynamicObject>::all_with(
            client.clone(),
            &resource(
                "admissionregistration.k8s.io",
                "v1",
                kind,
                &format!("{flavour}webhookconfigurations"),
            ),
        );
        let name = project.prefixed(&format!("{flavour}-webhook-configuration"));
        let mut configuration = api.get(&name).await.unwrap();
        reachable.lead(&mut configuration.data["webhooks"][0]["clientConfig"]);
        api.replace(&name, &PostParams::default(), &configuration)
            .await
            .unwrap();
    }
}

/// The definitions of the server.
fn definitions(client: &Client) -> Api<DynamicObject> {
    let definition = resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );
    Api::all_with(client.clone(), &definition)
}

/// `kubewright run`, which runs the operator.
struct Operator {
    process: Child,
    log: PathBuf,
    /// How much of the log has been judged.
    judged: usize,
}

impl Operator {
    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it answers its readiness probe.
    fn is_ready(&mut self, port: u16) -> bool {
        assert!(self.process.try_wait().unwrap().is_none(), "it ended:\n{}", self.said());
        let url = format!("http://127.0.0.1:{port}/readyz");
        let asked = Command::new("curl")
            .args(["--silent", "--fail", "--output", "/dev/null", &url])
            .status();
        asked.unwrap().success()
    }

    /// It must have run until now, and nothing may have been forbidden.
    fn is_well(&mut self) {
        assert!(self.process.try_wait().unwrap().is_none(), "it ended:\n{}", self.said());
        let said = self.said();
        assert!(
            !said[self.judged..].contains("orbidden"),
            "the role is not enough:\n{said}"
        );
        self.judged = said.len();
    }

    /// A refusal of a server that starts, and knows no roles yet, is no fault of the role.
    fn forgive(&mut self) {
        self.judged = self.said().len();
    }

    /// Ctrl-C.
    fn stop(mut self) {
        self.is_well();
        let sent = Command::new("kill")
            .args(["-INT", &self.process.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}:\n{}", self.said());
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have been stopped by the test already. `kubewright run` ends its operator when it is asked to.
        let _ = Command::new("kill")
            .args(["-INT", &self.process.id().to_string()])
            .stderr(Stdio::null())
            .status();
        let _ = self.process.wait();
    }
}

/// Creates a Guestbook and watches it through its life.
async fn lives(client: &Client, namespace: &str, name: &str, operator: &Operator) {
    let guestbooks = guestbooks(client, namespace);
    let children: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let content = async || {
        children
            .get_opt(name)
            .await
            .unwrap()
            .map(|child| child.data.unwrap_or_default()["foo"].clone())
    };
    guestbooks
        .create(&PostParams::default(), &guestbook(name, json!({"foo": "one"})))
        .await
        .unwrap();
    until("the status", operator, async || {
        let seen = guestbooks.get(name).await.unwrap();
        seen.data["status"]["conditions"][0]["reason"] == "Kept" && !seen.finalizers().is_empty()
    })
    .await;
    until("the child", operator, async || {
        content().await.as_deref() == Some("one")
    })
    .await;
    until("the event", operator, async || {
        let events: Api<Event> = Api::namespaced(client.clone(), namespace);
        let found = events.list(&ListParams::default()).await.unwrap();
        found
            .items
            .iter()
            .any(|event| event.reason.as_deref() == Some("Kept") && event.involved_object.name.as_deref() == Some(name))
    })
    .await;
    let two = Patch::Merge(json!({"spec": {"foo": "two"}}));
    guestbooks.patch(name, &PatchParams::default(), &two).await.unwrap();
    until("the change", operator, async || {
        content().await.as_deref() == Some("two")
    })
    .await;
    children.delete(name, &DeleteParams::default()).await.unwrap();
    until("the child's return", operator, async || {
        content().await.as_deref() == Some("two")
    })
    .await;
    guestbooks.delete(name, &DeleteParams::default()).await.unwrap();
    until("the end", operator, async || {
        guestbooks.get_opt(name).await.unwrap().is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_with_its_own_role_and_survives_a_crash_of_the_server() {
    let Some(mut cluster) = RealCluster::start().await else {
        return;
    };
    let client = cluster.client().await;
    let mut project = Project::new("guestbook", cluster.kubeconfig());
    project.kubewright("init --domain my.domain");
    project.kubewright("create api --group webapp --version v1 --kind Guestbook --resource --controller");
    fs::write(
        project.path().join("src/controller/guestbook_controller.rs"),
        CONTROLLER,
    )
    .unwrap();
    project.edit(
        "Cargo.toml",
        "tokio.workspace = true\n",
        "tokio.workspace = true\nserde_json.workspace = true\n",
    );
    project.kubewright("manifests");
    project.kubewright("deploy --no-wait --image example.com/guestbook:v1");

    let mut operator = project.run(&cluster, &[]).await;
    lives(&client, "default", "first", &operator).await;
    operator.is_well();
    cluster.crash_and_restart().await;
    lives(&client, "default", "second", &operator).await;
    operator.forgive();
    lives(&client, "default", "third", &operator).await;
    operator.stop();

    with_webhooks(&project, &cluster).await;
    in_one_namespace(&mut project).await;
}

async fn with_cert_manager(client: &Client) {
    for definition in cert_manager() {
        definitions(client)
            .create(&PostParams::default(), &serde_json::from_value(definition).unwrap())
            .await
            .unwrap();
    }
}

async fn with_webhooks(project: &Project, cluster: &RealCluster) {
    let client = cluster.client().await;
    project.kubewright(
        "create webhook --group webapp --version v1 --kind Guestbook --defaulting --programmatic-validation",
    );
    let file = "src/webhook/v1/guestbook_webhook.rs";
    project.edit(
        file,
        "let _ = guestbook;",
        "guestbook.spec.foo.get_or_insert_with(|| \"by default\".to_owned());",
    );
    project.edit(file, "let errors", "let mut errors");
    project.edit(
        file,
        "let _ = guestbook;",
        "if guestbook.spec.foo.as_deref() == Some(\"bad\") { errors.invalid(\"spec.foo\", &guestbook.spec.foo, \"must be good\"); }",
    );
    with_cert_manager(&client).await;
    project.kubewright("manifests");
    project.kubewright("deploy --no-wait --image example.com/guestbook:v1");

    let reachable = project.reachable(&client).await;
    let kinds = [
        ("mutating", "MutatingWebhookConfiguration"),
        ("validating", "ValidatingWebhookConfiguration"),
    ];
    lead_webhooks(&client, project, &reachable, &kinds).await;
    let operator = project.run(cluster, &reachable.arguments()).await;
    let guestbooks = guestbooks(&client, "default");
    let create =
        async |name: &str, spec: Value| guestbooks.create(&PostParams::default(), &guestbook(name, spec)).await;
    // The server learns of configurations by and by.
    until("a refusal", &operator, async || {
        let refused = create("refused", json!({"foo": "bad"})).await;
        if refused.is_ok() {
            guestbooks.delete("refused", &DeleteParams::default()).await.unwrap();
        }
        refused.is_err_and(|why| {
            why.to_string()
                .contains("spec.foo: Invalid value: \"bad\": must be good")
        })
    })
    .await;
    let filled = create("filled", json!({})).await.unwrap();
    assert_eq!(filled.data["spec"]["foo"], "by default");
    guestbooks.delete("filled", &DeleteParams::default()).await.unwrap();
    lives(&client, "default", "fourth", &operator).await;
    until("no Guestbooks", &operator, async || {
        guestbooks.list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
    operator.stop();
}

/// The role of one namespace is enough for that namespace.
async fn in_one_namespace(project: &mut Project) {
    // Another server: the roles deployed before do not exist there.
    let cluster = RealCluster::start().await.unwrap();
    let client = cluster.client().await;
    project.kubeconfig = cluster.kubeconfig();
    project.kubewright("delete webhook --group webapp --version v1 --kind Guestbook --force");
    project.kubewright("edit --namespaced");
    project.kubewright("manifests");
    project.kubewright("deploy --no-wait --image example.com/guestbook:v1");
    let operator = project.run(&cluster, &[]).await;
    lives(&client, NAMESPACE, "fifth", &operator).await;
    operator.stop();
}

fn books(client: &Client, version: &str) -> Api<DynamicObject> {
    Api::namespaced_with(
        client.clone(),
        "default",
        &resource("shelf.my.domain", version, "Book", "books"),
    )
}

fn book(version: &str, name: &str, spec: Value) -> DynamicObject {
    let api_version = format!("shelf.my.domain/{version}");
    let object = json!({"apiVersion": api_version, "kind": "Book", "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// An object written in one version is read in the other, and back, by way of the operator's conversion webhook.
#[tokio::test(flavor = "multi_thread")]
async fn objects_are_converted_between_versions() {
    const SUBTITLE: &str = "shelf.my.domain/subtitle";
    let Some(cluster) = RealCluster::start().await else {
        return;
    };
    let client = cluster.client().await;
    let project = Project::golden("conversion", cluster.kubeconfig());
    with_cert_manager(&client).await;
    project.kubewright("deploy --no-wait --image example.com/conversion:v1");
    let reachable = project.reachable(&client).await;
    let mut definition = definitions(&client).get("books.shelf.my.domain").await.unwrap();
    reachable.lead(&mut definition.data["spec"]["conversion"]["webhook"]["clientConfig"]);
    definitions(&client)
        .replace("books.shelf.my.domain", &PostParams::default(), &definition)
        .await
        .unwrap();
    lead_webhooks(
        &client,
        &project,
        &reachable,
        &[("mutating", "MutatingWebhookConfiguration")],
    )
    .await;
    let mut operator = project.run(&cluster, &reachable.arguments()).await;

    let (v1, v2) = (books(&client, "v1"), books(&client, "v2"));
    let new = PostParams::default();
    // The server learns of the way to the operator by and by.
    until("the first book of the other version", &operator, async || {
        let spec = json!({"foo": "a", "subtitle": "s"});
        v2.create(&new, &book("v2", "newer", spec)).await.is_ok()
    })
    .await;
    let older = v1.get("newer").await.unwrap();
    assert_eq!(older.data["spec"], json!({"foo": "a"}));
    assert_eq!(older.annotations()[SUBTITLE], "s");
    assert_eq!(
        older.types.as_ref().map(|types| types.api_version.as_str()),
        Some("shelf.my.domain/v1")
    );

    v1.create(&new, &book("v1", "older", json!({"foo": "b"})))
        .await
        .unwrap();
    assert_eq!(v2.get("older").await.unwrap().data["spec"], json!({"foo": "b"}));
    let patch = Patch::Merge(json!({"spec": {"subtitle": "t"}}));
    v2.patch("older", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(v1.get("older").await.unwrap().annotations()[SUBTITLE], "t");

    // A field that the older version does not know outlives a change through it.
    let patch = Patch::Merge(json!({"spec": {"foo": "c"}}));
    v1.patch("newer", &PatchParams::default(), &patch).await.unwrap();
    let listed = v2.list(&ListParams::default()).await.unwrap();
    let specs: Vec<&Value> = listed.items.iter().map(|item| &item.data["spec"]).collect();
    assert_eq!(
        specs,
        [
            &json!({"foo": "c", "subtitle": "s"}),
            &json!({"foo": "b", "subtitle": "t"})
        ]
    );
    operator.is_well();
    operator.stop();
}
