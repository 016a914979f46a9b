//! Reads that see own writes (K1 to K5), while watches lag, answers are lost and histories change.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kubewright::kube::api::Patch;
use kubewright::{Error, Scope};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::server::{Fault, Server, config, eventually, pod, raw, started, value_of};

/// How often the server was asked for one object by name.
fn looked_up(server: &Server, name: &str) -> usize {
    let name = format!("metadata.name%3D{name}");
    let lists = server.seen("LIST", "/configmaps");
    lists.iter().filter(|seen| seen.query.contains(&name)).count()
}

/// The answers of creations get lost.
fn lose_answers(server: &Server) {
    server.fault(|seen| (seen.verb == "POST").then_some(Fault::Lost(504, "Timeout")));
}

#[tokio::test]
async fn k1_a_read_waits_until_the_cache_shows_the_write() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    assert_eq!(client.get::<ConfigMap>("a", "x").await?, None);
    server.hold_watches(true);
    client.create(&config("x", "1")).await?;
    let other = client.clone();
    let reading = started(async move { other.get::<ConfigMap>("a", "x").await }).await;
    assert!(!reading.is_finished(), "its cache has not seen the write");
    // Other keys are not held up.
    assert_eq!(client.get::<ConfigMap>("a", "other").await?, None);
    server.hold_watches(false);
    let read = reading.await.expect("no panic")?.expect("it exists");
    assert_eq!(value_of(&read), "1");
    assert_eq!(
        server.seen("GET", "/configmaps/x").len(),
        0,
        "the answer came from the cache"
    );
    Ok(())
}

#[tokio::test]
async fn k1_after_the_deadline_one_object_is_read_live_and_a_list_is_stale() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    client.list::<ConfigMap>(None).await?;
    server.hold_watches(true);
    client.create(&config("x", "1")).await?;
    let read = client.get::<ConfigMap>("a", "x").await?.expect("it exists");
    assert_eq!((value_of(&read), looked_up(&server, "x")), ("1", 1));
    let error = client.list::<ConfigMap>("a").await.expect_err("our write is not shown");
    assert!(matches!(error, Error::Stale { .. }), "{error}");
    client.list::<ConfigMap>("b").await?; // nothing was written there
    Ok(())
}

#[tokio::test]
async fn k2_a_write_outside_the_scope_does_not_block_reads() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    let informer = client.cache().informer_in::<ConfigMap>(Scope::namespace("b"));
    informer.synced().await?;
    server.hold_watches(true);
    client.create(&config("x", "1")).await?;
    let before = Instant::now();
    assert!(client.list_from(&informer, None).await?.is_empty());
    assert!(before.elapsed() < Duration::from_secs(1));
    Ok(())
}

#[tokio::test]
async fn k3_after_an_own_delete_the_object_is_gone() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    server.put::<ConfigMap>(raw("x", "1")).await;
    let object = client.get::<ConfigMap>("a", "x").await?.expect("it exists");
    server.hold_watches(true);
    assert!(client.delete(&object).await?);
    let other = client.clone();
    let reading = started(async move { other.get::<ConfigMap>("a", "x").await }).await;
    assert!(!reading.is_finished());
    server.hold_watches(false);
    assert_eq!(reading.await.expect("no panic")?, None);
    assert!(!client.delete(&object).await?, "a second delete finds nothing");
    Ok(())
}

#[tokio::test]
async fn k3_a_deleted_object_that_the_cache_had_not_seen_is_not_seen_later() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    client.list::<ConfigMap>(None).await?;
    server.hold_watches(true);
    server.put::<ConfigMap>(raw("x", "1")).await;
    let created = server.version();
    let live = client.live::<ConfigMap>("a", "x").await?.expect("it exists");
    assert!(client.delete(&live).await?);
    assert_eq!(client.get::<ConfigMap>("a", "x").await?, None);
    server.deliver_up_to(created);
    let other = client.clone();
    let read = started(async move { other.get::<ConfigMap>("a", "x").await }).await;
    assert!(!read.is_finished(), "its creation has arrived, its deletion not");
    server.hold_watches(false);
    assert_eq!(read.await.expect("no panic")?, None);
    Ok(())
}

/// K5: the namesake lives, because the delete named the uid that it meant.
#[tokio::test]
async fn k5_a_delete_does_not_hit_a_namesake() -> Result<()> {
    let server = Server::new().await;
    server.put::<ConfigMap>(raw("x", "1")).await;
    let first = server.object::<ConfigMap>("x").await.expect("it exists");
    server.remove::<ConfigMap>("x").await;
    server.put::<ConfigMap>(raw("x", "1")).await;
    assert!(!server.client().delete(&first).await?);
    assert!(server.object::<ConfigMap>("x").await.is_some());
    Ok(())
}

#[tokio::test]
async fn k4_dry_runs_and_refusals_do_not_hold_reads_and_lost_answers_are_looked_up() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    client.list::<ConfigMap>(None).await?;
    server.hold_watches(true);
    client.with_dry_run().create(&config("dry", "1")).await?;
    server.fault(|seen| (seen.verb == "POST").then_some(super::server::FORBIDDEN));
    client.create(&config("refused", "1")).await.expect_err("refused");
    let before = Instant::now();
    client.list::<ConfigMap>(None).await?; // nothing was written
    assert!(before.elapsed() < Duration::from_secs(1));
    server.no_fault();
    lose_answers(&server);
    client.create(&config("lost", "1")).await.expect_err("no answer");
    server.no_fault();
    let read = client.get::<ConfigMap>("a", "lost").await?;
    assert!(read.is_some(), "the write had happened, and the API was asked");
    Ok(())
}

/// Acknowledgements of two tasks may arrive in another order than the server wrote.
#[tokio::test]
async fn k1_a_list_waits_for_the_writes_before_it_and_for_no_later_one() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    client.list::<ConfigMap>(None).await?;
    server.hold_watches(true);
    client.create(&config("x", "1")).await?;
    let before = server.version();
    let other = client.clone();
    let list = started(async move { other.list::<ConfigMap>("a").await }).await;
    client.create(&config("y", "1")).await?;
    assert!(!list.is_finished(), "x is not there yet");
    server.deliver_up_to(before);
    // The writer of y holds nobody who came earlier.
    assert_eq!(list.await.expect("no panic")?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn k1_a_write_into_a_selected_scope_is_waited_for() -> Result<()> {
    let check = async |scope: Scope, subresource: &str, change: Value| -> Result<()> {
        let server = Server::new().await;
        server.put::<Pod>(pod("x")).await;
        let client = server.client();
        let pods = client.cache().informer_in::<Pod>(scope);
        pods.synced().await?;
        server.hold_watches(true);
        let change = Patch::Merge(change);
        match subresource {
            "status" => client.patch_status::<Pod, Value>("a", "x", &change).await?,
            _ => client.patch::<Pod, Value>("a", "x", &change).await?,
        };
        let list = started(async move { client.list_from(&pods, None).await }).await;
        assert!(!list.is_finished(), "it shows what was before the write");
        server.hold_watches(false);
        assert_eq!(list.await.expect("no panic")?.len(), 1);
        tokio::time::resume(); // the next server has its own time
        Ok(())
    };
    let labelled = Scope::all().labels([("app", "web")].into_iter().collect());
    check(labelled, "", json!({ "metadata": { "labels": { "app": "web" } } })).await?;
    let running = Scope::all().fields("status.phase=Running");
    check(running, "status", json!({ "status": { "phase": "Running" } })).await
}

/// A write that was sent counts, even when its future was dropped.
#[tokio::test]
async fn k4_a_write_whose_future_was_dropped_is_looked_up() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    client.list::<ConfigMap>(None).await?;
    server.hold_watches(true);
    server.fault(|seen| (seen.verb == "POST").then_some(Fault::Silent));
    let mut generated = config("", "1");
    generated.metadata.name = None;
    generated.metadata.generate_name = Some("g-".to_owned());
    for object in [config("lost", "1"), generated] {
        let created = tokio::time::timeout(Duration::from_secs(1), client.create(&object));
        created.await.expect_err("no answer");
    }
    server.no_fault();
    let read = client.get::<ConfigMap>("a", "lost").await?;
    assert!(read.is_some(), "the API was asked");
    let list = started(async move { client.list::<ConfigMap>("a").await }).await;
    assert!(!list.is_finished(), "both were written, neither is shown");
    server.hold_watches(false);
    assert_eq!(list.await.expect("no panic")?.len(), 2);
    Ok(())
}

/// Many reconciles read the object of one write with an unknown outcome.
#[tokio::test]
async fn k4_readers_that_wait_for_the_same_answer_ask_once() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    client.list::<ConfigMap>(None).await?;
    server.hold_watches(true);
    let lost = async |name: &str| {
        lose_answers(&server);
        client.create(&config(name, "1")).await.expect_err("no answer");
        server.no_fault();
    };
    let get = |name: &'static str| {
        let client = client.clone();
        async move { client.get::<ConfigMap>("a", name).await }
    };
    let shown = || server.deliver_up_to(server.version());

    lost("one").await;
    let lists =
        [client.clone(), client.clone()].map(|client| tokio::spawn(async move { client.list::<ConfigMap>("a").await }));
    let gets = [(); 3].map(|()| tokio::spawn(get("one")));
    tokio::time::sleep(Duration::from_millis(1)).await;
    shown();
    for list in lists {
        assert_eq!(list.await.expect("no panic")?.len(), 1);
    }
    for read in gets {
        assert!(read.await.expect("no panic")?.is_some());
    }
    assert_eq!(looked_up(&server, "one"), 1);

    // The reader may be gone before there is an answer: the next one asks.
    lost("two").await;
    server.fault(|seen| (seen.verb == "LIST").then_some(Fault::Silent));
    let leaves = started(get("two")).await;
    server.no_fault();
    let stays = started(get("two")).await;
    assert_eq!(
        looked_up(&server, "two"),
        1,
        "the second one waits for the first one's answer"
    );
    leaves.abort();
    tokio::time::sleep(Duration::from_millis(1)).await;
    shown();
    assert!(stays.await.expect("no panic")?.is_some());
    assert_eq!(looked_up(&server, "two"), 2);
    Ok(())
}

/// A scheduler has its own account of its bindings.
#[tokio::test]
async fn k1_no_read_waits_for_a_write_without_a_receipt() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    client.list::<ConfigMap>(None).await?;
    server.hold_watches(true);
    let quiet = client.without_receipts();
    quiet.create(&config("x", "1")).await?;
    lose_answers(&server);
    quiet.create(&config("lost", "1")).await.expect_err("no answer");
    server.no_fault();
    for name in ["x", "lost"] {
        assert_eq!(client.get::<ConfigMap>("a", name).await?, None);
        assert_eq!(looked_up(&server, name), 0, "{name}");
    }
    assert_eq!(client.list::<ConfigMap>("a").await?.len(), 0);
    Ok(())
}

/// Versions of an old history are never reached in a new one.
#[tokio::test]
async fn k4_a_write_before_a_restore_holds_nobody_for_ever() -> Result<()> {
    let server = Server::new().await;
    let restored = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let client = server.client();
    let informer = client.cache().pinned::<ConfigMap>();
    for number in 0..20 {
        server.put::<ConfigMap>(raw("x", &number.to_string())).await;
    }
    client.list::<ConfigMap>(None).await?;
    server.hold_watches(true);
    client.create(&config("y", "1")).await?;
    let mut before_it = config("x", "restored");
    before_it.metadata.namespace = Some("default".to_owned());
    restored.client().create(&before_it).await?;
    server.lead_to(&restored);
    server.hold_watches(false);
    let store = informer.store();
    eventually("the new history is there", || store.get("default", "x").is_some()).await;
    let before = Instant::now();
    assert_eq!(client.list::<ConfigMap>("a").await?.len(), 0);
    assert!(before.elapsed() < Duration::from_secs(1));
    Ok(())
}
