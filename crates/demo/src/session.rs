//! How a demo is played: roles, definitions, operators, webhooks, objects, and the wait for the state.
//!
//! Invariant: a step is printed after everything that was observed before it ([`Narrator`]).

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kubewright::kube::api::{Api, DynamicObject, PostParams};
use kubewright::kube::core::{ApiResource, GroupVersionKind};
use kubewright::kube::discovery::Scope;
use kubewright::kube::{self, ResourceExt};
use kubewright::webhook::{self, WebhookHandlers};
use kubewright::{Cache, Operator, Stop};
use kubewright_cluster::{Cluster, ClusterBuilder};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::narrator::{Narrator, Printer, Say, narrator};
use crate::paint::{DIM, GOOD, STRONG, paint, shell_word};
use crate::{Demo, Error, Options, account, condition};

/// How long an object may take to be in the state that is waited for.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A demo that is played.
pub struct Session {
    demo: Demo,
    narrator: Arc<Narrator>,
    printer: Printer,
    started: Instant,
}

impl Session {
    /// `say` prints: text for people, and the same for machines. Times are those since `started`.
    pub fn new(demo: Demo, started: Instant, say: Say) -> Session {
        let controllers = demo
            .operators
            .iter()
            .flat_map(|(operator, _)| operator.controller_names());
        let (narrator, printer) = narrator(started, controllers.collect(), say);
        Session {
            narrator: Arc::new(narrator),
            printer,
            demo,
            started,
        }
    }

    /// The cluster that the demo needs.
    pub fn configure(&mut self, builder: ClusterBuilder) -> ClusterBuilder {
        let builder = builder.observe(self.narrator.clone());
        match self.demo.processes.take() {
            Some(processes) => builder.processes(processes),
            None => builder,
        }
    }

    /// Plays the demo on this cluster, which clients reach at `address` with `kubeconfig`: until the state is reached if
    /// that is all that is asked for, else until `stop`.
    ///
    /// # Errors
    /// When the state is not reached within 30 s, or the operator ends.
    pub async fn run(
        mut self,
        cluster: &Cluster,
        address: &str,
        kubeconfig: &Path,
        options: Options,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let printing = tokio::spawn(self.printer.run());
        let operators = std::mem::take(&mut self.demo.operators);
        let player = Player {
            narrator: self.narrator,
            cluster,
            client: cluster.client(),
            started: self.started,
        };
        player.greet(address, kubeconfig).await;
        let (end, ended) = Stop::pair();
        let mut all = JoinSet::new();
        for (operator, roles) in operators {
            let client = match options.as_admin {
                true => cluster.client(),
                false => player.grant(&operator, &roles).await?,
            };
            player.start(operator, client, &mut all, ended.clone()).await?;
        }
        let outcome = tokio::select! {
            outcome = player.play(&self.demo, options.once) => outcome,
            Some(ended) = all.join_next() => Err(operator_ended(ended)),
            () = stop => Ok(()),
        };
        player.narrator.end();
        end.stop();
        // First the operator, then the cluster under it; past these deadlines the process ends and takes the rest with
        // it.
        let ended = async { while all.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(Duration::from_millis(500), ended).await;
        let _ = tokio::time::timeout(Duration::from_secs(1), cluster.stop()).await;
        drop(player);
        let _ = tokio::time::timeout(Duration::from_millis(100), printing).await;
        outcome
    }
}

/// Plays a demo until the state is reached, on a cluster that nobody else reaches, and gives what is printed: for tests.
///
/// # Errors
/// As [`Session::run`].
pub async fn play(demo: Demo) -> Result<String, Error> {
    let printed = Arc::new(Mutex::new(String::new()));
    let out = printed.clone();
    let say = Box::new(move |text: &str, _: &Value| {
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        out.extend([anstream::adapter::strip_str(text).to_string().as_str(), "\n"]);
    });
    let mut session = Session::new(demo, Instant::now(), say);
    let started = session.configure(Cluster::builder()).start().await;
    let cluster = started.map_err(|why| Error::new("cannot start the cluster").because(why))?;
    let options = Options {
        once: true,
        as_admin: false,
    };
    let stop = std::future::pending();
    session.run(&cluster, "", Path::new(""), options, stop).await?;
    let printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(printed.clone())
}

/// The part of the demo that plays on the cluster.
struct Player<'a> {
    narrator: Arc<Narrator>,
    cluster: &'a Cluster,
    client: kube::Client,
    started: Instant,
}

impl Player<'_> {
    async fn greet(&self, address: &str, kubeconfig: &Path) {
        let took = self.started.elapsed().as_secs_f64() * 1000.0;
        let kubeconfig = kubeconfig.display().to_string();
        let text = format!(
            "{}\n  {:<11} ready in {took:.0} ms at {address}\n  {:<11} {}",
            paint(STRONG, "kubewright demo"),
            "cluster",
            "kubeconfig",
            paint(STRONG, format!("export KUBECONFIG={}", shell_word(&kubeconfig))),
        );
        let event = json!({"event": "ready", "address": address, "kubeconfig": kubeconfig, "milliseconds": took});
        self.narrator.tell(text, event).await;
    }

    async fn step(&self, who: &str, what: &str) {
        let event = json!({"event": "step", "who": who, "what": what});
        self.narrator.tell(format!("  {who:<11} {what}"), event).await;
    }

    /// Gives the operator's account its roles; the answer is the client of that account.
    async fn grant(&self, operator: &Operator, roles: &[Value]) -> Result<kube::Client, Error> {
        let project = operator.name().replace(['_', '.'], "-");
        let namespace = account::namespace(&project);
        for object in account::objects(&project, roles, &Value::Null) {
            self.create(&object).await?;
        }
        let user = format!("system:serviceaccount:{namespace}:{}", account::ACCOUNT);
        self.step("role", &format!("the operator runs as {user}")).await;
        Ok(self.cluster.client_of_service_account(&namespace, account::ACCOUNT))
    }

    /// Installs the operator's definitions, starts it and waits until its caches are filled.
    async fn start(
        &self,
        operator: Operator,
        client: kube::Client,
        all: &mut JoinSet<kubewright::Result<()>>,
        end: Stop,
    ) -> Result<(), Error> {
        let cannot = |what: &str, why: kubewright::Error| Error::new(format!("cannot {what}")).because(why);
        let crds = operator.crds().map_err(|why| cannot("make the definitions", why))?;
        let installed = operator.install_crds(self.client.clone()).await;
        installed.map_err(|why| cannot("install the definitions", why))?;
        for crd in &crds {
            let version = crd.spec.versions.first().map(|version| version.name.as_str());
            let text = format!("{}/{} is established", crd.name_any(), version.unwrap_or_default());
            self.step("definition", &text).await;
        }
        let name = operator.name().to_owned();
        let manager = operator.observe(self.narrator.clone()).manager(client).build();
        let manager = manager.map_err(|why| cannot("build the operator", why))?;
        self.connect(&name, &manager.webhooks()).await?;
        let ready = manager.ready();
        all.spawn(manager.run(async move { end.requested().await }));
        tokio::select! {
            () = ready => {}
            Some(ended) = all.join_next() => return Err(operator_ended(ended)),
        }
        self.step("operator", &format!("{name} runs in this process")).await;
        Ok(())
    }

    /// Connects the API server to the webhooks of an operator, without a socket.
    async fn connect(&self, operator: &str, handlers: &WebhookHandlers) -> Result<(), Error> {
        let url = |path: &str| format!("https://{operator}-webhook-service.{operator}-system.svc:443{path}");
        for path in handlers.paths() {
            let handlers = handlers.clone();
            self.cluster.answer_webhook(&url(&path), move |document| {
                let (handlers, path) = (handlers.clone(), path.clone());
                async move {
                    let answer = handlers.call(&path, READY_TIMEOUT, document).await;
                    answer.map_err(|status| status.message)
                }
            });
        }
        let service = |webhook: &webhook::Description| {
            let (name, namespace) = (format!("{operator}-webhook-service"), format!("{operator}-system"));
            json!({"service": {"name": name, "namespace": namespace, "path": webhook.path}})
        };
        for configuration in webhook::configurations(&format!("{operator}-"), &handlers.descriptions(), service) {
            self.create(&configuration).await?;
        }
        Ok(())
    }

    /// The kind of an object, and the namespace in which it is: its own, or `default` where the kind is in one.
    async fn place(&self, object: &Value) -> kube::Result<(ApiResource, Option<String>)> {
        let api_version = text(&object["apiVersion"]);
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, text(&object["kind"]));
        let (resource, capabilities) = kube::discovery::pinned_kind(&self.client, &kind).await?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let is_in_one = capabilities.scope == Scope::Namespaced;
        Ok((resource, is_in_one.then(|| namespace.to_owned())))
    }

    /// Creates an object, unless it is there; the answer is its full name.
    async fn create(&self, object: &Value) -> Result<String, Error> {
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let cannot = || Error::new(format!("cannot create the {kind} {name}"));
        let (resource, namespace) = self.place(object).await.map_err(|why| cannot().because(why))?;
        let api: Api<DynamicObject> = match &namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let object = serde_json::from_value(object.clone()).map_err(|why| cannot().because(why))?;
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {} // a namespace that an account brought along
            created => drop(created.map_err(|why| cannot().because(why))?),
        }
        Ok(full_name(kind, namespace.as_deref(), name))
    }

    /// Waits until an object is in a state, which `state` names; the answer is its full name.
    async fn wait(&self, object: &Value, state: &str, is_reached: fn(&Value) -> bool) -> Result<String, Error> {
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let unseen = |why| Error::new(format!("cannot watch the {kind} {name}")).because(why);
        let (resource, namespace) = self.place(object).await.map_err(unseen)?;
        let full_name = full_name(kind, namespace.as_deref(), name);
        let cache = Cache::new(self.client.clone());
        let informer = cache.informer_dynamic::<DynamicObject>(&resource, kubewright::Scope::all());
        let (changed, mut changes) = tokio::sync::watch::channel(());
        informer.add_handler(move |_| {
            changed.send_replace(());
        });
        let mut seen = Value::Null;
        let reached = async {
            loop {
                if let Some(object) = informer.store().get(namespace.as_deref(), name) {
                    seen = json!(*object);
                }
                if is_reached(&seen) || changes.changed().await.is_err() {
                    return is_reached(&seen);
                }
            }
        };
        if let Ok(true) = tokio::time::timeout(READY_TIMEOUT, reached).await {
            return Ok(full_name);
        }
        let ready = condition(&seen, "Ready");
        let why = match ready.is_null() {
            true => format!("its status is {}, without a condition Ready", seen["status"]),
            false => format!(
                "condition Ready is {} ({}): {}",
                text(&ready["status"]),
                text(&ready["reason"]),
                text(&ready["message"])
            ),
        };
        Err(Error::new(format!(
            "{full_name} is not {state} after {} s",
            READY_TIMEOUT.as_secs()
        ))
        .because(why))
    }

    /// Creates the objects and waits for the state; with `once` that is all, else it goes on for ever.
    async fn play(&self, demo: &Demo, once: bool) -> Result<(), Error> {
        self.narrator.begin().await;
        for object in &demo.objects {
            let created = self.create(object).await?;
            self.step("you", &format!("created {created}")).await;
            if demo.waits_for == Some(text(&object["kind"])) {
                self.wait(object, "ready", crate::is_ready).await?;
            }
        }
        let subject = demo.objects.iter().find(|object| object["kind"] == demo.subject);
        let name = self
            .wait(subject.unwrap_or(&Value::Null), demo.state, demo.is_reached)
            .await?;
        let took = self.started.elapsed().as_secs_f64();
        if once {
            // The demo is over: later events are not part of it.
            self.narrator.end();
        }
        let (good, state) = (paint(GOOD, "✓"), paint(GOOD, demo.state));
        let event = json!({"event": "reached", "object": name, "state": demo.state, "seconds": took});
        self.narrator
            .tell(format!("{good} {name} is {state} after {took:.3} s"), event)
            .await;
        if once {
            return Ok(());
        }
        let commands: String = demo.commands.lines().map(|line| format!("  {line}\n")).collect();
        let invitation = format!(
            "\nIn another terminal, with that KUBECONFIG:\n{commands}{}\n",
            paint(DIM, "Every change shows here. Ctrl-C stops everything.")
        );
        self.narrator.tell(invitation, json!({"event": "invitation"})).await;
        std::future::pending().await
    }
}

fn full_name(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// The text of a value; empty where it is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn operator_ended(ended: Result<kubewright::Result<()>, tokio::task::JoinError>) -> Error {
    let error = Error::new("the operator ended");
    match ended {
        Ok(Ok(())) => error.because("nobody asked it to".to_string()),
        Ok(Err(why)) => error.because(why),
        Err(why) => error.because(why),
    }
}
