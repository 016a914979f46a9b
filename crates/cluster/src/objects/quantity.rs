//! Amounts of resources, as numbers that can be added and compared.
//!
//! Pure. In thousandths, rounded up: the scheduler counts cpu so, and nothing is counted finer (`Quantity.MilliValue`).
//! The API server has validated stored quantities; a text that cannot be read all the same is no amount.

use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The amount in thousandths, as far as it fits.
pub(crate) fn milli(quantity: &Quantity) -> Option<i128> {
    let text = quantity.0.trim();
    let end = text
        .find(|letter: char| !matches!(letter, '0'..='9' | '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (numerator, denominator) = scale(suffix)?;
    let negative = number.starts_with('-');
    let digits = number.trim_start_matches(['+', '-']);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let all: i128 = format!("{whole}{fraction}").parse().ok()?;
    let places = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let above = all.checked_mul(numerator)?.checked_mul(1000)?;
    let below = places.checked_mul(denominator)?;
    // Up, away from zero.
    let value = above.checked_add(below.checked_sub(1)?)?.checked_div(below)?;
    Some(if negative { -value } else { value })
}

/// The factor of a suffix: a numerator and a denominator.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| 1024_i128.checked_pow(power).map(|factor| (factor, 1));
    let decimal = |power: u32| 10_i128.checked_pow(power).map(|factor| (factor, 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => match exponent.strip_prefix(['e', 'E'])?.parse::<i32>().ok()? {
            power @ 0.. => decimal(power.unsigned_abs()),
            power => Some((1, 10_i128.checked_pow(power.unsigned_abs())?)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        let check =
            |text: &str, expected: Option<i128>| assert_eq!(milli(&Quantity(text.to_owned())), expected, "{text}");
        check("1", Some(1000));
        check("1k", Some(1_000_000));
        check("100m", Some(100));
        check("0.5", Some(500));
        check(".5", Some(500));
        check("1.", Some(1000));
        check("1u", Some(1));
        check("-2", Some(-2000));
        check("1Ki", Some(1_024_000));
        check("1.5Gi", Some(1_610_612_736_000));
        check("2e3", Some(2_000_000));
        check("2E", Some(2_000_000_000_000_000_000_000));
        check("5e-1", Some(500));
        check("", None);
        check("1x", None);
        check("e3", None);
    }
}
