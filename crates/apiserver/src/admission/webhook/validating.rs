//! ValidatingAdmissionWebhook.

use std::borrow::Cow;

use futures::stream::{self, StreamExt as _};
use kubewright_schema::measure;
use serde_json::Value;

use super::config::{Configurations, Configured, Webhook};
use super::match_conditions;
use super::review::{self, Objects};
use crate::admission::matching::Matched;
use crate::admission::{Admission, Admitted, Attributes, Session};
use crate::model::status::Status;

/// Asks the webhooks of all ValidatingWebhookConfigurations, all at the same time.
pub struct ValidatingWebhooks {
    configurations: Configurations,
}

impl Default for ValidatingWebhooks {
    fn default() -> ValidatingWebhooks {
        ValidatingWebhooks {
            configurations: Configurations::new(&["validatingwebhookconfigurations.admissionregistration.k8s.io"]),
        }
    }
}

/// The arguments of one webhook call.
struct Invocation<'a> {
    hook: &'a Webhook,
    seen: Matched,
    object: Cow<'a, Value>,
    old: Cow<'a, Value>,
}

/// Asks the webhooks, all at once.
async fn dispatch(
    configured: Vec<Configured>,
    session: &Session<'_>,
    attributes: &Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let mut asked = Vec::new();
    // No webhook is called before it is clear which ones match, because an error in a match is the answer.
    for hook in configured.iter().flat_map(|configured| configured.webhooks.iter()) {
        let Some(seen) = hook.criteria.matches(session, attributes, object, old)? else {
            continue;
        };
        let failed = |status: Status| Status::internal(&status.message);
        let old = old.unwrap_or(&Value::Null);
        let shown = seen.show(session, attributes, object).await.map_err(failed)?;
        let old = seen.show(session, attributes, old).await.map_err(failed)?;
        if match_conditions::evaluate(hook, session, attributes, &seen, &shown, &old).await? {
            asked.push(Invocation {
                hook,
                seen,
                object: shown,
                old,
            });
        }
    }
    let asking = asked.iter().enumerate();
    let asking: Vec<_> = asking.map(|(at, asked)| asked.call(session, attributes, at)).collect();
    let answers: Vec<_> = stream::iter(asking)
        .buffered(at_once(object, asked.len()))
        .collect()
        .await;
    answers.into_iter().collect()
}

/// How many webhooks are asked at once: all, unless their requests would take much memory.
fn at_once(object: &Value, count: usize) -> usize {
    const FEW: usize = 10;
    /// Texts of reviews that wait for answers.
    const WAITING: usize = 16 * 1024 * 1024;
    if count <= FEW {
        return FEW;
    }
    (WAITING / measure::held(object)).max(FEW)
}

impl Invocation<'_> {
    /// `at` is its place among those that are asked.
    async fn call(&self, session: &Session<'_>, attributes: &Attributes, at: usize) -> Result<(), Status> {
        let objects = Objects {
            object: &self.object,
            old: &self.old,
        };
        match review::ask(self.hook, session, attributes, &self.seen, objects, false).await {
            Ok(_) => Ok(()),
            Err(failure) => {
                let opened = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{at}");
                failure.settle(self.hook, session, &opened)
            }
        }
    }
}

impl Admission for ValidatingWebhooks {
    fn validate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let configured = self.configurations.of(session, attributes);
        if configured.is_empty() {
            return Admitted::YES;
        }
        Admitted::later(dispatch(configured, session, attributes, object, old))
    }
}
