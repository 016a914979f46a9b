//! Endpoints of Services: EndpointSlices, the older Endpoints objects, and slices that mirror Endpoints made by hand.
//!
//! Three controllers, as upstream (`endpointslice-controller`, `endpoint-controller`,
//! `endpointslicemirroring-controller`). The first two look at Services and the pods that they select, the third at
//! Endpoints. `slices`, `legacy` and `mirror` decide the wanted state.
//!
//! Invariant: only objects that carry our `managed-by` label are changed; Endpoints of a Service without a selector are
//! their author's. Not here: the Service `kubernetes` (the API server writes its endpoints).

mod legacy;
mod mirror;
mod pods;
mod slices;
mod topology;
mod trigger;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::kube::core::Selector;
use kubewright::{Action, Context, Controller, Error, Event, EventType, Reconciler, Request, Result, Watch};
use kubewright_objects::api::core::v1::{Endpoints, Node, Pod, Service};
use kubewright_objects::api::discovery::v1::EndpointSlice;

use self::pods::Family;
use self::slices::Plan;
use self::trigger::Triggers;
use super::pace::Pace;
use super::selecting::Selecting;
use kubewright_objects::{NodeView, PodView, Waiting, meta, node};

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const LEGACY_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The source of events about hints; other events have the controller's usual name.
const SOURCE: &str = "endpoint-slice-controller";

/// The slices of Services.
pub(crate) struct Slices {
    selecting: Selecting,
    pace: Pace,
    triggers: Triggers,
    /// Services with a pod on a node that does not exist.
    nodeless: Waiting,
    /// Services whose endpoints have hints by the sizes of zones.
    hinted: Waiting,
}

/// The controller of slices.
pub(crate) fn slices() -> Controller {
    let reconciler = Slices {
        selecting: Selecting::default(),
        pace: Pace::default(),
        triggers: Triggers::default(),
        nodeless: Waiting::default(),
        hinted: Waiting::default(),
    };
    let (selecting, nodeless) = (reconciler.selecting.clone(), reconciler.nodeless.clone());
    let hinted = reconciler.hinted.clone();
    let nodes = Watch::<Node>::new().when(|event| !matches!(event, Event::Modified { .. }));
    let zones = Watch::<Node>::new().when(|event| match event {
        Event::Modified { old, new } => sizes_zone(old) != sizes_zone(new),
        _ => true,
    });
    Controller::of(reconciler)
        .named("endpointslice-controller")
        .watches::<Pod>(move |pod| selecting.of(&pod.metadata))
        .source(nodes.map(move |_| nodeless.all()))
        .source(zones.map(move |_| hinted.all()))
        .watches::<EndpointSlice>(|slice| of_service(slice, slices::MANAGER))
        .concurrency(5)
}

/// What changes the size of a zone: whether a node is ready, and its zone.
fn sizes_zone(node: &Node) -> (bool, Option<&String>) {
    (node::is_ready(node), meta::labels(&node.metadata).get(node::ZONE))
}

impl Slices {
    /// The hints that follow from all endpoints together, with the events about them.
    async fn hint(
        &self,
        service: &Service,
        families: &BTreeSet<Family>,
        existing: &[&EndpointSlice],
        plan: &mut Plan,
        ctx: &Context,
    ) -> Result<()> {
        let disabled = |why: &str| ctx.event_as(SOURCE, service, EventType::Warning, "TopologyAwareHintsDisabled", why);
        if !topology::is_wanted(service) {
            if let Some(family) = families.first().filter(|_| self.hinted.remove(ctx.request())) {
                let family = family.text();
                disabled(&format!(
                    "Topology Aware Hints has been disabled, addressType: {family}"
                ));
            }
            return Ok(());
        }
        let nodes = ctx.client().list::<Node>(None).await?;
        let shares = topology::shares(nodes.iter().map(|node| &**node));
        for family in families {
            match topology::hint(plan, existing, *family, shares.as_ref()) {
                Err(why) => {
                    self.hinted.remove(ctx.request());
                    disabled(&why);
                }
                Ok(()) if self.hinted.insert(ctx.request()) => {
                    let family = family.text();
                    let message = format!("Topology Aware Hints has been enabled, addressType: {family}");
                    ctx.event_as(SOURCE, service, EventType::Normal, "TopologyAwareHintsEnabled", message);
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

/// The Service of a slice with this manager.
fn of_service(slice: &EndpointSlice, manager: &str) -> Vec<Request> {
    let labels = slice.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    match label(SERVICE_NAME) {
        Some(service) if label(MANAGED_BY) == Some(manager) => {
            vec![Request::new(slice.metadata.namespace.as_deref(), service)]
        }
        _ => vec![],
    }
}

/// The selector of a Service; none when other controllers or users manage its endpoints.
fn selector(service: &Service) -> Option<Selector> {
    let spec = service.spec.as_ref()?;
    let wanted = spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
    let external = spec.type_.as_deref() == Some("ExternalName");
    (!external && !meta::is_deleting(&service.metadata)).then(|| wanted.clone().into_iter().collect())
}

impl Reconciler for Slices {
    type Object = Service;

    async fn reconcile(&self, service: Arc<Service>, ctx: Context) -> Result<Action> {
        let Some(selector) = selector(&service) else {
            self.selecting.forget(ctx.request());
            return Ok(Action::await_change());
        };
        if let Some(rest) = self.pace.rest(ctx.request(), ctx.now()) {
            return Ok(Action::requeue_after(rest));
        }
        self.selecting.remember(ctx.request(), &selector);
        // Before the nodes are read: one that comes afterwards finds the Service.
        self.nodeless.insert(ctx.request());
        let (client, namespace) = (ctx.client(), ctx.request().namespace());
        let pods = client.views_matching::<Pod, PodView>(namespace, &selector).await?;
        let pods: Vec<&Pod> = pods.iter().map(|pod| &pod.0).collect();
        self.pace.looked(ctx.request(), ctx.now(), pods.len());
        let zones = zones(&ctx, &pods).await?;
        let (mut groups, left_out) = slices::groups(&service, &pods, |node| zones.get(node).cloned());
        if left_out == 0 {
            self.nodeless.remove(ctx.request());
        }
        let existing = of_manager(&ctx, slices::MANAGER).await?;
        let existing: Vec<&EndpointSlice> = existing.iter().map(|slice| &**slice).collect();
        if topology::is_wanted(&service) {
            topology::keep(&mut groups, &existing);
        }
        let families = groups.iter().map(|group| group.family).collect();
        let mut plan = slices::plan(&service, groups, &existing);
        self.hint(&service, &families, &existing, &mut plan, &ctx).await?;
        let trigger = self.triggers.of(ctx.request(), &service, &pods);
        for slice in plan.create.iter_mut().chain(&mut plan.update) {
            annotate(&mut slice.metadata, trigger.as_deref());
        }
        carry_out(&ctx, plan).await
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.selecting.forget(&request);
        self.pace.forget(&request);
        self.nodeless.remove(&request);
        self.hinted.remove(&request);
        self.triggers.forget(&request);
        Ok(Action::await_change())
    }
}

/// The zones of the nodes of these pods; a node that does not exist is missing.
async fn zones(ctx: &Context, pods: &[&Pod]) -> Result<BTreeMap<String, Option<String>>> {
    let wanted: BTreeSet<&str> = pods.iter().filter_map(|pod| pods::node(pod)).collect();
    let nodes = ctx.client().views::<Node, NodeView>(None).await?;
    let nodes = nodes.iter().filter(|node| wanted.contains(node.name()));
    let zone = |node: &NodeView| node.label(node::ZONE).map(str::to_owned);
    Ok(nodes.map(|node| (node.name().to_owned(), zone(node))).collect())
}

/// The slices of the Service under reconciliation that one of the controllers made.
async fn of_manager(ctx: &Context, manager: &str) -> Result<Vec<Arc<EndpointSlice>>> {
    let labels = [(SERVICE_NAME, ctx.request().name()), (MANAGED_BY, manager)];
    let labels: Selector = labels
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let mut found = ctx
        .client()
        .list_matching::<EndpointSlice>(ctx.request().namespace(), &labels)
        .await?;
    found.retain(|slice| !meta::is_deleting(&slice.metadata));
    Ok(found)
}

fn annotate(metadata: &mut ObjectMeta, trigger: Option<&str>) {
    let annotations = metadata.annotations.get_or_insert_default();
    match trigger {
        Some(time) => annotations.insert(LAST_CHANGE.to_owned(), time.to_owned()),
        None => annotations.remove(LAST_CHANGE),
    };
    if annotations.is_empty() {
        metadata.annotations = None;
    }
}

/// First creates, then updates, then deletes, so that no endpoint is missing in between.
async fn carry_out(ctx: &Context, plan: Plan) -> Result<Action> {
    for slice in &plan.create {
        match ctx.client().create(slice).await {
            Err(error) if !super::is_namespace_going(&error) => return Err(error),
            _ => {}
        }
    }
    for slice in &plan.update {
        settled(ctx.client().update(slice).await)?;
    }
    for slice in &plan.delete {
        ctx.client().delete(slice).await?;
    }
    Ok(Action::await_change())
}

/// An object that is gone meanwhile needs no write.
fn settled<T>(written: Result<T, Error>) -> Result<()> {
    match written {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// The Endpoints objects of Services.
pub(crate) struct Legacy {
    selecting: Selecting,
    pace: Pace,
    triggers: Triggers,
}

/// The controller of Endpoints objects.
pub(crate) fn legacy() -> Controller {
    let reconciler = Legacy {
        selecting: Selecting::default(),
        pace: Pace::default(),
        triggers: Triggers::default(),
    };
    let selecting = reconciler.selecting.clone();
    Controller::of(reconciler)
        .named("endpoint-controller")
        .watches::<Pod>(move |pod| selecting.of(&pod.metadata))
        // Endpoints that a client has deleted are made again; a client's change of them stays until something else
        // changes.
        .watches::<Endpoints>(|endpoints| vec![Request::of(endpoints)])
        .with_predicate(|event: &Event<Endpoints>| matches!(event, Event::Deleted { .. }))
        .concurrency(5)
}

impl Reconciler for Legacy {
    type Object = Service;

    async fn reconcile(&self, service: Arc<Service>, ctx: Context) -> Result<Action> {
        let Some(selector) = selector(&service) else {
            self.selecting.forget(ctx.request());
            return Ok(Action::await_change());
        };
        if let Some(rest) = self.pace.rest(ctx.request(), ctx.now()) {
            return Ok(Action::requeue_after(rest));
        }
        self.selecting.remember(ctx.request(), &selector);
        let (client, namespace) = (ctx.client(), ctx.request().namespace());
        let pods = client.views_matching::<Pod, PodView>(namespace, &selector).await?;
        let pods: Vec<&Pod> = pods.iter().map(|pod| &pod.0).collect();
        self.pace.looked(ctx.request(), ctx.now(), pods.len());
        let (subsets, truncated) = legacy::subsets(&service, &pods);
        let (subsets, labels) = (Some(subsets).filter(|list| !list.is_empty()), legacy::labels(&service));
        let trigger = self.triggers.of(ctx.request(), &service, &pods);
        let present = client.get::<Endpoints>(namespace, ctx.request().name()).await?;
        let mut next = match &present {
            Some(present) => (**present).clone(),
            None => Endpoints {
                metadata: ObjectMeta {
                    name: service.metadata.name.clone(),
                    namespace: service.metadata.namespace.clone(),
                    ..ObjectMeta::default()
                },
                subsets: None,
            },
        };
        let over = meta::annotation(&next.metadata, OVER_CAPACITY).is_some();
        let same = next.subsets == subsets && next.metadata.labels.as_ref() == Some(&labels) && over == truncated;
        if present.is_some() && same {
            return Ok(Action::await_change());
        }
        (next.subsets, next.metadata.labels) = (subsets, Some(labels));
        annotate(&mut next.metadata, trigger.as_deref());
        let annotations = next.metadata.annotations.get_or_insert_default();
        match truncated {
            true => annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned()),
            false => annotations.remove(OVER_CAPACITY),
        };
        match present {
            Some(_) => settled(client.update(&next).await)?,
            None => match client.create(&next).await {
                Err(error) if !super::is_namespace_going(&error) => return Err(error),
                _ => {}
            },
        }
        Ok(Action::await_change())
    }

    async fn deleted(&self, request: Request, ctx: Context) -> Result<Action> {
        self.selecting.forget(&request);
        self.pace.forget(&request);
        self.triggers.forget(&request);
        let (namespace, name) = (request.namespace(), request.name());
        if let Some(present) = ctx.client().get::<Endpoints>(namespace, name).await? {
            ctx.client().delete(&present).await?;
        }
        Ok(Action::await_change())
    }
}

/// Slices of Endpoints that a client made.
pub(crate) struct Mirrors;

/// The controller that mirrors Endpoints.
pub(crate) fn mirrors() -> Controller {
    Controller::of(Mirrors)
        .named("endpointslicemirroring-controller")
        .watches::<Service>(|service| vec![Request::of(service)])
        .watches::<EndpointSlice>(|slice| of_service(slice, mirror::MANAGER))
        .concurrency(5)
}

impl Reconciler for Mirrors {
    type Object = Endpoints;

    async fn reconcile(&self, endpoints: Arc<Endpoints>, ctx: Context) -> Result<Action> {
        let (client, namespace) = (ctx.client(), ctx.request().namespace());
        let service = client.get::<Service>(namespace, ctx.request().name()).await?;
        let existing = of_manager(&ctx, mirror::MANAGER).await?;
        let existing: Vec<&EndpointSlice> = existing.iter().map(|slice| &**slice).collect();
        let gone = meta::is_deleting(&endpoints.metadata);
        let plan = if !gone && mirror::is_mirrored(&endpoints, service.as_deref()) {
            mirror::plan(&endpoints, &existing)
        } else {
            removal(&existing)
        };
        carry_out(&ctx, plan).await
    }

    async fn deleted(&self, _: Request, ctx: Context) -> Result<Action> {
        let existing = of_manager(&ctx, mirror::MANAGER).await?;
        let existing: Vec<&EndpointSlice> = existing.iter().map(|slice| &**slice).collect();
        carry_out(&ctx, removal(&existing)).await
    }
}

fn removal(existing: &[&EndpointSlice]) -> Plan {
    Plan {
        delete: existing.iter().copied().cloned().collect(),
        ..Plan::default()
    }
}
