//! Plugins that look up a class that an object names and write what the class says into the object: Priority, RuntimeClass,
//! DefaultStorageClass. They have the names and the words of Kubernetes' own.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Admission, Attributes, Operation, Session};
use crate::env::BoxFuture;
use crate::kinds::check::{absent, ensure, get};
use crate::kinds::policy::SYSTEM_CLASSES;
use crate::object;
use crate::status::Status;
use crate::storage::{ListRequest, Storage, StoredObject};

const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";
const RUNTIME_CLASSES: &str = "runtimeclasses.node.k8s.io";
const STORAGE_CLASSES: &str = "storageclasses.storage.k8s.io";

/// Fills in what classes of priority, runtime and storage say about new pods and claims.
pub struct Classes {
    storage: Arc<dyn Storage>,
}

impl Classes {
    /// The plugin, looking classes up in `storage`.
    pub fn new(storage: Arc<dyn Storage>) -> Classes {
        Classes { storage }
    }

    fn check(&self, attributes: &Attributes, object: &mut Value) -> Result<(), Status> {
        let resource = &attributes.resource;
        if attributes.operation != Operation::Create || !attributes.subresource.is_empty() || !resource.group.is_empty()
        {
            return Ok(());
        }
        match resource.plural.as_ref() {
            "pods" => {
                let forbid = |why: String| Status::forbidden(resource, object::name(object), &why);
                let priority = self.priority(object).map_err(forbid)?;
                let runtime = self.runtime(object).map_err(forbid)?;
                set_priority(object, priority);
                if let Some(class) = runtime {
                    set_runtime(object, class.value());
                }
            }
            "persistentvolumeclaims" => self.default_storage_class(object),
            _ => {}
        }
        Ok(())
    }

    fn all(&self, store: &str) -> Vec<Arc<StoredObject>> {
        // A store that cannot be listed has no default: the object is then as its client wrote it.
        self.storage
            .list(store, &ListRequest::default())
            .map(|listed| listed.items.into_iter().map(|(_, object)| object).collect())
            .unwrap_or_default()
    }

    fn priority(&self, pod: &Value) -> Result<Priority, String> {
        let mut name = get(pod, &["spec", "priorityClassName"])
            .as_str()
            .unwrap_or("")
            .to_owned();
        let found = if name.is_empty() {
            self.all(PRIORITY_CLASSES)
                .into_iter()
                .filter(|class| get(class.value(), &["globalDefault"]) == true)
                .min_by_key(|class| get(class.value(), &["value"]).as_i64())
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
        let overhead = get(pod, &["spec", "overhead"]);
        let class = match name {
            "" => None,
            name => Some(
                self.storage
                    .get(RUNTIME_CLASSES, name)
                    .ok_or_else(|| format!("pod rejected: RuntimeClass {name:?} not found"))?,
            ),
        };
        let fixed = class
            .as_ref()
            .map_or(&Value::Null, |class| get(class.value(), &["overhead", "podFixed"]));
        if !overhead.is_null() && fixed.is_null() {
            return Err(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned(),
            );
        }
        if !overhead.is_null() && overhead != fixed {
            return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
        }
        let selector = class.as_ref().map_or(&Value::Null, |class| {
            get(class.value(), &["scheduling", "nodeSelector"])
        });
        for (key, wanted) in selector.as_object().into_iter().flatten() {
            let own = get(pod, &["spec", "nodeSelector", key]);
            if !own.is_null() && own != wanted {
                return Err(format!(
                    "pod rejected: conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    wanted.as_str().unwrap_or(""),
                    own.as_str().unwrap_or("")
                ));
            }
        }
        Ok(class)
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
        let is_default = |class: &Arc<StoredObject>| {
            [
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ]
            .iter()
            .any(|key| get(class.value(), &["metadata", "annotations", key]) == "true")
        };
        let newest = self.all(STORAGE_CLASSES).into_iter().filter(is_default).max_by(|a, b| {
            let time = |class: &StoredObject| object::text(class.value(), "creationTimestamp").to_owned();
            let name = |class: &StoredObject| object::name(class.value()).to_owned();
            time(a).cmp(&time(b)).then_with(|| name(b).cmp(&name(a)))
        });
        let Some(class) = newest else { return };
        if let Some(spec) = claim.as_object_mut().and_then(|claim| ensure(claim, "spec"))
            && absent(spec, "storageClassName")
        {
            spec.insert("storageClassName".to_owned(), object::name(class.value()).into());
        }
    }
}

/// What a PriorityClass says about a pod.
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
    let tolerations = get(class, &["scheduling", "tolerations"]).as_array();
    for toleration in tolerations.into_iter().flatten() {
        let list = spec.entry("tolerations").or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut()
            && !list.contains(toleration)
        {
            list.push(toleration.clone());
        }
    }
}

impl Admission for Classes {
    fn mutate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        _old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(std::future::ready(self.check(attributes, object)))
    }
}
