//! Puts the story in front of a person: as lines, as JSON, or on the live screen.
//!
//! A task of its own behind a bounded channel: a terminal that is slow, or stopped with Ctrl-S, must hold up neither
//! the operator nor a build.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kubewright::{Observation, Observer};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::screen::{Terminal, frame};
use super::story::{News, Story};
use crate::output::Format;

/// News that may wait to be told.
const WAITING: usize = 4096;
/// The shortest time between two frames.
const FRAME: Duration = Duration::from_millis(50);
/// A frame is drawn after so long even when nothing happens, because it shows the time.
const IDLE: Duration = Duration::from_secs(1);

/// A channel of news.
pub(crate) fn channel() -> (mpsc::Sender<News>, mpsc::Receiver<News>) {
    mpsc::channel(WAITING)
}

/// Shows the work of the built-in controllers, once it is switched on.
pub(crate) struct Scenery {
    news: mpsc::Sender<News>,
    missed: AtomicU64,
    on: AtomicBool,
}

impl Scenery {
    pub(crate) fn new(news: mpsc::Sender<News>) -> Arc<Scenery> {
        Arc::new(Scenery {
            news,
            missed: AtomicU64::new(0),
            on: AtomicBool::new(false),
        })
    }

    /// Starting and stopping belong to no story.
    pub(crate) fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }
}

impl Observer for Scenery {
    fn observe(&self, what: &Observation) {
        // Only writes and faults of built-in controllers are ever told.
        let told = matches!(
            what,
            Observation::Written { .. }
                | Observation::ReconcileFinished { .. }
                | Observation::CacheDegraded { .. }
                | Observation::ObjectUnreadable { .. }
        );
        if !told || !self.on.load(Ordering::Relaxed) {
            return;
        }
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if missed > 0 && self.news.try_send(News::Missed(missed)).is_err() {
            self.missed.fetch_add(missed, Ordering::Relaxed);
        }
        if self
            .news
            .try_send(News::Scenery(Instant::now(), Box::new(what.clone())))
            .is_err()
        {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Prints entries as they come, until the last sender of news is gone.
pub(crate) async fn print(mut story: Story, mut news: mpsc::Receiver<News>, output: Format) {
    while let Some(news) = news.recv().await {
        for entry in story.hear(&news, Instant::now()) {
            output.say(&entry.text, &entry.event);
        }
    }
}

/// Draws the screen, until the last sender of news is gone; then gives the terminal back.
pub(crate) async fn draw(mut story: Story, mut news: mpsc::Receiver<News>, terminal: Terminal) {
    let mut ticks = tokio::time::interval(FRAME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut size = (0, 0);
    let mut drawn: Option<Instant> = None;
    let mut fresh = true;
    loop {
        tokio::select! {
            told = news.recv() => match told {
                Some(told) => {
                    story.hear(&told, Instant::now());
                    fresh = true;
                }
                None => return,
            },
            _ = ticks.tick() => {
                let now = terminal.size();
                fresh |= std::mem::replace(&mut size, now) != now;
                if fresh || drawn.is_none_or(|drawn| drawn.elapsed() >= IDLE) {
                    terminal.draw(&frame(&story, size.0, size.1, Instant::now()));
                    drawn = Some(Instant::now());
                    fresh = false;
                }
            }
        }
    }
}
