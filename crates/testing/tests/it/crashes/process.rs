//! One built-in controller as a process of its own: it can be killed after a write, and is then started anew.

use std::fmt;
use std::sync::Arc;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::{Clock, Manager};
use kubewright_cluster::Nodes;
use kubewright_cluster::controllers::{self, Settings};
use kubewright_testing::TestCluster;
use tokio::task::JoinHandle;

use super::connection::BreakingConnection;

/// The time of the cluster, for the controller beside it.
struct Time(TestCluster);

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Time")
    }
}

impl Clock for Time {
    fn now(&self) -> Timestamp {
        self.0.now().expect("a cluster in virtual time")
    }
}

/// A controller with a connection of its own.
pub(crate) struct Process {
    lines: [Arc<BreakingConnection>; 2],
    task: JoinHandle<()>,
}

impl Process {
    /// Starts `controller`. It is killed after so many writes, and a new one is started.
    pub(crate) fn start(
        cluster: &TestCluster,
        controller: &'static str,
        nodes: Nodes,
        dies_after: Option<usize>,
    ) -> Process {
        let lines = [
            BreakingConnection::new(dies_after.unwrap_or(usize::MAX)),
            BreakingConnection::new(usize::MAX),
        ];
        let [first, second] = lines.clone();
        let cluster = cluster.clone();
        let manager = move |line: &Arc<BreakingConnection>| {
            let clock = Arc::new(Time(cluster.clone()));
            let settings = Settings {
                root_ca: Arc::new(|| Some("authority".to_owned())),
                service_account_token: Arc::new(|wanted| Some(format!("token of {}", wanted.account))),
                certificates: Some(Arc::new(|_, _, _| Ok("certificate".to_owned()))),
                clock: clock.clone(),
                heartbeats: false,
                nodes: nodes.clone(),
                ..Settings::default()
            };
            let manager = Manager::builder(line.client(cluster.kube())).name("kube-controller-manager");
            let manager = controllers::add(manager.clock(clock), controller, &settings);
            manager.build().expect("a controller that fits by itself")
        };
        let task = tokio::spawn(async move {
            let running = manager(&first).run(std::future::pending());
            tokio::select! {
                ended = running => panic!("the controller ended: {ended:?}"),
                () = first.breaks() => {}
            }
            let ended = manager(&second).run(std::future::pending()).await;
            panic!("the controller ended: {ended:?}");
        });
        Process { lines, task }
    }

    /// Ends it; how many writes it sent in all its lives.
    pub(crate) async fn stop(self) -> usize {
        assert!(!self.task.is_finished(), "the controller ended by itself");
        self.task.abort();
        self.task.await.expect_err("it was cut off");
        self.lines.iter().map(|line| line.writes()).sum()
    }
}
