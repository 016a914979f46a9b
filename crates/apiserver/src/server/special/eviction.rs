//! POST to `/eviction` of a pod: a delete that disruption budgets may refuse with 429.

pub(crate) mod budgets;

use kubewright_schema::catalog;
use serde_json::{Value, json};

use crate::model::object::{self, conditions};
use crate::model::status::{Cause, Details, Status};
use crate::model::{Minor, Resource};
use crate::server::Call;
use crate::server::admit;
use crate::server::decode;
use crate::server::delete::Admit;
use crate::server::managed::Tracking;
use crate::server::negotiate;
use crate::server::options::{DeleteOptions, WriteOptions};
use crate::server::respond::Reply;
use crate::server::write::{Part, Writer};
use crate::values::ensure;
use budgets::Budgets;

/// The versions of Eviction.
const VERSIONS: &[&str] = &["policy/v1", "policy/v1beta1"];

impl Call<'_> {
    pub(crate) async fn evict(&mut self) -> Result<Reply, Status> {
        let options = WriteOptions::parse(self.query, "CreateOptions")?;
        let format = negotiate::input(self.headers)?;
        let decoded = decode::parse(self.body, format, "Eviction")?;
        let mut eviction = decoded.value;
        // A version and kind that are not registered are decoded as an Eviction.
        let version = eviction.get("apiVersion").and_then(Value::as_str).unwrap_or("");
        let known = VERSIONS.contains(&version);
        match decode::check_taken_kind(&eviction, ("policy", "Eviction"), VERSIONS, &self.kinds) {
            Err(other) if other.served || known => return Err(other.refusal),
            _ => {}
        }
        let mut warnings = Vec::new();
        decode::fit(&mut eviction, &self.eviction_row(), decoded.duplicates, None)
            .map_err(String::from)
            .and_then(|findings| findings.apply(options.field_validation, &mut warnings))
            .map_err(|why| decode::cannot_be_handled("Eviction", "v1", "Eviction", &why))?;
        self.warnings.append(&mut warnings);
        self.enter_sent(&self.eviction_row(), &eviction);
        self.fit_namespace(&mut eviction)?;
        let (namespace, name) = (self.namespace().to_owned(), self.name().to_owned());
        let eviction = self
            .admit_posted(admit::kind("policy", "v1", "Eviction"), &options, eviction, Some(&name))
            .await?;
        // Options that contradict themselves are found when it comes to the delete.
        let (mut delete, contradiction) = match eviction.get("deleteOptions") {
            None | Some(Value::Null) => (DeleteOptions::default(), None),
            Some(body) => match DeleteOptions::from_value(body, self.server.config.minor) {
                Ok(delete) => (delete, None),
                Err(status) => (DeleteOptions::default(), Some(status)),
            },
        };
        let asked = eviction.pointer("/deleteOptions/dryRun").and_then(Value::as_array);
        delete.dry_run |= options.dry_run || asked.is_some_and(|asked| !asked.is_empty());
        let pod = self.get_stored().await?;
        if !may_always_go(pod.value()) {
            self.charge_budget(&namespace, &name, pod.value(), delete.dry_run)
                .await?;
        }
        let mut writer = self.writer(delete.dry_run);
        let same = delete.uid.as_deref().is_none_or(|uid| uid == object::uid(pod.value()));
        if !delete.dry_run && same {
            let now = crate::env::rfc3339(self.server.env.now());
            writer
                .update(&namespace, &name, Part::Raw, |old, _| Ok(disrupted(old, &now)))
                .await?;
        }
        if let Some(status) = contradiction {
            return Err(status);
        }
        writer.delete(&namespace, &name, &delete, Admit::Nothing).await?;
        Ok(Reply::status(&Status::created()))
    }

    /// The row of `policy/v1` Eviction, which no path of its own serves.
    fn eviction_row(&self) -> Resource {
        let mut row = (*self.resource).clone();
        row.group = "policy".into();
        row.kind = "Eviction".into();
        row.subresources = Vec::new();
        let catalog = catalog::of(self.kinds.minor());
        row.schema = catalog
            .for_kind("policy", "v1", "Eviction")
            .expect("the catalog has the kind Eviction");
        row
    }

    /// Takes one disruption off the budget that covers the pod, if one does.
    async fn charge_budget(&self, namespace: &str, name: &str, pod: &Value, dry_run: bool) -> Result<(), Status> {
        let Some(resource) = self.kinds.lookup("policy", "v1", "poddisruptionbudgets") else {
            return Ok(());
        };
        let storage = self.server.storage.as_ref();
        let covering = |budgets: &Budgets| budgets.covering(namespace, object::labels(pod));
        let covering = self.server.budgets.look(storage, covering);
        let budget = match covering.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            _ => {
                let message =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                // Upstream writes this answer by hand, without a reason.
                return Err(Status::failure(500, "", message));
            }
        };
        // A dry run checks no budgets: upstream answers it with success as well.
        if dry_run {
            return Ok(());
        }
        let found = storage.get(budgets::STORE, &format!("{namespace}/{budget}"));
        if found.is_some_and(|found| goes_unready(found.value(), pod)) {
            return Ok(());
        }
        let now = crate::env::rfc3339(self.server.env.now());
        let mut writer = Writer {
            tracking: Tracking::Update("kube-apiserver".to_owned()),
            deadline: Some(self.deadline),
            ..Writer::new(self.server, resource.clone(), self.user)
        };
        writer
            .update(namespace, &budget, Part::Status, |old, _| {
                charged(&resource, old, name, &now, self.server.config.minor)
            })
            .await?;
        Ok(())
    }
}

/// Pods that are over, not yet running or on their way out need no budget.
fn may_always_go(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or("");
    matches!(phase, "Succeeded" | "Failed" | "Pending") || object::is_terminating(pod)
}

/// Whether a pod that is not ready may go without being counted: always, or while enough others are healthy.
fn goes_unready(budget: &Value, pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let number = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let wanted = number("/status/desiredHealthy");
    let always = budget
        .pointer("/spec/unhealthyPodEvictionPolicy")
        .and_then(Value::as_str)
        == Some("AlwaysAllow");
    !ready && (always || (wanted > 0 && number("/status/currentHealthy") >= wanted))
}

/// The object with this condition in its status; the time of a condition is that of its last change.
fn with_condition(object: &Value, mut condition: Value, now: &str) -> Value {
    let mut next = object.clone();
    let Some(status) = next.as_object_mut().and_then(|map| ensure(map, "status")) else {
        return next;
    };
    condition["lastTransitionTime"] = json!(now);
    conditions::set(status, condition);
    next
}

/// The pod, told why it goes.
fn disrupted(pod: &Value, now: &str) -> Value {
    let condition = json!({"type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"});
    with_condition(pod, condition, now)
}

/// Why a budget that allows nothing allows nothing (`checkAndDecrement`).
fn refusal(budget: &Value) -> String {
    let name = object::name(budget);
    let number = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let (desired, current) = (number("/status/desiredHealthy"), number("/status/currentHealthy"));
    let conditions = budget.pointer("/status/conditions").and_then(Value::as_array);
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let said = conditions.into_iter().flatten().find(|condition| {
        text(condition, "type") == "DisruptionAllowed"
            && text(condition, "status") == "False"
            && !text(condition, "message").is_empty()
    });
    let said = said.map(|condition| (text(condition, "reason"), text(condition, "message")));
    let refused = format!("The disruption budget {name} does not allow evicting pods currently");
    match said {
        Some((reason, message)) if reason == "SyncFailed" => format!("{refused} because it failed sync: {message}"),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some((reason, message)) => format!("{refused} ({reason}): {message}"),
        None => refused,
    }
}

/// The budget with one disruption less, or the 429.
fn charged(resource: &Resource, budget: &Value, pod: &str, now: &str, minor: Minor) -> Result<Value, Status> {
    let name = object::name(budget);
    let number = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    if number("/status/observedGeneration") < object::generation(budget) {
        return Err(too_many(
            format!("The disruption budget {name} is still being processed by the server."),
            10,
        ));
    }
    let allowed = number("/status/disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        let mut status = Status::forbidden(resource, name, why);
        if let Some(details) = status.details.as_mut().filter(|_| minor >= Minor::V37) {
            let message = format!("The disruption budget {name} does not allow evicting pods currently: {why}");
            details.causes.push(cause(message));
        }
        return Err(status);
    }
    if allowed == 0 {
        return Err(too_many(refusal(budget), 0));
    }
    let mut next = budget.clone();
    next["status"]["disruptionsAllowed"] = json!(allowed - 1);
    if !next["status"]["disruptedPods"].is_object() {
        next["status"]["disruptedPods"] = json!({});
    }
    next["status"]["disruptedPods"][pod] = json!(now);
    if allowed == 1 {
        let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": number("/status/observedGeneration")});
        next = with_condition(&next, condition, now);
    }
    Ok(next)
}

fn cause(why: String) -> Cause {
    Cause {
        reason: "DisruptionBudget".to_owned(),
        message: why,
        field: String::new(),
    }
}

fn too_many(why: String, retry_after_seconds: u32) -> Status {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::failure(429, "TooManyRequests", message).with_details(Details {
        causes: vec![cause(why)],
        retry_after_seconds,
        ..Details::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_why() {
        let check = |status: Value, expected: &str| {
            let budget = json!({"metadata": {"name": "b"}, "status": status});
            assert_eq!(refusal(&budget), expected);
        };
        let condition = |reason: &str, message: &str| json!([{"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": message}]);
        let refused = "The disruption budget b does not allow evicting pods currently";
        let few = "The disruption budget b needs 2 healthy pods and has 1 currently";
        check(json!({"desiredHealthy": 2, "currentHealthy": 1}), few);
        check(
            json!({"currentHealthy": 2, "conditions": condition("InsufficientPods", "")}),
            refused,
        );
        check(
            json!({"desiredHealthy": 2, "currentHealthy": 1, "conditions": condition("SyncFailed", "no owner")}),
            &format!("{refused} because it failed sync: no owner"),
        );
        check(
            json!({"currentHealthy": 2, "conditions": condition("Why", "so")}),
            &format!("{refused} (Why): so"),
        );
    }
}
