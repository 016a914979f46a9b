//! POST to `/eviction` of a pod: a delete that disruption budgets may refuse with 429.

use kubewright_schema::labels::Selector;
use kubewright_schema::path::FieldPath;
use serde_json::{Value, json};

use super::managed::Tracking;
use super::options::{DeleteOptions, WriteOptions};
use super::respond::Reply;
use super::write::{Part, Writer};
use super::{Call, decode, negotiate};
use crate::object;
use crate::registry::Resource;
use crate::status::{Cause, Details, Status};
use crate::storage::ListRequest;

impl Call<'_> {
    pub(crate) async fn evict(&mut self) -> Result<Reply, Status> {
        let options = WriteOptions::parse(self.query, "CreateOptions")?;
        let format = negotiate::input(self.headers)?;
        let eviction = decode::parse(self.body, format, "Eviction")?.value;
        let (namespace, name) = (self.namespace().to_owned(), self.name().to_owned());
        let wanted = object::name(&eviction);
        if wanted != name {
            return Err(Status::bad_request(format!(
                "name in URL does not match name in Eviction object: {name}, {wanted}"
            )));
        }
        let mut delete = match eviction.get("deleteOptions") {
            None | Some(Value::Null) => DeleteOptions::default(),
            Some(body) => DeleteOptions::from_value(body)?,
        };
        delete.dry_run |= options.dry_run;
        let pod = self.get_stored().await?;
        if !may_always_go(pod.value()) {
            self.charge_budget(&namespace, &name, pod.value(), delete.dry_run)
                .await?;
        }
        let mut writer = self.writer(delete.dry_run);
        writer.delete(&namespace, &name, &delete).await?;
        Ok(Reply::status(&Status::created()))
    }

    /// Takes one disruption off the budget that covers the pod, if one does.
    async fn charge_budget(&self, namespace: &str, name: &str, pod: &Value, dry_run: bool) -> Result<(), Status> {
        let Some(resource) = self.kinds.lookup("policy", "v1", "poddisruptionbudgets") else {
            return Ok(());
        };
        let request = ListRequest {
            prefix: format!("{namespace}/"),
            ..ListRequest::default()
        };
        let listed = self
            .server
            .storage
            .list(&resource.store, &request)
            .map_err(|error| Status::untyped(error.to_string()))?;
        let covering: Vec<String> = listed
            .items
            .iter()
            .filter(|(_, budget)| covers(budget.value(), pod))
            .map(|(_, budget)| object::name(budget.value()).to_owned())
            .collect();
        let budget = match covering.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            _ => {
                let message =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::failure(500, "InternalError", message));
            }
        };
        // A dry run asks nobody: upstream answers it with success as well.
        if dry_run {
            return Ok(());
        }
        let now = crate::env::rfc3339(self.server.env.now());
        let mut writer = Writer {
            server: self.server,
            resource: resource.clone(),
            user: self.user,
            dry_run: false,
            tracking: Tracking::Untouched,
            warnings: Vec::new(),
        };
        writer
            .update(namespace, &budget, Part::Raw, |old, _| {
                charged(&resource, old, name, &now)
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

fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = budget.pointer("/spec/selector").unwrap_or(&Value::Null);
    let parsed = Selector::from_label_selector(selector, &FieldPath::root());
    parsed.is_ok_and(|selector| selector.matches(object::labels(pod)))
}

/// The budget with one disruption less, or the 429.
fn charged(resource: &Resource, budget: &Value, pod: &str, now: &str) -> Result<Value, Status> {
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
        return Err(Status::forbidden(resource, name, "pdb disruptions allowed is negative"));
    }
    if allowed == 0 {
        let why = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            number("/status/desiredHealthy"),
            number("/status/currentHealthy")
        );
        return Err(too_many(why, 0));
    }
    let mut next = budget.clone();
    next["status"]["disruptionsAllowed"] = json!(allowed - 1);
    if !next["status"]["disruptedPods"].is_object() {
        next["status"]["disruptedPods"] = json!({});
    }
    next["status"]["disruptedPods"][pod] = json!(now);
    Ok(next)
}

fn too_many(why: String, retry_after_seconds: u32) -> Status {
    let cause = Cause {
        reason: "DisruptionBudget".to_owned(),
        message: why,
        field: String::new(),
    };
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::failure(429, "TooManyRequests", message).with_details(Details {
        causes: vec![cause],
        retry_after_seconds,
        ..Details::default()
    })
}
