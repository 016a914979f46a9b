//! `kubewright cluster`: the embedded cluster alone, for anyone, in any language.
//!
//! One line on standard output when the server answers; then silence until a signal.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use kubewright_cluster::{Cluster, Controllers, Listening, ServiceRange};
use serde_json::json;

use crate::kubeconfig::KubeconfigFile;
use crate::output::{DIM, Failure, Format, STRONG, paint};
use crate::signals::stop_signal;

/// Run a Kubernetes cluster in this process, until Ctrl-C
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Address and port of the HTTPS listener; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Where to write the kubeconfig, which appears when the server answers [default: a private folder, removed at the end]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Keep all objects in this folder (not available yet: everything is in memory)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Built-in controllers to run: `all`, `none`, or names with commas
    #[arg(long, value_name = "all|none|NAME,…", default_value = "all")]
    controllers: Controllers,

    /// Addresses that Services get
    #[arg(long, value_name = "CIDR", default_value_t)]
    service_cluster_ip_range: ServiceRange,
}

impl Arguments {
    pub(crate) async fn run(self, output: Format, started: Instant) -> Result<(), Failure> {
        if let Some(folder) = &self.data_dir {
            return Err(Failure::new(format!("cannot keep the cluster in {}", folder.display()))
                .because("durable storage is not built yet: this version keeps everything in memory".to_string())
                .hint("leave --data-dir out; nothing has been started or written"));
        }
        let stop = stop_signal()?;
        let running = Running::start(self.listen, self.kubeconfig, |builder| {
            builder
                .controllers(self.controllers)
                .service_range(self.service_cluster_ip_range)
        })
        .await?;
        let (address, kubeconfig) = (running.address(), running.kubeconfig.path().display().to_string());
        let took = started.elapsed();
        output.say(
            &format!(
                "{} ready in {} ms  {}  {}",
                paint(STRONG, "kubewright cluster"),
                took.as_millis(),
                paint(STRONG, &address),
                paint(STRONG, format!("KUBECONFIG={kubeconfig}")),
            ),
            &json!({
                "event": "ready",
                "address": address,
                "kubeconfig": kubeconfig,
                "milliseconds": took.as_secs_f64() * 1000.0,
            }),
        );
        stop.await;
        running.stop().await;
        output.say(&paint(DIM, "stopped"), &json!({"event": "stopped"}));
        Ok(())
    }
}

/// A cluster that listens and has its kubeconfig on disk.
pub(crate) struct Running {
    pub(crate) cluster: Cluster,
    pub(crate) listening: Listening,
    pub(crate) kubeconfig: KubeconfigFile,
}

impl Running {
    /// Starts a cluster, lets it listen, and writes the kubeconfig once it answers.
    ///
    /// # Errors
    /// When the kubeconfig may not be written, the cluster does not start or the address cannot be had.
    pub(crate) async fn start(
        listen: SocketAddr,
        kubeconfig: Option<PathBuf>,
        configure: impl FnOnce(kubewright_cluster::ClusterBuilder) -> kubewright_cluster::ClusterBuilder,
    ) -> Result<Running, Failure> {
        let kubeconfig = KubeconfigFile::plan(kubeconfig.as_deref())?;
        let cluster = configure(Cluster::builder())
            .start()
            .await
            .map_err(|why| Failure::new("cannot start the cluster").because(why))?;
        let listening = cluster.listen(listen).await.map_err(|why| {
            Failure::new(format!("cannot listen on {listen}"))
                .because(why)
                .hint("another port: --listen 127.0.0.1:0 takes a free one")
        })?;
        kubeconfig.write(&listening.kubeconfig)?;
        Ok(Running {
            cluster,
            listening,
            kubeconfig,
        })
    }

    /// The address as a URL.
    pub(crate) fn address(&self) -> String {
        format!("https://{}", self.listening.address)
    }

    /// Stops everything; gives up after a second, because a person is waiting.
    pub(crate) async fn stop(self) {
        // Past the deadline the process ends and takes the rest with it.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.cluster.stop()).await;
    }
}
