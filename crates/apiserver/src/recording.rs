//! What the API server writes into a run log: each request with its client and outcome, what its watch delivered, and
//! each commit.
//!
//! A [`Recording`] accompanies a request from its admission to its answer, as an entry of the audit log does; without a
//! run log there is none. Invariants: a request that is answered is recorded once; commits are recorded in order of
//! their revisions, when watchers get them; the objects that a watch begins with are not recorded. Not here: the form
//! (`kubewright-runlog`) and the file (the shell).

use std::sync::{Arc, OnceLock};

use http::request;
use kubewright_runlog::{Call, Entry, Recorder, What};

/// A request on its way into the run log.
pub(crate) struct Recording {
    to: Arc<dyn Recorder>,
    entry: Entry,
    /// The revision before it.
    before: u64,
    /// The object in the answer to a write: its revision, and its name, which a create has not in its path.
    written: OnceLock<(u64, String)>,
}

impl Recording {
    pub(crate) fn of(
        to: &Arc<dyn Recorder>,
        before: u64,
        head: &request::Parts,
        user: &str,
        call: Call,
    ) -> Arc<Recording> {
        let agent = head.headers.get(http::header::USER_AGENT);
        let entry = Entry {
            user: user.to_owned(),
            agent: agent
                .map(|agent| String::from_utf8_lossy(agent.as_bytes()).into_owned())
                .unwrap_or_default(),
            call,
            ..Entry::default()
        };
        Arc::new(Recording {
            to: to.clone(),
            entry,
            before,
            written: OnceLock::new(),
        })
    }

    /// The answer to a write has an object of this revision and name.
    pub(crate) fn answers_with(&self, revision: u64, name: &str) {
        self.written.get_or_init(|| (revision, name.to_owned()));
    }

    /// The request is answered.
    pub(crate) fn answered(&self, code: u16) {
        let writes = !matches!(&*self.entry.call.verb, "get" | "list" | "watch" | "head" | "options");
        let written = self.written.get();
        let revision = written.map(|(revision, _)| *revision);
        let what = match writes {
            true => What::Write {
                code: Some(code),
                // A deletion is answered without the object.
                effective: code < 300 && revision.is_none_or(|revision| revision > self.before),
                revision,
                lacks: None,
            },
            false => What::Read { code },
        };
        let mut entry = self.entry.clone();
        entry.what = what;
        if let Some((_, name)) = written.filter(|_| entry.call.name.is_empty()) {
            entry.call.name.clone_from(name);
        }
        self.to.record(entry);
    }

    /// The watch delivers the change of an object.
    pub(crate) fn delivers(&self, kind: &'static str, key: &str, revision: u64) {
        let mut entry = self.entry.clone();
        (entry.call.namespace, entry.call.name) = names(key);
        entry.what = What::Event {
            kind: kind.to_owned(),
            revision,
        };
        self.to.record(entry);
    }
}

/// Records the change of an object, and its text.
pub(crate) fn commit(to: &dyn Recorder, (store, key): (&str, &str), kind: &'static str, revision: u64, text: &[u8]) {
    let (resource, group) = store.split_once('.').unwrap_or((store, ""));
    let (namespace, name) = names(key);
    to.record(Entry {
        call: Call {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace,
            name,
            ..Call::default()
        },
        what: What::Commit {
            kind: kind.to_owned(),
            revision,
            object: String::from_utf8_lossy(text).into_owned(),
        },
        ..Entry::default()
    });
}

/// Namespace and name of the object at a key.
fn names(key: &str) -> (String, String) {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    (namespace.to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt as _;
    use http::Request;

    use super::*;
    use crate::model::testing::{FakeEnv, Shared};
    use crate::{ApiServer, Config, Parts};

    #[derive(Default)]
    struct Kept(Mutex<Vec<Entry>>);

    impl Recorder for Kept {
        fn record(&self, entry: Entry) {
            self.0.lock().expect("no panic").push(entry);
        }
    }

    #[test]
    fn a_request_over_which_the_server_panics_is_recorded() {
        let kept = Arc::new(Kept::default());
        let mut parts = Parts::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default());
        parts.recorder = Some(kept.clone());
        let api = ApiServer::with(parts);
        let (head, ()) = Request::get("/api/v1/namespaces")
            .body(())
            .expect("a request")
            .into_parts();
        let admitted = api
            .admit(&head, crate::UserInfo::admin())
            .now_or_never()
            .expect("no waiting");
        let Ok(admitted) = admitted else {
            panic!("an administrator")
        };
        admitted.panicked();
        let kept = kept.0.lock().expect("no panic");
        let last = kept.last().map(|entry| (entry.call.resource.as_str(), &entry.what));
        assert_eq!(last, Some(("namespaces", &What::Read { code: 500 })));
    }
}
