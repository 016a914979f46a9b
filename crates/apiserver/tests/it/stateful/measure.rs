//! The cost of steps, on standard error, in long runs only: nothing here decides whether a test fails.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use super::generator::Step;
use super::world::World;

/// A step that takes longer is told, in milliseconds of this thread.
const SLOW: u64 = 250;
/// A step whose memory grows by more beyond its size is told, in KiB.
const LARGE: u64 = 64 * 1024;

/// Figures of a run.
pub(crate) struct Measure {
    wanted: bool,
    seed: u64,
    sequences: u64,
    steps: u64,
    exhausted: u64,
    refused: u64,
    answers: BTreeMap<(&'static str, u16), u64>,
    began: Instant,
}

/// The state before a step.
pub(crate) struct Begun {
    cpu: u64,
    resident: u64,
}

impl Measure {
    pub(crate) fn new(wanted: bool) -> Measure {
        Measure {
            wanted,
            seed: 0,
            sequences: 0,
            steps: 0,
            exhausted: 0,
            refused: 0,
            answers: BTreeMap::new(),
            began: Instant::now(),
        }
    }

    pub(crate) fn begin(&mut self, seed: u64) {
        self.seed = seed;
        self.sequences += 1;
        if let Some(path) = std::env::var_os("KUBEWRIGHT_SEED_FILE") {
            // A stack that overflows ends the process without a word.
            fs::write(path, seed.to_string()).expect("the file can be written");
        }
        if self.wanted && self.sequences.is_multiple_of(500) {
            self.end();
        }
    }

    pub(crate) fn step(&self) -> Option<Begun> {
        if !self.wanted {
            return None;
        }
        // The peak begins anew; it may not, and then the figures are too large.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Some(Begun {
            cpu: cpu(),
            resident: status("VmRSS:"),
        })
    }

    pub(crate) fn stepped(&mut self, begun: Option<Begun>, step: &Step) {
        self.steps += 1;
        let Some(begun) = begun else { return };
        let size = step.size();
        self.tell(&begun, size, &format!("{step:?}"));
    }

    pub(crate) fn ended(&self, begun: Option<Begun>) {
        let Some(begun) = begun else { return };
        let spent = (cpu() - begun.cpu) / 1_000_000;
        if spent > 20 * SLOW {
            eprintln!("seed {}: the checks at the end took {spent} ms", self.seed);
        }
    }

    fn tell(&self, begun: &Begun, size: usize, what: &str) {
        let spent = (cpu() - begun.cpu) / 1_000_000;
        let grown = status("VmHWM:").saturating_sub(begun.resident);
        if spent > SLOW || grown > LARGE + (size / 1024) as u64 {
            let what: String = what.chars().take(400).collect();
            eprintln!("seed {}: {spent} ms, {grown} KiB for {size} bytes: {what}", self.seed);
        }
    }

    pub(crate) fn answered(&mut self, world: &World) {
        self.exhausted += world.exhausted;
        self.refused += world.refused;
        for (kind, count) in &world.answers {
            *self.answers.entry(*kind).or_default() += count;
        }
    }

    pub(crate) fn end(&self) {
        if self.wanted {
            eprintln!(
                "{} sequences up to seed {}, {} steps ({} refused, {} of them as too much work) in {} s, {} s of processor",
                self.sequences,
                self.seed,
                self.steps,
                self.refused,
                self.exhausted,
                self.began.elapsed().as_secs(),
                cpu() / 1_000_000_000,
            );
            let answers = self.answers.iter();
            let answers: Vec<String> = answers
                .map(|((how, code), count)| format!("{how} {code}: {count}"))
                .collect();
            eprintln!("  {}", answers.join(", "));
        }
    }
}

/// Nanoseconds of processor time of this thread.
fn cpu() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// A line of `/proc/self/status`, in KiB.
fn status(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
