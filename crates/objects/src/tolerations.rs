//! Whether a toleration fits a taint (`Toleration.ToleratesTaint`).
//!
//! Pure. The operators `Gt` and `Lt` compare whole numbers (KEP-5471).

use crate::api::core::v1::{Taint, Toleration};

/// Whether one of the tolerations fits.
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| fits(toleration, taint))
}

/// The tolerations that fit these taints, one for each; none when a taint is not tolerated (`GetMatchingTolerations`).
pub fn of_all<'a>(taints: &[Taint], tolerations: &'a [Toleration]) -> Option<Vec<&'a Toleration>> {
    taints
        .iter()
        .map(|taint| tolerations.iter().find(|toleration| fits(toleration, taint)))
        .collect()
}

fn fits(toleration: &Toleration, taint: &Taint) -> bool {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (effect, key) = (some(&toleration.effect), some(&toleration.key));
    if effect.is_some_and(|effect| effect != taint.effect) || key.as_ref().is_some_and(|key| *key != taint.key) {
        return false;
    }
    let (wanted, value) = (some(&toleration.value), some(&taint.value));
    let numbers = || {
        Some((
            value.as_ref()?.parse::<i64>().ok()?,
            wanted.as_ref()?.parse::<i64>().ok()?,
        ))
    };
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        Some("Gt") => numbers().is_some_and(|(value, bound)| value > bound),
        Some("Lt") => numbers().is_some_and(|(value, bound)| value < bound),
        _ => key.is_some() && wanted == value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_tolerated() {
        let check = |toleration: Value, expected: bool| {
            let toleration: Toleration = serde_json::from_value(toleration).expect("a toleration");
            let taint = json!({ "key": "dedicated", "value": "5", "effect": "NoSchedule" });
            let taint: Taint = serde_json::from_value(taint).expect("a taint");
            assert_eq!(
                tolerates(std::slice::from_ref(&toleration), &taint),
                expected,
                "{toleration:?}"
            );
        };
        check(json!({ "operator": "Exists" }), true);
        check(
            json!({ "key": "dedicated", "operator": "Exists", "effect": "NoExecute" }),
            false,
        );
        check(json!({ "key": "dedicated", "value": "5" }), true);
        check(json!({ "key": "dedicated", "value": "6" }), false);
        check(json!({ "value": "5" }), false);
        check(json!({ "key": "dedicated", "operator": "Gt", "value": "4" }), true);
        check(json!({ "key": "dedicated", "operator": "Lt", "value": "4" }), false);
        check(json!({ "key": "dedicated", "operator": "Gt", "value": "four" }), false);
    }
}
