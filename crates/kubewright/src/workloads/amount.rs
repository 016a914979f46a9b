//! Quantities as numbers: `500m` and `0.5` are the same, and `1Gi` is more than `1G`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::error::{Error, Result};

/// An amount of a resource: a [`Quantity`] that can be compared (`resource.Quantity.Cmp` of k8s.io/apimachinery).
///
/// It is exact to a billionth, as upstream's; finer amounts are rounded up.
///
/// ```
/// use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
/// use kubewright::workloads::Amount;
///
/// let of = |text: &str| Amount::of(&Quantity(text.to_owned()));
/// assert!(of("1Gi")? > of("1G")? && of("500m")? == of("0.5")?);
/// assert_eq!(of("1.5Gi")?.units(), 1_610_612_736);
/// assert_eq!(of("0.1")?.milli(), 100);
/// # Ok::<(), kubewright::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    /// Billionths.
    nano: i128,
}

const NANO: i128 = 1_000_000_000;

impl Amount {
    /// The amount that a quantity says.
    ///
    /// # Errors
    /// [`Error::Terminal`] for a text that is no quantity, or too large a one for any computer: only a change of the
    /// object cures it.
    pub fn of(quantity: &Quantity) -> Result<Amount> {
        let nano = nano(quantity.0.trim());
        nano.map(|nano| Amount { nano })
            .ok_or_else(|| Error::terminal(NoQuantity(quantity.0.clone())))
    }

    /// In whole units, such as bytes or processors, rounded up (`Quantity.Value`).
    pub fn units(self) -> i128 {
        up(self.nano, NANO)
    }

    /// In thousandths, rounded up (`Quantity.MilliValue`): processors are counted so.
    pub fn milli(self) -> i128 {
        up(self.nano, NANO / 1000)
    }

    /// Both together.
    #[must_use]
    pub fn saturating_add(self, other: Amount) -> Amount {
        Amount {
            nano: self.nano.saturating_add(other.nano),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a quantity such as \"500m\" or \"1.5Gi\"")]
struct NoQuantity(String);

/// Up, away from zero. Dividing such numbers is slow, so once.
fn up(amount: i128, part: i128) -> i128 {
    if part == 1 {
        return amount;
    }
    let whole = amount / part;
    let rest = i128::from(whole * part != amount);
    whole + rest * amount.signum()
}

fn nano(text: &str) -> Option<i128> {
    let digits = text.trim_start_matches(['+', '-']);
    if text.len() - digits.len() > 1 {
        return None;
    }
    let end = digits.find(|letter: char| !matches!(letter, '0'..='9' | '.'));
    let (number, suffix) = digits.split_at(end.unwrap_or(digits.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let all: i128 = match fraction {
        "" => whole.parse().ok()?,
        _ => format!("{whole}{fraction}").parse().ok()?,
    };
    let places = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let (numerator, denominator) = scale(suffix)?;
    let amount = all.checked_mul(numerator)?.checked_mul(NANO)?;
    let amount = up(amount, places.checked_mul(denominator)?);
    Some(if text.starts_with('-') { -amount } else { amount })
}

/// The factor of a suffix: a numerator and a denominator.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| 1024_i128.checked_pow(power).map(|factor| (factor, 1));
    let decimal = |power: u32| 10_i128.checked_pow(power).map(|factor| (factor, 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, NANO)),
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
        let check = |text: &str, expected: Option<(i128, i128)>| {
            let found = Amount::of(&Quantity(text.to_owned())).ok();
            let found = found.map(|amount| (amount.units(), amount.milli()));
            assert_eq!(found, expected, "{text}");
        };
        check("1", Some((1, 1000)));
        check("1k", Some((1000, 1_000_000)));
        check("100m", Some((1, 100)));
        check("0.5", Some((1, 500)));
        check(".5", Some((1, 500)));
        check("1.", Some((1, 1000)));
        check("1.50", Some((2, 1500)));
        check("1u", Some((1, 1)));
        check("0", Some((0, 0)));
        check("-2", Some((-2, -2000)));
        check("-1500m", Some((-2, -1500)));
        check("1Ki", Some((1024, 1_024_000)));
        check("1.5Gi", Some((1_610_612_736, 1_610_612_736_000)));
        check("2e3", Some((2000, 2_000_000)));
        check("2E", Some((2_000_000_000_000_000_000, 2_000_000_000_000_000_000_000)));
        check("5e-1", Some((1, 500)));
        check("1e-30", Some((1, 1)));
        for text in [
            "",
            "1x",
            "e3",
            ".",
            "1.2.3",
            "--1",
            "+-1",
            "1 Gi",
            "1e40",
            "1e999999999999",
        ] {
            check(text, None);
        }
        let error = Amount::of(&Quantity("1x".to_owned()))
            .expect_err("it is none")
            .to_string();
        assert!(error.contains("\"1x\" is not a quantity"), "{error}");
    }

    #[test]
    fn the_same_amount_is_written_in_many_ways() {
        let of = |text: &str| Amount::of(&Quantity(text.to_owned())).expect("a quantity");
        for same in [
            ["1", "1000m"],
            ["1Mi", "1024Ki"],
            ["1e3", "1k"],
            ["0.1", "100m"],
            ["1n", "0.000000001"],
            ["0.0000000001", "1n"],
        ] {
            assert_eq!(of(same[0]), of(same[1]), "{same:?}");
        }
        for (less, more) in [("1G", "1Gi"), ("999m", "1"), ("-1", "0"), ("1023Mi", "1Gi")] {
            assert!(of(less) < of(more), "{less} {more}");
        }
    }
}
