//! Helpers for workloads that many operators need: whether a Pod is ready, what a percentage amounts to, which quantity
//! is larger.
//!
//! Not here: conditions of your own kinds, see [`conditions`](crate::conditions).

mod amount;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::error::{Error, Result};

pub use amount::Amount;

/// Whether a Pod is ready: its condition `Ready` is `True` (`IsPodReady` of kubernetes/pkg/api/v1/pod). A Pod that is
/// being deleted may still be.
///
/// ```
/// use kubewright::k8s_openapi::api::core::v1::Pod;
/// use kubewright::workloads::is_pod_ready;
///
/// assert!(!is_pod_ready(&Pod::default()));
/// ```
pub fn is_pod_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}

/// Where a percentage falls between two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// To the smaller number, as `maxUnavailable` of a Deployment.
    Down,
    /// To the greater number, as `maxSurge` of a Deployment.
    Up,
}

/// The value of a number or a percentage such as `25%` of a total (`GetScaledValueFromIntOrPercent` of
/// k8s.io/apimachinery). A number is itself, for any total. More than 100 % is allowed; a result beyond an `i32` is
/// `i32::MAX`.
///
/// ```
/// use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
/// use kubewright::workloads::{Rounding, scaled};
///
/// let quarter = IntOrString::String("25%".to_owned());
/// assert_eq!(scaled(&quarter, 10, Rounding::Down)?, 2);
/// assert_eq!(scaled(&quarter, 10, Rounding::Up)?, 3);
/// # Ok::<(), kubewright::Error>(())
/// ```
///
/// # Errors
/// [`Error::Terminal`] for a text that is no percentage: only a change of the object cures it.
pub fn scaled(value: &IntOrString, total: i32, rounding: Rounding) -> Result<i32> {
    let text = match value {
        IntOrString::Int(number) => return Ok(*number),
        IntOrString::String(text) => text,
    };
    let percent = text
        .strip_suffix('%')
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse::<i32>().ok())
        .ok_or_else(|| Error::terminal(NoPercentage(text.clone())))?;
    let product = i64::from(percent) * i64::from(total);
    let floor = product.div_euclid(100);
    let rest = i64::from(rounding == Rounding::Up && product.rem_euclid(100) > 0);
    Ok(i32::try_from(floor + rest).unwrap_or(i32::MAX))
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is neither a number nor a percentage such as \"25%\"")]
struct NoPercentage(String);

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{PodCondition, PodStatus};

    #[test]
    fn a_pod_is_ready_when_its_condition_says_so() {
        let check = |conditions: &[(&str, &str)], expected: bool| {
            let conditions = conditions
                .iter()
                .map(|(type_, status)| PodCondition {
                    type_: (*type_).to_owned(),
                    status: (*status).to_owned(),
                    ..PodCondition::default()
                })
                .collect();
            let status = PodStatus {
                conditions: Some(conditions),
                ..PodStatus::default()
            };
            let pod = Pod {
                status: Some(status),
                ..Pod::default()
            };
            assert_eq!(is_pod_ready(&pod), expected, "{pod:?}");
        };
        check(&[], false);
        check(&[("Ready", "True")], true);
        check(&[("Ready", "Unknown")], false);
        check(&[("ContainersReady", "True"), ("Ready", "False")], false);
    }

    #[test]
    fn percentages_are_rounded_as_asked() {
        let check = |text: &str, total: i32, expected: Option<(i32, i32)>| {
            let value = match text.parse() {
                Ok(number) => IntOrString::Int(number),
                Err(_) => IntOrString::String(text.to_owned()),
            };
            let both =
                scaled(&value, total, Rounding::Down).and_then(|down| Ok((down, scaled(&value, total, Rounding::Up)?)));
            assert_eq!(both.ok(), expected, "{text} of {total}");
        };
        check("3", 10, Some((3, 3)));
        check("-1", 10, Some((-1, -1)));
        check("25%", 10, Some((2, 3)));
        check("50%", 10, Some((5, 5)));
        check("0%", 10, Some((0, 0)));
        check("150%", 3, Some((4, 5)));
        check("2147483647%", i32::MAX, Some((i32::MAX, i32::MAX)));
        for text in ["", "%", "25", "-5%", "2.5%", "25%%", "99999999999%", "many"] {
            let wrong = scaled(&IntOrString::String(text.to_owned()), 10, Rounding::Up);
            assert!(matches!(wrong, Err(Error::Terminal(_))), "{text:?}: {wrong:?}");
        }
    }
}
