//! `kubewright demo`: the whole walk in one command, on a guestbook that is compiled in.
//!
//! A cluster starts in this process; the Guestbook's definition is installed; the operator of `examples/guestbook` runs against it exactly
//! as it would against any cluster; a Guestbook is created; what happens is told as it happens, until the Guestbook is Ready, and then for
//! as long as the user likes. `--once` ends there, with an exit status that says whether it got that far.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use guestbook::Guestbook;
use kubewright::kube::api::{Api, PostParams};
use kubewright::kube::{self, ResourceExt};
use kubewright::{Operator, Stop};
use kubewright_codegen::MemoryFiles;
use kubewright_codegen::manifests::{self, Declaration};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::commands::cluster::{Running, listen_address};
use crate::commands::dev::account::Account;
use crate::narrator::{Narrator, narrator};
use crate::output::{DIM, Failure, Format, GOOD, STRONG, paint, shell_word};
use crate::signals::stop_signal;

/// Run a cluster with a guestbook operator and tell what happens and why
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// End when the Guestbook is Ready; fail when it is not within 30 s
    #[arg(long)]
    once: bool,

    /// Run the operator as the cluster's administrator instead of under its own role
    #[arg(long)]
    as_admin: bool,

    /// Address and port of the HTTPS listener; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = listen_address)]
    listen: SocketAddr,

    /// Where to write the kubeconfig [default: a private folder, removed at the end]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// How long the Guestbook may take to be Ready.
const PATIENCE: Duration = Duration::from_secs(30);

impl Arguments {
    pub(crate) async fn run(self, output: Format, started: Instant) -> Result<(), Failure> {
        let stop = stop_signal()?;
        let operator = guestbook::operator();
        let (narrator, narration) = narrator(started, operator.controller_names().into_iter().collect(), output);
        let narrator = Arc::new(narrator);
        let observer = narrator.clone();
        let running = Running::start(self.listen, self.kubeconfig.clone(), |builder| {
            builder.observe(observer)
        })
        .await?;
        greet(output, &running, started);

        let printing = tokio::spawn(narration.run());
        let (end, ended) = Stop::pair();
        let account = Account::named("guestbook");
        let operators = match self.as_admin {
            true => running.cluster.client(),
            false => running
                .cluster
                .client_of_service_account(&account.namespace(), account.name()),
        };
        let demo = Demo {
            narrator: narrator.clone(),
            client: running.cluster.client(),
            operators,
            started,
        };
        if !self.as_admin {
            demo.grant(&operator, &account).await?;
        }
        let mut operating = demo.start_operator(operator, ended).await?;
        let outcome = tokio::select! {
            outcome = demo.play(self.once) => outcome,
            ended = &mut operating => Err(operator_ended(ended)),
            () = stop => Ok(()),
        };
        narrator.end();
        end.stop();
        // First the operator, then the cluster under it; past these deadlines the process ends and takes the rest with it.
        let _ = tokio::time::timeout(Duration::from_millis(500), operating).await;
        running.stop().await;
        drop((demo, narrator));
        let _ = tokio::time::timeout(Duration::from_millis(100), printing).await;
        outcome
    }
}

/// The part of the demo that plays on the cluster.
struct Demo {
    narrator: Arc<Narrator>,
    client: kube::Client,
    /// The operator's client.
    operators: kube::Client,
    started: Instant,
}

type Operating = JoinHandle<kubewright::Result<()>>;

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
        account.grant(&self.client, &objects.roles).await?;
        self.step("role", &format!("the operator runs as {}", account.user()))
            .await;
        Ok(())
    }

    /// Installs the operator's definitions, starts it and waits until its caches are filled.
    async fn start_operator(&self, operator: Operator, end: Stop) -> Result<Operating, Failure> {
        let cannot = |what: &str, why: kubewright::Error| Failure::new(what).because(why);
        operator
            .install_crds(self.client.clone())
            .await
            .map_err(|why| cannot("cannot install the definition of Guestbook", why))?;
        self.step("definition", "guestbooks.webapp.my.domain/v1 is established")
            .await;

        let manager = operator
            .observe(self.narrator.clone())
            .manager(self.operators.clone())
            .build();
        let manager = manager.map_err(|why| cannot("cannot build the operator", why))?;
        let ready = manager.ready();
        let mut operating = tokio::spawn(manager.run(async move { end.requested().await }));
        tokio::select! {
            () = ready => {}
            ended = &mut operating => return Err(operator_ended(ended)),
        }
        self.step("operator", "guestbook runs in this process").await;
        Ok(operating)
    }

    /// Creates the Guestbook and waits until it is Ready; with `once` that is all, else it goes on for ever.
    async fn play(&self, once: bool) -> Result<(), Failure> {
        self.narrator.begin().await;
        let name = self.create_guestbook().await?;
        self.step("you", &format!("created Guestbook default/{name}")).await;
        match tokio::time::timeout(PATIENCE, until_ready(&self.client, &name)).await {
            Ok(ready) => ready?,
            Err(_) => return Err(not_ready(&self.client, &name).await),
        }
        let took = self.started.elapsed().as_secs_f64();
        if once {
            // This is the end of the story: what happens while the word is printed is not part of it.
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
