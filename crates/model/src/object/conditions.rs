//! Conditions in a status, as the server itself writes them (`meta.SetStatusCondition` upstream).

use serde_json::{Map, Value, json};

/// Puts a condition in the place of the one of its type, or at the end. It comes with the time of now, and is as old as
/// its `status`: where that stays, so does `lastTransitionTime`.
pub fn set(status: &mut Map<String, Value>, mut condition: Value) {
    let list = status.entry("conditions").or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    let Some(known) = list.iter_mut().find(|known| known.get("type") == condition.get("type")) else {
        return list.push(condition);
    };
    if known.get("status") == condition.get("status") {
        condition["lastTransitionTime"] = known.get("lastTransitionTime").cloned().unwrap_or_default();
    }
    *known = condition;
}

/// Whether an object has this condition with the status `True`.
pub fn is_true(object: &Value, kind: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one.get("type") == Some(&json!(kind)) && one.get("status") == Some(&json!("True")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_as_old_as_its_status() {
        let condition = |status: &str, time: &str, message: &str| json!({"type": "Available", "status": status, "lastTransitionTime": time, "reason": "R", "message": message});
        let check = |before: Value, new: Value, expected: Value| {
            let mut status = Map::new();
            status.insert("conditions".to_owned(), before);
            set(&mut status, new);
            assert_eq!(status["conditions"], expected);
        };
        let (old, other) = (condition("False", "then", "a"), json!({"type": "Other"}));
        check(Value::Null, old.clone(), json!([old]));
        check(json!([other, old]), condition("False", "now", "a"), json!([other, old]));
        let changed = condition("False", "now", "b");
        check(
            json!([other, old]),
            changed,
            json!([other, condition("False", "then", "b")]),
        );
        let turned = condition("True", "now", "a");
        check(json!([old]), turned.clone(), json!([turned]));
        let mut none = Map::new();
        set(&mut none, old.clone());
        assert_eq!(none["conditions"], json!([old]));
    }
}
