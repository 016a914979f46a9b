//! Durations as Go writes them, and what is due after them.

use std::time::Duration;

use kubewright::Action;

/// What is due after a reconcile that went well: the next one after a period, and none without a period.
pub fn next_after(period: Duration) -> Action {
    match period.is_zero() {
        true => Action::await_change(),
        false => Action::requeue_after(period),
    }
}

/// A duration in the notation of Go's `time.ParseDuration`, such as `1h30m` or `1.5s`; `None` when it is none. One
/// below zero is zero: nothing waits for less.
///
/// ```
/// use std::time::Duration;
/// use kubewright_operators::watches::duration;
/// assert_eq!(duration("1m0.5s"), Some(Duration::from_millis(60_500)));
/// assert_eq!(duration("1 minute"), None);
/// ```
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds = 0.0_f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = rest[..number].parse().ok()?;
        let unit = &rest[number..];
        let end = unit
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(unit.len());
        let scale = match &unit[..end] {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += value * scale;
        rest = &unit[end..];
    }
    match negative {
        true => Some(Duration::ZERO),
        false => Duration::try_from_secs_f64(seconds).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notation_is_that_of_go() {
        let check =
            |text: &str, millis: Option<u64>| assert_eq!(duration(text), millis.map(Duration::from_millis), "{text:?}");
        check("30s", Some(30_000));
        check("1h0m10s", Some(3_610_000));
        check("1.5h", Some(5_400_000));
        check(".5s", Some(500));
        check("+2m", Some(120_000));
        check("250ms", Some(250));
        check("0", Some(0));
        check("-5s", Some(0));
        for wrong in ["", "s", "5", "5 s", "5d", "1e3s", "1..5s", "-", "1m5"] {
            check(wrong, None);
        }
    }
}
