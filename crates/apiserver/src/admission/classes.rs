//! Plugins that look up a class that an object names, or the default one, and write the class's values into the object:
//! Priority, RuntimeClass, DefaultStorageClass, DefaultIngressClass. They have the names and the words of Kubernetes'
//! own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubewright_schema::names;
use serde_json::Value;

use super::{Admission, Admitted, Attributes, Operation, Session, subject};
use crate::model::facts::SYSTEM_CLASSES;
use crate::model::object;
use crate::model::status::Status;
use crate::quota::parse;
use crate::storage::{Derived, Followed, Storage, StoredObject};
use crate::values::{absent, ensure, get};

const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";
const RUNTIME_CLASSES: &str = "runtimeclasses.node.k8s.io";
const STORAGE_CLASSES: &str = "storageclasses.storage.k8s.io";
const INGRESS_CLASSES: &str = "ingressclasses.networking.k8s.io";

/// Fills in the values of classes of priority, runtime, storage and ingress in new pods, claims and ingresses.
pub struct Classes {
    storage: Arc<dyn Storage>,
    defaults: Followed<Defaults>,
}

/// The classes that say that they are the default, by store and name. There is one or none, as a rule.
#[derive(Clone, Default)]
struct Defaults(BTreeMap<&'static str, BTreeMap<String, Arc<StoredObject>>>);

impl Derived for Defaults {
    fn apply(&mut self, store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        let classes = self.0.entry(store).or_default();
        match object.filter(|object| is_default(store, object.value())) {
            Some(class) => classes.insert(key.to_owned(), class.clone()),
            None => classes.remove(key),
        };
    }
}

/// Whether a class says that it is the default of its store.
fn is_default(store: &str, class: &Value) -> bool {
    let is_true = |key: &str| get(class, &["metadata", "annotations", key]) == "true";
    match store {
        PRIORITY_CLASSES => get(class, &["globalDefault"]) == true,
        STORAGE_CLASSES => {
            is_true("storageclass.kubernetes.io/is-default-class")
                || is_true("storageclass.beta.kubernetes.io/is-default-class")
        }
        _ => is_true("ingressclass.kubernetes.io/is-default-class"),
    }
}

impl Classes {
    /// The plugin, looking classes up in `storage`.
    pub fn new(storage: Arc<dyn Storage>) -> Classes {
        Classes {
            storage,
            defaults: Followed::new(&[PRIORITY_CLASSES, STORAGE_CLASSES, INGRESS_CLASSES]),
        }
    }

    fn check(&self, attributes: &Attributes, object: &mut Value) -> Result<(), Status> {
        let resource = &attributes.resource;
        let of_priority = resource.group == "scheduling.k8s.io" && resource.plural == "priorityclasses";
        if attributes.operation == Operation::Delete
            && of_priority
            && SYSTEM_CLASSES.iter().any(|class| class.0 == attributes.name)
        {
            let why = "this is a system priority class and cannot be deleted";
            return Err(Status::forbidden(resource, &attributes.name, why));
        }
        if attributes.operation != Operation::Create || !attributes.subresource.is_empty() {
            return Ok(());
        }
        match (resource.group.as_ref(), resource.plural.as_ref()) {
            ("", "pods") => {
                let name = subject(attributes, object).to_owned();
                let forbid = |why: String| Status::forbidden(resource, &name, &why);
                let priority = self.priority(object).map_err(forbid)?;
                check_runtime_name(object)?;
                let runtime = self.runtime(object).map_err(forbid)?;
                if let Some(class) = &runtime {
                    check_runtime(object, class.value()).map_err(forbid)?;
                }
                set_priority(object, priority);
                if let Some(class) = runtime {
                    set_runtime(object, class.value());
                }
            }
            ("", "persistentvolumeclaims") => self.default_storage_class(object),
            ("networking.k8s.io", "ingresses") => self.default_ingress_class(object),
            _ => {}
        }
        Ok(())
    }

    /// One PriorityClass at most is the default.
    fn only_default(&self, attributes: &Attributes, class: &Value) -> Result<(), Status> {
        let resource = &attributes.resource;
        let is_class = resource.group == "scheduling.k8s.io" && resource.plural == "priorityclasses";
        let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !is_class || !is_write || get(class, &["globalDefault"]) != true {
            return Ok(());
        }
        let name = object::name(class);
        match self.default_priority() {
            Some(other) if attributes.operation == Operation::Create || object::name(other.value()) != name => {
                let other = object::name(other.value());
                let why = format!("PriorityClass {other} is already marked as default. Only one default can exist");
                Err(Status::forbidden(&attributes.resource, name, &why))
            }
            _ => Ok(()),
        }
    }

    /// The class of pods that name none: the lowest of those that say so.
    fn default_priority(&self) -> Option<Arc<StoredObject>> {
        self.defaults(PRIORITY_CLASSES)
            .into_iter()
            .min_by_key(|class| get(class.value(), &["value"]).as_i64())
    }

    /// RuntimeClass, once more: the overhead of a pod is that of its class, and nothing without one.
    fn check_overhead(&self, attributes: &Attributes, pod: &Value) -> Result<(), Status> {
        let resource = &attributes.resource;
        let is_pod = resource.group.is_empty() && resource.plural == "pods";
        if attributes.operation != Operation::Create || !attributes.subresource.is_empty() || !is_pod {
            return Ok(());
        }
        let forbid = |why: &str| Status::forbidden(resource, object::name(pod), why);
        let class = self.runtime(pod).map_err(|why| forbid(&why))?;
        let fixed = class
            .as_ref()
            .map_or(&Value::Null, |class| get(class.value(), &["overhead"]));
        let overhead = get(pod, &["spec", "overhead"]);
        if fixed.is_null() && !overhead.is_null() {
            return Err(forbid(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ));
        }
        if !fixed.is_null() && parse(get(fixed, &["podFixed"])) != parse(overhead) {
            return Err(forbid(OTHER_OVERHEAD));
        }
        Ok(())
    }

    /// The classes of a store that say that they are the default, by name.
    fn defaults(&self, store: &'static str) -> Vec<Arc<StoredObject>> {
        self.defaults.look(self.storage.as_ref(), |defaults| {
            let classes = defaults.0.get(store).into_iter();
            classes.flat_map(BTreeMap::values).cloned().collect()
        })
    }

    fn priority(&self, pod: &Value) -> Result<Priority, String> {
        let mut name = get(pod, &["spec", "priorityClassName"])
            .as_str()
            .unwrap_or("")
            .to_owned();
        let found = if name.is_empty() {
            self.default_priority()
        } else {
            self.storage.get(PRIORITY_CLASSES, &name)
        };
        let mut priority = Priority {
            name: String::new(),
            value: 0,
            preemption: "PreemptLowerPriority".to_owned(),
        };
        match &found {
            Some(class) => {
                object::name(class.value()).clone_into(&mut name);
                priority.value = get(class.value(), &["value"]).as_i64().unwrap_or(0);
                if let Some(policy) = get(class.value(), &["preemptionPolicy"]).as_str() {
                    policy.clone_into(&mut priority.preemption);
                }
            }
            None if name.is_empty() => {}
            None => match SYSTEM_CLASSES.iter().find(|class| class.0 == name) {
                Some(class) => priority.value = class.1,
                None => return Err(format!("no PriorityClass with name {name} was found")),
            },
        }
        priority.name = name;
        let own = get(pod, &["spec", "priority"]).as_i64();
        if let Some(own) = own.filter(|own| *own != priority.value) {
            return Err(format!(
                "the integer value of priority ({own}) must not be provided in pod spec; priority admission controller computed {} from the \
                 given PriorityClass name",
                priority.value
            ));
        }
        let own = get(pod, &["spec", "preemptionPolicy"]).as_str();
        if let Some(own) = own.filter(|own| *own != priority.preemption) {
            return Err(format!(
                "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; priority admission controller computed {} \
                 from the given PriorityClass name",
                priority.preemption
            ));
        }
        Ok(priority)
    }

    fn runtime(&self, pod: &Value) -> Result<Option<Arc<StoredObject>>, String> {
        let name = get(pod, &["spec", "runtimeClassName"]).as_str().unwrap_or("");
        match name {
            "" => Ok(None),
            name => {
                let class = self.storage.get(RUNTIME_CLASSES, name);
                let class = class.ok_or_else(|| format!("pod rejected: RuntimeClass {name:?} not found"))?;
                Ok(Some(class))
            }
        }
    }

    /// A claim that names no class gets the default one; of several, the newest.
    fn default_storage_class(&self, claim: &mut Value) {
        let old = get(
            claim,
            &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"],
        );
        if !old.is_null() {
            return;
        }
        let newest = self.newest_default(STORAGE_CLASSES);
        let Some(class) = newest else { return };
        if let Some(spec) = claim.as_object_mut().and_then(|claim| ensure(claim, "spec"))
            && absent(spec, "storageClassName")
        {
            spec.insert("storageClassName".to_owned(), object::name(class.value()).into());
        }
    }

    /// An ingress that names no class, in one way or the other, gets the default one.
    fn default_ingress_class(&self, ingress: &mut Value) {
        let named = get(ingress, &["metadata", "annotations", "kubernetes.io/ingress.class"]);
        if !named.is_null() || !get(ingress, &["spec", "ingressClassName"]).is_null() {
            return;
        }
        let newest = self.newest_default(INGRESS_CLASSES);
        if let (Some(class), Some(ingress)) = (newest, ingress.as_object_mut())
            && let Some(spec) = ensure(ingress, "spec")
        {
            spec.insert("ingressClassName".to_owned(), object::name(class.value()).into());
        }
    }

    /// Of the classes that say that they are the default: the newest, of those the first by name.
    fn newest_default(&self, store: &'static str) -> Option<Arc<StoredObject>> {
        self.defaults(store).into_iter().max_by(|a, b| {
            let time = |class: &StoredObject| object::text(class.value(), "creationTimestamp").to_owned();
            let name = |class: &StoredObject| object::name(class.value()).to_owned();
            time(a).cmp(&time(b)).then_with(|| name(b).cmp(&name(a)))
        })
    }
}

/// Said where a pod and its RuntimeClass differ.
const OTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// The name by which the plugin asks for the class, which its client checks (`rest.IsValidPathSegmentName`).
fn check_runtime_name(pod: &Value) -> Result<(), Status> {
    let Some(name) = get(pod, &["spec", "runtimeClassName"]).as_str() else {
        return Ok(());
    };
    let wrong = names::path_segment_name(name);
    let message = if name.is_empty() {
        "resource name may not be empty".to_owned()
    } else if wrong.is_empty() {
        return Ok(());
    } else {
        format!("invalid resource name {name:?}: [{}]", wrong.join(", "))
    };
    Err(Status::failure(500, "", message))
}

/// Whether what a RuntimeClass says can be written into a pod.
fn check_runtime(pod: &Value, class: &Value) -> Result<(), String> {
    let (overhead, fixed) = (get(pod, &["spec", "overhead"]), get(class, &["overhead"]));
    let has_overhead = overhead.as_object().is_some_and(|map| !map.is_empty());
    if has_overhead && !fixed.is_null() && parse(overhead) != parse(get(fixed, &["podFixed"])) {
        return Err(OTHER_OVERHEAD.to_owned());
    }
    let selector = get(class, &["scheduling", "nodeSelector"]).as_object();
    for (key, wanted) in selector.into_iter().flatten() {
        let own = get(pod, &["spec", "nodeSelector", key]);
        if !own.is_null() && own != wanted {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                wanted.as_str().unwrap_or(""),
                own.as_str().unwrap_or("")
            ));
        }
    }
    Ok(())
}

/// The priority that a PriorityClass gives a pod.
struct Priority {
    name: String,
    value: i64,
    preemption: String,
}

fn set_priority(pod: &mut Value, priority: Priority) {
    let Some(spec) = pod.as_object_mut().and_then(|pod| ensure(pod, "spec")) else {
        return;
    };
    if !priority.name.is_empty() {
        spec.insert("priorityClassName".to_owned(), priority.name.into());
    }
    spec.insert("priority".to_owned(), priority.value.into());
    spec.insert("preemptionPolicy".to_owned(), priority.preemption.into());
}

fn set_runtime(pod: &mut Value, class: &Value) {
    let Some(spec) = pod.as_object_mut().and_then(|pod| ensure(pod, "spec")) else {
        return;
    };
    let fixed = get(class, &["overhead", "podFixed"]);
    if !fixed.is_null() {
        spec.insert("overhead".to_owned(), fixed.clone());
    }
    if let Some(selector) = get(class, &["scheduling", "nodeSelector"]).as_object()
        && let Some(own) = ensure(spec, "nodeSelector")
    {
        own.extend(selector.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    if let Some(more) = get(class, &["scheduling", "tolerations"]).as_array() {
        // The tolerations of every pod come first.
        crate::model::facts::pods::tolerate(spec);
        let mut all = spec
            .get("tolerations")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        all.extend(more.iter().cloned());
        spec.insert("tolerations".to_owned(), Value::Array(merge_tolerations(&all)));
    }
}

/// Leaves tolerations out that another one covers; of equal ones the first stays.
///
/// Upstream (`tolerations.MergeTolerations`) holds each against those that stay and those behind it. Here [`Coverers`]
/// remembers of both the few that may cover it: the list is gone through from its end and then from its beginning.
fn merge_tolerations(all: &[Value]) -> Vec<Value> {
    let mut behind = Coverers::default();
    let mut uncovered: Vec<&Value> = Vec::new();
    for toleration in all.iter().rev() {
        if !behind.cover(toleration, true) {
            uncovered.push(toleration);
        }
        behind.add(toleration);
    }
    let (mut before, mut equal) = (Coverers::default(), BTreeSet::new());
    let mut merged = Vec::new();
    for toleration in uncovered.into_iter().rev() {
        // Equal tolerations are merged even when they cover no other.
        if equal.insert(toleration.to_string()) && !before.cover(toleration, false) {
            before.add(toleration);
            merged.push(toleration.clone());
        }
    }
    merged
}

/// Tolerations, those of a key, an effect and a value together. Of each such group the two that tolerate for longest,
/// which differ: a toleration that they do not cover, none of the group covers.
#[derive(Default)]
struct Coverers<'a>(BTreeMap<Group<'a>, [Option<&'a Value>; 2]>);

/// The key, the effect, and the value if it matters.
type Group<'a> = (&'a str, &'a str, Option<&'a str>);

impl<'a> Coverers<'a> {
    fn add(&mut self, toleration: &'a Value) {
        let value = match text_of(toleration, "operator") {
            "Exists" => None,
            "Equal" | "" => Some(text_of(toleration, "value")),
            // Covers nothing but its equals.
            _ => return,
        };
        let group = (text_of(toleration, "key"), text_of(toleration, "effect"), value);
        let [first, second] = self.0.entry(group).or_default();
        let longer = |than: &Value| seconds_of(toleration) > seconds_of(than);
        match (*first, *second) {
            (Some(known), _) if known == toleration => {}
            (_, Some(known)) if known == toleration => {}
            (Some(known), _) if !longer(known) => {
                if second.is_none_or(longer) {
                    *second = Some(toleration);
                }
            }
            (known, _) => (*first, *second) = (Some(toleration), known),
        }
    }

    /// Whether one of them covers a toleration; one that equals it may not count.
    fn cover(&self, toleration: &Value, another: bool) -> bool {
        let [key, effect, value] = ["key", "effect", "value"].map(|field| text_of(toleration, field));
        [key, ""].into_iter().any(|key| {
            [effect, ""].into_iter().any(|effect| {
                [None, Some(value)].into_iter().any(|value| {
                    let group = self.0.get(&(key, effect, value)).into_iter().flatten();
                    let mut others = group.flatten().filter(|other| !another || **other != toleration);
                    others.any(|other| covers(other, toleration))
                })
            })
        })
    }
}

fn text_of<'a>(toleration: &'a Value, field: &str) -> &'a str {
    get(toleration, &[field]).as_str().unwrap_or("")
}

/// How long it is tolerated; for ever when it does not say.
fn seconds_of(toleration: &Value) -> i128 {
    let seconds = get(toleration, &["tolerationSeconds"]).as_i64();
    seconds.map_or(i128::MAX, i128::from)
}

/// Whether `other` tolerates everything that `toleration` tolerates.
fn covers(other: &Value, toleration: &Value) -> bool {
    let text = text_of;
    let same = |field: &str| text(other, field) == text(toleration, field);
    let any = text(other, "key").is_empty() && text(other, "operator") == "Exists";
    let longer = match (
        get(other, &["tolerationSeconds"]).as_i64(),
        get(toleration, &["tolerationSeconds"]).as_i64(),
    ) {
        (Some(other), Some(seconds)) => seconds <= other,
        (Some(_), None) => text(other, "effect") != "NoExecute",
        (None, _) => true,
    };
    other == toleration
        || ((same("key") || any)
            && (same("effect") || text(other, "effect").is_empty())
            && (longer || text(other, "effect") != "NoExecute")
            && match text(other, "operator") {
                "Equal" | "" => text(toleration, "operator") == "Equal" && same("value"),
                operator => operator == "Exists",
            })
}

impl Admission for Classes {
    fn mutate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        _old: Option<&'a Value>,
    ) -> Admitted<'a> {
        Admitted::Now(self.check(attributes, object))
    }
    fn validate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        _old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let checked = self.only_default(attributes, object);
        Admitted::Now(checked.and_then(|()| self.check_overhead(attributes, object)))
    }
}

#[cfg(test)]
mod tests {
    use kubewright_schema::budget::{self, Limits};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn tolerations_are_merged() {
        let t = |key: &str, operator: &str, effect: &str, seconds: Value| json!({"key": key, "operator": operator, "effect": effect, "tolerationSeconds": seconds});
        let none = Value::Null;
        let check = |all: &[Value], want: &[usize]| {
            let want: Vec<Value> = want.iter().map(|index| all[*index].clone()).collect();
            assert_eq!(merge_tolerations(all), want, "{all:?}");
        };
        let (a, everything) = (
            t("a", "Exists", "NoExecute", none.clone()),
            t("", "Exists", "", none.clone()),
        );
        check(&[a.clone(), a.clone()], &[0]);
        check(&[a.clone(), everything.clone()], &[1]);
        check(&[everything, a.clone()], &[0]);
        check(&[t("a", "Exists", "NoExecute", json!(5)), a.clone()], &[1]);
        check(&[t("a", "Exists", "NoSchedule", none), a], &[0, 1]);
    }

    /// As upstream, which compares each with each.
    fn merged_in_pairs(all: &[Value]) -> Vec<Value> {
        let mut merged: Vec<Value> = Vec::new();
        for (index, toleration) in all.iter().enumerate() {
            let later = &all[index + 1..];
            let covered = merged.iter().any(|other| covers(other, toleration))
                || later
                    .iter()
                    .any(|other| other != toleration && covers(other, toleration));
            if !covered {
                merged.push(toleration.clone());
            }
        }
        merged
    }

    proptest! {
        #[test]
        fn they_are_merged_as_in_pairs(all in prop::collection::vec(some_toleration(), 0..8)) {
            prop_assert_eq!(merge_tolerations(&all), merged_in_pairs(&all));
        }
    }

    fn some_toleration() -> impl Strategy<Value = Value> {
        let text = |all: &'static [&'static str]| prop::sample::select(all);
        let seconds = prop_oneof![Just(Value::Null), (-1..3_i64).prop_map(Value::from)];
        let (key, operator) = (text(&["", "a", "b"]), text(&["", "Equal", "Exists", "Lt"]));
        let (effect, value) = (text(&["", "NoExecute", "NoSchedule"]), text(&["", "x", "y"]));
        (key, operator, effect, value, seconds).prop_map(|(key, operator, effect, value, seconds)| {
            json!({"key": key, "operator": operator, "effect": effect, "value": value, "tolerationSeconds": seconds})
        })
    }

    #[test]
    fn many_tolerations_take_few_steps() {
        let all: Vec<Value> = (0..2_000)
            .map(|index| json!({"key": format!("k{index}"), "operator": "Equal", "value": "v", "effect": "NoExecute"}))
            .collect();
        let limits = Limits {
            steps: 300 * 2_000,
            ..Limits::REQUEST
        };
        let merged = budget::within(limits, || merge_tolerations(&all));
        assert_eq!(merged.map(|merged| merged.len()), Ok(2_000));
    }
}
