//! An answer waits until the write that it reports is safe, so that a crash cannot undo it.
//!
//! Storage does a change at once and makes it safe later (see [`crate::storage::journal`]). This is the one place
//! between a verb and its answer where that is waited for; with a storage that keeps nothing beyond its process it
//! costs nothing.

use kubewright_schema::budget;

use super::Inner;
use super::respond::{Content, Reply};
use crate::model::status::Status;
use crate::storage::StorageError;

impl Inner {
    /// The answer of a verb, once it is safe; the 500 when the write that it reports could not be kept.
    pub(super) async fn settled(&self, result: Result<Reply, Status>) -> Result<Reply, Status> {
        let revision = match &result {
            // An object depends on no later revision.
            Ok(Reply {
                content: Content::Stored(_, stored),
                ..
            }) => stored.revision(),
            // A list is of the latest revision, and a refusal follows from the present objects, or from removed ones.
            _ => self.storage.revision(),
        };
        self.settle(revision).await.and(result)
    }

    /// Waits until a revision is safe.
    pub(super) async fn settle(&self, revision: u64) -> Result<(), Status> {
        let Some(settled) = self.storage.settle(revision) else {
            return Ok(());
        };
        settled.await.map_err(|error| {
            // The writes that were taken back may concern any state derived from storage.
            budget::unlimited(|| self.recall());
            unavailable(&error)
        })
    }
}

/// The answer to a write that storage refuses in any state; none where another try, or another look, may help.
pub(crate) fn refused(error: &StorageError) -> Option<Status> {
    match error {
        StorageError::TooDeep { .. } => Some(Status::bad_request(error.to_string())),
        StorageError::Unavailable(_) => Some(unavailable(error)),
        _ => None,
    }
}

/// The 500 of a write that storage cannot keep.
pub(crate) fn unavailable(error: &StorageError) -> Status {
    Status::untyped(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use futures::FutureExt as _;
    use http::{Request, Response};
    use serde_json::Value;

    use crate::model::testing::{FakeEnv, Shared};
    use crate::storage::journal::{Journal, Listener, Outcome, Record, Restored};
    use crate::storage::{Bounds, MemoryStorage};
    use crate::{ApiServer, Body, Config, Parts, UserInfo};

    /// A journal that makes safe, or fails, when the test says so.
    #[derive(Default)]
    struct Slow(Mutex<(Option<Listener>, u64)>);

    impl Slow {
        fn last(&self) -> u64 {
            self.0.lock().expect("no test panics under the lock").1
        }

        fn say(&self, outcome: Outcome) {
            let journal = self.0.lock().expect("no test panics under the lock");
            journal.0.as_ref().expect("the storage has started it")(outcome);
        }
    }

    impl Journal for Slow {
        fn start(&self, listener: Listener) {
            self.0.lock().expect("no test panics under the lock").0 = Some(listener);
        }

        fn append(&self, record: Record) {
            self.0.lock().expect("no test panics under the lock").1 = record.change.revision;
        }
    }

    fn server() -> (ApiServer, Arc<Slow>) {
        let journal = Arc::new(Slow::default());
        let storage = MemoryStorage::journaled(Bounds::default(), Restored::default(), journal.clone());
        let api = ApiServer::with(Parts {
            storage: Arc::new(storage),
            ..Parts::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default())
        });
        journal.say(Outcome::Durable(journal.last()));
        (api, journal)
    }

    fn answer(response: Response<Body>) -> (u16, String) {
        let code = response.status().as_u16();
        match response.into_body().whole() {
            Ok(bytes) => (code, String::from_utf8_lossy(&bytes).into_owned()),
            Err(_) => panic!("no watch was asked for"),
        }
    }

    /// Sends a request, plays the journal while the answer waits, and looks at the answer. Without an outcome it must
    /// come at once.
    fn ask(
        api: &ApiServer,
        journal: &Slow,
        method: &str,
        path: &str,
        body: &str,
        outcome: Option<Outcome>,
    ) -> (u16, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Bytes::from(body.to_owned()))
            .expect("a request");
        let mut future = Box::pin(api.handle(request, UserInfo::admin()));
        let early = future.as_mut().now_or_never();
        match (early, outcome) {
            (Some(response), None) => answer(response),
            (None, Some(outcome)) => {
                journal.say(outcome);
                answer(future.now_or_never().expect("the journal has spoken"))
            }
            (None, None) => panic!("{method} {path} waits for nothing"),
            (Some(response), Some(_)) => panic!("{method} {path} does not wait: {:?}", answer(response)),
        }
    }

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    #[test]
    fn answers_wait_until_what_they_tell_is_safe() {
        let (api, journal) = server();
        let map = r#"{"metadata":{"name":"a"},"data":{"k":"1"}}"#;
        let next = journal.last() + 1;
        let created = ask(&api, &journal, "POST", MAPS, map, Some(Outcome::Durable(next)));
        assert_eq!(created.0, 201);
        assert_eq!(ask(&api, &journal, "GET", &format!("{MAPS}/a"), "", None).0, 200);
        // A change that is not safe: a request that sees it waits, one for another object does not.
        let pending = Request::put(format!("{MAPS}/a")).header("content-type", "application/json");
        let pending = pending.body(Bytes::from(map.replace('1', "2"))).expect("a request");
        assert!(api.handle(pending, UserInfo::admin()).now_or_never().is_none());
        let namespace = ask(&api, &journal, "GET", "/api/v1/namespaces/default", "", None);
        assert_eq!(namespace.0, 200);
        for (path, code) in [
            (format!("{MAPS}/a"), 200),
            (MAPS.to_owned(), 200),
            (format!("{MAPS}/b"), 404),
            ("/apis".to_owned(), 200),
        ] {
            let (api, journal) = (&api, &journal);
            let (got, body) = ask(api, journal, "GET", &path, "", Some(Outcome::Durable(journal.last())));
            assert_eq!(got, code, "{path}: {body}");
            // One more change, for the next to wait for.
            let again = Request::put(format!("{MAPS}/a")).header("content-type", "application/json");
            let again = again.body(Bytes::from(map.replace('1', &path.len().to_string())));
            let again = api.handle(again.expect("a request"), UserInfo::admin()).now_or_never();
            assert!(again.is_none());
        }
        assert_eq!(ask(&api, &journal, "GET", "/readyz", "", None), (200, "ok".to_owned()));
    }

    #[test]
    fn a_failing_disk_is_an_error_and_said() {
        let (api, journal) = server();
        let map = r#"{"metadata":{"name":"a"},"data":{"k":"1"}}"#;
        let full = Outcome::Failed("No space left on device".to_owned());
        let (code, body) = ask(&api, &journal, "POST", MAPS, map, Some(full));
        let status: Value = serde_json::from_str(&body).expect("a Status");
        assert_eq!((code, &status["kind"]), (500, &Value::from("Status")));
        let message = "the storage cannot keep changes: No space left on device";
        assert_eq!(status["message"], message);
        // It goes on saying so, and the change was not done.
        for (method, path, body, code) in [
            ("POST", MAPS, map, 500),
            ("DELETE", "/api/v1/namespaces/default/services/kubernetes", "", 500),
            ("GET", "/api/v1/namespaces/default/configmaps/a", "", 404),
            ("GET", MAPS, "", 200),
            ("GET", "/livez/ping", "", 200),
            ("GET", "/readyz/etcd", "", 500),
        ] {
            assert_eq!(ask(&api, &journal, method, path, body, None).0, code, "{method} {path}");
        }
        let (code, sick) = ask(&api, &journal, "GET", "/readyz", "", None);
        assert_eq!(code, 500);
        assert!(
            sick.starts_with("[+]ping ok\n[+]log ok\n[-]storage failed: reason withheld\n"),
            "{sick}"
        );
        assert!(sick.ends_with("readyz check failed\n"), "{sick}");
        journal.say(Outcome::Recovered);
        let next = journal.last() + 2;
        assert_eq!(
            ask(&api, &journal, "POST", MAPS, map, Some(Outcome::Durable(next))).0,
            201
        );
    }
}
