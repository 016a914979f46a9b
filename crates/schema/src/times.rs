//! Times in RFC 3339, as Go's types read and write them.

use std::borrow::Cow;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use serde_json::Value;

/// The seconds of Go's zero time, the beginning of the year 1.
pub(crate) const ZERO: i64 = -62_135_596_800;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The seconds since 1970 of a time, and its nanoseconds.
pub(crate) fn parse(text: &str) -> Option<(i64, u32)> {
    let text = nine_decimals(text);
    let pieces = Pieces::parse(&*text).ok()?;
    let local = DateTime::from_parts(pieces.date(), pieces.time()?);
    let since = local
        .duration_since(EPOCH)
        .checked_sub(SignedDuration::from_secs(pieces.to_numeric_offset()?.seconds().into()))?;
    // The nanoseconds of a time before 1970 count back from the second in jiff, and forth from the second before in Go.
    let back = i64::from(since.subsec_nanos() < 0);
    let nanos = u32::try_from(i64::from(since.subsec_nanos()) + back * 1_000_000_000).ok()?;
    Some((since.as_secs() - back, nanos))
}

/// A time without what is less than a nanosecond, which Go reads and drops, and jiff does not read.
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

/// A time as Go's types write it: in UTC, in whole seconds or with six decimals; the zero time as `null`. `None` when it
/// cannot be read.
pub(crate) fn canonical(text: &str, micro: bool) -> Option<Value> {
    let (seconds, nanos) = parse(text)?;
    if (seconds, nanos) == (ZERO, 0) {
        return Some(Value::Null);
    }
    let micros = if micro { i64::from(nanos / 1000) } else { 0 };
    written(seconds, micros, micro).map(Value::String)
}

/// The time so long after 1970; `None` when Go cannot write it. jiff's `Timestamp` ends two hours before the year 10000
/// does, so that it fits into every zone; Go's times do not.
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
