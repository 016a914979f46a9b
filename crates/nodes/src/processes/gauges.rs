//! The usage of this machine by containers: the processes of each are looked at every few seconds.
//!
//! A [`Gauge`] belongs to one life of a container and goes with it. A container above its memory limit is killed, as
//! the kernel does it with a cgroup; it is looked at more often. Use of cpu is a mean between two looks; the first is
//! the start, when nothing had been used. Not counted: commands that clients run beside a program, and probes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use kubewright_objects::api::core::v1::Container;

use super::launch::ShimControl;
use super::lock;
use super::table::{Table, resident};
use kubewright_objects::quantity::milli;

/// How often is looked at those whose memory is limited, and how many of these looks are one at all. A tick of the
/// kernel is a hundredth of a second, so that a look tells two thousandths of a cpu.
const LOOK: Duration = Duration::from_secs(1);
const ALL: u32 = 5;
/// Between looks that are nearer than this there are too few ticks to tell anything.
const SHORTEST: Duration = Duration::from_secs(1);

/// The usage of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Billionths of a cpu.
    pub cpu: u64,
    /// Bytes.
    pub memory: u64,
    /// The time that the use of cpu is the mean of.
    pub window: Duration,
    /// When it was found.
    pub at: Instant,
}

/// The most memory that a container may hold, in bytes.
pub(super) fn limit(container: &Container) -> Option<u64> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    u64::try_from(milli(limits.get("memory")?)? / 1000).ok()
}

/// One life of a container, as it is measured.
pub(super) struct Gauge {
    /// The process above its program.
    shim: u32,
    shim_control: ShimControl,
    /// The most memory that it may hold.
    limit: Option<u64>,
    is_over: AtomicBool,
    readings: Mutex<Readings>,
}

struct Readings {
    /// When was looked last, and the time on processors up to then.
    last: (Instant, Duration),
    usage: Option<Usage>,
}

impl Gauge {
    pub(super) fn usage(&self) -> Option<Usage> {
        lock(&self.readings).usage
    }

    /// Whether it was killed because it held more memory than it may.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn look(&self, table: &Table, now: Instant, at_all: bool) {
        if !at_all && self.limit.is_none() {
            return;
        }
        let memory = table
            .below(self.shim)
            .into_iter()
            .fold(0_u64, |sum, pid| sum.saturating_add(resident(pid)));
        if self.limit.is_some_and(|limit| memory > limit) {
            self.is_over.store(true, Ordering::Relaxed);
            self.shim_control.kill();
        }
        if at_all {
            lock(&self.readings).read(now, table.time_below(self.shim), memory);
        }
    }
}

impl Readings {
    fn read(&mut self, now: Instant, used: Duration, memory: u64) {
        let (before, used_before) = self.last;
        let window = now.saturating_duration_since(before);
        if window < SHORTEST {
            return;
        }
        // A process whose parent does not wait for it takes its time with it.
        let spent = used.saturating_sub(used_before);
        let cpu = spent.as_nanos().saturating_mul(1_000_000_000) / window.as_nanos().max(1);
        self.usage = Some(Usage {
            cpu: u64::try_from(cpu).unwrap_or(u64::MAX),
            memory,
            window,
            at: now,
        });
        self.last = (now, used);
    }
}

/// All that are measured. Dropping it ends the looking.
pub(super) struct Gauges {
    all: Arc<Mutex<Vec<Weak<Gauge>>>>,
    looking: tokio::task::JoinHandle<()>,
}

impl Gauges {
    pub(super) fn start() -> Gauges {
        let all = Arc::new(Mutex::new(Vec::new()));
        let looking = tokio::spawn(look_again_and_again(all.clone()));
        Gauges { all, looking }
    }

    /// Measures the processes below this one from now on, and kills them when they hold more memory than they may.
    pub(super) fn add(&self, shim: u32, shim_control: ShimControl, limit: Option<u64>) -> Arc<Gauge> {
        let readings = Mutex::new(Readings {
            last: (Instant::now(), Duration::ZERO),
            usage: None,
        });
        let gauge = Arc::new(Gauge {
            shim,
            shim_control,
            limit,
            is_over: AtomicBool::new(false),
            readings,
        });
        lock(&self.all).push(Arc::downgrade(&gauge));
        gauge
    }
}

impl Drop for Gauges {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

async fn look_again_and_again(all: Arc<Mutex<Vec<Weak<Gauge>>>>) {
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for look in (0..ALL).cycle() {
        ticks.tick().await;
        let at_all = look == 0;
        let mut present = Vec::new();
        lock(&all).retain(|gauge: &Weak<Gauge>| match gauge.upgrade() {
            Some(gauge) => {
                present.push(gauge);
                true
            }
            None => false,
        });
        if present.iter().all(|gauge| !at_all && gauge.limit.is_none()) {
            continue;
        }
        let looked = tokio::task::spawn_blocking(move || {
            let (table, now) = (Table::read(), Instant::now());
            present.iter().for_each(|gauge| gauge.look(&table, now, at_all));
        });
        if looked.await.is_err() {
            tracing::error!("what containers use could not be measured; this is a defect of kubewright");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_between_two_looks() {
        let start = Instant::now();
        let mut readings = Readings {
            last: (start, Duration::ZERO),
            usage: None,
        };
        let mut check = |second: f64, used: f64, expected: Option<(u64, f64)>| {
            let now = start + Duration::from_secs_f64(second);
            readings.read(now, Duration::from_secs_f64(used), 4096);
            let found = readings.usage.map(|usage| (usage.cpu, usage.window.as_secs_f64()));
            assert_eq!(found, expected, "{second}");
        };
        check(0.5, 0.4, None);
        check(4.0, 1.0, Some((250_000_000, 4.0)));
        check(4.5, 1.5, Some((250_000_000, 4.0)));
        check(6.0, 5.0, Some((2_000_000_000, 2.0)));
        check(8.0, 4.0, Some((0, 2.0)));
    }
}
