//! Durations and ages as `kubectl get` prints them: two units at most, coarser the longer.

use jiff::Timestamp;

/// A duration in whole seconds, such as `5s`, `2m10s`, `3h`, `4d2h`, `2y30d` (`HumanDuration` of apimachinery).
pub fn duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{large_unit}")
        } else {
            format!("{large}{large_unit}{small}{small_unit}")
        }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 192 {
        two(days, "d", hours % 24, "h")
    } else if hours < 24 * 365 * 2 {
        format!("{days}d")
    } else if hours < 24 * 365 * 8 {
        two(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

/// The time since an RFC 3339 time; `<unknown>` when there is none, `<invalid>` when it is no time.
pub fn since(time: Option<&str>, now: Timestamp) -> String {
    match time {
        None | Some("") => "<unknown>".to_owned(),
        Some(time) => time.parse::<Timestamp>().map_or_else(
            |_| "<invalid>".to_owned(),
            |time| duration(now.duration_since(time).as_secs()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (130, "2m10s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn times() {
        let now = "2026-01-01T00:01:40Z".parse().expect("a time");
        assert_eq!(since(Some("2026-01-01T00:00:00Z"), now), "100s");
        assert_eq!(since(None, now), "<unknown>");
        assert_eq!(since(Some("x"), now), "<invalid>");
    }
}
