//! What the explorer finds of the known bugs of real operators (`corpus`), and that it finds nothing in the same
//! operators without them.
//!
//! The faults that show each bug are a table, so that the tests play those alone. `KUBEWRIGHT_EXPLORE` in the environment
//! measures instead: it plays that many seconds, or all faults, of each pair, and prints what was found.

use std::fmt::Write as _;
use std::time::Duration;

use kubewright_testing::Result;
use kubewright_testing::explore::{Explore, Report, Severity};

use super::corpus::{CASES, Case};

fn explore(case: &Case, fixed: bool) -> Explore {
    let operator = case.operator;
    Explore::of(move || operator(fixed)).steps((case.steps)())
}

/// One line: how many faults were played, and the first finding that matters.
fn told(report: &Report) -> String {
    let grave = report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::High);
    let mut line = format!(
        "{}/{} in {:.0} s",
        report.played,
        report.faults,
        report.took.as_secs_f64()
    );
    for finding in grave.take(3) {
        let fault = finding
            .faults
            .first()
            .map_or_else(|| "no fault".to_owned(), ToString::to_string);
        let _ = write!(line, "; {} [{fault}, {}]", finding.what, finding.faults.len());
    }
    line
}

#[test]
fn measured() -> Result<()> {
    if std::env::var_os("KUBEWRIGHT_EXPLORE").is_none() {
        return Ok(());
    }
    let only = std::env::var("KUBEWRIGHT_EXPLORE_CASE").ok();
    for case in CASES
        .iter()
        .filter(|case| only.as_deref().is_none_or(|only| only == case.name))
    {
        for (word, fixed) in [("bug  ", false), ("fixed", true)] {
            let report = explore(case, fixed).jobs(1).budget(Duration::from_secs(60)).run();
            match report {
                Ok(report) => {
                    println!("{:<24} {word} {}", case.name, told(&report));
                    if only.is_some() {
                        println!("{report}");
                    }
                }
                Err(error) => println!("{:<24} {word} cannot be played: {error}", case.name),
            }
        }
    }
    Ok(())
}
