//! Lists and watches that break at any byte: they end, their connection is reset, or a byte is not what was sent. What the
//! informer shows in the end is what the server has, and its handlers see one history, in which nothing is missed, told
//! twice or undone. A watch that breaks goes on where it was; nothing is listed again.
//!
//! The server plays a recording. Its bodies come in pieces of a few bytes, so that each also crosses pieces.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kubewright::k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube;
use kubewright::{Cache, Event};
use serde_json::{Value, json};

/// The revision of the first list.
const LISTED: u64 = 5;
const LAST: u64 = 12;

fn object(name: &str, revision: u64, text: &str) -> Value {
    let metadata = json!({"namespace": "a", "name": name, "uid": name, "resourceVersion": revision.to_string()});
    json!({"metadata": metadata, "data": {"k": text}})
}

/// What happens after the first list: a text with all that JSON escapes, letters of several bytes, a bookmark, a name that
/// comes again as another object.
fn history() -> Vec<(u64, &'static str, Value)> {
    let mut again = object("y", 11, "2");
    again["metadata"]["uid"] = json!("another");
    let bookmark = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}});
    vec![
        (6, "ADDED", object("z", 6, "a\n\"}]\\ \u{1F980} ä")),
        (7, "MODIFIED", object("x", 7, "2")),
        (8, "DELETED", object("y", 8, "1")),
        (9, "BOOKMARK", bookmark),
        (10, "MODIFIED", object("z", 10, "{\n}\r\n")),
        (11, "ADDED", again),
        (12, "DELETED", object("x", 12, "2")),
    ]
}

/// What there is at a revision.
fn world(revision: u64) -> BTreeMap<String, Value> {
    let first = [object("x", 3, "1"), object("y", 4, "1")];
    let mut world: BTreeMap<String, Value> = first.map(|object| (name_of(&object), object)).into();
    for (_, kind, object) in history().into_iter().filter(|(at, ..)| *at <= revision) {
        match kind {
            "BOOKMARK" => {}
            "DELETED" => drop(world.remove(&name_of(&object))),
            _ => drop(world.insert(name_of(&object), object)),
        }
    }
    world
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

/// The body of a list at a revision.
fn list(revision: u64) -> String {
    let items: Vec<Value> = world(revision).into_values().collect();
    let metadata = json!({"resourceVersion": revision.to_string()});
    json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}).to_string()
}

/// The body of a watch from a revision on.
fn watch(revision: u64) -> String {
    let later = history().into_iter().filter(|(at, ..)| *at > revision);
    later.map(|(_, kind, object)| line(kind, &object)).collect()
}

/// How a watch begins that brings what there is.
fn watch_list(revision: u64) -> String {
    let metadata =
        json!({"resourceVersion": revision.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}});
    let end = line(
        "BOOKMARK",
        &json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}),
    );
    let all = world(revision).into_values().map(|object| line("ADDED", &object));
    all.chain([end]).collect()
}

/// Which answer breaks; it is the first of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    List,
    Watch,
    WatchList,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Ends,
    IsReset,
    IsGarbled,
}

struct Recording {
    place: Place,
    fault: Fault,
    offset: usize,
    /// The queries of requests so far, with what was asked for.
    asked: Mutex<Vec<(Place, String)>>,
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

impl Recording {
    fn asked(&self, place: Place) -> Vec<String> {
        let asked = self.asked.lock().expect("quiet");
        let those = asked.iter().filter(|(asked, _)| *asked == place);
        those.map(|(_, query)| query.clone()).collect()
    }

    fn answer(&self, request: &Request<kube::client::Body>) -> Response<Body> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let from: Option<u64> = from.and_then(|version| version.parse().ok());
        let place = match (query.contains("watch="), query.contains("sendInitialEvents")) {
            (false, _) => Place::List,
            (true, true) if self.place != Place::WatchList => {
                let unknown = kube::core::Status::failure("unknown parameter", "BadRequest").with_code(400);
                let body = serde_json::to_string(&unknown).expect("it is JSON");
                let mut answer = Response::new(pieces(body.into_bytes(), None));
                *answer.status_mut() = http::StatusCode::BAD_REQUEST;
                return answer;
            }
            (true, true) => Place::WatchList,
            (true, false) => Place::Watch,
        };
        let is_first = self.asked(place).is_empty();
        self.asked.lock().expect("quiet").push((place, query));
        let now = if is_first { LISTED } else { LAST };
        let (body, ends) = match place {
            Place::List => (list(now), true),
            Place::Watch => (watch(from.unwrap_or_default()), false),
            Place::WatchList => (watch_list(now) + &watch(now), false),
        };
        let mut body = body.into_bytes();
        let end = match self.fault {
            _ if !is_first || place != self.place => ends.then_some(Ok(())),
            Fault::IsGarbled => {
                body.insert(self.offset, 0xFF);
                ends.then_some(Ok(()))
            }
            Fault::Ends => {
                body.truncate(self.offset);
                Some(Ok(()))
            }
            Fault::IsReset => {
                body.truncate(self.offset);
                Some(Err(()))
            }
        };
        Response::new(match end {
            Some(Ok(())) => pieces(body, None),
            Some(Err(())) => pieces(body, Some(true)),
            None => pieces(body, Some(false)),
        })
    }
}

/// A body in pieces. Then it ends, or its connection is reset (`true`), or it stays open (`false`).
fn pieces(body: Vec<u8>, then: Option<bool>) -> Body {
    let pieces: Vec<Bytes> = body.chunks(31).map(Bytes::copy_from_slice).collect();
    let pieces = stream::iter(pieces).map(|piece| Ok(Frame::data(piece)));
    let end = match then {
        None => stream::empty().boxed(),
        Some(true) => stream::iter([Err(std::io::ErrorKind::ConnectionReset.into())]).boxed(),
        Some(false) => stream::pending().boxed(),
    };
    StreamBody::new(pieces.chain(end)).boxed_unsync()
}

/// What handlers believe in, by name: the version; and what was wrong about it.
#[derive(Default)]
struct Belief {
    world: BTreeMap<String, u64>,
    faults: Vec<String>,
}

impl Belief {
    fn hears(&mut self, event: &Event<ConfigMap>) {
        let name = event.object().metadata.name.clone().unwrap_or_default();
        let version = |config: &ConfigMap| -> u64 {
            let version = config.metadata.resource_version.as_deref();
            version.and_then(|version| version.parse().ok()).unwrap_or_default()
        };
        let fits = match event {
            Event::Added { object, .. } => self.world.insert(name.clone(), version(object)).is_none(),
            Event::Modified { old, new } => {
                let before = self.world.insert(name.clone(), version(new));
                before == Some(version(old)) && version(old) < version(new)
            }
            Event::Deleted { .. } => self.world.remove(&name).is_some(),
        };
        if !fits {
            self.faults.push(format!("{name}: {event:?}"));
        }
    }
}

async fn check(place: Place, fault: Fault, offset: usize) {
    let recording = Arc::new(Recording {
        place,
        fault,
        offset,
        asked: Mutex::default(),
    });
    let server = recording.clone();
    let service = tower::service_fn(move |request| {
        let server = server.clone();
        async move { Ok::<_, Infallible>(server.answer(&request)) }
    });
    let informer = Cache::new(kube::Client::new(service, "default")).informer::<ConfigMap>();
    let belief: Arc<Mutex<Belief>> = Arc::default();
    let sink = belief.clone();
    informer.add_inline_handler(move |event| sink.lock().expect("quiet").hears(event));
    let store = informer.store();
    let shown = || -> BTreeMap<String, Value> {
        let all = store
            .list()
            .into_iter()
            .map(|object| json!({"metadata": &object.metadata, "data": &object.data}));
        all.map(|object| (name_of(&object), object)).collect()
    };
    let expected = world(LAST);
    let what = format!("{place:?} {fault:?} at {offset}");
    // A watch that was cut after its last line is opened again, though nothing is missing.
    let again = || fault == Fault::IsGarbled || place != Place::Watch || recording.asked(place).len() > 1;
    for _ in 0..1_000 {
        if shown() == expected && again() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(shown(), expected, "{what}: {:?}", recording.asked.lock());
    let belief = belief.lock().expect("quiet");
    assert_eq!(belief.faults, Vec::<String>::new(), "{what}");
    assert_eq!(
        belief.world.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>(),
        "{what}"
    );

    // Nothing is listed again, and a watch goes on after the last line that was whole.
    let (lists, watches) = (recording.asked(Place::List).len(), recording.asked(Place::Watch));
    match place {
        Place::List if fault == Fault::Ends && offset == list(LISTED).len() => assert_eq!(lists, 1, "{what}"),
        Place::List if fault != Fault::IsGarbled => assert_eq!(lists, 2, "{what}"),
        Place::Watch if fault != Fault::IsGarbled => {
            let whole = watch(LISTED).as_bytes()[..offset].split(|byte| *byte == b'\n').count() as u64 - 1;
            let last = format!("resourceVersion={}", LISTED + whole);
            assert_eq!((lists, watches.len()), (1, 2), "{what}");
            assert!(watches[1].split('&').any(|part| part == last), "{what}: {}", watches[1]);
        }
        _ => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_break_at_any_byte() {
    for (place, body) in [
        (Place::List, list(LISTED)),
        (Place::Watch, watch(LISTED)),
        (Place::WatchList, watch_list(LISTED)),
    ] {
        // The end at each byte, and the others at some: they differ from it only in what they say.
        for (fault, step) in [(Fault::Ends, 1), (Fault::IsReset, 5), (Fault::IsGarbled, 3)] {
            for offset in (0..=body.len()).step_by(step) {
                check(place, fault, offset).await;
            }
        }
    }
}
