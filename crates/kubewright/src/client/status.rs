//! A status by server-side apply, so that several controllers each keep a part of one.
//!
//! Invariants: what is sent has the fields of the one who sends, and no other; a condition keeps the time of its last
//! transition as long as its status stays; what was sent last, and still stands there, is not sent again.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Client, Target};
use crate::error::{Error, Result};
use crate::form::{Cached, Form};
use crate::object::ObjectRef;

/// How many statuses are remembered. When there are more, each is sent once more.
const MEMORY: usize = 65_536;

/// What was sent last, by field manager and object, as a hash.
#[derive(Default)]
pub(super) struct SentStatuses(Mutex<HashMap<(Arc<str>, ObjectRef), u64>>);

impl SentStatuses {
    fn is(&self, key: &(Arc<str>, ObjectRef), hash: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key) == Some(&hash)
    }

    fn remember(&self, key: (Arc<str>, ObjectRef), hash: u64) {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.len() >= MEMORY && !sent.contains_key(&key) {
            sent.clear();
        }
        sent.insert(key, hash);
    }
}

impl Client {
    /// Applies the fields of `status` to the status of `object`, in its state `newest`.
    pub(crate) fn apply_status<'a>(
        &'a self,
        form: &'a Form,
        object: &'a dyn Cached,
        newest: Option<Arc<dyn Cached>>,
        mut status: Value,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Arc<dyn Cached>>> {
        Box::pin(async move {
            let meta = object.metadata();
            let target = Target::of_object(form, &meta)?;
            let present = match &newest {
                Some(newest) => newest.json()?,
                None => object.json()?,
            };
            without_nulls(&mut status);
            if !status.is_object() {
                let object = ObjectRef::new(&form.resource, &meta);
                return Err(Error::terminal(format!(
                    "status of {object}: it is no JSON object: {status}"
                )));
            }
            keep_times(&mut status, &present["status"], meta.generation, now);
            let mut hasher = DefaultHasher::new();
            (meta.uid.as_deref(), status.to_string()).hash(&mut hasher);
            let hash = hasher.finish();
            let key = (
                self.field_manager.clone(),
                ObjectRef::named(target.resource, target.namespace, target.name),
            );
            if let Some(newest) = newest
                && self.shared.statuses.is(&key, hash)
                && holds(&present["status"], &status)
            {
                return Ok(newest);
            }
            let body = json!({
                "apiVersion": form.resource.api_version,
                "kind": form.resource.kind,
                // A namesake is refused.
                "metadata": {"name": meta.name, "namespace": target.namespace, "uid": meta.uid},
                "status": status,
            });
            let params = PatchParams {
                dry_run: self.dry_run,
                force: self.forces,
                ..PatchParams::apply(&self.field_manager)
            };
            let requests = target.requests();
            let request = requests.patch_subresource("status", target.name, &params, &Patch::Apply(&body));
            let before = self.cached(form, &target);
            let written = self.write(&target, "patch", Some("status"), request, form).await?;
            self.wrote(&target, "patch", Some("status"), before.as_deref(), &*written);
            if !self.dry_run {
                self.shared.statuses.remember(key, hash);
            }
            Ok(written)
        })
    }
}

/// Fields that are null say nothing.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Fills in what a condition has from its history: `lastTransitionTime`, and `observedGeneration` where it is not said.
fn keep_times(status: &mut Value, present: &Value, generation: Option<i64>, now: Timestamp) {
    let known = present["conditions"].as_array().cloned().unwrap_or_default();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        let same = |known: &&Value| known["type"] == condition["type"] && known["status"] == condition["status"];
        let since = known.iter().find(same).map(|known| known["lastTransitionTime"].clone());
        condition["lastTransitionTime"] = since.filter(Value::is_string).unwrap_or_else(|| json!(Time(now)));
        if condition["observedGeneration"].is_null()
            && let Some(generation) = generation
        {
            condition["observedGeneration"] = json!(generation);
        }
    }
    if let Some(fields) = status.as_object_mut()
        && fields.get("conditions").is_some_and(Value::is_null)
    {
        fields.remove("conditions"); // indexing put it there
    }
}

/// Whether everything that is wanted stands there. Items of a list of conditions are found by their type.
fn holds(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted.iter().all(|(name, wanted)| {
            let Some(present) = present.get(name) else { return false };
            match (name == "conditions", present, wanted) {
                (true, Value::Array(present), Value::Array(wanted)) => wanted.iter().all(|wanted| {
                    let same = present.iter().find(|present| present["type"] == wanted["type"]);
                    same.is_some_and(|present| holds(present, wanted))
                }),
                _ => holds(present, wanted),
            }
        }),
        (present, wanted) => present == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_keep_the_time_of_their_transition() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let present = json!({"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"},
            {"type": "Open", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"},
        ]});
        let mut status = json!({"conditions": [
            {"type": "Ready", "status": "True", "observedGeneration": 3},
            {"type": "Open", "status": "True"},
            {"type": "New", "status": "Unknown"},
        ]});
        keep_times(&mut status, &present, Some(7), now);
        let told = |index: usize| {
            let condition = &status["conditions"][index];
            (
                condition["lastTransitionTime"].as_str().unwrap_or_default().to_owned(),
                condition["observedGeneration"].clone(),
            )
        };
        assert_eq!(told(0), ("2025-01-01T00:00:00Z".to_owned(), json!(3)));
        assert_eq!(told(1), ("2026-01-01T00:00:00Z".to_owned(), json!(7)));
        assert_eq!(told(2), ("2026-01-01T00:00:00Z".to_owned(), json!(7)));
        let mut without = json!({"replicas": 3});
        keep_times(&mut without, &present, Some(7), now);
        assert_eq!(without, json!({"replicas": 3}));
    }

    #[test]
    fn what_stands_there_is_recognized() {
        let present = json!({"a": 1, "conditions": [{"type": "A", "status": "True", "x": 1}, {"type": "B"}]});
        let check = |wanted: Value, held: bool| assert_eq!(holds(&present, &wanted), held, "{wanted}");
        check(json!({"a": 1}), true);
        check(json!({"a": 2}), false);
        check(json!({"conditions": [{"type": "B"}]}), true);
        check(json!({"conditions": [{"type": "A", "status": "False"}]}), false);
        check(json!({"conditions": [{"type": "C"}]}), false);
        check(json!({}), true);
    }
}
