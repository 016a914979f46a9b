use super::*;
use crate::cache::StoreOptions;
use crate::cache::shared::{Family, Listeners};
use crate::form::packed::Budget;
use crate::form::typed;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;

fn form() -> Form {
    Form::of::<ConfigMap>()
}

/// A store of ConfigMaps.
fn target() -> Target {
    // In a test that has a runtime, that one counts.
    let none = tokio::runtime::Handle::try_current().is_err();
    let runtime = none.then(|| {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
    });
    let _entered = runtime.as_ref().map(tokio::runtime::Runtime::enter);
    let kept = StoreOptions {
        decoded: Budget::fixed(0),
        ..StoreOptions::default()
    };
    let coverage = Coverage {
        content: Content::Whole,
        scope: Scope::all(),
    };
    let (listeners, family) = (Listeners::default(), Family::default());
    let store = SharedStore::new(&form().resource, coverage.clone(), &kept, listeners, family);
    store.decoders.add(&form(), None);
    Target {
        store: Arc::new(store),
        coverage,
        staged: None,
    }
}

fn decode_event(line: &[u8], target: &Target) -> Input<dyn Cached> {
    Reader::new(Into::Cache(target), &mut Vec::new(), false).event(line)
}

fn bad(key: &str, version: &str, reason: &str) -> Unreadable {
    let (namespace, name) = key
        .split_once('/')
        .map_or((None, key), |(namespace, name)| (Some(namespace), name));
    Unreadable {
        key: ObjectKey::new(namespace, name),
        uid: None,
        resource_version: Some(version.into()),
        message: reason.to_owned(),
    }
}

/// RF11: an object that does not decode is named, with its version, and its neighbours are kept. A store keeps its
/// text: what a type cannot read, another one may (`part.rs`).
#[test]
fn rf11_an_object_that_does_not_decode_is_named_and_the_others_are_kept() {
    let reason = "invalid type: integer `7`, expected a map";
    let line = |kind: &str| {
        format!(
            r#"{{"type":"{kind}","object":{{"metadata":{{"namespace":"a","name":"b","resourceVersion":"5"}},"data":7}}}}"#
        )
    };
    let target = target();
    let Input::Event(WatchEvent::Modified(object)) = decode_event(line("MODIFIED").as_bytes(), &target) else {
        panic!("it is JSON")
    };
    let why = crate::form::looked(&object, form().id).expect_err("a number is no map of strings");
    assert_eq!(&*why, reason);
    let deleted = decode_event(line("DELETED").as_bytes(), &target);
    assert!(matches!(deleted, Input::Event(WatchEvent::Deleted(_))), "{deleted:?}");

    let x = r#"{"metadata":{"name":"x"}}"#;
    let y = r#"{"metadata":{"name":"y","resourceVersion":"3"},"data":7}"#;
    let list = |items: &str| format!(r#"{{"metadata":{{"resourceVersion":"9","continue":"t"}},"items":[{items}]}}"#);
    let page = decode_page(list(&format!("{x},{y}")).as_bytes(), &form()).expect("x is fine");
    assert_eq!(
        (page.items.len(), &page.unreadable[..]),
        (1, &[bad("y", "3", reason)][..])
    );
    assert_eq!(page.continue_token.as_deref(), Some("t"));

    let nameless = decode_page(list("7").as_bytes(), &form()).expect_err("nobody knows what this is");
    assert_eq!(nameless.kind, FailureKind::Decode);
    decode_page(b"{\"items\":[", &form()).expect_err("no JSON");
}

#[test]
fn events_are_read_in_whatever_order_they_are_written() {
    let check = |line: &str, expected: &str| {
        let found = match decode_event(line.as_bytes(), &target()) {
            Input::Event(WatchEvent::Added(object)) => {
                format!("added {}", object.metadata().name.clone().unwrap_or_default())
            }
            Input::Event(WatchEvent::Deleted(object)) => {
                format!("deleted, managed {:?}", object.metadata().managed_fields)
            }
            Input::Event(WatchEvent::Bookmark { initial_events_end, .. }) => {
                format!("bookmark, end {initial_events_end}")
            }
            Input::Failed(failure) => failure.message,
            _ => "something else".to_owned(),
        };
        assert!(found.contains(expected), "{line}: {found}");
    };
    check(
        r#"{"type":"ADDED","object":{"metadata":{"name":"x"}},"more":[1]}"#,
        "added x",
    );
    check(r#"{"object":{"metadata":{"name":"x"}},"type":"ADDED"}"#, "added x");
    check(
        r#"{"type":"DELETED","object":{"metadata":{"name":"x","managedFields":[{"manager":"m"}]}}}"#,
        "deleted, managed None",
    );
    let end = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    check(
        &format!(r#"{{"type":"BOOKMARK","object":{end}}}"#),
        "bookmark, end true",
    );
    check(r#"{"type":"ADDED","object":{"data":7}}"#, "cannot be decoded");
    check(r#"{"type":"MOVED","object":{}}"#, "unknown variant `MOVED`");
    check(r#"{"type":"ADDED"}"#, "missing field `object`");
    check(r#"{"object":{}}"#, "missing field `type`");
}

#[test]
fn items_of_a_dynamic_list_get_their_kind_and_lose_managed_fields() {
    let list = br#"{"metadata":{"resourceVersion":"1","continue":"t"},"items":[{"metadata":{"name":"x","managedFields":[{"manager":"m"}]}}]}"#;
    let form = Form::for_resource::<DynamicObject>(&form().resource);
    let page = decode_page(list, &form).expect("a list");
    let item: Arc<DynamicObject> = typed(page.items[0].clone());
    let types = item.types.as_ref().expect("the kind of the list");
    assert_eq!((types.api_version.as_str(), types.kind.as_str()), ("v1", "ConfigMap"));
    assert_eq!(item.metadata.managed_fields, None);
    assert_eq!(page.continue_token.as_deref(), Some("t"));
}

#[test]
fn failures_are_sorted_by_what_to_do_next() {
    let status = |code: u16, reason: &str| status_failure(code, &Status::failure("m", reason).with_code(code)).kind;
    assert_eq!(status(410, "Expired"), FailureKind::Expired);
    assert_eq!(status(403, "Forbidden"), FailureKind::Forbidden);
    assert_eq!(status(404, "NotFound"), FailureKind::NotFound);
    let line = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}"#;
    let Input::Event(WatchEvent::Error(failure)) = decode_event(line, &target()) else {
        panic!("an error event")
    };
    assert_eq!(failure.kind, FailureKind::Expired);
}

/// A name that is written with an escape cannot be pointed to in the text; written anew it can.
#[test]
fn an_object_in_odd_writing_is_written_anew() {
    let line = br#"{"type":"ADDED","object":{"metadata":{"name":"\u0078","resourceVersion":"1"},"data":{"a":"b"}}}"#;
    let Input::Event(WatchEvent::Added(object)) = decode_event(line, &target()) else {
        panic!("it is an object")
    };
    assert_eq!(object.object_id().name, Some("x"));
    assert_eq!(object.json().expect("JSON")["data"]["a"], "b");
}

/// A page may take as long as it takes, as long as something comes.
#[tokio::test(start_paused = true)]
async fn a_list_may_be_slow_but_not_silent() {
    let check = async |pauses: &[u64], expected: Result<usize, &str>| {
        let text = r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"x"}}]}"#;
        let pauses: Vec<u64> = pauses.to_vec();
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let pieces = text.as_bytes().chunks(text.len().div_ceil(pauses.len()));
            let pieces: Vec<(u64, Vec<u8>)> = pauses.iter().copied().zip(pieces.map(<[u8]>::to_vec)).collect();
            let body = futures::stream::iter(pieces).then(|(pause, piece)| async move {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                Ok::<_, std::io::Error>(hyper::body::Frame::data(bytes::Bytes::from(piece)))
            });
            let body = http_body_util::StreamBody::new(body.boxed());
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
        });
        let wire = Wire {
            kube: kube::Client::new(service, "default"),
            metrics: Metrics::new(),
            target: Arc::new(target()),
        };
        let found = match wire.list(ListVersion::Newest, None, None).await {
            Input::Page(page) => Ok(page.items.len()),
            Input::Failed(failure) => Err(failure.message),
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected.map_err(str::to_owned));
    };
    check(&[50, 50, 50, 50], Ok(1)).await;
    check(&[50, 61, 1], Err("the list brought nothing for 60s")).await;
}
