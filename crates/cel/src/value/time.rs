//! Durations and timestamps at run time, read and printed as Go does.
//!
//! A duration is a number of nanoseconds in 64 bits; a timestamp lies in the years 1 to 9999 and remembers the offset
//! that it was written with, in which it prints. Invariant: arithmetic that leaves those bounds is an error, never a
//! wrap.

use std::fmt;

use super::number;
use crate::error::Error;

const NANOS: i64 = 1_000_000_000;

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub i64);

/// A point in time, with the offset from UTC that it was written with.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    /// Whole seconds since 1970, rounded down.
    seconds: i64,
    nanos: u32,
    /// Seconds east of UTC.
    offset: i32,
}

/// Date and time of day somewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    /// From 1.
    pub(crate) day: i64,
    /// From 0.
    pub(crate) day_of_year: i64,
    /// From 0, which is Sunday.
    pub(crate) weekday: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

/// A text that is no time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParseError;

/// Units with their nanoseconds.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS),
    ("m", 60 * NANOS),
    ("h", 3600 * NANOS),
];

impl Duration {
    /// Go's form: `1h30m`, `-1.5s`, `0`.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Some(Self(0));
        }
        let mut nanos: i128 = 0;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let (whole, after) = digits(rest);
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => digits(after),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return None;
            }
            let end = after
                .find(|c: char| c == '.' || c.is_ascii_digit())
                .unwrap_or(after.len());
            let unit = UNITS.iter().find(|(name, _)| *name == &after[..end])?.1;
            let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
            nanos = nanos.checked_add(whole.checked_mul(i128::from(unit))?)?;
            let mut scale = i128::from(unit);
            for digit in fraction.bytes().take(18) {
                // Exact digits below a nanosecond fall away one by one.
                scale /= 10;
                nanos += i128::from(digit - b'0') * scale;
            }
            rest = &after[end..];
        }
        i64::try_from(if negative { -nanos } else { nanos }).ok().map(Self)
    }

    /// Go's form or words, as the format `duration` of a schema allows: `2 weeks`.
    pub(crate) fn parse_words(text: &str) -> Option<Self> {
        const WORDS: [(&[&str], &str, i64); 8] = [
            (&["ns"], "nano", 1),
            (&["us", "µs"], "micro", 1_000),
            (&["ms"], "milli", 1_000_000),
            (&["s"], "sec", NANOS),
            (&["m"], "min", 60 * NANOS),
            (&["h", "hr"], "hour", 3600 * NANOS),
            (&["d"], "day", 24 * 3600 * NANOS),
            (&["w"], "week", 7 * 24 * 3600 * NANOS),
        ];
        if let Some(duration) = Self::parse(text) {
            return Some(duration);
        }
        let (mut nanos, mut found, mut rest) = (0i64, false, text);
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            let (factor, after) = digits(&rest[start..]);
            let after = after.trim_start();
            let end = after
                .find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ'))
                .unwrap_or(after.len());
            let unit = after[..end].to_lowercase();
            if let Some((.., size)) = WORDS
                .iter()
                .find(|(names, longest, _)| names.contains(&unit.as_str()) || unit.starts_with(longest))
            {
                nanos = nanos.checked_add(factor.parse::<i64>().ok()?.checked_mul(*size)?)?;
                found = true;
            }
            rest = &after[end..];
        }
        found.then_some(Self(nanos))
    }

    /// `self + other`.
    pub(crate) fn add(self, other: Self) -> Result<Self, Error> {
        self.0.checked_add(other.0).map(Self).ok_or_else(Error::overflow)
    }

    /// `self - other`.
    pub(crate) fn subtract(self, other: Self) -> Result<Self, Error> {
        self.0.checked_sub(other.0).map(Self).ok_or_else(Error::overflow)
    }

    /// `-self`.
    pub(crate) fn negate(self) -> Result<Self, Error> {
        self.0.checked_neg().map(Self).ok_or_else(Error::overflow)
    }

    /// Go's own form: `1h30m0s`, `1.5s`, `2ms`.
    pub(crate) fn go(self) -> String {
        if self.0 == 0 {
            return "0s".into();
        }
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        let fraction = |unit: u64, name: &str| {
            let (whole, rest) = (nanos / unit, nanos % unit);
            if rest == 0 {
                return format!("{sign}{whole}{name}");
            }
            let width = usize::try_from(unit.ilog10()).unwrap_or(9);
            let digits = format!("{rest:0width$}");
            format!("{sign}{whole}.{}{name}", digits.trim_end_matches('0'))
        };
        match nanos {
            0..1_000 => format!("{sign}{nanos}ns"),
            1_000..1_000_000 => fraction(1_000, "µs"),
            1_000_000..1_000_000_000 => fraction(1_000_000, "ms"),
            _ => {
                let (whole, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
                let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
                let mut text = String::from(sign);
                if hours > 0 {
                    text += &format!("{hours}h");
                }
                if whole >= 60 {
                    text += &format!("{minutes}m");
                }
                text += &seconds.to_string();
                if rest > 0 {
                    text += &format!(".{}", format!("{rest:09}").trim_end_matches('0'));
                }
                text + "s"
            }
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "as Go's Seconds")]
    fn seconds(self) -> f64 {
        (self.0 / NANOS) as f64 + (self.0 % NANOS) as f64 / 1e9
    }
}

impl fmt::Display for Duration {
    /// Seconds, as `string(duration)` prints: `5400s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds();
        debug_assert!(number::not_finite(seconds).is_none());
        write!(f, "{seconds}s")
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

impl Timestamp {
    /// Seconds from `0001-01-01T00:00:00Z` to 1970.
    const MIN: i64 = -62_135_596_800;
    /// Seconds from 1970 to `9999-12-31T23:59:59Z`.
    const MAX: i64 = 253_402_300_799;

    /// RFC 3339.
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        Self::read(text).ok_or(ParseError)
    }

    fn read(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let part = |from: usize, to: usize| -> Option<i32> {
            let part = text.get(from..to)?;
            part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
        };
        let sign = |at: usize, expected: u8| (bytes.get(at) == Some(&expected)).then_some(());
        let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
        let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
        [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')]
            .into_iter()
            .try_for_each(|(at, expected)| sign(at, expected))?;
        let mut rest = text.get(19..)?;
        let mut nanos = 0;
        if let Some(after) = rest.strip_prefix(['.', ',']) {
            let (fraction, after) = digits(after);
            if fraction.is_empty() {
                return None;
            }
            nanos = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
            rest = after;
        }
        let offset = zone_offset(rest)?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
            return None;
        }
        let days = days_since_epoch(i64::from(year), i64::from(month), i64::from(day));
        let seconds = days * 86_400 + i64::from(hour * 3600 + minute * 60 + second) - i64::from(offset);
        Some(Self { seconds, nanos, offset })
    }

    /// A number of seconds since 1970, in UTC; none outside of the years 1 to 9999.
    pub(crate) fn from_seconds(seconds: i64) -> Option<Self> {
        Self::checked(seconds, 0, 0)
    }

    fn checked(seconds: i64, nanos: u32, offset: i32) -> Option<Self> {
        let time = Self { seconds, nanos, offset };
        time.in_range().then_some(time)
    }

    /// Whether it lies in the years 1 to 9999.
    pub(crate) fn in_range(self) -> bool {
        (Self::MIN..=Self::MAX).contains(&self.seconds)
    }

    /// Whole seconds since 1970, rounded down.
    pub(crate) fn seconds(self) -> i64 {
        self.seconds
    }

    /// The part of a second, in nanoseconds.
    pub(crate) fn nanos(self) -> u32 {
        self.nanos
    }

    /// Go's zero time, the first second of the year 1.
    pub(crate) fn is_zero(self) -> bool {
        self.seconds == Self::MIN && self.nanos == 0
    }

    /// `self + duration`.
    pub(crate) fn add(self, duration: Duration) -> Result<Self, Error> {
        let nanos = i64::from(self.nanos) + duration.0.rem_euclid(NANOS);
        let seconds = self.seconds + duration.0.div_euclid(NANOS) + nanos / NANOS;
        let nanos = u32::try_from(nanos % NANOS).expect("less than a second");
        Self::checked(seconds, nanos, self.offset).ok_or_else(|| Error::new("timestamp overflow"))
    }

    /// `self - other`.
    pub(crate) fn since(self, other: Self) -> Result<Duration, Error> {
        let nanos = i128::from(self.seconds - other.seconds) * i128::from(NANOS) + i128::from(self.nanos)
            - i128::from(other.nanos);
        i64::try_from(nanos).map(Duration).map_err(|_| Error::overflow())
    }

    /// Date and time of day, this many seconds east of UTC.
    pub(crate) fn civil(self, offset: i64) -> Civil {
        let local = self.seconds.saturating_add(offset);
        let (days, clock) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        // Years begin in March here, so that the day that leap years add comes last.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 {
            shifted_month + 3
        } else {
            shifted_month - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Civil {
            year,
            month,
            day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
            day_of_year: days - days_since_epoch(year, 1, 1),
            weekday: (days + 4).rem_euclid(7),
            hour: clock / 3600,
            minute: clock / 60 % 60,
            second: clock % 60,
        }
    }
}

/// Days of the Gregorian calendar since the first of January 1970.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn days_in_month(year: i32, month: i32) -> i32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// `Z` or `+02:00`.
fn zone_offset(text: &str) -> Option<i32> {
    if text == "Z" {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let two = |part: &str| -> Option<i32> {
        (part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse().ok())?
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    if hours > 24 || minutes > 60 {
        return None;
    }
    Some(sign * (hours * 3600 + minutes * 60))
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        (self.seconds, self.nanos) == (other.seconds, other.nanos)
    }
}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (self.seconds, self.nanos).partial_cmp(&(other.seconds, other.nanos))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 with as many digits of a second as it takes, in the offset that it was written with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.civil(i64::from(self.offset));
        let (date, clock) = ((time.year, time.month, time.day), (time.hour, time.minute, time.second));
        write!(f, "{:04}-{:02}-{:02}T", date.0, date.1, date.2)?;
        write!(f, "{:02}:{:02}:{:02}", clock.0, clock.1, clock.2)?;
        if self.nanos != 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        let offset = self.offset;
        if offset == 0 {
            return f.write_str("Z");
        }
        let sign = if offset < 0 { '-' } else { '+' };
        write!(f, "{sign}{:02}:{:02}", offset.abs() / 3600, offset.abs() / 60 % 60)
    }
}
