//! Amounts of resources, such as `100m` CPU or `1.5Gi` of memory (`resource.Quantity`).
//!
//! A quantity is exact: a whole mantissa times a power of ten. It remembers in which family of suffixes it was written,
//! and prints in Kubernetes' canonical form: no fraction, the largest suffix that loses nothing, an exponent that is a
//! multiple of three.
//!
//! Invariants: nothing finer than a nano unit (`n`) exists, a finer amount is rounded away from zero; an amount of more
//! than 18 digits is capped at 2⁶³-1, as Kubernetes does; equal amounts are equal in any notation.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::Sum;
use std::ops::{Add, Neg, Sub};
use std::str::FromStr;

/// Numbers of so few digits are kept as they are, with any exponent (`maxInt64Factors`).
const EXACT_DIGITS: usize = 18;
const NANO: i32 = -9;
const CAP: i128 = i64::MAX as i128;
const NANOS: i128 = 1_000_000_000;

/// The family of suffixes in which a quantity was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `1e3`: powers of ten.
    DecimalExponent,
    /// `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`: powers of 1000.
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`: powers of 1024.
    BinarySi,
}

/// Why a text is no quantity, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not look like a quantity.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix is not one of the known ones.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// The number before the suffix is none.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
}

/// An exact amount of a resource.
///
/// ```
/// use kubewright_values::quantity::Quantity;
/// let half: Quantity = "0.5".parse()?;
/// assert_eq!(half.to_string(), "500m");
/// assert_eq!((half.clone() + half).to_string(), "1");
/// assert!("1Gi".parse::<Quantity>()? > "1G".parse()?);
/// # Ok::<(), kubewright_values::quantity::QuantityError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Quantity {
    /// Not divisible by ten unless it is zero, and zero has the exponent zero.
    mantissa: i128,
    exponent: i32,
    format: Format,
}

impl Quantity {
    /// `mantissa` times ten to the power of `exponent`, to be printed in the given family of suffixes.
    pub fn new(mantissa: i128, exponent: i32, format: Format) -> Self {
        let (mut mantissa, mut exponent) = (mantissa, exponent);
        // Nano is the finest unit there is.
        if exponent < NANO {
            mantissa = match power_of_ten(i64::from(NANO) - i64::from(exponent)) {
                Some(divisor) => mantissa / divisor + (mantissa % divisor).signum(),
                None => mantissa.signum(),
            };
            exponent = NANO;
        }
        while mantissa != 0 && mantissa % 10 == 0 && exponent < i32::MAX {
            mantissa /= 10;
            exponent += 1;
        }
        if mantissa == 0 {
            exponent = 0;
        }
        Self {
            mantissa,
            exponent,
            format,
        }
    }

    /// Whether it is nothing at all.
    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        match self.mantissa.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// The family of suffixes in which it was written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The amount in whole units, rounded away from zero (`Value`); at most the largest `i128`.
    pub fn value(&self) -> i128 {
        self.scaled(0)
    }

    /// The amount in thousandths, rounded away from zero (`MilliValue`); at most the largest `i128`.
    pub fn milli_value(&self) -> i128 {
        self.scaled(-3)
    }

    /// The amount as a double, as near as one comes (`AsApproximateFloat64`).
    #[allow(clippy::cast_precision_loss, reason = "an approximation is what is asked for")]
    pub fn approximate(&self) -> f64 {
        self.mantissa as f64 * 10_f64.powi(self.exponent)
    }

    /// The amount in units of ten to the power of `scale`, rounded away from zero.
    fn scaled(&self, scale: i32) -> i128 {
        let shift = i64::from(self.exponent) - i64::from(scale);
        if shift >= 0 {
            let limit = if self.mantissa < 0 { i128::MIN } else { i128::MAX };
            return power_of_ten(shift)
                .and_then(|factor| self.mantissa.checked_mul(factor))
                .unwrap_or(limit);
        }
        match power_of_ten(-shift) {
            Some(divisor) => self.mantissa / divisor + (self.mantissa % divisor).signum(),
            None => self.mantissa.signum(),
        }
    }

    /// The whole units, if there are no fractions.
    fn whole(&self) -> Option<i128> {
        if self.exponent < 0 {
            return None;
        }
        power_of_ten(i64::from(self.exponent)).and_then(|factor| self.mantissa.checked_mul(factor))
    }

    /// How many digits stand before the point: tells apart numbers that no integer type holds.
    fn magnitude(&self) -> i64 {
        i64::from(self.exponent) + self.mantissa.unsigned_abs().checked_ilog10().map_or(0, i64::from)
    }
}

fn power_of_ten(exponent: i64) -> Option<i128> {
    u32::try_from(exponent)
        .ok()
        .and_then(|exponent| 10_i128.checked_pow(exponent))
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_sign = self.sign().cmp(&other.sign());
        if by_sign != Ordering::Equal || self.is_zero() {
            return by_sign;
        }
        let by_size = self.magnitude().cmp(&other.magnitude()).then_with(|| {
            // The same number of digits before the point: brought to the smaller exponent both have at most 39 digits.
            let exponent = self.exponent.min(other.exponent);
            let digits = |quantity: &Self| {
                let factor = power_of_ten(i64::from(quantity.exponent) - i64::from(exponent));
                factor.and_then(|factor| quantity.mantissa.unsigned_abs().checked_mul(factor.unsigned_abs()))
            };
            match (digits(self), digits(other)) {
                (Some(left), Some(right)) => left.cmp(&right),
                // Only the one with the larger exponent is scaled, so only it can exceed 128 bits.
                (None, _) => Ordering::Greater,
                (_, None) => Ordering::Less,
            }
        });
        if self.sign() < 0 { by_size.reverse() } else { by_size }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        (self.mantissa, self.exponent) == (other.mantissa, other.exponent)
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.mantissa, self.exponent).hash(state);
    }
}

impl Add for Quantity {
    type Output = Self;

    /// Exact up to 38 digits. Where the sum has more, the smaller of the two no longer counts.
    fn add(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        let exponent = self.exponent.min(other.exponent);
        let aligned = |quantity: &Self| {
            power_of_ten(i64::from(quantity.exponent) - i64::from(exponent))
                .and_then(|factor| quantity.mantissa.checked_mul(factor))
        };
        match (aligned(&self), aligned(&other)) {
            (Some(left), Some(right)) if left.checked_add(right).is_some() => Self::new(left + right, exponent, format),
            _ if self.magnitude() >= other.magnitude() => Self { format, ..self },
            _ => Self { format, ..other },
        }
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            mantissa: self.mantissa.saturating_neg(),
            ..self
        }
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
        quantities.fold(Self::new(0, 0, Format::DecimalSi), Add::add)
    }
}

/// `E`, in steps of three digits.
const LARGEST: i32 = 6;
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi
            && let Some(whole) = self.whole().filter(|whole| whole.unsigned_abs() >= 1024)
        {
            return binary(f, whole);
        }
        // The exponent is a multiple of three: 10k, not 1e4.
        let steps = self.exponent.div_euclid(3);
        let zeros = |count: i32| &"000000000"[..usize::try_from(count).expect("zeros are counted up to eight")];
        let (mantissa, rest) = (self.mantissa, zeros(self.exponent.rem_euclid(3)));
        // Somewhat beyond the largest suffix the zeros stand before it; far beyond it only an exponent can be read.
        let suffix = steps.min(LARGEST);
        if self.format == Format::DecimalExponent || steps - suffix > 2 {
            return if steps == 0 {
                write!(f, "{mantissa}{rest}")
            } else {
                write!(f, "{mantissa}{rest}e{}", steps * 3)
            };
        }
        let more = zeros((steps - suffix) * 3);
        write!(
            f,
            "{mantissa}{rest}{more}{}",
            DECIMAL[usize::try_from(suffix + 3).expect("nano is the finest unit")]
        )
    }
}

fn binary(f: &mut fmt::Formatter<'_>, mut whole: i128) -> fmt::Result {
    let mut suffix = 0;
    while whole % 1024 == 0 && suffix + 1 < BINARY.len() {
        whole /= 1024;
        suffix += 1;
    }
    write!(f, "{whole}{}", BINARY[suffix])
}

/// The parts of a written quantity; the digits before the point come without leading zeros.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, rest) = digits(rest);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(if text.contains('.') && suffix.is_empty() {
            QuantityError::Numeric
        } else {
            QuantityError::Format
        });
    }
    let letters = suffix.trim_start_matches(|letter: char| "eEinumkKMGTP".contains(letter));
    let exponent = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    Ok(Parts {
        negative,
        whole: whole.trim_start_matches('0'),
        fraction,
        suffix,
    })
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// The format of a suffix with its power: of 1024 for `BinarySi`, of ten otherwise.
fn interpret(suffix: &str) -> Option<(Format, i32)> {
    let position = |suffixes: &[&str]| {
        suffixes
            .iter()
            .position(|known| *known == suffix)
            .and_then(|at| i32::try_from(at).ok())
    };
    if let Some(at) = position(&DECIMAL) {
        return Some((Format::DecimalSi, (at - 3) * 3));
    }
    if let Some(at) = position(&BINARY) {
        return Some((Format::BinarySi, at));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    exponent
        .parse()
        .ok()
        .map(|exponent| (Format::DecimalExponent, exponent))
}

impl FromStr for Quantity {
    type Err = QuantityError;

    /// Reads the texts that Kubernetes reads (`ParseQuantity`).
    ///
    /// # Errors
    /// [`QuantityError`], with the text of the API server.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let parts = split(text)?;
        let (format, power) = interpret(parts.suffix).ok_or(QuantityError::Suffix)?;
        let (mantissa, exponent) = match format {
            Format::BinarySi => (from_binary(&parts, power), NANO),
            Format::DecimalSi | Format::DecimalExponent => from_decimal(&parts, power),
        };
        let below_one = exponent == NANO && mantissa < NANOS;
        let format = if format == Format::BinarySi && below_one && mantissa > 0 {
            Format::DecimalSi
        } else {
            format
        };
        Ok(Self::new(
            if parts.negative { -mantissa } else { mantissa },
            exponent,
            format,
        ))
    }
}

/// Mantissa and power of ten of a decimal number.
fn from_decimal(parts: &Parts<'_>, power: i32) -> (i128, i32) {
    let written = [parts.whole, parts.fraction].concat();
    let exponent = i64::from(power) - i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX);
    if let Ok(exponent) = i32::try_from(exponent)
        && written.len() <= EXACT_DIGITS
        && exponent >= NANO
    {
        return (number(&written), exponent);
    }
    // Too long to be kept as it is: counted in nano units, rounded up, capped.
    let written = written.trim_start_matches('0');
    if written.is_empty() {
        return (0, 0);
    }
    let shift = exponent.saturating_sub(i64::from(NANO));
    let kept = i64::try_from(written.len()).unwrap_or(i64::MAX).saturating_add(shift);
    if kept > 28 {
        return (CAP, 0);
    }
    let kept = usize::try_from(kept).unwrap_or(0);
    let nanos = if shift >= 0 {
        number(written) * power_of_ten(shift).expect("at most 28 digits are kept")
    } else {
        number(&written[..kept]) + i128::from(written.bytes().skip(kept).any(|digit| digit != b'0'))
    };
    capped(nanos)
}

/// The nano units of a number times a power of 1024.
fn from_binary(parts: &Parts<'_>, power: i32) -> i128 {
    let factor = 1024_i128.pow(power.unsigned_abs());
    let most = CAP * NANOS;
    // Digit by digit from the right. Rounding down at each step is rounding down once, and any remainder says that a
    // unit is missing.
    let (mut nanos, mut remainder) = (0, false);
    for digit in parts.fraction.bytes().rev() {
        let sum = nanos + i128::from(digit - b'0') * factor * NANOS;
        remainder |= sum % 10 != 0;
        nanos = sum / 10;
    }
    nanos += i128::from(remainder);
    if parts.whole.len() > 20 {
        return most;
    }
    let whole = number(parts.whole).checked_mul(factor).filter(|whole| *whole <= CAP);
    whole.map_or(most, |whole| (whole * NANOS + nanos).min(most))
}

fn capped(nanos: i128) -> (i128, i32) {
    if nanos > CAP * NANOS { (CAP, 0) } else { (nanos, NANO) }
}

/// The number of at most 38 digits; none is zero.
fn number(digits: &str) -> i128 {
    digits
        .bytes()
        .fold(0, |number, digit| number * 10 + i128::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn canonical_forms() {
        let check = |text: &str, canonical: &str| assert_eq!(quantity(text).to_string(), canonical, "{text}");
        for (text, canonical) in [
            ("0", "0"),
            ("0Ki", "0"),
            ("-0", "0"),
            ("1", "1"),
            ("+1", "1"),
            ("007", "7"),
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1000", "1k"),
            ("10000", "10k"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("0.5Gi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("1023Ki", "1023Ki"),
            ("512Ki", "512Ki"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("0.1Ki", "102400m"),
            ("0.001Ki", "1024m"),
            ("0.0001Ki", "102400u"),
            ("1025Ki", "1025Ki"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e4", "120e3"),
            ("1e-3", "1e-3"),
            ("1E", "1E"),
            ("1e100", "10e99"),
            ("100E", "100E"),
            ("5000E", "5000E"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("1e-10", "1e-9"),
            ("1.0000000001", "1000000001n"),
            ("-1.0000000001", "-1000000001n"),
            ("-1Ki", "-1Ki"),
            ("-100m", "-100m"),
            ("100Mi", "100Mi"),
            ("128974848", "128974848"),
            ("129e6", "129e6"),
            ("129M", "129M"),
            ("123Mi", "123Mi"),
            ("9223372036854775807", "9223372036854775807"),
            ("92233720368547758070000", "9223372036854775807"),
            ("16Ei", "9223372036854775807"),
            ("99999999999999999999999999999999999999999Ki", "9223372036854775807"),
        ] {
            check(text, canonical);
        }
    }

    #[test]
    fn what_is_no_quantity() {
        let check = |text: &str, error: QuantityError| assert_eq!(text.parse::<Quantity>(), Err(error), "{text:?}");
        for text in [
            "", "aoeu", "1.1.M", "1+1.0M", "0.1mi3x", "Ki", "-", "1 ", "1KI", "one", "٣",
        ] {
            check(text, QuantityError::Format);
        }
        for text in ["1i", ".5i", "0.1mi", "-3.01e-", "1e", "1Kie", "1K", "1m5"] {
            check(text, QuantityError::Suffix);
        }
        check(".", QuantityError::Numeric);
    }

    #[test]
    fn values_round_away_from_zero() {
        let check = |text: &str, value: i128, milli: i128| {
            let quantity = quantity(text);
            assert_eq!((quantity.value(), quantity.milli_value()), (value, milli), "{text}");
        };
        check("1", 1, 1000);
        check("100m", 1, 100);
        check("-100m", -1, -100);
        check("1500m", 2, 1500);
        check("1u", 1, 1);
        check("1Gi", 1 << 30, 1000 << 30);
        check("1e100", i128::MAX, i128::MAX);
        check("-1e100", i128::MIN, i128::MIN);
    }

    fn any() -> impl Strategy<Value = Quantity> {
        let format = prop_oneof![
            Just(Format::DecimalSi),
            Just(Format::BinarySi),
            Just(Format::DecimalExponent)
        ];
        (-1_000_000_000_000_i128..1_000_000_000_000, -9..10, format)
            .prop_map(|(mantissa, exponent, format)| Quantity::new(mantissa, exponent, format))
    }

    proptest! {
        #[test]
        fn the_canonical_form_reads_back(quantity in any()) {
            let text = quantity.to_string();
            let back: Quantity = text.parse().unwrap();
            // Amounts that Kubernetes itself cannot read back are capped: whole binary amounts of more than 2⁶³-1.
            prop_assume!(quantity.value().abs() <= CAP);
            prop_assert_eq!(&back, &quantity, "{}", text);
            // `10000` may have been written in binary units, and does not say so.
            if back.format() == quantity.format() {
                prop_assert_eq!(back.to_string(), text);
            }
        }

        #[test]
        fn order_and_sums_are_those_of_the_numbers(left in any(), right in any()) {
            let nanos = |quantity: &Quantity| quantity.scaled(NANO);
            prop_assert_eq!(left.cmp(&right), nanos(&left).cmp(&nanos(&right)));
            prop_assert_eq!(nanos(&(left.clone() + right.clone())), nanos(&left) + nanos(&right));
            prop_assert_eq!(nanos(&(left.clone() - right.clone())), nanos(&left) - nanos(&right));
            prop_assert_eq!(left == right, left.cmp(&right) == Ordering::Equal);
        }

        #[test]
        fn no_text_panics(text in "[-+]?[0-9.]{0,45}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,12}") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                let _ = (quantity.to_string(), quantity.value(), quantity.milli_value(), quantity.clone() + quantity);
            }
        }
    }
}
