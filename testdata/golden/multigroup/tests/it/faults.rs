//! The operator under faults: it dies, its writes fail, its watches lag, its children are deleted.

use kubewright_testing::{Explore, Result};

#[test]
fn faults_leave_no_trace() -> Result<()> {
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/config/samples");
    let report = Explore::of(multigroup::operator)
        .samples(samples)?
        .faults(16)
        .run()?;
    println!("{report}");
    report.assert_none();
    Ok(())
}
