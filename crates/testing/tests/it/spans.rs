//! The spans that a tracing subscriber sees: a reconcile, and the requests within it. In a process of its
//! own, because the interest in spans is remembered by the whole process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::Api;
use kubewright::kube::api::PostParams;
use kubewright::{Action, Context, Controller, Operator, Reconciler, Stop, Validator, Webhook};
use kubewright_testing::{Result, TestCluster};
use serde_json::json;
use tokio::sync::watch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context as Spans, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A span as it was when it closed.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// Keeps closed spans.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Seen>>>);

impl Collector {
    fn of(&self, name: &str) -> Vec<Seen> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|span| span.name == name).cloned().collect()
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, spans: Spans<'_, S>) {
        let Some(span) = spans.span(id) else { return };
        let mut seen = Seen {
            name: span.name(),
            parent: span.parent().map(|parent| parent.name()),
            ..Seen::default()
        };
        attributes.record(&mut seen);
        span.extensions_mut().insert(seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, spans: Spans<'_, S>) {
        if let Some(seen) = spans.span(id).and_then(|span| span.extensions_mut().remove::<Seen>()) {
            let mut seen = seen;
            values.record(&mut seen);
            if let Some(span) = spans.span(id) {
                span.extensions_mut().insert(seen);
            }
        }
    }

    fn on_close(&self, id: Id, spans: Spans<'_, S>) {
        if let Some(seen) = spans.span(&id).and_then(|span| span.extensions_mut().remove::<Seen>()) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
        }
    }
}

struct Copier(watch::Sender<usize>);

impl Reconciler for Copier {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, ctx: Context) -> kubewright::Result<Action> {
        if ctx.request().name() == "a" {
            let mut copy = ConfigMap::default();
            copy.metadata.name = Some("a-copy".to_owned());
            ctx.apply(copy).await?;
            self.0.send_modify(|done| *done += 1);
        }
        Ok(Action::await_change())
    }
}

struct Anything;

impl Validator for Anything {
    type Object = ConfigMap;
}

/// Runs one reconcile that writes, and one webhook, in the sight of a subscriber that takes some targets.
async fn reconciled(targets: &str) -> Result<Collector> {
    let collector = Collector::default();
    let targets: Targets = targets.parse().expect("targets");
    let _seen =
        tracing::subscriber::set_default(tracing_subscriber::registry().with(collector.clone().with_filter(targets)));
    let cluster = TestCluster::start().await?;
    let (done, mut reconciles) = watch::channel(0);
    let controller = Controller::of(Copier(done)).named("copier");
    let webhook = Webhook::of::<ConfigMap>().validator(Anything);
    let operator = Operator::new("copier").controller(controller).webhook(webhook);
    let manager = operator.manager(cluster.kube()).build()?;
    let webhooks = manager.webhooks();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": "CREATE", "name": "b", "namespace": "default", "userInfo": {"username": "alice"},
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "default"}},
        },
    });
    let answer = webhooks
        .call("/validate--v1-configmap", Duration::from_secs(10), review)
        .await;
    assert_eq!(answer.expect("an answer")["response"]["allowed"], true);
    drop(webhooks);
    let (stop, token) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { token.requested().await }).await });
    let mut object = ConfigMap::default();
    object.metadata.name = Some("a".to_owned());
    Api::<ConfigMap>::namespaced(cluster.kube(), "default")
        .create(&PostParams::default(), &object)
        .await?;
    reconciles.wait_for(|done| *done > 0).await.expect("it reconciles");
    stop.stop();
    running.await.expect("no panic")?;
    Ok(collector)
}

/// One test, because two subscribers at a time make tracing ask both about everything.
#[tokio::test]
async fn a_reconcile_is_a_span_and_its_requests_are_within() -> Result<()> {
    if crate::alone::ran(&a_reconcile_is_a_span_and_its_requests_are_within) {
        return Ok(());
    }
    let seen = reconciled("info").await?;
    assert!(seen.of("request").is_empty() && seen.of("webhook").is_empty());
    let reconciles = seen.of("reconcile");
    assert!(!reconciles.is_empty(), "log lines need them");
    let with_cause = reconciles.iter().find(|span| span.fields.contains_key("cause"));
    assert!(with_cause.is_none(), "nobody wants it: {with_cause:?}");

    let seen = reconciled("kubewright=debug").await?;
    let reconciles = seen.of("reconcile");
    let of_a = |span: &&Seen| span.fields["controller"] == "copier" && span.fields["object"] == "default/a";
    let fields = &reconciles.iter().find(of_a).expect("it was reconciled").fields;
    assert!(fields["cause"].starts_with("ConfigMap default/a "), "{fields:?}");
    assert!(
        fields.contains_key("reconcile_id") && fields.contains_key("waited"),
        "{fields:?}"
    );
    let requests = seen.of("request");
    let request = requests
        .iter()
        .find(|span| span.fields.get("verb").is_some_and(|verb| verb == "patch"))
        .unwrap_or_else(|| panic!("{requests:?}"));
    assert_eq!(request.parent, Some("reconcile"));
    let webhooks = seen.of("webhook");
    let [webhook] = &webhooks[..] else {
        panic!("{webhooks:?}")
    };
    for (field, value) in [
        ("path", "/validate--v1-configmap"),
        ("uid", "u-1"),
        ("operation", "Create"),
        ("code", "200"),
    ] {
        assert_eq!(
            webhook.fields.get(field).map(String::as_str),
            Some(value),
            "{field} of {webhook:?}"
        );
    }
    for (field, value) in [
        ("resource", "configmaps"),
        ("namespace", "default"),
        ("name", "a-copy"),
        ("status", "201"),
        ("attempts", "1"),
    ] {
        assert_eq!(
            request.fields.get(field).map(String::as_str),
            Some(value),
            "{field} of {request:?}"
        );
    }
    assert!(
        request.fields.contains_key("latency") && !request.fields.contains_key("group"),
        "{request:?}"
    );
    Ok(())
}
