//! Configurations of webhooks, read once for each version of the stored objects.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::admission::matching::{Criteria, is_exempt};
use crate::admission::policy::conditions::Conditions;
use crate::admission::{Attributes, Session};
use crate::model::object;
use crate::outbound::client::Client;
use crate::storage::{ListRequest, Storage, StoredObject};
use crate::values::get;

/// What a webhook without `timeoutSeconds` gets; defaulting fills the field in, so that none is stored so.
const TIMEOUT: u64 = 10;

/// One entry of `webhooks`.
#[derive(Debug)]
pub(super) struct Webhook {
    /// Name of the entry, which is the webhook's in errors.
    pub(super) name: String,
    /// Configuration, name and place: what tells it from others between rounds.
    pub(super) id: String,
    /// Name of the configuration.
    pub(super) configuration: String,
    pub(super) criteria: Criteria,
    pub(super) client: Result<Client, String>,
    /// Whether a request goes on when the webhook cannot be asked.
    pub(super) ignores_failure: bool,
    pub(super) timeout: Duration,
    pub(super) side_effects: String,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) reinvocable: bool,
    /// `admissionReviewVersions`.
    pub(super) review_versions: Vec<String>,
    pub(super) conditions: Conditions,
}

impl Webhook {
    fn new(configuration: &str, index: usize, webhook: &Value) -> Webhook {
        let text = |field: &str| get(webhook, &[field]).as_str().unwrap_or("").to_owned();
        let items = |field: &str| get(webhook, &[field]).as_array().into_iter().flatten();
        let name = text("name");
        Webhook {
            id: format!("{configuration}/{name}/{index}"),
            configuration: configuration.to_owned(),
            name,
            criteria: Criteria::of_webhook(webhook),
            client: Client::new(get(webhook, &["clientConfig"])),
            ignores_failure: text("failurePolicy") == "Ignore",
            timeout: Duration::from_secs(get(webhook, &["timeoutSeconds"]).as_u64().unwrap_or(TIMEOUT)),
            side_effects: text("sideEffects"),
            reinvocable: text("reinvocationPolicy") == "IfNeeded",
            review_versions: items("admissionReviewVersions")
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            conditions: Conditions::of_webhook(webhook),
        }
    }
}

/// The webhooks of all configurations of one kind, in the order in which they are asked.
pub(super) struct Configurations {
    store: &'static str,
    known: Mutex<Known>,
}

/// What was read, and from which objects.
#[derive(Default)]
struct Known {
    /// The state of the store that they were read from.
    at: Option<u64>,
    from: Vec<Arc<StoredObject>>,
    webhooks: Arc<Vec<Webhook>>,
}

impl Configurations {
    pub(super) fn new(store: &'static str) -> Configurations {
        Configurations {
            store,
            known: Mutex::default(),
        }
    }

    /// The webhooks that a write may concern; none where there are none, or where nobody is asked about such a write.
    pub(super) fn of(&self, session: &Session<'_>, attributes: &Attributes) -> Option<Arc<Vec<Webhook>>> {
        if is_exempt(attributes) {
            return None;
        }
        let webhooks = self.webhooks(session.storage().as_ref());
        (!webhooks.is_empty()).then_some(webhooks)
    }

    /// What is configured now.
    fn webhooks(&self, storage: &dyn Storage) -> Arc<Vec<Webhook>> {
        // Asked before anything is listed: what is written in between makes it look old, not new.
        let at = storage.changes(self.store);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.at == Some(at) {
            return known.webhooks.clone();
        }
        let listed = storage.list(self.store, &ListRequest::default());
        // What cannot be listed was never written: the store comes into being with its first object.
        let items = listed.map(|listed| listed.items).unwrap_or_default();
        known.at = Some(at);
        let same = known.from.len() == items.len()
            && known
                .from
                .iter()
                .zip(&items)
                .all(|(known, (_, item))| known.revision() == item.revision());
        if !same {
            known.from = items.into_iter().map(|(_, item)| item).collect();
            known.webhooks = Arc::new(read(&known.from));
        }
        known.webhooks.clone()
    }
}

fn read(configurations: &[Arc<StoredObject>]) -> Vec<Webhook> {
    let mut webhooks = Vec::new();
    for configuration in configurations {
        let value = configuration.value();
        let entries = get(value, &["webhooks"]).as_array();
        for (index, webhook) in entries.into_iter().flatten().enumerate() {
            webhooks.push(Webhook::new(object::name(value), index, webhook));
        }
    }
    webhooks
}
