//! `values.yaml`: the values found in `config/`, as the defaults of the chart.

use minijinja::context;
use serde_json::Value;

use crate::yaml;

/// The initial values of the chart.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) project: String,
    pub(super) replicas: Value,
    pub(super) repository: String,
    pub(super) tag: String,
    pub(super) digest: String,
    pub(super) args: Vec<Value>,
    pub(super) resources: Value,
    pub(super) pod_security: Value,
    pub(super) security: Value,
    pub(super) env: Value,
    pub(super) metrics_port: Option<u64>,
    pub(super) webhook_port: Option<u64>,
    pub(super) has_webhooks: bool,
    pub(super) has_crds: bool,
    pub(super) has_certificates: bool,
    pub(super) has_monitor: bool,
    pub(super) has_policies: bool,
    pub(super) has_helpers: bool,
}

/// The text of `values.yaml`.
pub(super) fn text(facts: &Facts) -> String {
    let block = |value: &Value, indent: usize| match value {
        Value::Null => " {}".to_owned(),
        Value::Object(map) if map.is_empty() => " {}".to_owned(),
        Value::Array(list) if list.is_empty() => " []".to_owned(),
        value => {
            let pad = " ".repeat(indent);
            let lines = yaml::to_string(value);
            let lines = lines.trim_end().lines().map(|line| format!("\n{pad}{line}"));
            lines.collect()
        }
    };
    let word = |text: &str| yaml::to_string(&text.into()).trim_end().to_owned();
    super::template_text(
        "values.yaml",
        &context! {
            replicas => facts.replicas.to_string(),
            repository => word(&facts.repository),
            tag => word(&facts.tag),
            digest => word(&facts.digest),
            args => block(&facts.args.clone().into(), 4),
            resources => block(&facts.resources, 4),
            pod_security => block(&facts.pod_security, 4),
            security => block(&facts.security, 4),
            env => block(&facts.env, 4),
            metrics_port => facts.metrics_port,
            webhook_port => facts.webhook_port,
            has_webhooks => facts.has_webhooks,
            has_crds => facts.has_crds,
            has_certificates => facts.has_certificates,
            has_monitor => facts.has_monitor,
            has_policies => facts.has_policies,
            has_helpers => facts.has_helpers,
        },
    )
}
