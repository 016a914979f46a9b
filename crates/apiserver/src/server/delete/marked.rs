//! Between the mark of an object and its end, where one delete brings both: a pod that no node has.
//!
//! kube-apiserver makes two writes of it, and etcd takes a millisecond for the second. Controllers whose cache has seen
//! the first find the object there, marked, and act on it. Here a watch would see the two as one, so watches are given
//! a moment ([`Env::moment`](crate::env::Env::moment)).
//!
//! Invariant: an object that was marked so is removed, even when the client of the delete goes away meanwhile.

use std::sync::Arc;

use kubewright_schema::budget;

use crate::model::{Resource, object};
use crate::server::Inner;
use crate::storage::{StorageError, StoredObject};

/// An object that has been marked, and ends with this at the latest.
pub(super) struct Marked<'a> {
    pub(super) server: &'a Inner,
    pub(super) resource: &'a Arc<Resource>,
    pub(super) key: &'a str,
    /// Its state with the mark; none when it has ended.
    pub(super) last: Option<Arc<StoredObject>>,
}

impl Marked<'_> {
    /// Its last state, when it has ended, and watches have had a moment to see the mark.
    pub(super) async fn end_in_a_moment(self) -> Result<Arc<StoredObject>, StorageError> {
        self.server.env.moment().await;
        self.end_now()
    }

    /// Its last state, when it has ended.
    pub(super) fn end_now(mut self) -> Result<Arc<StoredObject>, StorageError> {
        let marked = self.last.take();
        marked.map_or_else(
            || Err(StorageError::NotFound(self.key.to_owned())),
            |marked| self.end(marked),
        )
    }

    fn end(&self, marked: Arc<StoredObject>) -> Result<Arc<StoredObject>, StorageError> {
        let (storage, store) = (&self.server.storage, &self.resource.store);
        budget::commit(|| {
            loop {
                // Another client may have removed it, and created another of the same name.
                let uid = object::uid(marked.head());
                let present = storage.get(store, self.key);
                let Some(present) = present.filter(|present| object::uid(present.head()) == uid) else {
                    return Ok(marked);
                };
                match storage.delete(store, self.key, present.revision()) {
                    Ok(gone) => {
                        self.server.after_delete(self.resource, &gone);
                        return Ok(gone);
                    }
                    Err(StorageError::Conflict { .. } | StorageError::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        })
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        if let Some(marked) = self.last.take() {
            // No client is left to be answered.
            let _ = self.end(marked);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use bytes::Bytes;
    use futures::FutureExt as _;
    use http::Request;
    use kubewright_schema::{budget::Limits, decode};
    use serde_json::{Value, json};

    use crate::env::{BoxFuture, Env};
    use crate::model::testing::{FakeEnv, Shared};
    use crate::{ApiServer, Config, UserInfo};

    const PODS: &str = "/api/v1/namespaces/default/pods";
    const MOMENT: Duration = Duration::from_millis(1);

    /// A world in which a moment takes time.
    struct Watched(Shared);

    impl Env for Watched {
        fn now(&self) -> jiff::Timestamp {
            self.0.now()
        }

        fn random(&self) -> u64 {
            self.0.random()
        }

        fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
            self.0.sleep(duration)
        }

        fn moment(&self) -> BoxFuture<'static, ()> {
            self.0.sleep(MOMENT)
        }
    }

    async fn ask(api: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let json = Request::builder().header("content-type", "application/json");
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = json
            .method(method)
            .uri(path)
            .body(Bytes::from(body))
            .expect("a request");
        let (head, body) = api
            .handle_within(Limits::REQUEST, request, UserInfo::admin())
            .await
            .into_parts();
        let body = body.whole().expect("no watch");
        (head.status.as_u16(), decode::stored(&body).expect("JSON"))
    }

    #[test]
    fn marks_are_seen() {
        let env = FakeEnv::new();
        let api = ApiServer::of_tests(std::sync::Arc::new(Watched(Shared(env.clone()))), Config::default());
        let at_once = |method: &str, path: &str, body: &Value| {
            let answer = ask(&api, method, path, body).now_or_never();
            answer.unwrap_or_else(|| panic!("{method} {path} waits"))
        };
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut cx = Context::from_waker(Waker::noop());
        // The events during that moment.
        type Meanwhile<'a> = &'a dyn Fn();
        let nothing: Meanwhile<'_> = &|| {};
        let other_delete: Meanwhile<'_> = &|| assert_eq!(at_once("DELETE", &format!("{PODS}/p"), &Value::Null).0, 200);
        let mut check = |meanwhile: Meanwhile<'_>, client_stays: bool| {
            assert_eq!(at_once("POST", PODS, &pod).0, 201);
            {
                let path = format!("{PODS}/p");
                let mut delete = pin!(ask(&api, "DELETE", &path, &Value::Null));
                assert!(delete.as_mut().poll(&mut cx).is_pending());
                let (_, marked) = at_once("GET", &path, &Value::Null);
                assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0, "{marked}");
                meanwhile();
                if client_stays {
                    env.advance(MOMENT);
                    let Poll::Ready((code, gone)) = delete.as_mut().poll(&mut cx) else {
                        panic!("it still waits")
                    };
                    assert_eq!((code, &gone["metadata"]["uid"]), (200, &marked["metadata"]["uid"]));
                }
            }
            assert_eq!(at_once("GET", &format!("{PODS}/p"), &Value::Null).0, 404);
        };
        check(nothing, true);
        check(nothing, false);
        check(other_delete, true);
        check(other_delete, false);

        // A collection, and an object that was seen marked, end at once.
        assert_eq!(at_once("POST", PODS, &pod).0, 201);
        assert_eq!(at_once("DELETE", PODS, &Value::Null).0, 200);
        assert_eq!(at_once("GET", &format!("{PODS}/p"), &Value::Null).0, 404);
        let mut held = pod.clone();
        held["spec"]["nodeName"] = json!("n");
        assert_eq!(at_once("POST", PODS, &held).0, 201);
        assert_eq!(at_once("DELETE", &format!("{PODS}/p"), &Value::Null).0, 200);
        assert_eq!(
            at_once("DELETE", &format!("{PODS}/p?gracePeriodSeconds=0"), &Value::Null).0,
            200
        );
        assert_eq!(at_once("GET", &format!("{PODS}/p"), &Value::Null).0, 404);
    }
}
