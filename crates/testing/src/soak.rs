//! A long life: two replicas of an operator, whose leader loses its Lease every minute, whose watches are cut every ten
//! seconds, and which have a controller of a kind that they may not list: ReplicationControllers.
//!
//! What a test changes comes about in each round, under a new leader. In the end nothing has grown: the cluster holds as
//! many objects of each kind as before, so that no child was made twice, and the caches of both replicas as many objects
//! and bytes, and their metrics as many lines. Invariant: rounds that are [`CYCLE`] apart are compared, and lead to the
//! same state if the test changes the same in them.
//!
//! Not here: faults in the midst of a change, which [`explore`](crate::explore) plays one by one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::api::core::v1::ReplicationController;
use kubewright::kube;
use kubewright::kube::client::Body;
use kubewright::kube::core::Status;
use kubewright::{Action, Context, Controller, LeaderElection, Operator, Reconciler};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::cluster::TestCluster;
use crate::dying::AbortOnDrop;
use crate::error::{Error, Result};
use crate::intercept::refused;
use crate::rights::Rights;
use crate::running::RunningOperator;

/// After so many rounds a soak compares what it holds.
pub const CYCLE: usize = 4;
/// How long a leader leads at most, and a round takes at least.
const TERM: Duration = Duration::from_secs(60);
const CUT: Duration = Duration::from_secs(10);
/// How long until a leader that cannot renew its Lease is followed. No replica can list all kinds, so that each leaves
/// the Lease to a better one for a second lease duration (LE7): 30 seconds from the last renewal that it saw, and it may
/// have seen it only when its watch was opened again after a cut.
const FOLLOWED: Duration = Duration::from_secs(2 * 15 + 10);
const LEASE: &str = "soak";
/// What nobody may list, and few operators need.
const REFUSED: &str = "replicationcontrollers";

/// Two replicas of an operator for a long life; see [`TestCluster::soak`].
#[derive(Debug)]
pub struct Soak {
    cluster: TestCluster,
    replicas: [Replica; 2],
    _cutting: AbortOnDrop<()>,
}

#[derive(Debug)]
struct Replica {
    running: RunningOperator,
    /// It reaches no Lease.
    is_away: Arc<AtomicBool>,
}

/// What there is at the end of a round.
#[derive(Debug, PartialEq)]
struct Sizes {
    /// How many objects of each kind the cluster has, without events and Leases.
    objects: BTreeMap<String, usize>,
    /// How many objects each replica's caches hold, and how many lines its metrics have.
    held: [(f64, usize); 2],
    /// How many bytes each replica's caches take.
    bytes: [f64; 2],
}

impl TestCluster {
    /// Runs two replicas of an operator for a long life: its leader is cut off from its Lease every minute, all watches
    /// end every ten seconds, and ReplicationControllers cannot be listed. The cluster's time is to be the test's
    /// ([`in_virtual_time`](TestCluster::in_virtual_time)): a day takes minutes.
    ///
    /// # Errors
    /// As [`run`](TestCluster::run), and [`Error::RealTime`].
    pub async fn soak(&self, operator: impl Fn() -> Operator) -> Result<Soak> {
        self.now()?;
        let cuts = watch::Sender::new(());
        let first = self.replica(&operator, 0, &cuts).await?;
        let second = self.replica(&operator, 1, &cuts).await?;
        let cutting = tokio::spawn(async move {
            loop {
                sleep(CUT).await;
                cuts.send_replace(());
            }
        });
        Ok(Soak {
            cluster: self.clone(),
            replicas: [first, second],
            _cutting: AbortOnDrop(cutting),
        })
    }

    async fn replica(
        &self,
        operator: impl Fn() -> Operator,
        number: usize,
        cuts: &watch::Sender<()>,
    ) -> Result<Replica> {
        let operator = operator().controller(Controller::of(Waiting).named("soak"));
        let mut election = LeaderElection::new(LEASE).identity(format!("replica-{number}"));
        if let Some((namespace, _)) = Rights::account_of_package(operator.name()) {
            election = election.namespace(namespace);
        }
        let (is_away, is_installed) = (Arc::new(AtomicBool::new(false)), number > 0);
        let kube = self.kube_of(&operator, is_installed).await?;
        let kube = line(kube, cuts.clone(), is_away.clone());
        let running = self
            .run_with(operator.leader_election(election), kube, is_installed)
            .await?;
        Ok(Replica { running, is_away })
    }
}

impl Soak {
    /// Lives for so long. In each round `change` changes something, by the number of the round, and waits until that has
    /// come about; then the leader changes. Rounds with numbers that are [`CYCLE`] apart are to change the same.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> kubewright_testing::Result<()> {
    /// # use kubewright::{Controller, Operator, prelude::*};
    /// # use kubewright_testing::{Cluster, Controllers, TestCluster};
    /// # use std::{sync::Arc, time::Duration};
    /// # struct Idle;
    /// # impl Reconciler for Idle {
    /// #     type Object = kubewright::k8s_openapi::api::core::v1::ConfigMap;
    /// #     async fn reconcile(&self, _: Arc<Self::Object>, _: Context) -> kubewright::Result<Action> {
    /// #         Ok(Action::await_change())
    /// #     }
    /// # }
    /// # fn operator() -> Operator { Operator::new("idle").controller(Controller::of(Idle)) }
    /// # let bare = Cluster::builder().controllers(Controllers::None);
    /// let cluster = TestCluster::in_virtual_time("2026-01-01T00:00:00Z".parse().expect("a time"), bare).await?;
    /// let soak = cluster.soak(operator).await?;
    /// soak.live(Duration::from_secs(600), async |round| {
    ///     // Change something, and wait until it has come about.
    ///     # let _ = round;
    ///     kubewright_testing::Result::Ok(())
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `change`; [`Error::Unsteady`] when nobody leads any more, or something has grown.
    pub async fn live<E: From<Error>>(
        self,
        time: Duration,
        mut change: impl AsyncFnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let began = Instant::now();
        let (mut round, mut sizes) = (0, Vec::new());
        while began.elapsed() < time {
            let turn = Instant::now();
            change(round).await?;
            sleep(TERM.saturating_sub(turn.elapsed())).await;
            if round % CYCLE == 0 {
                sizes.push(self.sizes());
            }
            self.next_leader(round).await?;
            round += 1;
        }
        // By the second one every metric is there.
        if let (Some(first), Some(last)) = (sizes.get(1), sizes.last())
            && let Some(grown) = first.grown(last)
        {
            return Err(unsteady(round, grown).into());
        }
        for replica in self.replicas {
            replica.running.stop().await?;
        }
        Ok(())
    }

    fn sizes(&self) -> Sizes {
        let each = |metric| self.replicas.each_ref().map(|replica| replica.sum(metric));
        let lines = |replica: &Replica| replica.running.metrics().encode().lines().count();
        let [one, other] = &self.replicas;
        let objects = each("kubewright_cache_objects");
        Sizes {
            objects: self.cluster.snapshot().sizes(),
            held: [(objects[0], lines(one)), (objects[1], lines(other))],
            bytes: each("kubewright_cache_bytes"),
        }
    }

    /// Cuts the leader off, until another replica leads.
    async fn next_leader(&self, round: usize) -> Result<()> {
        let leader = self.replicas.iter().find(|replica| replica.leads());
        let leader = leader.ok_or_else(|| unsteady(round, "nobody leads".to_owned()))?;
        leader.is_away.store(true, Ordering::SeqCst);
        let gone = Instant::now();
        while leader.leads() || !self.replicas.iter().any(Replica::leads) {
            if gone.elapsed() > FOLLOWED {
                return Err(unsteady(round, format!("nobody follows a leader within {FOLLOWED:?}")));
            }
            sleep(Duration::from_millis(500)).await;
        }
        leader.is_away.store(false, Ordering::SeqCst);
        Ok(())
    }
}

fn unsteady(round: usize, what: String) -> Error {
    Error::Unsteady { round, what }
}

impl Sizes {
    /// What there is more of, or less. A revision has one digit more at some time, and so have counters in a status.
    fn grown(&self, later: &Sizes) -> Option<String> {
        let bytes = self.bytes.iter().zip(later.bytes);
        let same_bytes = bytes
            .zip(&self.held)
            .all(|((before, after), held)| (after - before).abs() <= 4.0 * held.0);
        let same = self.objects == later.objects && self.held == later.held && same_bytes;
        (!same).then(|| format!("the same state takes more, or less, than it did: {self:?}, and later {later:?}"))
    }
}

impl Replica {
    fn leads(&self) -> bool {
        let leads = format!("leader_election_master_status{{name=\"{LEASE}\"}} 1");
        self.running.metrics().encode().contains(&leads)
    }

    /// The sum of a metric.
    fn sum(&self, metric: &str) -> f64 {
        let text = self.running.metrics().encode();
        let lines = text.lines().filter(|line| line.split('{').next() == Some(metric));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }
}

/// Waits for a kind that it may not list.
struct Waiting;

impl Reconciler for Waiting {
    type Object = ReplicationController;

    async fn reconcile(&self, _: Arc<ReplicationController>, _: Context) -> kubewright::Result<Action> {
        Ok(Action::await_change())
    }
}

type Answer = std::result::Result<Response<UnsyncBoxBody<Bytes, kube::Error>>, kube::Error>;

/// A client whose watches end with each cut, which may not list one kind, and no Leases while it is away.
fn line(kube: kube::Client, cuts: watch::Sender<()>, is_away: Arc<AtomicBool>) -> kube::Client {
    let namespace = kube.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (kube, mut cuts) = (kube.clone(), cuts.subscribe());
        let path = request.uri().path();
        let may_not = path.ends_with(REFUSED) || (path.contains("/leases") && is_away.load(Ordering::SeqCst));
        let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
        async move {
            let answer = match may_not {
                true => refused(&Status::failure("refused by the soak", "Forbidden").with_code(403))?,
                false => kube.send(request).await?,
            };
            if !watches || may_not {
                return Answer::Ok(answer.map(http_body_util::BodyExt::boxed_unsync));
            }
            let cut = Box::pin(async move { cuts.changed().await });
            Ok(answer.map(|body| {
                let frames = body.into_data_stream().map_ok(Frame::data).take_until(cut);
                StreamBody::new(frames.boxed()).boxed_unsync()
            }))
        }
    });
    kube::Client::new(service, namespace)
}
