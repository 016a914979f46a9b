//! Numbers of different types: their order, and how Go prints them.

use std::cmp::Ordering;

/// A number of any type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    /// `int` or `uint`
    Whole(i128),
    /// `double`
    Double(f64),
}

impl Number {
    /// The order as operators see it: an integer that is compared with a double becomes one.
    #[allow(clippy::cast_precision_loss, reason = "as cel-go compares")]
    pub(crate) fn approximate_order(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(a), Self::Double(b)) => (a as f64).partial_cmp(&b),
            (Self::Double(a), Self::Whole(b)) => a.partial_cmp(&(b as f64)),
            (a, b) => a.compare(b),
        }
    }

    /// The order by mathematical value, which tells keys of maps apart; none when one is not a number.
    pub(crate) fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => Some(a.cmp(&b)),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(&b),
            (Self::Whole(a), Self::Double(b)) => compare(a, b),
            (Self::Double(a), Self::Whole(b)) => compare(b, a).map(Ordering::reverse),
        }
    }
}

/// Exact: neither the integer loses digits nor the double its fraction.
fn compare(whole: i128, double: f64) -> Option<Ordering> {
    // Beyond these bounds no 64 bit integer follows.
    const BOUND: f64 = 18_446_744_073_709_551_616.0;
    if double.is_nan() {
        return None;
    }
    if double >= BOUND {
        return Some(Ordering::Less);
    }
    if double <= -BOUND {
        return Some(Ordering::Greater);
    }
    #[allow(clippy::cast_possible_truncation, reason = "within 65 bits by the bounds above")]
    let floor = double.floor() as i128;
    let by_floor = whole.cmp(&floor);
    Some(if by_floor == Ordering::Equal && double > double.floor() {
        Ordering::Less
    } else {
        by_floor
    })
}

/// `%g` and `%v`: the fewest digits that read back the same, with an exponent below 1e-4 and from 1e6 on.
pub(crate) fn print(double: f64) -> String {
    if let Some(text) = not_finite(double) {
        return text.into();
    }
    let scientific = format!("{double:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the format writes an exponent");
    let exponent: i32 = exponent.parse().expect("the format writes a number");
    if (-4..6).contains(&exponent) {
        return format!("{double}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `NaN`, `+Inf` and `-Inf`.
pub(crate) fn not_finite(double: f64) -> Option<&'static str> {
    if double.is_nan() {
        Some("NaN")
    } else if double.is_infinite() {
        Some(if double > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        None
    }
}
