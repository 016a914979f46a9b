//! The states of one object that wait to be turned into keys by a function that takes its time.
//!
//! A mapping that looks things up, fails and is tried again cannot run where events are dispatched. It works off a work
//! queue of changed objects instead, whose items carry [`States`]. A [mailbox](crate::dispatch::mailbox) would not do:
//! it folds changes, and an owner that was named only in between has perhaps acted on that, so that it must be woken as
//! well.
//!
//! Invariants: every state is mapped at a time at which it had been replaced already or was the newest (R3); the old
//! state of a change is the new one of the change before, and is kept once; at most [`States::MAX`] states of one
//! object are kept, and when there were more the answer of [`States::overflown`] says that keys are not known: then
//! everything that could be meant is woken.
//!
//! Not here: the order of objects and the time of a retry, which the queue decides; calling the function.

use crate::delta::Event;
use crate::queue::Merge;
use std::sync::Arc;

/// The waiting states of one object.
#[derive(Debug)]
pub struct States<V: ?Sized> {
    kept: Vec<Arc<V>>,
    overflown: bool,
    /// The number of the oldest change in it.
    since: u64,
}

impl<V: ?Sized> Clone for States<V> {
    fn clone(&self) -> States<V> {
        States {
            kept: self.kept.clone(),
            overflown: self.overflown,
            since: self.since,
        }
    }
}

impl<V: ?Sized> States<V> {
    /// How many states are kept of one object.
    pub const MAX: usize = 16;

    /// The states of an event: of a modification the old one and the new one. `number` counts the events.
    pub fn of(event: &Event<V>, number: u64) -> States<V> {
        let old = match event {
            Event::Modified { old, .. } => Some(old.clone()),
            Event::Added { .. } | Event::Deleted { .. } => None,
        };
        let kept = old.into_iter().chain([event.object().clone()]).collect();
        States {
            kept,
            overflown: false,
            since: number,
        }
    }

    /// The states that are left to be mapped after the function has failed for some of them. `None` when it has for
    /// none.
    #[must_use]
    pub fn left(mut self, failed: &[bool]) -> Option<States<V>> {
        let mut failed = failed.iter();
        self.kept.retain(|_| failed.next().copied().unwrap_or(true));
        self.overflown = false; // everything was woken for it
        (!self.kept.is_empty()).then_some(self)
    }

    /// The states, in the order in which they came about.
    pub fn kept(&self) -> &[Arc<V>] {
        &self.kept
    }

    /// Whether there were more states than are kept.
    pub fn overflown(&self) -> bool {
        self.overflown
    }

    /// The number of the oldest change in it.
    pub fn since(&self) -> u64 {
        self.since
    }
}

impl<V: ?Sized> Merge for States<V> {
    /// Failed states are put back when later changes wait already: the older of the two comes first, whichever is
    /// added.
    fn merge(&mut self, other: States<V>) {
        let mut second = other;
        if second.since < self.since {
            std::mem::swap(self, &mut second);
        }
        let first = self;
        first.overflown |= second.overflown;
        for state in second.kept {
            if first.kept.iter().any(|kept| Arc::ptr_eq(kept, &state)) {
                continue;
            }
            if first.kept.len() == States::<V>::MAX {
                // The last one stays the newest: it replaced the others.
                first.kept.pop();
                first.overflown = true;
            }
            first.kept.push(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::Exponential;
    use crate::key::ObjectKey;
    use crate::queue::{Fairness, Next, Priority, WorkQueue};
    use crate::time::Instant;
    use std::time::Duration;

    /// The number of the state, which is also the key that it is mapped to.
    type State = u64;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Write,
        Delete,
        /// Every state is mapped.
        Map,
        /// The function fails for the states of this remainder, and an event comes while it runs.
        FailAndWrite(u64),
    }

    const STEPS: [Step; 5] = [
        Step::Write,
        Step::Delete,
        Step::Map,
        Step::FailAndWrite(0),
        Step::FailAndWrite(1),
    ];

    /// One object, its source, and the moments at which its states were mapped.
    struct World {
        now: u64,
        object: Option<Arc<State>>,
        /// A state and the moment from which it must have been mapped: when it was replaced, or when it came about.
        due: Vec<(State, u64)>,
        mapped: Vec<(State, u64)>,
        woken_all: u64,
        queue: WorkQueue<ObjectKey, States<State>>,
    }

    impl World {
        fn new() -> World {
            World {
                now: 0,
                object: None,
                due: Vec::new(),
                mapped: Vec::new(),
                woken_all: 0,
                queue: WorkQueue::new(Exponential::default(), Fairness::default()),
            }
        }

        fn at(&self) -> Instant {
            Instant::from_origin(Duration::from_secs(self.now * 3600))
        }

        fn record(&mut self, event: &Event<State>) {
            let (states, at) = (States::of(event, self.now), self.at());
            self.queue.add(ObjectKey::cluster("a"), Priority::NORMAL, states, at);
        }

        fn write(&mut self) {
            let new = Arc::new(self.now);
            self.due.push((*new, self.now));
            let event = match self.object.replace(new.clone()) {
                None => Event::Added {
                    object: new,
                    initial: false,
                },
                Some(old) => {
                    self.due.push((*old, self.now));
                    Event::Modified { old, new }
                }
            };
            self.record(&event);
        }

        fn delete(&mut self) {
            let Some(object) = self.object.take() else { return };
            self.due.push((*object, self.now));
            let key = ObjectKey::cluster("a");
            self.record(&Event::Deleted {
                key,
                object,
                final_state_unknown: false,
            });
        }

        fn map(&mut self, fails: impl Fn(State) -> bool, meanwhile: bool) {
            let Next::Item(work) = self.queue.get(self.at()) else {
                return;
            };
            let states = work.causes;
            assert!(states.kept().len() <= States::<State>::MAX);
            if states.overflown() {
                self.woken_all = self.now;
            }
            let failed: Vec<bool> = states.kept().iter().map(|state| fails(**state)).collect();
            let now = self.now;
            let mapped = states
                .kept()
                .iter()
                .filter(|state| !fails(***state))
                .map(|state| (**state, now));
            self.mapped.extend(mapped);
            if meanwhile {
                self.now += 1;
                self.write();
            }
            if let Some(left) = states.left(&failed) {
                let at = self.at();
                self.queue.add_rate_limited(work.item, left, at);
            }
            let at = self.at();
            self.queue.done(work.token, at);
        }

        fn step(&mut self, step: Step) {
            self.now += 1;
            match step {
                Step::Write => self.write(),
                Step::Delete => self.delete(),
                Step::Map => self.map(|_| false, false),
                Step::FailAndWrite(rest) => self.map(|state| state % 2 == rest, true),
            }
        }

        fn finish(&mut self, what: &dyn std::fmt::Debug) {
            while !self.queue.is_idle() {
                self.now += 1;
                self.map(|_| false, false);
            }
            for (state, due) in &self.due {
                let mapped = self.mapped.iter().any(|(key, at)| key == state && at >= due);
                assert!(
                    mapped || self.woken_all >= *due,
                    "{state} was not mapped from {due} on: {what:?}"
                );
            }
        }
    }

    #[test]
    fn r3_no_state_is_lost_in_any_short_history() {
        const LENGTH: u32 = 7;
        for number in 0..5_usize.pow(LENGTH) {
            let steps: Vec<Step> = (0..LENGTH)
                .map(|place| STEPS[number / 5_usize.pow(place) % 5])
                .collect();
            let mut world = World::new();
            steps.iter().for_each(|step| world.step(*step));
            world.finish(&steps);
        }
    }

    #[test]
    fn r3_more_states_than_are_kept_wake_everything() {
        let mut world = World::new();
        for _ in 0..100 {
            world.step(Step::Write);
        }
        world.finish(&"a hundred writes");
        assert!(world.woken_all > 0);
        assert_eq!(world.mapped.len(), States::<State>::MAX);
        assert!(
            world.mapped.iter().any(|(state, _)| *state == 100),
            "the newest is kept"
        );
    }
}
