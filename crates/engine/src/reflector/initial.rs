//! The streamed first list (`WatchList`): events until the bookmark that says they are all.

use super::input::{Failure, FailureKind, Input, WatchEvent};
use super::{Phase, Reflector, Step, Then, nameless};
use crate::delta::Delta;
use crate::meta::Meta;
use crate::time::Instant;

impl<V: ?Sized, M: Meta<V>> Reflector<V, M> {
    pub(super) fn initial_input(&mut self, started: Instant, consistent: bool, input: Input<V>, step: &mut Step<V>) {
        let alive = Phase::InitialEvents {
            started,
            quiet_since: step.now,
            consistent,
        };
        match input {
            Input::Event(event) => self.initial_event(alive, consistent, event, step),
            Input::Started => self.phase = alive,
            Input::Failed(failure) => self.initial_failed(consistent, failure, step),
            Input::Ended { clean } => {
                let how = if clean { "ended" } else { "broke off" };
                let message = format!("the watch {how} before the end of the initial events");
                self.initial_failed(consistent, Failure::new(FailureKind::Connection, message), step);
            }
            Input::Timer if self.deadline().is_some_and(|deadline| step.now >= deadline) => {
                // RF5. The connection is fine, it is the bookmark that does not come: list at once.
                self.watch_list_refused = true;
                step.apply(Delta::ReplaceAborted);
                self.list_fresh(step);
            }
            _ => {}
        }
    }

    pub(super) fn initial_event(&mut self, alive: Phase, consistent: bool, event: WatchEvent<V>, step: &mut Step<V>) {
        if let Some(problem) = event.object().and_then(|object| nameless::<V, M>(object)) {
            return self.initial_failed(consistent, Failure::new(FailureKind::Decode, problem), step);
        }
        self.phase = alive;
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                step.apply(Delta::ReplaceItems(vec![object]));
            }
            WatchEvent::Unreadable(object) => step.apply(Delta::ReplaceUnreadable(vec![object])),
            WatchEvent::Deleted(object) => {
                if let Some(key) = M::key(&object) {
                    step.apply(Delta::ReplaceDeleted(key));
                }
            }
            WatchEvent::UnreadableDeleted(object) => step.apply(Delta::ReplaceDeleted(object.key)),
            WatchEvent::Bookmark {
                initial_events_end: false,
                ..
            } => {}
            WatchEvent::Bookmark {
                version,
                initial_events_end: true,
            } => {
                if let Err(failure) = self.commit(Some(version), consistent, step) {
                    return self.back_off(Then::Cycle, &failure, step);
                }
                self.broken_streams = 0;
                // The same stream goes on as the watch. Its progress counts from here: a server that breaks each stream
                // off right after the initial events would otherwise be asked for them in a hot loop (RF6).
                let ends = step.now + self.config.watch_timeout * 2 + self.config.watch_grace;
                self.phase = Phase::Watching {
                    started: step.now,
                    last_sign: step.now,
                    ends,
                    progressed: false,
                };
            }
            WatchEvent::Error(failure) => self.initial_failed(consistent, failure, step),
        }
    }

    pub(super) fn initial_failed(&mut self, consistent: bool, failure: Failure, step: &mut Step<V>) {
        step.apply(Delta::ReplaceAborted);
        match failure.kind {
            FailureKind::Expired | FailureKind::TooLargeResourceVersion if !consistent => {
                self.version_unavailable = true; // RF7; the next try asks for the newest state, where this arm is not taken
                self.cycle(step);
            }
            FailureKind::Invalid => {
                self.watch_list_refused = true;
                self.list_fresh(step);
            }
            _ => {
                self.broken_streams += 1;
                self.back_off(Then::Cycle, &failure, step);
            }
        }
    }

    pub(super) fn list_fresh(&mut self, step: &mut Step<V>) {
        let version = self.list_version();
        self.list(version, self.config.page_size.is_some(), step);
    }
}
