//! The operator keeps its promises whatever happens to it: crashes, lost answers, late watches, a leader that stands
//! still, a user who does not wait.

use kubewright_testing::{Explore, Result};

#[test]
fn nothing_that_happens_to_the_operator_shows_in_the_end() -> Result<()> {
    // ANCHOR: faults
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/config/samples");
    let report = Explore::of(guestbook::operator).samples(samples)?.faults(20).run()?;
    report.assert_none();
    // ANCHOR_END: faults
    assert!(report.played > 0, "{report}");
    Ok(())
}

/// A leader that stood still for longer than its term writes nothing more.
#[test]
fn a_leader_that_stands_still_leaves_no_old_status() -> Result<()> {
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/config/samples");
    for write in 1..=3 {
        let explore = Explore::of(guestbook::operator).samples(samples)?;
        let report = explore.replay(&format!("paused@{write}"))?.run()?;
        assert_eq!((report.played, report.missed), (1, 0), "{report}");
        report.assert_none();
    }
    Ok(())
}
