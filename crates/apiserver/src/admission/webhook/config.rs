//! Configurations of webhooks, read once for each version of a stored object.
//!
//! Invariant: neither a write nor a change of a configuration looks at configurations whose rules name another
//! resource.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::admission::matching::{ByResource, Criteria, is_exempt};
use crate::admission::policy::conditions::Conditions;
use crate::admission::policy::is_review;
use crate::admission::{Attributes, Session};
use crate::model::{Minor, object};
use crate::outbound::client::Client;
use crate::storage::{Derived, Followed, SharedMap, StoredObject};
use crate::values::get;

/// The timeout of a webhook without `timeoutSeconds`; defaulting fills the field in, so that no webhook is stored
/// without it.
const TIMEOUT: u64 = 10;

/// One entry of `webhooks`.
#[derive(Debug)]
pub(super) struct Webhook {
    /// Name of the entry, which is the webhook's in errors.
    pub(super) name: String,
    /// Configuration, name and place: the webhook's identity between rounds.
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
    known: Followed<WebhookIndex>,
}

/// The configured webhooks, by the name of the configuration.
#[derive(Clone, Default)]
struct WebhookIndex {
    webhooks: SharedMap<Arc<str>, Arc<Vec<Webhook>>>,
    by_resource: ByResource,
}

impl Derived for WebhookIndex {
    fn apply(&mut self, _store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        if let Some(before) = self.webhooks.remove(key) {
            let criteria = before.iter().map(|webhook| &webhook.criteria);
            self.by_resource.remove(key, criteria);
        }
        let webhooks = object.map(|object| read(object.value())).unwrap_or_default();
        if !webhooks.is_empty() {
            let criteria = webhooks.iter().map(|webhook| &webhook.criteria);
            self.by_resource.insert(key, criteria);
            self.webhooks.insert(key.into(), Arc::new(webhooks));
        }
    }
}

/// The webhooks of one configuration.
pub(super) struct Configured {
    /// The place of the first of them among all that are configured.
    pub(super) first: usize,
    pub(super) webhooks: Arc<Vec<Webhook>>,
}

impl Configurations {
    pub(super) const fn new(stores: &'static [&'static str; 1]) -> Configurations {
        Configurations {
            known: Followed::new(stores),
        }
    }

    /// The configurations that a write may concern, by name; none if no webhook is called for such a write.
    pub(super) fn of(&self, session: &Session<'_>, attributes: &Attributes) -> Vec<Configured> {
        let unasked = session.kinds().minor() >= Minor::V37 && is_review(attributes);
        if unasked || is_exempt(attributes) {
            return Vec::new();
        }
        self.known.look(session.storage().as_ref(), |known| {
            let names = known.by_resource.of(&attributes.resource.plural);
            let concerned = names.into_iter().filter_map(|name| {
                let webhooks = known.webhooks.get(name)?.clone();
                // Only the audit log tells of places, and only there is it worth a walk over all that come before.
                let before = session
                    .is_audited()
                    .then(|| known.webhooks.range::<str>((Unbounded, Excluded(name))));
                let first = before.into_iter().flatten().map(|(_, webhooks)| webhooks.len()).sum();
                Some(Configured { first, webhooks })
            });
            concerned.collect()
        })
    }
}

fn read(configuration: &Value) -> Vec<Webhook> {
    let entries = get(configuration, &["webhooks"]).as_array();
    let entries = entries.into_iter().flatten().enumerate();
    entries
        .map(|(index, webhook)| Webhook::new(object::name(configuration), index, webhook))
        .collect()
}
