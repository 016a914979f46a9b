//! `values.yaml`: the values found in `config/`, as the defaults of the chart.

use minijinja::context;
use serde_json::Value;

use crate::yaml;

/// The initial values of the chart.
#[derive(Default)]
pub(super) struct Defaults {
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
pub(super) fn text(defaults: &Defaults) -> String {
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
            replicas => defaults.replicas.to_string(),
            repository => word(&defaults.repository),
            tag => word(&defaults.tag),
            digest => word(&defaults.digest),
            args => block(&defaults.args.clone().into(), 4),
            resources => block(&defaults.resources, 4),
            pod_security => block(&defaults.pod_security, 4),
            security => block(&defaults.security, 4),
            env => block(&defaults.env, 4),
            metrics_port => defaults.metrics_port,
            webhook_port => defaults.webhook_port,
            has_webhooks => defaults.has_webhooks,
            has_crds => defaults.has_crds,
            has_certificates => defaults.has_certificates,
            has_monitor => defaults.has_monitor,
            has_policies => defaults.has_policies,
            has_helpers => defaults.has_helpers,
        },
    )
}
