//! List and watch: which request comes next, and the effect of its answer on the store.
//!
//! A [`Reflector`] takes each event ([`Input`]) and answers the next steps ([`Action`]), in order. It sends nothing
//! itself and keeps no objects. A cycle is: get the whole state (a watch with `sendInitialEvents`, or LIST page by
//! page), then watch from there, again and again from the last version, until the server says that this version is gone
//! (410).
//!
//! Invariants (the letters are those of the crate's table):
//! * RF1 a list that is older than the state shown before is refused, unless the server was asked for its newest state.
//! * RF3 the resume version is that of the last event passed on as a delta; events of an initial stream do not move it.
//! * RF4 a list is a bracket of deltas; one that breaks off is aborted. RF5 a server that takes `sendInitialEvents` but
//!   never ends the initial events is listed instead, from then on.
//! * RF6 every failure waits with growing, jittered backoff; only a watch that made progress or lasted may be repeated
//!   at once. So does the relist after a 410: a busy history that expires again and again must not be listed in a hot
//!   loop, nor by all clients at once.
//! * RF7 410 on a watch, as an HTTP status or in the stream: list at the last version. 410 or "too large" on that list:
//!   list the newest state. The first list asks for the newest state too, never for version "0": a restart does not go
//!   back in time.
//! * RF11 a frame that cannot be understood is the end of that stream, at the version before it. An object that cannot
//!   be decoded but can be named ([`Unreadable`](crate::Unreadable)) passes like any other and moves the version.
//!
//! Not here: HTTP, decoding, transforms, the resync timer.

mod initial;
mod input;

use crate::backoff::ReflectorBackoff;
use crate::delta::Delta;
use crate::key::ObjectKey;
use crate::meta::{Meta, ResourceVersion};
use crate::time::Instant;
pub use input::{Action, Config, Failure, FailureKind, Health, Input, ListPage, ListVersion, WatchEvent};
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// The step when a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Get the whole state again.
    Cycle,
    /// Watch from the last version.
    Watch,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Before `Start`.
    New,
    /// A watch that delivers the whole state first. `quiet_since`: the last sign of life.
    InitialEvents {
        started: Instant,
        quiet_since: Instant,
        consistent: bool,
    },
    /// A LIST is under way.
    Listing { version: ListVersion, paged: bool },
    /// A watch. `last_sign`: its last sign of life; `progressed`: it moved the version.
    Watching {
        started: Instant,
        last_sign: Instant,
        ends: Instant,
        progressed: bool,
    },
    /// Nothing is under way until then.
    Waiting { until: Instant, then: Then },
    /// After `Stop`.
    Stopped,
}

/// The list/watch state machine of one kind and scope; `M` says how to read keys and versions.
pub struct Reflector<V: ?Sized, M> {
    config: Config,
    phase: Phase,
    backoff: ReflectorBackoff,
    health: Health,
    /// Where a watch resumes.
    version: Option<ResourceVersion>,
    /// The server cannot serve `version`: the next list asks for the newest state.
    version_unavailable: bool,
    watch_list_refused: bool,
    /// Initial streams that broke off in a row.
    broken_streams: u32,
    /// The server sends bookmarks while it has no events.
    bookmarks: bool,
    /// Undecodable frames, or "too large" answers, in a row without progress.
    stuck: u32,
    types: PhantomData<fn(&V) -> M>,
}

/// After this many failures in a row at one place, the reflector tries another way.
const PATIENCE: u32 = 3;

impl<V: ?Sized, M: Meta<V>> Reflector<V, M> {
    /// A reflector that has not started.
    pub fn new(config: Config) -> Reflector<V, M> {
        Reflector {
            config,
            phase: Phase::New,
            backoff: ReflectorBackoff::default(),
            health: Health::Pending,
            version: None,
            version_unavailable: false,
            watch_list_refused: false,
            broken_streams: 0,
            bookmarks: false,
            stuck: 0,
            types: PhantomData,
        }
    }

    /// Takes an event and answers the next steps, in this order. `entropy` is a fresh random number, for jitter.
    ///
    /// An input that does not fit the present phase (a timer that is not due, a page of a list that was given up) does
    /// nothing.
    pub fn handle(&mut self, input: Input<V>, now: Instant, entropy: u64) -> Vec<Action<V>> {
        let mut step = Step {
            now,
            entropy,
            actions: Vec::new(),
        };
        match (self.phase.clone(), input) {
            (Phase::Stopped, _) => {}
            (_, Input::Stop) => self.stop(&mut step),
            (Phase::New, Input::Start) => {
                self.set_health(Health::Syncing, &mut step);
                self.cycle(&mut step);
            }
            (Phase::Waiting { until, then }, Input::Timer) if now >= until => match then {
                Then::Cycle => self.cycle(&mut step),
                Then::Watch => self.watch(&mut step),
            },
            (Phase::Listing { version, .. }, Input::Page(page)) => self.page(version, page, &mut step),
            (Phase::Listing { version, paged }, Input::Failed(failure)) => {
                self.list_failed(&version, paged, failure, &mut step);
            }
            (
                Phase::InitialEvents {
                    started, consistent, ..
                },
                input,
            ) => {
                self.initial_input(started, consistent, input, &mut step);
            }
            (
                Phase::Watching {
                    started,
                    last_sign,
                    ends,
                    progressed,
                },
                input,
            ) => {
                self.watch_input((started, last_sign, ends), progressed, input, &mut step);
            }
            _ => {}
        }
        step.actions
    }

    /// When [`Input::Timer`] is due, if nothing else happens before. The shell always keeps this one timer, also while
    /// a request or a stream is open: it is how silent servers are noticed.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::InitialEvents {
                started, quiet_since, ..
            } => {
                Some((*quiet_since + self.config.initial_events_idle).min(*started + self.config.initial_events_total))
            }
            Phase::Watching { last_sign, ends, .. } => Some(self.silent_until(*last_sign, *ends)),
            Phase::Waiting { until, .. } => Some(*until),
            Phase::New | Phase::Listing { .. } | Phase::Stopped => None,
        }
    }

    /// Until when a watch may say nothing. Bookmarks are the pulse of a server that sends them; without one its timeout
    /// must do.
    fn silent_until(&self, last_sign: Instant, ends: Instant) -> Instant {
        match self.bookmarks || self.config.always_alive {
            true => ends.min(last_sign + self.config.watch_silence),
            false => ends,
        }
    }

    /// The version that a watch would resume from: that of the last delta, `None` before the first list.
    pub fn resource_version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// How it goes.
    pub fn health(&self) -> &Health {
        &self.health
    }

    fn stop(&mut self, step: &mut Step<V>) {
        if matches!(self.phase, Phase::InitialEvents { .. } | Phase::Listing { .. }) {
            step.apply(Delta::ReplaceAborted);
        }
        self.phase = Phase::Stopped;
        step.actions.push(Action::Stopped);
    }

    fn set_health(&mut self, health: Health, step: &mut Step<V>) {
        if self.health != health {
            self.health = health.clone();
            step.actions.push(Action::Health(health));
        }
    }
}

/// Requests.
impl<V: ?Sized, M: Meta<V>> Reflector<V, M> {
    /// Gets the whole state.
    fn cycle(&mut self, step: &mut Step<V>) {
        if !self.config.watch_list || self.watch_list_refused || self.broken_streams >= PATIENCE {
            let version = self.list_version();
            return self.list(version, self.config.page_size.is_some(), step);
        }
        let version = self.version.clone().filter(|_| !self.version_unavailable);
        self.phase = Phase::InitialEvents {
            started: step.now,
            quiet_since: step.now,
            consistent: version.is_none(),
        };
        step.apply(Delta::ReplaceBegin);
        let timeout = self.watch_timeout(step.entropy);
        step.actions.push(Action::Watch {
            version,
            send_initial_events: true,
            timeout,
        });
    }

    fn list_version(&self) -> ListVersion {
        match &self.version {
            Some(version) if !self.version_unavailable => ListVersion::NotOlderThan(version.clone()),
            _ => ListVersion::Newest,
        }
    }

    fn list(&mut self, version: ListVersion, paged: bool, step: &mut Step<V>) {
        self.phase = Phase::Listing {
            version: version.clone(),
            paged,
        };
        step.apply(Delta::ReplaceBegin);
        let limit = self.config.page_size.filter(|_| paged);
        step.actions.push(Action::List {
            version,
            limit,
            continue_token: None,
        });
    }

    fn watch(&mut self, step: &mut Step<V>) {
        let timeout = self.watch_timeout(step.entropy);
        let ends = step.now + timeout + self.config.watch_grace;
        self.phase = Phase::Watching {
            started: step.now,
            last_sign: step.now,
            ends,
            progressed: false,
        };
        step.actions.push(Action::Watch {
            version: self.version.clone(),
            send_initial_events: false,
            timeout,
        });
    }

    /// Whole seconds between the shortest timeout and twice of it, so that many reflectors do not come back all at
    /// once.
    fn watch_timeout(&self, entropy: u64) -> Duration {
        let shortest = self.config.watch_timeout.as_secs().max(1);
        Duration::from_secs(shortest + entropy % (shortest + 1))
    }

    /// Waits because of a failure, longer each time, at least as long as the server asked for.
    fn back_off(&mut self, then: Then, failure: &Failure, step: &mut Step<V>) {
        self.set_health(Health::Degraded(failure.to_string()), step);
        self.wait(then, failure.retry_after.unwrap_or_default(), step);
    }

    fn wait(&mut self, then: Then, at_least: Duration, step: &mut Step<V>) {
        let wait = self.backoff.next(step.now, step.entropy).max(at_least);
        self.phase = Phase::Waiting {
            until: step.now + wait,
            then,
        };
        step.actions.push(Action::Wait(wait));
    }

    fn synced(&mut self, step: &mut Step<V>) {
        self.set_health(Health::Synced, step);
    }
}

/// Answers to a LIST.
impl<V: ?Sized, M: Meta<V>> Reflector<V, M> {
    fn page(&mut self, version: ListVersion, page: ListPage<V>, step: &mut Step<V>) {
        if let Some(problem) = page.items.iter().find_map(|object| nameless::<V, M>(object)) {
            step.apply(Delta::ReplaceAborted);
            return self.back_off(Then::Cycle, &Failure::new(FailureKind::Decode, problem), step);
        }
        step.apply(Delta::ReplaceItems(page.items));
        if !page.unreadable.is_empty() {
            step.apply(Delta::ReplaceUnreadable(page.unreadable));
        }
        if let Some(token) = page.continue_token.filter(|token| !token.is_empty()) {
            let limit = self.config.page_size;
            step.actions.push(Action::List {
                version,
                limit,
                continue_token: Some(token),
            });
            return;
        }
        let authoritative = version == ListVersion::Newest;
        if let Err(failure) = self.commit(page.resource_version, authoritative, step) {
            return self.back_off(Then::Cycle, &failure, step);
        }
        self.broken_streams = 0;
        self.watch(step);
    }

    /// Ends the bracket, or aborts it when the state is not usable (RF1).
    fn commit(
        &mut self,
        version: Option<ResourceVersion>,
        authoritative: bool,
        step: &mut Step<V>,
    ) -> Result<(), Failure> {
        let refused = match (&version, &self.version) {
            (None, _) => Some("the server answered a list without a resourceVersion".to_owned()),
            (Some(listed), Some(shown)) if listed.compare(shown) == Some(Ordering::Less) && !authoritative => {
                self.version_unavailable = true;
                Some(format!(
                    "the server answered a list of version {listed}, older than {shown}, which it has shown before"
                ))
            }
            _ => None,
        };
        let (Some(version), None) = (version, refused.clone()) else {
            step.apply(Delta::ReplaceAborted);
            return Err(Failure::new(
                FailureKind::TooLargeResourceVersion,
                refused.unwrap_or_default(),
            ));
        };
        self.version = Some(version.clone());
        self.version_unavailable = false;
        self.stuck = 0;
        step.apply(Delta::ReplaceEnd {
            resource_version: version,
            authoritative,
        });
        self.synced(step);
        Ok(())
    }

    fn list_failed(&mut self, version: &ListVersion, paged: bool, failure: Failure, step: &mut Step<V>) {
        step.apply(Delta::ReplaceAborted);
        let gone = matches!(
            failure.kind,
            FailureKind::Expired | FailureKind::TooLargeResourceVersion
        );
        match version {
            ListVersion::NotOlderThan(_) if gone => {
                self.version_unavailable = true; // RF7; once at once, for the newest state cannot be gone as well
                self.list(ListVersion::Newest, paged, step);
            }
            // The continue token outlived its snapshot: one request for all is slower, but cannot expire half way.
            ListVersion::Newest if paged && failure.kind == FailureKind::Expired => {
                self.list(ListVersion::Newest, false, step);
            }
            _ => {
                // It may be the version that is not liked, after the storage of a kind was replaced.
                self.version_unavailable |= failure.kind == FailureKind::Invalid;
                self.back_off(Then::Cycle, &failure, step);
            }
        }
    }
}

/// A watch from a version.
impl<V: ?Sized, M: Meta<V>> Reflector<V, M> {
    /// `times`: as the phase has them: `started`, `last_sign` and `ends`.
    fn watch_input(
        &mut self,
        times: (Instant, Instant, Instant),
        progressed: bool,
        input: Input<V>,
        step: &mut Step<V>,
    ) {
        let (started, last_sign, ends) = times;
        let lasted = step.now.since(started) >= self.config.short_watch;
        match input {
            Input::Started => self.synced(step),
            Input::Event(WatchEvent::Error(failure)) | Input::Failed(failure) => {
                self.watch_failed(progressed || lasted, failure, step);
            }
            Input::Event(event) => match self.watch_event(event, step) {
                Ok(moved) => {
                    self.phase = Phase::Watching {
                        started,
                        last_sign: step.now,
                        ends,
                        progressed: progressed || moved,
                    }
                }
                Err(failure) => self.watch_failed(progressed, failure, step),
            },
            // A clean end is the purpose of the timeout: not an error, no list, no wait.
            Input::Ended { clean: true } if progressed || lasted => self.watch(step),
            Input::Ended { clean } => {
                let how = if clean {
                    "ended at once without an event"
                } else {
                    "broke off"
                };
                self.watch_failed(
                    false,
                    Failure::new(FailureKind::Connection, format!("the watch {how}")),
                    step,
                );
            }
            Input::Timer if step.now >= ends => {
                let message = "the watch is silent past its timeout: the connection is taken for dead";
                self.watch_failed(false, Failure::new(FailureKind::Connection, message), step);
            }
            // RF13. Another connection is asked for the same events. One that is as dead fails when it is opened, and
            // is reported then; a server without events is asked in vain, which costs one request.
            Input::Timer if step.now >= self.silent_until(last_sign, ends) => self.watch(step),
            _ => {}
        }
    }

    /// Passes the event on; answers whether it moved the version.
    fn watch_event(&mut self, event: WatchEvent<V>, step: &mut Step<V>) -> Result<bool, Failure> {
        let undecodable = |problem| Failure::new(FailureKind::Decode, problem);
        if let Some(problem) = event.object().and_then(|object| nameless::<V, M>(object)) {
            return Err(undecodable(problem));
        }
        self.bookmarks |= matches!(event, WatchEvent::Bookmark { .. });
        let version = match &event {
            WatchEvent::Bookmark { version, .. } => Some(version.clone()),
            WatchEvent::Unreadable(object) | WatchEvent::UnreadableDeleted(object) => object.resource_version.clone(),
            event => event
                .object()
                .and_then(|object| M::resource_version(object).map(ResourceVersion::new)),
        };
        let Some(version) = version else {
            return Err(undecodable("a watch event has no metadata.resourceVersion".to_owned()));
        };
        let delta = match event {
            WatchEvent::Added(object) => Delta::Added(object),
            WatchEvent::Modified(object) => Delta::Modified(object),
            WatchEvent::Deleted(object) => Delta::Deleted(object),
            WatchEvent::Unreadable(object) => Delta::Unreadable(object),
            WatchEvent::UnreadableDeleted(object) => Delta::UnreadableDeleted(object),
            WatchEvent::Bookmark { .. } => Delta::Bookmark(version.clone()),
            WatchEvent::Error(failure) => return Err(failure),
        };
        step.apply(delta);
        let order = self.version.as_ref().and_then(|present| version.compare(present));
        let moved = match order {
            Some(Ordering::Less | Ordering::Equal) => false, // a repeated event does not move the version back
            Some(Ordering::Greater) => true,
            None => self.version.as_ref() != Some(&version),
        };
        if moved {
            self.version = Some(version);
            self.stuck = 0;
        }
        self.synced(step);
        Ok(moved)
    }

    fn watch_failed(&mut self, was_good: bool, failure: Failure, step: &mut Step<V>) {
        match failure.kind {
            // The stored state is as good as before, so the health stays.
            FailureKind::Expired if was_good => self.wait(Then::Cycle, Duration::ZERO, step),
            // Watches that expire at birth, again and again, are a failure like any other (RF6).
            FailureKind::Expired => self.back_off(Then::Cycle, &failure, step),
            // The kind or the permission went and may come back with another history: look at everything then.
            FailureKind::NotFound | FailureKind::Forbidden | FailureKind::Invalid => {
                self.back_off(Then::Cycle, &failure, step);
            }
            // The server may be behind, or the frame may be bad only once. If not, the whole state is the way around
            // it.
            FailureKind::TooLargeResourceVersion | FailureKind::Decode => {
                self.stuck += 1;
                let then = if self.stuck >= PATIENCE {
                    Then::Cycle
                } else {
                    Then::Watch
                };
                self.back_off(then, &failure, step);
            }
            FailureKind::TooManyRequests | FailureKind::Server | FailureKind::Connection => {
                self.back_off(Then::Watch, &failure, step);
            }
        }
    }
}

/// Why an object cannot be stored, if it cannot.
fn nameless<V: ?Sized, M: Meta<V>>(object: &Arc<V>) -> Option<String> {
    let key: Option<ObjectKey> = M::key(object);
    key.is_none().then(|| "an object has no metadata.name".to_owned())
}

/// One call of [`Reflector::handle`].
struct Step<V: ?Sized> {
    now: Instant,
    entropy: u64,
    actions: Vec<Action<V>>,
}

impl<V: ?Sized> Step<V> {
    fn apply(&mut self, delta: Delta<V>) {
        self.actions.push(Action::Apply(delta));
    }
}

#[cfg(test)]
mod tests;
