//! What the operators of the corpus have in common, as the libraries of real operators do: children, sets of members
//! with volumes, finalizers.
//!
//! Nothing here is a bug of the corpus, and all of it holds under faults: an object is replaced under the lock of the
//! state that was read, and deleted by its uid. What destroys data asks the API server first. An operator of the corpus
//! that forgets its leave does so in its own file.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kubewright::kube::api::ListParams;
use kubewright::kube::core::Selector;
use kubewright::prelude::*;
use serde_json::{Value, json};

/// The version of all kinds of the corpus.
pub(crate) const VERSION: &str = "example.com/v1";
/// While something is left that no event tells of.
pub(crate) const SOON: Duration = Duration::from_secs(2);

/// Namespace and name.
pub(crate) fn key<K: Object>(object: &K) -> (Option<&str>, &str) {
    let meta = object.meta();
    (meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

/// A child that nobody owns: it outlives its parent unless the operator deletes it.
pub(crate) fn left_behind<K: Object>(parent: &impl Object, name: &str, body: Value) -> K {
    let mut child: K = serde_json::from_value(body).expect("an object of this kind");
    let (namespace, app) = key(parent);
    let meta = child.meta_mut();
    meta.name = Some(name.to_owned());
    meta.namespace = namespace.map(str::to_owned);
    let labels = meta.labels.get_or_insert_default();
    labels.insert("app".to_owned(), app.to_owned());
    child
}

/// A child that goes with its owner.
pub(crate) fn child<K: Object>(owner: &impl Object, name: &str, body: Value) -> K {
    let mut child = left_behind::<K>(owner, name, body);
    child.meta_mut().owner_references = owner.controller_owner_ref(&()).map(|owner| vec![owner]);
    child
}

/// Creates a child that is not there, and puts right what differs from what is wanted.
pub(crate) async fn ensure<K: Object>(client: &Client, wanted: K) -> Result<Arc<K>> {
    let (namespace, name) = key(&wanted);
    let Some(found) = client.get::<K>(namespace, name).await? else {
        return client.create(&wanted).await;
    };
    if controller(&*found) != controller(&wanted) {
        return Err(Error::retry(format!("{name} belongs to another, or to a former owner")));
    }
    let before = serde_json::to_value(&*found)?;
    let mut after = before.clone();
    merge(&mut after, serde_json::to_value(&wanted)?);
    if after == before {
        return Ok(found);
    }
    client.update(&serde_json::from_value::<K>(after)?).await
}

fn controller<K: Object>(object: &K) -> Option<&str> {
    let mut owners = object.meta().owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    controller.map(|owner| owner.uid.as_str())
}

/// Sets the fields that are wanted, and leaves the others: they are defaults of the API server, or somebody else's. The
/// data of a ConfigMap or a Secret are wanted as a whole, and the items of lists belong together by their names.
fn merge(into: &mut Value, wanted: Value) {
    match (into, wanted) {
        (Value::Object(into), Value::Object(wanted)) => {
            for (name, wanted) in wanted {
                match into.get_mut(&name) {
                    Some(present) if name != "data" => merge(present, wanted),
                    _ => drop(into.insert(name, wanted)),
                }
            }
        }
        (Value::Array(into), Value::Array(wanted)) if wanted.iter().all(|item| item["name"].is_string()) => {
            for wanted in wanted {
                match into.iter_mut().find(|present| present["name"] == wanted["name"]) {
                    Some(present) => merge(present, wanted),
                    None => into.push(wanted),
                }
            }
        }
        (Value::Array(into), Value::Array(wanted)) if into.len() == wanted.len() => {
            for (present, wanted) in into.iter_mut().zip(wanted) {
                merge(present, wanted);
            }
        }
        (into, wanted) => *into = wanted,
    }
}

/// Who takes the volumes of a set's members away.
pub(crate) enum Volumes {
    /// They have none.
    None,
    /// The garbage collector, with the owner.
    Owned,
    /// The operator, or nobody.
    Kept,
}

/// A StatefulSet that has the name of its owner, or that with a suffix.
pub(crate) fn set(owner: &impl Object, suffix: &str, replicas: i32, image: &str, volumes: Volumes) -> StatefulSet {
    let (_, app) = key(owner);
    let name = format!("{app}{suffix}");
    let labels = json!({ "app": app, "set": name });
    let mut claim = json!({ "metadata": { "name": "data" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    // No controller: the StatefulSet, too, owns claims as its retention policy says.
    let owners = owner.owner_ref(&()).map(|owner| vec![owner]);
    let claims = match volumes {
        Volumes::None => json!([]),
        Volumes::Kept => json!([claim]),
        Volumes::Owned => {
            claim["metadata"]["ownerReferences"] = json!(owners);
            json!([claim])
        }
    };
    let spec = json!({
        "replicas": replicas, "serviceName": name, "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main", "image": image }] } },
    });
    let mut set: StatefulSet = child(owner, &name, json!({ "spec": spec }));
    let claims: Vec<PersistentVolumeClaim> = serde_json::from_value(claims).expect("claims");
    if let Some(spec) = &mut set.spec {
        spec.volume_claim_templates = Some(claims).filter(|claims| !claims.is_empty());
    }
    set
}

/// The number of members that a set is to have.
pub(crate) fn replicas(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The number of members of a set that are ready.
pub(crate) fn ready(set: &StatefulSet) -> i32 {
    let status = set.status.as_ref();
    status.and_then(|status| status.ready_replicas).unwrap_or(0)
}

/// The number of the member that a Pod or a claim belongs to.
pub(crate) fn ordinal<K: Object>(object: &K) -> i32 {
    let (_, name) = key(object);
    let last = name.rsplit('-').next();
    last.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Whether somebody has deleted it.
pub(crate) fn is_going<K: Object>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Whether a Pod has ended and will not run again.
pub(crate) fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Wakes the parent of whatever carries its label.
pub(crate) fn of_app<K: Object>(object: &K) -> Vec<Request> {
    let labels = object.meta().labels.iter().flatten();
    let apps = labels.filter(|(key, _)| *key == "app");
    apps.map(|(_, app)| Request::new(object.meta().namespace.as_deref(), app))
        .collect()
}

/// The objects of a parent, as the cache has them.
pub(crate) async fn cached<K: Object>(client: &Client, parent: &impl Object) -> Result<Vec<Arc<K>>> {
    let (namespace, app) = key(parent);
    client
        .list_matching::<K>(namespace, &Selector::from_iter([("app".to_owned(), app.to_owned())]))
        .await
}

/// The objects of a parent, as the API server has them now.
pub(crate) async fn live<K: Object>(client: &Client, parent: &impl Object) -> Result<Vec<Arc<K>>> {
    let (namespace, app) = key(parent);
    let labels = ListParams::default().labels(&format!("app={app}"));
    client.list_live::<K>(namespace, &labels).await
}

/// Whether the object is still the one that the API server has, and its deletion is as far as it seems.
pub(crate) async fn is_current<K: Object>(client: &Client, object: &K) -> Result<bool> {
    let (namespace, name) = key(object);
    let live = client.live::<K>(namespace, name).await?;
    Ok(live.is_some_and(|live| live.meta().uid == object.meta().uid && is_going(&live) == is_going(object)))
}

/// Deletes the claims of members that are gone for good; whether some are left for later. The API server says whether
/// they are: a claim that its member will use again holds data.
pub(crate) async fn prune(client: &Client, parent: &impl Object, wanted: i32) -> Result<bool> {
    let surplus = cached::<PersistentVolumeClaim>(client, parent).await?;
    if !surplus.iter().any(|claim| ordinal(&**claim) >= wanted) {
        return Ok(false);
    }
    let (namespace, name) = key(parent);
    let Some(set) = client.live::<StatefulSet>(namespace, name).await? else {
        return Ok(true);
    };
    let mut left = false;
    for claim in live::<PersistentVolumeClaim>(client, parent).await? {
        let ordinal = ordinal(&*claim);
        if ordinal < wanted || is_going(&*claim) {
            continue;
        }
        let member = client.live::<Pod>(namespace, &format!("{name}-{ordinal}")).await?;
        if ordinal < replicas(&set) || member.is_some() {
            left = true;
        } else {
            client.delete(&*claim).await?;
        }
    }
    Ok(left)
}

/// Takes the set of a parent away, then its members, then their claims; whether nothing is left. Each step asks the API
/// server, also whether it is this parent that is being deleted and not a former one of the same name.
pub(crate) async fn tear_down<K: Object>(client: &Client, parent: &K) -> Result<bool> {
    if !is_current(client, parent).await? {
        return Err(Error::retry("what the cache shows is past"));
    }
    let (namespace, name) = key(parent);
    if let Some(set) = client.live::<StatefulSet>(namespace, name).await? {
        if !is_going(&set) {
            client.delete(&set).await?;
        }
        return Ok(false);
    }
    if !live::<Pod>(client, parent).await?.is_empty() {
        return Ok(false);
    }
    let claims = live::<PersistentVolumeClaim>(client, parent).await?;
    for claim in claims.iter().filter(|claim| !is_going(&***claim)) {
        client.delete(&**claim).await?;
    }
    Ok(claims.is_empty())
}

const FINALIZER: &str = "example.com/cleanup";

/// Whether it waits for our cleanup.
pub(crate) fn is_held<K: Object>(object: &K) -> bool {
    let finalizers = object.meta().finalizers.iter().flatten();
    finalizers.into_iter().any(|finalizer| finalizer == FINALIZER)
}

/// Adds our finalizer.
pub(crate) async fn hold<K: Object>(client: &Client, object: &K) -> Result<Arc<K>> {
    let mut held = object.clone();
    let finalizers = held.meta_mut().finalizers.get_or_insert_default();
    finalizers.push(FINALIZER.to_owned());
    client.update(&held).await
}

/// Takes our finalizer away, and with it the object.
pub(crate) async fn release<K: Object>(client: &Client, object: &K) -> Result<()> {
    let mut released = object.clone();
    let finalizers = released.meta_mut().finalizers.get_or_insert_default();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    match client.update(&released).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
