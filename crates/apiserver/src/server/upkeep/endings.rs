//! A definition that is deleted goes a moment after the answer: first it says that its objects are being deleted
//! (`InstanceDeletionInProgress`), then it goes with them. Upstream a controller does that (`crdfinalizer`), so a
//! client that deletes a definition and watches it afterwards sees both; if the definition were gone at once, the
//! client would wait for an event that never comes.
//!
//! The shell polls [`ApiServer::end_definitions`]. Without that, definitions end within the request that deletes them.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::definitions::{STORE, waits_for_its_end};
use crate::env::BoxFuture;
use crate::server::ApiServer;
use crate::server::Inner;
use crate::storage::{ChangeStream, Delivery, StoredObject};

/// How long each step takes: time enough to open a watch, too short to wait for.
const STEP: Duration = Duration::from_millis(50);

/// Whether a worker ends definitions: a running [`ApiServer::end_definitions`].
#[derive(Default)]
pub(crate) struct WorkerState(AtomicBool);

impl WorkerState {
    pub(crate) fn is_running(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The worker runs until this is dropped.
struct RunningWorker<'a>(&'a WorkerState);

impl<'a> RunningWorker<'a> {
    fn begin(state: &'a WorkerState) -> RunningWorker<'a> {
        state.0.store(true, Ordering::Release);
        RunningWorker(state)
    }
}

impl Drop for RunningWorker<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl ApiServer {
    /// Ends definitions that are deleted, until the server is shut down.
    pub async fn end_definitions(&self) {
        let inner = &*self.inner;
        let _running = RunningWorker::begin(&inner.endings);
        while Endings::start(inner).run().await {}
    }
}

/// Definitions on their way out.
struct Endings<'a> {
    inner: &'a Inner,
    changes: Box<dyn ChangeStream>,
    under_way: FuturesUnordered<BoxFuture<'a, Arc<str>>>,
    names: BTreeSet<Arc<str>>,
}

impl<'a> Endings<'a> {
    fn start(inner: &'a Inner) -> Endings<'a> {
        let (listed, changes) = inner.storage.list_and_watch(STORE, "");
        let mut endings = Endings {
            inner,
            changes,
            under_way: FuturesUnordered::new(),
            names: BTreeSet::new(),
        };
        for (key, definition) in &listed.items {
            endings.look_at(key, definition);
        }
        endings
    }

    fn look_at(&mut self, key: &Arc<str>, definition: &StoredObject) {
        if !waits_for_its_end(definition) || !self.names.insert(key.clone()) {
            return;
        }
        let (inner, name) = (self.inner, key.clone());
        self.under_way.push(Box::pin(async move {
            inner.env.sleep(STEP).await;
            inner.begin_ending(&name);
            inner.env.sleep(STEP).await;
            inner.end_definition(&name);
            name
        }));
    }

    /// Whether it is to be started again: changes were lost.
    async fn run(mut self) -> bool {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.changes.poll_next(cx) {
                Poll::Ready(Delivery::Change(change)) if change.deleted => {}
                Poll::Ready(Delivery::Change(change)) => self.look_at(&change.key, &change.after),
                Poll::Ready(Delivery::Overrun) => return Poll::Ready(true),
                Poll::Ready(Delivery::Closed) => return Poll::Ready(false),
                Poll::Pending => break,
            }
        }
        while let Poll::Ready(Some(name)) = self.under_way.poll_next_unpin(cx) {
            self.names.remove(&name);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use serde_json::{Value, json};

    use super::*;
    use crate::server::tests::World;

    const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

    fn definition() -> Value {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({"metadata": {"name": "foos.ex.io"}, "spec": {"group": "ex.io", "scope": "Cluster",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
    }

    #[test]
    fn an_object_that_came_after_the_end_of_its_definition_does_not_stay() {
        let world = World::new();
        assert_eq!(world.call(&format!("POST {CRDS}"), &definition()).code, 201);
        let resource = world.api.inner.registry.lookup("ex.io", "v1", "foos").expect("served");
        assert_eq!(world.call(&format!("DELETE {CRDS}/foos.ex.io"), &Value::Null).code, 200);
        // The last steps of a create that was let in before.
        let late = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "late", "uid": "1",
            "finalizers": ["ex.io/held"]}});
        let inner = &world.api.inner;
        let stored = inner.storage.create("foos.ex.io", "late", late).expect("it is new");
        inner.after_create(&resource, &stored);
        assert!(inner.storage.is_empty("foos.ex.io"));
    }

    /// Otherwise the end of such a definition would delete the objects of the built-in kind.
    #[test]
    fn a_definition_cannot_take_the_objects_of_a_built_in_kind() {
        let world = World::new();
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
        assert_eq!(world.call(&format!("POST {leases}"), &lease).code, 201);
        let mut definition = definition();
        definition["metadata"] = json!({"name": "leases.coordination.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}});
        definition["spec"]["group"] = json!("coordination.k8s.io");
        definition["spec"]["names"] = json!({"plural": "leases", "kind": "Lease"});
        definition["spec"]["versions"][0]["name"] = json!("v9");
        assert_eq!(world.call(&format!("POST {CRDS}"), &definition).code, 201);
        let path = format!("{CRDS}/leases.coordination.k8s.io");
        let made = world.call(&format!("GET {path}"), &Value::Null).body;
        assert_eq!(made["status"]["conditions"][0]["type"], "NamesAccepted");
        assert_eq!(made["status"]["conditions"][0]["status"], "False");
        let served = world.call("GET /apis/coordination.k8s.io/v9/leases", &Value::Null);
        assert_eq!(served.code, 404);
        assert_eq!(world.call(&format!("DELETE {path}"), &Value::Null).code, 200);
        assert_eq!(world.call(&format!("GET {leases}/a"), &Value::Null).code, 200);
    }

    #[test]
    fn a_deleted_definition_says_so_before_it_goes() {
        let world = World::new();
        let mut cx = Context::from_waker(Waker::noop());
        let api = world.api.clone();
        let mut ending = pin!(api.end_definitions());
        assert!(ending.as_mut().poll(&mut cx).is_pending());
        assert_eq!(world.call(&format!("POST {CRDS}"), &definition()).code, 201);
        let object = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"}});
        assert_eq!(world.call("POST /apis/ex.io/v1/foos", &object).code, 201);
        let deleted = world.call(&format!("DELETE {CRDS}/foos.ex.io"), &Value::Null);
        let reason = |answer: &Value| {
            let conditions = answer["status"]["conditions"].as_array().into_iter().flatten();
            let terminating = conditions.filter(|condition| condition["type"] == "Terminating");
            terminating.map(|condition| condition["reason"].clone()).next_back()
        };
        assert_eq!(reason(&deleted.body), Some(json!("InstanceDeletionPending")));
        let mut check = |expected: Option<&str>, objects: u16| {
            assert!(ending.as_mut().poll(&mut cx).is_pending());
            let definition = world.call(&format!("GET {CRDS}/foos.ex.io"), &Value::Null);
            assert_eq!(reason(&definition.body), expected.map(|reason| json!(reason)));
            assert_eq!(world.call("GET /apis/ex.io/v1/foos/a", &Value::Null).code, objects);
            world.advance(STEP);
        };
        check(Some("InstanceDeletionPending"), 200);
        check(Some("InstanceDeletionInProgress"), 200);
        check(None, 404);
        world.api.shutdown();
        assert!(ending.as_mut().poll(&mut cx).is_ready());
    }
}
