//! The nodes of a cluster and what runs on them: simulated kubelets, pods that are processes of this machine, and the
//! part of kube-proxy that reaches those.
//!
//! They are ordinary operators on the `kubewright` crate, beside those of `kubewright-controllers`, and know nothing of
//! the API server that they speak to.
//!
//! # Where to change what
//!
//! | to change | go to | its tests |
//! |---|---|---|
//! | which nodes there are and what they say of themselves | `node/fleet.rs`, kept by `node/keeper.rs` | the tables there |
//! | how a simulated pod lives | `node/container.rs`, `node/life.rs`, `node/resize.rs`; what annotations say: `node/behaviour.rs` | the tables there; `crates/cluster/tests/it/nodes.rs` |
//! | stages in kwok's vocabulary | `stages` | the tables there; `crates/cluster/tests/it/stages.rs` |
//! | how pods run as processes | `processes`; when they start and end: `node/live.rs` | the tables there; `crates/cli/tests/it/processes` |
//! | what pods are measured to use | `processes/gauges.rs`, `meter.rs` | `crates/cli/tests/it/processes/top.rs` |
//! | how programs reach Services | `processes/proxy.rs`, `processes/dns`; told by `service_proxy.rs` | the tables there |
//!
//! Invariants: a node that another program simulates is left alone; nothing of a process is left when the cluster has
//! ended. Not here: how clients are connected with containers (`kubewright-cluster`), what is evicted and rescheduled
//! when a node falls silent (`kubewright-controllers`).

#[cfg(not(unix))]
compile_error!("kubewright's cluster and command run on Linux and macOS; on Windows, use WSL 2");

mod meter;
mod node;
mod processes;
mod service_proxy;
mod stages;

use std::sync::Arc;
use std::time::Duration;

use kubewright::{Entropy, Operator};
use kubewright_model::Minor;

use stages::Player;

pub use meter::meter;
pub use node::{Behaviours, Nodes, command_result};
pub use processes::{
    Attached, ExecProcess, Images, Input, Line, LogReader, ProcessRuntime, Processes, ShimControl, Terminal, Usage,
    called,
};
pub use stages::Stages;

/// The names of the controllers that [`add`] knows.
pub const NAMES: &[&str] = &["node", "service-proxy"];

/// How the nodes are to be.
#[derive(Clone)]
pub struct Settings {
    /// The version of Kubernetes of the cluster, which simulated nodes say, too.
    pub minor: Minor,
    /// The simulated nodes that the cluster has from its start.
    pub nodes: Nodes,
    /// Whether simulated nodes renew their Leases every ten seconds, as kubelets do.
    pub heartbeats: bool,
    /// How pods with certain labels behave.
    pub behaviours: Behaviours,
    /// The stages of objects, in kwok's vocabulary.
    pub stages: Stages,
    /// Whether the definition of stages is installed, so that they can be objects. Where it is there, they act in any case.
    pub stage_objects: bool,
    /// Makes random numbers: which of several stages plays, and when.
    pub entropy: Entropy,
    /// Runs pods that are processes; `None`: all pods are simulated.
    pub processes: Option<Processes>,
    /// How long a pod on a simulated node takes from being bound to being Ready, if nothing else says so.
    pub pod_start: Duration,
    /// How long a pod on a simulated node takes from being deleted to being gone.
    pub pod_stop: Duration,
}

/// Adds one of [`NAMES`] to an operator. A name that is not among them adds nothing.
pub fn add(operator: Operator, name: &str, settings: &Settings) -> Operator {
    match (name, &settings.processes) {
        ("node", processes) => {
            let pace = node::Pace {
                start: settings.pod_start,
                stop: settings.pod_stop,
            };
            let nodes = Arc::new(settings.nodes.clone());
            let stages = Player::new(settings.stages.clone(), settings.entropy.clone(), node::ip);
            let stages = Arc::new(stages);
            let (controllers, player) = (operator.controllers_handle(), stages.clone());
            let defines = settings.stage_objects;
            let operator = match processes {
                Some(_) => operator.runnable("runtime-classes", node::register_classes),
                None => operator,
            };
            operator
                .controller(node::kubelet(
                    pace,
                    settings.behaviours.clone(),
                    stages.clone(),
                    processes.clone(),
                ))
                .controller(node::keeper(nodes.clone(), settings.minor, settings.heartbeats, stages))
                .controller(node::evictor(meter(processes.clone())))
                .runnable("node", move |client, stop| node::register(nodes.clone(), client, stop))
                .runnable("metrics", node::register_metrics)
                .runnable("stages", move |client, stop| {
                    stages::follow(player.clone(), controllers.clone(), client, stop, defines)
                })
        }
        ("service-proxy", Some(processes)) => operator.controller(service_proxy::controller(processes.clone())),
        _ => operator,
    }
}
