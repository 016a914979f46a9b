//! Renders the state: as lines, as JSON, or on the live screen.
//!
//! A task of its own behind a bounded channel, because a terminal that is slow, or stopped with Ctrl-S, must delay
//! neither the operator nor a build.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kubewright::{Observation, Observer};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::screen::{Terminal, frame};
use super::state::{BuildState, State, Update};
use crate::output::Format;
use crate::progress::{Working, during};

/// Updates that may wait in the channel.
const CAPACITY: usize = 4096;
/// The shortest time between two frames.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// A frame is drawn after so long even when nothing happens, because it shows the time.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// The channel of updates.
pub(crate) fn channel() -> (mpsc::Sender<Update>, mpsc::Receiver<Update>) {
    mpsc::channel(CAPACITY)
}

/// Sends the work of the built-in controllers to the renderer, while it is enabled.
pub(crate) struct BuiltinObserver {
    updates: mpsc::Sender<Update>,
    missed: AtomicU64,
    enabled: AtomicBool,
}

impl BuiltinObserver {
    pub(crate) fn new(updates: mpsc::Sender<Update>) -> Arc<BuiltinObserver> {
        Arc::new(BuiltinObserver {
            updates,
            missed: AtomicU64::new(0),
            enabled: AtomicBool::new(false),
        })
    }

    /// Disabled while the cluster starts and stops, which is of no interest.
    pub(crate) fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }
}

impl Observer for BuiltinObserver {
    fn observe(&self, what: &Observation) {
        // Nothing else of built-in controllers is ever printed.
        let printed = matches!(
            what,
            Observation::Written { .. }
                | Observation::ReconcileFinished { .. }
                | Observation::CacheDegraded { .. }
                | Observation::ObjectUnreadable { .. }
        );
        if !printed || !self.enabled.load(Ordering::Relaxed) {
            return;
        }
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if missed > 0 && self.updates.try_send(Update::Missed(missed)).is_err() {
            self.missed.fetch_add(missed, Ordering::Relaxed);
        }
        if self
            .updates
            .try_send(Update::Builtin(Instant::now(), Box::new(what.clone())))
            .is_err()
        {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Prints entries as they come, until the last sender of updates is gone.
pub(crate) async fn print(mut state: State, mut updates: mpsc::Receiver<Update>, output: Format) {
    let mut compiling: Option<Working> = None;
    while let Some(update) = updates.recv().await {
        for entry in state.apply(&update, Instant::now()) {
            output.say(&entry.text, &entry.event);
        }
        // A build may print nothing for minutes.
        match (&state.build, &compiling) {
            (BuildState::Running { progress, .. }, Some(working)) => {
                if let Some((done, total)) = progress {
                    working.now(format!("compiling: {done} of {total} crates"));
                }
            }
            (BuildState::Running { .. }, None) => compiling = Some(during("compiling")),
            _ => compiling = None,
        }
    }
}

/// Draws the screen, until the last sender of updates is gone; then gives the terminal back.
pub(crate) async fn draw(mut state: State, mut updates: mpsc::Receiver<Update>, terminal: Terminal) {
    let mut ticks = tokio::time::interval(MIN_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut size = (0, 0);
    let mut drawn: Option<Instant> = None;
    let mut dirty = true;
    loop {
        tokio::select! {
            update = updates.recv() => match update {
                Some(update) => {
                    state.apply(&update, Instant::now());
                    dirty = true;
                }
                None => return,
            },
            _ = ticks.tick() => {
                let now = terminal.size();
                dirty |= std::mem::replace(&mut size, now) != now;
                if dirty || drawn.is_none_or(|drawn| drawn.elapsed() >= MAX_INTERVAL) {
                    terminal.draw(&frame(&state, size.0, size.1, Instant::now()));
                    drawn = Some(Instant::now());
                    dirty = false;
                }
            }
        }
    }
}
