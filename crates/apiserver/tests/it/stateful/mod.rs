//! Random sequences of requests against one server, with values at the bounds, restarts between them, and rules that
//! must hold after each step and at the end (`checks`): every answer is a Status or an object, other clients get their
//! answers, each stored object can be read in every form, is found again by a restart, and can be deleted.
//!
//! A sequence follows from its seed: the world has a clock of its own and counted entropy. A failing sequence is tried
//! again with steps left out, and the shortest sequence that still fails is printed.
//!
//! As a test it runs shortly. Longer, and with figures of time and memory on standard error:
//! `KUBEWRIGHT_FUZZ_SECONDS=600 cargo test --release -p kubewright-apiserver --test it stateful:: -- --nocapture`;
//! `KUBEWRIGHT_SEED=N` begins with another seed, `KUBEWRIGHT_SEED=N..M` plays those only.
//!
//! Not here: sockets (the cluster's tests), files (`durable` of the cluster).

// Helpers of tests may fail as tests do; clippy only knows functions that are tests themselves.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
// The server is pure; the test against it reads seeds and measures.
#![allow(clippy::disallowed_methods)]

mod asides;
mod checks;
mod edges;
mod generator;
mod measure;
mod objects;
mod random;
mod world;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use generator::Step;
use measure::Measure;
use world::World;

/// Sequences of an ordinary run.
const SEQUENCES: u64 = 24;

#[test]
fn no_sequence_hurts() {
    let (seeds, long) = seeds();
    let began = Instant::now();
    let mut measure = Measure::new(long.is_some());
    let mut failures = Vec::new();
    for seed in seeds {
        if long.is_some_and(|time| began.elapsed() > time) {
            break;
        }
        measure.begin(seed);
        let steps = generator::sequence(seed);
        if let Err(problem) = play(&steps, &mut measure) {
            let text = shrunk(seed, steps, &problem);
            eprintln!("{text}");
            failures.push(text);
            if long.is_none() {
                break;
            }
        }
    }
    measure.end();
    assert!(
        failures.is_empty(),
        "{} sequences fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Which seeds to play, and for how long when it is not an ordinary run.
fn seeds() -> (Range<u64>, Option<Duration>) {
    let number = |text: &str| text.parse::<u64>().expect("a seed is a number");
    let time = std::env::var("KUBEWRIGHT_FUZZ_SECONDS").ok();
    let time = time.map(|time| Duration::from_secs(number(&time)));
    match std::env::var("KUBEWRIGHT_SEED").ok() {
        Some(seeds) => match seeds.split_once("..") {
            Some((from, to)) => (number(from)..number(to), Some(time.unwrap_or(Duration::MAX))),
            None => (number(&seeds)..u64::MAX, time),
        },
        None if time.is_some() => (0..u64::MAX, time),
        None => (0..SEQUENCES, None),
    }
}

/// Plays a sequence in a world of its own; a panic is a problem as others are.
fn play(steps: &[Step], measure: &mut Measure) -> Result<(), String> {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new();
        for (index, step) in steps.iter().enumerate() {
            let begun = measure.step();
            world.take(step).map_err(|problem| format!("step {index}: {problem}"))?;
            measure.stepped(begun, step);
        }
        let begun = measure.step();
        checks::at_the_end(&mut world).map_err(|problem| format!("at the end: {problem}"))?;
        measure.ended(begun);
        measure.answered(&world);
        Ok(())
    }));
    played.unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("a panic: {}", text.unwrap_or_default()))
    })
}

/// Leaves out every step that the failure does not need, and answers the rest.
fn shrunk(seed: u64, mut steps: Vec<Step>, problem: &str) -> String {
    let mut problem = problem.to_owned();
    let mut size = steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + size).min(steps.len()));
            match play(&fewer, &mut Measure::new(false)) {
                Err(other) if kind(&other) == kind(&problem) => (steps, problem) = (fewer, other),
                _ => at += size,
            }
        }
        size /= 2;
    }
    let lines: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
    format!("seed {seed}: {problem}\n{}", lines.join("\n"))
}

/// The type of a problem: shrinking must not lead from one to another. Numbers differ from sequence to sequence.
fn kind(problem: &str) -> String {
    let text = problem.split_once(": ").map_or(problem, |(_, text)| text);
    text.chars().filter(|c| !c.is_ascii_digit()).take(40).collect()
}
