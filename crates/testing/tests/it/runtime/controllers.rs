//! Controllers that come and go, and the effects of their errors, with a real API server.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubewright::kube::Api;
use kubewright::kube::api::PostParams;
use kubewright::{
    Action, Context, Controller, Controllers, Error, Fails, Manager, Observation, Outcome, Reconciler, Stop, StopSource,
};
use kubewright_testing::{Cluster, Controllers as BuiltIn, Result, TestCluster};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The reconciles: controller and object.
#[derive(Clone, Default)]
struct Journal(Arc<watch::Sender<Vec<String>>>);

impl Journal {
    fn note(&self, text: String) {
        self.0.send_modify(|notes| notes.push(text));
    }

    fn count(&self, text: &str) -> usize {
        self.0.borrow().iter().filter(|note| *note == text).count()
    }

    async fn until(&self, text: &str) {
        let mut notes = self.0.subscribe();
        let seen = notes.wait_for(|notes| notes.iter().any(|note| note == text));
        let waited = tokio::time::timeout(Duration::from_secs(30), seen).await.is_ok();
        assert!(waited, "{text}: {:#?}", self.0.borrow());
    }
}

struct Noter(&'static str, Journal);

impl Reconciler for Noter {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, _: Context) -> kubewright::Result<Action> {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        self.1.note(format!("{} {name}", self.0));
        Ok(Action::await_change())
    }
}

impl Noter {
    fn controller(self) -> Controller {
        let name = self.0;
        Controller::of(self).named(name).owns::<Secret>()
    }
}

struct Running {
    controllers: Controllers,
    stop: StopSource,
    task: JoinHandle<kubewright::Result<()>>,
}

fn run(manager: Manager) -> Running {
    let (stop, token) = Stop::pair();
    Running {
        controllers: manager.controllers(),
        stop,
        task: tokio::spawn(manager.run(async move { token.requested().await })),
    }
}

impl Running {
    async fn stop(self) -> Controllers {
        self.stop.stop();
        self.task.await.expect("no panic").expect("it stops in order");
        self.controllers
    }
}

async fn create(cluster: &TestCluster, name: &str) -> Result<()> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    Api::default_namespaced(cluster.kube())
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

#[tokio::test]
async fn m6_controllers_come_and_go_while_the_manager_runs() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(BuiltIn::None)).await?;
    let journal = Journal::default();
    let noter = |name| Noter(name, journal.clone()).controller();
    let manager = Manager::builder(cluster.kube())
        .add(noter("one"))
        .build()
        .expect("a manager");
    let controllers = manager.controllers();
    // A request from before the manager runs waits for it.
    let early = tokio::spawn({
        let (controllers, two) = (controllers.clone(), noter("two"));
        async move { controllers.add(two).await }
    });
    tokio::task::yield_now().await;
    let running = run(manager);
    early.await.expect("no panic")?;
    create(&cluster, "a").await?;
    journal.until("one a").await;
    journal.until("two a").await;
    let taken = controllers.add(noter("two")).await.expect_err("there is one");
    assert!(taken.to_string().contains("cannot add controller \"two\""), "{taken}");

    assert!(controllers.remove("one").await?);
    assert!(!controllers.remove("one").await?);
    create(&cluster, "b").await?;
    journal.until("two b").await;
    // A third one, told of everything, is told after those that were told of b.
    controllers.add(noter("three")).await?;
    journal.until("three b").await;
    assert_eq!(journal.count("one b"), 0);
    // A controller that was removed may come back.
    controllers.add(noter("one")).await?;
    journal.until("one b").await;

    let controllers = running.stop().await;
    let late = controllers.add(noter("four")).await.expect_err("it has ended");
    assert!(late.to_string().contains("the manager has ended"), "{late}");
    Ok(())
}

/// Fails in all ways, by name.
struct Failing;

/// An error that states its own effect.
#[derive(Debug)]
struct Busy;

impl From<Busy> for Error {
    fn from(_: Busy) -> Error {
        Error::retry_after(Duration::from_secs(3600), "it is busy")
    }
}

fn busy() -> std::result::Result<(), Busy> {
    Err(Busy)
}

impl Reconciler for Failing {
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, _: Context) -> kubewright::Result<Action> {
        match object.metadata.name.as_deref() {
            Some("busy") => busy()?,
            Some("number") => drop("x".parse::<u8>().or_terminal()?),
            Some("file") => drop(std::fs::read("/nowhere").or_retry_after(Duration::from_secs(60))?),
            _ => {}
        }
        Ok(Action::await_change())
    }
}

#[tokio::test]
async fn r5_errors_of_any_type_say_when_the_key_runs_again() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(BuiltIn::None)).await?;
    let (journal, told) = (Journal::default(), Journal::default());
    let sink = told.clone();
    let observer = move |what: &Observation| {
        if let Observation::ReconcileFinished { request, outcome, .. } = what {
            let outcome = match outcome {
                Outcome::Retry { after, .. } => format!("again after {after:?}"),
                Outcome::Terminal { .. } => "never again".to_owned(),
                other => format!("{other:?}"),
            };
            sink.note(format!("{}: {outcome}", request.name()));
        }
    };
    let manager = Manager::builder(cluster.kube())
        .observe(Arc::new(observer))
        .add(Controller::of(Failing).named("failing"))
        .add(Noter("second", journal.clone()).controller());
    let running = run(manager.build().expect("a manager"));
    for name in ["busy", "number", "file", "fine"] {
        create(&cluster, name).await?;
    }
    for outcome in [
        "busy: again after 3600s",
        "number: never again",
        "file: again after 60s",
        "fine: Done",
    ] {
        told.until(outcome).await;
    }
    journal.until("second busy").await; // another controller of the same kind
    running.stop().await;
    Ok(())
}
