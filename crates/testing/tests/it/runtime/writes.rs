//! Requests that are repeated or end, and writes that change a status or an object: what is sent, and what is told of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodCondition};
use kubewright::kube::api::Patch;
use kubewright::{Context, Observation};
use kubewright_testing::Result;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::server::{Fault, Log, Server, config, pod, raw};

/// Exactly one layer retries, and a POST only when it cannot have been carried out.
#[tokio::test]
async fn a_write_is_repeated_only_when_it_cannot_have_been_carried_out() {
    for (code, reason, sent) in [
        (429, "TooManyRequests", 3),
        (503, "ServiceUnavailable", 1),
        (504, "Timeout", 1),
        (403, "Forbidden", 1),
    ] {
        let server = Server::new().await;
        let times = AtomicUsize::new(0);
        server.fault(move |seen| {
            let refused = seen.verb == "POST" && times.fetch_add(1, Ordering::SeqCst) < 2;
            refused.then_some(Fault::Refused(code, reason))
        });
        let created = server.client().create(&config("x", "1")).await;
        assert_eq!(server.seen("POST", "/configmaps").len(), sent, "{code}: {created:?}");
        assert_eq!(created.is_ok(), sent == 3);
        tokio::time::resume(); // the next server has its own time
    }
}

#[tokio::test]
async fn every_request_has_a_deadline() {
    let server = Server::new().await;
    server.fault(|seen| ["GET", "POST"].contains(&seen.verb).then_some(Fault::Silent));
    let client = server.client().with_request_deadline(Duration::from_secs(7));
    let before = Instant::now();
    let error = client.create(&config("x", "1")).await.expect_err("no answer");
    assert!(error.to_string().contains("did not answer within 7s"), "{error}");
    client.live::<ConfigMap>("a", "x").await.expect_err("no answer");
    assert_eq!(before.elapsed().as_secs(), 14);
}

#[tokio::test]
async fn patch_status_sends_the_change_against_the_newest_state() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    server.put::<Pod>(pod("p")).await;
    server.put_status("p", json!({ "phase": "Running" })).await;
    client.list::<Pod>(None).await?; // the kind is cached
    let pod = client.live::<Pod>("a", "p").await?.expect("it exists");
    let ctx = Context::detached(client.clone(), "test", &pod);
    let phase =
        |phase: &'static str| move |pod: &mut Pod| pod.status.get_or_insert_default().phase = Some(phase.to_owned());
    ctx.patch_status(&pod, phase("Running")).await?;
    assert_eq!(server.writes(), 0, "there is nothing to do");
    ctx.patch_status(&pod, phase("Failed")).await?;
    // `pod` still says Running; the newest state does not.
    ctx.patch_status(&pod, phase("Running")).await?;
    let stored = server.object::<Pod>("p").await.and_then(|pod| pod.status?.phase);
    assert_eq!(stored.as_deref(), Some("Running"));
    let patches = server.seen("PATCH", "/pods/p/status");
    assert_eq!(
        (patches.len(), patches[0].body.as_str()),
        (2, r#"{"status":{"phase":"Failed"}}"#)
    );
    let error = ctx
        .patch_status(&pod, |pod| pod.spec = None)
        .await
        .expect_err("not the status");
    assert!(
        error.is_terminal() && error.to_string().contains("touched spec"),
        "{error}"
    );
    Ok(())
}

/// K6: conditions are a list, and a merge patch replaces it as a whole.
#[tokio::test]
async fn k6_patch_status_loses_no_condition_of_another_writer() -> Result<()> {
    let conditions = |kinds: &[&str]| {
        let all: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({ "type": kind, "status": "True" }))
            .collect();
        json!({ "conditions": all })
    };
    let server = Server::new().await;
    let client = server.client();
    server.put::<Pod>(pod("p")).await;
    server.put_status("p", conditions(&["A"])).await;
    client.list::<Pod>(None).await?; // the kind is cached
    let pod = client.live::<Pod>("a", "p").await?.expect("it exists");
    server.hold_watches(true);
    server.put_status("p", conditions(&["A", "Theirs"])).await;
    let add = |pod: &mut Pod| {
        let condition = PodCondition {
            type_: "Ours".to_owned(),
            status: "True".to_owned(),
            ..Default::default()
        };
        let status = pod.status.get_or_insert_default();
        status.conditions.get_or_insert_default().push(condition);
    };
    let ctx = Context::detached(client, "test", &pod);
    let error = ctx
        .patch_status(&pod, add)
        .await
        .expect_err("it would take theirs away");
    assert!(error.is_conflict(), "{error}");
    let stored = server.object::<Pod>("p").await.and_then(|pod| pod.status?.conditions);
    assert_eq!(stored.map(|conditions| conditions.len()), Some(2));
    Ok(())
}

#[tokio::test]
async fn an_update_is_judged_by_the_server_alone() -> Result<()> {
    let server = Server::new().await;
    let client = server.client();
    server.put::<ConfigMap>(raw("x", "1")).await;
    let object = client.get::<ConfigMap>("a", "x").await?.expect("it exists");
    client.update(&*object).await?; // nothing has changed
    // The cache lags: its state equals the wanted one, and the server knows better.
    server.hold_watches(true);
    server.put::<ConfigMap>(raw("x", "7")).await;
    let error = client.update(&*object).await.expect_err("it has changed since");
    assert!(error.is_conflict(), "{error}");
    let mut changed = client.live::<ConfigMap>("a", "x").await?.expect("it exists");
    changed.data = config("x", "2").data;
    client.update(&changed).await?;
    let error = client.update(&changed).await.expect_err("it has changed since");
    assert!(error.is_conflict(), "{error}");
    Ok(())
}

#[tokio::test]
async fn writes_are_observed_with_the_fields_they_changed() -> Result<()> {
    let server = Server::new().await;
    server.put::<ConfigMap>(raw("x", "1")).await;
    let log = Log::default();
    let sink = log.clone();
    let observer = move |what: &Observation| {
        if let Observation::Written {
            controller,
            verb,
            object,
            changes,
            ..
        } = what
        {
            let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
            let writer = controller.as_deref().unwrap_or("nobody");
            sink.note(format!("{writer}: {verb} {object}: {}", changes.join(", ")));
        }
    };
    let manager = server.manager().observe(Arc::new(observer)).build()?;
    let client = manager.client();
    client.list::<ConfigMap>(None).await?;
    let patch = Patch::Merge(json!({ "data": { "key": "2" } }));
    client.patch::<ConfigMap, Value>("a", "x", &patch).await?;
    client.list::<ConfigMap>(None).await?; // it has seen the patch
    client.patch::<ConfigMap, Value>("a", "x", &patch).await?; // and this changes nothing
    client.create(&config("y", "1")).await?;
    let object = client.get::<ConfigMap>("a", "y").await?.expect("it exists");
    client.with_field_manager("janitor").delete(&*object).await?;
    let expected = [
        "nobody: patch ConfigMap a/x: data.key \"1\" → \"2\"",
        "nobody: create ConfigMap a/y: ",
        "janitor: delete ConfigMap a/y: ",
    ];
    assert_eq!(log.all(), expected);
    Ok(())
}
