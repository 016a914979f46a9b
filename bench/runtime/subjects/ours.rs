//! kubewright as a subject: an informer, a controller that does nothing, or the queue alone, as the bench says.

#![allow(clippy::print_stdout, reason = "lines are how a subject answers the bench")]

use std::marker::PhantomData;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kubewright::{
    Action, Cache, ChangeKind, Context, Controller, Event, Manager, Object, Reconciler, Stop, WorkQueue, connect,
};

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
        ("cache", "metadata") => cache::<PartialObjectMeta<Pod>>(&arguments, words, |_| 0).await,
        ("cache", _) => cache::<Pod>(&arguments, words, |pod| common::containers(std::iter::once(pod)).1).await,
        ("handler", "projection") => handler::<PodBrief>(&arguments, words, |pod| pod.spec.containers.len()).await,
        ("handler", _) => handler::<Pod>(&arguments, words, |pod| common::containers(std::iter::once(pod)).1).await,
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

fn client(arguments: &Arguments) -> Result<kube::Client, String> {
    let url = arguments
        .url
        .parse()
        .map_err(|why| format!("{}: {why}", arguments.url))?;
    connect(kube::Config::new(url)).map_err(|why| why.to_string())
}

async fn cache<K: Object>(arguments: &Arguments, words: Words, containers: fn(&K) -> usize) -> Result<(), String> {
    let cache = Cache::new(client(arguments)?);
    let informer = cache.informer::<K>();
    let (store, changes) = (informer.store(), AtomicUsize::new(0));
    informer.add_key_handler(move |change| {
        if change.kind == ChangeKind::Modified {
            let changes = changes.fetch_add(1, Ordering::Relaxed) + 1;
            if change.request.name() == MARKER {
                println!("marked {changes} {}", store.len());
            }
        }
    });
    informer.synced().await.map_err(|why| why.to_string())?;
    println!("synced {}", informer.store().len());
    let store = informer.store();
    common::answer(words, || {
        let all = store.list();
        (all.len(), all.iter().map(|object| containers(object)).sum())
    })
    .await
}

/// A handler of typed events, as who comes from kube-rs writes it: it looks at the new state.
async fn handler<K: Object>(arguments: &Arguments, words: Words, containers: fn(&K) -> usize) -> Result<(), String> {
    let cache = Cache::new(client(arguments)?);
    let informer = cache.informer::<K>();
    let (store, changes) = (informer.store(), AtomicUsize::new(0));
    informer.add_inline_handler(move |event: &Event<K>| {
        let Event::Modified { new, .. } = event else { return };
        let found = usize::from(containers(new) > 0);
        let changes = changes.fetch_add(found, Ordering::Relaxed) + found;
        if new.meta().name.as_deref() == Some(MARKER) {
            println!("marked {changes} {}", store.len());
        }
    });
    informer.synced().await.map_err(|why| why.to_string())?;
    println!("synced {}", informer.store().len());
    let store = informer.store();
    common::answer(words, || (store.len(), 0)).await
}

struct NoOp<K>(Meter, PhantomData<fn() -> K>);

impl<K: Object> Reconciler for NoOp<K> {
    type Object = K;

    async fn reconcile(&self, object: Arc<K>, _: Context) -> kubewright::Result<Action> {
        let metadata = object.meta();
        self.0
            .reconciled(metadata.name.as_deref(), metadata.annotations.as_ref());
        Ok(Action::await_change())
    }
}

async fn controller<K: Object>(arguments: &Arguments, mut words: Words) -> Result<(), String> {
    let manager = Manager::builder(client(arguments)?)
        .add(Controller::of::<K>(NoOp(Meter::new(), PhantomData)))
        .build()
        .map_err(|why| why.to_string())?;
    let (source, stop) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { stop.requested().await }).await });
    while words.next().await?.is_some() {}
    source.stop();
    running
        .await
        .map_err(|why| why.to_string())?
        .map_err(|why| why.to_string())
}

async fn queue() {
    let queue = WorkQueue::new();
    let keys: Vec<kubewright::Request> = (0..KEYS)
        .map(|key| kubewright::Request::new("default", &format!("pod-{key}")))
        .collect();
    let started = Instant::now();
    keys.iter().for_each(|key| queue.add(key.clone()));
    let added = started.elapsed();
    let mut count = 0;
    while !queue.is_empty() {
        let Some(key) = queue.next().await else { break };
        drop(key);
        count += 1;
    }
    let drained = started.elapsed() - added;
    let started = Instant::now();
    for key in keys.iter().cycle().take(ALONE) {
        queue.add(key.clone());
        if queue.next().await.is_none() {
            break;
        }
    }
    let alone = started.elapsed().as_secs_f64() * 1e6 / ALONE as f64;
    println!(
        "queue {count} {} {} {alone}",
        added.as_secs_f64(),
        drained.as_secs_f64()
    );
}
