//! Informers and their handlers: one watch for all, deletions that no watch saw, objects that cannot be read, handlers
//! that are slow, late, or wait for each other.

use std::sync::{Arc, Mutex, mpsc};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event as Told;
use kubewright::kube::core::{DynamicObject, PartialObjectMeta};
use kubewright::{
    Action, Context, Controller, Error, Event, Health, Informer, Observation, Reconciler, Request, Scope, api_resource,
};
use kubewright_testing::Result;

use super::server::bombs::{Bomb, bomb};
use super::server::{Fault, Log, Server, eventually, pod, raw, says, with_manager};

/// SI10: metadata while nobody needs more, then one watch for all users, and none after the last.
#[tokio::test]
async fn si10_one_watch_for_all_users_and_none_after_the_last() -> Result<()> {
    let server = Server::new().await;
    server.put::<Pod>(pod("x")).await;
    let (cache, resource) = (server.cache(), api_resource::<Pod>());
    let metadata = cache.informer_dynamic::<PartialObjectMeta<DynamicObject>>(&resource, Scope::all());
    let asked_for_metadata = || -> Vec<bool> {
        let seen = server.seen("WATCH", "/pods").into_iter();
        seen.map(|seen| seen.accept.contains("as=PartialObjectMetadata"))
            .collect()
    };
    metadata.synced().await?;
    assert_eq!(asked_for_metadata(), [true], "nobody needs more");
    let informers: Vec<_> = (0..5).map(|_| cache.informer::<Pod>()).collect();
    let dynamic = cache.informer_dynamic::<DynamicObject>(&resource, Scope::all());
    let part = cache.informer_in::<Pod>(Scope::namespace("a"));
    informers[4].synced().await?;
    dynamic.synced().await?;
    part.synced().await?;
    eventually("one watch for all", || server.open_watches() == 1).await;
    assert_eq!(asked_for_metadata().last(), Some(&false));
    assert_eq!(
        (metadata.store().len(), dynamic.store().len(), part.store().len()),
        (1, 1, 1)
    );
    drop((informers, dynamic, part));
    server.put::<Pod>(pod("y")).await;
    eventually("the last one is told", || metadata.store().len() == 2).await;
    assert_eq!(server.open_watches(), 1);
    drop(metadata);
    eventually("all watches end", || server.open_watches() == 0).await;
    Ok(())
}

/// A server with Bombs, the names and the texts of which are these.
async fn armed(all: &[(&str, &str)]) -> Result<Server> {
    let server = Server::new().await;
    server.cluster.install_crd::<Bomb>().await?;
    for (name, fuse) in all {
        server.put::<Bomb>(bomb(name, fuse)).await;
    }
    Ok(server)
}

fn names(bombs: &Informer<Bomb>) -> Vec<String> {
    let all = bombs.store().list().into_iter();
    all.filter_map(|bomb| bomb.metadata.name.clone()).collect()
}

/// RF11: one object that does not decode affects no other, by a list and by a watch list.
#[tokio::test]
async fn rf11_an_object_that_does_not_decode_is_skipped_and_read_again_when_it_changes() -> Result<()> {
    for (watch_list, requests) in [(true, 1), (false, 3)] {
        let server = armed(&[("bad", "broken"), ("good", "ok")]).await?;
        if !watch_list {
            let unknown = Fault::Refused(400, "BadRequest");
            server.fault(move |seen| seen.query.contains("sendInitialEvents").then_some(unknown));
        }
        let client = server.client();
        let bombs = client.cache().informer::<Bomb>();
        bombs.synced().await?; // the others are there
        assert_eq!(client.list::<Bomb>(None).await?.len(), 1);
        assert_eq!(names(&bombs), ["good"]);
        assert!(says(bombs.health(), "Bomb a/bad"), "{:?}", bombs.health());
        let unreadable: Vec<Request> = bombs.unreadable().into_iter().map(|one| one.request).collect();
        assert_eq!(unreadable, [Request::new("a", "bad")]);
        // "It does not exist" would be an invention.
        let error = client.get::<Bomb>("a", "bad").await.expect_err("it is there");
        assert!(matches!(error, Error::Undecodable { .. }), "{error:?}");
        assert!(
            error.is_terminal() && error.to_string().contains("Bomb a/bad"),
            "{error}"
        );

        server.put::<Bomb>(bomb("later", "ok")).await;
        server.put::<Bomb>(bomb("bad", "ok")).await;
        eventually("it is read again", || names(&bombs) == ["bad", "good", "later"]).await;
        assert_eq!((bombs.health(), bombs.unreadable().len()), (Health::Synced, 0));
        let asked = server.seen("LIST", "/bombs").len() + server.seen("WATCH", "/bombs").len();
        assert_eq!(asked, requests, "nothing was asked for twice");
        tokio::time::resume(); // the next server has its own time
    }
    Ok(())
}

/// RF11: handlers keep the last state that could be read, and hear of the deletion of an object that cannot.
#[tokio::test]
async fn rf11_what_becomes_unreadable_keeps_its_last_state_until_it_is_deleted() -> Result<()> {
    let server = armed(&[("x", "ok")]).await?;
    let (bombs, log) = (server.cache().informer::<Bomb>(), Log::default());
    bombs.add_inline_handler(log.hears());
    bombs.synced().await?;
    server.put::<Bomb>(bomb("x", "broken")).await;
    eventually("it is reported", || says(bombs.health(), "Bomb a/x")).await;
    assert_eq!(names(&bombs), ["x"], "the last state is kept");
    server.remove::<Bomb>("x").await;
    eventually("nothing is left to report", || {
        bombs.store().is_empty() && bombs.health() == Health::Synced
    })
    .await;
    assert_eq!(log.all(), ["added x", "deleted x"]);
    Ok(())
}

/// Notes the Bombs, and is never content.
struct Sapper(Log);

impl Reconciler for Sapper {
    type Object = Bomb;

    async fn reconcile(&self, _: Arc<Bomb>, ctx: Context) -> kubewright::Result<Action> {
        self.0.note(ctx.request().name().to_owned());
        Err(Error::retry("not yet"))
    }

    async fn deleted(&self, request: Request, _: Context) -> kubewright::Result<Action> {
        self.0.note(format!("deleted {request}"));
        Ok(Action::await_change())
    }
}

/// RF11: people see it where they look: on the object, among the observations; and its reconciles wait for it to
/// change.
#[tokio::test]
async fn rf11_an_unreadable_object_has_an_event_and_is_not_reconciled() -> Result<()> {
    let server = armed(&[("x", "ok")]).await?;
    let (runs, told) = (Log::default(), Log::default());
    let sink = told.clone();
    let observe = move |what: &Observation| {
        if let Observation::ObjectUnreadable { object, error, .. } = what {
            sink.note(format!("{object}: {error}"));
        }
    };
    let manager = server
        .manager()
        .observe(Arc::new(observe))
        .add(Controller::of(Sapper(runs.clone())));
    with_manager(manager, async {
        eventually("it runs and fails", || runs.len() > 1).await;
        server.put::<Bomb>(bomb("x", "broken")).await;
        eventually("it is told", || told.len() > 0).await;
        assert!(told.all()[0].starts_with("Bomb a/x: "), "{:?}", told.all());
        let before = runs.len();
        server.put::<Bomb>(bomb("y", "ok")).await;
        eventually("others are reconciled", || {
            runs.all()[before..].iter().filter(|run| *run == "y").count() > 3
        })
        .await;
        let after = runs.all();
        // One may have run meanwhile.
        assert!(
            after[before..].iter().filter(|run| run.contains('x')).count() <= 1,
            "{after:?}"
        );
        let events = server.objects::<Told>().await;
        let regards = |event: &Told| event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some("x");
        let unreadable = |event: &Told| event.reason.as_deref() == Some("Unreadable");
        assert!(
            events.iter().any(|event| regards(event) && unreadable(event)),
            "{events:?}"
        );
    })
    .await;
    Ok(())
}

/// SI7, RF11: an informer survives a panic in the `Deserialize` and in the `Drop` of its objects.
#[tokio::test]
async fn rf11_panics_of_a_types_own_code_end_no_informer() -> Result<()> {
    let server = armed(&[("x", "decode"), ("y", "drop")]).await?;
    let bombs = server.cache().informer::<Bomb>();
    bombs.add_inline_handler(|_: &Event<Bomb>| {});
    bombs.synced().await?;
    assert!(
        says(bombs.health(), "it went off while it was decoded"),
        "{:?}",
        bombs.health()
    );
    assert_eq!(bombs.store().len(), 1);
    server.put::<Bomb>(bomb("y", "ok")).await;
    server.put::<Bomb>(bomb("x", "ok")).await;
    eventually("the watch goes on", || bombs.store().len() == 2).await;
    assert_eq!(bombs.health(), Health::Synced);
    Ok(())
}

/// RF11: objects that are not needed with their type are not decoded. The first read finds an object that cannot be
/// decoded, and reports it to its reader and to people.
#[tokio::test]
async fn rf11_what_nobody_reads_is_not_decoded() -> Result<()> {
    let server = armed(&[("good", "ok"), ("bad", "broken")]).await?;
    let (client, told) = (server.client(), Log::default());
    let bombs = client.cache().informer::<Bomb>();
    let sink = told.clone();
    bombs.add_key_handler(move |change| sink.note(format!("{:?} {}", change.kind, change.request)));
    bombs.synced().await?;
    assert_eq!((bombs.health(), bombs.store().len()), (Health::Synced, 2));
    assert_eq!(
        told.all(),
        ["Added { initial: true } a/bad", "Added { initial: true } a/good"]
    );

    assert!(bombs.store().get("a", "bad").is_none());
    assert!(says(bombs.health(), "Bomb a/bad"), "{:?}", bombs.health());
    assert_eq!((bombs.unreadable().len(), bombs.store().len()), (1, 1));
    let error = client.get::<Bomb>("a", "bad").await.expect_err("it is there");
    assert!(matches!(error, Error::Undecodable { .. }), "{error:?}");

    // A handler of the type is not told of it, and of its change as of something new.
    let typed = Log::default();
    bombs.add_inline_handler(typed.hears());
    assert_eq!(typed.all(), ["added good"]);
    server.put::<Bomb>(bomb("bad", "ok")).await;
    eventually("it is read again", || typed.len() == 2).await;
    assert_eq!(typed.all()[1], "added bad");
    assert_eq!((bombs.health(), bombs.unreadable().len()), (Health::Synced, 0));
    // From now on objects are decoded when they come, and the last state that could be read stays.
    server.put::<Bomb>(bomb("good", "broken")).await;
    eventually("it is reported", || says(bombs.health(), "Bomb a/good")).await;
    assert!(bombs.store().get("a", "good").is_some());
    Ok(())
}

#[tokio::test]
async fn rf5_a_server_without_send_initial_events_is_listed_in_pages() -> Result<()> {
    let server = Server::new().await;
    let unknown = Fault::Refused(422, "Invalid");
    server.fault(move |seen| seen.query.contains("sendInitialEvents").then_some(unknown));
    for number in 0..501 {
        server.put::<ConfigMap>(raw(&format!("c{number:04}"), "1")).await;
    }
    let client = server.client();
    assert_eq!(client.list::<ConfigMap>("a").await?.len(), 501);
    assert_eq!(server.seen("LIST", "/configmaps").len(), 2);
    server.put::<ConfigMap>(raw("later", "1")).await;
    let store = client.cache().informer::<ConfigMap>().store();
    eventually("the watch goes on", || store.get("a", "later").is_some()).await;
    Ok(())
}

/// DF2, SI1: a deletion that no watch saw is an event, with the last known object.
#[tokio::test]
async fn df2_a_deletion_in_a_gap_reaches_the_handlers() -> Result<()> {
    let server = Server::new().await;
    server.put::<Pod>(pod("gone")).await;
    let (informer, log) = (server.cache().informer::<Pod>(), Log::default());
    let sink = log.clone();
    informer.add_inline_handler(move |event: &Event<Pod>| {
        sink.note(match event {
            Event::Added { initial, .. } => format!("added, initial: {initial}"),
            Event::Modified { .. } => "modified".to_owned(),
            Event::Deleted {
                final_state_unknown, ..
            } => format!("deleted, unknown: {final_state_unknown}"),
        });
    });
    informer.synced().await?;
    server.hold_watches(true);
    server.remove::<Pod>("gone").await;
    server.compact_and_cut();
    server.hold_watches(false);
    eventually("the deletion is told", || log.len() == 2).await;
    assert_eq!(log.all(), ["added, initial: true", "deleted, unknown: true"]);
    assert_eq!(informer.store().len(), 0);
    Ok(())
}

/// SI7: a handler that does not return holds up neither the store nor the others, and is told later how things stand
/// then. On one thread the list cannot be complete before both handlers are there.
#[tokio::test]
async fn si7_a_slow_handler_holds_up_nobody() -> Result<()> {
    let server = Server::in_real_time().await;
    server.put::<Pod>(pod("x")).await;
    let client = server.client();
    let informer = client.cache().informer::<Pod>();
    let (slow, quick) = (Log::default(), Log::default());
    let (release, held) = mpsc::channel::<()>();
    let (hears, held) = (slow.hears(), Mutex::new(held));
    let slow_one = informer.add_handler(move |event: &Event<Pod>| {
        hears(event);
        // Ends with the test, also when that fails.
        let _ = held.lock().expect("quiet").recv();
    });
    informer.add_handler(quick.hears());
    eventually("the quick one is told", || quick.len() == 1).await;
    for phase in ["Running", "Failed", "Succeeded"] {
        server.put_status("x", serde_json::json!({ "phase": phase })).await;
    }
    server.put::<Pod>(pod("y")).await;
    server.remove::<Pod>("y").await;
    server.put::<Pod>(pod("z")).await;
    eventually("the quick one is told of the last", || {
        quick.all().last().is_some_and(|last| last == "added z")
    })
    .await;
    client.list::<Pod>(None).await?; // reads do not wait for a handler
    assert_eq!(slow.all(), ["added x"]);
    assert!(
        !informer.is_synced() && !informer.handler_synced(slow_one),
        "SI5: it has not returned"
    );
    drop(release);
    eventually("the slow one has caught up", || slow.len() == 3).await;
    assert_eq!(slow.all(), ["added x", "modified x", "added z"], "folded by key");
    informer.synced().await?;
    assert!(informer.handler_synced(slow_one));
    Ok(())
}

/// A handler that waits for whoever removes it: in a runtime of one thread both would wait for ever.
#[tokio::test]
async fn si6_a_handler_that_waits_for_its_remover_can_be_removed() -> Result<()> {
    let server = Server::in_real_time().await;
    server.put::<Pod>(pod("x")).await;
    let informer = server.cache().informer::<Pod>();
    let (entered, mut inside) = tokio::sync::mpsc::unbounded_channel();
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let handler = informer.add_handler(move |_: &Event<Pod>| {
        entered.send(()).expect("the test waits");
        let _ = held.lock().expect("quiet").recv();
    });
    inside.recv().await.expect("it is called");
    server.put::<Pod>(pod("y")).await;
    let store = informer.store();
    eventually("there is more to tell", || store.len() == 2).await;
    assert!(informer.remove_handler(handler));
    release.send(()).expect("the handler waits");
    assert!(inside.recv().await.is_none(), "it is not called again, and goes");
    Ok(())
}

/// SI5, SI6, SI7 of a handler that joins late, panics, and is removed.
#[tokio::test]
async fn si6_a_late_handler_is_told_all_and_silent_after_its_removal() -> Result<()> {
    let server = Server::in_real_time().await;
    server.put::<Pod>(pod("bad")).await;
    server.put::<Pod>(pod("x")).await;
    let informer = server.cache().informer::<Pod>();
    informer.synced().await?;
    let log = Log::default();
    let hears = log.hears();
    let late = informer.add_handler(move |event: &Event<Pod>| {
        assert!(
            event.object().metadata.name.as_deref() != Some("bad"),
            "a handler's own mistake"
        );
        hears(event);
    });
    assert!(informer.is_synced(), "a late handler does not take that back");
    eventually("it has been told", || informer.handler_synced(late)).await;
    assert_eq!(log.all(), ["added x"]);
    assert!(informer.remove_handler(late) && !informer.remove_handler(late));
    assert!(!informer.handler_synced(late));
    let seen = Log::default();
    informer.add_inline_handler(seen.hears());
    assert_eq!(seen.all(), ["added bad", "added x"], "told before it returned");
    server.remove::<Pod>("x").await;
    eventually("it is told of the end", || seen.len() == 3).await;
    assert_eq!(log.all(), ["added x"]);
    Ok(())
}
