//! The answers of the handlers to any document.

use std::sync::Arc;

use std::time::Duration;

use base64::Engine as _;
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::cache::Cache;
use crate::client::Client;
use crate::error::Error;

/// Obeys the object's name.
struct Obedient;

impl Defaulter for Obedient {
    type Object = ConfigMap;

    async fn default(&self, config: &mut ConfigMap, request: &AdmissionRequest) -> Result<(), Denied> {
        match config.metadata.name.as_deref() {
            Some("change") => {
                config
                    .data
                    .get_or_insert_default()
                    .insert("volume".to_owned(), "11".to_owned());
            }
            Some("warn") => request.warn("careful"),
            Some("deny") => return Err("no".into()),
            Some("retry") => return Err(Error::retry("the database is down").into()),
            Some("panic") => panic!("asked to"),
            Some("hang") => std::future::pending::<()>().await,
            _ => {}
        }
        Ok(())
    }
}

impl Authenticator for Obedient {
    async fn authenticate(&self, asked: &TokenRequest) -> Result<Option<UserInfo>, Denied> {
        match asked.token() {
            "panic" => panic!("asked to"),
            "hang" => std::future::pending().await,
            "retry" => Err(Error::retry("the database is down").into()),
            token => Ok(token.strip_prefix("user:").map(|name| UserInfo {
                username: Some(name.to_owned()),
                groups: Some(vec!["guests".to_owned()]),
                ..UserInfo::default()
            })),
        }
    }
}

impl Validator for Obedient {
    type Object = ConfigMap;

    async fn update(&self, old: &ConfigMap, new: &ConfigMap, _: &AdmissionRequest) -> Result<(), Denied> {
        let mut errors = FieldErrors::new();
        if old.data != new.data {
            errors.forbidden("data", "is immutable");
        }
        errors.into_result()
    }
}

macro_rules! version {
    ($module:ident, $version:literal, $field:ident) => {
        mod $module {
            use super::*;

            #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
            #[kube(group = "my.domain", version = $version, kind = "Thing", namespaced)]
            pub(super) struct ThingSpec {
                pub(super) $field: i32,
            }
        }
    };
}
version!(v1, "v1", one);
version!(v2, "v2", two);
version!(v3, "v3", three);

impl From<v1::Thing> for v2::Thing {
    fn from(hub: v1::Thing) -> v2::Thing {
        assert!(hub.spec.one != 666, "asked to");
        v2::Thing {
            metadata: hub.metadata,
            spec: v2::ThingSpec { two: hub.spec.one },
        }
    }
}

impl From<v2::Thing> for v1::Thing {
    fn from(spoke: v2::Thing) -> v1::Thing {
        v1::Thing {
            metadata: spoke.metadata,
            spec: v1::ThingSpec { one: spoke.spec.two },
        }
    }
}

impl From<v1::Thing> for v3::Thing {
    /// Forgets the metadata, but for an annotation of its own.
    fn from(hub: v1::Thing) -> v3::Thing {
        let mut thing = v3::Thing::new("", v3::ThingSpec { three: hub.spec.one });
        thing.metadata.annotations = Some([("from".to_owned(), "v1".to_owned())].into());
        thing
    }
}

impl TryFrom<v3::Thing> for v1::Thing {
    type Error = String;

    fn try_from(spoke: v3::Thing) -> Result<v1::Thing, String> {
        match spoke.spec.three {
            odd if odd % 2 == 1 => Err(format!("spec.three: {odd} is odd")),
            even => Ok(v1::Thing {
                metadata: spoke.metadata,
                spec: v1::ThingSpec { one: even },
            }),
        }
    }
}

fn client() -> Client {
    let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("there is no cluster"))
    });
    let kube = kube::Client::new(nobody, "default");
    Client::new(kube.clone(), Cache::new(kube))
}

fn parts() -> Parts {
    let conversion = Conversion::hub::<v1::Thing>().spoke::<v2::Thing>().spoke::<v3::Thing>();
    Parts {
        webhooks: Webhook::of::<ConfigMap>()
            .defaulter(Obedient)
            .validator(Obedient)
            .into_registered(),
        conversions: vec![Box::new(conversion)],
        authenticators: vec![("/authenticate".to_owned(), Box::new(Obedient))],
    }
}

fn handlers() -> WebhookHandlers {
    WebhookHandlers::new(parts(), client(), Arc::new(crate::SystemClock))
}

fn review(operation: &str, object: Value, old: Value) -> Value {
    let name = [&object, &old]
        .map(|object| object["metadata"]["name"].as_str().unwrap_or_default())
        .concat();
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": operation, "name": name, "namespace": "default",
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "object": object, "oldObject": old, "userInfo": {"username": "alice"},
        },
    })
}

/// The answer in one line: whether, why, and the patch.
async fn admitted(path: &str, review: Value) -> String {
    let answer = handlers().call(path, Duration::from_millis(50), review).await;
    let answer = match answer {
        Err(status) => return format!("HTTP {}: {}", status.code, status.message),
        Ok(answer) => answer,
    };
    let response = &answer["response"];
    assert_eq!(response["uid"], "u-1", "W1: {answer}");
    assert_eq!(answer["kind"], "AdmissionReview");
    let mut line = format!("allowed={} code={}", response["allowed"], response["status"]["code"]);
    if let Some(message) = response["status"]["message"].as_str() {
        line.push_str(&format!(" {message}"));
    }
    if let Some(patch) = response["patch"].as_str() {
        let patch = base64::engine::general_purpose::STANDARD.decode(patch).expect("base64");
        line.push_str(&format!(" patch={}", String::from_utf8_lossy(&patch)));
    }
    if !response["warnings"].is_null() {
        line.push_str(&format!(" warnings={}", response["warnings"]));
    }
    line
}

#[tokio::test(start_paused = true)]
async fn w1_every_review_gets_an_answer_with_its_uid() {
    let config = |name: &str| json!({"metadata": {"name": name}, "unknown": {"kept": true}});
    let mut answers = Vec::new();
    for name in ["same", "change", "warn", "deny", "retry", "panic", "hang"] {
        let answer = admitted("/mutate--v1-configmap", review("CREATE", config(name), Value::Null)).await;
        answers.push(format!("{name}: {answer}"));
    }
    let (full, empty) = (json!({"metadata": {"name": "c"}, "data": {"a": "b"}}), config(""));
    for (path, operation, object, old) in [
        ("/mutate--v1-configmap", "DELETE", Value::Null, full.clone()),
        ("/mutate--v1-configmap", "CREATE", Value::Null, Value::Null),
        ("/mutate--v1-configmap", "CREATE", json!({"data": [1]}), Value::Null),
        ("/validate--v1-configmap", "CREATE", full.clone(), Value::Null),
        ("/validate--v1-configmap", "UPDATE", full.clone(), empty),
        ("/validate--v1-configmap", "DELETE", Value::Null, full.clone()),
        (
            "/validate--v1-configmap",
            "CONNECT",
            json!({"kind": "PodExecOptions"}),
            Value::Null,
        ),
        ("/validate--v1-pod", "CREATE", full, Value::Null),
    ] {
        answers.push(format!(
            "{operation} {path}: {}",
            admitted(path, review(operation, object, old)).await
        ));
    }
    insta::assert_snapshot!(answers.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn tokens_are_their_users_or_nobodys() {
    let check = async |version: &str, spec: Value, expected: &str| {
        let review = json!({
            "apiVersion": format!("authentication.k8s.io/{version}"), "kind": "TokenReview", "spec": spec,
        });
        let answer = handlers()
            .call("/authenticate", Duration::from_millis(50), review)
            .await;
        let answered = match answer {
            Err(status) => format!("HTTP {}: {}", status.code, status.message),
            Ok(answer) => {
                assert_eq!(answer["kind"], "TokenReview");
                assert_eq!(answer["apiVersion"], format!("authentication.k8s.io/{version}"));
                answer["status"].to_string()
            }
        };
        assert_eq!(answered, expected, "{spec}");
    };
    check(
        "v1",
        json!({"token": "user:ann", "audiences": ["api"]}),
        r#"{"audiences":["api"],"authenticated":true,"user":{"groups":["guests"],"username":"ann"}}"#,
    )
    .await;
    let nobody = r#"{"authenticated":false}"#;
    check("v1beta1", json!({"token": "other"}), nobody).await;
    let failed = |why: &str| format!("{{\"authenticated\":false,\"error\":{why:?}}}");
    check("v1", json!({"token": "panic"}), &failed("panic: asked to [recovered]")).await;
    check("v1", json!({"token": "retry"}), &failed("the database is down")).await;
    let late = failed("/authenticate did not decide within 50ms");
    check("v1", json!({"token": "hang"}), &late).await;
    check("v1", json!({}), "HTTP 400: the TokenReview has no token").await;
    check("v1", Value::Null, "HTTP 400: the TokenReview has no spec").await;
    check("v2", json!({"token": "x"}), "HTTP 400: the body is a \"TokenReview\" of \"authentication.k8s.io/v2\", but this path takes TokenReview of authentication.k8s.io/v1 or authentication.k8s.io/v1beta1").await;
}

/// W3: a dry run's client cannot write.
#[tokio::test]
async fn w3_a_dry_run_is_dry_for_the_client_too() {
    let mut document = review("CREATE", json!({}), Value::Null);
    document["request"]["dryRun"] = json!(true);
    let asked = super::review::read_admission(document).expect("it is a review");
    let request = asked
        .request
        .in_manager(&client(), &(Arc::new(crate::SystemClock) as Arc<dyn crate::Clock>));
    assert!(format!("{:?}", request.client().expect("it has one")).contains("dry_run: true"));
}

/// W4: order, metadata, names in errors.
#[tokio::test]
async fn w4_conversions_go_through_the_hub() {
    let thing = |version: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": format!("my.domain/{version}"), "kind": "Thing", "spec": spec,
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"kept": "yes"}, "managedFields": []},
        })
    };
    let mut answers = Vec::new();
    for (to, objects) in [
        (
            "v3",
            vec![
                thing("v2", "a", json!({"two": 2})),
                thing("v1", "b", json!({"one": 1})),
                thing("v3", "c", json!({"three": 3})),
            ],
        ),
        (
            "v2",
            vec![
                thing("v3", "even", json!({"three": 4})),
                thing("v3", "odd", json!({"three": 5})),
            ],
        ),
        ("v2", vec![thing("v1", "devil", json!({"one": 666}))]),
        ("v1", vec![thing("v2", "broken", json!({"two": "x"}))]),
        ("v9", vec![thing("v1", "future", json!({"one": 1}))]),
        (
            "v1",
            vec![json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})],
        ),
    ] {
        let review = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "u-2", "desiredAPIVersion": format!("my.domain/{to}"), "objects": objects},
        });
        let answer = handlers()
            .call("/convert", Duration::from_secs(1), review)
            .await
            .expect("an answer");
        assert_eq!(answer["response"]["uid"], "u-2", "W1: {answer}");
        answers.push(match answer["response"]["result"]["status"].as_str() {
            Some("Success") => {
                let objects = answer["response"]["convertedObjects"].as_array().expect("objects");
                objects.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
            }
            _ => answer["response"]["result"]["message"]
                .as_str()
                .expect("a message")
                .to_owned(),
        });
    }
    insta::assert_snapshot!(answers.join("\n\n"));
}

#[test]
fn a_declaration_that_cannot_work_is_refused() {
    let check = |change: fn(&mut Parts), expected: &str| {
        let mut parts = parts();
        change(&mut parts);
        let error = parts.check().expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    assert!(parts().check().is_ok());
    let twice: fn(&mut Parts) = |parts| parts.webhooks.extend(self::parts().webhooks);
    check(twice, "two webhooks are served under /mutate--v1-configmap");
    check(
        |parts| parts.webhooks[0].description.path = "mutate".to_owned(),
        "must begin with /",
    );
    check(
        |parts| parts.webhooks[0].description.path = "/convert".to_owned(),
        "belongs to conversions",
    );
    check(
        |parts| parts.webhooks[0].description.name = "short".to_owned(),
        "at least three labels",
    );
    check(
        |parts| parts.webhooks[0].description.timeout_seconds = Some(31),
        "between 1 and 30 seconds",
    );
    check(
        |parts| parts.webhooks[1].description.reinvocation_policy = Some("Never"),
        "for mutating webhooks only",
    );
    check(|parts| parts.authenticators[0].0 = "me".to_owned(), "must begin with /");
    check(
        |parts| parts.authenticators[0].0 = "/mutate--v1-configmap".to_owned(),
        "two webhooks are served under /mutate--v1-configmap",
    );
    check(
        |parts| parts.conversions.push(Box::new(Conversion::hub::<v1::Thing>())),
        "Thing has two conversions",
    );
    check(
        |parts| {
            let doubled = Conversion::hub::<v1::Thing>().spoke::<v2::Thing>().spoke::<v2::Thing>();
            parts.conversions = vec![Box::new(doubled)];
        },
        "names version v2 twice",
    );
}

/// The form that the generator of manifests reads, and the configurations that a cluster gets.
#[test]
fn descriptions_are_kubebuilders() {
    let described = Webhook::of::<v1::Thing>();
    assert!(described.descriptions().is_empty());
    let webhook = Webhook::of::<ConfigMap>()
        .defaulter(Obedient)
        .mutating(|webhook| {
            webhook
                .path("/defaults")
                .operations([Operation::Create])
                .failure_policy(FailurePolicy::Ignore)
                .match_policy(MatchPolicy::Exact)
                .side_effects(SideEffects::NoneOnDryRun)
                .timeout_seconds(5)
                .reinvocation_policy(Reinvocation::IfNeeded)
                .subresources(["", "status"])
                .match_conditions([("not-system", "request.namespace != 'kube-system'")])
        })
        .validator(Obedient);
    let descriptions = webhook.descriptions();
    let configured = configurations("op-", &descriptions, |webhook| json!({"url": webhook.path}));
    insta::assert_snapshot!(format!(
        "{}\n{}",
        serde_json::to_string_pretty(&descriptions).expect("JSON"),
        serde_json::to_string_pretty(&configured).expect("JSON")
    ));
}
