//! Conditions in a status, as the API conventions require: one of each type, with the time of its last transition and
//! the observed generation (`k8s.io/apimachinery/pkg/api/meta`, `SetStatusCondition` and related functions).
//!
//! [`Context::condition`] makes a condition, [`Context::condition_of`] one of a result, [`set`] adds or replaces it.
//! [`Context::status`] keeps the times of conditions by itself.
//!
//! ```
//! use kubewright::conditions;
//! use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
//! use kubewright::{Context, Object};
//!
//! /// To be called in `ctx.patch_status(…)`.
//! fn tell<K: Object>(ctx: &Context, shop: &K, conditions: &mut Vec<Condition>, open: bool) {
//!     conditions::set(conditions, ctx.condition(shop, "Open", open, "DoorsUnlocked", "come in"));
//! }
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::context::Context;
use crate::error::{Result, text_of};
use crate::object::{Given, Object};

/// Puts a condition in the place of the one of its type, or at the end. `lastTransitionTime` changes when the status
/// does, and only then. Answers whether anything changed.
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition) -> bool {
    let Some(present) = conditions.iter_mut().find(|present| present.type_ == condition.type_) else {
        conditions.push(condition);
        return true;
    };
    if present.status == condition.status {
        condition.last_transition_time = present.last_transition_time.clone();
    }
    let changed = *present != condition;
    *present = condition;
    changed
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of a type is there and `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// Removes the condition of a type. Answers whether there was one.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() < before
}

impl Context {
    /// A condition about the object's present generation, since now. `status`: `true`, `false`, or `None` for
    /// `Unknown`. `reason` is one word in CamelCase, `message` a sentence for people.
    pub fn condition<'a, K: Object>(
        &self,
        object: impl Given<'a, K>,
        type_: &str,
        status: impl Into<Option<bool>>,
        reason: &str,
        message: impl Into<String>,
    ) -> Condition {
        let status = match status.into() {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            observed_generation: object.given().meta().generation,
            last_transition_time: Time(self.now()),
        }
    }

    /// The condition that a result means: `True` with this reason when it is good, else `False` with the error's
    /// [reason](crate::Error::reason) and its text, so that `kubectl describe` shows what operators' logs say.
    ///
    /// ```
    /// # use kubewright::k8s_openapi::api::core::v1::Service;
    /// # use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    /// # use kubewright::{Context, Object, Result, conditions};
    /// async fn told<K: Object>(ctx: &Context, shop: &K, conditions: &mut Vec<Condition>) -> Result<()> {
    ///     let exposed = ctx.client().get::<Service>("default", "shop").await.map(drop);
    ///     conditions::set(conditions, ctx.condition_of(shop, "Exposed", &exposed, "ServiceFound"));
    ///     exposed // the error still decides when the reconcile runs again
    /// }
    /// ```
    pub fn condition_of<'a, K: Object, T>(
        &self,
        object: impl Given<'a, K>,
        type_: &str,
        result: &Result<T>,
        reason: &str,
    ) -> Condition {
        match result {
            Ok(_) => self.condition(object, type_, true, reason, ""),
            Err(error) => self.condition(object, type_, false, error.reason(), text_of(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(type_: &str, status: &str, message: &str, second: i64) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(jiff::Timestamp::from_second(second).expect("a time")),
            reason: "Because".to_owned(),
            observed_generation: None,
        }
    }

    #[test]
    fn the_time_of_a_transition_is_kept_until_the_next() {
        let mut conditions = Vec::new();
        let mut check = |new: Condition, changed: bool, since: i64| {
            let type_ = new.type_.clone();
            assert_eq!(set(&mut conditions, new.clone()), changed, "{new:?}");
            let found = find(&conditions, &type_).expect("it was set");
            assert_eq!(found.last_transition_time.0.as_second(), since, "{new:?}");
        };
        check(condition("Ready", "False", "a", 1), true, 1);
        check(condition("Ready", "False", "a", 2), false, 1);
        check(condition("Ready", "False", "b", 3), true, 1);
        check(condition("Open", "True", "", 4), true, 4);
        check(condition("Ready", "True", "b", 5), true, 5);
        assert_eq!(conditions.len(), 2);
        assert!(is_true(&conditions, "Ready") && !is_true(&conditions, "Closed"));
        assert!(remove(&mut conditions, "Ready") && !remove(&mut conditions, "Ready"));
    }
}
