//! Durations as Go reads them.

/// Whether this is a duration in Go's form, such as `1h30m` (`time.ParseDuration`).
///
/// # Errors
/// Go's error about the text.
pub fn check(text: &str) -> Result<(), String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
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
        match unit {
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => rest = next,
            _ => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_go_takes() {
        for (text, wanted) in [
            ("0", Ok(())),
            ("-1h30m", Ok(())),
            ("1.5s", Ok(())),
            ("", Err("time: invalid duration \"\"")),
            ("1.5.5s", Err("time: invalid duration \"1.5.5s\"")),
            ("5", Err("time: missing unit in duration \"5\"")),
            ("5x", Err("time: unknown unit \"x\" in duration \"5x\"")),
        ] {
            assert_eq!(super::check(text), wanted.map_err(str::to_owned), "{text}");
        }
    }
}
