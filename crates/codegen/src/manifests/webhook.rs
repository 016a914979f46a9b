//! `config/webhook/manifests.yaml`: the webhooks that the API server calls.
//!
//! One configuration for all mutating webhooks and one for all validating ones, unless a webhook names another; in it
//! the webhooks by name. Mistakes with a usual remedy are found here; the whole, patches included, is then judged by an
//! API server, whose answer [`refused`] tells. The service is kubebuilder's `webhook-service` in `system`, which
//! kustomize renames.

use std::collections::BTreeMap;

use kubewright_schema::patch::strategic;
use kubewright_schema::{catalog, names};
use serde_json::{Map, Value, json};

use super::declaration::{Declaration, Webhook};
use crate::codes::Code;
use crate::codes::webhooks as codes;
use crate::diagnostic::{Diagnostic, Place};

/// An API server's refusal of a configuration, as errors about the webhooks in it. `causes`: fields with the server's
/// words; none when it has only a message.
#[must_use]
pub fn refused(configuration: &Value, message: &str, causes: &[(String, String)]) -> Vec<Diagnostic> {
    let name = configuration["metadata"]["name"].as_str().unwrap_or_default();
    let told = |(field, said): &(String, String)| {
        let (index, below) = field
            .strip_prefix("webhooks[")
            .and_then(|rest| rest.split_once(']'))
            .unwrap_or_default();
        let index: Option<usize> = index.parse().ok();
        let webhook = index.and_then(|index| configuration["webhooks"][index]["name"].as_str());
        let subject = webhook.map_or_else(|| name.to_owned(), |webhook| format!("the webhook {webhook}"));
        let field = if index.is_some() {
            below.trim_start_matches('.')
        } else {
            field
        };
        Diagnostic::new(codes::REFUSED, format!("an API server refuses {subject}"))
            .at(Place::default().field(field))
            .because(said)
            .fix(fix_of(field))
    };
    if causes.is_empty() {
        return vec![told(&(String::new(), message.to_owned()))];
    }
    causes.iter().map(told).collect()
}

/// The fix, by the field.
fn fix_of(field: &str) -> &'static str {
    match field.split(['.', '[']).next().unwrap_or_default() {
        "matchConditions" => {
            "correct the expression; it sees `object`, `oldObject`, `request` and `authorizer`, and an item has a name and an expression"
        }
        "namespaceSelector" | "objectSelector" => {
            "correct the selector: `matchLabels`, or `matchExpressions` with key, operator and values"
        }
        "rules" => {
            "correct groups, versions, resources or operations of the webhook; beside `*` there is nothing else in a list"
        }
        _ => "correct it where the webhook is described: `.mutating(|webhook| …)`, `.validating(|webhook| …)`",
    }
}

/// No two webhooks of an operator are served on one path.
fn paths(declaration: &Declaration, errors: &mut Vec<Diagnostic>) {
    let mut seen: BTreeMap<&str, &Webhook> = BTreeMap::new();
    for webhook in declaration.webhooks.iter().filter(|webhook| webhook.url.is_none()) {
        let Some(path) = webhook.path.as_deref() else { continue };
        if let Some(other) = seen.insert(path, webhook) {
            errors.push(
                wrong(codes::TWICE, webhook)
                    .at(Place::default().field("path"))
                    .because(format!(
                        "{path} is the path of the webhook {} of {}, too",
                        other.name, other.kind.kind
                    ))
                    .fix("give one of them a path of its own: `.mutating(|webhook| webhook.path(\"/…\"))`"),
            );
        }
    }
}

pub(super) fn configurations(declaration: &Declaration, errors: &mut Vec<Diagnostic>) -> Vec<Value> {
    paths(declaration, errors);
    let mut configurations: BTreeMap<(bool, String), BTreeMap<String, Value>> = BTreeMap::new();
    for webhook in &declaration.webhooks {
        let usual = if webhook.mutating {
            "mutating-webhook-configuration"
        } else {
            "validating-webhook-configuration"
        };
        let name = webhook.configuration_name.as_deref().unwrap_or(usual);
        let of = configurations.entry((!webhook.mutating, name.to_owned())).or_default();
        let before = errors.len();
        check(webhook, errors);
        if errors.len() > before {
            continue;
        }
        match written(webhook) {
            Ok(written) => {
                if of.insert(webhook.name.clone(), written).is_some() {
                    errors.push(
                        wrong(codes::TWICE, webhook)
                            .because(format!("{name} has another webhook of this name"))
                            .fix("give one of them another name: `.mutating(|webhook| webhook.name(\"…\"))`"),
                    );
                }
            }
            Err(error) => errors.push(error),
        }
    }
    let configuration = |((validating, name), webhooks): ((bool, String), BTreeMap<String, Value>)| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": if validating { "ValidatingWebhookConfiguration" } else { "MutatingWebhookConfiguration" },
            "metadata": {"name": name},
            "webhooks": webhooks.into_values().collect::<Vec<Value>>(),
        })
    };
    configurations
        .into_iter()
        .filter(|(_, webhooks)| !webhooks.is_empty())
        .map(configuration)
        .collect()
}

fn wrong(code: Code, webhook: &Webhook) -> Diagnostic {
    Diagnostic::new(
        code,
        format!("cannot write the webhook {} of {}", webhook.name, webhook.kind.kind),
    )
}

fn check(webhook: &Webhook, errors: &mut Vec<Diagnostic>) {
    let mut say = |field: &str, why: String, fix: &str| {
        errors.push(
            wrong(codes::SETTING, webhook)
                .at(Place::default().field(field))
                .because(why)
                .fix(fix),
        );
    };
    let labels = webhook.name.split('.').count();
    let name = names::dns1123_subdomain(&webhook.name);
    if labels < 3 || !name.is_empty() {
        let why = name
            .into_iter()
            .next()
            .unwrap_or_else(|| "it has fewer than three parts".to_owned());
        say(
            "name",
            format!("{:?} is no domain name: {why}", webhook.name),
            "use a name such as `mguestbook-v1.kb.io`",
        );
    }
    let path = webhook.path.as_deref().filter(|path| !path.is_empty());
    match (path, &webhook.url) {
        (None, None) => say(
            "path",
            "it has neither a path nor a url".to_owned(),
            "give it a path: `.path(\"/mutate-…\")`",
        ),
        (Some(path), _) if !path.starts_with('/') => {
            say(
                "path",
                format!("{path:?} does not start with `/`"),
                "start the path with `/`",
            );
        }
        (_, Some(url)) if !url.starts_with("https://") => {
            say(
                "url",
                format!("{url:?}: the API server calls https only"),
                "start the url with `https://`",
            );
        }
        // A path of its own was given, so the operator is meant to answer there; but the server at the URL is called
        // instead.
        (Some(path), Some(url)) if path != usual_path(webhook) && !before_query(url).ends_with(path) => {
            say(
                "url",
                format!("{url:?} does not end with {path}, on which the operator answers"),
                "let the url end with the path, or give the webhook that path: `.path(\"/…\")`",
            );
        }
        _ => {}
    }
    let mut one_of = |field: &str, value: Option<&str>, known: &[&str], required: bool| match value {
        None if required => say(
            field,
            "it is not said".to_owned(),
            &format!("use one of {}", known.join(", ")),
        ),
        Some(value) if !known.iter().any(|known| known.eq_ignore_ascii_case(value)) => {
            say(
                field,
                format!("{value:?} is not allowed"),
                &format!("use one of {}", known.join(", ")),
            );
        }
        _ => {}
    };
    one_of("failurePolicy", webhook.failure_policy.as_deref(), FAILURE, true);
    one_of("sideEffects", webhook.side_effects.as_deref(), SIDE_EFFECTS, true);
    one_of("matchPolicy", webhook.match_policy.as_deref(), MATCH, false);
    one_of(
        "reinvocationPolicy",
        webhook.reinvocation_policy.as_deref(),
        REINVOCATION,
        false,
    );
    for verb in &webhook.verbs {
        one_of(
            "verbs",
            Some(verb),
            &["create", "update", "delete", "connect", "*"],
            false,
        );
    }
    if webhook.verbs.is_empty() {
        say(
            "verbs",
            "it is asked about nothing".to_owned(),
            "say `.operations([Operation::Create, Operation::Update])`",
        );
    }
    if webhook.reinvocation_policy.is_some() && !webhook.mutating {
        say(
            "reinvocationPolicy",
            "a validating webhook changes nothing, so it is never called again".to_owned(),
            "leave it out",
        );
    }
    if webhook
        .timeout_seconds
        .is_some_and(|seconds| !(1..=30).contains(&seconds))
    {
        say(
            "timeoutSeconds",
            "it is not between 1 and 30".to_owned(),
            "choose 1 to 30 seconds",
        );
    }
    if webhook.service_port.is_some_and(|port| !(1..=65535).contains(&port)) {
        say(
            "servicePort",
            "it is not between 1 and 65535".to_owned(),
            "choose a port",
        );
    }
    let understood = webhook
        .admission_review_versions
        .iter()
        .any(|version| matches!(version.as_str(), "v1" | "v1beta1"));
    if !understood {
        say(
            "admissionReviewVersions",
            "neither v1 nor v1beta1 is among them".to_owned(),
            "say `v1`",
        );
    }
}

/// The path of a webhook that is given none.
fn usual_path(webhook: &Webhook) -> String {
    let verb = if webhook.mutating { "mutate" } else { "validate" };
    let kind = &webhook.kind;
    crate::project::webhook_path(verb, &kind.group, &kind.version, &kind.kind)
}

fn before_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

const FAILURE: &[&str] = &["Fail", "Ignore"];
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const MATCH: &[&str] = &["Exact", "Equivalent"];
const REINVOCATION: &[&str] = &["Never", "IfNeeded"];

/// The word as the API server spells it; kubebuilder's markers spell it in lower case.
fn spelled(value: &str, known: &[&str]) -> Value {
    json!(
        known
            .iter()
            .find(|known| known.eq_ignore_ascii_case(value))
            .unwrap_or(&value)
    )
}

fn written(webhook: &Webhook) -> Result<Value, Diagnostic> {
    let kind = &webhook.kind;
    let operations: Vec<String> = webhook.verbs.iter().map(|verb| verb.to_uppercase()).collect();
    let groups = webhook.groups.clone().unwrap_or_else(|| vec![kind.group.clone()]);
    let groups: Vec<&str> = groups
        .iter()
        .map(|group| if group == "core" { "" } else { group })
        .collect();
    let client = match &webhook.url {
        Some(url) => json!({"url": url}),
        None => {
            let mut service = Map::from_iter([
                (
                    "name".to_owned(),
                    json!(webhook.service_name.as_deref().unwrap_or("webhook-service")),
                ),
                (
                    "namespace".to_owned(),
                    json!(webhook.service_namespace.as_deref().unwrap_or("system")),
                ),
                ("path".to_owned(), json!(webhook.path)),
            ]);
            if let Some(port) = webhook.service_port {
                service.insert("port".to_owned(), json!(port));
            }
            json!({"service": service})
        }
    };
    let mut out = json!({
        "admissionReviewVersions": webhook.admission_review_versions,
        "clientConfig": client,
        "failurePolicy": spelled(webhook.failure_policy.as_deref().unwrap_or_default(), FAILURE),
        "name": webhook.name,
        "rules": [{
            "apiGroups": groups,
            "apiVersions": webhook.versions.clone().unwrap_or_else(|| vec![kind.version.clone()]),
            "operations": operations,
            "resources": webhook.resources.clone().unwrap_or_else(|| vec![kind.plural.clone()]),
        }],
        "sideEffects": spelled(webhook.side_effects.as_deref().unwrap_or_default(), SIDE_EFFECTS),
    });
    for (field, value, known) in [
        ("matchPolicy", &webhook.match_policy, MATCH),
        ("reinvocationPolicy", &webhook.reinvocation_policy, REINVOCATION),
    ] {
        if let Some(value) = value {
            out[field] = spelled(value, known);
        }
    }
    if let Some(seconds) = webhook.timeout_seconds {
        out["timeoutSeconds"] = json!(seconds);
    }
    let Some(patch) = &webhook.patch else { return Ok(out) };
    let of = if webhook.mutating {
        "MutatingWebhook"
    } else {
        "ValidatingWebhook"
    };
    let schema = catalog::definition(&format!("io.k8s.api.admissionregistration.v1.{of}"))
        .expect("the catalog has the kinds of admissionregistration");
    let bad = |why: String| {
        wrong(codes::PATCH, webhook)
            .at(Place::default().field("patch"))
            .because(why)
            .fix("a patch is one webhook in part: namespaceSelector, objectSelector, matchConditions")
    };
    let patched = strategic::apply(&out, patch.clone(), &schema).map_err(|error| bad(error.to_string()))?;
    let unknown = kubewright_schema::structural::prune(
        &mut patched.clone(),
        &schema,
        kubewright_schema::structural::PruneOptions::BUILT_IN,
    );
    match unknown.first() {
        Some(field) => Err(bad(format!("a webhook has no field {field}"))),
        None => Ok(patched),
    }
}
