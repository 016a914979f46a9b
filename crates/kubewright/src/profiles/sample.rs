//! Takes one profile.
//!
//! The handler of the timer's signal walks the stack where it finds a thread. It passes over one that is in the C
//! library or the unwinder, whose locks it might need itself; such a sample is lost, and time in there is not in the
//! profile.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pprof::{Frames, ProfilerGuard, ProfilerGuardBuilder, Report};
use tokio::sync::OwnedSemaphorePermit;

use super::proto::{Encoder, Span};

/// In each second of processor time, as Go's.
const RATE: i32 = 100;
/// Where a signal may have come at a bad moment.
const PASSED_OVER: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// The profile of so long from now, in pprof's format. It keeps its permit until it has ended.
pub(super) async fn taken(length: Duration, permit: OwnedSemaphorePermit) -> Result<Vec<u8>, String> {
    let began = SystemTime::now();
    let guard = ProfilerGuardBuilder::default()
        .frequency(RATE)
        .blocklist(&PASSED_OVER)
        .build()
        .map_err(|error| error.to_string())?;
    tokio::time::sleep(length).await;
    // Names are looked up in the program's debug information, which takes its time.
    let written = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        written(guard, began, length)
    });
    written.await.map_err(|error| error.to_string())?
}

fn written(guard: ProfilerGuard<'static>, began: SystemTime, length: Duration) -> Result<Vec<u8>, String> {
    let report = guard.report().build();
    drop(guard); // from here on nothing is interrupted any more
    let report = report.map_err(|error| error.to_string())?;
    let span = Span {
        began: began.duration_since(UNIX_EPOCH).unwrap_or_default(),
        length,
        period: Duration::from_secs(1) / RATE.unsigned_abs(),
    };
    encode(&report, span)
}

fn encode(report: &Report, span: Span) -> Result<Vec<u8>, String> {
    if !report.data.is_empty() && !report.data.keys().any(has_names) {
        return Err(
            "the program was stripped of its symbols; build it with strip = false and debug = \"line-tables-only\" \
             in its profile"
                .to_owned(),
        );
    }
    let mut encoder = Encoder::default();
    for (stack, count) in &report.data {
        let mut locations = Vec::new();
        for frame in &stack.frames {
            let mut lines = Vec::new();
            for symbol in frame {
                let function = encoder.function(&symbol.name(), &symbol.filename());
                lines.push((function, symbol.lineno()));
            }
            locations.push(encoder.location(lines));
        }
        let count = u64::try_from(*count).unwrap_or_default();
        encoder.sample(&locations, count, span.period, &stack.thread_name);
    }
    Ok(encoder.finish(span))
}

fn has_names(stack: &Frames) -> bool {
    stack.frames.iter().flatten().any(|symbol| symbol.name.is_some())
}
