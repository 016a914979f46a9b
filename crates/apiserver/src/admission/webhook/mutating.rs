//! MutatingAdmissionWebhook.

use std::sync::Arc;

use kubewright_schema::patch;
use kubewright_schema::schema::GroupVersionKind;
use serde_json::Value;

use super::config::{Configurations, Configured, Webhook};
use super::review::{self, Objects};
use super::{Failure, match_conditions};
use crate::admission::matching::Matched;
use crate::admission::{Admission, Admitted, Attributes, Session};
use crate::audit::{self, Level};
use crate::model::Resource;
use crate::model::status::Status;

const PLUGIN: &str = "MutatingAdmissionWebhook";

/// Asks the webhooks of all MutatingWebhookConfigurations and applies their patches.
pub struct MutatingWebhooks {
    configurations: Configurations,
}

impl Default for MutatingWebhooks {
    fn default() -> MutatingWebhooks {
        MutatingWebhooks {
            configurations: Configurations::new(&["mutatingwebhookconfigurations.admissionregistration.k8s.io"]),
        }
    }
}

/// The object on its way from webhook to webhook. It stays in the version that the last one saw.
struct CurrentObject<'a> {
    object: &'a mut Value,
    /// Its version now.
    resource: Arc<Resource>,
    kind: GroupVersionKind,
    /// The object before it was converted the first time.
    original: Option<Value>,
    patched: bool,
}

impl CurrentObject<'_> {
    /// Puts the object into the version in which a webhook is asked.
    async fn convert(&mut self, session: &Session<'_>, to: &Matched) -> Result<(), Status> {
        if self.kind == to.kind || self.object.is_null() {
            return Ok(());
        }
        if self.original.is_none() && !self.patched {
            self.original = Some(self.object.clone());
        }
        let object = std::mem::take(self.object);
        *self.object = session
            .convert(object, &self.resource, &to.resource)
            .await
            .map_err(|status| Status::internal(&status.message))?;
        self.resource = to.resource.clone();
        self.kind = to.kind.clone();
        Ok(())
    }

    /// Puts the object back into the version of the request.
    async fn arrive(mut self, session: &Session<'_>, home: &Matched) -> Result<(), Status> {
        match self.original.take() {
            Some(original) if !self.patched => *self.object = original,
            _ => self.convert(session, home).await?,
        }
        Ok(())
    }
}

/// Asks the webhooks, each about the result of the one before.
async fn dispatch(
    configured: Vec<Configured>,
    session: &Session<'_>,
    attributes: &Attributes,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    session.begin(PLUGIN, object);
    let mut current = CurrentObject {
        object,
        resource: attributes.resource.clone(),
        kind: attributes.kind.clone(),
        original: None,
        patched: false,
    };
    for Configured { first, webhooks } in &configured {
        for (index, hook) in webhooks.iter().enumerate() {
            ask(hook, first + index, session, attributes, &mut current, old).await?;
        }
    }
    current.arrive(session, &Matched::own(attributes)).await?;
    session.end(PLUGIN, object);
    Ok(())
}

/// Asks one webhook if the request matches it; answers the effect on the request. `at` is its place among all.
async fn ask(
    hook: &Webhook,
    at: usize,
    session: &Session<'_>,
    attributes: &Attributes,
    current: &mut CurrentObject<'_>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let Some(seen) = hook.criteria.matches(session, attributes, current.object, old)? else {
        return Ok(());
    };
    let failed = |status: Status| Status::internal(&status.message);
    let old = old.unwrap_or(&Value::Null);
    if !hook.conditions.is_empty() {
        current.convert(session, &seen).await?;
        let old = seen.show(session, attributes, old).await.map_err(failed)?;
        if !match_conditions::evaluate(hook, session, attributes, &seen, current.object, &old).await? {
            return Ok(());
        }
    }
    if !session.may_invoke(PLUGIN, &hook.id) {
        return Ok(());
    }
    current.convert(session, &seen).await?;
    let old = seen.show(session, attributes, old).await.map_err(failed)?;
    let place = format!("round_{}_index_{at}", u8::from(session.is_reinvocation()));
    let asked = call(hook, &place, session, attributes, &seen, current, &old).await;
    let changed = matches!(asked, Ok(true));
    annotate_mutation(hook, &place, session, changed);
    session.invoked(PLUGIN, &hook.id, changed, hook.reinvocable);
    match asked {
        Ok(_) => Ok(()),
        Err(failure) => {
            let opened = format!("failed-open.mutation.webhook.admission.k8s.io/{place}");
            failure.settle(hook, session, &opened)
        }
    }
}

/// `MutationAuditAnnotation`.
fn annotate_mutation(hook: &Webhook, place: &str, session: &Session<'_>, mutated: bool) {
    let key = format!("mutation.webhook.admission.k8s.io/{place}");
    session.annotate_from(Level::Metadata, &key, || {
        let (configuration, webhook) = (audit::in_go(&hook.configuration), audit::in_go(&hook.name));
        format!("{{\"configuration\":{configuration},\"webhook\":{webhook},\"mutated\":{mutated}}}")
    });
}

/// `PatchAuditAnnotation`.
fn annotate_patch(hook: &Webhook, place: &str, session: &Session<'_>, operations: &Value) {
    let key = format!("patch.webhook.admission.k8s.io/{place}");
    session.annotate_from(Level::Request, &key, || {
        let (configuration, webhook) = (audit::in_go(&hook.configuration), audit::in_go(&hook.name));
        let patch = audit::in_go(operations);
        format!(
            "{{\"configuration\":{configuration},\"webhook\":{webhook},\"patch\":{patch},\"patchType\":\"JSONPatch\"}}"
        )
    });
}

/// Asks one webhook and applies its patch; whether that changed the object.
async fn call(
    hook: &Webhook,
    place: &str,
    session: &Session<'_>,
    attributes: &Attributes,
    seen: &Matched,
    current: &mut CurrentObject<'_>,
    old: &Value,
) -> Result<bool, Failure> {
    let internal = |why: String| Failure::Refused(Status::internal(&why));
    let objects = Objects {
        object: current.object,
        old,
    };
    let Some(operations) = review::ask(hook, session, attributes, seen, objects, true).await? else {
        return Ok(false);
    };
    if current.object.is_null() {
        return Err(internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        )));
    }
    // The log may tell of them; otherwise their values move into the object.
    let told = session.is_audited().then(|| operations.clone());
    let new = patch::json::apply_taking(current.object, operations);
    let mut new = new.map_err(|error| internal(error.to_string()))?;
    if attributes.is_own_kind() {
        session
            .decode(&mut new, current.object, &current.resource)
            .map_err(Failure::Refused)?;
    } else {
        session.decode_posted(&mut new, &current.kind).map_err(internal)?;
    }
    session.check_owners(&mut new, current.object);
    let changed = new != *current.object;
    if let Some(operations) = told {
        annotate_patch(hook, place, session, &operations);
    }
    if attributes.is_own_kind() {
        session.default(&mut new, &current.resource);
    }
    *current.object = new;
    current.patched = true;
    Ok(changed)
}

impl Admission for MutatingWebhooks {
    fn mutate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let configured = self.configurations.of(session, attributes);
        if configured.is_empty() {
            return Admitted::YES;
        }
        Admitted::later(dispatch(configured, session, attributes, object, old))
    }
}
