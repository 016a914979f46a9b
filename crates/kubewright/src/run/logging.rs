//! Where events go: to the standard error stream, as zap's flags ask for.

use std::fmt;
use std::io::IsTerminal as _;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::telemetry::{self, Exporting};
use crate::clock::{Clock as _, SystemClock};

/// How log lines look, and which there are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Logging {
    pub(super) encoder: Encoder,
    pub(super) time: Time,
    /// The level of a flag.
    pub(super) level: Option<Level>,
    /// The environment's filter, when there is no flag.
    pub(super) rust_log: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoder {
    Console,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// How a point in time is written; names and forms are zap's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    Epoch,
    Millis,
    Nano,
    Iso8601,
    Rfc3339,
    Rfc3339Nano,
}

impl Time {
    fn write(self, now: jiff::Timestamp, out: &mut dyn fmt::Write) -> fmt::Result {
        match self {
            Time::Epoch => write!(out, "{}.{:06}", now.as_second(), now.subsec_microsecond()),
            Time::Millis => write!(out, "{}", now.as_millisecond()),
            Time::Nano => write!(out, "{}", now.as_nanosecond()),
            Time::Iso8601 => write!(out, "{now:.3}"),
            Time::Rfc3339 => write!(out, "{now:.0}"),
            Time::Rfc3339Nano => write!(out, "{now:.9}"),
        }
    }
}

impl FormatTime for Time {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        self.write(SystemClock.now(), w)
    }
}

impl Logging {
    /// Which events are logged. Libraries under ours report their work at debug level; their lines appear only on
    /// request.
    fn filter(&self) -> Targets {
        let level = match (self.level, &self.rust_log) {
            (None, Some(wanted)) => match wanted.parse::<Targets>() {
                Ok(targets) => return targets,
                Err(_) => LevelFilter::INFO,
            },
            (None, None) | (Some(Level::Info), _) => LevelFilter::INFO,
            (Some(Level::Trace), _) => LevelFilter::TRACE,
            (Some(Level::Debug), _) => LevelFilter::DEBUG,
            (Some(Level::Warn), _) => LevelFilter::WARN,
            (Some(Level::Error), _) => LevelFilter::ERROR,
        };
        let quiet = ["h2", "hyper", "hyper_util", "rustls", "tower", "kube_client"];
        Targets::new()
            .with_default(level)
            .with_targets(quiet.map(|library| (library, level.min(LevelFilter::INFO))))
    }
}

/// Logs from now on, unless the program has set up its own logging before.
pub(super) fn start(logging: &Logging, operator: &str) -> Exporting {
    let stderr = std::io::stderr;
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(stderr)
        // A log without a reader is no reason to panic.
        .log_internal_errors(false)
        .with_timer(logging.time)
        .with_ansi(stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    let layer = match logging.encoder {
        Encoder::Console => layer.with_filter(logging.filter()).boxed(),
        Encoder::Json => layer.json().flatten_event(true).with_filter(logging.filter()).boxed(),
    };
    // An error means that the program logs already, in its own way.
    let (spans, exporting) = telemetry::layer(operator);
    let _ = tracing_subscriber::registry().with(layer).with(spans).try_init();
    exporting.log();
    if let (None, Some(wanted)) = (logging.level, &logging.rust_log)
        && let Err(error) = wanted.parse::<Targets>()
    {
        tracing::warn!(RUST_LOG = wanted, %error, "RUST_LOG cannot be read; the level is info");
    }
    exporting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_span_is_wanted_without_a_reader() {
        let lines = tracing_subscriber::fmt::layer().with_filter(LevelFilter::INFO);
        let (spans, _) = telemetry::layer("guestbook");
        let subscriber = tracing_subscriber::registry().with(lines).with(spans);
        let most = tracing::Subscriber::max_level_hint(&subscriber);
        assert_eq!(most, Some(LevelFilter::INFO));
    }

    #[test]
    fn times_are_written_as_zap_writes_them() {
        let now = jiff::Timestamp::new(1_700_000_000, 123_456_789).expect("a time");
        let check = |time: Time, expected: &str| {
            let mut text = String::new();
            time.write(now, &mut text).expect("a string takes everything");
            assert_eq!(text, expected, "{time:?}");
        };
        check(Time::Epoch, "1700000000.123456");
        check(Time::Millis, "1700000000123");
        check(Time::Nano, "1700000000123456789");
        check(Time::Iso8601, "2023-11-14T22:13:20.123Z");
        check(Time::Rfc3339, "2023-11-14T22:13:20Z");
        check(Time::Rfc3339Nano, "2023-11-14T22:13:20.123456789Z");
    }
}
