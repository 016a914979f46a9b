//! How fast an autoscaler may follow its metrics: stabilization, rates, bounds (`horizontal.go`).
//!
//! Pure. Earlier recommendations and changes are in [`Past`]; they are lost at a restart, as upstream.

use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};

/// `--horizontal-pod-autoscaler-downscale-stabilization`.
const STABILIZATION: i32 = 300;
/// The longest that the API takes for a window or a period.
const LONGEST: Duration = Duration::from_secs(3600);

/// The earlier recommendations and changes.
#[derive(Debug, Default)]
pub(super) struct Past {
    recommended: Vec<(Timestamp, i32)>,
    /// Positive ones up, negative ones down.
    changes: Vec<(Timestamp, i32)>,
}

/// The reason and the message of a condition.
pub(super) type Why = (&'static str, &'static str);

/// A recommendation after the rules of pace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Paced {
    pub(super) replicas: i32,
    pub(super) able: Why,
    pub(super) limited: (bool, Why),
}

fn within(now: Timestamp, time: Timestamp, seconds: i32) -> bool {
    let window = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    Duration::try_from(now.duration_since(time)).unwrap_or_default() < window
}

impl Past {
    /// The first recommendation is the present size.
    pub(super) fn begin(&mut self, now: Timestamp, current: i32) {
        if self.recommended.is_empty() {
            self.recommended.push((now, current));
        }
    }

    /// Remembers that the size was changed.
    pub(super) fn changed(&mut self, now: Timestamp, from: i32, to: i32) {
        self.changes.push((now, to.saturating_sub(from)));
    }

    fn forget(&mut self, now: Timestamp) {
        let is_young = |time: Timestamp| Duration::try_from(now.duration_since(time)).unwrap_or_default() <= LONGEST;
        self.recommended.retain(|(time, _)| is_young(*time));
        self.changes.retain(|(time, _)| is_young(*time));
    }

    /// The size at the beginning of a period.
    fn before(&self, now: Timestamp, current: i32, period: i32) -> i32 {
        let changes = self.changes.iter().filter(|(time, _)| within(now, *time, period));
        changes.fold(current, |size, (_, change)| size.saturating_sub(*change))
    }
}

/// Applies the rules of pace to the recommendation `wanted`, which is remembered.
pub(super) fn follow(
    past: &mut Past,
    now: Timestamp,
    (current, wanted): (i32, i32),
    (least, most): (i32, i32),
    behavior: Option<&HorizontalPodAutoscalerBehavior>,
) -> Paced {
    past.forget(now);
    let (up, down) = (
        behavior.and_then(|behavior| behavior.scale_up.as_ref()),
        behavior.and_then(|behavior| behavior.scale_down.as_ref()),
    );
    let window = |rules: Option<&HPAScalingRules>, usual: i32| {
        rules
            .and_then(|rules| rules.stabilization_window_seconds)
            .unwrap_or(usual)
    };
    let (up_window, down_window) = (window(up, 0), window(down, STABILIZATION));
    let recent = |seconds: i32| {
        let all = past
            .recommended
            .iter()
            .filter(move |(time, _)| within(now, *time, seconds));
        all.map(|(_, size)| *size)
    };
    let lowest = recent(up_window).min().unwrap_or(wanted).min(wanted);
    let highest = recent(down_window).max().unwrap_or(wanted).max(wanted);
    // Without a behaviour, only the way down is stabilized.
    let stable = match behavior {
        Some(_) => current.max(lowest).min(highest),
        None => highest,
    };
    past.recommended.push((now, wanted));
    let able = match () {
        () if stable == wanted => ("ReadyForNewScale", "recommended size matches current size"),
        () if behavior.is_some() && wanted >= current => (
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        ),
        () => (
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        ),
    };
    let (replicas, why) = bounded(
        past,
        now,
        (current, stable),
        (least, most),
        behavior.map(|_| (up, down)),
    );
    Paced {
        replicas,
        able,
        limited: (replicas != stable, why),
    }
}

/// The size that bounds and rates allow, and which of them it is.
fn bounded(
    past: &Past,
    now: Timestamp,
    (current, wanted): (i32, i32),
    (least, most): (i32, i32),
    rules: Option<(Option<&HPAScalingRules>, Option<&HPAScalingRules>)>,
) -> (i32, Why) {
    let fastest = match rules {
        None => current.saturating_mul(2).max(4),
        Some((up, _)) => rate(past, now, current, up, true).max(current),
    };
    let slowest = match rules {
        None => least,
        Some((_, down)) => rate(past, now, current, down, false).min(current),
    };
    if wanted > most.min(fastest) && (rules.is_none() || wanted > current) {
        return match most > fastest {
            true => (
                fastest,
                (
                    "ScaleUpLimit",
                    "the desired replica count is increasing faster than the maximum scale rate",
                ),
            ),
            false => (
                most,
                (
                    "TooManyReplicas",
                    "the desired replica count is more than the maximum replica count",
                ),
            ),
        };
    }
    if wanted < least.max(slowest) && (rules.is_none() || wanted < current) {
        return match least < slowest {
            true => (
                slowest,
                (
                    "ScaleDownLimit",
                    "the desired replica count is decreasing faster than the maximum scale rate",
                ),
            ),
            false => (
                least,
                (
                    "TooFewReplicas",
                    "the desired replica count is less than the minimum replica count",
                ),
            ),
        };
    }
    (
        wanted,
        ("DesiredWithinRange", "the desired count is within the acceptable range"),
    )
}

/// The furthest size that the policies of a direction allow now.
fn rate(past: &Past, now: Timestamp, current: i32, rules: Option<&HPAScalingRules>, is_up: bool) -> i32 {
    let select = rules.and_then(|rules| rules.select_policy.as_deref()).unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    // As the API server fills them in: 100 % or 4 pods in 15 seconds up, 100 % in 15 seconds down.
    let usual: &[(&str, i32, i32)] = if is_up {
        &[("Pods", 4, 15), ("Percent", 100, 15)]
    } else {
        &[("Percent", 100, 15)]
    };
    let said = rules
        .and_then(|rules| rules.policies.as_ref())
        .filter(|policies| !policies.is_empty());
    let policies: Vec<(&str, i32, i32)> = match said {
        Some(said) => said
            .iter()
            .map(|one| (one.type_.as_str(), one.value, one.period_seconds))
            .collect(),
        None => usual.to_vec(),
    };
    let sizes = policies.into_iter().map(|(kind, value, period)| {
        let start = past.before(now, current, period);
        let (start, value) = (i64::from(start), i64::from(value));
        let size = match (kind, is_up) {
            ("Pods", true) => start.saturating_add(value),
            ("Pods", false) => start.saturating_sub(value),
            // Rounded up, so that a small share still is one.
            (_, true) => start.saturating_mul(value.saturating_add(100)).saturating_add(99) / 100,
            (_, false) => start.saturating_mul(100_i64.saturating_sub(value)) / 100,
        };
        i32::try_from(size.max(0)).unwrap_or(i32::MAX)
    });
    let furthest = (select == "Max") == is_up;
    let size = if furthest { sizes.max() } else { sizes.min() };
    size.unwrap_or(current)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Each step: the second, the recommendation, and the size and reasons that follow. The size that follows is set.
    fn check(behavior: Value, start: i32, steps: &[(i64, i32, i32, &str, &str)]) {
        let behavior: Option<HorizontalPodAutoscalerBehavior> = serde_json::from_value(behavior).expect("a behavior");
        let mut past = Past::default();
        let mut current = start;
        for (second, wanted, size, able, limited) in steps {
            let now = Timestamp::from_second(*second).expect("small");
            past.begin(now, current);
            let paced = follow(&mut past, now, (current, *wanted), (1, 20), behavior.as_ref());
            let found = (paced.replicas, paced.able.0, paced.limited.1.0);
            assert_eq!(found, (*size, *able, *limited), "{behavior:?} at {second}");
            if paced.replicas != current {
                past.changed(now, current, paced.replicas);
                current = paced.replicas;
            }
        }
    }

    #[test]
    fn paces() {
        const FREE: &str = "ReadyForNewScale";
        const DOWN: &str = "ScaleDownStabilized";
        const FITS: &str = "DesiredWithinRange";
        check(
            json!(null),
            3,
            &[
                (0, 9, 6, FREE, "ScaleUpLimit"),
                (15, 9, 9, FREE, FITS),
                (30, 99, 18, FREE, "ScaleUpLimit"),
                (45, 99, 20, FREE, "TooManyReplicas"),
                (60, 2, 20, DOWN, "TooManyReplicas"),
                (344, 2, 20, DOWN, "TooManyReplicas"),
                (400, 0, 2, DOWN, FITS),
                (800, 0, 1, FREE, "TooFewReplicas"),
            ],
        );
        let slowly = json!({
            "scaleUp": { "stabilizationWindowSeconds": 60, "policies": [{ "type": "Pods", "value": 2, "periodSeconds": 60 }] },
            "scaleDown": { "stabilizationWindowSeconds": 0, "policies": [{ "type": "Percent", "value": 50, "periodSeconds": 60 }] },
        });
        check(
            slowly,
            4,
            &[
                (0, 9, 4, "ScaleUpStabilized", FITS),
                (61, 9, 6, FREE, "ScaleUpLimit"),
                (75, 9, 6, FREE, "ScaleUpLimit"),
                (122, 9, 8, FREE, "ScaleUpLimit"),
                (200, 1, 4, FREE, "ScaleDownLimit"),
                (215, 1, 4, FREE, "ScaleDownLimit"),
                (261, 1, 2, FREE, "ScaleDownLimit"),
            ],
        );
        let never = json!({ "scaleDown": { "selectPolicy": "Disabled", "stabilizationWindowSeconds": 0 } });
        check(never, 4, &[(0, 1, 4, FREE, "ScaleDownLimit"), (15, 6, 6, FREE, FITS)]);
    }
}
