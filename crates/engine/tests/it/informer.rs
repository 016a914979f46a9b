//! Reflector, delta queue, store and dispatcher together, against a simulated API server with faults.
//!
//! The server has a history of numbered writes, a compaction floor, list pages from one snapshot and watches. A run is
//! a list of steps: writes, deliveries and faults in any order; then the faults stop and the world comes to rest.
//! Checked after every step: SI1 and SI3 (each handler sees valid histories, late joiners too), SI2 (the store is not
//! older than the event), RF1 (no key goes back), RF4, S2, S5. Checked at rest: RF2 (the store is the server's state,
//! at the server's version) and DF3.

use kubewright_engine::reflector::{
    Action, Config, Failure, FailureKind, Health, Input, ListPage, ListVersion, WatchEvent,
};
use kubewright_engine::{
    Delta, DeltaQueue, Dispatcher, Event, Instant, Meta, ObjectKey, Reflector, ResourceVersion, Store,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Debug, PartialEq)]
struct Object {
    key: ObjectKey,
    uid: String,
    version: String,
}

impl Object {
    fn number(&self) -> u64 {
        self.version.parse().expect("the server numbers its versions")
    }
}

struct ObjectMeta;

impl Meta<Object> for ObjectMeta {
    fn key(object: &Object) -> Option<ObjectKey> {
        Some(object.key.clone())
    }
    fn uid(object: &Object) -> Option<&str> {
        Some(&object.uid)
    }
    fn resource_version(object: &Object) -> Option<&str> {
        Some(&object.version)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Added,
    Modified,
    Deleted,
}

/// The truth.
struct Server {
    version: u64,
    /// Watches from before this version are expired.
    floor: u64,
    uids: u64,
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    history: Vec<(Verb, Arc<Object>)>,
    /// The state after each write, for replicas that are behind.
    past: Vec<(u64, Vec<Arc<Object>>)>,
}

impl Server {
    fn write(&mut self, name: u8, delete: bool) {
        let key = ObjectKey::namespaced(if name.is_multiple_of(2) { "even" } else { "odd" }, &format!("o{name}"));
        let old = self.objects.get(&key).cloned();
        if delete && old.is_none() {
            return;
        }
        self.version += 1;
        let uid = old.as_ref().map_or_else(
            || {
                self.uids += 1;
                self.uids.to_string()
            },
            |old| old.uid.clone(),
        );
        let object = Arc::new(Object {
            key: key.clone(),
            uid,
            version: self.version.to_string(),
        });
        let verb = match (delete, old) {
            (true, _) => Verb::Deleted,
            (false, Some(_)) => Verb::Modified,
            (false, None) => Verb::Added,
        };
        match verb {
            Verb::Deleted => drop(self.objects.remove(&key)),
            Verb::Added | Verb::Modified => drop(self.objects.insert(key, object.clone())),
        }
        self.history.push((verb, object));
        self.past.push((self.version, self.objects.values().cloned().collect()));
    }

    fn since(&self, version: u64) -> Option<&(Verb, Arc<Object>)> {
        self.history.iter().find(|(_, object)| object.number() > version)
    }
}

/// The client's open request.
enum Open {
    Nothing,
    /// The snapshot that is left to send, and its version.
    List {
        rest: Vec<Arc<Object>>,
        version: u64,
        limit: usize,
    },
    /// The initial events that are left, whether their end is still to come, and the position in the history.
    Watch {
        initial: Vec<Arc<Object>>,
        end_due: bool,
        position: u64,
    },
    /// The request fails.
    Failing(FailureKind),
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        name: u8,
        delete: bool,
    },
    /// Delete and create again, which a slow watcher sees only in a gap.
    Recreate(u8),
    Deliver(u8),
    Bookmark,
    Repeat,
    Pass,
    Compact,
    Cut {
        clean: bool,
    },
    BadFrame,
    Refuse(FailureKind),
    /// The next list that may be answered by any replica is answered by one that is behind, and does not say so.
    Stale,
    /// The server does not send the end of initial events from now on.
    Mute,
    Join,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        Just(FailureKind::Expired),
        Just(FailureKind::TooLargeResourceVersion),
        Just(FailureKind::TooManyRequests),
        Just(FailureKind::Forbidden),
        Just(FailureKind::NotFound),
        Just(FailureKind::Invalid),
        Just(FailureKind::Server),
        Just(FailureKind::Connection),
    ];
    prop_oneof![
        8 => (0..8u8, prop::bool::weighted(0.3)).prop_map(|(name, delete)| Step::Write { name, delete }),
        2 => (0..8u8).prop_map(Step::Recreate),
        8 => (1..5u8).prop_map(Step::Deliver),
        2 => Just(Step::Bookmark),
        1 => Just(Step::Repeat),
        4 => Just(Step::Pass),
        2 => Just(Step::Compact),
        2 => any::<bool>().prop_map(|clean| Step::Cut { clean }),
        1 => Just(Step::BadFrame),
        3 => kind.prop_map(Step::Refuse),
        2 => Just(Step::Stale),
        1 => Just(Step::Mute),
        1 => Just(Step::Join),
    ]
}

/// One handler's view: the last state of each key, and the newest version ever seen of it.
#[derive(Default)]
struct View {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    newest: BTreeMap<ObjectKey, u64>,
    error: Option<String>,
}

impl View {
    fn see(&mut self, event: &Event<Object>) {
        let problem = self.check(event);
        if self.error.is_none() {
            self.error = problem.map(|problem| format!("{problem}: {event:?}"));
        }
    }

    fn check(&mut self, event: &Event<Object>) -> Option<&'static str> {
        let object = event.object().clone();
        let key = object.key.clone();
        let known = self.objects.get(&key).cloned();
        let before = self.newest.insert(key.clone(), object.number()).unwrap_or(0);
        match event {
            Event::Added { .. } => {
                self.objects.insert(key, object.clone());
                if known.is_some() {
                    return Some("SI1: Added twice");
                }
                (object.number() <= before).then_some("RF1: Added an older state")
            }
            Event::Modified { old, .. } => {
                self.objects.insert(key, object.clone());
                if known.as_ref() != Some(old) {
                    return Some("SI3: old is not what was seen last");
                }
                if old.uid != object.uid {
                    return Some("DF8: Modified with another uid");
                }
                (object.number() <= before).then_some("RF1: Modified to an older state")
            }
            Event::Deleted {
                final_state_unknown, ..
            } => {
                self.objects.remove(&key);
                match known {
                    None => Some("SI1: Deleted before Added"),
                    Some(known) if *final_state_unknown && known != object => Some("DF2: not the last known state"),
                    Some(known) if known.uid != object.uid => Some("DF8: Deleted another uid"),
                    Some(_) => (object.number() < before).then_some("RF1: Deleted an older state"),
                }
            }
        }
    }
}

/// The client: the work of a shell with the engine.
struct World {
    server: Server,
    reflector: Reflector<Object, ObjectMeta>,
    deltas: DeltaQueue<Object>,
    store: Arc<Mutex<Store<Object, ObjectMeta>>>,
    dispatcher: Dispatcher<Object>,
    views: Vec<Arc<Mutex<View>>>,
    open: Open,
    now: Instant,
    entropy: u64,
    /// Faults for the next request, and for all initial streams.
    refuse: Option<FailureKind>,
    stale: bool,
    mute: bool,
    requests: u32,
}

impl World {
    fn new(watch_list: bool) -> World {
        let server = Server {
            version: 100,
            floor: 0,
            uids: 0,
            objects: BTreeMap::new(),
            history: Vec::new(),
            past: Vec::new(),
        };
        let config = Config {
            watch_list,
            page_size: Some(2),
            ..Config::default()
        };
        let mut store = Store::new();
        store
            .add_index("uid", |object: &Object| vec![object.uid.clone()])
            .expect("the first index");
        let mut world = World {
            server,
            reflector: Reflector::new(config),
            deltas: DeltaQueue::default(),
            store: Arc::new(Mutex::new(store)),
            dispatcher: Dispatcher::new(),
            views: Vec::new(),
            open: Open::Nothing,
            now: Instant::ZERO,
            entropy: 1,
            refuse: None,
            stale: false,
            mute: false,
            requests: 0,
        };
        world.join();
        world
    }

    fn join(&mut self) {
        let view = Arc::new(Mutex::new(View::default()));
        let (sink, store) = (view.clone(), self.store.clone());
        let handler = move |event: &Event<Object>| {
            let mut view = sink.lock().expect("quiet");
            let stored = store
                .lock()
                .expect("quiet")
                .resource_version()
                .and_then(|v| v.as_str().parse::<u64>().ok());
            if stored.is_none_or(|stored| stored < event.object().number()) && view.error.is_none() {
                view.error = Some(format!("SI2: the store is at {stored:?}: {event:?}"));
            }
            view.see(event);
        };
        let snapshot = self.store.lock().expect("quiet").list(None).items;
        let (_, panics) = self.dispatcher.add(Arc::new(handler), snapshot);
        assert!(panics.is_empty());
        self.views.push(view);
    }

    fn input(&mut self, input: Input<Object>) {
        // xorshift: any spread will do
        self.entropy ^= self.entropy << 13;
        self.entropy ^= self.entropy >> 7;
        self.entropy ^= self.entropy << 17;
        let actions = self.reflector.handle(input, self.now, self.entropy);
        for action in actions {
            match action {
                Action::List {
                    version,
                    limit,
                    continue_token,
                } => self.open_list(&version, limit, continue_token.is_some()),
                Action::Watch {
                    version,
                    send_initial_events,
                    ..
                } => self.open_watch(version, send_initial_events),
                Action::Apply(delta) => self.apply(delta),
                Action::Wait(wait) => {
                    self.open = Open::Nothing;
                    assert_eq!(self.reflector.deadline(), Some(self.now + wait));
                }
                Action::Health(_) | Action::Stopped => {}
            }
        }
    }

    fn apply(&mut self, delta: Delta<Object>) {
        self.deltas.push(delta).expect("each delta is taken out at once");
        while let Some(batch) = self.deltas.pop_batch(10) {
            for delta in batch {
                let before = self.store_version();
                let events = self.store.lock().expect("quiet").apply(delta);
                assert!(self.store_version() >= before, "S5: the store went back from {before}");
                let panics = self.dispatcher.dispatch(&events);
                assert!(panics.is_empty(), "{panics:?}");
            }
        }
    }

    fn store_version(&self) -> u64 {
        let store = self.store.lock().expect("quiet");
        store
            .resource_version()
            .map_or(0, |version| version.as_str().parse().expect("a number"))
    }

    fn open_list(&mut self, version: &ListVersion, limit: Option<u32>, continued: bool) {
        self.requests += 1;
        if let Some(kind) = self.refuse.take() {
            self.open = Open::Failing(kind);
        } else if !continued {
            let limit = limit.map_or(usize::MAX, |limit| limit as usize);
            let newest = || (self.server.version, self.server.objects.values().cloned().collect());
            let behind = || self.server.past.get(self.server.past.len() / 2).cloned();
            let stale = matches!(version, ListVersion::NotOlderThan(_)) && std::mem::take(&mut self.stale);
            let (version, rest) = Some(())
                .filter(|()| stale)
                .and_then(|()| behind())
                .unwrap_or_else(newest);
            self.open = Open::List { rest, version, limit };
        }
    }

    fn open_watch(&mut self, version: Option<ResourceVersion>, initial_events: bool) {
        self.requests += 1;
        self.open = if let Some(kind) = self.refuse.take() {
            Open::Failing(kind)
        } else if initial_events {
            let initial = self.server.objects.values().cloned().collect();
            Open::Watch {
                initial,
                end_due: true,
                position: self.server.version,
            }
        } else {
            let position = version
                .and_then(|version| version.as_str().parse().ok())
                .expect("a watch has a version");
            Open::Watch {
                initial: Vec::new(),
                end_due: false,
                position,
            }
        };
    }

    /// The next thing that the open request delivers; `false` when there is nothing.
    fn deliver(&mut self) -> bool {
        let input = match &mut self.open {
            Open::Nothing => return false,
            Open::Failing(kind) => {
                let kind = *kind;
                self.open = Open::Nothing;
                Input::Failed(Failure::new(kind, format!("{kind:?}")))
            }
            Open::List { rest, version, limit } => {
                let items: Vec<Arc<Object>> = rest.drain(..rest.len().min(*limit)).collect();
                let continue_token = (!rest.is_empty()).then(|| "more".to_owned());
                let resource_version = Some(ResourceVersion::new(&version.to_string()));
                Input::Page(ListPage {
                    items,
                    unreadable: Vec::new(),
                    resource_version,
                    continue_token,
                })
            }
            Open::Watch {
                initial,
                end_due,
                position,
            } => {
                if !initial.is_empty() {
                    Input::Event(WatchEvent::Added(initial.remove(0)))
                } else if *end_due && !self.mute {
                    *end_due = false;
                    let version = ResourceVersion::new(&position.to_string());
                    Input::Event(WatchEvent::Bookmark {
                        version,
                        initial_events_end: true,
                    })
                } else if *position < self.server.floor {
                    self.open = Open::Nothing;
                    Input::Event(WatchEvent::Error(Failure::new(
                        FailureKind::Expired,
                        "too old resource version",
                    )))
                } else if let Some((verb, object)) = self.server.since(*position) {
                    *position = object.number();
                    let object = object.clone();
                    Input::Event(match verb {
                        Verb::Added => WatchEvent::Added(object),
                        Verb::Modified => WatchEvent::Modified(object),
                        Verb::Deleted => WatchEvent::Deleted(object),
                    })
                } else {
                    return false;
                }
            }
        };
        self.input(input);
        true
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write { name, delete } => self.server.write(name, delete),
            Step::Recreate(name) => {
                self.server.write(name, true);
                self.server.write(name, false);
            }
            Step::Deliver(count) => {
                for _ in 0..count {
                    self.deliver();
                }
            }
            Step::Bookmark => {
                if let Open::Watch {
                    end_due: false,
                    position,
                    ..
                } = &mut self.open
                    && *position >= self.server.floor
                    && self.server.since(*position).is_none()
                {
                    *position = self.server.version;
                    let version = ResourceVersion::new(&self.server.version.to_string());
                    self.input(Input::Event(WatchEvent::Bookmark {
                        version,
                        initial_events_end: false,
                    }));
                }
            }
            Step::Repeat => {
                // The last event once more: some proxies do it.
                if let Open::Watch {
                    end_due: false,
                    position,
                    ..
                } = &self.open
                    && let Some((verb, object)) = self.server.history.iter().rfind(|(_, o)| o.number() <= *position)
                    && object.number() == *position
                {
                    let object = object.clone();
                    let event = if *verb == Verb::Deleted {
                        WatchEvent::Deleted(object)
                    } else {
                        WatchEvent::Modified(object)
                    };
                    self.input(Input::Event(event));
                }
            }
            Step::Pass => self.pass(),
            Step::Compact => self.server.floor = self.server.version,
            Step::Cut { clean } => {
                let cut = std::mem::replace(&mut self.open, Open::Nothing);
                match cut {
                    Open::Nothing => {}
                    Open::Watch { .. } => self.input(Input::Ended { clean }),
                    _ => self.input(Input::Failed(Failure::new(FailureKind::Connection, "reset by peer"))),
                }
            }
            Step::BadFrame => {
                if !matches!(self.open, Open::Nothing) {
                    self.open = Open::Nothing;
                    self.input(Input::Failed(Failure::new(FailureKind::Decode, "half a frame")));
                }
            }
            Step::Refuse(kind) => self.refuse = Some(kind),
            Step::Stale => self.stale = true,
            Step::Mute => self.mute = true,
            Step::Join => self.join(),
        }
    }

    /// Time passes until the reflector's timer, if it waits for it.
    fn pass(&mut self) {
        if let Some(deadline) = self.reflector.deadline() {
            self.now = self.now.max(deadline);
            self.input(Input::Timer);
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for view in &self.views {
            let view = view.lock().expect("quiet");
            prop_assert!(view.error.is_none(), "{}", view.error.as_deref().unwrap_or_default());
            let store = self.store.lock().expect("quiet");
            let stored: BTreeMap<ObjectKey, Arc<Object>> = store.iter().map(|(k, o)| (k.clone(), o.clone())).collect();
            prop_assert_eq!(&view.objects, &stored, "I2: what a handler saw adds up to the store");
        }
        let store = self.store.lock().expect("quiet");
        store.check().map_err(TestCaseError::fail)?;
        prop_assert!(store.is_synced() || store.is_empty(), "RF4: nothing of a partial list");
        Ok(())
    }

    /// No more faults: runs until the watch has nothing left to say.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        self.refuse = None;
        self.stale = false;
        for _ in 0..2000 {
            if self.deliver() {
                continue;
            }
            let watching = matches!(self.open, Open::Watch { end_due: false, .. });
            if watching {
                self.step(Step::Bookmark);
                return Ok(());
            }
            self.pass();
        }
        Err(TestCaseError::fail(format!(
            "RF2: it never comes to rest: {:?}",
            self.reflector.health()
        )))
    }
}

fn run(watch_list: bool, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut world = World::new(watch_list);
    world.input(Input::Start);
    for step in steps {
        world.step(step);
        world.check()?;
    }
    world.settle()?;
    world.check()?;
    let store = world.store.lock().expect("quiet");
    let stored: Vec<&Arc<Object>> = store.iter().map(|(_, object)| object).collect();
    let truth: Vec<&Arc<Object>> = world.server.objects.values().collect();
    prop_assert_eq!(stored, truth, "RF2: the store is the server's state");
    prop_assert_eq!(
        store.resource_version().map(ToString::to_string),
        Some(world.server.version.to_string())
    );
    prop_assert!(store.is_synced());
    prop_assert_eq!(world.reflector.health(), &Health::Synced);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rf2_store_equals_server_after_faults(watch_list: bool, steps in prop::collection::vec(step(), 1..100)) {
        run(watch_list, steps)?;
    }
}

/// RF6: if the server always gives the same answer, whichever it is, ten minutes of it are no more requests than the
/// backoff allows.
#[test]
fn rf6_every_fault_backs_off() {
    use FailureKind::{
        Connection, Decode, Expired, Forbidden, Invalid, NotFound, Server, TooLargeResourceVersion, TooManyRequests,
    };
    for kind in [
        Expired,
        TooLargeResourceVersion,
        TooManyRequests,
        Forbidden,
        NotFound,
        Invalid,
        Server,
        Connection,
        Decode,
    ] {
        for watch_list in [false, true] {
            for list_works in [false, true] {
                let mut world = World::new(watch_list);
                world.input(Input::Start);
                while world.now < Instant::ZERO + Duration::from_secs(600) && world.requests < 1000 {
                    match &world.open {
                        Open::Nothing => world.pass(),
                        Open::List { .. } if list_works => {
                            world.deliver();
                        }
                        Open::Watch { end_due: true, .. } if list_works => {
                            world.deliver();
                        }
                        _ => {
                            world.open = Open::Nothing;
                            world.input(Input::Failed(Failure::new(kind, "always")));
                        }
                    }
                }
                // 0.8 s doubling to 30 s is some 25 waits in ten minutes; each may be followed by a list and its watch.
                assert!(
                    world.requests <= 90,
                    "{kind:?}, {watch_list}, {list_works}: {} requests",
                    world.requests
                );
            }
        }
    }
}

/// RF6: watches that end at birth, cleanly, are a failure like others.
#[test]
fn rf6_short_watches_back_off() {
    let mut world = World::new(false);
    world.input(Input::Start);
    while world.now < Instant::ZERO + Duration::from_secs(600) && world.requests < 1000 {
        match world.open {
            Open::Nothing => world.pass(),
            Open::Watch { .. } => world.step(Step::Cut { clean: true }),
            _ => {
                world.deliver();
            }
        }
    }
    assert!(world.requests <= 40, "{} requests", world.requests);
}

/// DF8, DF2: the changes while no watch was open.
#[test]
fn df8_gap_shows_deletes_and_new_uids() {
    let mut world = World::new(false);
    (0..3).for_each(|name| world.server.write(name, false));
    world.input(Input::Start);
    world.settle().expect("no faults");
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = log.clone();
    let words = move |event: &Event<Object>| {
        let word = match event {
            Event::Added { initial, .. } => format!("added initial={initial}"),
            Event::Modified { .. } => "modified".to_owned(),
            Event::Deleted {
                final_state_unknown, ..
            } => format!("deleted unknown={final_state_unknown}"),
        };
        sink.lock()
            .expect("quiet")
            .push(format!("{} {word}", event.object().key));
    };
    world.dispatcher.add(Arc::new(words), []);
    world.step(Step::Cut { clean: false });
    world.step(Step::Recreate(1));
    world.server.write(2, true);
    world.step(Step::Compact);
    world.settle().expect("no faults");
    let want = [
        "even/o2 deleted unknown=true",
        "odd/o1 deleted unknown=true",
        "odd/o1 added initial=false",
    ];
    assert_eq!(*log.lock().expect("quiet"), want);
}
