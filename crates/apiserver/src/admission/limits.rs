//! LimitRanger: the limits of LimitRanges for new pods and claims. Containers get the defaults that they lack; an
//! amount below a minimum or above a maximum is refused.
//!
//! Not here: quotas, which count the usage of a whole namespace.

use std::sync::Arc;

use kubewright_schema::error::aggregate_texts;
use kubewright_schema::quantity::Quantity;
use kubewright_schema::{budget, measure};
use serde_json::{Value, json};

use super::{Admission, Admitted, Attributes, Operation, Session};
use crate::model::object;
use crate::model::status::Status;
use crate::quota::{ResourceList, parse, wanted};
use crate::storage::{ListRequest, Storage, StoredObject};
use crate::values::{Object, ensure, get};

/// The cost of looking up an amount and comparing it.
const LOOKED_UP: usize = 4;

/// So many bytes of a range are read in a step.
const READ: usize = 8;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Applies the LimitRanges of a namespace to the pods and claims that are created in it.
pub struct LimitRanger {
    storage: Arc<dyn Storage>,
}

impl LimitRanger {
    /// The plugin, looking LimitRanges up in `storage`.
    pub fn new(storage: Arc<dyn Storage>) -> LimitRanger {
        LimitRanger { storage }
    }

    /// The LimitRanges that concern a write; none for writes that none of them concerns.
    fn ranges(&self, attributes: &Attributes) -> Vec<Arc<StoredObject>> {
        let resource = &attributes.resource;
        let concerned = resource.group.is_empty()
            && matches!(
                (
                    resource.plural.as_ref(),
                    attributes.operation,
                    attributes.subresource.as_str(),
                ),
                ("pods", Operation::Create, "")
                    | ("pods", Operation::Update, "resize")
                    | ("persistentvolumeclaims", Operation::Create | Operation::Update, "")
            );
        if !concerned {
            return Vec::new();
        }
        let request = ListRequest {
            prefix: format!("{}/", attributes.namespace),
            ..ListRequest::default()
        };
        // A store that cannot be listed has no ranges to apply.
        let listed = self.storage.entries("limitranges", &request);
        let ranges = listed.map(|listed| listed.items).unwrap_or_default();
        // Whoever may write them may write large ones, and many. To read them is the work of the writes that they
        // concern.
        let text = ranges.iter().map(|(_, range)| range.encoded().len()).sum::<usize>();
        budget::spend(ranges.len() + text / READ);
        ranges.into_iter().map(|(_, range)| range.object()).collect()
    }

    fn check(&self, attributes: &Attributes, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        if old.is_some_and(object::is_terminating) {
            return Ok(());
        }
        let ranges = self.ranges(attributes);
        let is_pod = attributes.resource.plural == "pods";
        let asked = (is_pod && !ranges.is_empty()).then(|| PodResources::by(new));
        for range in ranges {
            let mut errors = Vec::new();
            for limit in items(get(range.value(), &["spec", "limits"])) {
                match &asked {
                    Some(asked) => check_pod(limit, asked, &mut errors),
                    None => check_claim(limit, new, &mut errors),
                }
            }
            if !errors.is_empty() {
                let why = aggregate_texts(errors);
                return Err(Status::forbidden(&attributes.resource, object::name(new), &why));
            }
        }
        Ok(())
    }
}

impl Admission for LimitRanger {
    fn mutate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        if attributes.resource.plural == "pods" && !old.is_some_and(object::is_terminating) {
            for range in self.ranges(attributes) {
                fill_defaults(range.value(), object);
            }
        }
        Admitted::YES
    }

    fn validate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        Admitted::Now(self.check(attributes, object, old))
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Writes the default amounts into containers that name none, and says so in an annotation.
fn fill_defaults(range: &Value, pod: &mut Value) {
    let (mut requests, mut limits) = (Object::new(), Object::new());
    for limit in items(get(range, &["spec", "limits"])) {
        if get(limit, &["type"]) != "Container" {
            continue;
        }
        for (field, into) in [("defaultRequest", &mut requests), ("default", &mut limits)] {
            into.extend(get(limit, &[field]).as_object().cloned().unwrap_or_default());
        }
    }
    let mut done = Vec::new();
    for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let name = container.get("name").and_then(Value::as_str).unwrap_or("").to_owned();
            let Some(resources) = ensure(container, "resources") else {
                continue;
            };
            let mut set = |field: &str, defaults: &Object| add_missing(resources, field, defaults);
            let (limited, requested) = (set("limits", &limits), set("requests", &requests));
            done.extend(requested.map(|names| format!("{names} request for {word} {name}")));
            done.extend(limited.map(|names| format!("{names} limit for {word} {name}")));
        }
    }
    if !done.is_empty() {
        let metadata = object::metadata_mut(pod);
        if let Some(annotations) = ensure(metadata, "annotations") {
            let text = format!("LimitRanger plugin set: {}", done.join("; "));
            annotations.insert(ANNOTATION.to_owned(), json!(text));
        }
    }
}

/// Adds the amounts that are missing, and says which.
fn add_missing(resources: &mut Object, field: &str, defaults: &Object) -> Option<String> {
    budget::spend(1 + defaults.len());
    let given = resources.get(field);
    let is_missing = |(name, _): &(&String, &Value)| given.is_none_or(|given| get(given, &[name.as_str()]).is_null());
    let missing: Vec<_> = defaults.iter().filter(is_missing).collect();
    if missing.is_empty() {
        return None;
    }
    let amounts = ensure(resources, field)?;
    let mut names = String::new();
    for (name, amount) in missing {
        measure::count_field(amounts.len());
        budget::produce(2 * name.len());
        amounts.insert(name.clone(), measure::copy(amount));
        names.push_str(if names.is_empty() { "" } else { ", " });
        names.push_str(name);
    }
    Some(names)
}

/// The resources that a pod asks for, read once for all limits.
struct PodResources {
    containers: Vec<[ResourceList; 2]>,
    pod: [ResourceList; 2],
}

impl PodResources {
    fn by(pod: &Value) -> PodResources {
        let lists = ["containers", "initContainers"].into_iter();
        let containers = lists.flat_map(|list| items(get(pod, &["spec", list])));
        PodResources {
            containers: containers
                .map(|container| ["requests", "limits"].map(|field| parse(get(container, &["resources", field]))))
                .collect(),
            pod: ["requests", "limits"].map(|field| wanted(pod, field)),
        }
    }
}

/// One limit with its amounts, read once for all containers.
struct Bounds {
    min: ResourceList,
    max: ResourceList,
    ratio: ResourceList,
}

impl Bounds {
    fn of(limit: &Value) -> Bounds {
        let of = |field: &str| parse(get(limit, &[field]));
        Bounds {
            min: of("min"),
            max: of("max"),
            ratio: of("maxLimitRequestRatio"),
        }
    }
}

fn check_pod(limit: &Value, asked: &PodResources, errors: &mut Vec<String>) {
    match get(limit, &["type"]).as_str() {
        Some("Container") => {
            let bounds = Bounds::of(limit);
            for container in &asked.containers {
                bounds.check("Container", container, errors);
            }
        }
        Some("Pod") => Bounds::of(limit).check("Pod", &asked.pod, errors),
        _ => {}
    }
}

impl Bounds {
    fn check(&self, kind: &str, [requests, limits]: &[ResourceList; 2], errors: &mut Vec<String>) {
        budget::spend(1 + LOOKED_UP * (self.min.len() + self.max.len() + self.ratio.len()));
        let before = errors.len();
        for (name, bound) in &self.min {
            errors.extend(minimum(kind, name, bound, requests, limits));
        }
        for (name, bound) in &self.max {
            errors.extend(maximum(kind, name, bound, requests, limits));
        }
        for (name, bound) in &self.ratio {
            errors.extend(ratio(kind, name, bound, requests, limits));
        }
        for error in &errors[before..] {
            budget::produce(measure::text_held(error.len()));
        }
    }
}

fn maximum(kind: &str, name: &str, bound: &Quantity, requests: &ResourceList, limits: &ResourceList) -> Option<String> {
    let rule = || format!("maximum {name} usage per {kind} is {bound}");
    match (limits.get(name), requests.get(name)) {
        (None, _) => Some(format!("{}.  No limit is specified", rule())),
        (Some(limit), _) if limit > bound => Some(format!("{}, but limit is {limit}", rule())),
        (_, Some(request)) if request > bound => Some(format!("{}, but request is {request}", rule())),
        _ => None,
    }
}

fn minimum(kind: &str, name: &str, bound: &Quantity, requests: &ResourceList, limits: &ResourceList) -> Option<String> {
    let rule = || format!("minimum {name} usage per {kind} is {bound}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{}.  No request is specified", rule())),
        (Some(request), _) if request < bound => Some(format!("{}, but request is {request}", rule())),
        (_, Some(limit)) if limit < bound => Some(format!("{}, but limit is {limit}", rule())),
        _ => None,
    }
}

fn ratio(kind: &str, name: &str, bound: &Quantity, requests: &ResourceList, limits: &ResourceList) -> Option<String> {
    let rule = format!("{name} max limit to request ratio per {kind} is {bound}");
    let milli = |amounts: &ResourceList| {
        amounts
            .get(name)
            .map(Quantity::milli_value)
            .filter(|amount| *amount != 0)
    };
    let Some(request) = milli(requests) else {
        return Some(format!("{rule}, but no request is specified or request is 0"));
    };
    let Some(limit) = milli(limits) else {
        return Some(format!("{rule}, but no limit is specified or limit is 0"));
    };
    // The ratio is compared without dividing, and shown with six digits as Go does.
    if limit.saturating_mul(1000) <= bound.milli_value().saturating_mul(request) {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "six digits are shown")]
    let shown = limit as f64 / request as f64;
    Some(format!("{rule}, but provided ratio is {shown:.6}"))
}

fn check_claim(limit: &Value, claim: &Value, errors: &mut Vec<String>) {
    const KIND: &str = "PersistentVolumeClaim";
    if get(limit, &["type"]) != KIND {
        return;
    }
    let requests = parse(get(claim, &["spec", "resources", "requests"]));
    for (name, bound) in parse(get(limit, &["min"])) {
        errors.extend(minimum(KIND, &name, &bound, &requests, &ResourceList::new()));
    }
    for (name, bound) in parse(get(limit, &["max"])) {
        let rule = format!("maximum {name} usage per {KIND} is {bound}");
        errors.extend(match requests.get(&name) {
            None => Some(format!("{rule}.  No request is specified")),
            Some(request) if *request > bound => Some(format!("{rule}, but request is {request}")),
            Some(_) => None,
        });
    }
}

#[cfg(test)]
mod tests {
    use kubewright_schema::budget::{Exhausted, Limits};

    use super::*;

    #[test]
    fn defaults_are_filled_in_and_told() {
        let range = json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m", "memory": "1Mi"}}]}});
        let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}]}});
        fill_defaults(&range, &mut pod);
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu, memory request for container a; cpu limit for container a; memory request for container b"
        );
        assert_eq!(
            pod["spec"]["containers"][1]["resources"],
            json!({"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"cpu": "2"}})
        );
    }

    #[test]
    fn many_defaults_for_many_containers_are_counted() {
        let amounts: Object = (0..500).map(|index| (format!("a.io/r{index}"), json!("1"))).collect();
        let range = json!({"spec": {"limits": [{"type": "Container", "default": amounts}]}});
        let pod = |count: usize| json!({"metadata": {}, "spec": {"containers": vec![json!({"name": "c"}); count]}});
        let check = |count: usize, expected: Result<(), Exhausted>| {
            let mut pod = pod(count);
            let found = budget::within(Limits::REQUEST, || fill_defaults(&range, &mut pod));
            assert_eq!(found, expected, "{count} containers");
        };
        check(100, Ok(()));
        check(2_000, Err(Exhausted::Bytes));
    }

    #[test]
    fn bounds_are_kept() {
        let check = |limit: Value, resources: Value, want: &[&str]| {
            let pod = json!({"spec": {"containers": [{"name": "a", "resources": resources}]}});
            let mut errors = Vec::new();
            check_pod(&limit, &PodResources::by(&pod), &mut errors);
            assert_eq!(errors, want, "{limit}");
        };
        let max = || json!({"type": "Container", "max": {"cpu": "1"}});
        check(max(), json!({"limits": {"cpu": "1000m"}}), &[]);
        check(
            max(),
            json!({}),
            &["maximum cpu usage per Container is 1.  No limit is specified"],
        );
        check(
            max(),
            json!({"limits": {"cpu": "2"}}),
            &["maximum cpu usage per Container is 1, but limit is 2"],
        );
        check(
            json!({"type": "Pod", "min": {"memory": "1Gi"}}),
            json!({"requests": {"memory": "5Mi"}}),
            &["minimum memory usage per Pod is 1Gi, but request is 5Mi"],
        );
        check(
            json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}),
            &["cpu max limit to request ratio per Pod is 2, but provided ratio is 3.000000"],
        );
    }
}
