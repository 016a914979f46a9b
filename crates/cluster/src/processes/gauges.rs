//! What containers use of this machine: the processes of each are looked at every few seconds.
//!
//! A [`Gauge`] belongs to one life of a container and goes with it. Use of cpu is a mean between two looks; the first is the start, when
//! nothing had been used. Not counted: commands that clients run beside a program, and probes.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::lock;
use super::table::{Table, resident};

/// How often is looked. A tick of the kernel is a hundredth of a second, so that a look tells two thousandths of a cpu.
const EVERY: Duration = Duration::from_secs(5);
/// Between looks that are nearer than this there are too few ticks to tell anything.
const SHORTEST: Duration = Duration::from_secs(1);

/// What a container uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Billionths of a cpu.
    pub(crate) cpu: u64,
    /// Bytes.
    pub(crate) memory: u64,
    /// The time that the use of cpu is the mean of.
    pub(crate) window: Duration,
    /// When it was found.
    pub(crate) at: Instant,
}

/// One life of a container, as it is measured.
pub(super) struct Gauge {
    /// The process above its program.
    shim: u32,
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

    fn look(&self, table: &Table, now: Instant) {
        let memory = table
            .below(self.shim)
            .into_iter()
            .fold(0_u64, |sum, pid| sum.saturating_add(resident(pid)));
        lock(&self.readings).read(now, table.time_below(self.shim), memory);
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

    /// Measures what is below this process from now on.
    pub(super) fn add(&self, shim: u32) -> Arc<Gauge> {
        let readings = Mutex::new(Readings {
            last: (Instant::now(), Duration::ZERO),
            usage: None,
        });
        let gauge = Arc::new(Gauge { shim, readings });
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
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let mut present = Vec::new();
        lock(&all).retain(|gauge: &Weak<Gauge>| match gauge.upgrade() {
            Some(gauge) => {
                present.push(gauge);
                true
            }
            None => false,
        });
        if present.is_empty() {
            continue;
        }
        let looked = tokio::task::spawn_blocking(move || {
            let (table, now) = (Table::read(), Instant::now());
            present.iter().for_each(|gauge| gauge.look(&table, now));
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

    #[tokio::test]
    async fn a_program_that_is_busy() {
        let child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn();
        let mut child = child.expect("sh starts");
        let gauges = Gauges::start();
        // This process stands for its shim.
        let gauge = gauges.add(std::process::id());
        let usage = async {
            loop {
                if let Some(usage) = gauge.usage() {
                    return usage;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let usage = tokio::time::timeout(Duration::from_secs(60), usage).await;
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        let usage = usage.expect("it is measured");
        assert!(usage.cpu > 10_000_000 && usage.memory > 50_000, "{usage:?}");
    }
}
