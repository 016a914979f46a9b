//! The runtime as its user sees it, against a small API server in memory. The names carry the letters of the
//! invariants.
//!
//! # Which test checks which invariant of the runtime
//!
//! | invariant | test |
//! |---|---|
//! | K1 reads see own writes | the engine's `receipts::tests` (exhaustive), `k1_…`; many writers: `crates/testing/tests/it/runtime/own_writes.rs` |
//! | K2 out-of-scope writes do not block | the engine's `receipts::tests`, `cache::scope::tests::k2_…`, `k2_…` |
//! | K3 deletes | the engine's `receipts::tests`, `k3_…` |
//! | K4 unknown outcomes, dry runs, dropped futures, restores | the engine's `receipts::tests`, `k4_…` |
//! | K5 a delete means one uid | `k5_…` |
//! | RF5, RF11 lists, bad frames, objects that do not decode | `rf5_…`, `rf11_…`, `cache::wire::tests::rf11_…` |
//! | objects at rest, lists cut as they arrive | `form::packed::tests`, `form::cut::tests` |
//! | a controller that wakes itself is told | the engine's `loop_detector::tests`, `a_controller_that_wakes_…` |
//! | DF2 missed deletions | `df2_…`, `causes_lead_from_a_change_to_its_reconcile` |
//! | C8 a failing kind fails alone | `c8_…` |
//! | SI10 one watch for all users, gone with the last | `si10_…` |
//! | several namespaces are one view, K1 in each | `crates/testing/tests/it/runtime/namespaces.rs`, `c_a_manager_of_some_…` |
//! | Q5, Q6 waiting and waking, without starving others | `queue::tests` |
//! | profiles: one at a time, bounded, loopback | `profiles::tests` (feature `profiling`) |
//! | R1–R3 one at a time, nothing lost | `r1_…` |
//! | R3 mappings that look things up | the engine's `states::tests`; with a server: `crates/testing/tests/it/runtime/sources.rs::r3_…` |
//! | sources from outside: bounded, kept until a worker has them | `crates/testing/tests/it/runtime/sources.rs` |
//! | predicates and selectors of one source | `predicate::tests`; with a server: `crates/testing/tests/it/runtime/sources.rs` |
//! | R4 sources first | `r4_…` |
//! | R5 errors and backoff | `r5_…`; errors of any type: `crates/testing/tests/it/runtime/controllers.rs::r5_…` |
//! | M6 controllers come and go | `crates/testing/tests/it/runtime/controllers.rs::m6_…` |
//! | R6, M7 stop | `m7_…` |
//! | R7 panics | `r7_…` |
//! | M3 runnables after caches | `m3_…` |
//! | LE1–LE6 leader election | the engine's `election::tests`, `tests/it/election.rs` there; with a server: `crates/testing/tests/it/runtime/election.rs` |
//! | SH1–SH5 sharding | the engine's `tests/it/sharding.rs`, `sharding::assign::tests`; with a server, and SH6–SH8: `crates/testing/tests/it/runtime/sharding.rs`, `sharding::shards::tests` |
//! | LE8 fields of others in a Lease | `election::lease::tests::le8_…` |
//! | finalizers | `controller::finalizer::tests`; with a server: `crates/testing/tests/it/runtime/finalizers.rs` |
//! | M5 the first error | `m5_…` |
//! | M2 probes first | `m2_…` |
//! | W1 an answer carries its request's uid | `webhook::tests::w1_…` |
//! | W2 patches keep what the type does not know | `webhook::merge::tests::w2_…`, `webhook::json_patch::tests::w2_…`; with a server: `crates/testing/tests/it/webhooks` |
//! | W3 dry runs | `webhook::tests::w3_…` |
//! | W4 conversions keep order and metadata | `webhook::tests::w4_…`; lossless: `crates/testing/tests/it/webhooks/round_trip.rs` |
//! | W5 certificates are read again, W6 webhooks before caches, W7 limits | `crates/testing/tests/it/webhooks/https.rs`, `webhook::body::tests`, `health::tests` |
//! | E3, E4 events | `e3_…` |
//! | one layer retries, every request ends | the engine's `retry::tests`, `client::send::tests`, `a_write_is_repeated_…`, `every_request_…` |
//! | nothing is sent that changes nothing | `apply::tests::an_apply_is_sent_when_it_could_change_something`, `apply_…` |

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fake::{Fake, Seen};
use kubewright::k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kubewright::kube::api::Patch;
use kubewright::kube::core::{DynamicObject, PartialObjectMeta};
use kubewright::kube::{self, ResourceExt};
use kubewright::{
    Action, Cache, Client, Context, Controller, Error, Event, EventType, Health, Manager, Observation, Outcome,
    Reconciler, Request, Result, Scope, Stop, api_resource,
};
use serde_json::{Value, json};

const CONFIGS: &str = "/api/v1/configmaps";
const PODS: &str = "/api/v1/pods";
const SECRETS: &str = "/api/v1/secrets";

fn client(fake: &Fake) -> Client {
    Client::new(fake.client(), Cache::new(fake.client()))
}

fn config(namespace: &str, name: &str, value: &str) -> ConfigMap {
    let mut config = ConfigMap {
        data: Some([("key".to_owned(), value.to_owned())].into()),
        ..Default::default()
    };
    config.metadata.namespace = Some(namespace.to_owned());
    config.metadata.name = Some(name.to_owned());
    config
}

fn raw(namespace: &str, name: &str) -> Value {
    json!({ "metadata": { "namespace": namespace, "name": name } })
}

fn value_of(config: &ConfigMap) -> &str {
    config.data.as_ref().map_or("", |data| data["key"].as_str())
}

/// Waits until the condition holds; fails loudly when it does not.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Lets every other task run until all of them wait.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

// ---- reads that see writes

#[tokio::test(start_paused = true)]
async fn k1_a_read_waits_until_the_cache_shows_the_write() {
    let fake = Fake::new();
    let client = client(&fake);
    assert_eq!(client.get::<ConfigMap>(Some("a"), "x").await.expect("a read"), None);
    fake.hold_watches(true);
    client.create(&config("a", "x", "1")).await.expect("created");
    let reading = tokio::spawn({
        let client = client.clone();
        async move { client.get::<ConfigMap>(Some("a"), "x").await }
    });
    settle().await;
    assert!(
        !reading.is_finished(),
        "answered from a cache that has not seen the write"
    );
    // Other keys are not held up.
    assert_eq!(client.get::<ConfigMap>(Some("a"), "other").await.expect("a read"), None);
    fake.hold_watches(false);
    let read = reading.await.expect("no panic").expect("a read").expect("it exists");
    assert_eq!(value_of(&read), "1");
    assert_eq!(
        fake.seen("GET", "/configmaps/x").len(),
        0,
        "the answer came from the cache"
    );
}

#[tokio::test(start_paused = true)]
async fn k1_after_the_deadline_one_object_is_read_live_and_a_list_is_stale() {
    let fake = Fake::new();
    let client = client(&fake);
    client.list::<ConfigMap>(None).await.expect("a list");
    fake.hold_watches(true);
    client.create(&config("a", "x", "1")).await.expect("created");
    let read = client
        .get::<ConfigMap>(Some("a"), "x")
        .await
        .expect("a read")
        .expect("it exists");
    assert_eq!(value_of(&read), "1");
    assert_eq!(looked_up(&fake, "x"), 1);
    let error = client
        .list::<ConfigMap>(Some("a"))
        .await
        .expect_err("the cache does not show our write");
    assert!(matches!(error, Error::Stale { .. }), "{error}");
    client
        .list::<ConfigMap>(Some("b"))
        .await
        .expect("nothing was written there");
}

#[tokio::test(start_paused = true)]
async fn k2_a_write_outside_the_scope_does_not_block_reads() {
    let fake = Fake::new();
    let client = client(&fake);
    let informer = client.cache().informer_in::<ConfigMap>(Scope::namespace("a"));
    informer.synced().await.expect("synced");
    fake.hold_watches(true);
    client.create(&config("b", "x", "1")).await.expect("created");
    let before = tokio::time::Instant::now();
    assert!(client.list_from(&informer, None).await.expect("a list").is_empty());
    assert!(before.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn k3_after_an_own_delete_the_object_is_gone() {
    let fake = Fake::new();
    let client = client(&fake);
    fake.put(CONFIGS, raw("a", "x"));
    let object = client
        .get::<ConfigMap>(Some("a"), "x")
        .await
        .expect("a read")
        .expect("it exists");
    fake.hold_watches(true);
    assert!(client.delete(&*object).await.expect("deleted"));
    let reading = tokio::spawn({
        let client = client.clone();
        async move { client.get::<ConfigMap>(Some("a"), "x").await }
    });
    settle().await;
    assert!(!reading.is_finished());
    fake.hold_watches(false);
    assert_eq!(reading.await.expect("no panic").expect("a read"), None);
    assert!(
        !client.delete(&*object).await.expect("an answer"),
        "a second delete finds nothing"
    );
}

/// K5: the namesake lives, because the delete named the uid that it meant.
#[tokio::test]
async fn k5_a_delete_does_not_hit_a_namesake() {
    let fake = Fake::new();
    let client = client(&fake);
    fake.put(CONFIGS, raw("a", "x"));
    let first = client
        .live::<ConfigMap>(Some("a"), "x")
        .await
        .expect("a read")
        .expect("it exists");
    fake.remove(CONFIGS, "a", "x");
    fake.put(CONFIGS, raw("a", "x"));
    assert!(!client.delete(&first).await.expect("an answer"));
    assert!(fake.object(CONFIGS, "a", "x").is_some());
}

#[tokio::test(start_paused = true)]
async fn k4_dry_runs_and_refusals_do_not_hold_reads_and_lost_answers_are_looked_up() {
    let fake = Fake::new();
    let client = client(&fake);
    client.list::<ConfigMap>(None).await.expect("a list");
    fake.hold_watches(true);
    client
        .with_dry_run()
        .create(&config("a", "dry", "1"))
        .await
        .expect("the server would take it");
    fake.refuse(|seen: &Seen| (seen.verb == "POST").then_some((403, "Forbidden", false)));
    client.create(&config("a", "refused", "1")).await.expect_err("refused");
    let before = tokio::time::Instant::now();
    client.list::<ConfigMap>(None).await.expect("nothing was written");
    assert!(before.elapsed() < Duration::from_secs(1));

    fake.refuse_nothing();
    fake.refuse(|seen: &Seen| (seen.verb == "POST").then_some((504, "Timeout", true)));
    client.create(&config("a", "lost", "1")).await.expect_err("no answer");
    fake.refuse_nothing();
    let read = client.get::<ConfigMap>(Some("a"), "lost").await.expect("a read");
    assert!(read.is_some(), "the write had happened, and the API was asked");
}

/// How often the server was asked for one object by name.
fn looked_up(fake: &Fake, name: &str) -> usize {
    let name = format!("metadata.name%3D{name}");
    fake.seen("LIST", "/configmaps")
        .iter()
        .filter(|seen| seen.query.contains(&name))
        .count()
}

/// Starts a read and lets everything run that can.
async fn started<T: Send + 'static>(read: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    let task = tokio::spawn(read);
    settle().await;
    task
}

/// Acknowledgements of two tasks may arrive in another order than the server wrote.
#[tokio::test(start_paused = true)]
async fn k1_a_list_waits_for_the_writes_before_it_and_for_no_later_one() {
    let fake = Fake::new();
    let client = client(&fake);
    client.list::<ConfigMap>(None).await.expect("a list");
    fake.hold_watches(true);
    client.create(&config("a", "x", "1")).await.expect("created");
    let before = fake.version();
    let list = client.clone();
    let list = started(async move { list.list::<ConfigMap>(Some("a")).await }).await;
    client.create(&config("a", "y", "1")).await.expect("created");
    assert!(!list.is_finished(), "x is not there yet");
    fake.deliver_up_to(before);
    let listed = list
        .await
        .expect("no panic")
        .expect("the writer of y holds nobody who came earlier");
    assert_eq!(listed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn k1_a_write_into_a_selected_scope_is_waited_for() {
    let check = async |scope: Scope, before: Value, change: Value| {
        let fake = Fake::new();
        fake.put(PODS, before);
        let client = client(&fake);
        let pods = client.cache().informer_in::<Pod>(scope);
        pods.synced().await.expect("synced");
        fake.hold_watches(true);
        client
            .patch::<Pod, Value>(Some("a"), "x", &Patch::Merge(change))
            .await
            .expect("patched");
        let list = started(async move { client.list_from(&pods, None).await }).await;
        assert!(!list.is_finished(), "it shows what was before the write");
        fake.hold_watches(false);
        list.await.expect("no panic").expect("a list");
    };
    let labels = json!({ "metadata": { "labels": { "app": "web" } } });
    check(
        Scope::all().labels([("app", "web")].into_iter().collect()),
        pod("x"),
        labels,
    )
    .await;
    check(
        Scope::all().fields("spec.nodeName=n"),
        pod("x"),
        json!({ "spec": { "nodeName": "n" } }),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn k3_a_deleted_object_that_the_cache_had_not_seen_is_not_seen_later() {
    let fake = Fake::new();
    let client = client(&fake);
    client.list::<ConfigMap>(None).await.expect("a list");
    fake.hold_watches(true);
    fake.put(CONFIGS, raw("a", "x"));
    let created = fake.version();
    let live = client
        .live::<ConfigMap>(Some("a"), "x")
        .await
        .expect("a read")
        .expect("it exists");
    assert!(client.delete(&live).await.expect("deleted"));
    assert_eq!(client.get::<ConfigMap>(Some("a"), "x").await.expect("a read"), None);
    fake.deliver_up_to(created);
    settle().await;
    let read = client.clone();
    let read = started(async move { read.get::<ConfigMap>(Some("a"), "x").await }).await;
    assert!(!read.is_finished(), "its creation has arrived, its deletion not");
    fake.hold_watches(false);
    assert_eq!(read.await.expect("no panic").expect("a read"), None);
}

/// A write that was sent counts, even when its future was dropped.
#[tokio::test(start_paused = true)]
async fn k4_a_write_whose_future_was_dropped_is_looked_up() {
    let fake = Fake::new();
    let client = client(&fake);
    client.list::<ConfigMap>(None).await.expect("a list");
    fake.hold_watches(true);
    fake.swallow(|seen: &Seen| seen.verb == "POST");
    let mut generated = config("a", "", "1");
    generated.metadata.name = None;
    generated.metadata.generate_name = Some("g-".to_owned());
    for object in [config("a", "lost", "1"), generated] {
        tokio::time::timeout(Duration::from_secs(1), client.create(&object))
            .await
            .expect_err("no answer");
    }
    fake.refuse_nothing();
    let read = client.get::<ConfigMap>(Some("a"), "lost").await.expect("a read");
    assert!(read.is_some(), "the API was asked");
    let list = client.clone();
    let list = started(async move { list.list::<ConfigMap>(Some("a")).await }).await;
    assert!(!list.is_finished(), "both were written, neither is shown");
    fake.hold_watches(false);
    assert_eq!(list.await.expect("no panic").expect("a list").len(), 2);
}

/// Many reconciles read the object of one write with an unknown outcome.
#[tokio::test(start_paused = true)]
async fn k4_readers_that_wait_for_the_same_answer_ask_once() {
    let fake = Fake::new();
    let client = client(&fake);
    client.list::<ConfigMap>(None).await.expect("a list");
    fake.hold_watches(true);
    let lost = async |name: &str| {
        fake.refuse(|seen: &Seen| (seen.verb == "POST").then_some((504, "Timeout", true)));
        client.create(&config("a", name, "1")).await.expect_err("no answer");
        fake.refuse_nothing();
    };
    let get = |name: &'static str| {
        let client = client.clone();
        async move { client.get::<ConfigMap>(Some("a"), name).await }
    };
    let shown = || fake.deliver_up_to(fake.version());

    lost("one").await;
    let lists = [client.clone(), client.clone()]
        .map(|client| tokio::spawn(async move { client.list::<ConfigMap>(Some("a")).await }));
    let gets = [(); 3].map(|()| tokio::spawn(get("one")));
    settle().await;
    shown();
    for list in lists {
        assert_eq!(list.await.expect("no panic").expect("a list").len(), 1);
    }
    for read in gets {
        assert!(read.await.expect("no panic").expect("a read").is_some());
    }
    assert_eq!(looked_up(&fake, "one"), 1);

    // The reader may be gone before there is an answer: the next one asks.
    lost("two").await;
    fake.swallow(|seen: &Seen| seen.verb == "LIST");
    let leaves = started(get("two")).await;
    fake.refuse_nothing();
    let stays = started(get("two")).await;
    assert_eq!(
        looked_up(&fake, "two"),
        1,
        "the second one waits for the first one's answer"
    );
    leaves.abort();
    settle().await;
    shown();
    assert!(stays.await.expect("no panic").expect("a read").is_some());
    assert_eq!(looked_up(&fake, "two"), 2);
}

/// A scheduler has its own account of its bindings.
#[tokio::test(start_paused = true)]
async fn k1_no_read_waits_for_a_write_without_a_receipt() {
    let fake = Fake::new();
    let client = client(&fake);
    client.list::<ConfigMap>(None).await.expect("a list");
    fake.hold_watches(true);
    let quiet = client.without_receipts();
    quiet.create(&config("a", "x", "1")).await.expect("created");
    fake.refuse(|seen: &Seen| (seen.verb == "POST").then_some((504, "Timeout", true)));
    quiet.create(&config("a", "lost", "1")).await.expect_err("no answer");
    fake.refuse_nothing();
    for name in ["x", "lost"] {
        assert_eq!(client.get::<ConfigMap>(Some("a"), name).await.expect("a read"), None);
        assert_eq!(looked_up(&fake, name), 0, "{name}");
    }
    assert_eq!(client.list::<ConfigMap>(Some("a")).await.expect("a list").len(), 0);
}

/// Versions of an old history are never reached in a new one.
#[tokio::test(start_paused = true)]
async fn k4_a_write_before_a_restore_holds_nobody_for_ever() {
    let fake = Fake::new();
    let client = client(&fake);
    let informer = client.cache().pinned::<ConfigMap>();
    client.list::<ConfigMap>(None).await.expect("a list");
    fake.hold_watches(true);
    client.create(&config("a", "x", "1")).await.expect("created");
    fake.restore();
    fake.hold_watches(false);
    eventually_paused("the new history is there", || {
        informer
            .store()
            .resource_version()
            .is_some_and(|version| version.len() < 3)
    })
    .await;
    let before = tokio::time::Instant::now();
    assert_eq!(client.list::<ConfigMap>(Some("a")).await.expect("a list").len(), 1);
    assert!(before.elapsed() < Duration::from_secs(1));
}

// ---- requests

/// Exactly one layer retries, and a POST only when it cannot have been carried out.
#[tokio::test(start_paused = true)]
async fn a_write_is_repeated_only_when_it_cannot_have_been_carried_out() {
    let check = async |code: u16, reason: &'static str, sent: usize| {
        let fake = Fake::new();
        let times = AtomicUsize::new(0);
        fake.refuse(move |seen: &Seen| {
            let refused = seen.verb == "POST" && times.fetch_add(1, Ordering::SeqCst) < 2;
            refused.then_some((code, reason, false))
        });
        let created = client(&fake).create(&config("a", "x", "1")).await;
        assert_eq!(fake.seen("POST", "/configmaps").len(), sent, "{code}: {created:?}");
        assert_eq!(created.is_ok(), sent == 3);
    };
    check(429, "TooManyRequests", 3).await;
    check(503, "ServiceUnavailable", 1).await;
    check(504, "Timeout", 1).await;
    check(403, "Forbidden", 1).await;
}

#[tokio::test(start_paused = true)]
async fn every_request_has_a_deadline() {
    let fake = Fake::new();
    fake.swallow(|seen: &Seen| ["GET", "POST"].contains(&seen.verb));
    let client = client(&fake).with_request_deadline(Duration::from_secs(7));
    let before = tokio::time::Instant::now();
    let error = client.create(&config("a", "x", "1")).await.expect_err("no answer");
    assert!(error.to_string().contains("did not answer within 7s"), "{error}");
    client.live::<ConfigMap>(Some("a"), "x").await.expect_err("no answer");
    assert_eq!(before.elapsed().as_secs(), 14);
}

// ---- caches

#[tokio::test]
async fn si10_one_watch_for_all_users_and_none_after_the_last() {
    let fake = Fake::new();
    fake.put(CONFIGS, raw("a", "x"));
    let cache = Cache::new(fake.client());
    let metadata =
        cache.informer_dynamic::<PartialObjectMeta<DynamicObject>>(&api_resource::<ConfigMap>(), Scope::all());
    let asked_for_metadata = |fake: &Fake| {
        let seen = fake.seen("WATCH", CONFIGS).into_iter();
        seen.map(|seen| seen.accept.contains("as=PartialObjectMetadata"))
            .collect::<Vec<bool>>()
    };
    metadata.synced().await.expect("synced");
    assert_eq!(asked_for_metadata(&fake), [true], "nobody needs more");
    let informers: Vec<_> = (0..5).map(|_| cache.informer::<ConfigMap>()).collect();
    let dynamic = cache.informer_dynamic::<DynamicObject>(&api_resource::<ConfigMap>(), Scope::all());
    let part = cache.informer_in::<ConfigMap>(Scope::namespace("a"));
    informers[4].synced().await.expect("synced");
    dynamic.synced().await.expect("synced");
    part.synced().await.expect("synced");
    eventually("one watch for whole objects, metadata, dynamic ones and a part", || {
        fake.open_watches() == 1
    })
    .await;
    assert!(!asked_for_metadata(&fake).last().expect("a watch"));
    let counts = (metadata.store().len(), dynamic.store().len(), part.store().len());
    assert_eq!(counts, (1, 1, 1));
    drop((informers, dynamic, part));
    fake.put(CONFIGS, raw("a", "y"));
    eventually("the last one is told", || metadata.store().len() == 2).await;
    assert_eq!(fake.open_watches(), 1);
    drop(metadata);
    eventually("all watches end", || fake.open_watches() == 0).await;
}

#[tokio::test]
async fn c8_a_kind_that_fails_is_visible_and_hurts_no_other() {
    let fake = Fake::new();
    fake.refuse(|seen: &Seen| seen.path.contains("secrets").then_some((403, "Forbidden", false)));
    fake.put(CONFIGS, raw("a", "x"));
    let client = client(&fake);
    let secrets = client.cache().informer::<Secret>();
    assert_eq!(client.list::<ConfigMap>(None).await.expect("a list").len(), 1);
    eventually("it says what is wrong", || {
        says(secrets.health(), "refused by the test")
    })
    .await;
    let error = secrets
        .synced_within(Duration::from_millis(10))
        .await
        .expect_err("forbidden");
    assert!(
        error.to_string().contains("Secret"),
        "the error names the kind: {error}"
    );
}

fn says(health: Health, text: &str) -> bool {
    matches!(health, Health::Degraded { reason } if reason.contains(text))
}

fn broken_pod(name: &str) -> Value {
    json!({ "metadata": { "namespace": "a", "name": name }, "spec": 7 })
}

/// RF11: one object that does not decode affects no other, by a list and by a watch list.
#[tokio::test]
async fn rf11_an_object_that_does_not_decode_is_skipped_and_read_again_when_it_changes() {
    for watch_list in [true, false] {
        let fake = Fake::new();
        if !watch_list {
            fake.refuse(|seen: &Seen| {
                seen.query
                    .contains("sendInitialEvents")
                    .then_some((400, "BadRequest", false))
            });
        }
        fake.put(PODS, broken_pod("bad"));
        fake.put(PODS, pod("good"));
        let client = client(&fake);
        let pods = client.cache().informer::<Pod>();
        pods.synced().await.expect("the others are there");
        assert_eq!(names(&client.list::<Pod>(None).await.expect("a list")), ["good"]);
        assert!(says(pods.health(), "Pod a/bad"), "{:?}", pods.health());
        let unreadable = pods.unreadable();
        assert_eq!(unreadable.len(), 1);
        assert_eq!(unreadable[0].request, Request::new(Some("a"), "bad"));
        // "It does not exist" would be an invention.
        let error = client.get::<Pod>(Some("a"), "bad").await.expect_err("it is there");
        assert!(matches!(error, Error::Undecodable { .. }), "{error:?}");
        assert!(
            error.is_terminal() && error.to_string().contains("Pod a/bad"),
            "{error}"
        );

        fake.put(PODS, pod("later"));
        eventually("the watch goes on", || pods.store().get(Some("a"), "later").is_some()).await;
        fake.put(PODS, pod("bad"));
        eventually("it is read again", || pods.store().get(Some("a"), "bad").is_some()).await;
        assert_eq!((pods.health(), pods.unreadable().len()), (Health::Synced, 0));
        assert_eq!(
            fake.seen("LIST", PODS).len() + fake.seen("WATCH", PODS).len(),
            if watch_list { 1 } else { 3 },
            "nothing was asked for twice"
        );
    }
}

fn names(pods: &[Arc<Pod>]) -> Vec<String> {
    pods.iter().map(|pod| pod.name_any()).collect()
}

/// RF11: handlers keep the last state that could be read, and hear of the deletion of an object that cannot.
#[tokio::test]
async fn rf11_what_becomes_unreadable_keeps_its_last_state_until_it_is_deleted() {
    let fake = Fake::new();
    fake.put(PODS, pod("x"));
    let cache = Cache::new(fake.client());
    let pods = cache.informer::<Pod>();
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = log.clone();
    pods.add_inline_handler(move |event: &Event<Pod>| {
        let word = match event {
            Event::Added { .. } => "added",
            Event::Modified { .. } => "modified",
            Event::Deleted { .. } => "deleted",
        };
        sink.lock()
            .expect("quiet")
            .push(format!("{word} {}", event.object().name_any()));
    });
    pods.synced().await.expect("synced");
    fake.put(PODS, broken_pod("x"));
    eventually("it is reported", || says(pods.health(), "Pod a/x")).await;
    assert!(pods.store().get(Some("a"), "x").is_some(), "the last state is kept");
    fake.remove(PODS, "a", "x");
    eventually("it is gone", || pods.store().is_empty()).await;
    eventually("nothing is left to report", || pods.health() == Health::Synced).await;
    assert_eq!(*log.lock().expect("quiet"), ["added x", "deleted x"]);
}

/// RF11: people see it where they look: on the object, among the observations; and its reconciles wait for it to
/// change.
#[tokio::test]
async fn rf11_an_unreadable_object_has_an_event_and_is_not_reconciled() {
    let fake = Fake::new();
    fake.put(PODS, pod("x"));
    let reconciler = Scripted::new(|_, _| Err(Error::retry("not yet")));
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = seen.clone();
    let observe = move |what: &Observation| {
        if let Observation::ObjectUnreadable { object, error, .. } = what {
            sink.lock().expect("quiet").push(format!("{object}: {error}"));
        }
    };
    let manager = Manager::builder(fake.client())
        .observe(Arc::new(observe))
        .add(Controller::of::<Pod>(reconciler.clone()).backoff(Duration::from_millis(1), Duration::from_millis(1)))
        .build()
        .expect("it fits");
    with_manager(manager, async {
        eventually("it runs and fails", || reconciler.runs().len() > 1).await;
        fake.put(PODS, broken_pod("x"));
        eventually("an event says so", || {
            fake.objects("/apis/events.k8s.io/v1/events")
                .iter()
                .any(|event| event["reason"] == "Unreadable" && event["regarding"]["name"] == "x")
        })
        .await;
        assert!(seen.lock().expect("quiet")[0].starts_with("Pod a/x: "), "{seen:?}");
        let before = reconciler.runs().len();
        fake.put(PODS, pod("y"));
        eventually("others are reconciled", || {
            reconciler.runs()[before.saturating_sub(1)..]
                .iter()
                .any(|call| call.contains('y'))
        })
        .await;
        assert!(!reconciler.runs().iter().any(|call| call.starts_with("deleted")));
    })
    .await;
}

#[tokio::test]
async fn rf5_a_server_without_send_initial_events_is_listed_in_pages() {
    let fake = Fake::new();
    fake.refuse(|seen: &Seen| {
        seen.query
            .contains("sendInitialEvents")
            .then_some((422, "Invalid", false))
    });
    for number in 0..1201 {
        fake.put(CONFIGS, raw("a", &format!("c{number:04}")));
    }
    let client = client(&fake);
    assert_eq!(client.list::<ConfigMap>(Some("a")).await.expect("a list").len(), 1201);
    assert_eq!(fake.seen("LIST", CONFIGS).len(), 3);
    fake.put(CONFIGS, raw("a", "later"));
    let store = client.cache().informer::<ConfigMap>().store();
    eventually("the watch goes on", || store.get(Some("a"), "later").is_some()).await;
}

/// SI7: a handler that does not return holds up neither the store nor the others, and is told later how things stand
/// then. On one thread the list cannot be complete before both handlers are there.
#[tokio::test]
async fn si7_a_slow_handler_holds_up_nobody() {
    let fake = Fake::new();
    fake.put(CONFIGS, raw("a", "x"));
    let client = client(&fake);
    let informer = client.cache().informer::<ConfigMap>();
    let (slow, quick): (Log, Log) = Default::default();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (sink, held) = (slow.clone(), Mutex::new(held));
    let slow_one = informer.add_handler(move |event: &Event<ConfigMap>| {
        sink.lock().expect("quiet").push(told(event));
        // Ends with the test, also when that fails.
        let _ = held.lock().expect("quiet").recv();
    });
    let sink = quick.clone();
    informer.add_handler(move |event: &Event<ConfigMap>| sink.lock().expect("quiet").push(told(event)));
    eventually("the quick one is told", || quick.lock().expect("quiet").len() == 1).await;
    for _ in 0..3 {
        fake.put(CONFIGS, raw("a", "x"));
    }
    fake.put(CONFIGS, raw("a", "y"));
    fake.remove(CONFIGS, "a", "y");
    fake.put(CONFIGS, raw("a", "z"));
    eventually("the quick one is told of the last", || {
        quick
            .lock()
            .expect("quiet")
            .last()
            .is_some_and(|last| last == "added z")
    })
    .await;
    client
        .list::<ConfigMap>(None)
        .await
        .expect("reads do not wait for a handler");
    assert_eq!(*slow.lock().expect("quiet"), ["added x"]);
    assert!(
        !informer.is_synced() && !informer.handler_synced(slow_one),
        "SI5: it has not returned"
    );
    drop(release);
    eventually("the slow one has caught up", || slow.lock().expect("quiet").len() == 3).await;
    assert_eq!(
        *slow.lock().expect("quiet"),
        ["added x", "modified x", "added z"],
        "folded by key"
    );
    informer.synced().await.expect("synced");
    assert!(informer.handler_synced(slow_one));
}

/// A handler that waits for whoever removes it: in a runtime of one thread both would wait for ever.
#[tokio::test]
async fn si6_a_handler_that_waits_for_its_remover_can_be_removed() {
    let fake = Fake::new();
    fake.put(CONFIGS, raw("a", "x"));
    let cache = Cache::new(fake.client());
    let informer = cache.informer::<ConfigMap>();
    let (entered, mut inside) = tokio::sync::mpsc::unbounded_channel();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    let handler = informer.add_handler(move |_: &Event<ConfigMap>| {
        entered.send(()).expect("the test waits");
        let _ = held.lock().expect("quiet").recv();
    });
    inside.recv().await.expect("it is called");
    fake.put(CONFIGS, raw("a", "y"));
    let store = informer.store();
    eventually("there is more to tell", || store.len() == 2).await;
    assert!(informer.remove_handler(handler));
    release.send(()).expect("the handler waits");
    assert!(inside.recv().await.is_none(), "it is not called again, and goes");
}

/// SI5, SI6, SI7 of a handler that joins late, panics, and is removed.
#[tokio::test]
async fn si6_a_late_handler_is_told_all_and_silent_after_its_removal() {
    let fake = Fake::new();
    fake.put(CONFIGS, raw("a", "bad"));
    fake.put(CONFIGS, raw("a", "x"));
    let cache = Cache::new(fake.client());
    let informer = cache.informer::<ConfigMap>();
    informer.synced().await.expect("synced");
    let log = Log::default();
    let sink = log.clone();
    let late = informer.add_handler(move |event: &Event<ConfigMap>| {
        assert!(event.object().name_any() != "bad", "a handler's own mistake");
        sink.lock().expect("quiet").push(told(event));
    });
    assert!(informer.is_synced(), "a late handler does not take that back");
    eventually("it has been told", || informer.handler_synced(late)).await;
    assert_eq!(*log.lock().expect("quiet"), ["added x"]);
    assert!(informer.remove_handler(late) && !informer.remove_handler(late));
    assert!(!informer.handler_synced(late));
    let seen = Log::default();
    let sink = seen.clone();
    informer.add_inline_handler(move |event: &Event<ConfigMap>| sink.lock().expect("quiet").push(told(event)));
    assert_eq!(
        *seen.lock().expect("quiet"),
        ["added bad", "added x"],
        "told before it returned"
    );
    fake.remove(CONFIGS, "a", "x");
    eventually("it is told of the end", || seen.lock().expect("quiet").len() == 3).await;
    assert_eq!(*log.lock().expect("quiet"), ["added x"]);
}

type Log = Arc<Mutex<Vec<String>>>;

fn told(event: &Event<ConfigMap>) -> String {
    let verb = match event {
        Event::Added { .. } => "added",
        Event::Modified { .. } => "modified",
        Event::Deleted { .. } => "deleted",
    };
    format!("{verb} {}", event.object().name_any())
}

/// DF2, SI1: a deletion that no watch saw is an event, with the last known object.
#[tokio::test]
async fn df2_a_deletion_in_a_gap_reaches_the_handlers() {
    let fake = Fake::new();
    fake.put(CONFIGS, raw("a", "gone"));
    let cache = Cache::new(fake.client());
    let informer = cache.informer::<ConfigMap>();
    let events: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = events.clone();
    informer.add_inline_handler(move |event: &Event<ConfigMap>| {
        let text = match event {
            Event::Added { object, initial } => format!("added {} {initial}", object.name_any()),
            Event::Modified { new, .. } => format!("modified {}", new.name_any()),
            Event::Deleted {
                object,
                final_state_unknown,
                ..
            } => format!("deleted {} {final_state_unknown}", object.name_any()),
        };
        sink.lock().expect("quiet").push(text);
    });
    informer.synced().await.expect("synced");
    fake.hold_watches(true);
    fake.remove(CONFIGS, "a", "gone");
    fake.compact_and_cut();
    fake.hold_watches(false);
    eventually("the deletion is told", || events.lock().expect("quiet").len() == 2).await;
    assert_eq!(*events.lock().expect("quiet"), ["added gone true", "deleted gone true"]);
    assert_eq!(informer.store().len(), 0);
}

// ---- apply and status

fn context(client: &Client, owner: &Value) -> (Context, Pod) {
    let pod: Pod = serde_json::from_value(owner.clone()).expect("a pod");
    (Context::detached(client.clone(), "test", &pod), pod)
}

#[tokio::test]
async fn apply_creates_patches_what_differs_and_sends_nothing_else() {
    let fake = Fake::new();
    let client = client(&fake);
    let owner = fake.put(
        PODS,
        json!({ "metadata": { "namespace": "a", "name": "owner" }, "spec": { "containers": [] } }),
    );
    let (ctx, _) = context(&client, &owner);
    let desired = |value: &str| {
        let mut desired = config("a", "child", value);
        desired.metadata.namespace = None; // the owner's
        desired
    };
    let created = ctx.apply(desired("1")).await.expect("created");
    let reference = &created.owner_references()[0];
    let expected = ("Pod", "owner", Some(true), Some(true));
    assert_eq!(
        (
            reference.kind.as_str(),
            reference.name.as_str(),
            reference.controller,
            reference.block_owner_deletion
        ),
        expected
    );

    let writes = fake.writes();
    ctx.apply(desired("1")).await.expect("nothing to do");
    assert_eq!(fake.writes(), writes, "nothing is sent when nothing changes");

    ctx.apply(desired("2")).await.expect("patched");
    let patches = fake.seen("PATCH", CONFIGS.rsplit('/').next().expect("a plural"));
    assert_eq!(patches.len(), 2);
    let sent: Value = serde_json::from_str(&patches[1].body).expect("JSON");
    assert_eq!(sent["data"], json!({ "key": "2" }));
    assert_eq!(
        (&sent["kind"], &sent["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    assert!(patches[1].query.contains("force=true"), "{}", patches[1].query);
    // Additions of other clients stay, and are no difference.
    let mut other = fake.object(CONFIGS, "a", "child").expect("it exists");
    other["data"]["theirs"] = json!("x");
    fake.put(CONFIGS, other);
    let store = client.cache().pinned::<ConfigMap>().store();
    eventually("the cache has it", || {
        store
            .get(Some("a"), "child")
            .is_some_and(|child| child.data.as_ref().is_some_and(|data| data.contains_key("theirs")))
    })
    .await;
    let writes = fake.writes();
    ctx.apply(desired("2")).await.expect("nothing to do");
    assert_eq!(fake.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn apply_does_not_repeat_a_patch_that_the_server_normalises_away() {
    let fake = Fake::new();
    fake.normalise(|object| {
        if object["data"]["key"] == json!("1000m") {
            object["data"]["key"] = json!("1");
        }
    });
    let client = client(&fake);
    let owner = fake.put(
        PODS,
        json!({ "metadata": { "namespace": "a", "name": "owner" }, "spec": { "containers": [] } }),
    );
    let (ctx, _) = context(&client, &owner);
    for _ in 0..5 {
        let applied = ctx.apply(config("a", "child", "1000m")).await.expect("applied");
        assert_eq!(value_of(&applied), "1");
    }
    assert_eq!(fake.writes(), 1);
    // Not for ever: a field that a server prunes today it may know tomorrow.
    tokio::time::sleep(Duration::from_secs(601)).await;
    ctx.apply(config("a", "child", "1000m")).await.expect("applied");
    assert_eq!(fake.writes(), 2);
}

#[tokio::test]
async fn apply_refuses_what_it_may_not_own() {
    let fake = Fake::new();
    let client = client(&fake);
    let owner = fake.put(
        PODS,
        json!({ "metadata": { "namespace": "a", "name": "owner" }, "spec": { "containers": [] } }),
    );
    let (ctx, _) = context(&client, &owner);
    let theirs = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "rival", "uid": "other", "controller": true }]);
    fake.put(
        CONFIGS,
        json!({ "metadata": { "namespace": "a", "name": "taken", "ownerReferences": theirs } }),
    );
    let error = ctx
        .apply(config("a", "taken", "1"))
        .await
        .expect_err("owned by another");
    assert!(matches!(&error, Error::AlreadyOwned { .. }), "{error}");
    assert!(error.to_string().contains("Pod rival"), "{error}");

    let mut foreign = Namespace::default();
    foreign.metadata.name = Some("b".to_owned());
    let error = ctx.apply(foreign).await.expect_err("a pod cannot own a namespace");
    assert!(
        error.is_terminal() && error.to_string().contains("cannot own Namespace b"),
        "{error}"
    );
    let error = ctx.apply(config("b", "x", "1")).await.expect_err("another namespace");
    assert!(error.is_terminal(), "{error}");
    let error = ctx.apply(ConfigMap::default()).await.expect_err("no name");
    assert!(error.to_string().starts_with("metadata.name:"), "{error}");
    assert_eq!(fake.writes(), 0);
}

#[tokio::test]
async fn patch_status_sends_the_change_against_the_newest_state() {
    let fake = Fake::new();
    let client = client(&fake);
    let owner = fake.put(PODS, json!({ "metadata": { "namespace": "a", "name": "p" }, "spec": { "containers": [] }, "status": { "phase": "Ready" } }));
    client.list::<Pod>(None).await.expect("the kind is cached");
    let (ctx, pod) = context(&client, &owner);
    let phase =
        |phase: &'static str| move |pod: &mut Pod| pod.status.get_or_insert_default().phase = Some(phase.to_owned());
    ctx.patch_status(&pod, phase("Ready")).await.expect("nothing to do");
    assert_eq!(fake.writes(), 0);
    ctx.patch_status(&pod, phase("Progressing")).await.expect("patched");
    // `pod` still says Ready; the newest state does not.
    ctx.patch_status(&pod, phase("Ready")).await.expect("patched back");
    assert_eq!(
        fake.object(PODS, "a", "p").expect("it exists")["status"],
        json!({ "phase": "Ready" })
    );
    let patches = fake.seen("PATCH", "/pods/p/status");
    assert_eq!(patches.len(), 2);
    assert_eq!(patches[0].body, r#"{"status":{"phase":"Progressing"}}"#);
    let error = ctx
        .patch_status(&pod, |pod| pod.spec = None)
        .await
        .expect_err("not the status");
    assert!(
        error.is_terminal() && error.to_string().contains("touched spec"),
        "{error}"
    );
}

/// K6: conditions are a list, and a merge patch replaces it as a whole.
#[tokio::test]
async fn k6_patch_status_loses_no_condition_of_another_writer() {
    let condition = |kind: &str| json!({ "type": kind, "status": "True" });
    let fake = Fake::new();
    let owner = json!({ "metadata": { "namespace": "a", "name": "p" }, "spec": { "containers": [] }, "status": { "conditions": [condition("A")] } });
    let owner = fake.put(PODS, owner);
    let client = client(&fake);
    client.list::<Pod>(None).await.expect("the kind is cached");
    let (ctx, pod) = context(&client, &owner);
    fake.hold_watches(true);
    let mut theirs = owner.clone();
    theirs["status"]["conditions"] = json!([condition("A"), condition("Theirs")]);
    fake.put(PODS, theirs);
    let add = |pod: &mut Pod| {
        let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
        conditions.push(k8s_condition("Ours"));
    };
    let error = ctx
        .patch_status(&pod, add)
        .await
        .expect_err("it would take theirs away");
    assert!(error.is_conflict(), "{error}");
    let stored = fake.object(PODS, "a", "p").expect("it exists");
    assert_eq!(stored["status"]["conditions"].as_array().map(Vec::len), Some(2));
}

fn k8s_condition(kind: &str) -> kubewright::k8s_openapi::api::core::v1::PodCondition {
    kubewright::k8s_openapi::api::core::v1::PodCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn an_update_is_judged_by_the_server_alone() {
    let fake = Fake::new();
    let client = client(&fake);
    fake.put(
        CONFIGS,
        json!({ "metadata": { "namespace": "a", "name": "x" }, "data": { "key": "1" } }),
    );
    let object = client
        .get::<ConfigMap>(Some("a"), "x")
        .await
        .expect("a read")
        .expect("it exists");
    client.update(&*object).await.expect("nothing has changed");
    // The cache lags: its state equals the wanted one, and the server knows better.
    fake.hold_watches(true);
    fake.put(
        CONFIGS,
        json!({ "metadata": { "namespace": "a", "name": "x" }, "data": { "key": "7" } }),
    );
    let error = client.update(&*object).await.expect_err("it has changed since");
    assert!(error.is_conflict(), "{error}");
    let object = client
        .live::<ConfigMap>(Some("a"), "x")
        .await
        .expect("a read")
        .expect("it exists");
    let object = Arc::new(object);
    let mut changed = (*object).clone();
    changed.data = Some([("key".to_owned(), "2".to_owned())].into());
    client.update(&changed).await.expect("updated");
    let error = client.update(&changed).await.expect_err("it has changed since");
    assert!(error.is_conflict(), "{error}");
}

// ---- controllers and managers

type Script = dyn Fn(&Request, usize) -> Result<Action> + Send + Sync;

/// The runs and their causes.
type Runs = Arc<Mutex<Vec<(String, Vec<String>)>>>;

/// Reconciles pods by a script that gets the key and how often it came.
#[derive(Clone)]
struct Scripted {
    script: Arc<Script>,
    runs: Runs,
}

impl Scripted {
    fn new(script: impl Fn(&Request, usize) -> Result<Action> + Send + Sync + 'static) -> Scripted {
        Scripted {
            script: Arc::new(script),
            runs: Arc::default(),
        }
    }

    fn run(&self, request: &Request, ctx: &Context, what: &str) -> Result<Action> {
        let times = {
            let mut runs = self.runs.lock().expect("quiet");
            let causes = ctx.causes().iter().map(ToString::to_string).collect();
            runs.push((format!("{what} {request}"), causes));
            runs.iter()
                .filter(|(text, _)| text.ends_with(&format!(" {request}")))
                .count()
        };
        (self.script)(request, times)
    }

    fn runs(&self) -> Vec<String> {
        self.runs
            .lock()
            .expect("quiet")
            .iter()
            .map(|(text, _)| text.clone())
            .collect()
    }

    fn causes(&self, index: usize) -> Vec<String> {
        self.runs.lock().expect("quiet")[index].1.clone()
    }
}

impl Reconciler for Scripted {
    type Object = Pod;

    async fn reconcile(&self, _: Arc<Pod>, ctx: Context) -> Result<Action> {
        self.run(ctx.request(), &ctx, "reconcile")
    }

    async fn deleted(&self, request: Request, ctx: Context) -> Result<Action> {
        self.run(&request, &ctx, "deleted")
    }
}

fn pod(name: &str) -> Value {
    json!({ "metadata": { "namespace": "a", "name": name }, "spec": { "containers": [] } })
}

fn child(name: &str, owner: &Value) -> Value {
    let reference = json!([{ "apiVersion": "v1", "kind": "Pod", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": true }]);
    json!({ "metadata": { "namespace": "a", "name": name, "ownerReferences": reference }, "data": { "key": "1" } })
}

/// Runs a manager until the test's part is over.
async fn with_manager<T>(manager: Manager, part: impl Future<Output = T>) -> T {
    let (stop_source, stop) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { stop.requested().await }).await });
    let result = part.await;
    stop_source.stop();
    running.await.expect("no panic").expect("a clean stop");
    result
}

#[tokio::test]
async fn causes_lead_from_a_change_to_its_reconcile() {
    let fake = Fake::new();
    let owner = fake.put(PODS, pod("owner"));
    fake.put(CONFIGS, child("c", &owner));
    let scripted = Scripted::new(|_, _| Ok(Action::await_change()));
    let manager = Manager::builder(fake.client())
        .add(Controller::of::<Pod>(scripted.clone()).owns::<ConfigMap>())
        .build()
        .expect("a manager");
    with_manager(manager, async {
        eventually("the first reconcile", || scripted.runs().len() == 1).await;
        assert_eq!(
            scripted.causes(0),
            ["Pod a/owner in the initial list", "ConfigMap a/c in the initial list"]
        );
        let mut changed = child("c", &owner);
        changed["data"]["key"] = json!("2");
        fake.put(CONFIGS, changed);
        eventually("a reconcile for the changed child", || scripted.runs().len() == 2).await;
        assert_eq!(scripted.causes(1), ["ConfigMap a/c changed: data.key \"1\" → \"2\""]);
        // A deletion that no watch saw reaches the owner as well.
        fake.hold_watches(true);
        fake.remove(CONFIGS, "a", "c");
        fake.compact_and_cut();
        fake.hold_watches(false);
        eventually("a reconcile for the deleted child", || scripted.runs().len() == 3).await;
        assert_eq!(scripted.causes(2), ["ConfigMap a/c deleted"]);
        fake.remove(PODS, "a", "owner");
        eventually("the deletion", || {
            scripted.runs().last().is_some_and(|run| run == "deleted a/owner")
        })
        .await;
    })
    .await;
    eventually("no watch is left", || fake.open_watches() == 0).await;
}

/// Keeps the client of its context.
#[derive(Clone, Default)]
struct Lends(Arc<Mutex<Option<Client>>>);

impl Reconciler for Lends {
    type Object = Pod;
    async fn reconcile(&self, _: Arc<Pod>, ctx: Context) -> Result<Action> {
        *self.0.lock().expect("quiet") = Some(ctx.client().clone());
        Ok(Action::await_change())
    }
}

/// An index is read as every list is: with the writes of our own; and it goes with its controller.
#[tokio::test(start_paused = true)]
async fn k1_an_index_shows_own_writes() {
    let fake = Fake::new();
    fake.put(PODS, pod("p"));
    fake.put(
        CONFIGS,
        json!({ "metadata": { "namespace": "a", "name": "old" }, "data": { "key": "red" } }),
    );
    let lends = Lends::default();
    let by_value = |config: &ConfigMap| config.data.iter().flatten().map(|(_, value)| value.clone()).collect();
    let indexing = || Controller::of(lends.clone()).indexes::<ConfigMap>("data", by_value);
    let twice = Manager::builder(fake.client())
        .add(indexing().named("first"))
        .add(indexing().named("second"))
        .build();
    let error = twice.expect_err("the name is taken").to_string();
    assert!(
        error.contains("controller second: ConfigMap has an index \"data\" already"),
        "{error}"
    );
    let manager = Manager::builder(fake.client())
        .add(indexing())
        .build()
        .expect("a manager");
    let client = with_manager(manager, async {
        eventually("a reconcile", || lends.0.lock().expect("quiet").is_some()).await;
        let client = lends.0.lock().expect("quiet").clone().expect("it was kept");
        let of = async |value: &str| -> Vec<String> {
            let found = client.list_by_index::<ConfigMap>(Some("a"), "data", value).await;
            found.expect("a list").iter().map(|config| config.name_any()).collect()
        };
        assert_eq!(of("red").await, ["old"]);
        fake.hold_watches(true);
        client.create(&config("a", "new", "red")).await.expect("created");
        client.delete(&config("a", "old", "")).await.expect("deleted");
        let reading = tokio::spawn({
            let client = client.clone();
            async move { client.list_by_index::<ConfigMap>(Some("a"), "data", "red").await }
        });
        settle().await;
        assert!(
            !reading.is_finished(),
            "answered from a cache that has not seen the writes"
        );
        fake.hold_watches(false);
        let read = reading.await.expect("no panic").expect("a list");
        let names: Vec<String> = read.iter().map(|config| config.name_any()).collect();
        assert_eq!(names, ["new"]);
        assert_eq!(of("blue").await, [""; 0]);
        client
    })
    .await;
    let gone = client.list_by_index::<ConfigMap>(None, "data", "red").await;
    let gone = gone.expect_err("the controller has ended").to_string();
    assert!(
        gone.contains("no such index") && gone.contains("Controller::indexes"),
        "{gone}"
    );
}

#[tokio::test]
async fn a_cluster_scoped_owner_has_one_key() {
    struct Namespaces(Arc<Mutex<Vec<String>>>);
    impl Reconciler for Namespaces {
        type Object = Namespace;
        async fn reconcile(&self, _: Arc<Namespace>, ctx: Context) -> Result<Action> {
            self.0.lock().expect("quiet").push(ctx.request().to_string());
            Ok(Action::await_change())
        }
    }
    let fake = Fake::new();
    fake.put("/api/v1/namespaces", json!({ "metadata": { "name": "n" } }));
    let runs: Arc<Mutex<Vec<String>>> = Arc::default();
    let controller = Controller::of::<Namespace>(Namespaces(runs.clone())).owns::<ConfigMap>();
    let manager = Manager::builder(fake.client())
        .add(controller)
        .build()
        .expect("a manager");
    with_manager(manager, async {
        eventually("the first reconcile", || runs.lock().expect("quiet").len() == 1).await;
        for namespace in ["x", "y"] {
            let reference =
                json!([{ "apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": "u", "controller": true }]);
            fake.put(
                CONFIGS,
                json!({ "metadata": { "namespace": namespace, "name": "c", "ownerReferences": reference } }),
            );
        }
        eventually("a reconcile for the children", || {
            runs.lock().expect("quiet").len() >= 2
        })
        .await;
        assert!(runs.lock().expect("quiet").iter().all(|key| key == "n"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn r4_a_controller_waits_for_its_sources_and_no_other_waits_for_it() {
    let fake = Fake::new();
    fake.refuse(|seen: &Seen| seen.path.contains(SECRETS).then_some((403, "Forbidden", false)));
    fake.put(PODS, pod("p"));
    let scripted = Scripted::new(|_, _| Ok(Action::await_change()));
    let healthy = Scripted::new(|_, _| Ok(Action::await_change()));
    let begun = Arc::new(AtomicUsize::new(0));
    let count = begun.clone();
    let manager = Manager::builder(fake.client())
        .add(Controller::of::<Pod>(scripted.clone()).named("waits").owns::<Secret>())
        .add(Controller::of::<Pod>(healthy.clone()).named("works"))
        .runnable("runs", move |_: Client, stop: Stop| {
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                stop.requested().await;
                Ok(())
            }
        })
        .health("127.0.0.1:0")
        .build()
        .expect("a manager");
    let (address, metrics) = (manager.health_address(), manager.metrics());
    with_manager(manager, async {
        let address = address.await;
        // Longer than any limit that was not asked for.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(scripted.runs(), Vec::<String>::new());
        assert_eq!(healthy.runs(), ["reconcile a/p"], "C8: the other controller works");
        assert_eq!(begun.load(Ordering::SeqCst), 1, "and so does the runnable");
        fake.put(PODS, pod("q"));
        eventually_paused("it goes on", || healthy.runs().len() == 2).await;
        let (status, told) = probe(address, "/readyz").await;
        assert!(
            status == 500
                && told.contains("[-]waits failed: its caches are not synced: Secret in all namespaces: ")
                && told.contains("[+]works ok"),
            "{status} {told}"
        );
        let unhealthy = "kubewright_cache_healthy{cache=\"Secret in all namespaces\"} 0.0";
        assert!(metrics.encode().contains(unhealthy), "{}", metrics.encode());
        fake.refuse_nothing();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let mut runs = scripted.runs();
        runs.sort();
        assert_eq!(runs, ["reconcile a/p", "reconcile a/q"], "it works as soon as it can");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn r4_a_controller_with_a_limit_fails_and_names_the_kind() {
    let fake = Fake::new();
    fake.refuse(|seen: &Seen| seen.path.contains(SECRETS).then_some((403, "Forbidden", false)));
    let scripted = Scripted::new(|_, _| Ok(Action::await_change()));
    let limit = Duration::from_secs(120);
    let controller = Controller::of::<Pod>(scripted.clone()).named("waits").owns::<Secret>();
    let manager = Manager::builder(fake.client()).add(controller.sync_timeout(limit));
    let before = tokio::time::Instant::now();
    let ended = manager.build().expect("a manager").run(std::future::pending()).await;
    let error = ended.expect_err("secrets cannot be listed");
    assert!(
        error.to_string().contains("controller waits: the cache of Secret"),
        "{error}"
    );
    assert!(before.elapsed() >= limit);
    assert_eq!(scripted.runs(), Vec::<String>::new());
}

/// Collects how reconciles ended.
fn outcomes() -> (Arc<Mutex<Vec<Outcome>>>, impl Fn(&Observation) + Send + Sync + 'static) {
    let all: Arc<Mutex<Vec<Outcome>>> = Arc::default();
    let sink = all.clone();
    (all, move |what: &Observation| {
        if let Observation::ReconcileFinished { outcome, .. } = what {
            sink.lock().expect("quiet").push(outcome.clone());
        }
    })
}

#[tokio::test(start_paused = true)]
async fn r5_errors_decide_what_happens_next() {
    let fake = Fake::new();
    fake.put(PODS, pod("p"));
    let scripted = Scripted::new(|_, times| match times {
        1 | 2 => Err(Error::retry("not yet")),
        3 => Err(kube::Error::Api(
            kube::core::Status::failure("changed", "Conflict")
                .with_code(409)
                .boxed(),
        )
        .into()),
        4 => Ok(Action::requeue_after(Duration::from_secs(60))),
        5 => Err(Error::retry("again")),
        _ => Err(Error::terminal("never")),
    });
    let (ended, observer) = outcomes();
    let manager = Manager::builder(fake.client())
        .observe(Arc::new(observer))
        .add(Controller::of::<Pod>(scripted.clone()).backoff(Duration::from_millis(10), Duration::from_secs(10)))
        .build()
        .expect("a manager");
    with_manager(manager, async {
        eventually_paused("the terminal error", || scripted.runs().len() == 6).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(scripted.runs().len(), 6, "a terminal error is not retried");
        fake.put(PODS, json!({ "metadata": { "namespace": "a", "name": "p", "labels": { "a": "b" } }, "spec": { "containers": [] } }));
        eventually_paused("a new event after the terminal error", || scripted.runs().len() == 7).await;
    })
    .await;
    let millis = Duration::from_millis;
    let ended = ended.lock().expect("quiet");
    let expected = [
        Outcome::Retry {
            error: "not yet".into(),
            attempt: 1,
            after: millis(10),
        },
        Outcome::Retry {
            error: "not yet".into(),
            attempt: 2,
            after: millis(20),
        },
        Outcome::Conflict {
            error: "changed".into(),
            after: millis(40),
        },
        Outcome::RequeueAfter(Duration::from_secs(60)),
        Outcome::Retry {
            error: "again".into(),
            attempt: 1,
            after: millis(10),
        },
        Outcome::Terminal { error: "never".into() },
        Outcome::Terminal { error: "never".into() },
    ];
    assert_eq!(*ended, expected);
    assert_eq!(scripted.causes(1), ["retry 1 after: not yet"]);
    assert_eq!(scripted.causes(4), ["timer after 60s"]);
}

/// As [`eventually`], with hours of paused time to spare.
async fn eventually_paused(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never happened: {what}");
}

#[tokio::test]
async fn r7_a_panic_is_an_error_of_its_key_alone() {
    let fake = Fake::new();
    for name in ["bad", "good"] {
        fake.put(PODS, pod(name));
    }
    let scripted = Scripted::new(|request, times| {
        assert!(request.name() != "bad" || times > 2, "the first two times are too much");
        Ok(Action::await_change())
    });
    let (ended, observer) = outcomes();
    let manager = Manager::builder(fake.client())
        .observe(Arc::new(observer))
        .add(Controller::of::<Pod>(scripted.clone()))
        .build()
        .expect("a manager");
    with_manager(manager, async {
        eventually("both are done", || {
            ended
                .lock()
                .expect("quiet")
                .iter()
                .filter(|outcome| **outcome == Outcome::Done)
                .count()
                == 2
        })
        .await;
    })
    .await;
    let panics = ended
        .lock()
        .expect("quiet")
        .iter()
        .filter(|outcome| matches!(outcome, Outcome::Retry { error, .. } if error.contains("panicked")))
        .count();
    assert_eq!(panics, 2);
}

#[tokio::test(start_paused = true)]
async fn r1_a_key_is_never_reconciled_twice_at_once_and_no_change_is_lost() {
    struct Slow {
        running: Arc<AtomicUsize>,
        seen: Arc<Mutex<Vec<String>>>,
    }
    impl Reconciler for Slow {
        type Object = Pod;
        async fn reconcile(&self, pod: Arc<Pod>, _: Context) -> Result<Action> {
            assert_eq!(self.running.fetch_add(1, Ordering::SeqCst), 0, "R1");
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.seen
                .lock()
                .expect("quiet")
                .push(pod.labels().get("n").cloned().unwrap_or_default());
            self.running.fetch_sub(1, Ordering::SeqCst);
            Ok(Action::await_change())
        }
    }
    let fake = Fake::new();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let slow = Slow {
        running: Arc::default(),
        seen: seen.clone(),
    };
    let manager = Manager::builder(fake.client())
        .add(Controller::of::<Pod>(slow).concurrency(4))
        .build()
        .expect("a manager");
    with_manager(manager, async {
        for number in 0..20 {
            let labels = json!({ "n": number.to_string() });
            fake.put(PODS, json!({ "metadata": { "namespace": "a", "name": "p", "labels": labels }, "spec": { "containers": [] } }));
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        // R2, R3: the last state is reconciled, even when changes were merged on the way.
        eventually_paused("the last state", || seen.lock().expect("quiet").last().is_some_and(|last| last == "19")).await;
        assert!(seen.lock().expect("quiet").len() < 20, "changes were merged");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn m7_a_stop_waits_for_running_work_and_names_who_does_not_end() {
    struct Slow(Arc<AtomicUsize>);
    impl Reconciler for Slow {
        type Object = Pod;
        async fn reconcile(&self, _: Arc<Pod>, ctx: Context) -> Result<Action> {
            ctx.stop().requested().await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Action::await_change())
        }
    }
    async fn deaf(_: Client, _: Stop) -> Result<()> {
        std::future::pending().await
    }
    let fake = Fake::new();
    fake.put(PODS, pod("p"));
    let finished = Arc::new(AtomicUsize::new(0));
    let manager = Manager::builder(fake.client())
        .graceful_shutdown(Duration::from_secs(5))
        .add(Controller::of::<Pod>(Slow(finished.clone())))
        .runnable("deaf", deaf)
        .build()
        .expect("a manager");
    let ready = manager.ready();
    let before = tokio::time::Instant::now();
    let error = manager.run(ready).await.expect_err("one does not stop");
    assert_eq!(
        finished.load(Ordering::SeqCst),
        1,
        "R6: the running reconcile was waited for"
    );
    assert!(
        matches!(&error, Error::Shutdown { stuck, .. } if *stuck == ["deaf"]),
        "{error}"
    );
    assert!(before.elapsed() < Duration::from_secs(6));
}

#[tokio::test]
async fn m5_the_first_error_ends_the_manager_and_carries_its_name() {
    async fn failing(_: Client, _: Stop) -> Result<()> {
        Err(Error::terminal("out of paper"))
    }
    async fn panicking(_: Client, _: Stop) -> Result<()> {
        panic!("out of ink")
    }
    let fake = Fake::new();
    let manager = Manager::builder(fake.client())
        .runnable("printer", failing)
        .build()
        .expect("a manager");
    let error = manager.run(std::future::pending()).await.expect_err("it fails");
    assert_eq!(error.to_string(), "printer: out of paper");
    let manager = Manager::builder(fake.client())
        .runnable("printer", panicking)
        .build()
        .expect("a manager");
    let error = manager.run(std::future::pending()).await.expect_err("it fails");
    let told = error.to_string();
    assert!(
        told.starts_with("printer: printer panicked: out of ink (at ") && told.contains("runtime.rs:"),
        "{told}"
    );
}

#[test]
fn what_cannot_work_is_refused_before_it_runs() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let fake = Fake::new();
        let scripted = || Scripted::new(|_, _| Ok(Action::await_change()));
        let twice = Manager::builder(fake.client())
            .add(Controller::of::<Pod>(scripted()))
            .add(Controller::of::<Pod>(scripted()))
            .build();
        assert!(
            twice
                .expect_err("one name, two controllers")
                .to_string()
                .contains("named \"pod\"")
        );
        let stray =
            Controller::of::<Pod>(scripted()).with_predicate::<Secret>(kubewright::predicate::generation_changed);
        let manager = Manager::builder(fake.client()).add(stray).build();
        let error = manager.expect_err("the predicate is for nothing");
        assert!(
            error.to_string().contains("a predicate for Secret can never apply"),
            "{error}"
        );
    });
}

async fn probe(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    use hyper_util::rt::TokioIo;
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("the server listens");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("HTTP");
    tokio::spawn(connection);
    let request = http::Request::get(path)
        .header("host", "probe")
        .body(http_body_util::Empty::<bytes::Bytes>::new())
        .expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    let status = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body())
        .await
        .expect("a body")
        .to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn m2_probes_answer_before_the_caches_are_filled() {
    let fake = Fake::new();
    fake.refuse(|seen: &Seen| {
        ["LIST", "WATCH"]
            .contains(&seen.verb)
            .then_some((503, "ServiceUnavailable", false))
    });
    let manager = Manager::builder(fake.client())
        .health("127.0.0.1:0")
        .add(Controller::of::<Pod>(Scripted::new(|_, _| Ok(Action::await_change()))))
        .build()
        .expect("a manager");
    let (address, ready) = (manager.health_address(), manager.ready());
    with_manager(manager, async {
        let address = address.await;
        assert_eq!(probe(address, "/healthz").await, (200, "ok".to_owned()));
        let (status, text) = probe(address, "/readyz").await;
        assert_eq!(status, 500);
        let missing = "[-]pod failed: its caches are not synced: Pod in all namespaces: ";
        assert!(text.contains(missing), "{text}");
        fake.refuse_nothing();
        ready.await;
        assert_eq!(probe(address, "/readyz").await, (200, "ok".to_owned()));
    })
    .await;
}

/// A manager of some namespaces lists no other, so a Role in each is enough for it.
#[tokio::test]
async fn c_a_manager_of_some_namespaces_asks_for_no_other() {
    async fn check(namespaces: &[&str], refused: &str) {
        let fake = Fake::new();
        let allowed: Vec<String> = namespaces.iter().map(|name| format!("/namespaces/{name}/")).collect();
        fake.refuse(move |seen: &Seen| {
            let inside = allowed.iter().any(|path| seen.path.contains(path));
            (["LIST", "WATCH"].contains(&seen.verb) && !inside).then_some((403, "Forbidden", false))
        });
        let manager = Manager::builder(fake.client())
            .namespaces(namespaces.iter().copied())
            .add(Controller::of::<Pod>(Scripted::new(|_, _| Ok(Action::await_change()))))
            .build()
            .expect("a manager");
        let (client, ready) = (manager.client(), manager.ready());
        with_manager(manager, async {
            ready.await;
            client.list::<ConfigMap>(None).await.expect("those inside");
            let elsewhere = client
                .get::<ConfigMap>(Some("x"), "x")
                .await
                .expect_err("it is not cached");
            let told = format!("cannot read configmaps in namespace x: this manager is restricted to {refused}");
            assert_eq!(elsewhere.to_string(), told);
        })
        .await;
    }
    check(&["a"], "namespace a").await;
    check(&["b", "a", "b"], "namespaces a, b").await;
}

#[tokio::test]
async fn e3_events_are_counted_and_go_to_default_for_cluster_scoped_objects() {
    struct Talker;
    impl Reconciler for Talker {
        type Object = Namespace;
        async fn reconcile(&self, namespace: Arc<Namespace>, ctx: Context) -> Result<Action> {
            for _ in 0..3 {
                ctx.event(&*namespace, EventType::Warning, "Odd", "it is odd");
            }
            ctx.event(&*namespace, EventType::Normal, "Even", "it is even");
            Ok(Action::await_change())
        }
    }
    let fake = Fake::new();
    let taken = Arc::new(AtomicUsize::new(0));
    let first = taken.clone();
    // E4: the first name is taken.
    fake.refuse(move |seen: &Seen| {
        (seen.verb == "POST" && seen.path.ends_with("/events") && first.fetch_add(1, Ordering::SeqCst) == 0)
            .then_some((409, "AlreadyExists", false))
    });
    fake.put("/api/v1/namespaces", json!({ "metadata": { "name": "n" } }));
    let manager = Manager::builder(fake.client())
        .add(Controller::of::<Namespace>(Talker).named("talker"))
        .build()
        .expect("a manager");
    let ready = manager.ready();
    with_manager(manager, async {
        ready.await;
        eventually("both events", || {
            let events = fake.objects("/apis/events.k8s.io/v1/events");
            events.len() == 2 && events.iter().any(|event| event["series"]["count"] == 3)
        })
        .await;
    })
    .await;
    let events = fake.objects("/apis/events.k8s.io/v1/events");
    let odd = events
        .iter()
        .find(|event| event["reason"] == "Odd")
        .expect("it was written");
    let expected = json!({ "kind": "Namespace", "apiVersion": "v1", "name": "n" });
    for (field, value) in expected.as_object().expect("a map") {
        assert_eq!(odd["regarding"][field], *value);
    }
    assert_eq!(odd["metadata"]["namespace"], "default");
    assert_eq!(odd["reportingController"], "talker");
    assert_eq!(odd["type"], "Warning");
}

#[tokio::test]
async fn writes_are_observed_with_the_fields_they_changed() {
    let fake = Fake::new();
    fake.put(
        CONFIGS,
        json!({ "metadata": { "namespace": "a", "name": "x" }, "data": { "key": "1" } }),
    );
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = told.clone();
    let observer = move |what: &Observation| {
        if let Observation::Written {
            verb, object, changes, ..
        } = what
        {
            let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
            sink.lock()
                .expect("quiet")
                .push(format!("{verb} {object}: {}", changes.join(", ")));
        }
    };
    let manager = Manager::builder(fake.client())
        .observe(Arc::new(observer))
        .build()
        .expect("a manager");
    let client = manager.client();
    client.list::<ConfigMap>(None).await.expect("a list");
    let patch = |value: &str| Patch::Merge(json!({ "data": { "key": value } }));
    client
        .patch::<ConfigMap, Value>(Some("a"), "x", &patch("2"))
        .await
        .expect("patched");
    client
        .list::<ConfigMap>(None)
        .await
        .expect("a list that has seen the patch");
    client
        .patch::<ConfigMap, Value>(Some("a"), "x", &patch("2"))
        .await
        .expect("nothing changed");
    client.create(&config("a", "y", "1")).await.expect("created");
    let object = client
        .get::<ConfigMap>(Some("a"), "y")
        .await
        .expect("a read")
        .expect("it exists");
    client.delete(&*object).await.expect("deleted");
    let expected = [
        "patch ConfigMap a/x: data.key \"1\" → \"2\"",
        "create ConfigMap a/y: ",
        "delete ConfigMap a/y: ",
    ];
    assert_eq!(*told.lock().expect("quiet"), expected);
}

#[tokio::test]
async fn m3_runnables_begin_when_the_caches_are_filled() {
    let fake = Fake::new();
    fake.refuse(|seen: &Seen| {
        ["LIST", "WATCH"]
            .contains(&seen.verb)
            .then_some((503, "ServiceUnavailable", false))
    });
    fake.put(PODS, pod("p"));
    let begun = Arc::new(AtomicUsize::new(usize::MAX));
    let count = begun.clone();
    let manager = Manager::builder(fake.client())
        .add(Controller::of::<Pod>(Scripted::new(|_, _| Ok(Action::await_change()))))
        .runnable("counts", move |client: Client, stop: Stop| {
            count.store(client.cache().informer::<Pod>().store().len(), Ordering::SeqCst);
            async move {
                stop.requested().await;
                Ok(())
            }
        })
        .build()
        .expect("a manager");
    with_manager(manager, async {
        eventually("a refused list", || {
            !fake.seen("WATCH", PODS).is_empty() || !fake.seen("LIST", PODS).is_empty()
        })
        .await;
        assert_eq!(begun.load(Ordering::SeqCst), usize::MAX);
        fake.refuse_nothing();
        eventually("the runnable begins", || begun.load(Ordering::SeqCst) != usize::MAX).await;
        assert_eq!(begun.load(Ordering::SeqCst), 1, "it found a filled cache");
    })
    .await;
}

#[tokio::test]
async fn watches_and_predicates_choose_what_leads_to_a_reconcile() {
    let fake = Fake::new();
    for name in ["one", "two"] {
        fake.put(PODS, pod(name));
    }
    let scripted = Scripted::new(|_, _| Ok(Action::await_change()));
    let controller = Controller::of::<Pod>(scripted.clone())
        .with_predicate::<Pod>(kubewright::predicate::generation_changed)
        .watches::<ConfigMap>(|config| vec![Request::new(config.metadata.namespace.as_deref(), value_of(config))])
        .watches_all_of::<Secret>();
    let manager = Manager::builder(fake.client())
        .add(controller)
        .build()
        .expect("a manager");
    with_manager(manager, async {
        eventually("both once", || scripted.runs().len() == 2).await;
        let mut labelled = pod("one");
        labelled["metadata"]["labels"] = json!({ "a": "b" });
        fake.put(PODS, labelled); // no new generation: filtered
        fake.put(
            CONFIGS,
            json!({ "metadata": { "namespace": "a", "name": "c" }, "data": { "key": "one" } }),
        );
        eventually("the one that is named", || scripted.runs().len() == 3).await;
        assert_eq!(scripted.runs()[2], "reconcile a/one");
        // It points elsewhere now: the old and the new target run.
        fake.put(
            CONFIGS,
            json!({ "metadata": { "namespace": "a", "name": "c" }, "data": { "key": "two" } }),
        );
        eventually("the old and the new one", || scripted.runs().len() == 5).await;
        assert_eq!(scripted.runs()[3..], ["reconcile a/one", "reconcile a/two"]);
        fake.put(SECRETS, raw("b", "global"));
        eventually("all of them", || scripted.runs().len() == 7).await;
        assert_eq!(scripted.causes(6), ["Secret b/global created"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_takes_too_long_is_dropped_and_retried() {
    struct Stuck(AtomicUsize);
    impl Reconciler for Stuck {
        type Object = Pod;
        async fn reconcile(&self, _: Arc<Pod>, _: Context) -> Result<Action> {
            if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
                std::future::pending::<()>().await;
            }
            Ok(Action::await_change())
        }
    }
    let fake = Fake::new();
    fake.put(PODS, pod("p"));
    let (ended, observer) = outcomes();
    let controller = Controller::of::<Pod>(Stuck(AtomicUsize::new(0))).reconcile_timeout(Duration::from_secs(30));
    let manager = Manager::builder(fake.client())
        .observe(Arc::new(observer))
        .add(controller)
        .build()
        .expect("a manager");
    with_manager(manager, async {
        eventually_paused("the second try", || ended.lock().expect("quiet").len() == 2).await;
    })
    .await;
    let ended = ended.lock().expect("quiet");
    assert!(
        matches!(&ended[0], Outcome::Retry { error, .. } if error.contains("longer than 30s")),
        "{ended:?}"
    );
    assert_eq!(ended[1], Outcome::Done);
}

/// E4: an event whose answer was lost is one event.
#[tokio::test(start_paused = true)]
async fn e4_an_event_whose_answer_was_lost_is_not_written_twice() {
    let fake = Fake::new();
    let times = AtomicUsize::new(0);
    fake.refuse(move |seen: &Seen| {
        let lost = seen.path.contains("/events") && seen.verb == "POST" && times.fetch_add(1, Ordering::SeqCst) == 0;
        lost.then_some((504, "Timeout", true))
    });
    let (source, stop) = Stop::pair();
    let clock = Arc::new(kubewright::SystemClock);
    let client = Client::new(fake.client(), Cache::new(fake.client()));
    let (recorder, writing) = kubewright::EventRecorder::start(&client, clock, stop);
    let involved = kubewright::k8s_openapi::api::core::v1::ObjectReference {
        namespace: Some("a".to_owned()),
        name: Some("x".to_owned()),
        ..Default::default()
    };
    recorder.record("test", involved, EventType::Normal, "Tested", "once");
    eventually_paused("it is tried again", || fake.seen("POST", "/events").len() == 2).await;
    source.stop();
    writing.await.expect("no panic");
    assert_eq!(fake.objects("/apis/events.k8s.io/v1/events").len(), 1);
}

/// `deleted` means that the object is gone, never that it left a selection or was not seen yet.
#[tokio::test]
async fn r_deleted_means_gone() {
    let fake = Fake::new();
    fake.put(PODS, pod("x"));
    fake.put(PODS, pod("y"));
    let scripted = Scripted::new(|_, _| Ok(Action::await_change()));
    let controller = Controller::of::<Pod>(scripted.clone())
        .within(Scope::all().labels([("app", "web")].into_iter().collect()))
        .watches::<ConfigMap>(|config| vec![Request::of(config)]);
    let manager = Manager::builder(fake.client())
        .add(controller)
        .build()
        .expect("it fits");
    with_manager(manager, async {
        eventually("both are reconciled", || scripted.runs().len() == 2).await;
        fake.hide(PODS, "a", "x");
        fake.remove(PODS, "a", "y");
        eventually("y is gone", || scripted.runs().len() == 3).await;
        assert_eq!(scripted.runs()[2], "deleted a/y");
        // A key that a source made up, of an object that exists, and of one that does not.
        fake.put(CONFIGS, raw("a", "x"));
        fake.put(CONFIGS, raw("a", "nobody"));
        eventually("nobody is gone", || scripted.runs().len() == 4).await;
        assert_eq!(scripted.runs()[3], "deleted a/nobody");
    })
    .await;
}

/// A type whose own code panics when its text says so.
mod bombs {
    use kubewright::kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Deserializer, Serialize};

    #[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "war.example.com", version = "v1", kind = "Bomb", namespaced)]
    pub(crate) struct BombSpec {
        pub(crate) fuse: Fuse,
    }

    #[derive(Debug, Clone, Serialize, JsonSchema)]
    pub(crate) struct Fuse(pub(crate) String);

    impl<'de> Deserialize<'de> for Fuse {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fuse, D::Error> {
            let text = String::deserialize(deserializer)?;
            assert!(text != "decode", "it went off while it was decoded");
            Ok(Fuse(text))
        }
    }

    impl Drop for Fuse {
        fn drop(&mut self) {
            assert!(self.0 != "drop", "it went off while it was dropped");
        }
    }
}

/// SI7, RF11: an informer survives a panic in the `Deserialize` and in the `Drop` of its objects.
#[tokio::test]
async fn rf11_panics_of_a_types_own_code_end_no_informer() {
    const BOMBS: &str = "/apis/war.example.com/v1/bombs";
    let bomb =
        |name: &str, fuse: &str| json!({ "metadata": { "namespace": "a", "name": name }, "spec": { "fuse": fuse } });
    let fake = Fake::new();
    fake.put(BOMBS, bomb("x", "decode"));
    fake.put(BOMBS, bomb("y", "drop"));
    let cache = Cache::new(fake.client());
    let bombs = cache.informer::<bombs::Bomb>();
    bombs.add_inline_handler(|_: &Event<bombs::Bomb>| {});
    bombs.synced().await.expect("synced");
    assert!(
        says(bombs.health(), "it went off while it was decoded"),
        "{:?}",
        bombs.health()
    );
    assert_eq!(bombs.store().len(), 1);
    fake.put(BOMBS, bomb("y", "ok"));
    fake.put(BOMBS, bomb("x", "ok"));
    eventually("the watch goes on", || bombs.store().len() == 2).await;
    assert_eq!(bombs.health(), Health::Synced);
}

/// Writes a new phase at every pass, so that each wakes the next.
struct Restless;

impl Reconciler for Restless {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, ctx: Context) -> Result<Action> {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let passes: u32 = phase.and_then(|phase| phase.parse().ok()).unwrap_or_default();
        if passes < 30 {
            ctx.patch_status(&*pod, |pod| {
                pod.status.get_or_insert_default().phase = Some((passes + 1).to_string());
            })
            .await?;
        }
        Ok(Action::await_change())
    }
}

/// A controller that wakes itself is counted, and told once, with the field; one that is woken by others is not.
#[tokio::test]
async fn a_controller_that_wakes_itself_is_told() {
    let log: Arc<Mutex<Vec<u8>>> = Arc::default();
    let sink = log.clone();
    // With only one subscriber in the process, tracing asks that of the thread which comes by first, for ever: other
    // tests have none.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || Lines(sink.clone()))
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let fake = Fake::new();
    fake.put(PODS, pod("x"));
    let calm = Scripted::new(|_, _| Ok(Action::await_change()));
    let manager = Manager::builder(fake.client())
        .add(Controller::of(Restless).named("restless"))
        .add(Controller::of::<Pod>(calm.clone()).named("calm"))
        .build()
        .expect("it fits");
    let metrics = manager.metrics();
    let counted = |controller: &str| {
        let text = metrics.encode();
        let name = format!("kubewright_reconcile_self_woken_total{{controller=\"{controller}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
        value.unwrap_or(0_u32)
    };
    with_manager(manager, async {
        eventually("it comes to rest", || counted("restless") == 30).await;
        assert_eq!(counted("calm"), 0, "it is woken by the other's writes");
    })
    .await;
    let log = String::from_utf8(log.lock().expect("quiet").clone()).expect("text");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("wakes itself")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for part in ["restless", "a/x", "Pod a/x changed: status.phase"] {
        assert!(lines[0].contains(part), "{part}: {log}");
    }
}

/// Where a log goes.
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("quiet").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// RF11: objects that are not needed with their type are not decoded. The first read finds an object that cannot be
/// decoded, and reports it to its reader and to people.
#[tokio::test]
async fn rf11_what_nobody_reads_is_not_decoded() {
    let fake = Fake::new();
    fake.put(PODS, pod("good"));
    fake.put(PODS, broken_pod("bad"));
    let client = client(&fake);
    let pods = client.cache().informer::<Pod>();
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = told.clone();
    pods.add_key_handler(move |change| {
        let kind = change.kind;
        sink.lock().expect("quiet").push(format!("{kind:?} {}", change.request));
    });
    pods.synced().await.expect("synced");
    assert_eq!((pods.health(), pods.store().len()), (Health::Synced, 2));
    assert_eq!(
        *told.lock().expect("quiet"),
        ["Added { initial: true } a/bad", "Added { initial: true } a/good"]
    );

    assert!(pods.store().get(Some("a"), "bad").is_none());
    assert!(says(pods.health(), "Pod a/bad"), "{:?}", pods.health());
    assert_eq!((pods.unreadable().len(), pods.store().len()), (1, 1));
    let error = client.get::<Pod>(Some("a"), "bad").await.expect_err("it is there");
    assert!(matches!(error, Error::Undecodable { .. }), "{error:?}");

    // A handler of the type is not told of it, and of its change as of something new.
    let typed: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = typed.clone();
    pods.add_inline_handler(move |event: &Event<Pod>| {
        let word = match event {
            Event::Added { .. } => "added",
            Event::Modified { .. } => "modified",
            Event::Deleted { .. } => "deleted",
        };
        sink.lock()
            .expect("quiet")
            .push(format!("{word} {}", event.object().name_any()));
    });
    assert_eq!(*typed.lock().expect("quiet"), ["added good"]);
    fake.put(PODS, pod("bad"));
    eventually("it is read again", || typed.lock().expect("quiet").len() == 2).await;
    assert_eq!(typed.lock().expect("quiet")[1], "added bad");
    assert_eq!((pods.health(), pods.unreadable().len()), (Health::Synced, 0));
    // From now on objects are decoded when they come, and the last state that could be read stays.
    fake.put(PODS, broken_pod("good"));
    eventually("it is reported", || says(pods.health(), "Pod a/good")).await;
    assert!(pods.store().get(Some("a"), "good").is_some());
}

/// An error that panics when it is printed, and again when it is dropped.
#[derive(Debug)]
struct Nasty;

impl std::fmt::Display for Nasty {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Nasty {}

impl Drop for Nasty {
    fn drop(&mut self) {
        panic!("and no end")
    }
}

/// R7: a worker survives any error value of its reconciler.
#[tokio::test]
async fn r7_errors_that_panic_end_no_worker() {
    let fake = Fake::new();
    fake.put(PODS, pod("bad"));
    fake.put(PODS, pod("payload"));
    fake.put(PODS, pod("good"));
    let scripted = Scripted::new(|request, times| match request.name() {
        "bad" if times < 3 => Err(Error::retry(Nasty)),
        "payload" if times < 3 => std::panic::panic_any(Nasty),
        _ => Ok(Action::await_change()),
    });
    let controller =
        Controller::of::<Pod>(scripted.clone()).backoff(Duration::from_millis(1), Duration::from_millis(1));
    let manager = Manager::builder(fake.client())
        .add(controller)
        .build()
        .expect("it fits");
    with_manager(manager, async {
        let runs = |name: &str| scripted.runs().iter().filter(|run| run.ends_with(name)).count();
        eventually("all of them come through", || {
            runs("a/bad") >= 3 && runs("a/payload") == 3 && runs("a/good") == 1
        })
        .await;
        fake.put(PODS, pod("later"));
        eventually("the worker is there", || runs("a/later") == 1).await;
    })
    .await;
}

mod books {
    use kubewright::kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    pub(crate) mod v1 {
        use super::*;
        #[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
        #[kube(
            group = "lib.example.com",
            version = "v1",
            kind = "Book",
            namespaced,
            storage = false
        )]
        pub(crate) struct BookSpec {
            pub(crate) pages: u32,
        }
    }

    pub(crate) mod v2 {
        use super::*;
        #[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
        #[kube(group = "lib.example.com", version = "v2", kind = "Book", namespaced)]
        pub(crate) struct BookSpec {
            pub(crate) sheets: u32,
        }
    }

    pub(crate) mod v3 {
        use super::*;
        #[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
        #[kube(group = "lib.example.com", version = "v3", kind = "Book", namespaced)]
        pub(crate) struct BookSpec {
            pub(crate) grams: u32,
        }
    }
}

#[test]
fn somebody_must_say_which_version_is_stored() {
    let operator = kubewright::Operator::new("library")
        .crd::<books::v2::Book>()
        .crd::<books::v3::Book>();
    let refused = operator.crds().expect_err("nobody says it").to_string();
    assert!(
        refused.contains("v2, v3 all claim it") && refused.contains("KWR0310"),
        "{refused}"
    );
}

#[tokio::test]
async fn an_operator_knows_its_crds_and_installs_them() {
    let fake = Fake::new();
    fake.normalise(|object| {
        if object["kind"] == "CustomResourceDefinition" {
            object["status"] = json!({ "conditions": [{ "type": "Established", "status": "True" }] });
        }
    });
    let operator = kubewright::Operator::new("library")
        .crd::<books::v2::Book>()
        .crd::<books::v1::Book>();
    let crds = operator.crds().expect("the versions fit together");
    assert_eq!(crds.len(), 1);
    let versions: Vec<(&str, bool)> = crds[0]
        .spec
        .versions
        .iter()
        .map(|version| (version.name.as_str(), version.storage))
        .collect();
    assert_eq!(
        versions.iter().find(|(_, storage)| *storage),
        Some(&("v2", true)),
        "the only one that claims it is stored: {versions:?}"
    );
    assert_eq!(versions.len(), 2);
    operator.install_crds(fake.client()).await.expect("installed");
    assert_eq!(
        fake.objects("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
            .len(),
        1
    );
}
