//! The garbage collector: objects go when all their owners have gone.
//!
//! Three parts: `kinds` watches the metadata of everything, `graph` holds owners and dependents and says which objects
//! to look at, and this file looks: it asks the API server for the object and its owners, and deletes, orphans or lets
//! go. It works like any controller, only that its keys are uids of any kind.
//!
//! Invariants: nothing is deleted before the API server itself has said that no owner of it exists under the uid that
//! it names; every delete and patch carries the uid and the version that it was decided for; finalizers are only taken
//! away when the watches of all kinds have delivered their lists, since before that a missing dependent proves nothing.
//! A kind that cannot be listed is told and waited for, but not for ever (`Kinds::pending`).

mod graph;
mod kinds;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use kubewright::k8s_openapi::api::core::v1::ObjectReference;
use kubewright::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kubewright::k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kubewright::kube::api::{DeleteParams, Patch, Preconditions, PropagationPolicy};
use kubewright::kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kubewright::{Client, Clock, Error, EventRecorder, EventType, Result, Scope, Stop, WorkQueue};
use serde_json::{Value, json};

use self::graph::{FOREGROUND, Graph, Node, ORPHAN};
pub use self::kinds::Given;
use self::kinds::{Kind, Kinds, ObjectEvent};

/// The component that events name as their source.
const NAME: &str = "garbage-collector-controller";
/// How many objects are looked at at the same time.
const WORKERS: usize = 8;
/// How soon the first lists of all kinds are asked for again; the pause grows with the wait, up to the last one.
const UNTIL_SYNCED: Duration = Duration::from_millis(20);
const LONGEST_UNTIL_SYNCED: Duration = Duration::from_secs(1);
/// How soon discovery is asked again after a CustomResourceDefinition changed; the pause doubles up to the last one.
const FIRST_REFRESH: Duration = Duration::from_millis(100);
/// Definitions and APIServices are watched: other new kinds come only from a server behind one of them, which gives no
/// notice.
const LAST_REFRESH: Duration = Duration::from_secs(3600);
/// In time that is a test's an hour is nothing, no such server grows a kind meanwhile, and discovery does not lag.
const LAST_VIRTUAL_REFRESH: Duration = Duration::from_secs(24 * 3600);
/// How many owners are remembered as gone. Uids never come back, so this only bounds memory.
const REMEMBERED: usize = 10_000;

/// The state that watches write and workers read.
#[derive(Default)]
struct Memory {
    graph: Mutex<Graph>,
    queue: WorkQueue<String>,
}

impl Memory {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        // Nothing under this lock can panic half way through a change.
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self, change: ObjectEvent<'_>) {
        let look = match change {
            ObjectEvent::Put(kind, object) => self.graph().put(Node::new(
                &kind.resource.api_version,
                &kind.resource.kind,
                &object.metadata,
            )),
            ObjectEvent::Gone(object) => self.graph().remove(object.metadata.uid.as_deref().unwrap_or_default()),
        };
        for uid in look {
            self.queue.add(uid);
        }
    }
}

/// Runs until it is asked to stop.
pub(crate) async fn run(client: Client, clock: Arc<dyn Clock>, given: Option<Given>, stop: Stop) -> Result<()> {
    // Its deletes are shown under its name.
    let client = client.with_field_manager(NAME);
    let memory = Arc::new(Memory::default());
    let listener = {
        let memory = memory.clone();
        Arc::new(move |change: ObjectEvent<'_>| memory.heard(change))
    };
    let kinds = Kinds::new(client.cache().clone(), listener, given);
    let is_virtual = clock.is_virtual();
    let (recorder, _writer) = EventRecorder::start(&client, clock, stop.clone());
    let collector = Collector {
        client,
        memory,
        kinds,
        recorder,
        unserved: Mutex::default(),
        gone: Mutex::default(),
        told: Mutex::default(),
    };
    let work = async { drop(join_all((0..WORKERS).map(|_| collector.work())).await) };
    tokio::select! {
        biased;
        () = stop.requested() => {}
        () = collector.learn(is_virtual) => {}
        () = work => {}
    }
    collector.memory.queue.shut_down();
    Ok(())
}

/// The state of an owner reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// It exists and keeps its dependents.
    Solid,
    /// It exists and is deleted in the foreground: it waits for its dependents to go.
    Waiting,
    /// It does not exist.
    Absent,
}

struct Collector {
    client: Client,
    memory: Arc<Memory>,
    kinds: Kinds,
    recorder: EventRecorder,
    /// Objects (uids) with an owner of a kind that is not served: looked at again when there are new kinds.
    unserved: Mutex<BTreeSet<String>>,
    /// Owners that were looked for in vain: uid and the namespace from which they were looked for.
    gone: Mutex<BTreeSet<(String, Option<String>)>>,
    /// Objects (uids) of which it was told that they wait for kinds that cannot be listed.
    told: Mutex<BTreeSet<String>>,
}

impl Collector {
    /// Keeps the kinds current: at the start, when a CustomResourceDefinition or an APIService changes and for a while
    /// after it (discovery may follow with a delay), and from time to time (the server behind an APIService may change
    /// by itself).
    async fn learn(&self, is_virtual: bool) {
        let changed = Arc::new(tokio::sync::Notify::new());
        let sources = [
            ApiResource::erase::<CustomResourceDefinition>(&()),
            ApiResource::erase::<APIService>(&()),
        ];
        let _watched = sources.each_ref().map(|resource| {
            let cache = self.client.cache();
            let informer = cache.informer_dynamic::<PartialObjectMeta<DynamicObject>>(resource, Scope::all());
            let notify = changed.clone();
            informer.add_inline_handler(move |_| notify.notify_one());
            informer
        });
        let mut pause = FIRST_REFRESH;
        loop {
            match self.kinds.refresh(&self.client).await {
                Ok(true) => self.look_at_unserved_again(),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "the garbage collector cannot learn which kinds there are; it tries again");
                    pause = FIRST_REFRESH;
                }
            }
            tokio::select! {
                biased;
                () = changed.notified() => pause = FIRST_REFRESH,
                () = tokio::time::sleep(pause) => pause = match is_virtual {
                    true => LAST_VIRTUAL_REFRESH,
                    false => (pause * 2).min(LAST_REFRESH),
                },
            }
        }
    }

    fn unserved(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.unserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_at_unserved_again(&self) {
        for uid in std::mem::take(&mut *self.unserved()) {
            self.memory.queue.add(uid);
        }
    }

    async fn work(&self) {
        let queue = &self.memory.queue;
        while let Some(item) = queue.next().await {
            let uid = item.as_str();
            match self.look(uid).await {
                Ok(again) => {
                    queue.forget(&item);
                    if let Some(delay) = again {
                        queue.add_after(item.clone(), delay);
                    }
                }
                Err(error) => {
                    if error.is_conflict() {
                        tracing::debug!(%error, uid, "changed while it was looked at; it is looked at again");
                    } else {
                        tracing::warn!(%error, uid, "garbage collection of an object failed; it is tried again");
                    }
                    queue.add_rate_limited(item.clone());
                }
            }
        }
    }

    /// Looks at one object and takes the due step; answers when to look again if nothing happens.
    async fn look(&self, uid: &str) -> Result<Option<Duration>> {
        let Some(known) = self.memory.graph().get(uid).cloned() else {
            return Ok(None);
        };
        let Some(kind) = self.kinds.get(&known.api_version, &known.kind) else {
            return Ok(None);
        };
        let item = Item {
            kind: kind.resource,
            node: known,
        };
        let Some((item, version)) = self.live(item).await? else {
            return Ok(None);
        };
        if item.node.waits_for_orphaning() {
            return self.orphan_dependents(&item, &version).await;
        }
        if item.node.waits_for_dependents() {
            return self.wait_for_dependents(&item, &version).await;
        }
        // An object that is being deleted keeps its references: they have no effect any more.
        if item.node.deleting || item.node.owners.is_empty() {
            return Ok(None);
        }
        self.collect(&item, &version).await?;
        Ok(None)
    }

    /// The object as it is now, with its version; `None` when it is gone or a namesake has its place (the watch will
    /// tell the graph).
    async fn live(&self, item: Item) -> Result<Option<(Item, String)>> {
        let Item { kind, node } = item;
        let live = self
            .client
            .live_of::<PartialObjectMeta<DynamicObject>>(&kind, node.namespace.as_deref(), &node.name)
            .await?;
        let Some(live) = live.filter(|live| live.metadata.uid.as_deref() == Some(node.uid.as_str())) else {
            return Ok(None);
        };
        let node = Node::new(&kind.api_version, &kind.kind, &live.metadata);
        Ok(Some((
            Item { kind, node },
            live.metadata.resource_version.unwrap_or_default(),
        )))
    }

    /// Deletes the object, or removes references to missing owners, or leaves it alone.
    async fn collect(&self, item: &Item, version: &str) -> Result<()> {
        self.warn_across_namespaces(&item.node);
        let (mut solid, mut waiting) = (vec![], false);
        for owner in &item.node.owners {
            if self.kinds.get(&owner.api_version, &owner.kind).is_none() {
                return self.wait_for_kind(&item.node, owner);
            }
            match self.owner(&item.node, owner).await? {
                Owner::Solid => solid.push(owner),
                Owner::Waiting => waiting = true,
                Owner::Absent => {}
            }
        }
        if !solid.is_empty() {
            if solid.len() < item.node.owners.len() {
                self.set_owners(item, version, &solid).await?;
            }
            return Ok(());
        }
        let (has_dependents, in_a_circle) = {
            let graph = self.memory.graph();
            let dependents: Vec<&Node> = graph.dependents(&item.node.uid).collect();
            (
                !dependents.is_empty(),
                dependents.iter().any(|dependent| dependent.waits_for_dependents()),
            )
        };
        if waiting && has_dependents {
            if in_a_circle {
                // Each would wait for the other for ever: this one stops holding back its owner.
                let free: Vec<OwnerReference> = item
                    .node
                    .owners
                    .iter()
                    .cloned()
                    .map(|mut owner| {
                        owner.block_owner_deletion = Some(false);
                        owner
                    })
                    .collect();
                let version = self.set_owners(item, version, &free.iter().collect::<Vec<_>>()).await?;
                return match version {
                    Some(version) => self.delete(item, &version, PropagationPolicy::Foreground).await,
                    None => Ok(()),
                };
            }
            return self.delete(item, version, PropagationPolicy::Foreground).await;
        }
        // A finalizer that is there already says how its dependents are to be treated; a policy in the request would
        // overrule it.
        let policy = if item.node.finalizers.iter().any(|finalizer| finalizer == ORPHAN) {
            PropagationPolicy::Orphan
        } else if item.node.finalizers.iter().any(|finalizer| finalizer == FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        self.delete(item, version, policy).await
    }

    /// An owner of a kind that is not served can neither be looked up nor be declared gone: the object stays as it is.
    fn wait_for_kind(&self, node: &Node, owner: &OwnerReference) -> Result<()> {
        let (kind, name) = (&node.kind, &node.name);
        tracing::info!(
            kind,
            name,
            "owner is of kind {} in {}, which is not served; kept until it is",
            owner.kind,
            owner.api_version
        );
        self.unserved().insert(node.uid.clone());
        // It may have come between the question and the note.
        if self.kinds.get(&owner.api_version, &owner.kind).is_some() {
            self.look_at_unserved_again();
        }
        Ok(())
    }

    /// Asks the API server about an owner.
    async fn owner(&self, node: &Node, owner: &OwnerReference) -> Result<Owner> {
        let seen_from = (owner.uid.clone(), node.namespace.clone());
        if self.gone().contains(&seen_from) {
            return Ok(Owner::Absent);
        }
        let Some(Kind { resource, namespaced }) = self.kinds.get(&owner.api_version, &owner.kind) else {
            return Err(Error::retry(format!(
                "kind {} in {} was served a moment ago and is not any more",
                owner.kind, owner.api_version
            )));
        };
        if namespaced && node.namespace.is_none() {
            // It cannot be looked up: which namespace is not said. Rather keep the target of a mistaken reference than
            // delete it.
            return Ok(Owner::Solid);
        }
        let namespace = node.namespace.as_deref().filter(|_| namespaced);
        let live = self
            .client
            .live_of::<PartialObjectMeta<DynamicObject>>(&resource, namespace, &owner.name)
            .await?;
        match live.filter(|live| live.metadata.uid.as_deref() == Some(owner.uid.as_str())) {
            Some(live) if Node::new("", "", &live.metadata).waits_for_dependents() => Ok(Owner::Waiting),
            Some(_) => Ok(Owner::Solid),
            None => {
                let mut gone = self.gone();
                if gone.len() >= REMEMBERED {
                    gone.clear();
                }
                gone.insert(seen_from);
                Ok(Owner::Absent)
            }
        }
    }

    fn gone(&self) -> MutexGuard<'_, BTreeSet<(String, Option<String>)>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long an object waits that may have dependents of kinds whose first list has not come. It is told when that
    /// is more than a start.
    fn wait_for_lists(&self, node: &Node) -> Option<Duration> {
        let pending = self.kinds.pending();
        let waited = pending.iter().map(|one| one.waited).max()?;
        let failed = pending
            .iter()
            .find_map(|one| Some((&one.kind.resource, one.why.as_deref()?)));
        if let Some((kind, why)) = failed {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.len() >= REMEMBERED {
                told.clear();
            }
            if told.insert(node.uid.clone()) {
                let (patience, plural, group) = (kinds::PATIENCE.as_secs(), &kind.plural, &kind.group);
                let message = format!(
                    "{plural}.{group} cannot be listed, and may be dependents: deletion waits for them up to {patience} s: {why}"
                );
                self.record(node, "DependentsUnknown", message);
            }
        }
        Some((waited / 4).clamp(UNTIL_SYNCED, LONGEST_UNTIL_SYNCED))
    }

    /// Foreground deletion: lets the object go when nothing blocks it, else has the blocking ones looked at.
    async fn wait_for_dependents(&self, item: &Item, version: &str) -> Result<Option<Duration>> {
        if let Some(wait) = self.wait_for_lists(&item.node) {
            return Ok(Some(wait));
        }
        let blocking: Vec<(String, bool)> = {
            let graph = self.memory.graph();
            graph
                .blocking(&item.node.uid)
                .map(|node| (node.uid.clone(), node.waits_for_dependents()))
                .collect()
        };
        for (uid, waits) in &blocking {
            if !waits {
                self.memory.queue.add(uid.clone());
            }
        }
        if blocking.is_empty() {
            // The other dependents are deleted first: an object without the finalizer looks like an owner that keeps
            // its dependents.
            self.collect_dependents(&item.node.uid).await?;
            self.remove_finalizer(item, version, FOREGROUND).await?;
        }
        Ok(None)
    }

    /// Looks at the dependents of an object that waits for them, here and now.
    async fn collect_dependents(&self, owner: &str) -> Result<()> {
        let dependents: Vec<Node> = {
            let graph = self.memory.graph();
            let alive = graph
                .dependents(owner)
                .filter(|node| !node.deleting && node.uid != owner);
            alive.cloned().collect()
        };
        for node in dependents {
            let Some(kind) = self.kinds.get(&node.api_version, &node.kind) else {
                continue;
            };
            let item = Item {
                kind: kind.resource,
                node,
            };
            if let Some((item, version)) = self.live(item).await?
                && !item.node.deleting
            {
                self.collect(&item, &version).await?;
            }
        }
        Ok(())
    }

    /// Orphaning: takes the references out of the dependents, then lets the object go.
    async fn orphan_dependents(&self, item: &Item, version: &str) -> Result<Option<Duration>> {
        if let Some(wait) = self.wait_for_lists(&item.node) {
            return Ok(Some(wait));
        }
        let dependents: Vec<Node> = self.memory.graph().dependents(&item.node.uid).cloned().collect();
        for dependent in dependents {
            let Some(kind) = self.kinds.get(&dependent.api_version, &dependent.kind) else {
                continue;
            };
            let dependent = Item {
                kind: kind.resource,
                node: dependent,
            };
            let Some((dependent, version)) = self.live(dependent).await? else {
                continue;
            };
            let others: Vec<&OwnerReference> = dependent
                .node
                .owners
                .iter()
                .filter(|owner| owner.uid != item.node.uid)
                .collect();
            if others.len() < dependent.node.owners.len() {
                self.set_owners(&dependent, &version, &others).await?;
            }
        }
        self.remove_finalizer(item, version, ORPHAN).await?;
        Ok(None)
    }

    async fn delete(&self, item: &Item, version: &str, policy: PropagationPolicy) -> Result<()> {
        let node = &item.node;
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions {
                uid: Some(node.uid.clone()),
                resource_version: Some(version.to_owned()),
            }),
            ..DeleteParams::default()
        };
        self.client
            .delete_dynamic(&item.kind, node.namespace.as_deref(), &node.name, params)
            .await?;
        Ok(())
    }

    /// Replaces the owner references; answers the version after it, `None` when the object is gone.
    async fn set_owners(&self, item: &Item, version: &str, owners: &[&OwnerReference]) -> Result<Option<String>> {
        let owners = if owners.is_empty() {
            Value::Null
        } else {
            serde_json::to_value(owners)?
        };
        self.patch(
            item,
            json!({ "uid": item.node.uid, "resourceVersion": version, "ownerReferences": owners }),
        )
        .await
    }

    async fn remove_finalizer(&self, item: &Item, version: &str, finalizer: &str) -> Result<()> {
        let left: Vec<&String> = item
            .node
            .finalizers
            .iter()
            .filter(|present| *present != finalizer)
            .collect();
        let left = if left.is_empty() {
            Value::Null
        } else {
            serde_json::to_value(left)?
        };
        self.patch(
            item,
            json!({ "uid": item.node.uid, "resourceVersion": version, "finalizers": left }),
        )
        .await?;
        Ok(())
    }

    async fn patch(&self, item: &Item, metadata: Value) -> Result<Option<String>> {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        match self
            .client
            .patch_dynamic(&item.kind, item.node.namespace.as_deref(), &item.node.name, &patch)
            .await
        {
            Ok(object) => Ok(object.metadata.resource_version),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn warn_across_namespaces(&self, node: &Node) {
        let messages: Vec<String> = {
            let graph = self.memory.graph();
            graph
                .across_namespaces(node)
                .map(|owner| invalid_namespace(node, owner))
                .collect()
        };
        for message in messages {
            self.record(node, "OwnerRefInvalidNamespace", message);
        }
    }

    fn record(&self, node: &Node, reason: &str, message: String) {
        let involved = ObjectReference {
            api_version: Some(node.api_version.clone()),
            kind: Some(node.kind.clone()),
            namespace: node.namespace.clone(),
            name: Some(node.name.clone()),
            uid: Some(node.uid.clone()),
            ..ObjectReference::default()
        };
        self.recorder
            .record(NAME, involved, EventType::Warning, reason, message);
    }
}

/// An object that is looked at.
struct Item {
    kind: ApiResource,
    node: Node,
}

fn invalid_namespace(node: &Node, owner: &OwnerReference) -> String {
    let namespace = node.namespace.as_deref().unwrap_or_default();
    format!(
        "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {namespace:?}",
        owner.api_version, owner.kind, owner.name, owner.uid
    )
}
