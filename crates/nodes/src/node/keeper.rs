//! Keeps the simulated nodes: registers those that the cluster has from its start, posts their status, renews their
//! Leases.
//!
//! Invariants: a Node that is not simulated is left alone, also when it has the name of one that is; a node that a user
//! deletes stays away, as a kubelet registers its node once, when it starts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright::{
    Action, Client, Context, Controller, EventType, Reconciler, Request, Result, Scope, Stop, api_resource,
};
use kubewright_objects::api::coordination::v1::Lease;
use kubewright_objects::api::core::v1::Node;

use super::fleet::{self, NOT_READY, Nodes, State};
use super::lease;
use crate::stages::{Place, Player, Progress};
use kubewright_model::Minor;
use kubewright_objects::{Waiting, install, meta, node};

/// Keeps the nodes.
pub(crate) struct Keeper {
    nodes: Arc<Nodes>,
    minor: Minor,
    /// Whether Leases are renewed.
    heartbeats: bool,
    stages: Arc<Player>,
    /// Those that it keeps.
    known: Waiting,
    /// The annotations of nodes of which was told that they say nothing.
    told: Mutex<BTreeMap<String, Vec<String>>>,
}

/// The controller of the simulated nodes.
pub(crate) fn controller(nodes: Arc<Nodes>, minor: Minor, heartbeats: bool, stages: Arc<Player>) -> Controller {
    let (known, told) = (Waiting::default(), Mutex::default());
    let changed = stages.waker("v1", "Node");
    Controller::of(Keeper {
        nodes,
        minor,
        heartbeats,
        stages,
        known,
        told,
    })
    .named("node-keeper")
    .source(changed.source())
    .reads::<Lease>(Scope::namespace(lease::NAMESPACE))
}

/// Registers the nodes that the cluster has from its start.
pub(crate) async fn register(nodes: Arc<Nodes>, client: Client, stop: Stop) -> Result<()> {
    for (number, name) in nodes.names().iter().enumerate() {
        match install(&client, &nodes.node(number), &stop).await {
            Ok(true) => {}
            Ok(false) => {
                let there = client.live::<Node>(None, name).await?;
                if there.is_some_and(|there| !node::is_simulated(&there)) {
                    tracing::warn!(node = %name, "a Node of this name exists and is not simulated; its pods are left alone");
                }
            }
            // A label that cannot be: the same every time.
            Err(error) if error.status().is_some_and(|status| status.code == 422) => {
                tracing::error!(node = %name, error = &error as &dyn std::error::Error, "the node is not registered");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Keeper {
    /// Tells of annotations that say nothing, when they are new.
    fn tell_misunderstood(&self, node: &Node, ctx: &Context) {
        let found = fleet::misunderstood(node);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let name = meta::name(&node.metadata);
        let before = match found.is_empty() {
            true => told.remove(name),
            false => told.insert(name.to_owned(), found.clone()),
        };
        for warning in found
            .iter()
            .filter(|one| !before.iter().flatten().any(|known| known == *one))
        {
            ctx.event(node, EventType::Warning, "Misunderstood", warning);
        }
    }

    /// Posts the status, and removes the taint of new nodes: without a node lifecycle controller no other code does.
    async fn post(&self, node: &Arc<Node>, ctx: &Context) -> Result<()> {
        let mut status = self.nodes.status(node, self.minor, ctx.now());
        let phase = node.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase != Some("Running") && self.stages.is_for("v1", "Node") {
            // As kwok's nodes say it; its stages ask for it.
            let said = status.get_or_insert_with(|| node.status.clone().unwrap_or_default());
            said.phase = Some("Running".to_owned());
        }
        let Some(status) = status else {
            return Ok(());
        };
        let mut next = (**node).clone();
        next.status = Some(status);
        let mut posted = (*ctx.client().update_status(&next).await?).clone();
        if fleet::state(node) != State::Ready {
            return Ok(());
        }
        let Some(taints) = posted.spec.as_mut().and_then(|spec| spec.taints.as_mut()) else {
            return Ok(());
        };
        let before = taints.len();
        taints.retain(|taint| taint.key != NOT_READY);
        if taints.len() < before {
            ctx.client().update(&posted).await?;
        }
        Ok(())
    }

    /// What the stages do with a node: nothing when none fits it; how long one waits, or no time at all.
    async fn staged(&self, node: &Node, ctx: &Context) -> Result<Option<Duration>> {
        if !self.stages.is_for("v1", "Node") {
            return Ok(None);
        }
        let (name, host) = (meta::name(&node.metadata), fleet::address(node));
        let place = Place {
            node: Some(name),
            node_ip: &|other| if other == name { host.clone() } else { fleet::ip(other) },
            pod_ip: &String::new,
        };
        let seen = serde_json::to_value(node)?;
        Ok(
            match self.stages.advance(ctx, &api_resource::<Node>(), &seen, &place).await? {
                Progress::Wait(wait) => Some(wait),
                Progress::Done => Some(Duration::ZERO),
                Progress::Free { .. } => None,
            },
        )
    }

    async fn renewed(&self, node: &Node, ctx: &Context) -> Result<Action> {
        match self.renew(node, ctx).await {
            Err(error) if error.is_not_found() || error.is_already_exists() || error.is_conflict() => {
                Ok(Action::requeue_after(lease::interval(self.known.count())))
            }
            done => done,
        }
    }

    async fn renew(&self, node: &Node, ctx: &Context) -> Result<Action> {
        let name = meta::name(&node.metadata);
        let present = ctx.client().get::<Lease>(Some(lease::NAMESPACE), name).await?;
        let due = present.as_deref().map_or(Duration::ZERO, |present| {
            lease::due(present, self.known.count(), ctx.now())
        });
        if present.is_some() && !self.heartbeats {
            return Ok(Action::await_change());
        }
        if !due.is_zero() {
            return Ok(Action::requeue_after(due));
        }
        let next = lease::renewed(present.as_deref(), node, ctx.now());
        let written = match present {
            Some(_) => ctx.client().update(&next).await?,
            None => ctx.client().create(&next).await?,
        };
        Ok(Action::requeue_after(lease::due(
            &written,
            self.known.count(),
            ctx.now(),
        )))
    }
}

impl Reconciler for Keeper {
    type Object = Node;

    async fn reconcile(&self, node: Arc<Node>, ctx: Context) -> Result<Action> {
        if !node::is_simulated(&node) || meta::is_deleting(&node.metadata) || fleet::state(&node) == State::Silent {
            self.known.remove(ctx.request());
            return Ok(Action::await_change());
        }
        self.known.insert(ctx.request());
        self.tell_misunderstood(&node, &ctx);
        let staged = match self.staged(&node, &ctx).await {
            Err(error) if error.is_conflict() || error.is_not_found() => Some(Duration::ZERO),
            staged => staged?,
        };
        if let Some(wait) = staged {
            // The Lease is renewed all the same: a stage says what a node says, not whether it is there.
            let renewed = self.renewed(&node, &ctx).await?;
            let waits = renewed
                .delay()
                .into_iter()
                .chain(Some(wait).filter(|wait| !wait.is_zero()));
            return Ok(waits.min().map_or_else(Action::await_change, Action::requeue_after));
        }
        // The node may have been changed by others meanwhile: that leads back here.
        match self.post(&node, &ctx).await {
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        self.renewed(&node, &ctx).await
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.known.remove(&request);
        self.stages.forget("Node", &request);
        Ok(Action::await_change())
    }
}
