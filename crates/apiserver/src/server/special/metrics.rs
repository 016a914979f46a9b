//! PodMetrics and NodeMetrics (`metrics.k8s.io`): the usage of running pods, read from the shell's
//! [`Meter`](crate::meter::Meter) at each request. Nothing is stored.
//!
//! As metrics-server answers it (`pkg/api` there): a pod that is not running, or of which nothing is known, is left out
//! of lists and not found by name; so is a node whose kubelet has fallen silent, with its pods. The usage of a node is
//! the sum of its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kubewright_schema::protobuf::go_duration;
use kubewright_schema::quantity::{Format, Quantity};
use serde_json::{Value, json};

use crate::env::{later, rfc3339};
use crate::json::text;
use crate::meter::{Measured, Used};
use crate::model::form::key;
use crate::model::object;
use crate::model::status::{Details, Status};
use crate::model::{Resource, form};
use crate::server::Call;
use crate::server::lists::{Item, List};
use crate::server::respond::{Content, Reply};
use crate::storage::{ListRequest, StoredObject};
use crate::values::get;

const PODS: &str = "pods";
const NODES: &str = "nodes";

/// The window of a node on which nothing runs: how often metrics-server looks (`--metric-resolution`).
const RESOLUTION: Duration = Duration::from_secs(15);

/// The subject of a kind's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsOf {
    Pods,
    Nodes,
}

/// The subject of a computed kind's figures; none for any other kind.
pub(crate) fn of(resource: &Resource) -> Option<MetricsOf> {
    match (resource.group.as_ref(), resource.plural.as_ref()) {
        ("metrics.k8s.io", PODS) => Some(MetricsOf::Pods),
        ("metrics.k8s.io", NODES) => Some(MetricsOf::Nodes),
        _ => None,
    }
}

/// Where the objects are that are looked at to compute the figures of this kind; none of another kind.
pub(crate) fn looks_at(resource: &Resource) -> Option<&'static str> {
    of(resource).map(|_| PODS)
}

impl Call<'_> {
    pub(crate) fn get_metrics(&self, subject: MetricsOf) -> Result<Reply, Status> {
        let object = match subject {
            MetricsOf::Pods => self.pod_metrics()?,
            MetricsOf::Nodes => self.node_metrics()?,
        };
        let object = form::with_kind(&self.resource, object);
        Ok(Reply::new(200, Content::Object(self.resource.clone(), object)))
    }

    pub(crate) fn list_metrics(&self, subject: MetricsOf) -> Result<Reply, Status> {
        let selection = self.selection()?;
        let nodes = self.answering();
        let mut found: Vec<Value> = match subject {
            MetricsOf::Pods => {
                let chosen = self.all(PODS, self.namespace())?;
                let chosen = chosen.iter().filter(|pod| selection.matches(pod.head()));
                chosen
                    .filter_map(|pod| Some(self.of_pod(pod.value(), &self.measured(pod.value(), &nodes)?)))
                    .collect()
            }
            MetricsOf::Nodes => {
                let sums = self.sums(&nodes, None)?;
                let chosen = self.all(NODES, "")?;
                let chosen = chosen.iter().filter(|node| selection.matches(node.head()));
                chosen
                    .filter(|node| nodes.contains(object::name(node.head())))
                    .map(|node| self.of_node(node.head(), &sums))
                    .collect()
            }
        };
        let place = |one: &Value| (object::namespace(one).to_owned(), object::name(one).to_owned());
        found.sort_by_cached_key(place);
        let items = found.into_iter().map(|one| self.item(&one));
        let list = List {
            resource_version: String::new(),
            continue_token: String::new(),
            remaining: None,
            items: items.collect::<Result<_, _>>()?,
        };
        Ok(Reply::new(200, Content::List(self.resource.clone(), list)))
    }

    /// An object in the order in which Go would write it.
    fn item(&self, object: &Value) -> Result<Item, Status> {
        let ordered = kubewright_schema::protobuf::order::Ordered::new(object, self.resource.order());
        let stored = StoredObject::restore(0, Bytes::from(text(&ordered)));
        let stored = stored.map_err(|error| Status::untyped(error.to_string()))?;
        Ok(Item::Read(Arc::new(stored)))
    }

    fn pod_metrics(&self) -> Result<Value, Status> {
        let (namespace, name) = (self.namespace(), self.name());
        let pod = self.server.storage.get(PODS, &key(namespace, name));
        let pod = pod.filter(|pod| is_running(pod.value()));
        let pod = pod.ok_or_else(|| not_found("", PODS, name))?;
        let measured = self.measured(pod.value(), &self.answering());
        let unknown = || not_found("metrics.k8s.io", "podmetrics", &format!("{namespace}/{name}"));
        Ok(self.of_pod(pod.value(), &measured.ok_or_else(unknown)?))
    }

    fn node_metrics(&self) -> Result<Value, Status> {
        let name = self.name();
        let node = self.server.storage.get(NODES, name);
        let node = node.ok_or_else(|| not_found("", "node", name))?;
        if !answers(node.value()) {
            return Err(not_found("metrics.k8s.io", "nodemetrics", name));
        }
        let own = BTreeSet::from([name.to_owned()]);
        Ok(self.of_node(node.head(), &self.sums(&own, Some(name))?))
    }

    fn all(&self, store: &str, namespace: &str) -> Result<Vec<Arc<StoredObject>>, Status> {
        let request = ListRequest {
            prefix: key(namespace, ""),
            ..ListRequest::default()
        };
        let listed = self.server.storage.list(store, &request);
        let listed = listed.map_err(|error| Status::untyped(error.to_string()))?;
        Ok(listed.items.into_iter().map(|(_, object)| object).collect())
    }

    /// The names of the nodes that can be asked.
    fn answering(&self) -> BTreeSet<String> {
        let nodes = self.all(NODES, "").unwrap_or_default();
        let nodes = nodes.iter().map(|node| node.value()).filter(|node| answers(node));
        nodes.map(|node| object::name(node).to_owned()).collect()
    }

    /// The usage of a pod on one of these nodes, when it is known.
    fn measured(&self, pod: &Value, nodes: &BTreeSet<String>) -> Option<Measured> {
        let is_reached = is_running(pod) && nodes.contains(node_of(pod));
        let meter = self.server.meter.as_ref().filter(|_| is_reached)?;
        meter.pod(pod).filter(|measured| !measured.containers.is_empty())
    }

    /// The usage of these nodes, summed over their pods; `only` restricts it to one of them.
    fn sums(&self, nodes: &BTreeSet<String>, only: Option<&str>) -> Result<BTreeMap<String, Sum>, Status> {
        let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
        for pod in self.all(PODS, "")? {
            let pod = pod.value();
            if only.is_some_and(|only| only != node_of(pod)) {
                continue;
            }
            if let Some(measured) = self.measured(pod, nodes) {
                let sum = sums.entry(node_of(pod).to_owned()).or_default();
                sum.window = sum.window.max(measured.window);
                sum.ago = sum.ago.max(measured.ago);
                for used in measured.containers {
                    sum.cpu = sum.cpu.saturating_add(used.cpu);
                    sum.memory = sum.memory.saturating_add(used.memory);
                }
            }
        }
        Ok(sums)
    }

    fn of_pod(&self, pod: &Value, measured: &Measured) -> Value {
        let containers = measured.containers.iter().map(|used| {
            let Used { container, cpu, memory } = used;
            json!({"name": container, "usage": usage(*cpu, *memory)})
        });
        json!({
            "metadata": self.metadata(pod),
            "timestamp": self.time(measured.ago),
            "window": window(measured.window),
            "containers": containers.collect::<Vec<_>>(),
        })
    }

    fn of_node(&self, node: &Value, sums: &BTreeMap<String, Sum>) -> Value {
        let sum = sums.get(object::name(node)).copied().unwrap_or_default();
        let of = if sum.window.is_zero() { RESOLUTION } else { sum.window };
        json!({
            "metadata": self.metadata(node),
            "timestamp": self.time(sum.ago),
            "window": window(of),
            "usage": usage(sum.cpu, sum.memory),
        })
    }

    fn time(&self, ago: Duration) -> String {
        let seconds = i64::try_from(ago.as_secs()).unwrap_or(i64::MAX);
        rfc3339(later(self.server.env.now(), seconds.saturating_neg()))
    }

    /// The name and the labels of the object that is measured, as if it was made now.
    fn metadata(&self, object: &Value) -> Value {
        let mut metadata = json!({"name": object::name(object), "creationTimestamp": rfc3339(self.server.env.now())});
        let namespace = object::namespace(object);
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        let labels = get(object, &["metadata", "labels"]);
        if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
            metadata["labels"] = labels.clone();
        }
        metadata
    }
}

/// The usage of a node's pods.
#[derive(Clone, Copy, Default)]
struct Sum {
    window: Duration,
    ago: Duration,
    cpu: u64,
    memory: u64,
}

fn is_running(pod: &Value) -> bool {
    get(pod, &["status", "phase"]) == "Running"
}

fn node_of(pod: &Value) -> &str {
    get(pod, &["spec", "nodeName"]).as_str().unwrap_or("")
}

/// Whether a kubelet is heard of.
fn answers(node: &Value) -> bool {
    let mut conditions = get(node, &["status", "conditions"]).as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] != "Unknown")
}

fn usage(cpu: u64, memory: u64) -> Value {
    let cpu = Quantity::new(cpu.into(), -9, Format::DecimalSi);
    let memory = Quantity::new(memory.into(), 0, Format::BinarySi);
    json!({"cpu": cpu.to_string(), "memory": memory.to_string()})
}

fn window(length: Duration) -> String {
    go_duration(i64::try_from(length.as_nanos()).unwrap_or(i64::MAX))
}

/// 404 in the words of a lister of metrics-server.
fn not_found(group: &str, kind: &str, name: &str) -> Status {
    let resource = match group {
        "" => kind.to_owned(),
        group => format!("{kind}.{group}"),
    };
    let details = Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        ..Details::default()
    };
    Status::failure(404, "NotFound", format!("{resource} {name:?} not found")).with_details(details)
}

#[cfg(test)]
mod tests;
