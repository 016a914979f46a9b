//! One write held against quotas.

use jiff::Timestamp;
use serde_json::Value;

use super::{Evaluator, parse};
use crate::Operation;
use crate::facts::amounts::{self, ResourceList};
use crate::object;
use crate::values::get;

/// A write that may use more of a quota.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// How objects of this kind are counted.
    pub evaluator: &'a Evaluator,
    /// The operation.
    pub operation: Operation,
    /// Where, or empty.
    pub subresource: &'a str,
    /// The object as it would be stored.
    pub object: &'a Value,
    /// The object before an update.
    pub old: Option<&'a Value>,
    /// The moment: a pod that should be gone no longer counts.
    pub now: Timestamp,
}

impl Write<'_> {
    /// Whether a quota is about the object at all.
    ///
    /// # Errors
    /// The reason why the object cannot be checked against the quota: it does not say what it needs, or the quota's
    /// usage is not known yet.
    pub fn concerns(&self, quota: &Value) -> Result<bool, String> {
        if !self.matches(quota, self.object) {
            return Ok(false);
        }
        let (name, hard) = (object::name(quota), hard(quota));
        let used = parse(get(quota, &["status", "used"]));
        let counted: Vec<&str> = hard
            .keys()
            .map(String::as_str)
            .filter(|name| self.evaluator.counts(name))
            .collect();
        if let Some(why) = self.evaluator.missing(&counted, self.object) {
            return Err(format!("failed quota: {name}: {why}"));
        }
        if counted.iter().any(|name| !used.contains_key(*name)) {
            let counted = counted.join(",");
            return Err(format!("status unknown for quota: {name}, resources: {counted}"));
        }
        Ok(true)
    }

    /// The usage of a quota after the write; `None` when the write changes nothing about it. The quota is one that it
    /// [concerns](Write::concerns).
    ///
    /// # Errors
    /// The amounts that the write exceeds.
    pub fn charge(&self, quota: &Value) -> Result<Option<ResourceList>, String> {
        let mut usage = self.evaluator.usage(self.object, self.now);
        let negative: Vec<&str> = usage
            .iter()
            .filter(|(_, amount)| amount.sign() < 0)
            .map(|(name, _)| name.as_str())
            .collect();
        if !negative.is_empty() {
            let names = negative.join(",");
            return Err(format!("quota usage is negative for resource(s): {names}"));
        }
        if let (Operation::Update, Some(old)) = (self.operation, self.old)
            && self.matches(quota, old)
        {
            usage = amounts::without(&usage, &self.evaluator.usage(old, self.now));
        }
        let hard = hard(quota);
        usage.retain(|name, amount| !amount.is_zero() && hard.contains_key(name));
        if usage.is_empty() {
            return Ok(None);
        }
        let used = parse(get(quota, &["status", "used"]));
        let mut sum = used.clone();
        amounts::add(&mut sum, &usage);
        let exceeded = |name: &str| usage.contains_key(name) && sum.get(name) > hard.get(name);
        // The allocation of a claim is a fact, and can only be recorded.
        if self.subresource != "status" && hard.keys().any(|name| exceeded(name)) {
            let [requested, used, limited] =
                [&usage, &used, &hard].map(|list| amounts::text(&amounts::only(list, exceeded)));
            let name = object::name(quota);
            return Err(format!(
                "exceeded quota: {name}, requested: {requested}, used: {used}, limited: {limited}"
            ));
        }
        Ok(Some(sum))
    }

    /// Whether a quota counts anything of the object.
    fn matches(&self, quota: &Value, object: &Value) -> bool {
        hard(quota).keys().any(|name| self.evaluator.counts(name)) && self.evaluator.is_in_scope(quota, object)
    }
}

/// The limits that the controller has copied from the spec: before that a quota limits nothing.
fn hard(quota: &Value) -> ResourceList {
    parse(get(quota, &["status", "hard"]))
}
