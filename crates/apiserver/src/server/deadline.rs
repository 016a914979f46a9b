//! How long a request may take, and when it can still be stopped (`WithRequestDeadline` and
//! `WithTimeoutForNonLongRunningRequests` of apiserver).
//!
//! The shell has the clock. When the time is up it says so ([`Deadline::expire`]), and drops the request.
//!
//! Invariants:
//! - a request that was answered with 504 changes nothing afterwards: of its commit and its end the first keeps the other out,
//!   also when the request computes on another thread at that moment;
//! - a request that has changed something is answered with what it has done, however late; one that changes many objects
//!   stops between two of them.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::head::Target;
use super::route::Verb;
use crate::model::duration;
use crate::model::status::Status;
use crate::wire::query::Query;

/// The longest time of a write in its handler (`requestTimeoutUpperBound` of apiserver).
const LONGEST_WRITE: Duration = Duration::from_secs(34);

/// Streams that go on for as long as their client wants.
const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// The deadline of one request.
#[derive(Debug)]
pub(crate) struct Deadline {
    limit: Option<Duration>,
    writes: bool,
    state: AtomicU8,
}

/// Nothing is changed, and there is time.
const OPEN: u8 = 0;
/// Something is changed.
const CHANGED: u8 = 1;
/// Something was changed before the time was up.
const LATE: u8 = 2;
/// The time was up before anything was changed.
const EXPIRED: u8 = 3;

impl Deadline {
    /// The deadline of a request, where ordinary ones may take as long as `most`, also writes of another server's.
    ///
    /// # Errors
    /// 400, when the client asks for a time that is none.
    pub(super) fn of(query: &Query, target: &Target, is_remote: bool, most: Duration) -> Result<Deadline, Status> {
        let (long_running, writes) = match target {
            Target::Resource(path, verb) => {
                let streams = path.subresource.as_deref().is_some_and(|name| STREAMS.contains(&name));
                (
                    *verb == Some(Verb::Watch) || streams,
                    verb.is_some_and(Verb::writes) && !is_remote,
                )
            }
            Target::Page(_) => (false, false),
        };
        let limit = if long_running {
            None
        } else {
            Some(asked(query)?.unwrap_or(most).min(most))
        };
        Ok(Deadline {
            limit,
            writes,
            state: AtomicU8::new(OPEN),
        })
    }

    /// How long the request may take, from its head to its answer. `None`: for as long as its client wants.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// How long it may take until it is answered; a write that has come whole may take less.
    pub(super) fn handling(&self) -> Option<Duration> {
        self.limit
            .map(|limit| if self.writes { limit.min(LONGEST_WRITE) } else { limit })
    }

    /// The time is up. Returns whether the request ends with that; else it has changed something, and ends soon.
    pub(super) fn expire(&self) -> bool {
        let next = |state| match state {
            OPEN => Some(EXPIRED),
            CHANGED => Some(LATE),
            _ => None,
        };
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        matches!(before, Ok(OPEN) | Err(EXPIRED))
    }

    /// The request is about to change something.
    ///
    /// # Errors
    /// 504, when the time is up.
    pub(super) fn begin_change(&self) -> Result<(), Status> {
        let next = |state| match state {
            OPEN => Some(CHANGED),
            CHANGED | LATE => Some(state),
            _ => None,
        };
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        before.map(drop).map_err(|_| self.status())
    }

    /// The request goes on, with another object or after another write came first: it can be stopped here.
    ///
    /// # Errors
    /// 504, when the time is up.
    pub(super) fn go_on(&self) -> Result<(), Status> {
        let next = |state| matches!(state, OPEN | CHANGED).then_some(OPEN);
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        before.map(drop).map_err(|_| self.status())
    }

    /// The answer when the time is up: of a handler that writes (`finisher.FinishRequest`), and of the filter.
    pub(super) fn status(&self) -> Status {
        Status::timed_out(if self.writes {
            "request did not complete within requested timeout - context deadline exceeded"
        } else {
            "request did not complete within the allotted timeout"
        })
    }
}

/// The time that the client asks for; 0 asks for none.
fn asked(query: &Query) -> Result<Option<Duration>, Status> {
    let text = query.get("timeout");
    if text.is_empty() {
        return Ok(None);
    }
    let nanoseconds = duration::parse(text)
        .map_err(|why| Status::bad_request(format!("invalid timeout specified in the request URL - {why}")))?;
    let asked = u64::try_from(nanoseconds).ok().filter(|nanoseconds| *nanoseconds > 0);
    Ok(asked.map(Duration::from_nanos))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::model::testing::{FakeEnv, Shared};
    use crate::server::route::{self, Path};
    use crate::server::testing;
    use crate::{ApiServer, Config, UserInfo};

    const MOST: Duration = Duration::from_secs(60);

    fn deadline(method: &http::Method, uri: &str) -> Result<Deadline, Status> {
        let uri: http::Uri = uri.parse().expect("a URI");
        let query = Query::parse(uri.query().unwrap_or("")).expect("a query");
        let target = match route::parse(uri.path()) {
            Path::Resource(path) => {
                let verb = Verb::of(method, &path, query.flag("watch"));
                Target::Resource(path, verb)
            }
            Path::Page(page) => Target::Page(page),
            Path::Verb => panic!("{uri} has a verb and no resource"),
        };
        Deadline::of(&query, &target, false, MOST)
    }

    #[test]
    fn how_long_a_request_may_take() {
        let check = |method: http::Method, uri: &str, limit: Option<u64>, handling: Option<u64>| {
            let deadline = deadline(&method, uri).expect("a deadline");
            let seconds = |limit: Option<Duration>| limit.map(|limit| limit.as_secs());
            let found = (seconds(deadline.limit()), seconds(deadline.handling()));
            assert_eq!(found, (limit, handling), "{method} {uri}");
        };
        use http::Method;
        const PODS: &str = "/api/v1/namespaces/default/pods";
        check(Method::GET, PODS, Some(60), Some(60));
        check(Method::GET, "/version", Some(60), Some(60));
        check(Method::POST, PODS, Some(60), Some(34));
        check(Method::DELETE, PODS, Some(60), Some(34));
        check(Method::POST, &format!("{PODS}?timeout=10s"), Some(10), Some(10));
        check(Method::POST, &format!("{PODS}?timeout=40s"), Some(40), Some(34));
        check(Method::GET, &format!("{PODS}?timeout=1h"), Some(60), Some(60));
        check(Method::GET, &format!("{PODS}?timeout=0s"), Some(60), Some(60));
        check(Method::GET, &format!("{PODS}?timeout=-1s"), Some(60), Some(60));
        for long in [
            "?watch=true",
            "?watch=true&timeout=x",
            "/p/log",
            "/p/exec?timeout=1s",
            "/p/proxy/a",
        ] {
            check(Method::GET, &format!("{PODS}{long}"), None, None);
        }
        check(
            Method::GET,
            "/api/v1/watch/namespaces/default/pods?timeout=x",
            None,
            None,
        );
        for wrong in [PODS, &format!("{PODS}/p"), "/version"] {
            let refused = deadline(&Method::GET, &format!("{wrong}?timeout=x")).expect_err("it is no duration");
            let why = "invalid timeout specified in the request URL - time: invalid duration \"x\"";
            assert_eq!((refused.code, refused.message.as_str()), (400, why));
        }
    }

    #[test]
    fn either_the_change_or_the_end_comes_first() {
        let fresh = || deadline(&http::Method::POST, "/api/v1/namespaces").expect("a deadline");
        let ends_first = fresh();
        assert!(ends_first.expire() && ends_first.expire());
        assert_eq!(ends_first.begin_change().map_err(|status| status.code), Err(504));
        assert!(ends_first.go_on().is_err());

        let changes_first = fresh();
        assert!(changes_first.begin_change().is_ok());
        assert!(!changes_first.expire());
        assert!(changes_first.begin_change().is_ok(), "what has begun goes on");
        assert!(changes_first.go_on().is_err(), "and stops before the next object");

        let many = fresh();
        for _ in 0..3 {
            assert!(many.go_on().is_ok() && many.begin_change().is_ok());
        }
        assert!(many.go_on().is_ok());
        assert!(many.expire());
    }

    #[test]
    fn nothing_is_changed_after_the_end() {
        const MAPS: &str = "/api/v1/namespaces/default/configmaps";
        let api = ApiServer::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default());
        let request = |method: &str, path: &str, body: serde_json::Value| {
            let (head, body) = testing::request(method, path, &body).into_parts();
            let admitted = api.admit(&head, UserInfo::admin()).now_or_never().expect("no waiting");
            (head, body, admitted.unwrap_or_else(|_| panic!("{path} is refused")))
        };
        let count = || api.inner.storage.count("configmaps", "");
        let before = count();
        let map = |name: &str| json!({"metadata": {"name": name}});

        let (head, body, late) = request("POST", MAPS, map("late"));
        assert!(late.expire());
        let answer = api.answer(&late, &head, &body).now_or_never().expect("no waiting");
        assert_eq!((answer.status().as_u16(), count()), (504, before));
        for name in ["a", "b", "c"] {
            let (head, body, admitted) = request("POST", MAPS, map(name));
            let answer = api.answer(&admitted, &head, &body).now_or_never().expect("no waiting");
            assert_eq!(answer.status(), 201);
        }
        for (method, path) in [("PUT", "a"), ("DELETE", "a")] {
            let (head, body, late) = request(method, &format!("{MAPS}/{path}"), map(path));
            assert!(late.expire());
            let answer = api.answer(&late, &head, &body).now_or_never().expect("no waiting");
            assert_eq!((answer.status().as_u16(), count()), (504, before + 3), "{method}");
        }

        // A collection that has changed something by then stops before its next object.
        let (head, body, late) = request("DELETE", MAPS, serde_json::Value::Null);
        assert!(late.deadline.begin_change().is_ok());
        assert!(!late.expire(), "it has changed something");
        let answer = api.answer(&late, &head, &body).now_or_never().expect("no waiting");
        assert_eq!((answer.status().as_u16(), count()), (504, before + 3));
        let (head, body, admitted) = request("DELETE", MAPS, serde_json::Value::Null);
        let answer = api.answer(&admitted, &head, &body).now_or_never().expect("no waiting");
        assert_eq!((answer.status().as_u16(), count()), (200, before));
    }
}
