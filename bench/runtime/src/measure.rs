//! The measurements. Each names the figures that it enters.
//!
//! * *memory of an object*: the memory private to the process (`RssAnon`) after the first list, less that before the
//!   first request, by object. A subject with a garbage collector has collected and given back first, which it would
//!   not do by itself.
//! * *first sync, CPU of an object*: time on processors from the word to begin until the store is synced, by object.
//! * *watch, CPU of an event*: the same, from the first of as many events as there are objects, one for each, until a
//!   handler is told of the last; the store then holds them.
//! * *typed handler*: the same two, with a handler of typed events that looks at the new state of each; *of a
//!   projection*: of a type of the user's own, with a few fields of a Pod.
//! * *relist, peak*: the server answers 410, and nothing has changed. The most private memory until the next event was
//!   told, over that before (after a collection). As a stream, page by page, and from a server that ignores `limit`.
//! * *reading*: a list of all objects, and a look at each: microseconds by object, the first time and again.
//! * *reconciles a second*: from the first of as many events as there are objects, one for each, until the last of as
//!   many reconciles that do nothing; of whole objects, of a projection, and of a controller that asks for their
//!   metadata only.
//! * *event to reconcile*: a thousand events a second for ten seconds, over a thousand objects: from the server's clock
//!   when it writes the event to the beginning of the reconcile.
//! * *queue*: 500,000 keys added, then taken and done one after the other; and one at a time: add, get, done.
//! * *idle*: a controller of one object: its private memory (`RssAnon`), that with its share of common pages (`Pss`),
//!   all resident memory, and how often its threads wake, in ten seconds without an event.
//!
//! Every measurement checks that the subject has all objects and events: the counts of objects, of events, of
//! containers within.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::pods::{MARKER, Pods, View};
use crate::process::Subject;
use crate::server::{Manners, Server};

/// The figures, by name.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

/// A server as they are today.
const MODERN: Manners = Manners {
    pages: true,
    watch_list: true,
};
/// Containers of each pod.
const CONTAINERS: usize = 2;
/// Events a second, for how many seconds, over how many objects.
const RATE: u32 = 1000;
const SECONDS: u32 = 10;
const PACED: usize = 1000;
/// How long a subject comes to rest, and is watched doing nothing.
const REST: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(10);

/// How many bytes an object has on the wire.
pub(crate) fn object_size() -> usize {
    let mut text = String::new();
    Pods::new().write(1, 10_000, 0, View::Whole, &mut text);
    text.len()
}

/// Memory, first sync, watch, relists, reading.
pub(crate) async fn cache(program: &Path, objects: usize, figures: &mut Figures) -> Result<(), String> {
    for (keep, memory, again) in [
        ("received", "memory of an object as received, KB", None),
        ("metadata", "memory of its metadata, KB", None),
        ("strip", "memory without managedFields, KB", Some(())),
    ] {
        let server = Server::start(objects, MODERN).await?;
        let url = format!("http://{}", server.address);
        let mut subject = Subject::start(program, &url, "cache", keep).await?;
        let (before, begun) = (subject.memory()?.private, subject.cpu()?);
        subject.tell("go").await?;
        expect("objects synced", &subject.hear("synced").await?, &[objects])?;
        let synced = subject.cpu()?;
        server.follows(1).await;
        subject.collect().await?;
        let each = |megabytes: f64| megabytes * 1024.0 / objects as f64;
        figures.insert(memory, each(subject.memory()?.private - before));
        if again.is_some() {
            figures.insert(
                "first sync, CPU of an object, µs",
                (synced - begun) * 1e6 / objects as f64,
            );
            let each = watch(&mut subject, &server, objects).await?;
            figures.insert("watch, CPU of an event, µs", each);
            relists(&mut subject, &server, objects, figures).await?;
            for name in ["reading, of an object, µs", "reading again, of an object, µs"] {
                subject.tell("read").await?;
                let read = subject.hear("read").await?;
                expect("objects and containers read", &read, &[objects, objects * CONTAINERS])?;
                figures.insert(name, read.get(2).copied().unwrap_or(f64::NAN));
            }
        }
        subject.stop().await?;
    }
    Ok(())
}

/// The CPU of an event, in microseconds.
async fn watch(subject: &mut Subject, server: &Server, objects: usize) -> Result<f64, String> {
    let begun = subject.cpu()?;
    server.change((0..objects).rev(), None).await;
    expect(
        "events and objects",
        &subject.hear("marked").await?,
        &[objects, objects],
    )?;
    Ok((subject.cpu()? - begun) * 1e6 / objects as f64)
}

/// A handler of typed events. Controller-runtime's are typed in any case: its figures are those of the cache.
pub(crate) async fn handlers(program: &Path, objects: usize, figures: &mut Figures) -> Result<(), String> {
    for (keep, event, memory) in [
        (
            "strip",
            "typed handler, CPU of an event, µs",
            "typed handler, memory of an object, KB",
        ),
        (
            "projection",
            "handler of a projection, CPU, µs",
            "its memory of an object, KB",
        ),
    ] {
        let server = Server::start(objects, MODERN).await?;
        let mut subject = Subject::start(program, &format!("http://{}", server.address), "handler", keep).await?;
        let before = subject.memory()?.private;
        subject.tell("go").await?;
        expect("objects synced", &subject.hear("synced").await?, &[objects])?;
        server.follows(1).await;
        figures.insert(event, watch(&mut subject, &server, objects).await?);
        subject.collect().await?;
        let each = (subject.memory()?.private - before) * 1024.0 / objects as f64;
        figures.insert(memory, each);
        subject.stop().await?;
    }
    Ok(())
}

async fn relists(subject: &mut Subject, server: &Server, objects: usize, figures: &mut Figures) -> Result<(), String> {
    let unpaged = Manners {
        pages: false,
        watch_list: false,
    };
    for (changes, (name, manners)) in (objects + 1..).zip([
        ("relist as a stream, peak ×", MODERN),
        ("relist in pages, peak ×", Manners { pages: true, ..unpaged }),
        ("relist without limit, peak ×", unpaged),
    ]) {
        server.set_manners(manners);
        subject.collect().await?;
        let steady = subject.memory()?.private;
        subject.forget_peak()?;
        let follow = server.followed() + 1;
        server.expire().await;
        server.follows(follow).await;
        server.change(std::iter::once(MARKER), None).await;
        expect(
            "events and objects",
            &subject.hear("marked").await?,
            &[changes, objects],
        )?;
        figures.insert(name, subject.memory()?.peak / steady);
    }
    Ok(())
}

/// Reconciles from events: as fast as they come, and at a pace.
pub(crate) async fn reconciles(program: &Path, objects: usize, figures: &mut Figures) -> Result<(), String> {
    for (keep, rate, each) in [
        (
            "strip",
            "reconciles a second, from events",
            "event with its reconcile, CPU, µs",
        ),
        (
            "projection",
            "reconciles a second, of a projection",
            "the same of a projection, CPU, µs",
        ),
        (
            "metadata",
            "reconciles a second, of metadata",
            "the same of metadata, CPU, µs",
        ),
    ] {
        if keep == "projection" && program.ends_with(crate::GO) {
            continue; // its caches hold the types of the API
        }
        let server = Server::start(objects, MODERN).await?;
        let mut subject = Subject::start(program, &format!("http://{}", server.address), "controller", keep).await?;
        subject.tell("go").await?;
        subject.reconciled(objects).await?;
        server.follows(1).await;
        let (begun, cpu) = (Instant::now(), subject.cpu()?);
        server.change(0..objects, None).await;
        subject.reconciled(objects * 2).await?;
        figures.insert(rate, objects as f64 / begun.elapsed().as_secs_f64());
        figures.insert(each, (subject.cpu()? - cpu) * 1e6 / objects as f64);
        subject.stop().await?;
    }

    let server = Server::start(PACED, MODERN).await?;
    let mut subject = Subject::start(program, &format!("http://{}", server.address), "controller", "strip").await?;
    subject.tell("go").await?;
    subject.reconciled(PACED).await?;
    server.follows(1).await;
    let events = (RATE * SECONDS) as usize;
    let others = (1..PACED).cycle().take(events);
    server.change(others.chain([MARKER]), Some(RATE)).await;
    let mut marked = subject.hear("marked").await?;
    // The marker's first reconcile is that of the list.
    while marked.first().is_some_and(|count| *count <= PACED as f64) {
        marked = subject.hear("marked").await?;
    }
    let [count, median, late, ..] = marked[..] else {
        return Err(format!("{} says too little: {marked:?}", program.display()));
    };
    // A slow subject may fold two events of an object into one reconcile.
    if count < (PACED + events) as f64 * 0.99 {
        return Err(format!("{count} reconciles after {events} events"));
    }
    figures.insert("event to reconcile p50, ms", median);
    figures.insert("event to reconcile p99, ms", late);
    subject.stop().await
}

/// The queue without anything around it.
pub(crate) async fn queue(program: &Path, figures: &mut Figures) -> Result<(), String> {
    let mut subject = Subject::start(program, "-", "queue", "-").await?;
    subject.tell("go").await?;
    let [count, added, drained, alone] = subject.hear("queue").await?[..] else {
        return Err(format!("{} does not say how fast its queue is", program.display()));
    };
    figures.insert("queue of 500,000: keys a second", count / (added + drained));
    figures.insert("queue: add, get and done, µs", alone);
    Ok(())
}

/// An operator with nothing to do.
pub(crate) async fn idle(program: &Path, figures: &mut Figures) -> Result<(), String> {
    let server = Server::start(1, MODERN).await?;
    let mut subject = Subject::start(program, &format!("http://{}", server.address), "controller", "strip").await?;
    subject.tell("go").await?;
    subject.hear("marked").await?;
    server.follows(1).await;
    tokio::time::sleep(REST).await;
    let before = subject.sleeps()?;
    tokio::time::sleep(IDLE).await;
    figures.insert("idle: wake-ups in 10 s", subject.sleeps()? - before);
    let memory = subject.memory()?;
    figures.insert("idle: private, MB", memory.private);
    figures.insert("idle: its share (PSS), MB", subject.share()?);
    figures.insert("idle: resident, MB", memory.resident);
    subject.stop().await
}

fn expect(what: &str, told: &[f64], wanted: &[usize]) -> Result<(), String> {
    let same = told.iter().zip(wanted).all(|(told, wanted)| *told == *wanted as f64);
    match same && told.len() >= wanted.len() {
        true => Ok(()),
        false => Err(format!("{what}: {told:?} instead of {wanted:?}")),
    }
}
