//! HorizontalPodAutoscalers (`horizontal.go`): the target follows the usage of its pods, within bounds and rates, and
//! the conditions report the findings and the changes.
//!
//! The usage of pods is measured or annotated (`kubewright_objects::usage`), the wanted size is computed in `measure`; how fast the
//! size follows is decided in `pace`. Metrics of pods, objects and other systems are annotations (`crate::metrics`), and
//! what they ask for is computed in `custom`; of those that are not set the conditions say that there is no API for
//! them (`missing`).

mod custom;
mod measure;
mod missing;
mod pace;
mod subject;
mod zero;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubewright::k8s_openapi::api::autoscaling::v1::Scale;
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::kube::api::{Api, ListParams, Patch, PatchParams};
use kubewright::kube::core::DynamicObject;
use kubewright::{Action, Context, Controller, Event, EventType, Reconciler, Request, Result};
use kubewright_model::Minor;
use kubewright_objects::api::autoscaling::v2::{
    ContainerResourceMetricStatus, HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerStatus, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus, ResourceMetricStatus,
};
use kubewright_objects::api::core::v1::{Namespace, Pod};
use kubewright_schema::quantity::Format;
use serde_json::json;

use self::custom::ScaleContext;
use self::measure::{Measured, Metric, Target, Wanted};
use self::missing::Missing;
use self::pace::Past;
use self::subject::{described, is_unknown, kind_of};
use super::plain;
use kubewright_objects::meta;
use kubewright_objects::quantity::{milli, of_milli};
use kubewright_objects::usage::Meter;

/// How often targets are looked at (`--horizontal-pod-autoscaler-sync-period`).
const PERIOD: Duration = Duration::from_secs(15);
/// `--horizontal-pod-autoscaler-tolerance`.
const TOLERANCE: f64 = 0.1;

/// Makes targets as large as their pods need.
pub(crate) struct Autoscaler {
    meter: Arc<dyn Meter>,
    /// The pods that each of them was last about, by their uids.
    targets: Mutex<BTreeMap<Request, BTreeSet<String>>>,
    past: Mutex<BTreeMap<Request, Past>>,
    minor: Minor,
}

/// The controller of autoscalers.
pub(crate) fn controller(meter: Arc<dyn Meter>, minor: Minor) -> Controller {
    let autoscaler = Autoscaler {
        meter,
        minor,
        targets: Mutex::default(),
        past: Mutex::default(),
    };
    Controller::of(autoscaler)
        .named("horizontal-pod-autoscaler")
        // Its own status must not lead back here: the step between two looks would come at once.
        .with_predicate(|event: &Event<HorizontalPodAutoscaler>| match event {
            Event::Modified { old, new } => {
                (old.metadata.generation, &old.metadata.annotations)
                    != (new.metadata.generation, &new.metadata.annotations)
            }
            _ => true,
        })
}

/// The reason of the condition that tells of a new size.
const RESCALED: &str = "SucceededRescale";

/// A condition: type, status, reason and message.
type Condition = (&'static str, bool, &'static str, String);

const BELOW: &str = "Current number of replicas below Spec.MinReplicas";

/// The size that the bounds ask for, and why; none when the present one is allowed, or zero, which turns scaling off.
fn bounded(present: i32, least: i32, most: i32) -> Option<(i32, &'static str)> {
    match present {
        0 => None,
        _ if present > most => Some((most, "Current number of replicas above Spec.MaxReplicas")),
        _ if present < least => Some((least, BELOW)),
        _ => None,
    }
}

/// The proposal of one metric: a size, its name in sentences, and its entry in the status.
type Proposal = std::result::Result<(i32, String, MetricStatus), Missing>;

fn quantity(amount: i128) -> Quantity {
    of_milli(amount, Format::DecimalSi)
}

/// The use of a resource as metrics-server writes it (`buildQuantity`).
fn usage(resource: &str, amount: i128) -> Quantity {
    let format = if resource == "memory" {
        Format::BinarySi
    } else {
        Format::DecimalSi
    };
    of_milli(amount, format)
}

fn target(target: &MetricTarget) -> Option<Target> {
    let average = target.average_value.as_ref().and_then(milli);
    average
        .map(Target::Average)
        .or(target.average_utilization.map(Target::Utilization))
}

fn tolerance(scaler: &HorizontalPodAutoscaler) -> (f64, f64) {
    let behavior = scaler.spec.behavior.as_ref();
    let of = |said: Option<&Quantity>| said.and_then(milli).map_or(TOLERANCE, |said| said as f64 / 1000.0);
    (
        of(behavior.and_then(|behavior| behavior.scale_up.as_ref()?.tolerance.as_ref())),
        of(behavior.and_then(|behavior| behavior.scale_down.as_ref()?.tolerance.as_ref())),
    )
}

/// The proposal of one metric.
fn propose(
    scaler: &HorizontalPodAutoscaler,
    spec: &MetricSpec,
    pods: &[&Pod],
    current: i32,
    meter: &dyn Meter,
    ctx: &Context,
) -> Proposal {
    let (resource, container, wish) = match (&spec.resource, &spec.container_resource) {
        (Some(source), _) => (&source.name, None, &source.target),
        (None, Some(source)) => (&source.name, Some(source.container.as_str()), &source.target),
        _ => return Err(missing::of(spec, ctx.request().namespace().unwrap_or_default(), None)),
    };
    let missing = |why: String| missing::of_resource(resource, container, why);
    let wanted = Wanted {
        metric: Metric::Resource(resource),
        container,
        target: target(wish).ok_or_else(|| missing("no target is set".to_owned()))?,
        tolerance: tolerance(scaler),
    };
    let load = measure::load(&scaler.metadata, resource);
    let found = measure::replicas(
        pods,
        current,
        &wanted,
        |pod| meter.used(pod, resource, container),
        load,
        ctx.now(),
    );
    let what = if wish.average_value.is_some() {
        "usage"
    } else {
        "utilization"
    };
    let found = found.map_err(|why| missing(format!("failed to get {resource} {what}: {why}")))?;
    let in_container = if container.is_some() {
        "container resource"
    } else {
        "resource"
    };
    let name = match wanted.target {
        Target::Average(_) => format!("{resource} {in_container}"),
        Target::Utilization(_) => format!("{resource} {in_container} utilization (percentage of request)"),
    };
    Ok((found.replicas, name, status_of(spec, resource, container, &found)))
}

fn status_of(spec: &MetricSpec, resource: &str, container: Option<&str>, found: &Measured) -> MetricStatus {
    let current = MetricValueStatus {
        average_utilization: found.utilization,
        average_value: Some(usage(resource, found.average)),
        value: None,
    };
    let mut status = MetricStatus {
        type_: spec.type_.clone(),
        ..MetricStatus::default()
    };
    let name = resource.to_owned();
    match container {
        None => status.resource = Some(ResourceMetricStatus { current, name }),
        Some(container) => {
            let container = container.to_owned();
            status.container_resource = Some(ContainerResourceMetricStatus {
                container,
                current,
                name,
            });
        }
    }
    status
}

/// The proposals of all metrics together.
struct Sum {
    /// The largest size, and the name of the metric that asks for it; none when it may not be followed.
    wanted: Option<(i32, String)>,
    /// One for each metric; an empty one for a missing metric.
    statuses: Vec<MetricStatus>,
    missing: Vec<Missing>,
}

/// Combines the proposals of all metrics (`computeReplicasForMetrics`). When some cannot be had, nothing shrinks.
fn sum(proposals: Vec<Proposal>, current: i32) -> Sum {
    let (mut missing, mut statuses) = (vec![], vec![]);
    let mut best: Option<(i32, String)> = None;
    for proposal in proposals {
        match proposal {
            Ok((size, name, status)) => {
                statuses.push(status);
                if best.as_ref().is_none_or(|(most, _)| size > *most) {
                    best = Some((size, name));
                }
            }
            Err(why) => {
                statuses.push(MetricStatus::default());
                missing.push(why);
            }
        }
    }
    Sum {
        wanted: best.filter(|(size, _)| missing.is_empty() || *size >= current),
        statuses,
        missing,
    }
}

/// The outcome of a look.
struct Outcome {
    /// The size, and why; none when it is not known.
    wanted: Option<(i32, String)>,
    said: Vec<Condition>,
    metrics: Vec<MetricStatus>,
}

impl Outcome {
    /// No size follows: the present one stays, and so does the earlier wish.
    fn unknown(reason: &'static str, message: String, metrics: Vec<MetricStatus>) -> Outcome {
        Outcome {
            wanted: None,
            said: vec![("ScalingActive", false, reason, message)],
            metrics,
        }
    }
}

impl Autoscaler {
    fn past(&self) -> MutexGuard<'_, BTreeMap<Request, Past>> {
        // Nothing under this lock can panic half way through a change.
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the pods of an autoscaler, and returns all autoscalers that share some of them, itself included.
    fn targets_of(&self, request: &Request, pods: &[Arc<Pod>]) -> Vec<String> {
        let uids: BTreeSet<String> = pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let others = targets
            .iter()
            .filter(|(other, of)| *other != request && !of.is_disjoint(&uids));
        let mut names: Vec<String> = others.map(|(other, _)| other.to_string()).collect();
        targets.insert(request.clone(), uids);
        names.push(request.to_string());
        names.sort();
        names
    }

    /// The pods of the target; or the error when it is not clear which they are (`validateAndParseSelector`).
    async fn pods(
        &self,
        scaler: &HorizontalPodAutoscaler,
        scale: &Scale,
        ctx: &Context,
    ) -> Result<std::result::Result<Vec<Arc<Pod>>, Outcome>> {
        let text = scale.status.as_ref().and_then(|status| status.selector.as_deref());
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            let why = "selector is required";
            for reason in ["SelectorRequired", "FailedComputeMetricsReplicas"] {
                ctx.event(scaler, EventType::Warning, reason, why);
            }
            let message = "the HPA target's scale is missing a selector".to_owned();
            return Ok(Err(Outcome::unknown("InvalidSelector", message, vec![])));
        };
        // Their metrics are read every fifteen seconds; upstream asks the metrics API as often.
        let namespace = ctx.request().namespace().unwrap_or_default();
        let of_target = ListParams::default().labels(text);
        let pods = ctx.client().list_live::<Pod>(Some(namespace), &of_target).await?;
        let of_all = self.targets_of(ctx.request(), &pods);
        if of_all.len() < 2 {
            return Ok(Ok(pods));
        }
        let why = if self.minor >= Minor::V37 {
            let some = of_all[..2].join(" ");
            format!("pods by selector {text} are controlled by more than one HPA (e.g. [{some}])")
        } else {
            let all = of_all.join(" ");
            format!("pods by selector {text} are controlled by multiple HPAs: [{all}]")
        };
        for reason in ["AmbiguousSelector", "FailedComputeMetricsReplicas"] {
            ctx.event(scaler, EventType::Warning, reason, &why);
        }
        Ok(Err(Outcome::unknown("AmbiguousSelector", why, vec![])))
    }

    /// The proposal of one metric, whatever it is about.
    async fn proposal(
        &self,
        scaler: &HorizontalPodAutoscaler,
        spec: &MetricSpec,
        scene: &ScaleContext<'_>,
        ctx: &Context,
    ) -> Result<Proposal> {
        Ok(match (&spec.pods, &spec.object, &spec.external) {
            (Some(source), ..) => custom::of_pods(spec, source, &scaler.metadata, scene),
            (_, Some(source), _) => {
                let object = described(&source.described_object, scene.namespace, ctx).await?;
                custom::of_object(spec, source, object.as_ref(), scene)
            }
            (.., Some(source)) => {
                let namespace = ctx.client().live::<Namespace>(None, scene.namespace).await?;
                custom::of_external(spec, source, namespace.as_ref().map(|found| &found.metadata), scene)
            }
            _ => propose(scaler, spec, scene.pods, scene.size.0, &*self.meter, ctx),
        })
    }

    /// The size that the metrics ask for now, as fast as it may come; the reason; and the messages about it.
    async fn measured(
        &self,
        scaler: &HorizontalPodAutoscaler,
        scale: &Scale,
        current: i32,
        ctx: &Context,
    ) -> Result<Outcome> {
        let listed = match self.pods(scaler, scale, ctx).await? {
            Ok(listed) => listed,
            Err(outcome) => return Ok(outcome),
        };
        let pods: Vec<&Pod> = listed.iter().map(AsRef::as_ref).collect();
        let scene = ScaleContext {
            namespace: ctx.request().namespace().unwrap_or_default(),
            pods: &pods,
            size: (current, scale.status.as_ref().map_or(0, |status| status.replicas)),
            tolerance: tolerance(scaler),
            now: ctx.now(),
        };
        let mut proposals = vec![];
        for spec in scaler.spec.metrics.iter().flatten() {
            proposals.push(self.proposal(scaler, spec, &scene, ctx).await?);
        }
        let sum = sum(proposals, current);
        for missing in &sum.missing {
            ctx.event(scaler, EventType::Warning, missing.reason, &missing.why);
        }
        let Some((wanted, name)) = sum.wanted else {
            let why = missing::sum(&sum.missing, sum.statuses.len());
            ctx.event(scaler, EventType::Warning, "FailedComputeMetricsReplicas", why);
            let first = sum.missing.first();
            let (reason, why) = first.map_or(("", ""), |first| (first.reason, first.why.as_str()));
            return Ok(Outcome::unknown(reason, missing::condition(why), sum.statuses));
        };
        let bounds = (scaler.spec.min_replicas.unwrap_or(1), scaler.spec.max_replicas);
        let paced = {
            let mut all = self.past();
            let past = all.entry(ctx.request().clone()).or_default();
            past.begin(ctx.now(), current);
            pace::follow(
                past,
                ctx.now(),
                (current, wanted),
                bounds,
                scaler.spec.behavior.as_ref(),
            )
        };
        let mut why = match wanted.cmp(&current) {
            Ordering::Greater => format!("{name} above target"),
            Ordering::Less => "All metrics below target".to_owned(),
            Ordering::Equal => String::new(),
        };
        // From zero it goes up to the lower bound, whatever the rates are.
        let replicas = match current {
            0 => paced.replicas.max(bounds.0),
            _ => paced.replicas,
        };
        if replicas > paced.replicas && why.is_empty() {
            BELOW.clone_into(&mut why);
        }
        let found = format!("the HPA was able to successfully calculate a replica count from {name}");
        let (is_limited, limited) = paced.limited;
        let said = vec![
            ("AbleToScale", true, paced.able.0, paced.able.1.to_owned()),
            ("ScalingActive", true, "ValidMetricFound", found),
            ("ScalingLimited", is_limited, limited.0, limited.1.to_owned()),
        ];
        Ok(Outcome {
            wanted: Some((replicas, why)),
            said,
            metrics: sum.statuses,
        })
    }
}

impl Reconciler for Autoscaler {
    type Object = HorizontalPodAutoscaler;

    async fn reconcile(&self, scaler: Arc<HorizontalPodAutoscaler>, ctx: Context) -> Result<Action> {
        let spec = &scaler.spec;
        let target = &spec.scale_target_ref;
        let kind = kind_of(target);
        let kube = ctx.client().kube().clone();
        let found = match kubewright::kube::discovery::pinned_kind(&kube, &kind).await {
            Ok((resource, _)) => {
                let namespace = ctx.request().namespace().unwrap_or_default();
                let api: Api<DynamicObject> = Api::namespaced_with(kube, namespace, &resource);
                let scale = api.get_scale(&target.name).await;
                scale.map(|scale| (api, scale)).map_err(|error| plain(&error.into()))
            }
            Err(error) if is_unknown(&error) => {
                Err(format!("no matches for kind {:?} in group {:?}", kind.kind, kind.group))
            }
            Err(error) => Err(plain(&error.into())),
        };
        let (api, scale) = match found {
            Ok(found) => found,
            Err(why) => {
                ctx.event(&*scaler, EventType::Warning, "FailedGetScale", &why);
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                return say(
                    &scaler,
                    None,
                    &[("AbleToScale", false, "FailedGetScale", message)],
                    &ctx,
                )
                .await;
            }
        };
        let present = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        let able = "the HPA controller was able to get the target's current scale".to_owned();
        let mut said: Vec<Condition> = vec![("AbleToScale", true, "SucceededGetScale", able)];
        let mut metrics = None;
        let least = spec.min_replicas.unwrap_or(1);
        let (desired, why) = match bounded(present, least, spec.max_replicas) {
            Some((size, why)) => (size, why.to_owned()),
            None if present == 0 && !zero::may_wake(&scaler, least) => {
                let message = "scaling is disabled since the replica count of the target is zero".to_owned();
                said.push(("ScalingActive", false, "ScalingDisabled", message));
                (0, String::new())
            }
            None => {
                let outcome = self.measured(&scaler, &scale, present, &ctx).await?;
                said.extend(outcome.said);
                metrics = Some(outcome.metrics);
                let Some(wanted) = outcome.wanted else {
                    let sizes = Sizes {
                        current: present,
                        desired: scaler.status.as_ref().map_or(0, |status| status.desired_replicas),
                        metrics,
                    };
                    return say(&scaler, Some(sizes), &said, &ctx).await;
                };
                wanted
            }
        };
        if desired != present {
            let patch = Patch::Merge(json!({ "spec": { "replicas": desired } }));
            let _: Scale = api.patch_scale(&target.name, &PatchParams::default(), &patch).await?;
            self.past()
                .entry(ctx.request().clone())
                .or_default()
                .changed(ctx.now(), present, desired);
            let message = format!("New size: {desired}; reason: {why}");
            ctx.event(&*scaler, EventType::Normal, "SuccessfulRescale", &message);
            let message = format!("the HPA controller was able to update the target scale to {desired}");
            said.push(("AbleToScale", true, RESCALED, message));
            if self.minor >= Minor::V37 {
                said.push(zero::condition(&scaler, desired));
            }
        }
        let sizes = Sizes {
            current: present,
            desired,
            metrics,
        };
        say(&scaler, Some(sizes), &said, &ctx).await
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.past().remove(&request);
        self.targets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&request);
        Ok(Action::await_change())
    }
}

/// The sizes in the status (`setStatus`): both are those of the target's spec, however many pods there are.
struct Sizes {
    current: i32,
    desired: i32,
    metrics: Option<Vec<MetricStatus>>,
}

/// Writes the status if it differs. The message that the target was scaled also carries the time.
async fn say(
    scaler: &HorizontalPodAutoscaler,
    sizes: Option<Sizes>,
    said: &[Condition],
    ctx: &Context,
) -> Result<Action> {
    let mut status: HorizontalPodAutoscalerStatus = scaler.status.clone().unwrap_or_default();
    if let Some(sizes) = sizes {
        status.current_metrics = sizes.metrics.filter(|metrics| !metrics.is_empty());
        status.observed_generation = scaler.metadata.generation;
        if said.iter().any(|(_, _, reason, _)| *reason == RESCALED) {
            status.last_scale_time = Some(meta::time(ctx.now()));
        }
        (status.current_replicas, status.desired_replicas) = (Some(sizes.current), sizes.desired);
    }
    let conditions = status.conditions.get_or_insert_default();
    for (kind, holds, reason, message) in said {
        let text = if *holds { "True" } else { "False" };
        let present = conditions.iter().position(|condition| condition.type_ == *kind);
        let since = present
            .map(|present| &conditions[present])
            .filter(|present| present.status == text);
        let since = since.and_then(|since| since.last_transition_time.clone());
        let next = HorizontalPodAutoscalerCondition {
            type_: (*kind).to_owned(),
            status: text.to_owned(),
            reason: Some((*reason).to_owned()),
            message: Some(message.clone()),
            last_transition_time: Some(since.unwrap_or_else(|| meta::time(ctx.now()))),
            ..HorizontalPodAutoscalerCondition::default()
        };
        match present {
            Some(present) => conditions[present] = next,
            None => conditions.push(next),
        }
    }
    if scaler.status.as_ref() != Some(&status) {
        let mut next = scaler.clone();
        next.status = Some(status);
        match ctx.client().update_status(&next).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(Action::requeue_after(PERIOD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stay_within_bounds() {
        let check = |present: i32, expected: Option<i32>| {
            assert_eq!(bounded(present, 2, 5).map(|(size, _)| size), expected, "{present}");
        };
        check(0, None);
        check(1, Some(2));
        check(2, None);
        check(5, None);
        check(9, Some(5));
    }

    #[test]
    fn the_largest_of_what_is_known() {
        let known = |size: i32| -> Proposal { Ok((size, "cpu resource".to_owned(), MetricStatus::default())) };
        let unknown = || -> Proposal { Err(missing::of_resource("memory", None, "why".to_owned())) };
        let check = |proposals: Vec<Proposal>, wanted: Option<i32>, missing: usize| {
            let of = proposals.len();
            let found = sum(proposals, 4);
            assert_eq!(found.wanted.map(|(size, _)| size), wanted);
            assert_eq!((found.statuses.len(), found.missing.len()), (of, missing));
        };
        check(vec![], None, 0);
        check(vec![known(3), known(5)], Some(5), 0);
        check(vec![known(5), unknown()], Some(5), 1);
        check(vec![unknown(), known(3)], None, 1);
        check(vec![unknown(), unknown()], None, 2);
    }
}
