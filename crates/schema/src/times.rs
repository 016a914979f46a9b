//! Times in RFC 3339, as Go's types read and write them.

use std::borrow::Cow;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde_json::Value;

/// The seconds of Go's zero time, the beginning of the year 1.
pub(crate) const ZERO: i64 = -62_135_596_800;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The seconds since 1970 of a time, and its nanoseconds.
pub(crate) fn parse(text: &str) -> Option<(i64, u32)> {
    let (local, east) = zone(text)?;
    let local: DateTime = nine_decimals(local).parse().ok()?;
    let since = local
        .duration_since(EPOCH)
        .checked_sub(SignedDuration::from_mins(east))?;
    // The nanoseconds of a time before 1970 count back from the second in jiff, and forth from the second before in Go.
    let back = i64::from(since.subsec_nanos() < 0);
    let nanos = u32::try_from(i64::from(since.subsec_nanos()) + back * 1_000_000_000).ok()?;
    Some((since.as_secs() - back, nanos))
}

/// The local time, and the minutes that its zone is east of Greenwich. Go reads zones of up to 24 hours and 60 minutes
/// (`time.parseRFC3339`), which jiff does not.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(local) = text.strip_suffix(['Z', 'z']) {
        return Some((local, 0));
    }
    let (local, zone) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let number = |digits: &str, most: i64| -> Option<i64> {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|number: &i64| *number <= most);
        number.filter(|_| is_number)
    };
    let away = number(hours, 24)? * 60 + number(minutes, 60)?;
    match zone.as_bytes().first()? {
        b'+' => Some((local, away)),
        b'-' => Some((local, -away)),
        _ => None,
    }
}

/// A time without decimals beyond nanoseconds: Go reads and drops them, jiff refuses them.
fn nine_decimals(text: &str) -> Cow<'_, str> {
    let Some((whole, rest)) = text.split_once(['.', ',']) else {
        return Cow::Borrowed(text);
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits <= 9 {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{whole}.{}{}", &rest[..9], &rest[digits..]))
}

/// A time as Go's types write it: in UTC, in whole seconds or with six decimals; the zero time as `null`. `None` when
/// it cannot be read.
pub(crate) fn canonical(text: &str, micro: bool) -> Option<Value> {
    let (seconds, nanos) = parse(text)?;
    if (seconds, nanos) == (ZERO, 0) {
        return Some(Value::Null);
    }
    let micros = if micro { i64::from(nanos / 1000) } else { 0 };
    written(seconds, micros, micro).map(Value::String)
}

/// The time this long after 1970; `None` when Go cannot write it. jiff's `Timestamp` ends 26 hours before the year
/// 10000 does, so that it fits into every zone; Go's times do not.
pub(crate) fn written(seconds: i64, micros: i64, micro: bool) -> Option<String> {
    let time = EPOCH
        .checked_add(SignedDuration::new(seconds, 0))
        .and_then(|time| time.checked_add(SignedDuration::from_micros(micros)))
        .ok()?;
    let form = if micro {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    // Years before 0 have a sign.
    Some(time.strftime(form).to_string()).filter(|text| !text.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structural::types::time;

    /// Times are rewritten before they are stored. One that could not be rewritten would break the lists in protobuf.
    #[test]
    fn every_time_that_is_let_in_can_be_rewritten() {
        let (mut let_in, mut refused) = (0, 0);
        let mut check = |text: &str, micro: bool| match time(text, micro) {
            Ok(()) => {
                let_in += 1;
                assert!(canonical(text, micro).is_some(), "{text}");
            }
            Err(_) => refused += 1,
        };
        for local in ["2026-01-02T03:04:05", "0000-01-02T00:00:00", "9999-12-30T23:59:59"] {
            for decimals in ["", ".123456", ",123456", ".1234567891234"] {
                for away in 0..=25 * 62 {
                    for sign in ['+', '-'] {
                        let text = format!("{local}{decimals}{sign}{:02}:{:02}", away / 62, away % 62);
                        check(&text, false);
                        check(&text, true);
                    }
                }
            }
        }
        assert!(let_in > 10_000 && refused > 1000, "{let_in} {refused}");
    }

    #[test]
    fn zones_are_those_of_go() {
        let check = |text: &str, expected: Option<&str>| {
            let expected = expected.map(|text| Value::String(text.to_owned()));
            assert_eq!(canonical(text, false), expected, "{text}");
        };
        check("2026-01-02T03:04:05+00:60", Some("2026-01-02T02:04:05Z"));
        check("2026-01-02T03:04:05-24:60", Some("2026-01-03T04:04:05Z"));
        check("2026-01-02T03:04:05.5Z", Some("2026-01-02T03:04:05Z"));
        check("2026-01-02T03:04:05+25:00", None);
        check("2026-01-02T03:04:05+01:61", None);
        check("2026-01-02T03:04:05+0x:00", None);
        check("2026-01-02T03:04:05", None);
        check("ééé5", None);
        check("", None);
    }
}
