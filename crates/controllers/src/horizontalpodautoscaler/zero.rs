//! Targets without pods (`HPAScaleToZero`). An autoscaler takes a target up again that it took to zero itself. A target
//! that somebody else took to zero stays there.
//!
//! The condition `ScaledToZero` tells the two apart. It is written from Kubernetes 1.37 on.

use kubewright_objects::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition};

use super::Condition;

const AT_ZERO: &str = "ScaledToZero";

/// Whether it has a metric whose value does not depend on pods.
fn has_outside_metrics(scaler: &HorizontalPodAutoscaler) -> bool {
    let mut metrics = scaler.spec.metrics.iter().flatten();
    metrics.any(|metric| ["Object", "External"].contains(&metric.type_.as_str()))
}

/// Whether a target without pods is to be taken up again (`shouldComputeMetricsForZeroReplicas`).
pub(super) fn may_wake(scaler: &HorizontalPodAutoscaler, least: i32) -> bool {
    let status = scaler.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let is_own =
        |condition: &HorizontalPodAutoscalerCondition| condition.type_ == AT_ZERO && condition.status == "True";
    conditions.unwrap_or_default().iter().any(is_own) && (least != 0 || has_outside_metrics(scaler))
}

/// What is said of a new size.
pub(super) fn condition(scaler: &HorizontalPodAutoscaler, size: i32) -> Condition {
    let is_zero = size == 0 && has_outside_metrics(scaler);
    let (reason, did) = match is_zero {
        true => (AT_ZERO, "scaled"),
        false => ("NotScaledToZero", "did not scale"),
    };
    let message = format!("the HPA controller {did} the workload to zero");
    (AT_ZERO, is_zero, reason, message)
}
