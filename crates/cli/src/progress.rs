//! A line on standard error when a step prints nothing for two seconds, on a terminal or off it: what is being done, and
//! for how long.
//!
//! [`during`] begins a step, which ends when its guard is dropped. Invariants: nothing is printed while the command
//! prints lines of its own, while a screen is drawn, or with `--quiet`; standard output is never touched.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use kubewright_demo::paint::{DIM, paint};

/// The longest silence.
const SILENCE: Duration = Duration::from_secs(2);
/// The longest time between two lines about one step.
const INTERVAL: Duration = Duration::from_secs(30);

/// How lines are printed.
struct Printing {
    quiet: bool,
    json: bool,
    /// When something was printed last.
    last: Option<Instant>,
}

static PRINTING: Mutex<Printing> = Mutex::new(Printing {
    quiet: false,
    json: false,
    last: None,
});

fn printing() -> std::sync::MutexGuard<'static, Printing> {
    PRINTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says how lines are printed, and whether.
pub(crate) fn set(quiet: bool, json: bool) {
    let mut printing = printing();
    (printing.quiet, printing.json) = (quiet, json);
}

/// Whether `--quiet` was given.
pub(crate) fn is_quiet() -> bool {
    printing().quiet
}

/// Notes that the command has printed something.
pub(crate) fn printed() {
    printing().last = Some(Instant::now());
}

/// A step that may take long.
pub(crate) struct Working(Arc<(Mutex<Step>, Condvar)>);

struct Step {
    what: String,
    done: bool,
}

/// Begins a step: `compiling the operator`.
pub(crate) fn during(what: impl Into<String>) -> Working {
    let step = Step {
        what: what.into(),
        done: false,
    };
    let step = Arc::new((Mutex::new(step), Condvar::new()));
    if !is_quiet() {
        let watched = step.clone();
        std::thread::spawn(move || watch(&watched));
    }
    Working(step)
}

impl Working {
    /// What is done now, within the same step.
    pub(crate) fn now(&self, what: impl Into<String>) {
        lock(&self.0.0).what = what.into();
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        lock(&self.0.0).done = true;
        self.0.1.notify_all();
    }
}

fn lock(step: &Mutex<Step>) -> std::sync::MutexGuard<'_, Step> {
    step.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(watched: &(Mutex<Step>, Condvar)) {
    let begun = Instant::now();
    let mut pause = SILENCE;
    let mut step = lock(&watched.0);
    while !step.done {
        let silent = {
            // Of steps within each other, one tells.
            let mut printing = printing();
            let silent = printing.last.map_or(begun, |last| last.max(begun)).elapsed();
            if silent >= pause {
                line(&step.what, begun.elapsed(), printing.json);
                printing.last = Some(Instant::now());
            }
            silent
        };
        if silent >= pause {
            pause = (pause * 2).min(INTERVAL);
            continue;
        }
        let wait = watched.1.wait_timeout(step, pause - silent);
        step = wait.unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn line(what: &str, took: Duration, json: bool) {
    let seconds = took.as_secs();
    let mut out = anstream::stderr().lock();
    // Standard error is gone, so there is no place for the text.
    let _ = match json {
        false => writeln!(out, "{}", paint(DIM, text(what, seconds))),
        true => writeln!(out, "{}", json!({"event": "working", "what": what, "seconds": seconds})),
    };
}

fn text(what: &str, seconds: u64) -> String {
    match seconds / 60 {
        0 => format!("… {what} ({seconds} s)"),
        minutes => format!("… {what} ({minutes} min {} s)", seconds % 60),
    }
}

/// Whether cargo draws a bar of its own.
pub(crate) fn cargo_draws() -> bool {
    std::io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_done_and_for_how_long() {
        assert_eq!(text("compiling the operator", 2), "… compiling the operator (2 s)");
        assert_eq!(
            text("compiling the operator", 192),
            "… compiling the operator (3 min 12 s)"
        );
    }

    #[test]
    fn a_step_ends_with_its_guard() {
        let working = during("nothing");
        let step = working.0.clone();
        working.now("something");
        assert_eq!(lock(&step.0).what, "something");
        drop(working);
        assert!(lock(&step.0).done);
    }
}
