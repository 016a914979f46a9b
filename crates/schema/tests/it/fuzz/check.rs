//! Random bytes for a fuzz target: a second long as a test, `KUBEWRIGHT_FUZZ_SECONDS` long where that is set. A failing
//! input is made as small as it can be, and printed.

// The pure crates may not look at a clock; their tests may.
#![allow(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any};
use proptest::test_runner::TestRunner;

/// Gives the target bytes until the time is over.
pub(crate) fn check(target: impl Fn(&[u8])) {
    let seconds = std::env::var("KUBEWRIGHT_FUZZ_SECONDS").ok();
    let seconds = seconds.map_or(1, |text| text.parse().expect("KUBEWRIGHT_FUZZ_SECONDS is a number"));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(seconds) {
        let config = ProptestConfig {
            failure_persistence: None, // a finding becomes a line of a table
            ..ProptestConfig::default()
        };
        let tried = TestRunner::new(config).run(&vec(any::<u8>(), 0..4096), |bytes| {
            target(&bytes);
            Ok(())
        });
        tried.unwrap_or_else(|failure| panic!("{failure}"));
    }
}
