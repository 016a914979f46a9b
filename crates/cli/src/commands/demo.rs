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
use serde_json::json;

use crate::commands::cluster::Running;
use crate::narrator::narrator;
use crate::output::{DIM, Failure, Format, GOOD, STRONG, paint};
use crate::signals::stop_signal;

/// Run a cluster with a guestbook operator and tell what happens and why
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// End when the Guestbook is Ready; fail when it is not within 30 s
    #[arg(long)]
    once: bool,

    /// Address and port of the HTTPS listener; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
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
        let (narrator, narration) = narrator(started, operator.controllers().iter().map(|controller| controller.name()).collect(), output);
        let narrator = Arc::new(narrator);
        let observer = narrator.clone();
        let running = Running::start(self.listen, self.kubeconfig.clone(), |builder| builder.observe(observer)).await?;
        greet(output, &running, started);

        let printing = tokio::spawn(narration.run());
        let (end, ended) = Stop::pair();
        let outcome = tokio::select! {
            outcome = self.play(output, started, &running, operator.observe(narrator.clone()), ended) => outcome,
            () = stop => Ok(()),
        };
        end.stop();
        running.stop().await;
        drop(narrator);
        // What was observed before the end is still told; a narrator that the operator holds on to must not keep us.
        let _ = tokio::time::timeout(Duration::from_millis(200), printing).await;
        outcome
    }

    /// Everything that needs the cluster; ends by itself only with `--once` or a failure.
    async fn play(
        &self,
        output: Format,
        started: Instant,
        running: &Running,
        operator: Operator,
        end: Stop,
    ) -> Result<(), Failure> {
        let client = running.cluster.client();
        operator
            .install_crds(client.clone())
            .await
            .map_err(|why| Failure::new("cannot install the definition of Guestbook").because(why))?;
        say_step(output, "definition", "guestbooks.webapp.my.domain/v1 is established");

        let mut operating = tokio::spawn(operator.run(client.clone(), async move { end.requested().await }));
        say_step(output, "operator", "guestbook runs in this process");

        let name = create_guestbook(&client).await?;
        say_step(output, "you", &format!("created Guestbook default/{name}"));

        let ready = tokio::select! {
            ready = tokio::time::timeout(PATIENCE, until_ready(&client, &name)) => ready,
            ended = &mut operating => return Err(operator_ended(ended)),
        };
        match ready {
            Ok(ready) => ready?,
            Err(_) => return Err(not_ready(&client, &name).await),
        }
        let took = started.elapsed().as_secs_f64();
        output.say(
            &format!("{} Guestbook default/{name} is {} after {took:.3} s", paint(GOOD, "✓"), paint(GOOD, "Ready")),
            &json!({"event": "guestbook-ready", "name": name, "seconds": took}),
        );
        if self.once {
            return Ok(());
        }
        invite(output, &name);
        Err(operator_ended(operating.await))
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
            paint(STRONG, format!("export KUBECONFIG={kubeconfig}")),
        ),
        &json!({"event": "ready", "address": address, "kubeconfig": kubeconfig, "milliseconds": took}),
    );
}

fn say_step(output: Format, who: &str, what: &str) {
    output.say(&format!("  {who:<11} {what}"), &json!({"event": "step", "who": who, "what": what}));
}

fn invite(output: Format, name: &str) {
    let text = format!(
        "\nIn another terminal, with that KUBECONFIG:\n  kubectl get guestbooks -w\n  kubectl scale guestbook {name} --replicas=3\n  \
         kubectl edit guestbook {name}\n  kubectl delete guestbook {name}\n{}\n",
        paint(DIM, "Every change shows here. Ctrl-C stops everything.")
    );
    output.say(&text, &json!({"event": "invitation"}));
}

async fn create_guestbook(client: &kube::Client) -> Result<String, Failure> {
    let cannot = |why: Box<dyn std::error::Error + Send + Sync>| Failure::new("cannot create the sample Guestbook").because(why);
    let sample: Guestbook = kube_yaml(guestbook::SAMPLE).map_err(cannot)?;
    let guestbooks: Api<Guestbook> = Api::namespaced(client.clone(), "default");
    let created = guestbooks.create(&PostParams::default(), &sample).await.map_err(|why| cannot(why.into()))?;
    Ok(created.name_any())
}

fn kube_yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
    Ok(serde_saphyr::from_str(text)?)
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
        if guestbooks.store().get(Some("default"), &wanted).is_some_and(|guestbook| guestbook.is_ready()) {
            return Ok(());
        }
        news.changed().await.map_err(|why| Failure::new("the watch on Guestbooks ended").because(why))?;
    }
}

async fn not_ready(client: &kube::Client, name: &str) -> Failure {
    let failure = Failure::new(format!("Guestbook default/{name} is not Ready after {} s", PATIENCE.as_secs()));
    let guestbooks: Api<Guestbook> = Api::namespaced(client.clone(), "default");
    match guestbooks.get(name).await {
        Err(why) => failure.because(why),
        Ok(guestbook) => match guestbook.ready() {
            Some(ready) => failure.because(format!("condition Ready is {} ({}): {}", ready.status, ready.reason, ready.message)),
            None => failure.because("its status has no condition Ready: the operator has not reconciled it".to_string()),
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
