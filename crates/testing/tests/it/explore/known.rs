//! What the explorer finds of the known bugs of real operators (`corpus`), and that it finds nothing in the same
//! operators without them.
//!
//! The test plays one fault of each bug that needs one. `measured`, `shapes`, `unseen` and `classes` play the first
//! [`FIRST`] of each pair, or as many as `KUBEWRIGHT_EXPLORE` in the environment says, and print what was found: counted,
//! so that a loaded machine measures the same.

use std::fmt::Write as _;
use std::time::Duration;

use kubewright_testing::Result;
use kubewright_testing::explore::{Explore, Finding, Report, Severity, Step};
use serde_json::json;

use super::corpus::{CASES, Case};
use super::{blind, classes, unseen};

fn explore(case: &Case, fixed: bool) -> Explore {
    let operator = case.operator;
    let explore = Explore::of(move || operator(fixed)).steps((case.steps)());
    case.always
        .iter()
        .fold(explore, |explore, always| explore.invariant(always.what, always.holds))
}

/// The exploration of a known bug, of one that the explorer was not made with, or of one of our own.
fn pair(name: &str, fixed: bool) -> Result<Explore> {
    match CASES.iter().find(|case| case.name == name) {
        Some(case) => Ok(explore(case, fixed)),
        None => unseen::explore(name, fixed)
            .or_else(|| classes::explore(name, fixed))
            .unwrap_or_else(|| blind::explore(name, fixed)),
    }
}

/// As many as a minute plays of a small operator, about.
const FIRST: usize = 300;

/// One line: how many faults were played, how many of them until the first finding, and what was found.
fn told(report: &Report, cpu: f64) -> String {
    let first = report.findings.iter().map(|finding| finding.played).min();
    let mut line = format!(
        "{:>4} {}/{} in {cpu:.1} s of CPU",
        first.map_or_else(|| "-".to_owned(), |played| played.to_string()),
        report.played,
        report.faults,
    );
    for finding in report.findings.iter().take(3) {
        let fault = finding
            .faults
            .first()
            .map_or_else(|| "no fault".to_owned(), ToString::to_string);
        let grave = if finding.severity == Severity::High {
            ""
        } else {
            "low: "
        };
        let _ = write!(line, "; {grave}{} [{fault}, {}]", finding.what, finding.faults.len());
    }
    line
}

/// The seconds that this process has worked.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok());
    // In user mode and in the kernel, in hundredths.
    (ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) / 100.0
}

/// The bugs that a fault shows, and the fault. The others are measured.
const SHOWN: &[(&str, &str)] = &[
    ("rabbitmq-782", "crash-after@2"),
    ("nifikop-49", "crash-after@4"),
    ("casskop-370", "crash-after@4"),
    ("zookeeper-410", "crash-after@4"),
    ("pxc-979", "crash-after@3"),
    ("generate-name", "crash-after@1"),
    ("status-swallowed", "outage@5"),
    ("generate-name", "outage@2"),
    ("unlocked-update", "touched@3"),
];

#[test]
fn a_fault_shows_a_known_bug_and_nothing_without_it() -> Result<()> {
    let mut wrong = Vec::new();
    for (name, fault) in SHOWN {
        for fixed in [false, true] {
            let report = pair(name, fixed)?.replay(fault)?.run()?;
            if report.findings.is_empty() != fixed {
                wrong.push(format!("{name}, fixed: {fixed}\n{report}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The bugs that the steps alone show.
const WITHOUT_A_FAULT: &[&str] = &[
    "mongodb-community-1074",
    "psmdb-897",
    "scale-to-zero",
    "pxc-918",
    "cockroach-918",
    "volume-before-member",
];

#[test]
fn the_steps_alone_show_a_known_bug_and_nothing_without_it() -> Result<()> {
    let mut wrong = Vec::new();
    for name in WITHOUT_A_FAULT {
        for fixed in [false, true] {
            let report = pair(name, fixed)?.budget(Duration::ZERO).run()?;
            if report.findings.is_empty() != fixed {
                wrong.push(format!("{name}, fixed: {fixed}\n{report}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The same workload, and between its steps those of somebody else.
fn amid_others(case: &Case, fixed: bool) -> Explore {
    let other = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "other", "namespace": "default"}, "data": {"text": text},
        })
    };
    let steps = (case.steps)().into_iter().enumerate().flat_map(|(at, step)| {
        let text = at.to_string();
        [Step::apply("change something else", other(&text)), step]
    });
    let operator = case.operator;
    Explore::of(move || operator(fixed)).steps(steps)
}

#[test]
fn a_finding_is_told_in_the_fewest_steps_that_show_it() -> Result<()> {
    // The steps that are needed, and the fault when only they are made.
    let check = |name: &str, fault: &str, steps: &[usize]| -> Result<()> {
        let case = CASES.iter().find(|case| case.name == name).expect(name);
        let report = amid_others(case, false).faults(FIRST).jobs(1).until_found().run()?;
        let [finding, ..] = report.findings.as_slice() else {
            panic!("{name}\n{report}")
        };
        assert_eq!(finding.steps, steps, "{name}\n{report}");
        let steps: Vec<String> = steps.iter().map(usize::to_string).collect();
        assert_eq!(
            finding.again,
            format!("{fault}/{}", steps.join(",")),
            "{name}\n{report}"
        );
        let replayed = amid_others(case, false).replay(&finding.again)?.run()?;
        let same = |other: &Finding| (&other.what, &other.timeline) == (&finding.what, &finding.timeline);
        assert!(replayed.findings.iter().any(same), "{name}\n{report}\n{replayed}");
        amid_others(case, true).replay(&finding.again)?.run()?.assert_none();
        Ok(())
    };
    check("rabbitmq-782", "crash-after@2", &[2, 4, 6])?;
    check("zookeeper-410", "crash-after@4", &[2, 4])?;
    check("pxc-918", "undisturbed", &[2, 4, 6])?;
    check("cockroach-918", "undisturbed", &[4])
}

/// Explores each of these with the mistake and without it, and prints a line for each. `KUBEWRIGHT_EXPLORE_CASE` says which
/// one, and after a space may name a fault: `rabbitmq-782 down@2`. Its reports are printed whole. `bugs` leaves out those
/// without the mistake.
#[allow(clippy::print_stdout, reason = "the lines are what it is for")]
fn measure<'a>(names: impl Iterator<Item = &'a str>, explore: impl Fn(&str, bool) -> Result<Explore>) -> Result<()> {
    let only = std::env::var("KUBEWRIGHT_EXPLORE_CASE").ok();
    let are_bugs_enough = only.as_deref() == Some("bugs");
    let only = only.filter(|_| !are_bugs_enough);
    let (only, fault) = match only.as_deref().map(|only| only.split_once(' ').unwrap_or((only, ""))) {
        Some((only, fault)) => (Some(only), Some(fault).filter(|fault| !fault.is_empty())),
        None => (None, None),
    };
    for name in names.filter(|name| only.is_none_or(|only| only == *name)) {
        for (word, fixed) in [("bug  ", false), ("fixed", true)] {
            if fixed && are_bugs_enough {
                continue;
            }
            let before = cpu();
            let explore = explore(name, fixed)?.faults(FIRST).jobs(1).shrink(false);
            let explore = match fault {
                Some(fault) => explore.replay(fault)?,
                None => explore,
            };
            let report = match fixed {
                false if only.is_none() => explore.until_found(),
                _ => explore,
            };
            match report.run() {
                Ok(report) => {
                    println!("{name:<24} {word} {}", told(&report, cpu() - before));
                    if only.is_some() {
                        println!("{report}");
                    }
                }
                Err(error) => println!("{name:<24} {word} cannot be played: {error}"),
            }
        }
    }
    Ok(())
}

#[test]
#[ignore = "measures: cargo test -p kubewright-testing --test it known::measured -- --ignored --nocapture"]
fn measured() -> Result<()> {
    measure(CASES.iter().map(|case| case.name), pair)
}

#[test]
#[ignore = "measures: cargo test -p kubewright-testing --test it known::shapes -- --ignored --nocapture"]
fn shapes() -> Result<()> {
    measure(blind::SHAPES.iter().map(|(name, ..)| *name), pair)
}

#[test]
#[ignore = "measures: cargo test -p kubewright-testing --test it known::unseen -- --ignored --nocapture"]
fn unseen() -> Result<()> {
    measure(unseen::PAIRS.iter().map(|pair| pair.name), pair)
}

#[test]
#[ignore = "measures: cargo test -p kubewright-testing --test it known::classes -- --ignored --nocapture"]
fn classes() -> Result<()> {
    measure(classes::CLASSES.iter().map(|(name, _)| *name), pair)
}
