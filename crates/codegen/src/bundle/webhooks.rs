//! Webhooks, as a ClusterServiceVersion says them (`WebhookDescription` of operator-framework/api): OLM makes their
//! certificates, the Service and the configurations.

use serde_json::{Map, Value, json};

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::Plan;

/// Where operators listen when no Service says it, and where OLM puts the certificate.
const PORT: u16 = 9443;
const FOLDER: &str = "/tmp/k8s-webhook-server/serving-certs";

/// Fields that both have, under the same name.
const SAME: [&str; 8] = [
    "admissionReviewVersions",
    "failurePolicy",
    "matchPolicy",
    "objectSelector",
    "reinvocationPolicy",
    "rules",
    "sideEffects",
    "timeoutSeconds",
];

/// The definitions of all webhooks.
///
/// # Errors
/// When a webhook is reached by a URL, or matches a kind that OLM does not allow.
pub(super) fn of(objects: &[Value], plan: &mut Plan<'_>) -> Result<Vec<Value>, Diagnostic> {
    let mut definitions = Vec::new();
    for object in objects {
        let kind = match object["kind"].as_str() {
            Some("MutatingWebhookConfiguration") => "MutatingAdmissionWebhook",
            Some("ValidatingWebhookConfiguration") => "ValidatingAdmissionWebhook",
            Some("CustomResourceDefinition") if object["spec"]["conversion"]["strategy"] == "Webhook" => {
                definitions.push(conversion(object, objects));
                continue;
            }
            _ => continue,
        };
        for webhook in object["webhooks"].as_array().into_iter().flatten() {
            may_be(webhook)?;
            lost(webhook, plan);
            let mut definition = ends(&webhook["clientConfig"], objects);
            definition.insert("generateName".to_owned(), webhook["name"].clone());
            definition.insert("type".to_owned(), json!(kind));
            definition.insert(
                "webhookPath".to_owned(),
                webhook["clientConfig"]["service"]["path"].clone(),
            );
            for field in SAME {
                if let Some(value) = webhook.get(field) {
                    definition.insert(field.to_owned(), value.clone());
                }
            }
            definitions.push(Value::Object(definition));
        }
    }
    Ok(definitions)
}

/// The Deployment and the ports of a definition: those of the Service that the webhook names.
fn ends(client: &Value, objects: &[Value]) -> Map<String, Value> {
    let named =
        |object: &&Value| object["kind"] == "Service" && object["metadata"]["name"] == client["service"]["name"];
    let service = objects.iter().find(named);
    let port = client["service"]["port"].as_u64().unwrap_or(443);
    let ports = service.and_then(|service| service["spec"]["ports"].as_array());
    let target = ports.into_iter().flatten().find(|entry| entry["port"] == port);
    let target = target.and_then(|entry| entry.get("targetPort")).cloned();
    let deployments = || objects.iter().filter(|object| object["kind"] == "Deployment");
    let selects = |deployment: &&Value| {
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        let selector = service.and_then(|service| service["spec"]["selector"].as_object());
        selector.is_some_and(|selector| selector.iter().all(|(key, value)| labels[key] == *value))
    };
    let deployment = deployments().find(selects).or_else(|| deployments().next());
    Map::from_iter([
        ("containerPort".to_owned(), json!(port)),
        (
            "deploymentName".to_owned(),
            deployment
                .map(|deployment| deployment["metadata"]["name"].clone())
                .unwrap_or_default(),
        ),
        ("targetPort".to_owned(), target.unwrap_or(json!(PORT))),
    ])
}

/// The names of the Services by which webhooks are reached.
pub(super) fn services(objects: &[Value]) -> Vec<String> {
    let conversions = objects
        .iter()
        .map(|object| &object["spec"]["conversion"]["webhook"]["clientConfig"]);
    let hooks = objects
        .iter()
        .flat_map(|object| object["webhooks"].as_array().into_iter().flatten());
    let clients = hooks.map(|webhook| &webhook["clientConfig"]).chain(conversions);
    let named = clients.filter_map(|client| client["service"]["name"].as_str().map(str::to_owned));
    let usual = objects.iter().filter(|object| is_service(object));
    named
        .chain(usual.filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned)))
        .collect()
}

fn conversion(crd: &Value, objects: &[Value]) -> Value {
    let webhook = &crd["spec"]["conversion"]["webhook"];
    let names = &crd["spec"]["names"];
    let kind = names["singular"].as_str().or(names["kind"].as_str());
    let kind = kind.unwrap_or_default().to_lowercase();
    let path = webhook["clientConfig"]["service"]["path"]
        .as_str()
        .unwrap_or("/convert");
    let mut definition = ends(&webhook["clientConfig"], objects);
    definition.insert(
        "admissionReviewVersions".to_owned(),
        webhook["conversionReviewVersions"].clone(),
    );
    definition.insert("conversionCRDs".to_owned(), json!([crd["metadata"]["name"]]));
    definition.insert("generateName".to_owned(), json!(format!("c{kind}.kb.io")));
    definition.insert("sideEffects".to_owned(), json!("None"));
    definition.insert("type".to_owned(), json!("ConversionWebhook"));
    definition.insert("webhookPath".to_owned(), json!(path));
    Value::Object(definition)
}

/// OLM refuses webhooks about everything, about its own objects, and about webhooks (`ValidateWebhookRules` there).
fn may_be(webhook: &Value) -> Result<(), Diagnostic> {
    let refused = |why: String, fix: &str| {
        let name = webhook["name"].as_str().unwrap_or_default();
        Err(Diagnostic::new(codes::config::BUNDLE, "cannot make the bundle")
            .at(Place::default().field(format!("webhook {name}")))
            .because(why)
            .fix(fix))
    };
    if webhook["clientConfig"].get("service").is_none() {
        return refused(
            "OLM reaches webhooks by a Service that it makes, and this one has a URL".to_owned(),
            "let it be reached by its Service",
        );
    }
    let rules = webhook["rules"].as_array().into_iter().flatten();
    let mut groups = rules.flat_map(|rule| rule["apiGroups"].as_array().into_iter().flatten());
    let closed = ["*", "operators.coreos.com", "admissionregistration.k8s.io"];
    match groups.find(|group| closed.iter().any(|closed| *group == closed)) {
        Some(group) => refused(
            format!("OLM lets no webhook ask about the group {group}"),
            "name the groups that it is about",
        ),
        None => Ok(()),
    }
}

/// Reports the fields that a definition cannot have.
fn lost(webhook: &Value, plan: &mut Plan<'_>) {
    for (field, instead) in [
        (
            "namespaceSelector",
            "OLM sets its own: the namespaces that the operator is installed for",
        ),
        (
            "matchConditions",
            "the webhook is asked about more, and must decide itself",
        ),
    ] {
        if webhook.get(field).is_some() {
            let name = webhook["name"].as_str().unwrap_or_default();
            plan.warnings.push(
                Diagnostic::new(codes::config::BUNDLE, "a field of a webhook is lost in the bundle")
                    .at(Place::default().field(format!("webhook {name}: {field}")))
                    .because(format!("a ClusterServiceVersion has no such field; {instead}")),
            );
        }
    }
}

/// Whether an object is the Service of the webhooks of a project.
fn is_service(object: &Value) -> bool {
    let mut ports = object["spec"]["ports"].as_array().into_iter().flatten();
    object["kind"] == "Service" && ports.any(|port| port["targetPort"] == PORT)
}

/// OLM mounts the certificate of the webhooks where the operator looks for it; a volume of the same place would be in
/// its way.
pub(super) fn leave_certificates_out(deployment: &mut Value) {
    let Some(pod) = deployment.pointer_mut("/spec/template/spec") else {
        return;
    };
    let mut gone = Vec::new();
    let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        if let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
            mounts.retain(|mount| {
                let is_it = mount["mountPath"] == FOLDER;
                if is_it {
                    gone.push(mount["name"].clone());
                }
                !is_it
            });
        }
    }
    if let Some(volumes) = pod.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| !gone.contains(&volume["name"]));
    }
}
