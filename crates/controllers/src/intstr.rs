//! Numbers that may be percentages (`intstr.GetScaledValueFromIntOrPercent`).
//!
//! Pure. Invariant: a value that cannot be read counts as 0; the API server has refused it before.

use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A number, or a percentage of `total`. The API server has validated it; a value that cannot be read all the same
/// counts as 0.
pub(crate) fn resolve(value: &IntOrString, total: i32, round_up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => (*number).max(0),
        IntOrString::String(text) => {
            let percent = text
                .strip_suffix('%')
                .and_then(|digits| digits.parse::<i64>().ok())
                .unwrap_or(0)
                .max(0);
            let scaled = percent.saturating_mul(i64::from(total));
            let rounded = if round_up {
                scaled.saturating_add(99) / 100
            } else {
                scaled / 100
            };
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_percentages() {
        let check = |value: IntOrString, total, up, down| {
            assert_eq!(
                (resolve(&value, total, true), resolve(&value, total, false)),
                (up, down),
                "{value:?} of {total}"
            );
        };
        check(IntOrString::Int(3), 10, 3, 3);
        check(IntOrString::Int(-3), 10, 0, 0);
        check(IntOrString::String("25%".to_owned()), 10, 3, 2);
        check(IntOrString::String("100%".to_owned()), 10, 10, 10);
        check(IntOrString::String("nonsense".to_owned()), 10, 0, 0);
    }
}
