//! Time that a test owns: it goes on when nothing is left to do, and then at once to the next due timer.
//!
//! All delays of the cluster and of operators run on tokio's timers; they are paused here, and tokio moves them on
//! whenever all tasks wait. The time of day follows them. Invariant: an earlier timer fires earlier, and its effects
//! happen before the time goes on.

use std::time::Duration;

use kubewright::Clock;
use kubewright::k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// The time of day as tokio's timers have it.
#[derive(Debug)]
pub(crate) struct TokioClock {
    start: Timestamp,
    origin: Instant,
}

impl TokioClock {
    /// Pauses tokio's timers, and begins with this time.
    pub(crate) async fn paused(start: Timestamp) -> TokioClock {
        tokio::time::pause();
        align().await;
        TokioClock {
            start,
            origin: Instant::now(),
        }
    }
}

/// Moves the paused time to the beginning of a millisecond of tokio's timers.
///
/// They count milliseconds since the start of the runtime and round up, while the time stands where it was paused. So a
/// delay of half a millisecond would take one or two of them, by chance. Where it stands is found by trying.
async fn align() {
    const TICK: Duration = Duration::from_millis(1);
    let (mut low, mut high) = (Duration::ZERO, TICK);
    while high - low > Duration::from_nanos(1) {
        let middle = (low + high) / 2;
        let before = Instant::now();
        tokio::time::sleep(TICK - middle).await;
        match before.elapsed() > TICK {
            true => low = middle,
            false => high = middle,
        }
    }
    // A little behind the beginning, since the place is known to a nanosecond only.
    tokio::time::advance(TICK - high + TICK / 1000).await;
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.start
            .saturating_add(self.origin.elapsed())
            .unwrap_or(Timestamp::MAX)
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

/// How long nothing may happen until it counts as nothing more to do: more than pods take to start, less than timers
/// that people set.
pub(crate) const QUIET: Duration = Duration::from_millis(500);
