//! A cluster whose time is the test's.

use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::{Cache, Client, Clock as _, Entropy};
use kubewright_cluster::ClusterBuilder;

use crate::cluster::TestCluster;
use crate::error::{Error, Result};
use crate::time::{QUIET, TokioClock};

impl TestCluster {
    /// A cluster whose time is the test's, beginning with `start`: hours pass in milliseconds, because the time goes on
    /// at once to the next due timer whenever nothing is left to do. That goes for everything that runs on tokio's
    /// timers, operators under test among it. The deadlines of waits are in this time, too.
    ///
    /// The test runs on one thread, as `#[tokio::test]` does by default; work on other threads and over sockets looks
    /// idle, and time would pass it by. One such cluster for each test.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> kubewright_testing::Result<()> {
    /// use kubewright_testing::{Cluster, TestCluster};
    /// use std::time::Duration;
    /// let cluster = TestCluster::in_virtual_time("2026-01-01T00:00:00Z".parse().expect("a time"), Cluster::builder()).await?;
    /// cluster.advance(Duration::from_secs(3600)).await?;
    /// cluster.settle().await?;
    /// assert!(cluster.now()?.to_string().starts_with("2026-01-01T01:00:"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Cluster`].
    ///
    /// # Panics
    /// On a runtime with several threads, or when tokio's time is paused already.
    pub async fn in_virtual_time(start: Timestamp, builder: ClusterBuilder) -> Result<TestCluster> {
        TestCluster::with_seed(0, start, builder).await
    }

    /// [`in_virtual_time`](TestCluster::in_virtual_time) with another seed than 0 for all that is left to chance: uids,
    /// generated names, the spread of retries. With one seed a test does the same in every run, down to each request
    /// and its order, as long as the test and its operators take time and chance from here.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub async fn with_seed(seed: u64, start: Timestamp, builder: ClusterBuilder) -> Result<TestCluster> {
        let (clock, entropy) = (Arc::new(TokioClock::paused(start).await), Entropy::seeded(seed));
        let mut cluster = TestCluster::start_with(builder.virtual_time(clock.clone(), entropy.clone())).await?;
        let kube = cluster.kube();
        let cache = Cache::in_env(kube.clone(), clock.clone(), entropy.clone());
        cluster.client = Client::new(kube, cache);
        cluster.env = Some((clock, entropy));
        Ok(cluster)
    }

    /// The time of a cluster whose time is the test's.
    ///
    /// # Errors
    /// [`Error::RealTime`] with any other cluster.
    pub fn now(&self) -> Result<Timestamp> {
        Ok(self.env.as_ref().ok_or(Error::RealTime)?.0.now())
    }

    /// Lets so much time pass; all that is due meanwhile happens in its order.
    ///
    /// # Errors
    /// [`Error::RealTime`].
    pub async fn advance(&self, time: Duration) -> Result<()> {
        self.now()?;
        tokio::time::sleep(time).await;
        Ok(())
    }

    /// Waits until only timers of a later time are left: until half a second has passed in which nothing changed.
    ///
    /// # Errors
    /// [`Error::RealTime`], and [`Error::Unsettled`] when there is no such half second within a minute.
    pub async fn settle(&self) -> Result<()> {
        const LONGEST: Duration = Duration::from_secs(60);
        let begin = tokio::time::Instant::now();
        let mut before = self.cluster().api().resource_version();
        while begin.elapsed() < LONGEST {
            self.advance(QUIET).await?;
            let now = self.cluster().api().resource_version();
            if now == before {
                return Ok(());
            }
            before = now;
        }
        Err(Error::Unsettled(LONGEST))
    }
}
