//! The contents of a cluster, in a form that is equal for runs that did the same.
//!
//! Left out: uids, revisions, times, owners of fields, values that the server or a simulated node numbers by itself
//! (addresses, ids of containers), and the end of generated names. Everything else counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_cluster::ApiServer;
use serde_json::Value;

use super::log::Named;
use super::seam::TOUCHED;
use super::seam::request::LOCK;
use crate::cluster::TestCluster;

/// Kinds that are no part of the state: events and heartbeats.
const LEFT_OUT: [&str; 2] = ["events", "leases"];

/// All objects of a cluster, without what differs between any two runs; see [`TestCluster::snapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By the names of their stores, sorted by their texts.
    stores: BTreeMap<String, Arc<Vec<Object>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Object {
    pub(super) text: Arc<str>,
    pub(super) named: Named,
}

impl Snapshot {
    /// How many objects each store has.
    pub(crate) fn sizes(&self) -> BTreeMap<String, usize> {
        let stores = self.stores.iter();
        stores.map(|(store, objects)| (store.clone(), objects.len())).collect()
    }
}

impl TestCluster {
    /// All objects of the cluster but events and Leases, in a form that is equal for runs that did the same: without
    /// uids, revisions, times, owners of fields, addresses, and the end of generated names. What the API server makes up
    /// when it is asked, such as the usage of pods, is none of them.
    pub fn snapshot(&self) -> Snapshot {
        Reader::default().read(self)
    }
}

/// Reads snapshots of one cluster. An object that did not change is read once.
#[derive(Clone, Debug, Default)]
pub(super) struct Reader {
    /// Without what counts how often something was written, and without what is kept of former states: an operator that
    /// needed one write more is none the worse.
    is_lenient: bool,
    stores: BTreeMap<String, Store>,
    /// What replaces the generated names that were seen.
    names: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
struct Store {
    /// The server's count of its changes.
    changes: u64,
    /// By key, with the revision.
    objects: BTreeMap<Arc<str>, (u64, Object)>,
    sorted: Arc<Vec<Object>>,
}

impl Reader {
    pub(super) fn lenient() -> Reader {
        Reader {
            is_lenient: true,
            ..Reader::default()
        }
    }

    /// The server's count of the changes of a store when it was read last.
    pub(super) fn changes(&self, store: &str) -> u64 {
        self.stores.get(store).map_or(0, |store| store.changes)
    }

    pub(super) fn read(&mut self, cluster: &TestCluster) -> Snapshot {
        let api = cluster.cluster().api();
        let stored = stores(api);
        let mut changed = Vec::new();
        for (store, kind) in &stored {
            let changes = api.changes(store);
            let tells_of_the_way: Option<fn(&Value) -> bool> = match kind.as_str() {
                "PersistentVolume" => Some(is_made_for_a_claim),
                "ReplicaSet" | "ControllerRevision" => Some(is_of_a_former_rollout),
                "ConfigMap" => Some(|object| is_lock(object) || is_of_the_server(object)),
                "Endpoints" => Some(|object| is_lock(object) || is_of_the_server(object)),
                "EndpointSlice" => Some(is_of_the_server),
                _ => None,
            };
            let tells_of_the_way = tells_of_the_way.filter(|_| self.is_lenient);
            if self.stores.get(store).is_some_and(|known| known.changes == changes) {
                continue;
            }
            let known = self.stores.remove(store).map(|store| store.objects).unwrap_or_default();
            let mut same = BTreeMap::new();
            let mut new = Vec::new();
            for (key, entry) in api.entries(store) {
                if tells_of_the_way.is_some_and(|tells| tells(entry.object().value())) {
                    continue;
                }
                match known.get(&key) {
                    Some(object) if object.0 == entry.revision() => {
                        same.insert(key, object.clone());
                    }
                    _ => {
                        let mut object = entry.object().value().clone();
                        object["kind"] = Value::from(kind.clone());
                        self.names.extend(generated(&object));
                        new.push((key, entry.revision(), object));
                    }
                }
            }
            changed.push((store.clone(), changes, same, new));
        }
        // All names are known before the first is replaced.
        for (store, changes, mut objects, new) in changed {
            for (key, revision, object) in new {
                objects.insert(key, (revision, self.object(&store, object)));
            }
            let mut sorted: Vec<Object> = objects.values().map(|(_, object)| object.clone()).collect();
            sorted.sort();
            let sorted = Arc::new(sorted);
            self.stores.insert(
                store,
                Store {
                    changes,
                    objects,
                    sorted,
                },
            );
        }
        self.stores.retain(|store, _| stored.contains_key(store));
        let stores = self.stores.iter().filter(|(_, store)| !store.sorted.is_empty());
        Snapshot {
            stores: stores
                .map(|(name, store)| (name.clone(), store.sorted.clone()))
                .collect(),
        }
    }

    fn object(&self, store: &str, mut object: Value) -> Object {
        if object["kind"] == "Secret" {
            keys_only(&mut object["data"]);
        }
        if self.is_lenient {
            uncounted(&mut object);
        }
        plain(&mut object, &self.names);
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let named = (store.to_owned(), text("namespace"), text("name"));
        Object {
            text: object.to_string().into(),
            named,
        }
    }
}

/// The stores of a server, each with the kind of its objects; the versions of a kind share theirs.
pub(super) fn stores(api: &ApiServer) -> BTreeMap<String, String> {
    let rows = api.kinds().resources();
    let rows = rows.iter().filter(|row| !LEFT_OUT.contains(&&*row.plural));
    rows.map(|row| (row.store.to_string(), row.kind.to_string())).collect()
}

impl Snapshot {
    pub(super) fn all(&self) -> impl Iterator<Item = &Object> {
        self.stores.values().flat_map(|store| store.iter())
    }

    /// The snapshot with these objects.
    pub(super) fn of(objects: impl IntoIterator<Item = Object>) -> Snapshot {
        let mut stores: BTreeMap<String, Vec<Object>> = BTreeMap::new();
        for object in objects {
            stores.entry(object.named.0.clone()).or_default().push(object);
        }
        let sorted = |(store, mut objects): (String, Vec<Object>)| {
            objects.sort();
            (store, Arc::new(objects))
        };
        Snapshot {
            stores: stores.into_iter().map(sorted).collect(),
        }
    }

    /// The objects as JSON texts, by kind, sorted.
    pub fn objects(&self) -> impl Iterator<Item = &str> {
        self.all().map(|object| &*object.text)
    }

    /// The objects that only one of two snapshots has: a line for each, `-1` what is missing in `found`, `+1` what is
    /// more there; empty when they are equal.
    #[must_use]
    pub fn differences(&self, found: &Snapshot) -> String {
        let mut count: BTreeMap<&str, i64> = BTreeMap::new();
        for text in self.objects() {
            *count.entry(text).or_default() -= 1;
        }
        for text in found.objects() {
            *count.entry(text).or_default() += 1;
        }
        let differing = count.into_iter().filter(|(_, count)| *count != 0);
        differing.map(|(text, count)| format!("{count:+} {text}\n")).collect()
    }

    /// The objects that are there. Those whose names were made up alike are numbered.
    pub(super) fn names(&self) -> BTreeSet<(&Named, usize)> {
        let mut names = BTreeSet::new();
        for Object { named, .. } in self.all() {
            let number = (1..).find(|number| !names.contains(&(named, *number)));
            names.extend(number.map(|number| (named, number)));
        }
        names
    }

    /// Whether each object is as in one of these two, and none is missing that both have.
    pub(super) fn consists_of(&self, one: &Snapshot, other: &Snapshot) -> bool {
        let by_name = |snapshot: &Snapshot| {
            let mut all: BTreeMap<Named, Vec<Arc<str>>> = BTreeMap::new();
            for Object { text, named } in snapshot.all() {
                all.entry(named.clone()).or_default().push(text.clone());
            }
            all
        };
        let [found, one, other] = [self, one, other].map(by_name);
        let mut names = found.keys().chain(one.keys()).chain(other.keys());
        names.all(|named| {
            let found = found.get(named);
            found == one.get(named) || found == other.get(named)
        })
    }

    /// Whether there is an object of this name.
    pub(super) fn has(&self, named: &Named) -> bool {
        self.text(named).is_some()
    }

    /// The text of an object.
    pub(super) fn text(&self, of: &Named) -> Option<&str> {
        let found = self.stores.get(&of.0)?.iter().find(|object| object.named == *of);
        found.map(|object| &*object.text)
    }
}

/// Volumes that were made for claims are kept when these go; how many there are tells of the way.
fn is_made_for_a_claim(volume: &Value) -> bool {
    let name = volume["metadata"]["name"].as_str();
    name.is_some_and(|name| name.starts_with("pvc-"))
}

/// A lock of an election, which is renewed all the time.
fn is_lock(object: &Value) -> bool {
    object["metadata"]["annotations"][LOCK].is_string()
}

/// The address of the API server, which is another one in each cluster, and how those behind it know its users: both
/// are there when it is first reached by its address.
fn is_of_the_server(object: &Value) -> bool {
    [
        ("default", "kubernetes"),
        ("kube-system", "extension-apiserver-authentication"),
    ]
    .iter()
    .any(|(namespace, name)| object["metadata"]["namespace"] == *namespace && object["metadata"]["name"] == *name)
}

/// What a controller keeps in order to roll back: a ReplicaSet without pods, a ControllerRevision. It is not made again
/// when somebody deletes it or its owner.
fn is_of_a_former_rollout(object: &Value) -> bool {
    let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let is_empty = object["spec"]["replicas"].as_u64().is_none_or(|replicas| replicas == 0);
    is_empty && owners.any(|owner| owner["controller"] == true)
}

/// Removes what counts writes, and what the intruder left.
fn uncounted(object: &mut Value) {
    let generation = object["metadata"]["generation"].clone();
    if let Some(observed) = object.pointer_mut("/status/observedGeneration") {
        // Whether it is the present one does not depend on their number.
        *observed = Value::from(*observed == generation);
    }
    for conditions in object
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(observed) = conditions.get_mut("observedGeneration") {
            *observed = Value::from(*observed == generation);
        }
        if let Some(Value::String(message)) = conditions.get_mut("message") {
            *message = without_made_up_names(message);
        }
    }
    // A rollout that is stuck is said to make progress for ten minutes, however it came to be stuck.
    if object["kind"] == "Deployment"
        && let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut)
    {
        conditions.retain(|condition| condition["type"] != "Progressing");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("generation");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(TOUCHED);
            annotations.remove("deployment.kubernetes.io/revision");
            annotations.remove("deployment.kubernetes.io/revision-history");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
}

/// A message without the ends of made-up names in quotes: `pods "web-m5w4s" is forbidden` tells of an object that never
/// came to be, and whose name the next try does not have.
fn without_made_up_names(message: &str) -> String {
    /// What `rand.String` of k8s.io/apimachinery draws from, and how many letters of it.
    const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";
    let plain = |(at, part): (usize, &str)| match part.rsplit_once('-') {
        Some((stem, end)) if at % 2 == 1 && end.len() == 5 && end.chars().all(|letter| LETTERS.contains(letter)) => {
            format!("{stem}-*")
        }
        _ => part.to_owned(),
    };
    let parts: Vec<String> = message.split('"').enumerate().map(plain).collect();
    parts.join("\"")
}

/// The name of an object whose end the server made up, and its replacement.
fn generated(object: &Value) -> Option<(String, String)> {
    let (name, stem) = (
        object["metadata"]["name"].as_str()?,
        object["metadata"]["generateName"].as_str()?,
    );
    Some((name.to_owned(), format!("{stem}*")))
}

/// Tokens and certificates are of the run; that they are there is not.
fn keys_only(data: &mut Value) {
    for value in data.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
        *value = Value::Null;
    }
}

/// Removes, or replaces with a word, the values that differ between any two runs.
fn plain(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for key in [
                "uid",
                "resourceVersion",
                "managedFields",
                "containerID",
                "clusterIP",
                "clusterIPs",
                // A controller that ends loses these times in Kubernetes as well: it remembers, or writes them after
                // the change itself.
                "lastScaleTime",
                "endpoints.kubernetes.io/last-change-trigger-time",
            ] {
                fields.remove(key);
            }
            // Of a slice it counts writes, and how many pods come together in one is a matter of chance.
            if fields.contains_key("addressType")
                && let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut)
            {
                metadata.remove("generation");
            }
            for field in fields.values_mut() {
                plain(field, names);
            }
            fields.retain(|key, value| key != "annotations" || *value != Value::Object(serde_json::Map::new()));
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                plain(item, names);
            }
            // Of equal pods the one that comes first is a matter of chance.
            if items.iter().all(Value::is_object) {
                items.sort_by_key(Value::to_string);
            }
        }
        Value::String(text) => {
            if let Some(name) = names.get(text) {
                text.clone_from(name);
            } else if let Some(word) = word(text) {
                word.clone_into(text);
            }
        }
        _ => {}
    }
}

fn word(text: &str) -> Option<&'static str> {
    // The name of a volume that was made for a claim, also at the end of its path.
    let of_volume = text.rsplit('/').next().and_then(|name| name.strip_prefix("pvc-"));
    let bare = of_volume.unwrap_or(text);
    let is_uid = bare.len() == 36 && bare.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    match text {
        _ if text.parse::<Timestamp>().is_ok() => Some("<time>"),
        _ if text.parse::<std::net::IpAddr>().is_ok() => Some("<address>"),
        _ if is_uid && of_volume.is_some() => Some("pvc-<uid>"),
        _ if is_uid => Some("<uid>"),
        _ if text.starts_with("kube-api-access-") => Some("kube-api-access-*"),
        _ if text.starts_with("-----BEGIN CERTIFICATE-----") => Some("<certificate>"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_has_is_a_matter_of_chance() {
        let check = |message: &str, plain: &str| assert_eq!(without_made_up_names(message), plain);
        check(r#"pods "web-m5w4s" is forbidden"#, r#"pods "web-*" is forbidden"#);
        check(r#"pods "web-shard" is forbidden"#, r#"pods "web-shard" is forbidden"#);
        check("web-m5w4s is forbidden", "web-m5w4s is forbidden");
        check(r#"an end of "web"#, r#"an end of "web"#);
    }
}
