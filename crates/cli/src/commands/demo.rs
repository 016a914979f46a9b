//! `kubewright demo`: the whole walk in one command, on operators that are compiled in; the guestbook's unless another
//! is asked for (`demo/story.rs`).
//!
//! A cluster starts in this process; the Guestbook's definition is installed; the operator of `examples/guestbook` runs
//! against it exactly as it would against any cluster; a Guestbook is created; what happens is told as it happens,
//! until the Guestbook is Ready, and then for as long as the user likes. `--once` ends there, with an exit status that
//! says whether it got that far.

mod story;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use guestbook::Guestbook;
use kubewright::kube::api::{Api, DynamicObject, PostParams};
use kubewright::kube::core::GroupVersionKind;
use kubewright::kube::discovery::Scope;
use kubewright::kube::{self, ResourceExt};
use kubewright::webhook::{self, WebhookHandlers};
use kubewright::{Operator, Stop};
use kubewright_cluster::Cluster;
use kubewright_codegen::MemoryFiles;
use kubewright_codegen::manifests::{self, Declaration};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::story::Story;
pub(crate) use self::story::Which;

use crate::commands::cluster::{Running, listen_address};
use crate::commands::dev::account::Account;
use crate::narrator::{Narrator, narrator};
use crate::output::{DIM, Failure, Format, GOOD, STRONG, paint, shell_word};
use crate::signals::stop_signal;

/// Run a cluster with an operator, and show what happens and why
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The operator
    #[arg(value_enum, default_value_t)]
    operator: Which,

    /// Exit when the created objects are Ready; fail if they are not within 30 s
    #[arg(long)]
    once: bool,

    /// Run the operator as the cluster's administrator instead of with its own role
    #[arg(long)]
    as_admin: bool,

    /// Address and port of the HTTPS listener; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = listen_address)]
    listen: SocketAddr,

    /// Where to write the kubeconfig [default: a private folder, removed at the end]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// How long the new objects may take to be Ready.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the hero of a story is looked at.
const LOOK: Duration = Duration::from_millis(100);

impl Arguments {
    pub(crate) async fn run(self, output: Format, started: Instant) -> Result<(), Failure> {
        let stop = stop_signal()?;
        let mut story = Story::of(self.operator)?;
        let mut operators = match &mut story {
            Some(story) => std::mem::take(&mut story.operators),
            None => vec![guestbook::operator()],
        };
        let processes = story.as_mut().and_then(|story| story.processes.take());
        let heroes = operators.iter().flat_map(Operator::controller_names).collect();
        let (narrator, narration) = narrator(started, heroes, output);
        let narrator = Arc::new(narrator);
        let observer = narrator.clone();
        let running = Running::start(self.listen, self.kubeconfig.clone(), |builder| {
            let builder = builder.observe(observer);
            match processes {
                Some(processes) => builder.processes(processes),
                None => builder,
            }
        })
        .await?;
        greet(output, &running, started);

        let printing = tokio::spawn(narration.run());
        let (end, ended) = Stop::pair();
        let demo = Demo {
            narrator: narrator.clone(),
            cluster: running.cluster.clone(),
            client: running.cluster.client(),
            started,
        };
        let mut all = JoinSet::new();
        for operator in operators.drain(..) {
            let account = Account::named(operator.name());
            let client = match self.as_admin {
                true => running.cluster.client(),
                false => {
                    demo.grant(&operator, &account).await?;
                    let (namespace, name) = (account.namespace(), account.name());
                    running.cluster.client_of_service_account(&namespace, name)
                }
            };
            demo.start_operator(operator, client, &mut all, ended.clone()).await?;
        }
        let outcome = tokio::select! {
            outcome = demo.play(story.as_ref(), self.once) => outcome,
            Some(ended) = all.join_next() => Err(operator_ended(ended)),
            () = stop => Ok(()),
        };
        narrator.end();
        end.stop();
        // First the operator, then the cluster under it; past these deadlines the process ends and takes the rest with
        // it.
        let ended = async { while all.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(Duration::from_millis(500), ended).await;
        running.stop().await;
        drop((demo, narrator));
        let _ = tokio::time::timeout(Duration::from_millis(100), printing).await;
        outcome
    }
}

/// The part of the demo that plays on the cluster.
struct Demo {
    narrator: Arc<Narrator>,
    cluster: Cluster,
    client: kube::Client,
    started: Instant,
}

impl Demo {
    /// Gives the operator's account the role that `kubewright manifests` would write.
    async fn grant(&self, operator: &Operator, account: &Account) -> Result<(), Failure> {
        let cannot = || Failure::new("cannot learn which role the operator needs");
        let mut declared = Vec::new();
        kubewright::declare(operator, &mut declared).map_err(|why| cannot().because(why))?;
        let declared = Declaration::parse(&String::from_utf8_lossy(&declared))?;
        let objects = manifests::objects(&declared, &MemoryFiles::default(), &manifests::Options::default());
        let objects = objects.map_err(|wrong| match wrong.into_iter().next() {
            Some(first) => Failure::from(first),
            None => cannot(),
        })?;
        account.grant_beside(&self.client, &objects.roles).await?;
        self.step("role", &format!("the operator runs as {}", account.user()))
            .await;
        Ok(())
    }

    /// Installs the operator's definitions, starts it and waits until its caches are filled.
    async fn start_operator(
        &self,
        operator: Operator,
        client: kube::Client,
        all: &mut JoinSet<kubewright::Result<()>>,
        end: Stop,
    ) -> Result<(), Failure> {
        let cannot = |what: &str, why: kubewright::Error| Failure::new(what).because(why);
        let crds = operator
            .crds()
            .map_err(|why| cannot("cannot make the definitions", why))?;
        operator
            .install_crds(self.client.clone())
            .await
            .map_err(|why| cannot("cannot install the definitions", why))?;
        for crd in &crds {
            let version = crd
                .spec
                .versions
                .first()
                .map(|version| version.name.as_str())
                .unwrap_or_default();
            let text = format!("{}/{version} is established", crd.name_any());
            self.step("definition", &text).await;
        }
        let name = operator.name().to_owned();
        let manager = operator.observe(self.narrator.clone()).manager(client).build();
        let manager = manager.map_err(|why| cannot("cannot build the operator", why))?;
        self.lead_to(&name, &manager.webhooks()).await?;
        let ready = manager.ready();
        all.spawn(manager.run(async move { end.requested().await }));
        tokio::select! {
            () = ready => {}
            Some(ended) = all.join_next() => return Err(operator_ended(ended)),
        }
        self.step("operator", &format!("{name} runs in this process")).await;
        Ok(())
    }

    /// Leads the API server to the webhooks of an operator, without a socket.
    async fn lead_to(&self, operator: &str, handlers: &WebhookHandlers) -> Result<(), Failure> {
        let url = |path: &str| format!("https://{operator}-webhook-service.{operator}-system.svc:443{path}");
        for path in handlers.paths() {
            let handlers = handlers.clone();
            self.cluster.answer_webhook(&url(&path), move |document| {
                let (handlers, path) = (handlers.clone(), path.clone());
                async move {
                    handlers
                        .call(&path, PATIENCE, document)
                        .await
                        .map_err(|status| status.message)
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

    /// Creates an object, unless it is there; in the namespace `default` where its kind is in one.
    async fn create(&self, object: &Value) -> Result<(), Failure> {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let cannot = || Failure::new(format!("cannot create the {} {}", text(kind), text(name)));
        let api = self.api(object).await.map_err(|why| cannot().because(why))?;
        let object = serde_json::from_value(object.clone()).map_err(|why| cannot().because(why))?;
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()), // a namespace that an account brought along
            created => created.map(drop).map_err(|why| cannot().because(why)),
        }
    }

    async fn api(&self, object: &Value) -> kube::Result<Api<DynamicObject>> {
        let (group, version) = text(&object["apiVersion"])
            .rsplit_once('/')
            .unwrap_or(("", text(&object["apiVersion"])));
        let kind = GroupVersionKind::gvk(group, version, text(&object["kind"]));
        let (resource, capabilities) = kube::discovery::pinned_kind(&self.client, &kind).await?;
        Ok(match capabilities.scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), "default", &resource),
        })
    }

    /// Waits until an object is as a story wants it, which `state` says in words.
    async fn until_ready(&self, object: &Value, state: &str, is_there: fn(&Value) -> bool) -> Result<(), Failure> {
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let unseen = |why| Failure::new(format!("cannot look at the {kind} {name}")).because(why);
        let api = self.api(object).await.map_err(unseen)?;
        let begin = Instant::now();
        loop {
            let seen = api.get(name).await.map(|seen| json!(seen));
            let seen = seen.map_err(unseen)?;
            if is_there(&seen) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                let why = format!("its status is {}", seen["status"]);
                let late = format!("{kind} {name} is not {state} after {} s", PATIENCE.as_secs());
                return Err(Failure::new(late).because(why));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Creates the objects of a story, and waits for its hero.
    async fn tell(&self, story: &Story, once: bool) -> Result<(), Failure> {
        self.narrator.begin().await;
        for object in &story.objects {
            self.create(object).await?;
            let created = format!(
                "created {} {}",
                text(&object["kind"]),
                text(&object["metadata"]["name"])
            );
            self.step("you", &created).await;
            if story.waits_for == Some(text(&object["kind"])) {
                self.until_ready(object, "ready", story.is_there).await?;
            }
        }
        let (kind, name, state) = story.hero;
        let hero = story.objects.iter().find(|object| object["kind"] == kind);
        self.until_ready(hero.unwrap_or(&Value::Null), state, story.is_there)
            .await?;
        let took = self.started.elapsed().as_secs_f64();
        if once {
            self.narrator.end();
        }
        let told = format!("{} {kind} {name} is {state} after {took:.3} s", paint(GOOD, "✓"));
        self.narrator
            .tell(
                told,
                json!({"event": "hero-ready", "kind": kind, "name": name, "seconds": took}),
            )
            .await;
        if once {
            return Ok(());
        }
        let invitation = format!(
            "\nIn another terminal, with that KUBECONFIG:\n{}\n{}\n",
            story.invitation,
            paint(DIM, "Every change shows here. Ctrl-C stops everything.")
        );
        self.narrator.tell(invitation, json!({"event": "invitation"})).await;
        std::future::pending().await
    }

    /// Creates the Guestbook and waits until it is Ready, or plays the story; with `once` that is all, else it goes on
    /// for ever.
    async fn play(&self, story: Option<&Story>, once: bool) -> Result<(), Failure> {
        if let Some(story) = story {
            return self.tell(story, once).await;
        }
        self.narrator.begin().await;
        let name = self.create_guestbook().await?;
        self.step("you", &format!("created Guestbook default/{name}")).await;
        match tokio::time::timeout(PATIENCE, until_ready(&self.client, &name)).await {
            Ok(ready) => ready?,
            Err(_) => return Err(not_ready(&self.client, &name).await),
        }
        let took = self.started.elapsed().as_secs_f64();
        if once {
            // This is the end of the story: later events are not part of it.
            self.narrator.end();
        }
        let text = format!(
            "{} Guestbook default/{name} is {} after {took:.3} s",
            paint(GOOD, "✓"),
            paint(GOOD, "Ready")
        );
        self.narrator
            .tell(text, json!({"event": "guestbook-ready", "name": name, "seconds": took}))
            .await;
        if once {
            return Ok(());
        }
        self.narrator
            .tell(invitation(&name), json!({"event": "invitation"}))
            .await;
        std::future::pending().await
    }

    async fn create_guestbook(&self) -> Result<String, Failure> {
        let cannot = || Failure::new("cannot create the sample Guestbook");
        let sample: Guestbook = serde_saphyr::from_str(guestbook::SAMPLE).map_err(|why| cannot().because(why))?;
        let guestbooks: Api<Guestbook> = Api::namespaced(self.client.clone(), "default");
        let created = guestbooks
            .create(&PostParams::default(), &sample)
            .await
            .map_err(|why| cannot().because(why))?;
        Ok(created.name_any())
    }

    async fn step(&self, who: &str, what: &str) {
        self.narrator
            .tell(
                format!("  {who:<11} {what}"),
                json!({"event": "step", "who": who, "what": what}),
            )
            .await;
    }
}

/// The text of a value; empty where it is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn greet(output: Format, running: &Running, started: Instant) {
    let took = started.elapsed().as_secs_f64() * 1000.0;
    let (address, kubeconfig) = (running.address(), running.kubeconfig.path().display().to_string());
    output.say(
        &format!(
            "{}\n  {:<11} ready in {took:.0} ms at {address}\n  {:<11} {}",
            paint(STRONG, "kubewright demo"),
            "cluster",
            "kubeconfig",
            paint(STRONG, format!("export KUBECONFIG={}", shell_word(&kubeconfig))),
        ),
        &json!({"event": "ready", "address": address, "kubeconfig": kubeconfig, "milliseconds": took}),
    );
}

fn invitation(name: &str) -> String {
    format!(
        "\nIn another terminal, with that KUBECONFIG:\n  kubectl get guestbooks -w\n  kubectl scale guestbook {name} --replicas=3\n  \
         kubectl edit guestbook {name}\n  kubectl delete guestbook {name}\n{}\n",
        paint(DIM, "Every change shows here. Ctrl-C stops everything.")
    )
}

/// Waits on a watch until the Guestbook says Ready.
async fn until_ready(client: &kube::Client, name: &str) -> Result<(), Failure> {
    let cache = kubewright::Cache::new(client.clone());
    let guestbooks = cache.informer::<Guestbook>();
    let (seen, mut news) = tokio::sync::watch::channel(());
    let wanted = name.to_string();
    guestbooks.add_handler(move |_| {
        seen.send_replace(());
    });
    loop {
        if guestbooks
            .store()
            .get(Some("default"), &wanted)
            .is_some_and(|guestbook| guestbook.is_ready())
        {
            return Ok(());
        }
        news.changed()
            .await
            .map_err(|why| Failure::new("the watch on Guestbooks ended").because(why))?;
    }
}

async fn not_ready(client: &kube::Client, name: &str) -> Failure {
    let failure = Failure::new(format!(
        "Guestbook default/{name} is not Ready after {} s",
        PATIENCE.as_secs()
    ));
    let guestbooks: Api<Guestbook> = Api::namespaced(client.clone(), "default");
    match guestbooks.get(name).await {
        Err(why) => failure.because(why),
        Ok(guestbook) => match guestbook.ready() {
            Some(ready) => failure.because(format!(
                "condition Ready is {} ({}): {}",
                ready.status, ready.reason, ready.message
            )),
            None => {
                failure.because("its status has no condition Ready: the operator has not reconciled it".to_string())
            }
        },
    }
}

fn operator_ended(ended: Result<kubewright::Result<()>, tokio::task::JoinError>) -> Failure {
    let failure = Failure::new("the operator ended");
    match ended {
        Ok(Ok(())) => failure.because("nobody asked it to".to_string()),
        Ok(Err(why)) => failure.because(why),
        Err(why) => failure.because(why),
    }
}
