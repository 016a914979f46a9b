//! kube-runtime as a subject: a reflector, a controller that does nothing, or the scheduler alone, as the bench says.
//!
//! Everything is as its documentation shows it, with its own defaults. `strip` clears managedFields with `modify`, as
//! its guide recommends.

#![allow(clippy::print_stdout, reason = "lines are how a subject answers the bench")]

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::core::PartialObjectMeta;
use kube::{Api, Resource, ResourceExt};
use kube_runtime::controller::Action;
use kube_runtime::reflector::{ObjectRef, store};
use kube_runtime::scheduler::ScheduleRequest;
use kube_runtime::{Controller, WatchStreamExt, reflector, scheduler, watcher};

mod common;

use common::{ALONE, Arguments, KEYS, MARKER, Meter, PodBrief, Words};

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    common::run(subject()).await
}

async fn subject() -> Result<(), String> {
    let arguments = common::arguments()?;
    let words = Words::begin().await?;
    match (arguments.task.as_str(), arguments.keep.as_str()) {
        ("cache", "metadata") => {
            let events = watcher(api::<PartialObjectMeta<Pod>>(&arguments)?, watcher::Config::default());
            // The count of containers is not in the metadata.
            cache::<PartialObjectMeta<Pod>>(words, strip(events), |_| 0).await
        }
        ("cache", "strip") => {
            let events = watcher(api::<Pod>(&arguments)?, watcher::Config::default());
            cache::<Pod>(words, strip(events), |pod| common::containers(std::iter::once(pod)).1).await
        }
        // Its store and its stream hold typed objects anyway.
        ("handler", "projection") => {
            let events = watcher(api::<PodBrief>(&arguments)?, watcher::Config::default());
            cache::<PodBrief>(words, strip(events), |pod| pod.spec.containers.len()).await
        }
        ("handler", _) => {
            let events = watcher(api::<Pod>(&arguments)?, watcher::Config::default());
            cache::<Pod>(words, strip(events), |_| 0).await
        }
        ("cache", _) => {
            let events = watcher(api::<Pod>(&arguments)?, watcher::Config::default());
            cache::<Pod>(words, events, |pod| common::containers(std::iter::once(pod)).1).await
        }
        ("controller", "metadata") => controller::<PartialObjectMeta<Pod>>(&arguments, words).await,
        ("controller", "projection") => controller::<PodBrief>(&arguments, words).await,
        ("controller", _) => controller::<Pod>(&arguments, words).await,
        ("queue", _) => {
            queue().await;
            Ok(())
        }
        (other, _) => Err(format!("there is no task {other:?}")),
    }
}

fn api<K: Resource<DynamicType = ()>>(arguments: &Arguments) -> Result<Api<K>, String> {
    let url = arguments
        .url
        .parse()
        .map_err(|why| format!("{}: {why}", arguments.url))?;
    let client = kube::Client::try_from(kube::Config::new(url)).map_err(|why| why.to_string())?;
    Ok(Api::all(client))
}

fn strip<K: Resource>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> {
    events.map_ok(|event| event.modify(|object| object.managed_fields_mut().clear()))
}

async fn cache<K>(
    words: Words,
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    containers: fn(&K) -> usize,
) -> Result<(), String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let (reader, writer) = store();
    let synced = reader.clone();
    let told = reader.clone();
    let events = reflector(writer, events.default_backoff());
    tokio::spawn(async move {
        let mut events = std::pin::pin!(events);
        let (mut changes, mut listed) = (0, false);
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::InitDone) => listed = true,
                Ok(watcher::Event::Apply(object)) if listed => {
                    changes += 1;
                    if object.name_any() == MARKER {
                        println!("marked {changes} {}", told.len());
                    }
                }
                Ok(_) => {}
                // It tells of every 410 and goes on.
                Err(_) => {}
            }
        }
    });
    synced.wait_until_ready().await.map_err(|why| why.to_string())?;
    println!("synced {}", reader.len());
    common::answer(words, || {
        let all = reader.state();
        (all.len(), all.iter().map(|object| containers(object)).sum())
    })
    .await
}

async fn controller<K>(arguments: &Arguments, mut words: Words) -> Result<(), String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let reconcile = |object: Arc<K>, meter: Arc<Meter>| async move {
        let metadata = object.meta();
        meter.reconciled(metadata.name.as_deref(), metadata.annotations.as_ref());
        Ok::<Action, std::convert::Infallible>(Action::await_change())
    };
    let running = Controller::new(api::<K>(arguments)?, watcher::Config::default())
        .run(reconcile, |_, _, _| Action::await_change(), Arc::new(Meter::new()))
        .for_each(|_| async {});
    let running = tokio::spawn(running);
    while words.next().await?.is_some() {}
    running.abort();
    Ok(())
}

async fn queue() {
    let keys: Vec<ObjectRef<Pod>> = (0..KEYS)
        .map(|key| ObjectRef::new(&format!("pod-{key}")).within("default"))
        .collect();
    let started = Instant::now();
    let asked = |message: &ObjectRef<Pod>| ScheduleRequest {
        message: message.clone(),
        run_at: tokio::time::Instant::now(),
    };
    let requests: Vec<ScheduleRequest<ObjectRef<Pod>>> = keys.iter().map(asked).collect();
    let added = started.elapsed();
    // It ends with its requests, even with items left.
    let requests = stream::iter(requests).chain(stream::pending());
    let count = scheduler(requests).take(KEYS).count().await;
    let drained = started.elapsed() - added;
    let (sender, receiver) = futures::channel::mpsc::unbounded();
    let mut one_by_one = scheduler(receiver);
    let started = Instant::now();
    // Each waits for a timer of a millisecond.
    let few = ALONE / 1000;
    for key in keys.iter().cycle().take(few) {
        if sender.unbounded_send(asked(key)).is_err() || one_by_one.next().await.is_none() {
            break;
        }
    }
    let alone = started.elapsed().as_secs_f64() * 1e6 / few as f64;
    println!(
        "queue {count} {} {} {alone}",
        added.as_secs_f64(),
        drained.as_secs_f64()
    );
}
