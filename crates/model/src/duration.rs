//! Durations as Go reads them.

/// Whether this is a duration in Go's form, such as `1h30m` (`time.ParseDuration`).
///
/// # Errors
/// Go's error about the text.
pub fn check(text: &str) -> Result<(), String> {
    parse(text).map(drop)
}

/// The nanoseconds of a duration in Go's form (`time.ParseDuration`). As there, a text of more than 292 years is none.
///
/// # Errors
/// Go's error about the text.
pub fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut sum = 0_i128;
    while !rest.is_empty() {
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let digits = &rest[..rest.len() - after.len()];
        if digits.matches('.').count() > 1 || !digits.bytes().any(|digit| digit.is_ascii_digit()) {
            return Err(invalid());
        }
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let factor = match unit {
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60 * 1_000_000_000,
            "h" => 3_600 * 1_000_000_000,
            _ => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
        };
        sum = nanoseconds(digits, factor)
            .and_then(|part| sum.checked_add(part))
            .ok_or_else(invalid)?;
        rest = next;
    }
    let signed = if text.starts_with('-') { -sum } else { sum };
    i64::try_from(signed).map_err(|_| invalid())
}

/// A decimal number of units; `None`: too large.
fn nanoseconds(digits: &str, factor: i128) -> Option<i128> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let number = |digits: &str| match digits {
        "" => Some(0),
        digits => digits.parse::<i128>().ok(),
    };
    // Further digits are less than a nanosecond of an hour.
    let fraction = &fraction[..fraction.len().min(15)];
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let part = number(fraction)?.checked_mul(factor)? / scale;
    number(whole)?.checked_mul(factor)?.checked_add(part)
}

/// How long a token of a service account may be valid, in seconds.
///
/// # Errors
/// The message about a lifetime that is too short or too long.
pub fn check_token_seconds(seconds: i64) -> Result<(), &'static str> {
    match seconds {
        ..600 => Err("may not specify a duration less than 10 minutes"),
        600..=0x1_0000_0000 => Ok(()),
        _ => Err("may not specify a duration larger than 2^32 seconds"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_go_takes() {
        for (text, wanted) in [
            ("0", Ok(0)),
            ("-0", Ok(0)),
            ("1h30m", Ok(5_400_000_000_000)),
            ("-1.5h", Ok(-5_400_000_000_000)),
            ("1m0.5s", Ok(60_500_000_000)),
            (".5s", Ok(500_000_000)),
            ("5.s", Ok(5_000_000_000)),
            ("3µs", Ok(3_000)),
            ("2540400h10m10s", Ok(9_145_440_610_000_000_000)),
            ("9223372036854775807ns", Ok(i64::MAX)),
            (
                "9223372036854775808ns",
                Err("time: invalid duration \"9223372036854775808ns\""),
            ),
            ("99999999h", Err("time: invalid duration \"99999999h\"")),
            ("", Err("time: invalid duration \"\"")),
            ("-", Err("time: invalid duration \"-\"")),
            ("1.5.5s", Err("time: invalid duration \"1.5.5s\"")),
            ("5", Err("time: missing unit in duration \"5\"")),
            ("5x", Err("time: unknown unit \"x\" in duration \"5x\"")),
            ("5 m", Err("time: unknown unit \" m\" in duration \"5 m\"")),
        ] {
            assert_eq!(super::parse(text), wanted.map_err(str::to_owned), "{text:?}");
            assert_eq!(super::check(text).is_ok(), wanted.is_ok(), "{text:?}");
        }
    }
}
