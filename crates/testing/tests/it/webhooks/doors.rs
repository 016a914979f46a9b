//! One contract for two doors: a webhook that is asked in this process, where nothing is written, answers as over
//! HTTPS.
//!
//! The same operator runs behind both, and each case is a write of which everything is compared that anybody sees: what
//! is stored or refused, in which words, the warnings, and what the audit log says. Invariant: a case in which nothing
//! happens would show, because the outcome is recorded as well.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use kubewright::k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::api::{DynamicObject, PostParams};
use kubewright::kube::client::Body;
use kubewright::kube::{self, ResourceExt as _};
use kubewright::webhook::{Operation, RawDefaulter, RawValidator, WebhookServer, configurations};
use kubewright::{AdmissionRequest, Defaulter, Denied, FieldErrors, Operator, Stop, Validator, Webhook};
use kubewright_cluster::{AuditFormat, AuditLog, AuditPolicy, AuditSink, WebhookCertificates};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use serde_json::{Value, json};

use super::admission;

/// Does what the name of the object says.
struct First;

impl Defaulter for First {
    type Object = ConfigMap;

    async fn default(&self, map: &mut ConfigMap, request: &AdmissionRequest) -> Result<(), Denied> {
        request.annotate("seen", format!("{:?}", request.operation));
        match map.name_any().as_str() {
            "change" | "chain" => {
                map.data
                    .get_or_insert_default()
                    .insert("first".to_owned(), "1".to_owned());
            }
            "deny" => return Err(Denied::with_code(418, "Because", "no tea")),
            "panic" => panic!("asked to"),
            "hang" => std::future::pending().await,
            "warn" => {
                request.warn("careful");
                request.warn("very careful");
            }
            _ => {}
        }
        Ok(())
    }
}

/// Sees what the first made of it, as JSON.
struct Second;

impl RawDefaulter for Second {
    async fn default(&self, object: &mut Value, request: &AdmissionRequest) -> Result<(), Denied> {
        match request.name.as_str() {
            "chain" => object["data"]["second"] = json!(format!("after {}", object["data"]["first"])),
            "untyped" => object["data"] = json!(5),
            "nameless" => drop(object["metadata"].take()),
            "odd" => object["data"]["a/b~c"] = json!("odd"),
            _ => {}
        }
        Ok(())
    }
}

struct Fields;

impl Validator for Fields {
    type Object = ConfigMap;

    async fn create(&self, map: &ConfigMap, request: &AdmissionRequest) -> Result<(), Denied> {
        request.annotate("judged", map.name_any());
        let mut errors = FieldErrors::new();
        if map.name_any() == "invalid" {
            errors.invalid("data[a]", "1", "is wrong");
            errors.required("data[b]", "it is needed");
        }
        errors.into_result()
    }

    async fn update(&self, old: &ConfigMap, new: &ConfigMap, request: &AdmissionRequest) -> Result<(), Denied> {
        request.warn(format!("{:?} was {:?}", new.data, old.data));
        Ok(())
    }

    async fn delete(&self, map: &ConfigMap, _: &AdmissionRequest) -> Result<(), Denied> {
        match map.name_any().as_str() {
            "change" => Err("it stays".into()),
            _ => Ok(()),
        }
    }
}

/// The last word, over the request as it came.
struct LastWord;

impl RawValidator for LastWord {
    async fn validate(&self, request: &AdmissionRequest) -> Result<(), Denied> {
        let field = |object: &Option<Value>| object.as_ref().map(|object| object["data"]["first"].clone());
        let (new, old) = (field(&request.object), field(&request.old_object));
        request.annotate(
            "raw",
            format!(
                "{new:?} {old:?} {}",
                request.user_info.username.as_deref().unwrap_or("")
            ),
        );
        match request.name.as_str() {
            "last" => Err(Denied::new("the last word is no")),
            _ => Ok(()),
        }
    }
}

fn operator() -> Operator {
    let selector = serde_json::from_value(json!({"matchLabels": {"asks": "yes"}})).expect("a selector");
    let operations = [Operation::Create, Operation::Update, Operation::Delete];
    let webhook = Webhook::of::<ConfigMap>()
        .defaulter(First)
        .raw_defaulter(Second)
        .mutating(|webhook| webhook.timeout_seconds(1).object_selector(selector))
        .validator(Fields)
        .raw_validator(LastWord)
        .validating(|webhook| webhook.operations(operations));
    Operator::new("doors").webhook(webhook)
}

/// The audit log, as events.
#[derive(Default)]
struct Recorded(Mutex<Vec<Value>>);

impl AuditSink for Recorded {
    fn write(&self, line: &str) -> Result<(), String> {
        let event = serde_json::from_str(line).map_err(|error| error.to_string())?;
        self.0.lock().map_err(|error| error.to_string())?.push(event);
        Ok(())
    }
}

struct Door {
    cluster: TestCluster,
    events: Arc<Recorded>,
}

impl Door {
    async fn new() -> Result<Door> {
        let events = Arc::new(Recorded::default());
        let policy = b"{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Request}]}";
        let log = AuditLog {
            policy: Arc::new(AuditPolicy::parse(policy).expect("a policy")),
            sink: events.clone(),
            strict: false,
            format: AuditFormat::Json,
            max_event_size: None,
        };
        let cluster = Cluster::builder().controllers(Controllers::None).audit(log);
        let cluster = TestCluster::start_with(cluster).await?;
        Ok(Door { cluster, events })
    }

    /// Everything that anybody sees of a write, without what is never the same twice.
    async fn write(&self, line: &str, body: &Value) -> Value {
        let (method, path) = line.split_once(' ').expect("method and path");
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Body::from(body.to_string().into_bytes()))
            .expect("a request");
        let answer = self.cluster.kube().send(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let warnings = answer.headers().get_all("warning").iter();
        let warnings: Vec<String> = warnings
            .map(|text| String::from_utf8_lossy(text.as_bytes()).into())
            .collect();
        let bytes = answer.into_body().collect_bytes().await.expect("a body");
        let mut said: Value = serde_json::from_slice(&bytes).expect("JSON");
        if let Some(metadata) = said["metadata"].as_object_mut() {
            metadata.retain(|field, _| ["name", "labels"].contains(&field.as_str()));
        }
        if let Some(details) = said["details"].as_object_mut() {
            details.remove("uid");
        }
        let mut events = self.events.0.lock().expect("no test panics here");
        let noted: Vec<Value> = events.drain(..).map(|event| event["annotations"].clone()).collect();
        json!({"code": code, "said": said, "warnings": warnings, "noted": noted})
    }
}

/// Without a socket, as tests and `dev` have it.
async fn inside() -> Result<Door> {
    let door = Door::new().await?;
    door.cluster.run_as_admin(operator()).await?;
    Ok(door)
}

/// Over HTTPS; what stops it comes along.
async fn outside(keys: &std::path::Path) -> Result<(Door, kubewright::StopSource)> {
    let door = Door::new().await?;
    let certificates = WebhookCertificates::new()?;
    certificates.write(keys, &["127.0.0.1"])?;
    let server = WebhookServer::new().address("127.0.0.1:0").certificate_dir(keys);
    let operator = operator().webhook_server(server);
    let descriptions = operator.webhooks();
    let manager = operator.manager(door.cluster.kube()).build()?;
    let address = manager.webhook_address();
    let (stop, stopped) = Stop::pair();
    tokio::spawn(async move { manager.run(async move { stopped.requested().await }).await });
    let address = address.await;
    let bundle = base64::engine::general_purpose::STANDARD.encode(certificates.ca());
    let reached = |path: &str| json!({"url": format!("https://{address}{path}"), "caBundle": bundle});
    for configuration in configurations("doors-", &descriptions, |webhook| reached(&webhook.path)) {
        let kind = configuration["kind"].as_str().unwrap_or_default().to_owned();
        let configuration: DynamicObject = serde_json::from_value(configuration).expect("an object");
        admission(&door.cluster, &kind)
            .create(&PostParams::default(), &configuration)
            .await?;
    }
    Ok((door, stop))
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"asks": "yes"}}, "data": data})
}

/// Addresses differ, and the time of an answer that did not come.
fn alike(mut seen: Value) -> Value {
    let text = seen.to_string();
    let mut rest = text.as_str();
    let mut shown = String::new();
    while let Some(at) = rest.find("https://") {
        let end = rest[at + 8..].find('/').map_or(rest.len(), |end| at + 8 + end);
        shown.push_str(&rest[..at]);
        shown.push_str("https://DOOR");
        rest = &rest[end..];
    }
    shown.push_str(rest);
    if let Some((before, late)) = shown.split_once("did not decide within ") {
        let time = late.find(['"', ' ']).unwrap_or(late.len());
        shown = format!("{before}did not decide in TIME{}", &late[time..]);
    }
    seen = serde_json::from_str(&shown).expect("still JSON");
    seen
}

#[tokio::test]
async fn both_doors_answer_alike() -> Result<()> {
    let inside = inside().await?;
    let keys = tempfile::tempdir().expect("a temporary directory");
    let (outside, _stop) = outside(keys.path()).await?;
    let create = format!("POST {MAPS}");
    let changed = format!("{MAPS}/change");
    let mut told = Vec::new();
    for (line, body) in [
        (create.clone(), map("same", json!({"a": "1"}))),
        (create.clone(), map("change", json!({"a": "1"}))),
        (create.clone(), map("chain", json!({}))),
        (create.clone(), map("warn", json!({"a": "1"}))),
        (create.clone(), map("deny", json!({}))),
        (create.clone(), map("panic", json!({}))),
        (create.clone(), map("hang", json!({}))),
        (create.clone(), map("untyped", json!({}))),
        (create.clone(), map("nameless", json!({}))),
        (create.clone(), map("odd", json!({"a": "1"}))),
        (create.clone(), map("invalid", json!({}))),
        (create.clone(), map("last", json!({}))),
        (format!("{create}?dryRun=All"), map("change-dry", json!({}))),
        (format!("PUT {changed}"), map("change", json!({"a": "2"}))),
        (format!("DELETE {changed}"), json!({})),
        (format!("DELETE {MAPS}/same"), json!({})),
    ] {
        let seen = alike(inside.write(&line, &body).await);
        assert_eq!(seen, alike(outside.write(&line, &body).await), "{line} {body}");
        told.push(format!(
            "{line} {}\n{}",
            body["metadata"]["name"],
            serde_json::to_string_pretty(&seen).expect("JSON")
        ));
    }
    insta::assert_snapshot!(told.join("\n\n"));
    Ok(())
}

/// A webhook that is gone, and a configuration that does not ask in `v1`, take the other way inside: they are answered
/// as well.
#[tokio::test]
async fn old_reviews_are_written() -> Result<()> {
    let door = inside().await?;
    let api = admission(&door.cluster, "MutatingWebhookConfiguration");
    let mut found = api.list(&Default::default()).await?.items;
    let mut configuration = found.pop().expect("there is one");
    configuration.data["webhooks"][0]["admissionReviewVersions"] = json!(["v1beta1"]);
    api.replace(&configuration.name_any(), &PostParams::default(), &configuration)
        .await?;
    let seen = door.write(&format!("POST {MAPS}"), &map("chain", json!({}))).await;
    assert_eq!(
        seen["said"]["data"],
        json!({"first": "1", "second": "after \"1\""}),
        "{seen}"
    );
    Ok(())
}

/// What a user's test calls directly.
#[test]
fn a_detached_request_remembers_what_was_noted() {
    let request = AdmissionRequest::detached::<ConfigMap>(Operation::Create);
    request.annotate("a", "1");
    request.annotate("a", "2");
    assert_eq!(request.audit_annotations(), [("a".to_owned(), "2".to_owned())].into());
    let _: &kube::core::GroupVersionKind = &request.kind;
}
