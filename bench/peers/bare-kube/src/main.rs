//! A controller of Guestbooks with kube-rs alone: it says in the status that it has seen the object, as the scaffold's
//! does.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What is wanted of a Guestbook.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "webapp.example.com",
    version = "v1",
    kind = "Guestbook",
    namespaced,
    status = "GuestbookStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct GuestbookSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foo: Option<String>,
}

/// What the controller has observed of a Guestbook.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestbookStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

async fn reconcile(guestbook: Arc<Guestbook>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let namespace = guestbook.namespace().unwrap_or_default();
    let guestbooks: Api<Guestbook> = Api::namespaced(Client::clone(&client), &namespace);
    let before = guestbook
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .find(|seen| seen.type_ == "Available");
    let seen = Condition {
        type_: "Available".to_owned(),
        status: "True".to_owned(),
        reason: "Reconciled".to_owned(),
        message: "as asked for".to_owned(),
        observed_generation: guestbook.metadata.generation,
        last_transition_time: before
            .map_or_else(|| Time(Timestamp::now()), |before| before.last_transition_time.clone()),
    };
    if before != Some(&seen) {
        let patch = json!({ "status": { "conditions": [seen] } });
        guestbooks
            .patch_status(&guestbook.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    Ok(Action::await_change())
}

fn again(guestbook: Arc<Guestbook>, error: &kube::Error, _: Arc<Client>) -> Action {
    tracing::warn!(name = guestbook.name_any(), %error, "reconcile failed");
    Action::requeue(Duration::from_secs(5))
}

#[tokio::main]
async fn main() -> Result<(), kube::Error> {
    tracing_subscriber::fmt::init();
    let client = Client::try_default().await?;
    Controller::new(Api::<Guestbook>::all(client.clone()), watcher::Config::default())
        .shutdown_on_signal()
        .run(reconcile, again, Arc::new(client))
        .for_each(|_| async {})
        .await;
    Ok(())
}
